//! The listening socket: inherited, of an address, or of a path, as stock makes it.
//!
//! Made once and kept for the server's life, so that no connect is refused while a frontend is restarted.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use dns_lookup::{AddrInfoHints, getaddrinfo};
use listenfd::ListenFd;
use nix::unistd::User;
use socket2::{Domain, SockAddr, Socket, Type};

use super::claim::{Attempt, PathClaim, Patience};
use crate::cli::Settings;
use crate::error::{Exit, Fatal};
use crate::limits::LISTEN_BACKLOG;

/// Room for a socket's path in the kernel's address, its end mark included: `sun_path`.
pub(super) const SOCKET_PATH_BYTES: usize = 108;

/// What a service manager handed us, if it did.
pub struct Inherited(ListenFd);

impl Inherited {
    pub fn find() -> Inherited {
        Inherited(ListenFd::from_env())
    }
}

/// The socket that clients connect to, and the claim on its path if it has one.
pub fn open(
    settings: &Settings,
    user: Option<&User>,
    inherited: Inherited,
) -> Result<(OwnedFd, Option<PathClaim>), Fatal> {
    let refuse = |reason: String| Fatal::new(Exit::Listen, reason);
    if inherited.0.len() > 0 {
        for flag in &settings.listen_flags {
            tracing::warn!("inherited a listening socket: {flag} is ignored");
        }
        return Ok((adopt(inherited.0).map_err(refuse)?, None));
    }
    let host = settings.address.as_deref();
    match host.and_then(|address| address.strip_prefix("unix:")) {
        Some(path) => unix(path, user).map(|(socket, claim)| (socket, Some(claim))),
        None => Ok((inet(host, &settings.port).map_err(refuse)?, None)),
    }
}

fn adopt(mut inherited: ListenFd) -> Result<OwnedFd, String> {
    if inherited.len() > 1 {
        tracing::warn!("inherited {} sockets: only the first is used", inherited.len());
    }
    let no_listener = || "the inherited descriptor is no TCP or UNIX listening socket".to_owned();
    let socket = if let Ok(Some(tcp)) = inherited.take_tcp_listener(0) {
        Socket::from(tcp)
    } else if let Ok(Some(unix)) = inherited.take_unix_listener(0) {
        Socket::from(OwnedFd::from(unix))
    } else {
        return Err(no_listener());
    };
    match socket.is_listener() {
        Ok(true) => socket.set_nonblocking(true).map(|()| socket.into()).map_err(|e| e.to_string()),
        _ => Err(no_listener()),
    }
}

/// The first address of host and port that takes a listener; `None` is any address. One that is taken is tried
/// again for as long as the frontends of a killed server may still hold it.
fn inet(host: Option<&str>, port: &str) -> Result<OwnedFd, String> {
    let name = host.unwrap_or("*");
    let hints =
        AddrInfoHints { flags: libc::AI_PASSIVE, socktype: libc::SOCK_STREAM, ..AddrInfoHints::default() };
    let unknown = |error: dns_lookup::LookupError| format!("{name}:{port}: {}", io::Error::from(error));
    let addresses: Vec<SocketAddr> =
        getaddrinfo(host, Some(port), Some(hints)).map_err(unknown)?.flatten().map(|a| a.sockaddr).collect();
    let patience = Patience::new();
    let mut reason = format!("{name}:{port}: no address");
    for address in addresses {
        let made = patience.attempt(|| match listener(&address.into(), host.is_none()) {
            Ok(socket) => Attempt::Done(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Attempt::Busy(error.to_string()),
            Err(error) => Attempt::Failed(error.to_string()),
        });
        match made {
            Ok(socket) => {
                let bound = socket.local_addr().ok().and_then(|a| a.as_socket()).unwrap_or(address);
                tracing::info!("listening on {bound}");
                return Ok(socket.into());
            }
            Err(error) => reason = format!("{address}: {error}"),
        }
    }
    Err(reason)
}

fn listener(address: &SockAddr, any: bool) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    // Accepted connections inherit these.
    socket.set_keepalive(true)?;
    socket.set_nodelay(true)?;
    if any && address.domain() == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket)
}

fn unix(path: &str, user: Option<&User>) -> Result<(OwnedFd, PathClaim), Fatal> {
    let refuse = |reason: String| Fatal::new(Exit::Listen, format!("unix:{path}: {reason}"));
    if path.is_empty() {
        return Err(refuse("no path".to_owned()));
    }
    if path.len() >= SOCKET_PATH_BYTES {
        return Err(refuse(format!("the path is too long: at most {} bytes", SOCKET_PATH_BYTES - 1)));
    }
    let address = SockAddr::unix(path).map_err(|e| refuse(e.to_string()))?;
    let mut claim = PathClaim::take(path, &address, user).map_err(refuse)?;
    let make = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address)?;
        socket.listen(LISTEN_BACKLOG)?;
        Ok(socket)
    };
    let socket = make().map_err(|e: io::Error| refuse(e.to_string()))?;
    claim.made();
    tracing::info!("listening on {path}");
    Ok((socket.into(), claim))
}

//! A client's socket: TCP or unix, non-blocking, with the bytes that it has not taken yet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};

/// A listening socket that came from the supervisor.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connected client.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub fn new(fd: OwnedFd) -> io::Result<Listener> {
        let socket = socket2::Socket::from(fd);
        socket.set_nonblocking(true)?;
        Ok(if socket.domain()? == socket2::Domain::UNIX {
            Listener::Unix(UnixListener::from_std(std::os::unix::net::UnixListener::from(OwnedFd::from(
                socket,
            ))))
        } else {
            Listener::Tcp(TcpListener::from_std(socket.into()))
        })
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(l) => registry.register(l, token, Interest::READABLE),
            Listener::Unix(l) => registry.register(l, token, Interest::READABLE),
        }
    }

    /// A client, and the address that it comes from if it has one.
    pub fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        Ok(match self {
            Listener::Tcp(l) => {
                let (stream, from) = l.accept()?;
                (Stream::Tcp(stream), Some(from.ip()))
            }
            Listener::Unix(l) => (Stream::Unix(l.accept()?.0), None),
        })
    }
}

impl Stream {
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(s) => registry.register(s, token, interest),
            Stream::Unix(s) => registry.register(s, token, interest),
        }
    }

    fn read_once(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(room),
            Stream::Unix(s) => s.read(room),
        }
    }

    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(bytes),
            Stream::Unix(s) => s.write(bytes),
        }
    }

    /// One read. `Ok(None)`: nothing there now; `Ok(Some(0))`: the client sends no more.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.read_once(room) {
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Bytes for the client that are not sent yet. `sent <= bytes.len()`.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

/// A buffer larger than this is given back when it is empty, so that an idle client holds no memory.
const KEEP_BYTES: usize = 4 << 10;

impl Output {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends what the client takes now. An error means that it is gone.
    pub fn flush(&mut self, stream: &mut Stream) -> io::Result<()> {
        while !self.is_empty() {
            match stream.write_once(&self.bytes[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.sent = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        Ok(())
    }
}

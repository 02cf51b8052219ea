//! One of the two servers under comparison, with its clients and an observer of our own.
//!
//! Knows bytes and connections, not what is right. Nothing here sleeps to let a server get on: the original is
//! settled by its own order of events (`settle`), Trellis by what it is expected to say.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::reply::Reply;
use crate::bench::server::{Server, Setup};
use crate::error::{Exit, Fatal};
use crate::limits;

pub struct Side {
    setup: Setup,
    server: Option<Server>,
    clients: BTreeMap<String, Connection>,
    observer: Option<Connection>,
    /// The observer's commands since the start of the server, by the field of `stats` that counts them.
    pub own: BTreeMap<&'static str, i64>,
}

struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    ended: bool,
    /// `End` was taken.
    told: bool,
}

impl Side {
    pub fn start(setup: Setup) -> Result<Side, Fatal> {
        let mut side =
            Side { setup, server: None, clients: BTreeMap::new(), observer: None, own: BTreeMap::new() };
        side.open()?;
        Ok(side)
    }

    fn open(&mut self) -> Result<(), Fatal> {
        let server = Server::start(&self.setup, limits::BENCH_START)?;
        // Starting has asked once to see whether it answers; that connection is gone and counted.
        self.own = [("cmd-list-tube-used", 1)].into();
        self.observer = Some(Connection::open(&server)?);
        self.server = Some(server);
        self.ask_uncounted()
    }

    /// Kills it and starts it again; all clients are gone.
    pub fn restart(&mut self) -> Result<(), Fatal> {
        // In this order: a server that lives on for a moment would see its clients leave.
        self.server = None;
        self.clients.clear();
        self.observer = None;
        self.open()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), Fatal> {
        self.server().signal(signal)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs but within a restart")
    }

    pub fn name(&self) -> &'static str {
        self.setup.program.name()
    }

    pub fn log(&self) -> String {
        self.server().log()
    }

    pub fn has(&self, client: &str) -> bool {
        self.clients.contains_key(client)
    }

    /// Sends; connects first if there is no such client. A connection that the server has closed takes nothing.
    pub fn send(&mut self, client: &str, bytes: &[u8]) -> Result<(), Fatal> {
        if !self.clients.contains_key(client) {
            let connection = Connection::open(self.server())?;
            self.clients.insert(client.to_owned(), connection);
        }
        self.clients.get_mut(client).expect("just made").send(bytes)
    }

    pub fn half(&mut self, client: &str) {
        if let Some(connection) = self.clients.get(client) {
            // Fails if the server has closed it already: then there is nothing to close.
            let _ = connection.stream.shutdown(Shutdown::Write);
        }
    }

    pub fn close(&mut self, client: &str) {
        self.clients.remove(client);
    }

    /// Reads what has come, without waiting. True if anything was new.
    pub fn read_all(&mut self) -> Result<bool, Fatal> {
        let mut new = false;
        for connection in self.clients.values_mut() {
            new |= connection.read_available()?;
        }
        Ok(new)
    }

    /// Waits until some client gets something, for `limit` at most.
    pub fn wait(&self, limit: Duration) -> Result<(), Fatal> {
        let open = self.clients.values().filter(|connection| !connection.ended);
        let mut fds: Vec<PollFd> =
            open.map(|connection| PollFd::new(connection.stream.as_fd(), PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(Fatal::temporary("poll", error)),
        }
    }

    /// The next whole reply of a client, of what has been read.
    pub fn take(&mut self, client: &str) -> Option<Reply> {
        self.clients.get_mut(client)?.take()
    }

    pub fn client_names(&self) -> Vec<String> {
        self.clients.keys().cloned().collect()
    }

    /// Whether bytes are there that are no whole reply yet.
    fn has_partial(&self) -> bool {
        self.clients.values().any(|connection| !connection.ended && connection.is_partial())
    }

    /// Returns when the original has done all that it can do with what it was sent, `bytes` of it last.
    ///
    /// It handles one ready descriptor after the other, in turn: each answer to the observer means that every
    /// client that was ready before has had its turn. Each turn takes at least a line buffer of what is
    /// there, or writes one reply. So after as many turns as the bytes need, and two more without a new byte
    /// for anyone, nobody was ready.
    pub fn settle(&mut self, bytes: usize) -> Result<(), Fatal> {
        let mut left = 2 + bytes / limits::LINE_BYTES + 1;
        let end = Instant::now() + limits::COMPARE_PATIENCE;
        while left > 0 {
            self.ask_uncounted()?;
            left -= 1;
            if self.read_all()? || self.has_partial() {
                left = left.max(2);
            }
            if Instant::now() >= end {
                return Err(Fatal::new(Exit::Temporary, "the original does not come to rest"));
            }
        }
        Ok(())
    }

    /// The observer's command and its answer. `field` counts it.
    pub fn ask(&mut self, command: &str, field: &'static str) -> Result<Reply, Fatal> {
        *self.own.entry(field).or_default() += 1;
        self.exchange(command)
    }

    /// An answer that changes no number: a client's `stats` may run beside it.
    fn ask_uncounted(&mut self) -> Result<(), Fatal> {
        self.exchange("no-command").map(drop)
    }

    fn exchange(&mut self, command: &str) -> Result<Reply, Fatal> {
        let name = self.name();
        let observer = self.observer.as_mut().expect("there but within a restart");
        observer.send(format!("{command}\r\n").as_bytes())?;
        let end = Instant::now() + limits::COMPARE_PATIENCE;
        loop {
            observer.read_available()?;
            match observer.take() {
                Some(Reply::End) => {
                    let last = self.log().lines().next_back().unwrap_or_default().to_owned();
                    return Err(Fatal::new(Exit::Temporary, format!("{name} is gone: {last}")));
                }
                Some(reply) => return Ok(reply),
                None if Instant::now() >= end => {
                    return Err(Fatal::new(Exit::Temporary, format!("{name} does not answer {command}")));
                }
                None => {
                    let mut fds = [PollFd::new(observer.stream.as_fd(), PollFlags::POLLIN)];
                    let left = end.saturating_duration_since(Instant::now());
                    let _ = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
                }
            }
        }
    }
}

impl Connection {
    fn open(server: &Server) -> Result<Connection, Fatal> {
        let failed = |e| Fatal::temporary("connect", e);
        let stream = TcpStream::connect(server.address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        Ok(Connection { stream, inbox: Vec::new(), ended: false, told: false })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Fatal> {
        let mut sent = 0;
        let end = Instant::now() + limits::COMPARE_PATIENCE;
        while sent < bytes.len() && !self.ended {
            match self.stream.write(&bytes[sent..]) {
                Ok(length) => sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Its replies may have to be taken before it takes more.
                    self.read_available()?;
                    let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLOUT | PollFlags::POLLIN)];
                    let left = end.saturating_duration_since(Instant::now());
                    let _ = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
                    if Instant::now() >= end {
                        return Err(Fatal::new(Exit::Temporary, "a server does not read what it is sent"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_end(&error) => return Ok(()),
                Err(error) => return Err(Fatal::temporary("send", error)),
            }
        }
        Ok(())
    }

    fn read_available(&mut self) -> Result<bool, Fatal> {
        let mut buffer = [0; limits::CLIENT_READ_BYTES];
        let mut new = false;
        while !self.ended {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(length) => self.inbox.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(new),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_end(&error) => self.ended = true,
                Err(error) => return Err(Fatal::temporary("receive", error)),
            }
            new = true;
        }
        Ok(new)
    }

    fn is_partial(&self) -> bool {
        // Whole replies are taken off between steps only, so there may be some in front.
        let mut at = 0;
        while let Some((_, length)) = Reply::take(&self.inbox[at..]) {
            at += length;
        }
        at < self.inbox.len()
    }

    fn take(&mut self) -> Option<Reply> {
        if let Some((reply, length)) = Reply::take(&self.inbox) {
            self.inbox.drain(..length);
            return Some(reply);
        }
        let whole = self.ended && !self.told;
        whole.then(|| {
            self.told = true;
            Reply::End
        })
    }
}

/// The peer closed with data under way: an end like any other.
fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected)
}

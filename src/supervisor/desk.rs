//! A small server inside the supervisor's event loop: one request, one answer, then the connection closes. The
//! control socket and the metrics are two of them.
//!
//! Nothing here waits. Requests and clients are few and small, each client has a deadline from the moment it is
//! accepted, and one that sends too much, does not read or does not leave is dropped. What a request means is
//! the caller's business, by a function from the bytes so far to an answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use slab::Slab;

use super::policy::Moment;
use crate::limits::{DESK_CLIENT_TIME, DESK_CLIENTS, DESK_REQUEST_BYTES};

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub struct Desk {
    registry: Registry,
    listener: Listener,
    /// The token of the listener; clients have those behind it.
    first: usize,
    clients: Slab<Client>,
    /// Somebody may be waiting to be accepted.
    waiting: bool,
}

struct Client {
    stream: Stream,
    until: Moment,
    /// What it sent; after the answer only how much.
    input: Vec<u8>,
    /// `None`: its request is not whole yet.
    answer: Option<Vec<u8>>,
    sent: usize,
}

/// What is to become of a client.
#[derive(PartialEq, Eq)]
enum Fate {
    Stays,
    Leaves,
}

impl Desk {
    /// Tokens from `first` up to `first + 1 + DESK_CLIENTS` are this desk's.
    pub fn new(mut listener: Listener, registry: &Registry, first: usize) -> io::Result<Desk> {
        match &mut listener {
            Listener::Tcp(listener) => registry.register(listener, Token(first), Interest::READABLE)?,
            Listener::Unix(listener) => registry.register(listener, Token(first), Interest::READABLE)?,
        }
        Ok(Desk { registry: registry.try_clone()?, listener, first, clients: Slab::new(), waiting: true })
    }

    pub fn owns(&self, token: Token) -> bool {
        (self.first..=self.first + DESK_CLIENTS).contains(&token.0)
    }

    /// When `attend` is to be called though nothing has come.
    pub fn deadline(&self) -> Option<Moment> {
        self.clients.iter().map(|(_, client)| client.until).min()
    }

    /// Deals with what has come for this token, or with the time that has passed. `answer` gets all bytes of a
    /// request so far; `None`: it is not whole.
    pub fn attend(
        &mut self,
        token: Option<Token>,
        now: Moment,
        answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) {
        match token.map(|token| token.0 - self.first) {
            Some(0) => self.waiting = true,
            Some(number) => {
                let fate = self.clients.get_mut(number - 1).map(|client| client.serve(answer));
                if fate == Some(Fate::Leaves) {
                    self.clients.remove(number - 1);
                }
            }
            None => {}
        }
        self.clients.retain(|_, client| client.until > now);
        self.accept(now, answer);
    }

    /// Takes those who wait, as far as there is room. The others wait on, and those before them leave in time.
    fn accept(&mut self, now: Moment, answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        while self.waiting && self.clients.len() < DESK_CLIENTS {
            let mut stream = match self.listener.accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.waiting = false;
                    if error.kind() != ErrorKind::WouldBlock {
                        tracing::warn!("a client of the supervisor was not accepted: {error}");
                    }
                    return;
                }
            };
            let entry = self.clients.vacant_entry();
            let token = Token(self.first + 1 + entry.key());
            if let Err(error) = stream.register(&self.registry, token) {
                tracing::warn!("a client of the supervisor was not accepted: {error}");
                continue;
            }
            let key = entry.key();
            let until = now + DESK_CLIENT_TIME;
            let client = entry.insert(Client { stream, until, input: Vec::new(), answer: None, sent: 0 });
            if client.serve(answer) == Fate::Leaves {
                self.clients.remove(key);
            }
        }
    }
}

impl Client {
    fn serve(&mut self, answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> Fate {
        let ended = match self.read(answer) {
            Ok(ended) => ended,
            Err(_) => return Fate::Leaves,
        };
        match self.write() {
            // The client closes first: who closes with unread bytes takes the answer back from the other's
            // kernel.
            Ok(true) if ended => Fate::Leaves,
            Ok(false) if ended && self.answer.is_none() => Fate::Leaves,
            Ok(_) => Fate::Stays,
            Err(_) => Fate::Leaves,
        }
    }

    /// Reads all there is, and asks for the answer once. `true`: the client sends no more.
    fn read(&mut self, answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> io::Result<bool> {
        let mut room = [0; DESK_REQUEST_BYTES];
        loop {
            let n = match self.stream.read(&mut room) {
                Ok(0) => return Ok(true),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if self.input.len() + n > DESK_REQUEST_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
            self.input.extend_from_slice(&room[..n]);
            if self.answer.is_none() {
                self.answer = answer(&self.input);
            }
        }
    }

    /// Writes what the client takes. `true`: it has the whole answer.
    fn write(&mut self) -> io::Result<bool> {
        let Some(answer) = &self.answer else { return Ok(false) };
        while self.sent < answer.len() {
            match self.stream.write(&answer[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == answer.len() {
                self.stream.end()?;
            }
        }
        Ok(true)
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

impl Stream {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => registry.register(stream, token, interest),
            Stream::Unix(stream) => registry.register(stream, token, interest),
        }
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(room),
            Stream::Unix(stream) => stream.read(room),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    /// We send no more.
    fn end(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

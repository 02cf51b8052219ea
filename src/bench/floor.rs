//! The floor of the benchmark: a server that only reads and writes, in a process of its own.
//!
//! It answers each command with the reply that the load awaits, and keeps nothing but the length of a client's
//! last body. What it costs is what sockets cost: no server of this protocol that reads a client's socket once
//! a wake-up can be cheaper. It takes just the commands of the load, and what else comes is an error.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::error::{Exit, Fatal};
use crate::limits;

const LISTENER: Token = Token(usize::MAX);

struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    body_bytes: usize,
}

/// The whole process. It is started like the servers that are measured: `-l ADDRESS -p PORT`.
pub fn run(words: &[OsString]) -> Result<(), Fatal> {
    let word = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1)?.to_str()
    };
    let address: Option<SocketAddr> =
        word("-l").zip(word("-p")).and_then(|(host, port)| format!("{host}:{port}").parse().ok());
    let address = address.ok_or_else(|| Fatal::new(Exit::Usage, "floor: -l ADDRESS -p PORT are needed"))?;
    let listener =
        TcpListener::bind(address).map_err(|e| Fatal::new(Exit::Listen, format!("{address}: {e}")))?;
    serve(listener).map_err(|e| Fatal::temporary("floor", e))
}

/// For ever: who started it ends it.
fn serve(mut listener: TcpListener) -> io::Result<()> {
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut clients: Slab<Client> = Slab::new();
    let mut events = Events::with_capacity(limits::EVENTS);
    let mut room = vec![0; limits::CLIENT_READ_BYTES];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut clients)?;
                continue;
            }
            let key = event.token().0;
            let Some(client) = clients.get_mut(key) else { continue };
            if client.serve(&mut room).is_err() {
                clients.remove(key);
            }
        }
    }
}

fn accept(listener: &TcpListener, poll: &Poll, clients: &mut Slab<Client>) -> io::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        let entry = clients.vacant_entry();
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(entry.key()), interest)?;
        entry.insert(Client { stream, input: Vec::new(), output: Vec::new(), body_bytes: 0 });
    }
}

impl Client {
    /// Reads what there is, answers the commands that are whole, writes once. An error: it is gone.
    fn serve(&mut self, room: &mut [u8]) -> io::Result<()> {
        loop {
            let length = match self.stream.read(room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            if self.input.is_empty() {
                let used = self.answer(&room[..length])?;
                self.input.extend_from_slice(&room[used..length]);
            } else {
                self.input.extend_from_slice(&room[..length]);
                let input = std::mem::take(&mut self.input);
                let used = self.answer(&input)?;
                self.input.extend_from_slice(&input[used..]);
            }
            if length < room.len() {
                break; // the socket is empty, and an event will say when it is not
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Replies to the whole commands at the front, and says how long they are.
    fn answer(&mut self, input: &[u8]) -> io::Result<usize> {
        let mut used = 0;
        while let Some(end) = memchr::memchr(b'\n', &input[used..]) {
            let line = &input[used..used + end + 1];
            let mut length = line.len();
            match line[0] {
                b'p' => {
                    let bytes = last_number(line).ok_or(ErrorKind::InvalidData)?;
                    length += bytes + 2;
                    if input.len() - used < length {
                        break;
                    }
                    self.body_bytes = bytes;
                    self.output.extend_from_slice(b"INSERTED 1\r\n");
                }
                b'r' => {
                    write!(self.output, "RESERVED 1 {}\r\n", self.body_bytes)?;
                    self.output.resize(self.output.len() + self.body_bytes, b'x');
                    self.output.extend_from_slice(b"\r\n");
                }
                b'd' => self.output.extend_from_slice(b"DELETED\r\n"),
                b'u' | b'l' => self.output.extend_from_slice(b"USING default\r\n"),
                b'w' | b'i' => self.output.extend_from_slice(b"WATCHING 1\r\n"),
                b't' => self.output.extend_from_slice(b"TOUCHED\r\n"),
                _ => return Err(ErrorKind::InvalidData.into()),
            }
            used += length;
        }
        Ok(used)
    }
}

/// The last word of a line, as a number.
fn last_number(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next_back()?.parse().ok()
}

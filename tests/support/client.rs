//! One connection to a server: sends exact bytes, reads within a deadline, remembers all of it.
//!
//! Every `expect…` takes bytes from the front of what has arrived. When a test fails, each of its clients prints
//! what it sent and got, with times that can be compared between clients.

use super::template::{Holes, Match};
use super::{DEADLINE, QUIET, Stats, process};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub struct Client {
    name: String,
    link: Link,
    inbox: Vec<u8>,
    /// The server has closed its side; nothing follows what is in `inbox`.
    ended: bool,
    transcript: Vec<String>,
}

enum Link {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A read takes at most so much at once: more than any reply but that of a large job.
const READ_BYTES: usize = 64 << 10;

/// Of a long transcript the end is shown.
const SHOWN_EVENTS: usize = 40;

/// Longer strings are cut in the middle when they are shown.
const SHOWN_BYTES: usize = 200;

impl Client {
    pub fn tcp(name: &str, stream: TcpStream) -> Client {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_write_timeout(Some(DEADLINE)).expect("write timeout");
        Client::new(name, Link::Tcp(stream))
    }

    /// Connects to a server on a Unix socket.
    pub fn unix(name: &str, path: &Path) -> std::io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Client::new(name, Link::Unix(stream)))
    }

    fn new(name: &str, link: Link) -> Client {
        Client { name: name.to_owned(), link, inbox: Vec::new(), ended: false, transcript: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        let bytes = bytes.as_ref();
        self.note("sends", bytes);
        let sent = match &mut self.link {
            Link::Tcp(stream) => stream.write_all(bytes),
            Link::Unix(stream) => stream.write_all(bytes),
        };
        if let Err(error) = sent {
            panic!("{}: can't send {}: {error}", self.name, shown(bytes));
        }
        self
    }

    /// Exactly these bytes come next. More may follow.
    pub fn expect(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        let bytes = bytes.as_ref();
        let deadline = Instant::now() + DEADLINE;
        while self.inbox.len() < bytes.len() && bytes.starts_with(&self.inbox) && self.receive(deadline) {}
        if !self.inbox.starts_with(bytes) {
            self.refuse(bytes);
        }
        self.inbox.drain(..bytes.len());
        self
    }

    /// As `expect`, with `$x` for ids (see `template`).
    pub fn expect_template(&mut self, template: &[u8], holes: &mut Holes) -> &mut Client {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match holes.take(template, &self.inbox) {
                Match::Whole(length) => {
                    self.inbox.drain(..length);
                    return self;
                }
                Match::Unfinished if self.receive(deadline) => {}
                Match::Unfinished | Match::Differs => self.refuse(template),
            }
        }
    }

    fn refuse(&self, wanted: &[u8]) -> ! {
        let end = if self.ended { " and the end" } else { "" };
        panic!("{}: expected {}\n    but got {}{end}", self.name, shown(wanted), shown(&self.inbox));
    }

    /// Sends a command and expects this answer.
    pub fn ask(&mut self, command: impl AsRef<[u8]>, answer: impl AsRef<[u8]>) -> &mut Client {
        self.send(command).expect(answer)
    }

    /// The server closes now; nothing is left before that.
    pub fn expect_end(&mut self) -> &mut Client {
        let deadline = Instant::now() + DEADLINE;
        while self.inbox.is_empty() && self.receive(deadline) {}
        let open = if self.ended { "" } else { ", still open" };
        assert!(
            self.ended && self.inbox.is_empty(),
            "{}: expected the end, got {}{open}",
            self.name,
            shown(&self.inbox)
        );
        self
    }

    /// Not a byte for a while (`QUIET`), and the connection stays open.
    pub fn expect_silence(&mut self) -> &mut Client {
        self.silence(QUIET)
    }

    pub fn silence(&mut self, length: Duration) -> &mut Client {
        if self.inbox.is_empty() {
            self.receive(Instant::now() + length);
        }
        let end = if self.ended { " and the end" } else { "" };
        assert!(
            self.inbox.is_empty() && !self.ended,
            "{}: expected silence, got {}{end}",
            self.name,
            shown(&self.inbox)
        );
        self
    }

    /// No byte is left over and none comes for a while; the connection may be open or at its end.
    pub fn nothing_more(&mut self, length: Duration) {
        if self.inbox.is_empty() {
            self.receive(Instant::now() + length);
        }
        assert!(self.inbox.is_empty(), "{}: nothing more should come, got {}", self.name, shown(&self.inbox));
    }

    /// The next whole reply: a line, with the body that it announces.
    pub fn reply(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(length) = reply_length(&self.inbox) {
                return self.inbox.drain(..length).collect();
            }
            if !self.receive(deadline) {
                let end = if self.ended { " and the end" } else { "" };
                panic!("{}: no whole reply, only {}{end}", self.name, shown(&self.inbox));
            }
        }
    }

    /// Sends a command and returns its whole reply.
    pub fn call(&mut self, command: impl AsRef<[u8]>) -> Vec<u8> {
        self.send(command).reply()
    }

    /// As `call`; None if the server goes away before the reply is whole.
    pub fn try_call(&mut self, command: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.try_send(command).then(|| self.reply_or_end()).flatten()
    }

    /// As `send`; false if the server is gone.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let bytes = bytes.as_ref();
        self.note("sends", bytes);
        match &mut self.link {
            Link::Tcp(stream) => stream.write_all(bytes),
            Link::Unix(stream) => stream.write_all(bytes),
        }
        .is_ok()
    }

    /// The next whole reply; None if the server closes before it is whole.
    pub fn reply_or_end(&mut self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(length) = reply_length(&self.inbox) {
                return Some(self.inbox.drain(..length).collect());
            }
            if !self.receive(deadline) {
                assert!(self.ended, "{}: no reply and no end", self.name);
                return None;
            }
        }
    }

    /// Sends these bytes again and again, until the server has taken none for `pause`. Says how many it took in all;
    /// the last piece may have gone out in part.
    pub fn send_until_full(&mut self, bytes: &[u8], pause: Duration) -> usize {
        let Link::Tcp(stream) = &mut self.link else { panic!("only on TCP so far") };
        stream.set_write_timeout(Some(pause)).expect("write timeout");
        let (mut sent, mut at) = (0, 0);
        loop {
            match stream.write(&bytes[at..]) {
                Ok(length) => (sent, at) = (sent + length, (at + length) % bytes.len()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => panic!("{}: can't send: {error}", self.name),
            }
        }
        stream.set_write_timeout(Some(DEADLINE)).expect("write timeout");
        self.note("sends until nothing is taken", &bytes[..0]);
        sent
    }

    /// A byte of urgent data, which is no part of the stream.
    pub fn send_urgent(&mut self, byte: u8) -> &mut Client {
        self.note("sends urgently", &[byte]);
        let Link::Tcp(stream) = &self.link else { panic!("only TCP has urgent data") };
        socket2::SockRef::from(stream).send_out_of_band(&[byte]).expect("urgent data");
        self
    }

    /// Sends `stats`, `stats-tube …` or `stats-job …` (without the line's end) and takes the reply apart.
    pub fn stats(&mut self, command: &str) -> Stats {
        Stats::parse(&self.call(format!("{command}\r\n")))
    }

    /// All that comes until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + DEADLINE;
        while self.receive(deadline) {}
        assert!(self.ended, "{}: the server does not close; got {}", self.name, shown(&self.inbox));
        std::mem::take(&mut self.inbox)
    }

    /// Up to `limit` bytes of what comes next, at least one. For whoever reads a large body piece by piece.
    pub fn some(&mut self, limit: usize) -> Vec<u8> {
        let deadline = Instant::now() + DEADLINE;
        while self.inbox.is_empty() {
            assert!(self.receive(deadline), "{}: no more bytes come", self.name);
        }
        let length = self.inbox.len().min(limit);
        self.inbox.drain(..length).collect()
    }

    /// As `some`; None if nothing has come within `wait`, or the server has closed.
    pub fn some_within(&mut self, limit: usize, wait: Duration) -> Option<Vec<u8>> {
        if self.inbox.is_empty() {
            self.receive(Instant::now() + wait);
        }
        let length = self.inbox.len().min(limit);
        (length > 0).then(|| self.inbox.drain(..length).collect())
    }

    /// "I send no more": the server sees the end of the input, and can still answer.
    pub fn half_close(&mut self) -> &mut Client {
        self.note("half-closes", b"");
        let closed = match &self.link {
            Link::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Link::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
        closed.expect("half-close");
        self
    }

    /// When it is dropped it resets the connection, which leaves nothing in the kernel: the ports of thousands that
    /// ended in an orderly way are missing to all tests of the machine for a minute.
    pub fn reset_at_end(&mut self) -> &mut Client {
        let Link::Tcp(stream) = &self.link else { panic!("only TCP has a reset") };
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
        self
    }

    /// How many of the sent bytes the server has not read.
    pub fn unread(&self) -> u64 {
        let (local, peer) = self.ports();
        process::unread_by_peer(local, peer).unwrap_or(0)
    }

    /// The ports of our end and of the server's.
    pub fn ports(&self) -> (u16, u16) {
        let Link::Tcp(stream) = &self.link else { panic!("only TCP shows what the other side does") };
        let local = stream.local_addr().expect("own address").port();
        let peer = stream.peer_addr().expect("server's address").port();
        (local, peer)
    }

    /// Returns when the server has read all that was sent, so that the next send is another read of the server's.
    pub fn wait_until_read(&mut self) -> &mut Client {
        process::wait_for("the server to read what was sent", DEADLINE, || {
            (self.unread() == 0).then_some(())
        });
        self
    }

    /// Reads once, until `deadline` at most. False if nothing came.
    fn receive(&mut self, deadline: Instant) -> bool {
        if self.ended {
            return false;
        }
        // A zero timeout would mean "for ever".
        let wait = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut piece = vec![0; READ_BYTES];
        let read = match &mut self.link {
            Link::Tcp(stream) => stream.set_read_timeout(Some(wait)).and_then(|()| stream.read(&mut piece)),
            Link::Unix(stream) => stream.set_read_timeout(Some(wait)).and_then(|()| stream.read(&mut piece)),
        };
        match read {
            Ok(0) => {
                self.note("gets the end", b"");
                self.ended = true;
                false
            }
            Ok(length) => {
                self.note("gets", &piece[..length]);
                self.inbox.extend_from_slice(&piece[..length]);
                true
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(deadline),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                self.note("gets a reset", b"");
                self.ended = true;
                false
            }
            Err(error) => panic!("{}: can't read: {error}", self.name),
        }
    }

    fn note(&mut self, what: &str, bytes: &[u8]) {
        static START: OnceLock<Instant> = OnceLock::new();
        let time = START.get_or_init(Instant::now).elapsed().as_secs_f64();
        let bytes = if bytes.is_empty() { String::new() } else { format!(" {}", shown(bytes)) };
        self.transcript.push(format!("{time:9.4} {} {what}{bytes}", self.name));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- client {}", self.name);
            let left_out = self.transcript.len().saturating_sub(SHOWN_EVENTS);
            if left_out > 0 {
                eprintln!("          … {left_out} earlier events");
            }
            for line in &self.transcript[left_out..] {
                eprintln!("{line}");
            }
            if !self.inbox.is_empty() {
                eprintln!("          not taken by the test: {}", shown(&self.inbox));
            }
        }
    }
}

/// Length of the whole reply at the front of `input`, if it is whole.
fn reply_length(input: &[u8]) -> Option<usize> {
    let line = input.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let words: Vec<&str> = std::str::from_utf8(&input[..line]).ok()?.split_whitespace().collect();
    let body = match words[..] {
        ["OK", bytes] | ["FOUND" | "RESERVED", _, bytes] => bytes.parse::<usize>().ok()? + 2,
        _ => 0,
    };
    (input.len() >= line + body).then_some(line + body)
}

pub fn shown(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_BYTES {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    let (head, tail) = (&bytes[..SHOWN_BYTES / 2], &bytes[bytes.len() - SHOWN_BYTES / 2..]);
    format!("\"{}…{}\" ({} bytes)", head.escape_ascii(), tail.escape_ascii(), bytes.len())
}

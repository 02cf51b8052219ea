//! A proxy that writes down what real clients say, as a scenario that can be replayed.
//!
//! Bytes pass unchanged in both directions. What clients send becomes steps in the order in which it came;
//! ids of jobs that were inserted meanwhile become names, so that a replay on other servers uses their own. A
//! pause between two steps becomes an `at`. Written when the proxy is told to end (SIGINT, SIGTERM).

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;

use super::Record;
use super::reply::{Reply, decimal};
use super::scenario::{Piece, Scenario, Step};
use crate::error::Fatal;
use crate::limits;
use crate::output::say;

pub fn run(record: &Record) -> Result<(), Fatal> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |e: std::io::Error| Fatal::temporary(&what, e)
    };
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    let signals = set.thread_block().and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC));
    let signals = signals.map_err(|e| Fatal::temporary("signals", e))?;
    let listener = TcpListener::bind(record.listen).map_err(failed("listen"))?;
    let address = listener.local_addr().map_err(failed("listen"))?;
    let (target, file) = (record.target, record.file.display());
    say(format!("recording: {address} passes on to {target}; ^C ends it and writes {file}\n"));
    let tape = Arc::new(Mutex::new(Tape::new()));
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(nix::Error::EINTR) => continue,
            polled => polled.map_err(|e| Fatal::temporary("poll", e))?,
        };
        let comes = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
        if comes(&fds[0]) {
            break;
        }
        if comes(&fds[1]) {
            let (client, _) = listener.accept().map_err(failed("accept"))?;
            let server = TcpStream::connect(record.target).map_err(failed("connect to the target"))?;
            let name = lock(&tape).new_client();
            pass(client, server, name, &tape).map_err(failed("connection"))?;
        }
    }
    let tape = lock(&tape);
    fs::write(&record.file, tape.scenario.to_string())
        .map_err(|e| Fatal::temporary(&record.file.display().to_string(), e))?;
    say(format!("{} steps of {} clients written\n", tape.scenario.steps.len(), tape.clients));
    Ok(())
}

fn lock(tape: &Mutex<Tape>) -> std::sync::MutexGuard<'_, Tape> {
    tape.lock().expect("nobody panics while holding it")
}

/// Two threads for the two directions; they end with the connection.
fn pass(client: TcpStream, server: TcpStream, name: String, tape: &Arc<Mutex<Tape>>) -> std::io::Result<()> {
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let back = (server.try_clone()?, client.try_clone()?, name.clone(), tape.clone());
    let forth = (client, server, name, tape.clone());
    std::thread::spawn(move || {
        let (from, to, name, tape) = forth;
        // Written down before it is passed on: the reply must find the step that it belongs to.
        copy(from, to, |bytes| lock(&tape).sent(&name, bytes));
        lock(&tape).half(&name);
    });
    std::thread::spawn(move || {
        let (from, to, name, tape) = back;
        let mut inbox = Vec::new();
        copy(from, to, |bytes| {
            inbox.extend_from_slice(bytes);
            while let Some((reply, length)) = Reply::take(&inbox) {
                inbox.drain(..length);
                lock(&tape).answered(&name, &reply);
            }
        });
    });
    Ok(())
}

/// Until the end of one side, which the other is told.
fn copy(mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut buffer = vec![0; limits::CLIENT_READ_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        see(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Write);
}

/// What has been written down so far.
struct Tape {
    scenario: Scenario,
    began: Instant,
    /// When the last step was, from the beginning.
    last: Duration,
    clients: usize,
    /// The last step of each client that sends.
    steps: BTreeMap<String, usize>,
    /// By the server's id.
    jobs: BTreeMap<u64, String>,
}

impl Tape {
    fn new() -> Tape {
        Tape {
            scenario: Scenario::default(),
            began: Instant::now(),
            last: Duration::ZERO,
            clients: 0,
            steps: BTreeMap::new(),
            jobs: BTreeMap::new(),
        }
    }

    fn new_client(&mut self) -> String {
        self.clients += 1;
        format!("c{}", self.clients)
    }

    fn add(&mut self, step: Step) {
        let now = self.began.elapsed();
        if now.saturating_sub(self.last) >= limits::COMPARE_PAUSE && !self.scenario.steps.is_empty() {
            self.scenario.steps.push(Step::At(now.as_millis() as u64));
        } else if self.scenario.steps.is_empty() {
            // Time counts from the first step on.
            self.began = Instant::now();
        }
        self.last = self.began.elapsed();
        self.scenario.steps.push(step);
    }

    fn sent(&mut self, client: &str, bytes: &[u8]) {
        let pieces = self.pieces(bytes);
        self.add(Step::Send { client: client.to_owned(), pieces, names: Vec::new() });
        self.steps.insert(client.to_owned(), self.scenario.steps.len() - 1);
    }

    fn half(&mut self, client: &str) {
        // A client that closes and one that half-closes look the same from here, and a server answers both
        // alike.
        self.add(Step::Half(client.to_owned()));
    }

    fn answered(&mut self, client: &str, reply: &Reply) {
        let Some(id) = reply.id().filter(|_| reply.first_word() == b"INSERTED") else { return };
        let name = format!("j{}", self.jobs.len() + 1);
        self.jobs.insert(id, name.clone());
        if let Some(Step::Send { names, .. }) =
            self.steps.get(client).and_then(|at| self.scenario.steps.get_mut(*at))
        {
            names.push(name);
        }
    }

    /// Ids of commands become names; anything else, bodies too, stays as it is.
    fn pieces(&self, bytes: &[u8]) -> Vec<Piece> {
        const WORDS: [&[u8]; 9] = [
            b"delete ",
            b"release ",
            b"bury ",
            b"touch ",
            b"peek ",
            b"kick-job ",
            b"reserve-job ",
            b"stats-job ",
            b"",
        ];
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let word = WORDS.iter().find(|word| line.starts_with(word)).map_or(0, |word| word.len());
            let digits = line[word..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let id = decimal(&line[word..word + digits]).filter(|_| word > 0);
            match id.and_then(|id| self.jobs.get(&id)) {
                Some(name) => {
                    plain.extend_from_slice(&line[..word]);
                    pieces.push(Piece::Bytes(std::mem::take(&mut plain)));
                    pieces.push(Piece::Id(name.clone()));
                    plain.extend_from_slice(&line[word + digits..]);
                }
                None => plain.extend_from_slice(line),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Bytes(plain));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_recorded_jobs_become_names() {
        let mut tape = Tape::new();
        tape.sent("c1", b"put 0 0 60 1\r\nx\r\n");
        tape.answered("c1", &Reply::take(b"INSERTED 42\r\n").unwrap().0);
        tape.sent("c2", b"stats-job 42\r\ndelete 42\r\ndelete 43\r\npeek-ready\r\n");
        let text = tape.scenario.to_string();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                r#"c1 < "put 0 0 60 1\r\nx\r\n" = j1"#,
                r#"c2 < "stats-job {j1}\r\ndelete {j1}\r\ndelete 43\r\npeek-ready\r\n""#,
            ]
        );
    }
}

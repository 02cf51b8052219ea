//! A table of steps: what several clients send to one fresh server, and what each must get.
//!
//! A script is data, so that the same one can be put to different servers. Clients are named by a string and
//! connect when they are first named. Ids are holes (see `template`).

use super::process::wait_for;
use super::template::Holes;
use super::{Client, DEADLINE, Server, Setup, TempDir};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// At the end of a script, so long nothing more may come on any connection.
const END_QUIET: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, Default)]
pub struct Script {
    steps: Vec<Step>,
    flags: Vec<&'static str>,
    keeps_log: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Send(&'static str, Vec<u8>),
    Expect(&'static str, Vec<u8>),
    Silence(&'static str),
    HalfClose(&'static str),
    End(&'static str),
    Close(&'static str),
    Stats { client: &'static str, command: String, fields: Fields, patience: Duration },
    Countdown { client: &'static str, command: String, key: &'static str, seconds: i64 },
    Drain,
    Restart,
    Mark,
    NotBefore(Duration),
    Pause(Duration),
}

type Fields = Vec<(&'static str, String)>;

/// Sends on one connection, closes its sending half, and expects all of `replies` and then the end.
pub fn one(bytes: impl AsRef<[u8]>, replies: impl AsRef<[u8]>) -> Script {
    Script::new().send("A", bytes).finish("A", replies)
}

impl Script {
    pub fn new() -> Script {
        Script::default()
    }

    /// Starts the server with these flags too.
    pub fn flags(mut self, flags: &[&'static str]) -> Script {
        self.flags.extend(flags);
        self
    }

    /// Starts the server with a log in an empty directory.
    pub fn with_log(mut self) -> Script {
        self.keeps_log = true;
        self
    }

    pub fn send(self, client: &'static str, bytes: impl AsRef<[u8]>) -> Script {
        self.then(Step::Send(client, bytes.as_ref().to_vec()))
    }

    pub fn expect(self, client: &'static str, bytes: impl AsRef<[u8]>) -> Script {
        self.then(Step::Expect(client, bytes.as_ref().to_vec()))
    }

    pub fn ask(self, client: &'static str, bytes: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) -> Script {
        self.send(client, bytes).expect(client, reply)
    }

    /// Puts a job at priority 0 with a minute to run, and keeps its id in `hole`.
    pub fn put(self, client: &'static str, hole: &str, body: &str) -> Script {
        self.put_as(client, hole, body, "0 0 60")
    }

    /// The same with "priority delay ttr" given.
    pub fn put_as(self, client: &'static str, hole: &str, body: &str, numbers: &str) -> Script {
        let command = format!("put {numbers} {}\r\n{body}\r\n", body.len());
        self.ask(client, command, format!("INSERTED {hole}\r\n"))
    }

    /// Nothing comes, and the connection stays open.
    pub fn silent(self, client: &'static str) -> Script {
        self.then(Step::Silence(client))
    }

    /// Sends, and nothing comes of it.
    pub fn wait_in(self, client: &'static str, bytes: impl AsRef<[u8]>) -> Script {
        self.send(client, bytes).silent(client)
    }

    pub fn half_close(self, client: &'static str) -> Script {
        self.then(Step::HalfClose(client))
    }

    /// The server closes the connection.
    pub fn end(self, client: &'static str) -> Script {
        self.then(Step::End(client))
    }

    /// Half-closes, expects `replies` and then the end.
    pub fn finish(self, client: &'static str, replies: impl AsRef<[u8]>) -> Script {
        self.half_close(client).expect(client, replies).end(client)
    }

    /// Closes the whole connection. The server learns of it in its own time: ask with `stats_soon` after that.
    pub fn close(self, client: &'static str) -> Script {
        self.then(Step::Close(client))
    }

    /// Asks once. For what a server must know when it has answered all that came before.
    pub fn stats<const N: usize>(
        self,
        client: &'static str,
        command: &str,
        fields: [(&'static str, &str); N],
    ) -> Script {
        self.stats_within(client, command, &fields, Duration::ZERO)
    }

    /// Asks until the answer is right. For the effects of what got no answer: a close, part of a command.
    pub fn stats_soon<const N: usize>(
        self,
        client: &'static str,
        command: &str,
        fields: [(&'static str, &str); N],
    ) -> Script {
        self.stats_within(client, command, &fields, DEADLINE)
    }

    fn stats_within(
        self,
        client: &'static str,
        command: &str,
        fields: &[(&'static str, &str)],
        patience: Duration,
    ) -> Script {
        let fields = fields.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        self.then(Step::Stats { client, command: command.to_owned(), fields, patience })
    }

    /// A field that counts whole seconds down, and started at `seconds` after the last mark.
    pub fn countdown(self, client: &'static str, command: &str, key: &'static str, seconds: i64) -> Script {
        self.then(Step::Countdown { client, command: command.to_owned(), key, seconds })
    }

    /// Tells the server to take no more jobs, and returns when its statistics say so.
    pub fn drain(self) -> Script {
        self.then(Step::Drain)
    }

    /// Kills the server, starts it again, forgets all connections.
    pub fn restart(self) -> Script {
        self.then(Step::Restart)
    }

    /// Remembers the time for `not_before` and `countdown`.
    pub fn mark(self) -> Script {
        self.then(Step::Mark)
    }

    /// What came last took at least so long since the mark.
    pub fn not_before(self, milliseconds: u64) -> Script {
        self.then(Step::NotBefore(Duration::from_millis(milliseconds)))
    }

    /// Lets time go by, where time itself is the subject.
    pub fn pause(self, milliseconds: u64) -> Script {
        self.then(Step::Pause(Duration::from_millis(milliseconds)))
    }

    fn then(mut self, step: Step) -> Script {
        self.steps.push(step);
        self
    }

    /// Plays the script on a fresh server.
    pub fn run(&self, setup: Setup) {
        let log = TempDir::new("log");
        let setup = setup.flags(&self.flags);
        let setup = if self.keeps_log { setup.wal(log.path()) } else { setup };
        let server = setup.start();
        let mut play =
            Play { server, clients: BTreeMap::new(), holes: Holes::default(), mark: Instant::now() };
        for step in &self.steps {
            play.step(step);
        }
        for client in play.clients.values_mut().flatten() {
            client.nothing_more(END_QUIET);
        }
    }
}

struct Play {
    // Declared, and so dropped and shown, before the server.
    clients: BTreeMap<&'static str, Option<Client>>,
    holes: Holes,
    mark: Instant,
    server: Server,
}

impl Play {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(client, bytes) => {
                let bytes = self.holes.fill(bytes);
                self.client(client).send(bytes);
            }
            Step::Expect(client, template) => {
                let mut holes = std::mem::take(&mut self.holes);
                self.client(client).expect_template(template, &mut holes);
                self.holes = holes;
            }
            Step::Silence(client) => {
                self.client(client).expect_silence();
            }
            Step::HalfClose(client) => {
                self.client(client).half_close();
            }
            Step::End(client) => {
                self.client(client).expect_end();
            }
            Step::Close(client) => {
                self.clients.insert(client, None);
            }
            Step::Stats { client, command, fields, patience } => {
                self.stats(client, command, fields, *patience);
            }
            Step::Countdown { client, command, key, seconds } => {
                self.countdown(client, command, key, *seconds);
            }
            Step::Drain => self.drain(),
            Step::Restart => {
                self.clients.clear();
                self.server.restart();
            }
            Step::Mark => self.mark = Instant::now(),
            Step::NotBefore(least) => {
                let passed = self.mark.elapsed();
                assert!(passed >= *least, "came after {passed:?}, which is sooner than {least:?}");
            }
            Step::Pause(length) => std::thread::sleep(*length),
        }
    }

    fn client(&mut self, name: &'static str) -> &mut Client {
        let server = &self.server;
        let client = self.clients.entry(name).or_insert_with(|| Some(server.connect(name)));
        client.as_mut().unwrap_or_else(|| panic!("{name} was closed before"))
    }

    fn stats(&mut self, client: &'static str, command: &str, fields: &Fields, patience: Duration) {
        let command = self.filled(command);
        let wanted: Vec<(&str, &str)> = fields.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let deadline = Instant::now() + patience;
        loop {
            let differences = self.client(client).stats(&command).differences(&wanted);
            if differences.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{command}: {}", differences.join("; "));
            // The pause of a poll.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn countdown(&mut self, client: &'static str, command: &str, key: &str, seconds: i64) {
        let command = self.filled(command);
        let left = self.client(client).stats(&command).number(key);
        let passed = self.mark.elapsed().as_secs() as i64 + 1;
        let range = seconds - passed..seconds;
        assert!(range.contains(&left), "{command}: {key} is {left}, expected one of {range:?}");
    }

    fn drain(&mut self) {
        self.server.signal(Signal::SIGUSR1);
        let mut client = self.server.connect("drain");
        wait_for("the drain mode", DEADLINE, || {
            (client.stats("stats").text("draining") == "true").then_some(())
        });
    }

    fn filled(&self, command: &str) -> String {
        String::from_utf8(self.holes.fill(command.as_bytes())).expect("a command in ASCII")
    }
}

//! Servers of every shape that are told the same and must answer the same: the original, and Trellis with 1, 2, 4
//! and 16 slots.
//!
//! Ids differ with the number of slots, so a script writes `#1` for the id that the first put was answered with,
//! and replies are compared with their ids written that way. `list-tubes` is compared as a set: with several slots
//! its order is that of the slots.

use crate::support::{Binary, Client, DEADLINE, Server, Setup, Stats, process::wait_for};
use std::collections::BTreeMap;

/// What is different in two runs of one server. The values only: the fields must be there.
pub const OF_THE_RUN: [&str; 5] = ["pid", "id", "rusage-utime", "rusage-stime", "uptime"];

/// Fields of a job or a tube that count whole seconds, and may be read on different sides of one.
pub const OF_THE_CLOCK: [&str; 3] = ["age", "time-left", "pause-time-left"];

/// Slots of the Trellis servers of a fleet.
pub const SLOTS: [u32; 4] = [1, 2, 4, 16];

/// Commands and their replies are spread over the frontends, so that none of them knows everything.
const FRONTENDS: u32 = 2;

struct Ship {
    // Declared, and so dropped and shown, before the server.
    clients: BTreeMap<&'static str, Client>,
    ids: Vec<String>,
    name: String,
    server: Server,
}

pub struct Fleet {
    ships: Vec<Ship>,
}

impl Fleet {
    pub fn start() -> Fleet {
        Fleet::start_with(&[])
    }

    pub fn start_with(flags: &[&str]) -> Fleet {
        let legacy = (Setup::new(Binary::Legacy), "original".to_owned());
        let ours = SLOTS.map(|slots| {
            (Setup::new(Binary::Trellis).slots(slots).frontends(FRONTENDS), format!("{slots} slots"))
        });
        let ships = [legacy].into_iter().chain(ours).map(|(setup, name)| Ship {
            clients: BTreeMap::new(),
            ids: Vec::new(),
            name,
            server: setup.flags(flags).start(),
        });
        Fleet { ships: ships.collect() }
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.ships.iter().map(|ship| &ship.server)
    }

    pub fn send(&mut self, client: &'static str, bytes: &str) {
        for ship in &mut self.ships {
            let bytes = ship.with_ids(bytes);
            ship.client(client).send(bytes);
        }
    }

    /// Sends and compares the next reply, which is returned with `#1` and so on for ids.
    pub fn ask(&mut self, client: &'static str, command: &str) -> String {
        self.send(client, command);
        self.same_reply(client, command)
    }

    /// Each line is a command with one reply; it is sent when the last one is answered.
    pub fn ask_each(&mut self, client: &'static str, lines: &[&str]) {
        for line in lines {
            self.ask(client, &format!("{line}\r\n"));
        }
    }

    /// Priority, delay and TTR are the numbers.
    pub fn put(&mut self, client: &'static str, numbers: &str, body: &str) {
        let reply = self.ask(client, &format!("put {numbers} {}\r\n{body}\r\n", body.len()));
        assert!(reply.starts_with("INSERTED #"), "{reply:?}");
    }

    /// The reply that one was waiting for.
    pub fn same_reply(&mut self, client: &'static str, to: &str) -> String {
        let sorted = to.starts_with("list-tubes\r\n");
        let replies: Vec<String> = self.ships.iter_mut().map(|ship| ship.reply(client, sorted)).collect();
        for (ship, reply) in self.ships.iter().zip(&replies) {
            assert!(
                *reply == replies[0],
                "{client}, {to:?}: the original says {:?}, Trellis with {} {reply:?}",
                replies[0],
                ship.name
            );
        }
        replies.into_iter().next().expect("there is the original")
    }

    /// `stats`, `stats-tube …` or `stats-job …`: the same fields in the same order, and the same values but for
    /// those that no two runs share.
    pub fn same_stats(&mut self, client: &'static str, command: &str) -> Stats {
        let masked = [&OF_THE_RUN[..], &OF_THE_CLOCK[..]].concat();
        let stats: Vec<Stats> = self
            .ships
            .iter_mut()
            .map(|ship| {
                let command = ship.with_ids(command);
                ship.client(client).send(format!("{command}\r\n"));
                Stats::parse(ship.reply(client, false).as_bytes()).masking(&masked)
            })
            .collect();
        for (ship, found) in self.ships.iter().zip(&stats) {
            assert_eq!(stats[0], *found, "{client}, {command}: left the original, right {}", ship.name);
        }
        stats.into_iter().next().expect("there is the original")
    }

    pub fn silence(&mut self, client: &'static str) {
        for ship in &mut self.ships {
            ship.client(client).expect_silence();
        }
    }

    /// Closes everywhere, and waits until every server knows it, by a count that `field` of `stats` must reach.
    pub fn close(&mut self, client: &'static str, observer: &'static str, field: &str, value: &str) {
        for ship in &mut self.ships {
            ship.clients.remove(client);
            let observer = ship.client(observer);
            wait_for("the close to be seen", DEADLINE, || {
                (observer.stats("stats").text(field) == value).then_some(())
            });
        }
    }
}

impl Ship {
    fn client(&mut self, name: &'static str) -> &mut Client {
        let server = &self.server;
        let full = &self.name;
        self.clients.entry(name).or_insert_with(|| server.connect(&format!("{name} ({full})")))
    }

    /// The next reply, with its ids as `#1` and so on; `INSERTED` makes a new one known.
    fn reply(&mut self, client: &'static str, sorted: bool) -> String {
        let bytes = self.client(client).reply();
        let reply = String::from_utf8_lossy(&bytes).into_owned();
        let (line, rest) = reply.split_once("\r\n").expect("a reply has a line");
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["INSERTED" | "BURIED", id] => {
                if words[0] == "INSERTED" {
                    self.ids.push(id.to_owned());
                }
                format!("{} {}\r\n{rest}", words[0], self.symbol(id))
            }
            ["RESERVED" | "FOUND", id, bytes] => {
                format!("{} {} {bytes}\r\n{rest}", words[0], self.symbol(id))
            }
            ["OK", _] if rest.starts_with("---\nid: ") => {
                // The id's digits are part of the length, so the length can't be compared.
                let (id, rest) = rest["---\nid: ".len()..].split_once('\n').expect("a job has more fields");
                format!("OK job\r\n---\nid: {}\n{rest}", self.symbol(id))
            }
            ["OK", bytes] if sorted => {
                let mut names: Vec<&str> = rest.split('\n').collect();
                names.sort_unstable();
                format!("OK {bytes}\r\n{}", names.join("\n"))
            }
            _ => reply,
        }
    }

    fn symbol(&self, id: &str) -> String {
        match self.ids.iter().position(|known| known == id) {
            Some(at) => format!("#{}", at + 1),
            None => panic!("{}: id {id} was never inserted: {:?}", self.name, self.ids),
        }
    }

    /// The text with ids in the place of `#1` and so on.
    fn with_ids(&self, text: &str) -> String {
        let mut parts = text.split('#');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = part[..digits].parse().expect("a number follows #");
            filled.push_str(&self.ids[number - 1]);
            filled.push_str(&part[digits..]);
        }
        filled
    }
}

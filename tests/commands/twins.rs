//! Two servers that are told the same and must answer the same: the original, and Trellis with one slot.

use crate::support::{Binary, Client, Server, Setup, Stats};
use std::collections::BTreeMap;

/// What is different in two runs of one server. The values only: the fields must be there.
pub const OF_THE_RUN: [&str; 5] = ["pid", "id", "rusage-utime", "rusage-stime", "uptime"];

/// Fields of a job or a tube that count whole seconds, and may be read on different sides of one.
pub const OF_THE_CLOCK: [&str; 3] = ["age", "time-left", "pause-time-left"];

pub struct Twins {
    // Declared, and so dropped and shown, before the servers.
    pairs: BTreeMap<&'static str, [Client; 2]>,
    servers: [Server; 2],
}

impl Twins {
    pub fn start() -> Twins {
        Twins::start_with(&[])
    }

    pub fn start_with(flags: &[&str]) -> Twins {
        // One frontend, so that numbers of connections and their order are the original's too.
        let start = |binary| Setup::new(binary).frontends(1).flags(flags).start();
        Twins { pairs: BTreeMap::new(), servers: Binary::BOTH.map(start) }
    }

    /// The original and Trellis.
    pub fn servers(&self) -> &[Server; 2] {
        &self.servers
    }

    /// The same client of both servers. Connects when first named.
    pub fn pair(&mut self, name: &'static str) -> &mut [Client; 2] {
        let servers = &self.servers;
        self.pairs.entry(name).or_insert_with(|| {
            let [legacy, trellis] = servers;
            [legacy.connect(&format!("{name} (original)")), trellis.connect(&format!("{name} (trellis)"))]
        })
    }

    pub fn send(&mut self, name: &'static str, bytes: &str) {
        self.pair(name).iter_mut().for_each(|client| {
            client.send(bytes);
        });
    }

    /// Sends and looks for the next reply of each.
    pub fn ask(&mut self, name: &'static str, command: &str) -> Vec<u8> {
        self.send(name, command);
        self.same_reply(name, command)
    }

    /// Each line is a command with one reply; it is sent when the last one is answered.
    pub fn ask_each(&mut self, name: &'static str, lines: &[&str]) {
        for line in lines {
            self.ask(name, &format!("{line}\r\n"));
        }
    }

    pub fn put(&mut self, name: &'static str, numbers: &str, body: &str) -> Vec<u8> {
        self.ask(name, &format!("put {numbers} {}\r\n{body}\r\n", body.len()))
    }

    /// The reply that one was waiting for.
    pub fn same_reply(&mut self, name: &'static str, to: &str) -> Vec<u8> {
        let [legacy, trellis] = self.pair(name).each_mut().map(Client::reply);
        assert!(
            legacy == trellis,
            "{name}, {to:?}: the original says \"{}\", Trellis \"{}\"",
            legacy.escape_ascii(),
            trellis.escape_ascii()
        );
        legacy
    }

    /// `stats`, `stats-tube …` or `stats-job …`: the same fields in the same order, and the same values but for those
    /// that no two runs share.
    pub fn same_stats(&mut self, name: &'static str, command: &str) -> Stats {
        let masked = [&OF_THE_RUN[..], &OF_THE_CLOCK[..]].concat();
        let [legacy, trellis] =
            self.pair(name).each_mut().map(|client| client.stats(command).masking(&masked));
        assert_eq!(legacy, trellis, "{name}, {command}: left the original, right Trellis");
        legacy
    }

    pub fn silence(&mut self, name: &'static str) {
        self.pair(name).iter_mut().for_each(|client| {
            client.expect_silence();
        });
    }

    /// Closes on both, and waits until both know it, by a count that `field` of `stats` must reach.
    pub fn close(&mut self, name: &'static str, observer: &'static str, field: &str, value: &str) {
        self.pairs.remove(name);
        for client in self.pair(observer) {
            crate::support::process::wait_for("the close to be seen", crate::support::DEADLINE, || {
                (client.stats("stats").text(field) == value).then_some(())
            });
        }
    }
}

//! Makes up scenarios from a seed, one step at a time, knowing what the clients have been answered so far.
//!
//! It knows roughly what each client can do (who holds which job, who waits), so that most commands do
//! something; being wrong costs nothing, since every answer is compared anyway. What `intended` says is not
//! generated is left out here.

use std::collections::BTreeMap;

use super::judge::Ids;
use super::malformed::malformed;
use super::pair::Outcome;
use super::reply::Reply;
use super::scenario::{Piece, Scenario, Step};
use crate::limits;

/// What a scenario is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theme {
    /// Every command, no time passes.
    Commands,
    /// The same on a log, with restarts.
    Log,
    /// Delays, pauses, reservations or waits that end while it runs; one kind in each scenario, so that nothing
    /// is due in the same moment as something else.
    Time(Clock),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    Delay,
    Pause,
    Reservation,
    Wait,
}

const CLIENTS: [&str; 5] = ["A", "B", "C", "D", "E"];

/// Several slots each have some of them.
const TUBES: [&str; 6] = ["default", "a", "b", "c", "d", "e"];

/// When commands are sent, in milliseconds: what began at one of these, and lasts whole seconds, ends at
/// least a quarter of a second from the others.
const PHASES: [u64; 3] = [0, 1400, 2700];

/// Steps between two comparisons of everything.
const CHECK_EVERY: usize = 15;

/// Limit on a body in the scenarios that have one of their own, small so that it is met.
const SMALL_BODY_LIMIT: u32 = 100;

pub struct Generator {
    random: fastrand::Rng,
    theme: Theme,
    many_slots: bool,
    clients: BTreeMap<String, Client>,
    /// Every job that got a name.
    jobs: Vec<String>,
    length: usize,
    made: usize,
    phase: usize,
    /// Steps that are decided on.
    next: Vec<Step>,
    /// A time has just been waited for.
    nudging: bool,
    /// Restarts that may still come, and those that there were.
    restarts_left: usize,
    restarts: usize,
    /// Largest body that is accepted, and one that is larger than a read of the server's now and then.
    body_limit: u32,
    finished: bool,
}

#[derive(Clone, Debug, Default)]
struct Client {
    /// Sent something and got nothing: it may wait, or the server may want more bytes.
    mute: bool,
    /// The last thing it sent is a reserve, which is answered last.
    reserves: bool,
    /// It has sent more behind that.
    queued: bool,
    half: bool,
    watched: usize,
    holds: Vec<String>,
    /// Rest of what is sent in pieces.
    rest: Vec<Piece>,
}

impl Generator {
    pub fn new(seed: u64, theme: Theme, many_slots: bool) -> Generator {
        let mut random = fastrand::Rng::with_seed(seed);
        let length =
            if matches!(theme, Theme::Time(_)) { random.usize(10..30) } else { random.usize(20..120) };
        Generator {
            theme,
            many_slots,
            clients: BTreeMap::new(),
            jobs: Vec::new(),
            length,
            made: 0,
            phase: 0,
            next: Vec::new(),
            nudging: false,
            // Without any, what the original forgets at a restart can be part of it.
            restarts_left: if theme == Theme::Log { random.usize(..3) } else { 0 },
            restarts: 0,
            body_limit: if random.bool() { SMALL_BODY_LIMIT } else { limits::JOB_BYTES_DEFAULT as u32 },
            random,
            finished: false,
        }
    }

    /// How the servers are started; its steps come one by one.
    pub fn head(&mut self) -> Scenario {
        let mut scenario = Scenario { log: self.theme == Theme::Log, ..Scenario::default() };
        if self.theme == Theme::Commands && self.body_limit == SMALL_BODY_LIMIT {
            scenario.flags = vec!["-z".into(), SMALL_BODY_LIMIT.to_string()];
        }
        if scenario.log {
            // Never synced: the machine goes on. Small files, so that there are several.
            scenario.flags = ["-F", "-s", "4096"].map(str::to_owned).to_vec();
        }
        scenario
    }

    /// A name for the next job.
    pub fn job_name(&mut self) -> String {
        let name = format!("j{}", self.jobs.len() + 1);
        self.jobs.push(name.clone());
        name
    }

    pub fn step(&mut self) -> Option<Step> {
        if std::mem::take(&mut self.nudging) {
            self.nudge();
        }
        if let Some(step) = self.next.pop() {
            return Some(step);
        }
        if self.finished {
            return None;
        }
        self.made += 1;
        if let Theme::Time(_) = self.theme {
            if self.made > self.length / PHASES.len() * (self.phase + 1) {
                return Some(self.next_phase());
            }
        } else if self.made >= self.length {
            self.finished = true;
            return Some(Step::Check);
        } else if self.made % CHECK_EVERY == 0 {
            return Some(Step::Check);
        }
        let queued = self.clients.values().any(|client| client.queued);
        if self.restarts_left > 0 && !queued && self.random.usize(..self.length) < 3 {
            self.restarts_left -= 1;
            self.restarts += 1;
            self.clients.clear();
            self.next = vec![Step::Check];
            return Some(Step::Restart);
        }
        if self.theme == Theme::Commands && self.random.usize(..3000) == 0 {
            return Some(Step::Drain);
        }
        let client = self.random.choice(CLIENTS).expect("there are some").to_owned();
        Some(self.act(client))
    }

    fn next_phase(&mut self) -> Step {
        self.phase += 1;
        let Some(ms) = PHASES.get(self.phase) else {
            self.finished = true;
            return Step::Check;
        };
        self.nudging = true;
        Step::At(*ms)
    }

    /// Those that hold jobs say something before anything is compared: the original needs that to see that a
    /// time is over.
    fn nudge(&mut self) {
        let able = self.clients.iter().filter(|(_, client)| !client.mute && !client.half);
        self.next = able.map(|(name, _)| send(name, vec![text("list-tube-used\r\n")])).collect();
        self.next.insert(0, Step::Check);
    }

    fn act(&mut self, name: String) -> Step {
        let client =
            self.clients.entry(name.clone()).or_insert_with(|| Client { watched: 1, ..Client::default() });
        if !client.rest.is_empty() {
            let piece = client.rest.remove(0);
            return send(&name, vec![piece]);
        }
        if client.half {
            return Step::Close(name);
        }
        if client.mute {
            // How much of what a client has sent is done after it has gone is left to chance by the original, and
            // in which order two clients are served that have sent ahead.
            let others_queued = self.clients.iter().any(|(other, client)| *other != name && client.queued);
            let client = self.clients.get_mut(&name).expect("made above");
            return match self.random.usize(..10) {
                0 => Step::Half(name),
                1 if !client.queued => Step::Close(name),
                1..5 if client.reserves && others_queued => self.step_of_another(&name),
                // Ends a line that was begun, and lines that swallow what follows.
                2 | 3 => {
                    client.queued = client.reserves;
                    send(&name, vec![text(&format!("{}\r\n\r\n", "x".repeat(limits::LINE_BYTES)))])
                }
                4 => {
                    client.queued = client.reserves;
                    let commands =
                        ["list-tube-used\r\n", "put 0 0 1000 1\r\nx\r\n", "stats\r\n", "kick 1\r\n"];
                    send(&name, vec![text(commands[self.random.usize(..commands.len())])])
                }
                _ => self.step_of_another(&name),
            };
        }
        match self.random.usize(..100) {
            0 | 1 => Step::Half(name),
            2 | 3 => Step::Close(name),
            _ => self.commands(name),
        }
    }

    /// Somebody else's turn, if there is anybody who is not mute.
    fn step_of_another(&mut self, name: &str) -> Step {
        let others: Vec<&str> = CLIENTS
            .into_iter()
            .filter(|other| *other != name && self.clients.get(*other).is_none_or(|client| !client.mute))
            .collect();
        match self.random.choice(others) {
            Some(other) => self.act(other.to_owned()),
            None => Step::Half(name.to_owned()),
        }
    }

    /// One command or a few, in one piece or in several.
    fn commands(&mut self, name: String) -> Step {
        // A second command here could come before or after those that wait behind a reserve which the first
        // ends.
        let alone = self.clients.values().any(|client| client.queued);
        let count = if !alone && self.random.usize(..5) == 0 { self.random.usize(2..5) } else { 1 };
        let mut pieces = Vec::new();
        let mut reserves = false;
        for _ in 0..count {
            let (command, may_wait) = self.command(&name);
            let first = match &command[..] {
                [Piece::Bytes(bytes), ..] => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            };
            reserves = may_wait && first.starts_with("reserve");
            // Only behind puts it is sure which reply is the reserve's.
            let only_puts = |pieces: &[Piece]| pieces.iter().all(is_put);
            if reserves && !only_puts(&pieces) {
                reserves = false;
                break;
            }
            pieces.extend(command);
            // What is sent behind a wait would mix with what ends it. Over several slots it must be known how many
            // tubes are watched.
            if may_wait || self.many_slots && (first.starts_with("watch") || first.starts_with("ignore")) {
                break;
            }
        }
        self.clients.get_mut(&name).expect("made in act").reserves = reserves;
        // A holder in the middle of a line could not be made to say something (`nudge`).
        if !matches!(self.theme, Theme::Time(_)) && self.random.usize(..12) == 0 {
            let mut parts = self.cut(pieces);
            let first = parts.remove(0);
            self.clients.get_mut(&name).expect("made in act").rest = parts;
            return send(&name, vec![first]);
        }
        send(&name, pieces)
    }

    /// The same bytes in several sends. Ids are not cut.
    fn cut(&mut self, pieces: Vec<Piece>) -> Vec<Piece> {
        let mut parts = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) if bytes.len() > 1 => {
                    let at = self.random.usize(1..bytes.len());
                    parts.push(Piece::Bytes(bytes[..at].to_vec()));
                    parts.push(Piece::Bytes(bytes[at..].to_vec()));
                }
                piece => parts.push(piece),
            }
        }
        parts
    }

    /// A command, and whether it may be left without an answer for a while.
    fn command(&mut self, name: &str) -> (Vec<Piece>, bool) {
        if !matches!(self.theme, Theme::Time(_)) && self.random.usize(..12) == 0 {
            let (bytes, may_wait) = malformed(&mut self.random);
            return (vec![Piece::Bytes(bytes)], may_wait);
        }
        let restarted = self.restarts > 0;
        let plain = |words: &str| (vec![text(&format!("{words}\r\n"))], false);
        match self.random.usize(..100) {
            0..24 => (vec![self.put()], false),
            24..42 => self.reserve(name),
            42..54 => (self.held(name, "delete ", ""), false),
            54..60 => {
                let (priority, delay) = (self.priority(), self.release_delay());
                (self.held(name, "release ", &format!(" {priority} {delay}")), false)
            }
            60..65 => {
                let priority = self.priority();
                (self.held(name, "bury ", &format!(" {priority}")), false)
            }
            65..67 => (self.held(name, "touch ", ""), false),
            67..70 => {
                // All of them where their order is not known any more.
                let count = if restarted { 1000 } else { self.random.u32(..4) };
                plain(&format!("kick {count}"))
            }
            70..73 => (self.any("kick-job "), false),
            73..76 => (self.any("peek "), false),
            76..78 => {
                let kinds: &[&str] =
                    if restarted { &["ready", "delayed"] } else { &["ready", "delayed", "buried"] };
                let kind = self.random.choice(kinds).expect("there are some");
                plain(&format!("peek-{kind}"))
            }
            78..80 => (self.any("reserve-job "), false),
            80..83 => (self.any("stats-job "), false),
            83..85 => plain(&format!("stats-tube {}", self.tube())),
            85..89 => plain(&format!("use {}", self.tube())),
            89..92 => {
                let what = if self.random.bool() { "watch" } else { "ignore" };
                plain(&format!("{what} {}", self.tube()))
            }
            92..94 => plain(&format!("pause-tube {} {}", self.tube(), self.pause())),
            94 => plain("list-tubes"),
            95 => plain("list-tubes-watched"),
            96 => plain("list-tube-used"),
            97 | 98 => plain("stats"),
            _ => (vec![text(["quit\r\n", "stats\r\n", "peek 0\r\n"][self.random.usize(..3)])], false),
        }
    }

    fn put(&mut self) -> Piece {
        let delay = match self.theme {
            Theme::Time(Clock::Delay) => self.random.u32(..3),
            _ if self.random.usize(..6) == 0 => [1000u32, 4_294_967_295][self.random.usize(..2)],
            _ => 0,
        };
        let ttr = match self.theme {
            // All alike: waits of those that hold a job end a second before the first of them is over.
            Theme::Time(Clock::Reservation) => 2,
            _ => [1000u32, 3600, 4_294_967_295][self.random.usize(..3)],
        };
        let length = match self.random.usize(..40) {
            // Larger than what one read brings.
            0 if self.theme == Theme::Log => self.random.u32(..20_000),
            1..6 if self.theme == Theme::Commands && self.body_limit == SMALL_BODY_LIMIT => {
                SMALL_BODY_LIMIT - 3 + self.random.u32(..6)
            }
            0 if self.theme == Theme::Commands => self.body_limit - 3 + self.random.u32(..6),
            6..12 => self.random.u32(..300.min(self.body_limit)),
            _ => self.random.u32(..9),
        };
        let body: String = (0..length).map(|_| self.random.alphanumeric()).collect();
        text(&format!("put {} {delay} {ttr} {length}\r\n{body}\r\n", self.priority()))
    }

    fn reserve(&mut self, name: &str) -> (Vec<Piece>, bool) {
        let watched = self.clients.get(name).map_or(1, |client| client.watched);
        if self.many_slots && watched != 1 {
            let tube = self.tube();
            return (vec![text(&format!("ignore {tube}\r\n"))], false);
        }
        let holds = self.clients.get(name).is_some_and(|client| !client.holds.is_empty());
        let command = match (self.theme, self.random.usize(..4)) {
            // Whoever waited when a reservation ends would be given that job, on the original at another
            // moment.
            (Theme::Time(Clock::Reservation), _) if !holds || self.phase > 0 => {
                "reserve-with-timeout 0".to_owned()
            }
            (_, 0) => "reserve".to_owned(),
            (Theme::Time(Clock::Wait), _) => format!("reserve-with-timeout {}", self.random.u32(..3)),
            (_, 1) => "reserve-with-timeout 1000".to_owned(),
            _ => "reserve-with-timeout 0".to_owned(),
        };
        (vec![text(&format!("{command}\r\n"))], true)
    }

    /// Of a job that the client holds, most of the time.
    fn held(&mut self, name: &str, before: &str, behind: &str) -> Vec<Piece> {
        let holds = self.clients.get(name).map(|client| client.holds.clone()).unwrap_or_default();
        match self.random.choice(&holds).filter(|_| self.random.usize(..5) > 0) {
            Some(job) => vec![text(before), Piece::Id(job.clone()), text(&format!("{behind}\r\n"))],
            None => {
                let mut pieces = self.any(before);
                pieces.pop();
                pieces.push(text(&format!("{behind}\r\n")));
                pieces
            }
        }
    }

    /// Of any job, the last ones first; rarely of none.
    fn any(&mut self, before: &str) -> Vec<Piece> {
        const RECENT: usize = 12;
        let from = self.jobs.len().saturating_sub(RECENT);
        let recent = &self.jobs[from..];
        let id = match self.random.choice(recent).filter(|_| self.random.usize(..15) > 0) {
            Some(job) => Piece::Id(job.clone()),
            None => text(
                ["0", "18446744073709551615", "18446744073709551616", "-1", "9007199254740991"]
                    [self.random.usize(..5)],
            ),
        };
        vec![text(before), id, text("\r\n")]
    }

    fn priority(&mut self) -> u32 {
        [0, 1, 5, 1023, 1024, 70_000, 4_294_967_295][self.random.usize(..7)]
    }

    fn release_delay(&mut self) -> u32 {
        match self.theme {
            Theme::Time(Clock::Delay) => self.random.u32(..3),
            // Without a delay the original does not log it.
            Theme::Log if self.restarts + self.restarts_left > 0 => 1000,
            _ if self.random.usize(..3) == 0 => 1000,
            _ => 0,
        }
    }

    fn pause(&mut self) -> u32 {
        match self.theme {
            Theme::Time(Clock::Pause) => self.random.u32(..3),
            _ if self.random.usize(..3) == 0 => 1000,
            _ => 0,
        }
    }

    fn tube(&mut self) -> &'static str {
        self.random.choice(TUBES).expect("there are some")
    }

    /// What the original answered to the last step.
    pub fn learn(&mut self, step: &Step, outcome: &Outcome, ids: &Ids) {
        match step {
            Step::Close(name) => {
                self.clients.remove(name);
            }
            Step::Half(name) => {
                if let Some(client) = self.clients.get_mut(name) {
                    client.half = true;
                }
            }
            Step::Send { client, .. } => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.mute = true;
                }
            }
            _ => {}
        }
        for (name, replies) in outcome {
            for reply in replies {
                let Some(client) = self.clients.get_mut(name) else { break };
                let ends =
                    [&b"RESERVED"[..], b"TIMED_OUT", b"DEADLINE_SOON", b"UNSUPPORTED_MULTI_WATCH", b""];
                client.reserves &= !ends.contains(&reply.first_word());
                client.queued &= client.reserves;
                client.mute = client.reserves;
                match reply {
                    Reply::End => {
                        // Its descriptor is ours to close.
                        client.half = true;
                    }
                    reply if reply.first_word() == b"WATCHING" => {
                        let count = String::from_utf8_lossy(reply.line())
                            .split(' ')
                            .nth(1)
                            .and_then(|n| n.parse().ok());
                        client.watched = count.unwrap_or(client.watched);
                    }
                    reply if reply.first_word() == b"RESERVED" => {
                        let job = reply.id().and_then(|id| ids.name_of(id)).map(str::to_owned);
                        client.holds.extend(job);
                    }
                    _ => {}
                }
            }
        }
        // What it let go of it no longer holds; whether it succeeded hardly matters.
        if let Step::Send { client, pieces, .. } = step {
            if let Some(client) = self.clients.get_mut(client) {
                let gives_up = |pair: &[Piece]| match pair {
                    [Piece::Bytes(bytes), Piece::Id(job)] => {
                        let words: [&[u8]; 3] = [b"delete ", b"release ", b"bury "];
                        words.iter().any(|word| bytes.ends_with(word)).then(|| job.clone())
                    }
                    _ => None,
                };
                for job in pieces.windows(2).filter_map(gives_up) {
                    client.holds.retain(|held| *held != job);
                }
            }
        }
    }
}

fn send(client: &str, pieces: Vec<Piece>) -> Step {
    Step::Send { client: client.to_owned(), pieces, names: Vec::new() }
}

fn is_put(piece: &Piece) -> bool {
    matches!(piece, Piece::Bytes(bytes) if bytes.starts_with(b"put ") && bytes.ends_with(b"\r\n"))
}

fn text(text: &str) -> Piece {
    Piece::Bytes(text.as_bytes().to_vec())
}

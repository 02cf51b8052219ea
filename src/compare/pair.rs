//! Both servers, taken through the same steps, reply by reply.
//!
//! Each step goes to the original first, which is left to settle; what its clients got is then what Trellis'
//! clients must get. Only one client acts at a time, so that the order of commands is the same on both. Where
//! a step is answered with nothing (a reserve waits, a client leaves), Trellis is given time until its
//! statistics are the original's, which proves that it has seen the step.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::intended::Run;
use super::judge::{Judge, Unlike};
use super::reply::Reply;
use super::scenario::{Piece, Scenario, Step};
use super::side::Side;
use crate::bench::server::{Program, Setup, WorkDir};
use crate::error::Fatal;
use crate::limits;

/// Why a run ends before its scenario does.
pub enum Stop {
    Difference(Difference),
    /// As intended, and there is nothing to compare from here on.
    Intended,
    /// The machine was too slow for the times that the scenario is about.
    Late,
    /// No comparison at all.
    Trouble(Fatal),
}

impl From<Fatal> for Stop {
    fn from(fatal: Fatal) -> Stop {
        Stop::Trouble(fatal)
    }
}

/// In words, over several lines.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference(pub String);

/// What the original's clients got in one step.
pub type Outcome = Vec<(String, Vec<Reply>)>;

pub struct Pair {
    legacy: Side,
    trellis: Side,
    pub judge: Judge,
    /// Names that wait for the job that is inserted, and jobs that wait for a name, by client.
    names: BTreeMap<String, VecDeque<String>>,
    inserted: BTreeMap<String, VecDeque<u64>>,
    /// Lists that each client has asked for and not got: whether their order must be the same.
    lists: BTreeMap<String, VecDeque<bool>>,
    began: Instant,
    /// `at` of the scenario's last one; with a bound, steps must begin soon after it.
    phase: Duration,
    strict: bool,
}

/// An id that no server gives out: the largest that is one.
const NO_JOB: u64 = u64::MAX;

impl Pair {
    /// Starts both for the scenario. `strict`: a step that begins late ends the run.
    pub fn start(scenario: &Scenario, trellis: Program, dir: &WorkDir, strict: bool) -> Result<Pair, Fatal> {
        let many_slots = matches!(trellis, Program::Trellis { slots, .. } if slots > 1);
        let side = |program: Program| -> Result<Side, Fatal> {
            let name = program.name();
            let data: Option<PathBuf> =
                scenario.log.then(|| dir.fresh(&format!("data-{name}"))).transpose()?;
            let log = dir.fresh(&format!("log-{name}"))?.join("stderr");
            Side::start(Setup { program, flags: scenario.flags.clone(), dir: data, log })
        };
        Ok(Pair {
            legacy: side(Program::Legacy)?,
            trellis: side(trellis)?,
            judge: Judge::new(Run { many_slots, restarted: false }),
            names: BTreeMap::new(),
            inserted: BTreeMap::new(),
            lists: BTreeMap::new(),
            began: Instant::now(),
            phase: Duration::ZERO,
            strict,
        })
    }

    pub fn step(&mut self, step: &Step) -> Result<Outcome, Stop> {
        if self.strict && self.began.elapsed() > self.phase + limits::COMPARE_LATE {
            return Err(Stop::Late);
        }
        match step {
            Step::Send { client, pieces, names } => {
                self.names.entry(client.clone()).or_default().extend(names.iter().cloned());
                let [legacy, trellis] = self.filled(pieces);
                self.lists.entry(client.clone()).or_default().extend(lists(&legacy));
                self.legacy.send(client, &legacy)?;
                self.legacy.settle(legacy.len())?;
                self.trellis.send(client, &trellis)?;
                self.answers(Some(client))
            }
            Step::Half(client) => {
                self.legacy.half(client);
                self.legacy.settle(0)?;
                self.trellis.half(client);
                self.answers(None)
            }
            Step::Close(client) => {
                self.legacy.close(client);
                self.legacy.settle(0)?;
                self.trellis.close(client);
                self.answers(None)
            }
            Step::At(ms) => {
                self.phase = Duration::from_millis(*ms);
                std::thread::sleep((self.began + self.phase).saturating_duration_since(Instant::now()));
                self.legacy.settle(0)?;
                // Not the statistics yet: the original may miss the end of a reservation until its holder says
                // something.
                self.replies(None)
            }
            Step::Restart => {
                self.legacy.restart()?;
                self.trellis.restart()?;
                self.judge.run.restarted = true;
                self.names.clear();
                self.inserted.clear();
                self.answers(None)
            }
            Step::Drain => {
                for side in [&mut self.legacy, &mut self.trellis] {
                    side.signal(Signal::SIGUSR1)?;
                }
                self.until_legacy_drains()?;
                self.answers(None)
            }
            Step::Check => {
                self.same_statistics()?;
                self.check()?;
                Ok(Vec::new())
            }
        }
    }

    fn filled(&self, pieces: &[Piece]) -> [Vec<u8>; 2] {
        let mut filled = [Vec::new(), Vec::new()];
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => filled.iter_mut().for_each(|all| all.extend_from_slice(bytes)),
                Piece::Id(name) => {
                    let (legacy, trellis) = self.judge.ids.of_name(name).unwrap_or((NO_JOB, NO_JOB));
                    filled[0].extend_from_slice(legacy.to_string().as_bytes());
                    filled[1].extend_from_slice(trellis.to_string().as_bytes());
                }
            }
        }
        filled
    }

    /// Replies; if the one who acted got none, the statistics tell when Trellis has seen the step.
    fn answers(&mut self, acted: Option<&String>) -> Result<Outcome, Stop> {
        let outcome = self.replies(acted)?;
        if !acted.is_some_and(|client| outcome.iter().any(|(name, _)| name == client)) {
            self.same_statistics()?;
        }
        Ok(outcome)
    }

    /// Waits until each of Trellis' clients has what the original's has got, and compares.
    fn replies(&mut self, acted: Option<&String>) -> Result<Outcome, Stop> {
        let mut outcome = Outcome::new();
        // Who acted comes first: its reply may name the job that another is given.
        let mut clients = self.legacy.client_names();
        clients.sort_by_key(|client| Some(client) != acted);
        for client in clients {
            let replies: Vec<Reply> = std::iter::from_fn(|| self.legacy.take(&client)).collect();
            if !replies.is_empty() {
                self.same_replies(&client, &replies)?;
                outcome.push((client, replies));
            }
        }
        Ok(outcome)
    }

    fn same_replies(&mut self, client: &str, expected: &[Reply]) -> Result<(), Stop> {
        let end = Instant::now() + limits::COMPARE_PATIENCE;
        for legacy in expected {
            let trellis = loop {
                self.trellis.read_all()?;
                if let Some(reply) = self.trellis.take(client) {
                    break reply;
                }
                if Instant::now() >= end {
                    return Err(difference(client, &legacy.to_string(), "(nothing)", "no reply"));
                }
                self.trellis.wait(end.saturating_duration_since(Instant::now()))?;
            };
            self.judge.own = [self.legacy.own.clone(), self.trellis.own.clone()];
            let lists = self.lists.entry(client.to_owned()).or_default();
            let exact = legacy.items().is_some() && lists.pop_front().unwrap_or(false);
            match self.judge.compare(legacy, &trellis, exact) {
                Ok(()) => {}
                Err(Unlike::Ends) => return Err(Stop::Intended),
                // Of many fields only those that differ are of interest.
                Err(Unlike::Fault(what)) if legacy.fields().is_some() && trellis.fields().is_some() => {
                    return Err(statistics(&format!("{client} asks for statistics"), &what));
                }
                Err(Unlike::Fault(what)) => {
                    return Err(difference(client, &legacy.to_string(), &trellis.to_string(), &what));
                }
            }
            if let Some(id) = legacy.id().filter(|_| legacy.first_word() == b"INSERTED") {
                self.inserted.entry(client.to_owned()).or_default().push_back(id);
            }
        }
        self.give_names(client);
        Ok(())
    }

    /// Names that the scenario has go to jobs in the order in which they were inserted.
    fn give_names(&mut self, client: &str) {
        let (Some(names), Some(ids)) = (self.names.get_mut(client), self.inserted.get_mut(client)) else {
            return;
        };
        while let (Some(name), Some(id)) = (names.front(), ids.front()) {
            self.judge.ids.name(name, *id);
            names.pop_front();
            ids.pop_front();
        }
    }

    /// For who makes up the scenario: jobs of this client that have no name yet get the ones that `make` makes.
    pub fn name_jobs(&mut self, client: &str, mut make: impl FnMut() -> String) -> Vec<String> {
        let mut made = Vec::new();
        while let Some(id) = self.inserted.get_mut(client).and_then(VecDeque::pop_front) {
            let name = make();
            self.judge.ids.name(&name, id);
            made.push(name);
        }
        made
    }

    fn until_legacy_drains(&mut self) -> Result<(), Stop> {
        let end = Instant::now() + limits::COMPARE_PATIENCE;
        loop {
            let reply = self.legacy.ask("stats", "cmd-stats")?;
            let fields = reply.fields().unwrap_or_default();
            if fields.contains(&("draining", "true")) || Instant::now() >= end {
                return Ok(());
            }
        }
    }

    /// Until `stats` of Trellis are the original's, but not for ever. No client may get anything that the
    /// original's has not got.
    fn same_statistics(&mut self) -> Result<(), Stop> {
        let end = Instant::now() + limits::COMPARE_PATIENCE;
        loop {
            let legacy = self.legacy.ask("stats", "cmd-stats")?;
            let trellis = self.trellis.ask("stats", "cmd-stats")?;
            self.judge.own = [self.legacy.own.clone(), self.trellis.own.clone()];
            let met = self.judge.met.clone();
            match self.judge.compare(&legacy, &trellis, false) {
                Ok(()) => break,
                Err(Unlike::Fault(_)) if Instant::now() < end => self.judge.met = met,
                Err(Unlike::Fault(what)) => return Err(statistics("stats", &what)),
                Err(Unlike::Ends) => return Err(Stop::Intended),
            }
            // The pause of a poll.
            std::thread::sleep(Duration::from_micros(200));
        }
        self.nothing_more()
    }

    fn nothing_more(&mut self) -> Result<(), Stop> {
        for side in [&mut self.legacy, &mut self.trellis] {
            side.read_all()?;
        }
        for client in self.trellis.client_names() {
            // In scenarios about time something may have come to both just now.
            let replies: Vec<Reply> = std::iter::from_fn(|| self.legacy.take(&client)).collect();
            self.same_replies(&client, &replies)?;
            if let Some(reply) = self.trellis.take(&client) {
                return Err(difference(&client, "(nothing)", &reply.to_string(), "a reply too many"));
            }
        }
        Ok(())
    }

    /// All tubes and all jobs.
    fn check(&mut self) -> Result<(), Stop> {
        let lists = [
            self.legacy.ask("list-tubes", "cmd-list-tubes")?,
            self.trellis.ask("list-tubes", "cmd-list-tubes")?,
        ];
        self.same_answers("list-tubes", &lists)?;
        for tube in lists[0].items().unwrap_or_default() {
            let command = format!("stats-tube {tube}");
            let answers =
                [self.legacy.ask(&command, "cmd-stats-tube")?, self.trellis.ask(&command, "cmd-stats-tube")?];
            self.same_answers(&command, &answers)?;
        }
        for (legacy, trellis) in self.judge.ids.all() {
            let answers = [
                self.legacy.ask(&format!("stats-job {legacy}"), "cmd-stats-job")?,
                self.trellis.ask(&format!("stats-job {trellis}"), "cmd-stats-job")?,
            ];
            let name = self.judge.ids.name_of(legacy).unwrap_or("?").to_owned();
            self.same_answers(&format!("stats-job {{{name}}}"), &answers)?;
        }
        Ok(())
    }

    fn same_answers(&mut self, command: &str, answers: &[Reply; 2]) -> Result<(), Stop> {
        match self.judge.compare(&answers[0], &answers[1], false) {
            Ok(()) => Ok(()),
            Err(Unlike::Ends) => Err(Stop::Intended),
            // Of many fields only those that differ are of interest.
            Err(Unlike::Fault(what)) if answers.iter().all(|answer| answer.fields().is_some()) => {
                Err(statistics(command, &what))
            }
            Err(Unlike::Fault(what)) => {
                let [legacy, trellis] = answers.each_ref().map(Reply::to_string);
                Err(difference(&format!("{command} (by the comparison)"), &legacy, &trellis, &what))
            }
        }
    }

    /// What Trellis has said to its stderr.
    pub fn trellis_log(&self) -> String {
        self.trellis.log()
    }

    pub fn has(&self, client: &str) -> bool {
        self.legacy.has(client)
    }
}

/// The lists that are asked for: true where their order must be the same.
fn lists(bytes: &[u8]) -> Vec<bool> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| match line {
            b"list-tubes-watched\r" => Some(true),
            b"list-tubes\r" => Some(false),
            _ => None,
        })
        .collect()
}

fn difference(who: &str, legacy: &str, trellis: &str, what: &str) -> Stop {
    Stop::Difference(Difference(format!(
        "{who}: {what}\n  the original: {legacy}\n  trellis:      {trellis}"
    )))
}

fn statistics(command: &str, what: &str) -> Stop {
    Stop::Difference(Difference(format!("{command}: {what} (the original's first)")))
}

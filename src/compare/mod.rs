//! `trellis compare`: the same commands to the original and to Trellis, and the same answers.
//!
//! `generate` makes up scenarios from a seed (or a file is replayed, or `record` writes one), `pair` takes both
//! servers (`side`) through them, `judge` compares replies, `intended` is the list of what may differ, and
//! `shorten` makes a scenario that shows a difference small. A difference counts if it shows again on fresh
//! servers.

mod generate;
mod intended;
mod judge;
mod malformed;
mod pair;
mod record;
mod reply;
mod scenario;
mod shorten;
mod side;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use generate::{Clock, Generator, Theme};
use pair::{Difference, Pair, Stop};
use scenario::{Scenario, Step};

use crate::bench::interrupt;
use crate::bench::server::{Program, WorkDir};
use crate::error::{Exit, Fatal};
use crate::limits;
use crate::output::{print, say};

/// What is asked for on the command line.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub slots: u32,
    pub frontends: Option<u16>,
    pub seed: u64,
    /// New scenarios are begun for so long.
    pub length: Duration,
    /// And not more than these.
    pub scenarios: Option<u64>,
    /// Where a scenario goes that shows a difference.
    pub save: Option<PathBuf>,
    /// In place of scenarios of our own.
    pub replay: Option<PathBuf>,
    pub record: Option<Record>,
}

/// In place of a comparison: what clients of `listen` say to the server at `target`, written to a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub listen: SocketAddr,
    pub target: SocketAddr,
    pub file: PathBuf,
}

pub fn run(options: &Options) -> Result<(), Fatal> {
    if let Some(record) = &options.record {
        return record::run(record);
    }
    interrupt::watch()?;
    let dir = WorkDir::new(&std::env::temp_dir())?;
    let mut comparison = Comparison { options, dir, tally: Tally::default() };
    match &options.replay {
        Some(file) => comparison.replay_file(file),
        None => comparison.generated(),
    }
}

#[derive(Default)]
struct Tally {
    scenarios: u64,
    steps: u64,
    /// Scenarios about time in which the machine was too slow.
    late: u64,
    /// Differences that did not show again.
    once: u64,
    intended: BTreeMap<&'static str, u64>,
}

struct Comparison<'a> {
    options: &'a Options,
    dir: WorkDir,
    tally: Tally,
}

/// A difference and the scenario that led to it.
struct Found {
    difference: Difference,
    scenario: Scenario,
    /// Of Trellis' stderr.
    log: String,
}

impl Comparison<'_> {
    fn program(&self) -> Program {
        Program::Trellis { slots: self.options.slots, frontends: self.options.frontends }
    }

    fn replay_file(&mut self, file: &Path) -> Result<(), Fatal> {
        let failed = |e: &dyn std::fmt::Display| Fatal::new(Exit::Usage, format!("{}: {e}", file.display()));
        let text = fs::read_to_string(file).map_err(|e| failed(&e))?;
        let scenario = Scenario::parse(&text).map_err(|e| failed(&e))?;
        match self.replay(&scenario, false)? {
            Some(found) => Err(self.report(&found, "")),
            None => print(format!("{} steps, no difference\n{}", self.tally.steps, self.intended())),
        }
    }

    fn generated(&mut self) -> Result<(), Fatal> {
        let begun = Instant::now();
        let most = self.options.scenarios.unwrap_or(u64::MAX);
        for number in 0.. {
            if begun.elapsed() >= self.options.length || number >= most {
                break;
            }
            let theme = theme(number);
            // Of each seed the first scenarios are the same however many follow.
            let seed = self.options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
            let Some(found) = self.make_up(seed, theme)? else { continue };
            let strict = matches!(theme, Theme::Time(_));
            let place = format!("seed {}, scenario {number} ({theme:?}), ", self.options.seed);
            if !self.shows_again(&found.scenario, strict)? {
                self.tally.once += 1;
                self.save(&found.scenario)?;
                let steps = found.scenario.steps.len();
                let head = format!("{place}{steps} steps: a difference that did not show again");
                print(format!("{head}\n{}\n\n", found.difference.0))?;
                continue;
            }
            let found = self.shortened(found, strict)?;
            return Err(self.report(&found, &place));
        }
        let Tally { scenarios, steps, late, once, .. } = self.tally;
        let (seed, slots) = (self.options.seed, self.options.slots);
        print(format!("seed {seed}, {slots} slots: {scenarios} scenarios, {steps} steps, no difference\n"))?;
        if late + once > 0 {
            let not = "differences that did not show again";
            print(format!("{late} left unfinished on a slow machine; {once} {not}\n"))?;
        }
        print(self.intended())
    }

    /// A scenario from its seed, on fresh servers, as far as they agree.
    fn make_up(&mut self, seed: u64, theme: Theme) -> Result<Option<Found>, Fatal> {
        let mut generator = Generator::new(seed, theme, self.options.slots > 1);
        let mut scenario = generator.head();
        let strict = matches!(theme, Theme::Time(_));
        let mut pair = Pair::start(&scenario, self.program(), &self.dir, strict)?;
        self.tally.scenarios += 1;
        // Of each client the step that its jobs are named in.
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        while let Some(step) = generator.step() {
            interrupt::check()?;
            scenario.steps.push(step.clone());
            self.tally.steps += 1;
            if let Step::Send { client, .. } = &step {
                last.insert(client.clone(), scenario.steps.len() - 1);
            }
            let outcome = match pair.step(&step) {
                Ok(outcome) => outcome,
                Err(stop) => return self.stopped(stop, scenario, &pair),
            };
            for (client, at) in &last {
                let made = pair.name_jobs(client, || generator.job_name());
                if let Step::Send { names, .. } = &mut scenario.steps[*at] {
                    names.extend(made);
                }
            }
            generator.learn(&step, &outcome, &pair.judge.ids);
        }
        self.add_intended(&pair);
        Ok(None)
    }

    /// A scenario that is there.
    fn replay(&mut self, scenario: &Scenario, strict: bool) -> Result<Option<Found>, Fatal> {
        let mut pair = Pair::start(scenario, self.program(), &self.dir, strict)?;
        for (number, step) in scenario.steps.iter().enumerate() {
            interrupt::check()?;
            self.tally.steps += 1;
            // What only a removed step made possible.
            if matches!(step, Step::Half(client) | Step::Close(client) if !pair.has(client)) {
                continue;
            }
            if let Err(stop) = pair.step(step) {
                let steps = scenario.steps[..=number].to_vec();
                return self.stopped(stop, Scenario { steps, ..scenario.clone() }, &pair);
            }
        }
        self.add_intended(&pair);
        Ok(None)
    }

    fn stopped(&mut self, stop: Stop, scenario: Scenario, pair: &Pair) -> Result<Option<Found>, Fatal> {
        interrupt::check()?;
        self.add_intended(pair);
        match stop {
            Stop::Difference(difference) => Ok(Some(Found { difference, scenario, log: pair.trellis_log() })),
            Stop::Intended => Ok(None),
            Stop::Late => {
                self.tally.late += 1;
                Ok(None)
            }
            Stop::Trouble(fatal) => Err(fatal),
        }
    }

    /// A second and a third look. The original itself does some things by chance.
    fn shows_again(&mut self, scenario: &Scenario, strict: bool) -> Result<bool, Fatal> {
        for _ in 0..limits::COMPARE_LOOKS {
            if self.replay(scenario, strict)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn shortened(&mut self, found: Found, strict: bool) -> Result<Found, Fatal> {
        let end = Instant::now() + limits::COMPARE_SHORTEN;
        let head = Scenario { steps: Vec::new(), ..found.scenario.clone() };
        let mut best = None;
        let mut trouble = None;
        say(format!("a difference after {} steps; shortening\n", found.scenario.steps.len()));
        shorten::shorten(&found.scenario.steps, |steps| {
            if Instant::now() >= end {
                return None;
            }
            match self.replay(&Scenario { steps: steps.to_vec(), ..head.clone() }, strict) {
                Ok(None) => Some(false),
                Ok(Some(shorter)) => {
                    best = Some(shorter);
                    Some(true)
                }
                Err(fatal) => {
                    trouble = Some(fatal);
                    None
                }
            }
        });
        // Trouble while it was made shorter (a server that does not start) is no reason to hide the difference.
        if let Some(fatal) = trouble {
            interrupt::check()?;
            say(format!("shortening ended: {fatal}\n"));
        }
        Ok(best.unwrap_or(found))
    }

    fn report(&self, found: &Found, place: &str) -> Fatal {
        let mut text = format!("difference: {place}after {} steps\n", found.scenario.steps.len());
        text += &format!("{}\n\n{}\n", found.difference.0, found.scenario);
        if !found.log.trim().is_empty() {
            text += &format!("trellis said:\n{}\n", found.log);
        }
        // It is worth keeping whether or not anybody reads of it.
        let saved = self.save(&found.scenario);
        if let Err(fatal) = print(text).and(saved) {
            return fatal;
        }
        Fatal::new(
            Exit::Temporary,
            "the servers differ; replay the scenario above with: trellis compare --replay FILE",
        )
    }

    fn save(&self, scenario: &Scenario) -> Result<(), Fatal> {
        let Some(path) = &self.options.save else { return Ok(()) };
        fs::write(path, scenario.to_string()).map_err(|e| Fatal::temporary(&path.display().to_string(), e))
    }

    fn add_intended(&mut self, pair: &Pair) {
        for (name, count) in &pair.judge.met {
            *self.tally.intended.entry(name).or_default() += count;
        }
    }

    /// Lines about the intended differences, if there were any.
    fn intended(&self) -> String {
        if self.tally.intended.is_empty() {
            return String::new();
        }
        let mut text = "differences that are intended:\n".to_owned();
        for (name, count) in &self.tally.intended {
            let reason =
                intended::LIST.iter().find(|entry| entry.name == *name).map_or("", |entry| entry.reason);
            text += &format!("  {name}, {count} times: {reason}\n");
        }
        text
    }
}

/// Most scenarios take no time; each twentieth is about time, which takes seconds.
fn theme(number: u64) -> Theme {
    const CLOCKS: [Clock; 4] = [Clock::Delay, Clock::Reservation, Clock::Pause, Clock::Wait];
    match number % 20 {
        7 => Theme::Time(CLOCKS[(number / 20 % 4) as usize]),
        _ if number % 3 == 0 => Theme::Log,
        _ => Theme::Commands,
    }
}

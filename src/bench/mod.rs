//! `trellis bench`: the original and Trellis under the same load, in the same run, in turns.
//!
//! `scenario` says what is measured, `measure` does one run of it, `load` (with `client`) is the load's own
//! process, `server` starts and weighs servers, `floor` is a third one that does nothing, `report` and `chart`
//! show the outcome. Runs alternate between the servers, so that what else the machine does meets all. Asserts
//! nothing about speed.

mod chart;
mod client;
pub mod floor;
pub(crate) mod interrupt;
pub mod load;
mod measure;
mod report;
mod scenario;
pub(crate) mod server;
mod spec;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use measure::{Contestant, Lengths, Run};
use report::{Case, Report};
use scenario::{Kind, Scenario};
use server::{Program, WorkDir};

use crate::error::{Exit, Fatal};
use crate::output::{print, say};

/// What is asked for on the command line.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// In place of the scenario's own number.
    pub slots: Option<u32>,
    pub frontends: Option<u16>,
    /// Names of scenarios or their beginnings; empty for all.
    pub only: Vec<String>,
    /// Name them and leave.
    pub list: bool,
    pub warm: Duration,
    pub run: Duration,
    /// Runs of each server.
    pub pairs: u32,
    /// With a server that only reads and writes.
    pub floor: bool,
    /// Jobs of the recovery.
    pub jobs: u64,
    /// Where the servers' logs of jobs are: the disk that is measured.
    pub dir: PathBuf,
    pub json: Option<PathBuf>,
    pub svg: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<(), Fatal> {
    let scenarios = chosen(options)?;
    if options.list {
        for scenario in &scenarios {
            print(format!("{:<16} {}\n", scenario.name, scenario.about))?;
        }
        return Ok(());
    }
    interrupt::watch()?;
    let dir = WorkDir::new(&options.dir)?;
    let mut report = Report::new(options);
    let mut progress = Progress::new(&scenarios, options);
    print(format!("{}\n", report.heading()))?;
    for scenario in &scenarios {
        for case in measure_in_turns(scenario, options, &dir, &mut progress)? {
            progress.clear();
            print(case.rows())?;
            report.cases.push(case);
        }
    }
    progress.clear();
    write(options.json.as_deref(), &report.json())?;
    write(options.svg.as_deref(), &chart::svg(&report))
}

fn chosen(options: &Options) -> Result<Vec<Scenario>, Fatal> {
    let mut all = scenario::all(options.jobs, options.slots);
    if let Some(wrong) =
        options.only.iter().find(|name| !all.iter().any(|s| s.name.starts_with(name.as_str())))
    {
        let reason = format!("no scenario's name begins with {wrong}; see trellis bench --list");
        return Err(Fatal::new(Exit::Usage, reason));
    }
    all.retain(|s| {
        options.only.is_empty() || options.only.iter().any(|name| s.name.starts_with(name.as_str()))
    });
    Ok(all)
}

/// Who takes part in a scenario, in the order of the report.
fn programs(scenario: &Scenario, options: &Options) -> Vec<Program> {
    let slots = options.slots.unwrap_or(scenario.slots);
    let floor = (options.floor && scenario.has_floor()).then_some(Program::Floor);
    let both = [Program::Legacy, Program::Trellis { slots, frontends: options.frontends }];
    both.into_iter().chain(floor).collect()
}

/// All runs of a scenario: one case, or for isolation the undisturbed and the disturbed one.
fn measure_in_turns(
    scenario: &Scenario,
    options: &Options,
    dir: &WorkDir,
    progress: &mut Progress,
) -> Result<Vec<Case>, Fatal> {
    let slots = options.slots.unwrap_or(scenario.slots);
    let lengths = Lengths { warm: options.warm, run: options.run };
    let in_scenario = |e: Fatal| Fatal { message: format!("{}: {}", scenario.name, e.message), ..e };
    let mut contestants = Vec::new();
    for program in programs(scenario, options) {
        contestants.push(Contestant::new(scenario, program, lengths, dir).map_err(in_scenario)?);
    }
    // By case, then by contestant.
    let mut runs: Vec<Vec<Vec<Run>>> = Vec::new();
    for pair in 0..options.pairs {
        for (who, contestant) in contestants.iter_mut().enumerate() {
            progress.next(scenario.name, contestant.name(), pair);
            for (case, run) in contestant.run(u64::from(pair)).map_err(in_scenario)?.into_iter().enumerate() {
                if runs.len() <= case {
                    runs.push(vec![Vec::new(); programs(scenario, options).len()]);
                }
                runs[case][who].push(run);
            }
        }
    }
    let names: &[&str] = match scenario.kind {
        Kind::Isolation { .. } => &["undisturbed", "disturbed"],
        _ => &[""],
    };
    let case = |(runs, part): (Vec<Vec<Run>>, &&str)| Case::new(scenario, part, slots, runs);
    Ok(runs.into_iter().zip(names).map(case).collect())
}

fn write(path: Option<&Path>, text: &str) -> Result<(), Fatal> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, text).map_err(|e| Fatal::temporary(&path.display().to_string(), e))
}

/// One line on stderr that says where we are; on a terminal it stays one line.
struct Progress {
    done: u32,
    all: u32,
    pairs: u32,
    began: Instant,
    terminal: bool,
}

impl Progress {
    fn new(scenarios: &[Scenario], options: &Options) -> Progress {
        Progress {
            done: 0,
            all: scenarios.iter().map(|s| programs(s, options).len()).sum::<usize>() as u32 * options.pairs,
            pairs: options.pairs,
            began: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn next(&mut self, scenario: &str, who: &str, pair: u32) {
        let (done, all, pairs) = (self.done, self.all, self.pairs);
        let seconds = self.began.elapsed().as_secs();
        let (start, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let pair = pair + 1;
        say(format!("{start}[{done}/{all}, {seconds} s] {scenario}: {who}, run {pair} of {pairs}{end}"));
        self.done += 1;
    }

    fn clear(&self) {
        if self.terminal {
            say("\r\x1b[K");
        }
    }
}

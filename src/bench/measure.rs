//! One run of one scenario on one server: the load is started, the server is weighed while it is counted.
//!
//! Calls the load by its pipes and the server by `server`; keeps nothing between runs but what `Contestant`
//! holds.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::Serialize;

use super::interrupt;
use super::scenario::{Kind, Scenario, Trouble};
use super::server::{ByRole, Program, Server, Setup, WorkDir, cpu_of};
use super::spec::{Group, Said, Spec, Tally};
use crate::error::{Exit, Fatal};
use crate::limits;

/// How long runs are.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    pub warm: Duration,
    pub run: Duration,
}

/// What one run has shown.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    pub commands: u64,
    pub seconds: f64,
    /// `None` where there is no latency of commands: a recovery.
    pub latency: Option<Latency>,
    /// Processor time of each role for one command, in microseconds.
    pub cpu_us: ByRole<f64>,
    /// Of the load itself. Near the whole of a processor it is the load that limits, not the server.
    pub load_cpu_share: f64,
    /// Of each role at the end of the run, connections still open.
    pub memory_bytes: ByRole<u64>,
    /// All groups, also those that are not reported.
    pub groups: BTreeMap<String, f64>,
}

/// In microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// One server in one scenario, over all its runs.
pub struct Contestant<'a> {
    scenario: &'a Scenario,
    lengths: Lengths,
    setup: Setup,
    dir: &'a WorkDir,
    server: Option<Server>,
    /// The log for `Recovery` is written.
    filled: bool,
}

impl<'a> Contestant<'a> {
    pub fn new(
        scenario: &'a Scenario,
        program: Program,
        lengths: Lengths,
        dir: &'a WorkDir,
    ) -> Result<Contestant<'a>, Fatal> {
        let name = program.name();
        let setup = Setup {
            flags: scenario.flags.iter().map(|flag| (*flag).to_owned()).collect(),
            dir: scenario.durable.then(|| dir.fresh(&format!("data-{name}"))).transpose()?,
            log: dir.path().join(format!("log-{name}")),
            program,
        };
        Ok(Contestant { scenario, lengths, setup, dir, server: None, filled: false })
    }

    pub fn name(&self) -> &'static str {
        self.setup.program.name()
    }

    /// One run: one `Run`, or for isolation the undisturbed and the disturbed one.
    pub fn run(&mut self, seed: u64) -> Result<Vec<Run>, Fatal> {
        match &self.scenario.kind {
            Kind::Load { before, groups } => {
                self.ready(before, seed)?;
                Ok(vec![self.load(groups.clone(), seed, None)?])
            }
            Kind::Isolation { groups, trouble } => {
                self.ready(&[], seed)?;
                let quiet = self.load(groups.clone(), seed, None)?;
                let disturbed = match trouble {
                    Trouble::Stop { slot } => self.load(groups.clone(), seed, Some(*slot))?,
                    Trouble::Clients(more) => {
                        let groups = groups.iter().chain(more).cloned().collect();
                        self.load(groups, seed, None)?
                    }
                };
                Ok(vec![quiet, disturbed])
            }
            Kind::Recovery { jobs, before } => Ok(vec![self.recover(*jobs, before, seed)?]),
        }
    }

    /// A server that runs and has `before` behind it.
    fn ready(&mut self, before: &[Group], seed: u64) -> Result<(), Fatal> {
        if self.scenario.fresh {
            self.server = None;
            if let Some(dir) = &self.setup.dir {
                let name = dir.file_name().expect("a name was given").to_string_lossy().into_owned();
                self.dir.fresh(&name)?;
            }
        }
        if self.server.is_none() {
            let server = Server::start(&self.setup, limits::BENCH_START)?;
            if !before.is_empty() {
                fill(&server, before, seed)?;
            }
            self.server = Some(server);
        }
        Ok(())
    }

    fn load(&mut self, groups: Vec<Group>, seed: u64, stop: Option<u16>) -> Result<Run, Fatal> {
        let server = self.server.as_mut().expect("started before");
        // A stopped server must be seen before, during and after.
        let run = if stop.is_some() { limits::BENCH_STALL * 2 } else { self.lengths.run };
        let spec = Spec {
            address: server.address,
            warm_ms: self.lengths.warm.as_millis() as u64,
            run_ms: run.as_millis() as u64,
            seed,
            groups,
        };
        let mut load = Load::start(&spec)?;
        load.until_counting()?;
        let before = (server.cpu(), cpu_of(load.pid()), Instant::now());
        if let Some(slot) = stop {
            stall(server, slot)?;
        }
        let tallies = load.until_ended()?;
        let spent = (server.cpu(), cpu_of(load.pid()), before.2.elapsed());
        let memory_bytes = server.memory();
        load.finish();
        if !server.is_running() {
            let last = server.log().lines().next_back().unwrap_or_default().to_owned();
            return Err(Fatal::new(Exit::Temporary, format!("the server ended during the run: {last}")));
        }

        let first = tallies.first().ok_or_else(|| Fatal::new(Exit::Temporary, "a load without a group"))?;
        let all: u64 = tallies.iter().map(|tally| tally.commands).sum();
        let per_command = |role: &&'static str| {
            let used = spent.0[role].saturating_sub(before.0.get(role).copied().unwrap_or_default());
            used.as_secs_f64() * 1e6 / all.max(1) as f64
        };
        // Producers and consumers are two halves of one work: what is reported is all that was done, but for
        // clients whose trouble is the subject.
        let whole = matches!(self.scenario.kind, Kind::Load { .. });
        Ok(Run {
            commands: if whole { all } else { first.commands },
            seconds: first.span_ns as f64 / 1e9,
            latency: Some(latency(first)),
            cpu_us: spent.0.keys().map(|role| (*role, per_command(role))).collect(),
            load_cpu_share: spent.1.saturating_sub(before.1).as_secs_f64() / spent.2.as_secs_f64(),
            memory_bytes,
            groups: tallies
                .iter()
                .map(|t| (t.label.clone(), t.commands as f64 * 1e9 / t.span_ns as f64))
                .collect(),
        })
    }

    /// A start on the log. The server is killed afterwards, so that the next one finds the same.
    fn recover(&mut self, jobs: u64, before: &[Group], seed: u64) -> Result<Run, Fatal> {
        if !self.filled {
            let server = Server::start(&self.setup, limits::BENCH_START)?;
            fill(&server, before, seed)?;
            server.kill();
            self.filled = true;
        }
        let begun = Instant::now();
        let server = Server::start(&self.setup, limits::BENCH_RECOVERY)?;
        let seconds = begun.elapsed().as_secs_f64();
        let found = ready_jobs(&server)?;
        if found != jobs {
            let reason = format!("{} recovered {found} of {jobs} jobs", self.setup.program.name());
            return Err(Fatal::new(Exit::Temporary, reason));
        }
        let per_job =
            |(role, used): (&'static str, Duration)| (role, used.as_secs_f64() * 1e6 / jobs.max(1) as f64);
        Ok(Run {
            commands: jobs,
            seconds,
            latency: None,
            cpu_us: server.cpu().into_iter().map(per_job).collect(),
            load_cpu_share: 0.0,
            memory_bytes: server.memory(),
            groups: BTreeMap::new(),
        })
    }
}

fn latency(tally: &Tally) -> Latency {
    let us = |ns: u64| ns as f64 / 1e3;
    Latency { p50: us(tally.p50_ns), p99: us(tally.p99_ns), p999: us(tally.p999_ns), max: us(tally.max_ns) }
}

/// Does the groups' limits of commands, uncounted.
fn fill(server: &Server, groups: &[Group], seed: u64) -> Result<(), Fatal> {
    let run_ms = limits::BENCH_RECOVERY.as_millis() as u64;
    let spec = Spec { address: server.address, warm_ms: 0, run_ms, seed, groups: groups.to_vec() };
    let mut load = Load::start(&spec)?;
    load.until_counting()?;
    load.until_ended()?;
    load.finish();
    Ok(())
}

/// Stops the slot's process for a while, in the middle of the run.
fn stall(server: &Server, slot: u16) -> Result<(), Fatal> {
    let failed = |e| Fatal::temporary("stop of a process", e);
    let pid =
        server.process_of_slot(slot).ok_or_else(|| Fatal::new(Exit::Temporary, "no process of that slot"))?;
    std::thread::sleep(limits::BENCH_STALL / 2);
    kill(Pid::from_raw(pid), Signal::SIGSTOP).map_err(failed)?;
    std::thread::sleep(limits::BENCH_STALL);
    kill(Pid::from_raw(pid), Signal::SIGCONT).map_err(failed)
}

fn ready_jobs(server: &Server) -> Result<u64, Fatal> {
    let failed = |e: std::io::Error| Fatal::temporary("stats of a server", e);
    let mut stream = std::net::TcpStream::connect(server.address).map_err(failed)?;
    stream.set_read_timeout(Some(limits::BENCH_START)).map_err(failed)?;
    stream.write_all(b"stats\r\n").map_err(failed)?;
    let lines = BufReader::new(stream).lines();
    let found =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("current-jobs-ready: ")?.parse().ok());
    found.ok_or_else(|| Fatal::new(Exit::Temporary, "stats without a number of ready jobs"))
}

/// The load process.
struct Load {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Load {
    fn start(spec: &Spec) -> Result<Load, Fatal> {
        let failed = |e| Fatal::temporary("start of the load", e);
        let program: PathBuf = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("bench-load").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        interrupt::register(child.id() as i32);
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut load = Load { child, stdin, stdout };
        let text = serde_json::to_string(spec).expect("plain data has a JSON form");
        let stdin = load.stdin.as_mut().expect("it was asked for");
        writeln!(stdin, "{text}").and_then(|()| stdin.flush()).map_err(failed)?;
        Ok(load)
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn next(&mut self) -> Result<Said, Fatal> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line).map_err(|e| Fatal::temporary("the load's words", e))?;
        interrupt::check()?;
        if read == 0 {
            return Err(Fatal::new(Exit::Temporary, "the load process ended early"));
        }
        serde_json::from_str(&line).map_err(|e| Fatal::temporary("the load's words", e))
    }

    fn until_counting(&mut self) -> Result<(), Fatal> {
        match self.next()? {
            Said::Counting => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn until_ended(&mut self) -> Result<Vec<Tally>, Fatal> {
        match self.next()? {
            Said::Ended(tallies) => Ok(tallies),
            other => Err(unexpected(other)),
        }
    }

    /// Lets it close its connections and leave.
    fn finish(mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.pid());
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = killpg(pid, Signal::SIGKILL);
        }
        interrupt::unregister(pid.as_raw());
        let _ = self.child.wait();
    }
}

fn unexpected(said: Said) -> Fatal {
    match said {
        Said::Failed(reason) => Fatal::new(Exit::Temporary, format!("the load failed: {reason}")),
        other => Fatal::new(Exit::Ipc, format!("the load said {other:?} at the wrong time")),
    }
}

//! `trellis migrate` and `trellis export`: the jobs of a data directory in a new one of another shape.
//!
//! Offline. The source is read only, and locked while it is. The target is made beside its final name, compared
//! job by job with the source (`verify`), and appears by one rename (`unfinished`): whatever stops this, the
//! source is as it was and there is no half target. Memory follows the number of tubes, slots and files, not of
//! jobs: these are sorted in temporary files, which are in the unfinished target as well, where room is needed
//! anyway.
//!
//! Jobs keep their ids, so that ids of the source may live in any slot of the target: its topology says below
//! which id that is so. A flat target is exactly a single-process server's directory.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::copy::{give_to_owner_of, sync_dir, take_mode_of};
use super::hold::{Hold, Look};
use super::progress::Progress;
use super::unfinished::{Unfinished, has_name, is_there, parent_of};
use super::verify::verify;
use super::{DataDir, LogDir, io_fatal};
use crate::error::{Exit, Fatal};
use crate::limits;
use crate::topology::{self, IDENTITY_FILE, Layout, Topology, slot_dir_name};
use crate::wal::{Bodies, JobSorter, LogWriter, Scan, SortedJobs, Tally, Verdict, ids};

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub from: PathBuf,
    pub to: PathBuf,
    /// One: the flat layout.
    pub slots: u32,
    pub partitions: u32,
    /// Size of the target's log files.
    pub file_bytes: u64,
}

/// What was done.
#[derive(Debug)]
pub struct Outcome {
    pub to: PathBuf,
    /// By slot of the target.
    pub jobs: Vec<u64>,
    /// Ids up to this one are used up.
    pub last_id: u64,
    /// Torn tails of the source, which were left out.
    pub left_out: Vec<String>,
    pub took: Duration,
}

/// The source, read.
pub(super) struct Source<'a> {
    pub data: &'a DataDir,
    pub scans: Vec<Scan<Tally>>,
    /// Of all logs.
    pub jobs: SortedJobs,
}

impl Source<'_> {
    pub fn job_count(&self) -> u64 {
        self.scans.iter().map(|scan| scan.jobs.jobs()).sum()
    }
}

/// What the target is to be.
pub(super) struct Target {
    pub topology: Topology,
    /// Ids up to this one are used up.
    pub last_id: u64,
    /// A record in its first log says so.
    pub told_by_record: bool,
}

pub fn migrate(plan: &Plan) -> Result<Outcome, Fatal> {
    let begun = Instant::now();
    let model = target_is_free(plan)?;
    let data = source_dir(&plan.from)?;
    let _hold = Hold::to_read(&data)?;
    let look = Look::take(&data)?;
    let unfinished = Unfinished::begin(&plan.to, &model)?;
    let partial = unfinished.path();
    let source = read(&data, partial)?;
    let target = target_of(plan, &source)?;
    let jobs = write(plan, &source, &target, partial)?;
    verify(&source, partial, &target)?;
    look.unchanged(&data)?;
    take_modes(partial, &target.topology, &model)?;
    unfinished.finish()?;
    Ok(Outcome {
        to: plan.to.clone(),
        jobs,
        last_id: target.last_id,
        left_out: torn(&source),
        took: begun.elapsed(),
    })
}

fn torn(source: &Source) -> Vec<String> {
    let logs = source.scans.iter().zip(&source.data.logs);
    let torn = |(scan, log): (&Scan<Tally>, &LogDir)| -> Vec<String> {
        scan.findings.iter().map(|finding| format!("{}/{finding}", log.path.display())).collect()
    };
    logs.flat_map(torn).collect()
}

impl Outcome {
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes any text");
        for torn in &self.left_out {
            line(&format!("left out: {torn}"));
        }
        if let [_, _, ..] = self.jobs[..] {
            for (slot, jobs) in self.jobs.iter().enumerate() {
                line(&format!("{}/{}: {jobs} jobs", self.to.display(), slot_dir_name(slot as u16)));
            }
        }
        let (to, jobs, id) = (self.to.display(), self.jobs.iter().sum::<u64>(), self.last_id);
        let memory = peak_memory_mib().map_or(String::new(), |mib| format!(" and {mib} MiB of memory"));
        let took = self.took.as_secs_f64();
        line(&format!("{to}: {jobs} jobs, compared with the source; ids go on above {id}"));
        line(&format!("took {took:.1} s{memory}"));
        text
    }
}

/// The most that this process has had in memory. (What the system counts for `getrusage` begins with the memory of
/// whoever started it.)
fn peak_memory_mib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.trim().strip_suffix(" kB")?.parse::<u64>().ok()? / 1024)
}

/// Returns what the target's directory is to look like: the source's.
fn target_is_free(plan: &Plan) -> Result<fs::Metadata, Fatal> {
    let Plan { from, to, .. } = plan;
    if !has_name(to) {
        let reason = "is not the name of a new directory: give one that is to be made";
        return Err(Fatal::new(Exit::Data, format!("{}: {reason}", to.display())));
    }
    let model = fs::metadata(from).map_err(|error| io_fatal(from, "looking at the source", error))?;
    if fs::symlink_metadata(to).is_ok() {
        return Err(is_there(to));
    }
    let parent = parent_of(to);
    let absolute = |path: &Path| path.canonicalize().map_err(|e| io_fatal(path, "the target's place", e));
    if absolute(parent)?.starts_with(absolute(from)?) {
        let reason = "is inside of the source, which is not to be changed: name a place outside";
        return Err(Fatal::new(Exit::Data, format!("{}: {reason}", to.display())));
    }
    Ok(model)
}

fn source_dir(from: &Path) -> Result<DataDir, Fatal> {
    let refuse = |reason: &str| Err(Fatal::new(Exit::Data, format!("{}: {reason}", from.display())));
    if from.join(IDENTITY_FILE).exists() {
        return refuse("this is one slot's directory: give the data directory that it is in");
    }
    let data = DataDir::look(from)?;
    if let Some(fault) = data.faults.first() {
        return refuse(&format!("can't be the source: {fault}"));
    }
    if data.logs.is_empty() {
        return refuse("there are no logs in it: a server can start in an empty directory with any --slots");
    }
    Ok(data)
}

/// Temporary files go to `room`.
pub(super) fn read<'a>(data: &'a DataDir, room: &Path) -> Result<Source<'a>, Fatal> {
    let mut jobs = JobSorter::new(room, data.logs.len());
    let progress = Progress::bytes("reading", data.log_bytes()?);
    let scans: Result<Vec<Scan<Tally>>, Fatal> =
        (0..data.logs.len()).map(|number| read_log(data, number, &mut jobs, &progress)).collect();
    drop(progress);
    // Before what a later log is refused for.
    if let Some((number, id)) = jobs.twice()? {
        let reason = format!("job {id} is in another slot as well");
        return Err(Fatal::new(Exit::Data, format!("{}: {reason}", data.logs[number].path.display())));
    }
    Ok(Source { data, scans: scans?, jobs: jobs.finish()? })
}

fn read_log(
    data: &DataDir,
    number: usize,
    jobs: &mut JobSorter,
    progress: &Progress,
) -> Result<Scan<Tally>, Fatal> {
    let scan = data.sort(number, jobs, &|bytes| progress.advance(bytes))?;
    if scan.verdict() == Verdict::Refused {
        jobs.forget_last();
        let path = data.logs[number].path.display();
        let faults = scan.findings.iter().take(limits::WAL_FINDINGS_LOGGED);
        let faults: Vec<String> = faults.map(|fault| format!("{path}/{fault}")).collect();
        let way_out =
            "`trellis wal check` says more, `trellis wal repair` makes a copy and keeps what is whole";
        return Err(Fatal::new(Exit::Data, format!("{}\n{way_out}", faults.join("\n"))));
    }
    Ok(scan)
}

fn target_of(plan: &Plan, source: &Source) -> Result<Target, Fatal> {
    let last_id = last_id(source)?;
    let topology = topology_of(plan, last_id)?;
    let highest = source.scans.iter().map(|scan| scan.jobs.highest_id).max().unwrap_or(0);
    // A single-process server knows of used up ids by its log only.
    let told_by_record = topology.layout == Layout::Flat && last_id > highest;
    Ok(Target { topology, last_id, told_by_record })
}

/// The highest id that the source has handed out, as far as anything there tells.
fn last_id(source: &Source) -> Result<u64, Fatal> {
    let routed = source.data.topology.as_ref().map_or(0, |topology| topology.first_routed_id);
    let mut last_id = routed.saturating_sub(1);
    for (log, scan) in source.data.logs.iter().zip(&source.scans) {
        last_id = last_id.max(scan.max_id).max(ids::used_up(&log.path)?);
    }
    if last_id + limits::ID_BLOCK >= limits::JOB_ID_END {
        let reason = format!("it has handed out id {last_id}; ids end below {}", limits::JOB_ID_END);
        return Err(Fatal::new(Exit::Data, format!("{}: {reason}", source.data.path.display())));
    }
    Ok(last_id)
}

fn topology_of(plan: &Plan, last_id: u64) -> Result<Topology, Fatal> {
    let layout = if plan.slots == 1 { Layout::Flat } else { Layout::Slots };
    let server_id = topology::new_server_id().map_err(|error| Fatal::temporary("/dev/urandom", error))?;
    let mut topology = Topology::new(plan.slots, plan.partitions, layout, &server_id)?;
    topology.first_routed_id = last_id + 1;
    topology.validate()?;
    Ok(topology)
}

/// Where a slot's logs are, below a directory of this topology.
pub(super) fn log_dir(dir: &Path, topology: &Topology, slot: u16) -> PathBuf {
    match topology.layout {
        Layout::Flat => dir.to_owned(),
        Layout::Slots => dir.join(slot_dir_name(slot)),
    }
}

/// Makes the whole target, all of it on disk. Returns the number of jobs of each slot.
fn write(plan: &Plan, source: &Source, target: &Target, to: &Path) -> Result<Vec<u64>, Fatal> {
    let Target { topology, last_id, .. } = target;
    if topology.layout == Layout::Slots {
        topology::create(to, topology, &[])?;
    }
    let slots = 0..topology.slots as u16;
    let dirs: Vec<PathBuf> = slots.map(|slot| log_dir(to, topology, slot)).collect();
    let mut writers: Vec<LogWriter> =
        dirs.iter().map(|dir| LogWriter::new(dir, 1, plan.file_bytes)).collect();
    if target.told_by_record {
        writers[0].append_used_up(*last_id)?;
    }
    let mut counts = vec![0; writers.len()];
    let progress = Progress::jobs("writing", source.job_count());
    let mut jobs = source.jobs.stream()?;
    let mut bodies = SourceBodies::new(source.data);
    while let Some((log, job)) = jobs.next()? {
        let slot = usize::from(topology.slot_of(&job.tube));
        writers[slot].append(&job, bodies.of(log))?;
        counts[slot] += 1;
        progress.advance(1);
    }
    for (writer, dir) in writers.into_iter().zip(&dirs) {
        writer.finish()?;
        ids::store(dir, *last_id)?;
        sync_dir(dir).map_err(|error| io_fatal(dir, "syncing it", error))?;
    }
    sync_dir(to).map_err(|error| io_fatal(to, "syncing it", error))?;
    give_away(to, &plan.from).map_err(|error| io_fatal(to, "giving it to the owner of the source", error))?;
    Ok(counts)
}

/// Bodies of the source's logs, which come one after the other.
pub(super) struct SourceBodies<'a> {
    data: &'a DataDir,
    open: Option<(usize, Bodies)>,
}

impl<'a> SourceBodies<'a> {
    pub fn new(data: &'a DataDir) -> SourceBodies<'a> {
        SourceBodies { data, open: None }
    }

    pub fn of(&mut self, log: usize) -> &mut Bodies {
        if self.open.as_ref().is_some_and(|(number, _)| *number != log) {
            self.open = None;
        }
        let open = self.open.get_or_insert_with(|| (log, Bodies::new(&self.data.logs[log].path)));
        &mut open.1
    }
}

fn give_away(dir: &Path, model: &Path) -> io::Result<()> {
    let like = fs::metadata(model)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        give_to_owner_of(&entry.path(), &like)?;
        if entry.file_type()?.is_dir() {
            give_away(&entry.path(), model)?;
        }
    }
    Ok(())
}

/// Directories of slots get the mode of the source, which may not allow to write: last of all.
fn take_modes(to: &Path, topology: &Topology, model: &fs::Metadata) -> Result<(), Fatal> {
    if topology.layout == Layout::Slots {
        for slot in 0..topology.slots as u16 {
            let dir = log_dir(to, topology, slot);
            take_mode_of(&dir, model).map_err(|error| io_fatal(&dir, "setting its mode", error))?;
        }
    }
    Ok(())
}

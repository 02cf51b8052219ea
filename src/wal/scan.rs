//! A whole directory of logs: the core's replay, without its trust and without touching anything.
//!
//! Files are read in the order of their numbers, records in the order of their offsets, and the job table
//! goes through the states that the core's would. What the core would skip, misread or delete is a finding.
//! A torn tail is what a crash leaves: a record that stops somewhere, with nothing behind it in this file
//! and nothing at all in later ones. (Two tears that the core itself takes for the end of a file are no
//! damage in an older file either: stock goes on in a new file after a crash and leaves them there.)
//!
//! When the machine has stopped, more can be missing, and `tear` says what of it is one.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::finding::{Cause, Finding, Verdict, WalError};
use super::format::Version;
use super::jobs::{Job, JobTable, objection};
use super::reader::{Next, Opened, Reader, Record, RecordKind, Stop};
use super::seal::{self, Place};
use super::source::{FileSource, Source};
use super::tear::Tear;
use crate::limits;

/// The owner of a tube name.
pub type SlotOf<'a> = &'a dyn Fn(&[u8]) -> u16;

/// Whether a job of this id may be in the own slot.
pub type IdFits<'a> = &'a dyn Fn(u64) -> bool;

/// What belongs into the directory. The default admits everything.
#[derive(Clone, Copy, Default)]
pub struct Policy<'a> {
    /// The slot that the directory belongs to.
    pub own_slot: u16,
    pub slot_of: Option<SlotOf<'a>>,
    pub id_fits: Option<IdFits<'a>>,
    /// The machine may have stopped while a server wrote here: blocks may be lost in any order.
    pub power_failed: bool,
    /// Of the checksums in this directory.
    pub seed: Option<u64>,
}

/// What a scan saw of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    pub number: u32,
    /// Its length.
    pub bytes: u64,
    /// None: never written to, or of no version that is known (which is a finding).
    pub version: Option<Version>,
    pub records: u64,
    /// Where its whole records end.
    pub end: u64,
}

/// What a scan saw of all.
pub struct Scan<J = JobTable> {
    /// By number.
    pub files: Vec<FileReport>,
    /// By file and offset.
    pub findings: Vec<Finding>,
    /// Foreign records beyond those in `findings`.
    pub findings_left_off: u64,
    /// The highest id in any record, of live and of deleted jobs; 0 without records.
    pub max_id: u64,
    /// As they are kept.
    pub jobs: J,
    /// What is in files before this one is known to be on disk.
    pub unsynced_from: u32,
}

impl<J> Scan<J> {
    pub fn verdict(&self) -> Verdict {
        let torn = |finding: &Finding| matches!(finding, Finding::TornTail { .. });
        if self.findings.is_empty() {
            Verdict::Sound
        } else if self.findings.iter().all(torn) {
            Verdict::Torn
        } else {
            Verdict::Refused
        }
    }

    /// File number and offset of each torn tail: the file is whole once it is cut there.
    pub fn torn_tails(&self) -> impl Iterator<Item = (u32, u64)> {
        self.findings.iter().filter_map(|finding| match finding {
            // Nothing is left of it to be cut.
            Finding::TornTail { cause: Cause::FileMissing, .. } => None,
            Finding::TornTail { file, offset, .. } => Some((*file, *offset)),
            _ => None,
        })
    }

    /// Where the last record ends, if there is any.
    pub fn end(&self) -> Option<Place> {
        last_record_end(&self.files)
    }

    /// The files in front of all that were ever written to: to be removed, in this order, before the core opens
    /// the directory. It keeps them at the head of its list without a job in them, where each attempt to
    /// compact fails with a line on stderr: some ten thousand lines a command.
    pub fn unwritten_head(&self) -> impl Iterator<Item = u32> {
        self.files.iter().take_while(|file| file.version.is_none()).map(|file| file.number)
    }

    /// The files behind all that anything is in, from the end: to be removed in this order. Of those without a version
    /// the core would say that they can't be read; one with a version and no record is left by each start.
    pub fn unwritten_tail(&self) -> impl Iterator<Item = u32> {
        let found = |number| {
            let ends_in =
                |finding: &Finding| matches!(finding, Finding::TornTail { file, .. } if *file == number);
            self.findings.iter().any(ends_in)
        };
        let unwritten =
            move |file: &&FileReport| file.version.is_none() || (file.records == 0 && !found(file.number));
        self.files.iter().rev().take_while(unwritten).map(|file| file.number)
    }
}

impl Scan {
    /// Shows every live job in replay order.
    pub fn visit(&self, mut visitor: impl FnMut(&Job)) {
        self.jobs.iter().for_each(&mut visitor);
    }
}

/// Where a replay keeps what it reads.
pub(super) trait Keeper {
    /// The next whole record; its file is read no further if the answer is a cause: it contradicts what came
    /// before.
    fn take(
        &mut self,
        file: u32,
        record: &Record,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Cause>, ReplayError>;
}

impl Keeper for JobTable {
    fn take(
        &mut self,
        file: u32,
        record: &Record,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Cause>, ReplayError> {
        let event = self.event(file, record);
        let cause = objection(self.job(record.jobrec.id), &event, || reader.jobrec_can_be_cut(record))?;
        if cause.is_none() {
            self.apply(event);
        }
        Ok(cause)
    }
}

impl Keeper for () {
    fn take(&mut self, _: u32, _: &Record, _: &mut Reader<'_>) -> Result<Option<Cause>, ReplayError> {
        Ok(None)
    }
}

/// Why a replay can't go on.
#[derive(Debug)]
pub enum ReplayError {
    /// The file that is read.
    Read(io::Error),
    /// Where the records go.
    Keep(WalError),
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> ReplayError {
        ReplayError::Read(error)
    }
}

fn last_record_end(files: &[FileReport]) -> Option<Place> {
    files.iter().rev().find(|file| file.records > 0).map(|file| (file.number, file.end))
}

/// The file name of a log.
pub fn log_name(number: u32) -> String {
    format!("binlog.{number}")
}

/// A reader's progress is told after so many records.
const WATCHED_RECORDS: u64 = 1024;

/// Reads a directory's logs. An error means that one could not be read; everything that could be read but
/// is not right is a finding.
pub fn scan(dir: &Path, policy: Policy<'_>) -> Result<Scan, WalError> {
    scan_watched(dir, policy, &|_| {})
}

/// The same; `watch` is told, now and then, how many more bytes were read.
pub fn scan_watched(dir: &Path, policy: Policy<'_>, watch: &dyn Fn(u64)) -> Result<Scan, WalError> {
    let scan = scan_keeping(dir, policy, watch, JobTable::default())?;
    if policy.power_failed && scan.verdict() == Verdict::Refused {
        // Then as it is seen without that: all that is there, up to each damage.
        return scan_keeping(dir, Policy { power_failed: false, ..policy }, &|_| {}, JobTable::default());
    }
    Ok(scan)
}

/// Reads them without following any job: so records that contradict each other are not found.
pub fn scan_records(dir: &Path, policy: Policy<'_>) -> Result<Scan<()>, WalError> {
    scan_keeping(dir, policy, &|_| {}, ())
}

/// The same as `scan`, but for a refused directory where the machine may have stopped: then nothing that is behind
/// the first damage is read. The records go to the keeper.
pub(super) fn scan_keeping<K: Keeper>(
    dir: &Path,
    policy: Policy<'_>,
    watch: &dyn Fn(u64),
    keeper: K,
) -> Result<Scan<K>, WalError> {
    let mut odd = Vec::new();
    let mut numbers = Vec::new();
    for name in log_names(dir)? {
        match log_number(&name) {
            Some(number) => numbers.push(number),
            None => odd.push(Finding::OddFile { name, cause: Cause::NameUnread }),
        }
    }
    numbers.sort_unstable();
    let mut replay = Replay::keeping(policy, keeper);
    replay.watch = watch;
    for number in numbers {
        let path = dir.join(log_name(number));
        let metadata = fs::metadata(&path).map_err(|error| WalError::new(&path, "looking at it", error))?;
        // Opening anything else might wait for a writer.
        if !metadata.is_file() {
            odd.push(Finding::OddFile { name: log_name(number), cause: Cause::NoFile });
            continue;
        }
        let source = FileSource::open(&path).map_err(|error| WalError::new(&path, "opening it", error))?;
        replay.file(number, &source).map_err(|error| match error {
            ReplayError::Read(error) => WalError::new(&path, "reading it", error),
            ReplayError::Keep(error) => error,
        })?;
    }
    let mut scan = replay.finish();
    odd.append(&mut scan.findings);
    scan.findings = odd;
    Ok(scan)
}

/// Replay, file by file.
pub struct Replay<'p, K = JobTable> {
    policy: Policy<'p>,
    watch: &'p dyn Fn(u64),
    files: Vec<FileReport>,
    // At most one a file.
    stops: Vec<(u32, Stop)>,
    foreign: Vec<Finding>,
    foreign_left_off: u64,
    gaps: Vec<Finding>,
    max_id: u64,
    jobs: K,
    unsynced_from: u32,
    tear: Option<Tear>,
}

impl<'p> Replay<'p> {
    pub fn new(policy: Policy<'p>) -> Replay<'p> {
        Replay::keeping(policy, JobTable::default())
    }
}

#[allow(private_bounds, reason = "other keepers are this module's own")]
impl<'p, K: Keeper> Replay<'p, K> {
    pub(super) fn keeping(policy: Policy<'p>, keeper: K) -> Replay<'p, K> {
        Replay {
            policy,
            watch: &|_| {},
            files: Vec::new(),
            stops: Vec::new(),
            foreign: Vec::new(),
            foreign_left_off: 0,
            gaps: Vec::new(),
            max_id: 0,
            jobs: keeper,
            unsynced_from: 0,
            tear: None,
        }
    }

    /// The next file. Panics unless its number is above those before.
    pub fn file(&mut self, number: u32, source: &dyn Source) -> Result<(), ReplayError> {
        let before = self.files.last().map(|file| file.number);
        assert!(before.is_none_or(|before| number > before), "files are read in the order of their numbers");
        self.files.push(FileReport { number, bytes: source.length(), version: None, records: 0, end: 0 });
        if let Some(before) = before.filter(|before| number > before + 1) {
            let (file, cause) = (before + 1, Cause::FileMissing);
            if self.policy.power_failed && self.tear.is_none() {
                self.tear = Some(Tear::new(file, 0, cause));
            } else if self.tear.is_none() {
                // The core deletes from the lowest number up: it leaves no gap.
                self.gaps.push(Finding::Damaged { file, offset: 0, cause });
            }
        }
        let seed = self.policy.seed.map(|seed| seal::file_seed(seed, number));
        if let Some(tear) = &mut self.tear {
            return Ok(tear.look_at_file(number, source, seed)?);
        }
        let stop = match Reader::open(source)? {
            Opened::Empty => None,
            Opened::Stopped(stop) => match seed.filter(|_| self.policy.power_failed) {
                Some(seed) => self.torn(number, &mut Reader::behind_mark(source, seed), stop)?,
                None => Some(stop),
            },
            Opened::Log(reader) => {
                if let Some((file, offset, cause)) = self.unjoined(number, reader.behind()) {
                    if self.policy.power_failed {
                        let mut tear = Tear::new(file, offset, cause);
                        tear.look_at_file(number, source, seed)?;
                        self.tear = Some(tear);
                        return Ok(());
                    }
                    self.gaps.push(Finding::Damaged { file, offset, cause });
                }
                match seed.filter(|_| self.policy.power_failed && !reader.is_sealed()) {
                    // Its version is on disk, and its mark may be lost with what followed it.
                    Some(seed) if reader.is_unmarked() => {
                        self.records(number, Reader::behind_mark(source, seed))?
                    }
                    _ => self.records(number, reader)?,
                }
            }
        };
        self.stops.extend(stop.map(|stop| (number, stop)));
        Ok(())
    }

    /// Whether the records of this file were written behind another place than where those before it end: then that
    /// end, and why. What was in front of the lowest file is compacted away.
    fn unjoined(&self, number: u32, behind: Option<Place>) -> Option<(u32, u64, Cause)> {
        let behind = behind?;
        let lowest = self.files[0].number;
        // That a file is missing is said.
        let missing = |gap: &Finding| match gap {
            Finding::Damaged { file, cause: Cause::FileMissing, .. } => *file <= behind.0,
            _ => false,
        };
        let end = last_record_end(&self.files);
        if behind.0 < lowest || end == Some(behind) || self.gaps.iter().any(missing) {
            return None;
        }
        let (file, offset) = end.unwrap_or((behind.0, 0));
        // What a stop says is said.
        let told =
            self.stops.iter().any(|(stopped, stop)| *stopped == file && !stop.cause.core_stops_there());
        (!told).then_some((file, offset, Cause::Unjoined { later: number, behind }))
    }

    /// The stop, unless a power failure can have made it: then nothing from there on counts.
    fn torn(&mut self, number: u32, reader: &mut Reader<'_>, stop: Stop) -> io::Result<Option<Stop>> {
        let possible = self.policy.power_failed && reader.is_sealed();
        if !possible || !(stop.cause.is_cut() || reader.has_lost_block(stop.offset)?) {
            return Ok(Some(stop));
        }
        let mut tear = Tear::new(number, stop.offset, stop.cause);
        tear.look_behind(number, reader)?;
        self.tear = Some(tear);
        Ok(None)
    }

    pub fn finish(mut self) -> Scan<K> {
        // The last file that anything was written to, whole or not.
        let written = self.files.iter().filter(|file| file.records > 0).map(|file| file.number);
        let stopped = self.stops.iter().map(|(number, _)| *number);
        let last = written.chain(stopped).chain(self.tear.as_ref().map(|tear| tear.file)).max();
        let stops = self.stops.into_iter().map(|(file, Stop { offset, cause })| {
            if cause.is_cut() && (Some(file) == last || cause.core_stops_there()) {
                Finding::TornTail { file, offset, cause }
            } else {
                Finding::Damaged { file, offset, cause }
            }
        });
        let mut findings: Vec<Finding> = stops.chain(self.gaps).chain(self.foreign).collect();
        findings.extend(self.tear.take().into_iter().flat_map(|tear| tear.findings(&self.files)));
        findings.sort_by_key(|finding| match finding {
            Finding::OddFile { .. } => (0, 0),
            Finding::TornTail { file, offset, .. }
            | Finding::Damaged { file, offset, .. }
            | Finding::ForeignTube { file, offset, .. }
            | Finding::ForeignId { file, offset, .. } => (*file, *offset),
        });
        Scan {
            files: self.files,
            findings,
            findings_left_off: self.foreign_left_off,
            max_id: self.max_id,
            jobs: self.jobs,
            unsynced_from: self.unsynced_from,
        }
    }

    /// All records of a file; the stop, if it has one.
    fn records(&mut self, number: u32, mut reader: Reader<'_>) -> Result<Option<Stop>, ReplayError> {
        let mut records = 0;
        let mut told = reader.position();
        let (stop, end) = loop {
            let end = reader.position();
            match reader.next()? {
                Next::End => break (None, end),
                Next::Stopped(stop) => break (self.torn(number, &mut reader, stop)?, end),
                Next::Record(record) => {
                    if let Some(cause) = self.apply(number, &record, &mut reader)? {
                        break (Some(Stop { offset: record.offset, cause }), end);
                    }
                    records += 1;
                    if records % WATCHED_RECORDS == 0 {
                        (self.watch)(reader.position() - told);
                        told = reader.position();
                    }
                }
            }
        };
        (self.watch)(reader.bytes() - told);
        let report = self.files.last_mut().expect("the file that is being read");
        (report.version, report.records, report.end) = (Some(reader.version()), records, end);
        Ok(stop)
    }

    /// One whole record. The cause, if it contradicts what came before.
    fn apply(
        &mut self,
        file: u32,
        record: &Record,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Cause>, ReplayError> {
        if let Some(cause) = self.jobs.take(file, record, reader)? {
            return Ok(Some(cause));
        }
        self.max_id = self.max_id.max(record.jobrec.id);
        let synced = record.synced.and_then(|synced| synced.place(file));
        self.unsynced_from = synced.map_or(0, |(file, _)| file);
        self.judge_place(file, record);
        Ok(None)
    }

    /// Whether the record belongs into this slot at all.
    fn judge_place(&mut self, file: u32, record: &Record) {
        let (offset, slot_here) = (record.offset, self.policy.own_slot);
        if let (Some(slot_of), RecordKind::Full { tube, .. }) = (self.policy.slot_of, &record.kind) {
            let slot_owner = slot_of(tube.as_bytes());
            if slot_owner != slot_here {
                self.foreign(Finding::ForeignTube { file, offset, tube: *tube, slot_here, slot_owner });
            }
        }
        let id = record.jobrec.id;
        if self.policy.id_fits.is_some_and(|id_fits| !id_fits(id)) {
            self.foreign(Finding::ForeignId { file, offset, id, slot_here });
        }
    }

    fn foreign(&mut self, finding: Finding) {
        if self.foreign.len() < limits::WAL_FINDINGS {
            self.foreign.push(finding);
        } else {
            self.foreign_left_off += 1;
        }
    }
}

/// The bytes of all logs in a directory: what a scan of it will read at most.
pub fn log_bytes(dir: &Path) -> Result<u64, WalError> {
    let logs = log_names(dir)?;
    let length = |name: &String| fs::metadata(dir.join(name)).map_or(0, |file| file.len());
    Ok(logs.iter().map(length).sum())
}

/// Names that the core's scan of the directory counts: the prefix, then what C's `strtol` reads to the end.
pub(super) fn log_names(dir: &Path) -> Result<Vec<String>, WalError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let Some(suffix) = name.as_bytes().strip_prefix(b"binlog.") else { continue };
            let unsigned = suffix.trim_ascii_start();
            let unsigned = unsigned.strip_prefix(b"-").or(unsigned.strip_prefix(b"+")).unwrap_or(unsigned);
            if unsigned.iter().all(u8::is_ascii_digit) {
                names.push(name.to_string_lossy().into_owned());
            }
        }
        Ok(names)
    };
    list().map_err(|error| WalError::new(dir, "listing the directory", error))
}

/// The number, if this is the name that the core gives to the file of this number.
pub(super) fn log_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("binlog.")?.parse().ok()?;
    (number < limits::WAL_FILE_NUMBER_END && log_name(number) == name).then_some(number)
}

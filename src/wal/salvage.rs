//! What can be had from a damaged directory: every job whose records are whole, wherever they are.
//!
//! Reads on behind what is no record: the next place where a record is whole again ends the loss. Records that
//! contradict earlier ones win over them, for they were written later. Nothing on disk changes.

use std::io;
use std::path::Path;

use super::finding::{Cause, Finding, WalError};
use super::format::{VERSION_BYTES, Version};
use super::jobs::{Event, JobTable, contradiction};
use super::reader::{Next, Opened, Reader, Record, RecordKind};
use super::scan::{Policy, log_name, log_names, log_number};
use super::source::{FileSource, Source};

/// Bytes between whole records that are none, and why the first of them is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub file: u32,
    pub from: u64,
    /// Where a record is whole again, or where what was written ends.
    pub to: u64,
    pub cause: Cause,
}

#[derive(Default)]
pub struct Salvage {
    pub jobs: JobTable,
    pub losses: Vec<Loss>,
    /// Records that say something else of their job than earlier ones: a later full one is believed.
    pub contradictions: Vec<Finding>,
    /// Live jobs of other slots, by id, with their tubes: not in `jobs`.
    pub foreign: Vec<(u64, String)>,
    /// Files that the core would not read by their names.
    pub odd: Vec<String>,
    /// By number.
    pub files: Vec<u32>,
    /// The highest id in any record.
    pub max_id: u64,
}

/// Reads what is whole. `watch` is told how many more bytes were read.
pub fn salvage(dir: &Path, policy: Policy<'_>, watch: &dyn Fn(u64)) -> Result<Salvage, WalError> {
    let mut salvage = Salvage::default();
    for name in log_names(dir)? {
        match log_number(&name) {
            Some(number) if dir.join(&name).is_file() => salvage.files.push(number),
            _ => salvage.odd.push(name),
        }
    }
    salvage.files.sort_unstable();
    for number in salvage.files.clone() {
        let path = dir.join(log_name(number));
        let source = FileSource::open(&path).map_err(|error| WalError::new(&path, "opening it", error))?;
        salvage.file(number, &source).map_err(|error| WalError::new(&path, "reading it", error))?;
        watch(source.length());
    }
    salvage.send_foreign_away(policy);
    Ok(salvage)
}

impl Salvage {
    fn file(&mut self, number: u32, source: &dyn Source) -> io::Result<()> {
        let mut reader = match Reader::open(source)? {
            Opened::Empty => return Ok(()),
            Opened::Log(reader) => reader,
            Opened::Stopped(stop) => {
                self.lose(number, 0, VERSION_BYTES as u64, stop.cause);
                match likely_version(source)? {
                    Some(reader) => reader,
                    None => return Ok(()),
                }
            }
        };
        loop {
            match reader.next()? {
                Next::End => return Ok(()),
                Next::Record(record) => self.apply(number, &record),
                Next::Stopped(stop) => {
                    let jobs = &self.jobs;
                    let again = reader.resync(&mut |record| is_credible(jobs, record))?;
                    let to = again.unwrap_or(reader.written_end()?);
                    self.lose(number, stop.offset, to, stop.cause);
                    if again.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn lose(&mut self, file: u32, from: u64, to: u64, cause: Cause) {
        self.losses.push(Loss { file, from, to, cause });
    }

    fn apply(&mut self, file: u32, record: &Record) {
        let id = record.jobrec.id;
        self.max_id = self.max_id.max(id);
        let event = self.jobs.event(file, record);
        if let Some(cause) = self.jobs.job(id).and_then(|job| contradiction(job, &event)) {
            self.contradictions.push(Finding::Damaged { file, offset: record.offset, cause });
            if event.full.is_none() {
                // Of a job that is lost.
                return;
            }
            self.jobs.remove(id);
        }
        self.jobs.apply(event);
    }

    fn send_foreign_away(&mut self, policy: Policy<'_>) {
        let fits = |id, tube: &[u8]| {
            policy.slot_of.is_none_or(|slot_of| slot_of(tube) == policy.own_slot)
                && policy.id_fits.is_none_or(|id_fits| id_fits(id))
        };
        let strangers = self.jobs.iter().filter(|job| !fits(job.id(), &job.tube));
        self.foreign =
            strangers.map(|job| (job.id(), String::from_utf8_lossy(&job.tube).into_owned())).collect();
        self.foreign.iter().for_each(|(id, _)| self.jobs.remove(*id));
    }
}

/// Behind damage only: a short record that parses but changes no known job may be anything.
fn is_credible(jobs: &JobTable, record: &Record) -> bool {
    match record.kind {
        RecordKind::Full { .. } => true,
        RecordKind::Short => {
            let event = Event { jobrec: record.jobrec, full: None };
            jobs.job(event.jobrec.id).is_some_and(|job| contradiction(job, &event).is_none())
        }
    }
}

/// Reads a file whose version is lost: in the version in which its first record is whole, else in the newest.
fn likely_version(source: &dyn Source) -> io::Result<Option<Reader<'_>>> {
    if source.length() <= VERSION_BYTES as u64 {
        return Ok(None);
    }
    let mut old = Reader::behind_version(source, Version::V5);
    if matches!(old.next()?, Next::Record(_)) {
        return Ok(Some(Reader::behind_version(source, Version::V5)));
    }
    Ok(Some(Reader::behind_version(source, Version::V7)))
}

//! The jobs that replay leaves, for directories of any number of them: as `JobTable` would have them, but sorted
//! on disk, so that memory follows the number of tubes and files only.
//!
//! Each record becomes a `Mention`, and these are sorted by id and place: so the life of one job after the other
//! passes by, and `jobs` says what each record in it means. What is alive at the end is sorted once more, by
//! the place at which it entered replay's list.
//!
//! A record that contradicts an earlier one ends its file, so what lies behind it in that file does not count; but
//! that shows only when all is read. Then the directory is read again with these ends in it, until what is found
//! is what was assumed: with n files that have one, at the latest after 2n + 1 times, mostly after two.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::entries::{Claim, Living, Mention, Place};
use super::finding::{Cause, Verdict, WalError};
use super::format::State;
use super::jobs::{Job, follow, objection};
use super::reader::{Reader, Record, RecordKind};
use super::scan::{Keeper, Policy, ReplayError, Scan, scan_keeping};
use super::sorter::{Sorted, Sorter, Stream};
use crate::limits;

/// Reads the logs of one directory or of several and gives all their jobs.
pub struct JobSorter {
    /// For temporary files.
    dir: PathBuf,
    /// Of what is kept while sorting, in bytes.
    bound: usize,
    tubes: Tubes,
    living: Sorter<Living>,
    /// If there are several logs.
    claims: Option<Sorter<Claim>>,
    /// The number of the log that was read; none if what was read does not count.
    readings: Vec<Option<usize>>,
}

/// How many jobs there are in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub ready: u64,
    pub delayed: u64,
    pub buried: u64,
    /// The sum of `Job::record_bytes`.
    pub record_bytes: u64,
    /// Of a live job; 0 without any.
    pub highest_id: u64,
}

impl Tally {
    pub fn jobs(&self) -> u64 {
        self.ready + self.delayed + self.buried
    }

    fn count(&mut self, job: &Job) {
        match job.jobrec.state {
            State::Delayed => self.delayed += 1,
            State::Buried => self.buried += 1,
            _ => self.ready += 1,
        }
        self.record_bytes += job.record_bytes();
        self.highest_id = self.highest_id.max(job.id());
    }
}

impl JobSorter {
    /// For so many logs. Temporary files, if they are needed, are made in this directory.
    pub fn new(dir: &Path, logs: usize) -> JobSorter {
        JobSorter::bounded(dir, logs, limits::SORT_BYTES)
    }

    /// At a time there are at most the mentions, the living and the claims.
    pub(super) fn bounded(dir: &Path, logs: usize, bound: usize) -> JobSorter {
        JobSorter {
            dir: dir.to_owned(),
            bound,
            tubes: Tubes::default(),
            living: Sorter::new(dir, bound / 8 * 3),
            claims: (logs > 1).then(|| Sorter::new(dir, bound / 8)),
            readings: Vec::new(),
        }
    }

    /// Reads a directory's logs as `scan` does; its jobs come behind those of directories that were read before.
    pub fn read(
        &mut self,
        log: usize,
        dir: &Path,
        policy: Policy<'_>,
        watch: &dyn Fn(u64),
    ) -> Result<Scan<Tally>, WalError> {
        let mut ends = Ends::new();
        loop {
            let first = ends.is_empty();
            let mentions = Sorter::new(&self.dir, self.bound / 2);
            let keeper = Mentions { ends: &ends, tubes: &mut self.tubes, mentions };
            let scan = scan_keeping(dir, policy, if first { watch } else { &|_| {} }, keeper)?;
            let Scan { files, findings, findings_left_off, max_id, unsynced_from, jobs } = scan;
            let mentions = jobs.mentions.finish()?;
            self.readings.push(None);
            let (found, tally) = self.lives(&mentions)?;
            if found != ends {
                ends = found;
                continue;
            }
            let scan = Scan { files, findings, findings_left_off, max_id, unsynced_from, jobs: tally };
            if policy.power_failed && scan.verdict() == Verdict::Refused {
                // As `scan` does: what was read does not count.
                return self.read(log, dir, Policy { power_failed: false, ..policy }, &|_| {});
            }
            *self.readings.last_mut().expect("just pushed") = Some(log);
            return Ok(scan);
        }
    }

    /// What was read last does not count.
    pub fn forget_last(&mut self) {
        *self.readings.last_mut().expect("something was read") = None;
    }

    /// A job that is alive in a log before as well, with the number of its log: the first that there is in the
    /// order of logs and jobs. To be asked once, when all were read.
    pub fn twice(&mut self) -> Result<Option<(usize, u64)>, WalError> {
        let Some(claims) = self.claims.take() else { return Ok(None) };
        let claims = claims.finish()?;
        let mut stream = claims.stream()?;
        let mut before: Option<u64> = None;
        let mut first: Option<(u32, Place, u64)> = None;
        while let Some(Claim { id, reading, entered }) = stream.next()? {
            if self.readings[reading as usize].is_none() {
                continue;
            }
            if before == Some(id) {
                let found = (reading, entered, id);
                first = Some(first.map_or(found, |first| first.min(found)));
            }
            before = Some(id);
        }
        let log = |reading: u32| self.readings[reading as usize].expect("it counts");
        Ok(first.map(|(reading, _, id)| (log(reading), id)))
    }

    pub fn finish(self) -> Result<SortedJobs, WalError> {
        let JobSorter { tubes, living, readings, .. } = self;
        Ok(SortedJobs { living: living.finish()?, tubes: tubes.names, readings })
    }

    /// Follows all jobs through the records of one reading.
    fn lives(&mut self, mentions: &Sorted<Mention>) -> Result<(Ends, Tally), WalError> {
        let mut ends = Ends::new();
        let mut tally = Tally::default();
        let mut stream = mentions.stream()?;
        let mut life: Option<Life> = None;
        while let Some(mention) = stream.next()? {
            let id = mention.jobrec.id;
            if life.as_ref().is_some_and(|life| life.id != id) {
                self.end(life.take(), &mut tally)?;
            }
            let life = life.get_or_insert_with(|| Life::new(id));
            if let Some(cause) = life.follow(&mention, &self.tubes.names) {
                let end = ends.entry(mention.file).or_insert_with(|| (mention.offset, cause.clone()));
                if mention.offset < end.0 {
                    *end = (mention.offset, cause);
                }
            }
        }
        self.end(life, &mut tally)?;
        Ok((ends, tally))
    }

    /// All records of a job were seen.
    fn end(&mut self, life: Option<Life>, tally: &mut Tally) -> Result<(), WalError> {
        let Some(Life { job: Some(job), tube, entered, .. }) = life else { return Ok(()) };
        tally.count(&job);
        let reading = self.readings.len() as u32 - 1;
        if let Some(claims) = &mut self.claims {
            claims.push(Claim { id: job.id(), reading, entered })?;
        }
        let Job { jobrec, file, body_offset, .. } = job;
        self.living.push(Living { jobrec, file, body_offset, tube, reading, entered })
    }
}

/// All jobs: logs in the order in which they were read, jobs in that of replay.
pub struct SortedJobs {
    living: Sorted<Living>,
    tubes: Vec<Arc<[u8]>>,
    readings: Vec<Option<usize>>,
}

impl SortedJobs {
    pub fn stream(&self) -> Result<JobStream<'_>, WalError> {
        Ok(JobStream { living: self.living.stream()?, tubes: &self.tubes, readings: &self.readings })
    }
}

/// The jobs one after another.
pub struct JobStream<'a> {
    living: Stream<'a, Living>,
    tubes: &'a [Arc<[u8]>],
    readings: &'a [Option<usize>],
}

impl JobStream<'_> {
    /// With the number of its log.
    #[allow(
        clippy::should_implement_trait,
        reason = "an error ends the work, which an iterator's user may miss"
    )]
    pub fn next(&mut self) -> Result<Option<(usize, Job)>, WalError> {
        while let Some(Living { jobrec, file, body_offset, tube, reading, .. }) = self.living.next()? {
            if let Some(log) = self.readings[reading as usize] {
                let tube = self.tubes[tube as usize].clone();
                return Ok(Some((log, Job { tube, jobrec, file, body_offset })));
            }
        }
        Ok(None)
    }
}

/// By number of the file: the record that contradicts an earlier one, and how.
type Ends = BTreeMap<u32, (u64, Cause)>;

/// Takes the records of one reading.
struct Mentions<'a> {
    ends: &'a Ends,
    tubes: &'a mut Tubes,
    mentions: Sorter<Mention>,
}

impl Keeper for Mentions<'_> {
    fn take(
        &mut self,
        file: u32,
        record: &Record,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Cause>, ReplayError> {
        let end = self.ends.get(&file).filter(|(offset, _)| *offset == record.offset);
        let deletion = record.jobrec.state == State::Invalid;
        let mention = Mention {
            jobrec: record.jobrec,
            file,
            offset: record.offset,
            full: match &record.kind {
                RecordKind::Full { tube, body } => Some((self.tubes.number(tube.as_bytes()), body.start)),
                RecordKind::Short => None,
            },
            can_be_cut: deletion && reader.jobrec_can_be_cut(record)?,
        };
        self.mentions.push(mention).map_err(ReplayError::Keep)?;
        Ok(end.map(|(_, cause)| cause.clone()))
    }
}

/// Each name once; a name is kept even if its jobs are gone.
#[derive(Default)]
struct Tubes {
    numbers: HashMap<Arc<[u8]>, u32>,
    names: Vec<Arc<[u8]>>,
}

impl Tubes {
    fn number(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("memory is short of four billion tubes");
        let name: Arc<[u8]> = name.into();
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

/// A job while its records pass by.
struct Life {
    id: u64,
    job: Option<Job>,
    // Of the job.
    tube: u32,
    entered: Place,
    /// The file that has ended with a record of this job.
    ended: Option<u32>,
}

impl Life {
    fn new(id: u64) -> Life {
        Life { id, job: None, tube: 0, entered: (0, 0), ended: None }
    }

    /// The cause, if the record contradicts what came before.
    fn follow(&mut self, mention: &Mention, tubes: &[Arc<[u8]>]) -> Option<Cause> {
        if self.ended == Some(mention.file) {
            return None;
        }
        let event = mention.event(tubes);
        let can_be_cut = || Ok::<bool, Infallible>(mention.can_be_cut);
        let Ok(cause) = objection(self.job.as_ref(), &event, can_be_cut);
        if cause.is_some() {
            self.ended = Some(mention.file);
            return cause;
        }
        if let (None, Some((tube, _))) = (&self.job, mention.full) {
            (self.tube, self.entered) = (tube, mention.place());
        }
        self.job = follow(self.job.take(), event);
        None
    }
}

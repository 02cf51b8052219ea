//! Compares a target with its source, job by job, by reading both from disk.

use std::path::Path;

use super::DataDir;
use super::migrate::{Source, log_dir};
use super::progress::Progress;
use crate::error::{Exit, Fatal};
use crate::topology::{Layout, Topology};
use crate::wal::{Bodies, Job, Scan, Verdict};

/// An error unless every slot of `to` has just its jobs of the source, in their order, as they were.
pub fn verify(source: &Source, to: &Path, topology: &Topology) -> Result<(), Fatal> {
    let target = DataDir::look(to)?;
    let expected = (topology.layout == Layout::Slots).then_some(topology);
    if target.topology.as_ref() != expected || !target.faults.is_empty() {
        return Err(differs(to, &format!("its topology: {:?}", target.faults)));
    }
    let total = source.slots.iter().map(|slots| slots.len() as u64).sum();
    let progress = Progress::jobs("comparing", total);
    let mut found = 0;
    for slot in 0..topology.slots as u16 {
        let dir = log_dir(to, topology, slot);
        let Some(log) = target.logs.iter().find(|log| log.slot == slot) else {
            // A flat directory without a log is no log directory.
            continue;
        };
        let scan = target.scan(log, &|_| {})?;
        if scan.verdict() != Verdict::Sound {
            return Err(differs(&dir, &format!("its log: {}", scan.findings[0])));
        }
        compare(source, slot, &dir, &scan, &progress)?;
        found += scan.jobs.len() as u64;
    }
    if found == total { Ok(()) } else { Err(differs(to, &format!("{found} of {total} jobs are there"))) }
}

fn compare(source: &Source, slot: u16, dir: &Path, scan: &Scan, progress: &Progress) -> Result<(), Fatal> {
    let mut copies = scan.jobs.iter();
    let mut copied_bodies = Bodies::new(dir);
    for ((log, scan), slots) in source.data.logs.iter().zip(&source.scans).zip(&source.slots) {
        let mut bodies = Bodies::new(&log.path);
        for (job, _) in scan.jobs.iter().zip(slots).filter(|(_, owner)| **owner == slot) {
            let Some(copy) = copies.next() else {
                return Err(differs(dir, &format!("job {} is missing", job.id())));
            };
            if !same_fields(job, copy) || !bodies.same(job, &mut copied_bodies, copy)? {
                return Err(differs(dir, &format!("{copy:?} in place of {job:?}")));
            }
            progress.advance(1);
        }
    }
    match copies.next() {
        None => Ok(()),
        Some(surplus) => Err(differs(dir, &format!("job {} is not of the source", surplus.id()))),
    }
}

/// Everything but where it is.
fn same_fields(job: &Job, copy: &Job) -> bool {
    (&job.tube, &job.jobrec) == (&copy.tube, &copy.jobrec)
}

fn differs(place: &Path, what: &str) -> Fatal {
    let place = place.display();
    Fatal::new(Exit::Temporary, format!("{place}: what was written differs from the source: {what}"))
}

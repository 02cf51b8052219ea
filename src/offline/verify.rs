//! Compares a target with its source, job by job, by reading both from disk.
//!
//! A target was just written: each log in it has a full record for each job of its slot, in the order of the
//! source, and nothing else. That is what is checked, which is more than that a server would find the same jobs
//! in it, and takes no table of them.

use std::path::Path;

use super::DataDir;
use super::migrate::{Source, SourceBodies, Target, log_dir};
use super::progress::Progress;
use crate::error::{Exit, Fatal};
use crate::topology::Layout;
use crate::wal::{Bodies, Job, Record, RecordKind, Records, Verdict, used_up};

/// An error unless every slot of `to` has just its jobs of the source, in their order, as they were.
pub fn verify(source: &Source, to: &Path, target: &Target) -> Result<(), Fatal> {
    let topology = &target.topology;
    let mut slots = open_slots(to, target)?;
    let progress = Progress::jobs("comparing", source.job_count());
    let mut jobs = source.jobs.stream()?;
    let mut bodies = SourceBodies::new(source.data);
    while let Some((log, job)) = jobs.next()? {
        let slot = topology.slot_of(&job.tube);
        let differs = |what: &str| Err(differs(&log_dir(to, topology, slot), what));
        let records = &mut slots[usize::from(slot)];
        let Some(record) = next(records)? else { return differs(&format!("job {} is missing", job.id())) };
        let records = records.as_mut().expect("it has a record");
        if !same(&job, bodies.of(log), &record, records)? {
            return differs(&format!("{record:?} in place of {job:?}"));
        }
        progress.advance(1);
    }
    for (slot, records) in slots.iter_mut().enumerate() {
        if let Some(surplus) = next(records)? {
            let dir = log_dir(to, topology, slot as u16);
            return Err(differs(&dir, &format!("job {} is not of the source", surplus.jobrec.id)));
        }
    }
    Ok(())
}

/// The records of each slot's jobs, if it has a log. An error if a server would not have it so.
fn open_slots(to: &Path, target: &Target) -> Result<Vec<Option<Records>>, Fatal> {
    let Target { topology, last_id, told_by_record } = target;
    let data = DataDir::look(to)?;
    let expected = (topology.layout == Layout::Slots).then_some(topology);
    if data.topology.as_ref() != expected || !data.faults.is_empty() {
        return Err(differs(to, &format!("its topology: {:?}", data.faults)));
    }
    let mut slots = Vec::new();
    for slot in 0..topology.slots as u16 {
        // A flat directory without a log is no log directory.
        let Some(log) = data.logs.iter().find(|log| log.slot == slot) else {
            slots.push(None);
            continue;
        };
        let scan = data.scan_records(log)?;
        if scan.verdict() != Verdict::Sound {
            return Err(differs(&log.path, &format!("its log: {}", scan.findings[0])));
        }
        slots.push(Some(Records::open(&log.path)?));
    }
    if *told_by_record {
        for jobrec in used_up(*last_id) {
            if next(&mut slots[0])?.is_none_or(|record| record.jobrec != jobrec) {
                return Err(differs(to, &format!("nothing says that id {last_id} is used up")));
            }
        }
    }
    Ok(slots)
}

fn next(records: &mut Option<Records>) -> Result<Option<Record>, Fatal> {
    match records {
        None => Ok(None),
        Some(records) => Ok(records.next()?),
    }
}

/// Everything but where it is.
fn same(job: &Job, bodies: &mut Bodies, copy: &Record, records: &mut Records) -> Result<bool, Fatal> {
    match &copy.kind {
        RecordKind::Full { tube, body } if tube.as_bytes() == &*job.tube && copy.jobrec == job.jobrec => {
            Ok(bodies.same(job, records, body)?)
        }
        _ => Ok(false),
    }
}

fn differs(place: &Path, what: &str) -> Fatal {
    let place = place.display();
    Fatal::new(Exit::Temporary, format!("{place}: what was written differs from the source: {what}"))
}

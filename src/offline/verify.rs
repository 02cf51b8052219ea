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
    let data = DataDir::look_at_unfinished(to)?;
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
        for (tube, jobrec) in used_up(*last_id) {
            if next(&mut slots[0])?.is_none_or(|record| (tube_of(&record), record.jobrec) != (tube, jobrec)) {
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

fn tube_of(record: &Record) -> &[u8] {
    match &record.kind {
        RecordKind::Full { tube, .. } => tube.as_bytes(),
        RecordKind::Short => b"",
    }
}

/// Everything but where it is.
fn same(job: &Job, bodies: &mut Bodies, copy: &Record, records: &mut Records) -> Result<bool, Fatal> {
    match &copy.kind {
        RecordKind::Full { body, .. } if (tube_of(copy), copy.jobrec) == (&*job.tube, job.jobrec) => {
            Ok(bodies.same(job, records, body)?)
        }
        _ => Ok(false),
    }
}

fn differs(place: &Path, what: &str) -> Fatal {
    let place = place.display();
    Fatal::new(Exit::Temporary, format!("{place}: what was written differs from the source: {what}"))
}

#[cfg(test)]
mod tests {
    use super::super::migrate::{Plan, migrate, read};
    use super::*;
    use crate::scratch::TempDir;
    use crate::topology::Topology;
    use crate::wal::{Jobrec, State, Version, log_name};
    use std::fs;
    use std::path::PathBuf;

    const BODY: &[u8] = b"body\r\n";

    /// A full record in a tube whose name tells its slot of two.
    fn record(id: u64, tube: &[u8]) -> Vec<u8> {
        let jobrec = Jobrec {
            id,
            pri: 1,
            delay: 0,
            ttr: 60_000_000_000,
            body_size: BODY.len() as i32,
            created_at: 1_700_000_000_000_000_000,
            deadline_at: 0,
            reserves: 3,
            timeouts: 0,
            releases: 2,
            buries: 1,
            kicks: 0,
            state: State::Buried,
        };
        [&(tube.len() as i32).to_ne_bytes(), tube, &jobrec.encode(), BODY].concat()
    }

    /// In a job record, between fields and behind the last.
    const PADDING: usize = 4 + 4 + 3;

    fn log(records: &[Vec<u8>]) -> Vec<u8> {
        [Version::V7.number().to_ne_bytes().to_vec(), records.concat()].concat()
    }

    struct Copied {
        home: TempDir,
        target: Target,
    }

    impl Copied {
        /// Three jobs in each slot of two, or all in one, and id 9 used up.
        fn new(slots: u32) -> Copied {
            let home = TempDir::new();
            fs::create_dir(home.join("from")).unwrap();
            let tubes: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
            let mut records: Vec<Vec<u8>> = (1..).zip(tubes).map(|(id, tube)| record(id, tube)).collect();
            let mut deletion = record(9, b"");
            deletion.truncate(4 + Version::V7.jobrec_bytes());
            records.push(deletion);
            fs::write(home.join("from").join(log_name(1)), log(&records)).unwrap();
            let (from, to) = (home.join("from"), home.join("to"));
            let outcome =
                migrate(&Plan { from, to: to.clone(), slots, partitions: 8, file_bytes: 4096 }).unwrap();
            assert_eq!((outcome.jobs.iter().sum::<u64>(), outcome.last_id), (6, 9));
            let flat = || Topology::new(1, 8, Layout::Flat, "0123456789abcdef").unwrap();
            let topology = DataDir::look(&to).unwrap().topology.unwrap_or_else(flat);
            Copied { home, target: Target { topology, last_id: 9, told_by_record: slots == 1 } }
        }

        /// What the comparison says with this in place of the slot's log.
        fn verdict(&self, file: &Path, bytes: &[u8]) -> Result<(), Fatal> {
            fs::remove_file(file).unwrap();
            fs::write(file, bytes).unwrap();
            let data = DataDir::look(&self.home.join("from")).unwrap();
            verify(&read(&data, &self.home).unwrap(), &self.home.join("to"), &self.target)
        }

        fn logs(&self) -> Vec<PathBuf> {
            let slots = 0..self.target.topology.slots as u16;
            let to = self.home.join("to");
            slots.map(|slot| log_dir(&to, &self.target.topology, slot).join(log_name(1))).collect()
        }
    }

    #[test]
    fn target_with_any_byte_changed_differs() {
        for slots in [1, 2] {
            let copied = Copied::new(slots);
            let mut unseen = 0;
            for file in copied.logs() {
                let whole = fs::read(&file).unwrap();
                for at in 0..whole.len() {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1;
                    unseen += usize::from(copied.verdict(&file, &bytes).is_ok());
                }
                copied.verdict(&file, &whole).unwrap();
            }
            let records = if slots == 1 { 8 } else { 6 };
            assert_eq!(unseen, records * PADDING, "{slots} slots");
        }
    }

    #[test]
    fn target_with_a_job_less_or_more_or_in_another_place_differs() {
        let copied = Copied::new(2);
        for file in copied.logs() {
            let whole = fs::read(&file).unwrap();
            let bytes = record(1, b"a").len();
            let records: Vec<Vec<u8>> = whole[4..].chunks(bytes).map(<[u8]>::to_vec).collect();
            assert!(records.len() > 1, "{} jobs", records.len());
            let mut turned = records.clone();
            turned.swap(0, 1);
            let twice = [&records[..], &records[..1]].concat();
            let new = [&records[..], &[record(7, b"a")]].concat();
            for (records, words) in [
                (&records[1..], "in place of"),
                (&records[..records.len() - 1], "is missing"),
                (&turned, "in place of"),
                (&twice, "is not of the source"),
                (&new, ""),
            ] {
                let error = copied.verdict(&file, &log(records)).unwrap_err().to_string();
                assert!(error.contains("differs from the source") && error.contains(words), "{error}");
            }
            copied.verdict(&file, &whole).unwrap();
        }
    }
}

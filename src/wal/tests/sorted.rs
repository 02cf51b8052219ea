//! Jobs that are sorted on disk are those of the table, and so is all else that a scan says.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::super::builder::{BODY, Log, SEED, job};
use super::super::*;
use super::TempDir;
use crate::limits::DISK_BLOCK_BYTES;

/// So few entries fit that every sort has many runs.
const BOUND: usize = 4000;

/// Reads the same directories in both ways and compares.
fn assert_same_as_scan(dirs: &[&Path], policy: Policy<'_>) {
    let room = TempDir::new();
    let mut sorter = JobSorter::bounded(&room, dirs.len(), BOUND);
    let mut expected = Vec::new();
    for (log, dir) in dirs.iter().enumerate() {
        let sorted = sorter.read(log, dir, policy, &|_| {}).unwrap();
        let scan = scan(dir, policy).unwrap();
        assert_eq!(sorted.findings, scan.findings);
        assert_eq!(sorted.unsynced_from, scan.unsynced_from);
        assert_eq!(sorted.files, scan.files);
        assert_eq!((sorted.findings_left_off, sorted.max_id), (scan.findings_left_off, scan.max_id));
        let tally = sorted.jobs;
        let (jobs, bytes) = (scan.jobs.len() as u64, scan.jobs.record_bytes());
        assert_eq!((tally.jobs(), tally.record_bytes), (jobs, bytes));
        assert_eq!(tally.highest_id, scan.jobs.iter().map(Job::id).max().unwrap_or(0));
        let with = |state| scan.jobs.iter().filter(|job| job.jobrec.state == state).count() as u64;
        assert_eq!((tally.delayed, tally.buried), (with(State::Delayed), with(State::Buried)));
        expected.extend(scan.jobs.iter().map(|job| (log, job.clone())));
    }
    let jobs = sorter.finish().unwrap();
    for _ in 0..2 {
        let mut stream = jobs.stream().unwrap();
        let found: Vec<(usize, Job)> = std::iter::from_fn(|| stream.next().unwrap()).collect();
        assert_eq!(found, expected);
    }
}

fn directory(logs: &[Log]) -> TempDir {
    let dir = TempDir::new();
    for (number, log) in (1..).zip(logs) {
        fs::write(dir.join(log_name(number)), &log.bytes).unwrap();
    }
    dir
}

/// Appends a record of a few ids, some of them at odds with earlier ones.
fn record(log: Log, (kind, id, numbers, odd): (u8, u64, u32, u8)) -> Log {
    let mut jobrec = Jobrec { pri: numbers, reserves: numbers / 2 % 3, releases: numbers % 2, ..job(id) };
    match odd {
        0 => jobrec.created_at = 5,
        1 => jobrec.body_size = 2,
        _ => {}
    }
    jobrec.state = [State::Ready, State::Reserved, State::Buried, State::Delayed][numbers as usize % 4];
    match kind {
        0..4 => {
            let tube = ["a", "bb"][usize::from(odd == 2) ^ (id % 2) as usize];
            let body = if jobrec.body_size == 2 { b"\r\n" } else { BODY };
            log.full(tube, jobrec, body)
        }
        4..7 => log.short(Jobrec { state: State::Invalid, ..jobrec }),
        _ => log.short(jobrec),
    }
}

/// Records as `record` takes them; what is odd is a matter of how often.
fn records(odd: u8) -> impl Strategy<Value = Vec<(u8, u64, u32, u8)>> {
    prop::collection::vec((0..10_u8, 1..12_u64, 0..9_u32, 0..odd), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_logs_are_as_a_scan_has_them(
        files in prop_oneof![
            prop::collection::vec(records(200), 1..6),
            prop::collection::vec(records(20), 1..6),
        ],
        form in 0..4,
        zeros in any::<bool>(),
        cut in 0..300_usize,
        lost in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let new = |number| match form {
            0 => Log::new(Version::V5),
            1 => Log::v7(),
            _ => Log::sealed(number),
        };
        let file = |(number, records): (u32, &Vec<_>)| records.iter().copied().fold(new(number), record);
        let mut logs: Vec<Log> = (1..).zip(&files).map(file).collect();
        if form == 3 {
            let (log, block) = (lost.0.get(&logs).bytes.len(), DISK_BLOCK_BYTES as usize);
            let from = lost.1.index(log.div_ceil(block)) * block;
            logs[lost.0.index(files.len())].bytes[from..log.min(from + block)].fill(0);
        }
        let last = logs.last_mut().unwrap();
        let end = last.bytes.len();
        // A crash, most often in the last records.
        last.bytes.truncate(end.saturating_sub(cut / 2));
        if zeros {
            last.bytes.resize(end + 200, 0);
        }
        // A block is lost or not, and the machine has stopped.
        let policy = Policy { power_failed: form > 1, seed: Some(SEED), ..Policy::default() };
        assert_same_as_scan(&[&directory(&logs)], policy);
    }

    #[test]
    fn job_in_two_logs_is_the_first_that_a_search_finds(
        logs in prop::collection::vec(prop::collection::vec(1..60_u64, 0..12), 1..5),
    ) {
        let room = TempDir::new();
        let mut sorter = JobSorter::bounded(&room, logs.len(), BOUND / 8);
        let mut seen: HashSet<u64> = HashSet::new();
        let mut expected = None;
        for (number, ids) in logs.iter().enumerate() {
            let dir = directory(&[ids.iter().fold(Log::v7(), |log, id| log.put("a", *id))]);
            sorter.read(number, &dir, Policy::default(), &|_| {}).unwrap();
            // A log that does not count.
            sorter.read(number, &dir, Policy::default(), &|_| {}).unwrap();
            sorter.forget_last();
            let scan = scan(&dir, Policy::default()).unwrap();
            let twice = scan.jobs.iter().find(|job| seen.contains(&job.id()));
            expected = expected.or(twice.map(|job| (number, job.id())));
            seen.extend(ids);
        }
        prop_assert_eq!(sorter.twice().unwrap(), expected);
    }
}

#[test]
fn logs_of_a_stock_server_are_as_a_scan_has_them() {
    let stock = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wal-stock");
    let other = directory(&[Log::v7().put("a", 9).put("b", 7), Log::v7().delete(9)]);
    assert_same_as_scan(&[&stock, &other, &stock], Policy::default());
}

/// What ends the second file hides what contradicts the first one in the third.
#[test]
fn contradictions_that_hide_each_other_are_found_as_a_scan_finds_them() {
    let other = |id| Jobrec { created_at: 5, ..job(id) };
    let first = Log::v7().put("a", 1).put("a", 2).put("a", 3);
    let second = Log::v7().short(other(1)).delete(2).full("b", other(4), BODY).full("a", other(3), BODY);
    let third = Log::v7().full("b", other(2), BODY).full("a", other(4), BODY).put("a", 3).short(other(3));
    let fourth = Log::v7().put("a", 2).put("a", 4);
    assert_same_as_scan(&[&directory(&[first, second, third, fourth])], Policy::default());
}

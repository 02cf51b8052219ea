//! Every byte: logs cut and zeroed anywhere, logs of a stock server, flipped bytes, bodies too large to read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::builder::{BODY, Log, job};
use super::super::format::{self, offset};
use super::super::*;
use super::{Jobs, jobs, replay};

/// A log that says it has one record with the largest body, and counts what is read of it.
struct Huge {
    head: Vec<u8>,
    read: std::cell::Cell<u64>,
}

impl Source for Huge {
    fn length(&self) -> u64 {
        self.head.len() as u64 + u64::from(format::BODY_BYTES_MAX)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.read.set(self.read.get() + into.len() as u64);
        for (at, byte) in (offset..).zip(into.iter_mut()) {
            let from_end = self.length() - at;
            *byte = match self.head.get(at as usize) {
                Some(byte) => *byte,
                None if from_end == 2 => b'\r',
                None if from_end == 1 => b'\n',
                None => b'x',
            };
        }
        Ok(into.len())
    }
}

#[test]
fn body_of_the_largest_size_is_not_read() {
    let jobrec = Jobrec { body_size: format::BODY_BYTES_MAX as i32, ..job(1) };
    let head = Log::v7().full("a", jobrec, b"").bytes;
    let source = Huge { head, read: 0.into() };
    let mut replay = Replay::new(Policy::default());
    replay.file(1, &source).unwrap();
    let scan = replay.finish();
    assert_eq!((scan.verdict(), scan.jobs.record_bytes()), (Verdict::Sound, source.length() - 4));
    assert!(source.read.get() <= 2 * crate::limits::WAL_WINDOW_BYTES as u64, "{} bytes", source.read.get());
}

// Every byte.

/// A small log with every kind of record, its last one a full one.
fn mixture(version: Version) -> Log {
    let known = Jobrec { reserves: 1, ..job(2) };
    let delayed = Jobrec { state: State::Delayed, delay: 9_000_000_000, deadline_at: 77_000, ..job(3) };
    Log::new(version)
        .put("a", 1)
        .full("b/c", known, BODY)
        .full("a", delayed, b"\0\0\0\0\0\0\0\0\r\n")
        .short(Jobrec { state: State::Buried, buries: 1, pri: 1, ..known })
        .delete(1)
        .full("b/c", Jobrec { state: State::Buried, buries: 1, pri: 1, ..known }, BODY)
        .put("last", 4)
}

fn before_each(log: &Log) -> Vec<Jobs> {
    log.bounds.iter().map(|&end| jobs(&replay(&[(1, &log.bytes[..end])]))).collect()
}

#[test]
fn log_cut_at_every_byte_keeps_all_records_before_the_cut() {
    for version in [Version::V5, Version::V7] {
        let log = mixture(version);
        let states = before_each(&log);
        for length in 0..=log.bytes.len() {
            let scan = replay(&[(1, &log.bytes[..length])]);
            let whole = log.bounds.iter().rposition(|&end| end <= length);
            let expected = whole.map(|whole| states[whole].clone()).unwrap_or_default();
            assert_eq!(jobs(&scan), expected, "{version:?} cut at {length}");
            let rest = &log.bytes[whole.map_or(0, |whole| log.bounds[whole])..length];
            if rest.iter().all(|&byte| byte == 0) {
                assert_eq!(scan.verdict(), Verdict::Sound, "{version:?} cut at {length}");
            } else {
                let at = whole.map_or(0, |whole| log.bounds[whole]) as u64;
                assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(1, at)], "{version:?} cut at {length}");
                assert_eq!(scan.verdict(), Verdict::Torn);
            }
        }
    }
}

/// As a kill leaves it: the file has its size from the start, what was not written is zero.
#[test]
fn log_zeroed_from_every_byte_keeps_all_records_before_it() {
    for version in [Version::V5, Version::V7] {
        let log = mixture(version);
        let states = before_each(&log);
        for length in 0..=log.bytes.len() {
            let mut bytes = log.bytes.clone();
            bytes[length..].fill(0);
            // Zeros that belong to a record are there whether they were written or not.
            let same = |end: usize| bytes[..end] == log.bytes[..end];
            let whole = log.bounds.iter().rposition(|&end| same(end));
            let mut expected = whole.map(|whole| states[whole].clone()).unwrap_or_default();
            // What the reader says it can't see: the burial of job 2, cut behind its times and counts.
            let burial = log.bounds[3] + version.name_length_bytes();
            if (burial + offset::RESERVES + 1..=burial + offset::STATE).contains(&length) {
                expected.remove(&2);
            }
            bytes.resize(log.bytes.len() + 300, 0);
            let scan = replay(&[(1, &bytes)]);
            assert_eq!(jobs(&scan), expected, "{version:?} zeroed from {length}");
            assert_ne!(scan.verdict(), Verdict::Refused, "{version:?} zeroed from {length}");
        }
    }
}

// Logs of a stock server.

fn stock_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wal-stock")
}

fn stock_files() -> Vec<(u32, Vec<u8>)> {
    let files = scan(&stock_dir(), Policy::default()).unwrap().files;
    files
        .iter()
        .map(|file| (file.number, fs::read(stock_dir().join(log_name(file.number))).unwrap()))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".into() } else { bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
}

/// Job by job what the stock server itself made of these logs (`tests/wal_fixtures.py`).
#[test]
fn stock_log_reads_as_the_stock_server_reads_it() {
    let scan = scan(&stock_dir(), Policy::default()).unwrap();
    assert_eq!(scan.verdict(), Verdict::Sound, "{:?}", scan.findings);
    assert!(scan.files.len() >= 2);
    let mut have: Vec<String> = Vec::new();
    let mut buried: Vec<String> = vec!["order".into()];
    scan.visit(|job| {
        let mut body = Vec::new();
        Bodies::new(&stock_dir())
            .copy(job, &mut |piece| {
                body.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
        assert!(body.ends_with(b"\r\n"));
        let (r, second) = (&job.jobrec, 1_000_000_000);
        let numbers = [r.reserves, r.timeouts, r.releases, r.buries, r.kicks].map(|count| count.to_string());
        have.push(format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            r.id,
            String::from_utf8_lossy(&job.tube),
            r.state,
            r.pri,
            r.delay / second,
            r.ttr / second,
            numbers.join("\t"),
            hex(&body[..body.len() - 2])
        ));
        if r.state == State::Buried && &*job.tube == b"graves" {
            buried.push(r.id.to_string());
        }
    });
    have.sort_by_key(|row| row.split('\t').next().unwrap().parse::<u64>().unwrap());
    have.push(buried.join("\t"));
    let expected = fs::read_to_string(stock_dir().join("expected.tsv")).unwrap();
    assert_eq!(have, expected.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn stock_log_cut_at_every_byte_is_sound_or_torn_with_all_earlier_jobs() {
    let files = stock_files();
    let mut records = 0;
    for last in 0..files.len() {
        let (before, bytes) = (&files[..last], &files[last].1);
        let with = |bytes: &[u8]| {
            let mut replay = Replay::new(Policy::default());
            before.iter().for_each(|(number, whole)| replay.file(*number, whole).unwrap());
            replay.file(files[last].0, &bytes.to_vec()).unwrap();
            replay.finish()
        };
        let mut whole = (jobs(&with(&[])), 0);
        for length in 0..=bytes.len() {
            let scan = with(&bytes[..length]);
            assert_ne!(scan.verdict(), Verdict::Refused, "cut at {length}: {:?}", scan.findings);
            // The jobs change where a record ends and nowhere else.
            let end = scan.files[last].end;
            if end != whole.1 {
                assert_eq!(end, length as u64);
                whole = (jobs(&scan), end);
                records += 1;
            }
            assert_eq!(jobs(&scan), whole.0, "cut at {length}");
        }
    }
    assert!(records > 20, "{records} records");
}

fn flipped(files: &[(u32, Vec<u8>)], flips: &[(prop::sample::Index, u8)]) -> Scan {
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut files = files.to_vec();
    for (at, value) in flips {
        let mut at = at.index(total);
        for (_, bytes) in &mut files {
            if at < bytes.len() {
                bytes[at] ^= value;
                break;
            }
            at -= bytes.len();
        }
    }
    replay(&files.iter().map(|(number, bytes)| (*number, &bytes[..])).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn stock_log_with_bytes_flipped_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..8),
    ) {
        let files = stock_files();
        let scan = flipped(&files, &flips);
        for finding in &scan.findings {
            prop_assert!(finding.to_string().contains("binlog."));
        }
        prop_assert_eq!(scan.verdict() == Verdict::Sound, scan.findings.is_empty());
        let longest: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).max().unwrap();
        scan.visit(|job| assert!(job.body_offset + u64::from(job.body_bytes()) <= longest));
    }

    #[test]
    fn mixture_with_bytes_flipped_never_panics(
        old in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let log = mixture(if old { Version::V5 } else { Version::V7 }).zeros(40);
        flipped(&[(1, log.bytes)], &flips);
    }

    #[test]
    fn bytes_of_any_kind_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), old in any::<bool>()) {
        let head = if old { Log::new(Version::V5) } else { Log::v7() };
        replay(&[(1, &bytes), (2, &head.raw(&bytes).bytes)]);
    }
}

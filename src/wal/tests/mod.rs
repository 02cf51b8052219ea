//! Logs written by hand: whole ones, torn tails, each damage, places, directories. `bytes` has the rest.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::builder::{BODY, Log, job};
use super::format::offset;
use super::*;
use crate::scratch::TempDir;

mod bytes;
mod salvage;
mod sealed;
mod sorted;

/// Bytes of the fixed part in front of a version 7 job record in a short record.
const SHORT_JOBREC: usize = 4;

fn replay(files: &[(u32, &[u8])]) -> Scan {
    replay_with(files, Policy::default())
}

fn replay_with(files: &[(u32, &[u8])], policy: Policy<'_>) -> Scan {
    let mut replay = Replay::new(policy);
    for (number, bytes) in files {
        replay.file(*number, &bytes.to_vec()).unwrap();
    }
    replay.finish()
}

fn one(log: &Log) -> Scan {
    replay(&[(1, &log.bytes)])
}

type Jobs = BTreeMap<u64, (String, Jobrec, u32, u64)>;

fn jobs(scan: &Scan) -> Jobs {
    let mut jobs = Jobs::new();
    scan.visit(|job| {
        let tube = String::from_utf8(job.tube.to_vec()).unwrap();
        assert!(jobs.insert(job.id(), (tube, job.jobrec, job.file, job.body_offset)).is_none());
    });
    assert_eq!(jobs.len(), scan.jobs.len());
    jobs
}

fn ids(scan: &Scan) -> Vec<u64> {
    scan.jobs.iter().map(|job| job.id()).collect()
}

fn the_finding(scan: &Scan) -> Finding {
    assert_eq!(scan.findings.len(), 1, "{:?}", scan.findings);
    assert!(!scan.findings[0].to_string().is_empty());
    scan.findings[0].clone()
}

fn damage(log: &Log) -> (u64, Cause) {
    let scan = one(log);
    assert_eq!(scan.verdict(), Verdict::Refused);
    match the_finding(&scan) {
        Finding::Damaged { file: 1, offset, cause } => (offset, cause),
        other => panic!("{other:?}"),
    }
}

fn tear(log: &Log) -> (u64, Cause) {
    let scan = one(log);
    assert_eq!(scan.verdict(), Verdict::Torn);
    match the_finding(&scan) {
        Finding::TornTail { file: 1, offset, cause } => {
            assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(1, offset)]);
            (offset, cause)
        }
        other => panic!("{other:?}"),
    }
}

fn last_start(log: &Log) -> u64 {
    log.bounds[log.bounds.len() - 2] as u64
}

// Whole logs.

#[test]
fn log_with_every_kind_of_record_is_sound() {
    let buried = Jobrec { state: State::Buried, pri: 7, buries: 1, reserves: 1, ..job(2) };
    let log = Log::v7().put("a", 1).put("b", 2).put("a", 3).short(buried).delete(1).short(job(9)).zeros(500);
    let scan = one(&log);
    assert_eq!(scan.verdict(), Verdict::Sound);
    assert_eq!(ids(&scan), [2, 3]);
    let two = scan.jobs.job(2).unwrap();
    assert_eq!((&*two.tube, two.jobrec, two.file), (&b"b"[..], buried, 1));
    let at = two.body_offset as usize;
    assert_eq!(&log.bytes[at..at + BODY.len()], BODY);
    // 9 is in no full record: that was in a file which is gone. Its id was used all the same.
    assert_eq!(scan.max_id, 9);
    let report = FileReport {
        number: 1,
        bytes: log.bytes.len() as u64,
        version: Some(Version::V7),
        records: 6,
        end: *log.bounds.last().unwrap() as u64,
    };
    assert_eq!(scan.files, [report]);
}

#[test]
fn log_of_version_5_has_its_times_scaled() {
    let delayed = Jobrec {
        state: State::Delayed,
        delay: 5_000_000_000,
        deadline_at: 1_700_000_005_000_000_000,
        ..job(1)
    };
    let log = Log::new(Version::V5).full("old", delayed, BODY).put("old", 2).delete(2).zeros(9);
    let scan = one(&log);
    assert_eq!(scan.verdict(), Verdict::Sound);
    assert_eq!(scan.jobs.job(1).unwrap().jobrec, delayed);
    assert_eq!(log.bounds[1], 4 + 8 + 3 + 77 + 10);
    // A newer server goes on in version 7.
    let newer = Log::v7().short(Jobrec { pri: 3, ..delayed });
    let scan = replay(&[(1, &log.bytes), (2, &newer.bytes)]);
    assert_eq!((scan.verdict(), scan.jobs.job(1).unwrap().jobrec.pri), (Verdict::Sound, 3));
}

#[test]
fn reserved_reads_as_ready() {
    let reserved = Jobrec { state: State::Reserved, reserves: 1, ..job(1) };
    let scan = one(&Log::v7().full("a", reserved, BODY).put("a", 2).short(Jobrec { id: 2, ..job(2) }));
    assert_eq!(scan.jobs.job(1).unwrap().jobrec, Jobrec { state: State::Ready, ..reserved });
}

#[test]
fn moved_job_keeps_its_place_and_has_its_body_in_the_new_file() {
    let first = Log::v7().put("a", 1).put("a", 2);
    let second = Log::v7().put("a", 3).put("a", 1);
    let scan = replay(&[(4, &first.bytes), (5, &second.bytes)]);
    assert_eq!(scan.verdict(), Verdict::Sound);
    assert_eq!(ids(&scan), [1, 2, 3]);
    let at = (second.bytes.len() - BODY.len()) as u64;
    assert_eq!((scan.jobs.job(1).unwrap().file, scan.jobs.job(1).unwrap().body_offset), (5, at));
}

#[test]
fn deleted_and_new_id_goes_to_the_end_of_the_list() {
    let log =
        Log::v7().put("a", 1).put("a", 2).delete(1).full("b", Jobrec { body_size: 2, ..job(1) }, b"\r\n");
    assert_eq!(ids(&one(&log)), [2, 1]);
}

#[test]
fn file_that_is_made_but_not_written_is_sound() {
    for bytes in
        [vec![], vec![0], vec![0; 3], vec![0; 4], vec![0; 9000], Log::v7().bytes, Log::v7().zeros(9000).bytes]
    {
        let whole = Log::v7().put("a", 1).bytes;
        let scan = replay(&[(1, &whole), (2, &bytes), (3, &[])]);
        assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Sound, vec![1]), "{} bytes", bytes.len());
        assert_eq!(replay(&[(1, &bytes)]).verdict(), Verdict::Sound);
    }
}

/// Stock, started on an empty file in front of one with jobs, prints 57,000 lines for one deletion.
#[test]
fn files_in_front_that_were_never_written_are_named_for_removal() {
    let whole = Log::v7().put("a", 1).bytes;
    let files: [(u32, &[u8]); 5] = [(3, &[]), (4, &[0; 50]), (5, &whole), (6, &[]), (7, &[])];
    assert_eq!(replay(&files).unwritten_head().collect::<Vec<_>>(), [3, 4]);
    assert_eq!(replay(&files[2..]).unwritten_head().count(), 0);
}

#[test]
fn directory_without_logs_is_sound() {
    let scan = replay(&[]);
    assert_eq!((scan.verdict(), scan.max_id, scan.jobs.is_empty()), (Verdict::Sound, 0, true));
}

#[test]
fn body_with_any_bytes_is_sound() {
    let zeros = [0, 0, 0, 0, 0, 0, 0, 0, b'\r', b'\n'];
    let scan = one(&Log::v7().full("a", job(1), &zeros).full("a", job(2), b"\r\n\r\n\r\n\r\n\r\n").zeros(3));
    assert_eq!((scan.verdict(), scan.jobs.len()), (Verdict::Sound, 2));
}

// Torn tails.

#[test]
fn tail_of_a_crash_is_torn_at_its_record() {
    let whole = Log::v7().put("a", 1);
    let start = *whole.bounds.last().unwrap() as u64;
    let header = [&3i32.to_ne_bytes()[..], b"abc"].concat();
    let record = [&header[..], &job(2).encode(), BODY].concat();
    for zeros in [0, 1000] {
        let cut = |count: usize| tear(&whole.clone().raw(&record[..count]).zeros(zeros));
        if zeros > 0 {
            assert_eq!(cut(4), (start, Cause::NameOnly));
            assert_eq!(cut(5), (start, Cause::NameOnly));
            assert_eq!(cut(header.len()), (start, Cause::NameOnly));
            assert_eq!(cut(header.len() + 9), (start, Cause::JobrecCut));
        } else {
            assert_eq!(cut(3), (start, Cause::LengthCut));
            assert_eq!(cut(4), (start, Cause::JobrecCut));
        }
        assert_eq!(cut(header.len() + 40), (start, Cause::JobrecCut));
        assert_eq!(
            cut(header.len() + 79),
            (start, if zeros > 0 { Cause::BodyCut } else { Cause::JobrecCut })
        );
        assert_eq!(cut(header.len() + 80), (start, Cause::BodyCut));
        assert_eq!(cut(record.len() - 1), (start, Cause::BodyCut));
    }
}

#[test]
fn tail_is_torn_in_the_last_file_with_records_only() {
    let whole = Log::v7().put("a", 1);
    let torn = Log::v7().put("a", 2).put("a", 3);
    let torn = &torn.bytes[..torn.bytes.len() - 1];
    let torn_at = Log::v7().put("a", 2).bytes.len() as u64;
    let fresh = Log::v7().zeros(100);
    for later in [&[][..], &fresh.bytes, &[0; 9]] {
        let scan = replay(&[(1, &whole.bytes), (2, torn), (3, later)]);
        assert_eq!(scan.verdict(), Verdict::Torn);
        assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(2, torn_at)]);
        assert_eq!(ids(&scan), [1, 2]);
    }
    let scan = replay(&[(2, torn), (3, &Log::v7().put("a", 4).bytes)]);
    let finding = the_finding(&scan);
    assert_eq!(finding, Finding::Damaged { file: 2, offset: torn_at, cause: Cause::BodyCut });
    assert!(finding.to_string().contains("later files go on"), "{finding}");
    // A tear of a file's first record shows as well that the file was written to.
    let scan = replay(&[(2, torn), (3, &Log::v7().put("a", 4).bytes[..50])]);
    assert_eq!(scan.verdict(), Verdict::Refused);
    assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(3, 4)]);
}

#[test]
fn tail_that_the_core_takes_for_the_end_is_torn_in_an_older_file_as_well() {
    let older = Log::v7().put("a", 1).raw(&3i32.to_ne_bytes()).raw(b"abc").zeros(200);
    let scan = replay(&[(1, &older.bytes), (2, &Log::v7().put("a", 2).bytes)]);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Torn, vec![1, 2]));
    assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(1, older.bounds[1] as u64)]);
}

#[test]
fn short_record_that_is_cut_deletes_nothing() {
    let known = Jobrec { reserves: 2, releases: 1, ..job(1) };
    let later = Jobrec { state: State::Buried, buries: 1, ..known };
    let whole = Log::v7().full("a", known, BODY);
    let start = whole.bytes.len() as u64;
    let record = [&[0; SHORT_JOBREC][..], &later.encode()].concat();
    for count in SHORT_JOBREC + 1..=SHORT_JOBREC + offset::RELEASES {
        let scan = one(&whole.clone().raw(&record[..count]).zeros(300));
        assert_eq!(ids(&scan), [1], "cut at {count}");
        assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(1, start)], "cut at {count}");
    }
}

#[test]
fn version_that_is_cut_is_torn() {
    let version = 0x00_00_07i32.to_le_bytes();
    let scan = replay(&[(1, &Log::v7().put("a", 1).bytes), (2, &version[..2])]);
    assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(2, 0)]);
}

// Damage.

#[test]
fn record_that_no_server_writes_is_damage() {
    let log = || Log::v7().put("a", 1).put("tube", 2).zeros(100);
    let start = last_start(&log());
    let jobrec_at = 4 + "tube".len();
    let cases: [(usize, Vec<u8>, Cause); 12] = [
        (0, 201i32.to_ne_bytes().into(), Cause::NameLength(201)),
        (0, (-1i32).to_ne_bytes().into(), Cause::NameLength(-1)),
        (4, b"t\0be".into(), Cause::NameIllegal),
        (4, b"-ube".into(), Cause::NameIllegal),
        (jobrec_at + offset::STATE, vec![0], Cause::FullDeletion),
        (jobrec_at + offset::STATE, vec![5], Cause::State(5)),
        (jobrec_at + offset::BODY_SIZE, 1i32.to_ne_bytes().into(), Cause::BodySize(1)),
        (jobrec_at + offset::BODY_SIZE, (-10i32).to_ne_bytes().into(), Cause::BodySize(-10)),
        (jobrec_at + offset::BODY_SIZE, i32::MAX.to_ne_bytes().into(), Cause::BodySize(i32::MAX)),
        (jobrec_at + offset::TTR, (-1i64).to_ne_bytes().into(), Cause::Time),
        (jobrec_at + offset::DELAY, i64::MAX.to_ne_bytes().into(), Cause::Time),
        (jobrec_at + 80, b"abcdefghij".into(), Cause::BodyEnd),
    ];
    for (at, bytes, cause) in cases {
        assert_eq!(damage(&log().patch(at, &bytes)), (start, cause));
    }
}

#[test]
fn version_that_is_unknown_is_damage() {
    for version in [1i32, 6, 8, -7, 0x0700_0000] {
        let log = Log::v7().put("a", 1).bytes;
        let bytes = [&version.to_ne_bytes(), &log[4..]].concat();
        let finding = the_finding(&replay(&[(1, &bytes)]));
        assert_eq!(finding, Finding::Damaged { file: 1, offset: 0, cause: Cause::Version(version) });
    }
    let finding = the_finding(&replay(&[(1, &[0, 0, 0, 0, 1])]));
    assert_eq!(finding, Finding::Damaged { file: 1, offset: 0, cause: Cause::Version(0) });
}

#[test]
fn record_behind_zeros_is_damage() {
    let log = Log::v7().put("a", 1);
    let gap = log.bytes.len() as u64;
    for zeros in [84, 85, 4096, 200_000] {
        let record = Log::v7().put("a", 2).bytes.split_off(4);
        let log = log.clone().zeros(zeros).raw(&record);
        assert_eq!(damage(&log), (gap, Cause::MoreBehindZeros(gap + zeros as u64)));
    }
}

#[test]
fn record_behind_a_torn_body_is_damage() {
    let log = Log::v7().full("a", job(1), &[0; 10]).put("a", 2);
    assert_eq!(damage(&log), (4, Cause::BodyEnd));
}

#[test]
fn record_that_contradicts_an_earlier_one_is_damage() {
    let log = || Log::v7().put("a", 1);
    let start = log().bytes.len() as u64;
    let size = Jobrec { body_size: 12, ..job(1) };
    let cause = Cause::SizeChanged { id: 1, was: 10, now: 12 };
    assert_eq!(damage(&log().full("a", size, b"abcdefghij\r\n")), (start, cause.clone()));
    assert_eq!(damage(&log().short(size)), (start, cause.clone()));
    // A deletion as well, unless it may be a record that a crash cut.
    let deletion = Jobrec { state: State::Invalid, ..size };
    assert_eq!(damage(&log().short(deletion).put("a", 2)), (start, cause));
    assert_eq!(
        damage(&log().put("b", 1)),
        (start, Cause::TubeChanged { id: 1, was: "a".into(), now: "b".into() })
    );
    assert_eq!(damage(&log().short(Jobrec { created_at: 1, ..job(1) })), (start, Cause::IdReused(1)));
    assert_eq!(
        damage(&log().full("a", Jobrec { created_at: 1, ..job(1) }, BODY)),
        (start, Cause::IdReused(1))
    );
}

#[test]
fn jobs_before_a_damage_are_still_reported_and_later_files_are_read() {
    let first = Log::v7().put("a", 1).put("a", 2).patch(0, &[0xff; 4]).zeros(50);
    let second = Log::v7().put("a", 3);
    let scan = replay(&[(1, &first.bytes), (2, &second.bytes)]);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Refused, vec![1, 3]));
}

// Places.

#[test]
fn records_of_another_slot_are_named() {
    let slot_of = |tube: &[u8]| if tube.starts_with(b"mine") { 2 } else { 3 };
    let id_fits = |id: u64| id % 4 == 2 || id < 5;
    let policy =
        Policy { own_slot: 2, slot_of: Some(&slot_of), id_fits: Some(&id_fits), ..Policy::default() };
    let log = Log::v7().put("mine", 6).put("mine-too", 3).put("theirs", 10).put("mine", 7).delete(10);
    let scan = replay_with(&[(1, &log.bytes)], policy);
    assert_eq!(scan.verdict(), Verdict::Refused);
    let tube = TubeName::new(b"theirs").unwrap();
    let [third, fourth] = [2, 3].map(|record| log.bounds[record] as u64);
    assert_eq!(
        scan.findings,
        [
            Finding::ForeignTube { file: 1, offset: third, tube, slot_here: 2, slot_owner: 3 },
            Finding::ForeignId { file: 1, offset: fourth, id: 7, slot_here: 2 },
        ]
    );
    let message = scan.findings[0].to_string();
    for part in ["binlog.1", &third.to_string(), "theirs", "slot 2", "slot 3"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn records_of_another_slot_are_counted_without_end() {
    let policy = Policy { own_slot: 0, slot_of: Some(&|_| 1), ..Policy::default() };
    let many = crate::limits::WAL_FINDINGS + 25;
    let log = (1..=many as u64).fold(Log::v7(), |log, id| log.put("a", id));
    let scan = replay_with(&[(1, &log.bytes)], policy);
    assert_eq!((scan.findings.len(), scan.findings_left_off), (crate::limits::WAL_FINDINGS, 25));
}

// Directories.

#[test]
fn directory_is_read_in_the_order_of_numbers_and_left_as_it_is() {
    let dir = TempDir::new();
    for number in [9u32, 10, 11] {
        let log = Log::v7().put("a", u64::from(number));
        fs::write(dir.join(log_name(number)), &log.bytes).unwrap();
    }
    fs::write(dir.join("binlog.12.old"), "ignored by the core as well").unwrap();
    fs::write(dir.join("lock"), "").unwrap();
    let scan = scan(&dir, Policy::default()).unwrap();
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Sound, vec![9, 10, 11]));
    let mut body = Vec::new();
    Bodies::new(&dir)
        .copy(scan.jobs.job(10).unwrap(), &mut |piece| {
            body.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
    assert_eq!(body, BODY);
    assert_eq!(fs::read_dir(&*dir).unwrap().count(), 5);
}

#[test]
fn directory_with_a_gap_or_an_odd_name_is_refused() {
    let dir = TempDir::new();
    for number in [3, 6] {
        fs::write(dir.join(log_name(number)), Log::v7().put("a", number.into()).bytes).unwrap();
    }
    for name in [
        "binlog.07",
        "binlog.-2",
        "binlog.+4",
        "binlog.",
        "binlog. 5",
        "binlog.99999999999",
        "binlog.1073741824",
    ] {
        fs::write(dir.join(name), "").unwrap();
    }
    fs::create_dir(dir.join("binlog.7")).unwrap();
    let scan = scan(&dir, Policy::default()).unwrap();
    let odd: Vec<&Finding> = scan.findings.iter().filter(|f| matches!(f, Finding::OddFile { .. })).collect();
    assert_eq!(odd.len(), 8, "{odd:?}");
    assert_eq!(scan.findings[8], Finding::Damaged { file: 4, offset: 0, cause: Cause::FileMissing });
    assert_eq!((scan.findings.len(), scan.verdict()), (9, Verdict::Refused));
}

#[test]
fn directory_that_is_missing_is_an_error_that_names_it() {
    let dir = TempDir::new();
    let error = scan(&dir.join("nowhere"), Policy::default()).err().unwrap();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn file_that_may_not_be_read_is_an_error_not_a_gap() {
    let dir = TempDir::new();
    let path = dir.join("binlog.1");
    fs::write(&path, Log::v7().put("a", 1).bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match (fs::File::open(&path), scan(&dir, Policy::default())) {
        (Err(_), Err(error)) => assert!(error.to_string().contains("binlog.1"), "{error}"),
        // The superuser may read it.
        (Ok(_), Ok(scan)) => assert_eq!(scan.verdict(), Verdict::Sound),
        (opened, scanned) => panic!("open: {opened:?}, scan: {}", scanned.is_ok()),
    }
}

#[test]
fn mended_directory_is_sound_and_has_every_job_that_the_scan_saw() {
    let torn = Log::sealed(2).put("a", 2).raw(b"\x01\0\0\0a").zeros(90);
    let later = Log::sealed(3).synced(Synced::UpTo { files_back: 1, offset: 88 }).put("a", 3);
    let cut = torn.bounds[1] as u64;
    let files = [(1, vec![]), (2, torn.bytes), (3, later.bytes), (4, vec![0; 600])];
    let dir = TempDir::new();
    for (number, bytes) in &files {
        fs::write(dir.join(log_name(*number)), bytes).unwrap();
    }
    let policy = Policy { power_failed: true, ..Policy::default() };
    let before = scan(&dir, policy).unwrap();
    assert_eq!((before.verdict(), ids(&before)), (Verdict::Torn, vec![2]));
    let mended = mend(&dir, &before).unwrap();

    assert_eq!(mended, Mended { cut: vec![(2, cut)], removed: vec![4, 3, 1], begun: vec![] });
    sync(&dir, &before, &mended).unwrap();
    let after = scan(&dir, Policy::default()).unwrap();
    assert_eq!((after.verdict(), jobs(&after)), (Verdict::Sound, jobs(&before)));
}

#[test]
fn unwritten_files_go_from_both_ends_and_are_begun_in_between() {
    let dir = TempDir::new();
    let log = |id| Log::v7().put("a", id).bytes;
    let files = [(1, vec![0; 9]), (2, log(1)), (3, vec![]), (4, vec![0; 99]), (5, log(2)), (6, vec![])];
    for (number, bytes) in &files {
        fs::write(dir.join(log_name(*number)), bytes).unwrap();
    }
    let mended = mend(&dir, &scan(&dir, Policy::default()).unwrap()).unwrap();
    assert_eq!(mended, Mended { cut: vec![], removed: vec![6, 1], begun: vec![3, 4] });
    let after = scan(&dir, Policy::default()).unwrap();
    assert_eq!((after.verdict(), ids(&after)), (Verdict::Sound, vec![1, 2]));
    assert!(after.files.iter().all(|file| file.version == Some(Version::V7)));
}

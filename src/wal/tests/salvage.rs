//! What is kept of damaged logs, and what is said to be lost.

use super::super::builder::{BODY, Log, job};
use super::super::*;
use crate::scratch::TempDir;
use std::fs;

fn directory(logs: &[(u32, Log)]) -> TempDir {
    let dir = TempDir::new();
    for (number, log) in logs {
        fs::write(dir.join(log_name(*number)), &log.bytes).unwrap();
    }
    dir
}

fn salvaged(dir: &TempDir) -> Salvage {
    salvage(dir, Policy::default(), &|_| {}).unwrap()
}

fn ids(salvage: &Salvage) -> Vec<u64> {
    salvage.jobs.iter().map(|job| job.id()).collect()
}

/// Overwrites every byte of one record in turn, or all of it: the others are kept.
#[test]
fn record_that_is_damaged_costs_no_other() {
    for version in [Version::V7, Version::V5] {
        let log = Log::new(version).put("a", 1).put("bb", 256).put("a", 3).zeros(5000);
        let (from, to) = (log.bounds[1], log.bounds[2]);
        for at in (from..to).chain([usize::MAX]) {
            let mut log = log.clone();
            match at {
                usize::MAX => log.bytes[from..to].fill(0xee),
                at => log.bytes[at] ^= 0x81,
            }
            let found = salvaged(&directory(&[(1, log)]));
            let kept = ids(&found);
            assert!(kept.contains(&1) && kept.contains(&3), "byte {at}: {kept:?}");
            let replayed = found.losses.is_empty();
            assert!(replayed || kept == [1, 3], "byte {at}: {kept:?} with {:?}", found.losses);
            if let [loss] = &found.losses[..] {
                assert_eq!((loss.from, loss.to), (from as u64, to as u64), "byte {at}");
            }
        }
    }
}

#[test]
fn short_records_count_behind_damage_for_jobs_that_are_known_only() {
    let buried = Jobrec { state: State::Buried, pri: 9, ..job(1) };
    let log =
        Log::v7().put("a", 1).put("a", 2).raw(&[0xee; 50]).short(buried).delete(2).delete(77).put("a", 4);
    let found = salvaged(&directory(&[(1, log)]));
    assert_eq!(ids(&found), [1, 4]);
    let first = found.jobs.job(1).unwrap().jobrec;
    assert_eq!((first.state, first.pri), (State::Buried, 9));
    assert_eq!(found.losses.len(), 1);
}

#[test]
fn later_record_wins_where_two_contradict_each_other() {
    let other = Jobrec { created_at: 5, ..job(1) };
    let log = Log::v7().put("a", 1).full("b", other, BODY);
    let found = salvaged(&directory(&[(1, log)]));
    assert_eq!(&*found.jobs.job(1).unwrap().tube, b"b");
}

#[test]
fn lost_version_is_guessed_and_zeros_in_between_are_skipped() {
    for version in [Version::V7, Version::V5] {
        let log = Log::new(version).put("a", 1).zeros(70_000).put("a", 2);
        let mut log = log;
        log.bytes[..4].fill(9);
        let found = salvaged(&directory(&[(1, log)]));
        assert_eq!(ids(&found), [1, 2], "{version:?}");
        assert_eq!(found.losses.len(), 2);
    }
}

#[test]
fn missing_file_and_odd_names_do_not_hinder() {
    let dir = directory(&[(1, Log::v7().put("a", 1)), (4, Log::v7().put("a", 2))]);
    fs::write(dir.join("binlog.007"), "x").unwrap();
    let found = salvaged(&dir);
    assert_eq!(
        (ids(&found), found.files, found.odd),
        (vec![1, 2], vec![1, 4], vec!["binlog.007".to_owned()])
    );
}

#[test]
fn jobs_of_other_slots_are_set_apart() {
    let dir = directory(&[(1, Log::v7().put("a", 4).put("b", 8).put("a", 5))]);
    let slot_of = |tube: &[u8]| u16::from(tube == b"b");
    let id_fits = |id: u64| id % 4 == 0;
    let policy =
        Policy { own_slot: 0, slot_of: Some(&slot_of), id_fits: Some(&id_fits), ..Policy::default() };
    let found = salvage(&dir, policy, &|_| {}).unwrap();
    assert_eq!(ids(&found), [4]);
    assert_eq!(found.foreign, [(8, "b".to_owned()), (5, "a".to_owned())]);
    assert_eq!(found.max_id, 8);
}

/// A large file of text in which nothing is a record takes no longer than reading it.
#[test]
fn noise_is_read_once() {
    let noise: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let log = Log::v7().put("a", 1).raw(&noise).zeros(1_000_000).put("a", 2);
    let found = salvaged(&directory(&[(1, log)]));
    assert!(ids(&found).starts_with(&[1]) && ids(&found).ends_with(&[2]));
}

#[test]
fn written_logs_read_back_as_they_were() {
    let buried = Jobrec { state: State::Buried, buries: 3, ..job(2) };
    let late = Jobrec { state: State::Delayed, delay: 7_000_000_000, deadline_at: 1 << 60, ..job(3) };
    let from =
        directory(&[(5, Log::v7().put("a", 9).full("bb", buried, BODY).full("c", late, BODY).put("a", 4))]);
    let before = scan(&from, Policy::default()).unwrap();
    for (file_bytes, files) in [(1 << 20, 1), (250, 2), (1, 4)] {
        let to = TempDir::new();
        let mut writer = LogWriter::new(&to, 1, file_bytes);
        let mut bodies = Bodies::new(&from);
        before.jobs.iter().for_each(|job| writer.append(job, &mut bodies).unwrap());
        writer.finish().unwrap();
        let after = scan(&to, Policy::default()).unwrap();
        assert_eq!((after.verdict(), after.files.len()), (Verdict::Sound, files), "{file_bytes}");
        assert!(after.files.iter().all(|file| file.bytes == file.end));
        let fields =
            |scan: &Scan| -> Vec<_> { scan.jobs.iter().map(|job| (job.tube.clone(), job.jobrec)).collect() };
        assert_eq!(fields(&before), fields(&after));
        let mut records = Records::open(&to).unwrap();
        for job in before.jobs.iter() {
            let copy = records.next().unwrap().unwrap();
            let RecordKind::Full { tube, body } = copy.kind else { panic!("{copy:?}") };
            assert_eq!((tube.as_bytes(), copy.jobrec), (&*job.tube, job.jobrec));
            assert!(bodies.same(job, &mut records, &body).unwrap());
        }
        assert_eq!(records.next().unwrap(), None);
    }
}

#[test]
fn bodies_that_differ_in_one_byte_are_not_the_same() {
    let dirs = [BODY, b"abcdefgX\r\n"].map(|body| directory(&[(1, Log::v7().full("a", job(1), body))]));
    let scans = dirs.each_ref().map(|dir| scan(dir, Policy::default()).unwrap());
    for (one, other, same) in [(0, 0, true), (0, 1, false)] {
        let mut records = Records::open(&dirs[other]).unwrap();
        let record = records.next().unwrap().unwrap();
        let RecordKind::Full { body, .. } = record.kind else { panic!("{record:?}") };
        let job = scans[one].jobs.job(1).unwrap();
        assert_eq!(Bodies::new(&dirs[one]).same(job, &mut records, &body).unwrap(), same);
    }
}

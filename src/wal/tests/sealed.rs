//! Sealed logs: what a checksum tells, and what a power failure may take without and with a refusal.

use proptest::prelude::*;

use super::super::builder::{BODY, Log, SEED, job};
use super::super::format::offset;
use super::super::*;
use super::{ids, jobs, one, replay, replay_with, the_finding};
use crate::limits::DISK_BLOCK_BYTES;

const BLOCK: usize = DISK_BLOCK_BYTES as usize;

/// Each record's bytes behind its begin.
const SHORT_BYTES: usize = 84;

fn after_power_failure(files: &[(u32, &[u8])]) -> Scan {
    replay_with(files, Policy { power_failed: true, seed: Some(SEED), ..Policy::default() })
}

fn put(log: Log, id: u64, body_bytes: usize) -> Log {
    let body = [&vec![b'x'; body_bytes - 2][..], b"\r\n"].concat();
    log.full("tube", Jobrec { body_size: body_bytes as i32, ..job(id) }, &body)
}

fn zero_block(log: &Log, block: usize) -> Vec<u8> {
    let mut bytes = log.bytes.clone();
    let end = bytes.len().min((block + 1) * BLOCK);
    bytes[block * BLOCK..end].fill(0);
    bytes
}

/// Every kind of record, all in one batch behind a first that is on disk.
fn batch() -> Log {
    let buried = Jobrec { state: State::Buried, buries: 1, reserves: 1, ..job(2) };
    let log = put(Log::sealed(1), 1, 300).synced_here().put("a", 2).short(buried);
    let deleted = Jobrec { state: State::Invalid, body_size: 300, ..job(1) };
    put(put(log, 3, 1300).short(deleted), 4, 700).put("b", 5)
}

#[test]
fn sealed_log_reads_as_one_without_seals() {
    let log = batch().zeros(700);
    let scan = one(&log);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Sound, vec![2, 3, 4, 5]));
    assert_eq!(scan.jobs.job(2).unwrap().jobrec.state, State::Buried);
    assert_eq!((scan.max_id, scan.files[0].records, scan.unsynced_from), (5, 7, 1));
    assert_eq!(scan.files[0].end, *log.bounds.last().unwrap() as u64);
}

#[test]
fn every_flipped_bit_of_a_sealed_record_is_damage_even_after_a_power_failure() {
    let log = batch().zeros(700);
    let mut alike = 0;
    // Behind the mark; what is in front of it is tested with other versions.
    for at in log.bounds[0]..*log.bounds.last().unwrap() {
        for bit in [1, 0x80] {
            let mut bytes = log.bytes.clone();
            bytes[at] ^= bit;
            let start = *log.bounds.iter().rfind(|&&start| start <= at).unwrap();
            // The one bit that is set in front of a block's end: that the rest of it was lost looks the same.
            let to_edge = &bytes[start..bytes.len().min((start / BLOCK + 1) * BLOCK)];
            let looks_lost = to_edge.iter().all(|&byte| byte == 0);
            alike += usize::from(looks_lost);
            for (scan, sure) in
                [(replay(&[(1, &bytes)]), true), (after_power_failure(&[(1, &bytes)]), !looks_lost)]
            {
                match the_finding(&scan) {
                    Finding::Damaged { file: 1, offset, .. } => assert_eq!(offset, start as u64, "byte {at}"),
                    other => assert!(!sure, "byte {at}: {other:?}"),
                }
            }
        }
    }
    assert!(alike <= 2, "{alike}");
}

#[test]
fn sealed_log_zeroed_from_every_byte_keeps_all_records_before_it() {
    let log = batch();
    let states: Vec<_> = log.bounds.iter().map(|&end| jobs(&replay(&[(1, &log.bytes[..end])]))).collect();
    for length in log.bounds[0]..log.bytes.len() {
        let mut bytes = log.bytes.clone();
        bytes[length..].fill(0);
        let whole = log.bounds.iter().rposition(|&end| bytes[..end] == log.bytes[..end]).unwrap();
        bytes.resize(log.bytes.len() + 300, 0);
        for scan in [replay(&[(1, &bytes)]), after_power_failure(&[(1, &bytes)])] {
            assert_eq!(jobs(&scan), states[whole], "zeroed from {length}");
            assert_ne!(scan.verdict(), Verdict::Refused, "zeroed from {length}: {:?}", scan.findings);
        }
    }
}

/// The half record that reads as a deletion where records have no seal.
#[test]
fn short_record_that_is_cut_before_its_state_is_no_deletion() {
    let known = Jobrec { reserves: 1, ..job(1) };
    let buried = Jobrec { state: State::Buried, buries: 1, ..known };
    let log = Log::sealed(1).full("a", known, BODY).short(buried);
    let start = log.bounds[1];
    for length in start + 4 + offset::RESERVES + 1..start + SHORT_BYTES {
        let mut bytes = log.bytes.clone();
        bytes[length..].fill(0);
        let scan = replay(&[(1, &bytes)]);
        assert_eq!(ids(&scan), [1], "cut at {length}");
        let torn = Finding::TornTail { file: 1, offset: start as u64, cause: Cause::JobrecCut };
        assert_eq!(scan.findings, [torn], "cut at {length}");
    }
}

#[test]
fn block_lost_from_the_unsynced_end_is_a_tear_and_all_in_front_of_it_is_kept() {
    let log = batch();
    let states: Vec<_> = log.bounds.iter().map(|&end| jobs(&replay(&[(1, &log.bytes[..end])]))).collect();
    let first = log.bounds[1] / BLOCK + 1;
    for block in first..log.bytes.len() / BLOCK {
        let bytes = zero_block(&log, block);
        let whole = log.bounds.iter().rposition(|&end| end <= block * BLOCK).unwrap();
        let scan = after_power_failure(&[(1, &bytes)]);
        assert_eq!(scan.verdict(), Verdict::Torn, "block {block}");
        assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(1, log.bounds[whole] as u64)], "block {block}");
        assert_eq!(jobs(&scan), states[whole], "block {block}");
        // Where the machine was not started anew, no block can be lost.
        assert_eq!(replay(&[(1, &bytes)]).verdict(), Verdict::Refused, "block {block}");
    }
}

#[test]
fn block_lost_in_front_of_what_was_synced_is_damage() {
    let log = put(batch().synced_here(), 6, 600);
    let synced_from = log.bounds[log.bounds.len() - 2];
    for block in 1..synced_from / BLOCK {
        let scan = after_power_failure(&[(1, &zero_block(&log, block))]);
        assert_eq!(scan.verdict(), Verdict::Refused, "block {block}");
        assert!(matches!(the_finding(&scan), Finding::Damaged { file: 1, .. }));
    }
}

/// With `-F` nothing says what was on disk: an operator has to decide how much is to be kept.
#[test]
fn hole_in_a_log_that_was_never_synced_is_damage() {
    let log = put(put(Log::sealed(1).synced(Synced::Unknown).put("a", 1), 2, 1500), 3, 300);
    assert_eq!(after_power_failure(&[(1, &zero_block(&log, 1))]).verdict(), Verdict::Refused);
}

/// A job that was moved: the old record is whole, the new one lacks the middle of its body.
#[test]
fn moved_job_whose_new_record_lacks_a_block_keeps_the_old_one() {
    let old = put(Log::sealed(1), 1, 1500).put("a", 2);
    let new = put(Log::sealed(2).put("a", 3).synced_here(), 1, 1500);
    let scan = after_power_failure(&[(1, &old.bytes), (2, &zero_block(&new, 1))]);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Torn, vec![1, 2, 3]));
    assert_eq!(scan.jobs.job(1).unwrap().file, 1);
    assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(2, new.bounds[1] as u64)]);
}

/// A batch over the end of a file: nothing of the later one was synced when it is lost.
#[test]
fn files_behind_a_tear_are_dropped_unless_they_say_that_it_was_on_disk() {
    let first = put(Log::sealed(1).put("a", 1).synced_here(), 2, 900);
    let torn = zero_block(&first, 1);
    let synced = first.bounds[1] as u32;
    let second = |synced| Log::sealed(2).synced(synced).put("a", 3);
    let behind = |files_back, offset| second(Synced::UpTo { files_back, offset });
    let scan = after_power_failure(&[(1, &torn), (2, &behind(1, synced).bytes), (3, &[])]);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Torn, vec![1]));
    assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(1, first.bounds[1] as u64), (2, 0), (3, 0)]);
    assert_eq!(scan.unwritten_tail().collect::<Vec<_>>(), [3, 2]);
    for refuted in [behind(1, synced + 1), behind(0, 0), second(Synced::Unknown), Log::v7().put("a", 3)] {
        let scan = after_power_failure(&[(1, &torn), (2, &refuted.bytes)]);
        assert_eq!(scan.verdict(), Verdict::Refused);
    }
}

#[test]
fn missing_file_is_a_tear_if_nothing_behind_it_was_synced() {
    let first = Log::sealed(1).put("a", 1);
    let third = |synced| Log::sealed(3).synced(synced).put("a", 3);
    let here = first.bytes.len() as u32;
    let scan = after_power_failure(&[
        (1, &first.bytes),
        (3, &third(Synced::UpTo { files_back: 2, offset: here }).bytes),
    ]);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Torn, vec![1]));
    assert_eq!(scan.unwritten_tail().collect::<Vec<_>>(), [3]);
    assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(3, 0)], "there is no file 2 to cut");
    let scan = after_power_failure(&[
        (1, &first.bytes),
        (3, &third(Synced::UpTo { files_back: 1, offset: 100 }).bytes),
    ]);
    assert_eq!(scan.findings, [Finding::Damaged { file: 2, offset: 0, cause: Cause::FileMissing }]);
}

#[test]
fn file_that_ends_before_the_next_was_written_is_a_hole() {
    let first = Log::sealed(1).put("a", 1).put("a", 2);
    let end = first.bytes.len();
    let second = |behind| Log::sealed_behind(2, Some(behind)).put("a", 3);
    let at = |offset: usize| (1, offset as u64);
    assert_eq!(replay(&[(1, &first.bytes), (2, &second(at(end)).bytes)]).verdict(), Verdict::Sound);
    assert_eq!(
        replay(&[(2, &second(at(end)).bytes)]).verdict(),
        Verdict::Sound,
        "file 1 was emptied and went"
    );
    let cut = first.bounds[1];
    let short = &first.bytes[..cut];
    let hole = |offset| Cause::Unjoined { later: 2, behind: at(offset) };
    let scan = replay(&[(1, short), (2, &second(at(end)).bytes)]);
    assert_eq!(scan.findings, [Finding::Damaged { file: 1, offset: cut as u64, cause: hole(end) }]);
    assert_eq!(ids(&scan), [1, 3]);
    let scan = replay(&[(1, b""), (2, &second(at(end)).bytes)]);
    assert_eq!(scan.findings, [Finding::Damaged { file: 1, offset: 0, cause: hole(end) }]);
    // Where a power failure took it, what is behind it goes unless it was written when all of this was on disk.
    let files = |second: &Log| after_power_failure(&[(1, short), (2, &second.bytes)]);
    let unsynced = Log::sealed_behind(2, Some(at(end)))
        .synced(Synced::UpTo { files_back: 1, offset: cut as u32 })
        .put("a", 3);
    assert_eq!((files(&unsynced).verdict(), ids(&files(&unsynced))), (Verdict::Torn, vec![1]));
    let synced = Synced::UpTo { files_back: 1, offset: end as u32 };
    let synced = Log::sealed_behind(2, Some(at(end))).synced(synced).put("a", 3);
    assert_eq!(files(&synced).verdict(), Verdict::Refused);
}

#[test]
fn version_alone_may_be_on_disk() {
    let first = Log::sealed(1).put("a", 1);
    let at = Synced::UpTo { files_back: 1, offset: first.bytes.len() as u32 };
    let second = put(Log::sealed(2).synced(at), 2, 900).put("a", 3);
    let mut headless = second.bytes.clone();
    headless[4..BLOCK].fill(0);
    let scan = after_power_failure(&[(1, &first.bytes), (2, &headless)]);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Torn, vec![1]));
    assert_eq!(scan.torn_tails().collect::<Vec<_>>(), [(2, 4)]);
    assert_eq!(replay(&[(1, &first.bytes), (2, &headless)]).verdict(), Verdict::Refused);
    // In front of it as well: what is behind a tear was not on disk if it doesn't say so.
    let torn = &first.bytes[..first.bytes.len() - 1];
    let scan = after_power_failure(&[(1, torn), (2, &headless)]);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Refused, vec![]));
    let scan = after_power_failure(&[(1, torn), (2, &Log::v7().zeros(3000).bytes)]);
    assert_eq!(scan.verdict(), Verdict::Torn);
}

#[test]
fn file_whose_begin_is_lost_is_read_with_the_seed_of_its_directory() {
    let first = Log::sealed(1).put("a", 1);
    let unsynced = put(Log::sealed(2), 2, 900).put("a", 3);
    let files = [(1, &first.bytes[..]), (2, &zero_block(&unsynced, 0)[..])];
    let scan = after_power_failure(&files);
    assert_eq!((scan.verdict(), ids(&scan)), (Verdict::Torn, vec![1]));
    assert_eq!(scan.unwritten_tail().collect::<Vec<_>>(), [2]);
    let synced = put(Log::sealed(2), 2, 900).synced_here().put("a", 3);
    let scan = after_power_failure(&[(1, &first.bytes), (2, &zero_block(&synced, 0))]);
    assert_eq!(scan.verdict(), Verdict::Refused);
    assert_eq!(
        replay_with(&files, Policy { power_failed: true, ..Policy::default() }).verdict(),
        Verdict::Refused
    );
}

/// Records of one place are none in another: a body may be a log.
#[test]
fn record_in_a_body_or_of_another_file_is_no_record() {
    let inner = Log::sealed(1).put("a", 77);
    let body = [&inner.bytes[inner.bounds[0]..], b"\r\n"].concat();
    let jobrec = Jobrec { body_size: body.len() as i32, ..job(2) };
    let outer = Log::sealed(1).put("a", 1).full("a", jobrec, &body).put("a", 3);
    assert_eq!(ids(&one(&outer)), [1, 2, 3]);
    let moved =
        [&outer.bytes[..outer.bounds[0]], &Log::sealed(2).put("a", 5).bytes[outer.bounds[0]..]].concat();
    assert!(matches!(the_finding(&replay(&[(1, &moved)])), Finding::Damaged { cause: Cause::Sum, .. }));
}

/// What stock writes after it has read a sealed log is in a file of its own, with seals that do not fit.
#[test]
fn seals_in_a_file_without_mark_mean_nothing() {
    let sealed = Log::sealed(1).put("a", 1);
    let record = sealed.bytes[sealed.bounds[0]..].to_vec();
    let stock = Log::v7().raw(&record).raw(&record[..0]).zeros(50);
    let scan = replay(&[(1, &sealed.bytes), (2, &stock.bytes)]);
    assert_eq!((scan.verdict(), scan.jobs.job(1).unwrap().file), (Verdict::Sound, 2));
    assert_eq!(scan.unsynced_from, 0);
}

#[test]
fn salvage_keeps_nothing_whose_checksum_is_wrong() {
    let mut log = put(put(Log::sealed(1), 1, 300), 2, 2000).put("a", 3);
    let middle = log.bounds[1] + 1000;
    log.bytes[middle] ^= 1;
    let dir = crate::scratch::TempDir::new();
    std::fs::write(dir.join(log_name(1)), &log.bytes).unwrap();
    let found = salvage(&dir, Policy::default(), &|_| {}).unwrap();
    assert_eq!(found.jobs.iter().map(|job| job.id()).collect::<Vec<_>>(), [1, 3]);
}

proptest! {
    /// Any blocks of the unsynced end may be lost, whole or from any write on: never a refusal, never another body.
    #[test]
    fn any_loss_of_the_unsynced_end_leaves_a_front_part_of_the_log(
        lost in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..5),
        length in any::<prop::sample::Index>(),
    ) {
        let log = batch();
        let states: Vec<_> = log.bounds.iter().map(|&end| jobs(&replay(&[(1, &log.bytes[..end])]))).collect();
        let synced = log.bounds[1];
        let mut bytes = log.bytes.clone();
        for (block, write) in lost {
            let block = synced / BLOCK + block.index(log.bytes.len() / BLOCK + 1 - synced / BLOCK);
            let (start, end) = ((block * BLOCK).max(synced), bytes.len().min((block + 1) * BLOCK));
            let writes: Vec<usize> =
                [start].into_iter().chain(log.bounds.iter().copied().filter(|at| (start..end).contains(at))).collect();
            bytes[*write.get(&writes)..end].fill(0);
        }
        bytes.truncate(synced + length.index(log.bytes.len() + 1 - synced));
        let scan = after_power_failure(&[(1, &bytes)]);
        prop_assert_ne!(scan.verdict(), Verdict::Refused, "{:?}", scan.findings);
        let whole = log.bounds.iter().rposition(|&end| bytes.len() >= end && bytes[..end] == log.bytes[..end]);
        prop_assert_eq!(jobs(&scan), states[whole.unwrap()].clone());
    }

    #[test]
    fn sealed_log_with_any_bytes_changed_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let mut bytes = batch().zeros(40).bytes;
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        after_power_failure(&[(1, &bytes)]);
        after_power_failure(&[(1, &Log::sealed(1).put("a", 1).bytes), (2, &bytes)]);
    }
}

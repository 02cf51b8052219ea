//! Publishes the slot's numbers in the scoreboard, before the replies that they belong to leave.

use std::time::Duration;

use crate::core_ffi::{Engine, Stats};
use crate::scoreboard::{Field, Histogram, Meaning, Record, Usage};

/// Counters of the core start from zero with each generation; those of the scoreboard go on.
pub struct Publisher<'a> {
    record: Record<'a>,
    base: Vec<u64>,
    /// What the core's numbers were when they were published last: most have not changed since.
    last: [u64; CORE_NUMBERS],
    syncs_base: u64,
    usage: Usage<'a>,
}

/// Fields that the core counts. `stats`, `list-tubes` and `list-tube-used` never get to an owner.
const CORE_NUMBERS: usize = 36;

/// Not published yet; no number gets so far.
const NEVER: u64 = u64::MAX;

/// Pairs of field and current value.
fn core_numbers(s: &Stats) -> [(Field, u64); CORE_NUMBERS] {
    [
        (Field::JobsUrgent, s.jobs_urgent),
        (Field::JobsReady, s.jobs_ready),
        (Field::JobsReserved, s.jobs_reserved),
        (Field::JobsDelayed, s.jobs_delayed),
        (Field::JobsBuried, s.jobs_buried),
        (Field::CmdPut, s.cmd_put),
        (Field::CmdPeek, s.cmd_peek),
        (Field::CmdPeekReady, s.cmd_peek_ready),
        (Field::CmdPeekDelayed, s.cmd_peek_delayed),
        (Field::CmdPeekBuried, s.cmd_peek_buried),
        (Field::CmdReserve, s.cmd_reserve),
        (Field::CmdReserveWithTimeout, s.cmd_reserve_with_timeout),
        (Field::CmdDelete, s.cmd_delete),
        (Field::CmdRelease, s.cmd_release),
        (Field::CmdUse, s.cmd_use),
        (Field::CmdWatch, s.cmd_watch),
        (Field::CmdIgnore, s.cmd_ignore),
        (Field::CmdBury, s.cmd_bury),
        (Field::CmdKick, s.cmd_kick),
        (Field::CmdTouch, s.cmd_touch),
        (Field::CmdStatsJob, s.cmd_stats_job),
        (Field::CmdStatsTube, s.cmd_stats_tube),
        (Field::CmdPauseTube, s.cmd_pause_tube),
        (Field::JobTimeouts, s.job_timeouts),
        (Field::TotalJobs, s.total_jobs),
        (Field::Tubes, s.tubes),
        (Field::Waiting, s.waiting),
        (Field::WalOldest, s.wal_oldest),
        (Field::WalCurrent, s.wal_current),
        (Field::WalMigrated, s.wal_migrated),
        (Field::WalWritten, s.wal_written),
        (Field::WalFiles, s.wal_files),
        (Field::WalBytes, s.wal_bytes),
        (Field::WalBytesLive, s.wal_bytes_live),
        (Field::WalRefused, s.wal_refused),
        (Field::LastId, s.last_id),
    ]
}

impl<'a> Publisher<'a> {
    /// For the record's one writer, before it counts anything.
    pub fn new(record: Record<'a>) -> Publisher<'a> {
        let base = core_numbers(&Stats::default())
            .iter()
            .map(|(field, _)| if field.meaning() == Meaning::Counter { record.get(*field) } else { 0 })
            .collect();
        Publisher {
            record,
            base,
            last: [NEVER; CORE_NUMBERS],
            syncs_base: record.get(Field::WalSyncs),
            usage: Usage::new(record),
        }
    }

    pub fn publish(&mut self, engine: &Engine, virtual_connections: usize, syncs: u64) {
        let numbers = core_numbers(&engine.stats());
        for (((field, value), base), last) in numbers.into_iter().zip(&self.base).zip(&mut self.last) {
            if value == *last {
                continue;
            }
            *last = value;
            let value = match field.meaning() {
                // What an earlier generation reached stays: a new core without a log begins from nothing.
                Meaning::Highest => value.max(self.record.get(field)),
                _ => base + value,
            };
            self.record.set(field, value);
        }
        self.record.set(Field::VirtualConnections, virtual_connections as u64);
        self.record.set(Field::WalSyncs, self.syncs_base + syncs);
        self.usage.publish();
    }

    /// Syncs that took so long have ended, the last of them now on the server's clock.
    pub fn synced(&mut self, times: &[Duration], clock: i64) {
        times.iter().for_each(|&time| self.record.observe(Histogram::Sync, time));
        self.record.set(Field::WalSyncedAt, clock as u64);
    }

    /// A wake-up's commands are answered, after this long.
    pub fn answered(&mut self, time: Duration) {
        self.record.observe(Histogram::Batch, time);
    }

    /// What is looked up now and then only.
    pub fn sample(&mut self, link_queued: usize) {
        self.record.set(Field::LinkQueued, link_queued as u64);
    }
}

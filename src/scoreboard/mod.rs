//! Shared memory in which each process keeps its numbers: one record a process, one writer a record.
//!
//! The supervisor makes it and hands it to every child; a frontend adds the records up for `stats`. Counters
//! outlive the process that counted: its next generation starts from what it finds. Gauges say what is now
//! and are set to zero when their process is gone. Owners publish before their replies leave, so what a
//! client was told is counted when it asks. Never blocks, takes no lock; a reader may see one record before
//! and another after a change.

mod fields;
mod histogram;
mod seats;
mod usage;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use nix::sys::memfd::{MFdFlags, memfd_create};

pub use fields::{FIELDS, Field, Meaning};
pub use histogram::{BOUNDS_US, Histogram, Times};
pub use seats::Seats;
pub use usage::Usage;

/// Words before the records: the drain flag, and seven that keep records apart from it in the cache.
const HEAD_WORDS: usize = 8;
const HEAD_DRAINING: usize = 0;

/// Words of a record, rounded up to whole cache lines so that no two writers share one.
const RECORD_WORDS: usize =
    (FIELDS.len() + histogram::HISTOGRAMS * histogram::HISTOGRAM_WORDS).next_multiple_of(8);

/// The shared memory, seen by one process.
pub struct Scoreboard {
    map: MmapRaw,
    owners: usize,
    frontends: usize,
    /// Of each frontend.
    seats: usize,
}

/// Memory that is not a scoreboard of this server.
#[derive(Debug, thiserror::Error)]
pub enum ScoreboardError {
    #[error("scoreboard: {0}")]
    Io(#[from] io::Error),
    #[error("scoreboard of {found} bytes, {expected} were expected")]
    Size { found: u64, expected: u64 },
}

impl Scoreboard {
    /// A new one, all zero, and the descriptor to hand to children. `seats`: how many clients of each frontend
    /// have a place in it; 0 if nobody asks where they are from.
    pub fn create(
        owners: usize,
        frontends: usize,
        seats: usize,
    ) -> Result<(Scoreboard, OwnedFd), ScoreboardError> {
        let fd = memfd_create(c"trellis-scoreboard", MFdFlags::MFD_CLOEXEC).map_err(io::Error::from)?;
        let file = File::from(fd);
        file.set_len(Self::bytes(owners, frontends, seats))?;
        let board = Self::map(&file, owners, frontends, seats)?;
        Ok((board, file.into()))
    }

    /// The one that came from the supervisor.
    pub fn open(
        fd: OwnedFd,
        owners: usize,
        frontends: usize,
        seats: usize,
    ) -> Result<Scoreboard, ScoreboardError> {
        Self::map(&File::from(fd), owners, frontends, seats)
    }

    fn bytes(owners: usize, frontends: usize, seats: usize) -> u64 {
        let words = HEAD_WORDS + RECORD_WORDS * (owners + frontends) + frontends * seats::row_words(seats);
        (words * size_of::<AtomicU64>()) as u64
    }

    fn map(
        file: &File,
        owners: usize,
        frontends: usize,
        seats: usize,
    ) -> Result<Scoreboard, ScoreboardError> {
        let expected = Self::bytes(owners, frontends, seats);
        let found = file.metadata()?.len();
        if found != expected {
            return Err(ScoreboardError::Size { found, expected });
        }
        let map = MmapOptions::new().len(expected as usize).map_raw(file)?;
        Ok(Scoreboard { map, owners, frontends, seats })
    }

    fn words(&self) -> &[AtomicU64] {
        let words = self.map.len() / size_of::<AtomicU64>();
        // SAFETY: the mapping is page-aligned, `words` long, lives as long as `self`, and all processes touch
        // it through atomics only.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), words) }
    }

    fn record(&self, number: usize) -> Record<'_> {
        let at = HEAD_WORDS + number * RECORD_WORDS;
        Record { words: &self.words()[at..at + RECORD_WORDS] }
    }

    /// The record of a slot's owner.
    pub fn owner(&self, slot: u16) -> Record<'_> {
        assert!(usize::from(slot) < self.owners);
        self.record(slot.into())
    }

    /// The record of a frontend.
    pub fn frontend(&self, number: u16) -> Record<'_> {
        assert!(usize::from(number) < self.frontends);
        self.record(self.owners + usize::from(number))
    }

    /// The places of all clients, for the frontend of this number to write its own.
    pub fn seats(&self, number: u16) -> Seats<'_> {
        assert!(usize::from(number) < self.frontends);
        let records = HEAD_WORDS + (self.owners + self.frontends) * RECORD_WORDS;
        Seats::new(&self.words()[records..], self.seats, number)
    }

    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.owners + self.frontends).map(|n| self.record(n))
    }

    /// The whole server's value of a field.
    pub fn total(&self, field: Field) -> u64 {
        let values = self.records().map(|r| r.get(field));
        match field.meaning() {
            Meaning::Counter | Meaning::Gauge => values.fold(0, u64::wrapping_add),
            Meaning::Lowest => values.filter(|&v| v > 0).min().unwrap_or(0),
            Meaning::Highest => values.max().unwrap_or(0),
        }
    }

    pub fn draining(&self) -> bool {
        self.words()[HEAD_DRAINING].load(Relaxed) != 0
    }

    pub fn set_draining(&self) {
        self.words()[HEAD_DRAINING].store(1, Relaxed);
    }
}

/// One process's numbers. Only that process writes them, and the supervisor while it is dead.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    words: &'a [AtomicU64],
}

impl Record<'_> {
    pub fn get(&self, field: Field) -> u64 {
        self.words[field as usize].load(Relaxed)
    }

    pub fn set(&self, field: Field, value: u64) {
        self.words[field as usize].store(value, Relaxed);
    }

    /// For the record's one writer.
    pub fn add(&self, field: Field, n: u64) {
        self.set(field, self.get(field).wrapping_add(n));
    }

    /// Takes back one that another record counts again. A record may fall below zero; the total does not.
    pub fn uncount(&self, field: Field) {
        self.set(field, self.get(field).wrapping_sub(1));
    }

    /// For the record's one writer; the gauge must be at least `n`.
    pub fn subtract(&self, field: Field, n: u64) {
        let now = self.get(field).checked_sub(n).expect("a gauge never goes below zero");
        self.set(field, now);
    }

    fn histogram(&self, which: Histogram) -> &[AtomicU64] {
        let at = FIELDS.len() + which as usize * histogram::HISTOGRAM_WORDS;
        &self.words[at..at + histogram::HISTOGRAM_WORDS]
    }

    /// Counts something that took this long; for the record's one writer.
    pub fn observe(&self, which: Histogram, time: Duration) {
        histogram::observe(self.histogram(which), time);
    }

    pub fn times(&self, which: Histogram) -> Times {
        Times::read(self.histogram(which))
    }

    /// The process is gone: what it held is no more.
    pub fn clear_gauges(&self) {
        for field in FIELDS.iter().filter(|f| f.meaning() == Meaning::Gauge) {
            self.set(*field, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_records_and_take_lowest_and_highest() {
        let (board, _fd) = Scoreboard::create(2, 1, 0).unwrap();
        board.owner(0).set(Field::CmdPut, 3);
        board.owner(1).set(Field::CmdPut, 4);
        board.frontend(0).add(Field::CmdPut, 5);
        board.owner(0).set(Field::WalOldest, 7);
        board.owner(1).set(Field::WalOldest, 2);
        board.owner(1).set(Field::WalCurrent, 9);
        assert_eq!(board.total(Field::CmdPut), 12);
        assert_eq!(board.total(Field::WalOldest), 2);
        assert_eq!(board.total(Field::WalCurrent), 9);
    }

    #[test]
    fn cleared_record_keeps_counters_and_loses_gauges() {
        let (board, _fd) = Scoreboard::create(1, 1, 0).unwrap();
        board.frontend(0).set(Field::TotalConnections, 8);
        board.frontend(0).set(Field::Connections, 3);
        board.frontend(0).clear_gauges();
        assert_eq!(board.total(Field::TotalConnections), 8);
        assert_eq!(board.total(Field::Connections), 0);
    }

    #[test]
    fn time_is_counted_in_the_bucket_whose_bound_it_does_not_exceed() {
        let (board, _fd) = Scoreboard::create(2, 0, 0).unwrap();
        let owner = board.owner(0);
        let us = Duration::from_micros;
        for time in [us(0), us(50), us(51), us(10_000_000), us(10_000_001)] {
            owner.observe(Histogram::Batch, time);
        }
        let times = owner.times(Histogram::Batch);
        assert_eq!((times.buckets[0], times.buckets[1], times.count()), (2, 1, 5));
        assert_eq!((times.buckets[15], times.buckets[16]), (1, 1));
        assert_eq!(times.sum_ns, 20_000_102_000);
        owner.clear_gauges();
        assert_eq!(owner.times(Histogram::Batch), times, "it outlives its process");
        assert_eq!(owner.times(Histogram::RoundTrip), Times::default());
        assert_eq!(board.owner(1).times(Histogram::Batch), Times::default());
    }

    #[test]
    fn scoreboard_opened_by_another_shape_is_refused() {
        let (_board, fd) = Scoreboard::create(2, 1, 0).unwrap();
        let again = fd.try_clone().unwrap();
        assert!(matches!(Scoreboard::open(fd, 2, 2, 0), Err(ScoreboardError::Size { .. })));
        assert!(matches!(Scoreboard::open(again, 2, 1, 1), Err(ScoreboardError::Size { .. })));
    }

    #[test]
    fn value_written_through_one_mapping_is_seen_through_the_other() {
        let (board, fd) = Scoreboard::create(1, 1, 0).unwrap();
        let other = Scoreboard::open(fd, 1, 1, 0).unwrap();
        board.owner(0).set(Field::Tubes, 5);
        assert_eq!(other.total(Field::Tubes), 5);
    }
}

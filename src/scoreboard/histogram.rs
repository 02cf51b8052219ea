//! How long things took, counted in buckets: one array of words a kind and record, written by the record's one
//! writer. As counters, they outlive the process that counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Histogram {
    /// Owner: one sync of its log.
    Sync,
    /// Owner: from the wake-up that brought commands until their replies left.
    Batch,
    /// Frontend: from the wake-up that brought a command until its owner's reply came. Of pipelined commands
    /// for one owner, the first until the reply of the last; without reserves that may wait.
    RoundTrip,
}

/// Upper bounds of all buckets but the last, which has none, in microseconds: from a command in memory to a
/// disk that hangs.
pub const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// How many kinds there are.
pub(super) const HISTOGRAMS: usize = Histogram::RoundTrip as usize + 1;

/// The sum in nanoseconds, then the buckets.
pub(super) const HISTOGRAM_WORDS: usize = 1 + BOUNDS_US.len() + 1;

const _: () = {
    let mut at = 1;
    while at < BOUNDS_US.len() {
        assert!(BOUNDS_US[at - 1] < BOUNDS_US[at]);
        at += 1;
    }
};

/// What was counted so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Of all that was measured, in nanoseconds.
    pub sum_ns: u64,
    /// Measurements up to each bound and above the one before; the last has no bound.
    pub buckets: [u64; BOUNDS_US.len() + 1],
}

impl Times {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(super) fn read(words: &[AtomicU64]) -> Times {
        let mut times = Times { sum_ns: words[0].load(Relaxed), ..Times::default() };
        for (bucket, word) in times.buckets.iter_mut().zip(&words[1..]) {
            *bucket = word.load(Relaxed);
        }
        times
    }
}

pub(super) fn observe(words: &[AtomicU64], time: Duration) {
    let ns = time.as_nanos() as u64;
    let bucket = BOUNDS_US.partition_point(|&bound| bound * 1000 < ns);
    // One writer: no two of these meet.
    for (word, more) in [(&words[0], ns), (&words[1 + bucket], 1)] {
        word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
    }
}

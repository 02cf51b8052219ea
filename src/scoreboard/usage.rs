//! A process's own processor time, published now and then.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

use super::{Field, Record};

/// No more often than this: it costs a system call, and who reads it looks once a second.
const INTERVAL: Duration = Duration::from_millis(100);

/// Adds the time of this generation to that of the ones before.
pub struct Usage<'a> {
    record: Record<'a>,
    user_before: u64,
    system_before: u64,
    at: Option<Instant>,
}

impl<'a> Usage<'a> {
    pub fn new(record: Record<'a>) -> Usage<'a> {
        Usage {
            record,
            user_before: record.get(Field::UserTime),
            system_before: record.get(Field::SystemTime),
            at: None,
        }
    }

    pub fn publish(&mut self) {
        let now = Instant::now();
        if self.at.is_some_and(|at| now.duration_since(at) < INTERVAL) {
            return;
        }
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return };
        self.at = Some(now);
        let micros = |t: TimeVal| t.num_microseconds().max(0) as u64;
        self.record.set(Field::UserTime, self.user_before + micros(usage.user_time()));
        self.record.set(Field::SystemTime, self.system_before + micros(usage.system_time()));
    }
}

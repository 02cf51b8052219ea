//! When sessions want to be looked after though nothing happens: one time each, on the server's clock.

use std::collections::BTreeSet;

/// The first of several times, of which there are mostly none. Asked for with each command: an iterator's
/// `flatten` and `min` took 400 instructions for it.
pub fn soonest<const N: usize>(times: [Option<i64>; N]) -> Option<i64> {
    let mut first = None;
    for time in times {
        first = match (first, time) {
            (Some(first), Some(time)) => Some(i64::min(first, time)),
            (first, time) => first.or(time),
        };
    }
    first
}

#[derive(Default)]
pub struct Alarms {
    times: BTreeSet<(i64, usize)>,
}

impl Alarms {
    /// Sets, moves or takes back the alarm of session `key`; `current` is what is set now.
    pub fn set(&mut self, key: usize, current: &mut Option<i64>, wanted: Option<i64>) {
        if *current == wanted {
            return;
        }
        if let Some(time) = *current {
            self.times.remove(&(time, key));
        }
        if let Some(time) = wanted {
            self.times.insert((time, key));
        }
        *current = wanted;
    }

    /// The next time at which one is due.
    pub fn next(&self) -> Option<i64> {
        self.times.first().map(|(time, _)| *time)
    }

    /// Sessions whose time has come. Their alarms stay set until the session moves them.
    pub fn due(&self, now: i64) -> Vec<usize> {
        self.times.iter().take_while(|(time, _)| *time <= now).map(|(_, key)| *key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_moved_or_taken_back_is_due_at_its_new_time_only() {
        let mut alarms = Alarms::default();
        let (mut a, mut b) = (None, None);
        alarms.set(1, &mut a, Some(10));
        alarms.set(2, &mut b, Some(5));
        alarms.set(1, &mut a, Some(20));
        assert_eq!(alarms.next(), Some(5));
        assert_eq!(alarms.due(10), [2]);
        alarms.set(2, &mut b, None);
        assert_eq!(alarms.next(), Some(20));
        assert_eq!(alarms.due(20), [1]);
    }
}

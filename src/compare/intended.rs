//! Where Trellis is meant to differ from the original, and why. Everything else that differs is a fault.
//!
//! `judge` asks here about each difference; `generate` leaves out what the list says is not generated,
//! because from there on the two servers would rightly be in different states.

use super::judge::Subject;

#[derive(Debug)]
pub struct Intended {
    pub name: &'static str,
    pub reason: &'static str,
    pub when: When,
    pub what: What,
}

/// In which runs it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    ManySlots,
    /// After a restart on a log.
    Restarted,
}

#[derive(Debug)]
pub enum What {
    /// These fields of a statistic need not be equal.
    Fields(Subject, &'static [&'static str]),
    /// Tubes are listed in another order.
    TubeOrder,
    /// Trellis may give this reply; the scenario ends there, since the servers are in different states then.
    Ends(&'static str),
    /// Never part of a generated scenario. In one that was written or recorded it shows as a difference.
    NotGenerated,
}

pub const LIST: &[Intended] = &[
    Intended {
        name: "another process",
        reason: "process ids, the random id, processor time and the moment of the start are each run's own",
        when: When::Always,
        what: What::Fields(Subject::Server, &["pid", "id", "rusage-utime", "rusage-stime", "uptime"]),
    },
    Intended {
        name: "several logs",
        reason: "each slot has its own log files, which fill up, and are compacted, at other moments",
        when: When::ManySlots,
        what: What::Fields(
            Subject::Server,
            &[
                "binlog-oldest-index",
                "binlog-current-index",
                "binlog-records-migrated",
                "binlog-records-written",
            ],
        ),
    },
    Intended {
        name: "log file of a job",
        reason: "each slot numbers its own log files",
        when: When::ManySlots,
        what: What::Fields(Subject::Job, &["file"]),
    },
    Intended {
        name: "compaction",
        reason: "the original counts short records as live, so its log never shrinks; our measure of live bytes moves \
                 records and drops files at other moments",
        when: When::Always,
        what: What::Fields(Subject::Server, &["binlog-oldest-index", "binlog-records-migrated"]),
    },
    Intended {
        name: "compaction moves jobs",
        reason: "a job's record is moved to a newer file at another moment",
        when: When::Always,
        what: What::Fields(Subject::Job, &["file"]),
    },
    Intended {
        name: "releases are logged",
        reason: "the original forgets a release without delay in its log; ours writes one more record",
        when: When::Always,
        what: What::Fields(Subject::Server, &["binlog-records-written", "binlog-current-index"]),
    },
    Intended {
        name: "buries after a restart",
        reason: "each start of the original buries buried jobs once more",
        when: When::Restarted,
        what: What::Fields(Subject::Job, &["buries"]),
    },
    Intended {
        name: "order of tubes",
        reason: "the lists of the slots are merged; within a slot it is the original's order",
        when: When::ManySlots,
        what: What::TubeOrder,
    },
    Intended {
        name: "reserve over several tubes",
        reason: "with several slots a reserve needs exactly one watched tube; it is refused at once, never served from \
                 one of them",
        when: When::ManySlots,
        what: What::Ends("UNSUPPORTED_MULTI_WATCH"),
    },
    Intended {
        name: "release before a restart",
        reason: "the original forgets priority and counts of a release without delay at a restart; with a log every \
                 generated release has a delay",
        when: When::Restarted,
        what: What::NotGenerated,
    },
    Intended {
        name: "order of buried jobs after a restart",
        reason: "it is not in the log; a kick of some of them, and a look at the first, are left out after a restart",
        when: When::Restarted,
        what: What::NotGenerated,
    },
    Intended {
        name: "bodies near the limit in a log",
        reason: "the original loses jobs of the limit or a byte less, and what follows them, at a restart",
        when: When::Restarted,
        what: What::NotGenerated,
    },
    Intended {
        name: "missed end of a reservation",
        reason: "the original misses the end of about every third TTR until the holder sends something: each holder \
                 does before what is due is compared",
        when: When::Always,
        what: What::NotGenerated,
    },
    Intended {
        name: "commands of a client that has gone",
        reason: "what waits behind a reserve is done after a half-close, but how much of it after a full close depends, \
                 with the original, on when the reset of the connection arrives",
        when: When::Always,
        what: What::NotGenerated,
    },
    Intended {
        name: "commands behind two reserves",
        reason: "when one command ends two waits, what the two clients have sent ahead alternates in no fixed order",
        when: When::Always,
        what: What::NotGenerated,
    },
    Intended {
        name: "unfinished put",
        reason: "the original finds a job whose body is still coming, and shows memory that was never written; ours \
                 finds it when it is whole. Its id is never known to a generated client",
        when: When::Always,
        what: What::NotGenerated,
    },
];

/// What kind of run asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub many_slots: bool,
    pub restarted: bool,
}

impl Intended {
    fn holds(&self, run: Run) -> bool {
        match self.when {
            When::Always => true,
            When::ManySlots => run.many_slots,
            When::Restarted => run.restarted,
        }
    }
}

/// The entry that allows this field to differ.
pub fn field(run: Run, subject: Subject, field: &str) -> Option<&'static Intended> {
    LIST.iter().find(|entry| {
        matches!(entry.what, What::Fields(of, fields) if of == subject && fields.contains(&field))
            && entry.holds(run)
    })
}

/// The entry that allows another order of tubes.
pub fn tube_order(run: Run) -> Option<&'static Intended> {
    LIST.iter().find(|entry| matches!(entry.what, What::TubeOrder) && entry.holds(run))
}

/// The entry that allows Trellis this reply in place of the original's.
pub fn reply(run: Run, line: &[u8]) -> Option<&'static Intended> {
    LIST.iter()
        .find(|entry| matches!(entry.what, What::Ends(text) if text.as_bytes() == line) && entry.holds(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Run = Run { many_slots: false, restarted: false };
    const MANY: Run = Run { many_slots: true, restarted: false };

    #[test]
    fn refusal_of_many_tubes_is_intended_with_many_slots_only() {
        assert!(reply(MANY, b"UNSUPPORTED_MULTI_WATCH").is_some());
        assert!(reply(ONE, b"UNSUPPORTED_MULTI_WATCH").is_none());
        assert!(reply(MANY, b"TIMED_OUT").is_none());
    }

    #[test]
    fn buries_may_differ_after_a_restart_only() {
        assert!(field(ONE, Subject::Job, "buries").is_none());
        assert!(field(Run { restarted: true, ..ONE }, Subject::Job, "buries").is_some());
        assert!(field(Run { restarted: true, ..ONE }, Subject::Job, "kicks").is_none());
    }

    #[test]
    fn order_of_tubes_is_the_originals_with_one_slot() {
        assert!(tube_order(ONE).is_none() && tube_order(MANY).is_some());
    }
}

//! Whether two replies are the same: ids by what they stand for, statistics field by field, the rest byte by
//! byte.
//!
//! Pure. Differences that `intended` allows are counted and pass.

use std::collections::BTreeMap;

use super::intended::{self, Intended, Run};
use super::reply::{Reply, decimal};

/// What a statistic is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Server,
    Tube,
    Job,
}

/// Which job of the original is which of Trellis.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    trellis: BTreeMap<u64, u64>,
    /// By name, the original's id.
    named: BTreeMap<String, u64>,
}

impl Ids {
    /// Both servers have inserted the same job.
    pub fn pair(&mut self, legacy: u64, trellis: u64) {
        // The original uses ids again after a restart without jobs: whoever had it before is gone.
        if self.trellis.insert(legacy, trellis).is_some() {
            self.named.retain(|_, id| *id != legacy);
        }
    }

    pub fn name(&mut self, name: &str, legacy: u64) {
        self.named.insert(name.to_owned(), legacy);
    }

    /// Both ids of the job with this name.
    pub fn of_name(&self, name: &str) -> Option<(u64, u64)> {
        let legacy = *self.named.get(name)?;
        Some((legacy, *self.trellis.get(&legacy)?))
    }

    pub fn name_of(&self, legacy: u64) -> Option<&str> {
        self.named.iter().find(|(_, id)| **id == legacy).map(|(name, _)| name.as_str())
    }

    /// All jobs that have been inserted, with both ids.
    pub fn all(&self) -> Vec<(u64, u64)> {
        self.trellis.iter().map(|(legacy, trellis)| (*legacy, *trellis)).collect()
    }

    fn knows_either(&self, legacy: u64, trellis: u64) -> bool {
        self.trellis.contains_key(&legacy) || self.trellis.values().any(|id| *id == trellis)
    }

    fn are_same(&self, legacy: u64, trellis: u64) -> bool {
        self.trellis.get(&legacy) == Some(&trellis)
    }
}

/// Why two replies are not the same.
#[derive(Debug)]
pub enum Unlike {
    /// In words, without the replies.
    Fault(String),
    /// It is meant to be so, and the servers are in different states from here on.
    Ends,
}

impl Unlike {
    fn fault(what: impl Into<String>) -> Unlike {
        Unlike::Fault(what.into())
    }
}

pub struct Judge {
    pub run: Run,
    pub ids: Ids,
    /// By this many seconds ages and remaining times may differ: they are read at different moments.
    pub seconds: i64,
    /// How often each allowed difference was met.
    pub met: BTreeMap<&'static str, u64>,
    /// Commands that were sent to each server for the comparison itself, by the field that counts them.
    pub own: [BTreeMap<&'static str, i64>; 2],
}

impl Judge {
    pub fn new(run: Run) -> Judge {
        Judge { run, ids: Ids::default(), seconds: 1, met: BTreeMap::new(), own: Default::default() }
    }

    /// Compares the next reply of a client on the original and on Trellis. `exact`: lists must have one order.
    pub fn compare(&mut self, legacy: &Reply, trellis: &Reply, exact: bool) -> Result<(), Unlike> {
        if let Some(entry) =
            intended::reply(self.run, trellis.line()).filter(|_| legacy.line() != trellis.line())
        {
            return Err(self.ends(entry));
        }
        if let (Some(one), Some(other)) = (legacy.fields(), trellis.fields()) {
            return self.compare_fields(&one, &other);
        }
        if let (Some(one), Some(other)) = (legacy.items(), trellis.items()) {
            return self.compare_lists(one, other, exact);
        }
        if let (Some(one), Some(other)) = (legacy.id(), trellis.id()) {
            return self.compare_jobs(legacy, one, trellis, other);
        }
        if legacy == trellis { Ok(()) } else { Err(Unlike::fault("another reply")) }
    }

    fn ends(&mut self, entry: &'static Intended) -> Unlike {
        *self.met.entry(entry.name).or_default() += 1;
        Unlike::Ends
    }

    fn compare_jobs(&mut self, legacy: &Reply, one: u64, trellis: &Reply, other: u64) -> Result<(), Unlike> {
        let (Reply::Line { line: a, body: x }, Reply::Line { line: b, body: y }) = (legacy, trellis) else {
            return Err(Unlike::fault("another reply"));
        };
        // The line but for its second word, which is the id.
        let rest = |line: &[u8]| -> Vec<Vec<u8>> {
            let words = line.split(|byte| *byte == b' ').enumerate().filter(|(at, _)| *at != 1);
            words.map(|(_, word)| word.to_vec()).collect()
        };
        if rest(a) != rest(b) || x != y {
            return Err(Unlike::fault("another reply"));
        }
        // Who put a job may have gone without waiting for its id: then it is named here for the first time.
        let unheard = !self.ids.knows_either(one, other);
        if unheard || legacy.first_word() == b"INSERTED" || legacy.first_word() == b"BURIED" {
            self.ids.pair(one, other);
        } else if !self.ids.are_same(one, other) {
            return Err(Unlike::fault("another job"));
        }
        Ok(())
    }

    fn compare_lists(&mut self, mut one: Vec<&str>, mut other: Vec<&str>, exact: bool) -> Result<(), Unlike> {
        if one == other {
            return Ok(());
        }
        one.sort_unstable();
        other.sort_unstable();
        match intended::tube_order(self.run).filter(|_| !exact && one == other) {
            Some(entry) => {
                *self.met.entry(entry.name).or_default() += 1;
                Ok(())
            }
            None => Err(Unlike::fault("another list")),
        }
    }

    fn compare_fields(&mut self, legacy: &[(&str, &str)], trellis: &[(&str, &str)]) -> Result<(), Unlike> {
        let keys =
            |fields: &[(&str, &str)]| fields.iter().map(|(key, _)| (*key).to_owned()).collect::<Vec<_>>();
        if keys(legacy) != keys(trellis) {
            return Err(Unlike::fault("other fields, or another order of them"));
        }
        let subject = match legacy.first() {
            Some(("id", _)) => Subject::Job,
            Some(("name", _)) => Subject::Tube,
            _ => Subject::Server,
        };
        let mut wrong = Vec::new();
        for ((key, one), (_, other)) in legacy.iter().zip(trellis) {
            if self.are_same_values(subject, key, one, other) {
                continue;
            }
            match intended::field(self.run, subject, key) {
                Some(entry) => *self.met.entry(entry.name).or_default() += 1,
                None => wrong.push(format!("{key}: {one} and {other}")),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(Unlike::Fault(wrong.join(", "))) }
    }

    fn are_same_values(&self, subject: Subject, key: &str, one: &str, other: &str) -> bool {
        let numbers = || Some((one.parse::<i64>().ok()?, other.parse::<i64>().ok()?));
        match (subject, key) {
            (Subject::Job, "id") => decimal(one.as_bytes())
                .zip(decimal(other.as_bytes()))
                .is_some_and(|(one, other)| self.ids.are_same(one, other)),
            (_, "age" | "time-left" | "pause-time-left") => {
                numbers().is_some_and(|(one, other)| (one - other).abs() <= self.seconds)
            }
            (Subject::Server, _) => {
                let own = |server: usize| self.own[server].get(key).copied().unwrap_or(0);
                one == other || numbers().is_some_and(|(one, other)| one - own(0) == other - own(1))
            }
            _ => one == other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        Reply::take(text.as_bytes()).unwrap().0
    }

    fn body(text: &str) -> Reply {
        reply(&format!("OK {}\r\n{text}\r\n", text.len()))
    }

    fn judge(many_slots: bool) -> Judge {
        Judge::new(Run { many_slots, restarted: false })
    }

    fn fault(judge: &mut Judge, legacy: &Reply, trellis: &Reply) -> String {
        match judge.compare(legacy, trellis, false) {
            Err(Unlike::Fault(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ids_are_compared_by_the_job() {
        let mut judge = judge(true);
        judge.compare(&reply("INSERTED 1\r\n"), &reply("INSERTED 8\r\n"), false).unwrap();
        judge.compare(&reply("INSERTED 2\r\n"), &reply("INSERTED 5\r\n"), false).unwrap();
        judge.compare(&reply("RESERVED 2 1\r\nx\r\n"), &reply("RESERVED 5 1\r\nx\r\n"), false).unwrap();
        let (one, other) = (reply("RESERVED 1 1\r\nx\r\n"), reply("RESERVED 5 1\r\nx\r\n"));
        assert_eq!(fault(&mut judge, &one, &other), "another job");
        let other = reply("RESERVED 8 1\r\ny\r\n");
        assert_eq!(fault(&mut judge, &one, &other), "another reply");
    }

    #[test]
    fn job_that_nobody_was_told_of_is_known_from_its_first_reply() {
        let mut judge = judge(true);
        judge.compare(&reply("RESERVED 1 1\r\nx\r\n"), &reply("RESERVED 8 1\r\nx\r\n"), false).unwrap();
        let (one, other) = (reply("FOUND 1 1\r\nx\r\n"), reply("FOUND 5 1\r\nx\r\n"));
        assert_eq!(fault(&mut judge, &one, &other), "another job");
        let one = reply("FOUND 2 1\r\nx\r\n");
        assert_eq!(fault(&mut judge, &one, &reply("FOUND 8 1\r\nx\r\n")), "another job");
    }

    #[test]
    fn id_that_is_used_again_is_the_new_jobs() {
        let mut ids = Ids::default();
        ids.pair(1, 1);
        ids.name("old", 1);
        ids.pair(1, 9);
        ids.name("new", 1);
        assert_eq!((ids.of_name("old"), ids.of_name("new")), (None, Some((1, 9))));
    }

    #[test]
    fn fields_that_differ_are_named_and_own_commands_taken_off() {
        let mut judge = judge(false);
        let (one, other) = (body("---\ncmd-stats: 9\ncmd-put: 1\n"), body("---\ncmd-stats: 4\ncmd-put: 2\n"));
        judge.own = [[("cmd-stats", 7)].into(), [("cmd-stats", 2)].into()];
        assert_eq!(fault(&mut judge, &one, &other), "cmd-put: 1 and 2");
    }

    #[test]
    fn times_may_differ_by_a_second_only() {
        let mut judge = judge(false);
        judge.ids.pair(1, 1);
        let job = |age: u32| body(&format!("---\nid: 1\nage: {age}\n"));
        judge.compare(&job(3), &job(4), false).unwrap();
        assert_eq!(fault(&mut judge, &job(3), &job(5)), "age: 3 and 5");
    }

    #[test]
    fn order_of_tubes_matters_with_one_slot_and_in_exact_lists() {
        let (one, other) = (body("---\n- a\n- b\n"), body("---\n- b\n- a\n"));
        assert_eq!(fault(&mut judge(false), &one, &other), "another list");
        judge(true).compare(&one, &other, false).unwrap();
        assert!(judge(true).compare(&one, &other, true).is_err());
    }

    #[test]
    fn refusal_of_many_tubes_ends_with_many_slots() {
        let (one, other) = (reply("TIMED_OUT\r\n"), reply("UNSUPPORTED_MULTI_WATCH\r\n"));
        assert!(matches!(judge(true).compare(&one, &other, false), Err(Unlike::Ends)));
        assert_eq!(fault(&mut judge(false), &one, &other), "another reply");
    }
}

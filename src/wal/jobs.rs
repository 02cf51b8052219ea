//! The jobs that replay leaves, without their bodies, in the order in which the core would have them.
//!
//! The core keeps a list while it replays: a job enters it at the end with its first record and keeps its
//! place whatever follows, until a deletion takes it out. The order decides nothing but which of the buried
//! jobs is kicked first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::format::{Jobrec, State, Version};

/// A live job and where its body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub tube: Arc<[u8]>,
    /// As of its last record; the state is never `Invalid`, and never `Reserved`, which reads as `Ready`.
    pub jobrec: Jobrec,
    /// Number of the file with its last full record.
    pub file: u32,
    /// Offset in that file of its body.
    pub body_offset: u64,
}

impl Job {
    pub fn id(&self) -> u64 {
        self.jobrec.id
    }

    /// Of the body with its CR LF.
    pub fn body_bytes(&self) -> u32 {
        self.jobrec.body_size as u32
    }

    /// What a full record of it takes in the version that is written now.
    pub fn record_bytes(&self) -> u64 {
        (Version::V7.short_bytes() + self.tube.len()) as u64 + u64::from(self.body_bytes())
    }

    /// Takes over a later record's fields.
    pub(super) fn update(&mut self, jobrec: Jobrec) {
        assert_eq!((jobrec.id, jobrec.body_size), (self.jobrec.id, self.jobrec.body_size));
        self.jobrec = alive(jobrec);
    }
}

/// Live jobs by id.
// places.len() + gaps == jobs.len(); places of an id is where its job is
#[derive(Default)]
pub struct JobTable {
    /// In the order in which they came; gaps are jobs that were removed.
    jobs: Vec<Option<Job>>,
    gaps: usize,
    places: HashMap<u64, u32>,
    // Each name once, however many jobs are in the tube.
    tubes: HashSet<Arc<[u8]>>,
    tubes_checked: usize,
}

impl JobTable {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The sum of `Job::record_bytes`.
    pub fn record_bytes(&self) -> u64 {
        self.iter().map(Job::record_bytes).sum()
    }

    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs[*self.places.get(&id)? as usize].as_ref()
    }

    /// All of them as the core's replay would list them.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().flatten()
    }

    pub(super) fn job_mut(&mut self, id: u64) -> Option<&mut Job> {
        self.jobs[*self.places.get(&id)? as usize].as_mut()
    }

    /// A job that is not in the table.
    pub(super) fn insert(&mut self, tube: &[u8], jobrec: Jobrec, file: u32, body_offset: u64) {
        let tube = self.tube(tube);
        let place = u32::try_from(self.jobs.len()).expect("memory is short of four billion jobs");
        self.jobs.push(Some(Job { tube, jobrec: alive(jobrec), file, body_offset }));
        let before = self.places.insert(jobrec.id, place);
        assert!(before.is_none(), "job {} is in the table", jobrec.id);
    }

    pub(super) fn remove(&mut self, id: u64) {
        let Some(place) = self.places.remove(&id) else { return };
        self.jobs[place as usize] = None;
        self.gaps += 1;
        // Closing gaps when they are the half keeps the cost linear and memory with the living.
        if self.gaps > 1024 && self.gaps > self.jobs.len() / 2 {
            self.jobs.retain(Option::is_some);
            self.gaps = 0;
            for (place, job) in self.jobs.iter().flatten().enumerate() {
                self.places.insert(job.id(), place as u32);
            }
        }
    }

    fn tube(&mut self, name: &[u8]) -> Arc<[u8]> {
        if let Some(tube) = self.tubes.get(name) {
            return tube.clone();
        }
        // Names of tubes that have no job any more go whenever the set has doubled: the cost stays linear.
        if self.tubes.len() >= self.tubes_checked.max(64) * 2 {
            self.tubes.retain(|tube| Arc::strong_count(tube) > 1);
            self.tubes_checked = self.tubes.len();
        }
        let tube: Arc<[u8]> = name.into();
        self.tubes.insert(tube.clone());
        tube
    }
}

fn alive(jobrec: Jobrec) -> Jobrec {
    assert_ne!(jobrec.state, State::Invalid, "a deletion is no state of a live job");
    let state = if jobrec.state == State::Reserved { State::Ready } else { jobrec.state };
    Jobrec { state, ..jobrec }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobrec(id: u64) -> Jobrec {
        let bytes = [1; Version::V7.jobrec_bytes()];
        Jobrec { id, body_size: 5, ..Jobrec::decode(Version::V7, &bytes).unwrap() }
    }

    #[test]
    fn job_keeps_its_place_until_it_is_removed() {
        let mut table = JobTable::default();
        for id in [3, 1, 2] {
            table.insert(b"t", jobrec(id), 1, 0);
        }
        let order = |table: &JobTable| table.iter().map(|job| job.id()).collect::<Vec<_>>();
        table.job_mut(3).unwrap().update(Jobrec { state: State::Reserved, ..jobrec(3) });
        assert_eq!(order(&table), [3, 1, 2]);
        assert_eq!(table.job(3).unwrap().jobrec.state, State::Ready);
        table.remove(3);
        table.insert(b"t", jobrec(3), 1, 0);
        assert_eq!(order(&table), [1, 2, 3]);
        assert_eq!(table.record_bytes(), 3 * (4 + 1 + 80 + 5));
    }

    #[test]
    fn tube_names_do_not_pile_up() {
        let mut table = JobTable::default();
        for id in 1..10_000 {
            table.insert(format!("t{id}").as_bytes(), jobrec(id), 1, 0);
            table.remove(id);
        }
        assert!(table.tubes.len() <= 128, "{} names", table.tubes.len());
        assert!(table.jobs.len() <= 2048, "{} places", table.jobs.len());
    }

    #[test]
    fn order_survives_the_closing_of_gaps() {
        let mut table = JobTable::default();
        for id in 1..=5000 {
            table.insert(b"t", jobrec(id), 1, id);
        }
        for id in (1..=5000).filter(|id| id % 5 != 0) {
            table.remove(id);
        }
        let left: Vec<u64> = table.iter().map(|job| job.id()).collect();
        assert_eq!(left, (1..=1000).map(|n| n * 5).collect::<Vec<u64>>());
        assert!(left.iter().all(|&id| table.job(id).unwrap().body_offset == id));
        assert_eq!(table.len(), 1000);
    }
}

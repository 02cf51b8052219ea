//! What records mean for their job, and a table of the jobs that replay leaves, without their bodies.
//!
//! `objection` and `follow` say what a record means; whoever reads logs keeps the jobs as it likes: this table
//! in memory, `sorted` on disk.
//!
//! The core keeps a list while it replays: a job enters it at the end with its first record and keeps its
//! place whatever follows, until a deletion takes it out. The order decides nothing but which of the buried
//! jobs is kicked first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::finding::Cause;
use super::format::{Jobrec, State, TubeName, Version};
use super::reader::{Record, RecordKind};

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
    fn update(&mut self, jobrec: Jobrec) {
        assert_eq!((jobrec.id, jobrec.body_size), (self.jobrec.id, self.jobrec.body_size));
        self.jobrec = alive(jobrec);
    }
}

/// What a whole record says of its job.
pub(super) struct Event {
    pub jobrec: Jobrec,
    /// None in a short record.
    pub full: Option<Full>,
}

/// What a full record alone has.
pub(super) struct Full {
    pub tube: Arc<[u8]>,
    pub file: u32,
    pub body_offset: u64,
}

/// Why a record can't follow upon what was read of its job before, if so. `can_be_cut` tells whether a crash can
/// have cut the record inside its job record; it is asked about deletions only.
pub(super) fn objection<E>(
    job: Option<&Job>,
    event: &Event,
    can_be_cut: impl FnOnce() -> Result<bool, E>,
) -> Result<Option<Cause>, E> {
    let Some(job) = job else { return Ok(None) };
    let contradiction = contradiction(job, event);
    let deletion = event.jobrec.state == State::Invalid;
    let doubtful = deletion && (contradiction.is_some() || fewer_events(job, event));
    if doubtful && can_be_cut()? {
        return Ok(Some(Cause::JobrecCut));
    }
    Ok(contradiction)
}

/// What never changes in a job's life, but does from its earlier records to this one.
pub(super) fn contradiction(job: &Job, event: &Event) -> Option<Cause> {
    let (id, was, now) = (job.id(), job.body_bytes(), event.jobrec.body_size as u32);
    if now != was {
        return Some(Cause::SizeChanged { id, was, now });
    }
    match &event.full {
        Some(full) if full.tube != job.tube => {
            let name = |tube| TubeName::new(tube).expect("a name from a record is legal").to_string().into();
            Some(Cause::TubeChanged { id, was: name(&job.tube), now: name(&full.tube) })
        }
        _ if event.jobrec.created_at != job.jobrec.created_at => Some(Cause::IdReused(id)),
        _ => None,
    }
}

/// Counts that go down: in no record of a live job, and in one that was cut before its counts.
fn fewer_events(job: &Job, event: &Event) -> bool {
    let counts = |r: &Jobrec| [r.reserves, r.timeouts, r.releases, r.buries, r.kicks];
    counts(&event.jobrec).iter().zip(counts(&job.jobrec)).any(|(now, was)| *now < was)
}

/// The job behind a record to which there is no objection; none if there is none any more.
pub(super) fn follow(job: Option<Job>, event: Event) -> Option<Job> {
    let Event { jobrec, full } = event;
    match (job, full) {
        (_, None) if jobrec.state == State::Invalid => None,
        // Its full record was in a file that is gone, so it was deleted or written anew.
        (None, None) => None,
        (None, Some(Full { tube, file, body_offset })) => {
            Some(Job { tube, jobrec: alive(jobrec), file, body_offset })
        }
        (Some(mut job), full) => {
            job.update(jobrec);
            if let Some(full) = full {
                (job.file, job.body_offset) = (full.file, full.body_offset);
            }
            Some(job)
        }
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

    /// Takes the job of a record through it.
    pub(super) fn apply(&mut self, event: Event) {
        let id = event.jobrec.id;
        match self.places.get(&id).copied() {
            None => {
                if let Some(job) = follow(None, event) {
                    let place = u32::try_from(self.jobs.len()).expect("memory is short of four billion jobs");
                    self.places.insert(id, place);
                    self.jobs.push(Some(job));
                }
            }
            Some(place) => {
                let job = self.jobs[place as usize].take();
                match follow(job, event) {
                    None => self.leave(id),
                    job => self.jobs[place as usize] = job,
                }
            }
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        if let Some(place) = self.places.get(&id) {
            self.jobs[*place as usize] = None;
            self.leave(id);
        }
    }

    /// The job of this id has just left its place.
    fn leave(&mut self, id: u64) {
        self.places.remove(&id);
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

    /// A record's event, with the tube's name as all jobs of the tube have it.
    pub(super) fn event(&mut self, file: u32, record: &Record) -> Event {
        let full = match &record.kind {
            RecordKind::Full { tube, body } => {
                Some(Full { tube: self.tube(tube.as_bytes()), file, body_offset: body.start })
            }
            RecordKind::Short => None,
        };
        Event { jobrec: record.jobrec, full }
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

    fn put(table: &mut JobTable, tube: &[u8], id: u64, body_offset: u64) {
        let full = Full { tube: table.tube(tube), file: 1, body_offset };
        table.apply(Event { jobrec: jobrec(id), full: Some(full) });
    }

    #[test]
    fn job_keeps_its_place_until_it_is_removed() {
        let mut table = JobTable::default();
        for id in [3, 1, 2] {
            put(&mut table, b"t", id, 0);
        }
        let order = |table: &JobTable| table.iter().map(|job| job.id()).collect::<Vec<_>>();
        table.apply(Event { jobrec: Jobrec { state: State::Reserved, ..jobrec(3) }, full: None });
        assert_eq!(order(&table), [3, 1, 2]);
        assert_eq!(table.job(3).unwrap().jobrec.state, State::Ready);
        table.apply(Event { jobrec: Jobrec { state: State::Invalid, ..jobrec(3) }, full: None });
        put(&mut table, b"t", 3, 0);
        assert_eq!(order(&table), [1, 2, 3]);
        assert_eq!(table.record_bytes(), 3 * (4 + 1 + 80 + 5));
    }

    #[test]
    fn tube_names_do_not_pile_up() {
        let mut table = JobTable::default();
        for id in 1..10_000 {
            put(&mut table, format!("t{id}").as_bytes(), id, 0);
            table.remove(id);
        }
        assert!(table.tubes.len() <= 128, "{} names", table.tubes.len());
        assert!(table.jobs.len() <= 2048, "{} places", table.jobs.len());
    }

    #[test]
    fn order_survives_the_closing_of_gaps() {
        let mut table = JobTable::default();
        for id in 1..=5000 {
            put(&mut table, b"t", id, id);
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

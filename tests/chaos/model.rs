//! Histories of a server that makes no mistake: a model of one, in memory, with a clock that only it moves.
//!
//! Commands overlap as real ones do: each is done at some moment between its start and its end. Some get no reply,
//! done or not; now and then a slot loses its reservations.

use crate::history::{Action, Death, Found, History, Moment, Op, Outcome, Rest, SECOND, Victim};
use crate::support::Random;
use crate::support::routing::{slot_of, tubes};
use std::collections::BTreeMap;

const SLOTS: u32 = 2;
const CLIENTS: usize = 4;

#[derive(Clone, Debug)]
struct Job {
    tube: String,
    priority: u32,
    body: String,
    buried: bool,
    holder: Option<usize>,
}

pub struct Model {
    random: Random,
    history: History,
    jobs: BTreeMap<u64, Job>,
    next_ids: [u64; SLOTS as usize],
    tubes: Vec<String>,
    now: Moment,
    /// When each client's last command ended, and its connection.
    clients: [(Moment, u64); CLIENTS],
    connections: u64,
    bodies: u64,
}

/// A history of about so many commands.
pub fn history(mut random: Random, commands: usize) -> History {
    let mut tubes = tubes(SLOTS, "one");
    tubes.extend(crate::support::routing::tubes(SLOTS, "two"));
    random.next();
    let mut model = Model {
        random,
        history: History { slots: SLOTS, durable: true, ..History::default() },
        jobs: BTreeMap::new(),
        next_ids: [u64::from(SLOTS), 1],
        tubes,
        now: 10 * SECOND,
        clients: std::array::from_fn(|number| (0, number as u64)),
        connections: CLIENTS as u64,
        bodies: 0,
    };
    for _ in 0..commands {
        model.step();
    }
    model.finish()
}

impl Model {
    fn step(&mut self) {
        // What the server does is done now, one thing after the other.
        self.now += 1 + self.random.below(SECOND as usize / 100) as Moment;
        if self.random.once_in(150) {
            return self.die();
        }
        let client = self.random.below(CLIENTS);
        let held: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| job.holder == Some(client)).map(|(id, _)| *id).collect();
        match self.random.below(10) {
            0..4 => self.put(client),
            4..7 => self.reserve(client),
            7 if self.random.once_in(4) => self.leave(client),
            7 => self.peek(client),
            _ if held.is_empty() => self.reserve(client),
            _ => {
                let id = *self.random.pick(&held);
                self.use_job(client, id);
            }
        }
    }

    /// Records a command that was done now. Its start and end lie around that, and after the client's last one.
    /// False if the client gets no reply.
    fn record(&mut self, client: usize, action: Action, outcome: Outcome) -> bool {
        let (last, connection) = self.clients[client];
        let before = self.random.below(SECOND as usize / 50) as Moment;
        let start = (self.now - before).max(last + 1).min(self.now);
        let end = self.now + self.random.below(SECOND as usize / 50) as Moment;
        let lost = self.random.once_in(40);
        let outcome = if lost { Outcome::Unknown } else { outcome };
        self.history.ops.push(Op { client, connection, start, end, action, outcome });
        self.clients[client].0 = end;
        if lost {
            self.hang_up(client);
        }
        !lost
    }

    /// The client's connection ends: what it held is ready again, and its next command comes over a new one.
    fn hang_up(&mut self, client: usize) {
        self.jobs.values_mut().filter(|job| job.holder == Some(client)).for_each(|job| job.holder = None);
        self.connections += 1;
        self.clients[client].1 = self.connections;
    }

    fn put(&mut self, client: usize) {
        // A client's next command can't be done before its last one has ended.
        self.now = self.now.max(self.clients[client].0 + 2);
        let tube = self.random.pick(&self.tubes).clone();
        let slot = slot_of(&tube, SLOTS);
        self.bodies += 1;
        let (priority, body) = (self.random.below(2) as u32, format!("{tube}/{}", self.bodies));
        let action = Action::Put { tube: tube.clone(), priority, delay: 0, ttr: 60, body: body.clone() };
        // One in some is lost on the way and not done at all.
        if self.random.once_in(60) {
            let (last, connection) = self.clients[client];
            let start = last + 1;
            self.history.ops.push(Op {
                client,
                connection,
                start,
                end: self.now,
                action,
                outcome: Outcome::Unknown,
            });
            self.clients[client].0 = self.now;
            return self.hang_up(client);
        }
        let id = self.next_ids[usize::from(slot)];
        self.next_ids[usize::from(slot)] += u64::from(SLOTS);
        self.jobs.insert(id, Job { tube, priority, body, buried: false, holder: None });
        self.record(client, action, Outcome::Inserted(id));
    }

    fn reserve(&mut self, client: usize) {
        self.now = self.now.max(self.clients[client].0 + 2);
        let tube = self.random.pick(&self.tubes).clone();
        let ready =
            self.jobs.iter().filter(|(_, job)| job.tube == tube && !job.buried && job.holder.is_none());
        let best =
            ready.min_by_key(|(id, job)| (job.priority, **id)).map(|(id, job)| (*id, job.body.clone()));
        let action = Action::Reserve { tube };
        match best {
            None => _ = self.record(client, action, Outcome::Empty),
            Some((id, body)) => {
                self.jobs.get_mut(&id).expect("just found").holder = Some(client);
                self.record(client, action, Outcome::Job { id, body });
            }
        }
    }

    fn peek(&mut self, client: usize) {
        self.now = self.now.max(self.clients[client].0 + 2);
        let ids: Vec<u64> = self.jobs.keys().copied().collect();
        if !ids.is_empty() {
            let id = *self.random.pick(&ids);
            let body = self.jobs[&id].body.clone();
            self.record(client, Action::Peek { id }, Outcome::Job { id, body });
        }
    }

    fn use_job(&mut self, client: usize, id: u64) {
        self.now = self.now.max(self.clients[client].0 + 2);
        let job = self.jobs.get_mut(&id).expect("it is held");
        match self.random.below(6) {
            0 => {
                job.holder = None;
                job.priority = self.random.below(2) as u32;
                let action = Action::Release { id, priority: job.priority, delay: 0 };
                self.record(client, action, Outcome::Done);
            }
            1 => {
                (job.holder, job.buried) = (None, true);
                self.record(client, Action::Bury { id }, Outcome::Done);
            }
            2 => _ = self.record(client, Action::Touch { id }, Outcome::Done),
            _ => {
                self.jobs.remove(&id);
                self.record(client, Action::Delete { id }, Outcome::Done);
            }
        }
    }

    fn leave(&mut self, client: usize) {
        self.now = self.now.max(self.clients[client].0 + 2);
        let (last, connection) = self.clients[client];
        let (start, end) = (last + 1, self.now);
        let (action, outcome) = (Action::Leave, Outcome::Done);
        self.history.ops.push(Op { client, connection, start, end, action, outcome });
        self.clients[client].0 = end;
        self.hang_up(client);
    }

    /// An owner dies: the reservations of its slot are gone, with their jobs ready.
    fn die(&mut self) {
        let slot = self.random.below(SLOTS as usize) as u16;
        let of_slot = self.jobs.iter_mut().filter(|(id, _)| **id % u64::from(SLOTS) == u64::from(slot));
        of_slot.for_each(|(_, job)| job.holder = None);
        let (start, end) = (self.now - 1, self.now + 1);
        self.history.deaths.push(Death { start, end, victim: Victim::Owner(slot) });
        self.now = end;
    }

    fn finish(mut self) -> History {
        let found =
            self.jobs.into_iter().map(|(id, job)| (job.buried, Found { id, tube: job.tube, body: job.body }));
        let (buried, found): (Vec<bool>, Vec<Found>) = found.unzip();
        let buried = buried.into_iter().filter(|buried| *buried).count() as i64;
        let jobs = [found.len() as i64 - buried, 0, 0, buried];
        self.history.found = found;
        self.history.rest =
            Rest { jobs, jobs_of_tubes: jobs, connections: 1, waiting: 0, tubes: 3, tubes_listed: 3 };
        self.history
    }
}

//! Judges a history: names each promise that it breaks. Pure; knows no server.
//!
//! Only what must be wrong is named. Between the sending of a command and its reply the server may have done it at
//! any time; a command without a reply may have been done or not; a death ends reservations at an unknown moment.
//! Whatever can be explained that way is no violation.

use crate::history::{Action, Found, History, Moment, Op, Outcome, SECOND, Victim};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Acknowledged, never deleted, and not there in the end.
    Lost,
    /// One put, and two jobs of it.
    Doubled,
    /// A job that nobody put, or that was refused.
    Foreign,
    /// A body or a tube that is not the job's.
    Changed,
    /// One id for two jobs.
    IdTwice,
    /// An id that does not belong to the slot of its tube, or is too large.
    IdWrong,
    /// A deleted job was seen again.
    Risen,
    /// A job was deleted twice.
    DeletedTwice,
    /// Two clients held one job at the same time.
    HeldTwice,
    /// A better job was ready all the while.
    OutOfOrder,
    /// NOT_FOUND for a job that was there, or that the client held.
    Denied,
    /// A reply that the command can't have.
    OddReply,
    /// Numbers at rest that don't add up.
    Accounts,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub kind: Kind,
    pub what: String,
}

/// So long a client that is gone may still have a job, until its owner has seen that it is: an owner that is
/// stopped meanwhile sees it when it goes on.
const GHOST: Moment = 3 * SECOND;

/// What happens to a job that nobody has touched since its put.
enum Step<'h, 'c> {
    /// It is there, until the first operation that names it.
    Ready(&'c Job<'h>, Moment),
    Touched(&'c Job<'h>),
    /// A reserve gets it.
    Given(&'h Op, &'c Job<'h>),
}

/// What is known of one job from its put.
struct Job<'h> {
    id: u64,
    put: &'h Op,
    tube: &'h str,
    body: &'h str,
    priority: u32,
    delay: u32,
    ttr: u32,
}

struct Checker<'h> {
    history: &'h History,
    jobs: BTreeMap<u64, Job<'h>>,
    /// Operations that name a job or got it, by id, in the order of their starts.
    of_job: BTreeMap<u64, Vec<&'h Op>>,
    /// Operations of each connection, in their order.
    of_connection: BTreeMap<u64, Vec<&'h Op>>,
    violations: Vec<Violation>,
}

/// All violations of a history. Operations may come in any order, but for those of one connection.
pub fn check(history: &History) -> Vec<Violation> {
    let mut checker = Checker {
        history,
        jobs: BTreeMap::new(),
        of_job: BTreeMap::new(),
        of_connection: BTreeMap::new(),
        violations: Vec::new(),
    };
    checker.collect();
    checker.replies();
    checker.puts();
    checker.sightings();
    checker.deletions();
    checker.holds();
    checker.denials();
    checker.order();
    checker.accounts();
    checker.violations
}

/// The id and the body that an operation got.
fn got(op: &Op) -> Option<(u64, &str)> {
    match &op.outcome {
        Outcome::Job { id, body } => Some((*id, body)),
        _ => None,
    }
}

impl<'h> Checker<'h> {
    fn blame(&mut self, kind: Kind, what: String) {
        self.violations.push(Violation { kind, what });
    }

    fn collect(&mut self) {
        for op in &self.history.ops {
            self.of_connection.entry(op.connection).or_default().push(op);
            if let Some(id) = op.action.id().or(got(op).map(|(id, _)| id)) {
                self.of_job.entry(id).or_default().push(op);
            }
        }
        self.of_job.values_mut().for_each(|ops| ops.sort_by_key(|op| op.start));
    }

    /// Each reply is one that its command can have.
    fn replies(&mut self) {
        for op in &self.history.ops {
            use {Action::*, Outcome::*};
            let fits = match (&op.action, &op.outcome) {
                (_, Unknown | Refused) => true,
                (Put { .. }, Inserted(_)) => true,
                (Reserve { .. }, Job { .. } | Empty) => true,
                (ReserveJob { id } | Peek { id }, Job { id: got, .. }) => id == got,
                (ReserveJob { .. } | Peek { .. }, NotFound) => true,
                (
                    Delete { .. } | Release { .. } | Bury { .. } | Touch { .. } | KickJob { .. },
                    Done | NotFound,
                ) => true,
                (Kick { .. } | Leave, Done) => true,
                _ => false,
            };
            if !fits {
                self.blame(Kind::OddReply, format!("{op:?}"));
            }
        }
    }

    /// Ids of acknowledged puts are new and fit their slot.
    fn puts(&mut self) {
        for op in &self.history.ops {
            let (Action::Put { tube, priority, delay, ttr, body }, Outcome::Inserted(id)) =
                (&op.action, &op.outcome)
            else {
                continue;
            };
            let slots = self.history.slots;
            if *id >= 1 << 53
                || id % u64::from(slots) != u64::from(crate::support::routing::slot_of(tube, slots))
            {
                self.blame(Kind::IdWrong, format!("id {id} in {tube}"));
            }
            let job = Job { id: *id, put: op, tube, body, priority: *priority, delay: *delay, ttr: *ttr };
            if let Some(other) = self.jobs.insert(*id, job) {
                let what = format!("id {id} is of {:?} and of {body:?}", other.body);
                self.blame(Kind::IdTwice, what);
            }
        }
    }

    /// What was given to clients and what is there in the end was put, and is as it was put.
    fn sightings(&mut self) {
        let mut puts: BTreeMap<&str, &Op> = BTreeMap::new();
        for op in &self.history.ops {
            if let Action::Put { body, .. } = &op.action {
                puts.insert(body, op);
            }
        }
        // Ids under which a body was seen, and the other way round.
        let mut ids: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        let mut bodies: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
        let seen = self.history.ops.iter().filter_map(|op| {
            let (id, body) = got(op)?;
            let tube = if let Action::Reserve { tube } = &op.action { Some(tube.as_str()) } else { None };
            Some((id, body, tube))
        });
        let found = self.history.found.iter().map(|f| (f.id, f.body.as_str(), Some(f.tube.as_str())));
        for (id, body, tube) in seen.chain(found).collect::<Vec<_>>() {
            ids.entry(body).or_default().insert(id);
            bodies.entry(id).or_default().insert(body);
            match self.jobs.get(&id) {
                Some(job) if job.body != body => {
                    let what = format!("job {id} was put as {:?} and came as {body:?}", job.body);
                    self.blame(Kind::Changed, what);
                }
                Some(job) if tube.is_some_and(|tube| tube != job.tube) => {
                    let what = format!("job {id} was put into {} and came out of {tube:?}", job.tube);
                    self.blame(Kind::Changed, what);
                }
                Some(_) => {}
                // Not acknowledged: it must be one whose outcome its client does not know.
                None => match puts.get(body) {
                    Some(Op {
                        outcome: Outcome::Unknown, action: Action::Put { tube: into, .. }, ..
                    }) => {
                        if tube.is_some_and(|tube| tube != into) {
                            self.blame(
                                Kind::Changed,
                                format!("{body:?} was put into {into} and came out of {tube:?}"),
                            );
                        }
                    }
                    Some(put) => {
                        self.blame(Kind::Foreign, format!("job {id} is there, and its put was {put:?}"))
                    }
                    None => self.blame(Kind::Foreign, format!("nobody put job {id}, {body:?}")),
                },
            }
        }
        for (body, ids) in ids {
            if ids.len() > 1 {
                self.blame(Kind::Doubled, format!("{body:?} was put once and is jobs {ids:?}"));
            }
        }
        for (id, bodies) in bodies {
            if bodies.len() > 1 && !self.jobs.contains_key(&id) {
                self.blame(Kind::IdTwice, format!("id {id} is of {bodies:?}"));
            }
        }
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        self.history.found.iter().for_each(|found| *counts.entry(found.id).or_default() += 1);
        for (id, count) in counts {
            if count > 1 {
                self.blame(Kind::Doubled, format!("job {id} is there {count} times"));
            }
        }
    }

    /// A deleted job is gone for good; one that was not deleted is there.
    fn deletions(&mut self) {
        let found: BTreeMap<u64, &Found> = self.history.found.iter().map(|f| (f.id, f)).collect();
        let none = Vec::new();
        let ids: BTreeSet<u64> =
            self.jobs.keys().chain(self.of_job.keys()).chain(found.keys()).copied().collect();
        for id in ids {
            let ops = self.of_job.get(&id).unwrap_or(&none);
            let is_delete = |op: &&&Op| matches!(op.action, Action::Delete { .. });
            let done: Vec<&Op> =
                ops.iter().filter(is_delete).filter(|op| op.outcome == Outcome::Done).copied().collect();
            let maybe = ops.iter().filter(is_delete).any(|op| op.outcome == Outcome::Unknown);
            let missing = !maybe && !found.contains_key(&id);
            if done.len() > 1 {
                self.violations
                    .push(Violation { kind: Kind::DeletedTwice, what: format!("job {id}: {done:?}") });
            }
            if let Some(first) = done.iter().map(|op| op.end).min() {
                let late =
                    ops.iter().find(|op| op.start > first && got(op).is_some()).map(|op| format!("{op:?}"));
                let there = found.get(&id).map(|found| format!("{found:?}"));
                if let Some(seen) = late.or(there) {
                    let what = format!("job {id} was deleted by {first} and then seen: {seen}");
                    self.violations.push(Violation { kind: Kind::Risen, what });
                }
            } else if let Some(job) = self.jobs.get(&id).filter(|job| missing && !self.may_be_gone(job)) {
                let what = format!("job {id}, {:?}, acknowledged at {}", job.body, job.put.end);
                self.violations.push(Violation { kind: Kind::Lost, what });
            }
        }
    }

    /// Its slot's memory was lost after it was put, and nothing else had it.
    fn may_be_gone(&self, job: &Job<'_>) -> bool {
        !self.history.durable && self.dies(job.id, job.put.start, Moment::MAX, false).is_some()
    }

    /// The first moment in a span at which the slot of a job may have lost its memory; for a reservation the
    /// death of a frontend counts too.
    fn dies(&self, id: u64, from: Moment, to: Moment, reservation: bool) -> Option<Moment> {
        let slot = (id % u64::from(self.history.slots)) as u16;
        let concerns = |victim: Victim| match victim {
            Victim::Owner(other) => other == slot,
            Victim::Frontend => reservation,
            Victim::Supervisor => true,
        };
        let deaths =
            self.history.deaths.iter().filter(|d| concerns(d.victim) && d.end >= from && d.start <= to);
        deaths.map(|death| death.start).min()
    }

    /// The span in which the reservation that an operation brought is certainly that client's: from the reply to
    /// the first thing that could have ended it. That the connection lives shows only in its next answer.
    fn hold(&self, op: &Op) -> Option<(u64, Moment, Moment)> {
        let (Action::Reserve { .. } | Action::ReserveJob { .. }, Outcome::Job { id, .. }) =
            (&op.action, &op.outcome)
        else {
            return None;
        };
        let ttr = Moment::from(self.jobs.get(id)?.ttr) * SECOND;
        let mut alive = op.end;
        for next in self.of_connection[&op.connection].iter().filter(|next| next.start >= op.end) {
            if next.outcome == Outcome::Unknown {
                break;
            }
            alive = next.start;
            let gives_back = match next.action {
                Action::Delete { id: other }
                | Action::Release { id: other, .. }
                | Action::Bury { id: other } => other == *id,
                Action::Leave => true,
                _ => false,
            };
            if gives_back {
                break;
            }
        }
        let mut end = alive.min(op.start + ttr);
        if let Some(death) = self.dies(*id, op.start, end, true) {
            end = end.min(death);
        }
        (op.end < end).then_some((*id, op.end, end))
    }

    fn holds(&mut self) {
        let mut spans: BTreeMap<u64, Vec<(Moment, Moment, &Op)>> = BTreeMap::new();
        for op in &self.history.ops {
            if let Some((id, start, end)) = self.hold(op) {
                spans.entry(id).or_default().push((start, end, op));
            }
        }
        for (id, mut spans) in spans {
            spans.sort_by_key(|(start, ..)| *start);
            for pair in spans.windows(2) {
                let [(_, end, first), (start, _, second)] = pair else { unreachable!("windows of two") };
                if start < end {
                    self.blame(Kind::HeldTwice, format!("job {id}: {first:?} and {second:?}"));
                }
            }
        }
    }

    /// A client that certainly holds a job can delete, release, bury and touch it; and a peek finds every job that
    /// nobody has tried to delete.
    fn denials(&mut self) {
        for op in self.history.ops.iter().filter(|op| op.outcome == Outcome::NotFound) {
            let Some(id) = op.action.id() else { continue };
            let Some(job) = self.jobs.get(&id) else { continue };
            let ops = &self.of_job[&id];
            let deleted_before = ops.iter().any(|other| {
                matches!(other.action, Action::Delete { .. })
                    && matches!(other.outcome, Outcome::Done | Outcome::Unknown)
                    && other.start < op.end
            });
            if deleted_before || job.put.end > op.start {
                continue;
            }
            let lost_memory = !self.history.durable && self.dies(id, job.put.start, op.end, false).is_some();
            let denied = match op.action {
                Action::Peek { .. } => !lost_memory,
                Action::Delete { .. }
                | Action::Release { .. }
                | Action::Bury { .. }
                | Action::Touch { .. } => {
                    let holds_it = |&&before: &&&Op| {
                        // Until this very operation began nothing had ended it.
                        before.connection == op.connection
                            && before.end <= op.start
                            && self.hold_reaches(before, id, op)
                    };
                    ops.iter().any(|before| holds_it(&before))
                }
                _ => false,
            };
            if denied {
                self.blame(Kind::Denied, format!("{op:?}"));
            }
        }
    }

    /// The reservation that `before` brought lasts until `op` is answered.
    fn hold_reaches(&self, before: &Op, id: u64, op: &Op) -> bool {
        let Some((held, _, end)) = self.hold(before) else { return false };
        let ttr = self.jobs.get(&id).map_or(0, |job| Moment::from(job.ttr) * SECOND);
        held == id
            && end >= op.start
            && op.end < before.start + ttr
            && self.dies(id, before.start, op.end, true).is_none()
    }

    /// Of jobs that were put without a delay and never touched since, the best comes first: by priority, then by id.
    fn order(&mut self) {
        let mut late = Vec::new();
        for (tube, moments) in self.moments_of_tubes() {
            // Certainly ready now, the best first, and until when.
            let mut ready: BTreeMap<(u32, u64), Moment> = BTreeMap::new();
            for (_, moment) in moments {
                match moment {
                    Step::Ready(job, until) => _ = ready.insert((job.priority, job.id), until),
                    Step::Touched(job) => _ = ready.remove(&(job.priority, job.id)),
                    Step::Given(op, job) => {
                        let mut better = ready.range(..(job.priority, job.id));
                        let Some(((priority, id), _)) = better.find(|(_, until)| **until > op.end) else {
                            continue;
                        };
                        late.push(format!("{op:?} of {tube} came before job {id} of priority {priority}"));
                    }
                }
            }
        }
        late.into_iter().for_each(|what| self.blame(Kind::OutOfOrder, what));
    }

    /// What happens to untouched jobs of each tube, in the order of time.
    fn moments_of_tubes(&self) -> BTreeMap<&'h str, Vec<(Moment, Step<'h, '_>)>> {
        // A reserve without a reply may have had any job of its tube, for a while after its end, too.
        let mut unsure: BTreeMap<&str, Vec<(Moment, Moment)>> = BTreeMap::new();
        for op in &self.history.ops {
            if let (Action::Reserve { tube }, Outcome::Unknown) = (&op.action, &op.outcome) {
                unsure.entry(tube).or_default().push((op.start, op.end + GHOST));
            }
        }
        let mut tubes: BTreeMap<&str, Vec<(Moment, Step<'_, '_>)>> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.delay == 0 && !self.may_be_gone(job)) {
            let moments = tubes.entry(job.tube).or_default();
            let first = self.of_job.get(&job.id).and_then(|ops| ops.first()).copied();
            let until = first.map_or(Moment::MAX, |op| op.start);
            moments.push((job.put.end, Step::Ready(job, until)));
            let Some(op) = first else { continue };
            moments.push((until, Step::Touched(job)));
            let overlaps = |&(start, end): &(Moment, Moment)| start <= op.end && end >= op.start;
            let is_sure = matches!(op.action, Action::Reserve { .. })
                && got(op).is_some()
                && !unsure.get(job.tube).is_some_and(|spans| spans.iter().any(overlaps))
                // A death hands jobs of lost reserves back, and the tube may be in any state around it.
                && self.dies(job.id, op.start.saturating_sub(GHOST), op.end, true).is_none();
            if is_sure {
                moments.push((op.start, Step::Given(op, job)));
            }
        }
        tubes.values_mut().for_each(|moments| moments.sort_by_key(|(at, _)| *at));
        tubes
    }

    fn accounts(&mut self) {
        let rest = &self.history.rest;
        let [ready, reserved, delayed, buried] = rest.jobs;
        let found = self.history.found.len() as i64;
        let claims = [
            (reserved == 0, "a job is reserved, and nobody is there"),
            (ready + delayed + buried == found, "not as many jobs as are found"),
            (rest.jobs == rest.jobs_of_tubes, "the sum of all tubes is another"),
            (rest.connections == 1, "somebody is there who has left"),
            (rest.waiting == 0, "somebody waits, and nobody is there"),
            (rest.tubes == rest.tubes_listed, "not as many tubes as are listed"),
        ];
        let wrong: Vec<&str> = claims.iter().filter(|(holds, _)| !holds).map(|(_, what)| *what).collect();
        for what in wrong {
            self.blame(Kind::Accounts, format!("{what}: {rest:?}, {found} found"));
        }
    }
}

//! The checker's own tests: it finds nothing in a right history, and each kind of damage done to one.

use crate::checker::{Kind, check};
use crate::history::{Action, Death, Found, History, Moment, Op, Outcome, Rest, Victim};
use crate::model;
use crate::support::Random;
use std::collections::BTreeSet;

const SEEDS: u64 = 30;
const COMMANDS: usize = 800;

/// Does one kind of damage at a place of chance. None if the history has no such place.
type Damage = fn(&mut History, &mut Random) -> Option<()>;

fn kinds(history: &History) -> BTreeSet<Kind> {
    check(history).into_iter().map(|violation| violation.kind).collect()
}

/// The damage is found in every history that has a place for it.
fn finds(kind: Kind, damage: Damage) {
    let mut tried = 0;
    for seed in 0..SEEDS {
        let mut random = Random::from_seed(seed);
        let mut history = model::history(random.clone(), COMMANDS);
        if damage(&mut history, &mut random).is_some() {
            tried += 1;
            let found = kinds(&history);
            assert!(found.contains(&kind), "seed {seed}: {kind:?} is not among {found:?}");
        }
    }
    assert!(tried > SEEDS / 2, "only {tried} of {SEEDS} histories could be damaged");
}

/// Place of one of the operations that fit.
fn some_op(history: &History, random: &mut Random, fits: impl Fn(&Op) -> bool) -> Option<usize> {
    let places: Vec<usize> = (0..history.ops.len()).filter(|&at| fits(&history.ops[at])).collect();
    (!places.is_empty()).then(|| *random.pick(&places))
}

fn inserted(op: &Op) -> Option<u64> {
    match op.outcome {
        Outcome::Inserted(id) => Some(id),
        _ => None,
    }
}

fn job(op: &Op) -> Option<u64> {
    match op.outcome {
        Outcome::Job { id, .. } => Some(id),
        _ => None,
    }
}

/// So that the accounts say nothing of what was changed.
fn balance(history: &mut History) {
    let [_, _, delayed, buried] = history.rest.jobs;
    history.rest.jobs[0] = history.found.len() as i64 - delayed - buried;
    history.rest.jobs_of_tubes = history.rest.jobs;
}

/// After everything that there is, on a connection of its own.
fn append(history: &mut History, action: Action, outcome: Outcome) {
    let end = history.ops.iter().map(|op| op.end).max().unwrap_or(0);
    let connection = history.ops.iter().map(|op| op.connection).max().unwrap_or(0) + 1;
    history.ops.push(Op { client: 99, connection, start: end + 1, end: end + 2, action, outcome });
}

#[test]
fn right_histories_are_found_right() {
    for seed in 0..4 * SEEDS {
        let history = model::history(Random::from_seed(seed), COMMANDS);
        let violations = check(&history);
        assert!(violations.is_empty(), "seed {seed}: {:?}", violations[0]);
        // They have what could be wrong in them.
        let has = |fits: fn(&Op) -> bool| history.ops.iter().any(fits);
        assert!(
            has(|op| job(op).is_some())
                && has(|op| op.outcome == Outcome::Unknown)
                && !history.found.is_empty()
        );
    }
}

/// A job of an acknowledged put that nobody may have deleted.
fn kept(history: &History, random: &mut Random) -> Option<usize> {
    let is_acknowledged = |id| history.ops.iter().any(|op| inserted(op) == Some(id));
    let may_be_deleted = |id| history.ops.iter().any(|op| op.action == Action::Delete { id });
    let places: Vec<usize> = (0..history.found.len())
        .filter(|&at| is_acknowledged(history.found[at].id) && !may_be_deleted(history.found[at].id))
        .collect();
    (!places.is_empty()).then(|| *random.pick(&places))
}

#[test]
fn lost_job_is_found() {
    finds(Kind::Lost, |history, random| {
        let at = kept(history, random)?;
        history.found.remove(at);
        balance(history);
        Some(())
    });
}

/// The reply said that it was not deleted; it is gone all the same.
#[test]
fn job_lost_by_a_refused_delete_is_found() {
    finds(Kind::Lost, |history, random| {
        let acknowledged: BTreeSet<u64> = history.ops.iter().filter_map(inserted).collect();
        let at = some_op(history, random, |op| {
            matches!(op.action, Action::Delete { id } if acknowledged.contains(&id))
                && op.outcome == Outcome::Done
        })?;
        history.ops[at].outcome = Outcome::Refused;
        Some(())
    });
}

#[test]
fn job_lost_without_a_log_is_found_where_its_slot_did_not_die() {
    finds(Kind::Lost, |history, random| {
        history.durable = false;
        history.deaths.clear();
        history.deaths.push(Death { start: 0, end: 1, victim: Victim::Owner(0) });
        let at = kept(history, random)?;
        history.found.remove(at);
        balance(history);
        Some(())
    });
}

#[test]
fn without_a_log_a_dead_slot_may_lose_its_jobs() {
    let mut history = model::history(Random::from_seed(1), COMMANDS);
    history.durable = false;
    history.found.retain(|found| found.id % 2 == 1);
    let end = history.ops.iter().map(|op| op.end).max().expect("commands");
    history.deaths.push(Death { start: end, end: end + 1, victim: Victim::Owner(0) });
    history.rest.jobs = [history.found.len() as i64, 0, 0, 0];
    history.rest.jobs_of_tubes = history.rest.jobs;
    let violations = check(&history);
    assert!(violations.is_empty(), "{:?}", violations[0]);
    history.durable = true;
    assert!(kinds(&history).contains(&Kind::Lost));
}

#[test]
fn job_that_is_there_twice_is_found() {
    finds(Kind::Doubled, |history, random| {
        let twin = random.pick(&history.found).clone();
        history.found.push(twin);
        balance(history);
        Some(())
    });
}

#[test]
fn put_that_became_two_jobs_is_found() {
    finds(Kind::Doubled, |history, random| {
        let mut twin = random.pick(&history.found).clone();
        twin.id += 1_000_000;
        history.found.push(twin);
        balance(history);
        Some(())
    });
}

#[test]
fn job_that_nobody_put_is_found() {
    finds(Kind::Foreign, |history, random| {
        let mut strange = random.pick(&history.found).clone();
        (strange.id, strange.body) = (strange.id + 1_000_000, "nobody's".to_owned());
        history.found.push(strange);
        balance(history);
        Some(())
    });
}

#[test]
fn refused_put_that_was_done_is_found() {
    finds(Kind::Foreign, |history, random| {
        let id = random.pick(&history.found).id;
        let at = some_op(history, random, |op| inserted(op) == Some(id))?;
        history.ops[at].outcome = Outcome::Refused;
        Some(())
    });
}

#[test]
fn changed_body_is_found() {
    finds(Kind::Changed, |history, random| {
        let acknowledged: BTreeSet<u64> = history.ops.iter().filter_map(inserted).collect();
        let at = some_op(history, random, |op| job(op).is_some_and(|id| acknowledged.contains(&id)))?;
        let Outcome::Job { body, .. } = &mut history.ops[at].outcome else { return None };
        body.pop();
        Some(())
    });
}

#[test]
fn job_of_another_tube_is_found() {
    finds(Kind::Changed, |history, random| {
        let at =
            some_op(history, random, |op| matches!(op.action, Action::Reserve { .. }) && job(op).is_some())?;
        history.ops[at].action = Action::Reserve { tube: "elsewhere".to_owned() };
        Some(())
    });
}

#[test]
fn id_that_is_given_twice_is_found() {
    finds(Kind::IdTwice, |history, random| {
        let first = some_op(history, random, |op| inserted(op).is_some())?;
        let second = some_op(history, random, |op| {
            inserted(op).is_some_and(|id| Some(id) != inserted(&history.ops[first]))
        })?;
        history.ops[second].outcome = history.ops[first].outcome.clone();
        Some(())
    });
}

#[test]
fn id_of_another_slot_or_too_large_is_found() {
    finds(Kind::IdWrong, |history, random| {
        let at = some_op(history, random, |op| inserted(op).is_some())?;
        let id = inserted(&history.ops[at])?;
        history.ops[at].outcome = Outcome::Inserted(if random.once_in(2) { id + 1 } else { id + (1 << 53) });
        Some(())
    });
}

#[test]
fn deleted_job_that_is_there_in_the_end_is_found() {
    finds(Kind::Risen, |history, random| {
        let at = some_op(history, random, |op| {
            matches!(op.action, Action::Delete { .. }) && op.outcome == Outcome::Done
        })?;
        let id = history.ops[at].action.id()?;
        let (tube, body) = history.ops.iter().find_map(|op| match &op.action {
            Action::Put { tube, body, .. } if inserted(op) == Some(id) => Some((tube.clone(), body.clone())),
            _ => None,
        })?;
        history.found.push(Found { id, tube, body });
        balance(history);
        Some(())
    });
}

#[test]
fn deleted_job_that_is_given_out_again_is_found() {
    finds(Kind::Risen, |history, random| {
        let at = some_op(history, random, |op| {
            matches!(op.action, Action::Delete { .. }) && op.outcome == Outcome::Done
        })?;
        let id = history.ops[at].action.id()?;
        let again = some_op(history, random, |op| {
            job(op) == Some(id) && matches!(op.action, Action::Reserve { .. })
        })?;
        let (action, outcome) = (history.ops[again].action.clone(), history.ops[again].outcome.clone());
        append(history, action, outcome);
        Some(())
    });
}

#[test]
fn job_that_is_deleted_twice_is_found() {
    finds(Kind::DeletedTwice, |history, random| {
        let at = some_op(history, random, |op| {
            matches!(op.action, Action::Delete { .. }) && op.outcome == Outcome::Done
        })?;
        let action = history.ops[at].action.clone();
        append(history, action, Outcome::Done);
        Some(())
    });
}

#[test]
fn job_that_two_clients_hold_is_found() {
    /// Room for the second one's commands.
    const GAP: Moment = 10;
    finds(Kind::HeldTwice, |history, random| {
        let acknowledged: BTreeSet<u64> = history.ops.iter().filter_map(inserted).collect();
        let next = |at: usize| {
            let op = &history.ops[at];
            history.ops[at + 1..].iter().find(|other| other.connection == op.connection)
        };
        let fits = |at: &usize| {
            let op = &history.ops[*at];
            let is_held = matches!(op.action, Action::Reserve { .. })
                && job(op).is_some_and(|id| acknowledged.contains(&id));
            let next = next(*at).filter(|next| next.outcome != Outcome::Unknown && next.start > op.end + GAP);
            let quiet = |until: Moment| !history.deaths.iter().any(|d| d.end >= op.start && d.start <= until);
            is_held && next.is_some_and(|next| quiet(next.start))
        };
        let places: Vec<usize> = (0..history.ops.len()).filter(fits).collect();
        let at = *random.pick(if places.is_empty() { return None } else { &places });
        let first = history.ops[at].clone();
        let id = job(&first)?;
        append(history, first.action, first.outcome);
        append(history, Action::Touch { id }, Outcome::Done);
        let [.., second, touch] = &mut history.ops[..] else { return None };
        touch.connection = second.connection;
        (second.start, second.end, touch.start, touch.end) =
            (first.end + 1, first.end + 2, first.end + 4, first.end + 5);
        Some(())
    });
}

/// A job that nobody has touched becomes a better one than those that were given out in its place.
#[test]
fn better_job_that_was_passed_over_is_found() {
    finds(Kind::OutOfOrder, |history, random| {
        // What else may explain the order is taken out.
        history.deaths.clear();
        history.ops.retain(|op| op.outcome != Outcome::Unknown);
        let touched: BTreeSet<u64> = history.ops.iter().filter_map(|op| op.action.id().or(job(op))).collect();
        let firsts: Vec<(Moment, u64, String)> = {
            let mut seen = BTreeSet::new();
            let mut ops: Vec<&Op> =
                history.ops.iter().filter(|op| op.action.id().or(job(op)).is_some()).collect();
            ops.sort_by_key(|op| op.start);
            let first = |op: &&Op| seen.insert(op.action.id().or(job(op)).expect("filtered"));
            let given = ops.into_iter().filter(first).filter_map(|op| match &op.action {
                Action::Reserve { tube } => Some((op.start, job(op)?, tube.clone())),
                _ => None,
            });
            given.collect()
        };
        let acknowledged: BTreeSet<u64> = history.ops.iter().filter_map(inserted).collect();
        let at = some_op(history, random, |op| {
            let (Some(id), Action::Put { tube, .. }) = (inserted(op), &op.action) else { return false };
            let passed = |(start, other, of): &(Moment, u64, String)| {
                of == tube && *start > op.end && *other > id && acknowledged.contains(other)
            };
            !touched.contains(&id) && firsts.iter().any(passed)
        })?;
        let Action::Put { priority, .. } = &mut history.ops[at].action else { return None };
        *priority = 0;
        Some(())
    });
}

#[test]
fn later_job_of_equal_priority_that_comes_first_is_found() {
    let tube = crate::support::routing::tube_on(0, 2, "fifo");
    let put = |number: u64| Action::Put {
        tube: tube.clone(),
        priority: 7,
        delay: 0,
        ttr: 60,
        body: format!("{tube}/{number}"),
    };
    let mut history = History { slots: 2, durable: true, ..History::default() };
    for number in [1, 2, 3] {
        append(&mut history, put(number), Outcome::Inserted(2 * number));
    }
    let got = |number: u64| Outcome::Job { id: 2 * number, body: format!("{tube}/{number}") };
    append(&mut history, Action::Reserve { tube: tube.clone() }, got(1));
    let mut wrong = history.clone();
    append(&mut wrong, Action::Reserve { tube: tube.clone() }, got(3));
    append(&mut history, Action::Reserve { tube: tube.clone() }, got(2));
    for history in [&mut history, &mut wrong] {
        for number in [1, 2, 3] {
            let body = format!("{tube}/{number}");
            history.found.push(Found { id: 2 * number, tube: tube.clone(), body });
        }
        history.rest = Rest { connections: 1, ..Rest::default() };
        balance(history);
    }
    assert_eq!(kinds(&history), BTreeSet::new());
    assert_eq!(kinds(&wrong), BTreeSet::from([Kind::OutOfOrder]));
    // While another reserve was under way the better job may have been with it.
    let mut unsure = wrong.clone();
    let last = unsure.ops.last().expect("five").clone();
    unsure.ops.push(Op { connection: 99, outcome: Outcome::Unknown, ..last });
    assert_eq!(kinds(&unsure), BTreeSet::new());
}

#[test]
fn holder_that_is_denied_its_job_is_found() {
    finds(Kind::Denied, |history, random| {
        history.deaths.clear();
        let acknowledged: BTreeSet<u64> = history.ops.iter().filter_map(inserted).collect();
        let at = some_op(history, random, |op| {
            let Action::Touch { id } = op.action else { return false };
            let is_mine = |other: &&Op| other.connection == op.connection && other.end < op.start;
            let mut mine = history.ops.iter().filter(is_mine);
            let held = mine.rfind(|other| other.action.id().or(job(other)) == Some(id));
            // Held a short while ago: far from the end of its time.
            let fresh = held.is_some_and(|held| job(held).is_some() && op.end - held.start < 30_000_000_000);
            op.outcome == Outcome::Done && acknowledged.contains(&id) && fresh
        })?;
        history.ops[at].outcome = Outcome::NotFound;
        Some(())
    });
}

#[test]
fn job_that_is_there_and_not_found_is_found() {
    finds(Kind::Denied, |history, random| {
        let at = kept(history, random)?;
        let id = history.found[at].id;
        append(history, Action::Peek { id }, Outcome::NotFound);
        Some(())
    });
}

#[test]
fn reply_of_another_command_is_found() {
    finds(Kind::OddReply, |history, random| {
        let at = some_op(history, random, |op| inserted(op).is_some())?;
        history.ops[at].outcome = random
            .pick(&[Outcome::Done, Outcome::Empty, Outcome::NotFound, Outcome::Odd("DELETED\r\n".to_owned())])
            .clone();
        Some(())
    });
}

#[test]
fn accounts_that_do_not_add_up_are_found() {
    finds(Kind::Accounts, |history, random| {
        let rest = &mut history.rest;
        let field = match random.below(6) {
            0 => &mut rest.jobs[0],
            1 => &mut rest.jobs_of_tubes[2],
            2 => &mut rest.connections,
            3 => &mut rest.waiting,
            4 => &mut rest.tubes,
            _ => &mut rest.jobs[1],
        };
        *field += 1;
        Some(())
    });
}

//! A run: load, mayhem, rest, and the checker's judgement.

use crate::checker::{Kind, Violation, check};
use crate::clients::{Load, produce, work};
use crate::history::{Found, History, Rest};
use crate::mayhem::{Goals, Mayhem};
use crate::support::process::wait_for;
use crate::support::{Binary, Client, DEADLINE, Random, Setup, TempDir};
use std::time::Duration;

const SLOTS: u16 = 4;
const FRONTENDS: u16 = 2;
/// So many that about as much is taken out as is put in.
const PRODUCERS: usize = 2;
const WORKERS: usize = 6;

/// Of a long run; issue figures of what must be survived.
const LONG: Goals = Goals { owners: 200, frontends: 200, supervisors: 50 };
const LONGEST: Duration = Duration::from_secs(1800);

/// Violations that a failing run prints.
const SHOWN: usize = 20;

fn is_long() -> bool {
    std::env::var("TRELLIS_CHAOS").is_ok_and(|text| text == "long")
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_over_deaths_of_all_kinds() {
    let (goals, longest) = if is_long() {
        (LONG, LONGEST)
    } else {
        (Goals { owners: 20, frontends: 14, supervisors: 4 }, Duration::from_secs(10))
    };
    judge(&run(true, goals, longest));
}

/// A new server each round: without a log ids begin anew with it.
#[test]
fn without_a_log_only_the_jobs_of_dead_slots_are_gone() {
    let rounds = if is_long() { 10 } else { 1 };
    let goals = Goals { owners: 8, frontends: 5, supervisors: 0 };
    for _ in 0..rounds {
        without_a_log(goals);
    }
}

fn without_a_log(goals: Goals) {
    let mut history = run(false, goals, LONGEST);
    judge(&history);
    // Held to what a log would have to keep, the same run is full of losses: the chain from the clients to the
    // checker is not blind.
    history.durable = true;
    let lost = |violation: &Violation| violation.kind == Kind::Lost;
    assert!(check(&history).iter().any(lost), "not a job was lost, though memory was");
}

/// Panics with what is wrong in the history.
fn judge(history: &History) {
    let violations = check(history);
    for violation in violations.iter().take(SHOWN) {
        println!("{:?}: {}", violation.kind, violation.what.chars().take(600).collect::<String>());
    }
    assert!(violations.is_empty(), "{} violations, the first of which are above", violations.len());
}

fn run(durable: bool, goals: Goals, longest: Duration) -> History {
    let mut random = Random::announced(if durable { "chaos with a log" } else { "chaos without a log" });
    let place = TempDir::new("chaos");
    let data = place.join("data");
    std::fs::create_dir(&data).expect("a directory");
    let socket = place.join("socket");
    let setup =
        Setup::new(Binary::Trellis).listen_unix(&socket).slots(SLOTS.into()).frontends(FRONTENDS.into());
    let setup = if durable { setup.wal(&data).flags(&["-f0", "-s", "65536"]) } else { setup };
    let mut server = setup.start();
    // Two of each slot, so that slots have neighbours and tubes too.
    let tubes =
        ["first", "second"].iter().flat_map(|label| crate::support::routing::tubes(SLOTS.into(), label));
    let load = Load::new(socket, tubes.collect());

    let mut history = History { slots: SLOTS.into(), durable, ..History::default() };
    let seeds: Vec<Random> = (0..PRODUCERS + WORKERS).map(|_| Random::from_seed(random.next())).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = seeds
            .into_iter()
            .enumerate()
            .map(|(number, random)| {
                let load = &load;
                scope.spawn(move || {
                    if number < PRODUCERS {
                        produce(load, number, random)
                    } else {
                        work(load, number, random)
                    }
                })
            })
            .collect();
        let mut mayhem = Mayhem {
            load: &load,
            server: &mut server,
            random,
            slots: SLOTS,
            frontends: FRONTENDS,
            deaths: Vec::new(),
            killed: vec![0; usize::from(SLOTS + FRONTENDS)],
        };
        let end = load.end();
        mayhem.rage(goals, longest);
        drop(end);
        let (owners, frontends, supervisors) = mayhem.counts();
        println!(
            "killed: {owners} owners, {frontends} frontends, {supervisors} supervisors, in {:?}",
            load.began.elapsed()
        );
        history.deaths = mayhem.deaths;
        for client in clients {
            history.ops.extend(client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    let mut observer = Client::unix("observer", &load.socket).expect("connect at the end");
    history.rest = rest(&mut observer);
    history.found = found(&mut observer);
    summarize(&history);
    assert!(!history.ops.is_empty() && !history.deaths.is_empty());
    history
}

fn summarize(history: &History) {
    use crate::history::{Action, Outcome};
    let count = |is: &dyn Fn(&crate::history::Op) -> bool| history.ops.iter().filter(|op| is(op)).count();
    println!(
        "{} commands: {} puts acknowledged, {} deletes, {} reserved, {} refused, {} without an answer; {} jobs left",
        history.ops.len(),
        count(&|op| matches!(op.outcome, Outcome::Inserted(_))),
        count(&|op| matches!(op.action, Action::Delete { .. }) && op.outcome == Outcome::Done),
        count(&|op| matches!(op.outcome, Outcome::Job { .. })),
        count(&|op| op.outcome == Outcome::Refused),
        count(&|op| op.outcome == Outcome::Unknown),
        history.found.len(),
    );
}

/// Takes out a batch of the watched tube's jobs. False when there are no more.
fn take_out(client: &mut Client, tube: &str, found: &mut Vec<Found>) -> bool {
    /// Many a write: each delete is synced, together with those that come along.
    const BATCH: usize = 200;
    client.send("reserve-with-timeout 0\r\n".repeat(BATCH));
    let mut deletes = String::new();
    for _ in 0..BATCH {
        let reply = String::from_utf8(client.reply()).expect("bodies in ASCII");
        let Some((line, rest)) = reply.split_once("\r\n") else { panic!("{reply:?}") };
        // Some have a short time, which may be over soon.
        if ["TIMED_OUT", "DEADLINE_SOON"].contains(&line) {
            continue;
        }
        let ["RESERVED", id, _] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{reply:?}") };
        deletes += &format!("delete {id}\r\n");
        let body = rest.strip_suffix("\r\n").expect("a whole body").to_owned();
        found.push(Found { id: id.parse().expect("an id"), tube: tube.to_owned(), body });
    }
    client.send(&deletes);
    deletes.lines().for_each(|_| _ = client.expect("DELETED\r\n"));
    !deletes.is_empty()
}

const STATES: [&str; 4] =
    ["current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried"];

/// The numbers, once two looks at them are the same: a delay may run out in between, and clients leave.
fn rest(observer: &mut Client) -> Rest {
    let mut last = Rest::default();
    let (mut looks, deadline) = (0, std::time::Instant::now() + DEADLINE);
    wait_for("the server to come to rest", 2 * DEADLINE, || {
        let now = look(observer);
        let settled = now.jobs[1] == 0 && now.connections == 1 && now.waiting == 0;
        let same = now == last;
        last = now;
        looks += 1;
        // What never settles is for the checker to name.
        (looks > 1 && same && (settled || std::time::Instant::now() > deadline)).then_some(())
    });
    last
}

fn look(observer: &mut Client) -> Rest {
    let stats = observer.stats("stats");
    let listed = tubes(observer);
    let mut jobs_of_tubes = [0; 4];
    for tube in &listed {
        let stats = observer.stats(&format!("stats-tube {tube}"));
        STATES.iter().zip(&mut jobs_of_tubes).for_each(|(state, sum)| *sum += stats.number(state));
    }
    Rest {
        jobs: STATES.map(|state| stats.number(state)),
        jobs_of_tubes,
        connections: stats.number("current-connections"),
        waiting: stats.number("current-waiting"),
        tubes: stats.number("current-tubes"),
        tubes_listed: listed.len() as i64,
    }
}

fn tubes(client: &mut Client) -> Vec<String> {
    let reply = String::from_utf8(client.call("list-tubes\r\n")).expect("names in ASCII");
    assert!(reply.starts_with("OK "), "{reply}");
    reply.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

/// Takes out every job there is, and returns them.
fn found(client: &mut Client) -> Vec<Found> {
    let mut found = Vec::new();
    for tube in tubes(client) {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        if tube != "default" {
            client
                .ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n")
                .ask("ignore default\r\n", "WATCHING 1\r\n");
        }
        // Buried ones first, then delayed ones.
        while client.call("kick 100000\r\n") != b"KICKED 0\r\n" {}
        while take_out(client, &tube, &mut found) {}
        if tube != "default" {
            client
                .ask("watch default\r\n", "WATCHING 2\r\n")
                .ask(format!("ignore {tube}\r\n"), "WATCHING 1\r\n");
        }
    }
    client.ask("use default\r\n", "USING default\r\n");
    assert_eq!(tubes(client), ["default"], "no tube outlives its last job");
    found
}

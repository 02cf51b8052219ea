//! The same scripts on the original and on every number of slots: equal replies, equal statistics.

use crate::fleet::Fleet;
use crate::support::{DEADLINE, process::wait_for, routing::slot_of};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;

/// Names that lie on many slots; `names_lie_on_several_slots` holds them to it.
const NAMES: [&str; 8] = ["red", "blue", "green", "mail", "t1", "t2", "UPPER", "x.y;z"];

#[test]
fn names_lie_on_several_slots() {
    for (slots, least) in [(2, 2), (4, 4), (16, 6)] {
        let used: BTreeSet<u16> = NAMES.iter().map(|name| slot_of(name, slots)).collect();
        assert!(used.len() >= least, "{slots} slots: only {used:?}");
    }
}

#[test]
fn jobs_of_many_tubes_go_through_all_states() {
    let mut fleet = Fleet::start();
    for (number, tube) in NAMES.iter().enumerate() {
        fleet.ask("producer", &format!("use {tube}\r\n"));
        fleet.put("producer", "10 0 60", &format!("first of {tube}"));
        fleet.put("producer", "5 0 60", &format!("second of {tube}"));
        fleet.put("producer", "1 500 60", &format!("delayed of {tube}"));
        let first = 3 * number + 1;
        fleet.ask_each("producer", &["peek-ready", "peek-delayed", "peek-buried", "list-tube-used"]);
        fleet.ask("worker", &format!("watch {tube}\r\n"));
        fleet.ask("worker", if number == 0 { "ignore default\r\n" } else { "list-tubes-watched\r\n" });
        if number > 0 {
            fleet.ask("worker", &format!("ignore {}\r\n", NAMES[number - 1]));
        }
        fleet.ask_each("worker", &["reserve", "reserve-with-timeout 0", "reserve-with-timeout 0"]);
        // The second has the better priority and came first; the worker's used tube is another one.
        fleet.ask("worker", &format!("bury #{} 3\r\n", first + 1));
        fleet.ask("worker", &format!("touch #{first}\r\n"));
        fleet.ask("worker", &format!("release #{first} 4 300\r\n"));
        fleet.ask_each("producer", &["kick 1", "peek-buried", "peek-ready", "kick 1", "peek-delayed"]);
        fleet.ask("other", &format!("reserve-job #{}\r\n", first + 1));
        if number % 2 == 0 {
            fleet.ask("other", &format!("kick-job #{}\r\n", first + 2));
        }
        fleet.ask("other", &format!("peek #{first}\r\n"));
        fleet.ask("worker", &format!("delete #{}\r\n", first + 1)); // not its own
        for id in first..first + 3 {
            fleet.same_stats("other", &format!("stats-job #{id}"));
        }
        fleet.same_stats("other", &format!("stats-tube {tube}"));
    }
    fleet.ask_each("other", &["list-tubes", "stats-tube default", "list-tubes-watched"]);
    let stats = fleet.same_stats("other", "stats");
    for field in ["current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "cmd-bury"] {
        assert_ne!(stats.text(field), "0", "{field}");
    }
    fleet.close("other", "producer", "current-jobs-reserved", "0");
    for id in 1..=3 * NAMES.len() {
        let command = format!("delete #{id}\r\n");
        fleet.ask("producer", &command);
        fleet.ask("producer", &command);
    }
    fleet.ask("producer", "list-tubes\r\n");
}

#[test]
fn waiting_workers_of_many_tubes_are_served_alike() {
    const WORKERS: [&str; 4] = ["A", "B", "C", "D"];
    let mut fleet = Fleet::start();
    for (number, worker) in WORKERS.iter().enumerate() {
        // Two wait at each of two tubes.
        let tube = NAMES[number % 2];
        fleet.ask(worker, &format!("watch {tube}\r\n"));
        fleet.ask(worker, "ignore default\r\n");
        fleet.send(worker, "reserve\r\n");
        fleet.silence(worker);
    }
    let waiting = fleet.same_stats("P", "stats");
    assert_eq!(waiting.text("current-waiting"), "4");
    assert_eq!(waiting.text("current-workers"), "4");
    for tube in [0, 1] {
        let stats = fleet.same_stats("P", &format!("stats-tube {}", NAMES[tube]));
        assert_eq!(stats.text("current-waiting"), "2");
    }
    // Who of the two is served first is part of what must be alike.
    for (number, worker) in [(1, "B"), (0, "A"), (0, "C"), (1, "D")] {
        fleet.ask("P", &format!("use {}\r\n", NAMES[number]));
        fleet.put("P", "0 0 60", &format!("for {worker}"));
        fleet.same_reply(worker, "reserve");
    }
    for (id, worker) in [(1, "B"), (2, "A"), (3, "C"), (4, "D")] {
        fleet.ask(worker, &format!("delete #{id}\r\n"));
    }
    fleet.ask("A", "reserve-with-timeout 0\r\n");
    fleet.ask("B", "reserve-with-timeout 1\r\n");
    fleet.same_stats("P", "stats");
}

#[test]
fn pauses_of_tubes_hold_only_their_own_jobs() {
    let mut fleet = Fleet::start();
    for tube in &NAMES[..4] {
        fleet.ask("A", &format!("use {tube}\r\n"));
        fleet.put("A", "0 0 60", tube);
    }
    fleet.ask("A", &format!("pause-tube {} 1000\r\n", NAMES[2]));
    fleet.ask("A", &format!("watch {}\r\n", NAMES[0]));
    fleet.ask("A", "ignore default\r\n");
    for number in 0..4 {
        if number > 0 {
            fleet.ask("A", &format!("watch {}\r\n", NAMES[number]));
            fleet.ask("A", &format!("ignore {}\r\n", NAMES[number - 1]));
        }
        fleet.ask("A", "reserve-with-timeout 0\r\n");
        fleet.same_stats("A", &format!("stats-tube {}", NAMES[number]));
    }
    fleet.ask("A", "reserve-job #3\r\n");
    fleet.same_stats("A", "stats");
}

#[test]
fn jobs_of_a_closed_client_come_back_at_every_slot() {
    let mut fleet = Fleet::start();
    for tube in NAMES {
        fleet.ask("P", &format!("use {tube}\r\n"));
        fleet.put("P", "0 0 60", tube);
    }
    for id in 1..=NAMES.len() {
        fleet.ask("holder", &format!("reserve-job #{id}\r\n"));
    }
    let stats = fleet.same_stats("P", "stats");
    assert_eq!(stats.number("current-jobs-reserved"), NAMES.len() as i64);
    fleet.close("holder", "P", "current-jobs-reserved", "0");
    for id in 1..=NAMES.len() {
        fleet.same_stats("P", &format!("stats-job #{id}"));
        fleet.ask("P", &format!("reserve-job #{id}\r\n"));
    }
}

#[test]
fn refusals_are_worded_alike() {
    let mut fleet = Fleet::start_with(&["-z", "100"]);
    fleet.ask("A", &format!("use {}\r\n", NAMES[0]));
    fleet.put("A", "0 0 60", "there");
    let lines = [
        // An id that no slot has given yet, for each of its last digits.
        "peek 9000000000",
        "peek 9000000001",
        "delete 9000000002",
        "release 9000000003 0 0",
        "bury 9000000004 0",
        "touch 9000000005",
        "kick-job 9000000006",
        "reserve-job 9000000007",
        "stats-job 9000000015",
        "peek 0",
        "delete 0",
        "delete 18446744073709551615",
        "delete 18446744073709551616",
        "delete #1 x",
        "release #1 0 0",
        "bury #1 0",
        "touch #1",
        "kick-job #1",
        "stats-tube nowhere",
        "stats-tube",
        "pause-tube nowhere 1",
        "pause-tube red",
        "use -x",
        "watch",
        "ignore default",
        "ignore nowhere",
        "kick x",
        "put 0 0 60 x",
        "nonsense",
        "list-tubes",
    ];
    for client in ["A", "B"] {
        fleet.ask_each(client, &lines);
    }
    fleet.ask("A", &format!("put 0 0 60 101\r\n{}\r\n", "b".repeat(101)));
    fleet.ask("A", "put 0 0 60 1\r\nabc");
    fleet.same_stats("A", "stats");
}

#[test]
fn drain_mode_holds_at_every_slot() {
    let mut fleet = Fleet::start();
    for server in fleet.servers() {
        server.signal(Signal::SIGUSR1);
        let mut observer = server.connect("observer");
        wait_for("drain mode", DEADLINE, || {
            (observer.stats("stats").text("draining") == "true").then_some(())
        });
    }
    for tube in NAMES {
        fleet.ask("A", &format!("use {tube}\r\n"));
        assert_eq!(fleet.ask("A", "put 0 0 60 1\r\nx\r\n"), "DRAINING\r\n");
    }
}

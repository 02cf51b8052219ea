//! Ids: strided over slots, growing, never given twice, safe for JavaScript, and in the order that FIFO needs.

use crate::support::routing::{slot_of, tubes};
use crate::support::{Binary, Client, Server, Setup, TempDir};
use std::collections::BTreeSet;

/// The first integer that a JavaScript number does not hold exactly is above this.
const ID_END: u64 = 1 << 53;

fn put(client: &mut Client, priority: u32, body: &str) -> u64 {
    let command = format!("put {priority} 0 60 {}\r\n{body}\r\n", body.len());
    let reply = String::from_utf8(client.call(command)).expect("a reply in ASCII");
    let id = reply.trim_end().strip_prefix("INSERTED ").and_then(|id| id.parse().ok());
    id.unwrap_or_else(|| panic!("no id in {reply:?}"))
}

fn use_tube(client: &mut Client, tube: &str) {
    client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
}

#[test]
fn ids_tell_the_slot_and_start_low() {
    for slots in [1, 2, 4, 16] {
        let server = Setup::new(Binary::Trellis).slots(slots).frontends(2).start();
        let mut client = server.connect("A");
        for tube in tubes(slots, "stride") {
            use_tube(&mut client, &tube);
            let slot = u64::from(slot_of(&tube, slots));
            let first = if slot == 0 { u64::from(slots) } else { slot };
            let ids: Vec<u64> = (0..5).map(|_| put(&mut client, 0, "x")).collect();
            let wanted: Vec<u64> = (0..5).map(|n| first + n * u64::from(slots)).collect();
            assert_eq!(ids, wanted, "{tube} of {slots} slots");
            assert!(ids.iter().all(|&id| id < ID_END));
        }
    }
}

#[test]
fn jobs_of_equal_priority_come_in_the_order_of_their_puts() {
    const JOBS: usize = 50;
    let server = Setup::new(Binary::Trellis).slots(4).frontends(2).start();
    // Two producers at two frontends take turns, so that the order is known.
    let mut producers = [server.connect_through(0, "P0"), server.connect_through(1, "P1")];
    for tube in tubes(4, "fifo") {
        let mut ids = Vec::new();
        for number in 0..JOBS {
            let producer = &mut producers[number % 2];
            use_tube(producer, &tube);
            ids.push((number as u32 % 3, put(producer, number as u32 % 3, "x")));
        }
        ids.sort();
        let mut worker = server.connect("worker");
        worker.ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
        for (_, id) in ids {
            worker.ask("reserve\r\n", format!("RESERVED {id} 1\r\nx\r\n"));
        }
    }
}

/// Puts a few jobs everywhere and deletes them again, so that nothing but memory knows of their ids.
fn ids_of_passing_jobs(server: &Server, seen: &mut BTreeSet<u64>) {
    let mut client = server.connect("A");
    for tube in tubes(4, "passing") {
        use_tube(&mut client, &tube);
        for _ in 0..3 {
            let id = put(&mut client, 0, "x");
            assert!(seen.insert(id), "id {id} was given twice");
            assert!(id % 4 == u64::from(slot_of(&tube, 4)) && id < ID_END, "{id} in {tube}");
            client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
        }
    }
}

#[test]
fn ids_are_not_given_again_after_an_owners_death() {
    let data = TempDir::new("data");
    for setup in [Setup::new(Binary::Trellis), Setup::new(Binary::Trellis).wal(data.path())] {
        let server = setup.slots(4).frontends(2).start();
        let mut seen = BTreeSet::new();
        for _ in 0..2 {
            ids_of_passing_jobs(&server, &mut seen);
            for slot in 0..4 {
                server.replace(server.owner(slot));
            }
            ids_of_passing_jobs(&server, &mut seen);
        }
    }
}

/// The second generation dies before it has handed out any id.
#[test]
fn ids_are_not_given_again_after_two_deaths_in_a_row() {
    let server = Setup::new(Binary::Trellis).slots(4).start();
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        ids_of_passing_jobs(&server, &mut seen);
        for slot in 0..4 {
            let second = server.replace(server.owner(slot));
            // Who is answered sees that it is up.
            let tube = crate::support::routing::tube_on(slot, 4, "nothing");
            server.connect("observer").ask(format!("stats-tube {tube}\r\n"), "NOT_FOUND\r\n");
            server.replace(second);
        }
    }
    ids_of_passing_jobs(&server, &mut seen);
}

#[test]
fn ids_are_not_given_again_after_a_restart_of_everything() {
    let data = TempDir::new("data");
    let mut server = Setup::new(Binary::Trellis).wal(data.path()).slots(4).start();
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        ids_of_passing_jobs(&server, &mut seen);
        server.restart();
        ids_of_passing_jobs(&server, &mut seen);
        // After the second orderly start in a row nothing is left of the log. (Who is answered sees that all
        // slots are there.)
        for _ in 0..2 {
            server.stop();
            server.restart();
            server.connect("observer").ask("list-tube-used\r\n", "USING default\r\n");
        }
    }
}

//! Tubes come to life at their one owner, are one object however many clients name them, and vanish.

use crate::support::process::wait_for;
use crate::support::routing::{slot_of, tube_on, tubes};
use crate::support::{Binary, Client, DEADLINE, Server, Setup};

fn server(slots: u32) -> Server {
    Setup::new(Binary::Trellis).slots(slots).frontends(2).start()
}

/// Names in a reply to `list-tubes` or `list-tubes-watched`.
fn names(client: &mut Client, command: &str) -> Vec<String> {
    let reply = String::from_utf8(client.call(format!("{command}\r\n"))).expect("names in ASCII");
    let lines = reply.lines().filter_map(|line| line.strip_prefix("- "));
    lines.map(str::to_owned).collect()
}

fn count(client: &mut Client, name: &str) -> usize {
    names(client, "list-tubes").iter().filter(|listed| *listed == name).count()
}

fn put(client: &mut Client) -> u64 {
    let reply = String::from_utf8(client.call("put 0 0 60 1\r\nx\r\n")).expect("a reply in ASCII");
    let id = reply.strip_prefix("INSERTED ").and_then(|rest| rest.trim_end().parse().ok());
    id.unwrap_or_else(|| panic!("no id in {reply:?}"))
}

/// Four clients at two frontends name a new tube at the same moment, a thousand times.
#[test]
fn new_name_used_and_watched_through_two_frontends_is_one_tube() {
    const ROUNDS: usize = 1000;
    let server = server(4);
    let mut users = [server.connect_through(0, "user 0"), server.connect_through(1, "user 1")];
    let mut watchers = [server.connect_through(0, "watcher 0"), server.connect_through(1, "watcher 1")];
    let mut observer = server.connect("observer");
    for round in 0..ROUNDS {
        let name = format!("new-{round}");
        for client in &mut users {
            client.send(format!("use {name}\r\n"));
        }
        for client in &mut watchers {
            client.send(format!("watch {name}\r\n"));
        }
        users.iter_mut().for_each(|client| _ = client.expect(format!("USING {name}\r\n")));
        watchers.iter_mut().for_each(|client| _ = client.expect("WATCHING 2\r\n"));
        let stats = observer.stats(&format!("stats-tube {name}"));
        let wanted = [("current-using", "2"), ("current-watching", "2"), ("current-waiting", "0")];
        assert_eq!(stats.differences(&wanted), Vec::<String>::new(), "round {round}");
        assert_eq!(count(&mut observer, &name), 1, "round {round}");
        for client in &mut users {
            client.send("use default\r\n");
        }
        for client in &mut watchers {
            client.send(format!("ignore {name}\r\n"));
        }
        users.iter_mut().for_each(|client| _ = client.expect("USING default\r\n"));
        watchers.iter_mut().for_each(|client| _ = client.expect("WATCHING 1\r\n"));
        observer.ask(format!("stats-tube {name}\r\n"), "NOT_FOUND\r\n");
    }
    assert_eq!(names(&mut observer, "list-tubes"), ["default"]);
}

/// The slot shows in the ids of its jobs.
#[test]
fn empty_tube_vanishes_and_comes_back_on_the_same_slot() {
    for slots in [2, 4, 16] {
        let server = server(slots);
        let mut client = server.connect("A");
        let mut observer = server.connect("observer");
        for round in 0..3 {
            for number in 0..2 * slots {
                let tube = format!("tube-{number}");
                client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
                let id = put(&mut client);
                assert_eq!(id % u64::from(slots), slot_of(&tube, slots).into(), "{tube}, round {round}");
                client.ask("use default\r\n", "USING default\r\n");
                assert_eq!(count(&mut observer, &tube), 1, "held by its job");
                client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
                assert_eq!(count(&mut observer, &tube), 0, "{tube} outlives its last job");
                observer.ask(format!("stats-tube {tube}\r\n"), "NOT_FOUND\r\n");
            }
        }
    }
}

#[test]
fn tube_of_a_dead_owner_comes_back_on_the_same_slot() {
    let server = server(4);
    for slot in 0..4 {
        let tube = tube_on(slot, 4, "again");
        let mut client = server.connect("A");
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        assert_eq!(put(&mut client) % 4, u64::from(slot));
        server.replace(server.owner(slot));
        assert_eq!(put(&mut client) % 4, u64::from(slot));
    }
}

#[test]
fn tube_with_only_a_reserved_job_stays() {
    let server = server(4);
    for tube in tubes(4, "held") {
        let mut producer = server.connect("producer");
        producer.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        let id = put(&mut producer);
        let mut worker = server.connect("worker");
        worker.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} 1\r\nx\r\n"));
        drop(producer);
        let mut observer = server.connect("observer");
        wait_for("the producer to be gone", DEADLINE, || {
            (observer.stats(&format!("stats-tube {tube}")).text("current-using") == "0").then_some(())
        });
        let wanted = [("current-jobs-reserved", "1"), ("current-watching", "0"), ("total-jobs", "1")];
        let stats = observer.stats(&format!("stats-tube {tube}"));
        assert_eq!(stats.differences(&wanted), Vec::<String>::new());
        worker.ask(format!("delete {id}\r\n"), "DELETED\r\n");
        observer.ask(format!("stats-tube {tube}\r\n"), "NOT_FOUND\r\n");
    }
}

/// Asking about a name does not make a tube of it, at its owner or anywhere.
#[test]
fn unknown_names_are_not_found_and_leave_nothing_behind() {
    for slots in [1, 4, 16] {
        let server = server(slots);
        let mut client = server.connect("A");
        let before = (names(&mut client, "list-tubes"), client.stats("stats").number("current-tubes"));
        for number in 0..3 * slots {
            client.ask(format!("stats-tube unknown-{number}\r\n"), "NOT_FOUND\r\n");
            client.ask(format!("pause-tube unknown-{number} 10\r\n"), "NOT_FOUND\r\n");
            client.ask(format!("ignore unknown-{number}\r\n"), "WATCHING 1\r\n");
        }
        let after = (names(&mut client, "list-tubes"), client.stats("stats").number("current-tubes"));
        assert_eq!(before, after);
        assert_eq!(after, (vec!["default".to_owned()], 1));
    }
}

#[test]
fn default_is_one_tube_at_any_number_of_slots_and_clients() {
    for slots in [1, 4, 16] {
        let server = server(slots);
        let mut observer = server.connect("observer");
        for crowd in [0, 1, 20] {
            let mut clients: Vec<Client> = (0..crowd).map(|n| server.connect(&format!("{n}"))).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                // Some have a hold on other slots too.
                client.ask(format!("watch side-{number}\r\n"), "WATCHING 2\r\n");
            }
            assert_eq!(count(&mut observer, "default"), 1, "{slots} slots, {crowd} clients");
            let all = (crowd + 1).to_string();
            let stats = observer.stats("stats-tube default");
            let wanted = [("current-using", all.as_str()), ("current-watching", all.as_str())];
            assert_eq!(stats.differences(&wanted), Vec::<String>::new(), "{slots} slots");
            drop(clients);
            wait_for("the clients to be gone", DEADLINE, || {
                (observer.stats("stats-tube default").text("current-using") == "1").then_some(())
            });
        }
        // The jobs of `default` have ids of its own slot, whoever puts them.
        for number in 0..2 {
            let mut client = server.connect_through(number, "putter");
            assert_eq!(put(&mut client) % u64::from(slots), slot_of("default", slots).into());
        }
    }
}

/// The parking place of virtual connections is nobody's tube.
#[test]
fn parking_tube_is_seen_nowhere() {
    let server = server(4);
    let mut client = server.connect("A");
    let far = tube_on((slot_of("default", 4) + 1) % 4, 4, "far");
    client.ask(format!("use {far}\r\n"), format!("USING {far}\r\n"));
    client.ask(format!("watch {far}\r\n"), "WATCHING 2\r\n");
    client.ask("ignore default\r\n", "WATCHING 1\r\n");
    assert_eq!(names(&mut client, "list-tubes").len(), 2);
    assert_eq!(client.stats("stats").number("current-tubes"), 2);
    for command in ["stats-tube -\r\n", "use -\r\n", "watch -\r\n", "ignore -\r\n", "pause-tube - 1\r\n"] {
        client.ask(command, "BAD_FORMAT\r\n");
    }
}

//! Statistics that several processes make up together: sums are right at any time, and what was counted stays
//! counted when a process dies.

use crate::support::process::wait_for;
use crate::support::routing::{tube_on, tubes};
use crate::support::{Binary, Client, DEADLINE, Role, Server, Setup, Stats};
use std::sync::atomic::{AtomicBool, Ordering};

const SLOTS: u32 = 4;

/// Fields of `stats` that only grow while a server lives.
fn is_counter(key: &str) -> bool {
    key.starts_with("cmd-") || ["total-jobs", "total-connections", "job-timeouts"].contains(&key)
}

fn counters(stats: &Stats) -> Vec<(String, i64)> {
    let keys = stats.keys().into_iter().filter(|key| is_counter(key));
    keys.map(|key| (key.to_owned(), stats.number(key))).collect()
}

fn server() -> Server {
    Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start()
}

/// Every command that is counted, at every slot.
fn work(client: &mut Client, label: &str) {
    for tube in tubes(SLOTS, label) {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        client.ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
        let reply = String::from_utf8(client.call("put 0 0 60 1\r\nx\r\n")).expect("ASCII");
        let id = reply.trim_end().strip_prefix("INSERTED ").expect("an id").to_owned();
        client.send("peek-ready\r\npeek-delayed\r\npeek-buried\r\n");
        client.send(format!("peek {id}\r\nstats-job {id}\r\nstats-tube {tube}\r\npause-tube {tube} 0\r\n"));
        client.send("reserve\r\n").send(format!("release {id} 0 0\r\ntouch {id}\r\n"));
        client.send("reserve-with-timeout 0\r\n").send(format!("bury {id} 0\r\n"));
        client.send("kick 1\r\n").send(format!("delete {id}\r\n"));
        client.send("list-tubes\r\nlist-tube-used\r\nlist-tubes-watched\r\n");
        for _ in 0..17 {
            client.reply();
        }
        client.ask("watch default\r\n", "WATCHING 2\r\n").ask(format!("ignore {tube}\r\n"), "WATCHING 1\r\n");
    }
    client.ask("use default\r\n", "USING default\r\n");
}

#[test]
fn counters_do_not_go_back_when_processes_are_killed() {
    let server = server();
    let mut client = server.connect_through(0, "worker");
    work(&mut client, "before");
    let before = counters(&client.stats("stats"));
    for (key, value) in &before {
        assert!(*value > 0 || key == "job-timeouts", "{key} counts nothing, so this test says nothing of it");
    }
    drop(client);
    let mut last = before;
    for child in server.children() {
        server.replace(child);
        // A new connection: it waits for what is on its way up.
        let mut observer = server.connect("observer");
        let now = counters(&observer.stats("stats"));
        for ((key, was), (_, is)) in last.iter().zip(&now) {
            assert!(is >= was, "{key} went back from {was} to {is} after the end of {child:?}");
        }
        // What the new process counts comes on top of what the old one had counted.
        work(&mut observer, "after");
        let later = counters(&observer.stats("stats"));
        for ((key, was), (_, is)) in now.iter().zip(&later) {
            // `stats` is counted by itself, in between; connections are counted when they come.
            let grows = !["job-timeouts", "total-connections"].contains(&key.as_str());
            assert!(
                !grows || is > was,
                "{key} stayed at {was} while it was used, after the end of {child:?}"
            );
        }
        last = later;
    }
}

/// A client looks again and again while processes are killed.
#[test]
fn counters_grow_at_every_look_while_owners_are_killed() {
    const KILLS: usize = 6;
    let server = server();
    let mut watcher = server.connect_through(0, "watcher");
    work(&mut watcher, "look");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut last = counters(&watcher.stats("stats"));
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                let now = counters(&watcher.stats("stats"));
                for ((key, was), (_, is)) in last.iter().zip(&now) {
                    assert!(is >= was, "{key} went back from {was} to {is}");
                }
                last = now;
                looks += 1;
            }
            looks
        });
        for kill in 0..KILLS {
            server.replace(server.owner((kill % SLOTS as usize) as u16));
        }
        over.store(true, Ordering::Relaxed);
        let looks = looks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(looks > KILLS, "only {looks} looks in {KILLS} kills");
    });
}

/// The gauges of clients, as `stats` has them: connections, producers, workers, waiting.
fn people(observer: &mut Client) -> [i64; 4] {
    let stats = observer.stats("stats");
    ["current-connections", "current-producers", "current-workers", "current-waiting"]
        .map(|key| stats.number(key))
}

/// The gauges, once they are so: for the effects of what gets no answer.
fn await_people(observer: &mut Client, wanted: [i64; 4]) {
    let mut last = [0; 4];
    let deadline = std::time::Instant::now() + DEADLINE;
    while last != wanted {
        last = people(observer);
        assert!(std::time::Instant::now() < deadline, "{last:?} instead of {wanted:?}");
    }
}

#[test]
fn people_are_counted_right_at_any_time() {
    let server = server();
    let mut observer = server.connect_through(0, "observer");
    assert_eq!(people(&mut observer), [1, 0, 0, 0]);
    let names = tubes(SLOTS, "people");
    let mut crowd: Vec<Client> = Vec::new();
    for (number, tube) in names.iter().enumerate() {
        let number = number as i64;
        let mut client = server.connect_through(number as u16 % 2, tube);
        assert_eq!(people(&mut observer), [2 + number, number, number, number]);
        // A hold on several slots makes it no more than one client.
        for tube in &names {
            client.send(format!("watch {tube}\r\n")).reply();
            client.send(format!("use {tube}\r\n")).reply();
        }
        assert_eq!(people(&mut observer), [2 + number, number, number, number]);
        for _ in 0..2 {
            client.call("put 0 0 60 1\r\nx\r\n");
            client.send(format!("use {tube}\r\n")).reply();
        }
        assert_eq!(people(&mut observer), [2 + number, number + 1, number, number]);
        for other in names.iter().chain([&"default".to_owned()]).filter(|other| *other != tube) {
            client.send(format!("ignore {other}\r\n")).reply();
        }
        while client.call("reserve-with-timeout 0\r\n") != b"TIMED_OUT\r\n" {}
        assert_eq!(people(&mut observer), [2 + number, number + 1, number + 1, number]);
        client.send("reserve\r\n");
        await_people(&mut observer, [2 + number, number + 1, number + 1, number + 1]);
        crowd.push(client);
    }
    // A job comes for one of them.
    observer.ask(format!("use {}\r\n", names[2]), format!("USING {}\r\n", names[2]));
    observer.call("put 0 0 60 1\r\nx\r\n");
    crowd[2].reply();
    assert_eq!(people(&mut observer), [5, 5, 4, 3]);
    // And one is gone.
    drop(crowd.remove(0));
    await_people(&mut observer, [4, 4, 3, 2]);
}

/// The clients of a dead frontend are counted no more, at any owner; those of a dead owner's tubes still are.
#[test]
fn people_are_counted_right_after_deaths() {
    let server = server();
    let mut observer = server.connect_through(0, "observer");
    let tube = tube_on(3, SLOTS, "wait");
    let mut waiters: Vec<Client> = (0..2)
        .map(|frontend| {
            let mut client = server.connect_through(frontend, &format!("waiter {frontend}"));
            client
                .ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n")
                .ask("ignore default\r\n", "WATCHING 1\r\n");
            client.send("reserve\r\n");
            client
        })
        .collect();
    await_people(&mut observer, [3, 0, 2, 2]);
    server.replace(server.owner(3));
    await_people(&mut observer, [3, 0, 2, 2]);
    server.replace(server.frontend(1));
    waiters.remove(1).expect_end();
    await_people(&mut observer, [2, 0, 1, 1]);
    let stats = observer.stats(&format!("stats-tube {tube}"));
    let wanted = [("current-watching", "1"), ("current-waiting", "1"), ("current-using", "0")];
    assert_eq!(stats.differences(&wanted), Vec::<String>::new());
}

/// Jobs of a slot whose memory is gone are counted no more; those of the others still are.
#[test]
fn jobs_are_counted_right_after_an_owners_death() {
    let server = server();
    let mut client = server.connect("A");
    for tube in tubes(SLOTS, "jobs") {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        client.call("put 0 0 60 1\r\nx\r\n");
        client.call("put 2000 100 60 1\r\nx\r\n");
    }
    client.ask("use default\r\n", "USING default\r\n");
    let all = [("current-jobs-ready", "4"), ("current-jobs-urgent", "4"), ("current-jobs-delayed", "4")];
    assert_eq!(client.stats("stats").differences(&all), Vec::<String>::new());
    server.replace(server.owner(1));
    wait_for("the jobs of the dead owner to be gone", DEADLINE, || {
        let left = [("current-jobs-ready", "3"), ("current-jobs-urgent", "3"), ("current-jobs-delayed", "3")];
        client.stats("stats").differences(&left).is_empty().then_some(())
    });
    // `default` and three tubes are left, and nothing that was said of the fourth.
    wait_for("the tubes to be counted", DEADLINE, || {
        (client.stats("stats").text("current-tubes") == "4").then_some(())
    });
    assert_eq!(client.stats("stats").text("total-jobs"), "8");
    assert_eq!(server.children().iter().filter(|child| child.role == Role::Owner).count(), SLOTS as usize);
}

#[test]
fn facts_are_those_of_the_whole_server() {
    let server = server();
    let mut ids = Vec::new();
    for frontend in 0..2 {
        let mut client = server.connect_through(frontend, "A");
        let stats = client.stats("stats");
        assert_eq!(stats.number("pid"), i64::from(server.pid()));
        ids.push(stats.text("id").to_owned());
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0].len(), 16, "as the original prints it: {}", ids[0]);
    server.replace(server.frontend(0));
    let stats = server.connect_through(0, "B").stats("stats");
    assert_eq!((stats.text("id"), stats.number("pid")), (ids[0].as_str(), i64::from(server.pid())));
}

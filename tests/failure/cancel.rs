//! The end of a wait meets the job that it waited for: a client that goes away, half-closes, times out or is told of
//! a deadline at the moment of a put. There is exactly one result, and no job is lost on the way.

use crate::jobs::*;
use crate::support::process::wait_for;
use crate::support::routing::tube_on;
use crate::support::{Binary, Client, DEADLINE, Random, Server, Setup};
use std::time::{Duration, Instant};

const SLOTS: u32 = 4;

/// Where the waiting and the puts are, and where a job with a deadline is held.
const HERE: u16 = 1;
const THERE: u16 = 2;

fn server() -> Server {
    Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start()
}

/// Passes a moment of chance, far shorter than anything that the kernel could sleep. This is what the race is about.
fn dawdle(random: &mut Random) {
    let until = Instant::now() + Duration::from_micros(random.below(300) as u64);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// A client whose reserve waits at the owner.
fn waiter(server: &Server, observer: &mut Client, tube: &str, command: &str, frontend: u16) -> Client {
    let mut client = server.connect_through(frontend, "waiter");
    watch_only(&mut client, tube);
    client.send(command);
    wait_for("the client to wait", DEADLINE, || {
        (observer.stats(&format!("stats-tube {tube}")).text("current-waiting") == "1").then_some(())
    });
    client
}

/// All jobs are ready again, and nobody waits: what a lost assignment or a ghost would spoil.
fn assert_all_ready(observer: &mut Client, tube: &str, count: i64) {
    wait_for("every job to be ready", DEADLINE, || (jobs(observer, tube) == [count, 0, 0, 0]).then_some(()));
    let stats = observer.stats(&format!("stats-tube {tube}"));
    assert_eq!(stats.differences(&[("current-waiting", "0")]), Vec::<String>::new());
}

#[test]
fn disconnect_against_a_put() {
    const ROUNDS: usize = 150;
    let mut random = Random::announced("disconnect_against_a_put");
    let server = server();
    let tube = tube_on(HERE, SLOTS, "gone");
    let mut producer = server.connect_through(1, "P");
    use_tube(&mut producer, &tube);
    for round in 0..ROUNDS {
        let client = waiter(&server, &mut producer, &tube, "reserve\r\n", round as u16 % 2);
        if random.once_in(2) {
            producer.send(put_line("x"));
            dawdle(&mut random);
            drop(client);
        } else {
            drop(client);
            dawdle(&mut random);
            producer.send(put_line("x"));
        }
        let id = inserted(&producer.reply()).expect("an id");
        assert_all_ready(&mut producer, &tube, 1);
        producer.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
}

#[test]
fn half_close_against_a_put() {
    const ROUNDS: usize = 150;
    let mut random = Random::announced("half_close_against_a_put");
    let server = server();
    let tube = tube_on(HERE, SLOTS, "half");
    let mut producer = server.connect_through(1, "P");
    use_tube(&mut producer, &tube);
    let mut given = 0;
    for round in 0..ROUNDS {
        let mut client = waiter(&server, &mut producer, &tube, "reserve\r\n", round as u16 % 2);
        if random.once_in(2) {
            producer.send(put_line("x"));
            dawdle(&mut random);
            client.half_close();
        } else {
            client.half_close();
            dawdle(&mut random);
            producer.send(put_line("x"));
        }
        let id = inserted(&producer.reply()).expect("an id");
        let reply = String::from_utf8(client.rest()).expect("ASCII");
        if reply == format!("RESERVED {id} 1\r\nx\r\n") {
            given += 1;
        } else {
            assert_eq!(reply, "TIMED_OUT\r\n", "round {round}: exactly one result");
        }
        assert_all_ready(&mut producer, &tube, 1);
        producer.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
    println!("{given} of {ROUNDS} were given the job");
}

/// Many wait for the same second, and puts come in it.
#[test]
fn timeout_against_a_put() {
    const CLIENTS: usize = 40;
    const ROUNDS: usize = 3;
    let mut random = Random::announced("timeout_against_a_put");
    let server = server();
    let tube = tube_on(HERE, SLOTS, "late");
    let mut producer = server.connect_through(1, "P");
    use_tube(&mut producer, &tube);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.connect_through(number as u16 % 2, &format!("W{number}"));
            watch_only(&mut client, &tube);
            client
        })
        .collect();
    let (mut given, mut empty) = (0, 0);
    for round in 0..ROUNDS {
        let start = Instant::now();
        for client in &mut clients {
            client.send("reserve-with-timeout 1\r\n");
        }
        // Their time is over one after the other from now on.
        std::thread::sleep((start + Duration::from_millis(995)).saturating_duration_since(Instant::now()));
        let mut ids = Vec::new();
        for _ in 0..CLIENTS / 2 {
            ids.push(put(&mut producer, "x"));
            dawdle(&mut random);
        }
        let mut reserved = Vec::new();
        for client in &mut clients {
            let reply = String::from_utf8(client.reply()).expect("ASCII");
            match reply.split_whitespace().collect::<Vec<_>>()[..] {
                ["RESERVED", id, "1", "x"] => {
                    let id: u64 = id.parse().expect("an id");
                    client.ask(format!("release {id} 0 0\r\n"), "RELEASED\r\n");
                    reserved.push(id);
                }
                ["TIMED_OUT"] => empty += 1,
                _ => panic!("round {round}: {reply:?}"),
            }
            client.nothing_more(Duration::from_millis(1));
        }
        given += reserved.len();
        reserved.sort_unstable();
        reserved.dedup();
        assert!(reserved.iter().all(|id| ids.contains(id)));
        // What was released may have been given to one that still waited: in the end all are ready.
        assert_all_ready(&mut producer, &tube, ids.len() as i64);
        for id in ids {
            producer.ask(format!("delete {id}\r\n"), "DELETED\r\n");
        }
    }
    println!("{given} were given a job, {empty} timed out");
}

/// A job held at another slot comes to its last second while a job comes for the reserve that waits here.
#[test]
fn deadline_against_a_put() {
    const CLIENTS: usize = 16;
    const TTR: Duration = Duration::from_secs(2);
    let mut random = Random::announced("deadline_against_a_put");
    let server = server();
    let [here, there] = [tube_on(HERE, SLOTS, "here"), tube_on(THERE, SLOTS, "there")];
    let mut producer = server.connect_through(1, "P");
    use_tube(&mut producer, &there);
    let held: Vec<u64> = (0..CLIENTS)
        .map(|_| inserted(&producer.call(format!("put 0 0 {} 1\r\nh\r\n", TTR.as_secs()))).expect("an id"))
        .collect();
    use_tube(&mut producer, &here);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.connect_through(number as u16 % 2, &format!("W{number}"));
            watch_only(&mut client, &here);
            client
        })
        .collect();
    let start = Instant::now();
    for (client, id) in clients.iter_mut().zip(&held) {
        client.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} 1\r\nh\r\n"));
        client.send("reserve\r\n");
    }
    // The margin of one second begins for one after the other from now on.
    let margin = start + TTR - Duration::from_secs(1);
    std::thread::sleep(margin.saturating_duration_since(Instant::now()));
    let mut ids = Vec::new();
    for _ in 0..CLIENTS / 2 {
        ids.push(put(&mut producer, "x"));
        dawdle(&mut random);
    }
    let mut given = Vec::new();
    for client in &mut clients {
        let reply = String::from_utf8(client.reply()).expect("ASCII");
        match reply.split_whitespace().collect::<Vec<_>>()[..] {
            ["RESERVED", id, "1", "x"] => given.push(id.parse::<u64>().expect("an id")),
            ["DEADLINE_SOON"] => {}
            _ => panic!("{reply:?}"),
        }
        client.nothing_more(Duration::from_millis(1));
    }
    println!("{} of {CLIENTS} were given a job, {} were put", given.len(), ids.len());
    let mut unique = given.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), given.len(), "one job for two: {given:?}");
    // Who was told DEADLINE_SOON holds nothing that it does not know of.
    assert_eq!(jobs(&mut producer, &here), [(ids.len() - given.len()) as i64, given.len() as i64, 0, 0]);
    drop(clients);
    assert_all_ready(&mut producer, &here, ids.len() as i64);
}

/// Workers that come and go in every way, under load: every job is delivered to somebody who deletes it.
#[test]
fn nothing_is_lost_in_the_crowd() {
    const JOBS: usize = 1500;
    const WORKERS: usize = 4;
    let mut random = Random::announced("nothing_is_lost_in_the_crowd");
    let server = server();
    let tube = tube_on(HERE, SLOTS, "crowd");
    let done = std::sync::Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (server, tube, done) = (&server, &tube, &done);
            let mut random = Random::from_seed(random.next());
            scope.spawn(move || {
                while done.lock().expect("a set").len() < JOBS {
                    let mut client = server.connect(&format!("W{worker}"));
                    watch_only(&mut client, tube);
                    client.send(*random.pick(&[
                        "reserve\r\n",
                        "reserve-with-timeout 0\r\n",
                        "reserve-with-timeout 1\r\n",
                    ]));
                    dawdle(&mut random);
                    let reply = match random.below(4) {
                        // Gone, whatever it would have been given.
                        0 => continue,
                        1 => String::from_utf8(client.half_close().rest()).expect("ASCII"),
                        _ => match client.some_within(1 << 10, Duration::from_millis(50)) {
                            Some(reply) => String::from_utf8(reply).expect("ASCII"),
                            None => continue,
                        },
                    };
                    if let ["RESERVED", id, _, body] = reply.split_whitespace().collect::<Vec<_>>()[..] {
                        // The half-closed one can't; its job is ready again.
                        if client.try_call(format!("delete {id}\r\n")).as_deref() == Some(b"DELETED\r\n") {
                            assert!(done.lock().expect("a set").insert(body.to_owned()), "{body} came twice");
                        }
                    }
                }
            });
        }
        let (server, tube) = (&server, &tube);
        scope.spawn(move || {
            let mut producer = server.connect("P");
            use_tube(&mut producer, tube);
            for number in 0..JOBS {
                put(&mut producer, &number.to_string());
            }
        });
    });
    let mut observer = server.connect("observer");
    wait_for("the last of the crowd to be gone", DEADLINE, || {
        (observer.stats("stats").text("current-connections") == "1").then_some(())
    });
    assert_eq!(jobs(&mut observer, &tube), [0; 4]);
    let stats = observer.stats("stats");
    let wanted = [
        ("current-jobs-ready", "0"),
        ("current-jobs-reserved", "0"),
        ("current-waiting", "0"),
        ("current-tubes", "1"),
    ];
    assert_eq!(stats.differences(&wanted), Vec::<String>::new());
}

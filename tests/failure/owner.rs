//! An owner dies: what becomes of a command depends on how far it had come, and no other slot notices.

use crate::jobs::*;
use crate::support::process::wait_for;
use crate::support::routing::{tube_on, tubes};
use crate::support::{Binary, Client, DEADLINE, Random, Role, Server, Setup, Stats, TempDir};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SLOTS: u32 = 4;

/// The slot whose owner dies.
const DEAD: u16 = 1;

/// An answer of a slot that nothing happens to takes far less, also on a loaded machine.
const PROMPT: Duration = Duration::from_millis(500);

fn setup() -> Setup {
    Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).flags(&["-V"])
}

/// With a log that knows of every answered command.
fn durable(data: &TempDir) -> Server {
    setup().wal(data.path()).flags(&["-f0"]).start()
}

#[test]
fn command_that_was_not_sent_waits_for_the_next_generation() {
    let server = setup().start();
    let tube = tube_on(DEAD, SLOTS, "unsent");
    let mut clients = [server.connect_through(0, "A"), server.connect_through(1, "B")];
    clients.iter_mut().for_each(|client| use_tube(client, &tube));
    let away = Away::hold(&server, DEAD);
    for client in &mut clients {
        // Several, and the body in a packet of its own.
        client.send("put 0 0 60 3\r\n").wait_until_read().send(format!("one\r\n{}", put_line("two")));
        client.expect_silence();
    }
    away.let_go();
    for client in &mut clients {
        for _ in 0..2 {
            let reply = client.reply();
            assert!(inserted(&reply).is_some(), "\"{}\"", reply.escape_ascii());
        }
    }
    assert_eq!(jobs(&mut clients[0], &tube), [4, 0, 0, 0], "each was executed once");
}

/// Each of these was sent to an owner that died before it did anything, which nobody can know.
#[test]
fn mutation_without_an_answer_closes_the_connection_and_is_never_sent_again() {
    let data = TempDir::new("data");
    let server = durable(&data);
    let frontend = server.frontend(0);
    // Each acts on a job of its own, made in the right state before.
    let mutations = [
        ("put", "put 0 0 60 4\r\nlate\r\n"),
        ("delete", "delete {id}\r\n"),
        ("release", "release {id} 7 0\r\n"),
        ("bury", "bury {id} 7\r\n"),
        ("touch", "touch {id}\r\n"),
        ("kick", "kick 1\r\n"),
        ("kick-job", "kick-job {id}\r\n"),
        ("pause-tube", "pause-tube {tube} 100\r\n"),
        ("put after a read", "peek {id}\r\nput 0 0 60 4\r\nlate\r\n"),
    ];
    for (number, (what, command)) in mutations.into_iter().enumerate() {
        // Each death of a slot makes the pause before its next start longer, so all take turns.
        let slot = number as u16 % SLOTS as u16;
        let tube = tube_on(slot, SLOTS, "unknown");
        let mut client = server.connect_through(0, what);
        use_tube(&mut client, &tube);
        let id = put(&mut client, what);
        client.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} {}\r\n{what}\r\n", what.len()));
        if what.starts_with("kick") {
            client.ask(format!("bury {id} 0\r\n"), "BURIED\r\n");
        }
        let mut observer = server.connect_through(1, "observer");
        let before = jobs(&mut observer, &tube);
        let owner = server.owner(slot);
        owner.stop();
        let command = command.replace("{id}", &id.to_string()).replace("{tube}", &tube);
        send_to_stopped(&mut client, &frontend, &command);
        server.replace(owner);
        client.expect_end();
        // What was reserved is ready again; nothing else has changed, now or later.
        let [ready, reserved, delayed, buried] = before;
        assert_eq!(jobs(&mut observer, &tube), [ready + reserved, 0, delayed, buried], "{what}");
        let stats = observer.stats(&format!("stats-tube {tube}"));
        assert_eq!(stats.text("pause"), "0", "{what}");
        observer.ask(format!("delete {id}\r\n"), "DELETED\r\n");
        assert_eq!(jobs(&mut observer, &tube), [0; 4], "{what}");
    }
}

#[test]
fn reads_and_references_without_an_answer_are_sent_again() {
    /// Command and reply, with the slot's tubes `{tube}` and `{other}` and its one job in `{tube}`. `OK ` stands
    /// for a reply with numbers of its own.
    const COMMANDS: [(&str, &str); 13] = [
        ("peek {id}\r\n", "FOUND {id} 1\r\nx\r\n"),
        ("peek-ready\r\n", "FOUND {id} 1\r\nx\r\n"),
        ("peek-buried\r\n", "NOT_FOUND\r\n"),
        ("use {other}\r\n", "USING {other}\r\n"),
        ("watch {other}\r\n", "WATCHING 2\r\n"),
        ("ignore {tube}\r\n", "NOT_IGNORED\r\n"),
        ("reserve-job {id}\r\n", "RESERVED {id} 1\r\nx\r\n"),
        ("reserve\r\n", "RESERVED {id} 1\r\nx\r\n"),
        ("reserve-with-timeout 0\r\n", "RESERVED {id} 1\r\nx\r\n"),
        (
            "peek {id}\r\npeek 9999999\r\npeek {id}\r\n",
            "FOUND {id} 1\r\nx\r\nNOT_FOUND\r\nFOUND {id} 1\r\nx\r\n",
        ),
        ("stats-job {id}\r\n", "OK "),
        ("stats-tube {tube}\r\n", "OK "),
        ("list-tubes\r\n", "OK "),
    ];
    let data = TempDir::new("data");
    let server = durable(&data);
    let frontend = server.frontend(0);
    let mut producer = server.connect_through(1, "producer");
    for (number, (command, reply)) in COMMANDS.into_iter().enumerate() {
        let slot = number as u16 % SLOTS as u16;
        let [tube, other] = ["again", "other"].map(|label| tube_on(slot, SLOTS, label));
        let mut client = server.connect_through(0, command);
        use_tube(&mut client, &tube);
        watch_only(&mut client, &tube);
        use_tube(&mut producer, &tube);
        let id = put(&mut producer, "x");
        let fill = |text: &str| {
            text.replace("{id}", &id.to_string()).replace("{tube}", &tube).replace("{other}", &other)
        };
        let owner = server.owner(slot);
        owner.stop();
        send_to_stopped(&mut client, &frontend, fill(command));
        server.replace(owner);
        if reply == "OK " {
            let got = String::from_utf8(client.reply()).expect("ASCII");
            let named = if command.starts_with("stats-job") { id.to_string() } else { tube.clone() };
            assert!(got.starts_with(reply) && got.contains(&named), "{command:?}: {got:?}");
        } else {
            client.expect(fill(reply));
        }
        let used = if command.starts_with("use") { &other } else { &tube };
        client.ask("list-tube-used\r\n", format!("USING {used}\r\n"));
        client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
}

/// The owner had executed it and its answer was on the way: the answer counts, though its sender is dead.
#[test]
fn answer_that_was_on_its_way_arrives() {
    let data = TempDir::new("data");
    let server = durable(&data);
    let tube = tube_on(DEAD, SLOTS, "answered");
    let mut client = server.connect_through(0, "A");
    let mut observer = server.connect_through(1, "observer");
    use_tube(&mut client, &tube);
    let (owner, frontend) = (server.owner(DEAD), server.frontend(0));
    owner.stop();
    send_to_stopped(&mut client, &frontend, put_line("x"));
    frontend.stop();
    owner.go_on();
    wait_for("the owner to execute it", DEADLINE, || (jobs(&mut observer, &tube)[0] == 1).then_some(()));
    server.replace(owner);
    assert_eq!(jobs(&mut observer, &tube), [1, 0, 0, 0]);
    frontend.go_on();
    let id = inserted(&client.reply()).expect("an id");
    client.ask(format!("peek {id}\r\n"), format!("FOUND {id} 1\r\nx\r\n"));
}

/// What one client put: acknowledged ids and bodies, and the body of the put that got no answer, if there was one.
#[derive(Default)]
struct Puts {
    acknowledged: Vec<(u64, String)>,
    unknown: Vec<String>,
}

/// Puts as fast as it goes until it is told to stop or its connection is closed.
fn produce(mut client: Client, tube: &str, name: &str, stop: &AtomicBool, answers: &AtomicUsize) -> Puts {
    let mut puts = Puts::default();
    use_tube(&mut client, tube);
    for number in 0.. {
        let body = format!("{name}-{number}");
        match client.try_call(put_line(&body)) {
            Some(reply) => {
                let id = inserted(&reply);
                let id = id.unwrap_or_else(|| panic!("\"{}\" for {body}", reply.escape_ascii()));
                puts.acknowledged.push((id, body));
                answers.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                puts.unknown.push(body);
                break;
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    puts
}

/// At any moment: what was acknowledged is there, what was not is there once or not at all, and its connection is
/// closed.
#[test]
fn owner_killed_at_any_moment_loses_and_doubles_nothing() {
    const ROUNDS: usize = 3;
    const CLIENTS: usize = 3;
    /// The kill comes after so many answers at most: early ones and ones in full swing.
    const ANSWERS: usize = 100;
    let mut random = Random::announced("owner_killed_at_any_moment_loses_and_doubles_nothing");
    for _ in 0..ROUNDS {
        let data = TempDir::new("data");
        let server = durable(&data);
        for (slot, tube) in tubes(SLOTS, "any").iter().enumerate() {
            let (stop, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
            let wanted = random.below(ANSWERS);
            let puts: Vec<Puts> = std::thread::scope(|scope| {
                let producers: Vec<_> = (0..CLIENTS)
                    .map(|number| {
                        let client = server.connect(&format!("P{number}"));
                        let (stop, answers) = (&stop, &answers);
                        scope.spawn(move || produce(client, tube, &number.to_string(), stop, answers))
                    })
                    .collect();
                wait_for("enough answers", DEADLINE, || {
                    (answers.load(Ordering::Relaxed) >= wanted).then_some(())
                });
                server.replace(server.owner(slot as u16));
                await_slot(&server, tube);
                stop.store(true, Ordering::Relaxed);
                producers.into_iter().map(|p| p.join().unwrap_or_else(|e| resume_unwind(e))).collect()
            });
            let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            let mut worker = server.connect("worker");
            watch_only(&mut worker, tube);
            loop {
                let reply = String::from_utf8(worker.call("reserve-with-timeout 0\r\n")).expect("ASCII");
                let words: Vec<&str> = reply.split_whitespace().collect();
                let ["RESERVED", id, _, body] = words[..] else { break };
                found.entry(body.to_owned()).or_default().push(id.parse().expect("an id"));
            }
            for (id, body) in puts.iter().flat_map(|puts| &puts.acknowledged) {
                assert_eq!(found.remove(body), Some(vec![*id]), "{body} was acknowledged as {id}");
            }
            for body in puts.iter().flat_map(|puts| &puts.unknown) {
                let ids = found.remove(body).unwrap_or_default();
                assert!(ids.len() <= 1, "{body} got no answer and is there as {ids:?}");
            }
            assert!(found.is_empty(), "nobody put {found:?}");
        }
    }
}

#[test]
fn reserve_goes_on_waiting_over_its_owners_death() {
    let server = setup().start();
    let tube = tube_on(DEAD, SLOTS, "wait");
    let mut waiters = [server.connect_through(0, "A"), server.connect_through(1, "B")];
    for waiter in &mut waiters {
        watch_only(waiter, &tube);
        waiter.send("reserve\r\n").expect_silence();
    }
    let mut producer = server.connect("P");
    use_tube(&mut producer, &tube);
    for _ in 0..2 {
        server.replace(server.owner(DEAD));
        // Both wait again; who is first is chance.
        wait_for("the waiters to be there again", DEADLINE, || {
            let stats = producer.stats(&format!("stats-tube {tube}"));
            let wanted = [("current-waiting", "2"), ("current-watching", "2"), ("current-using", "1")];
            stats.differences(&wanted).is_empty().then_some(())
        });
    }
    let ids = ["one", "two"].map(|body| put(&mut producer, body));
    let mut replies: Vec<Vec<u8>> = waiters.iter_mut().map(Client::reply).collect();
    replies.sort();
    let mut wanted = [("one", ids[0]), ("two", ids[1])]
        .map(|(body, id)| format!("RESERVED {id} 3\r\n{body}\r\n").into_bytes());
    wanted.sort();
    assert_eq!(replies, wanted);
    waiters.iter_mut().for_each(|waiter| _ = waiter.expect_silence());
}

/// The time that a reserve may take does not start anew with the owner.
#[test]
fn timeout_of_a_reserve_counts_on_over_its_owners_death() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let server = setup().start();
    let tube = tube_on(DEAD, SLOTS, "timeout");
    let mut client = server.connect("A");
    watch_only(&mut client, &tube);
    let start = Instant::now();
    client.send("reserve-with-timeout 3\r\n");
    client.silence(TIMEOUT / 2);
    server.replace(server.owner(DEAD));
    client.expect("TIMED_OUT\r\n");
    let waited = start.elapsed();
    // The new wait is in whole seconds, and none of them is cut off.
    assert!(waited >= TIMEOUT && waited < TIMEOUT + Duration::from_secs(1) + PROMPT, "waited {waited:?}");
}

/// A half-closed client that waits is answered at once, also where its owner has just died.
#[test]
fn half_closed_client_does_not_wait_for_the_next_generation_for_ever() {
    let server = setup().start();
    let tube = tube_on(DEAD, SLOTS, "half");
    let mut client = server.connect("A");
    watch_only(&mut client, &tube);
    client.send("reserve\r\n").expect_silence();
    let away = Away::hold(&server, DEAD);
    client.half_close().expect_silence();
    away.let_go();
    client.expect("TIMED_OUT\r\n").expect_end();
}

#[test]
fn other_slots_do_not_notice() {
    let server = setup().start();
    let names = tubes(SLOTS, "calm");
    let dead = &names[usize::from(DEAD)];
    // A client of each other slot, and one that also holds on to the slot that dies.
    let mut clients: Vec<Client> = Vec::new();
    for tube in names.iter().filter(|tube| *tube != dead) {
        let mut client = server.connect(tube);
        use_tube(&mut client, tube);
        watch_only(&mut client, tube);
        clients.push(client);
    }
    let mut tied = server.connect("tied");
    tied.ask(format!("watch {dead}\r\n"), "WATCHING 2\r\n");
    use_tube(&mut tied, &names[2]);
    let away = Away::hold(&server, DEAD);
    for client in clients.iter_mut().chain([&mut tied]) {
        let start = Instant::now();
        let id = put(client, "x");
        client.ask(format!("peek {id}\r\n"), format!("FOUND {id} 1\r\nx\r\n"));
        client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
        assert!(start.elapsed() < PROMPT, "took {:?}", start.elapsed());
    }
    assert!(server.find(Role::Owner, DEAD).is_none());
    away.let_go();
    let id = put(&mut tied, "x");
    tied.ask(format!("delete {id}\r\n"), "DELETED\r\n");
}

#[test]
fn references_are_made_anew() {
    let server = setup().start();
    let [used, watched, both] = ["used", "watched", "both"].map(|label| tube_on(DEAD, SLOTS, label));
    let far = tube_on(DEAD + 1, SLOTS, "far");
    let mut clients = [server.connect_through(0, "A"), server.connect_through(1, "B")];
    for client in &mut clients {
        client.ask(format!("watch {watched}\r\n"), "WATCHING 2\r\n");
        client.ask(format!("watch {both}\r\n"), "WATCHING 3\r\n");
        client.ask(format!("watch {far}\r\n"), "WATCHING 4\r\n");
    }
    use_tube(&mut clients[0], &used);
    use_tube(&mut clients[1], &both);
    let mut observer = server.connect("observer");
    for _ in 0..2 {
        server.replace(server.owner(DEAD));
        for (tube, using, watching) in
            [(&used, "1", "0"), (&watched, "0", "2"), (&both, "1", "2"), (&far, "0", "2")]
        {
            wait_for("the references to be there again", DEADLINE, || {
                let reply = observer.call(format!("stats-tube {tube}\r\n"));
                let stats = reply.starts_with(b"OK").then(|| Stats::parse(&reply))?;
                let wanted = [("current-using", using), ("current-watching", watching)];
                stats.differences(&wanted).is_empty().then_some(())
            });
        }
    }
    // What a client lets go after that is gone.
    clients[0].ask(format!("ignore {watched}\r\n"), "WATCHING 3\r\n");
    clients[1].ask(format!("ignore {watched}\r\n"), "WATCHING 3\r\n");
    use_tube(&mut clients[0], "default");
    observer
        .ask(format!("stats-tube {watched}\r\n"), NOT_FOUND)
        .ask(format!("stats-tube {used}\r\n"), NOT_FOUND);
    drop(clients);
    wait_for("the other references to go", DEADLINE, || {
        (observer.call("list-tubes\r\n") == b"OK 14\r\n---\n- default\n\r\n").then_some(())
    });
}

/// Reservations live in an owner's memory: with a log their jobs are ready again.
#[test]
fn reservations_are_gone_and_their_jobs_ready_again() {
    let data = TempDir::new("data");
    let server = durable(&data);
    let mut holder = server.connect("holder");
    let names = tubes(SLOTS, "held");
    let mut ids = Vec::new();
    for tube in &names {
        use_tube(&mut holder, tube);
        let id = put(&mut holder, "x");
        holder.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} 1\r\nx\r\n"));
        ids.push(id);
    }
    server.replace(server.owner(DEAD));
    let lost = ids[usize::from(DEAD)];
    for command in [format!("release {lost} 0 0"), format!("bury {lost} 0"), format!("touch {lost}")] {
        holder.ask(format!("{command}\r\n"), NOT_FOUND);
    }
    let mut other = server.connect("other");
    other.ask(format!("reserve-job {lost}\r\n"), format!("RESERVED {lost} 1\r\nx\r\n"));
    for id in ids.into_iter().filter(|id| *id != lost) {
        other.ask(format!("reserve-job {id}\r\n"), NOT_FOUND);
        holder.ask(format!("touch {id}\r\n"), "TOUCHED\r\n");
    }
}

/// Without a log a slot's memory is all there is, and only that slot's.
#[test]
fn without_a_log_only_the_dead_slots_jobs_are_gone() {
    let server = setup().start();
    let mut client = server.connect("A");
    let names = tubes(SLOTS, "memory");
    for tube in &names {
        use_tube(&mut client, tube);
        put(&mut client, "x");
    }
    use_tube(&mut client, "default");
    server.replace(server.owner(DEAD));
    for (slot, tube) in names.iter().enumerate() {
        let left = i64::from(slot != usize::from(DEAD));
        assert_eq!(jobs(&mut client, tube), [left, 0, 0, 0], "{tube}");
    }
}

/// A put whose body has not come to its end was not executed, whatever the client is told.
#[test]
fn unfinished_put_leaves_nothing() {
    let data = TempDir::new("data");
    let server = durable(&data);
    let tube = tube_on(DEAD, SLOTS, "part");
    let mut client = server.connect("A");
    use_tube(&mut client, &tube);
    client.send("put 0 0 60 10\r\nhello").wait_until_read();
    server.replace(server.owner(DEAD));
    client.try_send("world\r\n");
    if let Some(reply) = client.reply_or_end() {
        assert_eq!(reply, INTERNAL_ERROR.as_bytes());
    }
    assert_eq!(jobs(&mut server.connect("observer"), &tube), [0; 4]);
}

/// A frontend once told an owner all the names in one frame, which holds 64 KiB, and fell with all its clients when
/// they did not fit.
#[test]
fn client_that_watches_more_than_a_frame_holds_goes_on_and_so_do_its_neighbours() {
    const TUBES: usize = 1000;
    let server = Setup::new(Binary::Trellis).slots(1).frontends(1).start();
    let names: Vec<String> = (0..TUBES).map(|number| format!("{number}-{}", "x".repeat(186))).collect();
    let mut watcher = server.connect("watcher");
    watcher.send(names.iter().map(|name| format!("watch {name}\r\n")).collect::<String>());
    for count in 2..TUBES + 2 {
        watcher.expect(format!("WATCHING {count}\r\n"));
    }
    let mut bystander = server.connect("bystander");
    use_tube(&mut bystander, &names[0]);
    let frontend = server.frontend(0);
    server.replace(server.owner(0));
    for name in [&names[0], &names[TUBES / 2], &names[TUBES - 1]] {
        use_tube(&mut bystander, name);
        let id = put(&mut bystander, "x");
        watcher.ask("reserve\r\n", format!("RESERVED {id} 1\r\nx\r\n"));
        watcher.ask(format!("delete {id}\r\n"), "DELETED\r\n");
        let stats = bystander.stats(&format!("stats-tube {name}"));
        assert_eq!(stats.number("current-watching"), 1, "{name}");
    }
    watcher.ask(format!("ignore {}\r\n", names[TUBES - 1]), format!("WATCHING {TUBES}\r\n"));
    assert_eq!(server.frontend(0), frontend, "the frontend is the same process");
}

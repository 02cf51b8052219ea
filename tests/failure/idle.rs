//! `--idle-timeout` and `--body-timeout`: who is cut off, and above all who is not.
//!
//! That somebody is left alone is shown by another client, which did the same later or did less, and is cut off.

use crate::jobs::*;
use crate::support::process::wait_for;
use crate::support::routing::tube_on;
use crate::support::{Binary, Client, DEADLINE, Server, Setup};
use std::time::{Duration, Instant};

const SLOTS: u32 = 2;
const SECOND: Duration = Duration::from_secs(1);

fn server(frontends: u32, flags: &[&str]) -> Server {
    Setup::new(Binary::Trellis).slots(SLOTS).frontends(frontends).flags(flags).start()
}

fn await_end_of(mut client: Client) {
    client.expect_end();
}

#[test]
fn silent_client_is_disconnected_after_its_time_and_not_before() {
    let server = server(2, &["--idle-timeout=1"]);
    for number in 0..2 {
        let start = Instant::now();
        let mut mute = server.connect_through(number, "mute");
        let mut talker = server.connect_through(number, "talker");
        talker.ask("list-tube-used\r\n", "USING default\r\n");
        let mut half_a_line = server.connect_through(number, "half a line");
        half_a_line.send("list-tub");
        let mut half_a_body = server.connect_through(number, "half a body");
        half_a_body.send("put 0 0 60 5\r\nhe");
        let mut half_a_skip = server.connect_through(number, "half a body too large");
        half_a_skip.send("put 0 0 60 70000\r\nhe");
        for client in [&mut mute, &mut talker, &mut half_a_line, &mut half_a_body, &mut half_a_skip] {
            client.expect_end();
        }
        assert!(start.elapsed() >= SECOND, "after {:?}", start.elapsed());
    }
}

#[test]
fn client_that_waits_or_holds_a_job_is_left_alone() {
    let server = server(1, &["--idle-timeout=1"]);
    let mut producer = server.connect("producer");
    put(&mut producer, "for the holder");
    let mut holder = server.connect("holder");
    let reply = holder.call("reserve\r\n");
    let id = String::from_utf8_lossy(&reply).split(' ').nth(1).expect("an id").to_owned();
    let mut waiter = server.connect("waiter");
    waiter.send("reserve\r\n").wait_until_read();
    let mut patient = server.connect("patient");
    patient.send("reserve-with-timeout 60\r\n").wait_until_read();
    // Both a job and a place in the queue, and silent in a pipeline.
    let stopped = server.owner(1);
    let mut blocked = server.connect("blocked");
    use_tube(&mut blocked, &tube_on(1, SLOTS, "stopped"));
    stopped.stop();
    blocked.send(put_line("x"));

    await_end_of(producer);
    await_end_of(server.connect("later"));
    holder.ask(format!("touch {id}\r\n"), "TOUCHED\r\n");
    stopped.go_on();
    assert!(inserted(&blocked.reply()).is_some());
    let mut producer = server.connect("second producer");
    ["y", "z"].into_iter().for_each(|body| _ = put(&mut producer, body));
    for client in [&mut waiter, &mut patient] {
        assert!(client.reply().starts_with(b"RESERVED"));
    }
    // What made it different has ended: it is a client like any other.
    holder.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    await_end_of(holder);
}

#[test]
fn reservation_that_ran_out_protects_no_more() {
    let server = server(1, &["--idle-timeout=1"]);
    let mut holder = server.connect("holder");
    holder.send("put 0 0 1 1\r\nx\r\nreserve\r\n");
    assert!(inserted(&holder.reply()).is_some());
    assert!(holder.reply().starts_with(b"RESERVED"));
    let start = Instant::now();
    holder.expect_end();
    // The job's second, then its own.
    assert!(start.elapsed() >= SECOND * 2, "after {:?}", start.elapsed());
    assert_eq!(jobs(&mut server.connect("observer"), "default"), [1, 0, 0, 0]);
}

#[test]
fn client_that_leaves_its_replies_unread_is_silent_too() {
    let server = server(1, &["--idle-timeout=1"]);
    let mut producer = server.connect("producer");
    let id = put(&mut producer, &"b".repeat(60_000));
    let mut deaf = server.connect_narrow("deaf");
    deaf.send(format!("peek {id}\r\n").repeat(1000));
    wait_for("it to be gone", DEADLINE, || {
        let mut observer = server.connect("observer");
        (observer.stats("stats").number("current-producers") == 0
            && observer.stats("stats").number("current-connections") == 1)
            .then_some(())
    });
}

#[test]
fn body_that_makes_no_end_costs_the_connection() {
    for frontends in [1, 2] {
        let server = server(frontends, &["--body-timeout=1"]);
        let mut silent = server.connect("silent");
        let start = Instant::now();
        let mut late = server.connect("late");
        late.send("put 0 0 60 5\r\nh");
        let mut thrown_away = server.connect("thrown away");
        thrown_away.send("put 0 0 60 70000\r\nh");
        // A byte now and then is no end.
        wait_for("it to be cut off", DEADLINE, || (!thrown_away.try_send("h")).then_some(()));
        late.expect_end();
        assert!(start.elapsed() >= SECOND, "after {:?}", start.elapsed());
        put(&mut silent, "x");
        assert_eq!(jobs(&mut silent, "default"), [1, 0, 0, 0]);
    }
}

#[test]
fn time_in_which_the_server_does_not_take_a_body_does_not_count() {
    const LARGE: usize = 500_000;
    let server = server(1, &["--body-timeout=1", "-z", "1000000"]);
    // More than the windows take, for an owner that does not answer.
    let stopped = server.owner(1);
    let mut blocked = server.connect("blocked");
    use_tube(&mut blocked, &tube_on(1, SLOTS, "stopped"));
    stopped.stop();
    blocked.send(format!("put 0 0 60 {LARGE}\r\n"));
    blocked.send("b".repeat(LARGE)).send("\r\n");
    // And one that has to wait for its turn.
    let mut waiter = server.connect("waiter");
    waiter.send("reserve\r\nput 0 0 60 5\r\nhe").wait_until_read();

    let mut late = server.connect("late");
    late.send("put 0 0 60 5\r\nh").expect_end();
    stopped.go_on();
    assert!(inserted(&blocked.reply()).is_some());
    put(&mut server.connect("producer"), "x");
    assert!(waiter.reply().starts_with(b"RESERVED"));
    waiter.send("llo\r\n");
    assert!(inserted(&waiter.reply()).is_some());
}

//! Reserves that concern several slots: refused over several watched tubes, and reminded of reservations elsewhere.

use crate::support::routing::{tube_on, tubes};
use crate::support::{Binary, Client, Server, Setup};
use std::time::{Duration, Instant};

const SLOTS: u32 = 4;

/// The answer to a reserve that more than one watched tube would have to serve.
const REFUSED: &str = "UNSUPPORTED_MULTI_WATCH\r\n";

/// On a loaded machine an answer may be late by so much; a wait that is wrong is a second long.
const LATE: Duration = Duration::from_millis(700);

fn server() -> Server {
    Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start()
}

/// Puts a job with this TTR into a tube and returns its id.
fn put(client: &mut Client, tube: &str, ttr: u32) -> u64 {
    client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
    let reply = String::from_utf8(client.call(format!("put 0 0 {ttr} 1\r\nx\r\n"))).expect("ASCII");
    reply.trim_end().strip_prefix("INSERTED ").and_then(|id| id.parse().ok()).expect("an id")
}

/// From any number of watched tubes to just this one.
fn watch_only(client: &mut Client, tube: &str, from: &str) {
    client.ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n");
    client.ask(format!("ignore {from}\r\n"), "WATCHING 1\r\n");
}

/// Sends, takes the reply, and says how long that took.
fn timed(client: &mut Client, command: &str, reply: &str) -> Duration {
    let start = Instant::now();
    client.ask(command, reply);
    start.elapsed()
}

#[test]
fn reserve_over_several_tubes_is_refused_and_reserves_nothing() {
    let server = server();
    let mut producer = server.connect("producer");
    // Tubes of one slot and of several: which it is must make no difference.
    for pair in [
        [tube_on(1, SLOTS, "one"), tube_on(1, SLOTS, "two")],
        [tube_on(2, SLOTS, "a"), tube_on(3, SLOTS, "b")],
    ] {
        let ids = pair.clone().map(|tube| put(&mut producer, &tube, 60));
        for command in ["reserve\r\n", "reserve-with-timeout 0\r\n", "reserve-with-timeout 5\r\n"] {
            let mut client = server.connect("A");
            watch_only(&mut client, &pair[0], "default");
            client.ask(format!("watch {}\r\n", pair[1]), "WATCHING 2\r\n");
            assert!(timed(&mut client, command, REFUSED) < LATE, "the first refusal comes at once");
            let stats = client.stats("stats");
            assert_eq!(stats.differences(&[("current-jobs-reserved", "0")]), Vec::<String>::new());
            // The connection can be used for anything else, and for a reserve of one tube.
            client.ask(format!("ignore {}\r\n", pair[1]), "WATCHING 1\r\n");
            client.ask("reserve-with-timeout 0\r\n", format!("RESERVED {} 1\r\nx\r\n", ids[0]));
            client.ask(format!("release {} 0 0\r\n", ids[0]), "RELEASED\r\n");
        }
    }
}

#[test]
fn second_refusal_on_a_connection_waits_a_second() {
    let server = server();
    let mut client = server.connect("A");
    client.ask("watch other\r\n", "WATCHING 2\r\n");
    assert!(timed(&mut client, "reserve\r\n", REFUSED) < LATE);
    for command in ["reserve\r\n", "reserve-with-timeout 0\r\n"] {
        let waited = timed(&mut client, command, REFUSED);
        let second = Duration::from_secs(1);
        assert!(waited >= second && waited < second + LATE, "{command:?} was refused after {waited:?}");
    }
    // Only such reserves wait, and only on that connection.
    assert!(timed(&mut client, "list-tube-used\r\n", "USING default\r\n") < LATE);
    let mut other = server.connect("B");
    other.ask("watch other\r\n", "WATCHING 2\r\n");
    assert!(timed(&mut other, "reserve\r\n", REFUSED) < LATE);
}

#[test]
fn refusal_that_waits_keeps_its_place_among_the_replies() {
    let server = server();
    let mut client = server.connect("A");
    client.ask("watch other\r\n", "WATCHING 2\r\n");
    client.send("reserve\r\nreserve\r\nlist-tube-used\r\nignore other\r\nreserve-with-timeout 0\r\n");
    client.expect(format!("{REFUSED}{REFUSED}USING default\r\nWATCHING 1\r\nTIMED_OUT\r\n"));
    // A client that goes away while it waits leaves nothing behind.
    let mut gone = server.connect("B");
    gone.ask("watch other\r\n", "WATCHING 2\r\n").ask("reserve\r\n", REFUSED).send("reserve\r\n");
    drop(gone);
    let mut half = server.connect("C");
    half.ask("watch other\r\n", "WATCHING 2\r\n").ask("reserve\r\n", REFUSED);
    half.send("reserve\r\nlist-tube-used\r\n").half_close();
    half.expect(format!("{REFUSED}USING default\r\n")).expect_end();
}

/// Each wait begins where the last one ended, within one wake-up of the owner.
#[test]
fn pipelined_reserves_without_a_job_are_answered_at_once() {
    const RESERVES: usize = 50;
    for setup in
        [Setup::new(Binary::Legacy), Setup::new(Binary::Trellis), Setup::new(Binary::Trellis).slots(SLOTS)]
    {
        let server = setup.start();
        let mut client = server.connect("A");
        let commands = "reserve-with-timeout 0\r\n".repeat(RESERVES);
        assert!(timed(&mut client, &commands, &"TIMED_OUT\r\n".repeat(RESERVES)) < LATE);
        let waited = timed(
            &mut client,
            "reserve-with-timeout 1\r\nreserve-with-timeout 0\r\n",
            "TIMED_OUT\r\nTIMED_OUT\r\n",
        );
        assert!(waited < Duration::from_secs(1) + LATE, "{waited:?}");
    }
}

#[test]
fn one_slot_reserves_from_all_watched_tubes() {
    for setup in [Setup::new(Binary::Legacy), Setup::new(Binary::Trellis).slots(1).frontends(2)] {
        let server = setup.start();
        let mut client = server.connect("A");
        let tubes = ["one", "two", "three"];
        for tube in tubes {
            client.send(format!("watch {tube}\r\n")).reply();
        }
        for (number, tube) in tubes.iter().enumerate() {
            let id = put(&mut client, tube, 60);
            assert_eq!(id, number as u64 + 1);
            client.ask("reserve\r\n", format!("RESERVED {id} 1\r\nx\r\n"));
        }
        client.ask("reserve-with-timeout 0\r\n", "TIMED_OUT\r\n");
    }
}

/// Where the original gives DEADLINE_SOON, and after how long, for a job held in one tube and a reserve that waits
/// in another. The tubes are of different slots on Trellis.
struct Reminder {
    server: Server,
    client: Client,
    held: u64,
    since: Instant,
}

impl Reminder {
    const TTR: u32 = 3;

    /// A client that holds a job of one tube and watches only the other.
    fn set(setup: &Setup) -> Reminder {
        let server = setup.start();
        let [here, there] = Reminder::tubes();
        let mut client = server.connect("A");
        watch_only(&mut client, &here, "default");
        let held = put(&mut client, &here, Reminder::TTR);
        let since = Instant::now();
        client.ask("reserve\r\n", format!("RESERVED {held} 1\r\nx\r\n"));
        watch_only(&mut client, &there, &here);
        Reminder { server, client, held, since }
    }

    fn tubes() -> [String; 2] {
        [tube_on(1, SLOTS, "held"), tube_on(2, SLOTS, "waits")]
    }

    /// The last second of the job's time begins now, give or take.
    fn assert_is_margin(&self) {
        let after = self.since.elapsed();
        let margin = Duration::from_secs(u64::from(Reminder::TTR) - 1);
        assert!(after + Duration::from_millis(50) >= margin && after < margin + LATE, "after {after:?}");
    }
}

fn on_both(test: impl Fn(Reminder)) {
    for setup in [Setup::new(Binary::Legacy), Setup::new(Binary::Trellis).slots(SLOTS).frontends(2)] {
        test(Reminder::set(&setup));
    }
}

#[test]
fn reserve_that_waits_is_told_of_a_deadline_at_another_slot() {
    on_both(|mut r| {
        r.client.ask("reserve\r\n", "DEADLINE_SOON\r\n");
        r.assert_is_margin();
        // From here on at once, whatever the timeout.
        for command in ["reserve\r\n", "reserve-with-timeout 0\r\n", "reserve-with-timeout 9\r\n"] {
            assert!(timed(&mut r.client, command, "DEADLINE_SOON\r\n") < LATE);
        }
        // A touch gives it its time back.
        r.client.ask(format!("touch {}\r\n", r.held), "TOUCHED\r\n");
        r.since = Instant::now();
        r.client.ask("reserve-with-timeout 0\r\n", "TIMED_OUT\r\n");
        r.client.ask("reserve-with-timeout 9\r\n", "DEADLINE_SOON\r\n");
        r.assert_is_margin();
        r.client.ask(format!("delete {}\r\n", r.held), "DELETED\r\n");
        r.client.ask("reserve-with-timeout 0\r\n", "TIMED_OUT\r\n");
        let stats = r.client.stats("stats");
        let wanted = [("current-jobs-reserved", "0"), ("current-waiting", "0"), ("job-timeouts", "0")];
        assert_eq!(stats.differences(&wanted), Vec::<String>::new());
    });
}

#[test]
fn ready_job_comes_before_the_deadline_at_another_slot() {
    on_both(|mut r| {
        r.client.ask("reserve\r\n", "DEADLINE_SOON\r\n");
        let [_, there] = Reminder::tubes();
        let mut producer = r.server.connect("P");
        let id = put(&mut producer, &there, 60);
        r.client.ask("reserve\r\n", format!("RESERVED {id} 1\r\nx\r\n"));
        r.client.ask("reserve\r\n", "DEADLINE_SOON\r\n");
    });
}

#[test]
fn timeout_before_the_margin_is_a_timeout() {
    on_both(|mut r| {
        r.client.ask("reserve-with-timeout 1\r\n", "TIMED_OUT\r\n");
        r.client.ask("reserve-with-timeout 9\r\n", "DEADLINE_SOON\r\n");
        r.assert_is_margin();
    });
}

#[test]
fn job_that_comes_while_waiting_is_given_and_the_deadline_is_told_to_the_next_reserve() {
    on_both(|mut r| {
        let [_, there] = Reminder::tubes();
        r.client.send("reserve\r\n").expect_silence();
        let id = put(&mut r.server.connect("P"), &there, 60);
        r.client.expect(format!("RESERVED {id} 1\r\nx\r\n"));
        r.client.ask("reserve\r\n", "DEADLINE_SOON\r\n");
        r.assert_is_margin();
    });
}

/// The soonest of several reservations counts, wherever it is.
#[test]
fn soonest_of_several_deadlines_counts() {
    for setup in [Setup::new(Binary::Legacy), Setup::new(Binary::Trellis).slots(SLOTS).frontends(2)] {
        let server = setup.start();
        let mut client = server.connect("A");
        let [a, b, c, d] = tubes(SLOTS, "soon").try_into().expect("four names");
        let mut ids = Vec::new();
        for (tube, ttr) in [(&a, 30), (&b, 3), (&c, 40)] {
            let id = put(&mut client, tube, ttr);
            client.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} 1\r\nx\r\n"));
            ids.push(id);
        }
        let since = Instant::now();
        watch_only(&mut client, &d, "default");
        client.ask("reserve\r\n", "DEADLINE_SOON\r\n");
        let after = since.elapsed();
        assert!(after > Duration::from_millis(1900) && after < Duration::from_secs(2) + LATE, "{after:?}");
        client.ask(format!("delete {}\r\n", ids[1]), "DELETED\r\n");
        client.ask("reserve-with-timeout 1\r\n", "TIMED_OUT\r\n");
    }
}

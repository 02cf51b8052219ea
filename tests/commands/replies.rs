//! Reply by reply: whatever the original answers, Trellis answers.

use crate::support::{Binary, Setup};
use crate::twins::Twins;

#[test]
fn every_command_answers_alike() {
    let mut twins = Twins::start();
    twins.ask_each("A", &["use red", "watch red", "watch blue", "ignore default", "list-tube-used"]);
    twins.put("A", "10 0 60", "first");
    twins.put("A", "5 0 60", "second");
    twins.put("A", "0 1000 60", "later");
    twins.ask_each("A", &["peek 1", "peek 2", "peek 4", "peek-ready", "peek-delayed", "peek-buried"]);
    twins.ask_each("A", &["reserve", "touch 2", "release 2 20 0", "reserve-with-timeout 0", "bury 1 3"]);
    twins.ask_each("A", &["peek-buried", "kick 5", "kick 5", "kick-job 3", "reserve-job 3", "delete 3"]);
    twins.ask_each("A", &["list-tubes", "list-tubes-watched", "list-tube-used", "pause-tube red 0"]);
    twins.ask_each("A", &["reserve", "delete 1", "reserve", "delete 2", "reserve-with-timeout 0"]);
    twins.ask_each("A", &["ignore blue", "ignore red", "watch default", "ignore red", "use default"]);
    twins.ask_each("A", &["list-tubes", "list-tubes-watched", "list-tube-used"]);
    twins.same_stats("A", "stats");
    twins.send("A", "quit\r\n");
    for client in twins.pair("A") {
        client.expect_end();
    }
}

#[test]
fn every_error_answers_alike() {
    let mut twins = Twins::start_with(&["-z", "100"]);
    let lines = [
        // No such command, or not in this form.
        "",
        "nonsense",
        "put",
        "put 0 0 60",
        "put 0 0 60 1 x",
        "put -1 0 60 1",
        "use",
        "use -x",
        "use two words",
        "watch *",
        "ignore ",
        "reserve 1",
        "reserve-with-timeout",
        "reserve-with-timeout x",
        "reserve-job",
        "reserve-job x",
        "peek",
        "peek x",
        "peek-ready x",
        "delete",
        "delete x",
        "release 1",
        "release 1 2 3 4",
        "bury 1",
        "bury 1 x",
        "touch",
        "touch 1 2",
        "kick",
        "kick x",
        "kick-job",
        "kick-job x",
        "stats x",
        "stats-job",
        "stats-job x",
        "stats-tube",
        "stats-tube -",
        "list-tubes x",
        "list-tube-used x",
        "list-tubes-watched x",
        "pause-tube",
        "pause-tube default",
        "pause-tube default x",
        // Nothing there.
        "peek 99",
        "peek-ready",
        "peek-delayed",
        "peek-buried",
        "delete 99",
        "release 99 0 0",
        "bury 99 0",
        "touch 99",
        "kick-job 99",
        "reserve-job 99",
        "stats-job 99",
        "stats-tube nowhere",
        "pause-tube nowhere 1",
        "reserve-with-timeout 0",
        "ignore default",
        "kick 1",
    ];
    twins.ask_each("A", &lines);
    twins.put("A", "0 0 60", &"b".repeat(101));
    twins.ask("A", "put 0 0 60 1\r\nabc");
    twins.put("A", "0 0 1", "soon over");
    twins.ask_each("A", &["reserve", "reserve", "reserve-with-timeout 5"]);
    twins.ask_each("B", &["delete 2", "release 2 0 0", "bury 2 0", "touch 2", "kick-job 2", "reserve-job 2"]);
    twins.same_stats("A", "stats");
}

#[test]
fn drain_mode_answers_alike() {
    let mut twins = Twins::start_with(&["-z", "100"]);
    twins.put("A", "0 0 60", "before");
    for server in twins.servers() {
        server.signal(nix::sys::signal::Signal::SIGUSR1);
        let mut observer = server.connect("observer");
        crate::support::process::wait_for("drain mode", crate::support::DEADLINE, || {
            (observer.stats("stats").text("draining") == "true").then_some(())
        });
    }
    twins.put("A", "0 0 60", "after");
    twins.put("A", "0 0 60", &"b".repeat(101));
    twins.ask("A", "put 0 0 60 1\r\nabc");
    twins.ask_each("A", &["put x", "reserve", "release 1 0 0", "reserve", "bury 1 0", "kick 1", "delete 1"]);
    twins.same_stats("A", "stats-tube default");
}

#[test]
fn statistics_agree_field_by_field() {
    let mut twins = Twins::start_with(&["-z", "1000", "-s", "8192"]);
    twins.ask_each("producer", &["use red", "list-tube-used"]);
    for priority in [2000, 5, 1023, 1024] {
        twins.put("producer", &format!("{priority} 0 60"), "ready");
    }
    twins.put("producer", "7 1000 60", "delayed");
    twins.put("producer", "7 0 60", &"b".repeat(1001));
    twins.ask_each("worker", &["watch red", "reserve", "bury 2 9", "reserve", "touch 3", "reserve"]);
    twins.ask_each("worker", &["release 3 8 1000", "use red", "peek-buried", "peek-delayed", "peek-ready"]);
    twins.ask_each("idle", &["watch blue", "ignore default", "watch red", "ignore red", "list-tubes"]);
    twins.send("waiter", "watch green\r\n");
    twins.same_reply("waiter", "watch");
    twins.send("waiter", "reserve\r\n");
    twins.silence("waiter");
    twins.ask_each("idle", &["pause-tube red 1000", "pause-tube blue 0", "stats-tube nowhere", "list-tubes"]);
    for tube in ["default", "red", "blue", "green"] {
        twins.same_stats("idle", &format!("stats-tube {tube}"));
    }
    for id in 1..=5 {
        twins.same_stats("idle", &format!("stats-job {id}"));
    }
    let stats = twins.same_stats("idle", "stats");
    // That the two agree proves little if nothing happened.
    for field in
        ["current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried"]
    {
        assert_ne!(stats.text(field), "0", "{field}");
    }
    assert_eq!(stats.text("current-waiting"), "1");
    assert_eq!(stats.text("current-connections"), "4");

    twins.close("waiter", "idle", "current-connections", "3");
    twins.close("worker", "idle", "current-connections", "2");
    twins.ask_each("idle", &["list-tubes", "kick 10", "use red", "kick 10", "kick 10", "list-tubes"]);
    twins.same_stats("idle", "stats-tube red");
    twins.same_stats("idle", "stats-tube default");
    // How often `close` had to ask is chance.
    let asked = ["cmd-stats"];
    let [legacy, trellis] = twins.pair("idle").each_mut().map(|client| client.stats("stats"));
    let masked = [&crate::twins::OF_THE_RUN[..], &asked[..]].concat();
    assert_eq!(legacy.masking(&masked), trellis.masking(&masked));
}

#[test]
fn statistics_fields_come_in_the_same_order_with_several_slots() {
    let legacy = Setup::new(Binary::Legacy).start();
    let trellis = Setup::new(Binary::Trellis).slots(4).start();
    let [legacy, trellis] = [&legacy, &trellis].map(|server| {
        let mut client = server.connect("A");
        client.send("put 0 0 60 1\r\nx\r\n").reply();
        ["stats", "stats-tube default"].map(|command| client.stats(command).keys().join("\n"))
    });
    assert_eq!(legacy, trellis);
}

#[test]
fn waiting_reserves_are_served_alike() {
    let mut twins = Twins::start();
    for waiter in ["A", "B", "C"] {
        twins.send(waiter, "reserve\r\n");
        twins.silence(waiter);
    }
    twins.send("D", "watch side\r\n");
    twins.same_reply("D", "watch");
    twins.send("D", "reserve-with-timeout 100\r\n");
    twins.silence("D");
    twins.ask("P", "use side\r\n");
    twins.put("P", "0 0 60", "for D");
    twins.same_reply("D", "reserve-with-timeout");
    twins.ask("P", "use default\r\n");
    // Who of A, B and C is served first is part of what must be alike.
    for (body, waiter) in [("one", "A"), ("two", "B"), ("three", "C")] {
        twins.put("P", "0 0 60", body);
        twins.same_reply(waiter, "reserve");
    }
    twins.ask_each("A", &["reserve-with-timeout 0", "delete 2"]);
    twins.ask_each("D", &["delete 1", "reserve-with-timeout 1"]);
    twins.same_stats("P", "stats");
}

#[test]
fn deadline_soon_comes_alike() {
    let mut twins = Twins::start();
    twins.put("A", "0 0 2", "x");
    twins.ask_each("A", &["reserve", "reserve-with-timeout 0"]);
    // Waits about a second for the job's last second to begin.
    twins.ask_each("A", &["reserve", "reserve-with-timeout 0", "reserve-with-timeout 9"]);
    twins.ask_each("A", &["touch 1", "reserve-with-timeout 0", "delete 1", "reserve-with-timeout 0"]);
    twins.same_stats("A", "stats");
}

#[test]
fn pauses_hold_jobs_back_alike() {
    let mut twins = Twins::start();
    twins.put("A", "0 0 60", "x");
    twins
        .ask_each("A", &["pause-tube default 1000", "reserve-with-timeout 0", "peek-ready", "reserve-job 1"]);
    twins.ask_each("A", &["release 1 0 0", "reserve-with-timeout 0", "pause-tube default 1", "reserve"]);
    twins.ask_each("A", &["release 1 0 0", "reserve-with-timeout 0"]);
    twins.same_stats("A", "stats-tube default");
}

#[test]
fn buried_and_delayed_jobs_are_kicked_in_the_same_order() {
    let mut twins = Twins::start();
    for (number, numbers) in
        ["9 0 60", "3 0 60", "7 0 60", "3 500 60", "1 300 60", "1 400 60"].iter().enumerate()
    {
        twins.put("A", numbers, &format!("job {number}"));
    }
    twins
        .ask_each("A", &["reserve", "reserve", "reserve", "bury 3 5", "bury 1 1", "bury 2 9", "peek-buried"]);
    twins.ask_each("A", &["kick 1", "peek-buried", "peek-ready", "kick-job 2", "peek-buried", "kick 9"]);
    twins.ask_each("A", &["peek-delayed", "kick 1", "peek-delayed", "peek-ready", "kick-job 4", "kick 9"]);
    for _ in 0..6 {
        twins.ask("A", "reserve-with-timeout 0\r\n");
    }
    for id in 1..=6 {
        twins.same_stats("A", &format!("stats-job {id}"));
    }
}

#[test]
fn jobs_of_a_closed_client_come_back_alike() {
    let mut twins = Twins::start();
    for numbers in ["9 0 60", "3 0 60", "3 0 60", "3 1000 60"] {
        twins.put("A", numbers, "x");
    }
    twins.ask_each("B", &["reserve", "reserve", "bury 2 0", "reserve-job 2", "reserve-job 4"]);
    twins.close("B", "A", "current-jobs-reserved", "0");
    for id in 1..=4 {
        twins.same_stats("A", &format!("stats-job {id}"));
    }
    for _ in 0..5 {
        twins.ask("A", "reserve-with-timeout 0\r\n");
    }
}

#[test]
fn tubes_come_and_go_alike() {
    let mut twins = Twins::start();
    twins.ask_each("A", &["use a", "watch b", "watch c", "watch d", "list-tubes", "list-tubes-watched"]);
    twins.ask_each("A", &["ignore c", "list-tubes", "list-tubes-watched", "use e", "list-tubes", "ignore b"]);
    twins.ask_each("B", &["use d", "watch d", "ignore default", "list-tubes", "list-tubes-watched"]);
    twins.put("B", "0 0 60", "keeps d");
    twins.ask_each("B", &["use default", "watch default", "ignore d", "list-tubes"]);
    twins
        .ask_each("A", &["ignore d", "list-tubes", "stats-tube c", "stats-tube b", "delete 1", "list-tubes"]);
    twins.ask_each("A", &["stats-tube d", "ignore default", "list-tubes-watched"]);
}

/// All that is sent before a half-close is carried out, and what is unfinished is dropped.
#[test]
fn half_closed_input_is_answered_alike() {
    let inputs = [
        "",
        "\r\n",
        "list-tube-used\r\n",
        "list-tube-used\r\nlist-tube-used",
        "list-tube-used\r",
        "put 0 0 60 3\r\nabc\r\n",
        "put 0 0 60 3\r\nabc\r",
        "put 0 0 60 3\r\nabc",
        "put 0 0 60 3\r\n",
        "put 0 0 60 3\r\nabcdef",
        "put 0 0 60 3\r\nabc\r\nput 0 0 60 3\r\nabc\r\nlist-tube-used\r\n",
        "put 0 0 60 70000\r\nabc",
        "put 0 0 60 3 \r\nabc\r\n",
        "reserve\r\nreserve\r\nreserve\r\nreserve\r\nreserve\r\nreserve-with-timeout 100\r\n",
        "reserve\r\nput 0 0 60 1\r\nx\r\nreserve\r\n",
        "watch a\r\nreserve-with-timeout 2000000000\r\nignore default\r\nreserve\r\nlist-tubes-watched\r\n",
        "list-tube-used\r\nquit\r\nlist-tube-used\r\n",
        "quit",
        "use half\r\nput 0 0 60 1\r\nx\r\npeek-ready\r\nkick 1\r\nuse default\r\n",
    ];
    let long = "y".repeat(300);
    let inputs = inputs.into_iter().chain([long.as_str()]);
    let mut twins = Twins::start();
    for input in inputs {
        twins.send("A", input);
        let [legacy, trellis] = twins.pair("A").each_mut().map(|client| client.half_close().rest());
        assert_eq!(
            legacy.escape_ascii().to_string(),
            trellis.escape_ascii().to_string(),
            "after {input:?}: left the original, right Trellis"
        );
        // What one input leaves is there for the next: its jobs, but not its connection.
        twins.close("A", "observer", "current-connections", "1");
    }
}

//! W8 to W10: what `-f` promises is kept. Seen in the calls that reach the kernel.

use crate::fault::{Act, Fault};
use crate::logs::{assert_found, put};
use crate::support::{DEADLINE, Setup, TempDir, Variant, on_both, process::wait_for};
use std::time::Duration;

const EIO: i32 = 5;

/// Of the calls on a file: is there a sync behind the last write?
fn is_synced(fault: &Fault, file: &str) -> bool {
    let trace = fault.trace();
    let last = |call: &str| trace.iter().rposition(|(what, name, _)| (&**what, &**name) == (call, file));
    let written = last("write").unwrap_or_else(|| panic!("nothing was written to {file}: {trace:?}"));
    last("fsync").is_some_and(|synced| synced > written)
}

/// W8. The sync that a reply waits for fails.
fn failing_sync_is_not_acknowledged(variant: Variant) {
    let log = TempDir::new("log");
    // Of the second job's record.
    let fault = Fault::on("binlog.").at("fsync", 2, Act::Fail(EIO));
    let mut server = fault.put_to(Setup::of(variant).wal(log.path()).flags(&["-f0"])).start();
    let mut client = server.connect("A");
    put(&mut client, "0 0 60", "one");
    let reply = client.try_call("put 0 0 60 3\r\ntwo\r\n");
    assert!(fault.happened());
    if variant.is_trellis() {
        assert_eq!(reply, None, "its outcome is unknown");
        // And it goes on from what is on disk.
        put(&mut server.connect("B"), "0 0 60", "three");
        assert!(server.log().contains("Input/output error"), "{}", server.log());
    } else {
        assert_eq!(reply.as_deref(), Some(&b"INSERTED 2\r\n"[..]));
    }
    server.restart();
    assert_found(&mut server.connect("C"), 1, "one");
}

/// W9. Two jobs within one interval of `-f`, and nothing after that.
fn trailing_writes_are_synced(variant: Variant) {
    let log = TempDir::new("log");
    let fault = Fault::on("binlog.");
    let server = fault.put_to(Setup::of(variant).wal(log.path()).flags(&["-f", "500"])).start();
    let mut client = server.connect("A");
    client.ask("put 0 0 60 1\r\na\r\nput 0 0 60 1\r\nb\r\n", "INSERTED 1\r\nINSERTED 2\r\n");
    if variant.is_trellis() {
        wait_for("a sync behind the last write", DEADLINE, || is_synced(&fault, "binlog.1").then_some(()));
    } else {
        // Twice the interval: what does not come then comes never, since nothing wakes the server.
        client.silence(Duration::from_millis(1000));
        assert!(!is_synced(&fault, "binlog.1"), "{:?}", fault.trace());
    }
}

/// W9. A file is full and the next one is begun, all within one interval.
fn full_file_is_synced(variant: Variant) {
    let log = TempDir::new("log");
    let fault = Fault::on("binlog.");
    let flags = ["-f", "300", "-s", "4096"];
    let server = fault.put_to(Setup::of(variant).wal(log.path()).flags(&flags)).start();
    let mut client = server.connect("A");
    let jobs = format!("put 0 0 60 500\r\n{}\r\n", "x".repeat(500)).repeat(10);
    client.send(jobs);
    (0..10).for_each(|_| drop(client.reply()));
    if variant.is_trellis() {
        wait_for("a sync of the full file", DEADLINE, || is_synced(&fault, "binlog.1").then_some(()));
    } else {
        // Whatever it syncs later is the file of that time.
        client.silence(Duration::from_millis(300));
        put(&mut client, "0 0 60", "later");
        assert!(is_synced(&fault, "binlog.2"), "{:?}", fault.trace());
        assert!(!is_synced(&fault, "binlog.1"), "{:?}", fault.trace());
    }
}

/// W9. With `-f0`, a new file's name has to be on disk before a job in it is acknowledged.
fn name_of_a_new_file_is_synced(variant: Variant) {
    let log = TempDir::new("log");
    let fault = Fault::on(log.path().to_str().unwrap());
    let flags = ["-f0", "-s", "4096"];
    let server = fault.put_to(Setup::of(variant).wal(log.path()).flags(&flags)).start();
    let mut client = server.connect("A");
    let directory = log.path().file_name().unwrap().to_str().unwrap().to_owned();
    for _ in 0..10 {
        put(&mut client, "0 0 60", "x".repeat(500));
        let trace = fault.trace();
        let last = |call: &str, part: &str| {
            trace.iter().rposition(|(what, name, _)| what == call && name.starts_with(part))
        };
        let made = last("create", "binlog.").expect("a log was made");
        let synced = last("fsync", &directory).is_some_and(|synced| synced > made);
        assert_eq!(synced, variant.is_trellis(), "{trace:?}");
    }
}

/// W10. The wall clock is set back.
fn clock_that_is_set_back_stops_no_sync(variant: Variant) {
    let log = TempDir::new("log");
    let fault = Fault::on("binlog.").on_clock();
    let server = fault.put_to(Setup::of(variant).wal(log.path()).flags(&["-f0"])).start();
    let mut client = server.connect("A");
    put(&mut client, "0 0 60", "before");
    assert!(is_synced(&fault, "binlog.1"), "{:?}", fault.trace());
    fault.step_clock();
    put(&mut client, "0 0 60", "after");
    assert_eq!(is_synced(&fault, "binlog.1"), variant.is_trellis(), "{:?}", fault.trace());
}

on_both!(
    failing_sync_is_not_acknowledged,
    trailing_writes_are_synced,
    full_file_is_synced,
    name_of_a_new_file_is_synced,
    clock_that_is_set_back_stops_no_sync,
);

/// What was written and not synced is there for the next owner: clients may build on it, so it must not be lost with
/// the power any more.
#[test]
fn what_a_killed_owner_did_not_sync_is_synced_before_it_is_served() {
    let log = TempDir::new("log");
    let fault = Fault::on("binlog.").at("fsync", 2, Act::Kill);
    let server = fault.put_to(Setup::of(Variant::TrellisOneSlot).wal(log.path()).flags(&["-f0"])).start();
    let mut client = server.connect("A");
    put(&mut client, "0 0 60", "one");
    assert_eq!(client.try_call("put 0 0 60 3\r\ntwo\r\n"), None, "its outcome is unknown");
    assert_found(&mut server.connect("B"), 2, "two");
    assert!(fault.happened() && is_synced(&fault, "binlog.1"), "{:?}", fault.trace());
}

/// One sync covers all commands of a batch.
#[test]
fn pipelined_commands_share_a_sync() {
    const JOBS: usize = 200;
    let log = TempDir::new("log");
    let fault = Fault::on("binlog.");
    let server = fault.put_to(Setup::of(Variant::TrellisOneSlot).wal(log.path()).flags(&["-f0"])).start();
    let mut client = server.connect("A");
    client.send("put 0 0 60 1\r\nx\r\n".repeat(JOBS));
    (0..JOBS).for_each(|_| drop(client.reply()));
    let syncs = fault.trace().iter().filter(|(call, _, _)| call == "fsync").count();
    assert!(syncs <= JOBS / 4, "{syncs} syncs for {JOBS} jobs sent at once");
    assert!(is_synced(&fault, "binlog.1"));
}

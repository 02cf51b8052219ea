//! A job in every state, written by one server, changed by the other, handed back.

use crate::jobs::{Job, put};
use crate::support::{Binary, Client, Server, Setup, TempDir};
use std::path::Path;

#[test]
fn log_of_the_original_is_served_by_trellis_and_handed_back() {
    hand_over(Binary::Legacy, Binary::Trellis);
}

#[test]
fn log_of_trellis_is_served_by_the_original_and_handed_back() {
    hand_over(Binary::Trellis, Binary::Legacy);
}

/// Shows that the test asks nothing that the original can't do.
#[test]
fn log_of_the_original_is_served_by_the_original() {
    hand_over(Binary::Legacy, Binary::Legacy);
}

#[test]
fn log_of_trellis_is_served_by_trellis() {
    hand_over(Binary::Trellis, Binary::Trellis);
}

fn open(binary: Binary, log: &Path) -> (Server, Client) {
    let server = Setup::new(binary).wal(log).flags(&["-f0"]).start();
    let client = server.connect(&format!("{binary:?}"));
    (server, client)
}

fn hand_over(first: Binary, second: Binary) {
    let log = TempDir::new("log");
    let (mut server, mut client) = open(first, log.path());
    let ids = write_one_in_every_state(&mut client);
    let written = Job::look_at_all(&mut client, &ids);
    server.kill();

    let (mut server, mut client) = open(second, log.path());
    let found = Job::look_at_all(&mut client, &ids);
    assert_eq!(found, after_restart(written), "written by {first:?}, read by {second:?}");
    let ids = change_all(&mut client, &ids);
    let changed = Job::look_at_all(&mut client, &ids);
    server.kill();

    let (mut server, mut client) = open(first, log.path());
    let mut known = after_restart(changed);
    assert_eq!(Job::look_at_all(&mut client, &ids), known, "changed by {second:?}, read by {first:?}");
    server.kill();

    // Nothing may wear off, nor be lost in an orderly end.
    for binary in [second, first, first, second, second, first] {
        let (mut server, mut client) = open(binary, log.path());
        assert_eq!(Job::look_at_all(&mut client, &ids), known, "read by {binary:?}, several restarts later");
        let id = put(&mut client, "1 0 60", b"one more");
        assert!(known.iter().flatten().all(|job| job.id < id), "id {id} was used before");
        client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
        server.stop();
    }

    // And the jobs are not only there, they can be had.
    let (_server, mut client) = open(second, log.path());
    for job in known.drain(..).flatten() {
        client.ask(format!("reserve-job {}\r\n", job.id), job.reserved());
        client.ask(format!("delete {}\r\n", job.id), "DELETED\r\n");
    }
    assert_eq!(client.stats("stats").text("current-tubes"), "1");
}

fn write_one_in_every_state(client: &mut Client) -> Vec<u64> {
    client.ask("use red\r\nwatch red\r\nignore default\r\n", "USING red\r\nWATCHING 2\r\nWATCHING 1\r\n");
    let ready = put(client, "10 0 60", b"ready");
    let delayed = put(client, "4294967295 100000 4294967295", b"delayed");
    let buried = put(client, "5 0 60", b"buried");
    client.ask("reserve\r\n", format!("RESERVED {buried} 6\r\nburied\r\n"));
    client.ask(format!("bury {buried} 7\r\n"), "BURIED\r\n");
    let released_late = put(client, "5 0 60", b"released with delay");
    client.ask("reserve\r\n", format!("RESERVED {released_late} 19\r\nreleased with delay\r\n"));
    client.ask(format!("release {released_late} 9 5000\r\n"), "RELEASED\r\n");
    // With its own priority: another one the original would forget (row w02).
    let released = put(client, "5 0 60", b"released");
    client.ask("reserve\r\n", format!("RESERVED {released} 8\r\nreleased\r\n"));
    client.ask(format!("release {released} 5 0\r\n"), "RELEASED\r\n");
    let kicked = put(client, "20 3000 60", b"kicked");
    client.ask(format!("kick-job {kicked}\r\n"), "KICKED\r\n");
    let deleted = put(client, "30 0 60", b"deleted");
    client.ask(format!("delete {deleted}\r\n"), "DELETED\r\n");
    let longest_name = "n".repeat(200);
    client.ask(format!("use {longest_name}\r\n"), format!("USING {longest_name}\r\n"));
    let odd_bytes = put(client, "40 0 60", b"\r\n\0\r\ndelete 1\r\n\xff");
    client.ask("use default\r\n", "USING default\r\n");
    let empty = put(client, "50 0 60", b"");
    // Two bytes less than the limit: more the original could not read back (row w11).
    let large = put(client, "60 0 60", &[b'q'; 65_533]);
    client.ask("watch default\r\n", "WATCHING 2\r\n");
    let reserved = put(client, "0 0 60", b"reserved");
    client.ask("reserve\r\n", format!("RESERVED {reserved} 8\r\nreserved\r\n"));
    vec![ready, delayed, buried, released_late, released, kicked, deleted, odd_bytes, empty, large, reserved]
}

/// Does something to most of the jobs above, puts two new ones and returns the ids of all.
fn change_all(client: &mut Client, ids: &[u64]) -> Vec<u64> {
    let [ready, delayed, buried, released_late, released, kicked, _, odd_bytes, empty, ..] = *ids else {
        panic!("not the ids of write_one_in_every_state: {ids:?}")
    };
    client.ask(format!("reserve-job {ready}\r\n"), format!("RESERVED {ready} 5\r\nready\r\n"));
    client.ask(format!("bury {ready} 77\r\n"), "BURIED\r\n");
    client.ask(format!("kick-job {delayed}\r\n"), "KICKED\r\n");
    client.ask(format!("kick-job {buried}\r\n"), "KICKED\r\n");
    client.ask(format!("delete {released_late}\r\n"), "DELETED\r\n");
    client.ask(format!("reserve-job {released}\r\n"), format!("RESERVED {released} 8\r\nreleased\r\n"));
    client.ask(format!("release {released} 1 7000\r\n"), "RELEASED\r\n");
    client.ask(format!("reserve-job {kicked}\r\n"), format!("RESERVED {kicked} 6\r\nkicked\r\n"));
    client.ask(format!("touch {kicked}\r\n"), "TOUCHED\r\n");
    client.ask(format!("delete {odd_bytes}\r\ndelete {empty}\r\n"), "DELETED\r\nDELETED\r\n");
    client.ask("use blue\r\n", "USING blue\r\n");
    let new = [put(client, "3 0 60", b"new"), put(client, "4 2000 60", b"new and delayed")];
    [ids, &new].concat()
}

/// No reservation outlives its server.
fn after_restart(jobs: Vec<Option<Job>>) -> Vec<Option<Job>> {
    let ready = |job: Job| if job.state() == "reserved" { job.with_state("ready") } else { job };
    jobs.into_iter().map(|job| job.map(ready)).collect()
}

//! Out of descriptors: the server does not spin, says little, and goes on when clients leave.

use crate::jobs::*;
use crate::support::process::{cpu_time, wait_for};
use crate::support::{Binary, Client, DEADLINE, Server, Setup};
use std::time::Duration;

/// Descriptors of each process, and many more clients than that.
const LIMIT: u32 = 64;
const CLIENTS: usize = 200;

const WINDOW: Duration = Duration::from_secs(3);

/// What all processes may use of it: 5 %, most of which is looking again ten times a second.
const ALLOWED: Duration = Duration::from_millis(150);

const LINES_PER_SECOND: u32 = 10;

fn used(server: &Server) -> Duration {
    server.pids().into_iter().filter_map(cpu_time).sum()
}

/// Of these, those that have not been answered yet. The others leave.
fn unserved(crowd: Vec<Client>) -> Vec<Client> {
    let waits = |client: &mut Client| client.some_within(100, Duration::from_millis(1)).is_none();
    crowd.into_iter().filter_map(|mut client| waits(&mut client).then_some(client)).collect()
}

/// What the processes of a server do while many more clients want it than it has descriptors for.
fn crowded(frontends: u32) -> (Server, Client, Vec<Client>) {
    let server = Setup::new(Binary::Trellis).slots(4).frontends(frontends).open_files(LIMIT).start();
    let mut first = server.connect("first");
    put(&mut first, "x");
    let mut crowd: Vec<Client> = (0..CLIENTS).map(|n| server.connect(&n.to_string())).collect();
    crowd.iter_mut().for_each(|client| _ = client.send("list-tube-used\r\n"));
    (server, first, crowd)
}

#[test]
fn server_out_of_descriptors_does_not_spin_and_serves_on() {
    let (server, mut first, mut crowd) = crowded(1);
    let before = used(&server);
    std::thread::sleep(WINDOW);
    let spent = used(&server) - before;
    println!("{spent:?} of {WINDOW:?}");
    assert!(spent <= ALLOWED, "{spent:?} of processor time in {WINDOW:?}");
    // Those that are there are served all the while.
    put(&mut first, "y");
    let served = first.stats("stats").number("current-connections");
    assert!(served > i64::from(LIMIT) / 4 && served < i64::from(LIMIT), "{served} have a connection");
    // As they leave others take their places, to the last.
    wait_for("all to be served", DEADLINE, || {
        crowd = unserved(std::mem::take(&mut crowd));
        crowd.is_empty().then_some(())
    });
    put(&mut first, "z");
}

#[test]
fn server_out_of_descriptors_says_so_in_few_lines() {
    let (server, _first, _crowd) = crowded(1);
    said(&server);
    assert!(server.log().contains("descriptors"), "it says what is wrong: {}", server.log());
}

/// However many frontends there are.
#[test]
fn server_of_several_frontends_out_of_descriptors_says_so_in_few_lines() {
    let (server, _first, _crowd) = crowded(4);
    said(&server);
}

/// Not much comes to the log in a while.
fn said(server: &Server) {
    wait_for("the first line about it", DEADLINE, || (!server.log().is_empty()).then_some(()));
    let before = server.log().len();
    std::thread::sleep(WINDOW);
    let count = server.log()[before..].lines().count();
    println!("{count} lines in {WINDOW:?}");
    // One more than so many a second: the first may come at the beginning of the first.
    assert!(
        count <= (LINES_PER_SECOND * WINDOW.as_secs() as u32) as usize + 1,
        "{count} lines in {WINDOW:?}"
    );
}

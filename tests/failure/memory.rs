//! C9: memory that a burst took is given back when the slot is idle.

use crate::support::process::{group_members, status_field, wait_for};
use crate::support::{Binary, DEADLINE, Setup};

const JOBS: usize = 20_000;
const BODY: usize = 2_000;

/// Resident memory of the server's processes, in KiB.
fn resident(group: i32) -> u64 {
    let of = |pid| -> Option<u64> { status_field(pid, "VmRSS")?.split(' ').next()?.parse().ok() };
    group_members(group).into_iter().filter_map(of).sum()
}

#[test]
fn memory_of_a_burst_is_given_back() {
    let server = Setup::new(Binary::Trellis).start();
    let mut client = server.connect("A");
    let before = resident(server.pid());
    let put = [format!("put 0 0 60 {BODY}\r\n").into_bytes(), vec![b'x'; BODY], b"\r\n".to_vec()].concat();
    // A job in a hundred stays, so that the heap's top is not free.
    for id in 1..=JOBS {
        client.ask(&put, format!("INSERTED {id}\r\n"));
    }
    let full = resident(server.pid());
    let taken = (JOBS * BODY / 1024) as u64;
    assert!(full >= before + taken, "{before} to {full} KiB");
    for id in (1..=JOBS).filter(|id| id % 100 != 0) {
        client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
    wait_for("the memory to come back", DEADLINE, || {
        (resident(server.pid()) < before + taken / 2).then_some(())
    });
}

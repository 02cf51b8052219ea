//! The supervisor dies: all its processes leave by themselves, and a new server takes over without ever being two.

use crate::jobs::*;
use crate::support::process::{group_members, wait_for};
use crate::support::routing::tubes;
use crate::support::{Binary, Child, Role, Setup, TempDir};
use std::time::{Duration, Instant};

const SLOTS: u32 = 4;

/// What the design promises to a machine that is not overloaded, and as much again for one that is.
const GONE: Duration = Duration::from_secs(2);

#[test]
fn all_processes_leave_also_those_that_are_busy_or_wait() {
    let mut server = Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start();
    let mut clients = Vec::new();
    for (number, tube) in tubes(SLOTS, "busy").iter().enumerate() {
        let mut client = server.connect_through(number as u16 % 2, tube);
        use_tube(&mut client, tube);
        watch_only(&mut client, tube);
        put(&mut client, "x");
        client.send("reserve\r\nreserve\r\n").reply();
        clients.push(client);
    }
    let group = server.kill_leader();
    let start = Instant::now();
    wait_for("the children to leave", GONE, || group_members(group).is_empty().then_some(()));
    println!("gone after {:?}", start.elapsed());
    for client in &mut clients {
        assert_eq!(client.rest(), b"", "an end and nothing else");
    }
}

/// A stopped child can't hear of it: the kernel takes it along.
#[test]
fn stopped_children_are_gone_too() {
    let mut server = Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start();
    let (owner, frontend) = (server.owner(2), server.frontend(1));
    owner.stop();
    frontend.stop();
    let group = server.kill_leader();
    wait_for("the children to leave", GONE, || group_members(group).is_empty().then_some(()));
}

#[test]
fn new_server_takes_over_and_a_slot_never_has_two_owners() {
    const ROUNDS: usize = 8;
    let data = TempDir::new("data");
    let setup = Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).wal(data.path()).flags(&["-f0"]);
    let mut old = setup.start();
    let names = tubes(SLOTS, "kept");
    for round in 0..ROUNDS {
        let mut client = old.connect("A");
        for tube in &names {
            use_tube(&mut client, tube);
            put(&mut client, "x");
        }
        let old_owners: Vec<Child> = old.children().into_iter().filter(|c| c.role == Role::Owner).collect();
        assert_eq!(old_owners.len(), SLOTS as usize);
        let group = old.kill_leader();
        // The next server starts at once; meanwhile this looks whether it has an owner beside an old one.
        let new = std::thread::scope(|scope| {
            let start = scope.spawn(|| setup.start());
            while !start.is_finished() {
                let new_owners = owners_of_directory(data.path(), group);
                for old in &old_owners {
                    // Looked at in this order: if the old one still lives now, it lived when the new one was seen.
                    let beside = new_owners.iter().find(|new| new.number == old.number);
                    assert!(beside.is_none() || old.is_gone(), "slot {} has two owners", old.number);
                }
            }
            start.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        assert!(group_members(group).is_empty(), "old processes live beside the new server");
        let mut client = new.connect("B");
        for tube in &names {
            assert_eq!(jobs(&mut client, tube), [round as i64 + 1, 0, 0, 0], "round {round}, {tube}");
        }
        old = new;
    }
}

/// Owners that keep a file of this directory open, but for those of one process group.
fn owners_of_directory(directory: &std::path::Path, but: i32) -> Vec<Child> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let old = group_members(but);
    let uses = |pid: &i32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut files = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        files.any(|file| file.starts_with(directory))
    };
    let pids = pids.filter(|pid| !old.contains(pid)).filter(uses);
    pids.filter_map(Child::of_pid).filter(|child| child.role == Role::Owner).collect()
}

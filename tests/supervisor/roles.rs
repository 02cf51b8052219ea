//! A role alone, with the test in the supervisor's place: what it says, and when it leaves.

use std::process::{Child, Stdio};

use trellis::ipc::Kind;
use trellis::ipc::control::{ClientLimits, Hello, Role, Server as ServerFacts, Start, decode, encode};
use trellis::ipc::socket::{Channel, Progress, pair};
use trellis::protocol::Words;
use trellis::scoreboard::Scoreboard;
use trellis::topology::{Layout, Topology};

use crate::rig::{refused, with_fd_3};

/// A child and the test in the supervisor's place.
struct Lone {
    child: Child,
    channel: Channel,
}

fn lone_owner(slot: u16, generation: u32) -> Lone {
    let (near, far) = pair().unwrap();
    let (slot, number) = (slot.to_string(), generation.to_string());
    let mut command = with_fd_3(far, "", &["owner", "--slot", &slot, "--generation", &number]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    Lone { child, channel: Channel::new(near, generation).unwrap() }
}

impl Lone {
    fn start(&mut self, start: &Start) {
        let (_, board) = Scoreboard::create(1, 1, 0).unwrap();
        self.channel.queue(Kind::Start, &encode(start), vec![board]);
        assert_eq!(self.channel.flush(), Progress::Done);
    }

    fn hello(&mut self) -> Hello {
        decode(Kind::Hello, &self.next(Kind::Hello)).unwrap()
    }

    /// Why it can't go on.
    fn farewell(&mut self) -> String {
        String::from_utf8(self.next(Kind::Farewell)).unwrap()
    }

    /// What it says next, which must be of this kind.
    fn next(&mut self, kind: Kind) -> Vec<u8> {
        let mut gone = false;
        loop {
            if let Some(frame) = self.channel.next().unwrap() {
                assert_eq!(frame.header.kind, kind);
                return frame.payload.to_vec();
            }
            assert!(!gone, "it said no {kind:?}");
            self.channel.wait_readable().unwrap();
            gone = self.channel.receive() == Progress::Gone;
        }
    }

    fn end(self) -> (Option<i32>, String) {
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn orders(slot: u16, generation: u32) -> Start {
    let topology = Topology::new(1, 8, Layout::Flat, "0123456789abcdef").unwrap();
    Start {
        role: Role::Owner,
        index: slot,
        generation,
        listeners: 0,
        fingerprint: topology.fingerprint().to_string(),
        server: ServerFacts {
            instance: "0123456789abcdef".into(),
            pid: std::process::id(),
            clock_offset: 0,
            started_at: 0,
            job_bytes: 65535,
            wal_file_bytes: 10 << 20,
            frontends: 1,
            owner_wait_ms: 5000,
            metrics_tubes: 0,
            clients: ClientLimits {
                connections: 10,
                unfinished_bytes: 65535,
                idle_s: None,
                body_s: None,
                per_address: None,
                refused: Words::default(),
            },
        },
        wal: None,
        id_floor: 1,
        drain: false,
        falloc_pattern: None,
        topology,
    }
}

#[test]
fn child_says_which_topology_it_computed() {
    let mut lone = lone_owner(0, 3);
    lone.start(&orders(0, 3));
    let hello = lone.hello();
    assert_eq!((hello.role, hello.index, hello.generation), (Role::Owner, 0, 3));
    assert_eq!(hello.fingerprint, orders(0, 3).topology.fingerprint().to_string());
    drop(lone.channel);
    let output = lone.child.wait_with_output().unwrap();
    assert!(output.status.code().is_some(), "it left by itself: {:?}", output.status);
}

#[test]
fn child_with_another_fingerprint_ends_for_good_naming_both() {
    let mut lone = lone_owner(0, 1);
    let told = "f".repeat(64);
    lone.start(&Start { fingerprint: told.clone(), ..orders(0, 1) });
    let computed = lone.hello().fingerprint;
    let farewell = lone.farewell();
    let (code, text) = lone.end();
    assert_eq!(code, Some(66), "{text}");
    assert!(text.contains(&told) && text.contains(&computed), "{text}");
    assert!(farewell.contains(&told) && text.contains(&farewell), "{farewell}");
}

#[test]
fn child_with_the_orders_of_another_ends() {
    let mut lone = lone_owner(0, 1);
    lone.start(&orders(0, 2));
    let (code, text) = lone.end();
    assert_eq!(code, Some(76), "{text}");
    assert!(text.contains("generation 2"), "{text}");
}

#[test]
fn child_whose_supervisor_is_gone_before_it_starts_ends() {
    let Lone { child, channel } = lone_owner(0, 1);
    drop(channel);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn role_started_by_hand_is_refused() {
    refused(&["owner", "--slot", "0", "--generation", "1"], 5, "by hand");
    refused(&["frontend", "--number", "0", "--generation", "1"], 5, "by hand");
    refused(&["owner"], 5, "--slot");
}

//! Clients that nobody wants: once their input stops they cost nearly nothing, and no one else notices them.

use crate::jobs::*;
use crate::support::process::cpu_time;
use crate::support::{Binary, Client, Server, Setup};
use std::time::{Duration, Instant};

/// The time over which processor use is looked at, and what all processes together may use of it: 2 %.
const WINDOW: Duration = Duration::from_secs(2);
const ALLOWED: Duration = Duration::from_millis(40);

struct Stage {
    server: Server,
    bystander: Client,
}

impl Stage {
    fn set() -> Stage {
        let server = Setup::new(Binary::Trellis).slots(4).frontends(2).start();
        let bystander = server.connect("bystander");
        let mut stage = Stage { server, bystander };
        // Then all processes are there, which counts where their memory is the subject.
        stage.others_do_not_notice();
        stage
    }

    fn others_do_not_notice(&mut self) {
        for tube in crate::support::routing::tubes(4, "by") {
            let start = Instant::now();
            use_tube(&mut self.bystander, &tube);
            let id = put(&mut self.bystander, "x");
            self.bystander.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} 1\r\nx\r\n"));
            self.bystander.ask(format!("delete {id}\r\n"), "DELETED\r\n");
            assert!(start.elapsed() < Duration::from_secs(1), "took {:?}", start.elapsed());
        }
    }

    /// Nothing is sent to the server any more: it rests.
    fn rests(&mut self) {
        self.others_do_not_notice();
        let before = self.used();
        std::thread::sleep(WINDOW);
        let used = self.used() - before;
        println!("{used:?} of {WINDOW:?}");
        assert!(before > Duration::ZERO, "a measure that measures nothing");
        assert!(used <= ALLOWED, "{used:?} of processor time in {WINDOW:?} without any input");
        self.others_do_not_notice();
    }

    fn used(&self) -> Duration {
        self.server.pids().into_iter().filter_map(cpu_time).sum()
    }
}

#[test]
fn urgent_byte_costs_nothing() {
    let mut stage = Stage::set();
    let mut client = stage.server.connect("urgent");
    client.ask("list-tube-used\r\n", "USING default\r\n").send_urgent(b'!');
    stage.rests();
    // What is said behind it is heard; the byte itself is in or beside the stream, as the system has it.
    client.send("\r\nlist-tube-used\r\n");
    let replies = (0..2).map(|_| client.reply()).collect::<Vec<_>>();
    assert!(replies.contains(&b"USING default\r\n".to_vec()), "{replies:?}");
}

#[test]
fn half_close_with_unread_replies_costs_nothing() {
    let mut stage = Stage::set();
    let mut producer = stage.server.connect("P");
    let id = put(&mut producer, &"b".repeat(60_000));
    let mut client = stage.server.connect_narrow("reads nothing");
    client.send(format!("peek {id}\r\n").repeat(500)).half_close();
    let mut waiting = stage.server.connect("waits");
    waiting.send("watch nothing\r\nignore default\r\nreserve\r\n").half_close();
    stage.rests();
    waiting.expect("WATCHING 2\r\nWATCHING 1\r\nTIMED_OUT\r\n").expect_end();
    // It still gets all of it.
    let reply = format!("FOUND {id} 60000\r\n{}\r\n", "b".repeat(60_000));
    for _ in 0..500 {
        client.expect(&reply);
    }
    client.expect_end();
}

#[test]
fn endless_line_costs_nothing_and_is_answered_at_its_end() {
    const PIECE_BYTES: usize = 1 << 20;
    let mut stage = Stage::set();
    let before = stage.server.peak_memory();
    let mut client = stage.server.connect("endless");
    let piece = "x".repeat(PIECE_BYTES);
    for _ in 0..20 {
        client.send(&piece);
    }
    client.wait_until_read();
    stage.rests();
    let grown = stage.server.peak_memory().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for a line that never ends");
    client.ask("\r\nlist-tube-used\r\n", "BAD_FORMAT\r\nUSING default\r\n");
}

#[test]
fn zero_bytes_cost_nothing() {
    let mut stage = Stage::set();
    let mut client = stage.server.connect("zeros");
    client.send(vec![0; 1 << 20]).wait_until_read();
    stage.rests();
    client.send("\r\n");
    assert_eq!(client.reply(), b"BAD_FORMAT\r\n");
    client.send("stats\0\r\nlist-tube-used\r\n").reply();
    client.expect("USING default\r\n");
}

#[test]
fn put_of_four_gigabytes_costs_nothing() {
    let mut stage = Stage::set();
    let before = stage.server.peak_memory();
    let mut client = stage.server.connect("big");
    client.send("put 0 0 60 4294967295\r\n").send(vec![b'b'; 4 << 20]).wait_until_read();
    let mut other = stage.server.connect("too big a number");
    assert_eq!(other.call("put 0 0 60 4294967296\r\n"), b"BAD_FORMAT\r\n");
    stage.rests();
    let grown = stage.server.peak_memory().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for a body that is refused");
    client.expect_silence();
}

#[test]
fn million_pipelined_peeks_cost_nothing_more_when_nobody_reads() {
    const PEEKS: usize = 1_000_000;
    let mut stage = Stage::set();
    let mut client = stage.server.connect_narrow("peeks");
    let before = stage.server.peak_memory();
    // Nobody reads the answers, so the server stops reading the questions, and what is sent waits in the kernel.
    let peeks = "peek 7\r\n".repeat(PEEKS);
    let sent = client.send_until_full(peeks.as_bytes(), Duration::from_millis(300));
    stage.rests();
    let grown = stage.server.peak_memory().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for {sent} bytes of peeks");
}

#[test]
fn garbage_of_all_kinds_costs_nothing() {
    let mut stage = Stage::set();
    let mut random = crate::support::Random::announced("garbage_of_all_kinds_costs_nothing");
    let mut crowd: Vec<Client> = (0..20).map(|n| stage.server.connect(&format!("garbage {n}"))).collect();
    for client in &mut crowd {
        let bytes: Vec<u8> =
            (0..20_000).map(|_| *random.pick(b"\0\r\n \t-0189aZputkickwatchreserve\x7f\x80\xff")).collect();
        client.send(bytes).wait_until_read();
    }
    stage.rests();
}

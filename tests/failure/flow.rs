//! Floods and stalls: whoever does not read, does not finish or does not answer holds up nobody else, and what is
//! kept for it has a bound.

use crate::jobs::*;
use crate::support::process::{memory, wait_for};
use crate::support::routing::{slot_of, tube_on, tubes};
use crate::support::{Binary, Client, DEADLINE, Server, Setup};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::{Duration, Instant};

const SLOTS: u32 = 4;

/// Owner that is stopped, or that has the large job.
const BUSY: u16 = 1;

/// What all processes together may keep for one client that floods or does not read: its windows in frontend and
/// owner both ways (`COMMAND_WINDOW_BYTES`, `REPLY_WINDOW_BYTES`, `OUTPUT_HOLD_BYTES`, `CLIENT_READ_BYTES`), with
/// buffers that have grown to twice their content.
const KEPT_BYTES: u64 = 1 << 20;

/// And for what they share: buffers of links, which stop at a megabyte each and have grown to twice that.
const SHARED_BYTES: u64 = 32 << 20;

/// So long without a byte taken, and the server reads no more from a client.
const TAKEN_NO_MORE: Duration = Duration::from_millis(50);

/// Longest answer for a client that nothing happens to, on a loaded machine.
const PROMPT: Duration = Duration::from_secs(1);

fn server() -> Server {
    Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start()
}

fn resident(server: &Server) -> u64 {
    server.pids().into_iter().map(memory).sum()
}

/// Clients of the other slots, each with a job of its own to put, reserve and delete.
struct Bystanders(Vec<Client>);

impl Bystanders {
    fn meet(server: &Server) -> Bystanders {
        let clients = tubes(SLOTS, "by").into_iter().enumerate().filter_map(|(slot, tube)| {
            let mut client = server.connect_through(slot as u16 % 2, &tube);
            use_tube(&mut client, &tube);
            watch_only(&mut client, &tube);
            (slot != usize::from(BUSY)).then_some(client)
        });
        Bystanders(clients.collect())
    }

    fn work(&mut self) {
        for round in 0..20 {
            for client in &mut self.0 {
                let start = Instant::now();
                let id = put(client, "x");
                client.ask("reserve\r\n", format!("RESERVED {id} 1\r\nx\r\n"));
                client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
                assert!(start.elapsed() < PROMPT, "round {round} took {:?}", start.elapsed());
            }
        }
    }
}

fn assert_kept(server: &Server, before: u64, allowed: u64) {
    let now = resident(server);
    println!("{} KiB kept, {} KiB allowed", now.saturating_sub(before) >> 10, allowed >> 10);
    assert!(now < before + allowed, "{} bytes are kept, {allowed} are allowed", now - before);
}

#[test]
fn clients_that_never_read_hold_up_nobody_and_are_not_read() {
    const CLIENTS: usize = 20;
    const BODY_BYTES: usize = 60_000;
    let server = server();
    let mut bystanders = Bystanders::meet(&server);
    let tube = tube_on(BUSY, SLOTS, "large");
    let mut producer = server.connect("P");
    use_tube(&mut producer, &tube);
    let id = put(&mut producer, &"b".repeat(BODY_BYTES));
    let before = resident(&server);
    let peek = format!("peek {id}\r\n");
    let mut silent: Vec<Client> =
        (0..CLIENTS).map(|n| server.connect_narrow(&format!("silent {n}"))).collect();
    for client in &mut silent {
        client.send(peek.repeat(2000));
    }
    bystanders.work();
    assert_kept(&server, before, CLIENTS as u64 * KEPT_BYTES + SHARED_BYTES);
    // Also not from a tube of the same slot: the producer's.
    let start = Instant::now();
    put(&mut producer, "y");
    assert!(start.elapsed() < PROMPT);
    // Those that read after all get all that they asked for, and the input that the server left where it was.
    let reply = format!("FOUND {id} {BODY_BYTES}\r\n{}\r\n", "b".repeat(BODY_BYTES));
    for client in &mut silent[..2] {
        for _ in 0..100 {
            client.expect(&reply);
        }
    }
    drop(silent);
    bystanders.work();
}

/// The bodies themselves are kept, since the clients may finish; nothing else of size is.
#[test]
fn half_sent_puts_are_bounded_by_what_was_sent_and_vanish() {
    const CLIENTS: u64 = 500;
    const BODY_BYTES: u64 = 60_000;
    const SENT_BYTES: u64 = 20_000;
    /// Of one idle connection in all processes, beside its body.
    const CONNECTION_BYTES: u64 = 32 << 10;
    let server = server();
    let mut bystanders = Bystanders::meet(&server);
    let tube = tube_on(BUSY, SLOTS, "half");
    let before = resident(&server);
    let piece = "h".repeat(SENT_BYTES as usize);
    let mut halves: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.connect(&format!("half {number}"));
            client.send(format!("use {tube}\r\nput 0 0 60 {BODY_BYTES}\r\n{piece}"));
            client
        })
        .collect();
    halves.iter_mut().for_each(|client| _ = client.expect(format!("USING {tube}\r\n")));
    bystanders.work();
    // A job's memory is asked for as a whole and touched as it comes.
    assert_kept(&server, before, CLIENTS * (2 * SENT_BYTES + CONNECTION_BYTES) + SHARED_BYTES);
    let mut observer = server.connect("observer");
    assert_eq!(jobs(&mut observer, &tube), [0; 4], "none is there before it is whole");
    // One of them finishes.
    halves[7].send("h".repeat((BODY_BYTES - SENT_BYTES) as usize)).send("\r\n");
    assert!(inserted(&halves[7].reply()).is_some());
    drop(halves);
    wait_for("the others to be gone", DEADLINE, || {
        let connections = SLOTS as i64 - 1 + 1;
        (observer.stats("stats").number("current-connections") == connections).then_some(())
    });
    assert_eq!(jobs(&mut observer, &tube), [1, 0, 0, 0]);
    let stats = observer.stats("stats");
    assert_eq!(stats.number("total-jobs"), 3 * 20 + 1, "the bystanders' and one");
}

/// Ten thousand of them: what they hold is what the server was told that they may, and a connection each.
#[test]
fn ten_thousand_half_sent_puts_are_bounded_and_others_go_on() {
    const CLIENTS: u64 = 10_000;
    const BODY_BYTES: u64 = 60_000;
    const SENT_BYTES: u64 = 50_000;
    const ALLOWED_BYTES: u64 = 64 << 20;
    /// Of one idle connection in all processes, beside its body.
    const CONNECTION_BYTES: u64 = 4 << 10;
    allow_descriptors(CLIENTS + 500);
    let flag = format!("--max-unfinished-bytes={ALLOWED_BYTES}");
    let server = Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).flags(&[&flag]).start();
    let mut bystanders = Bystanders::meet(&server);
    let tube = tube_on(BUSY, SLOTS, "half");
    let before = resident(&server);
    let begin = format!("put 0 0 60 {BODY_BYTES}\r\n{}", "h".repeat(SENT_BYTES as usize));
    let mut halves = Vec::new();
    for number in 0..CLIENTS {
        let mut client = server.connect(&number.to_string());
        client.reset_at_end();
        // By itself: what a client sends behind it would be kept until it is answered.
        use_tube(&mut client, &tube);
        client.send(&begin);
        halves.push(client);
        if number % 1000 == 999 {
            bystanders.work();
            assert_kept(&server, before, ALLOWED_BYTES + CLIENTS * CONNECTION_BYTES + SHARED_BYTES);
        }
    }
    bystanders.work();
    assert_kept(&server, before, ALLOWED_BYTES + CLIENTS * CONNECTION_BYTES + SHARED_BYTES);
    // Those that were allowed are taken when they end after all, the others refused.
    let rest = "h".repeat((BODY_BYTES - SENT_BYTES) as usize) + "\r\n";
    let mut taken = 0;
    for client in &mut halves {
        let reply = client.call(&rest);
        match inserted(&reply) {
            Some(_) => taken += 1,
            None => assert_eq!(reply.escape_ascii().to_string(), "OUT_OF_MEMORY\\r\\n"),
        }
    }
    println!("{taken} of {CLIENTS} were taken");
    let part = ALLOWED_BYTES / 2 / BODY_BYTES;
    assert!((part..=2 * part).contains(&taken), "{taken} were taken");
    bystanders.work();
    assert_eq!(jobs(&mut server.connect("observer"), &tube), [taken as i64, 0, 0, 0]);
}

/// Raises this process's limit on descriptors, which the server inherits. A machine that does not allow so many
/// can't run the test, and the test says so.
fn allow_descriptors(wanted: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit on descriptors");
    assert!(
        hard >= wanted,
        "this test needs {wanted} descriptors, the hard limit is {hard}: raise it (ulimit -Hn)"
    );
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).expect("raise the soft limit to below the hard one");
    }
}

#[test]
fn stopped_owner_holds_up_only_its_own_clients() {
    let server = server();
    let mut bystanders = Bystanders::meet(&server);
    let tube = tube_on(BUSY, SLOTS, "stopped");
    // One that is tied to the stopped slot by its watch list only goes on, too.
    let mut tied = server.connect("tied");
    tied.ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n");
    let mut client = server.connect("A");
    use_tube(&mut client, &tube);
    let owner = server.owner(BUSY);
    owner.stop();
    client.send(put_line("x")).expect_silence();
    bystanders.work();
    let start = Instant::now();
    put(&mut tied, "y");
    assert!(start.elapsed() < PROMPT);
    // New clients are taken all the same, and statistics are given; a list of all tubes needs all owners.
    let mut new = server.connect("new");
    assert!(new.stats("stats").number("current-connections") >= 6);
    new.send("list-tubes\r\n").expect_silence();
    client.expect_silence();
    owner.go_on();
    assert!(inserted(&client.reply()).is_some());
    assert!(new.reply().starts_with(b"OK "));
    assert_eq!(slot_of(&tube, SLOTS), BUSY);
}

/// More than the link to it takes: the frontend stops reading those who want that slot, and nobody else.
#[test]
fn flood_for_a_stopped_owner_is_bounded_and_nothing_of_it_is_lost() {
    /// Each sends some 300 KB, so that both frontends have more than a full link.
    const CLIENTS: usize = 60;
    let server = server();
    let mut bystanders = Bystanders::meet(&server);
    let tube = tube_on(BUSY, SLOTS, "flood");
    let mut flooders: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.connect_narrow(&format!("F{number}"));
            use_tube(&mut client, &tube);
            client
        })
        .collect();
    let before = resident(&server);
    let owner = server.owner(BUSY);
    owner.stop();
    let line = put_line(&"f".repeat(1000));
    // From the first on until nothing is taken; then the others, whose sockets fill up alike.
    let sent: Vec<usize> =
        flooders.iter_mut().map(|client| client.send_until_full(line.as_bytes(), TAKEN_NO_MORE)).collect();
    bystanders.work();
    assert_kept(&server, before, CLIENTS as u64 * KEPT_BYTES + SHARED_BYTES);
    owner.go_on();
    let mut puts = 0;
    for (client, sent) in flooders.iter_mut().zip(&sent) {
        // The last put may have gone out in part: the rest of it makes it whole.
        let rest = sent % line.len();
        if rest > 0 {
            client.send(&line[rest..]);
        }
        let count = sent.div_ceil(line.len());
        assert!(count > 0);
        for number in 0..count {
            let reply = client.reply();
            assert!(inserted(&reply).is_some(), "put {number} of {count}: \"{}\"", reply.escape_ascii());
        }
        puts += count as i64;
        client.expect_silence();
    }
    println!("{puts} puts of {CLIENTS} clients waited");
    assert_eq!(jobs(&mut flooders[0], &tube), [puts, 0, 0, 0]);
}

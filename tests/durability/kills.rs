//! W1, W2: SIGKILL of all processes at random moments of eight clients' work: with small files, so that jobs are
//! moved all the time, and with files of the size that servers have.
//!
//! Runs for some seconds; `TRELLIS_TEST_KILL_SECONDS` makes it longer, `TRELLIS_TEST_SEED` repeats one. The original
//! loses jobs here in some hundred kills: see `log_faults` for the same without luck.

use crate::support::{Client, DEADLINE, Server, Setup, TempDir, Variant, process::wait_for};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;
const SECONDS: u64 = 6;
const SLOTS: u64 = 4;

/// Jobs by id, with their bodies; `None`: a delete was sent and not answered.
type Told = BTreeMap<u64, Option<String>>;

#[test]
fn acknowledged_jobs_survive_kills_in_small_files() {
    survive_kills(&["-s", "16384", "-f", "50"]);
}

#[test]
fn acknowledged_jobs_survive_kills_in_files_of_the_usual_size() {
    survive_kills(&["-f", "50"]);
}

fn survive_kills(flags: &[&str]) {
    let seconds = variable("TRELLIS_TEST_KILL_SECONDS").unwrap_or(SECONDS);
    let seed = variable("TRELLIS_TEST_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("TRELLIS_TEST_SEED={seed}");
    let mut random = rng(seed, 0);
    let log = TempDir::new("log");
    let setup = Setup::of(Variant::TrellisFourSlots).wal(log.path()).flags(flags);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut told: Vec<Told> = vec![Told::new(); CLIENTS];
    let mut server = setup.start();
    let (mut kills, mut jobs) = (0, 0);
    while Instant::now() < end {
        let replies_before_kill = random.random_range(1..2000);
        work_until_killed(&mut server, replies_before_kill, seed, kills, &mut told);
        kills += 1;
        server = setup.start();
        jobs += check(&server, &mut told);
    }
    println!("{kills} kills of {SLOTS} owners each, {jobs} jobs looked at");
    assert!(kills >= 3 && jobs > 100, "{kills} kills, {jobs} jobs: hardly anything happened");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

fn rng(seed: u64, stream: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_ne_bytes());
    bytes[8..16].copy_from_slice(&stream.to_ne_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Looks at every job, and forgets what had two possible ends.
fn check(server: &Server, told: &mut [Told]) -> usize {
    let mut client = server.connect("check");
    let mut looked_at = 0;
    for jobs in told {
        for (id, body) in jobs.iter() {
            let reply = client.call(format!("peek {id}\r\n"));
            let found = body.as_ref().map(|body| format!("FOUND {id} {}\r\n{body}\r\n", body.len()));
            match found {
                Some(found) => assert_eq!(String::from_utf8_lossy(&reply), found, "job {id}"),
                None => assert!(reply == b"NOT_FOUND\r\n" || reply.starts_with(b"FOUND")),
            }
            looked_at += 1;
        }
        jobs.retain(|_, body| body.is_some());
    }
    looked_at
}

fn work_until_killed(
    server: &mut Server,
    replies_before_kill: usize,
    seed: u64,
    kill: u64,
    told: &mut [Told],
) {
    let clients: Vec<Client> = (0..CLIENTS).map(|number| server.connect(&number.to_string())).collect();
    let replies = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (number, (client, jobs)) in clients.into_iter().zip(told).enumerate() {
            let (replies, random) = (&replies, rng(seed, 1 + kill * CLIENTS as u64 + number as u64));
            scope.spawn(move || work(client, number, random, jobs, replies));
        }
        wait_for("enough replies", DEADLINE, || {
            (replies.load(Ordering::Relaxed) >= replies_before_kill).then_some(())
        });
        server.kill();
    });
}

/// Puts and deletes, moves between states, in a tube of its own, until the server is gone.
fn work(mut client: Client, number: usize, mut random: TestRng, jobs: &mut Told, replies: &AtomicUsize) {
    /// Few enough that files empty and jobs move.
    const LIVE: usize = 12;
    let mut call = |command: String| {
        let reply = client.try_call(command)?;
        replies.fetch_add(1, Ordering::Relaxed);
        Some(String::from_utf8(reply).expect("ASCII"))
    };
    let mut steps = || -> Option<()> {
        call(format!("use tube-{number}\r\n"))?;
        loop {
            let body = format!("{number}-").repeat(random.random_range(1..400));
            let reply = call(format!("put 0 0 60 {}\r\n{body}\r\n", body.len()))?;
            let id: u64 = reply.trim_end().strip_prefix("INSERTED ").expect(&reply).parse().expect("an id");
            assert!(jobs.insert(id, Some(body.clone())).is_none(), "id {id} came twice");
            if random.random_range(0..3) == 0 {
                assert!(call(format!("reserve-job {id}\r\n"))?.starts_with("RESERVED"));
                assert_eq!(call(format!("bury {id} 0\r\n"))?, "BURIED\r\n");
            }
            while jobs.len() > LIVE {
                let place = random.random_range(0..jobs.len());
                let id = *jobs.keys().nth(place).expect("there are as many");
                jobs.insert(id, None);
                assert_eq!(call(format!("delete {id}\r\n"))?, "DELETED\r\n");
                jobs.remove(&id);
            }
        }
    };
    steps();
}

//! SIGKILL of all processes in the middle of work, with `-f0`: what was acknowledged is true after the restart.

use crate::support::{Client, Server, Setup, TempDir, Variant, on_all_variants, process};
use std::sync::atomic::{AtomicUsize, Ordering};

const CLIENTS: usize = 4;
/// The kill comes when so many replies have been seen, in the middle of others.
const REPLIES_BEFORE_KILL: usize = 400;
/// Of so many jobs a client deletes one.
const DELETED_OF: usize = 3;

/// What a client was told.
#[derive(Default)]
struct Told {
    /// Id and body of jobs that were put and not deleted.
    kept: Vec<(u64, String)>,
    deleted: Vec<u64>,
}

fn acknowledged_work_survives_sigkill(variant: Variant) {
    // The original can lose a job that it moves while it is killed; it moves none before its third file, and makes
    // one file a start.
    let kills = if variant.is_trellis() { 4 } else { 2 };
    let log = TempDir::new("log");
    let mut told = Told::default();
    for round in 0..kills {
        let mut server = Setup::of(variant).wal(log.path()).flags(&["-f0"]).start();
        assert_true(&mut server.connect("before"), &told);
        work_until_killed(&mut server, round, &mut told);
    }
    let server = Setup::of(variant).wal(log.path()).flags(&["-f0"]).start();
    assert!(told.kept.len() > CLIENTS && told.deleted.len() > CLIENTS, "hardly anything happened");
    assert_true(&mut server.connect("after"), &told);
}

on_all_variants!(acknowledged_work_survives_sigkill);

fn assert_true(client: &mut Client, told: &Told) {
    for (id, body) in &told.kept {
        client.ask(format!("peek {id}\r\n"), format!("FOUND {id} {}\r\n{body}\r\n", body.len()));
    }
    for id in &told.deleted {
        client.ask(format!("peek {id}\r\n"), "NOT_FOUND\r\n");
    }
}

fn work_until_killed(server: &mut Server, round: usize, told: &mut Told) {
    let clients: Vec<Client> = (0..CLIENTS).map(|number| server.connect(&number.to_string())).collect();
    let replies = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let workers = clients.into_iter().enumerate().map(|(number, client)| {
            let replies = &replies;
            scope.spawn(move || work(client, &format!("{round}-{number}"), replies))
        });
        let workers: Vec<_> = workers.collect();
        process::wait_for("enough replies", crate::support::DEADLINE, || {
            (replies.load(Ordering::Relaxed) >= REPLIES_BEFORE_KILL).then_some(())
        });
        server.kill();
        for worker in workers {
            let more = worker.join().expect("a client's thread");
            told.kept.extend(more.kept);
            told.deleted.extend(more.deleted);
        }
    });
}

/// Puts and deletes in a tube of its own until the server is gone, and returns what it was told. A job whose delete
/// was not answered is in neither list.
fn work(mut client: Client, name: &str, replies: &AtomicUsize) -> Told {
    let mut told = Told::default();
    let mut call = |command: String| {
        let reply = client.try_call(command)?;
        replies.fetch_add(1, Ordering::Relaxed);
        Some(String::from_utf8(reply).expect("a reply in ASCII"))
    };
    let mut steps = || -> Option<()> {
        call(format!("use tube-{name}\r\n"))?;
        for number in 0.. {
            let body = format!("{name}-{number}");
            let reply = call(format!("put 0 0 60 {}\r\n{body}\r\n", body.len()))?;
            let id = reply.strip_prefix("INSERTED ").and_then(|id| id.trim_end().parse().ok());
            let id: u64 = id.unwrap_or_else(|| panic!("put: {reply:?}"));
            if number % DELETED_OF == 0 {
                assert_eq!(call(format!("delete {id}\r\n"))?, "DELETED\r\n");
                told.deleted.push(id);
            } else {
                told.kept.push((id, body));
            }
        }
        None
    };
    steps();
    told
}

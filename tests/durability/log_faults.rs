//! W1 to W7 and W11 to W15: what the original's log loses or believes, shown there, and that Trellis does not.
//! (W5 is in `recovery`, W8 to W10 are in `sync`, W14 is in `ids`.)

use crate::fault::{Act, Fault};
use crate::logs::{assert_found, end_of_records, overwrite, put, stock_log};
use crate::support::{Binary, Client, Server, Setup, TempDir, Variant, on_both, server};
use crate::tool::tool;
use std::fs;
use std::path::Path;

const EIO: i32 = 5;
/// Two files of this size hold a few jobs: what the log does with old files happens soon.
const SMALL: [&str; 3] = ["-s", "4096", "-f0"];

fn small(variant: Variant, log: &Path) -> Setup {
    Setup::of(variant).wal(log).flags(&SMALL)
}

fn log_files(log: &Path) -> Vec<u64> {
    let entries = fs::read_dir(log).unwrap().flatten();
    let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("binlog."));
    logs.map(|entry| entry.metadata().unwrap().len()).collect()
}

/// W1. A job is moved out of an old file; SIGKILL comes just behind the unlink of that file.
fn moved_job_survives_a_kill_at_the_unlink(variant: Variant) {
    let log = TempDir::new("log");
    let fault = Fault::on(log.path().to_str().unwrap()).at("unlink", 1, Act::KillAfter);
    let mut server = fault.put_to(small(variant, log.path())).start();
    let keeper = put(&mut server.connect("keeper"), "0 0 60", "keeper");
    let mut rounds = 0;
    while !fault.happened() {
        let mut client = server.connect("worker");
        let mut work = || {
            let reply = client.try_call(format!("put 0 0 60 500\r\n{}\r\n", "x".repeat(500)))?;
            client.try_call(format!("delete {}\r\n", crate::logs::inserted(&reply)))
        };
        work();
        rounds += 1;
        assert!(rounds < 200, "the job was never moved");
    }
    server.restart();
    let mut client = server.connect("B");
    if variant.is_trellis() {
        assert_found(&mut client, keeper, "keeper");
    } else {
        client.ask(format!("peek {keeper}\r\n"), "NOT_FOUND\r\n");
    }
}

/// W2. SIGKILL while a job's record is written, before its body is.
fn half_written_job_is_not_served(variant: Variant) {
    let log = TempDir::new("log");
    // The zeros of a new file are a write, its version is one. A record is four in the original, here one.
    let (at, act) = if variant.is_trellis() { (4, Act::KillHalfWay) } else { (10, Act::Kill) };
    let fault = Fault::on("binlog.").at("write", at, act);
    let mut server = fault.put_to(small(variant, log.path())).start();
    let mut client = server.connect("A");
    put(&mut client, "0 0 60", "one");
    assert_eq!(client.try_call("put 0 0 60 3\r\ntwo\r\n"), None, "not acknowledged");
    assert!(fault.happened());
    server.restart();
    let mut client = server.connect("B");
    assert_found(&mut client, 1, "one");
    let reply = client.call("peek 2\r\n");
    if variant.is_trellis() {
        assert_eq!(reply, b"NOT_FOUND\r\n");
    } else {
        assert_eq!(reply, b"FOUND 2 3\r\n\0\0\0\0\0", "a body that nobody sent");
    }
}

/// W3. Bodies of the limit and a byte less.
fn body_of_the_limit_comes_back(variant: Variant) {
    let log = TempDir::new("log");
    let mut server = Setup::of(variant).wal(log.path()).flags(&["-z", "10"]).start();
    let mut client = server.connect("A");
    for body in ["123456789", "1234567890", "x"] {
        put(&mut client, "0 0 60", body);
    }
    server.restart();
    let mut client = server.connect("B");
    for (id, body) in [(1, "123456789"), (2, "1234567890"), (3, "x")] {
        if variant.is_trellis() {
            assert_found(&mut client, id, body);
        } else {
            client.ask(format!("peek {id}\r\n"), "NOT_FOUND\r\n");
        }
    }
}

/// W4. A smaller limit than the jobs in the log were put under.
fn smaller_limit_drops_no_jobs(variant: Variant) {
    let log = TempDir::new("log");
    let body = "b".repeat(100);
    let mut server = Setup::of(variant).wal(log.path()).start();
    put(&mut server.connect("A"), "0 0 60", &body);
    server.kill();
    let server = Setup::of(variant).wal(log.path()).flags(&["-z", "10"]).start();
    let mut client = server.connect("B");
    client.ask("put 0 0 60 11\r\n12345678901\r\n", "JOB_TOO_BIG\r\n");
    assert_eq!(client.stats("stats").text("max-job-size"), "10");
    if variant.is_trellis() {
        assert_found(&mut client, 1, &body);
    } else {
        client.ask("peek 1\r\n", "NOT_FOUND\r\n");
    }
}

/// W6. A later record of a job says that its body is longer than it is.
#[test]
fn contradicting_record_is_refused_where_the_original_reads_beyond_the_job() {
    let log = stock_log(&["one"]);
    let file = log.join("binlog.1");
    let end = end_of_records(&file);
    const JOB_AT: usize = 4 + 4 + 7;
    let mut record = vec![0; 4];
    record.extend(&fs::read(&file).unwrap()[JOB_AT..JOB_AT + 80]);
    record[4 + 32..4 + 36].copy_from_slice(&(5_i32 + 60).to_ne_bytes());
    overwrite(&file, end, &record);

    let exit = Setup::new(Binary::Trellis).wal(log.path()).refusal();
    let words = format!("binlog.1 at byte {end}: job 1 has a body of 5 bytes in an earlier record and of 65");
    assert!(exit.code == Some(65) && exit.log.contains(&words), "{}", exit.log);

    let server = Setup::new(Binary::Legacy).wal(log.path()).start();
    let reply = server.connect("A").call("peek 1\r\n");
    assert!(reply.starts_with(b"FOUND 1 63\r\none\r\n"), "{}", reply.escape_ascii());
}

/// W7. A write to the log fails.
fn failing_write_is_not_acknowledged_and_not_for_good(variant: Variant) {
    let log = TempDir::new("log");
    // The write of the second job: see W2.
    let at = if variant.is_trellis() { 4 } else { 7 };
    let fault = Fault::on("binlog.").at("write", at, Act::Fail(EIO));
    let mut server = fault.put_to(small(variant, log.path())).start();
    put(&mut server.connect("A"), "0 0 60", "one");
    let reply = server.connect("B").try_call("put 0 0 60 3\r\ntwo\r\n");
    assert!(fault.happened());
    let three = put(&mut server.connect("C"), "0 0 60", "three");
    let log_text = server.log();
    server.restart();
    let mut client = server.connect("D");
    assert_found(&mut client, 1, "one");
    if variant.is_trellis() {
        assert_eq!(reply, None, "its outcome is unknown");
        assert_found(&mut client, three, "three");
        for words in ["slot 0", log.path().to_str().unwrap(), "Input/output error"] {
            assert!(log_text.contains(words), "no {words:?} in {log_text}");
        }
    } else {
        client.ask(format!("peek {three}\r\n"), "NOT_FOUND\r\n");
    }
}

/// W11. Many changes to one job.
fn log_of_many_changes_stays_small(variant: Variant) {
    const CHANGES: usize = 4000;
    /// Of a record that says only what changed.
    const CHANGE_BYTES: u64 = 84;
    let log = TempDir::new("log");
    let mut server = small(variant, log.path()).start();
    let keeper = put(&mut server.connect("A"), "0 0 60", "keeper");
    let change = |server: &Server| {
        let mut client = server.connect("changer");
        let one = format!("reserve-job {keeper}\r\nrelease {keeper} 0 9\r\nkick-job {keeper}\r\n");
        let reply = format!("RESERVED {keeper} 6\r\nkeeper\r\nRELEASED\r\nKICKED\r\n");
        for _ in 0..CHANGES / 2 / 20 {
            client.ask(one.repeat(20), reply.repeat(20));
        }
    };
    change(&server);
    let on_disk = || log_files(log.path()).iter().sum::<u64>();
    if variant.is_trellis() {
        // Three times the live bytes, which are few, and the files that the core keeps at least.
        assert!(on_disk() <= 4 * 4096, "{} bytes", on_disk());
        server.restart();
        change(&server);
        assert!(on_disk() <= 5 * 4096, "{} bytes after a restart", on_disk());
    } else {
        assert!(on_disk() > CHANGES as u64 * CHANGE_BYTES, "{} bytes", on_disk());
    }
    server.restart();
    assert_found(&mut server.connect("B"), keeper, "keeper");
}

/// W11. Each start makes a file, which an idle slot never gets rid of in stock.
fn restarts_leave_no_files(variant: Variant) {
    const RESTARTS: usize = 4;
    let log = TempDir::new("log");
    let mut server = small(variant, log.path()).start();
    let job = put(&mut server.connect("A"), "0 0 60", "x");
    let mut files_after_restart = || {
        server.restart();
        assert_found(&mut server.connect("B"), job, "x");
        log_files(log.path()).len()
    };
    let first = files_after_restart();
    let last = (0..RESTARTS).map(|_| files_after_restart()).last();
    assert_eq!(last, Some(if variant.is_trellis() { first } else { first + RESTARTS }));
    if variant.is_trellis() {
        let log = server.log();
        assert!(!log.contains("never written"), "{log}");
    }
}

/// W12. A release without delay; and of a job that was buried.
fn release_survives_a_restart(variant: Variant) {
    let log = TempDir::new("log");
    let mut server = small(variant, log.path()).start();
    let mut client = server.connect("A");
    put(&mut client, "5 0 60", "x");
    put(&mut client, "5 0 60", "y");
    client.ask("reserve\r\nrelease 1 77 0\r\n", "RESERVED 1 1\r\nx\r\nRELEASED\r\n");
    client.ask("reserve-job 2\r\nbury 2 5\r\n", "RESERVED 2 1\r\ny\r\nBURIED\r\n");
    client.ask("reserve-job 2\r\nrelease 2 5 0\r\n", "RESERVED 2 1\r\ny\r\nRELEASED\r\n");
    server.restart();
    let mut client = server.connect("B");
    let (first, second) = (client.stats("stats-job 1"), client.stats("stats-job 2"));
    let ours = [("77", "1", "1"), ("5", "1", "2")];
    let stocks = [("5", "0", "0"), ("5", "0", "1")];
    let wanted = if variant.is_trellis() { ours } else { stocks };
    for (stats, (pri, releases, reserves)) in [&first, &second].into_iter().zip(wanted) {
        let fields = [("pri", pri), ("releases", releases), ("reserves", reserves)];
        assert_eq!(stats.differences(&fields), Vec::<String>::new());
    }
    assert_eq!(first.text("state"), "ready");
    assert_eq!(second.text("state"), if variant.is_trellis() { "ready" } else { "buried" });
}

/// W13. Starts with a buried job.
fn start_is_no_bury(variant: Variant) {
    let log = TempDir::new("log");
    let mut server = small(variant, log.path()).start();
    let mut client = server.connect("A");
    put(&mut client, "0 0 60", "x");
    client.ask("reserve\r\nbury 1 0\r\n", "RESERVED 1 1\r\nx\r\nBURIED\r\n");
    server.restart();
    // A change of anything writes the count that the start made.
    server.connect("B").ask("kick-job 1\r\n", "KICKED\r\n");
    server.restart();
    let buries = server.connect("C").stats("stats-job 1").number("buries");
    assert_eq!(buries, if variant.is_trellis() { 1 } else { 2 });
}

on_both!(
    moved_job_survives_a_kill_at_the_unlink,
    half_written_job_is_not_served,
    body_of_the_limit_comes_back,
    smaller_limit_drops_no_jobs,
    failing_write_is_not_acknowledged_and_not_for_good,
    log_of_many_changes_stays_small,
    restarts_leave_no_files,
    release_survives_a_restart,
    start_is_no_bury,
);

/// W15. Sizes of a log file that the original takes, and does something else with.
#[test]
fn senseless_file_sizes_are_refused_where_the_original_makes_a_file_for_each_job() {
    // The second is 1 in 32 bits.
    for size in ["1", "4294967297"] {
        let log = TempDir::new("log");
        let server = Setup::new(Binary::Legacy).wal(log.path()).flags(&["-s", size]).start();
        let mut client = server.connect("A");
        for _ in 0..5 {
            put(&mut client, "0 0 60", "x");
        }
        assert!(log_files(log.path()).len() > 5, "-s {size}: {:?}", log_files(log.path()));

        let exit = server::run(Binary::Trellis, &["-s", size]);
        assert!(exit.code == Some(5) && exit.log.contains("-s"), "-s {size}: {exit:?}");
    }
    // What is on disk is whole pages, as documented.
    let log = TempDir::new("log");
    let server = Setup::new(Binary::Trellis).wal(log.path()).flags(&["-s", "5000"]).start();
    put(&mut server.connect("B"), "0 0 60", "x");
    assert_eq!(log_files(log.path()), [8192]);
}

/// SIGKILL in place of, in the middle of and behind each of the first writes: what was acknowledged is true after
/// the restart, and the log is never worse than torn.
#[test]
fn kill_at_any_write_loses_nothing_acknowledged() {
    for at in 2..=8 {
        for act in [Act::Kill, Act::KillHalfWay, Act::KillAfter] {
            let log = TempDir::new("log");
            let fault = Fault::on("binlog.").at("write", at, act);
            let mut server = fault.put_to(small(Variant::TrellisOneSlot, log.path())).start();
            let told = work(&mut server.connect("A"));
            server.kill();
            let check = tool(&["wal", "check", log.path().to_str().unwrap()]);
            assert!(matches!(check.code, Some(0 | 3)), "write {at}: {check:?}");
            let server = small(Variant::TrellisOneSlot, log.path()).start();
            let mut client = server.connect("B");
            for (id, state) in told {
                let stats = client.call(format!("stats-job {id}\r\n"));
                let stats = String::from_utf8_lossy(&stats).into_owned();
                let is = match state {
                    "deleted" => stats == "NOT_FOUND\r\n",
                    state => stats.contains(&format!("state: {state}\n")),
                };
                assert!(is, "write {at}: job {id} is not {state}: {stats}");
            }
        }
    }
}

/// Changes jobs until the server is gone; returns what was acknowledged last of each.
fn work(client: &mut Client) -> Vec<(u64, &'static str)> {
    let mut told: Vec<(u64, &'static str)> = Vec::new();
    let mut step = |command: &str, answer: &str, id: u64, state: &'static str| {
        // From here on it is one or the other.
        told.retain(|(known, _)| *known != id);
        let reply = client.try_call(command)?;
        assert_eq!(String::from_utf8_lossy(&reply), answer, "{command}");
        told.push((id, state));
        Some(())
    };
    let mut steps = || {
        step("put 0 0 60 3\r\none\r\n", "INSERTED 1\r\n", 1, "ready")?;
        step("put 9 0 60 3\r\ntwo\r\n", "INSERTED 2\r\n", 2, "ready")?;
        // A reservation is not logged.
        step("reserve-job 1\r\n", "RESERVED 1 3\r\none\r\n", 1, "ready")?;
        step("bury 1 0\r\n", "BURIED\r\n", 1, "buried")?;
        step("delete 2\r\n", "DELETED\r\n", 2, "deleted")?;
        step("put 0 60 60 5\r\nthree\r\n", "INSERTED 3\r\n", 3, "delayed")?;
        step("kick-job 1\r\n", "KICKED\r\n", 1, "ready")
    };
    steps();
    told
}

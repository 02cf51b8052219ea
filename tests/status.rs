//! What the supervisor knows of its processes, and how it tells: pings, stalls, `trellis status`.
//!
//! Processes are really stopped, killed and refused; each wait is for a line of the log or an answer.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use support::process::wait_for;
use support::{Binary, DEADLINE, Server, Setup, TempDir};
use trellis::status::{State, Status};

/// A server whose processes all serve, and that says so.
fn start(setup: Setup) -> Server {
    let server = setup.flags(&["-V"]).start();
    wait_log(&server, " ready\n");
    server
}

/// The process whose command line begins like this.
fn child(server: &Server, command_line: &str) -> Pid {
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let wanted = command_line.replace(' ', "\0");
    let found = server.pids().into_iter().find(|&pid| line(pid).starts_with(wanted.as_bytes()));
    Pid::from_raw(found.unwrap_or_else(|| panic!("no process {command_line:?}\n{}", server.log())))
}

fn signal(pid: Pid, signal: Signal) {
    kill(pid, signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

fn wait_log(server: &Server, words: &str) {
    wait_for(words, DEADLINE, || server.log().contains(words).then_some(()));
}

fn count(server: &Server, words: &str) -> usize {
    server.log().lines().filter(|line| line.contains(words)).count()
}

#[test]
fn child_that_does_not_answer_is_told_of_once_and_when_it_answers_again() {
    let server = start(Setup::new(Binary::Trellis).slots(2).frontends(2));
    for (line, name) in [("trellis owner --slot 1", "owner 1"), ("trellis frontend --number 1", "frontend 1")]
    {
        let pid = child(&server, line);
        signal(pid, Signal::SIGSTOP);
        wait_log(&server, &format!("{name} (generation 1) is stalled"));
        signal(pid, Signal::SIGCONT);
        wait_log(&server, &format!("{name} (generation 1) answers again"));
        assert_eq!(child(&server, line), pid, "it is the same process");
        assert_eq!(count(&server, &format!("{name} (generation 1) is stalled")), 1, "{}", server.log());
    }
    assert_eq!(count(&server, "owner 0"), 0, "{}", server.log());
    assert_eq!(count(&server, "frontend 0"), 0, "{}", server.log());
}

#[test]
fn child_that_does_not_answer_is_killed_and_replaced_if_that_was_asked_for() {
    let server = start(Setup::new(Binary::Trellis).slots(2).flags(&["--kill-stalled=2000"]));
    let pid = child(&server, "trellis owner --slot 1");
    signal(pid, Signal::SIGSTOP);
    wait_log(&server, "owner 1 (generation 1) is killed: no answer");
    let command_line = "trellis owner --slot 1 --generation 2";
    wait_for("the next generation", DEADLINE, || {
        let line = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        server.pids().into_iter().find(|&pid| line(pid).starts_with(&command_line.replace(' ', "\0")))
    });
    assert!(!server.pids().contains(&pid.as_raw()), "the old one is gone");
    child(&server, "trellis owner --slot 0 --generation 1");
}

/// A directory for the control socket, beside which its lock file stays.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(TempDir::new("control"))
    }

    fn path(&self) -> PathBuf {
        self.0.join("control")
    }

    fn flag(&self) -> String {
        format!("--control={}", self.path().display())
    }

    fn ask(&self, request: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(self.path())?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn status(&self) -> Status {
        let answer = self.ask("status\n").unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Asks until the slot is in this state.
    fn wait_slot(&self, slot: usize, state: State) -> Status {
        wait_for(&format!("slot {slot} {state:?}"), DEADLINE, || {
            Some(self.status()).filter(|status| status.slots[slot].process.state == state)
        })
    }
}

/// `trellis status` with these arguments, run to its end.
fn run_status(arguments: &[&str]) -> Output {
    Command::new(Binary::Trellis.path()).arg("status").args(arguments).output().unwrap()
}

#[test]
fn status_shows_each_slot_and_frontend_and_adds_up() {
    let (place, wal) = (Place::new(), TempDir::new("wal"));
    let setup = Setup::new(Binary::Trellis).slots(3).frontends(2).wal(wal.path());
    let mut server = start(setup.flags(&[&place.flag()]));
    let mut client = server.connect("client");
    for tube in ["a", "b", "c", "d", "e", "f", "g"] {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        assert!(client.call("put 0 0 60 1\r\nx\r\n").starts_with(b"INSERTED"));
        assert!(client.call("put 9999 100 60 1\r\nx\r\n").starts_with(b"INSERTED"));
    }
    let mut worker = server.connect("worker");
    worker.ask("watch a\r\n", "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
    assert!(worker.call("reserve\r\n").starts_with(b"RESERVED"));
    worker.send("reserve\r\n");
    // The last number to come is looked up at a ping.
    let status = wait_for("the reserve to be in flight", DEADLINE, || {
        Some(place.status()).filter(|s| s.frontends.iter().map(|f| f.in_flight).sum::<u64>() == 1)
    });

    assert_eq!((status.pid as i32, status.phase.as_str()), (server.pid(), "serving"));
    assert_eq!((status.trouble.as_deref(), status.draining), (None, false));
    assert_eq!((status.slots.len(), status.frontends.len(), status.topology.slots), (3, 2, 3));
    for (number, slot) in status.slots.iter().enumerate() {
        let p = &slot.process;
        let pid = child(&server, &format!("trellis owner --slot {number}")).as_raw();
        assert_eq!((p.state, p.pid, p.generation, p.restarts), (State::Up, Some(pid), 1, 0));
        assert!(p.lag_ms < 1000.0 && p.cause.is_none() && p.last_end.is_none(), "{p:?}");
        let wal = slot.wal.as_ref().expect("there is a log");
        assert!(wal.files >= 1 && wal.bytes >= 10 << 20 && wal.live_bytes < wal.bytes, "{wal:?}");
    }
    let sum = |of: fn(&trellis::status::Slot) -> u64| status.slots.iter().map(of).sum::<u64>();
    assert_eq!((sum(|s| s.jobs.ready), sum(|s| s.jobs.urgent), sum(|s| s.jobs.delayed)), (6, 6, 7));
    assert_eq!((sum(|s| s.jobs.reserved), sum(|s| s.jobs.waiting), sum(|s| s.jobs.tubes)), (1, 1, 8));
    assert!(sum(|s| s.wal.as_ref().unwrap().syncs) > 0 && sum(|s| s.wal.as_ref().unwrap().live_bytes) > 0);
    assert_eq!(status.frontends.iter().map(|f| f.clients).sum::<u64>(), 2);
    let t = &status.totals;
    assert_eq!((t.jobs.ready, t.jobs.waiting, t.jobs_put), (6, 1, 14));
    assert_eq!((t.clients, t.producers, t.workers, t.connections), (2, 1, 1, 2));

    let table = run_status(&[&place.flag()]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(table.status.success() && text.contains("all is well"), "{text}");
    assert!(text.contains(&status.topology.fingerprint) && text.contains("6 jobs ready"), "{text}");
    let json = run_status(&[&place.flag(), "--json"]);
    let printed: Status = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(printed.topology, status.topology);

    server.signal(Signal::SIGUSR1);
    wait_for("drain mode", DEADLINE, || place.status().draining.then_some(()));
    assert!(server.stop().success());
    assert!(!place.path().exists(), "the socket goes with its server");
}

#[test]
fn status_works_while_a_slot_is_stalled_and_says_so() {
    let place = Place::new();
    let server = start(Setup::new(Binary::Trellis).slots(2).flags(&[&place.flag()]));
    let pid = child(&server, "trellis owner --slot 1");
    signal(pid, Signal::SIGSTOP);
    let status = place.wait_slot(1, State::Stalled);
    let slot = &status.slots[1].process;
    assert_eq!((slot.pid, slot.generation), (Some(pid.as_raw()), 1));
    assert!(slot.cause.as_ref().unwrap().contains("no answer to a ping for"), "{slot:?}");
    assert!(slot.lag_ms >= 2000.0, "{slot:?}");
    assert!(status.trouble.as_ref().unwrap().starts_with("slot 1 is stalled"), "{:?}", status.trouble);
    assert_eq!(status.slots[0].process.state, State::Up);
    // It is told of once, however long it lasts: here, longer than another ping and its time would take.
    wait_for("a long stall", DEADLINE, || (place.status().slots[1].process.lag_ms > 3500.0).then_some(()));
    assert_eq!(count(&server, "is stalled"), 1, "{}", server.log());
    let text = String::from_utf8(run_status(&[&place.flag()]).stdout).unwrap();
    assert!(text.contains("TROUBLE: slot 1 is stalled") && text.contains("STALLED"), "{text}");
    let check = run_status(&[&place.flag(), "--check"]);
    let text = String::from_utf8(check.stderr).unwrap();
    assert_eq!(check.status.code(), Some(1), "{text}");
    assert!(text.starts_with("trellis: slot 1 is stalled"), "{text}");
    signal(pid, Signal::SIGCONT);
    let status = place.wait_slot(1, State::Up);
    assert_eq!(run_status(&[&place.flag(), "--check"]).stdout, b"all is well\n");
    assert_eq!((status.trouble, status.slots[1].process.restarts), (None, 0));
}

#[test]
fn status_follows_a_slot_that_dies_again_and_again_until_it_is_failed_and_back() {
    let (place, wal) = (Place::new(), TempDir::new("wal"));
    let server = start(Setup::new(Binary::Trellis).slots(2).wal(wal.path()).flags(&[&place.flag()]));
    signal(child(&server, "trellis owner --slot 1"), Signal::SIGKILL);
    let status = wait_for("the next generation", DEADLINE, || {
        let up = |s: &Status| s.slots[1].process.generation == 2 && s.slots[1].process.state == State::Up;
        Some(place.status()).filter(up)
    });
    let slot = &status.slots[1].process;
    assert_eq!((slot.restarts, slot.cause.as_ref(), status.totals.restarts), (1, None, 1));
    let end = slot.last_end.as_ref().unwrap();
    assert_eq!((end.generation, end.cause.as_str()), (1, "killed by SIGKILL"));

    // A file where its directory was: no generation can start any more.
    std::fs::rename(wal.join("slot-001"), wal.join("away")).unwrap();
    std::fs::write(wal.join("slot-001"), "").unwrap();
    signal(child(&server, "trellis owner --slot 1 --generation 2"), Signal::SIGKILL);
    let status = place.wait_slot(1, State::Down);
    assert_eq!(status.slots[1].process.pid, None);
    let status = place.wait_slot(1, State::Failed);
    let cause = status.slots[1].process.cause.as_ref().unwrap();
    assert!(cause.starts_with("ended with code 1: ") && cause.contains("slot-001"), "{cause}");
    assert_eq!(status.trouble.unwrap(), format!("slot 1 is failed: {cause}"));
    assert_eq!((status.slots[0].process.state, status.phase.as_str()), (State::Up, "serving"));
    let text = String::from_utf8(run_status(&[&place.flag()]).stdout).unwrap();
    assert!(text.contains("FAILED") && text.contains(&format!("  slot 1: {cause}")), "{text}");
    // It is tried on all the while, and is failed until it serves.
    let status = wait_for("the pause before the next try", DEADLINE, || {
        Some(place.status()).filter(|status| status.slots[1].process.next_try_ms.is_some())
    });
    assert_eq!(status.slots[1].process.state, State::Failed);
    let text = String::from_utf8(run_status(&[&place.flag()]).stdout).unwrap();
    assert!(text.contains("(next try in "), "{text}");
    std::fs::remove_file(wal.join("slot-001")).unwrap();
    std::fs::rename(wal.join("away"), wal.join("slot-001")).unwrap();
    let status = place.wait_slot(1, State::Up);
    assert_eq!((status.trouble, status.slots[1].process.next_try_ms), (None, None));
    wait_log(&server, "serves: it is not failed any more");
    assert_eq!(count(&server, "owner 1 (generation 7) is failed"), 1, "{}", server.log());
}

/// What is no file hangs whoever reads it, here the next owner on its way up.
#[test]
fn child_that_hangs_before_it_is_ready_is_shown_as_stalled_until_it_gets_on() {
    let (place, wal) = (Place::new(), TempDir::new("wal"));
    let server = start(Setup::new(Binary::Trellis).slots(2).wal(wal.path()).flags(&[&place.flag()]));
    let ids = wal.join("slot-001/ids.toml");
    let kept = std::fs::read(&ids).unwrap();
    mkfifo(&wal.join("slot-001/fifo"), Mode::S_IRWXU).unwrap();
    std::fs::rename(wal.join("slot-001/fifo"), &ids).unwrap();
    signal(child(&server, "trellis owner --slot 1"), Signal::SIGKILL);
    let status = place.wait_slot(1, State::Stalled);
    let slot = &status.slots[1].process;
    assert_eq!((slot.generation, status.slots[0].process.state), (2, State::Up));
    let cause = slot.cause.as_ref().unwrap();
    for words in
        ["not ready for ", "it checks its log", "has not got on for", "the one before killed by SIGKILL"]
    {
        assert!(cause.contains(words), "{words}: {cause}");
    }
    assert!(slot.lag_ms >= 2000.0, "{slot:?}");
    assert!(status.trouble.unwrap().starts_with("slot 1 is stalled: not ready for "));
    assert_eq!(count(&server, "owner 1 (generation 2) is stalled before it is ready"), 1, "{}", server.log());
    // There is the file again, and what was waited for.
    std::fs::rename(&ids, wal.join("fifo")).unwrap();
    std::fs::write(&ids, &kept).unwrap();
    std::fs::write(wal.join("fifo"), &kept).unwrap();
    let status = place.wait_slot(1, State::Up);
    assert_eq!((status.trouble, status.slots[1].process.generation), (None, 2));
}

#[test]
fn watch_goes_on_over_the_death_of_an_owner_and_of_the_server() {
    let place = Place::new();
    let mut server = start(Setup::new(Binary::Trellis).slots(2).flags(&[&place.flag()]));
    let mut command = Command::new(Binary::Trellis.path());
    command.args(["status", "--watch", &place.flag()]).stdout(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_line = |words: &[&str]| {
        let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("no line with {words:?}"))
    };
    let pid = child(&server, "trellis owner --slot 1");
    wait_line(&[" up ", &format!(" {pid} ")]);
    signal(pid, Signal::SIGKILL);
    wait_line(&["   1  up ", "    2         1 "]);
    server.kill();
    wait_line(&["no server answers there"]);
    server.restart();
    wait_line(&["all is well"]);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn control_socket_is_for_its_user_only_and_replaces_that_of_a_dead_server() {
    let place = Place::new();
    let mut server = start(Setup::new(Binary::Trellis).flags(&[&place.flag()]));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.path()), 0o600);
    server.kill();
    assert!(place.path().exists(), "nobody was left to remove it");
    server.restart();
    wait_for("the new socket", DEADLINE, || place.ask("status\n").ok());
    assert_eq!(mode(&place.path()), 0o600);
    assert_eq!(place.ask("please\n").unwrap(), "{\"error\":\"unknown request\"}\n");
}

#[test]
fn file_at_the_control_path_is_left_there() {
    let place = Place::new();
    std::fs::write(place.path(), "text").unwrap();
    let refused = Setup::new(Binary::Trellis).flags(&[&place.flag()]).refusal();
    assert_eq!(refused.code, Some(111), "{}", refused.log);
    assert!(refused.log.contains("of another kind"), "{}", refused.log);
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), "text");
}

/// As many as are served at a time, and none of them says anything.
#[test]
fn clients_that_hang_about_keep_neither_others_nor_the_server_waiting() {
    let place = Place::new();
    let server = start(Setup::new(Binary::Trellis).flags(&[&place.flag()]));
    let idle: Vec<UnixStream> = (0..16).map(|_| UnixStream::connect(place.path()).unwrap()).collect();
    let mut talker = UnixStream::connect(place.path()).unwrap();
    // Nobody reads it, but the server must not see a difference.
    let _ = talker.write_all(&[b'x'; 100_000]);
    assert_eq!(server.connect("client").call("list-tubes\r\n").first(), Some(&b'O'));
    assert_eq!(place.status().phase, "serving", "those who hang about were sent away");
    for mut stream in idle {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn status_without_a_server_fails_and_says_where_it_looked() {
    let place = Place::new();
    let output = run_status(&[&place.flag()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&place.path().display().to_string()) && text.contains("--control"), "{text}");
    assert!(output.stdout.is_empty());
}

//! Births and deaths: the server's own, its children's, the signals for it, and what the service manager is told.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use crate::rig::{LIMIT, Server, TRELLIS, TempDir, before_exec, raise_blocked, status_field};

#[test]
fn server_started_shows_its_roles_and_leaves_no_process_on_sigterm() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Server::start(&["--slots=2", "--frontends", "2"]);
        let lines: Vec<String> = server.children().into_iter().map(|(_, line)| line).collect();
        let expected = [
            "trellis owner --slot 0 --generation 1",
            "trellis owner --slot 1 --generation 1",
            "trellis frontend --number 0 --generation 1",
            "trellis frontend --number 1 --generation 1",
        ];
        assert_eq!(lines, expected);
        server.connect();
        server.signal(signal);
        assert_eq!(server.wait_exit().code(), Some(0), "{}", server.log.join("\n"));
    }
}

#[test]
fn server_without_verbosity_says_nothing_when_all_is_well() {
    let dir = TempDir::new();
    let notify = UnixDatagram::bind(dir.path("notify")).unwrap();
    notify.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = Command::new(TRELLIS);
    command.args(["-l127.0.0.1", "-p0"]).env("NOTIFY_SOCKET", dir.path("notify"));
    let mut server = Server::spawn(command);
    let mut message = [0; 64];
    let n = notify.recv(&mut message).unwrap();
    assert_eq!(message[..n].trim_ascii(), b"READY=1");
    for (pid, _) in server.children() {
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    }
    server.signal(Signal::SIGTERM);
    let n = notify.recv(&mut message).unwrap();
    assert_eq!(message[..n].trim_ascii(), b"STOPPING=1");
    assert_eq!(server.wait_exit().code(), Some(0));
    assert_eq!(server.log, Vec::<String>::new());
    let mut printed = String::new();
    server.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "");
}

/// The service manager's end of notifications.
struct Notified(UnixDatagram);

impl Notified {
    /// The next message within this time.
    fn next(&self, limit: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(limit)).unwrap();
        let mut message = [0; 64];
        let n = self.0.recv(&mut message).ok()?;
        Some(String::from_utf8_lossy(message[..n].trim_ascii()).into_owned())
    }

    fn expect(&self, wanted: &str) {
        assert_eq!(self.next(LIMIT).as_deref(), Some(wanted));
    }

    /// Takes what has come already.
    fn drain(&self) {
        while self.next(Duration::from_millis(1)).is_some() {}
    }
}

#[test]
fn watchdog_is_told_of_life_while_some_slot_answers() {
    let dir = TempDir::new();
    let notified = Notified(UnixDatagram::bind(dir.path("notify")).unwrap());
    let mut command = Command::new("sh");
    // Told at half of it.
    let script = "WATCHDOG_PID=$$ WATCHDOG_USEC=100000 exec \"$0\" \"$@\"";
    command.args(["-c", script, TRELLIS, "-VV", "-l127.0.0.1", "-p0", "--slots=2"]);
    command.env("NOTIFY_SOCKET", dir.path("notify"));
    let mut server = Server::spawn(command);
    server.wait_ready();
    while notified.next(LIMIT).expect("it gets ready") != "READY=1" {}
    for (pid, _) in server.children() {
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains("WATCHDOG"), "{environment}");
    }
    let [first, second] =
        [0, 1].map(|slot| server.child(&format!("trellis owner --slot {slot} --generation 1")));

    kill(first, Signal::SIGSTOP).unwrap();
    server.wait_line("owner 0 (generation 1) is stalled");
    notified.drain();
    (0..3).for_each(|_| notified.expect("WATCHDOG=1"));

    kill(second, Signal::SIGSTOP).unwrap();
    server.wait_line("owner 1 (generation 1) is stalled");
    notified.drain();
    // Ten times as long as between two of them.
    assert_eq!(notified.next(Duration::from_millis(500)), None);

    kill(first, Signal::SIGCONT).unwrap();
    notified.expect("WATCHDOG=1");
    kill(second, Signal::SIGCONT).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn supervisor_killed_takes_its_children_with_it_within_a_second() {
    let mut server = Server::start(&["--slots=3", "--frontends=2"]);
    // One that can't see the end of its channel: the kernel has to end it.
    kill(server.child("trellis owner --slot 1 --generation 1"), Signal::SIGSTOP).unwrap();
    server.signal(Signal::SIGKILL);
    let time = server.wait_gone();
    assert!(time < Duration::from_secs(1), "{time:?}");
}

#[test]
fn child_killed_is_followed_by_its_next_generation() {
    let mut server = Server::start(&["--slots=2", "--frontends=2"]);
    let before = server.children();
    kill(server.child("trellis owner --slot 1 --generation 1"), Signal::SIGKILL).unwrap();
    server.wait_line("owner 1 (generation 2): Ready in Preparing: [Link]");
    server.child("trellis owner --slot 1 --generation 2");
    kill(server.child("trellis frontend --number 0 --generation 1"), Signal::SIGKILL).unwrap();
    server.wait_line("frontend 0 (generation 2): Ready in Preparing");
    server.child("trellis frontend --number 0 --generation 2");
    // The others are the same processes as before.
    for line in ["trellis owner --slot 0 --generation 1", "trellis frontend --number 1 --generation 1"] {
        assert!(before.contains(&(server.child(line), line.to_owned())));
    }
    server.connect();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn child_that_does_not_leave_is_killed_when_the_server_stops() {
    let mut server = Server::start(&["--frontends=2"]);
    let stuck = server.child("trellis frontend --number 1 --generation 1");
    kill(stuck, Signal::SIGSTOP).unwrap();
    server.signal(Signal::SIGTERM);
    server.wait_line("frontend 1 (generation 1) killed by SIGKILL while stopping");
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn children_ignore_the_signals_that_are_for_the_server() {
    let server = Server::start(&[]);
    for (pid, line) in server.children() {
        let ignored = u64::from_str_radix(&status_field(pid, "SigIgn"), 16).unwrap();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGPIPE] {
            assert!((ignored >> (signal as u32 - 1)) & 1 == 1, "{line}: {signal} in {ignored:x}");
        }
    }
}

#[test]
fn drain_signal_from_before_the_start_holds_before_the_first_owner_starts() {
    let mut command = Command::new(TRELLIS);
    command.args(["-VV", "-l127.0.0.1", "-p0"]);
    before_exec(&mut command, || raise_blocked(Signal::SIGUSR1));
    let mut server = Server::spawn(command);
    server.wait_line("drain mode");
    assert!(!server.log.iter().any(|line| line.contains("owner 0")), "{}", server.log.join("\n"));
    server.wait_ready();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn stop_signal_from_before_the_start_ends_it_before_it_begins() {
    let mut command = Command::new(TRELLIS);
    command.args(["-VV", "-l127.0.0.1", "-p0"]);
    before_exec(&mut command, || raise_blocked(Signal::SIGTERM));
    let mut server = Server::spawn(command);
    assert_eq!(server.wait_exit().code(), Some(0));
    assert!(!server.log.iter().any(|line| line.contains("process")), "{}", server.log.join("\n"));
}

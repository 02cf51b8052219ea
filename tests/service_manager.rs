//! What the service manager is told, if it does not read. `tests/supervisor/` has the rest: readiness and the
//! watchdog.

mod support;

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use support::process::wait_for;
use support::{Binary, DEADLINE, Setup, TempDir};

/// A manager that is busy with others until its queue is full must not stop the server, and is told all the same.
#[test]
fn manager_that_does_not_read_holds_nobody_up_and_is_told_later() {
    let dir = TempDir::new("notify");
    let path = dir.path().join("socket");
    let manager = UnixDatagram::bind(&path).unwrap();
    let others = UnixDatagram::unbound().unwrap();
    others.connect(&path).unwrap();
    others.set_nonblocking(true).unwrap();
    let full = loop {
        if let Err(error) = others.send(b"STATUS=busy") {
            break error.kind();
        }
    };
    assert_eq!(full, ErrorKind::WouldBlock);

    let mut server =
        Setup::new(Binary::Trellis).flags(&["-V"]).env("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    wait_for("the server to be ready", DEADLINE, || server.log().contains(" ready").then_some(()));
    server.connect("client").ask("list-tube-used\r\n", "USING default\r\n");

    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let next = || {
        let mut word = [0; 64];
        loop {
            let n = manager.recv(&mut word).expect("a word");
            if &word[..n] != b"STATUS=busy" {
                return String::from_utf8_lossy(&word[..n]).into_owned();
            }
        }
    };
    assert_eq!(next(), "READY=1");

    // And full again when it stops.
    while others.send(b"STATUS=busy").is_ok() {}
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn manager_that_is_not_there_is_named_once_and_the_server_serves() {
    let dir = TempDir::new("notify");
    let path = dir.path().join("nobody");
    let mut server = Setup::new(Binary::Trellis).env("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    server.connect("client").ask("list-tube-used\r\n", "USING default\r\n");
    assert_eq!(server.stop().code(), Some(0));
    let log = server.log();
    assert_eq!(log.matches("the service manager can't be told of us").count(), 1, "{log}");
}

/// The time alone is a watchdog for whoever gets it: sd_watchdog_enabled(3).
#[test]
fn watchdog_without_a_pid_is_ours_and_that_of_another_pid_is_not() {
    for (pid, ours) in [(None, true), (Some("1"), false)] {
        let dir = TempDir::new("notify");
        let path = dir.path().join("socket");
        let manager = UnixDatagram::bind(&path).unwrap();
        let setup = Setup::new(Binary::Trellis).env("NOTIFY_SOCKET", path.to_str().unwrap());
        let setup =
            pid.into_iter().fold(setup.env("WATCHDOG_USEC", "100000"), |s, p| s.env("WATCHDOG_PID", p));
        let _server = setup.start();
        let mut word = [0; 64];
        let mut next = |limit| {
            manager.set_read_timeout(Some(limit)).unwrap();
            manager.recv(&mut word).ok().map(|n| String::from_utf8_lossy(&word[..n]).into_owned())
        };
        // It may be told of life before it is ready.
        let first = next(DEADLINE);
        assert!(ours || first.as_deref() == Some("READY=1"), "{first:?}");
        // Ten times as long as between two signs of life.
        let second = next(if ours { DEADLINE } else { Duration::from_millis(500) });
        let signs = [first, second].into_iter().flatten().filter(|word| word == "WATCHDOG=1").count();
        assert_eq!(signs > 0, ours, "WATCHDOG_PID {pid:?}");
    }
}

//! What the supervisor knows of its processes, and how it tells: pings, stalls, `trellis status`.
//!
//! Processes are really stopped, killed and refused; each wait is for a line of the log or an answer.

mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::process::wait_for;
use support::{Binary, DEADLINE, Server, Setup};

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

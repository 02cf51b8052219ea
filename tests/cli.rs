//! The command line: Trellis takes the original's flags, and leaves with its exit codes.
//!
//! What is printed may be worded differently; it must be there, and name what it is about.

mod support;

use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use std::fs::File;
use std::net::{Ipv6Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use support::server::run;
use support::template::Holes;
use support::{Binary, Exit, Server, Setup, TempDir, Variant, on_both, process};

/// What may be gone next time.
const EXIT_TEMPORARY: i32 = 1;
/// The arguments are no good.
const EXIT_USAGE: i32 = 5;
/// The log's directory can't be used, or somebody else uses it.
const EXIT_NO_LOG: i32 = 10;
/// There is no such user.
const EXIT_NO_USER: i32 = 33;
/// The server may not become that user.
const EXIT_NOT_PERMITTED: i32 = 34;
/// The server can't listen.
const EXIT_NO_SOCKET: i32 = 111;

fn binary(variant: Variant) -> Binary {
    if variant.is_trellis() { Binary::Trellis } else { Binary::Legacy }
}

fn assert_exit(exit: &Exit, code: i32, named: &str) {
    assert_eq!(exit.code, Some(code), "{}", exit.log);
    assert!(
        !exit.log.trim().is_empty() && exit.log.contains(named),
        "{named:?} is not named in: {}",
        exit.log
    );
}

/// Puts a job and takes it out again.
fn assert_serves(server: &Server) {
    let mut client = server.connect("A");
    let mut holes = Holes::default();
    client.send("put 0 0 60 5\r\nhello\r\n").expect_template(b"INSERTED $j\r\n", &mut holes);
    client.send("reserve\r\n").expect_template(b"RESERVED $j 5\r\nhello\r\n", &mut holes);
    client.ask(holes.fill(b"delete $j\r\n"), "DELETED\r\n");
}

fn version_is_printed(variant: Variant) {
    let exit = run(binary(variant), &["-v"]);
    assert_exit(&exit, 0, "1.13");
    assert_eq!(exit.log.lines().count(), 1, "{}", exit.log);
}

fn help_names_every_flag(variant: Variant) {
    let exit = run(binary(variant), &["-h"]);
    for flag in ["-b", "-f", "-F", "-l", "-p", "-u", "-z", "-s", "-v", "-V", "-h"] {
        assert_exit(&exit, 0, flag);
    }
}

fn help_wins_over_what_follows(variant: Variant) {
    assert_exit(&run(binary(variant), &["-h", "-x"]), 0, "-b");
    assert_exit(&run(binary(variant), &["-v", "nonsense"]), 0, "1.13");
}

fn unknown_flags_are_refused(variant: Variant) {
    for flag in ["-x", "-B", "-1"] {
        assert_exit(&run(binary(variant), &[flag]), EXIT_USAGE, flag);
        assert_exit(&run(binary(variant), &["-V", flag]), EXIT_USAGE, flag);
    }
}

fn unknown_arguments_are_refused(variant: Variant) {
    for argument in ["nonsense", "11300", "-"] {
        assert_exit(&run(binary(variant), &[argument]), EXIT_USAGE, argument);
        assert_exit(&run(binary(variant), &["-V", argument]), EXIT_USAGE, argument);
    }
}

fn flags_without_their_argument_are_refused(variant: Variant) {
    for flag in ["-b", "-f", "-l", "-p", "-s", "-u", "-z"] {
        assert_exit(&run(binary(variant), &[flag]), EXIT_USAGE, flag);
        assert_exit(&run(binary(variant), &["-F", flag]), EXIT_USAGE, flag);
    }
}

fn sizes_that_are_none_are_refused(variant: Variant) {
    for flag in ["-f", "-s", "-z"] {
        for size in ["12x", "x", "1.5", "10 "] {
            assert_exit(&run(binary(variant), &[flag, size]), EXIT_USAGE, size);
            assert_exit(&run(binary(variant), &[&format!("{flag}{size}")]), EXIT_USAGE, size);
        }
        assert_eq!(run(binary(variant), &[flag, ""]).code, Some(EXIT_USAGE), "{flag} with an empty size");
    }
}

fn removed_flags_are_taken_with_a_warning(variant: Variant) {
    for flag in ["-c", "-n"] {
        let server = Setup::of(variant).flags(&[flag]).start();
        assert_serves(&server);
        assert!(server.log().contains(flag), "no warning about {flag}: {}", server.log());
    }
}

fn flags_may_be_glued(variant: Variant) {
    let log = TempDir::new("log");
    let setup = Setup::of(variant).listen(&["-l127.0.0.1", "-p{port}"]);
    let server =
        setup.flags(&["-f0", "-VV", "-z77", "-s5000", &format!("-b{}", log.path().display())]).start();
    assert_serves(&server);
    let stats = server.connect("B").stats("stats");
    let wanted = [("max-job-size", "77"), ("binlog-max-size", "5000"), ("binlog-records-written", "2")];
    assert_eq!(stats.differences(&wanted), Vec::<String>::new());
}

fn flags_may_share_a_hyphen(variant: Variant) {
    let setup = Setup::of(variant).listen(&["-VFl", "127.0.0.1", "-Fp{port}"]);
    let server = setup.flags(&["-Vz77", "-Ff0"]).start();
    assert_serves(&server);
    assert_eq!(server.connect("B").stats("stats").text("max-job-size"), "77");
}

fn last_of_repeated_flags_counts(variant: Variant) {
    let setup = Setup::of(variant).listen(&["-l", "192.0.2.1", "-p", "1", "-l", "127.0.0.1", "-p", "{port}"]);
    let server = setup.flags(&["-z", "5", "-z", "77", "-f", "0", "-F", "-f", "10"]).start();
    assert_serves(&server);
    assert_eq!(server.connect("B").stats("stats").text("max-job-size"), "77");
}

fn largest_job_size_is_cut_with_a_warning(variant: Variant) {
    let server = Setup::of(variant).flags(&["-z", "1073741825"]).start();
    assert_eq!(server.connect("A").stats("stats").text("max-job-size"), "1073741824");
    assert!(server.log().contains("1073741824"), "no warning: {}", server.log());
}

fn verbose_server_says_where_it_listens(variant: Variant) {
    let server = Setup::of(variant).flags(&["-V"]).start();
    assert_serves(&server);
    assert!(server.log().contains(&server.port().to_string()), "{}", server.log());
}

fn unknown_user_is_refused(variant: Variant) {
    let exit = Setup::of(variant).flags(&["-u", "no-such-user-here"]).refusal();
    assert_exit(&exit, EXIT_NO_USER, "no-such-user-here");
}

/// As root the server becomes that user, in each of its processes. Else it is not allowed to.
fn user_is_changed_or_refused(variant: Variant) {
    const NOBODY: &str = "nobody";
    let user = User::from_name(NOBODY).expect("users of the machine").expect("a user with few rights");
    let setup = Setup::of(variant).flags(&["-u", NOBODY]);
    if !Uid::effective().is_root() {
        return assert_exit(&setup.refusal(), EXIT_NOT_PERMITTED, NOBODY);
    }
    let server = setup.start();
    assert_serves(&server);
    for pid in server.pids() {
        for (field, id) in [("Uid", user.uid.as_raw()), ("Gid", user.gid.as_raw())] {
            let ids = process::status_field(pid, field).expect("a living process");
            assert_eq!(ids, [id.to_string(), id.to_string(), id.to_string(), id.to_string()].join("\t"));
        }
        // The original keeps the groups of whoever started it.
        if variant.is_trellis() {
            let groups = process::status_field(pid, "Groups").expect("a living process");
            assert!(groups.is_empty() || groups == user.gid.to_string(), "supplementary groups: {groups}");
        }
    }
}

fn port_in_use_is_refused(variant: Variant) {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = other.local_addr().expect("own address").port().to_string();
    let exit = run(binary(variant), &["-l", "127.0.0.1", "-p", &port]);
    assert_exit(&exit, EXIT_NO_SOCKET, "in use");
}

fn port_that_is_none_is_refused(variant: Variant) {
    assert_exit(&run(binary(variant), &["-l", "127.0.0.1", "-p", "no-such-port"]), EXIT_NO_SOCKET, "");
}

fn foreign_address_is_refused(variant: Variant) {
    // From the block that is kept for documentation: no machine has it.
    let exit = Setup::of(variant).listen(&["-l", "192.0.2.1", "-p", "{port}"]).refusal();
    assert_exit(&exit, EXIT_NO_SOCKET, "assign");
}

fn ipv6_address_is_listened_on(variant: Variant) {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("not checked: the machine has no ::1");
        return;
    }
    let server = Setup::of(variant).listen(&["-l", "::1", "-p", "{port}"]).start();
    let stream = std::net::TcpStream::connect((Ipv6Addr::LOCALHOST, server.port())).expect("connect to ::1");
    let mut client = support::Client::tcp("A", stream);
    client.ask("list-tube-used\r\n", "USING default\r\n");
}

fn unix_socket_is_listened_on_and_a_stale_one_replaced(variant: Variant) {
    let directory = TempDir::new("socket");
    let path = directory.join("s");
    let mut server = Setup::of(variant).listen_unix(&path).start();
    assert_serves(&server);
    // Nobody takes the socket away when the server is killed.
    server.kill();
    assert!(path.exists());
    server.restart();
    assert_serves(&server);
}

fn file_in_place_of_the_unix_socket_is_left_alone(variant: Variant) {
    let directory = TempDir::new("socket");
    let path = directory.join("s");
    std::fs::write(&path, "precious").expect("write a file");
    let exit = Setup::of(variant).listen_unix(&path).refusal();
    assert_exit(&exit, EXIT_NO_SOCKET, "exists");
    assert_eq!(std::fs::read_to_string(&path).expect("the file is there"), "precious");
}

fn unix_path_too_long_is_refused(variant: Variant) {
    let directory = TempDir::new("socket");
    let path = directory.join("s".repeat(120));
    assert_exit(&Setup::of(variant).listen_unix(&path).refusal(), EXIT_NO_SOCKET, "too long");
}

/// The original removes the live socket and takes its place.
#[test]
fn live_unix_socket_is_not_taken_over_by_trellis() {
    let directory = TempDir::new("socket");
    let path = directory.join("s");
    let server = Setup::new(Binary::Trellis).listen_unix(&path).start();
    let mut client = server.connect("A");
    client.ask("put 0 0 60 1\r\nx\r\n", "INSERTED 1\r\n");
    let exit = Setup::new(Binary::Trellis).listen_unix(&path).refusal();
    assert!(exit.code.is_some_and(|code| code != 0) && !exit.log.trim().is_empty(), "{exit:?}");
    client.ask("peek 1\r\n", "FOUND 1 1\r\nx\r\n");
    server.connect("B").ask("peek 1\r\n", "FOUND 1 1\r\nx\r\n");
}

fn log_directory_that_is_missing_is_refused(variant: Variant) {
    let directory = TempDir::new("log");
    let missing = directory.join("missing");
    let exit = Setup::of(variant).wal(&missing).refusal();
    assert_exit(&exit, EXIT_NO_LOG, &missing.display().to_string());
    assert!(!missing.exists(), "the directory was made");

    let file = directory.join("file");
    std::fs::write(&file, "precious").expect("write a file");
    assert_exit(&Setup::of(variant).wal(&file).refusal(), EXIT_NO_LOG, &file.display().to_string());
}

fn log_directory_in_use_is_refused(variant: Variant) {
    let log = TempDir::new("log");
    let server = Setup::of(variant).wal(log.path()).start();
    assert_serves(&server);
    let exit = Setup::of(variant).wal(log.path()).refusal();
    assert_exit(&exit, EXIT_NO_LOG, &log.path().display().to_string());
    assert_serves(&server);
}

/// SIGTERM ends the original as it ends any program; Trellis leaves in order. (That all its processes leave is
/// checked wherever a server is dropped.)
#[test]
fn trellis_leaves_with_zero_after_sigterm_and_sigint() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let log = TempDir::new("log");
        let mut server = Setup::new(Binary::Trellis).wal(log.path()).start();
        assert_serves(&server);
        // Also while a client waits.
        let mut waiter = server.connect("waiter");
        waiter.send("reserve\r\n").expect_silence();
        assert_eq!(server.stop_with(signal).code(), Some(0), "{}", server.log());
        waiter.expect_end();
    }
}

fn ended(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(Binary::Trellis.path());
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    command.spawn().and_then(|child| child.wait_with_output()).expect("trellis runs")
}

/// Takes nothing.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("a device that is always full").into()
}

/// Nobody reads it.
fn closed() -> Stdio {
    let (stream, _) = UnixStream::pair().expect("a pair of sockets");
    OwnedFd::from(stream).into()
}

/// Every command but `wal dump` panicked, with code 101. What it was to do is done all the same, which a
/// script has to be able to tell.
#[test]
fn answer_that_nobody_takes_is_an_error_and_no_panic() {
    let place = TempDir::new("place");
    let path = |name: &str| place.join(name).to_str().expect("UTF-8").to_owned();
    let (log, control) = (path("log"), path("control"));
    std::fs::create_dir(&log).unwrap();
    let setup = Setup::new(Binary::Trellis).wal(&place.join("log")).flags(&["--control", &control]);
    let mut server = setup.start();
    let client = &mut server.connect("A");
    client.ask("put 0 0 60 1\r\nx\r\n", "INSERTED 1\r\n");
    let refused = |arguments: &[&str], done: &str| {
        for (stdout, why) in [(full(), "No space left on device"), (closed(), "Broken pipe")] {
            let output = ended(arguments, stdout, Stdio::piped());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(EXIT_TEMPORARY), "{arguments:?}: {said}");
            for words in ["trellis: ", "writing the ", why, done] {
                assert!(said.contains(words), "{arguments:?}: no {words:?} in: {said}");
            }
        }
    };
    for more in [&["--json"][..], &["--check"], &["--watch"], &[]] {
        refused(&[&["status", "--control", &control][..], more].concat(), "");
    }
    server.stop();
    for arguments in [
        &["-v"][..],
        &["wal", "--help"],
        &["wal", "check", "--help"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["topology", "show"],
        &["topology", "route", "default"],
        &["bench", "--list"],
        &["wal", "check", &log],
        &["wal", "check", "--json", &log],
        &["wal", "dump", &log],
        &["wal", "dump", "--json", &log],
    ] {
        refused(arguments, "");
    }
    refused(&["wal", "repair", &log], "all is done");
    refused(&["wal", "repair", "--json", &log], "all is done");
    for (number, stdout) in [full(), closed()].into_iter().enumerate() {
        let to = path(&format!("to-{number}"));
        let verb = ["migrate", "export"][number];
        let slots: &[&str] = if verb == "migrate" { &["--slots", "2"] } else { &[] };
        let output =
            ended(&[&[verb, "--from", &log, "--to", &to][..], slots].concat(), stdout, Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(EXIT_TEMPORARY), "{said}");
        assert!(said.contains(&format!("{to}: is made, but writing the answer: ")), "{said}");
        assert_eq!(ended(&["wal", "check", &to], Stdio::null(), Stdio::null()).status.code(), Some(0));
    }
}

/// Then there is nobody to tell; the code is what it would have been.
#[test]
fn words_for_stderr_that_nobody_takes_change_no_code() {
    for (arguments, code) in [
        (&["-h"][..], 0),
        (&["-x"], EXIT_USAGE),
        (&["wal", "dance"], EXIT_USAGE),
        (&["wal", "check", "/nowhere"], 65),
    ] {
        for stderr in [full(), closed()] {
            let output = ended(arguments, Stdio::null(), stderr);
            assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        }
    }
}

/// A usage line can be typed as it stands.
#[test]
fn usage_of_each_subcommand_begins_with_the_program() {
    for words in [
        &["status"][..],
        &["topology"],
        &["topology", "route"],
        &["wal"],
        &["wal", "repair"],
        &["migrate"],
        &["export"],
        &["compare"],
        &["bench"],
        &["completions"],
    ] {
        let output = ended(&[words, &["--help"]].concat(), Stdio::piped(), Stdio::null());
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let usage = format!("Usage: trellis {} ", words.join(" "));
        assert!(text.contains(&usage), "no {usage:?} in:\n{text}");
    }
}

on_both!(
    version_is_printed,
    help_names_every_flag,
    help_wins_over_what_follows,
    unknown_flags_are_refused,
    unknown_arguments_are_refused,
    flags_without_their_argument_are_refused,
    sizes_that_are_none_are_refused,
    removed_flags_are_taken_with_a_warning,
    flags_may_be_glued,
    flags_may_share_a_hyphen,
    last_of_repeated_flags_counts,
    largest_job_size_is_cut_with_a_warning,
    verbose_server_says_where_it_listens,
    unknown_user_is_refused,
    user_is_changed_or_refused,
    port_in_use_is_refused,
    port_that_is_none_is_refused,
    foreign_address_is_refused,
    ipv6_address_is_listened_on,
    unix_socket_is_listened_on_and_a_stale_one_replaced,
    file_in_place_of_the_unix_socket_is_left_alone,
    unix_path_too_long_is_refused,
    log_directory_that_is_missing_is_refused,
    log_directory_in_use_is_refused,
);

/// `bogus` was taken for the name of a module, and nothing at all was logged.
#[test]
fn wrong_words_about_the_log_in_the_environment_are_refused_as_in_flags() {
    for (name, word) in
        [("TRELLIS_LOG", "bogus"), ("TRELLIS_LOG", "warn,bogus"), ("TRELLIS_LOG_FORMAT", "xml")]
    {
        let exit = Setup::new(Binary::Trellis).env(name, word).refusal();
        assert_exit(&exit, EXIT_USAGE, name);
        assert_exit(&exit, EXIT_USAGE, word.trim_start_matches("warn,"));
    }
    for (name, word) in
        [("TRELLIS_LOG", "trellis=info,warn"), ("TRELLIS_LOG", ""), ("TRELLIS_LOG_FORMAT", "json")]
    {
        assert_serves(&Setup::new(Binary::Trellis).env(name, word).start());
    }
}

//! The log seen from outside: who speaks in each line, JSON on request, and floods that are held back.
//!
//! A server's lines come through a pipe that all its processes hold, so its end says that the last of them is gone.

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{Binary, DEADLINE};

struct Server {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
    log: Vec<String>,
}

impl Server {
    /// `before`: shell commands that prepare the process.
    fn start(before: &str, arguments: &[&str]) -> Server {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("{before} exec \"$0\" \"$@\""),
            Binary::Trellis.path().to_str().unwrap(),
        ]);
        command.args(["-l127.0.0.1", "-p0"]).args(arguments);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Server { child, lines, log: Vec::new() }
    }

    /// The next line with these words; the end of the log is a failure.
    fn wait_line(&mut self, words: &str) -> String {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            self.log.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
        panic!("no line with {words:?} in:\n{}", self.log.join("\n"));
    }

    /// Asks it to leave and returns all that it said.
    fn stop(mut self) -> Vec<String> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let mut log = std::mem::take(&mut self.log);
        log.extend(self.lines.by_ref().map(Result::unwrap));
        assert!(self.child.wait().unwrap().success(), "{}", log.join("\n"));
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its children leave by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `time LEVEL who: what`
fn speaker(line: &str) -> &str {
    let mut words = line.split_whitespace();
    let time = words.next().unwrap_or_default();
    assert!(time.ends_with('Z') && time.contains('T'), "{line}");
    let level = words.next().unwrap_or_default();
    assert!(["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level), "{line}");
    let rest = line.split_once(level).unwrap().1.trim_start();
    rest.split_once(": ").unwrap_or_else(|| panic!("nobody speaks in {line:?}")).0
}

#[test]
fn each_line_says_which_process_speaks() {
    let mut server = Server::start("", &["-VV", "--slots=2", "--frontends=1"]);
    server.wait_line("supervisor: ready");
    let log = server.stop();
    let speakers: BTreeSet<&str> = log.iter().map(|line| speaker(line)).collect();
    let expected = [
        "frontend{number=0 generation=1}",
        "owner{slot=0 generation=1}",
        "owner{slot=1 generation=1}",
        "supervisor",
    ];
    assert_eq!(speakers, BTreeSet::from(expected));
}

#[test]
fn each_line_is_an_object_if_that_was_asked_for() {
    let by_flag = Server::start("", &["-VV", "-c", "--slots=2", "--log-format=json"]);
    let by_variable = Server::start("TRELLIS_LOG_FORMAT=json", &["-VV", "-c", "--slots=2"]);
    for mut server in [by_flag, by_variable] {
        server.wait_line("\"ready\"");
        let log = server.stop();
        let mut speakers = BTreeSet::new();
        for line in &log {
            let Ok(Value::Object(object)) = serde_json::from_str(line) else { panic!("no object: {line}") };
            assert!(object["timestamp"].is_string() && object["message"].is_string(), "{line}");
            assert!(object["level"].is_string(), "{line}");
            let span = &object["span"];
            let role = span["name"].as_str().unwrap_or_else(|| panic!("nobody speaks in {line}"));
            let number = span["slot"].as_u64().or(span["number"].as_u64());
            assert_eq!(span["generation"].as_u64(), (role != "supervisor").then_some(1), "{line}");
            speakers.insert((role.to_owned(), number));
        }
        let expected = [("frontend", Some(0)), ("owner", Some(0)), ("owner", Some(1)), ("supervisor", None)];
        assert_eq!(speakers, BTreeSet::from(expected.map(|(role, number)| (role.to_owned(), number))));
        assert!(log.iter().any(|line| line.contains("-c has no effect")), "notes are lines, too");
    }
}

/// A frontend without a descriptor left says so each time that it has taken another client's place; of many in a
/// second once.
#[test]
fn line_that_would_repeat_is_said_once_a_second() {
    let mut server = Server::start("ulimit -n 64;", &["-V", "--frontends=1"]);
    let line = server.wait_line("listening on 127.0.0.1:");
    let port: u16 = line.rsplit(':').next().unwrap().parse().unwrap();
    server.wait_line("supervisor: ready");
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut clients: VecDeque<TcpStream> = (0..200).map(|_| connect()).collect();
    let (seen, began) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        // Many times a second one leaves, the next in the queue is taken, another comes.
        scope.spawn(|| {
            while !seen.load(Relaxed) && began.elapsed() < DEADLINE {
                clients.pop_front();
                clients.push_back(connect());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for _ in 0..3 {
            let line = server.wait_line("accepting pauses: too few descriptors");
            assert!(speaker(&line).starts_with("frontend{"), "{line}");
        }
        seen.store(true, Relaxed);
    });
    drop(clients);
    let log = server.stop();
    // By second and speaker; the time is 2026-12-01T01:02:03.000000Z.
    let mut seconds: BTreeMap<&str, usize> = BTreeMap::new();
    for line in log.iter().filter(|line| line.contains(" WARN frontend")) {
        *seconds.entry(&line[..19]).or_default() += 1;
    }
    assert!(seconds.len() >= 2 && seconds.values().all(|&lines| lines <= 2), "{seconds:?}");
}

/// The C core says why it refuses a put, each time. Its words once went to stderr by themselves: two lines a put,
/// one of them blank, however many there were and in whatever format the log was.
fn core_says_of_refused_puts(format: &str) -> Vec<String> {
    const PUTS: usize = 2000;
    let mut server = Server::start("", &["-V", "--slots=1", "--frontends=1", "--log-format", format]);
    let line = server.wait_line("listening on 127.0.0.1:");
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let port: u16 = digits(line.split_once("127.0.0.1:").unwrap().1).parse().unwrap();
    server.wait_line("ready");
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut put = |times: usize| -> usize {
        client.write_all("put 0 0 60 1\r\nx\r\n".repeat(times).as_bytes()).unwrap();
        let (mut lines, mut replies) = (0, Vec::new());
        while lines < times {
            let mut piece = [0; 4096];
            let n = client.read(&mut piece).unwrap();
            assert_ne!(n, 0, "closed");
            lines += piece[..n].iter().filter(|&&byte| byte == b'\n').count();
            replies.extend_from_slice(&piece[..n]);
        }
        String::from_utf8(replies).unwrap().lines().filter(|reply| *reply == "DRAINING").count()
    };
    kill(Pid::from_raw(server.child.id() as i32), Signal::SIGUSR1).unwrap();
    let began = Instant::now();
    let mut refused = 0;
    while refused == 0 {
        assert!(began.elapsed() < DEADLINE, "it does not drain");
        refused = put(1);
    }
    refused += put(PUTS);
    let log = server.stop();
    let (told, shown): (Vec<&String>, Vec<&String>) = log
        .iter()
        .filter(|line| line.contains("server error: DRAINING"))
        .partition(|line| line.contains("suppressed "));
    let left_out =
        |line: &&String| -> usize { digits(line.split_once("suppressed ").unwrap().1).parse().unwrap() };
    let left_out: usize = told.iter().map(left_out).sum();
    assert_eq!(shown.len() + left_out, refused, "{}", log.join("\n"));
    assert!(shown.len() < refused / 10, "{} lines are shown", shown.len());
    log
}

#[test]
fn lines_of_the_core_are_the_owners_and_are_limited_and_counted() {
    for line in core_says_of_refused_puts("text") {
        let who = speaker(&line);
        assert_eq!(
            line.contains("server error"),
            who.starts_with("owner{slot=0 ") && line.contains(": core: ")
        );
    }
}

#[test]
fn lines_of_the_core_are_objects_if_that_was_asked_for() {
    for line in core_says_of_refused_puts("json") {
        let Ok(Value::Object(object)) = serde_json::from_str(&line) else { panic!("no object: {line:?}") };
        if line.contains("server error") {
            assert_eq!(
                (&object["span"]["name"], &object["span"]["slot"]),
                (&"owner".into(), &0.into()),
                "{line}"
            );
        }
    }
}

//! `trellis compare`: that both servers agree on seeded scenarios, and that the comparison would notice if not.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::server::wait_for_exit;
use support::{Binary, DEADLINE, Setup, TempDir, process};

fn compare(arguments: &[&str]) -> Output {
    Command::new(Binary::Trellis.path()).arg("compare").args(arguments).output().expect("run trellis compare")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// So many that each theme has its turn, the ends of reservations too.
const SCENARIOS: &str = "30";

/// A number of its own for each run: `TRELLIS_TEST_SEED` takes one back.
fn seed() -> String {
    let fresh = || {
        let since = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
        (since.as_nanos() as u32).to_string()
    };
    std::env::var("TRELLIS_TEST_SEED").unwrap_or_else(|_| fresh())
}

fn agree(slots: &str) {
    let seed = seed();
    println!("TRELLIS_TEST_SEED={seed}");
    let bound = ["--scenarios", SCENARIOS, "--seconds", "600"];
    let output = compare(&[&["--slots", slots, "--seed", &seed][..], &bound].concat());
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    let scenarios = format!("{SCENARIOS} scenarios");
    assert!(said.contains("no difference") && said.contains(&scenarios), "{said}");
}

#[test]
fn one_slot_answers_as_the_original() {
    agree("1");
}

#[test]
fn four_slots_answer_as_the_original() {
    agree("4");
}

/// What is not generated because it is meant to differ: here it stands for a fault that the comparison must find.
const FORGOTTEN_RELEASE: &str = r#"trellis-compare 1
log
A < "use x\r\n"
A < "put 5 0 1000 2\r\nhi\r\n" = j1
A < "list-tubes\r\n"
B < "watch x\r\nignore default\r\n"
B < "reserve\r\n"
B < "release {j1} 77 0\r\n"
A < "stats-job {j1}\r\n"
restart
C < "stats-job {j1}\r\n"
"#;

#[test]
fn difference_is_found_named_and_saved() {
    let dir = TempDir::new("compare");
    let (file, saved) = (dir.join("scenario"), dir.join("saved"));
    std::fs::write(&file, FORGOTTEN_RELEASE).unwrap();
    let output = compare(&["--replay", file.to_str().unwrap(), "--save", saved.to_str().unwrap()]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in ["pri: 5 and 77", "releases: 0 and 1", r#"C < "stats-job {j1}\r\n""#] {
        assert!(said.contains(words), "{words} is missing in: {said}");
    }
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), FORGOTTEN_RELEASE);
}

/// What the comparison found when it was new: the frontend counted commands that it answers itself, and
/// clients that put, when it read the command and not when its turn came.
const ONCE_DIFFERENT: [&str; 4] = [
    r#"A < "reserve-with-timeout 1000\r\n"
A < "list-tube-used\r\n"
"#,
    r#"A < "reserve-with-timeout 1000\r\n"
A < "put 0 0 60 1\r\nx\r\n"
"#,
    r#"A < "put 0 0 60 1\r\nx\r\nstats\r\ndelete 999\r\nlist-tube-used\r\n"
"#,
    // A put over the limit is counted at its line, not when all of it has been thrown away.
    r#"A < "put 0 0 60 65536\r\nx"
"#,
];

#[test]
fn scenarios_that_once_differed_agree() {
    let dir = TempDir::new("compare");
    let file = dir.join("scenario");
    for steps in ONCE_DIFFERENT {
        std::fs::write(&file, format!("trellis-compare 1\n{steps}check\n")).unwrap();
        for slots in ["1", "4"] {
            let output = compare(&["--slots", slots, "--replay", file.to_str().unwrap()]);
            assert!(output.status.success(), "{slots} slots: {}", text(&output));
        }
    }
}

#[test]
fn scenario_that_is_none_is_refused_with_its_line() {
    let dir = TempDir::new("compare");
    let file = dir.join("scenario");
    std::fs::write(&file, "trellis-compare 1\nA dances\n").unwrap();
    let output = compare(&["--replay", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output).contains("line 2"), "{}", text(&output));
}

#[test]
fn recorded_clients_can_be_replayed() {
    let dir = TempDir::new("compare");
    let file = dir.join("recorded");
    let server = Setup::new(Binary::Legacy).start();
    let target = format!("127.0.0.1:{}", server.port());
    let mut proxy = Command::new(Binary::Trellis.path())
        .args(["compare", "--record", "127.0.0.1:0", &target])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(proxy.stderr.take().unwrap()).lines().map_while(Result::ok);
    let first = said.next().expect("it says where it listens");
    let address =
        first.strip_prefix("recording: ").and_then(|rest| rest.split(' ').next()).expect("an address");

    let connect = |name| support::Client::tcp(name, std::net::TcpStream::connect(address).unwrap());
    let (mut putter, mut worker) = (connect("putter"), connect("worker"));
    // Its id is not the one that a fresh server gives to the first job.
    for body in ["x", "y"] {
        assert!(putter.call(format!("put 0 0 60 1\r\n{body}\r\n")).starts_with(b"INSERTED "));
    }
    worker.ask("delete 2\r\n", "DELETED\r\n");
    worker.ask("reserve\r\n", "RESERVED 1 1\r\nx\r\n").ask("delete 1\r\n", "DELETED\r\n");
    putter.half_close().expect_end();
    worker.half_close().expect_end();
    kill(Pid::from_raw(proxy.id() as i32), Signal::SIGTERM).unwrap();
    assert!(wait_for_exit(&mut proxy, DEADLINE).expect("it ends after the signal").success());

    let recorded = std::fs::read_to_string(&file).unwrap();
    assert!(recorded.contains("delete {j2}") && recorded.contains("c1 half"), "{recorded}");
    for slots in ["1", "3"] {
        let output = compare(&["--replay", file.to_str().unwrap(), "--slots", slots]);
        assert!(output.status.success(), "{recorded}\n{}", text(&output));
    }
}

#[test]
fn interrupted_comparison_leaves_no_process() {
    let dir = TempDir::new("compare");
    let mut child = Command::new(Binary::Trellis.path())
        .args(["compare", "--seconds", "600", "--slots", "2"])
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let compare = child.id() as i32;
    let groups = process::wait_for("both servers", DEADLINE, || {
        let children = process::children(compare);
        (children.len() == 2).then_some(children)
    });
    kill(Pid::from_raw(compare), Signal::SIGINT).unwrap();
    let status = wait_for_exit(&mut child, DEADLINE).expect("it ends after the signal");
    assert_eq!(status.code(), Some(1));
    for group in groups {
        assert_eq!(process::group_members(group), []);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "its files are gone, too");
}

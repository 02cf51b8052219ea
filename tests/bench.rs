//! `trellis bench`: what it counts is what a server did, and it leaves nothing behind. Nothing about speed.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::server::{run, wait_for_exit};
use support::{Binary, DEADLINE, Setup, TempDir, process};

/// Short enough for a test, long enough for some thousand commands.
const SHORT: [&str; 6] = ["--pairs", "1", "--seconds", "0.2", "--warm-up", "0.05"];

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(Binary::Trellis.path());
    command.arg("bench").args(arguments);
    command
}

#[test]
fn load_with_a_limit_does_so_many_commands_and_counts_them() {
    const PUTS: u64 = 1000;
    let server = Setup::new(Binary::Trellis).start();
    let spec = format!(
        r#"{{"address": "127.0.0.1:{}", "warm_ms": 0, "run_ms": 60000, "seed": 1, "groups": [{{
            "label": "x", "clients": 3, "work": "Put", "depth": 7, "body_bytes": 10, "tubes": ["a", "b"],
            "per_second": null, "limit": {PUTS}}}]}}"#,
        server.port()
    );
    let mut load = Command::new(Binary::Trellis.path());
    let mut load = load.arg("bench-load").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = load.stdin.take().unwrap();
    writeln!(stdin, "{}", spec.replace('\n', " ")).unwrap();
    let mut said = BufReader::new(load.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(said.next().as_deref(), Some(r#""Counting""#));
    let ended = said.next().unwrap();
    let counted: u64 = number(&ended, "commands");
    assert!(counted <= PUTS && ended.starts_with(r#"{"Ended":"#), "{ended}");

    // Its clients are there until it is told to leave.
    let stats = server.connect("observer").stats("stats");
    assert_eq!((stats.text("cmd-put"), stats.text("current-jobs-ready")), ("1000", "1000"));
    assert_eq!(stats.text("current-producers"), "3");
    drop(stdin);
    assert!(wait_for_exit(&mut load, DEADLINE).expect("it ends with its stdin").success());
}

/// The number behind `"name":` in a JSON text, wherever it first stands.
fn number<T: std::str::FromStr>(json: &str, name: &str) -> T {
    let rest = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}")).1;
    let digits =
        rest.trim_start().split(|c: char| !(c.is_ascii_digit() || c == '.')).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("{name} is no number in {json}"))
}

#[test]
fn every_kind_of_scenario_yields_rows_json_and_a_chart() {
    let dir = TempDir::new("bench");
    let (json, svg) = (dir.join("out.json"), dir.join("out.svg"));
    let out = bench(&SHORT)
        .args(["closed-1", "mixed-16", "apart", "tubes-1000", "churn", "recovery", "isolation-fsync"])
        .args(["--slots", "2", "--jobs", "500", "--floor"])
        .arg("--json")
        .arg(&json)
        .arg("--svg")
        .arg(&svg)
        .arg("--dir")
        .arg(dir.path())
        .output()
        .unwrap();
    let (text, progress) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{progress}");
    let names = [
        "closed-1 ",
        "closed-16 ",
        "mixed-16",
        "apart",
        "tubes-1000 ",
        "churn",
        "recovery",
        "isolation-fsync, dist",
    ];
    let names = names.map(|name| name.replace("dist", "disturbed"));
    let json = std::fs::read_to_string(&json).unwrap();
    let chart = std::fs::read_to_string(&svg).unwrap();
    for name in names {
        let name = name.trim();
        assert!(text.contains(name), "{name} is not in:\n{text}");
        assert!(json.contains(&format!("\"name\": \"{name}\"")), "{name} is not in the JSON");
        assert!(chart.contains(&format!(">{name}</text>")), "{name} is not in the chart");
    }
    assert!(number::<f64>(&json, "commands_per_second") > 0.0);
    // Closed loops, pipelined and churn have a floor; what needs order, a log or jobs beforehand has none.
    let floors = text.lines().filter(|line| line.split_whitespace().next() == Some("floor")).count();
    assert_eq!(floors, json.matches("\"floor\": {").count());
    assert_eq!(floors, 4, "{text}");
    assert!(chart.trim_end().ends_with("</svg>"));
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "only the two files are left: {left:?}");
}

#[test]
fn interrupted_run_leaves_no_process_and_no_file() {
    let dir = TempDir::new("bench");
    let mut child = bench(&["closed-1", "--seconds", "600", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bench = child.id() as i32;
    // The original and the load: each leads a group of its own.
    let groups = process::wait_for("its server and its load", DEADLINE, || {
        let children = process::children(bench);
        (children.len() == 2).then_some(children)
    });
    kill(Pid::from_raw(bench), Signal::SIGTERM).unwrap();
    let status = wait_for_exit(&mut child, DEADLINE).expect("it ends after the signal");
    assert_eq!(status.code(), Some(1));
    for group in groups {
        assert_eq!(process::group_members(group), []);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn scenario_that_does_not_exist_is_refused_by_name() {
    let exit = run_bench(&["nonsense"]);
    assert_eq!(exit.code, Some(5), "{}", exit.log);
    assert!(exit.log.contains("nonsense"), "{}", exit.log);
}

#[test]
fn list_names_the_scenarios() {
    let exit = run_bench(&["--list"]);
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    for name in ["closed-256", "puts-64", "tubes-30000", "wal-f0", "idle", "recovery", "isolation-stop"] {
        assert!(exit.log.contains(name), "{name}: {}", exit.log);
    }
}

fn run_bench(arguments: &[&str]) -> support::Exit {
    run(Binary::Trellis, &[&["bench"], arguments].concat())
}

//! `trellis wal check`, `dump` and `repair` on directories of both servers.

use crate::fault::{Act, Fault};
use crate::logs::{assert_found, contents, end_of_records, overwrite, put, stock_log, version_5_log};
use crate::support::{Binary, Client, Setup, TempDir};
use crate::tool::{Answer, command, tool};
use std::fs;
use std::path::{Path, PathBuf};

const SOUND: i32 = 0;
const TORN: i32 = 3;
const DAMAGED: i32 = 4;
const USAGE: i32 = 5;
const LOCKED: i32 = 10;
const DATA: i32 = 65;

/// Of a full record of a job in `default`: length, name, job.
const HEAD: u64 = 4 + 7 + 80;

fn wal(request: &str, dir: &Path, more: &[&str]) -> Answer {
    let dir = dir.to_str().expect("UTF-8");
    tool(&[&["wal", request, dir], more].concat())
}

/// Looks without changing anything.
fn check(dir: &Path, code: i32) -> (Answer, serde_json::Value) {
    let before = contents(dir);
    let text = wal("check", dir, &[]).ended(code);
    let json = wal("check", dir, &["--json"]).ended(code).json();
    assert!(before == contents(dir), "something changed");
    (text, json)
}

#[test]
fn check_tells_sound_torn_and_damaged_apart() {
    let log = stock_log(&["one", "two"]);
    let file = log.join("binlog.1");
    let (text, json) = check(log.path(), SOUND);
    text.says(&["slot 0: sound: 1 files of 10485760 bytes with 2 records", "2 ready"]);
    assert_eq!((&json["verdict"], &json["logs"][0]["jobs"]["ready"]), (&"sound".into(), &2.into()));
    assert_eq!(json["logs"][0]["files"][0]["version"], 7);

    let end = end_of_records(&file);
    overwrite(&file, end, &7_i32.to_ne_bytes());
    overwrite(&file, end + 4, b"default");
    let (text, json) = check(log.path(), TORN);
    text.says(&[&format!("{}/binlog.1 at byte {end}: torn tail", log.path().display())]);
    assert_eq!(json["logs"][0]["faults"][0]["kind"], "torn");

    overwrite(&file, 4 + HEAD + 4, b"!");
    let (text, json) = check(log.path(), DAMAGED);
    text.says(&["binlog.1 at byte 4: the job's body does not end in CR LF", "wal repair"]);
    let fault = &json["logs"][0]["faults"][0];
    assert_eq!((&fault["kind"], &fault["offset"]), (&"damaged".into(), &4.into()));
}

#[test]
fn check_knows_whose_tubes_a_slot_has() {
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Trellis).slots(4).wal(log.path()).start();
    let owner = put(&mut server.connect("A"), "0 0 60", "x") as usize % 4;
    server.stop();
    let (_, json) = check(log.path(), SOUND);
    assert_eq!(json["logs"].as_array().unwrap().len(), 4);
    let place = |slot: usize| log.join(format!("slot-{slot:03}"));
    check(&place(owner), SOUND);

    let stranger = (owner + 1) % 4;
    fs::copy(place(owner).join("binlog.1"), place(stranger).join("binlog.1")).unwrap();
    let (_, json) = check(&place(stranger), DAMAGED);
    let faults = json["logs"][0]["faults"].as_array().unwrap();
    let kinds: Vec<&str> = faults.iter().map(|fault| fault["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["foreign-tube", "foreign-id"]);
    assert_eq!((&faults[0]["tube"], &faults[0]["slot_owner"]), (&"default".into(), &owner.into()));

    fs::write(log.join("topology.toml"), "nonsense").unwrap();
    let (text, _) = check(log.path(), DAMAGED);
    text.says(&["topology.toml: damaged"]);
}

#[test]
fn check_says_when_a_server_is_at_work() {
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).start();
    wal("check", log.path(), &[]).ended(SOUND).says(&["in use", &server.pid().to_string()]);
    server.kill();
    wal("dance", log.path(), &[]).ended(USAGE);
}

/// An empty directory was sound, with code 0: so a wrong name, or a disk that is not mounted, passed.
#[test]
fn directory_without_logs_is_refused() {
    let log = TempDir::new("log");
    for request in ["check", "dump", "repair"] {
        wal(request, log.path(), &[]).ended(DATA).says(&[
            &log.path().display().to_string(),
            "no logs",
            "mounted",
        ]);
        wal(request, &log.join("nowhere"), &[]).ended(DATA).says(&["nowhere"]);
        assert!(contents(log.path()).is_empty());
    }
    // Logs that nothing was put into are logs.
    let mut server = Setup::new(Binary::Trellis).slots(2).wal(log.path()).start();
    server.stop();
    wal("check", log.path(), &[]).ended(SOUND).says(&["slot 1: sound", ": sound\n"]);
    wal("repair", log.path(), &[]).ended(SOUND).says(&["nothing to repair"]);
}

/// It was called damaged, for `repair` to mend, which then failed half-way.
#[test]
fn ids_that_can_not_be_read_are_no_damage() {
    let log = stock_log(&["one"]);
    fs::create_dir(log.join("ids.toml")).unwrap();
    for request in ["check", "dump", "repair"] {
        let answer = wal(request, log.path(), &[]).ended(DATA);
        answer.says(&["ids.toml: reading it: Is a directory"]);
        assert!(answer.out.is_empty(), "{answer:?}");
    }
    assert!(!log.join("ids.toml.new").exists() && !beside(log.path(), ".before-repair-1").exists());
}

#[test]
fn slot_alone_is_looked_at_and_not_repaired() {
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Trellis).slots(2).wal(log.path()).start();
    let owner = put(&mut server.connect("A"), "0 0 60", "x") % 2;
    server.stop();
    for (slot, jobs) in [(owner, 1), (1 - owner, 0)] {
        let place = log.join(format!("slot-{slot:03}"));
        let (text, _) = check(&place, SOUND);
        text.says(&[&format!("{jobs} jobs")]);
        assert_eq!(wal("dump", &place, &[]).ended(SOUND).out.lines().count(), jobs);
        wal("repair", &place, &[]).ended(USAGE).says(&["this is one slot's directory"]);
    }
}

#[test]
fn dump_has_every_job_as_the_server_has_it() {
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).start();
    let mut client = server.connect("A");
    put(&mut client, "7 0 60", "ready");
    put(&mut client, "8 3600 61", b"\xff\0");
    put(&mut client, "0 0 62", "buried");
    client.ask("reserve\r\nbury 3 9\r\n", "RESERVED 3 6\r\nburied\r\nBURIED\r\n");
    server.kill();
    let answer = wal("dump", log.path(), &["--json", "--bodies"]).ended(SOUND);
    let jobs: Vec<serde_json::Value> =
        answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(jobs.len(), 3);
    let fields = ["id", "state", "pri", "delay", "ttr", "buries", "body", "body_hex", "tube"];
    let row = |job: &serde_json::Value| fields.map(|field| job[field].to_string()).join(" ");
    assert_eq!(row(&jobs[0]), "1 \"ready\" 7 0 60 0 \"ready\" null \"default\"");
    assert_eq!(row(&jobs[1]), "2 \"delayed\" 8 3600 61 0 null \"ff00\" \"default\"");
    assert_eq!(row(&jobs[2]), "3 \"buried\" 9 0 62 1 \"buried\" null \"default\"");
    assert!(jobs[1]["ready_at_ns"].as_i64() > jobs[1]["created_at_ns"].as_i64());
    let text = wal("dump", log.path(), &["--bodies"]).ended(SOUND).out;
    assert!(text.lines().nth(1).unwrap().ends_with("body \"\\xff\\x00\""), "{text}");

    overwrite(&log.join("binlog.1"), 4 + HEAD + 6, b"!");
    let answer = wal("dump", log.path(), &[]).ended(DAMAGED);
    assert!(answer.out.is_empty() && answer.error.contains("at byte 4"), "{answer:?}");
}

/// Three jobs, the second of them damaged.
fn one_of_three_damaged() -> TempDir {
    let log = stock_log(&["one", "two", "three"]);
    overwrite(&log.join("binlog.1"), 4 + (HEAD + 5) + HEAD + 4, b"!");
    log
}

fn beside(dir: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", dir.display()))
}

#[test]
fn repair_keeps_what_is_whole_and_a_copy_of_all() {
    let log = one_of_three_damaged();
    let before = contents(log.path());
    let text = wal("repair", log.path(), &[]).ended(SOUND);
    let copy = beside(log.path(), ".before-repair-1");
    let (from, to) = (4 + HEAD + 5, 4 + 2 * (HEAD + 5));
    text.says(&["2 jobs", &copy.display().to_string(), &format!("binlog.1 from byte {from} to {to}")]);
    let mut copied = contents(&copy);
    copied.insert("lock".into(), Vec::new());
    assert!(copied == before, "the copy differs from what was there");
    fs::remove_dir_all(&copy).unwrap();
    check(log.path(), SOUND);
    wal("repair", log.path(), &[]).ended(SOUND).says(&["nothing to repair"]);
    assert!(!copy.exists());

    // Both servers take it, and ids go on above that of the lost job as well.
    for (binary, id) in [(Binary::Trellis, 4), (Binary::Legacy, 5)] {
        let mut server = Setup::new(binary).wal(log.path()).start();
        let mut client = server.connect(&format!("{binary:?}"));
        assert_found(&mut client, 1, "one");
        client.ask("peek 2\r\n", "NOT_FOUND\r\n");
        assert_found(&mut client, 3, "three");
        assert_eq!(put(&mut client, "0 0 60", "next"), id);
        server.kill();
    }
}

#[test]
fn repair_that_was_stopped_half_way_can_be_run_again() {
    let log = one_of_three_damaged();
    let half = one_of_three_damaged();
    wal("repair", log.path(), &["--backup", beside(log.path(), ".x").to_str().unwrap()]).ended(SOUND);
    fs::remove_dir_all(beside(log.path(), ".x")).unwrap();
    // The new file is there and the old one not yet removed.
    fs::copy(log.join("binlog.2"), half.join("binlog.2")).unwrap();
    let copy = beside(half.path(), ".before-repair-1");
    fs::create_dir(&copy).unwrap();
    wal("repair", half.path(), &[]).ended(SOUND).says(&["before-repair-2", "2 jobs"]);
    fs::remove_dir(&copy).unwrap();
    fs::remove_dir_all(beside(half.path(), ".before-repair-2")).unwrap();
    let server = Setup::new(Binary::Trellis).wal(half.path()).start();
    let mut client = server.connect("A");
    assert_found(&mut client, 1, "one");
    assert_found(&mut client, 3, "three");
}

#[test]
fn repair_refuses_while_a_server_runs_and_without_a_place_for_the_copy() {
    for binary in Binary::BOTH {
        let log = TempDir::new("log");
        let mut server = Setup::new(binary).wal(log.path()).flags(&["-f0"]).start();
        put(&mut server.connect("A"), "0 0 60", "x");
        let before = contents(log.path());
        wal("repair", log.path(), &[]).ended(LOCKED).says(&["held by process", "stop it first"]);
        assert!(before == contents(log.path()), "something changed");
        server.kill();
    }
    let log = one_of_three_damaged();
    let before = contents(log.path());
    wal("repair", log.path(), &["--backup", log.path().to_str().unwrap()]).ended(USAGE).says(&["already"]);
    let answer = wal("repair", log.path(), &["--backup", "/proc/nowhere/copy"]);
    assert!(
        matches!(answer.code, Some(1 | DATA)) && answer.error.contains("nothing was changed"),
        "{answer:?}"
    );
    assert!(before == contents(log.path()), "something changed");
}

#[test]
fn repair_leaves_jobs_of_other_slots_in_the_copy() {
    let log = TempDir::new("log");
    let four = || Setup::new(Binary::Trellis).slots(4).wal(log.path());
    let mut server = four().start();
    let mut client = server.connect("A");
    let id = put(&mut client, "0 0 60", "sheep");
    server.stop();
    let place = |slot: u64| log.join(format!("slot-{:03}", slot % 4));
    fs::copy(place(id).join("binlog.1"), place(id + 1).join("binlog.1")).unwrap();
    let answer = wal("repair", log.path(), &[]).ended(SOUND);
    answer.says(&[&format!("1 jobs of other slots: [{id}]")]);
    fs::remove_dir_all(beside(log.path(), ".before-repair-1")).unwrap();
    let server = four().start();
    let mut client: Client = server.connect("B");
    assert_found(&mut client, id, "sheep");
    assert_eq!(client.stats("stats").text("current-jobs-ready"), "1");
}

/// Nothing was said of a file that is not there.
#[test]
fn repair_names_files_that_are_missing() {
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).flags(&["-s", "4096"]).start();
    let mut client = server.connect("A");
    for _ in 0..30 {
        put(&mut client, "0 0 60", [b'x'; 1000]);
    }
    server.kill();
    for name in ["binlog.2", "binlog.4", "binlog.5"] {
        fs::remove_file(log.join(name)).unwrap();
    }
    let other = beside(log.path(), ".other");
    fs::create_dir(&other).unwrap();
    for (name, bytes) in contents(log.path()) {
        fs::write(other.join(name), bytes).unwrap();
    }
    let missing = "missing, though there are files before and after it";
    let words = [&format!("lost: binlog.2: {missing}"), &format!("lost: binlog.4 to binlog.5: {missing}")];
    let answer = wal("repair", log.path(), &[]).ended(SOUND);
    answer.says(&[words[0], words[1], "jobs may be in an older state, and deleted ones may be back"]);
    let json = wal("repair", &other, &["--json"]).ended(SOUND).json();
    let lost =
        serde_json::json!([format!("binlog.2: {missing}"), format!("binlog.4 to binlog.5: {missing}")]);
    assert_eq!((&json["logs"][0]["lost"], &json["logs"][0]["may_be_older"]), (&lost, &true.into()));
    for dir in [log.path(), &other] {
        check(dir, SOUND);
        fs::remove_dir_all(beside(dir, ".before-repair-1")).unwrap();
    }
    fs::remove_dir_all(&other).unwrap();
}

/// Nothing was said of the file, though the refusal before had warned of what comes of it.
#[test]
fn repair_says_that_it_replaced_the_file_of_ids() {
    let log = stock_log(&["one"]);
    for more in [&[][..], &["--json"]] {
        fs::write(log.join("ids.toml"), "garbage").unwrap();
        check(log.path(), DAMAGED).0.says(&["ids.toml: damaged", "makes a copy"]);
        let answer = wal("repair", log.path(), more).ended(SOUND);
        fs::remove_dir_all(beside(log.path(), ".before-repair-1")).unwrap();
        if more.is_empty() {
            answer.says(&["ids.toml was damaged", "ids go on above 1", "may come again"]);
        } else {
            let json = answer.json();
            let log = &json["logs"][0];
            assert!(log["ids_replaced"].is_string() && log["last_id"] == 1, "{json}");
        }
        check(log.path(), SOUND);
    }
}

#[test]
fn check_says_what_it_left_out_and_what_repair_would_refuse() {
    let log = one_of_three_damaged();
    check(log.path(), DAMAGED)
        .0
        .says(&["of each file the first fault is named", "makes a copy, looks further"]);
    fs::create_dir(log.join("binlog.7")).unwrap();
    check(log.path(), DAMAGED).0.says(&["move elsewhere what is no regular file"]);
    wal("repair", log.path(), &[]).ended(DATA).says(&["not a regular file: move it elsewhere"]);
    fs::write(log.join("topology.toml"), "nonsense").unwrap();
    check(log.path(), DAMAGED).0.says(&["mends logs only"]);
    wal("repair", log.path(), &[]).ended(DATA).says(&["only logs can be repaired"]);
}

/// A half copy is no data either.
#[test]
fn repair_killed_while_it_copies_leaves_what_is_refused() {
    let log = one_of_three_damaged();
    let copy = beside(log.path(), ".before-repair-1");
    let fault = Fault::on(copy.to_str().unwrap()).at("fsync", 1, Act::Kill);
    let mut tool = command(&["wal", "repair", log.path().to_str().unwrap()]);
    fault.put_to_tool(&mut tool);
    let child = tool.spawn().unwrap();
    let left = beside(log.path(), &format!(".before-repair-1.partial-{}", child.id()));
    assert!(child.wait_with_output().unwrap().status.code().is_none() && fault.happened());
    wal("check", &left, &[]).ended(DAMAGED).says(&["not finished"]);
    wal("repair", log.path(), &[]).ended(SOUND).says(&["2 jobs", "removed"]);
    assert!(!left.exists() && !copy.join("unfinished").exists());
    fs::remove_dir_all(&copy).unwrap();
}

/// A file of the old version is written anew in the new one.
#[test]
fn repair_of_version_5_keeps_its_jobs() {
    let log = version_5_log(&["body"; 3]);
    let record = 8 + 7 + 77 + 6;
    overwrite(&log.join("binlog.1"), 4 + record + 8 + 7 + 76, &[99]);
    let (text, _) = check(log.path(), DAMAGED);
    text.says(&[&format!("binlog.1 at byte {}: unknown job state 99", 4 + record)]);
    wal("repair", log.path(), &[]).ended(SOUND);
    fs::remove_dir_all(beside(log.path(), ".before-repair-1")).unwrap();
    let (_, json) = check(log.path(), SOUND);
    assert_eq!(json["logs"][0]["files"][0]["version"], 7);
    let server = Setup::new(Binary::Legacy).wal(log.path()).start();
    let mut client = server.connect("A");
    assert_found(&mut client, 1, "body");
    assert_found(&mut client, 3, "body");
    assert_eq!(client.stats("stats-job 3").text("ttr"), "60");
}

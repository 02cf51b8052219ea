//! `trellis migrate` and `export`: nothing is lost or changed on the way to other slots and back, and whatever stops
//! it leaves the source good and no half target.

use crate::fault::{Act, Fault};
use crate::logs::{contents, overwrite, put, stock_log, version_5_log};
use crate::support::{Binary, Client, Setup, TempDir};
use crate::tool::{Answer, command, tool};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const DONE: i32 = 0;
const DAMAGED: i32 = 4;
const USAGE: i32 = 5;
const LOCKED: i32 = 10;
const DATA: i32 = 65;

/// A user without rights of its own.
const NOBODY: u32 = 65534;

const TUBES: [&str; 6] = ["default", "a", "b", "c", "d", "e"];

fn arguments(verb: &str, from: &Path, to: &Path, more: &[&str]) -> Vec<String> {
    let places = [verb, "--from", from.to_str().expect("UTF-8"), "--to", to.to_str().expect("UTF-8")];
    places.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

fn migrate(from: &Path, to: &Path, slots: &str) -> Answer {
    tool(&arguments("migrate", from, to, &["--slots", slots, "-s", "4096"]))
}

fn export(from: &Path, to: &Path) -> Answer {
    tool(&arguments("export", from, to, &[]))
}

/// Every job as text, but for where it is: sorted by id, and by tube in the order of replay.
fn dump(dir: &Path) -> (Vec<String>, Vec<String>) {
    let words = ["wal", "dump", dir.to_str().expect("UTF-8"), "--json", "--bodies"];
    let answer = tool(&words).ended(DONE);
    let mut jobs = Vec::new();
    let mut by_tube = Vec::new();
    for line in answer.out.lines() {
        let mut job: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields = job.as_object_mut().expect("an object");
        fields.remove("slot");
        fields.remove("file");
        by_tube.push((job["tube"].to_string(), job["id"].as_u64().unwrap()));
        jobs.push((job["id"].as_u64().unwrap(), job.to_string()));
    }
    jobs.sort();
    // Stable: within a tube the order stays.
    by_tube.sort_by(|(one, _), (other, _)| one.cmp(other));
    let text = by_tube.into_iter().map(|(tube, id)| format!("{tube} {id}"));
    (jobs.into_iter().map(|(_, job)| job).collect(), text.collect())
}

/// Jobs in all states and tubes, of bodies of all kinds, some of them deleted.
fn fill(client: &mut Client) {
    for (number, tube) in TUBES.iter().enumerate() {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        client.send(format!("watch {tube}\r\n")).reply();
        for other in TUBES.iter().filter(|other| *other != tube) {
            client.send(format!("ignore {other}\r\n")).reply();
        }
        let mut buried = Vec::new();
        for n in 0..6_usize {
            let body: Vec<u8> = (0..n * 300 + number).map(|b| (b * 7 + n) as u8).collect();
            let ready = put(client, &format!("{n} 0 60"), &body);
            client.send(format!("reserve-job {ready}\r\n")).reply();
            match n {
                0 => drop(client.ask(format!("release {ready} 9 0\r\n"), "RELEASED\r\n")),
                1 => drop(client.ask(format!("release {ready} 9 7200\r\n"), "RELEASED\r\n")),
                2 => drop(client.ask(format!("delete {ready}\r\n"), "DELETED\r\n")),
                _ => buried.push(ready),
            }
        }
        for id in buried.iter().rev() {
            client.ask(format!("bury {id} 3\r\n"), "BURIED\r\n");
        }
        client.ask(format!("kick-job {}\r\n", buried[1]), "KICKED\r\n");
        put(client, "4294967295 100000 4294967295", "late");
    }
}

fn filled(binary: Binary, slots: Option<u32>) -> TempDir {
    let log = TempDir::new("log");
    let mut setup = Setup::new(binary).wal(log.path()).flags(&["-s", "4096"]);
    if let Some(slots) = slots {
        setup = setup.slots(slots);
    }
    let mut server = setup.start();
    fill(&mut server.connect("filler"));
    server.kill();
    log
}

/// The next put is above all ids that were ever handed out.
fn assert_next_id_is_above(server_of: Setup, highest: u64) {
    let mut server = server_of.start();
    let id = put(&mut server.connect("next"), "0 0 60", "next");
    assert!(id > highest, "{id} after {highest}");
    server.kill();
}

#[test]
fn jobs_of_a_stock_server_go_to_four_slots_and_back_to_a_stock_server() {
    let log = filled(Binary::Legacy, None);
    let before = contents(log.path());
    let jobs = dump(log.path());
    assert_eq!(jobs.0.len(), TUBES.len() * 6);
    let home = TempDir::new("target");
    let (four, flat) = (home.join("four"), home.join("flat"));

    let answer = migrate(log.path(), &four, "4").ended(DONE);
    answer.says(&["36 jobs, compared with the source; ids go on above 42", "slot-003"]);
    assert!(contents(log.path()) == before, "the source was changed");
    assert_eq!(dump(&four), jobs);

    // Served, and left as they were.
    let four_slots = || Setup::new(Binary::Trellis).wal(&four).slots(4);
    let mut server = four_slots().start();
    let mut client = server.connect("A");
    assert_eq!(client.stats("stats").text("current-jobs-buried"), "12");
    for tube in TUBES {
        let stats = client.stats(&format!("stats-tube {tube}"));
        let counts = ["current-jobs-ready", "current-jobs-delayed", "current-jobs-buried"];
        assert_eq!(counts.map(|count| stats.number(count)), [2, 2, 2], "{tube}");
    }
    server.kill();
    assert_eq!(dump(&four), jobs);

    export(&four, &flat).ended(DONE);
    assert_eq!(dump(&flat), jobs);
    let mut server = Setup::new(Binary::Legacy).wal(&flat).start();
    let mut client = server.connect("B");
    for job in &jobs.0 {
        let job: serde_json::Value = serde_json::from_str(job).unwrap();
        let stats = client.stats(&format!("stats-job {}", job["id"]));
        for (field, name) in [("state", "state"), ("pri", "pri"), ("ttr", "ttr"), ("releases", "releases")] {
            assert_eq!(stats.text(name), job[field].to_string().trim_matches('"'), "{job}");
        }
        let bytes = job["body_bytes"].as_u64().unwrap() as usize;
        let reply = client.call(format!("peek {}\r\n", job["id"]));
        assert!(
            reply.len() > bytes && reply.starts_with(format!("FOUND {} {bytes}\r\n", job["id"]).as_bytes())
        );
    }
    // The order of the buried ones is that of replay, and the highest id was of a deleted job in the end.
    client.ask("use a\r\npeek-buried\r\n", "USING a\r\n");
    client.reply();
    server.kill();
    assert_next_id_is_above(Setup::new(Binary::Legacy).wal(&flat), 42);
    assert_next_id_is_above(four_slots(), 42);
}

#[test]
fn ids_that_are_used_up_stay_so_in_every_target() {
    let log = stock_log(&["one", "two", "three", "four"]);
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).start();
    server.connect("A").ask("delete 4\r\ndelete 3\r\n", "DELETED\r\nDELETED\r\n");
    server.kill();
    let home = TempDir::new("target");
    let places = ["two", "flat", "one", "three"].map(|name| home.join(name));
    migrate(log.path(), &places[0], "2").ended(DONE);
    export(&places[0], &places[1]).ended(DONE);
    migrate(&places[0], &places[2], "1").ended(DONE);
    migrate(&places[1], &places[3], "3").ended(DONE);
    assert_next_id_is_above(Setup::new(Binary::Trellis).wal(&places[0]), 4);
    assert_next_id_is_above(Setup::new(Binary::Legacy).wal(&places[1]), 4);
    assert_next_id_is_above(Setup::new(Binary::Trellis).wal(&places[2]), 4);
    assert_next_id_is_above(Setup::new(Binary::Trellis).wal(&places[3]), 4);
}

#[test]
fn slots_change_their_number_and_become_one() {
    let log = filled(Binary::Trellis, Some(4));
    let jobs = dump(log.path());
    assert_eq!(jobs.0.len(), TUBES.len() * 6);
    let home = TempDir::new("target");
    let mut from: PathBuf = log.path().to_owned();
    for slots in ["3", "16", "1", "2"] {
        let to = home.join(slots);
        migrate(&from, &to, slots).ended(DONE);
        assert_eq!(dump(&to), jobs, "{slots} slots");
        tool(&["wal", "check", to.to_str().unwrap()]).ended(DONE);
        drop(Setup::new(Binary::Trellis).wal(&to).start());
        assert_eq!(dump(&to), jobs, "{slots} slots, served");
        from = to;
    }
}

#[test]
fn version_5_is_migrated_and_exported() {
    let log = version_5_log(&["one", "two", "three"]);
    let jobs = dump(log.path());
    let home = TempDir::new("target");
    migrate(log.path(), &home.join("four"), "4").ended(DONE);
    assert_eq!(dump(&home.join("four")), jobs);
    export(log.path(), &home.join("flat")).ended(DONE);
    assert_eq!(dump(&home.join("flat")), jobs);
    assert_eq!(jobs.0.len(), 3);
    let server = Setup::new(Binary::Legacy).wal(&home.join("flat")).start();
    server.connect("A").ask("peek 3\r\n", "FOUND 3 5\r\nthree\r\n");
}

#[test]
fn torn_tail_is_left_out_and_said() {
    let log = stock_log(&["one"]);
    let end = crate::logs::end_of_records(&log.join("binlog.1"));
    overwrite(&log.join("binlog.1"), end, &7_i32.to_ne_bytes());
    overwrite(&log.join("binlog.1"), end + 4, b"default");
    let before = contents(log.path());
    let home = TempDir::new("target");
    migrate(log.path(), &home.join("two"), "2").ended(DONE).says(&[
        "left out",
        "binlog.1 at byte",
        "torn tail",
    ]);
    assert!(before == contents(log.path()), "the source was changed");
    assert_eq!(dump(&home.join("two")).0.len(), 1);
}

/// SIGKILL in place of each call that makes or changes a file of the target, one after the other.
#[test]
fn kill_at_any_point_leaves_the_source_good_and_no_half_target() {
    let log = stock_log(&["one", "two"]);
    let before = contents(log.path());
    let home = TempDir::new("target");
    let to = home.join("target");
    let mut kills = 0;
    loop {
        let fault = Fault::on(to.to_str().unwrap()).at("any", kills + 1, Act::Kill);
        let mut tool = command(&arguments("migrate", log.path(), &to, &["--slots", "2"]));
        fault.put_to_tool(&mut tool);
        let output = tool.output().unwrap();
        assert!(contents(log.path()) == before, "kill {kills} changed the source");
        if !fault.happened() {
            assert!(output.status.success(), "{output:?}");
            break;
        }
        assert!(output.status.code().is_none() && !to.exists(), "kill {kills}: {output:?}");
        let left = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path());
        left.for_each(|left| half_target_is_refused(&left));
        kills += 1;
    }
    assert!(kills > 20, "only {kills} calls were seen");
    // What a run left the next one has removed.
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    assert_eq!(dump(&to), dump(log.path()));
    let answer = migrate(log.path(), &to, "2").ended(DATA);
    answer.says(&["is there already"]);
}

/// What a killed run has left is empty, or whole, or nothing that a server or a tool takes for data.
fn half_target_is_refused(left: &Path) {
    let has_jobs = |files: BTreeMap<PathBuf, Vec<u8>>| files.keys().any(|name| name.ends_with("binlog.1"));
    if !left.join("unfinished").exists() {
        assert!(!has_jobs(contents(left)) || dump(left).0.len() == 2, "{}", left.display());
        return;
    }
    let check = ["wal", "check", left.to_str().unwrap()];
    tool(&check).ended(DAMAGED).says(&["not finished", "remove this directory", "mends logs only"]);
}

/// A run that was killed had served its target as data: less jobs, without a word.
#[test]
fn half_target_is_served_by_nobody_and_says_what_it_is() {
    for slots in ["1", "2"] {
        let log = stock_log(&["one", "two"]);
        let home = TempDir::new("target");
        let to = home.join("target");
        // The first log is whole, and not all is there.
        let fault = Fault::on(to.to_str().unwrap()).at("rename", if slots == "1" { 1 } else { 4 }, Act::Kill);
        let mut tool = command(&arguments("migrate", log.path(), &to, &["--slots", slots]));
        fault.put_to_tool(&mut tool);
        assert!(tool.output().unwrap().status.code().is_none() && fault.happened());
        let left = fs::read_dir(home.path()).unwrap().next().unwrap().unwrap().path();
        assert!(left.join("unfinished").exists());
        let before = contents(&left);
        half_target_is_refused(&left);
        if slots == "2" {
            half_slot_is_refused(&left.join("slot-000"));
        }
        let exit = Setup::new(Binary::Trellis).wal(&left).refusal();
        assert!(
            exit.code == Some(DATA) && exit.log.contains("not finished"),
            "{:?}: {}",
            exit.code,
            exit.log
        );
        migrate(&left, &home.join("other"), "3").ended(DATA).says(&["not finished"]);
        assert!(before == contents(&left), "something changed");
    }
}

fn half_slot_is_refused(slot: &Path) {
    tool(&["wal", "check", slot.to_str().unwrap()]).ended(DAMAGED).says(&["not finished"]);
}

/// A migration to two slots that stands still at its first sync until the file is dropped.
fn held_migration(log: &Path, to: &Path) -> (Child, fs::File) {
    let place = TempDir::new("wait");
    let fifo = place.join("wait");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fault = Fault::on(to.to_str().unwrap()).waiting_for("fsync", 1, &fifo);
    let mut tool = command(&arguments("migrate", log, to, &["--slots", "2"]));
    fault.put_to_tool(&mut tool);
    let tool = tool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let gate = fs::File::options().write(true).open(&fifo).unwrap();
    (tool, gate)
}

/// Ctrl-C and what service managers send leave nothing either.
#[test]
fn signal_that_ends_a_run_leaves_nothing_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let log = stock_log(&["one", "two"]);
        let before = contents(log.path());
        let home = TempDir::new("target");
        let to = home.join("target");
        let (mut tool, gate) = held_migration(log.path(), &to);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        nix::sys::signal::kill(Pid::from_raw(tool.id() as i32), signal).unwrap();
        let status = tool.wait().unwrap();
        drop(gate);
        assert_eq!(status.signal(), Some(signal as i32), "{status:?}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "{signal} left something");
        assert!(before == contents(log.path()), "something changed");
    }
}

/// The target had the source's mode before anything was written into it: its owner could not.
#[test]
fn source_that_its_owner_can_not_write_to_gives_a_target_of_that_mode() {
    for slots in ["1", "2"] {
        let log = stock_log(&["one", "two"]);
        let home = TempDir::new("target");
        let to = home.join("target");
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let words = arguments("migrate", log.path(), &to, &["--slots", slots]);
        let mut tool = command(&words);
        if nix::unistd::geteuid().is_root() {
            // As somebody to whom all of it belongs, for modes don't bind root.
            for path in
                [home.path(), log.path()].into_iter().chain(contents(log.path()).keys().map(PathBuf::as_path))
            {
                std::os::unix::fs::chown(log.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            tool.uid(NOBODY).gid(NOBODY);
        }
        mode(log.path(), 0o555);
        let output = tool.output();
        mode(log.path(), 0o755);
        let output = match output {
            // The program is where that user can't go.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{output:?}");
        let dirs = if slots == "1" { vec![to.clone()] } else { vec![to.clone(), to.join("slot-001")] };
        for dir in dirs {
            assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o555, "{}", dir.display());
            mode(&dir, 0o755);
        }
        assert_eq!(dump(&to).0.len(), 2);
        if slots == "2" {
            mode(&to.join("slot-000"), 0o755);
        }
    }
}

/// A full disk of the target was said of the source's file.
#[test]
fn write_that_fails_inside_a_body_names_the_target() {
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).flags(&["-z", "4000000"]).start();
    put(&mut server.connect("A"), "0 0 60", vec![b'x'; 3 << 20]);
    server.kill();
    let home = TempDir::new("target");
    let to = home.join("target");
    let fault = Fault::on(to.to_str().unwrap()).at("write", 2, Act::Fail(28));
    let mut tool = command(&arguments("export", log.path(), &to, &[]));
    fault.put_to_tool(&mut tool);
    let output = tool.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(fault.happened() && output.status.code() == Some(1), "{output:?}");
    let place = format!("{}.partial-", to.display());
    assert!(error.contains(&place) && error.contains("binlog.1: writing it: No space left"), "{error}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn target_that_comes_meanwhile_is_left_alone() {
    let log = stock_log(&["one"]);
    let home = TempDir::new("target");
    let to = home.join("target");
    let (tool, gate) = held_migration(log.path(), &to);
    fs::create_dir(&to).unwrap();
    drop(gate);
    let output = tool.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(DATA), "{error}");
    assert!(error.contains("is there already: name a place that is free"), "{error}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
}

#[test]
fn failing_write_or_sync_leaves_nothing_behind() {
    let log = stock_log(&["one", "two"]);
    for (call, errno) in [("write", 28), ("fsync", 5), ("create", 28), ("rename", 5)] {
        let home = TempDir::new("target");
        let to = home.join("target");
        let fault = Fault::on(to.to_str().unwrap()).at(call, 1, Act::Fail(errno));
        let mut tool = command(&arguments("migrate", log.path(), &to, &["--slots", "2"]));
        fault.put_to_tool(&mut tool);
        let output = tool.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(fault.happened() && output.status.code() == Some(1), "{call}: {output:?}");
        assert!(error.contains("target") && error.contains(&format!("os error {errno}")), "{error}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "{call} left something");
    }
}

#[test]
fn refusals_name_the_thing_the_reason_and_the_way_out() {
    let log = stock_log(&["one"]);
    let before = contents(log.path());
    let home = TempDir::new("target");
    let to = home.join("target");
    let refused = |answer: Answer, code: i32, words: &[&str]| {
        answer.ended(code).says(words);
        assert!(!to.exists() && contents(log.path()) == before, "something changed");
    };
    for binary in Binary::BOTH {
        let busy = TempDir::new("log");
        let mut server = Setup::new(binary).wal(busy.path()).start();
        put(&mut server.connect("A"), "0 0 60", "x");
        let pid = server.pid().to_string();
        let words = ["held by process", "stop it first"];
        refused(migrate(busy.path(), &to, "2"), LOCKED, &words);
        refused(export(busy.path(), &to), LOCKED, &[&*pid]);
        server.kill();
    }
    refused(migrate(&home.join("nowhere"), &to, "2"), DATA, &["nowhere"]);
    refused(migrate(TempDir::new("log").path(), &to, "2"), DATA, &["no logs"]);
    refused(migrate(log.path(), &log.join("inside"), "2"), DATA, &["inside of the source"]);
    refused(migrate(log.path(), &home.join("no/where"), "2"), DATA, &["no"]);
    refused(migrate(log.path(), home.path(), "2"), DATA, &["is there already"]);
    for end in ["new/.", "new/..", "..", "/"] {
        refused(migrate(log.path(), &home.join(end), "2"), DATA, &["is not the name of a new directory"]);
    }
    refused(migrate(log.path(), &to, "0"), USAGE, &["--slots"]);
    refused(
        tool(&arguments("migrate", log.path(), &to, &["--slots", "9", "--partitions", "8"])),
        DATA,
        &["8"],
    );
    let damaged = stock_log(&["one", "two"]);
    overwrite(&damaged.join("binlog.1"), 0, &9_i32.to_ne_bytes());
    refused(migrate(damaged.path(), &to, "2"), DATA, &["binlog.1 at byte 0", "wal check", "wal repair"]);
    let slots = filled(Binary::Trellis, Some(2));
    refused(migrate(&slots.join("slot-000"), &to, "2"), DATA, &["slot-000", "data directory"]);
    fs::remove_file(slots.join("topology.toml")).unwrap();
    refused(migrate(slots.path(), &to, "2"), DATA, &["topology.toml: missing"]);
}

/// A server that wants to start on the source while it is read is kept off by its own lock.
#[test]
fn source_is_locked_meanwhile() {
    for binary in Binary::BOTH {
        let log = stock_log(&["one"]);
        let home = TempDir::new("target");
        let to = home.join("target");
        // Stands still in the middle: the target's first log can't be opened before somebody reads the other end.
        let fifo = home.join("wait");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let fault = Fault::on(to.to_str().unwrap()).waiting_for("fsync", 1, &fifo);
        let mut tool = command(&arguments("migrate", log.path(), &to, &["--slots", "2"]));
        fault.put_to_tool(&mut tool);
        let mut tool = tool.stdout(std::process::Stdio::null()).spawn().unwrap();
        // Opens as soon as the tool has stopped there.
        let gate = fs::File::options().write(true).open(&fifo).unwrap();
        let exit = Setup::new(binary).wal(log.path()).refusal();
        assert_eq!(exit.code, Some(LOCKED), "{binary:?}: {}", exit.log);
        drop(gate);
        assert!(tool.wait().unwrap().success());
    }
}

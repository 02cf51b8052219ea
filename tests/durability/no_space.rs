//! S1 to S3: no space for another log file. What is refused has no effect, and what was acknowledged stays.

use crate::fault::{Act, Fault};
use crate::logs::{contents, inserted, put};
use crate::support::process::wait_for;
use crate::support::{Binary, Client, DEADLINE, Server, Setup, TempDir, Variant, on_both};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Command;

const ENOSPC: i32 = 28;
const NO_SPACE: &[u8] = b"OUT_OF_MEMORY\r\n";

/// A server whose first log file is its last, filled so that not even a change has room.
fn full(variant: Variant) -> (TempDir, Fault, Server) {
    let log = TempDir::new("log");
    let fault = Fault::on("binlog.").at("create", 2, Act::FailOnwards(ENOSPC));
    let setup = Setup::of(variant).wal(log.path()).flags(&["-s", "4096", "-f0"]);
    let server = fault.put_to(setup).start();
    (log, fault, server)
}

/// Puts jobs, large ones first, until none fits any more. Returns the last one's id.
fn fill(client: &mut Client) -> u64 {
    let mut last = 0;
    for size in [1000, 100, 10, 1, 0] {
        loop {
            let reply = client.call(format!("put 9 0 60 {size}\r\n{}\r\n", "f".repeat(size)));
            if reply == NO_SPACE {
                break;
            }
            last = inserted(&reply);
        }
    }
    last
}

/// Leaves no room even for a change. A change of this job is refused last.
fn fill_with_changes(client: &mut Client, job: u64) {
    loop {
        client.call(format!("reserve-job {job}\r\n"));
        let buried = client.call(format!("bury {job} 0\r\n")) == b"BURIED\r\n";
        if !buried || client.call(format!("kick-job {job}\r\n")) != b"KICKED\r\n" {
            return;
        }
    }
}

/// S1. The job of a refused put.
fn refused_put_leaves_nothing(variant: Variant) {
    let (_log, _fault, server) = full(variant);
    let mut client = server.connect("A");
    let last = fill(&mut client);
    client.ask("use refused\r\n", "USING refused\r\n");
    client.ask("put 0 0 60 1\r\nx\r\n", NO_SPACE);
    let tubes = String::from_utf8(client.call("use default\r\nlist-tubes\r\n")).unwrap();
    assert_eq!(tubes, "USING default\r\n");
    let tubes = String::from_utf8(client.reply()).unwrap();
    // Ids are handed out one after the other: it is above all others.
    let highest =
        (1..200).rev().find(|id| client.call(format!("peek {id}\r\n")) != b"NOT_FOUND\r\n").unwrap();
    if variant.is_trellis() {
        assert!(!tubes.contains("refused"), "{tubes}");
        assert_eq!(highest, last, "a refused job is findable");
    } else {
        assert!(tubes.contains("refused"), "{tubes}");
        client.ask(format!("peek {highest}\r\n"), format!("FOUND {highest} 1\r\nx\r\n"));
    }
}

/// Refused puts once were counted nowhere: with a full disk all seemed well.
#[test]
fn refused_puts_are_counted_in_the_status() {
    let (log, place) = (TempDir::new("log"), TempDir::new("control"));
    let control = place.join("control");
    let fault = Fault::on("binlog.").at("create", 2, Act::FailOnwards(ENOSPC));
    let setup = Setup::new(Binary::Trellis).slots(1).wal(log.path());
    let flags = ["-s", "4096", &format!("--control={}", control.display())];
    let server = fault.put_to(setup.flags(&flags)).start();
    let mut client = server.connect("A");
    wait_status(&control, " 0 refused for lack of space");
    // One put of each size that is tried ends in a refusal.
    fill(&mut client);
    wait_status(&control, " 5 refused for lack of space");
}

/// S2. A bury that is refused, and a release with delay, leave the job with its client.
fn refused_bury_leaves_the_reservation(variant: Variant) {
    let (_log, _fault, server) = full(variant);
    let mut client = server.connect("A");
    let job = put(&mut client, "7 0 60", "x");
    let other = put(&mut client, "1 0 60", "y");
    fill(&mut client);
    fill_with_changes(&mut client, other);
    let before = client.stats("stats").number("current-jobs-reserved");
    client.ask(format!("reserve-job {job}\r\n"), format!("RESERVED {job} 1\r\nx\r\n"));
    client.ask(format!("bury {job} 0\r\n"), "INTERNAL_ERROR\r\n");
    client.ask(
        format!("release {job} 0 60\r\n"),
        if variant.is_trellis() { NO_SPACE } else { b"NOT_FOUND\r\n" },
    );
    let reserved = client.stats("stats").number("current-jobs-reserved") - before;
    // Nor has it changed anything else.
    let priority = client.stats(&format!("stats-job {job}")).number("pri");
    assert_eq!(priority, if variant.is_trellis() { 7 } else { 0 });
    client
        .ask(format!("delete {job}\r\n"), if variant.is_trellis() { "DELETED\r\n" } else { "NOT_FOUND\r\n" });
    assert_eq!(reserved, if variant.is_trellis() { 1 } else { 0 });
}

/// S3. A kick of more jobs than there is room for.
fn kick_counts_what_it_did_and_stops(variant: Variant) {
    const BURIED: usize = 5;
    let (_log, fault, server) = full(variant);
    let mut client = server.connect("A");
    for _ in 0..BURIED {
        let job = put(&mut client, "0 0 60", "x");
        client.ask("reserve\r\n", format!("RESERVED {job} 1\r\nx\r\n"));
        client.ask(format!("bury {job} 0\r\n"), "BURIED\r\n");
    }
    fill(&mut client);
    let attempts = |fault: &Fault| fault.trace().iter().filter(|(call, _, _)| call == "create").count();
    let before = attempts(&fault);
    let reply = client.call("kick 1000\r\n");
    let buried = client.stats("stats").number("current-jobs-buried");
    let tried = attempts(&fault) - before;
    if variant.is_trellis() {
        assert_eq!(reply, format!("KICKED {}\r\n", BURIED as i64 - buried).as_bytes());
        assert_eq!(tried, 1);
    } else {
        assert_eq!(reply, b"KICKED 1000\r\n");
        assert!(buried > 0 && tried > 100, "{buried} are buried, {tried} attempts");
    }
}

/// S3. A `kick-job` without room: the job is there, buried or delayed as before.
fn kick_job_without_room_says_so(variant: Variant) {
    let (_log, _fault, server) = full(variant);
    let mut client = server.connect("A");
    let buried = put(&mut client, "0 0 60", "x");
    client.ask("reserve\r\n", format!("RESERVED {buried} 1\r\nx\r\n"));
    client.ask(format!("bury {buried} 0\r\n"), "BURIED\r\n");
    let delayed = put(&mut client, "0 60 60", "y");
    let other = put(&mut client, "1 0 60", "z");
    fill(&mut client);
    fill_with_changes(&mut client, other);
    for (job, state) in [(buried, "buried"), (delayed, "delayed")] {
        let reply = if variant.is_trellis() { NO_SPACE } else { b"NOT_FOUND\r\n" };
        client.ask(format!("kick-job {job}\r\n"), reply);
        let stats = client.stats(&format!("stats-job {job}"));
        assert_eq!((stats.text("state"), stats.number("kicks")), (state, 0));
    }
    client.ask("kick-job 9999\r\n", "NOT_FOUND\r\n");
}

on_both!(
    refused_put_leaves_nothing,
    refused_bury_leaves_the_reservation,
    kick_counts_what_it_did_and_stops,
    kick_job_without_room_says_so
);

/// A file system of its own, of this size. `None` where that is not allowed.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(kib: u32) -> Option<SmallDisk> {
        let directory = TempDir::new("disk");
        mount(&["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"], directory.path())
            .then(|| SmallDisk(directory))
    }

    fn resize(&self, kib: u32) {
        assert!(mount(&["-o", &format!("remount,size={kib}k")], self.0.path()));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn mount(arguments: &[&str], place: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(arguments).arg(place).stderr(std::process::Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A disk that is full for good: what was acknowledged is there, while it is full and when it has grown.
#[test]
fn full_disk_loses_nothing_acknowledged() {
    let Some(disk) = SmallDisk::new(256) else {
        println!("NOT RUN: a small tmpfs can be mounted by root only");
        return;
    };
    let setup = || Setup::of(Variant::TrellisOneSlot).wal(disk.0.path()).flags(&["-s", "16384", "-f0"]);
    let mut server = setup().start();
    let mut client = server.connect("A");
    let mut told = Vec::new();
    loop {
        let reply = client.call(format!("put 0 0 60 1000\r\n{}\r\n", "x".repeat(1000)));
        if reply == NO_SPACE {
            break;
        }
        told.push(inserted(&reply));
    }
    assert!(told.len() > 50, "only {} jobs fitted", told.len());
    // Room can be made, and is used.
    for id in told.drain(..told.len() / 2) {
        client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
    told.push(put(&mut client, "0 0 60", "y".repeat(1000)));
    fill(&mut client);
    server.kill();

    // Without room for one more file it can't start, says why, and harms nothing.
    let logs = |path: &Path| {
        let mut files = contents(path);
        files.retain(|name, _| name.to_string_lossy().starts_with("binlog."));
        files
    };
    let before = logs(disk.0.path());
    let filler = disk.0.path().join("filler");
    let _ = std::fs::write(&filler, vec![1; 1 << 20]);
    // A larger one: the place of a file that nothing was written to is used again.
    let larger = Setup::of(Variant::TrellisOneSlot).wal(disk.0.path()).flags(&["-s", "262144", "-f0"]);
    let exit = larger.refusal();
    assert_eq!(exit.code, Some(1), "{}", exit.log);
    // The supervisor itself has the reason: the last line, status and health are its.
    let last = exit.log.lines().last().unwrap_or_default();
    for words in ["no service", disk.0.path().to_str().unwrap(), "No space left on device"] {
        assert!(last.contains(words), "no {words:?} at the end of {}", exit.log);
    }
    let after = logs(disk.0.path());
    for (name, bytes) in &before {
        let unwritten = bytes.iter().skip(4).all(|&byte| byte == 0);
        assert!(
            after.get(name) == Some(bytes) || unwritten,
            "a start that failed changed {}",
            name.display()
        );
    }

    disk.resize(4096);
    let server = setup().start();
    let mut client = server.connect("B");
    for id in &told {
        assert!(client.call(format!("peek {id}\r\n")).starts_with(b"FOUND"), "job {id} is lost");
    }
    put(&mut client, "0 0 60", "z");
}

/// Trying again does not make it writable.
#[test]
fn read_only_disk_is_refused_at_once() {
    let Some(disk) = SmallDisk::new(256) else {
        println!("NOT RUN: a small tmpfs can be mounted by root only");
        return;
    };
    let setup = || Setup::of(Variant::TrellisOneSlot).wal(disk.0.path()).flags(&["-s", "16384"]);
    let mut server = setup().start();
    put(&mut server.connect("A"), "0 0 60", "x");
    server.stop();
    assert!(mount(&["-o", "remount,ro"], disk.0.path()));
    let exit = setup().refusal();
    assert_eq!(exit.code, Some(65), "{}", exit.log);
    for words in ["Read-only file system", disk.0.path().to_str().unwrap()] {
        assert!(exit.log.contains(words), "no {words:?} in {}", exit.log);
    }
    assert!(!exit.log.contains("generation 2"), "{}", exit.log);
}

/// What `trellis status` says, once it has these words.
fn wait_status(control: &Path, words: &str) -> String {
    wait_for(words, DEADLINE, || {
        let mut command = Command::new(Binary::Trellis.path());
        let output = command.args(["status", "--control"]).arg(control).output().unwrap();
        Some(String::from_utf8(output.stdout).unwrap()).filter(|text| text.contains(words))
    })
}

fn kill_owner(server: &Server) {
    let is_owner = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"trellis\0owner\0--slot\x000\0")
    };
    let owner = server.pids().into_iter().find(is_owner).expect("the owner of slot 0");
    kill(Pid::from_raw(owner), Signal::SIGKILL).unwrap();
}

/// The core once ended its process itself, and its reason was in its last line on stderr alone.
#[test]
fn owner_that_finds_no_room_for_its_next_file_says_so_in_the_status() {
    let (log, place) = (TempDir::new("log"), TempDir::new("control"));
    let control = place.join("control");
    let fault = Fault::on("/binlog.2").at("create", 1, Act::FailOnwards(ENOSPC));
    let setup = Setup::new(Binary::Trellis).slots(1).wal(log.path());
    let server = fault.put_to(setup.flags(&[&format!("--control={}", control.display())])).start();
    let mut client = server.connect("A");
    let job = put(&mut client, "0 0 60", "x");
    kill_owner(&server);
    let status = wait_status(&control, "can't be opened");
    let reason = format!("ended with code 1: slot 0: the log in {} can't be opened: ", log.path().display());
    for words in [&reason, "/binlog.2: No space left on device"] {
        assert!(status.contains(words), "no {words:?} in {status}");
    }
    // Room has come: so has the slot.
    wait_status(&control, "all is well");
    let mut client = server.connect("B");
    client.ask(format!("peek {job}\r\n"), format!("FOUND {job} 1\r\nx\r\n"));
}

/// The reason once said that the fault is named above, where nothing was.
#[test]
fn owner_whose_log_is_damaged_names_the_fault_in_the_status() {
    let (log, place) = (TempDir::new("log"), TempDir::new("control"));
    let control = place.join("control");
    let setup = Setup::new(Binary::Trellis).slots(2).wal(log.path());
    let server = setup.flags(&[&format!("--control={}", control.display())]).start();
    wait_status(&control, "all is well");
    // No version of the format.
    let file = std::fs::OpenOptions::new().write(true).open(log.path().join("slot-000/binlog.1")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[99, 0, 0, 0], 0).unwrap();
    kill_owner(&server);
    let status = wait_status(&control, "ended with code 65");
    let reason = format!("the log in {}/slot-000 is not opened", log.path().display());
    for words in [reason.as_str(), "binlog.1 at byte 0: unknown version 99"] {
        assert!(status.contains(words), "no {words:?} in {status}");
    }
    assert!(!status.contains("above"), "{status}");
}

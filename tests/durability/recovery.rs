//! What an owner does with a log before it opens it: cuts what a crash left, refuses everything else untouched.

use crate::logs::{assert_found, contents, end_of_records, overwrite, put, stock_log};
use crate::support::{Binary, Setup, TempDir};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const EXIT_DATA: i32 = 65;
const EXIT_LOCKED: i32 = 10;

fn trellis(log: &Path) -> Setup {
    Setup::new(Binary::Trellis).wal(log)
}

/// Refused with the permanent code and these words, and without any change in the directory.
fn refused(setup: Setup, log: &Path, words: &[&str]) {
    let before = contents(log);
    let exit = setup.refusal();
    assert_eq!(exit.code, Some(EXIT_DATA), "{}", exit.log);
    for word in words.iter().chain(&["trellis wal check", "trellis wal repair"]) {
        assert!(exit.log.contains(word), "no {word:?} in:\n{}", exit.log);
    }
    assert!(before == contents(log), "something changed in the directory");
}

#[test]
fn torn_tail_is_cut_and_logged() {
    let log = stock_log(&["one", "two"]);
    let file = log.join("binlog.1");
    let end = end_of_records(&file);
    // A third record that stops in its body.
    let record_bytes = (end as usize - 4) / 2;
    overwrite(&file, end, &fs::read(&file).unwrap()[4..record_bytes]);

    let server = trellis(log.path()).start();
    let mut client = server.connect("A");
    assert_found(&mut client, 1, "one");
    assert_found(&mut client, 2, "two");
    assert_eq!(put(&mut client, "0 0 60", "three"), 3);
    assert_eq!(fs::metadata(&file).unwrap().len(), end);
    let words = format!("binlog.1 at byte {end}: torn tail");
    assert!(server.log().contains(&words), "no {words:?} in:\n{}", server.log());
}

/// The core makes its files read-only, also for the user that owns them.
#[test]
fn torn_tail_is_cut_by_an_owner_that_is_not_root() {
    let log = stock_log(&["one"]);
    let file = log.join("binlog.1");
    let end = end_of_records(&file);
    overwrite(&file, end, &7_u32.to_ne_bytes());
    overwrite(&file, end + 4, b"default");
    let mut setup = trellis(log.path());
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name("nobody").unwrap().expect("there is a nobody");
        for path in [log.path().to_owned(), file.clone(), log.join("lock")] {
            std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        setup = setup.flags(&["-u", "nobody"]);
    }
    let server = setup.start();
    assert_found(&mut server.connect("A"), 1, "one");
    assert_eq!(fs::metadata(&file).unwrap().len(), end);
}

#[test]
fn damage_is_refused_and_stays_as_it_is() {
    let log = stock_log(&["one", "two"]);
    let file = log.join("binlog.1");
    overwrite(&file, end_of_records(&file) - 1, b"!");
    fs::remove_file(log.join("lock")).unwrap();
    let at = format!("binlog.1 at byte {}: ", 4 + 4 + 7 + 80 + 5);
    refused(trellis(log.path()), log.path(), &[&at, "does not end in CR LF", "slot 0"]);
    assert!(!log.join("lock").exists(), "even a lock file is a change");
}

#[test]
fn unknown_version_is_refused_where_the_original_deletes_the_file() {
    let damaged = || {
        let log = stock_log(&["one"]);
        overwrite(&log.join("binlog.1"), 0, &9_u32.to_ne_bytes());
        log
    };
    let log = damaged();
    refused(trellis(log.path()), log.path(), &["binlog.1 at byte 0: unknown version 9"]);

    let log = damaged();
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).start();
    server.connect("A").ask("peek 1\r\n", "NOT_FOUND\r\n");
    server.restart();
    server.connect("B").ask("peek 1\r\n", "NOT_FOUND\r\n");
    assert!(!log.join("binlog.1").exists(), "the fault that Trellis mends is gone from the original");
}

/// A slot's own log copied into another slot: tubes and ids are of the wrong slot.
#[test]
fn tube_and_id_of_another_slot_are_refused_naming_both() {
    let log = TempDir::new("log");
    let four = || trellis(log.path()).slots(4);
    let mut server = four().start();
    let mut client = server.connect("A");
    // `default` is of one slot; its log goes to another.
    let id = put(&mut client, "0 0 60", "lost sheep");
    server.stop();
    let owner = (id % 4) as usize;
    let stranger = (owner + 1) % 4;
    let place = |slot: usize| log.join(format!("slot-{slot:03}"));
    fs::copy(place(owner).join("binlog.1"), place(stranger).join("binlog.1")).unwrap();
    let tube = format!(
        "slot-{stranger:03}/binlog.1 at byte 88: tube default belongs to slot {owner}, but this is the log of slot {stranger}"
    );
    refused(four(), &place(stranger), &[&tube, &format!("id {id} is not of slot {stranger}")]);
}

#[test]
fn files_that_were_never_written_are_removed_from_the_front() {
    let log = stock_log(&["one"]);
    fs::rename(log.join("binlog.1"), log.join("binlog.3")).unwrap();
    fs::write(log.join("binlog.1"), b"").unwrap();
    fs::write(log.join("binlog.2"), vec![0; 4096]).unwrap();
    let server = trellis(log.path()).start();
    let mut client = server.connect("A");
    assert_found(&mut client, 1, "one");
    client.ask("delete 1\r\n", "DELETED\r\n");
    assert!(!log.join("binlog.1").exists() && !log.join("binlog.2").exists());
    assert!(!server.log().contains("head holds no jlist"), "{}", server.log());
}

/// The core takes each of them for a fault: "Errors reading one or more WAL files… You may be missing data".
#[test]
fn files_that_were_never_written_are_no_alarm() {
    let log = stock_log(&["one"]);
    fs::write(log.join("binlog.2"), vec![0; 4096]).unwrap();
    fs::write(log.join("binlog.3"), b"").unwrap();
    fs::copy(log.join("binlog.1"), log.join("binlog.4")).unwrap(); // as if the job had been moved
    fs::write(log.join("binlog.5"), vec![0; 4096]).unwrap();
    fs::write(log.join("binlog.6"), b"").unwrap();
    let server = trellis(log.path()).start();
    assert_found(&mut server.connect("A"), 1, "one");
    for (number, what) in [(2, "begun"), (3, "begun"), (5, "removed"), (6, "removed")] {
        let line = format!("binlog.{number}: was never written to; {what}");
        assert!(server.log().contains(&line), "{line}: {}", server.log());
    }
    assert!(!server.log().contains("missing data"), "{}", server.log());
}

/// Rights don't come by themselves: there were five tries, and then a code that asks for more of them.
#[test]
fn log_that_is_not_permitted_is_refused_at_once() {
    let rights = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for name in ["lock", "ids.toml", "binlog.1", ""] {
        let log = stock_log(&["one"]);
        fs::write(log.join("ids.toml"), "format = 1\nforgotten = 0\nreserved = 0\nboot = \"\"\n").unwrap();
        let mut setup = trellis(log.path());
        if nix::unistd::geteuid().is_root() {
            let user = nix::unistd::User::from_name("nobody").unwrap().expect("there is a nobody");
            for path in ["lock", "ids.toml", "binlog.1", ""].map(|name| log.join(name)) {
                std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
            }
            setup = setup.flags(&["-u", "nobody"]);
        }
        let path = log.join(name);
        rights(&path, if name.is_empty() { 0o555 } else { 0o000 });
        let exit = setup.refusal();
        rights(&path, 0o755);
        assert_eq!(exit.code, Some(EXIT_DATA), "{name:?}: {}", exit.log);
        let place = log.join(name).display().to_string();
        for words in [place.trim_end_matches('/'), "Permission denied", "generation 1"] {
            assert!(exit.log.contains(words), "{name:?}: no {words:?} in {}", exit.log);
        }
        assert!(!exit.log.contains("generation 2"), "{name:?}: {}", exit.log);
    }
}

#[test]
fn log_that_another_server_holds_is_left_with_code_10() {
    let log = TempDir::new("log");
    let _server = Setup::new(Binary::Legacy).wal(log.path()).start();
    let exit = trellis(log.path()).refusal();
    assert_eq!(exit.code, Some(EXIT_LOCKED), "{}", exit.log);
}

/// Replay closes what it has read.
#[test]
fn log_of_more_files_than_descriptors_is_replayed_whole() {
    const JOBS: u64 = 200;
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).flags(&["-s", "600"]).start();
    let mut client = server.connect("A");
    for _ in 0..JOBS {
        put(&mut client, "0 0 60", "x".repeat(400));
    }
    server.kill();
    assert!(fs::read_dir(log.path()).unwrap().count() as u64 > JOBS);
    // What the processes need besides, and no more.
    let setup = trellis(log.path()).open_files(100).flags(&["-s", "600"]);
    let server = setup.start();
    let ready = server.connect("B").stats("stats").number("current-jobs-ready");
    assert_eq!(ready as u64, JOBS, "{}", server.log());
}

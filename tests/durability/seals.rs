//! Checksums in the log, as the core writes them, the reader reads them, and the original skips them.

use crate::logs::{assert_found, contents, put};
use crate::support::{Binary, Client, DEADLINE, Server, Setup, TempDir, Variant, process::wait_for};
use crate::tool::tool;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use trellis::wal::{FileSource, Next, Opened, Reader, Record, Synced};

const SOUND: i32 = 0;
const DAMAGED: i32 = 4;
const DATA: i32 = 65;

fn trellis(log: &Path, flags: &[&str]) -> Server {
    Setup::of(Variant::TrellisOneSlot).wal(log).flags(flags).start()
}

fn reader(log: &Path, number: u32) -> Reader<'static> {
    let source = FileSource::open(&log.join(format!("binlog.{number}"))).unwrap();
    let Opened::Log(reader) = Reader::open(source).unwrap() else { panic!("no log") };
    reader
}

/// The whole records of a sealed file.
fn records(log: &Path, number: u32) -> Vec<Record> {
    let mut reader = reader(log, number);
    assert!(reader.is_sealed());
    let next = || match reader.next().unwrap() {
        Next::Record(record) => Some(record),
        Next::End => None,
        Next::Stopped(stop) => panic!("{stop:?}"),
    };
    std::iter::from_fn(next).collect()
}

fn check(log: &Path) -> crate::tool::Answer {
    tool(&["wal", "check", log.to_str().unwrap()])
}

/// The core's own hash against that of the reader: bodies of every length up to two rounds of it, and one that is
/// written past the buffer.
#[test]
fn body_of_any_length_is_sealed_and_a_flipped_bit_of_it_found() {
    const LARGE: usize = 300_000;
    let log = TempDir::new("log");
    let mut server = trellis(log.path(), &["-f0", "-z", "1000000"]);
    let mut client = server.connect("A");
    for length in (0..=70).chain([LARGE]) {
        put(&mut client, "0 0 60", (0..length).map(|n| n as u8).collect::<Vec<_>>());
    }
    server.stop();
    check(log.path()).ended(SOUND);
    let large = records(log.path(), 1).pop().unwrap();
    let middle = large.end - LARGE as u64 / 2;
    let path = log.join("binlog.1");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], middle).unwrap();
    check(log.path()).ended(DAMAGED).says(&[
        &format!("binlog.1 at byte {}", large.offset),
        "the record's checksum is not that of its bytes",
    ]);
}

#[test]
fn record_says_how_far_the_log_was_on_disk() {
    let synced = |log: &TempDir| -> Vec<Synced> {
        records(log.path(), 1).iter().map(|record| record.synced.expect("sealed")).collect()
    };
    let put_two = |client: &mut Client| ["one", "two"].map(|body| put(client, "0 0 60", body));
    // Never synced: nothing is known.
    let log = TempDir::new("log");
    put_two(&mut trellis(log.path(), &["-F"]).connect("A"));
    assert_eq!(synced(&log), [Synced::Unknown; 2]);
    // Synced before each reply: all in front of the record; the head of a new file waits for the first one.
    let log = TempDir::new("log");
    put_two(&mut trellis(log.path(), &["-f0"]).connect("A"));
    let second = records(log.path(), 1)[1].offset as u32;
    assert_eq!(synced(&log), [0, second].map(|offset| Synced::UpTo { files_back: 0, offset }));
    // Synced in the background: nothing of this file at first, and more once that has happened.
    let log = TempDir::new("log");
    let server = trellis(log.path(), &["-f", "20"]);
    let mut client = server.connect("A");
    put_two(&mut client);
    assert_eq!(synced(&log)[0], Synced::UpTo { files_back: 0, offset: 0 });
    wait_for("a record that says more", DEADLINE, || {
        put(&mut client, "0 0 60", "more");
        matches!(synced(&log).last()?, Synced::UpTo { files_back: 0, offset: 1.. }).then_some(())
    });
}

/// The original reads a sealed log, changes all in it and moves jobs with the padding that it has read; and back.
#[test]
fn log_goes_to_the_original_and_back_with_its_seals() {
    let log = TempDir::new("log");
    let files = ["-f0", "-s", "4096"];
    let mut server = trellis(log.path(), &files);
    let mut client = server.connect("A");
    let jobs: Vec<u64> = (0..20).map(|n| put(&mut client, "0 0 60", format!("body {n}"))).collect();
    server.stop();
    let mut stock = Setup::new(Binary::Legacy).wal(log.path()).flags(&files).start();
    let mut client = stock.connect("B");
    for job in &jobs {
        client.send(format!("reserve-job {job}\r\n")).reply();
        client.ask(format!("bury {job} 7\r\n"), "BURIED\r\n");
    }
    for _ in 0..60 {
        let filler = put(&mut client, "0 0 60", "f".repeat(500));
        client.ask(format!("delete {filler}\r\n"), "DELETED\r\n");
    }
    let moved = client.stats("stats").number("binlog-records-migrated");
    assert!(moved > 0, "it moved nothing");
    stock.stop();
    check(log.path()).ended(SOUND);
    let server = trellis(log.path(), &files);
    let mut client = server.connect("C");
    for (n, job) in jobs.iter().enumerate() {
        assert_found(&mut client, *job, &format!("body {n}"));
        let stats = client.stats(&format!("stats-job {job}"));
        assert_eq!((stats.text("state"), stats.number("pri")), ("buried", 7));
    }
}

/// A file whose records end too early reads as whole by itself: the next one says where they ended.
#[test]
fn what_a_file_lacks_at_its_end_shows_in_the_next() {
    const FILE_BYTES: usize = 4096;
    let flags = ["-F", "-s", &FILE_BYTES.to_string()];
    let served = || {
        let log = TempDir::new("log");
        let mut server = trellis(log.path(), &flags);
        let mut client = server.connect("A");
        for n in 0..120 {
            put(&mut client, "0 0 60", format!("body {n}"));
        }
        server.stop();
        // The restarted one goes on behind what it has found.
        let mut server = trellis(log.path(), &flags);
        put(&mut server.connect("B"), "0 0 60", "more");
        server.stop();
        check(log.path()).ended(SOUND);
        log
    };
    let replaced = |log: &TempDir, number: u32, bytes: &[u8]| {
        let path = log.join(format!("binlog.{number}"));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let bytes = |log: &TempDir, number: u32| std::fs::read(log.join(format!("binlog.{number}"))).unwrap();
    let last_record = |log: &TempDir, number: u32| records(log.path(), number).pop().unwrap().offset as usize;
    let newest =
        |log: &TempDir| (1..).take_while(|n| log.join(format!("binlog.{n}")).exists()).last().unwrap();

    type Fault<'a> = (&'a str, &'a dyn Fn(&TempDir));
    let faults: [Fault<'_>; 7] = [
        ("emptied", &|log| replaced(log, 2, b"")),
        ("zeroed", &|log| replaced(log, 2, &vec![0; FILE_BYTES])),
        ("the first emptied", &|log| replaced(log, 1, b"")),
        ("cut behind a record", &|log| {
            let end = last_record(log, 2);
            replaced(log, 2, &bytes(log, 2)[..end]);
        }),
        ("cut, the last before the restart", &|log| {
            // Those that were made ahead have no records, and so no seal; the last one with some is the second server's.
            let sealed = |number: &u32| reader(log.path(), *number).is_sealed();
            let number = (1..=newest(log)).rev().filter(sealed).nth(1).unwrap();
            let end = last_record(log, number);
            replaced(log, number, &bytes(log, number)[..end]);
        }),
        ("copied over the next", &|log| replaced(log, 3, &bytes(log, 2))),
        ("swapped", &|log| {
            let (second, third) = (bytes(log, 2), bytes(log, 3));
            replaced(log, 2, &third);
            replaced(log, 3, &second);
        }),
    ];
    for (what, fault) in faults {
        let log = served();
        fault(&log);
        let answer = check(log.path());
        assert_eq!(answer.code, Some(DAMAGED), "{what}: {answer:?}");
        answer.says(&["the log does not go on here: binlog.", "was written behind byte"]);
        let before = contents(log.path());
        let exit = Setup::of(Variant::TrellisOneSlot).wal(log.path()).flags(&flags).try_start().err();
        assert_eq!(exit.expect(what).code, Some(DATA), "{what}");
        assert!(contents(log.path()) == before, "{what}: something changed");
        tool(&["wal", "repair", log.path().to_str().unwrap()]).ended(SOUND);
        check(log.path()).ended(SOUND);
    }
}

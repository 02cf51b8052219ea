//! One directory, two servers: the second leaves at once, and the first does not notice.

use crate::jobs::put;
use crate::support::{Binary, Setup, TempDir};
use std::collections::BTreeMap;
use std::path::Path;

/// The original's exit code for a directory that it can't lock.
const EXIT_LOCKED: i32 = 10;

fn second_server_leaves(holder: Binary, intruder: Binary) {
    let log = TempDir::new("log");
    let mut server = Setup::new(holder).wal(log.path()).flags(&["-f0"]).start();
    let mut client = server.connect("A");
    let before = put(&mut client, "0 0 60", b"before");
    let files = contents(log.path());

    let exit = Setup::new(intruder).wal(log.path()).refusal();
    assert_eq!(exit.code, Some(EXIT_LOCKED), "{}", exit.log);
    assert!(exit.log.contains(&log.path().display().to_string()), "the directory is not named: {}", exit.log);
    assert_eq!(files.keys().collect::<Vec<_>>(), contents(log.path()).keys().collect::<Vec<_>>());
    assert!(files == contents(log.path()), "the second server wrote into the directory");

    // The first one still writes, to files that are still there.
    let after = put(&mut client, "0 0 60", b"after");
    server.restart();
    let mut client = server.connect("B");
    client.ask(format!("peek {before}\r\n"), format!("FOUND {before} 6\r\nbefore\r\n"));
    client.ask(format!("peek {after}\r\n"), format!("FOUND {after} 5\r\nafter\r\n"));
}

/// Every file of the directory with its bytes.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries =
        std::fs::read_dir(directory).expect("the log's directory").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.file_type().expect("its type").is_file());
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    files.map(|file| (name(&file), std::fs::read(file.path()).expect("its bytes"))).collect()
}

#[test]
fn original_leaves_a_directory_of_the_original() {
    second_server_leaves(Binary::Legacy, Binary::Legacy);
}

#[test]
fn original_leaves_a_directory_of_trellis() {
    second_server_leaves(Binary::Trellis, Binary::Legacy);
}

#[test]
fn trellis_leaves_a_directory_of_the_original() {
    second_server_leaves(Binary::Legacy, Binary::Trellis);
}

#[test]
fn trellis_leaves_a_directory_of_trellis() {
    second_server_leaves(Binary::Trellis, Binary::Trellis);
}

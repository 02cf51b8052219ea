//! Directories of logs: their bytes, and how tests make and break them.

use crate::support::{Binary, Client, Setup, TempDir};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Files by their path below the directory, with their bytes.
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(place) = todo.pop() {
        for entry in fs::read_dir(&place).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(directory).expect("below").to_owned();
                found.insert(name, fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

/// Puts a job and returns its id. `numbers` are priority, delay and ttr.
pub fn put(client: &mut Client, numbers: &str, body: impl AsRef<[u8]>) -> u64 {
    let body = body.as_ref();
    client.send([format!("put {numbers} {}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat());
    inserted(&client.reply())
}

/// The id in the reply to a put.
pub fn inserted(reply: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(reply);
    let id = text.strip_prefix("INSERTED ").and_then(|id| id.trim_end().parse().ok());
    id.unwrap_or_else(|| panic!("put: {text:?}"))
}

/// A directory that a stock server made, with these bodies in `default`, their ids from 1 on.
pub fn stock_log(bodies: &[&str]) -> TempDir {
    let log = TempDir::new("log");
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).start();
    let mut client = server.connect("maker");
    for body in bodies {
        put(&mut client, "0 0 60", body);
    }
    server.kill();
    log
}

/// A directory with a file of version 5, with these bodies in `default`, their ids from 1 on.
pub fn version_5_log(bodies: &[&str]) -> TempDir {
    let log = TempDir::new("log");
    let mut bytes = 5_i32.to_ne_bytes().to_vec();
    for (number, body) in bodies.iter().enumerate() {
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(b"default");
        // Its times are microseconds; the state, here ready, is the last byte.
        let mut job = [0; 77];
        job[..8].copy_from_slice(&(number as u64 + 1).to_ne_bytes());
        job[24..32].copy_from_slice(&60_000_000_u64.to_ne_bytes());
        job[32..36].copy_from_slice(&(body.len() as i32 + 2).to_ne_bytes());
        job[40..48].copy_from_slice(&1_700_000_000_000_000_u64.to_ne_bytes());
        job[76] = 1;
        bytes.extend(job);
        bytes.extend(format!("{body}\r\n").bytes());
    }
    fs::write(log.join("binlog.1"), bytes).expect("write a log");
    log
}

/// Where the records in a log file of a server end: behind it are zeros.
pub fn end_of_records(log: &Path) -> u64 {
    let bytes = fs::read(log).expect("a log");
    bytes.iter().rposition(|&byte| byte != 0).expect("something was written") as u64 + 1
}

pub fn overwrite(log: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(log).expect("a log that can be written to");
    file.write_all_at(bytes, offset).expect("write into it");
}

pub fn assert_found(client: &mut Client, id: u64, body: &str) {
    client.ask(format!("peek {id}\r\n"), format!("FOUND {id} {}\r\n{body}\r\n", body.len()));
}

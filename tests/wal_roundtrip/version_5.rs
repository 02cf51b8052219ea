//! A log in the format of version 5, made byte by byte: old data is served, and goes on in the new format.
//!
//! A file is a version (32 bits) and records. A record is the length of the tube's name (64 bits), the name, the job,
//! the body. Without a name it is a later state of a job that came before, and has no body. All numbers are those
//! of the machine; times are microseconds.

use crate::jobs::{Job, put};
use crate::support::{Binary, Client, Setup, TempDir};
use std::time::{SystemTime, UNIX_EPOCH};

const READY: u8 = 1;
const BURIED: u8 = 3;
const DELAYED: u8 = 4;
/// The state of a record that says: this job is deleted.
const INVALID: u8 = 0;

const SECOND: u64 = 1_000_000;

struct Record<'a> {
    tube: &'a str,
    id: u64,
    priority: u32,
    delay: u64,
    state: u8,
    body: &'a [u8],
}

impl Record<'_> {
    const TTR: u64 = 60 * SECOND;

    fn bytes(&self, now: u64) -> Vec<u8> {
        /// Up to the state, which ends it; the compiler would pad the struct to a multiple of 8.
        const JOB_BYTES: usize = 77;
        // A body is kept with the CRLF that ended it, and a later state names the same size.
        let body = [self.body, b"\r\n"].concat();
        let mut job = Vec::new();
        job.extend(self.id.to_ne_bytes());
        job.extend(self.priority.to_ne_bytes());
        job.extend([0; 4]); // the next field is aligned to 8
        job.extend(self.delay.to_ne_bytes());
        job.extend(Record::TTR.to_ne_bytes());
        job.extend((body.len() as u32).to_ne_bytes());
        job.extend([0; 4]);
        job.extend(now.to_ne_bytes()); // created
        job.extend((now + self.delay).to_ne_bytes()); // deadline
        for count in [4_u32, 3, 2, 1, 6] {
            job.extend(count.to_ne_bytes()); // reserves, timeouts, releases, buries, kicks
        }
        job.push(self.state);
        assert_eq!(job.len(), JOB_BYTES);

        let mut bytes = (self.tube.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(self.tube.as_bytes());
        bytes.extend(job);
        if !self.tube.is_empty() {
            bytes.extend(body);
        }
        bytes
    }
}

fn version_5_file() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as u64;
    let record = |tube, id, priority, delay, state, body| Record { tube, id, priority, delay, state, body };
    let records = [
        record("default", 3, 10, 0, READY, b"ready".as_slice()),
        record("old", 5, 20, 90_000 * SECOND, DELAYED, b"delayed"),
        record("old", 8, 30, 0, READY, b"buried"),
        record("old", 9, 40, 0, READY, b"deleted"),
        record("", 8, 31, 0, BURIED, b"buried"),
        record("", 9, 40, 0, INVALID, b"deleted"),
        record("old", 12, 50, 0, READY, b""),
    ];
    let mut file = 5_u32.to_ne_bytes().to_vec();
    file.extend(records.iter().flat_map(|record| record.bytes(now)));
    // Log files are made at their full size; what is not written yet is zero.
    file.extend([0; 1000]);
    file
}

fn assert_old_jobs(client: &mut Client) {
    let wanted = [
        (3, "default", "ready", "10", "0", "ready"),
        (5, "old", "delayed", "20", "90000", "delayed"),
        (8, "old", "buried", "31", "0", "buried"),
        (12, "old", "ready", "50", "0", ""),
    ];
    for (id, tube, state, priority, delay, body) in wanted {
        client.ask(format!("peek {id}\r\n"), format!("FOUND {id} {}\r\n{body}\r\n", body.len()));
        let stats = client.stats(&format!("stats-job {id}"));
        let fields = [
            ("tube", &*format!("\"{tube}\"")),
            ("state", state),
            ("pri", priority),
            ("delay", delay),
            ("ttr", "60"),
            ("reserves", "4"),
            ("timeouts", "3"),
            ("releases", "2"),
            ("kicks", "6"),
        ];
        assert_eq!(stats.differences(&fields), Vec::<String>::new(), "job {id}");
    }
    client.ask("peek 9\r\n", "NOT_FOUND\r\n");
}

/// `servers` open the directory one after the other.
fn serve_in_turn(servers: &[Binary]) {
    let log = TempDir::new("log");
    std::fs::write(log.join("binlog.1"), version_5_file()).expect("write a log");
    for &binary in servers {
        let mut server = Setup::new(binary).wal(log.path()).start();
        assert_old_jobs(&mut server.connect(&format!("{binary:?}")));
        server.kill();
    }

    // Changed by the last one, and read by all again: the changes are in the new format, in another file.
    let last = servers[servers.len() - 1];
    let mut server = Setup::new(last).wal(log.path()).start();
    let mut client = server.connect("last");
    let new = put(&mut client, "1 0 60", b"new");
    assert!(new > 12, "id {new} was used before");
    client.ask("delete 3\r\nkick-job 8\r\n", "DELETED\r\nKICKED\r\n");
    let ids = [3, 5, 8, 9, 12, new];
    let changed = Job::look_at_all(&mut client, &ids);
    server.kill();
    for &binary in servers {
        let mut server = Setup::new(binary).wal(log.path()).start();
        let found = Job::look_at_all(&mut server.connect(&format!("{binary:?}")), &ids);
        assert_eq!(found, changed, "{binary:?}");
        server.kill();
    }
}

#[test]
fn version_5_is_served_by_the_original() {
    serve_in_turn(&[Binary::Legacy, Binary::Legacy]);
}

#[test]
fn version_5_is_served_by_trellis() {
    serve_in_turn(&[Binary::Trellis, Binary::Trellis]);
}

#[test]
fn version_5_is_served_by_trellis_and_handed_to_the_original() {
    serve_in_turn(&[Binary::Trellis, Binary::Legacy]);
}

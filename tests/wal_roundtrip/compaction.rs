//! Many jobs in small files, most of them deleted: what is left moves to newer files, and nothing is lost.

use crate::jobs::put;
use crate::support::{Binary, Client, Setup, TempDir, Variant, on_both};
use std::collections::BTreeMap;
use std::path::Path;

const FILE_BYTES: &str = "4096";
const JOBS_A_ROUND: usize = 100;
/// One of so many stays.
const KEPT_OF: usize = 10;

fn small_files_are_compacted_without_loss(variant: Variant) {
    let binary = if variant.is_trellis() { Binary::Trellis } else { Binary::Legacy };
    serve_in_turn(&[binary; 5]);
}

on_both!(small_files_are_compacted_without_loss);

#[test]
fn small_files_are_handed_back_and_forth_without_loss() {
    use Binary::{Legacy, Trellis};
    serve_in_turn(&[Legacy, Trellis, Legacy, Trellis, Trellis, Legacy]);
}

/// Each server finds what its predecessor left, adds jobs and deletes most of them.
fn serve_in_turn(servers: &[Binary]) {
    let log = TempDir::new("log");
    let mut kept: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut migrated = 0;
    for (round, &binary) in servers.iter().enumerate() {
        let mut server = Setup::new(binary).wal(log.path()).flags(&["-s", FILE_BYTES, "-f0"]).start();
        let mut client = server.connect(&format!("{binary:?} in round {round}"));
        assert_all_there(&mut client, &kept);
        for number in 0..JOBS_A_ROUND {
            // Of all sizes up to more than half a file.
            let body = vec![b'a' + (number % 26) as u8; number * 25];
            let id = put(&mut client, "0 0 60", &body);
            if number % KEPT_OF == 0 {
                kept.insert(id, body);
            } else {
                client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
            }
        }
        assert_all_there(&mut client, &kept);
        migrated += client.stats("stats").number("binlog-records-migrated");
        server.kill();
    }
    assert!(migrated > 0, "nothing was compacted, so nothing was tested");
    let (live, on_disk) = (kept.values().map(Vec::len).sum::<usize>() as u64, log_bytes(log.path()));
    // The original aims at less than thrice the live bytes. This only says that the deleted jobs do not stay for ever.
    assert!(on_disk < 8 * live, "{on_disk} bytes of log for {live} bytes of jobs");
}

fn assert_all_there(client: &mut Client, kept: &BTreeMap<u64, Vec<u8>>) {
    for (id, body) in kept {
        let found = [format!("FOUND {id} {}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat();
        client.ask(format!("peek {id}\r\n"), found);
    }
    assert_eq!(client.stats("stats").text("current-jobs-ready"), kept.len().to_string());
}

fn log_bytes(directory: &Path) -> u64 {
    let files =
        std::fs::read_dir(directory).expect("the log's directory").map(|entry| entry.expect("an entry"));
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("binlog."));
    logs.map(|file| file.metadata().expect("a log file").len()).sum()
}

//! W14: no id is handed out twice, whatever ends the server and whatever is left of the log.

use crate::logs::{put, stock_log};
use crate::support::{Binary, Client, Setup, TempDir, Variant};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Small enough that files go while jobs are deleted.
const SMALL_FILES: [&str; 2] = ["-s", "4096"];

fn put_and_delete(client: &mut Client, jobs: usize) -> Vec<u64> {
    let ids: Vec<u64> = (0..jobs).map(|_| put(client, "0 0 60", "x".repeat(100))).collect();
    for id in &ids {
        client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
    ids
}

/// As if the machine had been started anew since the file was written.
fn reboot(ids_file: &Path) {
    let text = fs::read_to_string(ids_file).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim();
    assert!(text.contains(boot), "{text}");
    fs::write(ids_file, text.replace(boot, &"0".repeat(boot.len()))).unwrap();
}

#[test]
fn ids_start_over_with_an_empty_log_on_the_original() {
    let log = TempDir::new("log");
    let mut server = Setup::of(Variant::Legacy).wal(log.path()).flags(&SMALL_FILES).start();
    put_and_delete(&mut server.connect("A"), 100);
    server.restart();
    server.restart();
    assert_eq!(put(&mut server.connect("B"), "0 0 60", ""), 1, "the fault that Trellis mends is gone");
}

#[test]
fn ids_go_on_without_a_gap_after_kills_and_orderly_ends() {
    let log = TempDir::new("log");
    let mut server = Setup::of(Variant::TrellisOneSlot).wal(log.path()).flags(&SMALL_FILES).start();
    let mut next = 1;
    for round in 0..4 {
        let ids = put_and_delete(&mut server.connect(&round.to_string()), 100);
        assert_eq!(ids, (next..next + 100).collect::<Vec<_>>(), "round {round}");
        next += 100;
        if round % 2 == 0 {
            server.restart();
        } else {
            server.stop();
            server = Setup::of(Variant::TrellisOneSlot).wal(log.path()).flags(&SMALL_FILES).start();
        }
    }
}

#[test]
fn ids_of_four_slots_come_once_over_kills() {
    let log = TempDir::new("log");
    let mut server = Setup::of(Variant::TrellisFourSlots).wal(log.path()).flags(&SMALL_FILES).start();
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        let mut client = server.connect(&round.to_string());
        for tube in ["a", "b", "c", "d", "e", "f"] {
            client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
            for id in put_and_delete(&mut client, 50) {
                assert!(seen.insert(id), "id {id} came twice");
            }
        }
        server.restart();
    }
    let slots: BTreeSet<u64> = seen.iter().map(|id| id % 4).collect();
    assert!(slots.len() > 1, "all tubes were of one slot");
}

/// Without syncs the machine's end may take the log with it; what was told must not come again.
#[test]
fn ids_that_were_told_are_not_used_again_after_a_power_failure() {
    let log = TempDir::new("log");
    let mut server = Setup::of(Variant::TrellisOneSlot).wal(log.path()).start();
    let told = put(&mut server.connect("A"), "0 0 60", "x");
    server.kill();
    fs::remove_file(log.join("binlog.1")).unwrap();
    reboot(&log.join("ids.toml"));
    let mut server = Setup::of(Variant::TrellisOneSlot).wal(log.path()).start();
    let next = put(&mut server.connect("B"), "0 0 60", "y");
    assert!(next > told, "{next} after {told}");
    server.restart();
    assert_eq!(put(&mut server.connect("C"), "0 0 60", "z"), next + 1);
    server.stop();
    reboot(&log.join("ids.toml"));
    let server = Setup::of(Variant::TrellisOneSlot).wal(log.path()).start();
    assert_eq!(put(&mut server.connect("D"), "0 0 60", ""), next + 2, "an orderly end leaves no gap");
}

#[test]
fn ids_of_a_stock_server_in_between_are_not_used_again() {
    let log = stock_log(&["one", "two"]);
    let mut server = Setup::new(Binary::Trellis).wal(log.path()).start();
    assert_eq!(put(&mut server.connect("A"), "0 0 60", "three"), 3);
    server.kill();
    let mut server = Setup::new(Binary::Legacy).wal(log.path()).start();
    let mut client = server.connect("B");
    assert_eq!(put(&mut client, "0 0 60", "four"), 4);
    client.ask("delete 4\r\n", "DELETED\r\n");
    server.kill();
    let server = Setup::new(Binary::Trellis).wal(log.path()).start();
    assert_eq!(put(&mut server.connect("C"), "0 0 60", "five"), 5);
}

#[test]
fn damaged_file_of_ids_is_refused_with_the_way_out() {
    let log = stock_log(&["one"]);
    fs::write(log.join("ids.toml"), "forgotten = many\n").unwrap();
    let exit = Setup::new(Binary::Trellis).wal(log.path()).refusal();
    assert_eq!(exit.code, Some(65), "{}", exit.log);
    assert!(exit.log.contains("ids.toml: damaged") && exit.log.contains("remove it"), "{}", exit.log);
    fs::remove_file(log.join("ids.toml")).unwrap();
    let server = Setup::new(Binary::Trellis).wal(log.path()).start();
    assert_eq!(put(&mut server.connect("A"), "0 0 60", "two"), 2);
}

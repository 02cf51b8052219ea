//! What is refused at start, so that jobs are never looked for where they are not: a directory that is asked for
//! with other numbers, lost or damaged metadata, slots that are swapped. A refusal changes nothing on disk.

use crate::support::routing::tubes;
use crate::support::{Binary, Exit, Setup, TempDir};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh64::xxh64;

const SLOTS: u32 = 4;

/// The class that is not worth another try before somebody has changed flags or data.
const EXIT_DATA: i32 = 65;

/// Every file's path, length and hash, and every directory's path.
fn fingerprint(dir: &Path) -> BTreeMap<PathBuf, Option<(usize, u64)>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("list a directory") {
            let path = entry.expect("list a directory").path();
            if path.is_dir() && !path.is_symlink() {
                all.insert(path.clone(), None);
                todo.push(path);
            } else {
                let bytes = fs::read(&path).unwrap_or_default();
                all.insert(path, Some((bytes.len(), xxh64(&bytes, 0))));
            }
        }
    }
    all
}

fn setup(dir: &TempDir) -> Setup {
    Setup::new(Binary::Trellis).wal(dir.path()).flags(&["-s", "8192"])
}

/// A directory of four slots with a job in each, and no server on it.
fn with_jobs() -> TempDir {
    let dir = TempDir::new("data");
    let mut server = setup(&dir).slots(SLOTS).start();
    let mut client = server.connect("A");
    for tube in tubes(SLOTS, "kept") {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        let reply = client.call("put 0 0 60 1\r\nx\r\n");
        assert!(reply.starts_with(b"INSERTED "), "{reply:?}");
    }
    assert!(server.stop().success());
    dir
}

/// The jobs are all there.
fn assert_serves(dir: &TempDir) {
    let server = setup(dir).start();
    let mut client = server.connect("A");
    for tube in tubes(SLOTS, "kept") {
        let stats = client.stats(&format!("stats-tube {tube}"));
        assert_eq!(stats.text("current-jobs-ready"), "1", "{tube}");
    }
}

fn assert_refused(dir: &TempDir, setup: &Setup, named: &[&str]) -> Exit {
    let before = fingerprint(dir.path());
    let exit = setup.refusal();
    assert_eq!(exit.code, Some(EXIT_DATA), "{}", exit.log);
    for word in named {
        assert!(exit.log.contains(word), "{word:?} is not named in: {}", exit.log);
    }
    assert_eq!(before, fingerprint(dir.path()), "the refusal changed something on disk");
    exit
}

/// For every way of asking. (What is named is another thing where the flags are wrong too.)
fn assert_refused_for_any_flags(dir: &TempDir, named: &[&str]) {
    assert_refused(dir, &setup(dir), named);
    assert_refused(dir, &setup(dir).slots(SLOTS), named);
    for slots in [1, 7] {
        assert_refused(dir, &setup(dir).slots(slots), &[]);
    }
}

/// Damages a directory, sees it refused, mends it, and sees it served.
fn refused_until_mended(damage: impl Fn(&Path), named: &[&str], mend: impl Fn(&Path)) {
    let dir = with_jobs();
    damage(dir.path());
    assert_refused_for_any_flags(&dir, named);
    mend(dir.path());
    assert_serves(&dir);
}

#[test]
fn other_numbers_than_the_datas_are_refused_naming_the_way_out() {
    let dir = with_jobs();
    for slots in [1, 2, 3, 5, 16] {
        let words = ["4", &slots.to_string(), "trellis migrate"];
        assert_refused(&dir, &setup(&dir).slots(slots), &words);
    }
    for partitions in ["8", "512", "2048"] {
        assert_refused(&dir, &setup(&dir).flags(&["--partitions", partitions]), &[partitions, "1024"]);
    }
    assert_serves(&dir);
}

#[test]
fn same_numbers_are_served() {
    let dir = with_jobs();
    drop(setup(&dir).slots(SLOTS).flags(&["--partitions", "1024"]).start());
    assert_serves(&dir);
}

#[test]
fn lost_topology_is_not_made_anew_over_jobs() {
    refused_until_mended(
        |dir| fs::rename(dir.join("topology.toml"), dir.join("kept-aside")).expect("rename"),
        &["topology.toml"],
        |dir| fs::rename(dir.join("kept-aside"), dir.join("topology.toml")).expect("rename"),
    );
}

#[test]
fn topology_damaged_anywhere_is_refused() {
    let dir = with_jobs();
    let path = dir.join("topology.toml");
    let good = fs::read_to_string(&path).expect("the topology");
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from:?} is not in the topology:\n{good}");
        good.replacen(from, to, 1).into_bytes()
    };
    let map = good.find("map").expect("a map");
    let damages = [
        Vec::new(),
        b"nonsense".to_vec(),
        good.as_bytes()[..good.len() / 2].to_vec(),
        [good.as_bytes(), b"\xff\xfe"].concat(),
        vec![0; good.len()],
        changed("slots = 4", "slots = 2"),
        changed("partitions = 1024", "partitions = 512"),
        changed("xxh64", "xxh32"),
        changed("format = 1", "format = 2"),
        // One partition of the map, which is as long as before and every bit as plausible.
        format!("{}{}", &good[..map], good[map..].replacen("0, 1, 2, 3", "1, 0, 2, 3", 1)).into_bytes(),
    ];
    for damage in damages {
        assert_ne!(damage, good.as_bytes());
        fs::write(&path, &damage).expect("damage it");
        assert_refused_for_any_flags(&dir, &["topology.toml"]);
    }
    fs::write(&path, &good).expect("mend it");
    assert_serves(&dir);
}

#[test]
fn swapped_slots_are_refused() {
    let swap = |dir: &Path| {
        let [one, two, aside] = ["slot-001", "slot-002", "aside"].map(|name| dir.join(name));
        fs::rename(&one, &aside).expect("rename");
        fs::rename(&two, &one).expect("rename");
        fs::rename(&aside, &two).expect("rename");
    };
    refused_until_mended(swap, &["slot-001"], swap);
}

/// Also where the names tell nothing: the logs themselves are at the wrong slot.
#[test]
fn swapped_logs_are_refused_naming_the_tube() {
    let dir = with_jobs();
    let log = |slot: &str| {
        let entries = fs::read_dir(dir.join(slot)).expect("a slot").map(|e| e.expect("an entry").path());
        let is_log = |path: &PathBuf| path.to_string_lossy().contains("/binlog.");
        entries.filter(is_log).min().expect("a log")
    };
    let (one, two) = (log("slot-001"), log("slot-002"));
    let [first, second] = [&one, &two].map(|path| fs::read(path).expect("a log"));
    fs::write(&one, &second).expect("swap");
    fs::write(&two, &first).expect("swap");
    let exit = assert_refused(&dir, &setup(&dir), &["slot-001", "binlog."]);
    assert!(tubes(SLOTS, "kept").iter().any(|tube| exit.log.contains(tube)), "no tube: {}", exit.log);
    fs::write(&one, &first).expect("mend");
    fs::write(&two, &second).expect("mend");
    assert_serves(&dir);
}

#[test]
fn missing_slot_is_refused() {
    refused_until_mended(
        |dir| fs::rename(dir.join("slot-003"), dir.join("aside")).expect("rename"),
        &["slot-003"],
        |dir| fs::rename(dir.join("aside"), dir.join("slot-003")).expect("rename"),
    );
}

#[test]
fn slot_without_its_identity_is_refused() {
    refused_until_mended(
        |dir| fs::rename(dir.join("slot-002/slot.toml"), dir.join("aside")).expect("rename"),
        &["slot-002"],
        |dir| fs::rename(dir.join("aside"), dir.join("slot-002/slot.toml")).expect("rename"),
    );
}

#[test]
fn slot_of_another_server_is_refused() {
    let other = with_jobs();
    let own = with_jobs();
    let exchange = || {
        let [a, b] = [&own, &other].map(|dir| dir.join("slot-001"));
        let aside = own.join("aside");
        fs::rename(&a, &aside).expect("rename");
        fs::rename(&b, &a).expect("rename");
        fs::rename(&aside, &b).expect("rename");
    };
    exchange();
    assert_refused_for_any_flags(&own, &["slot-001"]);
    assert_refused_for_any_flags(&other, &["slot-001"]);
    exchange();
    assert_serves(&own);
    assert_serves(&other);
}

#[test]
fn surplus_slot_and_logs_beside_slots_are_refused() {
    let dir = with_jobs();
    fs::create_dir(dir.join("slot-004")).expect("a directory");
    assert_refused_for_any_flags(&dir, &["slot-004"]);
    fs::remove_dir(dir.join("slot-004")).expect("remove it");
    fs::write(dir.join("binlog.1"), "x").expect("a log");
    assert_refused_for_any_flags(&dir, &["binlog."]);
    fs::remove_file(dir.join("binlog.1")).expect("remove it");
    assert_serves(&dir);
}

/// Stock's own directory: one slot serves it in place, several refuse it.
#[test]
fn stock_directory_is_one_slot() {
    let dir = TempDir::new("data");
    let mut stock = Setup::new(Binary::Legacy).wal(dir.path()).flags(&["-s", "8192"]).start();
    stock.connect("A").ask("put 0 0 60 1\r\nx\r\n", "INSERTED 1\r\n");
    stock.kill();
    for slots in [2, 4] {
        assert_refused(&dir, &setup(&dir).slots(slots), &[&slots.to_string(), "trellis migrate"]);
    }
    for setup in [setup(&dir), setup(&dir).slots(1)] {
        let server = setup.start();
        server.connect("A").ask("peek 1\r\n", "FOUND 1 1\r\nx\r\n");
    }
    assert!(!dir.join("topology.toml").exists() && !dir.join("slot-000").exists(), "it stays stock's");
}

//! What a data directory holds, as far as start-up has to know: a read-only look, nothing is judged here.
//!
//! Never writes, never opens a log. `startup` decides what to do about it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::codec::SlotIdentity;
use super::error::TopologyError;
use super::file::{
    IDENTITY_FILE, PENDING_FILE, TOPOLOGY_FILE, UNFINISHED_FILE, load, load_identity, slot_dir_name,
};
use super::map::Topology;

/// Everything in a data directory that start-up depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub dir: PathBuf,
    pub topology: TopologyFound,
    /// Making a layout was begun.
    pub pending: bool,
    /// An offline tool was making the directory, and had not all of it.
    pub unfinished: bool,
    /// `binlog.*` in the directory itself.
    pub flat_logs: bool,
    /// By number.
    pub slots: Vec<FoundSlot>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyFound {
    Missing,
    Valid(Topology),
    /// Damaged, of an unknown format, or of another fingerprint than it says.
    Bad(TopologyError),
}

/// A `slot-NNN` in the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSlot {
    pub slot: u16,
    pub identity: IdentityFound,
    /// `binlog.*` in it.
    pub logs: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityFound {
    Missing,
    Valid(SlotIdentity),
    Bad(TopologyError),
}

/// Looks at a data directory. An error means that it could not be seen as a whole.
pub fn scan(dir: &Path) -> Result<Found, TopologyError> {
    let topology = match load(dir) {
        Ok(topology) => TopologyFound::Valid(topology),
        Err(TopologyError::Io { kind: io::ErrorKind::NotFound, .. }) => TopologyFound::Missing,
        Err(error @ TopologyError::Io { .. }) => return Err(error),
        Err(error) => TopologyFound::Bad(error),
    };
    let names = names(dir)?;
    let mut slots = Vec::new();
    for slot in names.iter().filter_map(|name| slot_number(name)) {
        slots.push(look_at_slot(dir, slot)?);
    }
    slots.sort_by_key(|found| found.slot);
    Ok(Found {
        dir: dir.to_owned(),
        // A file that can't be opened because it vanished, but is in the list: a dangling link.
        topology: match topology {
            TopologyFound::Missing if names.iter().any(|name| name == TOPOLOGY_FILE) => {
                let reason = "it is a link to nothing".to_owned();
                TopologyFound::Bad(TopologyError::Damaged { path: dir.join(TOPOLOGY_FILE), reason })
            }
            topology => topology,
        },
        pending: names.iter().any(|name| name == PENDING_FILE),
        unfinished: names.iter().any(|name| name == UNFINISHED_FILE),
        flat_logs: names.iter().any(|name| is_log(name)),
        slots,
    })
}

fn look_at_slot(dir: &Path, slot: u16) -> Result<FoundSlot, TopologyError> {
    let slot_dir = dir.join(slot_dir_name(slot));
    if !slot_dir.is_dir() {
        let reason = "its place is taken by something that is no directory".to_owned();
        let error = TopologyError::IdentityDamaged { path: slot_dir.join(IDENTITY_FILE), reason };
        return Ok(FoundSlot { slot, identity: IdentityFound::Bad(error), logs: false });
    }
    let identity = match load_identity(&slot_dir) {
        Ok(identity) => IdentityFound::Valid(identity),
        Err(TopologyError::Io { kind: io::ErrorKind::NotFound, .. }) => IdentityFound::Missing,
        Err(error @ TopologyError::Io { .. }) => return Err(error),
        Err(error) => IdentityFound::Bad(error),
    };
    let logs = names(&slot_dir)?.iter().any(|name| is_log(name));
    Ok(FoundSlot { slot, identity, logs })
}

/// The names in a directory; those that are not UTF-8 are none of ours.
fn names(dir: &Path) -> Result<Vec<String>, TopologyError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    };
    list().map_err(|error| TopologyError::io(dir, "listing the directory", &error))
}

/// Wider than what the core reads as a log on purpose: `binlog.1.old` is no reason to call a directory empty.
fn is_log(name: &str) -> bool {
    name.starts_with("binlog.")
}

fn slot_number(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("slot-")?;
    if digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;
    use crate::topology::{Layout, create};

    const ID: &str = "0123456789abcdef";

    #[test]
    fn scan_of_an_empty_directory_finds_nothing() {
        let dir = TempDir::new();
        fs::write(dir.join("lock"), "").unwrap();
        fs::create_dir(dir.join("lost+found")).unwrap();
        let found = scan(&dir).unwrap();
        assert_eq!(found.topology, TopologyFound::Missing);
        assert!(!found.pending && !found.flat_logs && found.slots.is_empty());
    }

    #[test]
    fn scan_of_a_missing_directory_is_a_permanent_error() {
        let dir = TempDir::new();
        let error = scan(&dir.join("nowhere")).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("nowhere"), "{error}");
    }

    #[test]
    fn scan_sees_slots_identities_and_logs() {
        let dir = TempDir::new();
        let topology = Topology::new(3, 8, Layout::Slots, ID).unwrap();
        create(&dir, &topology, &[]).unwrap();
        fs::write(dir.join("slot-001/binlog.4"), "").unwrap();
        fs::remove_file(dir.join("slot-002/slot.toml")).unwrap();
        fs::write(dir.join("slot-007"), "").unwrap();
        fs::create_dir(dir.join("slot-1234")).unwrap();
        let found = scan(&dir).unwrap();
        assert_eq!(found.topology, TopologyFound::Valid(topology.clone()));
        assert_eq!(found.slots.iter().map(|slot| slot.slot).collect::<Vec<_>>(), [0, 1, 2, 7]);
        assert_eq!(found.slots[0].identity, IdentityFound::Valid(topology.slot_identity(0)));
        assert_eq!(found.slots.iter().map(|slot| slot.logs).collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!(found.slots[2].identity, IdentityFound::Missing);
        assert!(matches!(found.slots[3].identity, IdentityFound::Bad(_)));
    }

    #[test]
    fn scan_sees_flat_logs_a_pending_file_and_a_bad_topology() {
        let dir = TempDir::new();
        fs::write(dir.join("binlog.12"), "").unwrap();
        fs::write(dir.join(PENDING_FILE), "").unwrap();
        fs::write(dir.join(TOPOLOGY_FILE), "nonsense").unwrap();
        let found = scan(&dir).unwrap();
        assert!(found.flat_logs && found.pending);
        assert!(matches!(found.topology, TopologyFound::Bad(TopologyError::Damaged { .. })));
    }

    #[test]
    fn scan_of_a_dangling_topology_link_is_not_missing() {
        let dir = TempDir::new();
        std::os::unix::fs::symlink("elsewhere", dir.join(TOPOLOGY_FILE)).unwrap();
        assert!(matches!(scan(&dir).unwrap().topology, TopologyFound::Bad(_)));
    }
}

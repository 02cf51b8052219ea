//! The only part of the topology that touches files for writing: `topology.toml` and each `slot.toml`.
//!
//! A file appears whole or not at all: temp, fsync, rename, fsync of the directory. Making a whole new
//! layout takes several files, so the temp file `topology.toml.new` is durable before the first slot
//! directory and is renamed after the last: a crash in between leaves a directory that `found` can tell
//! from one that lost its topology.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::codec::{DecodeError, SlotIdentity, decode_identity, decode_topology};
use super::error::TopologyError;
use super::map::{Layout, TOPOLOGY_FORMAT, Topology};
use crate::limits;

pub const TOPOLOGY_FILE: &str = "topology.toml";

/// Its presence without `TOPOLOGY_FILE` means that making a layout was interrupted.
pub const PENDING_FILE: &str = "topology.toml.new";

/// In a directory that an offline tool is making, until all is in it and on disk. Empty.
pub const UNFINISHED_FILE: &str = "unfinished";

/// In each slot directory.
pub const IDENTITY_FILE: &str = "slot.toml";

const TOPOLOGY_HEADER: &str = "# How tube names are divided over slots. Written once by trellis; do not edit: the\n\
     # jobs beside it lie where it says. `trellis migrate` makes a copy with other numbers.\n";
const IDENTITY_HEADER: &str = "# Whose jobs this directory holds. Written once by trellis; do not edit.\n";

/// Sixteen hexadecimal digits that nobody has used before.
pub fn new_server_id() -> io::Result<String> {
    let mut bytes = [0; limits::SERVER_ID_DIGITS / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `slot-000` and so on.
pub fn slot_dir_name(slot: u16) -> String {
    format!("slot-{slot:03}")
}

/// Reads and checks `topology.toml` of a data directory. A missing file is `Io` of kind `NotFound`.
pub fn load(dir: &Path) -> Result<Topology, TopologyError> {
    let path = dir.join(TOPOLOGY_FILE);
    let text = match read_bounded(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(TopologyError::Damaged { path, reason: error.to_string() });
        }
        Err(error) => return Err(TopologyError::io(&path, "reading it", &error)),
    };
    decode_topology(&text).map_err(|error| match error {
        DecodeError::Format(format) => TopologyError::UnknownFormat { path, format, known: TOPOLOGY_FORMAT },
        DecodeError::Fingerprint { written, computed } => {
            TopologyError::FingerprintMismatch { path, written, computed }
        }
        DecodeError::Damaged(reason) => TopologyError::Damaged { path, reason },
    })
}

/// Writes `topology.toml` of a data directory, replacing one that is there. For a new layout with slot
/// directories use `create`.
pub fn store(dir: &Path, topology: &Topology) -> Result<(), TopologyError> {
    topology.validate()?;
    replace(&dir.join(TOPOLOGY_FILE), &dir.join(PENDING_FILE), &topology_text(topology))
}

/// Reads and checks `slot.toml` of a slot directory. A missing file is `Io` of kind `NotFound`.
pub fn load_identity(slot_dir: &Path) -> Result<SlotIdentity, TopologyError> {
    let path = slot_dir.join(IDENTITY_FILE);
    let text = match read_bounded(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(TopologyError::IdentityDamaged { path, reason: error.to_string() });
        }
        Err(error) => return Err(TopologyError::io(&path, "reading it", &error)),
    };
    decode_identity(&text).map_err(|error| match error {
        DecodeError::Format(format) => TopologyError::UnknownFormat { path, format, known: TOPOLOGY_FORMAT },
        DecodeError::Damaged(reason) => TopologyError::IdentityDamaged { path, reason },
        DecodeError::Fingerprint { .. } => unreachable!("an identity carries no fingerprint of itself"),
    })
}

/// Writes `slot.toml` of a slot directory, replacing one that is there.
pub fn store_identity(slot_dir: &Path, identity: &SlotIdentity) -> Result<(), TopologyError> {
    let path = slot_dir.join(IDENTITY_FILE);
    replace(&path, &slot_dir.join("slot.toml.new"), &format!("{IDENTITY_HEADER}{}", identity.to_toml()))
}

/// Makes a new layout in a data directory that `decide` found fit for it. May be called again after an
/// interrupted call, also with other numbers: `stale_slots` are slot directories without jobs that the
/// interrupted call left, and those that the new topology doesn't have are removed.
pub fn create(dir: &Path, topology: &Topology, stale_slots: &[u16]) -> Result<(), TopologyError> {
    topology.validate()?;
    let pending = dir.join(PENDING_FILE);
    write_synced(&pending, &topology_text(topology))?;
    sync_dir(dir)?;
    let wanted = match topology.layout {
        Layout::Flat => 0,
        Layout::Slots => topology.slots as u16,
    };
    for &slot in stale_slots.iter().filter(|&&slot| slot >= wanted) {
        remove_stale(&dir.join(slot_dir_name(slot)))?;
    }
    for slot in 0..wanted {
        let slot_dir = dir.join(slot_dir_name(slot));
        match fs::create_dir(&slot_dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(TopologyError::io(&slot_dir, "making the slot's directory", &error));
            }
            _ => store_identity(&slot_dir, &topology.slot_identity(slot))?,
        }
    }
    sync_dir(dir)?;
    rename(&pending, &dir.join(TOPOLOGY_FILE))
}

fn topology_text(topology: &Topology) -> String {
    format!("{TOPOLOGY_HEADER}{}", topology.to_toml())
}

/// Removes what an interrupted `create` made and nothing more: anything else inside makes it fail.
fn remove_stale(slot_dir: &Path) -> Result<(), TopologyError> {
    for name in [IDENTITY_FILE, "slot.toml.new"] {
        match fs::remove_file(slot_dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TopologyError::io(slot_dir, "removing what an interrupted start left", &error));
            }
            _ => {}
        }
    }
    fs::remove_dir(slot_dir)
        .map_err(|error| TopologyError::io(slot_dir, "removing what an interrupted start left", &error))
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limits::TOPOLOGY_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limits::TOPOLOGY_FILE_BYTES {
        let reason = format!("it is longer than {} bytes", limits::TOPOLOGY_FILE_BYTES);
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn replace(path: &Path, temp: &Path, text: &str) -> Result<(), TopologyError> {
    write_synced(temp, text)?;
    rename(temp, path)
}

fn write_synced(path: &Path, text: &str) -> Result<(), TopologyError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| TopologyError::io(path, "writing it", &error))
}

fn rename(from: &Path, to: &Path) -> Result<(), TopologyError> {
    fs::rename(from, to).map_err(|error| TopologyError::io(to, "putting it in place", &error))?;
    sync_dir(&to.parent().map(Path::to_path_buf).unwrap_or_else(|| PathBuf::from(".")))
}

fn sync_dir(dir: &Path) -> Result<(), TopologyError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| TopologyError::io(dir, "syncing the directory", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;

    const ID: &str = "0123456789abcdef";

    #[test]
    fn stored_topology_loads_and_leaves_no_temp_file() {
        let dir = TempDir::new();
        let topology = Topology::new(1, 1024, Layout::Flat, ID).unwrap();
        store(&dir, &topology).unwrap();
        assert_eq!(load(&dir), Ok(topology));
        assert_eq!(fs::read_dir(&*dir).unwrap().count(), 1);
    }

    #[test]
    fn created_layout_has_every_slot_with_its_identity() {
        let dir = TempDir::new();
        let topology = Topology::new(3, 8, Layout::Slots, ID).unwrap();
        create(&dir, &topology, &[]).unwrap();
        assert_eq!(load(&dir).as_ref(), Ok(&topology));
        for slot in 0..3 {
            let identity = load_identity(&dir.join(slot_dir_name(slot))).unwrap();
            assert_eq!(identity, topology.slot_identity(slot));
        }
        assert_eq!(fs::read_dir(&*dir).unwrap().count(), 4);
    }

    #[test]
    fn create_after_an_interruption_with_fewer_slots_leaves_none_of_the_old() {
        let dir = TempDir::new();
        create(&dir, &Topology::new(5, 8, Layout::Slots, ID).unwrap(), &[]).unwrap();
        fs::rename(dir.join(TOPOLOGY_FILE), dir.join(PENDING_FILE)).unwrap();
        let topology = Topology::new(2, 8, Layout::Slots, "fedcba9876543210").unwrap();
        create(&dir, &topology, &[0, 1, 2, 3, 4]).unwrap();
        assert_eq!(fs::read_dir(&*dir).unwrap().count(), 3);
        assert_eq!(load_identity(&dir.join("slot-001")).unwrap(), topology.slot_identity(1));
    }

    #[test]
    fn create_never_removes_a_slot_that_holds_anything_else() {
        let dir = TempDir::new();
        create(&dir, &Topology::new(2, 8, Layout::Slots, ID).unwrap(), &[]).unwrap();
        fs::write(dir.join("slot-001/binlog.1"), "jobs").unwrap();
        let error = create(&dir, &Topology::new(1, 8, Layout::Slots, ID).unwrap(), &[1]).unwrap_err();
        assert!(error.to_string().contains("slot-001"), "{error}");
        assert!(dir.join("slot-001/binlog.1").exists());
    }

    #[test]
    fn load_of_what_is_no_topology_says_why() {
        let dir = TempDir::new();
        assert!(matches!(load(&dir), Err(TopologyError::Io { kind: io::ErrorKind::NotFound, .. })));
        for (bytes, word) in [
            (b"\xff\xfe".to_vec(), "UTF-8"),
            (vec![b'#'; limits::TOPOLOGY_FILE_BYTES + 1], "longer than"),
            (Vec::new(), "no format"),
            (vec![0; 500], "damaged"),
        ] {
            fs::write(dir.join(TOPOLOGY_FILE), bytes).unwrap();
            let error = load(&dir).unwrap_err();
            assert!(error.to_string().contains(word) && error.is_permanent(), "{error}");
        }
        fs::write(dir.join(TOPOLOGY_FILE), "[topology]\nformat = 9\n").unwrap();
        assert!(matches!(load(&dir), Err(TopologyError::UnknownFormat { format: 9, .. })));
    }

    /// The comment lines are part of the file as well: whatever byte changes, no other topology loads.
    #[test]
    fn file_with_a_byte_changed_never_loads_as_another_topology() {
        let dir = TempDir::new();
        let topology = Topology::new(4, 8, Layout::Slots, ID).unwrap();
        store(&dir, &topology).unwrap();
        let path = dir.join(TOPOLOGY_FILE);
        let bytes = fs::read(&path).unwrap();
        for position in 0..bytes.len() {
            for value in [b'\n', bytes[position] ^ 1] {
                let mut changed = bytes.clone();
                changed[position] = value;
                fs::write(&path, &changed).unwrap();
                if let Ok(loaded) = load(&dir) {
                    assert_eq!(loaded, topology, "byte {position} as {value}");
                }
            }
        }
    }
}

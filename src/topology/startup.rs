//! What start-up does with the data directory it found and the numbers it was asked for.
//!
//! Pure: a table from (found, asked) to a decision. Nothing on disk changes before the decision is made, and
//! nothing at all if it is to refuse. A new map is only ever made where no jobs are.
//!
//! | found | asked for | decision |
//! | --- | --- | --- |
//! | nothing, or the remains of an interrupted creation without logs | any | create |
//! | a valid topology, everything in its place | nothing, or the same | use it |
//! | a valid topology | other slots or partitions | refuse, name `trellis migrate` |
//! | a valid topology, something missing, swapped, foreign or surplus | any | refuse |
//! | flat logs only | nothing or one slot | serve flat |
//! | flat logs only | more slots | refuse, name `trellis migrate` |
//! | what a stopped offline tool left | any | refuse |
//! | slot directories without topology, or a topology that can't be believed | any | refuse |

use super::codec::SlotIdentity;
use super::error::TopologyError;
use super::file::{IDENTITY_FILE, TOPOLOGY_FILE, slot_dir_name};
use super::found::{Found, FoundSlot, IdentityFound, TopologyFound};
use super::map::{Layout, Topology, check_counts};
use crate::limits;

/// The flags; `None` is "what the data says".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub slots: Option<u32>,
    pub partitions: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make this layout (`file::create`), then use it.
    Create(NewTopology),
    Use(Topology),
    /// A stock directory: serve its logs as one slot, leave it as it is.
    ServeFlat {
        partitions: u32,
    },
    Refuse(TopologyError),
}

/// All of a new topology but the server's id, which the caller draws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopology {
    pub slots: u32,
    pub partitions: u32,
    pub layout: Layout,
    /// Slot directories without jobs, left by an interrupted creation: for `file::create`.
    pub stale_slots: Vec<u16>,
}

pub fn decide(found: &Found, asked: Asked) -> Decision {
    if found.unfinished {
        return Decision::Refuse(TopologyError::Unfinished { dir: found.dir.clone() });
    }
    let decision = match &found.topology {
        TopologyFound::Bad(error) => Err(error.clone()),
        TopologyFound::Valid(topology) => existing(found, topology, asked),
        TopologyFound::Missing if found.slots.is_empty() && found.flat_logs => stock(found, asked),
        TopologyFound::Missing if found.slots.is_empty() || only_begun(found) => fresh(found, asked),
        TopologyFound::Missing => Err(TopologyError::TopologyMissing {
            path: found.dir.join(TOPOLOGY_FILE),
            slot_dir: slot_dir_name(found.slots[0].slot),
        }),
    };
    decision.unwrap_or_else(Decision::Refuse)
}

/// The temp file is durable before the first slot directory is made and renamed after the last, so these
/// directories never served; and no log means no job.
fn only_begun(found: &Found) -> bool {
    found.pending && !found.flat_logs && found.slots.iter().all(|slot| !slot.logs)
}

fn fresh(found: &Found, asked: Asked) -> Result<Decision, TopologyError> {
    let slots = asked.slots.unwrap_or(1);
    let partitions = asked.partitions.unwrap_or(limits::PARTITIONS_DEFAULT);
    check_counts(slots, partitions)?;
    let layout = if slots == 1 { Layout::Flat } else { Layout::Slots };
    let stale_slots = found.slots.iter().map(|slot| slot.slot).collect();
    Ok(Decision::Create(NewTopology { slots, partitions, layout, stale_slots }))
}

fn stock(found: &Found, asked: Asked) -> Result<Decision, TopologyError> {
    let slots = asked.slots.unwrap_or(1);
    let partitions = asked.partitions.unwrap_or(limits::PARTITIONS_DEFAULT);
    check_counts(slots, partitions)?;
    if slots > 1 {
        return Err(TopologyError::FlatNeedsMigration { dir: found.dir.clone(), asked: slots });
    }
    Ok(Decision::ServeFlat { partitions })
}

fn existing(found: &Found, topology: &Topology, asked: Asked) -> Result<Decision, TopologyError> {
    let asked_slots = asked.slots.unwrap_or(topology.slots);
    let asked_partitions = asked.partitions.unwrap_or(topology.partitions);
    if (asked_slots, asked_partitions) != (topology.slots, topology.partitions) {
        check_counts(asked_slots, asked_partitions)?;
        return Err(TopologyError::Differs {
            dir: found.dir.clone(),
            found_slots: topology.slots,
            found_partitions: topology.partitions,
            asked_slots,
            asked_partitions,
        });
    }
    match topology.layout {
        Layout::Flat => match found.slots.first() {
            Some(surplus) => Err(mixed(found, slot_dir_name(surplus.slot), "flat")),
            None => Ok(Decision::Use(topology.clone())),
        },
        Layout::Slots => {
            if found.flat_logs {
                return Err(mixed(found, "binlog.*".to_owned(), "slots"));
            }
            if let Some(surplus) = found.slots.iter().find(|slot| u32::from(slot.slot) >= topology.slots) {
                return Err(mixed(found, slot_dir_name(surplus.slot), "slots"));
            }
            for slot in 0..topology.slots as u16 {
                slot_in_place(found, &topology.slot_identity(slot))?;
            }
            Ok(Decision::Use(topology.clone()))
        }
    }
}

fn mixed(found: &Found, what: String, layout: &'static str) -> TopologyError {
    TopologyError::LayoutMixed { dir: found.dir.clone(), found: what, layout }
}

/// One slot's directory is there and is this server's and this slot's.
fn slot_in_place(found: &Found, expected: &SlotIdentity) -> Result<(), TopologyError> {
    let dir = found.dir.join(slot_dir_name(expected.slot));
    match found.slots.iter().find(|slot| slot.slot == expected.slot) {
        None => Err(TopologyError::SlotMissing { path: dir, slot: expected.slot }),
        Some(FoundSlot { identity: IdentityFound::Missing, .. }) => {
            Err(TopologyError::IdentityMissing { path: dir.join(IDENTITY_FILE) })
        }
        Some(FoundSlot { identity: IdentityFound::Bad(error), .. }) => Err(error.clone()),
        Some(FoundSlot { identity: IdentityFound::Valid(identity), .. }) => {
            if (&identity.server_id, identity.fingerprint) != (&expected.server_id, expected.fingerprint) {
                let [expected, found] = [expected, identity].map(|identity| Box::new(identity.clone()));
                Err(TopologyError::SlotForeign { dir, expected, found })
            } else if identity.slot != expected.slot {
                Err(TopologyError::SlotSwapped { dir, expected: expected.slot, found: identity.slot })
            } else {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;
    use crate::topology::{create, scan};
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::{Path, PathBuf};

    const ID: &str = "0123456789abcdef";

    fn asked(slots: impl Into<Option<u32>>, partitions: impl Into<Option<u32>>) -> Asked {
        Asked { slots: slots.into(), partitions: partitions.into() }
    }

    fn empty() -> Found {
        Found {
            dir: PathBuf::from("/data"),
            topology: TopologyFound::Missing,
            pending: false,
            unfinished: false,
            flat_logs: false,
            slots: Vec::new(),
        }
    }

    fn slots(topology: &Topology, logs: bool) -> Found {
        let slots = (0..topology.slots as u16)
            .map(|slot| FoundSlot {
                slot,
                identity: IdentityFound::Valid(topology.slot_identity(slot)),
                logs,
            })
            .collect();
        Found { topology: TopologyFound::Valid(topology.clone()), slots, ..empty() }
    }

    fn four() -> Topology {
        Topology::new(4, 1024, Layout::Slots, ID).unwrap()
    }

    fn flat() -> Topology {
        Topology::new(1, 1024, Layout::Flat, ID).unwrap()
    }

    fn refusal(found: &Found, asked: Asked) -> TopologyError {
        match decide(found, asked) {
            Decision::Refuse(error) => {
                assert!(error.is_permanent(), "{error}");
                error
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Refused whatever the flags say; without flags, with these words in the message.
    fn refused_for_any_flags(found: &Found, words: &[&str]) {
        for flags in [asked(1, None), asked(4, None), asked(4, 1024), asked(None, 1024)] {
            refusal(found, flags);
        }
        let message = refusal(found, asked(None, None)).to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }

    fn created(found: &Found, asked: Asked) -> NewTopology {
        match decide(found, asked) {
            Decision::Create(new) => new,
            other => panic!("not created: {other:?}"),
        }
    }

    #[test]
    fn empty_directory_gets_the_topology_asked_for() {
        let plain = NewTopology { slots: 1, partitions: 1024, layout: Layout::Flat, stale_slots: vec![] };
        assert_eq!(created(&empty(), asked(None, None)), plain);
        assert_eq!(created(&empty(), asked(1, None)), plain);
        assert_eq!(created(&empty(), asked(None, 64)), NewTopology { partitions: 64, ..plain.clone() });
        let four = NewTopology { slots: 4, layout: Layout::Slots, ..plain };
        assert_eq!(created(&empty(), asked(4, None)), four);
        assert_eq!(created(&empty(), asked(4, 2048)), NewTopology { partitions: 2048, ..four });
    }

    #[test]
    fn empty_directory_with_flags_out_of_range_is_refused() {
        for flags in [asked(0, None), asked(257, None), asked(None, 0), asked(None, 8193), asked(4, 3)] {
            let message = refusal(&empty(), flags).to_string();
            assert!(message.contains("--slots") || message.contains("--partitions"), "{message}");
        }
    }

    #[test]
    fn interrupted_creation_without_logs_is_begun_anew() {
        let found = Found { topology: TopologyFound::Missing, pending: true, ..slots(&four(), false) };
        assert_eq!(created(&found, asked(2, None)).stale_slots, [0, 1, 2, 3]);
        assert_eq!(created(&found, asked(None, None)).layout, Layout::Flat);
        let found = Found { pending: true, ..empty() };
        assert_eq!(created(&found, asked(4, None)).slots, 4);
    }

    #[test]
    fn interrupted_creation_with_any_log_is_refused() {
        let begun = Found { topology: TopologyFound::Missing, pending: true, ..slots(&four(), false) };
        let mut one_log = begun.clone();
        one_log.slots[2].logs = true;
        refused_for_any_flags(&one_log, &["topology.toml", "slot-000"]);
        refused_for_any_flags(&Found { flat_logs: true, ..begun }, &["topology.toml", "slot-000"]);
    }

    #[test]
    fn valid_topology_with_nothing_or_the_same_asked_is_used() {
        for logs in [false, true] {
            for flags in [asked(None, None), asked(4, None), asked(None, 1024), asked(4, 1024)] {
                assert_eq!(decide(&slots(&four(), logs), flags), Decision::Use(four()));
            }
            for flags in [asked(None, None), asked(1, None), asked(None, 1024), asked(1, 1024)] {
                let found = Found { flat_logs: logs, ..slots(&flat(), false) };
                assert_eq!(decide(&Found { slots: vec![], ..found }, flags), Decision::Use(flat()));
            }
        }
        let leftover = Found { pending: true, ..slots(&four(), true) };
        assert_eq!(decide(&leftover, asked(None, None)), Decision::Use(four()));
    }

    #[test]
    fn valid_topology_with_other_numbers_asked_is_refused_saying_both() {
        for (flags, words) in [
            (asked(3, None), ["4 slots", "3 slots"]),
            (asked(1, None), ["4 slots", "1 slots"]),
            (asked(None, 512), ["1024 partitions", "512 partitions"]),
            (asked(4, 512), ["1024 partitions", "512 partitions"]),
        ] {
            let message = refusal(&slots(&four(), true), flags).to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
            assert!(message.contains("trellis migrate"), "{message}");
        }
        let found = Found { slots: vec![], flat_logs: true, ..slots(&flat(), false) };
        assert!(matches!(refusal(&found, asked(2, None)), TopologyError::Differs { .. }));
        assert!(matches!(refusal(&found, asked(0, None)), TopologyError::SlotsOutOfRange { .. }));
    }

    #[test]
    fn flat_logs_alone_are_served_in_place() {
        let found = Found { flat_logs: true, ..empty() };
        for flags in [asked(None, None), asked(1, None)] {
            assert_eq!(decide(&found, flags), Decision::ServeFlat { partitions: 1024 });
        }
        assert_eq!(decide(&found, asked(1, 16)), Decision::ServeFlat { partitions: 16 });
        let found = Found { pending: true, ..found };
        assert_eq!(decide(&found, asked(None, None)), Decision::ServeFlat { partitions: 1024 });
    }

    #[test]
    fn flat_logs_alone_with_more_slots_asked_are_refused() {
        let found = Found { flat_logs: true, ..empty() };
        let message = refusal(&found, asked(4, None)).to_string();
        assert!(message.contains("4 slots") && message.contains("trellis migrate"), "{message}");
    }

    #[test]
    fn slot_directories_without_topology_are_refused() {
        for logs in [false, true] {
            let found = Found { topology: TopologyFound::Missing, ..slots(&four(), logs) };
            refused_for_any_flags(&found, &["topology.toml", "slot-000", "no new one is made"]);
            refused_for_any_flags(&Found { flat_logs: true, ..found }, &["topology.toml", "slot-000"]);
        }
    }

    #[test]
    fn topology_that_is_bad_is_refused_over_any_data_and_over_none() {
        let path = PathBuf::from("/data/topology.toml");
        let [written, computed] = [four().fingerprint(), flat().fingerprint()];
        for error in [
            TopologyError::Damaged { path: path.clone(), reason: "cut short".into() },
            TopologyError::UnknownFormat { path: path.clone(), format: 2, known: 1 },
            TopologyError::FingerprintMismatch { path, written, computed },
        ] {
            let bad = TopologyFound::Bad(error.clone());
            for found in [empty(), slots(&four(), true), Found { flat_logs: true, ..empty() }] {
                let found = Found { topology: bad.clone(), ..found };
                for flags in [asked(None, None), asked(1, None), asked(4, None)] {
                    assert_eq!(refusal(&found, flags), error);
                }
            }
        }
    }

    #[test]
    fn unfinished_copy_is_refused_whatever_is_in_it() {
        for found in [empty(), slots(&four(), true), Found { flat_logs: true, ..empty() }] {
            refused_for_any_flags(&Found { unfinished: true, ..found }, &["not finished", "remove this"]);
        }
    }

    #[test]
    fn layouts_that_are_mixed_are_refused() {
        refused_for_any_flags(
            &Found { flat_logs: true, ..slots(&four(), true) },
            &["binlog.*", "slots layout"],
        );
        let mut surplus = slots(&four(), true);
        surplus.slots.push(FoundSlot { slot: 7, identity: IdentityFound::Missing, logs: false });
        refused_for_any_flags(&surplus, &["slot-007"]);
        let beside_flat = Found { topology: TopologyFound::Valid(flat()), ..slots(&four(), false) };
        refused_for_any_flags(&beside_flat, &["slot-000", "flat layout"]);
    }

    #[test]
    fn slot_that_is_missing_or_unnamed_is_refused() {
        for logs in [false, true] {
            let mut found = slots(&four(), logs);
            found.slots.remove(2);
            refused_for_any_flags(&found, &["slot-002", "slot 2 is missing"]);
            let mut found = slots(&four(), logs);
            found.slots[3].identity = IdentityFound::Missing;
            refused_for_any_flags(&found, &["slot-003/slot.toml"]);
            let path = PathBuf::from("/data/slot-001/slot.toml");
            let error = TopologyError::IdentityDamaged { path, reason: "cut short".into() };
            found = slots(&four(), logs);
            found.slots[1].identity = IdentityFound::Bad(error.clone());
            assert_eq!(refusal(&found, asked(None, None)), error);
        }
    }

    #[test]
    fn slots_that_are_swapped_are_refused_naming_both() {
        let mut found = slots(&four(), true);
        found.slots[1].identity = IdentityFound::Valid(four().slot_identity(2));
        refused_for_any_flags(&found, &["slot-001", "slot 1", "slot 2"]);
    }

    #[test]
    fn slot_of_another_server_or_topology_is_refused_naming_both() {
        let mut stranger = four();
        stranger.server_id = "fedcba9876543210".into();
        let mut found = slots(&four(), true);
        found.slots[0].identity = IdentityFound::Valid(stranger.slot_identity(0));
        refused_for_any_flags(&found, &["slot-000", ID, "fedcba9876543210"]);
        let mut other_map = four();
        other_map.map.swap(0, 1);
        found.slots[0].identity = IdentityFound::Valid(other_map.slot_identity(0));
        let words = [four().fingerprint().to_string(), other_map.fingerprint().to_string()];
        refused_for_any_flags(&found, &[&words[0], &words[1]]);
    }

    fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                all.extend(contents(&path));
            }
            all.insert(path.clone(), fs::read(&path).unwrap_or_default());
        }
        all
    }

    /// From a directory to a decision and back: what was created is used next time, and what is refused
    /// stays as it was to the byte.
    #[test]
    fn directory_on_disk_is_decided_without_being_touched() {
        let dir = TempDir::new();
        let Decision::Create(new) = decide(&scan(&dir).unwrap(), asked(3, 16)) else { panic!("not created") };
        let topology = Topology::new(new.slots, new.partitions, new.layout, ID).unwrap();
        create(&dir, &topology, &new.stale_slots).unwrap();
        assert_eq!(decide(&scan(&dir).unwrap(), asked(None, None)), Decision::Use(topology));

        fs::write(dir.join("slot-000/binlog.1"), "jobs").unwrap();
        fs::rename(dir.join("slot-001"), dir.join("aside")).unwrap();
        fs::rename(dir.join("slot-002"), dir.join("slot-001")).unwrap();
        fs::rename(dir.join("aside"), dir.join("slot-002")).unwrap();
        let before = contents(&dir);
        assert!(matches!(
            refusal(&scan(&dir).unwrap(), asked(None, None)),
            TopologyError::SlotSwapped { expected: 1, found: 2, .. }
        ));
        fs::remove_file(dir.join(TOPOLOGY_FILE)).unwrap();
        refused_for_any_flags(&scan(&dir).unwrap(), &["topology.toml"]);
        let after = contents(&dir);
        assert_eq!(before.len(), after.len() + 1);
        assert!(after.iter().all(|(path, bytes)| before[path] == *bytes));
    }
}

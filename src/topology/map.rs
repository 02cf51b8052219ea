//! The topology and its lookups: tube name to slot, job id to slot.
//!
//! Pure. A `Topology` that came from outside is checked by `validate` (the codec calls it) before anything
//! is looked up in it; `slot_of` then relies on `map.len() == partitions` and panics if that was broken.

use serde::{Deserialize, Serialize};

use super::error::TopologyError;
use super::hash::tube_hash;
use crate::limits;

/// Version of the file and of the fingerprint's encoding. Raised for any change of either.
pub const TOPOLOGY_FORMAT: u32 = 1;

/// The hash function over tube names. One so far; a file that names another is of a newer version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HashName {
    #[serde(rename = "xxh64")]
    Xxh64,
}

/// Where the logs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One slot, `binlog.*` in the data directory itself, as stock has it.
    Flat,
    /// `slot-000/`, `slot-001/`… each with its own `binlog.*`.
    Slots,
}

/// How the space of tube names is divided over slots.
// slots <= partitions == map.len(), every entry of map < slots, Flat => slots == 1
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    pub format: u32,
    /// Sixteen lower-case hexadecimal digits, made when the topology is made.
    pub server_id: String,
    pub hash: HashName,
    pub seed: u64,
    pub partitions: u32,
    pub slots: u32,
    pub layout: Layout,
    /// Ids below this came with migrated jobs and may live in any slot. 0 or 1: none did.
    pub first_routed_id: u64,
    /// The owner of each partition.
    pub map: Vec<u16>,
}

/// Where a job id is to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRoute {
    /// Only there.
    Slot(u16),
    /// In any slot: every owner has to be asked before the answer can be "not found".
    Anywhere,
}

impl Topology {
    /// A new map, `map[p] = p % slots`, with no migrated jobs. An error if the numbers are out of range or
    /// the layout can't hold that many slots.
    pub fn new(
        slots: u32,
        partitions: u32,
        layout: Layout,
        server_id: &str,
    ) -> Result<Topology, TopologyError> {
        check_counts(slots, partitions)?;
        let topology = Topology {
            format: TOPOLOGY_FORMAT,
            server_id: server_id.to_owned(),
            hash: HashName::Xxh64,
            seed: 0,
            partitions,
            slots,
            layout,
            first_routed_id: 0,
            // At most SLOTS_MAX - 1: see the assertion below.
            map: (0..partitions).map(|partition| (partition % slots) as u16).collect(),
        };
        topology.validate()?;
        Ok(topology)
    }

    /// Every relation between the fields. The error names the first one that does not hold.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let wrong = |reason: String| Err(TopologyError::Inconsistent { reason });
        if self.format != TOPOLOGY_FORMAT {
            return wrong(format!(
                "its format is {}, this program knows format {TOPOLOGY_FORMAT}",
                self.format
            ));
        }
        if !is_server_id(&self.server_id) {
            return wrong(format!(
                "its server id is not {} lower-case hexadecimal digits",
                limits::SERVER_ID_DIGITS
            ));
        }
        if self.seed != 0 {
            return wrong(format!("its hash seed is {}, format {TOPOLOGY_FORMAT} has seed 0", self.seed));
        }
        check_counts(self.slots, self.partitions)?;
        if self.map.len() != self.partitions as usize {
            return wrong(format!(
                "its map has {} entries for {} partitions",
                self.map.len(),
                self.partitions
            ));
        }
        if let Some(partition) = self.map.iter().position(|&slot| u32::from(slot) >= self.slots) {
            let slot = self.map[partition];
            return wrong(format!(
                "partition {partition} belongs to slot {slot}, but there are {} slots",
                self.slots
            ));
        }
        if self.layout == Layout::Flat && self.slots != 1 {
            return wrong(format!("it has {} slots in a flat layout, which holds one", self.slots));
        }
        if self.first_routed_id > limits::JOB_ID_END {
            return wrong(format!("its first routed id {} is beyond any job id", self.first_routed_id));
        }
        Ok(())
    }

    /// The slot that owns this tube name, whether or not such a tube exists.
    #[inline]
    pub fn slot_of(&self, tube: &[u8]) -> u16 {
        let partition = tube_hash(tube, self.seed) % u64::from(self.partitions);
        self.map[partition as usize]
    }

    /// Where the job of this id can live. With one slot, always there.
    #[inline]
    pub fn owner_of_id(&self, id: u64) -> IdRoute {
        if self.slots == 1 {
            IdRoute::Slot(0)
        } else if id < self.first_routed_id {
            IdRoute::Anywhere
        } else {
            IdRoute::Slot((id % u64::from(self.slots)) as u16)
        }
    }

    /// Whether a job of this id may be in this slot's log: it is routed there, or was migrated.
    pub fn id_fits(&self, slot: u16, id: u64) -> bool {
        match self.owner_of_id(id) {
            IdRoute::Slot(owner) => owner == slot,
            IdRoute::Anywhere => true,
        }
    }

    /// The first id that this slot may hand out, not below `at_least` and never 0 or a migrated job's.
    /// `None` when the ids a slot may use are spent (below `JOB_ID_END`).
    pub fn first_id(&self, slot: u16, at_least: u64) -> Option<u64> {
        let slots = u64::from(self.slots);
        let from = at_least.max(self.first_routed_id).max(1);
        let behind = (u64::from(slot) + slots - from % slots) % slots;
        from.checked_add(behind).filter(|&id| id < limits::JOB_ID_END)
    }
}

/// Sixteen lower-case hexadecimal digits.
pub(super) fn is_server_id(text: &str) -> bool {
    text.len() == limits::SERVER_ID_DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The bounds on the two counts, whoever gave them.
pub(super) fn check_counts(slots: u32, partitions: u32) -> Result<(), TopologyError> {
    if slots == 0 || slots > limits::SLOTS_MAX {
        return Err(TopologyError::SlotsOutOfRange { slots });
    }
    if partitions == 0 || partitions > limits::PARTITIONS_MAX {
        return Err(TopologyError::PartitionsOutOfRange { partitions });
    }
    if slots > partitions {
        return Err(TopologyError::MoreSlotsThanPartitions { slots, partitions });
    }
    Ok(())
}

const _: () = assert!(limits::SLOTS_MAX <= u16::MAX as u32);

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef";

    fn four() -> Topology {
        Topology::new(4, 1024, Layout::Slots, ID).unwrap()
    }

    #[test]
    fn map_by_default_deals_partitions_round() {
        let topology = four();
        assert_eq!(topology.map.len(), 1024);
        assert_eq!(&topology.map[..6], &[0, 1, 2, 3, 0, 1]);
        topology.validate().unwrap();
    }

    /// The values follow from the vectors of the reference: a change here is a change of where data lies.
    #[test]
    fn slot_of_known_names_is_fixed() {
        let topology = four();
        // XXH64 mod 1024 mod 4 is the hash's low two bits.
        for line in include_str!("../../tests/data/xxh64.txt").lines().skip(1) {
            let (hash, name) = line.split_once(' ').unwrap();
            let hash = u64::from_str_radix(hash, 16).unwrap();
            assert_eq!(u64::from(topology.slot_of(name.as_bytes())), hash & 3, "tube {name}");
        }
    }

    #[test]
    fn slot_of_follows_the_map_not_the_arithmetic() {
        let mut topology = four();
        let before = topology.slot_of(b"emails");
        topology.map.iter_mut().for_each(|slot| *slot = (*slot + 1) % 4);
        assert_eq!(topology.slot_of(b"emails"), (before + 1) % 4);
    }

    #[test]
    fn slot_of_with_one_slot_is_slot_0() {
        let topology = Topology::new(1, 1, Layout::Flat, ID).unwrap();
        assert_eq!(topology.slot_of(b""), 0);
        assert_eq!(topology.slot_of(&[0xff; 300]), 0);
    }

    #[test]
    fn every_slot_of_a_large_topology_owns_names() {
        let topology = Topology::new(limits::SLOTS_MAX, limits::PARTITIONS_MAX, Layout::Slots, ID).unwrap();
        let owners: std::collections::HashSet<u16> =
            (0..20_000).map(|n| topology.slot_of(format!("tube-{n}").as_bytes())).collect();
        assert_eq!(owners.len(), limits::SLOTS_MAX as usize);
    }

    #[test]
    fn ids_route_to_the_slot_that_hands_them_out() {
        let topology = four();
        for slot in 0..4 {
            let mut id = topology.first_id(slot, 0).unwrap();
            assert_eq!(id, if slot == 0 { 4 } else { u64::from(slot) });
            for _ in 0..5 {
                assert_eq!(topology.owner_of_id(id), IdRoute::Slot(slot));
                assert!(topology.id_fits(slot, id) && !topology.id_fits((slot + 1) % 4, id));
                let next = topology.first_id(slot, id + 1).unwrap();
                assert_eq!(next, id + 4);
                id = next;
            }
        }
    }

    #[test]
    fn ids_of_one_slot_are_stocks() {
        let topology = Topology::new(1, 1024, Layout::Flat, ID).unwrap();
        assert_eq!((1..5).map(|n| topology.first_id(0, n).unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(topology.first_id(0, 0), Some(1));
        assert_eq!(topology.owner_of_id(u64::MAX), IdRoute::Slot(0));
    }

    #[test]
    fn ids_of_migrated_jobs_live_anywhere() {
        let mut topology = four();
        topology.first_routed_id = 1001;
        assert_eq!(topology.owner_of_id(1000), IdRoute::Anywhere);
        assert_eq!(topology.owner_of_id(1001), IdRoute::Slot(1));
        assert!(topology.id_fits(3, 1000) && !topology.id_fits(3, 1001));
        assert_eq!(topology.first_id(0, 0), Some(1004));
        assert_eq!(topology.first_id(1, 0), Some(1001));
    }

    #[test]
    fn ids_when_spent_are_none() {
        let topology = four();
        assert_eq!(topology.first_id(3, limits::JOB_ID_END - 1), Some(limits::JOB_ID_END - 1));
        assert_eq!(topology.first_id(0, limits::JOB_ID_END - 1), None);
        assert_eq!(topology.first_id(0, u64::MAX), None);
    }

    #[test]
    fn new_out_of_range_is_refused() {
        for (slots, partitions) in [(0, 8), (limits::SLOTS_MAX + 1, 8192), (1, 0), (1, 8193), (9, 8)] {
            let error = Topology::new(slots, partitions, Layout::Slots, ID).unwrap_err();
            assert!(error.is_permanent(), "{error}");
        }
        assert!(Topology::new(2, 8, Layout::Flat, ID).is_err());
        for id in ["", "0123456789ABCDEF", "0123456789abcde", "0123456789abcdefa", "0123456789abcdeg"] {
            assert!(Topology::new(1, 8, Layout::Flat, id).is_err(), "{id}");
        }
    }

    #[test]
    fn validate_names_what_is_wrong() {
        type Change = fn(&mut Topology);
        let changes: [(Change, &str); 6] = [
            (|t| t.format = 2, "format is 2"),
            (|t| t.seed = 1, "seed is 1"),
            (|t| t.map.truncate(5), "5 entries"),
            (|t| t.map[7] = 4, "partition 7 belongs to slot 4"),
            (|t| t.layout = Layout::Flat, "flat layout"),
            (|t| t.first_routed_id = u64::MAX, "first routed id"),
        ];
        for (change, words) in changes {
            let mut topology = four();
            change(&mut topology);
            let message = topology.validate().unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}

//! Which slot a tube's name belongs to, by the rule as the design states it and not by the server's code:
//! XXH64 with seed 0 over the name, modulo 1024 partitions, modulo the slots.

use xxhash_rust::xxh64::xxh64;

const PARTITIONS: u64 = 1024;

pub fn slot_of(tube: &str, slots: u32) -> u16 {
    (xxh64(tube.as_bytes(), 0) % PARTITIONS % u64::from(slots)) as u16
}

/// A name that starts with `label` and lives on the slot.
pub fn tube_on(slot: u16, slots: u32, label: &str) -> String {
    let mut names = (0..).map(|number| format!("{label}-{number}"));
    names.find(|name| slot_of(name, slots) == slot).expect("each slot has names")
}

/// One name for each slot.
pub fn tubes(slots: u32, label: &str) -> Vec<String> {
    (0..slots as u16).map(|slot| tube_on(slot, slots, label)).collect()
}

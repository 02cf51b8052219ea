//! The topology file: what is read is valid, or refused with words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trellis::topology::Topology;

fuzz_target!(|text: &str| {
    match Topology::from_toml(text) {
        Ok(topology) => assert!(topology.validate().is_ok()),
        Err(words) => assert!(!words.is_empty()),
    }
});

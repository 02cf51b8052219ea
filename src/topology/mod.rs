//! Which slot owns a tube name, now and after every restart.
//!
//! `partition = xxh64(name, seed) % partitions`, `slot = map[partition]`. The map is made once, lives beside
//! the data, and is the same in every process: each computes the fingerprint itself and reports it.
//!
//! Reading order: `hash` (bytes to number), `map` (the topology and its lookups), `fingerprint`,
//! `codec` (text form, for the file and for IPC), `file` (the only part that writes), `found` (what a
//! directory holds, read only), `startup` (what to do about it, pure).
//!
//! Architecture invariant: topology knows no process, no file descriptor and no live tube. Looking up an
//! owner never creates anything, and nothing here depends on which processes are alive.

mod codec;
mod error;
mod file;
mod fingerprint;
mod found;
mod hash;
mod map;
mod startup;

pub use codec::SlotIdentity;
pub use error::TopologyError;
pub use file::{
    IDENTITY_FILE, PENDING_FILE, TOPOLOGY_FILE, UNFINISHED_FILE, create, load, load_identity, new_server_id,
    slot_dir_name, store, store_identity,
};
pub use fingerprint::Fingerprint;
pub use found::{Found, FoundSlot, IdentityFound, TopologyFound, scan};
pub use hash::tube_hash;
pub use map::{HashName, IdRoute, Layout, TOPOLOGY_FORMAT, Topology};
pub use startup::{Asked, Decision, NewTopology, decide};

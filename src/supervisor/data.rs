//! The topology that this run has, and where each slot's log is.
//!
//! `look` reads only and comes before a socket is touched; `settle` makes a new layout, if there is none, with
//! the rights that the owners will have.

use std::path::Path;

use crate::cli::Settings;
use crate::error::{Exit, Fatal};
use crate::ipc::control::Wal;
use crate::limits;
use crate::topology::{
    self, Asked, Decision, Layout, NewTopology, Topology, create, decide, scan, slot_dir_name,
};

/// What is to be done about the data directory, or about the flags without one. A refusal is an error.
pub fn look(settings: &Settings) -> Result<Decision, Fatal> {
    let asked = Asked { slots: settings.slots, partitions: settings.partitions };
    let Some(dir) = &settings.dir else {
        let slots = asked.slots.unwrap_or(1);
        let layout = if slots == 1 { Layout::Flat } else { Layout::Slots };
        let partitions = asked.partitions.unwrap_or(limits::PARTITIONS_DEFAULT);
        return Ok(Decision::Create(NewTopology { slots, partitions, layout, stale_slots: Vec::new() }));
    };
    match decide(&scan(Path::new(dir)).map_err(refused)?, asked) {
        Decision::Refuse(error) => Err(refused(error)),
        decision => Ok(decision),
    }
}

/// Carries the decision out.
pub fn settle(settings: &Settings, decision: Decision) -> Result<Topology, Fatal> {
    let new = match decision {
        Decision::Use(topology) => return Ok(topology),
        Decision::Refuse(error) => return Err(refused(error)),
        Decision::Create(new) => new,
        Decision::ServeFlat { partitions } => {
            NewTopology { slots: 1, partitions, layout: Layout::Flat, stale_slots: Vec::new() }
        }
    };
    let topology = Topology::new(new.slots, new.partitions, new.layout, &random_id()?).map_err(refused)?;
    // A flat directory stays exactly stock's: one slot has nothing to remember. But what an interrupted start
    // left would be taken for data that lost its topology once there are logs beside it.
    if let Some(dir) =
        settings.dir.as_ref().filter(|_| new.layout == Layout::Slots || !new.stale_slots.is_empty())
    {
        create(Path::new(dir), &topology, &new.stale_slots).map_err(refused)?;
    }
    Ok(topology)
}

/// Where a slot keeps its log; `None` without `-b`.
pub fn wal(settings: &Settings, layout: Layout, slot: u16) -> Option<Wal> {
    let dir = slot_dir(settings.dir.as_deref()?, layout, slot);
    Some(Wal { dir, file_bytes: settings.wal_file_bytes, sync_ms: settings.sync_ms })
}

/// The directory of a slot's log.
pub fn slot_dir(dir: &str, layout: Layout, slot: u16) -> String {
    match layout {
        Layout::Flat => dir.to_owned(),
        Layout::Slots => format!("{dir}/{}", slot_dir_name(slot)),
    }
}

/// What a decision comes to: how many slots, and where.
pub fn shape(decision: &Decision) -> (Layout, u16) {
    match decision {
        Decision::Use(topology) => (topology.layout, topology.slots as u16),
        // Not made yet, so nobody holds them.
        Decision::Create(NewTopology { layout: Layout::Slots, .. }) => (Layout::Slots, 0),
        Decision::Create(_) | Decision::ServeFlat { .. } => (Layout::Flat, 1),
        Decision::Refuse(_) => unreachable!("`look` makes an error of it"),
    }
}

/// Sixteen hexadecimal digits that nobody has used before.
pub fn random_id() -> Result<String, Fatal> {
    topology::new_server_id().map_err(|e| Fatal::temporary("/dev/urandom", e))
}

fn refused(error: topology::TopologyError) -> Fatal {
    let exit = if error.is_permanent() { Exit::Data } else { Exit::Temporary };
    Fatal::new(exit, error)
}

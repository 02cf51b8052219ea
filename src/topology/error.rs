//! Why a topology was not made, read or used. Each message names the thing, the reason and the way out.

use std::io;
use std::path::{Path, PathBuf};

use super::codec::SlotIdentity;
use super::fingerprint::Fingerprint;
use crate::error::Exit;
use crate::limits;

/// All but `Io` concern what was asked or what is on disk: trying again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    #[error("--slots {slots}: must be 1 to {}", limits::SLOTS_MAX)]
    SlotsOutOfRange { slots: u32 },

    #[error("--partitions {partitions}: must be 1 to {}", limits::PARTITIONS_MAX)]
    PartitionsOutOfRange { partitions: u32 },

    #[error(
        "{slots} slots need at least {slots} partitions, not {partitions}: give fewer --slots or more --partitions"
    )]
    MoreSlotsThanPartitions { slots: u32, partitions: u32 },

    #[error("this topology can't be used: {reason}")]
    Inconsistent { reason: String },

    #[error("{}: {doing}: {reason}", path.display())]
    Io { path: PathBuf, doing: &'static str, kind: io::ErrorKind, reason: String },

    #[error(
        "{}: damaged: {reason}. The jobs beside it can't be assigned without it and no new map is made over \
         them: restore this file from a copy",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },

    #[error(
        "{}: its format is {format}, this program knows format {known}: use the trellis that wrote it, or a newer one",
        path.display()
    )]
    UnknownFormat { path: PathBuf, format: i64, known: u32 },

    #[error(
        "{}: its contents have the fingerprint {computed}, but it says {written}: it was changed by hand or damaged. \
         Restore it from a copy; to change the number of slots use `trellis migrate`",
        path.display()
    )]
    FingerprintMismatch { path: PathBuf, written: Fingerprint, computed: Fingerprint },

    #[error(
        "{} has {found_slots} slots and {found_partitions} partitions, but {asked_slots} slots and \
         {asked_partitions} partitions were asked for: start without --slots and --partitions, or make a copy with \
         the new numbers with `trellis migrate`",
        dir.display()
    )]
    Differs { dir: PathBuf, found_slots: u32, found_partitions: u32, asked_slots: u32, asked_partitions: u32 },

    #[error(
        "{} holds the logs of a single-process server, which are served as one slot, but {asked} slots were asked \
         for: start with --slots 1, or make a copy with {asked} slots with `trellis migrate`",
        dir.display()
    )]
    FlatNeedsMigration { dir: PathBuf, asked: u32 },

    #[error(
        "{}: missing, but {} is there: its jobs can't be assigned without the map, and no new one is made over them. \
         Restore topology.toml from a copy",
        path.display(), slot_dir
    )]
    TopologyMissing { path: PathBuf, slot_dir: String },

    #[error(
        "{}: {found} is there, which does not belong to the {layout} layout that topology.toml describes: move it \
         elsewhere; its jobs can be brought in with `trellis migrate`",
        dir.display()
    )]
    LayoutMixed { dir: PathBuf, found: String, layout: &'static str },

    #[error(
        "{}: not finished: `trellis migrate`, `export` or `wal repair` was making it, and only a part of the jobs may \
         be in it. What it was made from is as it was: remove this directory, and run that again",
        dir.display()
    )]
    Unfinished { dir: PathBuf },

    #[error("{}: the directory of slot {slot} is missing: restore it, or mount what holds it", path.display())]
    SlotMissing { path: PathBuf, slot: u16 },

    #[error(
        "{}: missing, so whose jobs {} would hold is unknown: restore the file, or mount what holds the directory",
        path.display(),
        parent(path)
    )]
    IdentityMissing { path: PathBuf },

    #[error(
        "{}: damaged: {reason}. Whose jobs {} holds is unknown without it: restore it from a copy",
        path.display(),
        parent(path)
    )]
    IdentityDamaged { path: PathBuf, reason: String },

    #[error(
        "{} is the place of slot {expected}, but what is there belongs to slot {found}: the directories were swapped \
         or copied over each other. Put each back where its slot.toml says",
        dir.display()
    )]
    SlotSwapped { dir: PathBuf, expected: u16, found: u16 },

    #[error(
        "{} belongs to server {} (topology {}), but the topology here is of server {} ({}): put the directory of \
         this server back",
        dir.display(), found.server_id, found.fingerprint, expected.server_id, expected.fingerprint
    )]
    SlotForeign { dir: PathBuf, expected: Box<SlotIdentity>, found: Box<SlotIdentity> },
}

impl TopologyError {
    /// True if starting again can't help before somebody changed the flags or the data.
    pub fn is_permanent(&self) -> bool {
        match self {
            TopologyError::Io { kind, .. } => Exit::of_data(*kind) == Exit::Data,
            _ => true,
        }
    }

    pub(super) fn io(path: &Path, doing: &'static str, error: &io::Error) -> TopologyError {
        TopologyError::Io { path: path.to_owned(), doing, kind: error.kind(), reason: error.to_string() }
    }
}

fn parent(path: &Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

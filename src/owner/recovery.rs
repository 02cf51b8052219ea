//! Before the core opens its slot's log: is every record whole, and this slot's?
//!
//! The core's replay trusts what it reads and deletes files; so the directory is read first, under the lock
//! that the core will take, and it is opened only if what is there is sound or what a crash leaves. Torn tails
//! are cut, which is logged, and what is there is synced where the log is. Anything else is refused, and then
//! nothing in the directory changes, not even by a lock file. The ids that the directory has used up are settled
//! at the same time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tracing::{error, warn};

use crate::error::{Exit, Fatal};
use crate::ipc::control::Wal;
use crate::limits;
use crate::lock::{self, CORE_LOCK_FILE};
use crate::topology::Topology;
use crate::wal::ids::{self, IdFloor, IdsError, Past};
use crate::wal::{self, Policy, Scan, Verdict, WalError, mend, scan};

pub struct Recovered {
    pub ids: IdFloor,
    /// The file and the offset where the last record ends.
    pub end: Option<(u32, u64)>,
}

/// Makes the log of this slot fit to be opened. `told` is the highest id that this server has handed out
/// before; nothing on disk changes before `allowed` has said that it may.
pub fn recover(
    asked: &Wal,
    slot: u16,
    topology: &Topology,
    told: u64,
    allowed: impl FnOnce() -> Result<(), Fatal>,
) -> Result<Recovered, Fatal> {
    let dir = Path::new(&asked.dir);
    let mut locked = take_lock(dir, false)?;
    let mut allowed = Some(allowed);
    loop {
        // Before anything changes: it may be a reason to refuse, too.
        let past = ids::past(dir).map_err(no_ids)?;
        let scan = look(dir, slot, topology, past)?;
        let last_id = past.used_up.max(scan.max_id).max(told);
        topology.first_id(slot, last_id + 1).ok_or_else(|| spent(slot))?;
        if let Some(allowed) = allowed.take() {
            allowed()?;
        }
        if !locked {
            // Nobody was there, for whoever serves it has made that file; from here on nobody can be.
            take_lock(dir, true)?;
            locked = true;
            continue;
        }
        let mended = mend(dir, &scan).map_err(unusable)?;
        for finding in &scan.findings {
            warn!("{}/{finding}; cut there", dir.display());
        }
        if asked.sync_ms.is_some() {
            wal::sync(dir, &scan, &mended).map_err(unusable)?;
        }
        let torn = |number| scan.torn_tails().any(|(torn, _)| torn == number);
        // An ordinary start leaves one with a version.
        let ordinary = |number| scan.files.iter().any(|file| file.number == number && file.version.is_some());
        for number in mended.removed.into_iter().filter(|&number| !torn(number) && !ordinary(number)) {
            warn!("{}/binlog.{number}: was never written to; removed", dir.display());
        }
        for number in mended.begun {
            warn!("{}/binlog.{number}: was never written to; begun", dir.display());
        }
        let last_id = last_id.max(topology.first_routed_id.saturating_sub(1));
        let block = limits::ID_BLOCK * u64::from(topology.slots);
        let ids = IdFloor::open(dir, last_id, block).map_err(no_ids)?;
        return Ok(Recovered { ids, end: scan.end() });
    }
}

/// Locks the directory as the core does, for the rest of this process's life: closing the file would end the
/// lock, also the core's own. False if the file isn't there and is not to be made.
fn take_lock(dir: &Path, make: bool) -> Result<bool, Fatal> {
    let path = dir.join(CORE_LOCK_FILE);
    let said = |e: io::Error| Fatal::new(exit_of(e.kind()), format!("{}: {e}", path.display()));
    let file = match OpenOptions::new().write(true).create(make).truncate(false).mode(0o600).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !make => return Ok(false),
        other => other.map_err(said)?,
    };
    let taken = lock::take(&file, lock::Kind::Exclusive).map_err(said)?;
    std::mem::forget::<File>(file);
    if taken { Ok(true) } else { Err(Fatal::new(Exit::Locked, lock::refusal(&path))) }
}

/// Reads all of it. An error if it is not to be served.
fn look(dir: &Path, slot: u16, topology: &Topology, past: Past) -> Result<Scan, Fatal> {
    let slot_of = |tube: &[u8]| topology.slot_of(tube);
    let id_fits = |id| topology.id_fits(slot, id);
    let all = Policy { power_failed: past.power_failed, seed: past.seed, ..Policy::default() };
    // With one slot every tube and every id is its.
    let policy = match topology.slots {
        1 => all,
        _ => Policy { own_slot: slot, slot_of: Some(&slot_of), id_fits: Some(&id_fits), ..all },
    };
    let scan = scan(dir, policy).map_err(unusable)?;
    if scan.verdict() != Verdict::Refused {
        return Ok(scan);
    }
    let faults = scan.findings.len() as u64 + scan.findings_left_off;
    for finding in scan.findings.iter().take(limits::WAL_FINDINGS_LOGGED) {
        error!("{}/{finding}", dir.display());
    }
    // The reason is shown where those lines are not: by `trellis status` and `/healthz`.
    let first = scan.findings.first().map(ToString::to_string).unwrap_or_default();
    let shown = match faults {
        0 | 1 => first,
        n => format!("{first}, the first of {n} faults"),
    };
    Err(Fatal::new(
        Exit::Data,
        format!(
            "slot {slot}: the log in {} is not opened, and nothing there was changed: {shown}. `trellis wal check` \
             lists all, `trellis wal repair` makes a copy and keeps what is whole",
            dir.display()
        ),
    ))
}

/// No id is left that the slot could hand out.
pub fn spent(slot: u16) -> Fatal {
    Fatal::new(Exit::Data, format!("slot {slot}: no ids are left below {}", limits::JOB_ID_END))
}

/// Of what the system refuses. Where something of another kind is in the way, what belongs there may come back,
/// and the slot with it.
fn exit_of(kind: io::ErrorKind) -> Exit {
    match kind {
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => Exit::Temporary,
        kind => Exit::of_data(kind),
    }
}

fn no_ids(error: IdsError) -> Fatal {
    let exit = match &error {
        IdsError::Damaged { .. } => Exit::Data,
        IdsError::Io { source, .. } => exit_of(source.kind()),
    };
    Fatal::new(exit, error)
}

fn unusable(error: WalError) -> Fatal {
    Fatal::new(exit_of(error.source.kind()), error)
}

//! The owner role: one slot's C core, and the links over which frontends bring commands to it.
//!
//! A wake-up takes all frames that have come, runs the sessions they are for, lets the core do what is due,
//! commits what was logged, publishes the numbers, and only then lets replies leave: one write a frontend.
//! `recovery` looks at the log before the core does, `sessions` drives the virtual connections, `commit`
//! keeps the log's promises, `numbers` publishes, `survey` looks at single tubes, `event_loop` ties them together.
//! Never opens a network socket; never runs for two slots.

mod commit;
mod event_loop;
mod numbers;
mod recovery;
mod sessions;
mod survey;

use std::ffi::CString;

use crate::core_ffi::{Engine, Options, WalOptions, WalPlace};
use crate::error::{Exit, Fatal};
use crate::ipc::Kind;
use crate::ipc::control::Start;
use crate::ipc::socket::{Channel, Progress};
use crate::scoreboard::{Field, Scoreboard};

use commit::Commit;
use event_loop::Owner;
use recovery::Recovered;

/// Serves the slot of `start` until the supervisor says stop or is gone.
pub fn run(mut channel: Channel, start: Start) -> Result<(), Fatal> {
    let slots = start.topology.slots;
    let board =
        channel.take_fd().ok_or_else(|| Fatal::new(Exit::Ipc, "the scoreboard did not come with Start"))?;
    let frontends = start.server.frontends;
    let seats = start.server.clients.seats(frontends);
    let board = Scoreboard::open(board, slots as usize, frontends.into(), seats)
        .map_err(|e| Fatal::new(Exit::Temporary, e))?;
    let told = board.owner(start.index).get(Field::LastId).max(start.id_floor.saturating_sub(1));
    let (ids, last_id, seed, end) = match &start.wal {
        Some(wal) => {
            let allowed = || may_open(&mut channel);
            let Recovered { ids, end } = recovery::recover(wal, start.index, &start.topology, told, allowed)?;
            let (last_id, seed) = (ids.last_id(), ids.seed());
            let (file, offset) = end.unwrap_or_default();
            (Some(ids), last_id, seed, WalPlace { file, offset: offset as u32 })
        }
        None => (None, told, 0, WalPlace::default()),
    };
    let id_floor =
        start.topology.first_id(start.index, last_id + 1).ok_or_else(|| recovery::spent(start.index))?;

    let c_string = |s: &str| CString::new(s).map_err(|e| Fatal::new(Exit::Data, format!("{s:?}: {e}")));
    let wal = match &start.wal {
        Some(wal) => {
            Some(WalOptions { dir: c_string(&wal.dir)?, file_bytes: wal.file_bytes as i32, seed, end })
        }
        None => None,
    };
    let mut engine = Engine::start(Options {
        slot: start.index.into(),
        slots,
        id_floor,
        clock_offset: start.server.clock_offset,
        has_default: start.topology.slot_of(b"default") == start.index,
        wal,
        falloc_pattern: start.falloc_pattern.as_deref().map(c_string).transpose()?,
    })
    .map_err(|e| Fatal::new(Exit::Temporary, e))?;
    if start.drain || board.draining() {
        engine.drain();
    }

    let commit = Commit::new(start.wal.as_ref(), ids).map_err(|e| Fatal::new(Exit::Temporary, e))?;
    Owner::new(channel, start, engine, commit, &board).map_err(|e| Fatal::temporary("event loop", e))?.serve()
}

/// Tells the supervisor that the log can be opened, and waits until it may be: when all slots have said so.
fn may_open(channel: &mut Channel) -> Result<(), Fatal> {
    let ended = || Fatal::new(Exit::Temporary, "told to leave before the log was opened");
    channel.queue(Kind::Checked, b"", vec![]);
    loop {
        let flushed = channel.flush();
        while let Some(frame) = channel.next().map_err(|e| Fatal::new(Exit::Ipc, e))? {
            match frame.header.kind {
                Kind::Open => return Ok(()),
                Kind::Stop => return Err(ended()),
                // It is in the scoreboard, too, and is looked at once the core is there.
                Kind::Drain => {}
                kind => return Err(Fatal::new(Exit::Ipc, format!("{kind:?} while the log is not opened"))),
            }
        }
        channel.wait_readable().map_err(|e| Fatal::temporary("control channel", e))?;
        if channel.receive() == Progress::Gone || flushed == Progress::Gone {
            return Err(ended());
        }
    }
}

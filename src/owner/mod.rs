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

use crate::core_ffi::{self, Engine, Options, StartError, WalOptions, WalPlace};
use crate::error::{Exit, Fatal};
use crate::ipc::Kind;
use crate::ipc::control::Start;
use crate::ipc::socket::{Channel, Progress};
use crate::limits::CORE_LINES_IN_REASON;
use crate::scoreboard::{Field, Scoreboard};

use commit::Commit;
use event_loop::Owner;
use recovery::Recovered;

/// Serves the slot of `start` until the supervisor says stop or is gone.
pub fn run(channel: Channel, start: Start) -> Result<(), Fatal> {
    let end = serve(channel, start);
    tell_core_lines();
    end
}

fn serve(mut channel: Channel, start: Start) -> Result<(), Fatal> {
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
    let started = Engine::start(Options {
        slot: start.index.into(),
        slots,
        id_floor,
        clock_offset: start.server.clock_offset,
        has_default: start.topology.slot_of(b"default") == start.index,
        wal,
        falloc_pattern: start.falloc_pattern.as_deref().map(c_string).transpose()?,
    });
    let said = tell_core_lines();
    let mut engine = started.map_err(|error| not_started(&start, error, &said))?;
    if start.drain || board.draining() {
        engine.drain();
    }

    let commit = Commit::new(start.wal.as_ref(), ids).map_err(|e| Fatal::new(Exit::Temporary, e))?;
    Owner::new(channel, start, engine, commit, &board).map_err(|e| Fatal::temporary("event loop", e))?.serve()
}

/// Puts what the core has said into the log, each line as often as it was said, so that the log's limits
/// count right. Hands back the lines, each once.
fn tell_core_lines() -> Vec<String> {
    let tell = |line: core_ffi::Line| {
        (0..line.times).for_each(|_| tracing::warn!("{}", line.text));
        line.text
    };
    core_ffi::take_lines().map(tell).collect()
}

/// Why the core did not start, by what it said last: first the cause, then what came of it.
fn not_started(start: &Start, error: StartError, said: &[String]) -> Fatal {
    let code = match error {
        StartError::GaveUp(code) => code,
        StartError::Twice | StartError::Core(_) => Exit::Temporary.code(),
    };
    let last = said.len().saturating_sub(CORE_LINES_IN_REASON);
    let said: Vec<&str> =
        said[last..].iter().map(|line| line.strip_prefix("core: ").unwrap_or(line)).collect();
    let cause = if said.is_empty() { error.to_string() } else { said.join("; ") };
    let slot = start.index;
    let message = match &start.wal {
        Some(wal) => format!("slot {slot}: the log in {} can't be opened: {cause}", wal.dir),
        None => format!("slot {slot}: {cause}"),
    };
    Fatal { code, message }
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

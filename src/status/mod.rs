//! What a running server says of itself: the answer of the control socket, as data.
//!
//! The supervisor fills it in and writes it as JSON; `trellis status` reads it and prints a table (`table`).
//! No I/O here. Fields may be added; one that is there keeps its name and meaning, for scripts read `--json`.

pub mod table;

use serde::{Deserialize, Serialize};

/// A whole server at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// `id` of `stats`: new with each start.
    pub instance: String,
    /// The supervisor's.
    pub pid: u32,
    pub uptime_ms: u64,
    /// Of the server as a whole: recovering, opening, serving, closing, finishing, over.
    pub phase: String,
    /// Drain mode: no new jobs.
    pub draining: bool,
    /// Why not every slot and frontend serves; absent when all is well.
    pub trouble: Option<String>,
    pub topology: Topology,
    pub slots: Vec<Slot>,
    pub frontends: Vec<Frontend>,
    pub totals: Totals,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Topology {
    pub server_id: String,
    pub slots: u32,
    pub partitions: u32,
    /// flat or slots
    pub layout: String,
    pub fingerprint: String,
}

/// What is known of a process of any kind, or of the place where it should be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Process {
    pub state: State,
    /// Why it does not serve; absent if it does.
    pub cause: Option<String>,
    /// Absent without a process.
    pub pid: Option<i32>,
    /// 0 before the first.
    pub generation: u32,
    /// Processes before this one.
    pub restarts: u32,
    /// Until the next one is started; absent if none is to be, or one is there.
    pub next_try_ms: Option<u64>,
    /// How long the last ping took to be answered, or has been under way by now. Of one that is stalled
    /// before it was ever ready: since when it has not got on.
    pub lag_ms: f64,
    /// Of the process before this one, if this is not the first.
    pub last_end: Option<End>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct End {
    pub generation: u32,
    pub age_ms: u64,
    pub cause: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not to be started yet.
    Idle,
    /// Its first process comes up.
    Starting,
    /// Its next process comes up.
    Restarting,
    /// An owner replays its log.
    Recovering,
    /// It serves.
    Up,
    /// It serves, but does not answer; or it comes up, but does not get on.
    Stalled,
    /// Dead; started again after a pause.
    Down,
    /// It died again and again before it was ready, and is tried on until it serves; or it is dead for good.
    Failed,
    /// Told to leave.
    Stopping,
    Stopped,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Slot {
    pub slot: u16,
    #[serde(flatten)]
    pub process: Process,
    #[serde(flatten)]
    pub jobs: Jobs,
    /// Sessions that it knows.
    pub sessions: u64,
    /// Absent without `-b`.
    pub wal: Option<Wal>,
}

/// Jobs by state, and what belongs to them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Jobs {
    pub tubes: u64,
    pub ready: u64,
    /// Of the ready ones, those of priority below 1024.
    pub urgent: u64,
    pub reserved: u64,
    pub delayed: u64,
    pub buried: u64,
    /// Clients that wait in reserve.
    pub waiting: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Wal {
    pub files: u64,
    /// Room on disk.
    pub bytes: u64,
    /// Of it, what is needed.
    pub live_bytes: u64,
    pub syncs: u64,
    /// Since the last sync ended; absent before the first.
    pub last_sync_age_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Frontend {
    pub frontend: u16,
    #[serde(flatten)]
    pub process: Process,
    pub clients: u64,
    /// Commands that owners have and have not answered, as of the last ping.
    pub in_flight: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Totals {
    #[serde(flatten)]
    pub jobs: Jobs,
    pub clients: u64,
    pub producers: u64,
    pub workers: u64,
    /// Jobs put since the server started.
    pub jobs_put: u64,
    pub connections: u64,
    pub restarts: u64,
    /// Connections closed because the outcome of a command is unknown.
    pub unknown_outcomes: u64,
    /// Puts and other changes refused because a log found no room for them.
    pub refused_no_space: u64,
    /// Reserves refused because they watched tubes of several slots.
    pub refused_multi_watch: u64,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Starting => "starting",
            State::Restarting => "restarting",
            State::Recovering => "recovering",
            State::Up => "up",
            State::Stalled => "STALLED",
            State::Down => "DOWN",
            State::Failed => "FAILED",
            State::Stopping => "stopping",
            State::Stopped => "stopped",
        }
    }
}

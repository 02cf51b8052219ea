//! A history: all that clients sent and got, with times, the deaths in between, and what was there in the end.
//!
//! Each put has a body of its own, which names its tube. All clients and the killer share one clock.

/// Nanoseconds since the run began.
pub type Moment = u64;

pub const SECOND: Moment = 1_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Put {
        tube: String,
        priority: u32,
        delay: u32,
        ttr: u32,
        body: String,
    },
    Reserve {
        tube: String,
    },
    ReserveJob {
        id: u64,
    },
    Delete {
        id: u64,
    },
    Release {
        id: u64,
        priority: u32,
        delay: u32,
    },
    Bury {
        id: u64,
    },
    Touch {
        id: u64,
    },
    KickJob {
        id: u64,
    },
    Kick {
        tube: String,
    },
    Peek {
        id: u64,
    },
    /// The client goes away, with what it holds.
    Leave,
}

impl Action {
    /// The job that it names.
    pub fn id(&self) -> Option<u64> {
        match *self {
            Action::ReserveJob { id }
            | Action::Delete { id }
            | Action::Release { id, .. }
            | Action::Bury { id }
            | Action::Touch { id }
            | Action::KickJob { id }
            | Action::Peek { id } => Some(id),
            Action::Put { .. } | Action::Reserve { .. } | Action::Kick { .. } | Action::Leave => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Inserted(u64),
    /// Of a reserve, or found by a peek.
    Job {
        id: u64,
        body: String,
    },
    /// The word that says that it was done.
    Done,
    NotFound,
    /// A reserve that got nothing.
    Empty,
    /// INTERNAL_ERROR: certainly not executed.
    Refused,
    /// The connection was closed before the reply was whole.
    Unknown,
    /// No reply that this command can have.
    Odd(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    pub client: usize,
    /// No two connections of a history have the same number.
    pub connection: u64,
    /// Before the first byte was sent, and after the last one came.
    pub start: Moment,
    pub end: Moment,
    pub action: Action,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Owner(u16),
    /// Whose clients these are is not recorded: any may be.
    Frontend,
    Supervisor,
}

/// A death, at some time between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    pub start: Moment,
    pub end: Moment,
    pub victim: Victim,
}

/// A job that was there when everything had come to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub id: u64,
    pub tube: String,
    pub body: String,
}

/// The numbers of `stats` at rest, with one client connected, and the sums of `stats-tube` over all tubes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Ready, reserved, delayed, buried.
    pub jobs: [i64; 4],
    pub jobs_of_tubes: [i64; 4],
    pub connections: i64,
    pub waiting: i64,
    pub tubes: i64,
    pub tubes_listed: i64,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub slots: u32,
    /// Each acknowledged change was on disk: no death may lose one.
    pub durable: bool,
    pub ops: Vec<Op>,
    pub deaths: Vec<Death>,
    pub found: Vec<Found>,
    pub rest: Rest,
}

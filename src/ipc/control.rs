//! The messages of the control channel, between the supervisor and one child.
//!
//! A child first gets `Start`; it computes the fingerprint of the topology in it and says `Hello`; then it does
//! what it must before it can serve (an owner replays its log) and says `Ready`. `LinkUp` and `LinkDown` tell
//! it of peers. Payloads are TOML: rare, readable in a trace, and no second format to maintain.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::protocol::Words;
use crate::topology::Topology;

/// The kinds of processes that the supervisor starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Owner,
    Frontend,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Owner => "owner",
            Role::Frontend => "frontend",
        })
    }
}

/// Everything a child needs to serve. Two descriptors or more come with it: the scoreboard, then a
/// frontend's listening sockets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Start {
    pub role: Role,
    /// The owner's slot or the frontend's number.
    pub index: u16,
    pub generation: u32,
    /// Listening sockets that come with this message.
    pub listeners: u16,
    /// What the supervisor computed; the child computes its own and compares.
    pub fingerprint: String,
    pub server: Server,
    /// Owner: where its log is; absent without `-b`.
    pub wal: Option<Wal>,
    /// Owner: no id below this one is handed out.
    pub id_floor: u64,
    /// No new jobs (the server is in drain mode already).
    pub drain: bool,
    /// Tests only: the falloc pattern of `core_options`.
    pub falloc_pattern: Option<String>,
    // TOML wants tables behind plain values.
    pub topology: Topology,
}

/// What is the same for all processes of a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Server {
    /// `id` of `stats`: 16 hexadecimal digits, new with each start of the server.
    pub instance: String,
    /// `pid` of `stats`: the supervisor's.
    pub pid: u32,
    /// Added to CLOCK_MONOTONIC to give the server's clock, in nanoseconds.
    pub clock_offset: i64,
    /// The server's clock when it started, in nanoseconds.
    pub started_at: i64,
    /// `-z`, in bytes.
    pub job_bytes: u64,
    /// `-s`, in bytes, as given: `binlog-max-size` of `stats`.
    pub wal_file_bytes: u64,
    /// Frontends of the server: with the slots of the topology, the shape of the scoreboard.
    pub frontends: u16,
    /// How long a command waits for its slot, in milliseconds.
    pub owner_wait_ms: u64,
    /// Of how many tubes an owner is to tell the numbers (`Kind::Tubes`); 0: of none.
    pub metrics_tubes: u16,
    pub clients: ClientLimits,
}

/// What the server allows its clients. The frontends keep to it together, each to its part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClientLimits {
    /// Connections at a time.
    pub connections: u64,
    /// Declared bytes of all bodies that have not wholly arrived.
    pub unfinished_bytes: u64,
    /// How long a client may be silent, in seconds. Absent: as long as it likes.
    pub idle_s: Option<u32>,
    /// How long a body may take to arrive, in seconds. Absent: as long as it likes.
    pub body_s: Option<u32>,
    /// Connections from one address at a time. Absent: all of them.
    pub per_address: Option<u32>,
    /// Commands that are refused.
    pub refused: Words,
}

impl ClientLimits {
    /// Places in the scoreboard for the clients of each of so many frontends.
    pub fn seats(&self, frontends: u16) -> usize {
        self.per_address.map_or(0, |_| self.connections.div_ceil(frontends.into()) as usize)
    }
}

impl Server {
    /// The server's clock now, in nanoseconds: wall time as it was at the start plus monotonic time since.
    pub fn clock_now(&self) -> i64 {
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
        monotonic.tv_sec() * 1_000_000_000 + monotonic.tv_nsec() + self.clock_offset
    }

    pub fn owner_wait(&self) -> Duration {
        Duration::from_millis(self.owner_wait_ms)
    }
}

/// An owner's log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Wal {
    pub dir: String,
    /// `-s`, in bytes.
    pub file_bytes: u32,
    /// `-f`, in milliseconds: 0 syncs before each reply. Absent with `-F`.
    pub sync_ms: Option<u64>,
}

/// A child's answer to `Start`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub role: Role,
    pub index: u16,
    pub generation: u32,
    /// Version of the binary.
    pub version: String,
    /// Computed by the child from the topology it was given.
    pub fingerprint: String,
}

/// A peer generation: with `LinkUp` the descriptor of the link to it comes along.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Peer {
    pub role: Role,
    pub index: u16,
    pub generation: u32,
}

/// First frame in both directions of a link (`Kind::LinkHello`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkHello {
    pub role: Role,
    pub index: u16,
    pub fingerprint: String,
}

/// A control payload that is not what its kind says.
#[derive(Debug, thiserror::Error)]
#[error("control message of kind {kind:?}: {reason}")]
pub struct PayloadError {
    kind: super::Kind,
    reason: String,
}

pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    toml::to_string(message).expect("control messages are plain data").into_bytes()
}

pub fn decode<'a, T: Deserialize<'a>>(kind: super::Kind, payload: &'a [u8]) -> Result<T, PayloadError> {
    let error = |reason: String| PayloadError { kind, reason };
    let text = std::str::from_utf8(payload).map_err(|e| error(e.to_string()))?;
    T::deserialize(toml::de::Deserializer::new(text)).map_err(|e| error(e.to_string()))
}

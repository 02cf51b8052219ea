//! What the load process is told and what it tells: plain data, one JSON text a line over its pipes.
//!
//! Written by `measure`, read by `load`, and the other way round. Nothing here does anything.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// One run of the load: all groups work at once on one server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub address: SocketAddr,
    /// Works so long before anything is counted.
    pub warm_ms: u64,
    /// Counts so long. With `Group::limit` set in a group the run ends when that group is done instead.
    pub run_ms: u64,
    pub seed: u64,
    pub groups: Vec<Group>,
}

/// Clients that do the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Group {
    pub label: String,
    pub clients: u32,
    pub work: Work,
    /// Commands in one write; the next write waits for all their replies.
    pub depth: u32,
    pub body_bytes: u32,
    /// Client `n` works on tube `n % tubes.len()`.
    pub tubes: Vec<String>,
    /// Each client begins so many writes a second, whether the last one was answered in time or not; a write
    /// that had to wait for its turn counts from when it was due. `None`: as fast as the replies come.
    pub per_second: Option<f64>,
    /// The group is done after so many commands.
    pub limit: Option<u64>,
}

impl Group {
    /// Clients in a closed loop, each with a tube of its own.
    pub fn closed(label: &str, clients: u32, work: Work) -> Group {
        Group {
            label: label.to_owned(),
            clients,
            work,
            depth: 1,
            body_bytes: 64,
            tubes: tube_names(clients),
            per_second: None,
            limit: None,
        }
    }
}

/// So many names, all alike.
pub fn tube_names(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("bench-{n}")).collect()
}

/// What a client does, over and over. Each command counts as one; `Churn` counts a whole visit as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Work {
    /// put, reserve, delete on the client's tube.
    Cycle,
    /// put only.
    Put,
    /// use of any tube of the group's, put there, delete of that job.
    Roam,
    /// put, never more than so many jobs ahead of the consumers.
    Produce { ahead: u32 },
    /// reserve (its wait is in no latency), delete.
    Consume,
    /// Reserves one job beforehand, then touches it: commands that no log records.
    Touch,
    /// use of the group's tubes in turn, one put in each.
    Fill,
    /// Connects, puts once, closes, and again.
    Churn,
    /// Connects and keeps quiet.
    Idle,
}

/// What the load process says, in this order; `Failed` may take the place of any.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Said {
    /// Every client is connected and set up, the warm-up is over: counting begins now.
    Counting,
    /// Counting is over. Connections stay until the process's stdin ends.
    Ended(Vec<Tally>),
    Failed(String),
}

/// What a group did while it was counted. Latencies in nanoseconds, from the write to the whole reply.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tally {
    pub label: String,
    pub commands: u64,
    /// How long was counted, in nanoseconds.
    pub span_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

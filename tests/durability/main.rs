//! What the log promises: what it keeps through kills and faults, what is refused, what tools do with it.
//!
//! Where the original has a fault that Trellis mends, the same test runs on both: the original must show it.

#[path = "../support/mod.rs"]
mod support;

mod fault;
mod ids;
mod kills;
mod log_faults;
mod logs;
mod many_jobs;
mod migrate;
mod no_space;
mod power;
mod power_disk;
mod recovery;
mod seals;
mod sync;
mod tool;
mod wal_tools;

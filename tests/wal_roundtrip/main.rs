//! One log directory, served in turn by the original and by Trellis (one slot): whoever opens it finds every job.
//!
//! `hand_over` looks at each job in each state, `compaction` at many jobs in small files, `version_5` at a log of an
//! old release, `lock` at two servers on one directory, `kill` at what was acknowledged before a SIGKILL.

#[path = "../support/mod.rs"]
mod support;

mod compaction;
mod hand_over;
mod jobs;
mod kill;
mod lock;
mod version_5;

//! What happens when a process dies, stalls or is flooded: the failure contract, shown on real processes.
//!
//! `owner`, `frontend` and `supervisor` kill each kind of process; `unavailable` is about a slot that stays away;
//! `races` starts two servers on one directory; `flow` floods and stalls; `cancel` lets the end of a wait meet the
//! job that it waited for; `hostile` is the clients nobody wants; `descriptors` runs out of them; `crowds` brings more
//! clients than are allowed; `bodies` does not end them; `idle` is clients that say
//! nothing; `refused` are commands that are not wanted; `memory` gives back what a burst took.

#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod cancel;
mod crowds;
mod descriptors;
mod flow;
mod frontend;
mod hostile;
mod idle;
mod jobs;
mod memory;
mod owner;
mod races;
mod refused;
mod supervisor;
mod unavailable;

//! Random deaths under load: real processes, many clients, kills and stops of owners, frontends and the supervisor,
//! and a checker that reads the whole history of what clients sent and got.
//!
//! `TRELLIS_CHAOS=long` goes on until 200 owners, 200 frontends and 50 supervisors were killed; without it a run
//! takes some ten seconds. `TRELLIS_TEST_SEED` repeats a run's choices, though not the kernel's.
//!
//! `history` says what is recorded, `clients` do and record it, `mayhem` kills, `checker` judges. The checker is
//! tested with histories of a model (`model`) that are right, and with each kind of damage done to them.

#[path = "../support/mod.rs"]
mod support;

mod checker;
mod clients;
mod damage;
mod history;
mod mayhem;
mod model;
mod run;

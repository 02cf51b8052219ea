//! The unchanged C core of beanstalkd behind a safe API: one engine a process, used by one thread.
//!
//! `sys` is what bindgen makes of `shim/core.h`; `engine` starts, ticks and reads the slot; `conn` runs virtual
//! connections; `lines` is what the core says beside its replies. `shim/` holds our C: unit files that include
//! a vendored file after renaming what it calls.
//!
//! Architecture invariants: Rust calls C, C never calls Rust. Only `owner` uses this module. A fault in C
//! ends the process, so nothing durable may wait for a `Drop`.

mod conn;
mod engine;
mod lines;
mod sys;

pub use conn::{Cancel, Conn, Run, Status};
pub use engine::{Chore, Engine, Options, StartError, WalOptions, WalPlace};
pub use lines::{Line, take_lines};
pub use sys::{core_stats as Stats, core_tube_stats as TubeStats};

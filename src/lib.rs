//! Trellis: one logical beanstalkd server made of several processes on one Linux host.

// They panic where the stream can't be written: `output` and `log` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod bench;
pub mod child;
pub mod cli;
pub mod compare;
pub mod core_ffi;
pub mod error;
pub mod frontend;
pub mod ipc;
pub mod limits;
pub mod lock;
pub mod log;
pub mod offline;
pub mod output;
pub mod owner;
pub mod protocol;
pub mod scoreboard;
#[cfg(test)]
mod scratch;
pub mod status;
pub mod supervisor;
pub mod topology;
pub mod tube_figures;
pub mod wal;

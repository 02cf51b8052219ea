//! Trellis: one logical beanstalkd server made of several processes on one Linux host.

pub mod core_ffi;
pub mod ipc;
pub mod limits;
pub mod protocol;
pub mod scoreboard;
#[cfg(test)]
mod scratch;
pub mod topology;

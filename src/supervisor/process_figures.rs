//! What the kernel knows of our processes. Nothing here waits; a process that is gone has no figures.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let resident: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    Some(resident * page as u64)
}

/// Processor time of this process: user, system.
pub fn own_cpu() -> Option<[Duration; 2]> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let times = [usage.user_time(), usage.system_time()];
    Some(times.map(|time| Duration::from_micros(time.num_microseconds().max(0) as u64)))
}

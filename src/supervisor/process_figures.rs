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

/// How often and for how long a process was on a processor: differs from one moment to another if it was in
/// between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turns(pub [u64; 4]);

/// Ticks in user and system mode, and how often it left the processor by itself and was made to.
pub fn turns(pid: i32) -> Option<Turns> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold blanks; the first field there is the third of all.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let user = fields.nth(11)?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    let (willing, unwilling) = (number("voluntary_ctxt_switches:")?, number("nonvoluntary_ctxt_switches:")?);
    Some(Turns([user, system, willing, unwilling]))
}

/// Processor time of this process: user, system.
pub fn own_cpu() -> Option<[Duration; 2]> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let times = [usage.user_time(), usage.system_time()];
    Some(times.map(|time| Duration::from_micros(time.num_microseconds().max(0) as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_process_move_while_it_runs_and_of_none_are_unknown() {
        let own = std::process::id() as i32;
        let before = turns(own).expect("it runs");
        // Ticks, or switches: whatever comes first.
        while turns(own) == Some(before) {}
        assert_eq!(turns(0), None);
    }
}

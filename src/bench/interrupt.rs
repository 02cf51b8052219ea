//! What a signal does to a run: the servers and the load are ended, and whoever waits for them learns it.
//!
//! They live in process groups of their own, which a terminal's ^C does not reach. A thread reads the signals;
//! it ends the groups and nothing else, so that the run itself cleans up and `main` exits.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::error::{Exit, Fatal};

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT, SIGTERM and SIGHUP end the run in good order. Once, before any other thread is there.
pub fn watch() -> Result<(), Fatal> {
    let failed = |e: nix::Error| Fatal::temporary("signals", e);
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().map_err(failed)?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).map_err(failed)?;
    std::thread::spawn(move || {
        while let Ok(Some(_)) = signals.read_signal() {
            // In this order: a group that is registered later sees the flag.
            INTERRUPTED.store(true, Ordering::SeqCst);
            groups().iter().for_each(|group| end(*group));
        }
    });
    Ok(())
}

/// An error if a signal has come.
pub fn check() -> Result<(), Fatal> {
    match INTERRUPTED.load(Ordering::SeqCst) {
        true => Err(Fatal::new(Exit::Temporary, "interrupted")),
        false => Ok(()),
    }
}

/// The group is to end with us.
pub fn register(group: i32) {
    groups().insert(group);
    if INTERRUPTED.load(Ordering::SeqCst) {
        end(group);
    }
}

/// The group is gone; the number may become somebody else's.
pub fn unregister(group: i32) {
    groups().remove(&group);
}

fn groups() -> std::sync::MutexGuard<'static, BTreeSet<i32>> {
    GROUPS.lock().expect("nobody panics while holding it")
}

fn end(group: i32) {
    // It may have ended by itself.
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

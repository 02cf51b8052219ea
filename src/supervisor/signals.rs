//! Signals, read from a descriptor like everything else.
//!
//! Blocked before anything is started, so that one that comes early waits; one that came before is read by the
//! first `next`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What the supervisor heeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// SIGTERM, SIGINT.
    Stop,
    /// SIGUSR1: no new jobs.
    Drain,
    /// SIGCHLD: somebody is to be reaped.
    Reap,
}

pub struct Signals(SignalFd);

impl Signals {
    /// From now on the signals wait here. Children unblock them when they are executed.
    pub fn block() -> io::Result<Signals> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGCHLD, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// The next order that has come.
    pub fn next(&mut self) -> io::Result<Option<Order>> {
        while let Some(info) = self.0.read_signal()? {
            let order = match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGTERM | Signal::SIGINT) => Order::Stop,
                Ok(Signal::SIGUSR1) => Order::Drain,
                Ok(Signal::SIGCHLD) => Order::Reap,
                // SIGHUP: a closed terminal is no reason to end.
                _ => continue,
            };
            return Ok(Some(order));
        }
        Ok(None)
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

//! What the service manager is told: that the server is ready, that it stops, and at half the interval of a watchdog
//! that it lives. By the supervisor alone, and without ever waiting for a manager that does not read.
//!
//! A word that it has no room for is kept and tried again: without `READY=1` the service would count as starting
//! for ever. Signs of life are not kept, for the next one says the same.
//!
//! Whoever asked for the watchdog wants the whole service started anew when it hangs. So nothing is told while no slot
//! that serves, or no frontend that serves, answers. One stalled slot of several is no reason: the others
//! work, and `--kill-stalled` is there for it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::Supervisor;
use super::policy::Moment;
use crate::ipc::control::Role;
use crate::limits::NOTIFY_RETRY;

pub const READY: &str = "READY=1";
pub const STOPPING: &str = "STOPPING=1";
const ALIVE: &str = "WATCHDOG=1";

#[derive(Default)]
pub struct ServiceManager {
    /// `None`: nobody waits for us.
    socket: Option<UnixDatagram>,
    /// Half of the time that it grants us between two signs of life. `None`: it wants none.
    watchdog: Option<Duration>,
    alive_at: Moment,
    /// Words that it had no room for, the oldest first, and when to try again.
    unsaid: VecDeque<&'static str>,
    retry_at: Moment,
}

impl ServiceManager {
    pub fn from_environment() -> ServiceManager {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return ServiceManager::default() };
        match connect(&path) {
            Ok(socket) => {
                ServiceManager { socket: Some(socket), watchdog: watchdog(), ..ServiceManager::default() }
            }
            Err(error) => {
                tracing::warn!("the service manager can't be told of us: {error}");
                ServiceManager::default()
            }
        }
    }

    /// When `tick` has to be called.
    pub fn deadline(&self) -> Option<Moment> {
        let alive = self.watchdog.map(|_| self.alive_at);
        let retry = (!self.unsaid.is_empty()).then_some(self.retry_at);
        alive.into_iter().chain(retry).min()
    }

    pub fn tell(&mut self, word: &'static str, now: Moment) {
        self.unsaid.push_back(word);
        self.say_unsaid(now);
    }

    fn say_unsaid(&mut self, now: Moment) {
        while let Some(word) = self.unsaid.front() {
            match self.send(word) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.retry_at = now + NOTIFY_RETRY;
                    return;
                }
                Err(error) => tracing::warn!("the service manager was not told {word}: {error}"),
                Ok(()) => {}
            }
            self.unsaid.pop_front();
        }
    }

    /// What is due: a sign of life, if all is `well`, and words that were kept.
    fn tick(&mut self, now: Moment, well: bool) {
        if self.retry_at <= now {
            self.say_unsaid(now);
        }
        if let Some(interval) = self.watchdog.filter(|_| self.alive_at <= now) {
            self.alive_at = now + interval;
            // A manager that can't be told once will notice by itself, which is what the watchdog is for.
            let _ = if well { self.send(ALIVE) } else { Ok(()) };
        }
    }

    fn send(&self, word: &str) -> io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), |socket| socket.send(word.as_bytes()).map(drop))
    }
}

/// Half of the watchdog's time. Without `WATCHDOG_PID` it is meant for us too (sd_watchdog_enabled(3)), for
/// which the crate wants it to be there.
fn watchdog() -> Option<Duration> {
    let mut us = 0;
    if std::env::var_os("WATCHDOG_PID").is_none() {
        us = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    } else if !sd_notify::watchdog_enabled(false, &mut us) {
        return None;
    }
    (us > 0).then(|| Duration::from_micros(us / 2).max(Duration::from_millis(1)))
}

/// A path, or a name without one behind an `@`.
fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Supervisor {
    pub(super) fn tell_manager(&mut self) {
        let (now, well) = (self.now(), !self.hangs());
        self.manager.tick(now, well);
    }

    /// All processes of a kind that should answer do not.
    fn hangs(&self) -> bool {
        [Role::Owner, Role::Frontend].into_iter().any(|role| {
            self.children.any(role, |child| child.policy.is_serving())
                && !self.children.any(role, |child| child.is_well())
        })
    }
}

//! The service manager's watchdog: it is told at half its interval that the server lives, by the supervisor
//! alone.
//!
//! Whoever asked for it wants the whole service started anew when it hangs. So nothing is told while no slot
//! that serves, or no frontend that serves, answers. One stalled slot of several is no reason: the others
//! work, and `--kill-stalled` is there for it.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::Supervisor;
use super::policy::Moment;
use crate::ipc::control::Role;

pub struct Watchdog {
    /// Half of what the manager grants us, and how to reach it. `None`: nobody waits for us.
    manager: Option<(Duration, UnixDatagram)>,
    next: Moment,
}

impl Watchdog {
    pub fn from_environment() -> Watchdog {
        let mut us = 0;
        let enabled = sd_notify::watchdog_enabled(false, &mut us) && us > 0;
        let half = Duration::from_micros(us / 2).max(Duration::from_millis(1));
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|_| enabled);
        let manager = path.and_then(|path| match connect(&path) {
            Ok(socket) => Some((half, socket)),
            Err(error) => {
                tracing::warn!("the watchdog can't be told of us: {error}");
                None
            }
        });
        Watchdog { manager, next: Moment::ZERO }
    }

    /// When `tell` has to be called.
    pub fn deadline(&self) -> Option<Moment> {
        self.manager.as_ref().map(|_| self.next)
    }

    /// Tells once an interval, if all is well. Does not wait for a manager that does not read.
    fn tell(&mut self, now: Moment, well: bool) {
        let Some((interval, socket)) = self.manager.as_ref().filter(|_| self.next <= now) else { return };
        if well {
            let _ = socket.send(b"WATCHDOG=1");
        }
        self.next = now + *interval;
    }
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
    pub(super) fn feed_watchdog(&mut self) {
        let (now, well) = (self.now(), !self.hangs());
        self.watchdog.tell(now, well);
    }

    /// All processes of a kind that should answer do not.
    fn hangs(&self) -> bool {
        [Role::Owner, Role::Frontend].into_iter().any(|role| {
            self.children.any(role, |child| child.policy.is_serving())
                && !self.children.any(role, |child| child.is_well())
        })
    }
}

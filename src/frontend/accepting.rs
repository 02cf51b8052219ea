//! Taking clients from the listening sockets, which all frontends share: who can't takes none, and the others,
//! or the kernel's queue, have them.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Instant;

use mio::Token;
use tracing::warn;

use super::allowance::place_of;
use super::client::Stream;
use super::event_loop::{FIRST_CLIENT, Frontend};
use super::session::Session;
use crate::ipc::SessionId;
use crate::limits::{ACCEPT_BATCH, ACCEPT_PAUSE, ACCEPT_WARNING};
use crate::scoreboard::Field;

/// Whether clients are taken now.
#[derive(Default)]
pub struct Door {
    /// The supervisor has told us to take clients; until then their queue is the kernel's.
    pub open: bool,
    /// Connections may be waiting to be accepted.
    pub knocked: bool,
    /// No descriptor was left: accepting goes on then.
    pub paused: Option<Instant>,
    /// There were as many clients as there may be when somebody was to be taken.
    was_full: bool,
    /// When a pause was said last.
    warned: Option<Instant>,
}

impl Frontend<'_> {
    /// Somebody may be waiting, and can be taken.
    pub(super) fn can_accept(&self) -> bool {
        let door = &self.door;
        door.open && door.knocked && door.paused.is_none() && self.full().is_none()
    }

    /// Why no more clients are taken.
    fn full(&self) -> Option<&'static str> {
        self.ctx.allowance.full(self.sessions.len())
    }

    pub(super) fn accept(&mut self) {
        if self.door.paused.is_some_and(|until| until <= Instant::now()) {
            self.door.paused = None;
            self.door.knocked = true;
        }
        if !self.can_accept() {
            return;
        }
        self.door.knocked = false;
        self.door.was_full = false;
        for number in 0..self.listeners.len() {
            for _ in 0..ACCEPT_BATCH {
                if let Some(reason) = self.full() {
                    // Whoever waits still does when one of ours has left.
                    self.door.knocked = true;
                    if !std::mem::replace(&mut self.door.was_full, true) {
                        self.say_pause(&reason);
                    }
                    return;
                }
                match self.listeners[number].accept() {
                    Ok((stream, address)) => self.accepted(stream, address),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e)
                        if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) =>
                    {
                        self.door.paused = Some(Instant::now() + ACCEPT_PAUSE);
                        self.say_pause(&format_args!("{e}; raise the limit on open files"));
                        return;
                    }
                    // The client is gone before it was accepted, or a signal came.
                    Err(_) => {}
                }
                self.door.knocked = true;
            }
        }
    }

    fn say_pause(&mut self, reason: &dyn std::fmt::Display) {
        self.ctx.record.add(Field::AcceptPauses, 1);
        let now = Instant::now();
        if self.door.warned.is_none_or(|at| now.duration_since(at) >= ACCEPT_WARNING) {
            self.door.warned = Some(now);
            warn!("accepting pauses: {reason}");
        }
    }

    fn accepted(&mut self, mut stream: Stream, address: Option<IpAddr>) {
        let epoch = self.ctx.next_epoch();
        let entry = self.sessions.vacant_entry();
        let key = entry.key();
        if let (Some(most), Some(address)) = (self.ctx.server.clients.per_address, address) {
            if !self.ctx.seats.take(key, place_of(address), most as usize) {
                self.ctx.record.add(Field::RefusedAddresses, 1);
                return;
            }
        }
        if let Err(error) = stream.register(self.poll.registry(), Token(FIRST_CLIENT + key)) {
            self.leave_seat(key);
            return warn!(%error, "client socket");
        }
        let id = SessionId { index: key as u32, epoch };
        let session = entry.insert(Session::new(id, stream, &self.ctx.default_tube, self.ctx.clock));
        session.attach_default(&mut self.ctx);
        self.ctx.record.add(Field::Connections, 1);
        self.ctx.record.add(Field::TotalConnections, 1);
        self.look_after(key);
    }

    /// A client has left its place in the table of addresses, if there is one.
    pub(super) fn leave_seat(&self, key: usize) {
        if self.ctx.server.clients.per_address.is_some() {
            self.ctx.seats.leave(key);
        }
    }
}

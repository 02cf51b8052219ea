//! Clients that are cut off because of the time, where the flags ask for it: those that are silent for too long
//! (`--idle-timeout`), and those whose body makes no end (`--body-timeout`).
//!
//! What a client waits for is never held against it: a reply, a slot that is away, a reserve above all. Nor
//! is a reservation that it holds: a worker that is busy with a job for an hour says nothing meanwhile.

use super::alarms::soonest;
use super::session::{Context, Mode, Pending, Remote, Session, What};
use crate::scoreboard::Field;

const SECOND: i64 = 1_000_000_000;

impl Session {
    /// When the client is cut off if nothing happens until then, on the server's clock.
    pub fn overdue_at(&self, ctx: &Context<'_>) -> Option<i64> {
        soonest([self.idle_until(ctx), self.body_until(ctx)])
    }

    /// Cuts it off if that time has come.
    pub fn cut_if_overdue(&mut self, ctx: &Context<'_>, now: i64) {
        let is_over = |until: Option<i64>| until.is_some_and(|until| until <= now);
        if is_over(self.body_until(ctx)) {
            ctx.record.add(Field::LateBodies, 1);
        } else if is_over(self.idle_until(ctx)) {
            ctx.record.add(Field::IdleClients, 1);
        } else {
            return;
        }
        self.dead = true;
    }

    /// Up to the next whole second, so that the alarm of a busy client is not moved with each of its commands.
    fn idle_until(&self, ctx: &Context<'_>) -> Option<i64> {
        let seconds = ctx.server.clients.idle_s.filter(|_| self.is_idle())?;
        Some((self.active / SECOND + 1 + i64::from(seconds)) * SECOND)
    }

    fn body_until(&self, ctx: &Context<'_>) -> Option<i64> {
        let seconds = ctx.server.clients.body_s?;
        // While it stalls, the server does not take what the client may have sent.
        let since = self.body_since.filter(|_| !self.stalled && !self.has_unread() && !self.reserves())?;
        Some(since + i64::from(seconds) * SECOND)
    }

    /// It waits for nothing, holds no job, and no byte of it waits for us.
    fn is_idle(&self) -> bool {
        let holds = self.attachments.iter().any(|attachment| attachment.deadline != 0);
        // Whoever leaves replies where they are does not wait for more of them.
        let is_owed =
            self.output.is_empty() && (self.stalled || !(self.pending.is_empty() || self.lacks_body()));
        !holds && !is_owed && !self.barrier && !self.reserves() && !self.has_unread()
    }

    /// A reserve of it is under way.
    pub fn reserves(&self) -> bool {
        let waits = |p: &Pending| matches!(p, Pending::Remote(Remote { what: What::Reserve { .. }, .. }));
        self.pending.iter().any(waits)
    }

    fn has_unread(&self) -> bool {
        self.readable && self.takes_input()
    }

    /// All that is under way is a put whose body the client has not sent to its end.
    pub fn lacks_body(&self) -> bool {
        let Mode::Body { slot, .. } = self.mode else { return false };
        self.pending.len() == 1
            && self.attachments.iter().any(|a| a.slot == slot && a.sent == a.done.wrapping_add(1))
    }
}

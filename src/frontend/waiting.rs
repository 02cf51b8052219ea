//! What a session waits for by the clock: the margin before a reservation's end at another slot than the one
//! it waits in reserve at, the answer to a reserve that is refused again and again, the end of its patience
//! with a slot that is away, and its own end if it is `overdue`.

use super::alarms::soonest;
use super::session::{Context, Pending, Remote, Session, What};
use crate::ipc::Kind;
use crate::ipc::header::FLAG_DEADLINE_SOON;
use crate::limits::{DEADLINE_MARGIN, REFUSAL_PAUSE};
use crate::scoreboard::Field;

pub const UNSUPPORTED_MULTI_WATCH: &[u8] = b"UNSUPPORTED_MULTI_WATCH\r\n";

impl Session {
    /// A reserve over tubes of several slots. The first is refused at once; some workers ask again at once,
    /// thousands of times a second, so the next ones wait.
    pub fn refuse_multi_watch(&mut self, ctx: &mut Context<'_>) {
        ctx.record.add(Field::RefusedMultiWatch, 1);
        if std::mem::replace(&mut self.refused_before, true) {
            self.refusal_due = Some(ctx.server.clock_now() + REFUSAL_PAUSE.as_nanos() as i64);
            self.barrier = true;
        } else {
            self.answer(ctx.record, UNSUPPORTED_MULTI_WATCH, None);
        }
    }

    /// The next time at which `on_time` has something to do.
    pub fn next_alarm(&self, ctx: &Context<'_>) -> Option<i64> {
        soonest([self.refusal_due, self.deadline_elsewhere(), self.patience_ends(ctx), self.overdue_at(ctx)])
    }

    /// Does what is due.
    pub fn on_time(&mut self, ctx: &mut Context<'_>) {
        let Some(due) = self.next_alarm(ctx) else { return };
        let now = ctx.server.clock_now();
        if due > now {
            return;
        }
        self.cut_if_overdue(ctx, now);
        self.lose_patience(ctx, now);
        if self.refusal_due.is_some_and(|due| due <= now) {
            self.refusal_due = None;
            self.barrier = false;
            self.answer(ctx.record, UNSUPPORTED_MULTI_WATCH, None);
        }
        if self.deadline_elsewhere().is_none_or(|due| due > now) {
            return;
        }
        if let Some(Pending::Remote(Remote { slot, what: What::Reserve { cancelled, .. }, .. })) =
            self.pending.front_mut()
        {
            // If a job was assigned first, the assignment wins.
            *cancelled = true;
            let slot = *slot;
            self.send_frame(ctx, slot, Kind::Cancel, FLAG_DEADLINE_SOON, b"");
        }
    }

    /// The session waits in reserve at one slot: when the margin before the end of a reservation at another
    /// begins. The slot itself sees to its own.
    fn deadline_elsewhere(&self) -> Option<i64> {
        if self.attachments.len() < 2 {
            return None;
        }
        let Some(Pending::Remote(Remote {
            slot: here, what: What::Reserve { cancelled: false, .. }, ..
        })) = self.pending.front()
        else {
            return None;
        };
        let ends = self.attachments.iter().filter(|a| a.slot != *here && a.deadline != 0).map(|a| a.deadline);
        ends.min().map(|end| end - DEADLINE_MARGIN.as_nanos() as i64)
    }
}

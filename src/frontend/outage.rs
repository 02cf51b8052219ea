//! What a session does while a slot has no owner, and when it has one again.
//!
//! A change of jobs that was sent and not answered has an unknown outcome: the connection is closed, and it is
//! never sent again. What only reads, waits or refers is sent again to the new generation. What could not be
//! sent yet waits a while and is then refused with INTERNAL_ERROR, which means: not executed.

use std::time::Instant;

use super::alarms::soonest;
use super::requests::INTERNAL_ERROR;
use super::session::{Attachment, Context, Mode, Pending, Remote, Session, What};
use crate::ipc::header::Kind;
use crate::protocol::{Command, Line, command, line};
use crate::scoreboard::Field;

impl Session {
    /// Whether something can be begun for the slot now. If its owner is away or behind, the session waits for
    /// it.
    pub fn available(&mut self, ctx: &mut Context<'_>, slot: u16) -> bool {
        if !ctx.owners.is_up(slot) {
            if self.waits_for.is_none_or(|(waited, _)| waited != slot) {
                self.waits_for = Some((slot, ctx.server.clock_now()));
            }
            return false;
        }
        let full = ctx.owners.is_full(slot);
        if full && !ctx.overfull.contains(&slot) {
            ctx.overfull.push(slot);
        }
        !full
    }

    /// The slot's owner is gone.
    pub fn slot_down(&mut self, ctx: &mut Context<'_>, slot: u16) {
        if self.query.as_mut().is_some_and(|q| q.again(slot)) {
            self.outage.get_or_insert_with(|| ctx.server.clock_now());
        }
        let epoch = ctx.next_epoch();
        let Some(attachment) = self.attachment(slot) else { return };
        let partial = attachment.partial;
        *attachment = Attachment::new(slot, epoch);

        let unknown = self
            .pending
            .iter()
            .any(|p| matches!(p, Pending::Remote(remote) if remote.slot == slot && remote.what.changes()));
        if unknown || partial {
            ctx.record.add(Field::UnknownOutcomes, 1);
            self.dead = true;
            return;
        }
        // The old owner of the used tube has let go of it for good.
        let parked = match self.pending.front_mut() {
            Some(Pending::Remote(Remote { slot: of, what: What::Park(reply), .. })) if *of == slot => {
                Some(std::mem::take(reply))
            }
            _ => None,
        };
        if let Some(reply) = parked {
            self.pending.pop_front();
            self.barrier = false;
            self.output.push(&reply);
            self.turn(ctx);
        }
        if self.flight() == Some(slot) {
            self.outage.get_or_insert_with(|| ctx.server.clock_now());
        } else {
            self.release(ctx, slot);
        }
    }

    /// The slot has an owner again: references are made anew, and what waits for an answer is sent again.
    pub fn slot_up(&mut self, ctx: &mut Context<'_>, slot: u16) {
        if self.query.as_mut().is_some_and(|q| q.again(slot)) {
            self.outage = None;
            self.ask_tubes(ctx, slot);
        }
        if self.attachment(slot).is_none() {
            return;
        }
        self.establish(ctx, slot);
        let mut pending = std::mem::take(&mut self.pending);
        for entry in &mut pending {
            let remote = match entry {
                Pending::Remote(remote) if remote.slot == slot => remote,
                _ => continue,
            };
            self.outage = None;
            let attachment = self.attachment(slot).expect("looked at above");
            attachment.sent = attachment.sent.wrapping_add(1);
            remote.sequence = attachment.sent;
            let line = match remote.what {
                What::Reserve { until: Some(until), .. } => reserve_until(until),
                _ => remote.line.to_vec(),
            };
            let park = matches!(&remote.what, What::Ignore(tube) if self.parks(ctx, slot, tube));
            self.send_bytes(ctx, slot, &line, if park { crate::ipc::header::FLAG_PARK_WATCH } else { 0 });
        }
        self.pending = pending;
        if self.fin && self.flight() == Some(slot) {
            self.send_frame(ctx, slot, Kind::Cancel, 0, b"");
        }
    }

    /// When the session's patience with a slot that is away ends, on the server's clock.
    pub fn patience_ends(&self, ctx: &Context<'_>) -> Option<i64> {
        let since = soonest([self.waits_for.map(|(_, since)| since), self.outage]);
        since.map(|since| since + ctx.server.owner_wait().as_nanos() as i64)
    }

    /// Refuses what has waited too long for its slot. It was not executed.
    pub fn lose_patience(&mut self, ctx: &mut Context<'_>, now: i64) {
        let over = |since: i64| since + ctx.server.owner_wait().as_nanos() as i64 <= now;
        if self.outage.is_some_and(over) {
            self.outage = None;
            self.barrier = false;
            for entry in &mut self.pending {
                if matches!(entry, Pending::Remote(_)) {
                    *entry = Pending::Local { reply: INTERNAL_ERROR.into(), counter: None };
                }
            }
            if self.query.take().is_some() {
                self.answer(ctx.record, INTERNAL_ERROR, None);
            }
            self.turn(ctx);
        }
        if self.waits_for.is_some_and(|(_, since)| over(since)) {
            self.waits_for = None;
            self.refuse_next(ctx);
        }
    }

    /// Refuses the command at the start of the input.
    fn refuse_next(&mut self, ctx: &Context<'_>) {
        let Line::Whole(length) = line(&self.input) else { return };
        let command = command(&self.input[..length - 2], ctx.server.job_bytes);
        self.input.drain(..length);
        match command {
            Command::Put { body } => {
                self.mode = Mode::Skip { left: u64::from(body) + 2, reply: INTERNAL_ERROR };
                self.body_since = Some(ctx.clock);
            }
            _ => self.answer(ctx.record, INTERNAL_ERROR, None),
        }
    }
}

/// A reserve for the time that is left, in whole seconds and not less than there are.
fn reserve_until(until: Instant) -> Vec<u8> {
    let left = until.saturating_duration_since(Instant::now());
    format!("reserve-with-timeout {}\r\n", left.as_millis().div_ceil(1000)).into_bytes()
}

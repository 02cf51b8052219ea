//! Frames to client bytes: reply bytes pass through, and what waited for them goes on.

use super::probe::NOT_FOUND;
use super::session::{Attachment, Context, Pending, Remote, Session, What};
use crate::ipc::header::{FLAG_CLOSED, FLAG_MORE};
use crate::ipc::{Frame, Kind};
use crate::limits::CREDIT_BYTES;

/// `a` comes before or is `b`, among numbers modulo 2^32 that lie close together.
fn reached(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) < 1 << 31
}

impl Attachment {
    /// All but `undelivered` bytes of what was received are with the client.
    pub fn acknowledge(&mut self, undelivered: u32) {
        let delivered = self.received.wrapping_sub(undelivered);
        if reached(self.credited, delivered) {
            self.credited = delivered;
        }
    }
}

impl Session {
    /// Handles a frame that a slot's owner sent for this session.
    pub fn frame(&mut self, ctx: &mut Context<'_>, slot: u16, frame: Frame<'_>) {
        let Frame { header, payload } = frame;
        if header.kind == Kind::Answer {
            if header.session != self.id {
                return;
            }
            return self.tubes_answered(ctx, slot, header.sequence, payload, header.flags & FLAG_MORE == 0);
        }
        let epoch = header.session.epoch;
        let Some(attachment) = self.attachment(slot).filter(|a| a.epoch == epoch) else { return };
        attachment.acked = header.ack;
        attachment.partial =
            header.sequence == attachment.done && (attachment.partial || !payload.is_empty());
        attachment.deadline = header.deadline;
        attachment.received = attachment.received.wrapping_add(payload.len() as u32);
        if header.flags & FLAG_CLOSED != 0 {
            self.dead = true;
            return;
        }
        self.active = ctx.clock;
        if header.kind == Kind::Reply {
            if self.body_since.is_some() {
                // Of what was asked before: only now it is the body's turn.
                self.body_since = Some(ctx.clock);
            }
            self.reply(ctx, slot, header.sequence, payload);
        }
    }

    fn reply(&mut self, ctx: &mut Context<'_>, slot: u16, sequence: u32, payload: &[u8]) {
        match self.pending.front_mut() {
            // The reply of a slot that has the job may take several frames; the session waits for all of it.
            Some(Pending::Remote(Remote {
                slot: asked, sequence: whole, what: What::Probe(probe), ..
            })) if *asked == slot && (probe.found || payload != NOT_FOUND) => {
                let begins = !std::mem::replace(&mut probe.found, true);
                self.barrier = !reached(*whole, sequence);
                if begins && payload.starts_with(b"RESERVED") {
                    self.is_worker(ctx.record);
                }
                self.output.push(payload);
            }
            Some(Pending::Remote(remote)) if remote.slot == slot && remote.what.is_special() => {
                if matches!(remote.what, What::ReserveJob) {
                    if payload.starts_with(b"RESERVED") {
                        self.is_worker(ctx.record);
                    }
                    self.output.push(payload);
                } else {
                    return self.reference_changed(ctx, slot, sequence, payload);
                }
            }
            _ => self.output.push(payload),
        }
        self.completed(ctx, slot, sequence);
        self.turn(ctx);
    }

    /// Commands of the slot up to `sequence` are answered.
    pub fn completed(&mut self, ctx: &Context<'_>, slot: u16, sequence: u32) {
        if let Some(attachment) = self.attachment(slot) {
            attachment.done = sequence;
        }
        while let Some(Pending::Remote(remote)) = self.pending.front() {
            if remote.slot != slot || !reached(remote.sequence, sequence) {
                break;
            }
            ctx.answered(remote);
            self.pending.pop_front();
        }
    }

    /// Gives the client what was waiting for the replies before it.
    pub fn turn(&mut self, ctx: &mut Context<'_>) {
        while let Some(pending) = self.pending.pop_front() {
            match pending {
                Pending::Local { reply, counter } => self.give(ctx.record, &reply, counter),
                remote @ Pending::Remote(_) => {
                    self.pending.push_front(remote);
                    return self.begun(ctx);
                }
            }
        }
    }

    /// What is under way up to the next reserve is begun at the owner by now: its puts make a producer.
    fn begun(&mut self, ctx: &mut Context<'_>) {
        if self.producer {
            return;
        }
        let before_reserve = self.pending.iter().take_while(
            |p| !matches!(p, Pending::Remote(remote) if matches!(remote.what, What::Reserve { .. })),
        );
        let produces = |p: &Pending| matches!(p, Pending::Remote(remote) if remote.produces);
        if before_reserve.into_iter().any(produces) {
            self.is_producer(ctx.record);
        }
    }

    fn tubes_answered(&mut self, ctx: &Context<'_>, slot: u16, number: u32, names: &[u8], whole: bool) {
        let Some(query) = self.query.as_mut().filter(|q| q.number == number) else { return };
        query.add(slot, names, whole);
        if query.is_complete() {
            let reply = query.render();
            self.query = None;
            self.barrier = false;
            self.answer(ctx.record, reply, None);
        }
    }

    /// After the client took bytes: tells owners of it where enough has come together.
    pub fn credit_owners(&mut self, ctx: &mut Context<'_>) {
        let undelivered = self.output.len() as u32;
        for at in 0..self.attachments.len() {
            let attachment = &self.attachments[at];
            let owed = attachment.received.wrapping_sub(undelivered).wrapping_sub(attachment.credited);
            if (CREDIT_BYTES as u32..1 << 31).contains(&owed) {
                self.send_frame(ctx, self.attachments[at].slot, Kind::Credit, 0, b"");
            }
        }
    }
}

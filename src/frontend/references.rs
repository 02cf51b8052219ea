//! Which slots know of a session, and how that changes: `use`, `watch` and `ignore` over several owners.
//!
//! A change is confirmed before its reply leaves: the new reference first, then the old one is let go, then the
//! reply; if the new one fails nothing has changed. Such a command has the session to itself (`barrier`). The
//! words of the reply are the owner's, but for the count of watched tubes, which only the frontend knows.

use super::session::{Attachment, Context, Pending, Session, What};
use crate::ipc::SessionId;
use crate::ipc::header::{Header, Kind};
use crate::limits::{FRAME_PAYLOAD_BYTES, TUBE_NAME_BYTES};
use crate::protocol::TubeName;

impl Session {
    /// Makes sure that the slot can be sent to: its owner is there and has a virtual connection for us.
    pub fn reach(&mut self, ctx: &mut Context<'_>, slot: u16) -> bool {
        if !self.available(ctx, slot) {
            return false;
        }
        if self.attachment(slot).is_none() {
            self.attachments.push(Attachment::new(slot, ctx.next_epoch()));
        }
        self.establish(ctx, slot);
        true
    }

    /// Tells the owner of the attachment, with what the session uses and watches there.
    pub fn establish(&mut self, ctx: &mut Context<'_>, slot: u16) {
        // Asked for each command, and nearly always so.
        if self.attachment(slot).is_none_or(|attachment| attachment.established) {
            return;
        }
        let names = self.names_at(ctx, slot);
        let index = self.id.index;
        let Some(attachment) = self.attachment(slot) else { return };
        let Some(outbox) = ctx.owners.outbox(slot) else { return };
        let id = SessionId { index, epoch: attachment.epoch };
        let mut kind = Kind::Attach;
        for names in frames(&names) {
            outbox.push(Header::new(kind, id, 0), names);
            kind = Kind::Watch;
        }
        attachment.established = true;
    }

    /// The used tube and the watched ones, a line each, as far as they are the slot's; an empty line parks.
    fn names_at(&self, ctx: &Context<'_>, slot: u16) -> Vec<u8> {
        let here = |tube: &&TubeName| ctx.topology.slot_of(tube.as_bytes()) == slot;
        let mut names = Some(&self.used).filter(here).map_or(Vec::new(), |t| t.as_bytes().to_vec());
        let mut watched = self.watched.iter().filter(here).peekable();
        if watched.peek().is_none() {
            names.push(b'\n');
        }
        for tube in watched {
            names.push(b'\n');
            names.extend_from_slice(tube.as_bytes());
        }
        names
    }

    pub fn begin_use(&mut self, ctx: &mut Context<'_>, line: &[u8], tube: TubeName) -> bool {
        let slot = ctx.topology.slot_of(tube.as_bytes());
        if !self.reach(ctx, slot) {
            return false;
        }
        self.send_alone(ctx, slot, line, What::Use(tube), false);
        true
    }

    pub fn begin_watch(&mut self, ctx: &mut Context<'_>, line: &[u8], tube: TubeName) -> bool {
        let slot = ctx.topology.slot_of(tube.as_bytes());
        if !self.reach(ctx, slot) {
            return false;
        }
        self.send_alone(ctx, slot, line, What::Watch(tube), false);
        true
    }

    /// A tube that is not watched is no slot's business: any that we are attached to counts the command.
    pub fn begin_ignore(&mut self, ctx: &mut Context<'_>, line: &[u8], tube: TubeName) -> bool {
        let watched = self.watched.contains(&tube);
        let of = if watched { &tube } else { &self.used };
        let slot = ctx.topology.slot_of(of.as_bytes());
        if !self.reach(ctx, slot) {
            return false;
        }
        let park = self.parks(ctx, slot, &tube);
        self.send_alone(ctx, slot, line, What::Ignore(tube), park);
        true
    }

    /// Ignoring the tube leaves nothing watched at its slot, but something elsewhere.
    pub fn parks(&self, ctx: &Context<'_>, slot: u16, tube: &TubeName) -> bool {
        self.watched.contains(tube) && self.watched_at(ctx, slot) == 1 && self.watched.len() > 1
    }

    fn watched_at(&self, ctx: &Context<'_>, slot: u16) -> usize {
        self.watched.iter().filter(|t| ctx.topology.slot_of(t.as_bytes()) == slot).count()
    }

    /// The reply to a command that changes references.
    pub fn reference_changed(&mut self, ctx: &mut Context<'_>, slot: u16, sequence: u32, reply: &[u8]) {
        let Some(Pending::Remote(remote)) = self.pending.pop_front() else {
            unreachable!("called for the command at the front");
        };
        ctx.answered(&remote);
        self.completed(ctx, slot, sequence);
        self.barrier = false;
        match remote.what {
            What::Use(tube) if reply.starts_with(b"USING") => {
                let old = ctx.topology.slot_of(self.used.as_bytes());
                self.used = tube;
                if old != slot && ctx.owners.is_up(old) && self.attachment(old).is_some_and(|a| a.established)
                {
                    self.expect(ctx.now, old, b"", What::Park(reply.to_vec()));
                    self.send_frame(ctx, old, Kind::ParkUse, 0, b"");
                    self.barrier = true;
                    return;
                }
                self.output.push(reply);
                self.release(ctx, old);
            }
            What::Probe(probe) => {
                self.not_found_here(ctx, probe, &remote.line);
                if self.barrier {
                    return;
                }
            }
            What::Park(reply) => {
                self.output.push(&reply);
                self.release(ctx, slot);
            }
            What::Watch(tube) if reply.starts_with(b"WATCHING") => {
                self.watched.add(tube);
                self.output.push(format!("WATCHING {}\r\n", self.watched.len()).as_bytes());
            }
            What::Ignore(tube) if reply.starts_with(b"WATCHING") => {
                self.watched.remove(&tube);
                self.output.push(format!("WATCHING {}\r\n", self.watched.len()).as_bytes());
                self.release(ctx, slot);
            }
            _ => {
                self.output.push(reply);
                self.release(ctx, slot);
            }
        }
        self.turn(ctx);
    }

    /// Lets go of a slot where the session has nothing left.
    pub fn release(&mut self, ctx: &mut Context<'_>, slot: u16) {
        let used = ctx.topology.slot_of(self.used.as_bytes()) == slot;
        if used || self.watched_at(ctx, slot) > 0 || self.flight() == Some(slot) {
            return;
        }
        let Some(at) = self.attachments.iter().position(|a| a.slot == slot) else { return };
        if self.attachments[at].deadline != 0 {
            return; // it holds a reservation there
        }
        let attachment = self.attachments.swap_remove(at);
        if attachment.established {
            detach(ctx, self.id.index, &attachment);
        }
    }

    /// Lets go of every slot where the session has nothing left: commands by id and by tube attach for a while.
    pub fn release_idle(&mut self, ctx: &mut Context<'_>) {
        if self.attachments.len() > 1 && self.pending.is_empty() && self.mode == super::session::Mode::Line {
            let slots: Vec<u16> = self.attachments.iter().map(|a| a.slot).collect();
            for slot in slots {
                self.release(ctx, slot);
            }
        }
    }

    /// The session ends: every slot lets go of it.
    pub fn detach_all(&mut self, ctx: &mut Context<'_>) {
        for attachment in self.attachments.drain(..).filter(|a| a.established) {
            detach(ctx, self.id.index, &attachment);
        }
    }
}

/// Cuts names, a line each, into what fits a frame. No name is cut, and the first frame has two or all of them.
fn frames(mut names: &[u8]) -> Vec<&[u8]> {
    const { assert!(FRAME_PAYLOAD_BYTES > 3 * (TUBE_NAME_BYTES + 1)) };
    let mut frames = Vec::new();
    while names.len() > FRAME_PAYLOAD_BYTES {
        let end = names[..=FRAME_PAYLOAD_BYTES].iter().rposition(|&b| b == b'\n');
        let end = end.expect("a name is shorter than a frame");
        frames.push(&names[..end]);
        names = &names[end + 1..];
    }
    frames.push(names);
    frames
}

fn detach(ctx: &mut Context<'_>, index: u32, attachment: &Attachment) {
    if let Some(outbox) = ctx.owners.outbox(attachment.slot) {
        outbox.push(Header::new(Kind::Detach, SessionId { index, epoch: attachment.epoch }, 0), b"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_no_frame_are_cut_between_names() {
        for length in [1, 2, 190, TUBE_NAME_BYTES] {
            for count in [0, 1, 2, 300, 700, 40_000] {
                let names = vec!["x".repeat(length); count].join("\n").into_bytes();
                let frames = frames(&names);
                assert!(frames.iter().all(|frame| frame.len() <= FRAME_PAYLOAD_BYTES));
                assert_eq!(frames.join(&b'\n'), names);
                let whole = |frame: &&[u8]| frame.split(|&b| b == b'\n').all(|name| name.len() == length);
                assert!(count == 0 || frames.iter().all(whole), "{count} names of {length} bytes");
            }
        }
    }

    #[test]
    fn names_that_just_fit_or_just_do_not_are_one_frame_or_two() {
        let name = vec![b'x'; 99];
        let mut names = vec![name; FRAME_PAYLOAD_BYTES / 100].join(&b'\n');
        names.push(b'\n');
        names.resize(FRAME_PAYLOAD_BYTES, b'y');
        assert_eq!(frames(&names).len(), 1);
        names.push(b'y');
        let cut = frames(&names);
        assert_eq!(cut.len(), 2);
        assert_eq!(cut.join(&b'\n'), names);
    }
}

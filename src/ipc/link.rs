//! One direction each of a framed stream, without I/O: `Inbox` turns received bytes into frames, `Outbox`
//! frames into bytes to send. Used by links and control channels alike.
//!
//! A caller reads into `Inbox::space`, says how much came with `received`, and takes frames with `next`; it
//! sends from `Outbox::pending` and says how much went with `sent`. A frame that breaks the format is an
//! `Err`: its link is of no use any more. "Full" is a value (`Outbox::is_full`): who sees it stops reading
//! the source that fills the outbox.

use super::header::{HEADER_BYTES, Header, HeaderError};
use crate::limits::{FRAME_PAYLOAD_BYTES, LINK_READ_BYTES, OUTBOX_FULL_BYTES};

/// The peer does not speak our protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("bad frame: {0}")]
    Header(#[from] HeaderError),
    #[error("frame of generation {got}, this link is of generation {expected}")]
    Generation { expected: u32, got: u32 },
}

/// A received frame; the payload is the inbox's own memory.
#[derive(Debug)]
pub struct Frame<'a> {
    pub header: Header,
    pub payload: &'a [u8],
}

/// Received bytes. `start <= end <= buffer.len()`; what lies between is not yet taken.
#[derive(Default)]
pub struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Which generation of the peer speaks here; `None`: the first that does.
    generation: Option<u32>,
}

impl Inbox {
    /// For frames of this generation alone.
    pub fn of(generation: u32) -> Inbox {
        Inbox { generation: Some(generation), ..Inbox::default() }
    }

    /// Room to receive into; at least a whole frame once what was received has been taken.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.buffer.len() - self.end < HEADER_BYTES + FRAME_PAYLOAD_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let enough = LINK_READ_BYTES.max(self.end + HEADER_BYTES + FRAME_PAYLOAD_BYTES);
        if self.buffer.len() < enough {
            self.buffer.resize(enough, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// `n` bytes of `space` were filled.
    pub fn received(&mut self, n: usize) {
        assert!(n <= self.buffer.len() - self.end);
        self.end += n;
    }

    /// The next whole frame, `None` if it has not come yet. All frames of an inbox are of one generation.
    #[allow(clippy::should_implement_trait)] // an iterator can't lend its items
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, ProtocolError> {
        let have = &self.buffer[self.start..self.end];
        let Some(head) = have.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(head)?;
        let whole = HEADER_BYTES + header.length as usize;
        if have.len() < whole {
            return Ok(None);
        }
        let expected = *self.generation.get_or_insert(header.generation);
        if header.generation != expected {
            return Err(ProtocolError::Generation { expected, got: header.generation });
        }
        let payload = &self.buffer[self.start + HEADER_BYTES..self.start + whole];
        self.start += whole;
        Ok(Some(Frame { header, payload }))
    }
}

/// Bytes to send. `sent <= end <= buffer.len()`; what lies between `sent` and `end` waits to go out, the rest
/// of the buffer is room that was zeroed once and is used again.
pub struct Outbox {
    buffer: Vec<u8>,
    sent: usize,
    end: usize,
    generation: u32,
}

impl Outbox {
    /// An outbox of this process generation, which every frame will carry.
    pub fn new(generation: u32) -> Outbox {
        Outbox { buffer: Vec::new(), sent: 0, end: 0, generation }
    }

    /// Queues a frame. `header.length` and `header.generation` are filled in here.
    pub fn push(&mut self, header: Header, payload: &[u8]) {
        self.push_with(header, payload.len(), |_, room| {
            room.copy_from_slice(payload);
            Some(payload.len())
        });
    }

    /// Queues a frame that is written in place: `fill` may change the header, gets `room` bytes for the
    /// payload and says how many it used; with `None` there is no frame.
    pub fn push_with(
        &mut self,
        mut header: Header,
        room: usize,
        fill: impl FnOnce(&mut Header, &mut [u8]) -> Option<usize>,
    ) {
        assert!(room <= FRAME_PAYLOAD_BYTES);
        let payload = self.end + HEADER_BYTES;
        if self.buffer.len() < payload + room {
            self.buffer.resize(payload + room, 0);
        }
        let Some(used) = fill(&mut header, &mut self.buffer[payload..payload + room]) else { return };
        assert!(used <= room);
        header.length = used as u32;
        header.generation = self.generation;
        self.buffer[self.end..payload].copy_from_slice(&header.encode());
        self.end = payload + used;
    }

    /// What is to be sent.
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.sent..self.end]
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.end
    }

    /// The peer is behind: stop reading what makes more frames for it.
    pub fn is_full(&self) -> bool {
        self.end - self.sent >= OUTBOX_FULL_BYTES
    }

    /// The first `n` bytes of `pending` went out.
    pub fn sent(&mut self, n: usize) {
        assert!(n <= self.end - self.sent);
        self.sent += n;
        if self.sent == self.end {
            self.sent = 0;
            self.end = 0;
            if self.buffer.len() > 2 * OUTBOX_FULL_BYTES {
                self.buffer = Vec::new();
            }
        } else if self.sent >= OUTBOX_FULL_BYTES {
            self.buffer.copy_within(self.sent..self.end, 0);
            self.end -= self.sent;
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Kind, SessionId};
    use super::*;

    fn header(sequence: u32) -> Header {
        Header::new(Kind::Command, SessionId { index: 1, epoch: 2 }, sequence)
    }

    fn receive(inbox: &mut Inbox, bytes: &[u8]) {
        let space = inbox.space();
        space[..bytes.len()].copy_from_slice(bytes);
        inbox.received(bytes.len());
    }

    #[test]
    fn frames_cut_at_every_byte_come_out_whole_and_in_order() {
        let mut outbox = Outbox::new(7);
        outbox.push(header(1), b"first");
        outbox.push(header(2), b"");
        outbox.push(header(3), &[9; 300]);
        let bytes = outbox.pending().to_vec();
        for cut in 0..=bytes.len() {
            let mut inbox = Inbox::default();
            let mut seen = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                receive(&mut inbox, part);
                while let Some(f) = inbox.next().unwrap() {
                    seen.push((f.header.sequence, f.payload.to_vec()));
                }
            }
            assert_eq!(seen, [(1, b"first".to_vec()), (2, vec![]), (3, vec![9; 300])]);
        }
    }

    #[test]
    fn frame_of_another_generation_is_refused() {
        let mut inbox = Inbox::default();
        for generation in [1, 2] {
            let mut outbox = Outbox::new(generation);
            outbox.push(header(1), b"x");
            receive(&mut inbox, outbox.pending());
        }
        assert!(inbox.next().unwrap().is_some());
        assert_eq!(inbox.next().unwrap_err(), ProtocolError::Generation { expected: 1, got: 2 });
    }

    #[test]
    fn outbox_sent_in_pieces_keeps_the_rest() {
        let mut outbox = Outbox::new(1);
        outbox.push(header(1), &[1; 100]);
        let bytes = outbox.pending().to_vec();
        outbox.sent(13);
        assert_eq!(outbox.pending(), &bytes[13..]);
        outbox.sent(bytes.len() - 13);
        assert!(outbox.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn inbox_fed_garbage_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..4096)) {
            let mut inbox = Inbox::default();
            receive(&mut inbox, &bytes);
            while let Ok(Some(_)) = inbox.next() {}
        }
    }
}

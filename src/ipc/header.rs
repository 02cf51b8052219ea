//! The fixed header of every frame. Native endian: both ends are one binary on one host.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | `length`: payload bytes behind the header, at most `FRAME_PAYLOAD_BYTES` |
//! | 4 | 1 | `kind` |
//! | 5 | 1 | `version`: `IPC_VERSION` |
//! | 6 | 2 | `flags`, by kind |
//! | 8 | 4 | `generation` of the sender |
//! | 12 | 4 | `sequence`: the last command of the session that the frame begins (request) or answers (reply) |
//! | 16 | 8 | `session`: epoch in the upper, index in the lower half |
//! | 24 | 4 | `ack`: payload bytes of this session that the sender has used up, counted modulo 2^32 |
//! | 28 | 4 | zero |
//! | 32 | 8 | `deadline`: soonest end of a reservation of this session at the sending owner, 0: none |

use crate::limits::FRAME_PAYLOAD_BYTES;

/// Raised with every change of the wire, released or not.
pub const IPC_VERSION: u8 = 8;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 40;

/// One client connection as an owner knows it, within one frontend generation: an index that is used again
/// and an epoch that tells its users apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SessionId {
    pub index: u32,
    pub epoch: u32,
}

impl SessionId {
    pub fn to_bits(self) -> u64 {
        (u64::from(self.epoch) << 32) | u64::from(self.index)
    }

    pub fn from_bits(bits: u64) -> SessionId {
        SessionId { index: bits as u32, epoch: (bits >> 32) as u32 }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a frame is. Numbers are frozen: a kind that goes leaves its number unused.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $number,)* }

        impl Kind {
            /// `None` for a number that no kind has.
            pub fn from_number(number: u8) -> Option<Kind> {
                match number { $($number => Some(Kind::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    /// Child to supervisor: who I am and which topology I computed.
    Hello = 0x01,
    /// Supervisor to child: everything it needs to serve; descriptors come with it.
    Start = 0x02,
    /// Child to supervisor: I serve.
    Ready = 0x03,
    /// Supervisor to child: a link to a peer generation; its descriptor comes with it.
    LinkUp = 0x04,
    /// Supervisor to child: a peer generation is gone.
    LinkDown = 0x05,
    /// Supervisor to child: no new jobs from now on.
    Drain = 0x06,
    /// Supervisor to child: finish and leave.
    Stop = 0x07,
    /// Supervisor to child: are you there?
    Ping = 0x08,
    /// Child to supervisor: yes.
    Pong = 0x09,
    /// Child to supervisor, last: why I can't go on, as text of at most `FAREWELL_BYTES`.
    Farewell = 0x0a,
    /// Supervisor to frontend: the links to all owners that serve now have been told; accept clients.
    Serve = 0x0b,
    /// Owner to supervisor: the slot's log is fit to be opened, and nothing has been changed yet.
    Checked = 0x0c,
    /// Supervisor to owner: every slot's log is fit to be opened; go on.
    Open = 0x0d,
    /// Owner to supervisor, before a `Pong`: numbers of tubes, a line each.
    Tubes = 0x0e,

    /// Both ways, first on a link: role, generation and fingerprint.
    LinkHello = 0x20,
    /// Frontend to owner: make the session's virtual connection.
    Attach = 0x21,
    /// Frontend to owner: the session ends here.
    Detach = 0x22,
    /// Frontend to owner: bytes of the session's commands, bodies included.
    Command = 0x23,
    /// Frontend to owner: end the session's waiting reserve.
    Cancel = 0x24,
    /// Either way: nothing but the header's `ack` and `deadline`.
    Credit = 0x25,
    /// Frontend to owner: the session's used tube is elsewhere now.
    ParkUse = 0x26,
    /// Frontend to owner: a question about the slot, not about the session's own state.
    Query = 0x27,
    /// Frontend to owner, behind an `Attach` that had no room for them: more tubes that the session watches.
    Watch = 0x28,
    /// Owner to frontend: reply bytes. One reply frame never answers commands of two command frames.
    Reply = 0x30,
    /// Owner to frontend: the answer to the query of the same sequence.
    Answer = 0x31,
}

/// `Command`: the session's watch list here may become empty (it watches tubes of other slots).
pub const FLAG_PARK_WATCH: u16 = 0x0001;
/// `Answer`: another frame of the same answer follows.
pub const FLAG_MORE: u16 = 0x0002;
/// `Reply`: the owner has given the session up.
pub const FLAG_CLOSED: u16 = 0x0004;
/// `Cancel`: the reserve ends with DEADLINE_SOON. Without it the client has half-closed: this and any later
/// reserve of the session ends with TIMED_OUT where it would wait.
pub const FLAG_DEADLINE_SOON: u16 = 0x0008;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub length: u32,
    pub kind: Kind,
    pub flags: u16,
    pub generation: u32,
    pub sequence: u32,
    pub session: SessionId,
    pub ack: u32,
    pub deadline: i64,
}

/// A header that can't be one. The link it came over is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("frame of {0} bytes, at most {FRAME_PAYLOAD_BYTES} are allowed")]
    TooLong(u32),
    #[error("unknown frame kind {0:#04x}")]
    UnknownKind(u8),
    #[error("IPC version {0}, this is version {IPC_VERSION}")]
    Version(u8),
}

impl Header {
    pub fn new(kind: Kind, session: SessionId, sequence: u32) -> Header {
        Header { length: 0, kind, flags: 0, generation: 0, sequence, session, ack: 0, deadline: 0 }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        b[0..4].copy_from_slice(&self.length.to_ne_bytes());
        b[4] = self.kind as u8;
        b[5] = IPC_VERSION;
        b[6..8].copy_from_slice(&self.flags.to_ne_bytes());
        b[8..12].copy_from_slice(&self.generation.to_ne_bytes());
        b[12..16].copy_from_slice(&self.sequence.to_ne_bytes());
        b[16..24].copy_from_slice(&self.session.to_bits().to_ne_bytes());
        b[24..28].copy_from_slice(&self.ack.to_ne_bytes());
        b[32..40].copy_from_slice(&self.deadline.to_ne_bytes());
        b
    }

    pub fn decode(b: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        let u32_at = |i: usize| u32::from_ne_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | (u64::from(u32_at(i + 4)) << 32);
        if b[5] != IPC_VERSION {
            return Err(HeaderError::Version(b[5]));
        }
        let length = u32_at(0);
        if length as usize > FRAME_PAYLOAD_BYTES {
            return Err(HeaderError::TooLong(length));
        }
        Ok(Header {
            length,
            kind: Kind::from_number(b[4]).ok_or(HeaderError::UnknownKind(b[4]))?,
            flags: u16::from_ne_bytes([b[6], b[7]]),
            generation: u32_at(8),
            sequence: u32_at(12),
            session: SessionId::from_bits(u64_at(16)),
            ack: u32_at(24),
            deadline: u64_at(32) as i64,
        })
    }
}

/// `u64_at` above composes from halves, which is right on little-endian hosts only.
const _: () = assert!(cfg!(target_endian = "little"), "x86-64 and aarch64 Linux are little-endian");

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            length: 17,
            kind: Kind::Command,
            flags: FLAG_PARK_WATCH,
            generation: 3,
            sequence: 0xfedc_ba98,
            session: SessionId { index: 5, epoch: 9 },
            ack: 77,
            deadline: -12345678901234,
        }
    }

    #[test]
    fn header_encoded_decodes_to_itself() {
        assert_eq!(Header::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn header_of_another_version_is_refused() {
        let mut b = sample().encode();
        b[5] = IPC_VERSION + 1;
        assert_eq!(Header::decode(&b), Err(HeaderError::Version(IPC_VERSION + 1)));
    }

    #[test]
    fn header_with_unknown_kind_is_refused() {
        let mut b = sample().encode();
        b[4] = 0xff;
        assert_eq!(Header::decode(&b), Err(HeaderError::UnknownKind(0xff)));
    }

    #[test]
    fn header_with_a_length_over_the_bound_is_refused() {
        let mut b = sample().encode();
        b[0..4].copy_from_slice(&(FRAME_PAYLOAD_BYTES as u32 + 1).to_ne_bytes());
        assert_eq!(Header::decode(&b), Err(HeaderError::TooLong(FRAME_PAYLOAD_BYTES as u32 + 1)));
    }
}

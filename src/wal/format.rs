//! The bytes of a log: versions, record layout, the fixed part of a record.
//!
//! A file is its version (4 bytes), then records, then zeros up to its size. A record is
//!
//! | part | version 7 | version 5 |
//! | --- | --- | --- |
//! | length of the tube name, 0 in a short record | 4 bytes, signed | 8 bytes |
//! | tube name, no terminator | 1 to 200 bytes | the same |
//! | job record | 80 bytes, times in ns | 77 bytes, times in µs |
//! | body with its CR LF, in a full record only | `body_size` bytes | the same |
//!
//! All in the machine's byte order, as C structs with their padding: the core writes its memory. The offsets
//! below are the natural alignment of LP64 Linux (x86-64 and aarch64 agree); `layout` proves them for the
//! machine this is compiled for, and `tests/wal_layout.rs` against a C compiler.

use std::fmt;

use crate::limits;

/// Bytes of the version at the start of a file.
pub const VERSION_BYTES: usize = 4;

/// Smallest `body_size`: an empty body still has its CR LF.
pub const BODY_BYTES_MIN: u32 = 2;

/// Largest `body_size`: the largest body that any `-z` admits, and its CR LF.
pub const BODY_BYTES_MAX: u32 = limits::JOB_BYTES_MAX as u32 + 2;

/// Offsets of the fields of a job record, the same in both versions.
pub mod offset {
    pub const ID: usize = 0;
    pub const PRI: usize = 8;
    pub const DELAY: usize = 16;
    pub const TTR: usize = 24;
    pub const BODY_SIZE: usize = 32;
    pub const CREATED_AT: usize = 40;
    pub const DEADLINE_AT: usize = 48;
    pub const RESERVES: usize = 56;
    pub const TIMEOUTS: usize = 60;
    pub const RELEASES: usize = 64;
    pub const BURIES: usize = 68;
    pub const KICKS: usize = 72;
    pub const STATE: usize = 76;
}

/// Versions of the format that the core reads. It writes 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V5,
    V7,
}

impl Version {
    pub fn from_number(number: i32) -> Option<Version> {
        match number {
            5 => Some(Version::V5),
            7 => Some(Version::V7),
            _ => None,
        }
    }

    pub fn number(self) -> i32 {
        match self {
            Version::V5 => 5,
            Version::V7 => 7,
        }
    }

    /// Bytes of the length in front of a tube name: C's `size_t` once, `int` now.
    pub const fn name_length_bytes(self) -> usize {
        match self {
            Version::V5 => 8,
            Version::V7 => 4,
        }
    }

    /// Bytes of a job record: version 5 left out the padding behind the last field.
    pub const fn jobrec_bytes(self) -> usize {
        match self {
            Version::V5 => offset::STATE + 1,
            Version::V7 => 80,
        }
    }

    /// Bytes of a short record.
    pub const fn short_bytes(self) -> usize {
        self.name_length_bytes() + self.jobrec_bytes()
    }

    /// What turns a time of this version into nanoseconds.
    const fn time_factor(self) -> i64 {
        match self {
            Version::V5 => 1000,
            Version::V7 => 1,
        }
    }
}

/// State of a job as it is written. The core's sixth state (a copy being sent) never gets into a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In a short record: the job was deleted.
    Invalid,
    Ready,
    /// Read back as ready: reservations don't outlive a server.
    Reserved,
    Buried,
    Delayed,
}

impl State {
    pub fn from_byte(byte: u8) -> Option<State> {
        Some(match byte {
            0 => State::Invalid,
            1 => State::Ready,
            2 => State::Reserved,
            3 => State::Buried,
            4 => State::Delayed,
            _ => return None,
        })
    }

    pub fn byte(self) -> u8 {
        match self {
            State::Invalid => 0,
            State::Ready => 1,
            State::Reserved => 2,
            State::Buried => 3,
            State::Delayed => 4,
        }
    }
}

impl fmt::Display for State {
    /// The word that `stats-job` has for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Invalid => "invalid",
            State::Ready => "ready",
            State::Reserved => "reserved",
            State::Buried => "buried",
            State::Delayed => "delayed",
        })
    }
}

/// The fixed part of a record. Times are nanoseconds in both versions, `*_at` since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobrec {
    pub id: u64,
    pub pri: u32,
    pub delay: i64,
    pub ttr: i64,
    /// Bytes of the body with its CR LF. Not yet bounded.
    pub body_size: i32,
    pub created_at: i64,
    pub deadline_at: i64,
    pub reserves: u32,
    pub timeouts: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
    pub state: State,
}

impl Jobrec {
    /// Of a ready job to which nothing has happened. All else is zero, the times too.
    pub fn ready(id: u64, body_size: i32) -> Jobrec {
        Jobrec {
            id,
            pri: 0,
            delay: 0,
            ttr: 0,
            body_size,
            created_at: 0,
            deadline_at: 0,
            reserves: 0,
            timeouts: 0,
            releases: 0,
            buries: 0,
            kicks: 0,
            state: State::Ready,
        }
    }
}

/// Why the fixed part of a record can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadJobrec {
    State(u8),
    /// A time of version 5 that has no value in nanoseconds.
    Time,
}

impl Jobrec {
    /// Reads a record's fixed part. Panics unless `bytes` are exactly the version's `jobrec_bytes`.
    pub fn decode(version: Version, bytes: &[u8]) -> Result<Jobrec, BadJobrec> {
        assert_eq!(bytes.len(), version.jobrec_bytes());
        let time = |at| i64::from_ne_bytes(field(bytes, at)).checked_mul(version.time_factor());
        let count = |at| u32::from_ne_bytes(field(bytes, at));
        let byte = bytes[offset::STATE];
        Ok(Jobrec {
            id: u64::from_ne_bytes(field(bytes, offset::ID)),
            pri: count(offset::PRI),
            delay: time(offset::DELAY).ok_or(BadJobrec::Time)?,
            ttr: time(offset::TTR).ok_or(BadJobrec::Time)?,
            body_size: i32::from_ne_bytes(field(bytes, offset::BODY_SIZE)),
            created_at: time(offset::CREATED_AT).ok_or(BadJobrec::Time)?,
            deadline_at: time(offset::DEADLINE_AT).ok_or(BadJobrec::Time)?,
            reserves: count(offset::RESERVES),
            timeouts: count(offset::TIMEOUTS),
            releases: count(offset::RELEASES),
            buries: count(offset::BURIES),
            kicks: count(offset::KICKS),
            state: State::from_byte(byte).ok_or(BadJobrec::State(byte))?,
        })
    }

    /// The bytes of version 7, padding zero.
    pub fn encode(&self) -> [u8; Version::V7.jobrec_bytes()] {
        let mut out = [0; Version::V7.jobrec_bytes()];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset::ID, &self.id.to_ne_bytes());
        put(offset::PRI, &self.pri.to_ne_bytes());
        put(offset::DELAY, &self.delay.to_ne_bytes());
        put(offset::TTR, &self.ttr.to_ne_bytes());
        put(offset::BODY_SIZE, &self.body_size.to_ne_bytes());
        put(offset::CREATED_AT, &self.created_at.to_ne_bytes());
        put(offset::DEADLINE_AT, &self.deadline_at.to_ne_bytes());
        put(offset::RESERVES, &self.reserves.to_ne_bytes());
        put(offset::TIMEOUTS, &self.timeouts.to_ne_bytes());
        put(offset::RELEASES, &self.releases.to_ne_bytes());
        put(offset::BURIES, &self.buries.to_ne_bytes());
        put(offset::KICKS, &self.kicks.to_ne_bytes());
        put(offset::STATE, &[self.state.byte()]);
        out
    }
}

/// The id alone: 0 is the end of the records, whatever else is in the place of a job record.
pub fn jobrec_id(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(field(bytes, offset::ID))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

/// A legal tube name, held without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TubeName {
    // 1 <= length <= TUBE_NAME_BYTES; bytes beyond it are zero
    length: u8,
    bytes: [u8; limits::TUBE_NAME_BYTES],
}

impl TubeName {
    /// `None` unless the protocol admits the name: 1 to 200 of `A-Za-z0-9-+/;.$_()`, the first no `-`.
    pub fn new(name: &[u8]) -> Option<TubeName> {
        let legal = |&b: &u8| b.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&b);
        let first = *name.first()?;
        if name.len() > limits::TUBE_NAME_BYTES || first == b'-' || !name.iter().all(legal) {
            return None;
        }
        let mut bytes = [0; limits::TUBE_NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        Some(TubeName { length: name.len() as u8, bytes })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for TubeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|&b| write!(f, "{}", b as char))
    }
}

impl fmt::Debug for TubeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TubeName({self})")
    }
}

const _: () = assert!(limits::TUBE_NAME_BYTES <= u8::MAX as usize);
const _: () = assert!(limits::JOB_BYTES_MAX + 2 <= i32::MAX as usize);

/// The C struct as this machine's compiler lays it out, against the constants above.
mod layout {
    use super::{Version, offset};
    use std::mem::{offset_of, size_of};

    #[allow(dead_code, reason = "only its layout is of interest")]
    #[repr(C)]
    struct Mirror {
        id: u64,
        pri: u32,
        delay: i64,
        ttr: i64,
        body_size: i32,
        created_at: i64,
        deadline_at: i64,
        reserves: u32,
        timeouts: u32,
        releases: u32,
        buries: u32,
        kicks: u32,
        state: u8,
    }

    const _: () = {
        assert!(offset_of!(Mirror, id) == offset::ID);
        assert!(offset_of!(Mirror, pri) == offset::PRI);
        assert!(offset_of!(Mirror, delay) == offset::DELAY);
        assert!(offset_of!(Mirror, ttr) == offset::TTR);
        assert!(offset_of!(Mirror, body_size) == offset::BODY_SIZE);
        assert!(offset_of!(Mirror, created_at) == offset::CREATED_AT);
        assert!(offset_of!(Mirror, deadline_at) == offset::DEADLINE_AT);
        assert!(offset_of!(Mirror, reserves) == offset::RESERVES);
        assert!(offset_of!(Mirror, timeouts) == offset::TIMEOUTS);
        assert!(offset_of!(Mirror, releases) == offset::RELEASES);
        assert!(offset_of!(Mirror, buries) == offset::BURIES);
        assert!(offset_of!(Mirror, kicks) == offset::KICKS);
        assert!(offset_of!(Mirror, state) == offset::STATE);
        assert!(size_of::<Mirror>() == Version::V7.jobrec_bytes());
        assert!(size_of::<usize>() == Version::V5.name_length_bytes());
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn sample() -> Jobrec {
        Jobrec {
            id: 0x1122334455667788,
            pri: 1,
            delay: 2,
            ttr: 3,
            body_size: 4,
            created_at: 5,
            deadline_at: 6,
            reserves: 7,
            timeouts: 8,
            releases: 9,
            buries: 10,
            kicks: 11,
            state: State::Buried,
        }
    }

    #[test]
    fn jobrec_round_trips_in_version_7_and_scales_in_version_5() {
        let jobrec = sample();
        let bytes = jobrec.encode();
        assert_eq!(Jobrec::decode(Version::V7, &bytes), Ok(jobrec));
        assert_eq!(jobrec_id(&bytes), jobrec.id);
        let old = Jobrec::decode(Version::V5, &bytes[..77]).unwrap();
        assert_eq!((old.delay, old.ttr, old.created_at, old.deadline_at), (2000, 3000, 5000, 6000));
        assert_eq!((old.id, old.pri, old.body_size, old.state), (jobrec.id, 1, 4, State::Buried));
    }

    #[test]
    fn jobrec_with_an_unknown_state_or_a_time_too_large_is_an_error() {
        let mut bytes = sample().encode();
        for state in 5..=255 {
            bytes[offset::STATE] = state;
            assert_eq!(Jobrec::decode(Version::V7, &bytes), Err(BadJobrec::State(state)));
        }
        let bytes = Jobrec { created_at: i64::MAX / 999, ..sample() }.encode();
        assert_eq!(Jobrec::decode(Version::V5, &bytes[..77]), Err(BadJobrec::Time));
    }

    #[test]
    fn tube_name_is_what_the_protocol_admits() {
        for name in ["a", "0", "+-", "/;.$_()", &"x".repeat(200)] {
            assert_eq!(TubeName::new(name.as_bytes()).unwrap().as_bytes(), name.as_bytes());
        }
        for name in ["", "-a", "a b", "a\0", "a,b", "\u{e4}", &"x".repeat(201)] {
            assert_eq!(TubeName::new(name.as_bytes()), None, "{name}");
        }
    }
}

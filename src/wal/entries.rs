//! What `sorted` sorts: records, live jobs and their ids, in a fixed size.

use std::sync::Arc;

use super::format::{Jobrec, Version};
use super::jobs::{Event, Full};
use super::sorter::Entry;

/// File and offset of a record: replay goes by this order.
pub type Place = (u32, u64);

/// A record, as far as it is of interest here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mention {
    pub jobrec: Jobrec,
    pub file: u32,
    pub offset: u64,
    /// Of a full record: the tube's number, and where the body is.
    pub full: Option<(u32, u64)>,
    /// A deletion that a crash can have cut.
    pub can_be_cut: bool,
}

impl Mention {
    pub fn place(&self) -> Place {
        (self.file, self.offset)
    }

    /// `tubes` by their number.
    pub fn event(&self, tubes: &[Arc<[u8]>]) -> Event {
        let full = self.full.map(|(tube, body_offset)| Full {
            tube: tubes[tube as usize].clone(),
            file: self.file,
            body_offset,
        });
        Event { jobrec: self.jobrec, full }
    }
}

/// Of an encoded job record.
const JOBREC: usize = Version::V7.jobrec_bytes();

/// In the place of a tube's number.
const NO_TUBE: u32 = u32::MAX;

impl Entry for Mention {
    type Key = (u64, Place);
    const BYTES: usize = JOBREC + 4 + 8 + 4 + 8 + 1;

    fn key(&self) -> (u64, Place) {
        (self.jobrec.id, self.place())
    }

    fn encode(&self, into: &mut [u8]) {
        let (tube, body_offset) = self.full.unwrap_or((NO_TUBE, 0));
        Fields(into)
            .put(self.jobrec.encode())
            .put(self.file.to_ne_bytes())
            .put(self.offset.to_ne_bytes())
            .put(tube.to_ne_bytes())
            .put(body_offset.to_ne_bytes())
            .put([u8::from(self.can_be_cut)]);
    }

    fn decode(bytes: &[u8]) -> Mention {
        let mut fields = Taken(bytes);
        let jobrec = fields.jobrec();
        let (file, offset) = (fields.u32(), fields.u64());
        let (tube, body_offset) = (fields.u32(), fields.u64());
        let [can_be_cut] = fields.take();
        Mention {
            jobrec,
            file,
            offset,
            full: (tube != NO_TUBE).then_some((tube, body_offset)),
            can_be_cut: can_be_cut != 0,
        }
    }
}

/// A live job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Living {
    pub jobrec: Jobrec,
    pub file: u32,
    pub body_offset: u64,
    pub tube: u32,
    /// Which reading found it.
    pub reading: u32,
    /// Its place in replay's list.
    pub entered: Place,
}

impl Entry for Living {
    type Key = (u32, Place);
    const BYTES: usize = JOBREC + 4 + 8 + 4 + 4 + 4 + 8;

    fn key(&self) -> (u32, Place) {
        (self.reading, self.entered)
    }

    fn encode(&self, into: &mut [u8]) {
        Fields(into)
            .put(self.jobrec.encode())
            .put(self.file.to_ne_bytes())
            .put(self.body_offset.to_ne_bytes())
            .put(self.tube.to_ne_bytes())
            .put(self.reading.to_ne_bytes())
            .put(self.entered.0.to_ne_bytes())
            .put(self.entered.1.to_ne_bytes());
    }

    fn decode(bytes: &[u8]) -> Living {
        let mut fields = Taken(bytes);
        Living {
            jobrec: fields.jobrec(),
            file: fields.u32(),
            body_offset: fields.u64(),
            tube: fields.u32(),
            reading: fields.u32(),
            entered: (fields.u32(), fields.u64()),
        }
    }
}

/// That an id is alive in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: u64,
    pub reading: u32,
    pub entered: Place,
}

impl Entry for Claim {
    type Key = (u64, u32);
    const BYTES: usize = 8 + 4 + 4 + 8;

    fn key(&self) -> (u64, u32) {
        (self.id, self.reading)
    }

    fn encode(&self, into: &mut [u8]) {
        Fields(into)
            .put(self.id.to_ne_bytes())
            .put(self.reading.to_ne_bytes())
            .put(self.entered.0.to_ne_bytes())
            .put(self.entered.1.to_ne_bytes());
    }

    fn decode(bytes: &[u8]) -> Claim {
        let mut fields = Taken(bytes);
        Claim { id: fields.u64(), reading: fields.u32(), entered: (fields.u32(), fields.u64()) }
    }
}

/// What of an entry's bytes is still to be written.
struct Fields<'a>(&'a mut [u8]);

impl<'a> Fields<'a> {
    fn put<const N: usize>(self, bytes: [u8; N]) -> Fields<'a> {
        let (field, rest) = self.0.split_at_mut(N);
        field.copy_from_slice(&bytes);
        Fields(rest)
    }
}

/// What of an entry's bytes is still to be read.
struct Taken<'a>(&'a [u8]);

impl Taken<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_at(N);
        self.0 = rest;
        field.try_into().expect("N bytes")
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn jobrec(&mut self) -> Jobrec {
        let bytes: [u8; JOBREC] = self.take();
        Jobrec::decode(Version::V7, &bytes).expect("as it was encoded")
    }
}

#[cfg(test)]
mod tests {
    use super::super::builder::job;
    use super::*;

    fn through_bytes<T: Entry>(entry: &T) -> T {
        let mut bytes = vec![0xee; T::BYTES];
        entry.encode(&mut bytes);
        T::decode(&bytes)
    }

    #[test]
    fn entries_are_the_same_behind_their_bytes() {
        let (file, place) = (7, (3, 1 << 40));
        for (full, can_be_cut) in [(None, true), (Some((9, 1 << 33)), false)] {
            let mention = Mention { jobrec: job(5), file, offset: 1 << 35, full, can_be_cut };
            assert_eq!(through_bytes(&mention), mention);
        }
        let living = Living { jobrec: job(6), file, body_offset: 99, tube: 1, reading: 2, entered: place };
        assert_eq!(through_bytes(&living), living);
        let claim = Claim { id: u64::MAX, reading: 2, entered: place };
        assert_eq!(through_bytes(&claim), claim);
    }
}

//! Checksums of records, in bytes of the format that hold nothing: the padding of the job record in version 7.
//!
//! | bytes of the job record | content |
//! | --- | --- |
//! | 12 to 15 | XXH64, its lower half, of the record's offset and the record, with these bytes and 78 zero |
//! | 78 | its highest byte, of the same without the body: few places that are no record have their body read |
//! | 36 to 39 | offset up to which the log was on disk when this was written |
//! | 77 | in the file that is so many before this one; 255: not known |
//! | 79 | 0xa5: a job record does not end in zeros |
//!
//! The hash of a body begins with that of what is in front of it. A file in which all records are sealed begins
//! with a mark: a short record of an id that no job has, with the file's seed and the place where the records before
//! the file's first one end. Servers that know nothing of it skip it, and what they write themselves, with the padding
//! as they have read it, is in files without one. A file without records has no mark yet.
//!
//! So a record is what was written, or isn't; what a file lacks at its end shows in the next one; and of a place that
//! is not what was written, records behind it tell whether it was synced. `shim/wal_sum.c` writes all this. Pure.

use xxhash_rust::xxh64::xxh64;

use super::format::{Version, offset};

/// Bytes of the mark, behind the version.
pub(super) const MARK_BYTES: usize = Version::V7.short_bytes();

const MARK_ID: &[u8; 8] = b"trellis1";

const SUM: std::ops::Range<usize> = 12..16;
const SYNCED: std::ops::Range<usize> = 36..40;
const FILES_BACK: usize = 77;
const HEAD_SUM: usize = 78;
const END: usize = 79;

const FILES_BACK_UNKNOWN: u8 = 255;

const _: () = assert!(SUM.start == offset::PRI + 4 && SUM.end == offset::DELAY);
const _: () = assert!(SYNCED.start == offset::BODY_SIZE + 4 && SYNCED.end == offset::CREATED_AT);
const _: () = assert!(FILES_BACK == offset::STATE + 1 && END + 1 == Version::V7.jobrec_bytes());

/// How much of the log was surely on disk when a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    Unknown,
    /// All in front of this offset in the file that is so many before the record's own.
    UpTo {
        files_back: u8,
        offset: u32,
    },
}

impl Synced {
    /// Said by a record of this file.
    pub fn place(self, file: u32) -> Option<Place> {
        match self {
            Synced::Unknown => None,
            Synced::UpTo { files_back, offset } => {
                Some((file.saturating_sub(files_back.into()), offset.into()))
            }
        }
    }
}

/// What the mark of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Of the file's sums.
    pub(super) seed: u64,
    /// Where the record before the file's first one ends; `None`: there was none, or an earlier version wrote this.
    pub(super) behind: Option<Place>,
}

/// A file, by its number, and an offset in it.
pub type Place = (u32, u64);

/// `None` if this is no mark.
pub(super) fn mark(bytes: &[u8]) -> Option<Mark> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (id, rest) = rest.split_first_chunk::<8>()?;
    let (seed, rest) = rest.split_first_chunk::<8>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let (file, rest) = rest.split_first_chunk::<4>()?;
    let (offset, _) = rest.split_first_chunk::<4>()?;
    let file = u32::from_ne_bytes(*file);
    let mark = Mark {
        seed: u64::from_ne_bytes(*seed),
        behind: (file > 0).then_some((file, u32::from_ne_bytes(*offset).into())),
    };
    let whole = *length == [0; 4] && id == MARK_ID && u64::from_ne_bytes(*sum) == mark_sum(mark);
    whole.then_some(mark)
}

fn mark_sum(mark: Mark) -> u64 {
    let sum = xxh64(&[&MARK_ID[..], &mark.seed.to_ne_bytes()].concat(), 0);
    mark.behind.map_or(sum, |behind| xxh64(&place_bytes(behind), sum))
}

fn place_bytes((file, offset): Place) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&file.to_ne_bytes());
    bytes[4..].copy_from_slice(&(offset as u32).to_ne_bytes());
    bytes
}

/// The seed of a file in the directory with this one.
pub(super) fn file_seed(directory: u64, number: u32) -> u64 {
    directory ^ u64::from(number)
}

/// A record's checksum as it is stored, and what comes with it.
pub(super) struct Seal {
    sum: u32,
    head_sum: u8,
    pub(super) synced: Synced,
}

/// Takes the seal out of a job record, which is then as it is hashed. Panics unless it is one of version 7.
pub(super) fn take(jobrec: &mut [u8]) -> Seal {
    assert_eq!(jobrec.len(), Version::V7.jobrec_bytes());
    let four = |at: std::ops::Range<usize>| u32::from_ne_bytes(jobrec[at].try_into().expect("four bytes"));
    let (sum, head_sum) = (four(SUM), jobrec[HEAD_SUM]);
    let synced = match jobrec[FILES_BACK] {
        FILES_BACK_UNKNOWN => Synced::Unknown,
        files_back => Synced::UpTo { files_back, offset: four(SYNCED) },
    };
    jobrec[SUM].fill(0);
    jobrec[HEAD_SUM] = 0;
    Seal { sum, head_sum, synced }
}

/// Of the record's offset and all in front of its body. A body is hashed with this as the seed.
pub(super) fn head_sum(seed: u64, at: u64, head: &[u8]) -> u64 {
    let mut bytes = Vec::with_capacity(8 + head.len());
    bytes.extend_from_slice(&at.to_ne_bytes());
    bytes.extend_from_slice(head);
    xxh64(&bytes, seed)
}

impl Seal {
    pub(super) fn fits_head(&self, sum: u64) -> bool {
        (sum >> 56) as u8 == self.head_sum
    }

    /// The sum of all of the record.
    pub(super) fn fits(&self, sum: u64) -> bool {
        sum as u32 == self.sum
    }
}

/// Whether a job record's last byte is there.
pub(super) fn has_end(jobrec: &[u8]) -> bool {
    jobrec[END] != 0
}

#[cfg(test)]
pub(super) mod write {
    //! The same the other way round, as the core does it, for logs that tests write.

    use super::*;

    pub fn mark(seed: u64, behind: Option<Place>) -> Vec<u8> {
        let sum = mark_sum(Mark { seed, behind }).to_ne_bytes();
        let behind = behind.map_or([0; 8], place_bytes);
        let mut mark = [&[0; 4], &MARK_ID[..], &seed.to_ne_bytes(), &sum, &behind].concat();
        mark.resize(MARK_BYTES, 0);
        mark
    }

    /// Seals the record at this offset; its job record begins at `jobrec`.
    pub fn seal(record: &mut [u8], jobrec: usize, seed: u64, at: u64, synced: Synced) {
        let end = jobrec + Version::V7.jobrec_bytes();
        let (files_back, offset) = match synced {
            Synced::Unknown => (FILES_BACK_UNKNOWN, 0),
            Synced::UpTo { files_back, offset } => (files_back, offset),
        };
        record[jobrec..][SYNCED].copy_from_slice(&offset.to_ne_bytes());
        record[jobrec + FILES_BACK] = files_back;
        record[jobrec + END] = 0xa5;
        let mut sum = head_sum(seed, at, &record[..end]);
        let head_sum = (sum >> 56) as u8;
        if end < record.len() {
            sum = xxh64(&record[end..], sum);
        }
        record[jobrec..][SUM].copy_from_slice(&(sum as u32).to_ne_bytes());
        record[jobrec + HEAD_SUM] = head_sum;
    }
}

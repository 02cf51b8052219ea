//! The records of one log file, one after another, with nothing but the file to go by.
//!
//! Gives whole records only. Of a body only the last two bytes are looked at. What can't
//! be a record stops the reader, with a cause and whether a crash can have left it: a crash leaves a record
//! that stops somewhere, and behind it nothing or the zeros that the file was made of.
//!
//! In a sealed file (`seal`) each record's checksum is compared, for which bodies are read after all. Not seen in
//! others, because the bytes are those of a whole record: a short record that a crash cut between the job's times
//! and its state, so that it reads as a deletion; and a body that lost a part in its middle.

use std::io;
use std::ops::Range;

use xxhash_rust::xxh64::Xxh64;

use super::finding::Cause;
use super::format::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, BadJobrec, Jobrec, State, TubeName, VERSION_BYTES, Version, jobrec_id,
    offset,
};
use super::seal::{self, MARK_BYTES, Place, Seal, Synced};
use super::source::{Source, Window};
use crate::limits::{self, DISK_BLOCK_BYTES};

/// A whole record.
// offset < jobrec_at < end; a body ends at `end`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of its first byte in the file.
    pub offset: u64,
    /// Of the first byte behind it.
    pub end: u64,
    pub kind: RecordKind,
    /// `body_size` is bounded, and so are `delay` and `ttr`.
    pub jobrec: Jobrec,
    /// In a sealed file only.
    pub synced: Option<Synced>,
}

#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Has all of a job.
    Full { tube: TubeName, body: Range<u64> },
    /// Has what changed of a job that an earlier full record describes.
    Short,
}

impl Record {
    /// Of the body, with its CR LF.
    pub fn body_bytes(&self) -> u32 {
        self.jobrec.body_size as u32
    }
}

/// Where and why reading ended before the records did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub offset: u64,
    pub cause: Cause,
}

/// What the start of a file says.
pub enum Opened<'a> {
    /// Nothing, or zeros only: made, but not yet written.
    Empty,
    Log(Reader<'a>),
    Stopped(Stop),
}

#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Record(Record),
    /// The end of the file, or zeros up to there.
    End,
    Stopped(Stop),
}

/// Reads one file from its first record to its end.
pub struct Reader<'a> {
    window: Window<'a>,
    version: Version,
    position: u64,
    /// Of the checksums; `None`: it has none.
    seed: Option<u64>,
    behind: Option<Place>,
    unmarked: bool,
}

impl<'a> Reader<'a> {
    pub fn open(source: impl Source + 'a) -> io::Result<Opened<'a>> {
        let mut window = Window::new(source);
        let stop = |cause| Ok(Opened::Stopped(Stop { offset: 0, cause }));
        if window.length() < VERSION_BYTES as u64 {
            return match window.first_nonzero(0)? {
                None => Ok(Opened::Empty),
                Some(_) => stop(Cause::VersionCut),
            };
        }
        let bytes = window.bytes(0, VERSION_BYTES)?;
        let number = i32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        match Version::from_number(number) {
            Some(version) => Ok(Opened::Log(Reader::behind_head(window, version)?)),
            None if number == 0 && window.first_nonzero(0)?.is_none() => Ok(Opened::Empty),
            None => stop(Cause::Version(number)),
        }
    }

    fn behind_head(mut window: Window<'a>, version: Version) -> io::Result<Reader<'a>> {
        let begin = VERSION_BYTES as u64;
        let room = (window.length() - begin).min(MARK_BYTES as u64);
        let bytes = window.bytes(begin, room as usize)?;
        let unmarked = bytes.iter().all(|&byte| byte == 0);
        let whole = version == Version::V7 && bytes.len() == MARK_BYTES;
        let mark = if whole { seal::mark(bytes) } else { None };
        let position = if mark.is_some() { begin + MARK_BYTES as u64 } else { begin };
        let (seed, behind) = (mark.map(|mark| mark.seed), mark.and_then(|mark| mark.behind));
        Ok(Reader { window, version, position, seed, behind, unmarked })
    }

    /// For a file whose version can't be read: from its first record on, as if it were of this one.
    pub(super) fn behind_version(source: impl Source + 'a, version: Version) -> Reader<'a> {
        Reader {
            window: Window::new(source),
            version,
            position: VERSION_BYTES as u64,
            seed: None,
            behind: None,
            unmarked: false,
        }
    }

    /// For a sealed file whose begin can't be read.
    pub(super) fn behind_mark(source: impl Source + 'a, seed: u64) -> Reader<'a> {
        Reader { seed: Some(seed), ..Reader::behind_version(source, Version::V7) }
    }

    /// Where the record before its first one ends, if it says so.
    pub(super) fn behind(&self) -> Option<Place> {
        self.behind
    }

    /// It has a version, and zeros where a mark or a record would be.
    pub(super) fn is_unmarked(&self) -> bool {
        self.unmarked
    }

    /// Whether its records have checksums.
    pub fn is_sealed(&self) -> bool {
        self.seed.is_some()
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Where the next record would start: the end of the records, once `next` says `End`.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.window.length()
    }

    /// The next record. After `End` or `Stopped` the same again.
    #[allow(clippy::should_implement_trait, reason = "an iterator has no place for the two ways to end")]
    pub fn next(&mut self) -> io::Result<Next> {
        let offset = self.position;
        let next = match self.parse(offset)? {
            Ok(Some(record)) => {
                self.position = record.end;
                Next::Record(record)
            }
            Ok(None) => Next::End,
            Err(cause) => Next::Stopped(Stop { offset, cause }),
        };
        Ok(next)
    }

    /// A piece of a body that begins here, of at most so many bytes. Panics if it reaches beyond the file.
    pub(super) fn body_piece(&mut self, offset: u64, most: u64) -> io::Result<&[u8]> {
        self.window.bytes(offset, most.min(limits::WAL_WINDOW_BYTES as u64) as usize)
    }

    /// After `Stopped`: goes on at the next offset where a record is whole and `credible`. `None` if there is
    /// none.
    pub(super) fn resync(&mut self, credible: &mut dyn FnMut(&Record) -> bool) -> io::Result<Option<u64>> {
        // Zeros that a record can begin with: the length of no name, and all but the last byte of an id.
        let leading_zeros = self.version.name_length_bytes() as u64 + 7;
        let mut offset = self.position + 1;
        let mut checked_zeros_to = 0;
        while offset < self.window.length() {
            if offset >= checked_zeros_to {
                let Some(nonzero) = self.window.first_nonzero(offset)? else { return Ok(None) };
                checked_zeros_to = nonzero + 1;
                offset = offset.max(nonzero.saturating_sub(leading_zeros));
            }
            if let Ok(Some(record)) = self.parse(offset)? {
                if credible(&record) {
                    self.position = offset;
                    return Ok(Some(offset));
                }
            }
            offset += 1;
        }
        Ok(None)
    }

    /// Behind the last byte of the file that is not zero, from here on.
    pub(super) fn written_end(&mut self) -> io::Result<u64> {
        let mut end = self.position;
        while let Some(at) = self.window.first_nonzero(end)? {
            end = at + 1;
        }
        Ok(end)
    }

    /// Whether a crash can have cut this record inside its job record: the state, its last byte, is not
    /// written, and neither is anything behind it.
    pub(super) fn jobrec_can_be_cut(&mut self, record: &Record) -> io::Result<bool> {
        let behind = match &record.kind {
            RecordKind::Full { body, .. } => body.start,
            RecordKind::Short => record.end,
        };
        let jobrec_at = behind - self.version.jobrec_bytes() as u64;
        self.all_zero_from(jobrec_at + offset::STATE as u64)
    }

    fn all_zero_from(&mut self, offset: u64) -> io::Result<bool> {
        Ok(self.window.first_nonzero(offset)?.is_none())
    }

    fn parse(&mut self, offset: u64) -> io::Result<Result<Option<Record>, Cause>> {
        let rest = self.window.length() - offset;
        let length_bytes = self.version.name_length_bytes();
        let jobrec_bytes = self.version.jobrec_bytes();
        if rest < length_bytes as u64 {
            return Ok(if self.all_zero_from(offset)? { Ok(None) } else { Err(Cause::LengthCut) });
        }
        let name_bytes = match self.name_bytes(offset)? {
            Ok(name_bytes) => name_bytes,
            Err(cause) => return Ok(Err(cause)),
        };
        let name_at = offset + length_bytes as u64;
        let jobrec_at = name_at + name_bytes as u64;
        let behind = jobrec_at + jobrec_bytes as u64;
        if behind > self.window.length() {
            let end = name_bytes == 0 && self.all_zero_from(offset)?;
            return Ok(if end { Ok(None) } else { Err(Cause::JobrecCut) });
        }
        if jobrec_id(self.window.bytes(jobrec_at, jobrec_bytes)?) == 0 {
            return Ok(match (self.window.first_nonzero(jobrec_at)?, name_bytes) {
                (None, 0) => Ok(None),
                (None, _) if self.name_can_be_cut(name_at, name_bytes)? => Err(Cause::NameOnly),
                (None, _) => Err(Cause::NameIllegal),
                (Some(at), _) => Err(Cause::MoreBehindZeros(at)),
            });
        }
        let jobrec = match Jobrec::decode(self.version, self.window.bytes(jobrec_at, jobrec_bytes)?) {
            Ok(jobrec) => jobrec,
            Err(BadJobrec::State(state)) => return Ok(Err(Cause::State(state))),
            Err(BadJobrec::Time) => return Ok(Err(Cause::Time)),
        };
        let full = name_bytes > 0;
        if let Some(cause) = unlikely(&jobrec, full) {
            let cut = self.all_zero_from(jobrec_at + offset::STATE as u64)?;
            return Ok(Err(if cut { Cause::JobrecCut } else { cause }));
        }
        if !full {
            let record = Record { offset, end: behind, kind: RecordKind::Short, jobrec, synced: None };
            return self.sealed(record, jobrec_at);
        }
        let Some(tube) = TubeName::new(self.window.bytes(name_at, name_bytes)?) else {
            return Ok(Err(Cause::NameIllegal));
        };
        // Bounded by `unlikely`: a positive number.
        let body = behind..behind + jobrec.body_size as u64;
        if !self.is_sealed() {
            if let Some(cause) = self.body_fault(&body)? {
                return Ok(Err(cause));
            }
        }
        let end = body.end;
        let record = Record { offset, end, kind: RecordKind::Full { tube, body }, jobrec, synced: None };
        self.sealed(record, jobrec_at)
    }

    /// Whether there is a name, or the front part of one and zeros.
    fn name_can_be_cut(&mut self, at: u64, count: usize) -> io::Result<bool> {
        let name = self.window.bytes(at, count)?;
        let written = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Ok(written == 0 || TubeName::new(&name[..written]).is_some())
    }

    /// The record, if its checksum is right where there is one.
    fn sealed(&mut self, mut record: Record, jobrec_at: u64) -> io::Result<Result<Option<Record>, Cause>> {
        let Some(seed) = self.seed else { return Ok(Ok(Some(record))) };
        let head = self.head(seed, record.offset, jobrec_at)?;
        if !head.fits() {
            let last = jobrec_at + self.version.jobrec_bytes() as u64 - 1;
            let cut = !head.has_end && self.all_zero_from(last)?;
            return Ok(Err(if cut { Cause::JobrecCut } else { Cause::Sum }));
        }
        record.synced = Some(head.seal.synced);
        let RecordKind::Full { body, .. } = &record.kind else {
            return Ok(if head.seal.fits(head.sum) { Ok(Some(record)) } else { Err(Cause::Sum) });
        };
        if body.end <= self.window.length() && head.seal.fits(self.body_sum(body.clone(), head.sum)?) {
            return Ok(Ok(Some(record)));
        }
        Ok(Err(self.body_fault(body)?.unwrap_or(Cause::Sum)))
    }

    fn head(&mut self, seed: u64, offset: u64, jobrec_at: u64) -> io::Result<Head> {
        let count = (jobrec_at - offset) as usize + self.version.jobrec_bytes();
        let mut head = [0; LONGEST_FIXED_PART];
        let head = &mut head[..count];
        head.copy_from_slice(self.window.bytes(offset, count)?);
        let jobrec = &mut head[(jobrec_at - offset) as usize..];
        let has_end = seal::has_end(jobrec);
        let seal = seal::take(jobrec);
        Ok(Head { sum: seal::head_sum(seed, offset, head), seal, has_end })
    }

    fn body_sum(&mut self, body: Range<u64>, seed: u64) -> io::Result<u64> {
        let mut state = Xxh64::new(seed);
        let mut at = body.start;
        while at < body.end {
            let count = (body.end - at).min(limits::WAL_WINDOW_BYTES as u64) as usize;
            state.update(self.window.bytes(at, count)?);
            at += count as u64;
        }
        Ok(state.digest())
    }

    /// Whether a disk that lost a block can have made what is at this offset no record. Such a block is as it was
    /// between two writes: zero to its end, from its begin or from where a write began. Writes begin with a part
    /// of a record.
    pub(super) fn has_lost_block(&mut self, offset: u64) -> io::Result<bool> {
        let written = self.written_end()?;
        let name_at = offset + self.version.name_length_bytes() as u64;
        let mut parts = vec![offset, name_at];
        let mut end = written.min(offset + LONGEST_FIXED_PART as u64);
        if let Some((jobrec_at, body)) = self.likely_parts(offset)? {
            parts.extend([jobrec_at, body.start]);
            end = written.min(body.end);
        }
        let mut at = offset;
        while at < end {
            let edge = end.min((at / DISK_BLOCK_BYTES + 1) * DISK_BLOCK_BYTES);
            let bytes = self.window.bytes(at, (edge - at) as usize)?;
            let zeros_from = at + bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
            if [at].iter().chain(&parts).any(|part| (zeros_from.max(at)..edge).contains(part)) {
                return Ok(true);
            }
            at = edge;
        }
        Ok(false)
    }

    /// Where the job record and the body of the record at this offset are, if its head is right.
    fn likely_parts(&mut self, offset: u64) -> io::Result<Option<(u64, Range<u64>)>> {
        let Some(seed) = self.seed else { return Ok(None) };
        if offset + LONGEST_FIXED_PART as u64 > self.window.length() {
            return Ok(None);
        }
        let Ok(name_bytes) = self.name_bytes(offset)? else { return Ok(None) };
        let jobrec_at = offset + (self.version.name_length_bytes() + name_bytes) as u64;
        if !self.head(seed, offset, jobrec_at)?.fits() {
            return Ok(None);
        }
        let jobrec_bytes = self.version.jobrec_bytes();
        let jobrec = Jobrec::decode(self.version, self.window.bytes(jobrec_at, jobrec_bytes)?);
        let likely = jobrec.ok().filter(|jobrec| name_bytes > 0 && unlikely(jobrec, true).is_none());
        let body_at = jobrec_at + jobrec_bytes as u64;
        Ok(likely.map(|jobrec| (jobrec_at, body_at..body_at + jobrec.body_size as u64)))
    }

    fn name_bytes(&mut self, offset: u64) -> io::Result<Result<usize, Cause>> {
        let bytes = self.window.bytes(offset, self.version.name_length_bytes())?;
        let length = match self.version {
            Version::V7 => i64::from(i32::from_ne_bytes(bytes.try_into().expect("four bytes"))),
            Version::V5 => i64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
        };
        let allowed = (0..=limits::TUBE_NAME_BYTES as i64).contains(&length);
        Ok(if allowed { Ok(length as usize) } else { Err(Cause::NameLength(length)) })
    }

    fn body_fault(&mut self, body: &Range<u64>) -> io::Result<Option<Cause>> {
        if body.end > self.window.length() {
            return Ok(Some(Cause::BodyCut));
        }
        if self.window.bytes(body.end - 2, 2)? == b"\r\n" {
            return Ok(None);
        }
        let cut = self.all_zero_from(body.end - 1)?;
        Ok(Some(if cut { Cause::BodyCut } else { Cause::BodyEnd }))
    }
}

/// A sealed record's part in front of its body.
struct Head {
    /// Of its bytes as they are.
    sum: u64,
    seal: Seal,
    /// The last byte of the job record is not zero, as it must not be.
    has_end: bool,
}

impl Head {
    fn fits(&self) -> bool {
        self.has_end && self.seal.fits_head(self.sum)
    }
}

/// Why no server writes such a job record, if so.
fn unlikely(jobrec: &Jobrec, full: bool) -> Option<Cause> {
    let spans = 0..=limits::JOB_SPAN_NS;
    if !(BODY_BYTES_MIN as i32..=BODY_BYTES_MAX as i32).contains(&jobrec.body_size) {
        Some(Cause::BodySize(jobrec.body_size))
    } else if !spans.contains(&jobrec.delay) || !spans.contains(&jobrec.ttr) {
        Some(Cause::Time)
    } else if full && jobrec.state == State::Invalid {
        Some(Cause::FullDeletion)
    } else {
        None
    }
}

const LONGEST_FIXED_PART: usize =
    Version::V5.name_length_bytes() + limits::TUBE_NAME_BYTES + Version::V7.jobrec_bytes();
const _: () = assert!(LONGEST_FIXED_PART <= limits::WAL_WINDOW_BYTES);

//! What can be wrong with a log, in words for whoever has to mend it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::format::TubeName;
use super::scan::log_name;
use crate::limits;

/// One thing found by a scan that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// What a crash leaves behind the last whole record: to be cut off at `offset`.
    TornTail { file: u32, offset: u64, cause: Cause },
    /// Anything else: not to be opened for writing.
    Damaged { file: u32, offset: u64, cause: Cause },
    /// A file in the directory that the core would take for a log, but not read.
    OddFile { name: String, cause: Cause },
    /// A record of a tube that another slot owns.
    ForeignTube { file: u32, offset: u64, tube: TubeName, slot_here: u16, slot_owner: u16 },
    /// A record of an id that this slot neither hands out nor was given by a migration.
    ForeignId { file: u32, offset: u64, id: u64, slot_here: u16 },
}

/// The whole of a directory's findings in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The core may open it.
    Sound,
    /// The core may open it once the torn tails are cut.
    Torn,
    /// Nothing may be changed here before somebody looked at it.
    Refused,
}

/// Why a record, a file or a name is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    // What a crash can leave. In the order in which a record is written.
    /// The version is not all there.
    VersionCut,
    /// The file ends inside the length of a name.
    LengthCut,
    /// A name or its length, and zeros where the job record should be.
    NameOnly,
    /// The job record is not all there.
    JobrecCut,
    /// The body is not all there.
    BodyCut,

    // Damage.
    Version(i32),
    NameLength(i64),
    NameIllegal,
    State(u8),
    BodySize(i32),
    /// A delay, TTR or time that no server writes.
    Time,
    /// A full record in the state that only a deletion has.
    FullDeletion,
    BodyEnd,
    /// The record's checksum is another one.
    Sum,
    /// The records end in zeros, but at this offset there is more.
    MoreBehindZeros(u64),
    SizeChanged {
        id: u64,
        was: u32,
        now: u32,
    },
    TubeChanged {
        id: u64,
        was: Box<str>,
        now: Box<str>,
    },
    /// The id is in use by a job of another creation time.
    IdReused(u64),

    // Files.
    /// Behind what a power failure took, and never synced.
    BehindTear,
    FileMissing,
    /// The records of a later file were written behind another place: file and offset.
    Unjoined {
        later: u32,
        behind: (u32, u64),
    },
    NameUnread,
    NoFile,
}

impl Cause {
    /// Could this be what a crash leaves at the end of a log?
    pub fn is_cut(&self) -> bool {
        use Cause::*;
        matches!(self, VersionCut | LengthCut | NameOnly | JobrecCut | BodyCut)
    }

    /// The core itself takes this for the end of the file: cutting it off changes nothing for it, so it is
    /// no more than a torn tail in an old file as well.
    pub fn core_stops_there(&self) -> bool {
        matches!(self, Cause::LengthCut | Cause::NameOnly)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::VersionCut => write!(f, "the file's version is not whole"),
            Cause::LengthCut => write!(f, "the file ends inside the length of a tube name"),
            Cause::NameOnly => write!(f, "a tube name without a job record"),
            Cause::JobrecCut => write!(f, "the job record is not whole"),
            Cause::BodyCut => write!(f, "the job's body is not whole"),
            Cause::Version(version) => write!(f, "unknown version {version}"),
            Cause::NameLength(length) => {
                write!(f, "a tube name of {length} bytes, where {} are allowed", limits::TUBE_NAME_BYTES)
            }
            Cause::NameIllegal => write!(f, "a tube name with bytes that no tube name has"),
            Cause::State(state) => write!(f, "unknown job state {state}"),
            Cause::BodySize(size) => write!(f, "a body of {size} bytes, which no job has"),
            Cause::Time => write!(f, "a delay, TTR or time that no server writes"),
            Cause::FullDeletion => write!(f, "a deletion with a tube name and a body"),
            Cause::BodyEnd => write!(f, "the job's body does not end in CR LF"),
            Cause::Sum => write!(f, "the record's checksum is not that of its bytes"),
            Cause::MoreBehindZeros(at) => {
                write!(f, "the records end here in zeros, but there is more at byte {at}")
            }
            Cause::SizeChanged { id, was, now } => {
                write!(f, "job {id} has a body of {was} bytes in an earlier record and of {now} bytes here")
            }
            Cause::TubeChanged { id, was, now } => {
                write!(f, "job {id} is of tube {was} in an earlier record and of tube {now} here")
            }
            Cause::IdReused(id) => write!(f, "job {id} was created at another time in an earlier record"),
            Cause::BehindTear => {
                write!(f, "nothing of it was synced when a power failure took something in front of it")
            }
            Cause::FileMissing => write!(f, "missing, though there are files before and after it"),
            Cause::Unjoined { later, behind: (file, offset) } => write!(
                f,
                "the log does not go on here: {} was written behind byte {offset} of {}",
                log_name(*later),
                log_name(*file)
            ),
            Cause::NameUnread => write!(f, "named like a log, but the server would not read it"),
            Cause::NoFile => write!(f, "named like a log, but not a regular file"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::TornTail { file, offset, cause } => {
                write!(f, "{} at byte {offset}: torn tail: {cause}", log_name(*file))
            }
            Finding::Damaged { file, cause: cause @ Cause::FileMissing, .. } => {
                write!(f, "{}: {cause}", log_name(*file))
            }
            Finding::Damaged { file, offset, cause } if cause.is_cut() => write!(
                f,
                "{} at byte {offset}: {cause}, and later files go on, so this is no torn tail",
                log_name(*file)
            ),
            Finding::Damaged { file, offset, cause } => {
                write!(f, "{} at byte {offset}: {cause}", log_name(*file))
            }
            Finding::OddFile { name, cause } => write!(f, "{name}: {cause}"),
            Finding::ForeignTube { file, offset, tube, slot_here, slot_owner } => write!(
                f,
                "{} at byte {offset}: tube {tube} belongs to slot {slot_owner}, but this is the log of slot {slot_here}",
                log_name(*file)
            ),
            Finding::ForeignId { file, offset, id, slot_here } => {
                write!(f, "{} at byte {offset}: id {id} is not of slot {slot_here}", log_name(*file))
            }
        }
    }
}

/// A log could not be read: nothing is known about what is in it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {doing}: {source}", path.display())]
pub struct WalError {
    pub path: PathBuf,
    pub doing: &'static str,
    pub source: io::Error,
}

impl WalError {
    pub(super) fn new(path: &Path, doing: &'static str, source: io::Error) -> WalError {
        WalError { path: path.to_owned(), doing, source }
    }
}

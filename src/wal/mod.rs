//! Reader of the core's write-ahead log: what is in a directory of `binlog.*`, and is it whole.
//!
//! Used before the core opens a directory for writing (its own replay trusts what it reads, and deletes
//! files), and by everything that looks at logs offline. Reads both versions of the format, 7 and 5.
//!
//! Reading order: `format` (bytes to fields), `seal` (checksums), `source` (bytes from somewhere, a window at a
//! time), `reader` (the records of one file), `finding` (what can be wrong), `jobs` (what a record means, and a
//! table of what replay leaves), `tear` (what a power failure took), `scan` (a whole directory), `sorted` (the
//! same for any number of jobs, by `sorter` and its `entries`), `bodies`, `records` (one after another),
//! `salvage` (a damaged directory). Three parts write: `mend` makes a directory that a crash left fit for the
//! core, `ids` keeps the ids that were used up, `writer` makes new logs.
//!
//! Architecture invariant: nothing else opens a file for writing, but for the nameless ones of `sorter`; and no
//! number from a log is believed before it is bounded. Memory never follows the size of bodies or files. That of
//! `scan` and `salvage` follows the number of live jobs, that of `sorted` the number of tubes and files only.

mod bodies;
#[cfg(test)]
mod builder;
mod entries;
mod finding;
pub mod format;
pub mod ids;
mod jobs;
mod mend;
mod reader;
mod records;
mod salvage;
mod scan;
mod seal;
mod sorted;
mod sorter;
mod source;
mod tear;
#[cfg(test)]
mod tests;
mod writer;

pub use bodies::Bodies;
pub use finding::{Cause, Finding, Verdict, WalError};
pub use format::{Jobrec, State, TubeName, Version};
pub use jobs::{Job, JobTable};
pub use mend::{Mended, mend, sync};
pub use reader::{Next, Opened, Reader, Record, RecordKind, Stop};
pub use records::Records;
pub use salvage::{Loss, Salvage, salvage};
pub use scan::{
    FileReport, IdFits, Policy, Replay, ReplayError, Scan, SlotOf, log_bytes, log_name, scan, scan_records,
    scan_watched,
};
pub use seal::Synced;
pub use sorted::{JobSorter, JobStream, SortedJobs, Tally};
pub use source::{FileSource, Source};
pub use writer::{LogWriter, used_up};

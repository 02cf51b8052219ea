//! What a power failure took out of a log's unsynced end, and whether anything behind it says otherwise.
//!
//! A disk writes blocks in any order: there may be records behind a hole. In sealed files each of them says how
//! far the log was on disk when it was written. If the hole is in front of that, something was lost that had
//! been on disk: damage. If not, nothing behind it was ever synced: what is in front of it is the log.

use std::io;

use super::finding::{Cause, Finding};
use super::reader::{Next, Opened, Reader, Record};
use super::scan::FileReport;
use super::source::Source;

pub(super) struct Tear {
    pub(super) file: u32,
    offset: u64,
    cause: Cause,
    /// Something behind it was written when this place was on disk, or does not say so.
    refuted: bool,
}

impl Tear {
    pub(super) fn new(file: u32, offset: u64, cause: Cause) -> Tear {
        Tear { file, offset, cause, refuted: false }
    }

    /// A later file. `seed` is that of its checksums if it can't be read any more.
    pub(super) fn look_at_file(
        &mut self,
        number: u32,
        source: &dyn Source,
        seed: Option<u64>,
    ) -> io::Result<()> {
        match (Reader::open(source)?, seed) {
            (Opened::Empty, _) => Ok(()),
            (Opened::Log(mut reader), _) if reader.is_sealed() => {
                self.look_from(number, &mut reader)?;
                self.look_behind(number, &mut reader)
            }
            (Opened::Stopped(_), Some(seed)) => {
                self.look_behind(number, &mut Reader::behind_mark(source, seed))
            }
            // Only its version is on disk.
            (Opened::Log(reader), Some(seed)) if reader.is_unmarked() => {
                self.look_behind(number, &mut Reader::behind_mark(source, seed))
            }
            _ => {
                self.refuted = true;
                Ok(())
            }
        }
    }

    /// All behind a stop.
    pub(super) fn look_behind(&mut self, number: u32, reader: &mut Reader<'_>) -> io::Result<()> {
        while !self.refuted && reader.resync(&mut |_| true)?.is_some() {
            self.look_from(number, reader)?;
        }
        Ok(())
    }

    /// Up to the next stop.
    fn look_from(&mut self, number: u32, reader: &mut Reader<'_>) -> io::Result<()> {
        while !self.refuted {
            match reader.next()? {
                Next::Record(record) => self.refuted = !self.is_before(number, &record),
                Next::End | Next::Stopped(_) => break,
            }
        }
        Ok(())
    }

    /// Whether this record was written before the place of the tear was on disk.
    fn is_before(&self, number: u32, record: &Record) -> bool {
        let place = record.synced.and_then(|synced| synced.place(number));
        place.is_some_and(|place| place <= (self.file, self.offset))
    }

    pub(super) fn findings(self, files: &[FileReport]) -> Vec<Finding> {
        let Tear { file, offset, cause, refuted } = self;
        if refuted {
            return vec![Finding::Damaged { file, offset, cause }];
        }
        let behind = files.iter().filter(|behind| behind.number > file).map(|behind| Finding::TornTail {
            file: behind.number,
            offset: 0,
            cause: Cause::BehindTear,
        });
        [Finding::TornTail { file, offset, cause }].into_iter().chain(behind).collect()
    }
}

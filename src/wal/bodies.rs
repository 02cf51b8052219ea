//! Bodies of jobs, out of the logs of one directory, a piece at a time.
//!
//! A few files stay open: jobs in replay order mostly follow each other, and those that were moved lie in a
//! newer file. The directory must not change meanwhile.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::finding::WalError;
use super::jobs::Job;
use super::records::Records;
use super::scan::log_name;
use super::source::{FileSource, read_exact};
use crate::limits;

pub struct Bodies {
    dir: PathBuf,
    /// The one that was used last at the end.
    open: Vec<(u32, FileSource)>,
    piece: Vec<u8>,
}

impl Bodies {
    pub fn new(dir: &Path) -> Bodies {
        Bodies { dir: dir.to_owned(), open: Vec::new(), piece: Vec::new() }
    }

    /// Gives a job's body away, with its CR LF, a piece at a time.
    pub fn copy(
        &mut self,
        job: &Job,
        into: &mut dyn FnMut(&[u8]) -> Result<(), WalError>,
    ) -> Result<(), WalError> {
        let body = u64::from(job.body_bytes());
        let mut done = 0;
        while done < body {
            let piece = self.piece(job, done)?;
            done += piece.len() as u64;
            into(piece)?;
        }
        Ok(())
    }

    /// Whether a job has the body of the record that was read last.
    pub fn same(&mut self, job: &Job, records: &mut Records, body: &Range<u64>) -> Result<bool, WalError> {
        let bytes = u64::from(job.body_bytes());
        let mut done = 0;
        while done < bytes {
            let piece = self.piece(job, done)?;
            if records.body_piece(body.start + done, bytes - done)? != piece {
                return Ok(false);
            }
            done += piece.len() as u64;
        }
        Ok(body.end - body.start == bytes)
    }

    /// A piece of a body: all pieces but the last are of one size.
    fn piece(&mut self, job: &Job, from: u64) -> Result<&[u8], WalError> {
        let count = (u64::from(job.body_bytes()) - from).min(limits::WAL_WINDOW_BYTES as u64) as usize;
        self.piece.resize(count, 0);
        let path = self.dir.join(log_name(job.file));
        let source = source(&mut self.open, job.file, &path)?;
        read_exact(source, job.body_offset + from, &mut self.piece)
            .map_err(|error| WalError::new(&path, "reading a body", error))?;
        Ok(&self.piece)
    }
}

fn source<'a>(
    open: &'a mut Vec<(u32, FileSource)>,
    file: u32,
    path: &Path,
) -> Result<&'a FileSource, WalError> {
    match open.iter().position(|(number, _)| *number == file) {
        Some(last) if last + 1 == open.len() => {}
        Some(place) => {
            let used = open.remove(place);
            open.push(used);
        }
        None => {
            let source = FileSource::open(path).map_err(|error| WalError::new(path, "opening it", error))?;
            if open.len() == limits::WAL_FILES_OPEN {
                open.remove(0);
            }
            open.push((file, source));
        }
    }
    let (_, source) = open.last().expect("it was just put there");
    Ok(source)
}

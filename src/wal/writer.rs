//! Writes new logs in version 7: a full record a job, in files of bounded size, as the core would leave them.
//!
//! For directories that no server knows yet. Nothing is durable before `finish` has returned; then all is, but
//! for the names of the files.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::bodies::Bodies;
use super::finding::WalError;
use super::format::{BODY_BYTES_MIN, Jobrec, State, VERSION_BYTES, Version};
use super::jobs::Job;
use super::scan::log_name;
use crate::limits;

pub struct LogWriter {
    dir: PathBuf,
    /// Of the next file.
    number: u32,
    file_bytes: u64,
    current: Option<Current>,
}

struct Current {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
}

impl Current {
    fn write(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        self.file.write_all(bytes).map_err(|error| WalError::new(&self.path, "writing it", error))
    }
}

impl LogWriter {
    /// The first file gets this number. A record that is larger than a file gets one of its own.
    pub fn new(dir: &Path, first: u32, file_bytes: u64) -> LogWriter {
        LogWriter { dir: dir.to_owned(), number: first, file_bytes, current: None }
    }

    /// Appends a job as it is, its body taken from another directory.
    pub fn append(&mut self, job: &Job, bodies: &mut Bodies) -> Result<(), WalError> {
        let current = self.room_for(job.record_bytes())?;
        current.write(&head(&job.tube, &job.jobrec))?;
        bodies.copy(job, &mut |piece| current.write(piece))
    }

    /// Appends a job that was put and deleted: a server that reads this hands out ids above it.
    pub fn append_used_up(&mut self, id: u64) -> Result<(), WalError> {
        const BODY: &[u8] = b"\r\n";
        let [(tube, put), (none, deleted)] = used_up(id);
        let records = [head(tube, &put), BODY.to_vec(), head(none, &deleted)].concat();
        self.room_for(records.len() as u64)?.write(&records)
    }

    /// The file in which the next record of this size goes.
    fn room_for(&mut self, bytes: u64) -> Result<&mut Current, WalError> {
        let limit = self.file_bytes;
        if self.current.as_ref().is_none_or(|current| current.bytes + bytes > limit) {
            self.close()?;
            self.current = Some(self.open()?);
        }
        let current = self.current.as_mut().expect("just opened");
        current.bytes += bytes;
        Ok(current)
    }

    /// The files are on disk. Returns the number behind the last one.
    pub fn finish(mut self) -> Result<u32, WalError> {
        self.close()?;
        Ok(self.number)
    }

    fn open(&mut self) -> Result<Current, WalError> {
        let path = self.dir.join(log_name(self.number));
        self.number += 1;
        let open = || -> io::Result<BufWriter<File>> {
            // As the core makes them; and never over one that is there.
            let file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(&path)?;
            let mut file = BufWriter::with_capacity(limits::WAL_WINDOW_BYTES, file);
            file.write_all(&Version::V7.number().to_ne_bytes())?;
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Current { path, file, bytes: VERSION_BYTES as u64 }),
            Err(error) => Err(WalError::new(&path, "making it", error)),
        }
    }

    fn close(&mut self) -> Result<(), WalError> {
        let Some(Current { path, file, .. }) = self.current.take() else { return Ok(()) };
        let synced = file.into_inner().map_err(|error| error.into_error()).and_then(|file| file.sync_all());
        synced.map_err(|error| WalError::new(&path, "syncing it", error))
    }
}

/// What `append_used_up` writes, but for the body, which is empty: a full record and a short one, which has no tube.
pub fn used_up(id: u64) -> [(&'static [u8], Jobrec); 2] {
    const TUBE: &[u8] = b"default"; // of every server
    let put = Jobrec::ready(id, BODY_BYTES_MIN as i32);
    [(TUBE, put), (b"", Jobrec { state: State::Invalid, ..put })]
}

/// A record up to its body; without a name, all of a short one.
fn head(tube: &[u8], jobrec: &Jobrec) -> Vec<u8> {
    [&(tube.len() as i32).to_ne_bytes(), tube, &jobrec.encode()[..]].concat()
}

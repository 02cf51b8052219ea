//! Keeps servers off a data directory while a tool works on it.
//!
//! The locks are those that servers take: the supervisor's in the data directory, the core's beside each log.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::{DataDir, io_fatal};
use crate::error::{Exit, Fatal};
use crate::lock::{self, CORE_LOCK_FILE, Kind, SERVER_LOCK_FILE};

/// Locks on a directory, held until this is dropped.
pub struct Hold {
    #[allow(dead_code, reason = "closing a file ends its lock")]
    files: Vec<File>,
}

impl Hold {
    /// For this process alone. Makes the files of the locks.
    pub fn to_write(data: &DataDir) -> Result<Hold, Fatal> {
        let mut files = Vec::new();
        for path in lock_files(data) {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NONBLOCK);
            let file =
                options.open(&path).map_err(|error| io_fatal(&path, "opening it to lock it", error))?;
            if !lock::take(&file, Kind::Exclusive).map_err(|error| io_fatal(&path, "locking it", error))? {
                let way_out = "stop it first";
                return Err(Fatal::new(Exit::Locked, format!("{}: {way_out}", lock::refusal(&path))));
            }
            files.push(file);
        }
        Ok(Hold { files })
    }
}

fn lock_files(data: &DataDir) -> impl Iterator<Item = PathBuf> {
    let of_logs = data.logs.iter().map(|log| log.path.join(CORE_LOCK_FILE));
    std::iter::once(data.path.join(SERVER_LOCK_FILE)).chain(of_logs)
}

/// A server that has the directory, as far as its locks tell. For reading without a hold.
pub fn user_of(data: &DataDir) -> Option<String> {
    lock_files(data).find_map(|path| lock::holder(&path).map(|pid| lock::held(&path, pid)))
}

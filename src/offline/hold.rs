//! Keeps servers off a data directory while a tool works on it.
//!
//! The locks are those that servers take: the supervisor's on the data directory, the core's beside each log.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::fcntl::Flock;

use super::{DataDir, io_fatal};
use crate::error::{Exit, Fatal};
use crate::lock::{self, CORE_LOCK_FILE, Kind};

/// Locks on a directory, held until this is dropped.
pub struct Hold {
    _data: Flock<File>,
    _logs: Vec<File>,
}

impl Hold {
    /// For this process alone. Makes the files of the locks.
    pub fn to_write(data: &DataDir) -> Result<Hold, Fatal> {
        let refused = |reason: String| Fatal::new(Exit::Locked, format!("{reason}: stop it first"));
        let dir = lock::directory(&data.path).map_err(refused)?;
        let mut files = Vec::new();
        for path in lock_files(data) {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NONBLOCK);
            let file =
                options.open(&path).map_err(|error| io_fatal(&path, "opening it to lock it", error))?;
            if !lock::take(&file, Kind::Exclusive).map_err(|error| io_fatal(&path, "locking it", error))? {
                return Err(refused(lock::refusal(&path)));
            }
            files.push(file);
        }
        Ok(Hold { _data: dir, _logs: files })
    }
}

fn lock_files(data: &DataDir) -> impl Iterator<Item = PathBuf> {
    data.logs.iter().map(|log| log.path.join(CORE_LOCK_FILE))
}

/// A server that has the directory, as far as its locks tell. For reading without a hold.
pub fn user_of(data: &DataDir) -> Option<String> {
    let of_data = lock::directory_user(&data.path).map(|pid| lock::held(&data.path, pid));
    of_data
        .or_else(|| lock_files(data).find_map(|path| lock::holder(&path).map(|pid| lock::held(&path, pid))))
}

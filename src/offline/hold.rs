//! Keeps servers off a data directory while a tool works on it.
//!
//! The locks are those that servers take: the supervisor's on the data directory, the core's beside each log.
//! Where the core's file isn't there no original serves; a source is not touched to make one, and `Look`
//! finds a server that came meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
    /// Keeps servers off; other readers may hold it as well. Makes no file.
    pub fn to_read(data: &DataDir) -> Result<Hold, Fatal> {
        Hold::take(data, Kind::Shared)
    }

    /// For this process alone. Makes the files of the locks.
    pub fn to_write(data: &DataDir) -> Result<Hold, Fatal> {
        Hold::take(data, Kind::Exclusive)
    }

    fn take(data: &DataDir, kind: Kind) -> Result<Hold, Fatal> {
        let refused = |reason: String| Fatal::new(Exit::Locked, format!("{reason}: stop it first"));
        let dir = lock::directory(&data.path, kind).map_err(refused)?;
        let mut files = Vec::new();
        for path in lock_files(data) {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_NONBLOCK);
            if kind == Kind::Exclusive {
                options.write(true).create(true).truncate(false).mode(0o600);
            }
            let file = match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && kind == Kind::Shared => continue,
                other => other.map_err(|error| io_fatal(&path, "opening it to lock it", error))?,
            };
            if !lock::take(&file, kind).map_err(|error| io_fatal(&path, "locking it", error))? {
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

/// What the files of a directory looked like.
#[derive(PartialEq, Eq)]
pub struct Look(Vec<(PathBuf, u64, u64, i64, i64)>);

impl Look {
    /// All files in the directories of the logs: name, inode, size, time of the last change. Not those of
    /// locks: a server that is kept off may make one, and one that is not makes logs as well.
    pub fn take(data: &DataDir) -> Result<Look, Fatal> {
        let mut files = Vec::new();
        let dirs = data.logs.iter().map(|log| log.path.as_path());
        for dir in dirs.chain([data.path.as_path()]) {
            look_into(dir, &mut files).map_err(|error| io_fatal(dir, "listing it", error))?;
        }
        files.sort();
        files.dedup();
        Ok(Look(files))
    }

    /// An error if anything is not as it was.
    pub fn unchanged(&self, data: &DataDir) -> Result<(), Fatal> {
        if *self == Look::take(data)? {
            return Ok(());
        }
        let path = data.path.display();
        let reason =
            format!("{path}: changed while it was read: a server was started on it? Nothing was made of it");
        Err(Fatal::new(Exit::Locked, reason))
    }
}

fn look_into(dir: &Path, files: &mut Vec<(PathBuf, u64, u64, i64, i64)>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.metadata()?;
        let name = entry.file_name();
        if !file.is_dir() && name != CORE_LOCK_FILE {
            files.push((entry.path(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()));
        }
    }
    Ok(())
}

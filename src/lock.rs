//! Locks by which servers and tools keep off each other's directories.
//!
//! A data directory is locked itself (`flock`), which leaves nothing in it. Files have POSIX record locks, as
//! the core's own: they belong to the process, end with it, and end as well when it closes any descriptor of
//! that file. So a file that is locked here is kept open, and not opened a second time by whoever may close
//! it again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use nix::unistd::Pid;

/// In a log's directory: the core locks it.
pub const CORE_LOCK_FILE: &str = "lock";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Keeps servers off, but not other readers. The file must be open for reading.
    Shared,
    /// The file must be open for writing.
    Exclusive,
}

/// Locks a data directory against servers and tools of ours. The error says who has it.
pub fn directory(dir: &Path, kind: Kind) -> Result<Flock<File>, String> {
    let said = |e: io::Error| format!("{}: {e}", dir.display());
    let file = File::open(dir).map_err(said)?;
    if !file.metadata().map_err(said)?.is_dir() {
        return Err(format!("{}: not a directory", dir.display()));
    }
    let how = match kind {
        Kind::Shared => FlockArg::LockSharedNonblock,
        Kind::Exclusive => FlockArg::LockExclusiveNonblock,
    };
    Flock::lock(file, how).map_err(|(file, error)| match error {
        nix::Error::EAGAIN => match directory_holder(&file) {
            Some(pid) => held(dir, pid),
            None => format!("{}: held by another server", dir.display()),
        },
        error => said(error.into()),
    })
}

/// The server or tool that has a data directory, if one does.
pub fn directory_user(dir: &Path) -> Option<Pid> {
    directory_holder(&File::open(dir).ok()?)
}

/// The process that has a lock on a directory, as far as the kernel's list of locks names it: by inode.
fn directory_holder(dir: &File) -> Option<Pid> {
    let inode = format!(":{}", dir.metadata().ok()?.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let line = locks.lines().find(|line| {
        line.contains(" FLOCK ") && line.split_whitespace().any(|word| word.ends_with(&inode))
    })?;
    line.split_whitespace().nth(4)?.parse().ok().map(Pid::from_raw)
}

/// Locks a file, without waiting. False: another process has it.
pub fn take(file: &File, kind: Kind) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_SETLK(&whole_file(kind))) {
        Ok(_) => Ok(true),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The process that has a lock on a file, which none has that isn't there. Process 0: in another PID namespace.
/// Ends the locks that this process has on it.
pub fn holder(path: &Path) -> Option<Pid> {
    let file = File::open(path).ok()?;
    let mut lock = whole_file(Kind::Exclusive);
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    (lock.l_type != libc::F_UNLCK as libc::c_short).then(|| Pid::from_raw(lock.l_pid))
}

/// What to say of a file that could not be locked.
pub fn refusal(path: &Path) -> String {
    match holder(path) {
        Some(pid) => held(path, pid),
        None => format!("{}: held by another server", path.display()),
    }
}

/// The same, where the holder is known.
pub fn held(path: &Path, pid: Pid) -> String {
    format!("{}: held by process {pid}: another server uses it", path.display())
}

fn whole_file(kind: Kind) -> libc::flock {
    let l_type = match kind {
        Kind::Shared => libc::F_RDLCK,
        Kind::Exclusive => libc::F_WRLCK,
    };
    libc::flock {
        l_type: l_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

//! Exit codes and the error that ends a process.
//!
//! Stock's codes keep their meaning; ours lie where stock has none. The supervisor reads a child's code by its
//! class: a temporary failure is started again, a permanent one is not before somebody changes the flags or
//! the data. `main` is the only place that exits.

use std::fmt;
use std::io;

/// With what a process of Trellis ends. Numbers are frozen: scripts and service managers know them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    /// Something that may be gone next time: memory, descriptors, a device. Stock's code for a failed start.
    Temporary = 1,
    /// `trellis wal check` and `dump`: a log ends in what a crash leaves.
    Torn = 3,
    /// `trellis wal check` and `dump`: something is damaged, missing or in the wrong place.
    Damaged = 4,
    /// The command line is wrong (stock).
    Usage = 5,
    /// Another server holds the data (stock).
    Locked = 10,
    /// `-u`: the lookup of the user failed (stock).
    UserLookup = 32,
    /// `-u`: there is no such user (stock).
    UserUnknown = 33,
    /// `-u`: the user or group could not be taken on (stock).
    UserRefused = 34,
    /// The data can't be served as it is or as it was asked for: topology, log, layout.
    Data = 65,
    /// A child computed another fingerprint than the supervisor: two versions, or damaged memory.
    Fingerprint = 66,
    /// The log could not be written or synced; what was acknowledged is on disk.
    Log = 74,
    /// A message between our processes was not what it must be.
    Ipc = 76,
    /// No listening socket (stock).
    Listen = 111,
}

/// What the supervisor does about an end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Start it again, with growing pauses.
    Temporary,
    /// Starting it again changes nothing.
    Permanent,
}

impl Exit {
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Of a file or directory of the data that the system refuses. Permanent where trying again changes
    /// nothing: somebody has to change what is there, its rights, or how it is mounted.
    pub fn of_data(kind: io::ErrorKind) -> Exit {
        match kind {
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem => Exit::Data,
            _ => Exit::Temporary,
        }
    }

    /// What a child's code says, in words, where the child said nothing itself.
    pub fn meaning(code: u8) -> Option<&'static str> {
        let meanings = [
            (Exit::Temporary, "a failure that may pass"),
            (Exit::Locked, "its log directory can't be used or is locked by another process"),
            (Exit::Data, "its data can't be served"),
            (Exit::Fingerprint, "another topology"),
            (Exit::Log, "its log could not be written"),
            (Exit::Ipc, "a message that can't be"),
        ];
        meanings.iter().find(|(exit, _)| exit.code() == code).map(|(_, meaning)| *meaning)
    }

    /// The class of any code, also of those that only C code or a panic ends with.
    pub fn class_of(code: i32) -> Class {
        let permanent = [
            Exit::Usage,
            Exit::UserLookup,
            Exit::UserUnknown,
            Exit::UserRefused,
            Exit::Data,
            Exit::Fingerprint,
        ];
        if permanent.iter().any(|exit| i32::from(exit.code()) == code) {
            Class::Permanent
        } else {
            Class::Temporary
        }
    }
}

/// Why a process can't go on: one line for the log, and its exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fatal {
    pub code: u8,
    pub message: String,
}

impl Fatal {
    pub fn new(exit: Exit, message: impl fmt::Display) -> Fatal {
        Fatal { code: exit.code(), message: message.to_string() }
    }

    /// Something of the system failed that may work next time.
    pub fn temporary(doing: &str, error: impl fmt::Display) -> Fatal {
        Fatal::new(Exit::Temporary, format!("{doing}: {error}"))
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fatal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_for_good_is_permanent() {
        let exit = |errno| Exit::of_data(io::Error::from_raw_os_error(errno).kind());
        for errno in [libc::ENOENT, libc::ENOTDIR, libc::EISDIR, libc::EACCES, libc::EPERM, libc::EROFS] {
            assert_eq!(exit(errno), Exit::Data, "{errno}");
        }
        for errno in [libc::EIO, libc::ENOSPC, libc::EMFILE, libc::ENOMEM] {
            assert_eq!(exit(errno), Exit::Temporary, "{errno}");
        }
    }

    #[test]
    fn classes_of_codes_are_as_the_table_says() {
        for code in [5, 32, 33, 34, 65, 66] {
            assert_eq!(Exit::class_of(code), Class::Permanent, "{code}");
        }
        // 1, 2, 50: the C core's own; 101: a panic; 10: who holds the lock may leave.
        for code in [0, 1, 2, 10, 50, 74, 76, 101, 111, 255] {
            assert_eq!(Exit::class_of(code), Class::Temporary, "{code}");
        }
    }
}

//! Claims: what this server uses is its own before it touches any of it, and until it ends.
//!
//! A data directory is claimed by a lock on the directory itself, which leaves nothing in it; a path by a
//! lock on a file beside it, which stays: removing a lock file is a race. The locks end with this process,
//! whatever ends it, and children have no part in them. Stock knows neither: against it, the core's own
//! `lock` and a trial connect to a socket's path are looked at.
//!
//! The processes of a server that was killed live on for a moment, with the slots' locks and the listening
//! socket. The kernel tells nobody when they let go, so this is the one place that looks again and again, for
//! a bounded time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use nix::unistd::{Pid, User, fchown};
use socket2::{Domain, SockAddr, Socket, Type};

use super::data::slot_dir;
use super::listen::SOCKET_PATH_BYTES;
use crate::cli::Settings;
use crate::error::{Exit, Fatal};
use crate::limits;
use crate::lock::{self, CORE_LOCK_FILE};
use crate::topology::Layout;

/// A locked directory or file. Closing it, or any other descriptor of that file in this process, ends the
/// claim.
#[allow(dead_code)] // held, never looked at
pub enum Claim {
    Directory(Flock<File>),
    File(File),
}

/// Claims the data directory and the control path.
pub fn all(settings: &Settings, user: Option<&User>) -> Result<Vec<Claim>, Fatal> {
    let locked = |reason: String| Fatal::new(Exit::Locked, reason);
    let data = settings.dir.as_ref().map(|dir| {
        lock::directory(Path::new(dir), lock::Kind::Exclusive).map(Claim::Directory).map_err(locked)
    });
    let control = settings.control.as_ref().map(|path| control(path, user));
    data.into_iter().chain(control).collect()
}

/// A path that no socket can have leaves no lock file either.
fn control(path: &Path, user: Option<&User>) -> Result<Claim, Fatal> {
    let refuse = |reason: String| Fatal::new(Exit::Listen, format!("--control {}: {reason}", path.display()));
    match path.as_os_str().len() {
        0 => return Err(refuse("no path".to_owned())),
        SOCKET_PATH_BYTES.. => {
            return Err(refuse(format!("the path is too long: at most {} bytes", SOCKET_PATH_BYTES - 1)));
        }
        _ => {}
    }
    Claim::take(&beside(path), user).map_err(|refused| match refused {
        Refused::Held(reason) => Fatal::new(Exit::Locked, reason),
        Refused::NoFile(reason) => refuse(reason),
    })
}

/// Waits until no process of a server that was killed holds a slot, and refuses if one holds on. Opens each
/// lock for reading and closes it before the owner of that slot exists.
pub fn slots_are_free(settings: &Settings, layout: Layout, slots: u16) -> Result<(), Fatal> {
    let Some(dir) = &settings.dir else { return Ok(()) };
    let patience = Patience::new();
    for slot in 0..slots {
        let path = Path::new(&slot_dir(dir, layout, slot)).join(CORE_LOCK_FILE);
        let look = || match lock::holder(&path) {
            None => Attempt::Done(()),
            Some(pid) if is_ours(pid) => Attempt::Busy(lock::held(&path, pid)),
            Some(pid) => Attempt::Failed(lock::held(&path, pid)),
        };
        patience.attempt(look).map_err(|reason| Fatal::new(Exit::Locked, reason))?;
    }
    Ok(())
}

/// Why a file could not be locked, in words.
#[derive(Debug)]
enum Refused {
    /// By another process, which is named.
    Held(String),
    /// It can't be made or opened.
    NoFile(String),
}

impl From<Refused> for String {
    fn from(refused: Refused) -> String {
        match refused {
            Refused::Held(reason) | Refused::NoFile(reason) => reason,
        }
    }
}

impl Claim {
    /// Locks a file, which is made if it isn't there.
    fn take(path: &Path, user: Option<&User>) -> Result<Claim, Refused> {
        let said = |e: io::Error| Refused::NoFile(format!("{}: {e}", path.display()));
        // Not open for others: who can open it can hold it. Not through a link: its directory may be anybody's.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(said)?;
        match lock::take(&file, lock::Kind::Exclusive) {
            Ok(true) => {}
            Ok(false) => return Err(Refused::Held(lock::refusal(path))),
            Err(error) => return Err(said(error)),
        }
        if let Some(user) = user {
            // A later start as that user must be able to open it. Where this fails we are no more than that
            // user.
            let _ = fchown(file.as_fd(), Some(user.uid), Some(user.gid));
        }
        Ok(Claim::File(file))
    }
}

/// The claim on the path of a unix socket. The socket's file goes when it goes, before the claim.
pub struct PathClaim {
    path: PathBuf,
    /// Device and number of the file that is ours.
    file: Option<(u64, u64)>,
    #[allow(dead_code)] // held, never looked at
    claim: Claim,
}

impl PathClaim {
    /// Claims the path and removes the socket that a server which is gone left there.
    pub fn take(path: &str, address: &SockAddr, user: Option<&User>) -> Result<PathClaim, String> {
        let claim = Claim::take(&beside(Path::new(path)), user)?;
        match fs::metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err("a file of another kind exists there".to_owned());
            }
            Ok(_) => {
                Patience::new().attempt(|| match answers(address) {
                    true => Attempt::Busy("another server listens there".to_owned()),
                    false => Attempt::Done(()),
                })?;
                tracing::warn!("{path}: the socket of a server that is gone is replaced");
                fs::remove_file(path).map_err(|e| e.to_string())?;
            }
            Err(_) => {}
        }
        Ok(PathClaim { path: path.into(), file: None, claim })
    }

    /// There is a socket of ours at the path now.
    pub fn made(&mut self) {
        self.file = file_at(&self.path);
    }
}

impl Drop for PathClaim {
    fn drop(&mut self) {
        // Not what somebody who asks for no claim has put in its place. After -u the directory may not be ours:
        // then it stays, and the next server replaces it.
        if self.file.is_some() && file_at(&self.path) == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// What one try came to.
pub enum Attempt<T> {
    Done(T),
    /// Somebody has it who may be about to leave.
    Busy(String),
    Failed(String),
}

/// How long to go on trying: no longer than a killed server's processes live.
pub struct Patience {
    end: Instant,
}

impl Patience {
    /// Runs from now on, over all attempts made with it.
    pub fn new() -> Patience {
        Patience { end: Instant::now() + Duration::from_millis(limits::TAKEOVER_MS) }
    }

    /// Tries until it works or fails, or is busy and patience is at an end.
    pub fn attempt<T>(&self, mut attempt: impl FnMut() -> Attempt<T>) -> Result<T, String> {
        loop {
            match attempt() {
                Attempt::Done(value) => return Ok(value),
                Attempt::Failed(reason) => return Err(reason),
                Attempt::Busy(reason) if Instant::now() >= self.end => return Err(reason),
                Attempt::Busy(_) => thread::sleep(Duration::from_millis(limits::TAKEOVER_STEP_MS)),
            }
        }
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Whether a process may be one of a killed trellis. If that can't be seen, it may.
fn is_ours(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).map_or(true, |name| name.starts_with("trellis"))
}

/// Whether somebody listens: also one whose queue is full.
fn answers(address: &SockAddr) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(address)
    };
    match connect() {
        Ok(()) => true,
        Err(error) => error.kind() != io::ErrorKind::ConnectionRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;

    #[test]
    fn attempt_that_is_busy_is_repeated_until_it_is_done() {
        let mut tries = 0;
        let result = Patience::new().attempt(|| {
            tries += 1;
            if tries < 3 { Attempt::Busy(tries.to_string()) } else { Attempt::Done(tries) }
        });
        assert_eq!(result, Ok(3));
        assert_eq!(Patience::new().attempt(|| Attempt::<()>::Failed("no".into())), Err("no".to_owned()));
    }

    #[test]
    fn lock_file_that_is_a_link_is_not_followed() {
        let dir = TempDir::new();
        fs::write(dir.join("victim"), "precious").unwrap();
        std::os::unix::fs::symlink("victim", dir.join("x.lock")).unwrap();
        assert!(Claim::take(&dir.join("x.lock"), None).is_err());
        assert_eq!(fs::read_to_string(dir.join("victim")).unwrap(), "precious");
    }

    #[test]
    fn socket_that_a_dead_server_left_is_removed_and_other_files_are_not() {
        let dir = TempDir::new();
        let path = dir.join("s");
        let address = SockAddr::unix(&path).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let claim = PathClaim::take(path.to_str().unwrap(), &address, None).ok().unwrap();
        assert!(!path.exists());
        drop(claim);
        fs::write(&path, "text").unwrap();
        let refused = PathClaim::take(path.to_str().unwrap(), &address, None).err().unwrap();
        assert!(refused.contains("of another kind exists"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn socket_that_answers_is_left_alone() {
        let dir = TempDir::new();
        let path = dir.join("s");
        let _live = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let address = SockAddr::unix(&path).unwrap();
        assert!(PathClaim::take(path.to_str().unwrap(), &address, None).is_err());
        assert!(path.exists());
    }
}

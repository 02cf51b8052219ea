//! A directory in the making: under a name of its own beside the one that it is to have, and marked.
//!
//! `migrate` makes its target so, and `repair` its copy. While the mark (`UNFINISHED_FILE`) is in it no server
//! and no tool takes it for data. It appears by one rename when it is finished. An error and a signal that ends
//! the process take it away; what SIGKILL leaves the next run for the same name removes.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, RenameFlags, renameat2};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::Pid;

use super::copy::{beside, give_to_owner_of, make_dir_for, sync_dir};
use super::io_fatal;
use crate::error::{Exit, Fatal};
use crate::output;
use crate::topology::UNFINISHED_FILE;

/// What stands behind a directory's name while it is made; the process's number follows.
const PARTIAL: &str = ".partial-";

/// Removed when this is dropped, unless it was finished.
pub struct Unfinished {
    path: PathBuf,
    to: PathBuf,
    mode: u32,
    dir: Flock<File>,
}

impl Unfinished {
    /// Makes a directory that is to be called `to`, of the model's owner. First removes what earlier runs left.
    pub fn begin(to: &Path, model: &Metadata) -> Result<Unfinished, Fatal> {
        clear_leftovers(to);
        watch_signals().map_err(|error| Fatal::temporary("signals", error))?;
        let path = partial(to);
        let failed = |error: io::Error| io_fatal(&path, "making it", error);
        let mut making = making();
        make_dir_for(&path, model).map_err(failed)?;
        making.insert(path.clone());
        drop(making);
        match in_use(&path) {
            Ok(dir) => {
                let made = Unfinished { path: path.clone(), to: to.to_owned(), mode: model.mode(), dir };
                let mark = made.mark();
                File::create_new(&mark).and_then(|_| give_to_owner_of(&mark, model)).map_err(failed)?;
                Ok(made)
            }
            Err(error) => {
                forget(&path);
                Err(failed(error))
            }
        }
    }

    /// Where it is while it is made.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn mark(&self) -> PathBuf {
        self.path.join(UNFINISHED_FILE)
    }

    /// It takes its name, unless somebody else has taken it. All in it has to be on disk.
    pub fn finish(self) -> Result<(), Fatal> {
        fs::remove_file(self.mark())
            .and_then(|()| self.dir.set_permissions(Permissions::from_mode(self.mode & 0o7777)))
            .and_then(|()| self.dir.sync_all())
            .map_err(|error| io_fatal(&self.path, "finishing it", error))?;
        let mut making = making();
        rename_to_free(&self.path, &self.to).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => is_there(&self.to),
            _ => io_fatal(&self.to, "putting it in place", error),
        })?;
        making.remove(&self.path);
        drop(making);
        // It is there: an error now must not take it away again.
        let parent = parent_of(&self.to);
        if let Err(error) = sync_dir(parent) {
            output::say(format!("trellis: {}: syncing it: {error}\n", parent.display()));
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        forget(&self.path);
    }
}

/// The refusal of a place that is taken.
pub fn is_there(place: &Path) -> Fatal {
    let reason = "is there already: name a place that is free, or move it away";
    Fatal::new(Exit::Data, format!("{}: {reason}", place.display()))
}

/// Whether a path ends in the name of something that can be made: `x/.` and `..` are other directories.
pub fn has_name(path: &Path) -> bool {
    let last = path.as_os_str().as_bytes().split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
    !matches!(last, None | Some(b"." | b".."))
}

pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        // A file system that can't do it at once.
        Err(nix::Error::EINVAL | nix::Error::ENOSYS) if fs::symlink_metadata(to).is_err() => {
            fs::rename(from, to)
        }
        other => Ok(other?),
    }
}

/// The name under which this process makes a directory.
fn partial(to: &Path) -> PathBuf {
    beside(to, &format!("{PARTIAL}{}", std::process::id()))
}

/// Says to other runs, which may be in another container, that this directory is being made, until dropped.
fn in_use(dir: &Path) -> io::Result<Flock<File>> {
    Flock::lock(File::open(dir)?, FlockArg::LockSharedNonblock).map_err(|(_, errno)| errno.into())
}

/// Removes what earlier runs have left of this directory, and says so. What is in use, or belongs to a process
/// that is there, is only named: it may be one of ours, or have got the number of one.
fn clear_leftovers(to: &Path) {
    let Some(name) = to.file_name() else { return };
    let begin = format!("{}{PARTIAL}", name.to_string_lossy());
    for entry in fs::read_dir(parent_of(to)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(&begin)?.parse::<i32>().ok()) else {
            continue;
        };
        let gone = pid > 0 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
        let open = File::open(entry.path()).ok();
        let unused = open.and_then(|dir| Flock::lock(dir, FlockArg::LockExclusiveNonblock).ok());
        let words = match (gone && unused.is_some()).then(|| remove(&entry.path())) {
            Some(Ok(())) => "left by a run that was stopped; removed".to_owned(),
            Some(Err(error)) => format!("left by a run that was stopped, can't be removed: {error}"),
            None => "left by a run that was stopped, or that goes on; of no use".to_owned(),
        };
        output::say(format!("trellis: {}: {words}\n", entry.path().display()));
    }
}

/// Removes a directory, whatever the modes in it are.
fn remove(dir: &Path) -> io::Result<()> {
    open_up(dir)?;
    fs::remove_dir_all(dir)
}

fn open_up(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// What this process is making. Held over a rename and over a removal: only one of them happens.
static MAKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn making() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    MAKING.lock().expect("nobody panics while holding it")
}

/// Takes away what is not finished.
fn forget(path: &Path) {
    if making().remove(path) {
        let _ = remove(path);
    }
}

/// From now on a signal that ends the process first takes away what it is making. Signals that the process was
/// started to ignore (`nohup`, a script's background) stay ignored.
fn watch_signals() -> nix::Result<()> {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if WATCHING.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let ignored = ignored_signals();
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        if (ignored >> (signal as i32 - 1)) & 1 == 0 {
            set.add(signal);
        }
    }
    set.thread_block()?;
    std::thread::spawn(move || {
        let Ok(signal) = set.wait() else { return };
        // Not given back: who wants to rename or to report an error now waits for the end.
        let making = making();
        for path in making.iter() {
            // The other thread may still be putting files there.
            while remove(path).is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty) {}
        }
        // The end that the signal has for others.
        let _ = set.thread_unblock();
        let _ = raise(signal);
    });
    Ok(())
}

/// A bit a signal.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;

    #[test]
    fn leftovers_of_dead_processes_are_removed_unless_they_are_in_use() {
        let home = TempDir::new();
        let to = home.join("target");
        let dead = || {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            beside(&to, &format!("{PARTIAL}{}", child.id()))
        };
        let (left, used) = (dead(), dead());
        assert_ne!(left, used);
        let kept = [used, partial(&to), beside(&to, ".partial-x"), beside(&to, "-other")];
        for dir in kept.iter().chain([&left]) {
            fs::create_dir_all(dir.join("inside")).unwrap();
        }
        fs::set_permissions(left.join("inside"), Permissions::from_mode(0o500)).unwrap();
        let _in_use = in_use(&kept[0]).unwrap();
        clear_leftovers(&to);
        assert!(!left.exists());
        assert!(kept.iter().all(|dir| dir.join("inside").exists()));
    }

    #[test]
    fn only_paths_that_end_in_a_name_can_be_made() {
        for (path, named) in [
            ("x", true),
            ("x/", true),
            ("../x", true),
            ("x/.hidden", true),
            ("x/.", false),
            ("x/./", false),
            ("..", false),
            ("x/..", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(has_name(Path::new(path)), named, "{path}");
        }
    }
}

//! Whole directories: a copy of one, the name under which one is made, and the owner that new files are to have.

use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::lock::CORE_LOCK_FILE;

/// Copies a directory with all that is in it, links followed. Not the files that servers lock: they are
/// empty, and closing them would end a lock that this process has. The target must not be there. All of it is
/// on disk when this returns, but for the target's own name.
pub fn tree(from: &Path, to: &Path, copied: &dyn Fn(u64)) -> io::Result<()> {
    let said = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let model = fs::metadata(from).map_err(|e| said(from, e))?;
    make_dir_like(to, &model).map_err(|e| said(to, e))?;
    let _in_use = in_use(to).map_err(|e| said(to, e))?;
    for entry in fs::read_dir(from).map_err(|e| said(from, e))? {
        let name = entry.map_err(|e| said(from, e))?.file_name();
        if name == CORE_LOCK_FILE {
            continue;
        }
        let (source, target) = (from.join(&name), to.join(&name));
        let model = fs::metadata(&source).map_err(|e| said(&source, e))?;
        if model.is_dir() {
            tree(&source, &target, copied)?;
        } else if model.is_file() {
            file(&source, &target, &model).map_err(|e| said(&source, e))?;
            copied(model.len());
        }
    }
    sync_dir(to).map_err(|e| said(to, e))
}

fn file(from: &Path, to: &Path, model: &Metadata) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create_new(to)?;
    io::copy(&mut source, &mut target)?;
    target.set_times(FileTimes::new().set_modified(model.modified()?))?;
    target.set_permissions(model.permissions())?;
    give_to_owner_of(to, model)?;
    target.sync_all()
}

/// Makes a directory with the mode and the owner of another.
pub fn make_dir_like(path: &Path, model: &Metadata) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)?;
    give_to_owner_of(path, model)?;
    fs::set_permissions(path, fs::Permissions::from_mode(model.mode() & 0o7777))
}

/// What root makes for a server belongs to whom the data belongs; others make what is theirs.
pub fn give_to_owner_of(path: &Path, model: &Metadata) -> io::Result<()> {
    if nix::unistd::geteuid().is_root() {
        chown(path, Some(model.uid()), Some(model.gid()))?;
    }
    Ok(())
}

/// What stands behind a directory's name while it is made; the process's number follows.
const PARTIAL: &str = ".partial-";

/// The name under which this process makes a directory.
pub fn partial(to: &Path) -> PathBuf {
    beside(to, &format!("{PARTIAL}{}", std::process::id()))
}

/// Says to other runs, which may be in another container, that this directory is being made, until it is dropped.
pub fn in_use(dir: &Path) -> io::Result<Flock<File>> {
    Flock::lock(File::open(dir)?, FlockArg::LockSharedNonblock).map_err(|(_, errno)| errno.into())
}

/// Removes what earlier runs have left of this directory, and says so. What is in use, or belongs to a process that
/// is there, is only named: it may be one of ours, or have got the number of one.
pub fn clear_leftovers(to: &Path) {
    let (Some(name), Some(parent)) = (to.file_name(), to.parent()) else { return };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let begin = format!("{}{PARTIAL}", name.to_string_lossy());
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(&begin)?.parse::<i32>().ok()) else {
            continue;
        };
        let gone = pid > 0 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
        let open = File::open(entry.path()).ok();
        let unused = open.and_then(|dir| Flock::lock(dir, FlockArg::LockExclusiveNonblock).ok());
        let words = match (gone && unused.is_some()).then(|| fs::remove_dir_all(entry.path())) {
            Some(Ok(())) => "left by a run that was stopped; removed".to_owned(),
            Some(Err(error)) => format!("left by a run that was stopped, can't be removed: {error}"),
            None => "left by a run that was stopped, or that goes on; of no use".to_owned(),
        };
        crate::cli::output::say(format!("trellis: {}: {words}\n", entry.path().display()));
    }
}

pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The path with something added to its last name, which a slash at its end does not hide.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let plain: PathBuf = path.components().collect();
    let mut name = plain.into_os_string();
    name.push(suffix);
    name.into()
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
        let _in_use = in_use(&kept[0]).unwrap();
        clear_leftovers(&to);
        assert!(!left.exists());
        assert!(kept.iter().all(|dir| dir.join("inside").exists()));
    }
}

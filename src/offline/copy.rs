//! Whole directories: a copy of one, and the owner and mode that new ones are to have.

use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::limits;
use crate::lock::CORE_LOCK_FILE;

/// Copies all that is in a directory into another, links followed. Not the files that servers lock: they are
/// empty, and closing them would end a lock that this process has. All of it is on disk when this returns.
pub fn contents(from: &Path, to: &Path, copied: &dyn Fn(u64)) -> io::Result<()> {
    let said = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    for entry in fs::read_dir(from).map_err(|e| said(from, e))? {
        let name = entry.map_err(|e| said(from, e))?.file_name();
        if name == CORE_LOCK_FILE {
            continue;
        }
        let (source, target) = (from.join(&name), to.join(&name));
        let model = fs::metadata(&source).map_err(|e| said(&source, e))?;
        if model.is_dir() {
            make_dir_for(&target, &model).map_err(|e| said(&target, e))?;
            contents(&source, &target, copied)?;
            take_mode_of(&target, &model).map_err(|e| said(&target, e))?;
        } else if model.is_file() {
            file(&source, &target, &model)?;
            copied(model.len());
        }
    }
    sync_dir(to).map_err(|e| said(to, e))
}

/// Which of the two files an error is about is said.
fn file(from: &Path, to: &Path, model: &Metadata) -> io::Result<()> {
    let of = |path: &Path, doing: &str, e: io::Error| {
        io::Error::new(e.kind(), format!("{}: {doing}: {e}", path.display()))
    };
    let mut source = File::open(from).map_err(|e| of(from, "opening it", e))?;
    let mut target = File::create_new(to).map_err(|e| of(to, "making it", e))?;
    let mut piece = vec![0; limits::WAL_WINDOW_BYTES];
    loop {
        let count = source.read(&mut piece).map_err(|e| of(from, "reading it", e))?;
        if count == 0 {
            break;
        }
        target.write_all(&piece[..count]).map_err(|e| of(to, "writing it", e))?;
    }
    target
        .set_times(FileTimes::new().set_modified(model.modified()?))
        .and_then(|()| target.set_permissions(model.permissions()))
        .and_then(|()| give_to_owner_of(to, model))
        .and_then(|()| target.sync_all())
        .map_err(|e| of(to, "syncing it", e))
}

/// Makes a directory for the owner of another. It gets that one's mode by `take_mode_of`, in the end: such a
/// mode need not allow to write.
pub fn make_dir_for(path: &Path, model: &Metadata) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)?;
    give_to_owner_of(path, model)
}

pub fn take_mode_of(dir: &Path, model: &Metadata) -> io::Result<()> {
    let dir = File::open(dir)?;
    dir.set_permissions(fs::Permissions::from_mode(model.mode() & 0o7777))?;
    dir.sync_all()
}

/// What root makes for a server belongs to whom the data belongs; others make what is theirs.
pub fn give_to_owner_of(path: &Path, model: &Metadata) -> io::Result<()> {
    if nix::unistd::geteuid().is_root() {
        chown(path, Some(model.uid()), Some(model.gid()))?;
    }
    Ok(())
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

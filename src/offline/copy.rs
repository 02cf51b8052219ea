//! Whole directories: a copy of one, and the owner that new files are to have.

use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::lock::CORE_LOCK_FILE;

/// Copies a directory with all that is in it, links followed. Not the files that servers lock: they are
/// empty, and closing them would end a lock that this process has. The target must not be there. All of it is
/// on disk when this returns, but for the target's own name.
pub fn tree(from: &Path, to: &Path, copied: &dyn Fn(u64)) -> io::Result<()> {
    let said = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let model = fs::metadata(from).map_err(|e| said(from, e))?;
    make_dir_like(to, &model).map_err(|e| said(to, e))?;
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

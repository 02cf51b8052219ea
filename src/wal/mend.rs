//! Makes a directory that a crash left fit for the core: torn tails are cut, files that were made and never
//! written are removed, or begun where removing them would leave a gap.
//!
//! The caller holds the directory's lock and has a verdict that allows it. Nothing that was whole is touched.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use super::finding::{Verdict, WalError};
use super::format::Version;
use super::scan::{Scan, log_name};

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Files that were cut, with their new length.
    pub cut: Vec<(u32, u64)>,
    pub removed: Vec<u32>,
    /// Files that got the version without which the core can't read them.
    pub begun: Vec<u32>,
}

/// Panics if the scan's verdict is a refusal.
pub fn mend(dir: &Path, scan: &Scan) -> Result<Mended, WalError> {
    assert_ne!(scan.verdict(), Verdict::Refused, "a refused directory stays as it is");
    let mut mended = Mended::default();
    // From the end and then from the front, so that a stop in between leaves no gap.
    for number in scan.unwritten_tail().chain(scan.unwritten_head()) {
        if mended.removed.contains(&number) {
            break; // there are no others
        }
        change(dir, number, "removing it", |path| fs::remove_file(path))?;
        mended.removed.push(number);
    }
    for (number, length) in scan.torn_tails().filter(|(number, _)| !mended.removed.contains(number)) {
        change(dir, number, "cutting its torn tail", |path| shorten(path, length))?;
        mended.cut.push((number, length));
    }
    let unwritten = scan.files.iter().filter(|file| file.version.is_none()).map(|file| file.number);
    for number in unwritten.filter(|number| !mended.removed.contains(number)) {
        change(dir, number, "writing its version", begin)?;
        mended.begun.push(number);
    }
    if !mended.removed.is_empty() {
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| WalError::new(dir, "syncing the directory", error))?;
    }
    Ok(mended)
}

/// Puts on disk what a server that was killed may have left in the machine's memory: what is answered from it
/// must not be lost later.
pub fn sync(dir: &Path, scan: &Scan, mended: &Mended) -> Result<(), WalError> {
    let unsynced = scan.files.iter().map(|file| file.number).filter(|&number| number >= scan.unsynced_from);
    for number in unsynced.filter(|number| !mended.removed.contains(number)) {
        change(dir, number, "syncing it", |path| File::open(path)?.sync_data())?;
    }
    Ok(())
}

fn change(
    dir: &Path,
    number: u32,
    doing: &'static str,
    what: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), WalError> {
    let path = dir.join(log_name(number));
    what(&path).map_err(|error| WalError::new(&path, doing, error))
}

fn shorten(path: &Path, length: u64) -> io::Result<()> {
    let file = open_to_write(path)?;
    file.set_len(length)?;
    file.sync_all()
}

fn begin(path: &Path) -> io::Result<()> {
    let file = open_to_write(path)?;
    file.write_all_at(&Version::V7.number().to_ne_bytes(), 0)?;
    file.sync_all()
}

fn open_to_write(path: &Path) -> io::Result<File> {
    match OpenOptions::new().write(true).open(path) {
        // The core makes its files read-only.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let before = fs::metadata(path)?.permissions();
            fs::set_permissions(path, Permissions::from_mode(before.mode() | 0o200))?;
            let file = OpenOptions::new().write(true).open(path);
            fs::set_permissions(path, before)?;
            file
        }
        other => other,
    }
}

//! Makes a directory that a crash left fit for the core: torn tails are cut, files that were made and never
//! written are removed where that leaves no gap.
//!
//! The caller holds the directory's lock and has a verdict that allows it. Nothing that was whole is touched.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::finding::{Verdict, WalError};
use super::scan::{Scan, log_name};

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Files that were cut, with their new length.
    pub cut: Vec<(u32, u64)>,
    pub removed: Vec<u32>,
}

/// Panics if the scan's verdict is a refusal.
pub fn mend(dir: &Path, scan: &Scan) -> Result<Mended, WalError> {
    assert_ne!(scan.verdict(), Verdict::Refused, "a refused directory stays as it is");
    // From the front, so that a stop in between leaves no gap.
    let removed: Vec<u32> = scan.unwritten_head().collect();
    for &number in &removed {
        let path = dir.join(log_name(number));
        fs::remove_file(&path).map_err(|error| WalError::new(&path, "removing it", error))?;
    }
    let cut: Vec<(u32, u64)> = scan.torn_tails().filter(|(number, _)| !removed.contains(number)).collect();
    for &(number, length) in &cut {
        let path = dir.join(log_name(number));
        shorten(&path, length).map_err(|error| WalError::new(&path, "cutting its torn tail", error))?;
    }
    if !removed.is_empty() {
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| WalError::new(dir, "syncing the directory", error))?;
    }
    Ok(Mended { cut, removed })
}

fn shorten(path: &Path, length: u64) -> io::Result<()> {
    let file = match OpenOptions::new().write(true).open(path) {
        // The core makes its files read-only.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let before = fs::metadata(path)?.permissions();
            fs::set_permissions(path, Permissions::from_mode(before.mode() | 0o200))?;
            let file = OpenOptions::new().write(true).open(path);
            fs::set_permissions(path, before)?;
            file?
        }
        other => other?,
    };
    file.set_len(length)?;
    file.sync_all()
}

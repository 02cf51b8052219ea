//! The highest ids that a log directory has handed out, so that none comes twice, and what else has to outlive the
//! logs: `ids.toml` beside them.
//!
//! As long as a log has a record of an id, the log itself tells. So the file has to know two things more:
//!
//! * `forgotten`: no id up to here is handed out, though the log may have no record of it any more. A record
//!   goes when its file is unlinked, and `cover` comes before that. It is not synced: it has to survive our
//!   processes, not the machine.
//! * `reserved`: what a machine that stops may take away of the log's unsynced end is not above this. It is
//!   raised a block ahead, synced, before an id beyond it is told to anybody, and counts only after the
//!   machine was started anew (`boot`) without an orderly end of ours in between. So ids go on without a gap
//!   after any kill, and with a gap of less than a block after a power failure.
//!
//! The same tells whether the machine may have stopped while a server wrote here. `seed` is that of the logs'
//! checksums (`seal`), for a log whose begin is lost.
//!
//! A server that does not know the file goes on above the highest id in the log; the file's numbers are lower
//! bounds, so that the directory can be handed there and back.
//!
//! The file is replaced as a whole at the start and written in place afterwards: fixed width, below one sector,
//! in one write. So neither a kill nor a full disk can leave half of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Its name in a log's directory.
pub const IDS_FILE: &str = "ids.toml";

/// Raised for any change of the file. 1 had no seed.
const FORMAT: u32 = 2;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ids {
    format: u32,
    forgotten: u64,
    reserved: u64,
    /// 0: none. TOML has integers of 63 bits.
    #[serde(default)]
    seed: u64,
    boot: String,
}

/// What is known of a directory before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Past {
    /// The highest id that is ruled out, 0 without one.
    pub used_up: u64,
    /// The machine was started anew without an orderly end of the server that wrote here last.
    pub power_failed: bool,
    /// Of the checksums in the logs.
    pub seed: Option<u64>,
}

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum IdsError {
    #[error("{}: {doing}: {source}", path.display())]
    Io { path: PathBuf, doing: &'static str, source: io::Error },
    #[error(
        "{}: damaged: {reason}. It says which ids are used up. Restore it from a copy, or remove it: then ids go on \
         above the highest in the log, and those of jobs that are gone for long may come again",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
}

/// The file of a running owner.
pub struct IdFloor {
    file: File,
    ids: Ids,
    /// The highest id that was used before this start, as far as anything knows.
    known: u64,
    block: u64,
}

/// What the directory's file says, if there is one.
pub fn past(dir: &Path) -> Result<Past, IdsError> {
    let boot = boot_id();
    Ok(load(dir)?.map_or_else(Past::default, |ids| Past {
        used_up: ids.used_up(&boot),
        power_failed: ids.reserved > 0 && !ids.same_boot(&boot),
        seed: (ids.seed > 0).then_some(ids.seed),
    }))
}

/// The highest id that the directory's file rules out, 0 without one.
pub fn used_up(dir: &Path) -> Result<u64, IdsError> {
    Ok(past(dir)?.used_up)
}

/// Makes the file for a directory whose ids up to `last_id` were handed out, durably but for its name.
pub fn store(dir: &Path, last_id: u64) -> Result<(), IdsError> {
    let ids = Ids { format: FORMAT, forgotten: last_id, reserved: 0, seed: 0, boot: String::new() };
    replace(dir, &ids).map(|_| ())
}

impl IdFloor {
    /// For the one owner of a directory. `last_id` is the highest id in the log or otherwise known; `block`
    /// is how far ids are reserved ahead.
    pub fn open(dir: &Path, last_id: u64, block: u64) -> Result<IdFloor, IdsError> {
        let boot = boot_id();
        let before = load(dir)?;
        let forgotten = before.as_ref().map_or(0, |ids| ids.used_up(&boot));
        let known = last_id.max(forgotten);
        let seed = before.map(|ids| ids.seed).filter(|seed| *seed > 0);
        let seed = seed.unwrap_or_else(|| fastrand::u64(1..1 << 63));
        let ids = Ids { format: FORMAT, forgotten, reserved: known.saturating_add(block), seed, boot };
        let file = replace(dir, &ids)?;
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| io_error(dir, "syncing the directory", source))?;
        Ok(IdFloor { file, ids, known, block })
    }

    /// No id up to this one is to be handed out.
    pub fn last_id(&self) -> u64 {
        self.known
    }

    /// Of the checksums in this directory.
    pub fn seed(&self) -> u64 {
        self.ids.seed
    }

    /// To be called before a file of the log is unlinked; `last_id` is the highest id handed out so far.
    pub fn cover(&mut self, last_id: u64) -> io::Result<()> {
        let forgotten = last_id.max(self.known);
        if forgotten > self.ids.forgotten {
            self.ids.forgotten = forgotten;
            self.write()?;
        }
        Ok(())
    }

    /// To be called before ids up to `last_id` are told to anybody.
    pub fn reserve(&mut self, last_id: u64) -> io::Result<()> {
        if last_id > self.ids.reserved {
            self.ids.reserved = last_id.saturating_add(self.block);
            self.write()?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// After an orderly end with all of the log on disk: nothing of it can get lost any more.
    pub fn close(mut self) -> io::Result<()> {
        self.ids.reserved = 0;
        self.write()?;
        self.file.sync_data()
    }

    fn write(&self) -> io::Result<()> {
        self.file.write_all_at(self.ids.text().as_bytes(), 0)
    }
}

impl Ids {
    fn used_up(&self, boot: &str) -> u64 {
        if self.same_boot(boot) { self.forgotten } else { self.forgotten.max(self.reserved) }
    }

    fn same_boot(&self, boot: &str) -> bool {
        self.boot == boot && !boot.is_empty()
    }

    /// Always of the same length.
    fn text(&self) -> String {
        format!(
            "# Ids that were handed out here. Written by trellis; do not edit.\nformat = {}\nforgotten = {:<20}\n\
             reserved = {:<20}\nseed = {:<20}\nboot = {:<66}\n",
            self.format,
            self.forgotten,
            self.reserved,
            self.seed,
            format!("\"{}\"", self.boot)
        )
    }
}

fn load(dir: &Path) -> Result<Option<Ids>, IdsError> {
    let path = dir.join(IDS_FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(IdsError::Damaged { path, reason: "it is not UTF-8 text".into() });
        }
        other => other.map_err(|source| io_error(&path, "reading it", source))?,
    };
    let damaged = |reason: String| IdsError::Damaged { path: path.clone(), reason };
    let ids: Ids = toml::from_str(&text).map_err(|e| damaged(e.message().replace('\n', " ")))?;
    if !(1..=FORMAT).contains(&ids.format) {
        return Err(damaged(format!("its format is {}, this program knows {FORMAT}", ids.format)));
    }
    Ok(Some(ids))
}

/// Puts the whole file in place; its name is durable when the caller has synced the directory.
fn replace(dir: &Path, ids: &Ids) -> Result<File, IdsError> {
    let (path, temp) = (dir.join(IDS_FILE), dir.join("ids.toml.new"));
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temp)?;
        file.write_all(ids.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temp, &path)?;
        Ok(file)
    };
    write().map_err(|source| io_error(&path, "writing it", source))
}

/// Names this run of the machine; empty if it can't be told, which is taken for another run.
fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id = text.trim();
    let plain = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if plain { id.to_owned() } else { String::new() }
}

fn io_error(path: &Path, doing: &'static str, source: io::Error) -> IdsError {
    IdsError::Io { path: path.to_owned(), doing, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;

    const BLOCK: u64 = 1000;

    fn open(dir: &Path, last_id: u64) -> IdFloor {
        IdFloor::open(dir, last_id, BLOCK).unwrap()
    }

    /// As if the machine had been started anew.
    fn reboot(dir: &Path) {
        let path = dir.join(IDS_FILE);
        let text = fs::read_to_string(&path).unwrap();
        let boot = boot_id();
        assert!(!boot.is_empty() && text.contains(&boot), "{text}");
        fs::write(path, text.replace(&boot, &"f".repeat(boot.len()))).unwrap();
    }

    #[test]
    fn kill_leaves_no_gap_and_keeps_what_was_covered() {
        let dir = TempDir::new();
        assert_eq!(open(&dir, 0).last_id(), 0);
        let mut floor = open(&dir, 7);
        assert_eq!(floor.last_id(), 7);
        floor.reserve(9).unwrap();
        // The log still knows 9.
        assert_eq!(used_up(&dir).unwrap(), 0);
        floor.cover(9).unwrap();
        assert_eq!(open(&dir, 0).last_id(), 9);
        assert_eq!(used_up(&dir).unwrap(), 9);
    }

    /// A log last written by stock may have forgotten ids that only short records told of.
    #[test]
    fn cover_includes_what_was_known_at_the_start() {
        let dir = TempDir::new();
        open(&dir, 50).cover(3).unwrap();
        assert_eq!(open(&dir, 0).last_id(), 50);
    }

    #[test]
    fn power_failure_rules_out_all_that_may_have_been_told() {
        let dir = TempDir::new();
        let mut floor = open(&dir, 10);
        for id in 11..5000 {
            floor.reserve(id).unwrap();
        }
        reboot(&dir);
        let gone = open(&dir, 10).last_id();
        assert!((4999..4999 + BLOCK).contains(&gone), "{gone}");
        // A kill right after that start must not bring them back.
        assert_eq!(open(&dir, 10).last_id(), gone);
    }

    #[test]
    fn orderly_end_leaves_no_gap_over_a_start_of_the_machine() {
        let dir = TempDir::new();
        let mut floor = open(&dir, 10);
        floor.reserve(20).unwrap();
        floor.close().unwrap();
        reboot(&dir);
        assert_eq!(open(&dir, 20).last_id(), 20);
    }

    #[test]
    fn power_failure_is_known_until_the_next_start_and_not_after_an_orderly_end() {
        let dir = TempDir::new();
        assert_eq!(past(&dir).unwrap(), Past::default());
        let floor = open(&dir, 10);
        let seed = floor.seed();
        assert_eq!(past(&dir).unwrap(), Past { used_up: 0, power_failed: false, seed: Some(seed) });
        reboot(&dir);
        assert_eq!(past(&dir).unwrap(), Past { used_up: 10 + BLOCK, power_failed: true, seed: Some(seed) });
        let floor = open(&dir, 10);
        assert!(!past(&dir).unwrap().power_failed && floor.seed() == seed);
        floor.close().unwrap();
        reboot(&dir);
        assert!(!past(&dir).unwrap().power_failed);
    }

    #[test]
    fn file_of_the_format_without_a_seed_gets_one() {
        let dir = TempDir::new();
        fs::write(dir.join(IDS_FILE), "format = 1\nforgotten = 7\nreserved = 9\nboot = \"b\"\n").unwrap();
        assert_eq!(past(&dir).unwrap(), Past { used_up: 9, power_failed: true, seed: None });
        assert!(open(&dir, 0).seed() > 0);
    }

    #[test]
    fn file_is_of_one_length_below_a_sector_whatever_is_in_it() {
        let text = |n: u64, boot: &str| {
            Ids { format: FORMAT, forgotten: n, reserved: n, seed: n, boot: boot.into() }.text()
        };
        let (shortest, longest) = (text(0, ""), text(u64::MAX >> 1, &"b".repeat(64)));
        assert_eq!(shortest.len(), longest.len());
        assert!(longest.len() <= 512);
        let ids: Ids = toml::from_str(&longest).unwrap();
        assert_eq!(ids.forgotten, u64::MAX >> 1);
    }

    #[test]
    fn stored_file_rules_out_its_ids() {
        let dir = TempDir::new();
        store(&dir, 77).unwrap();
        assert_eq!(used_up(&dir).unwrap(), 77);
        assert_eq!(open(&dir, 5).last_id(), 77);
    }

    #[test]
    fn damaged_file_is_named_with_the_way_out() {
        let dir = TempDir::new();
        for bytes in
            [&b""[..], b"\xff\xfe", b"format = 3\nforgotten = 1\nreserved = 1\nseed = 1\nboot = \"\"\n", b"{"]
        {
            fs::write(dir.join(IDS_FILE), bytes).unwrap();
            let message = used_up(&dir).unwrap_err().to_string();
            assert!(message.contains("ids.toml: damaged") && message.contains("remove it"), "{message}");
        }
    }
}

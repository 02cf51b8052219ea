//! `trellis wal repair`: makes a directory's logs fit to be served, after a copy of it was made.
//!
//! Torn tails are cut. Damaged logs are written anew from what is whole in them; what is not, files that are
//! missing, and jobs that belong into another slot are said. Never without a copy, never while a server runs.
//! Stopped in the middle it can be run again: new files stand behind the old ones, and repeat them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::progress::Progress;
use super::unfinished::{Unfinished, has_name};
use super::{DataDir, LogDir, copy, hold::Hold, io_fatal};
use crate::error::{Exit, Fatal};
use crate::limits;
use crate::topology::IDENTITY_FILE;
use crate::wal::ids::{self, IdsError};
use crate::wal::{Bodies, Cause, Finding, LogWriter, Scan, Verdict, log_name, mend};

/// What was done, in the form of the JSON output.
#[derive(Serialize, Debug, Default)]
pub struct Outcome {
    pub directory: String,
    /// Where the copy is; absent if nothing was to be repaired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    pub logs: Vec<Repaired>,
}

#[derive(Serialize, Debug)]
pub struct Repaired {
    pub directory: String,
    pub jobs_kept: u64,
    /// What could not be kept, a line each: bytes that are in the copy only, and files that are not there.
    pub lost: Vec<String>,
    /// Some of that may have been records of any job: jobs may be in an older state, and deleted ones back.
    pub may_be_older: bool,
    /// Why `ids.toml` could not be used, if it was written anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids_replaced: Option<String>,
    /// Ids go on above this one.
    pub last_id: u64,
    /// Ids of jobs that are in the copy only, because they belong into another slot.
    pub foreign: Vec<u64>,
}

/// Repairs what `check` finds. `backup` is where the copy goes, else beside the directory.
pub fn repair(path: &Path, backup: Option<&Path>) -> Result<Outcome, Fatal> {
    if path.join(IDENTITY_FILE).exists() {
        let reason = "this is one slot's directory: give the data directory that it is in";
        return Err(Fatal::new(Exit::Usage, format!("{}: {reason}", path.display())));
    }
    let data = DataDir::look(path)?.with_logs()?;
    if let Some(fault) = data.faults.first() {
        let reason = "only logs can be repaired";
        return Err(Fatal::new(Exit::Data, format!("{}: {reason}, but: {fault}", path.display())));
    }
    let _hold = Hold::to_write(&data)?;
    let mut outcome = Outcome { directory: path.display().to_string(), ..Outcome::default() };
    let mut broken = Vec::new();
    let progress = Progress::bytes("reading", data.log_bytes()?);
    for log in &data.logs {
        let scan = data.scan(log, &|bytes| progress.advance(bytes))?;
        if scan.verdict() != Verdict::Sound || ids::used_up(&log.path).is_err() {
            refuse_what_is_no_file(log, &scan)?;
            broken.push((log, scan));
        }
    }
    drop(progress);
    if broken.is_empty() {
        return Ok(outcome);
    }
    outcome.copy = Some(make_copy(&data, backup)?.display().to_string());
    for (log, scan) in broken {
        outcome.logs.push(repair_log(&data, log, scan)?);
    }
    Ok(outcome)
}

impl Outcome {
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("an outcome is plain data") + "\n"
    }

    pub fn text(&self) -> String {
        let Some(copy) = &self.copy else { return format!("{}: nothing to repair\n", self.directory) };
        let mut lines = vec![format!("{}: a copy as it was is in {copy}", self.directory)];
        for log in &self.logs {
            lines.push(format!("{}: repaired: {} jobs", log.directory, log.jobs_kept));
            lines.extend(log.lost.iter().map(|lost| format!("  lost: {lost}")));
            if log.may_be_older {
                let what = "jobs may be in an older state, and deleted ones may be back";
                lines.push(format!("  what was recorded there is not known: {what}"));
            }
            if let Some(reason) = &log.ids_replaced {
                let what = "those of jobs that are gone for long may come again";
                let (file, id) = (ids::IDS_FILE, log.last_id);
                lines.push(format!(
                    "  {file} was damaged ({reason}) and is new: ids go on above {id}, and {what}"
                ));
            }
            if !log.foreign.is_empty() {
                let (count, ids) = (log.foreign.len(), &log.foreign);
                lines.push(format!("  in the copy only: {count} jobs of other slots: {ids:?}"));
            }
        }
        lines.join("\n") + "\n"
    }
}

fn refuse_what_is_no_file(log: &LogDir, scan: &Scan) -> Result<(), Fatal> {
    let no_file = |finding: &&Finding| matches!(finding, Finding::OddFile { cause: Cause::NoFile, .. });
    match scan.findings.iter().find(no_file) {
        Some(finding) => {
            Err(Fatal::new(Exit::Data, format!("{}/{finding}: move it elsewhere", log.path.display())))
        }
        None => Ok(()),
    }
}

fn make_copy(data: &DataDir, backup: Option<&Path>) -> Result<PathBuf, Fatal> {
    let place = match backup {
        Some(place) => place.to_owned(),
        None => (1..)
            .map(|number| copy::beside(&data.path, &format!(".before-repair-{number}")))
            .find(|place| fs::symlink_metadata(place).is_err())
            .expect("some number is free"),
    };
    if fs::symlink_metadata(&place).is_ok() || !has_name(&place) {
        let reason = "is there already: name another place for the copy";
        return Err(Fatal::new(Exit::Usage, format!("{}: {reason}", place.display())));
    }
    let progress = Progress::bytes("copying", data.log_bytes()?);
    let copied = || {
        let model = fs::metadata(&data.path).map_err(|error| io_fatal(&data.path, "looking at it", error))?;
        let unfinished = Unfinished::begin(&place, &model)?;
        copy::contents(&data.path, unfinished.path(), &|bytes| progress.advance(bytes))
            .map_err(|error| Fatal::new(Exit::of_data(error.kind()), error))?;
        unfinished.finish()
    };
    match copied() {
        Ok(()) => Ok(place),
        Err(Fatal { code, message }) => {
            let message = format!("{}: making the copy; nothing was changed: {message}", place.display());
            Err(Fatal { code, message })
        }
    }
}

fn repair_log(data: &DataDir, log: &LogDir, scan: Scan) -> Result<Repaired, Fatal> {
    let mut repaired = Repaired {
        directory: log.path.display().to_string(),
        jobs_kept: scan.jobs.len() as u64,
        lost: scan.findings.iter().map(|finding| finding.to_string()).collect(),
        may_be_older: false,
        ids_replaced: None,
        last_id: scan.max_id,
        foreign: Vec::new(),
    };
    if scan.verdict() == Verdict::Refused {
        drop(scan);
        write_anew(data, log, &mut repaired)?;
    } else {
        mend(&log.path, &scan)?;
    }
    match ids::used_up(&log.path) {
        Ok(used_up) => repaired.last_id = repaired.last_id.max(used_up),
        // It says nothing any more; the ids that are known are known.
        Err(IdsError::Damaged { reason, .. }) => repaired.ids_replaced = Some(reason),
        Err(IdsError::Io { source, .. }) => repaired.ids_replaced = Some(source.to_string()),
    }
    ids::store(&log.path, repaired.last_id)?;
    give_away(&log.path.join(ids::IDS_FILE), log)?;
    copy::sync_dir(&log.path).map_err(|error| io_fatal(&log.path, "syncing it", error))?;
    let after = data.scan(log, &|_| {})?;
    if after.verdict() != Verdict::Sound || after.jobs.len() as u64 != repaired.jobs_kept {
        let reason = "still not sound after the repair; use the copy";
        return Err(Fatal::new(Exit::Data, format!("{}: {reason}", log.path.display())));
    }
    Ok(repaired)
}

/// Writes what is whole into new files and removes the old ones.
fn write_anew(data: &DataDir, log: &LogDir, repaired: &mut Repaired) -> Result<(), Fatal> {
    let progress = Progress::bytes("salvaging", crate::wal::log_bytes(&log.path)?);
    let salvage = data.salvage(log, &|bytes| progress.advance(bytes))?;
    drop(progress);
    let first = salvage.files.last().map_or(1, |last| last + 1);
    let mut writer = LogWriter::new(&log.path, first, limits::WAL_FILE_BYTES_DEFAULT);
    let mut bodies = Bodies::new(&log.path);
    let progress = Progress::jobs("writing", salvage.jobs.len() as u64);
    for job in salvage.jobs.iter() {
        writer.append(job, &mut bodies)?;
        progress.advance(1);
    }
    let end = writer.finish()?;
    for number in first..end {
        give_away(&log.path.join(log_name(number)), log)?;
    }
    copy::sync_dir(&log.path).map_err(|error| io_fatal(&log.path, "syncing it", error))?;
    let old = salvage.files.iter().map(|&number| log_name(number)).chain(salvage.odd.iter().cloned());
    for name in old {
        let path = log.path.join(name);
        fs::remove_file(&path).map_err(|error| io_fatal(&path, "removing it", error))?;
    }
    repaired.jobs_kept = salvage.jobs.len() as u64;
    let lost = |loss: &crate::wal::Loss| {
        format!("{} from byte {} to {}: {}", log_name(loss.file), loss.from, loss.to, loss.cause)
    };
    let contradictions = salvage.contradictions.iter().map(Finding::to_string);
    repaired.lost =
        missing(&salvage.files).chain(salvage.losses.iter().map(lost)).chain(contradictions).collect();
    repaired.may_be_older = !repaired.lost.is_empty();
    repaired.lost.extend(salvage.odd);
    repaired.foreign = salvage.foreign.iter().map(|(id, _)| *id).collect();
    repaired.last_id = repaired.last_id.max(salvage.max_id);
    Ok(())
}

/// The gaps between files.
fn missing(files: &[u32]) -> impl Iterator<Item = String> {
    files.windows(2).filter(|pair| pair[1] - pair[0] > 1).map(|pair| {
        let (first, last) = (pair[0] + 1, pair[1] - 1);
        let more = if first == last { String::new() } else { format!(" to {}", log_name(last)) };
        format!("{}{more}: {}", log_name(first), Cause::FileMissing)
    })
}

fn give_away(path: &Path, log: &LogDir) -> Result<(), Fatal> {
    fs::metadata(&log.path)
        .and_then(|model| copy::give_to_owner_of(path, &model))
        .map_err(|error| io_fatal(path, "giving it to the owner of its directory", error))
}

//! `trellis wal check`: are the logs of a directory whole, and does everything in them belong there? Read only,
//! but for temporary files.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::hold;
use super::progress::Progress;
use super::{DataDir, LogDir, room};
use crate::error::{Exit, Fatal};
use crate::wal::{Cause, Finding, JobSorter, Scan, Tally, Verdict, ids, log_name};

/// What was found, in the form of the JSON output.
#[derive(Serialize, Debug)]
pub struct Report {
    pub directory: String,
    /// `sound`, `torn` or `damaged`.
    pub verdict: &'static str,
    /// Of the topology; absent for a single-process server's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// A server that runs on it: what it is writing may look torn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<String>,
    /// Faults of anything but the logs.
    pub faults: Vec<String>,
    pub logs: Vec<LogReport>,
    /// What can be done about damage.
    #[serde(skip)]
    way_out: &'static str,
}

/// The logs of one slot.
#[derive(Serialize, Debug)]
pub struct LogReport {
    pub directory: String,
    pub slot: u16,
    pub verdict: &'static str,
    pub files: Vec<FileLine>,
    pub jobs: JobCounts,
    /// Of the records of live jobs.
    pub live_bytes: u64,
    /// In any record.
    pub highest_id: u64,
    pub faults: Vec<Fault>,
    /// Beyond those in `faults`.
    pub faults_left_off: u64,
}

#[derive(Serialize, Debug)]
pub struct FileLine {
    pub name: String,
    pub bytes: u64,
    /// Absent: never written to, or unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
    pub records: u64,
    /// Where its whole records end.
    pub end: u64,
}

#[derive(Serialize, Debug, Default)]
pub struct JobCounts {
    pub ready: u64,
    pub delayed: u64,
    pub buried: u64,
}

#[derive(Serialize, Debug)]
pub struct Fault {
    /// `torn`, `damaged`, `odd-file`, `foreign-tube` or `foreign-id`.
    pub kind: &'static str,
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tube: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Whose tube it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_owner: Option<u16>,
    pub text: String,
    /// It is in the place of a log, and no regular file.
    #[serde(skip)]
    no_file: bool,
}

/// Reads all logs.
pub fn check(path: &Path) -> Result<Report, Fatal> {
    let data = DataDir::look(path)?.with_logs()?;
    let progress = Progress::bytes("reading", data.log_bytes()?);
    let mut logs = Vec::new();
    let room = room();
    for (number, log) in data.logs.iter().enumerate() {
        let scan = data.sort(number, &mut JobSorter::new(&room, 1), &|bytes| progress.advance(bytes))?;
        logs.push(LogReport::new(log, &scan));
    }
    Ok(Report::new(&data, logs))
}

const SOUND: &str = "sound";
const TORN: &str = "torn";
const DAMAGED: &str = "damaged";

fn severity(verdict: &str) -> u8 {
    match verdict {
        SOUND => 0,
        TORN => 1,
        _ => 2,
    }
}

impl Report {
    pub(super) fn new(data: &DataDir, logs: Vec<LogReport>) -> Report {
        let ids = data.logs.iter().filter_map(|log| ids::used_up(&log.path).err());
        let faults: Vec<String> =
            data.faults.iter().cloned().chain(ids.map(|error| error.to_string())).collect();
        let worst = logs.iter().map(|log| log.verdict).max_by_key(|verdict| severity(verdict));
        Report {
            directory: data.path.display().to_string(),
            verdict: if faults.is_empty() { worst.unwrap_or(SOUND) } else { DAMAGED },
            fingerprint: data.topology.as_ref().map(|topology| topology.fingerprint().to_string()),
            in_use: hold::user_of(data),
            way_out: way_out(data, &logs),
            faults,
            logs,
        }
    }

    pub fn exit(&self) -> Exit {
        match self.verdict {
            SOUND => Exit::Done,
            TORN => Exit::Torn,
            _ => Exit::Damaged,
        }
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data") + "\n"
    }

    /// A line a slot, a line a fault, and a line for all.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |text_of_line: &str| {
            text.push_str(text_of_line);
            text.push('\n');
        };
        if let Some(user) = &self.in_use {
            line(&format!("in use: {user}; what it is writing now may look torn"));
        }
        self.faults.iter().for_each(|fault| line(&format!("fault: {fault}")));
        for log in &self.logs {
            line(&log.line());
            log.faults.iter().for_each(|fault| line(&format!("  {}/{}", log.directory, fault.text)));
            if log.faults_left_off > 0 {
                line(&format!("  and {} more", log.faults_left_off));
            }
        }
        let end = match self.verdict {
            SOUND => "sound",
            TORN => "torn tail: what a crash leaves; the server cuts it off when it starts",
            _ => "damaged: not served as it is; ",
        };
        if self.logs.iter().any(|log| log.verdict == DAMAGED) {
            line("of each file the first fault is named, and what is behind it there is not counted");
        }
        let way_out = if self.verdict == DAMAGED { self.way_out } else { "" };
        line(&format!("{}: {end}{way_out}", self.directory));
        text
    }
}

/// Whether `repair` would take it.
fn way_out(data: &DataDir, logs: &[LogReport]) -> &'static str {
    let no_file = |fault: &Fault| fault.no_file;
    if !data.faults.is_empty() {
        "`trellis wal repair` mends logs only: first do what the fault says"
    } else if data.one_slot {
        "give `trellis wal repair` the data directory that it is in"
    } else if logs.iter().any(|log| log.faults.iter().any(no_file)) {
        "move elsewhere what is no regular file, then use `trellis wal repair`"
    } else {
        "`trellis wal repair` makes a copy, looks further and keeps what is whole"
    }
}

impl LogReport {
    pub(super) fn new(log: &LogDir, scan: &Scan<Tally>) -> LogReport {
        let Tally { ready, delayed, buried, record_bytes, .. } = scan.jobs;
        let file = |file: &crate::wal::FileReport| FileLine {
            name: log_name(file.number),
            bytes: file.bytes,
            version: file.version.map(|version| version.number()),
            records: file.records,
            end: file.end,
        };
        LogReport {
            directory: log.path.display().to_string(),
            slot: log.slot,
            verdict: match scan.verdict() {
                Verdict::Sound => SOUND,
                Verdict::Torn => TORN,
                Verdict::Refused => DAMAGED,
            },
            files: scan.files.iter().map(file).collect(),
            jobs: JobCounts { ready, delayed, buried },
            live_bytes: record_bytes,
            highest_id: scan.max_id,
            faults: scan.findings.iter().map(Fault::new).collect(),
            faults_left_off: scan.findings_left_off,
        }
    }

    fn line(&self) -> String {
        let bytes: u64 = self.files.iter().map(|file| file.bytes).sum();
        let records: u64 = self.files.iter().map(|file| file.records).sum();
        let JobCounts { ready, delayed, buried } = self.jobs;
        let mut text = format!("{}: slot {}: {}: ", self.directory, self.slot, self.verdict);
        write!(
            text,
            "{} files of {bytes} bytes with {records} records; {} jobs ({ready} ready, {delayed} delayed, {buried} \
             buried) in {} bytes; ids up to {}",
            self.files.len(),
            ready + delayed + buried,
            self.live_bytes,
            self.highest_id
        )
        .expect("a string takes any text");
        text
    }
}

impl Fault {
    fn new(finding: &Finding) -> Fault {
        let text = finding.to_string();
        let at = |kind, file: u32, offset: u64| Fault {
            kind,
            file: log_name(file),
            offset: Some(offset),
            tube: None,
            id: None,
            slot_owner: None,
            text: text.clone(),
            no_file: false,
        };
        match finding {
            Finding::TornTail { file, offset, .. } => at("torn", *file, *offset),
            Finding::Damaged { file, offset, .. } => at("damaged", *file, *offset),
            Finding::OddFile { name, cause } => {
                let no_file = *cause == Cause::NoFile;
                Fault { file: name.clone(), offset: None, no_file, ..at("odd-file", 0, 0) }
            }
            Finding::ForeignTube { file, offset, tube, slot_owner, .. } => Fault {
                tube: Some(tube.to_string()),
                slot_owner: Some(*slot_owner),
                ..at("foreign-tube", *file, *offset)
            },
            Finding::ForeignId { file, offset, id, .. } => {
                Fault { id: Some(*id), ..at("foreign-id", *file, *offset) }
            }
        }
    }
}

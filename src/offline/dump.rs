//! `trellis wal dump`: every live job of a directory, a line each, slots in their order and jobs in that of
//! replay. Read only, but for temporary files.
//!
//! Damaged logs give what the core would see of them; their faults go to stderr and make the exit code.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use super::check::{LogReport, Report};
use super::progress::Progress;
use super::{DataDir, room};
use crate::error::{Exit, Fatal};
use crate::output::say;
use crate::wal::{Bodies, Job, JobSorter, State};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    pub json: bool,
    pub bodies: bool,
}

/// A job, in the form of the JSON output.
#[derive(Serialize)]
struct Line<'a> {
    id: u64,
    slot: u16,
    tube: std::borrow::Cow<'a, str>,
    state: String,
    pri: u32,
    /// Seconds, as the client gave them.
    delay: i64,
    ttr: i64,
    /// Nanoseconds since 1970.
    created_at_ns: i64,
    /// When its delay ends; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_at_ns: Option<i64>,
    reserves: u32,
    timeouts: u32,
    releases: u32,
    buries: u32,
    kicks: u32,
    /// Without its CR LF.
    body_bytes: u32,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    /// In place of `body` where that is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
}

/// Writes all jobs and says how sound the logs are.
pub fn dump(path: &Path, form: Form, out: &mut dyn Write) -> Result<Exit, Fatal> {
    let data = DataDir::look(path)?.with_logs()?;
    let mut out = BufWriter::new(out);
    let progress = Progress::bytes("reading", data.log_bytes()?);
    let write_failed = |error: io::Error| Fatal::temporary("writing the jobs", error);
    let mut body = Vec::new();
    let mut reports = Vec::new();
    let room = room();
    for (number, log) in data.logs.iter().enumerate() {
        let mut jobs = JobSorter::new(&room, 1);
        let scan = data.sort(number, &mut jobs, &|bytes| progress.advance(bytes))?;
        reports.push(LogReport::new(log, &scan));
        let jobs = jobs.finish()?;
        let mut jobs = jobs.stream()?;
        let mut bodies = Bodies::new(&log.path);
        while let Some((_, job)) = jobs.next()? {
            body.clear();
            if form.bodies {
                bodies.copy(&job, &mut |piece| {
                    body.extend_from_slice(piece);
                    Ok(())
                })?;
                body.truncate(body.len() - 2);
            }
            let line = if form.json {
                let text = form.bodies.then(|| std::str::from_utf8(&body));
                let hex = |_| body.iter().map(|byte| format!("{byte:02x}")).collect();
                let (body, body_hex) = match text {
                    None => (None, None),
                    Some(Ok(text)) => (Some(text), None),
                    Some(Err(error)) => (None, Some(hex(error))),
                };
                serde_json::to_string(&Line { body, body_hex, ..line(&job, log.slot) }).expect("plain data")
            } else {
                let body = form.bodies.then(|| format!(" body \"{}\"", body.escape_ascii()));
                text(&line(&job, log.slot)) + &body.unwrap_or_default()
            };
            writeln!(out, "{line}").map_err(write_failed)?;
        }
    }
    out.flush().map_err(write_failed)?;
    drop(progress);
    let report = Report::new(&data, reports);
    if report.exit() != Exit::Done {
        say(report.text());
    }
    Ok(report.exit())
}

fn line(job: &Job, slot: u16) -> Line<'_> {
    const SECOND: i64 = 1_000_000_000;
    let r = &job.jobrec;
    Line {
        id: r.id,
        slot,
        tube: String::from_utf8_lossy(&job.tube),
        state: r.state.to_string(),
        pri: r.pri,
        delay: r.delay / SECOND,
        ttr: r.ttr / SECOND,
        created_at_ns: r.created_at,
        ready_at_ns: (r.state == State::Delayed).then_some(r.deadline_at),
        reserves: r.reserves,
        timeouts: r.timeouts,
        releases: r.releases,
        buries: r.buries,
        kicks: r.kicks,
        body_bytes: job.body_bytes() - 2,
        file: crate::wal::log_name(job.file),
        body: None,
        body_hex: None,
    }
}

fn text(line: &Line<'_>) -> String {
    let Line { id, slot, tube, state, pri, delay, ttr, body_bytes, .. } = line;
    let Line { reserves, timeouts, releases, buries, kicks, file, .. } = line;
    format!(
        "job {id} slot {slot} tube {tube} {state} pri {pri} delay {delay} ttr {ttr} bytes {body_bytes} reserves {reserves} \
         timeouts {timeouts} releases {releases} buries {buries} kicks {kicks} file {file}"
    )
}

//! A status for people: what is wrong first, then a line a slot and a line a frontend.

use std::fmt::Write;

use super::{Process, State, Status};

/// The whole text; each line ends with a newline.
pub fn render(status: &Status) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&(line + "\n"));
    let Status { topology: t, totals, .. } = status;
    let draining = if status.draining { ", draining: no new jobs" } else { "" };
    say(format!(
        "trellis {}, pid {}, up {}: {}{draining}",
        status.version,
        status.pid,
        span(status.uptime_ms),
        status.phase
    ));
    say(status.trouble.as_ref().map_or("all is well".to_owned(), |trouble| format!("TROUBLE: {trouble}")));
    say(format!(
        "topology: {} slots, {} partitions, layout {}, server {}, fingerprint {}",
        t.slots, t.partitions, t.layout, t.server_id, t.fingerprint
    ));

    let mut slots = Table::new(&[
        "slot",
        "state",
        "pid",
        "gen",
        "restarts",
        "tubes",
        "ready",
        "urgent",
        "reserved",
        "delayed",
        "buried",
        "waiting",
        "wal files",
        "wal bytes",
        "live",
        "last sync",
        "lag",
    ]);
    for slot in &status.slots {
        let (p, j) = (&slot.process, &slot.jobs);
        let wal = slot.wal.as_ref();
        let number = |value: Option<u64>| value.map_or("-".to_owned(), |number| number.to_string());
        let mut cells = vec![slot.slot.to_string()];
        cells.extend(process(p));
        // Without a process there is nobody who knows.
        let known = |n: u64| number(p.pid.map(|_| n));
        cells.extend([j.tubes, j.ready, j.urgent, j.reserved, j.delayed, j.buried, j.waiting].map(known));
        let wal = wal.filter(|_| p.pid.is_some());
        cells.push(number(wal.map(|w| w.files)));
        cells.extend([wal.map(|w| w.bytes), wal.map(|w| w.live_bytes)].map(|n| n.map_or("-".into(), size)));
        let age = wal.and_then(|w| w.last_sync_age_ms);
        cells.push(age.map_or("-".to_owned(), |ms| format!("{} ago", span(ms))));
        cells.push(lag(p));
        slots.row(cells, note(p));
    }
    text.push('\n');
    slots.write(&mut text);

    let mut frontends =
        Table::new(&["frontend", "state", "pid", "gen", "restarts", "clients", "in flight", "lag"]);
    for frontend in &status.frontends {
        let p = &frontend.process;
        let mut cells = vec![frontend.frontend.to_string()];
        cells.extend(process(p));
        cells.extend([frontend.clients, frontend.in_flight].map(|n| n.to_string()));
        cells.push(lag(p));
        frontends.row(cells, note(p));
    }
    text.push('\n');
    frontends.write(&mut text);

    let j = &totals.jobs;
    let line = writeln!(
        text,
        "\ntotal: {} tubes; {} jobs ready ({} urgent), {} reserved, {} delayed, {} buried; {} clients ({} producers, \
         {} workers, {} waiting); {} jobs put, {} connections, {} restarts, {} unknown outcomes, {} refused \
         for lack of space, {} refused multi-watch reserves",
        j.tubes,
        j.ready,
        j.urgent,
        j.reserved,
        j.delayed,
        j.buried,
        totals.clients,
        totals.producers,
        totals.workers,
        j.waiting,
        totals.jobs_put,
        totals.connections,
        totals.restarts,
        totals.unknown_outcomes,
        totals.refused_no_space,
        totals.refused_multi_watch,
    );
    line.expect("a string takes everything");
    text
}

fn process(p: &Process) -> [String; 4] {
    let pid = p.pid.map_or("-".to_owned(), |pid| pid.to_string());
    [p.state.name().to_owned(), pid, p.generation.to_string(), p.restarts.to_string()]
}

fn lag(p: &Process) -> String {
    match p.state {
        State::Up | State::Stalled if p.lag_ms < 1000.0 => format!("{:.1} ms", p.lag_ms),
        State::Up | State::Stalled => format!("{:.1} s", p.lag_ms / 1000.0),
        _ => "-".to_owned(),
    }
}

/// What else is to be said of a process, below its line.
fn note(p: &Process) -> Option<String> {
    let cause = p.cause.as_ref()?;
    Some(match p.next_try_ms {
        Some(ms) => format!("{cause} (next try in {})", span(ms)),
        None => cause.clone(),
    })
}

/// Columns as wide as what is in them; numbers to the right of their column.
struct Table {
    heads: Vec<&'static str>,
    rows: Vec<(Vec<String>, Option<String>)>,
}

impl Table {
    fn new(heads: &[&'static str]) -> Table {
        Table { heads: heads.to_vec(), rows: Vec::new() }
    }

    fn row(&mut self, cells: Vec<String>, note: Option<String>) {
        assert_eq!(cells.len(), self.heads.len());
        self.rows.push((cells, note));
    }

    fn write(&self, text: &mut String) {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|(cells, _)| cells[column].len());
            cells.chain([self.heads[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
                // The second is the one in words.
                let padded = if column == 1 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
                line.push_str(&padded);
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        };
        line(&mut self.heads.iter().copied());
        let mut notes = Vec::new();
        for (cells, note) in &self.rows {
            line(&mut cells.iter().map(String::as_str));
            if let Some(note) = note {
                notes.push(format!("  {} {}: {note}\n", self.heads[0], cells[0]));
            }
        }
        notes.iter().for_each(|note| text.push_str(note));
    }
}

/// Milliseconds in words, to two of them.
fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..=59 => format!("{s} s"),
        60..=3599 => format!("{} min {} s", s / 60, s % 60),
        3600..=86399 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}

/// Bytes, in the unit in which they are three or four digits.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 10_000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.0} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::super::{Frontend, Jobs, Slot, Topology, Totals, Wal};
    use super::*;

    fn process(state: State, cause: Option<&str>) -> Process {
        Process {
            state,
            cause: cause.map(str::to_owned),
            pid: (state != State::Failed).then_some(77),
            generation: 2,
            restarts: 1,
            next_try_ms: None,
            lag_ms: 0.25,
            last_end: None,
        }
    }

    fn sample() -> Status {
        let jobs = Jobs { tubes: 3, ready: 1234, ..Jobs::default() };
        let wal =
            Wal { files: 2, bytes: 20 << 20, live_bytes: 512, syncs: 9, last_sync_age_ms: Some(61_000) };
        let slot =
            |number, process, wal| Slot { slot: number, process, jobs: jobs.clone(), sessions: 0, wal };
        Status {
            version: "1.2.3".into(),
            instance: "0123456789abcdef".into(),
            pid: 42,
            uptime_ms: 90_061_000,
            phase: "serving".into(),
            draining: false,
            trouble: Some("slot 1 failed: ended with code 65: damaged".into()),
            topology: Topology {
                server_id: "feed".into(),
                slots: 2,
                partitions: 16,
                layout: "slots".into(),
                fingerprint: "abc".into(),
            },
            slots: vec![
                slot(0, process(State::Up, None), Some(wal)),
                slot(1, process(State::Failed, Some("ended with code 65: damaged")), None),
            ],
            frontends: vec![Frontend {
                frontend: 0,
                process: process(State::Up, None),
                clients: 5,
                in_flight: 2,
            }],
            totals: Totals {
                jobs,
                clients: 5,
                producers: 1,
                workers: 2,
                jobs_put: 9,
                connections: 7,
                restarts: 2,
                unknown_outcomes: 0,
                refused_no_space: 0,
                refused_multi_watch: 0,
            },
        }
    }

    #[test]
    fn table_says_what_is_wrong_first_and_again_at_its_slot() {
        let text = render(&sample());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "trellis 1.2.3, pid 42, up 1 d 1 h: serving");
        assert_eq!(lines[1], "TROUBLE: slot 1 failed: ended with code 65: damaged");
        let of_slot = |number: &str| *lines.iter().find(|l| l.trim_start().starts_with(number)).unwrap();
        for words in ["up", " 77 ", "1234", "20 MiB", "512 B", "1 min 1 s ago", "0.2 ms"] {
            assert!(of_slot("0 ").contains(words), "{words}: {}", of_slot("0 "));
        }
        assert!(of_slot("1 ").contains("FAILED") && !of_slot("1 ").contains("77"), "{text}");
        assert!(text.contains("  slot 1: ended with code 65: damaged\n"), "{text}");
    }

    #[test]
    fn process_that_is_tried_again_says_when() {
        let mut status = sample();
        status.slots[1].process.next_try_ms = Some(12_345);
        let text = render(&status);
        assert!(text.contains("  slot 1: ended with code 65: damaged (next try in 12 s)\n"), "{text}");
    }

    #[test]
    fn columns_stand_below_their_heads() {
        let text = render(&sample());
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("slot")).collect();
        for head in ["ready", "lag"] {
            let end = lines[0].find(head).unwrap() + head.len();
            for line in &lines[1..3] {
                assert_ne!(line.as_bytes()[end - 1], b' ', "{text}");
                assert!(line.as_bytes().get(end).is_none_or(|&b| b == b' '), "{text}");
            }
        }
    }

    #[test]
    fn status_survives_its_json() {
        let json = serde_json::to_string(&sample()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), sample());
        assert!(json.contains(r#""state":"failed""#), "{json}");
    }

    #[test]
    fn spans_and_sizes_are_short() {
        assert_eq!(span(999), "999 ms");
        assert_eq!(span(3_600_000), "1 h 0 min");
        assert_eq!(size(9999), "9999 B");
        assert_eq!(size(10_240_000), "10 MiB");
    }
}

//! The reply to `stats`: stock's keys in stock's order, added up over all processes from the scoreboard.

use std::fmt::Write;
use std::time::Duration;

use nix::sys::utsname::{UtsName, uname};

use crate::ipc::control::Server;
use crate::scoreboard::{Field, Scoreboard};

/// The release whose protocol is spoken, as clients see it.
const VERSION: &str = "1.13";

/// What does not change while the server runs.
pub struct Facts {
    node: UtsName,
}

impl Facts {
    pub fn gather() -> nix::Result<Facts> {
        Ok(Facts { node: uname()? })
    }

    /// The whole reply, line and body.
    pub fn render(&self, board: &Scoreboard, server: &Server) -> Vec<u8> {
        let body = self.body(board, server);
        format!("OK {}\r\n{body}\r\n", body.len()).into_bytes()
    }

    fn body(&self, board: &Scoreboard, server: &Server) -> String {
        let mut text = String::from("---\n");
        for (key, field) in COUNTED {
            line(&mut text, key, board.total(*field));
        }
        line(&mut text, "max-job-size", server.job_bytes);
        line(&mut text, "current-tubes", board.total(Field::Tubes));
        line(&mut text, "current-connections", board.total(Field::Connections));
        line(&mut text, "current-producers", board.total(Field::Producers));
        line(&mut text, "current-workers", board.total(Field::Workers));
        line(&mut text, "current-waiting", board.total(Field::Waiting));
        line(&mut text, "total-connections", board.total(Field::TotalConnections));
        line(&mut text, "pid", server.pid);
        line(&mut text, "version", format_args!("\"{VERSION}\""));
        line(&mut text, "rusage-utime", seconds(board.total(Field::UserTime)));
        line(&mut text, "rusage-stime", seconds(board.total(Field::SystemTime)));
        line(&mut text, "uptime", uptime(server).as_secs());
        line(&mut text, "binlog-oldest-index", board.total(Field::WalOldest));
        line(&mut text, "binlog-current-index", board.total(Field::WalCurrent));
        line(&mut text, "binlog-records-migrated", board.total(Field::WalMigrated));
        line(&mut text, "binlog-records-written", board.total(Field::WalWritten));
        line(&mut text, "binlog-max-size", server.wal_file_bytes);
        line(&mut text, "draining", board.draining());
        line(&mut text, "id", &server.instance);
        let node = [self.node.nodename(), self.node.version(), self.node.machine()];
        for (key, value) in ["hostname", "os", "platform"].iter().zip(node) {
            line(&mut text, key, format_args!("\"{}\"", value.to_string_lossy()));
        }
        text
    }
}

/// The keys before `max-job-size`.
const COUNTED: &[(&str, Field)] = &[
    ("current-jobs-urgent", Field::JobsUrgent),
    ("current-jobs-ready", Field::JobsReady),
    ("current-jobs-reserved", Field::JobsReserved),
    ("current-jobs-delayed", Field::JobsDelayed),
    ("current-jobs-buried", Field::JobsBuried),
    ("cmd-put", Field::CmdPut),
    ("cmd-peek", Field::CmdPeek),
    ("cmd-peek-ready", Field::CmdPeekReady),
    ("cmd-peek-delayed", Field::CmdPeekDelayed),
    ("cmd-peek-buried", Field::CmdPeekBuried),
    ("cmd-reserve", Field::CmdReserve),
    ("cmd-reserve-with-timeout", Field::CmdReserveWithTimeout),
    ("cmd-delete", Field::CmdDelete),
    ("cmd-release", Field::CmdRelease),
    ("cmd-use", Field::CmdUse),
    ("cmd-watch", Field::CmdWatch),
    ("cmd-ignore", Field::CmdIgnore),
    ("cmd-bury", Field::CmdBury),
    ("cmd-kick", Field::CmdKick),
    ("cmd-touch", Field::CmdTouch),
    ("cmd-stats", Field::CmdStats),
    ("cmd-stats-job", Field::CmdStatsJob),
    ("cmd-stats-tube", Field::CmdStatsTube),
    ("cmd-list-tubes", Field::CmdListTubes),
    ("cmd-list-tube-used", Field::CmdListTubeUsed),
    ("cmd-list-tubes-watched", Field::CmdListTubesWatched),
    ("cmd-pause-tube", Field::CmdPauseTube),
    ("job-timeouts", Field::JobTimeouts),
    ("total-jobs", Field::TotalJobs),
];

fn line(text: &mut String, key: &str, value: impl std::fmt::Display) {
    writeln!(text, "{key}: {value}").expect("a string takes everything");
}

/// Microseconds as seconds with six decimals.
fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn uptime(server: &Server) -> Duration {
    Duration::from_nanos((server.clock_now() - server.started_at).max(0) as u64)
}

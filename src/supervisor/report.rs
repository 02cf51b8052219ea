//! What the supervisor knows, as a `Status`: from its own table and from the scoreboard. Asks no process, so
//! that it works whatever state they are in, and never waits.

use super::children::Child;
use super::policy;
use super::{Phase, Supervisor};
use crate::ipc::control::Role;
use crate::scoreboard::{Field, Record};
use crate::status::{End, Frontend, Jobs, Process, Slot, State, Status, Topology, Totals, Wal};
use crate::topology::Layout;

impl Supervisor {
    pub(super) fn status(&self) -> Status {
        let now = self.now();
        let slots = self.children.of_role(Role::Owner).into_iter().map(|id| self.slot(self.children.get(id)));
        let frontends = self.children.of_role(Role::Frontend).into_iter();
        let frontends = frontends.map(|id| {
            let (child, record) = (self.children.get(id), self.record(id));
            frontend(child.index, self.process(child), &record)
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.server.instance.clone(),
            pid: self.server.pid,
            uptime_ms: now.as_millis() as u64,
            phase: self.phase.name().to_owned(),
            draining: self.board.draining(),
            trouble: self.trouble_among(&[Role::Owner, Role::Frontend]),
            topology: Topology {
                server_id: self.topology.server_id.clone(),
                slots: self.topology.slots,
                partitions: self.topology.partitions,
                layout: if self.topology.layout == Layout::Flat { "flat" } else { "slots" }.to_owned(),
                fingerprint: self.fingerprint.clone(),
            },
            slots: slots.collect(),
            frontends: frontends.collect(),
            totals: self.totals(),
        }
    }

    /// Why not all of these serve: the first slot or frontend that does not, and how many more. `None`: all do.
    pub(super) fn trouble_among(&self, roles: &[Role]) -> Option<String> {
        let children = self.children.ids().map(|id| self.children.get(id));
        let wrong: Vec<&Child> =
            children.filter(|child| roles.contains(&child.role) && !child.is_well()).collect();
        let first = wrong.first()?;
        let process = self.process(first);
        let kind = if first.role == Role::Owner { "slot" } else { "frontend" };
        let mut text = format!("{kind} {} is {}", first.index, process.state.name().to_lowercase());
        if let Some(cause) = process.cause {
            text = format!("{text}: {cause}");
        }
        match wrong.len() - 1 {
            0 => {}
            more => text = format!("{text}; and {more} more"),
        }
        Some(text)
    }

    fn slot(&self, child: &Child) -> Slot {
        let record = self.board.owner(child.index);
        let age = |at: u64| (self.server.clock_now() - at as i64).max(0) as u64 / 1_000_000;
        let wal = self.settings.dir.as_ref().map(|_| Wal {
            files: record.get(Field::WalFiles),
            bytes: record.get(Field::WalBytes),
            live_bytes: record.get(Field::WalBytesLive),
            syncs: record.get(Field::WalSyncs),
            last_sync_age_ms: Some(record.get(Field::WalSyncedAt)).filter(|&at| at > 0).map(age),
        });
        Slot {
            slot: child.index,
            process: self.process(child),
            jobs: jobs(|field| record.get(field)),
            sessions: record.get(Field::VirtualConnections),
            wal,
        }
    }

    pub(super) fn process(&self, child: &Child) -> Process {
        let now = self.now();
        let state = state(child);
        let (last_end, ages) = (child.last_end.as_ref(), child.rising.ages(now));
        let lag = match ages {
            Some((_, silent)) if state == State::Stalled => silent,
            _ => child.pulse.lag(now),
        };
        let cause = match (state, ages) {
            (State::Idle | State::Up | State::Stopping, _) => None,
            (State::Stalled, None) => Some(format!("no answer to a ping for {:.1} s", lag.as_secs_f64())),
            (
                State::Stalled | State::Starting | State::Restarting | State::Recovering,
                Some((age, silent)),
            ) => {
                let mut text = format!("not ready for {:.1} s: {}", age.as_secs_f64(), self.stage(child));
                if state == State::Stalled {
                    text = format!("{text}, and has not got on for {:.1} s", silent.as_secs_f64());
                }
                if let Some(end) = last_end {
                    text = format!("{text}; the one before {}", end.cause);
                }
                Some(text)
            }
            _ => last_end.map(|end| end.cause.clone()),
        };
        let next_try = match child.policy.state() {
            policy::State::Resting { until } => Some(until.saturating_sub(now)),
            _ => None,
        };
        Process {
            state,
            cause,
            pid: child.process.as_ref().and_then(|process| process.pid).map(|pid| pid.as_raw()),
            generation: child.generation,
            restarts: child.restarts(),
            next_try_ms: next_try.map(|time| time.as_millis() as u64),
            lag_ms: lag.as_micros() as f64 / 1000.0,
            last_end: last_end.map(|end| End {
                generation: end.generation,
                age_ms: now.saturating_sub(end.at).as_millis() as u64,
                cause: end.cause.clone(),
            }),
        }
    }

    /// What a child that is not ready is about, as far as is known.
    pub(super) fn stage(&self, child: &Child) -> &'static str {
        match child.policy.state() {
            policy::State::Starting => "it has not said who it is",
            _ if child.role == Role::Frontend => "it gets its links",
            _ if self.settings.dir.is_none() => "it starts without a log",
            _ if !child.checked => "it checks its log",
            _ if !self.opened => "it waits until all logs are checked",
            _ => "it replays its log",
        }
    }

    fn totals(&self) -> Totals {
        let total = |field| self.board.total(field);
        let restarts = self.children.ids().map(|id| u64::from(self.children.get(id).restarts()));
        Totals {
            jobs: jobs(total),
            clients: total(Field::Connections),
            producers: total(Field::Producers),
            workers: total(Field::Workers),
            jobs_put: total(Field::TotalJobs),
            connections: total(Field::TotalConnections),
            restarts: restarts.sum(),
            unknown_outcomes: total(Field::UnknownOutcomes),
            refused_no_space: total(Field::WalRefused),
            refused_multi_watch: total(Field::RefusedMultiWatch),
        }
    }
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Recovering => "recovering",
            Phase::Opening => "opening",
            Phase::Serving => "serving",
            Phase::Closing => "closing",
            Phase::Finishing => "finishing",
            Phase::Over => "over",
        }
    }
}

fn frontend(number: u16, process: Process, record: &Record<'_>) -> Frontend {
    Frontend {
        frontend: number,
        process,
        clients: record.get(Field::Connections),
        in_flight: record.get(Field::InFlight),
    }
}

fn jobs(number: impl Fn(Field) -> u64) -> Jobs {
    Jobs {
        tubes: number(Field::Tubes),
        ready: number(Field::JobsReady),
        urgent: number(Field::JobsUrgent),
        reserved: number(Field::JobsReserved),
        delayed: number(Field::JobsDelayed),
        buried: number(Field::JobsBuried),
        waiting: number(Field::Waiting),
    }
}

fn state(child: &Child) -> State {
    let next = child.generation > 1;
    if child.rising.is_stalled() {
        return State::Stalled;
    }
    // Also while it is tried again: until it serves there is no reason to think better of it.
    if child.policy.is_failed() {
        return State::Failed;
    }
    match child.policy.state() {
        policy::State::Idle => State::Idle,
        policy::State::Starting | policy::State::Preparing if child.role == Role::Frontend => {
            if next {
                State::Restarting
            } else {
                State::Starting
            }
        }
        policy::State::Starting => {
            if next {
                State::Restarting
            } else {
                State::Starting
            }
        }
        policy::State::Preparing => State::Recovering,
        policy::State::Serving { .. } if child.pulse.is_stalled() => State::Stalled,
        policy::State::Serving { .. } => State::Up,
        policy::State::Condemned { .. } | policy::State::Resting { .. } => State::Down,
        policy::State::Failed => State::Failed,
        policy::State::Stopping { .. } => State::Stopping,
        policy::State::Stopped => State::Stopped,
    }
}

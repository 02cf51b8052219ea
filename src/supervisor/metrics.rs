//! The numbers of a server in Prometheus' text format. What each of them is stands in `doc/metrics.md`, which a
//! test compares with this file's output.
//!
//! A scrape reads the scoreboard and the supervisor's table, as `report` does, and `/proc` for the memory of
//! each process; what owners have told of their tubes is in that table (`tubes`). It asks no process.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use super::{Supervisor, process_figures};
use crate::scoreboard::{BOUNDS_US, Field, Histogram, Times};
use crate::status::State;

pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The commands, as clients write them.
const COMMANDS: [(&str, Field); 22] = [
    ("put", Field::CmdPut),
    ("peek", Field::CmdPeek),
    ("peek-ready", Field::CmdPeekReady),
    ("peek-delayed", Field::CmdPeekDelayed),
    ("peek-buried", Field::CmdPeekBuried),
    ("reserve", Field::CmdReserve),
    ("reserve-with-timeout", Field::CmdReserveWithTimeout),
    ("delete", Field::CmdDelete),
    ("release", Field::CmdRelease),
    ("use", Field::CmdUse),
    ("watch", Field::CmdWatch),
    ("ignore", Field::CmdIgnore),
    ("bury", Field::CmdBury),
    ("kick", Field::CmdKick),
    ("touch", Field::CmdTouch),
    ("stats", Field::CmdStats),
    ("stats-job", Field::CmdStatsJob),
    ("stats-tube", Field::CmdStatsTube),
    ("list-tubes", Field::CmdListTubes),
    ("list-tube-used", Field::CmdListTubeUsed),
    ("list-tubes-watched", Field::CmdListTubesWatched),
    ("pause-tube", Field::CmdPauseTube),
];

/// What clients may run into.
const CLIENT_LIMITS: [(&str, Field); 6] = [
    ("connections", Field::AcceptPauses),
    ("unfinished-bytes", Field::RefusedBodies),
    ("idle-timeout", Field::IdleClients),
    ("body-timeout", Field::LateBodies),
    ("connections-per-address", Field::RefusedAddresses),
    ("refuse-commands", Field::RefusedCommands),
];

/// The highest totals that were told so far. The board's may fall for a moment: what all owners were asked
/// counts once in the end. A counter that falls would be taken for a restart of the server.
#[derive(Default)]
pub struct Watermarks([u64; COMMANDS.len()]);

/// Everything at one moment.
#[derive(Debug)]
struct Snapshot {
    info: [(&'static str, String); 5],
    server: Vec<Family>,
}

/// One metric with all its label sets.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Labels, Value)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

#[derive(Debug)]
enum Value {
    Number(f64),
    Times(Times),
}

/// Names and values.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl Supervisor {
    /// The whole text.
    pub(super) fn metrics(&mut self) -> String {
        let snapshot = self.snapshot();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(snapshot));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).expect("a string takes everything");
        text
    }

    fn snapshot(&mut self) -> Snapshot {
        let status = self.status();
        let mut families = Families::default();
        let gauge = Kind::Gauge;
        let counter = Kind::Counter;

        let one = Labels::default;
        let flag = |is: bool| f64::from(u8::from(is));
        let t = &status.topology;
        families.add(
            "uptime_seconds",
            "Time since the server started",
            gauge,
            one(),
            status.uptime_ms as f64 / 1e3,
        );
        families.add("serving", "1 while every slot serves", gauge, one(), flag(self.unwell().is_none()));
        families.add("draining", "1 in drain mode", gauge, one(), flag(status.draining));
        families.add("slots", "Slots of the topology", gauge, one(), t.slots.into());
        families.add("job_bytes_max", "Largest job body", gauge, one(), self.server.job_bytes as f64);
        families.add("wal_file_bytes", "Size of a log file", gauge, one(), self.server.wal_file_bytes as f64);
        for (at, (command, field)) in COMMANDS.into_iter().enumerate() {
            let highest = &mut self.watermarks.0[at];
            *highest = self.board.total(field).max(*highest);
            let labels = one().with("command", command);
            families.add("commands", "Commands executed", counter, labels, *highest as f64);
        }

        self.tube_metrics(&mut families);
        for slot in &status.slots {
            let record = self.board.owner(slot.slot);
            let number = |field| record.get(field) as f64;
            let labels = || one().with("slot", slot.slot);
            let j = &slot.jobs;
            for (state, jobs) in
                [("ready", j.ready), ("reserved", j.reserved), ("delayed", j.delayed), ("buried", j.buried)]
            {
                let labels = labels().with("state", state);
                families.add("jobs", "Jobs by state", gauge, labels, jobs as f64);
            }
            families.add(
                "jobs_urgent",
                "Ready jobs of priority below 1024",
                gauge,
                labels(),
                j.urgent as f64,
            );
            families.add("tubes", "Tubes", gauge, labels(), j.tubes as f64);
            families.add(
                "waiting_clients",
                "Clients that wait in reserve",
                gauge,
                labels(),
                j.waiting as f64,
            );
            families.add("jobs_put", "Jobs put", counter, labels(), number(Field::TotalJobs));
            families.add(
                "job_timeouts",
                "Reservations that ran out",
                counter,
                labels(),
                number(Field::JobTimeouts),
            );
            let commands = COMMANDS.iter().map(|(_, field)| number(*field)).sum();
            families.add(
                "slot_commands",
                "Commands executed by the slot's owner",
                counter,
                labels(),
                commands,
            );
            families.add(
                "sessions",
                "Client sessions known to the owner",
                gauge,
                labels(),
                slot.sessions as f64,
            );
            families.times(
                "owner_batch_seconds",
                "From a wake-up with commands until their replies left",
                labels(),
                record.times(Histogram::Batch),
            );
            if slot.wal.is_none() {
                continue;
            }
            let wal = [
                ("wal_files", "Files of the log", gauge, Field::WalFiles),
                ("wal_bytes", "Room that the log takes on disk", gauge, Field::WalBytes),
                ("wal_live_bytes", "Bytes of the log that are needed", gauge, Field::WalBytesLive),
                ("wal_oldest_file", "Number of the oldest log file", gauge, Field::WalOldest),
                ("wal_current_file", "Number of the log file written to", gauge, Field::WalCurrent),
                ("wal_records_written", "Records written to the log", counter, Field::WalWritten),
                ("wal_records_migrated", "Records written again by compaction", counter, Field::WalMigrated),
                ("wal_refused", "Puts and changes that found no room in it", counter, Field::WalRefused),
                ("wal_syncs", "Syncs of the log", counter, Field::WalSyncs),
            ];
            for (name, help, kind, field) in wal {
                families.add(name, help, kind, labels(), number(field));
            }
            let synced = number(Field::WalSyncedAt) / 1e9;
            families.add("wal_synced_timestamp_seconds", "When the last sync ended", gauge, labels(), synced);
            families.times("wal_sync_seconds", "Duration of a sync", labels(), record.times(Histogram::Sync));
        }

        for frontend in &status.frontends {
            let record = self.board.frontend(frontend.frontend);
            let labels = || one().with("frontend", frontend.frontend);
            let numbers = [
                ("clients", "Clients connected", gauge, Field::Connections),
                ("clients_max", "Clients that it takes at a time", gauge, Field::ClientsMax),
                (
                    "unfinished_bytes",
                    "Declared bytes of bodies that have not wholly arrived",
                    gauge,
                    Field::UnfinishedBytes,
                ),
                ("producers", "Clients that have put a job", gauge, Field::Producers),
                ("workers", "Clients that have asked for a job", gauge, Field::Workers),
                ("commands_in_flight", "Commands that wait for their owner's answer", gauge, Field::InFlight),
                ("connections", "Connections accepted", counter, Field::TotalConnections),
                (
                    "unknown_outcomes",
                    "Connections closed because the outcome of a command is unknown",
                    counter,
                    Field::UnknownOutcomes,
                ),
                (
                    "refused_multi_watch",
                    "Reserves refused because they watched several tubes",
                    counter,
                    Field::RefusedMultiWatch,
                ),
            ];
            for (name, help, kind, field) in numbers {
                families.add(name, help, kind, labels(), record.get(field) as f64);
            }
            for (limit, field) in CLIENT_LIMITS {
                let labels = labels().with("limit", limit);
                let help = "Times that clients met a limit";
                families.add("client_limits", help, counter, labels, record.get(field) as f64);
            }
            families.times(
                "frontend_round_trip_seconds",
                "From the arrival of a command until its owner's answer",
                labels(),
                record.times(Histogram::RoundTrip),
            );
        }

        for id in self.children.ids() {
            let child = self.children.get(id);
            let labels = || one().with("role", child.role).with("index", child.index);
            let process = self.process(child);
            let is = |state| flag(process.state == state);
            families.add("process_up", "1 if it serves and answers", gauge, labels(), is(State::Up));
            families.add("process_stalled", "1 if it does not answer", gauge, labels(), is(State::Stalled));
            families.add(
                "process_failed",
                "1 if it keeps dying before it is ready, or is not started again",
                gauge,
                labels(),
                is(State::Failed),
            );
            families.add("process_restarts", "Restarts", counter, labels(), process.restarts.into());
            families.add(
                "process_lag_seconds",
                "Time of the last ping",
                gauge,
                labels(),
                process.lag_ms / 1e3,
            );
            let record = self.record(id);
            let queued = record.get(Field::LinkQueued) as f64;
            families.add("link_queue_bytes", "Bytes that wait to go out over links", gauge, labels(), queued);
            for (mode, field) in [("user", Field::UserTime), ("system", Field::SystemTime)] {
                let seconds = record.get(field) as f64 / 1e6;
                families.add(
                    "process_cpu_seconds",
                    "Processor time",
                    counter,
                    labels().with("mode", mode),
                    seconds,
                );
            }
            if let Some(bytes) = process.pid.and_then(process_figures::resident_bytes) {
                families.add("process_resident_bytes", "Resident memory", gauge, labels(), bytes as f64);
            }
        }
        let own = || one().with("role", "supervisor").with("index", 0);
        if let Some([user, system]) = process_figures::own_cpu() {
            for (mode, time) in [("user", user), ("system", system)] {
                let labels = own().with("mode", mode);
                families.add("process_cpu_seconds", "Processor time", counter, labels, time.as_secs_f64());
            }
        }
        if let Some(bytes) = process_figures::resident_bytes(self.server.pid as i32) {
            families.add("process_resident_bytes", "Resident memory", gauge, own(), bytes as f64);
        }

        let (topology, version) = (status.topology, status.version);
        Snapshot {
            info: [
                ("version", version),
                ("run", status.instance),
                ("server_id", topology.server_id),
                ("layout", topology.layout),
                ("fingerprint", topology.fingerprint),
            ],
            server: families.0,
        }
    }
}

#[derive(Default)]
pub(super) struct Families(Vec<Family>);

impl Families {
    pub(super) fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: Labels,
        value: f64,
    ) {
        self.sample(name, help, kind, labels, Value::Number(value));
    }

    fn times(&mut self, name: &'static str, help: &'static str, labels: Labels, times: Times) {
        self.sample(name, help, Kind::Histogram, labels, Value::Times(times));
    }

    fn sample(&mut self, name: &'static str, help: &'static str, kind: Kind, labels: Labels, value: Value) {
        // Few enough families to look through, and the last is the most likely one.
        match self.0.iter_mut().rev().find(|family| family.name == name) {
            Some(family) => {
                assert_eq!(family.kind, kind, "{name} has one kind");
                family.samples.push((labels, value));
            }
            None => self.0.push(Family { name, help, kind, samples: vec![(labels, value)] }),
        }
    }
}

impl Labels {
    pub(super) fn with(mut self, name: &'static str, value: impl fmt::Display) -> Labels {
        self.0.push((name, value.to_string()));
        self
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        let labels: Vec<(&str, &str)> = self.0.iter().map(|(name, value)| (*name, value.as_str())).collect();
        labels.as_slice().encode(encoder)
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let info: Vec<(&str, &str)> = self.info.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let help = "The program and its topology; always 1";
        encoder.encode_descriptor("trellis", help, None, MetricType::Info)?.encode_info(&info.as_slice())?;
        for family in &self.server {
            let name = format!("trellis_{}", family.name);
            let kind = match family.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(&name, family.help, None, kind)?;
            for (labels, value) in &family.samples {
                encode_value(&mut metric.encode_family(labels)?, family.kind, value)?;
            }
        }
        Ok(())
    }
}

fn encode_value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Number(number)) => {
            encoder.encode_counter(number, None::<&Exemplar<Labels, f64>>)
        }
        (_, Value::Number(number)) => encoder.encode_gauge(number),
        (_, Value::Times(times)) => {
            let bounds = BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(times.buckets).collect();
            encoder.encode_histogram::<Labels>(times.sum_ns as f64 / 1e9, times.count(), &buckets, None)
        }
    }
}

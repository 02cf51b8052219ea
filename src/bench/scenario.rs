//! The table of what is measured. Plain data: `measure` does it.
//!
//! A scenario is a server's flags, what is done to it beforehand, and groups of clients; its first group is the
//! one that is reported. Numbers are the same for every contestant.

use std::collections::BTreeSet;

use super::spec::{Group, Work, tube_names};
use crate::limits;
use crate::topology::{Layout, Topology};

pub struct Scenario {
    pub name: &'static str,
    /// One line for whoever reads the table.
    pub about: String,
    /// Slots of Trellis, if the command line says nothing.
    pub slots: u32,
    pub flags: Vec<&'static str>,
    /// With a log in a directory of its own.
    pub durable: bool,
    /// A new server for each run: where runs leave jobs behind.
    pub fresh: bool,
    pub kind: Kind,
}

pub enum Kind {
    /// `before` once on each server, then `groups` in each run.
    Load { before: Vec<Group>, groups: Vec<Group> },
    /// So many jobs are logged by `before`; a run is a start on that log.
    Recovery { jobs: u64, before: Vec<Group> },
    /// `groups` undisturbed, then with the trouble.
    Isolation { groups: Vec<Group>, trouble: Trouble },
}

pub enum Trouble {
    /// The process of this slot is stopped for a while.
    Stop { slot: u16 },
    /// These clients come in addition.
    Clients(Vec<Group>),
}

impl Scenario {
    /// A server that only answers can do it: its commands need no order between clients and no log.
    pub fn has_floor(&self) -> bool {
        let Kind::Load { before, groups } = &self.kind else { return false };
        let answers = |group: &Group| !matches!(group.work, Work::Produce { .. } | Work::Consume);
        before.is_empty() && !self.durable && groups.iter().all(answers)
    }
}

/// Slots of Trellis where a scenario has no reason for another number.
const SLOTS: u32 = 4;

/// Every scenario, in the order of the report. `jobs`: how many the recovery has; `slots` of the command line,
/// which decides what tubes are another slot's.
pub fn all(jobs: u64, slots: Option<u32>) -> Vec<Scenario> {
    let mut all = Vec::new();
    closed_loops(&mut all);
    pipelined(&mut all);
    sharing(&mut all);
    many_tubes(&mut all);
    bodies(&mut all);
    durable(&mut all);
    connections(&mut all);
    recovery(&mut all, jobs);
    isolation(&mut all, slots.unwrap_or(SLOTS));
    all
}

fn load(name: &'static str, about: impl Into<String>, groups: Vec<Group>) -> Scenario {
    Scenario {
        name,
        about: about.into(),
        slots: SLOTS,
        flags: Vec::new(),
        durable: false,
        fresh: false,
        kind: Kind::Load { before: Vec::new(), groups },
    }
}

const CYCLE: &str = "put, reserve, delete";

fn closed_loops(all: &mut Vec<Scenario>) {
    for (name, clients) in [("closed-1", 1), ("closed-16", 16), ("closed-64", 64), ("closed-256", 256)] {
        let about = format!("{clients} clients, each on its own tube: {CYCLE}, one at a time");
        all.push(load(name, about, vec![Group::closed("clients", clients, Work::Cycle)]));
    }
}

fn pipelined(all: &mut Vec<Scenario>) {
    const CLIENTS: u32 = 8;
    let names = [
        ("puts-16", Work::Put, 16),
        ("puts-64", Work::Put, 64),
        ("mixed-16", Work::Cycle, 16),
        ("mixed-64", Work::Cycle, 64),
    ];
    for (name, work, depth) in names {
        let what = if work == Work::Put { "puts" } else { CYCLE };
        let about = format!("{CLIENTS} clients, each on its own tube: {what}, {depth} commands a write");
        let groups = vec![Group { depth, ..Group::closed("clients", CLIENTS, work) }];
        all.push(Scenario { fresh: work == Work::Put, ..load(name, about, groups) });
    }
}

fn sharing(all: &mut Vec<Scenario>) {
    // Enough that nobody waits for long, little against memory.
    const AHEAD: u32 = 1000;
    let tubes = tube_names(4);
    let group = |label, work| Group { tubes: tubes.clone(), ..Group::closed(label, 8, work) };
    let groups = vec![group("producers", Work::Produce { ahead: AHEAD }), group("consumers", Work::Consume)];
    all.push(load("apart", "8 clients put, 8 others reserve and delete, over 4 tubes", groups));

    let hot = Group { tubes: tube_names(1), ..Group::closed("clients", 16, Work::Cycle) };
    all.push(load("hot-tube", format!("16 clients on one tube: {CYCLE}"), vec![hot]));
}

fn many_tubes(all: &mut Vec<Scenario>) {
    let sizes = [(1000, 4), (10_000, 16), (30_000, 64)];
    let stay = ["tubes-1000", "tubes-10000", "tubes-30000"];
    let roam = ["roam-1000", "roam-10000", "roam-30000"];
    for (name, (tubes, slots)) in stay.into_iter().zip(sizes) {
        let about = format!("{tubes} tubes with a job each; 64 clients, each on its own tube: {CYCLE}");
        all.push(among_tubes(name, about, tubes, slots, Group::closed("clients", 64, Work::Cycle)));
    }
    for (name, (tubes, slots)) in roam.into_iter().zip(sizes) {
        let about = format!("{tubes} tubes with a job each; 16 clients: use of any of them, put, delete");
        all.push(among_tubes(name, about, tubes, slots, Group::closed("clients", 16, Work::Roam)));
    }
}

/// The group works among so many tubes, which have a job each.
fn among_tubes(name: &'static str, about: String, tubes: u32, slots: u32, group: Group) -> Scenario {
    let tubes = tube_names(tubes);
    let fill = Group {
        depth: 64,
        // A use and a put each.
        limit: Some(2 * tubes.len() as u64),
        tubes: tubes.clone(),
        ..Group::closed("filler", 1, Work::Fill)
    };
    let kind = Kind::Load { before: vec![fill], groups: vec![Group { tubes, ..group }] };
    Scenario { slots, kind, ..load(name, about, Vec::new()) }
}

fn bodies(all: &mut Vec<Scenario>) {
    let sizes = [
        ("body-32", 32, 16),
        ("body-1k", 1 << 10, 16),
        ("body-4k", 4 << 10, 16),
        ("body-16k", 16 << 10, 16),
        // The largest that is taken without a flag.
        ("body-64k", limits::JOB_BYTES_DEFAULT as u32, 16),
        ("body-1m", 1 << 20, 4),
    ];
    for (name, body_bytes, clients) in sizes {
        let about = format!("{clients} clients, bodies of {body_bytes} bytes: {CYCLE}");
        let groups = vec![Group { body_bytes, ..Group::closed("clients", clients, Work::Cycle) }];
        let large = body_bytes > limits::JOB_BYTES_DEFAULT as u32;
        all.push(Scenario {
            flags: if large { vec!["-z", "2097152"] } else { vec![] },
            ..load(name, about, groups)
        });
    }
}

fn durable(all: &mut Vec<Scenario>) {
    for (name, flag) in [("wal-f0", "-f0"), ("wal-f50", "-f50"), ("wal-F", "-F")] {
        let about = format!("-b {flag}; 64 clients, each on its own tube: {CYCLE}");
        let groups = vec![Group::closed("clients", 64, Work::Cycle)];
        all.push(Scenario { flags: vec![flag], durable: true, ..load(name, about, groups) });
    }
    // At a given load the slower server can't have the better latencies by doing less.
    const PER_SECOND: u32 = 1000;
    let closed = "puts, one at a time".to_owned();
    let paced = format!("{PER_SECOND} puts a second each, whether the last one was answered or not");
    for (name, flag, how, per_second) in
        [("wal-f0-puts", "-f0", closed, None), ("wal-f50-puts", "-f50", paced, Some(f64::from(PER_SECOND)))]
    {
        let about = format!("-b {flag}; 16 clients, each on its own tube: {how}");
        let groups = vec![Group { per_second, ..Group::closed("clients", 16, Work::Put) }];
        all.push(Scenario { flags: vec![flag], durable: true, fresh: true, ..load(name, about, groups) });
    }
}

fn connections(all: &mut Vec<Scenario>) {
    let groups = vec![
        Group::closed("clients", 16, Work::Cycle),
        Group::closed("idle", limits::BENCH_IDLE, Work::Idle),
    ];
    let about = format!("{} idle connections beside 16 clients: {CYCLE}", limits::BENCH_IDLE);
    all.push(Scenario { fresh: true, ..load("idle", about, groups) });

    let groups = vec![Group { tubes: vec![], ..Group::closed("visitors", 16, Work::Churn) }];
    let about = "16 at a time: connect, one put, close; each such visit counts as one";
    all.push(Scenario { fresh: true, ..load("churn", about, groups) });
}

fn recovery(all: &mut Vec<Scenario>, jobs: u64) {
    // Spread over many tubes, so that each slot has its share.
    const CLIENTS: u64 = 16;
    let before = Group {
        depth: 64,
        limit: Some(jobs),
        tubes: tube_names(64),
        ..Group::closed("filler", CLIENTS as u32, Work::Put)
    };
    all.push(Scenario {
        durable: true,
        flags: vec!["-F"],
        kind: Kind::Recovery { jobs, before: vec![before] },
        ..load(
            "recovery",
            format!("start with {jobs} jobs of 64 bytes in the log, until it answers"),
            Vec::new(),
        )
    });
}

fn isolation(all: &mut Vec<Scenario>, slots: u32) {
    const VICTIM: u16 = 0;
    let (victim, others) = tubes_of(slots, VICTIM);
    let group = |label, clients, work, tubes: &[String], rate| Group {
        tubes: tubes.to_vec(),
        per_second: Some(rate),
        ..Group::closed(label, clients, work)
    };
    // Far from what either server can do, so that only the trouble shows.
    let groups = vec![
        group("others", 8, Work::Cycle, &others, 200.0),
        group("stalled", 1, Work::Cycle, &victim, 20.0),
    ];
    let stall = limits::BENCH_STALL.as_secs();
    let about = format!(
        "8 clients at 200 commands/s each, while the process of another tube is stopped for {stall} s"
    );
    let kind = Kind::Isolation { groups, trouble: Trouble::Stop { slot: VICTIM } };
    all.push(Scenario { kind, ..load("isolation-stop", about, Vec::new()) });

    let groups = vec![group("others", 8, Work::Touch, &others, 200.0)];
    let heavy = Group { body_bytes: 4096, tubes: victim, ..Group::closed("heavy", 4, Work::Cycle) };
    let about = "-b -f0; 8 clients touch jobs, 200 times/s each, while 4 others put and sync on another tube";
    let kind = Kind::Isolation { groups, trouble: Trouble::Clients(vec![heavy]) };
    all.push(Scenario {
        kind,
        durable: true,
        flags: vec!["-f0"],
        ..load("isolation-fsync", about, Vec::new())
    });
}

/// Eight tubes of this slot and eight of the others. With one slot they are all its own.
fn tubes_of(slots: u32, slot: u16) -> (Vec<String>, Vec<String>) {
    const EACH: usize = 8;
    let id = "0".repeat(limits::SERVER_ID_DIGITS);
    let layout = if slots == 1 { Layout::Flat } else { Layout::Slots };
    let topology = Topology::new(slots, limits::PARTITIONS_DEFAULT, layout, &id).expect("a number of slots");
    let names = (0..).map(|n| format!("bench-{n}"));
    if slots == 1 {
        let mut names: Vec<String> = names.take(2 * EACH).collect();
        let others = names.split_off(EACH);
        return (names, others);
    }
    let mut found = (BTreeSet::new(), BTreeSet::new());
    for name in names {
        let set = if topology.slot_of(name.as_bytes()) == slot { &mut found.0 } else { &mut found.1 };
        if set.len() < EACH {
            set.insert(name);
        } else if found.0.len() == EACH && found.1.len() == EACH {
            break;
        }
    }
    (found.0.into_iter().collect(), found.1.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_names_are_unique_and_groups_have_what_they_need() {
        let table = all(1000, None);
        let names: BTreeSet<_> = table.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), table.len());
        for scenario in &table {
            let groups: Vec<&Group> = match &scenario.kind {
                Kind::Load { before, groups } => before.iter().chain(groups).collect(),
                Kind::Recovery { before, .. } => before.iter().collect(),
                Kind::Isolation { groups, .. } => groups.iter().collect(),
            };
            assert!(!groups.is_empty(), "{}", scenario.name);
            for group in groups {
                let roams = matches!(group.work, Work::Roam | Work::Fill);
                assert!(group.depth > 0 && (!roams || !group.tubes.is_empty()), "{}", scenario.name);
            }
        }
    }

    #[test]
    fn isolated_tubes_are_not_the_victims() {
        for slots in [2, 4, 64] {
            let (victim, others) = tubes_of(slots, 0);
            assert_eq!((victim.len(), others.len()), (8, 8), "{slots}");
            let topology = Topology::new(slots, 1024, Layout::Slots, "0000000000000000").unwrap();
            assert!(victim.iter().all(|name| topology.slot_of(name.as_bytes()) == 0));
            assert!(others.iter().all(|name| topology.slot_of(name.as_bytes()) != 0));
        }
    }
}

//! Runs to numbers, numbers to a table and to JSON. Medians of runs; a ratio is Trellis to the original, and
//! the median of the ratios of the pairs, so that what slowed both in one pair cancels out.

use crate::limits;
use std::fmt::Write;

use serde::Serialize;

use super::Options;
use super::measure::Run;
use super::scenario::Scenario;
use super::server::ByRole;

#[derive(Serialize)]
pub struct Report {
    version: &'static str,
    processors: usize,
    run_seconds: f64,
    warm_up_seconds: f64,
    pairs: u32,
    frontends: Option<u16>,
    pub cases: Vec<Case>,
}

impl Report {
    pub fn new(options: &Options) -> Report {
        Report {
            version: env!("CARGO_PKG_VERSION"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            run_seconds: options.run.as_secs_f64(),
            warm_up_seconds: options.warm.as_secs_f64(),
            pairs: options.pairs,
            frontends: options.frontends,
            cases: Vec::new(),
        }
    }

    /// What stands above the rows.
    pub fn heading(&self) -> String {
        format!(
            "trellis {} beside beanstalkd 1.13 on {} processors, which the load shares; medians of {} runs of {} s\n\
             latencies and CPU time per command in microseconds; memory in MB; ratios are trellis to legacy\n\n\
             {:<28} {:<10} {:>10} {:>9} {:>9} {:>9} {:>7} {:>6} {:>6} {:>7} {:>5}",
            self.version,
            self.processors,
            self.pairs,
            self.run_seconds,
            "scenario",
            "server",
            "commands/s",
            "p50",
            "p99",
            "p99.9",
            "CPU all",
            "owner",
            "front.",
            "memory",
            "load"
        )
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data has a JSON form") + "\n"
    }
}

/// One line of the report: a scenario, or one part of it.
#[derive(Serialize)]
pub struct Case {
    pub name: String,
    about: String,
    slots: u32,
    pub legacy: Numbers,
    pub trellis: Numbers,
    /// A server that only reads and writes, where it was asked for.
    floor: Option<Numbers>,
    pub ratios: Ratios,
    legacy_runs: Vec<Run>,
    trellis_runs: Vec<Run>,
    floor_runs: Vec<Run>,
}

/// Medians. Latencies and CPU time in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Numbers {
    pub commands_per_second: f64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub cpu: f64,
    pub cpu_by_role: ByRole<f64>,
    pub memory_bytes: f64,
    pub load_cpu_share: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ratios {
    pub throughput: f64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub cpu: f64,
    /// The owners' CPU time to all of the original's: what one hot tube gains.
    pub owner_cpu: f64,
    pub memory: f64,
}

impl Case {
    /// `runs` of the original, of Trellis, and of the floor if that was measured.
    pub fn new(scenario: &Scenario, part: &str, slots: u32, runs: Vec<Vec<Run>>) -> Case {
        let mut runs = runs.into_iter();
        let mut next = || runs.next().unwrap_or_default();
        let (legacy_runs, trellis_runs, floor_runs) = (next(), next(), next());
        let separator = if part.is_empty() { "" } else { ", " };
        Case {
            name: format!("{}{separator}{part}", scenario.name),
            about: scenario.about.clone(),
            slots,
            legacy: numbers(&legacy_runs),
            trellis: numbers(&trellis_runs),
            floor: (!floor_runs.is_empty()).then(|| numbers(&floor_runs)),
            ratios: ratios(&legacy_runs, &trellis_runs),
            legacy_runs,
            trellis_runs,
            floor_runs,
        }
    }

    /// Three lines of the table, and one for the floor.
    pub fn rows(&self) -> String {
        let mut text = String::new();
        let trellis = format!("trellis {}", self.slots);
        let servers = [(&*self.name, "legacy", &self.legacy), ("", &*trellis, &self.trellis)];
        for (name, who, numbers) in servers.into_iter().chain(self.floor.as_ref().map(|n| ("", "floor", n))) {
            let role = |name| numbers.cpu_by_role.get(name).map_or("-".into(), |us| figure(*us));
            let (owner, front) = match who {
                "legacy" | "floor" => (role("server"), "-".to_owned()),
                _ => (role("owner"), role("frontend")),
            };
            let latency = |us: Option<f64>| us.map_or("-".into(), figure);
            writeln!(
                text,
                "{name:<28} {who:<10} {:>10} {:>9} {:>9} {:>9} {:>7} {owner:>6} {front:>6} {:>7} {:>4.0}%",
                figure(numbers.commands_per_second),
                latency(numbers.p50),
                latency(numbers.p99),
                latency(numbers.p999),
                figure(numbers.cpu),
                figure(numbers.memory_bytes / 1e6),
                numbers.load_cpu_share * 100.0,
            )
            .expect("a string takes any text");
        }
        let times = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| figure(ratio) + "x");
        let r = &self.ratios;
        writeln!(
            text,
            "{:<28} {:<10} {:>10} {:>9} {:>9} {:>9} {:>7} {:>6} {:>6} {:>7}",
            "",
            "ratio",
            times(Some(r.throughput)),
            times(r.p50),
            times(r.p99),
            times(r.p999),
            times(Some(r.cpu)),
            times(Some(r.owner_cpu)),
            "",
            times(Some(r.memory))
        )
        .expect("a string takes any text");
        if self.name == "idle" {
            let each = |numbers: &Numbers| figure(numbers.memory_bytes / f64::from(limits::BENCH_IDLE));
            let (legacy, trellis) = (each(&self.legacy), each(&self.trellis));
            writeln!(
                text,
                "{:<28} memory for each connection, in bytes: legacy {legacy}, trellis {trellis}",
                ""
            )
            .expect("a string takes any text");
        }
        text
    }
}

fn numbers(runs: &[Run]) -> Numbers {
    let roles: Vec<&'static str> =
        runs.first().map(|run| run.cpu_us.keys().copied().collect()).unwrap_or_default();
    let of_role = |role| median(runs.iter().map(|run| run.cpu_us.get(role).copied().unwrap_or(0.0)));
    Numbers {
        commands_per_second: median(runs.iter().map(throughput)),
        p50: latency(runs, |run| run.latency.map(|l| l.p50)),
        p99: latency(runs, |run| run.latency.map(|l| l.p99)),
        p999: latency(runs, |run| run.latency.map(|l| l.p999)),
        cpu: median(runs.iter().map(cpu)),
        cpu_by_role: roles.into_iter().map(|role| (role, of_role(role))).collect(),
        memory_bytes: median(runs.iter().map(memory)),
        load_cpu_share: median(runs.iter().map(|run| run.load_cpu_share)),
    }
}

fn ratios(legacy: &[Run], trellis: &[Run]) -> Ratios {
    let of_pairs = |number: &dyn Fn(&Run) -> f64| {
        let pairs = legacy.iter().zip(trellis);
        median(pairs.map(|(legacy, trellis)| number(trellis) / number(legacy)))
    };
    let of_latencies = |number: &dyn Fn(&Run) -> Option<f64>| {
        let all = legacy.iter().chain(trellis).all(|run| number(run).is_some());
        all.then(|| of_pairs(&|run| number(run).unwrap_or(f64::NAN)))
    };
    let owner = |run: &Run| run.cpu_us.get("owner").or(run.cpu_us.get("server")).copied().unwrap_or(f64::NAN);
    Ratios {
        throughput: of_pairs(&throughput),
        p50: of_latencies(&|run| run.latency.map(|l| l.p50)),
        p99: of_latencies(&|run| run.latency.map(|l| l.p99)),
        p999: of_latencies(&|run| run.latency.map(|l| l.p999)),
        cpu: of_pairs(&cpu),
        owner_cpu: of_pairs(&owner),
        memory: of_pairs(&memory),
    }
}

fn throughput(run: &Run) -> f64 {
    run.commands as f64 / run.seconds
}

fn cpu(run: &Run) -> f64 {
    run.cpu_us.values().sum()
}

fn memory(run: &Run) -> f64 {
    run.memory_bytes.values().sum::<u64>() as f64
}

fn latency(runs: &[Run], number: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let all: Vec<f64> = runs.iter().filter_map(number).collect();
    (!all.is_empty()).then(|| median(all.into_iter()))
}

/// Of an even number of values the mean of the middle two; of none, not a number.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => (values[length / 2 - 1] + values[length / 2]) / 2.0,
    }
}

/// Three significant digits, without an exponent.
pub fn figure(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measure::Latency;

    fn run(commands: u64, p99: f64, cpu: &[(&'static str, f64)]) -> Run {
        Run {
            commands,
            seconds: 2.0,
            latency: Some(Latency { p50: p99 / 2.0, p99, p999: p99, max: p99 }),
            cpu_us: cpu.iter().copied().collect(),
            load_cpu_share: 0.5,
            memory_bytes: [("x", 1_000_000)].into_iter().collect(),
            groups: Default::default(),
        }
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert!(median([].into_iter()).is_nan());
    }

    #[test]
    fn ratio_is_that_of_the_pairs() {
        // The machine was slow in the second pair: it hit both.
        let legacy = [run(100, 10.0, &[("server", 8.0)]), run(10, 90.0, &[("server", 9.0)])];
        let trellis = [
            run(200, 20.0, &[("owner", 2.0), ("frontend", 6.0)]),
            run(20, 180.0, &[("owner", 2.25), ("frontend", 6.75)]),
        ];
        let ratios = ratios(&legacy, &trellis);
        assert_eq!((ratios.throughput, ratios.p99, ratios.cpu), (2.0, Some(2.0), 1.0));
        assert_eq!(ratios.owner_cpu, 0.25);
        assert_eq!(numbers(&trellis).commands_per_second, 55.0);
    }

    #[test]
    fn ratio_without_latencies_is_none() {
        let run = Run { latency: None, ..run(1, 1.0, &[("server", 1.0)]) };
        assert_eq!(ratios(std::slice::from_ref(&run), std::slice::from_ref(&run)).p50, None);
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [(12345.6, "12346"), (99.96, "100.0"), (12.34, "12.3"), (0.123, "0.12")] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(figure(f64::NAN), "-");
    }
}

//! `trellis bench`: flags of the comparison of speed. `bench-load` and `bench-floor` are processes of it
//! and are listed nowhere.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::{Command, clap_saying};
use crate::bench::Options;
use crate::limits;

/// Measure trellis beside the original beanstalkd, on this machine, in turns
#[derive(Parser)]
#[command(name = "trellis bench", bin_name = "trellis bench")]
struct Line {
    /// Scenarios to run, by name or the beginning of one; all of them if none is given
    scenarios: Vec<String>,
    /// Name the scenarios and leave
    #[arg(long)]
    list: bool,
    /// Slots of trellis, in place of each scenario's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::SLOTS_MAX)))]
    slots: Option<u32>,
    /// Frontends of trellis
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u16).range(1..=i64::from(limits::FRONTENDS_MAX)))]
    frontends: Option<u16>,
    /// How long a run is counted
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// How long it runs before that
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,
    /// Runs of each of the two servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Measure a server that only reads and writes, too, where it can answer: what the sockets cost
    #[arg(long)]
    floor: bool,
    /// Jobs of the recovery
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Where the servers keep their logs meanwhile: the disk that is measured
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Write all runs and ratios to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the ratios into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// For `completions`.
pub fn grammar() -> clap::Command {
    Line::command()
}

pub fn parse(words: &[OsString]) -> Command {
    match Line::try_parse_from(words) {
        Ok(line) => Command::Bench(Options {
            slots: line.slots,
            frontends: line.frontends,
            only: line.scenarios,
            list: line.list,
            warm: line.warm_up,
            run: line.seconds,
            pairs: line.pairs,
            floor: line.floor,
            jobs: line.jobs,
            dir: line.dir,
            json: line.json,
            svg: line.svg,
        }),
        Err(error) => clap_saying(error),
    }
}

/// A time that a run may take: some, and within an hour.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "must be seconds, more than 0 and at most 3600".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if seconds > 0.0 && seconds <= 3600.0 { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    fn parsed(line: &[&str]) -> Command {
        parse(&line.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_are_three_pairs_of_two_seconds() {
        let Command::Bench(options) = parsed(&["bench"]) else { panic!("refused") };
        assert_eq!((options.pairs, options.run, options.jobs), (3, Duration::from_secs(2), 1_000_000));
        assert!(options.only.is_empty() && options.slots.is_none());
    }

    #[test]
    fn numbers_out_of_range_are_usage_errors() {
        for line in
            [["--slots", "0"], ["--slots", "257"], ["--pairs", "0"], ["--seconds", "0"], ["--seconds", "nan"]]
        {
            let Command::Say(saying) = parsed(&[&["bench"][..], &line].concat()) else {
                panic!("{line:?} taken")
            };
            assert_eq!(saying.exit, Exit::Usage);
        }
    }
}

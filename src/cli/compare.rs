//! `trellis compare`: flags of the comparison with the original.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::bench::seconds;
use super::{Command, clap_saying};
use crate::compare::{Options, Record};
use crate::limits;

/// Send the same commands to the original beanstalkd and to trellis, and compare every answer
#[derive(Parser)]
#[command(name = "trellis compare", bin_name = "trellis compare")]
struct Line {
    /// Slots of trellis
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::SLOTS_MAX)))]
    slots: u32,
    /// Frontends of trellis
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u16).range(1..=i64::from(limits::FRONTENDS_MAX)))]
    frontends: Option<u16>,
    /// Where the made-up scenarios begin
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How long new scenarios are begun
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    seconds: Duration,
    /// End after so many scenarios
    #[arg(long, value_name = "N")]
    scenarios: Option<u64>,
    /// Write a scenario that shows a difference to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Take the scenario in this file
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Compare nothing: pass clients of LISTEN on to the server at TARGET and write what they say to FILE, as a
    /// scenario
    #[arg(long, num_args = 3, value_names = ["LISTEN", "TARGET", "FILE"])]
    record: Option<Vec<String>>,
}

/// For `completions`.
pub fn grammar() -> clap::Command {
    Line::command()
}

pub fn parse(words: &[OsString]) -> Command {
    let line = match Line::try_parse_from(words) {
        Ok(line) => line,
        Err(error) => return clap_saying(error),
    };
    let record = match line.record.as_deref().map(record).transpose() {
        Ok(record) => record,
        Err(text) => return super::refuse(text),
    };
    Command::Compare(Options {
        slots: line.slots,
        frontends: line.frontends,
        seed: line.seed,
        length: line.seconds,
        scenarios: line.scenarios,
        save: line.save,
        replay: line.replay,
        record,
    })
}

fn record(words: &[String]) -> Result<Record, String> {
    let address = |text: &String| -> Result<SocketAddr, String> {
        text.parse().map_err(|_| format!("--record: not an address and port: {text}"))
    };
    let [listen, target, file] = words else { return Err("--record LISTEN TARGET FILE".to_owned()) };
    Ok(Record { listen: address(listen)?, target: address(target)?, file: file.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    fn parsed(line: &[&str]) -> Command {
        parse(&line.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_are_one_slot_for_half_a_minute() {
        let Command::Compare(options) = parsed(&["compare"]) else { panic!("refused") };
        assert_eq!((options.slots, options.seed, options.length), (1, 1, Duration::from_secs(30)));
    }

    #[test]
    fn record_takes_two_addresses_and_a_file() {
        let line = ["compare", "--record", "127.0.0.1:0", "127.0.0.1:11300", "file"];
        let Command::Compare(options) = parsed(&line) else { panic!("refused") };
        assert_eq!(options.record.map(|record| record.target.port()), Some(11300));
        for wrong in
            [&["--record", "x", "127.0.0.1:1", "f"][..], &["--record", "127.0.0.1:1", "f"], &["--slots", "0"]]
        {
            let Command::Say(saying) = parsed(&[&["compare"][..], wrong].concat()) else {
                panic!("{wrong:?} taken")
            };
            assert_eq!(saying.exit, Exit::Usage);
        }
    }
}

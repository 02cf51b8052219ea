//! `trellis migrate` and `trellis export`: a data directory in another shape.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser};

use super::{Command, clap_saying};
use crate::error::{Exit, Fatal};
use crate::limits;
use crate::offline::migrate::{Plan, migrate};
use crate::output::print_after;

/// Make a copy of a data directory with another number of slots
///
/// Offline: no server may use the source, which is not changed. The target appears when it is complete and was
/// compared with the source, or not at all.
#[derive(Parser)]
#[command(name = "trellis migrate", bin_name = "trellis migrate")]
struct Migrate {
    #[command(flatten)]
    places: Places,
    /// Slots of the target; 1 is the directory of a single-process server
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::SLOTS_MAX)))]
    slots: u32,
    /// Partitions of the target
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::PARTITIONS_MAX)))]
    partitions: Option<u32>,
}

/// Make a copy of a data directory that beanstalkd 1.13 can open
///
/// Offline: no server may use the source, which is not changed. The target appears when it is complete and was
/// compared with the source, or not at all.
#[derive(Parser)]
#[command(name = "trellis export", bin_name = "trellis export")]
struct Export {
    #[command(flatten)]
    places: Places,
}

#[derive(Args)]
struct Places {
    /// Data directory, of trellis or of a single-process beanstalkd
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Must not be there yet
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Size of the target's log files
    #[arg(short = 's', value_name = "BYTES", default_value_t = limits::WAL_FILE_BYTES_DEFAULT,
        value_parser = clap::value_parser!(u64).range(limits::WAL_FILE_BYTES_MIN..=limits::WAL_FILE_BYTES_MAX))]
    file_bytes: u64,
}

/// For `completions`.
pub fn grammar() -> clap::Command {
    Migrate::command()
}

/// Of `export`.
pub fn export_grammar() -> clap::Command {
    Export::command()
}

/// `words` begin with the subcommand.
pub fn parse(words: &[OsString]) -> Command {
    let plan = if words.first().is_some_and(|word| word == "export") {
        Export::try_parse_from(words).map(|line| plan(line.places, 1, None))
    } else {
        Migrate::try_parse_from(words).map(|line| plan(line.places, line.slots, line.partitions))
    };
    match plan {
        Ok(plan) => Command::Migrate(plan),
        Err(error) => clap_saying(error),
    }
}

fn plan(places: Places, slots: u32, partitions: Option<u32>) -> Plan {
    let Places { from, to, file_bytes } = places;
    Plan { from, to, slots, partitions: partitions.unwrap_or(limits::PARTITIONS_DEFAULT), file_bytes }
}

/// Prints what was done.
pub fn run(plan: &Plan) -> Result<Exit, Fatal> {
    let text = migrate(plan)?.text();
    print_after(&format!("{}: is made", plan.to.display()), text)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Command {
        parse(&line.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn migrate_and_export_differ_in_the_slots() {
        let Command::Migrate(four) = parsed(&["migrate", "--from", "a", "--to=b", "--slots", "4"]) else {
            panic!("not taken")
        };
        assert_eq!((four.slots, four.partitions, four.file_bytes), (4, 1024, 10 << 20));
        let Command::Migrate(one) = parsed(&["export", "--from", "a", "--to=b", "-s", "4096"]) else {
            panic!("not taken")
        };
        assert_eq!(one, Plan { slots: 1, file_bytes: 4096, ..four });
    }

    #[test]
    fn numbers_out_of_range_and_missing_places_are_usage_errors() {
        for line in [
            &["migrate", "--from", "a", "--to", "b"][..],
            &["migrate", "--from", "a", "--to", "b", "--slots", "0"],
            &["migrate", "--from", "a", "--to", "b", "--slots", "257"],
            &["migrate", "--from", "a", "--to", "b", "--slots", "2", "--partitions", "8193"],
            &["migrate", "--from", "a", "--slots", "2"],
            &["export", "--to", "b"],
            &["export", "--from", "a", "--to", "b", "--slots", "2"],
            &["export", "--from", "a", "--to", "b", "-s", "1"],
        ] {
            let Command::Say(saying) = parsed(line) else { panic!("{line:?} was taken") };
            assert_eq!(saying.exit, Exit::Usage, "{line:?}");
        }
    }
}

//! `trellis wal`: looks at the logs of a data directory, and mends them.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

use super::{Command, clap_saying};
use crate::error::{Exit, Fatal};
use crate::offline::{check, dump, repair};
use crate::output::{print, print_after};

/// Look at the logs of a data directory, or mend them
#[derive(Parser)]
#[command(name = "trellis wal", bin_name = "trellis wal", disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    request: Request,
}

#[derive(Subcommand, Clone, PartialEq, Debug)]
pub enum Request {
    /// Say whether the logs are whole: exit code 0 sound, 3 torn tail (what a crash leaves), 4 damaged
    Check(Place),
    /// Print every job; exit code as of `check`
    Dump {
        #[command(flatten)]
        place: Place,
        /// With the jobs' bodies
        #[arg(long)]
        bodies: bool,
    },
    /// Copy the directory, then cut torn tails and write damaged logs anew from what is whole
    Repair {
        #[command(flatten)]
        place: Place,
        /// Where the copy goes (if not given: DIR.before-repair-1, or the next number that is free)
        #[arg(long, value_name = "DIR")]
        backup: Option<PathBuf>,
    },
}

#[derive(Args, Clone, PartialEq, Debug)]
pub struct Place {
    /// Data directory, of trellis or of a single-process beanstalkd
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON (`dump`: an object a line)
    #[arg(long)]
    json: bool,
}

/// For `completions`.
pub fn grammar() -> clap::Command {
    Line::command()
}

pub fn parse(words: &[OsString]) -> Command {
    match Line::try_parse_from(words) {
        Ok(line) => Command::Wal(line.request),
        Err(error) => clap_saying(error),
    }
}

/// Prints the answer to stdout; the verdict is the exit code.
pub fn run(request: &Request) -> Result<Exit, Fatal> {
    match request {
        Request::Check(Place { dir, json }) => {
            let report = check::check(dir)?;
            print(if *json { report.json() } else { report.text() })?;
            Ok(report.exit())
        }
        Request::Dump { place, bodies } => {
            let form = dump::Form { json: place.json, bodies: *bodies };
            dump::dump(&place.dir, form, &mut io::stdout().lock())
        }
        Request::Repair { place, backup } => {
            let outcome = repair::repair(&place.dir, backup.as_deref())?;
            let text = if place.json { outcome.json() } else { outcome.text() };
            print_after("all is done that was to be repaired", text)?;
            Ok(Exit::Done)
        }
    }
}

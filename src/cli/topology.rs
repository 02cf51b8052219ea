//! `trellis topology`: which slot a tube belongs to, and how a data directory is divided. Reads, never writes.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};

use super::{Command, clap_saying};
use crate::error::{Exit, Fatal};
use crate::limits;
use crate::topology::{self, Asked, Decision, Layout, Topology, tube_hash};

/// Look at how tube names are divided over slots
#[derive(Parser)]
#[command(name = "trellis topology", bin_name = "trellis topology", disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    request: Request,
}

#[derive(Subcommand, Clone, PartialEq, Debug)]
pub enum Request {
    /// Print the topology
    Show(Source),
    /// Print the partition and the slot of tube names
    Route {
        /// Tube names
        #[arg(required = true)]
        names: Vec<OsString>,
        #[command(flatten)]
        source: Source,
    },
}

/// Where the topology comes from.
#[derive(Args, Clone, PartialEq, Debug)]
pub struct Source {
    /// Data directory
    #[arg(short = 'b', value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Slots, where the directory doesn't say
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Partitions, where the directory doesn't say
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
}

/// For `completions`.
pub fn grammar() -> clap::Command {
    Line::command()
}

pub fn parse(words: &[OsString]) -> Command {
    match Line::try_parse_from(words) {
        Ok(line) => Command::Topology(line.request),
        Err(error) => clap_saying(error),
    }
}

/// The answer, for stdout.
pub fn run(request: &Request) -> Result<String, Fatal> {
    match request {
        Request::Show(source) => {
            let (topology, origin) = load(source)?;
            Ok(show(&topology, origin))
        }
        Request::Route { names, source } => {
            let (topology, _) = load(source)?;
            names.iter().map(|name| route(&topology, name)).collect()
        }
    }
}

/// The topology that a server started with the same flags would use, and where it comes from.
fn load(source: &Source) -> Result<(Topology, &'static str), Fatal> {
    let asked = Asked { slots: source.slots, partitions: source.partitions };
    let refuse = |error: topology::TopologyError| Fatal::new(Exit::Data, error);
    let made = |slots, partitions, layout| {
        // The server's own id is drawn when it starts; routing does not depend on it.
        Topology::new(slots, partitions, layout, &"0".repeat(limits::SERVER_ID_DIGITS)).map_err(refuse)
    };
    let Some(dir) = &source.dir else {
        let slots = asked.slots.unwrap_or(1);
        let layout = if slots == 1 { Layout::Flat } else { Layout::Slots };
        let partitions = asked.partitions.unwrap_or(limits::PARTITIONS_DEFAULT);
        return Ok((made(slots, partitions, layout)?, "the command line"));
    };
    match topology::decide(&topology::scan(dir).map_err(refuse)?, asked) {
        Decision::Use(topology) => Ok((topology, "the data directory")),
        Decision::ServeFlat { partitions } => {
            Ok((made(1, partitions, Layout::Flat)?, "the data directory: logs of a single process"))
        }
        Decision::Create(new) => Ok((
            made(new.slots, new.partitions, new.layout)?,
            "the command line: the data directory is empty",
        )),
        Decision::Refuse(error) => Err(refuse(error)),
    }
}

fn show(topology: &Topology, origin: &str) -> String {
    let mut text = format!("from: {origin}\n");
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name}: {value}").expect("a string takes any text");
    };
    if origin == "the data directory" {
        line("server-id", &topology.server_id);
        line("fingerprint", &topology.fingerprint());
    }
    line("format", &topology.format);
    line("hash", &format!("xxh64, seed {}", topology.seed));
    line("layout", &if topology.layout == Layout::Flat { "flat" } else { "slots" });
    line("slots", &topology.slots);
    line("partitions", &topology.partitions);
    line("first-routed-id", &topology.first_routed_id);
    for slot in 0..topology.slots as u16 {
        let partitions = topology.map.iter().filter(|&&owner| owner == slot).count();
        line(&format!("slot-{slot:03}"), &format!("{partitions} partitions"));
    }
    text
}

fn route(topology: &Topology, name: &OsString) -> Result<String, Fatal> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > limits::TUBE_NAME_BYTES {
        let reason = format!("a tube name has 1 to {} bytes", limits::TUBE_NAME_BYTES);
        return Err(Fatal::new(Exit::Usage, format!("{}: {reason}", Path::new(name).display())));
    }
    let partition = tube_hash(bytes, topology.seed) % u64::from(topology.partitions);
    Ok(format!("{}: partition {partition}, slot {}\n", Path::new(name).display(), topology.slot_of(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;

    fn answer(line: &[&str]) -> Result<String, Fatal> {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        match parse(&words) {
            Command::Topology(request) => run(&request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn route_without_data_follows_the_flags() {
        assert_eq!(answer(&["topology", "route", "default"]).unwrap(), {
            let partition = tube_hash(b"default", 0) % 1024;
            format!("default: partition {partition}, slot 0\n")
        });
        let text = answer(&["topology", "route", "a", "b", "--slots=4", "--partitions", "16"]).unwrap();
        let topology = Topology::new(4, 16, Layout::Slots, "0000000000000000").unwrap();
        for (line, name) in text.lines().zip([b"a", b"b"]) {
            assert!(line.ends_with(&format!("slot {}", topology.slot_of(name))), "{line}");
        }
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn show_of_a_directory_tells_what_it_says() {
        let dir = TempDir::new();
        let path = dir.to_str().unwrap();
        assert!(answer(&["topology", "show", "-b", path]).unwrap().contains("empty"));
        let topology = Topology::new(3, 16, Layout::Slots, "0123456789abcdef").unwrap();
        topology::create(&dir, &topology, &[]).unwrap();
        let text = answer(&["topology", "show", "-b", path]).unwrap();
        for words in
            ["slots: 3\n", "partitions: 16\n", "0123456789abcdef", &topology.fingerprint().to_string()]
        {
            assert!(text.contains(words), "{text}");
        }
        assert!(text.contains("slot-000: 6 partitions\n"), "{text}");
    }

    #[test]
    fn numbers_that_differ_from_the_data_are_refused() {
        let dir = TempDir::new();
        let topology = Topology::new(3, 16, Layout::Slots, "0123456789abcdef").unwrap();
        topology::create(&dir, &topology, &[]).unwrap();
        let fatal = answer(&["topology", "show", "-b", dir.to_str().unwrap(), "--slots=2"]).unwrap_err();
        assert_eq!(fatal.code, Exit::Data.code());
    }

    #[test]
    fn name_too_long_is_refused() {
        assert_eq!(answer(&["topology", "route", &"x".repeat(201)]).unwrap_err().code, Exit::Usage.code());
        assert!(answer(&["topology", "route", &"x".repeat(200)]).is_ok());
    }

    #[test]
    fn wrong_arguments_end_with_stocks_code() {
        let Command::Say(saying) = parse(&["topology".into(), "dance".into()]) else { panic!("not refused") };
        assert_eq!((saying.exit, saying.to_stdout), (Exit::Usage, false));
    }
}

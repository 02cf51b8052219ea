//! The command line: arguments to a command, without doing any of it.
//!
//! `serve` is the default and takes stock's flags exactly as stock does; `topology` and `wal` look at a data
//! directory, `migrate` makes another, `status` asks a running server, `bench` measures beside the original and
//! `compare` compares with it, `completions` helps a shell; `role` is how the supervisor starts its children and is
//! listed nowhere. Parsing reads no file, writes nothing and never exits: what is to be said comes back as text, for
//! `main` to print.

pub mod bench;
pub mod compare;
pub mod completions;
pub mod environment;
pub mod migrate;
mod numbers;
pub mod role;
pub mod serve;
pub mod status;
pub mod topology;
pub mod wal;

use std::ffi::OsString;

use crate::error::Exit;
use crate::ipc::control::Role;
use crate::offline::migrate::Plan;

pub use serve::Settings;

/// What a command line asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    Serve(Settings),
    Topology(topology::Request),
    Compare(crate::compare::Options),
    Bench(crate::bench::Options),
    /// The load of `bench`.
    BenchLoad,
    /// The floor of `bench`, with its own arguments.
    BenchFloor(Vec<OsString>),
    Status(status::Request),
    Wal(wal::Request),
    /// Also `export`.
    Migrate(Plan),
    /// One of our own processes.
    Role {
        role: Role,
        index: u16,
        generation: u32,
    },
    /// Print and leave.
    Say(Saying),
}

/// A text and the exit code after it. Output that was asked for goes to stdout, everything else to stderr.
#[derive(Clone, PartialEq, Debug)]
pub struct Saying {
    pub text: String,
    pub to_stdout: bool,
    pub exit: Exit,
}

/// A command, and what stock prints to stderr while it reads its flags.
#[derive(Clone, PartialEq, Debug)]
pub struct Parsed {
    pub notes: Vec<String>,
    pub command: Command,
}

/// Reads a whole command line; the first argument is the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Parsed {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().map_or("trellis".into(), |name| name.to_string_lossy().into_owned());
    let mut words: Vec<OsString> = arguments.collect();
    let first = words.first().and_then(|word| word.to_str()).unwrap_or_default();
    match first {
        "compare" => just(compare::parse(&words)),
        "bench" => just(bench::parse(&words)),
        "bench-load" => just(Command::BenchLoad),
        "bench-floor" => just(Command::BenchFloor(words)),
        "topology" => just(topology::parse(&words)),
        "completions" => just(completions::parse(&words)),
        "status" => just(status::parse(&words)),
        "migrate" | "export" => just(migrate::parse(&words)),
        "wal" => just(wal::parse(&words)),
        "owner" | "frontend" => just(role::parse(&words)),
        "serve" => {
            words.remove(0);
            serve::parse(&program, words)
        }
        _ => serve::parse(&program, words),
    }
}

fn just(command: Command) -> Parsed {
    Parsed { notes: Vec::new(), command }
}

/// A wrong argument that clap does not see.
fn refuse(text: String) -> Command {
    Command::Say(Saying { text, to_stdout: false, exit: Exit::Usage })
}

/// What clap has to say: help to stdout, a wrong argument to stderr with stock's code for it.
fn clap_saying(error: clap::Error) -> Command {
    let to_stdout = !error.use_stderr();
    let exit = if to_stdout { Exit::Done } else { Exit::Usage };
    Command::Say(Saying { text: error.to_string().trim_end().to_owned(), to_stdout, exit })
}

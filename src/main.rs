//! The `trellis` binary: arguments to a role, a role to an exit code. The only place that exits.

// As in `lib.rs`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::process::ExitCode;

use trellis::cli::{self, Command, Saying};
use trellis::error::{Exit, Fatal};
use trellis::output::{print, say};
use trellis::{bench, child, compare, log, supervisor};

fn main() -> ExitCode {
    let parsed = cli::parse(std::env::args_os());
    let json = matches!(&parsed.command, Command::Serve(s) if log::format(s.log_format) == log::Format::Json);
    if !json {
        parsed.notes.iter().for_each(|note| say(format!("{note}\n")));
    }
    match parsed.command {
        Command::Serve(settings) => {
            if let Err(wrong) = cli::environment::check(|name| std::env::var(name).ok()) {
                return said(Err(Fatal::new(Exit::Usage, wrong)));
            }
            log::init(settings.verbose, settings.log_format);
            let _span = tracing::error_span!("supervisor").entered();
            if json {
                parsed.notes.iter().for_each(|note| tracing::warn!("{note}"));
            }
            let end = supervisor::run(settings);
            if let Err(fatal) = &end {
                tracing::error!("{fatal}");
            }
            log::finish();
            code(end)
        }
        Command::Role { role, index, generation } => code(child::run(role, index, generation)),
        Command::Compare(options) => said(compare::run(&options)),
        Command::Bench(options) => said(bench::run(&options)),
        Command::BenchLoad => said(bench::load::run()),
        Command::BenchFloor(words) => said(bench::floor::run(&words)),
        Command::Topology(request) => said(cli::topology::run(&request).and_then(print)),
        Command::Status(request) => said(cli::status::run(&request)),
        Command::Migrate(plan) => tool(cli::migrate::run(&plan)),
        Command::Wal(request) => tool(cli::wal::run(&request)),
        Command::Say(Saying { text, to_stdout: true, exit }) => {
            tool(print(format!("{text}\n")).map(|()| exit))
        }
        Command::Say(Saying { text, to_stdout: false, exit }) => {
            say(format!("{text}\n"));
            ExitCode::from(exit.code())
        }
    }
}

/// For commands that a person waits for: the reason goes to stderr, not to the log.
fn said(end: Result<(), Fatal>) -> ExitCode {
    if let Err(fatal) = &end {
        say(format!("trellis: {fatal}\n"));
    }
    code(end)
}

/// The end of a subcommand that has printed its answer.
fn tool(end: Result<Exit, Fatal>) -> ExitCode {
    match end {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(fatal) => said(Err(fatal)),
    }
}

fn code(end: Result<(), Fatal>) -> ExitCode {
    end.map_or_else(|fatal| ExitCode::from(fatal.code), |()| ExitCode::SUCCESS)
}

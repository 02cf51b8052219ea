//! The log: one line an event, to the inherited stderr. Never to stdout.
//!
//! `TRELLIS_LOG` chooses what is shown; the supervisor sets it for its children from `-V`, so that all
//! processes of a server say as much. A process's role stands before each of its messages.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The environment variable that overrides `-V`.
pub const VARIABLE: &str = "TRELLIS_LOG";

/// The level that this many `-V` ask for.
pub fn level(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    }
}

/// Starts the log of this process; only the first call has an effect.
pub fn init(verbose: u8) {
    let asked = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let text = asked.as_deref().unwrap_or(level(verbose));
    let (filter, wrong) = match EnvFilter::try_new(text) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(level(verbose)), Some(error)),
    };
    // A failing stderr is nobody's to report to: without this the library would report it to stderr.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    if log.try_init().is_ok() {
        if let Some(error) = wrong {
            tracing::warn!("{VARIABLE}={text}: {error}; ignored");
        }
    }
}

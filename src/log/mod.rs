//! The log: one line an event, to the inherited stderr. Never to stdout.
//!
//! `TRELLIS_LOG` chooses what is shown and `TRELLIS_LOG_FORMAT` how; the supervisor sets both for its
//! children from its flags, so that all processes of a server speak alike. A process's role, slot or number,
//! and generation stand before each of its messages, for which its caller opens a span. Lines that repeat are
//! limited (`limiter`).

mod limiter;

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use limiter::Limiter;

/// The environment variable that overrides `-V`.
pub const VARIABLE: &str = "TRELLIS_LOG";

/// The environment variable that says in which format, where `--log-format` does not.
pub const FORMAT_VARIABLE: &str = "TRELLIS_LOG_FORMAT";

static LIMITER: OnceLock<Limiter> = OnceLock::new();

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Text,
    /// One object a line.
    Json,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
        }
    }

    /// `None` for a name that no format has.
    pub fn from_name(name: &str) -> Option<Format> {
        [Format::Text, Format::Json].into_iter().find(|format| format.name() == name)
    }
}

/// The level that this many `-V` ask for.
pub fn level(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    }
}

/// The format that was asked for by flag or else by the environment.
pub fn format(flag: Option<Format>) -> Format {
    let from_environment = || Format::from_name(&std::env::var(FORMAT_VARIABLE).ok()?);
    flag.or_else(from_environment).unwrap_or(Format::Text)
}

/// Starts the log of this process; only the first call has an effect.
pub fn init(verbose: u8, flag: Option<Format>) {
    let asked = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let text = asked.as_deref().unwrap_or(level(verbose));
    let (filter, wrong) = match EnvFilter::try_new(text) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(level(verbose)), Some(error)),
    };
    // A failing stderr is nobody's to report to: without this the library would report it to stderr.
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let lines = match format(flag) {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let limiter = LIMITER.get_or_init(Limiter::new);
    let log = tracing_subscriber::registry().with(filter).with(lines).with(limiter);
    if log.try_init().is_ok() {
        if let Some(error) = wrong {
            tracing::warn!("{VARIABLE}={text}: {error}; ignored");
        }
        log_panics();
    }
}

/// Tells how many lines were left out in the seconds that are over. Each process calls it about once a second.
pub fn tell_suppressed() {
    tell(false);
}

/// Before the process ends: tells of those of this second, too.
pub fn finish() {
    tell(true);
}

fn tell(all: bool) {
    for left_out in LIMITER.get().map(|limiter| limiter.take_suppressed(all)).unwrap_or_default() {
        tracing::warn!("suppressed {} lines: {}", left_out.lines, left_out.sample);
    }
}

/// A panic is one line of the log, too; with `RUST_BACKTRACE` the usual text follows.
fn log_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!("{}", panic.to_string().replace('\n', " "));
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            usual(panic);
        }
    }));
}

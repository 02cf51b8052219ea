//! What commands print: the one way to stdout and stderr for all but the log, which has its own.
//!
//! `println!` panics where the stream can't be written, and a full disk or a reader that went away is no bug.
//! Clippy is told to refuse it and its like outside of tests.

use std::fmt::Display;
use std::io::{self, Write};

use crate::error::Fatal;

/// Prints to stdout, to the end of it: what the system still holds back when this returns is not ours.
pub fn print(text: impl Display) -> Result<(), Fatal> {
    let mut stdout = io::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|error| Fatal::temporary("writing the answer", error))
}

/// The same with what was done meanwhile, which the answer would have said.
pub fn print_after(done: &str, text: impl Display) -> Result<(), Fatal> {
    print(text).map_err(|fatal| Fatal { message: format!("{done}, but {fatal}"), ..fatal })
}

/// Says something on stderr. Where that can't be written there is nobody to be told of it.
pub fn say(text: impl Display) {
    // In one write: other processes may speak on the same stream.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

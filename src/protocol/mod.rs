//! The client's text protocol as the frontend needs it: bytes to lines, lines to routable commands.
//!
//! Pure: no I/O, no clock. `framing` cuts the stream exactly as stock does, traps included; `command` says
//! where a line belongs; `numbers` and `tube_name` copy stock's two number parsers and its rule for names;
//! `words` are the commands by name.
//! What can't be routed is `Command::Other`, and the C core words the refusal.

mod command;
mod framing;
mod numbers;
mod tube_name;
mod words;

pub use command::{Command, IdCommand, command};
pub use framing::{Discard, Line, discard, line};
pub use tube_name::TubeName;
pub use words::{WORDS, Words};

//! Runs `trellis` with a subcommand that ends by itself.

use crate::support::Binary;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

#[derive(Debug)]
pub struct Answer {
    /// `None`: killed.
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

pub fn tool<S: AsRef<OsStr>>(arguments: &[S]) -> Answer {
    let output = command(arguments).output().expect("trellis runs");
    Answer {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        error: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The same, not started yet.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(Binary::Trellis.path());
    command.args(arguments).stdin(Stdio::null());
    command
}

impl Answer {
    /// Panics with all that was said unless it ended with this code.
    pub fn ended(self, code: i32) -> Answer {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.error);
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// Both outputs have all of these words between them.
    pub fn says(&self, words: &[&str]) {
        for word in words {
            assert!(self.out.contains(word) || self.error.contains(word), "no {word:?} in {self:?}");
        }
    }
}

//! A scenario: what clients do, one step after the other, and its text form.
//!
//! ```text
//! trellis-compare 1
//! flags -z 100
//! log
//! A < "put 0 0 60 2\r\nhi\r\n" = j1
//! B < "reserve\r\n"
//! B < "delete {j1}\r\n"
//! A half
//! B close
//! at 1400
//! restart
//! drain
//! check
//! ```
//!
//! The first lines say how both servers are started. A name in braces stands for a job's id, which each server
//! has its own of; names behind `=` are given to the jobs that the client's puts insert, in order. A client
//! connects when it is first named. `at` waits until so many milliseconds after the start, `check` compares all
//! statistics. `#` begins a comment, and empty lines mean nothing.

use std::fmt;

use crate::error::{Exit, Fatal};

/// The first line of every file.
const HEADING: &str = "trellis-compare 1";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scenario {
    /// Stock's flags, for both servers.
    pub flags: Vec<String>,
    /// Both keep a log.
    pub log: bool,
    pub steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Send {
        client: String,
        pieces: Vec<Piece>,
        /// Names for the jobs that are inserted.
        names: Vec<String>,
    },
    /// The client will send no more.
    Half(String),
    Close(String),
    /// Milliseconds after the first step.
    At(u64),
    /// Both servers are killed and started again; all clients are gone.
    Restart,
    /// Both servers are told to take no more jobs.
    Drain,
    Check,
}

/// A part of what is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    Bytes(Vec<u8>),
    /// The id of the job with this name.
    Id(String),
}

impl Scenario {
    pub fn parse(text: &str) -> Result<Scenario, Fatal> {
        let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
        let mut scenario = Scenario::default();
        let wrong = |number: usize, what: &str| Fatal::new(Exit::Usage, format!("line {number}: {what}"));
        if lines.next().is_none_or(|(_, line)| line != HEADING) {
            return Err(wrong(1, &format!("not a scenario: it does not begin with \"{HEADING}\"")));
        }
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            if let Some(flags) = line.strip_prefix("flags ") {
                scenario.flags.extend(flags.split_whitespace().map(str::to_owned));
            } else if line == "log" {
                scenario.log = true;
            } else {
                scenario.steps.push(step(line).map_err(|what| wrong(number, &what))?);
            }
        }
        Ok(scenario)
    }
}

fn step(line: &str) -> Result<Step, String> {
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    let step = match (first, rest) {
        ("restart", "") => Step::Restart,
        ("drain", "") => Step::Drain,
        ("check", "") => Step::Check,
        ("at", ms) => Step::At(ms.parse().map_err(|_| format!("no milliseconds: {ms}"))?),
        (client, "half") => Step::Half(client.to_owned()),
        (client, "close") => Step::Close(client.to_owned()),
        (client, rest) => {
            let unknown = || format!("no step: {line}");
            let text = rest.strip_prefix("< \"").ok_or_else(unknown)?;
            let (pieces, rest) = pieces(text)?;
            let names = match rest.trim() {
                "" => Vec::new(),
                names => names
                    .strip_prefix('=')
                    .ok_or_else(unknown)?
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect(),
            };
            Step::Send { client: client.to_owned(), pieces, names }
        }
    };
    Ok(step)
}

/// Up to the closing quote; what is behind it comes back too.
fn pieces(text: &str) -> Result<(Vec<Piece>, &str), String> {
    let mut pieces = Vec::new();
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        let mut chars = rest.chars();
        match chars.next() {
            None => return Err("the closing quote is missing".into()),
            Some('"') => {
                if !bytes.is_empty() {
                    pieces.push(Piece::Bytes(bytes));
                }
                return Ok((pieces, chars.as_str()));
            }
            Some('{') => {
                let (name, behind) = chars.as_str().split_once('}').ok_or("a brace is not closed")?;
                if !bytes.is_empty() {
                    pieces.push(Piece::Bytes(std::mem::take(&mut bytes)));
                }
                pieces.push(Piece::Id(name.to_owned()));
                rest = behind;
            }
            Some('\\') => {
                let (byte, length) = escape(chars.as_str()).ok_or_else(|| format!("no escape: \\{rest}"))?;
                bytes.push(byte);
                rest = &chars.as_str()[length..];
            }
            Some(char) => {
                bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                rest = chars.as_str();
            }
        }
    }
}

/// The byte of an escape without its backslash, and the length of its text.
fn escape(text: &str) -> Option<(u8, usize)> {
    Some(match text.as_bytes().first()? {
        b'r' => (b'\r', 1),
        b'n' => (b'\n', 1),
        b't' => (b'\t', 1),
        b'\\' => (b'\\', 1),
        b'"' => (b'"', 1),
        b'\'' => (b'\'', 1),
        b'x' => (u8::from_str_radix(text.get(1..3)?, 16).ok()?, 3),
        _ => return None,
    })
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}")?;
        if !self.flags.is_empty() {
            writeln!(f, "flags {}", self.flags.join(" "))?;
        }
        if self.log {
            writeln!(f, "log")?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Send { client, pieces, names } => {
                write!(f, "{client} < \"")?;
                pieces.iter().try_for_each(|piece| write!(f, "{piece}"))?;
                write!(f, "\"")?;
                if !names.is_empty() {
                    write!(f, " = {}", names.join(" "))?;
                }
                Ok(())
            }
            Step::Half(client) => write!(f, "{client} half"),
            Step::Close(client) => write!(f, "{client} close"),
            Step::At(ms) => write!(f, "at {ms}"),
            Step::Restart => write!(f, "restart"),
            Step::Drain => write!(f, "drain"),
            Step::Check => write!(f, "check"),
        }
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A brace that is data is told from one that opens a name.
            Piece::Bytes(bytes) => write!(f, "{}", bytes.escape_ascii().to_string().replace('{', "\\x7b")),
            Piece::Id(name) => write!(f, "{{{name}}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_of_every_step_is_read_back() {
        let text = "trellis-compare 1\n# why\n\nflags -z 100 -s 4096\nlog\nA < \"put 0 0 60 2\\r\\nhi\\r\\n\" = j1 j2\n\
                    B < \"delete {j1}\\r\\n\"\nA half\nB close\nat 1400\nrestart\ndrain\ncheck\n";
        let scenario = Scenario::parse(text).unwrap();
        assert_eq!(scenario.flags, ["-z", "100", "-s", "4096"]);
        assert!(scenario.log);
        assert_eq!(scenario.steps.len(), 8);
        assert_eq!(Scenario::parse(&scenario.to_string()).unwrap(), scenario);
    }

    #[test]
    fn wrong_line_is_named_by_its_number() {
        for (line, words) in [
            ("A dances", "no step"),
            ("at noon", "no milliseconds"),
            ("A < \"x", "closing quote"),
            ("A < \"{x\"", "brace"),
            ("A < \"\\q\"", "no escape"),
            ("A < \"x\" j1", "no step"),
        ] {
            let error = Scenario::parse(&format!("{HEADING}\nA half\n{line}\n")).unwrap_err();
            assert!(error.message.starts_with("line 3: ") && error.message.contains(words), "{error}");
        }
        assert!(Scenario::parse("put 0 0\n").unwrap_err().message.contains("not a scenario"));
    }

    proptest! {
        #[test]
        fn any_bytes_survive_the_text(bytes in proptest::collection::vec(any::<u8>(), 1..50), name in "[a-z][0-9]{1,3}") {
            let pieces = vec![Piece::Bytes(bytes), Piece::Id(name), Piece::Bytes(b"\r\n".to_vec())];
            let steps = vec![Step::Send { client: "A".into(), pieces, names: vec![] }];
            let scenario = Scenario { steps, ..Scenario::default() };
            prop_assert_eq!(Scenario::parse(&scenario.to_string()).unwrap(), scenario);
        }
    }
}

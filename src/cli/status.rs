//! `trellis status`: asks a running server over its control socket what it is doing. Changes nothing there.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::{Command, clap_saying};
use crate::error::{Exit, Fatal};
use crate::limits::{CONTROL_PATH_DEFAULT, STATUS_BYTES, STATUS_INTERVAL, STATUS_PATIENCE};
use crate::output::print;
use crate::status::{Status, table};

/// Show what a running server is doing
#[derive(Parser, Clone, PartialEq, Debug)]
#[command(name = "trellis status", bin_name = "trellis status")]
pub struct Request {
    /// Control socket of the server, as given to it with --control
    #[arg(long, value_name = "PATH", default_value = CONTROL_PATH_DEFAULT)]
    control: PathBuf,
    /// Print JSON: one object, on one line
    #[arg(long)]
    json: bool,
    /// Go on, once a second, until interrupted
    #[arg(long)]
    watch: bool,
    /// End with code 1 unless every slot and frontend serves, and say what does not
    #[arg(long, conflicts_with = "watch")]
    check: bool,
}

/// For `completions`.
pub fn grammar() -> clap::Command {
    Request::command()
}

pub fn parse(words: &[OsString]) -> Command {
    match Request::try_parse_from(words) {
        Ok(request) => Command::Status(request),
        Err(error) => clap_saying(error),
    }
}

/// Prints the answer to stdout. An error: no server answered, what it said is no status, or nobody reads.
pub fn run(request: &Request) -> Result<(), Fatal> {
    // From the top of a terminal, so that it looks like one table that changes.
    let clear = if request.watch && io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    loop {
        let text = match ask(&request.control) {
            Ok(json) if request.check => check(&json)?,
            Ok(json) if request.json => json,
            Ok(json) => table::render(&read(&json)?),
            // A server that is restarted comes back.
            Err(error) if request.watch => format!("{}\n", unreachable(&request.control, &error)),
            Err(error) => return Err(Fatal::new(Exit::Temporary, unreachable(&request.control, &error))),
        };
        let gap = if request.watch && !request.json && clear.is_empty() { "\n" } else { "" };
        print(format!("{clear}{text}{gap}"))?;
        if !request.watch {
            return Ok(());
        }
        // The interval of a display, not a wait for anything.
        thread::sleep(STATUS_INTERVAL);
    }
}

/// The server's answer, whole.
fn ask(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(STATUS_PATIENCE))?;
    stream.set_write_timeout(Some(STATUS_PATIENCE))?;
    stream.write_all(b"status\n")?;
    let mut text = String::new();
    stream.take(STATUS_BYTES).read_to_string(&mut text)?;
    match text.ends_with('\n') {
        true => Ok(text),
        false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is not whole")),
    }
}

fn read(json: &str) -> Result<Status, Fatal> {
    serde_json::from_str(json)
        .map_err(|error| Fatal::new(Exit::Temporary, format!("the server's answer is no status: {error}")))
}

fn check(json: &str) -> Result<String, Fatal> {
    match read(json)?.trouble {
        Some(trouble) => Err(Fatal::new(Exit::Temporary, trouble)),
        None => Ok("all is well\n".to_owned()),
    }
}

fn unreachable(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            format!("{path}: {error}: no server answers there (it has to run with --control)")
        }
        // The time limit of the socket, which waits otherwise.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let seconds = STATUS_PATIENCE.as_secs();
            format!("{path}: no answer in {seconds} seconds: the server is stopped, or hangs")
        }
        _ => format!("{path}: {error}"),
    }
}

const _: () = assert!(STATUS_PATIENCE.as_millis() > Duration::from_secs(1).as_millis());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_is_not_there_and_one_that_is_silent_are_told_apart() {
        let said = |kind: ErrorKind| unreachable(Path::new("/x"), &kind.into());
        for kind in [ErrorKind::NotFound, ErrorKind::ConnectionRefused] {
            assert!(said(kind).contains("no server answers there"), "{}", said(kind));
        }
        let silent = "/x: no answer in 10 seconds: the server is stopped, or hangs";
        assert_eq!(said(ErrorKind::WouldBlock), silent);
        assert_eq!(said(ErrorKind::PermissionDenied), "/x: permission denied");
    }

    #[test]
    fn flags_are_as_documented() {
        let parsed = |line: &[&str]| match parse(&line.iter().map(OsString::from).collect::<Vec<_>>()) {
            Command::Status(request) => request,
            other => panic!("{other:?}"),
        };
        let plain = Request { control: CONTROL_PATH_DEFAULT.into(), json: false, watch: false, check: false };
        assert_eq!(parsed(&["status"]), plain);
        let all = Request { control: "/x".into(), json: true, watch: true, check: false };
        assert_eq!(parsed(&["status", "--control=/x", "--json", "--watch"]), all);
        let Command::Say(saying) = parse(&["status".into(), "now".into()]) else { panic!("not refused") };
        assert_eq!((saying.exit, saying.to_stdout), (Exit::Usage, false));
    }
}

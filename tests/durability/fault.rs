//! Faults at an exact call of a server or a tool, by a small library that is preloaded (`fault.c`).
//!
//! It needs the C compiler that the package is built with. The same fault can be put to both servers.

use crate::support::{Setup, TempDir};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What is to happen, and where.
pub struct Fault {
    directory: TempDir,
    variables: Vec<(String, String)>,
}

/// What happens at the call.
#[derive(Clone, Copy)]
pub enum Act {
    /// SIGKILL in place of the call.
    Kill,
    /// SIGKILL behind the call.
    KillAfter,
    /// SIGKILL behind half of a write.
    KillHalfWay,
    Fail(i32),
    /// From that call on each fails.
    FailOnwards(i32),
}

impl Fault {
    /// None yet: counts calls on files whose path has this in it.
    pub fn on(path: &str) -> Fault {
        let fault = Fault { directory: TempDir::new("fault"), variables: Vec::new() };
        let trace = fault.trace_file().display().to_string();
        fault
            .with("LD_PRELOAD", &library().display().to_string())
            .with("FAULT_PATH", path)
            .with("FAULT_TRACE", &trace)
    }

    /// At the `number`-th such call. In one process only, so that its successor is spared.
    pub fn at(self, call: &str, number: usize, act: Act) -> Fault {
        let once = self.directory.join("once").display().to_string();
        let act = match act {
            Act::Kill => "kill".to_owned(),
            Act::KillAfter => "after".to_owned(),
            Act::KillHalfWay => "half".to_owned(),
            Act::Fail(errno) => errno.to_string(),
            Act::FailOnwards(errno) => format!("{errno}+"),
        };
        self.with("FAULT_CALL", call)
            .with("FAULT_AT", &number.to_string())
            .with("FAULT_DO", &act)
            .with("FAULT_ONCE", &once)
    }

    /// Waits at that call until this FIFO was opened for writing and closed again.
    pub fn waiting_for(self, call: &str, number: usize, fifo: &Path) -> Fault {
        let once = self.directory.join("once").display().to_string();
        self.with("FAULT_CALL", call)
            .with("FAULT_AT", &number.to_string())
            .with("FAULT_DO", &fifo.display().to_string())
            .with("FAULT_ONCE", &once)
    }

    /// Whether it has happened.
    pub fn happened(&self) -> bool {
        self.directory.join("once").exists()
    }

    /// Lets the wall clock be an hour back after `step_clock`.
    pub fn on_clock(self) -> Fault {
        let file = self.clock_file().display().to_string();
        self.with("FAULT_CLOCK", &file)
    }

    pub fn step_clock(&self) {
        std::fs::write(self.clock_file(), "").expect("a file for the clock");
    }

    pub fn put_to(&self, setup: Setup) -> Setup {
        self.variables.iter().fold(setup, |setup, (name, value)| setup.env(name, value))
    }

    pub fn put_to_tool(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    /// The calls so far: what, and on which file, with the bytes of a write.
    pub fn trace(&self) -> Vec<(String, String, u64)> {
        let text = std::fs::read_to_string(self.trace_file()).unwrap_or_default();
        let call = |line: &str| {
            let [_pid, call, name, bytes] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("not a line of a trace: {line:?}")
            };
            (call.to_owned(), name.to_owned(), bytes.parse().expect("a number of bytes"))
        };
        // The last line may be in the making.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(call).collect()
    }

    fn with(mut self, name: &str, value: &str) -> Fault {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn trace_file(&self) -> PathBuf {
        self.directory.join("trace")
    }

    fn clock_file(&self) -> PathBuf {
        self.directory.join("clock")
    }
}

/// Built once a run.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let directory = TempDir::new("fault-library");
        let path = build(&directory, "fault.c");
        (directory, path)
    });
    path
}

/// Builds a library to preload from a source beside this file.
pub fn build(directory: &TempDir, source: &str) -> PathBuf {
    let path = directory.join("library.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durability").join(source);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    let built = command.arg(&path).arg(source).arg("-ldl").output().expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    path
}

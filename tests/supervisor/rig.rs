//! A server that is watched through its log, and directories for it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

pub const TRELLIS: &str = env!("CARGO_BIN_EXE_trellis");

/// Longer than anything here takes on a busy machine; reached only by a failure.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trellis-supervisor-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A data directory in it, to be given to `-b`.
    pub fn data(&self) -> String {
        fs::create_dir_all(self.0.join("data")).unwrap();
        self.path("data")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server.
pub struct Server {
    pub child: Child,
    lines: Receiver<String>,
    /// What of the log has been read: printed when a test fails.
    pub log: Vec<String>,
}

impl Server {
    pub fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Server { child, lines, log: Vec::new() }
    }

    /// On any free port, with the log that the tests read, without waiting for it.
    pub fn begin(arguments: &[&str]) -> Server {
        let mut command = Command::new(TRELLIS);
        command.args(["-VV", "-l127.0.0.1", "-p0"]).args(arguments);
        Server::spawn(command)
    }

    pub fn start(arguments: &[&str]) -> Server {
        let mut server = Server::begin(arguments);
        server.wait_ready();
        server
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn fail(&self, what: &str) -> ! {
        panic!("{what}; the log so far:\n{}", self.log.join("\n"));
    }

    /// The next line of the log with these words.
    pub fn wait_line(&mut self, words: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.log.push(line.clone());
                    if line.contains(words) {
                        return line;
                    }
                }
                Err(_) => self.fail(&format!("no line with {words:?}")),
            }
        }
    }

    pub fn wait_ready(&mut self) {
        self.wait_line(" INFO supervisor: ready");
    }

    /// Waits until no process of the server is left, and reports how long that took.
    pub fn wait_gone(&mut self) -> Duration {
        let begin = Instant::now();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Disconnected) => return begin.elapsed(),
                Err(RecvTimeoutError::Timeout) => self.fail("processes are left"),
            }
        }
    }

    /// Waits for the supervisor's own end.
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.wait_gone();
        self.child.wait().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn port(&self) -> u16 {
        let line = self.log.iter().find(|line| line.contains("listening on")).expect("the log says so");
        line.rsplit(':').next().unwrap().parse().unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port())).unwrap()
    }

    /// Command lines of the children, by pid.
    pub fn children(&self) -> Vec<(Pid, String)> {
        let pid = self.pid();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let line = |pid: &str| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
            (Pid::from_raw(pid.parse().unwrap()), words.trim_end_matches('\0').replace('\0', " "))
        };
        list.split_whitespace().map(line).collect()
    }

    pub fn child(&self, command_line: &str) -> Pid {
        let children = self.children();
        match children.iter().find(|(_, line)| line == command_line) {
            Some((pid, _)) => *pid,
            None => self.fail(&format!("no {command_line:?} among {children:?}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its children leave by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A start that has to end by itself.
pub fn run(arguments: &[&str]) -> Output {
    let output = Command::new(TRELLIS).args(arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    output
}

pub fn refused(arguments: &[&str], code: i32, words: &str) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text}");
}

pub fn names(dir: &str) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

pub fn status_field(pid: Pid, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Has the child do this before it becomes the program: system calls only.
pub fn before_exec(command: &mut Command, act: fn() -> nix::Result<()>) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; the callers' are bare system
    // calls, without allocation or lock.
    unsafe { command.pre_exec(move || Ok(act()?)) };
}

/// A signal that waits for whoever unblocks it.
pub fn raise_blocked(signal: Signal) -> nix::Result<()> {
    let mut set = SigSet::empty();
    set.add(signal);
    set.thread_block()?;
    nix::sys::signal::raise(signal)
}

/// Runs the program with this descriptor as 3, as a service manager hands over sockets.
pub fn with_fd_3(fd: OwnedFd, variables: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{variables} exec \"$0\" \"$@\" 3<&0 0</dev/null");
    command.args(["-c", &script, TRELLIS]).args(arguments).stdin(Stdio::from(fd));
    command
}

//! The supervisor seen from outside: the real binary, its processes, its log and its exit codes.
//!
//! Every server has a port of its own, a directory of its own and its stderr as a pipe. All its processes hold
//! that pipe, so its end says that the last of them is gone. Nothing here sleeps: a test waits for a line of
//! the log, for the pipe's end, or for an exit, each with a limit that only a failure reaches.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Gid, Pid};

use trellis::ipc::Kind;
use trellis::ipc::control::{ClientLimits, Hello, Role, Server as ServerFacts, Start, decode, encode};
use trellis::ipc::socket::{Channel, Progress, pair};
use trellis::protocol::Words;
use trellis::scoreboard::Scoreboard;
use trellis::topology::{Layout, Topology};

const TRELLIS: &str = env!("CARGO_BIN_EXE_trellis");

/// Longer than anything here takes on a busy machine; reached only by a failure.
const LIMIT: Duration = Duration::from_secs(30);

struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trellis-supervisor-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A data directory in it, to be given to `-b`.
    fn data(&self) -> String {
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
struct Server {
    child: Child,
    lines: Receiver<String>,
    /// What of the log has been read: printed when a test fails.
    log: Vec<String>,
}

impl Server {
    fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Server { child, lines, log: Vec::new() }
    }

    /// On any free port, with the log that the tests read, without waiting for it.
    fn begin(arguments: &[&str]) -> Server {
        let mut command = Command::new(TRELLIS);
        command.args(["-VV", "-l127.0.0.1", "-p0"]).args(arguments);
        Server::spawn(command)
    }

    fn start(arguments: &[&str]) -> Server {
        let mut server = Server::begin(arguments);
        server.wait_ready();
        server
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}; the log so far:\n{}", self.log.join("\n"));
    }

    /// The next line of the log with these words.
    fn wait_line(&mut self, words: &str) -> String {
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

    fn wait_ready(&mut self) {
        self.wait_line(" INFO supervisor: ready");
    }

    /// Waits until no process of the server is left, and reports how long that took.
    fn wait_gone(&mut self) -> Duration {
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
    fn wait_exit(&mut self) -> ExitStatus {
        self.wait_gone();
        self.child.wait().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn port(&self) -> u16 {
        let line = self.log.iter().find(|line| line.contains("listening on")).expect("the log says so");
        line.rsplit(':').next().unwrap().parse().unwrap()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port())).unwrap()
    }

    /// Command lines of the children, by pid.
    fn children(&self) -> Vec<(Pid, String)> {
        let pid = self.pid();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let line = |pid: &str| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
            (Pid::from_raw(pid.parse().unwrap()), words.trim_end_matches('\0').replace('\0', " "))
        };
        list.split_whitespace().map(line).collect()
    }

    fn child(&self, command_line: &str) -> Pid {
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
fn run(arguments: &[&str]) -> Output {
    let output = Command::new(TRELLIS).args(arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    output
}

fn refused(arguments: &[&str], code: i32, words: &str) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text}");
}

fn names(dir: &str) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn status_field(pid: Pid, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Has the child do this before it becomes the program: system calls only.
fn before_exec(command: &mut Command, act: fn() -> nix::Result<()>) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; the callers' are bare system
    // calls, without allocation or lock.
    unsafe { command.pre_exec(move || Ok(act()?)) };
}

/// A signal that waits for whoever unblocks it.
fn raise_blocked(signal: Signal) -> nix::Result<()> {
    let mut set = SigSet::empty();
    set.add(signal);
    set.thread_block()?;
    nix::sys::signal::raise(signal)
}

#[test]
fn server_started_shows_its_roles_and_leaves_no_process_on_sigterm() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Server::start(&["--slots=2", "--frontends", "2"]);
        let lines: Vec<String> = server.children().into_iter().map(|(_, line)| line).collect();
        let expected = [
            "trellis owner --slot 0 --generation 1",
            "trellis owner --slot 1 --generation 1",
            "trellis frontend --number 0 --generation 1",
            "trellis frontend --number 1 --generation 1",
        ];
        assert_eq!(lines, expected);
        server.connect();
        server.signal(signal);
        assert_eq!(server.wait_exit().code(), Some(0), "{}", server.log.join("\n"));
    }
}

#[test]
fn server_without_verbosity_says_nothing_when_all_is_well() {
    let dir = TempDir::new();
    let notify = UnixDatagram::bind(dir.path("notify")).unwrap();
    notify.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = Command::new(TRELLIS);
    command.args(["-l127.0.0.1", "-p0"]).env("NOTIFY_SOCKET", dir.path("notify"));
    let mut server = Server::spawn(command);
    let mut message = [0; 64];
    let n = notify.recv(&mut message).unwrap();
    assert_eq!(message[..n].trim_ascii(), b"READY=1");
    for (pid, _) in server.children() {
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    }
    server.signal(Signal::SIGTERM);
    let n = notify.recv(&mut message).unwrap();
    assert_eq!(message[..n].trim_ascii(), b"STOPPING=1");
    assert_eq!(server.wait_exit().code(), Some(0));
    assert_eq!(server.log, Vec::<String>::new());
    let mut printed = String::new();
    server.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "");
}

/// The service manager's end of notifications.
struct Notified(UnixDatagram);

impl Notified {
    /// The next message within this time.
    fn next(&self, limit: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(limit)).unwrap();
        let mut message = [0; 64];
        let n = self.0.recv(&mut message).ok()?;
        Some(String::from_utf8_lossy(message[..n].trim_ascii()).into_owned())
    }

    fn expect(&self, wanted: &str) {
        assert_eq!(self.next(LIMIT).as_deref(), Some(wanted));
    }

    /// Takes what has come already.
    fn drain(&self) {
        while self.next(Duration::from_millis(1)).is_some() {}
    }
}

#[test]
fn watchdog_is_told_of_life_while_some_slot_answers() {
    let dir = TempDir::new();
    let notified = Notified(UnixDatagram::bind(dir.path("notify")).unwrap());
    let mut command = Command::new("sh");
    // Told at half of it.
    let script = "WATCHDOG_PID=$$ WATCHDOG_USEC=100000 exec \"$0\" \"$@\"";
    command.args(["-c", script, TRELLIS, "-VV", "-l127.0.0.1", "-p0", "--slots=2"]);
    command.env("NOTIFY_SOCKET", dir.path("notify"));
    let mut server = Server::spawn(command);
    server.wait_ready();
    while notified.next(LIMIT).expect("it gets ready") != "READY=1" {}
    for (pid, _) in server.children() {
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains("WATCHDOG"), "{environment}");
    }
    let [first, second] =
        [0, 1].map(|slot| server.child(&format!("trellis owner --slot {slot} --generation 1")));

    kill(first, Signal::SIGSTOP).unwrap();
    server.wait_line("owner 0 (generation 1) is stalled");
    notified.drain();
    (0..3).for_each(|_| notified.expect("WATCHDOG=1"));

    kill(second, Signal::SIGSTOP).unwrap();
    server.wait_line("owner 1 (generation 1) is stalled");
    notified.drain();
    // Ten times as long as between two of them.
    assert_eq!(notified.next(Duration::from_millis(500)), None);

    kill(first, Signal::SIGCONT).unwrap();
    notified.expect("WATCHDOG=1");
    kill(second, Signal::SIGCONT).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn supervisor_killed_takes_its_children_with_it_within_a_second() {
    let mut server = Server::start(&["--slots=3", "--frontends=2"]);
    // One that can't see the end of its channel: the kernel has to end it.
    kill(server.child("trellis owner --slot 1 --generation 1"), Signal::SIGSTOP).unwrap();
    server.signal(Signal::SIGKILL);
    let time = server.wait_gone();
    assert!(time < Duration::from_secs(1), "{time:?}");
}

#[test]
fn child_killed_is_followed_by_its_next_generation() {
    let mut server = Server::start(&["--slots=2", "--frontends=2"]);
    let before = server.children();
    kill(server.child("trellis owner --slot 1 --generation 1"), Signal::SIGKILL).unwrap();
    server.wait_line("owner 1 (generation 2): Ready in Preparing: [Link]");
    server.child("trellis owner --slot 1 --generation 2");
    kill(server.child("trellis frontend --number 0 --generation 1"), Signal::SIGKILL).unwrap();
    server.wait_line("frontend 0 (generation 2): Ready in Preparing");
    server.child("trellis frontend --number 0 --generation 2");
    // The others are the same processes as before.
    for line in ["trellis owner --slot 0 --generation 1", "trellis frontend --number 1 --generation 1"] {
        assert!(before.contains(&(server.child(line), line.to_owned())));
    }
    server.connect();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn child_that_does_not_leave_is_killed_when_the_server_stops() {
    let mut server = Server::start(&["--frontends=2"]);
    let stuck = server.child("trellis frontend --number 1 --generation 1");
    kill(stuck, Signal::SIGSTOP).unwrap();
    server.signal(Signal::SIGTERM);
    server.wait_line("frontend 1 (generation 1) killed by SIGKILL while stopping");
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn children_ignore_the_signals_that_are_for_the_server() {
    let server = Server::start(&[]);
    for (pid, line) in server.children() {
        let ignored = u64::from_str_radix(&status_field(pid, "SigIgn"), 16).unwrap();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGPIPE] {
            assert!(ignored >> (signal as u32 - 1) & 1 == 1, "{line}: {signal} in {ignored:x}");
        }
    }
}

#[test]
fn drain_signal_from_before_the_start_holds_before_the_first_owner_starts() {
    let mut command = Command::new(TRELLIS);
    command.args(["-VV", "-l127.0.0.1", "-p0"]);
    before_exec(&mut command, || raise_blocked(Signal::SIGUSR1));
    let mut server = Server::spawn(command);
    server.wait_line("drain mode");
    assert!(!server.log.iter().any(|line| line.contains("owner 0")), "{}", server.log.join("\n"));
    server.wait_ready();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn stop_signal_from_before_the_start_ends_it_before_it_begins() {
    let mut command = Command::new(TRELLIS);
    command.args(["-VV", "-l127.0.0.1", "-p0"]);
    before_exec(&mut command, || raise_blocked(Signal::SIGTERM));
    let mut server = Server::spawn(command);
    assert_eq!(server.wait_exit().code(), Some(0));
    assert!(!server.log.iter().any(|line| line.contains("process")), "{}", server.log.join("\n"));
}

#[test]
fn second_server_on_the_same_data_refuses_and_disturbs_nothing() {
    let dir = TempDir::new();
    let (data, socket) = (dir.data(), dir.path("socket"));
    let mut server = Server::start(&["-b", &data, "-l", &format!("unix:{socket}")]);
    let (before, inode) = (names(&data), fs::metadata(&socket).unwrap().ino());
    let address = format!("unix:{socket}");
    for flags in [&["-p0"][..], &["-l", &address], &["-p0", "--slots=4"]] {
        let arguments: Vec<&str> = ["-b", &data].iter().chain(flags).copied().collect();
        refused(&arguments, 10, &format!("held by process {}", server.pid()));
    }
    assert_eq!(names(&data), before);
    assert_eq!(fs::metadata(&socket).unwrap().ino(), inode);
    UnixStream::connect(&socket).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn second_server_on_the_same_socket_path_refuses_and_the_first_goes_on() {
    let dir = TempDir::new();
    let address = format!("unix:{}", dir.path("socket"));
    let mut server = Server::start(&["-l", &address]);
    let inode = fs::metadata(dir.path("socket")).unwrap().ino();
    refused(&["-l", &address], 111, &format!("held by process {}", server.pid()));
    assert_eq!(fs::metadata(dir.path("socket")).unwrap().ino(), inode);
    UnixStream::connect(dir.path("socket")).unwrap();
    server.signal(Signal::SIGKILL);
    server.wait_gone();
    // What it left does not stand in the way of the next.
    let server = Server::start(&["-l", &address]);
    UnixStream::connect(dir.path("socket")).unwrap();
    drop(server);
}

#[test]
fn second_server_on_the_same_control_path_refuses() {
    let dir = TempDir::new();
    let control = dir.path("control");
    let server = Server::start(&["--control", &control]);
    refused(&["-p0", "--control", &control], 10, &format!("held by process {}", server.pid()));
    server.connect();
}

/// A stock server locks nothing but the data: its socket is known by its answer.
#[test]
fn socket_of_another_program_that_answers_is_left_to_it() {
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.path("socket")).unwrap();
    refused(&["-l", &format!("unix:{}", dir.path("socket"))], 111, "another server listens there");
    UnixStream::connect(dir.path("socket")).unwrap();
    drop(listener);
}

/// A stock server holds the core's lock, and nothing else of ours.
#[test]
fn data_that_a_stock_server_holds_is_left_to_it() {
    let dir = TempDir::new();
    let (data, socket) = (dir.data(), dir.path("socket"));
    fs::write(dir.path("data/binlog.1"), "").unwrap();
    let file = File::create(dir.path("data/lock")).unwrap();
    let lock = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as _,
        l_whence: nix::libc::SEEK_SET as _,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_SETLK(&lock)).unwrap();
    let held = format!("held by process {}", std::process::id());
    refused(&["-b", &data, "-l", &format!("unix:{socket}")], 10, &held);
    assert!(!Path::new(&socket).exists());
}

#[test]
fn server_killed_can_be_started_again_at_once() {
    let dir = TempDir::new();
    let data = dir.data();
    let mut server = Server::start(&["-b", &data, "--slots=2", "--frontends=2"]);
    let port = server.port().to_string();
    for _ in 0..5 {
        server.signal(Signal::SIGKILL);
        server.child.wait().unwrap();
        server = Server::start(&["-b", &data, "-p", &port]);
        assert_eq!(server.port().to_string(), port);
        assert_eq!(server.children().iter().filter(|(_, line)| line.contains("owner")).count(), 2);
    }
}

#[test]
fn address_in_use_is_refused_with_stocks_code() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["-l127.0.0.1", "-p", &port], 111, &port);
}

#[test]
fn start_that_can_not_be_is_refused_with_stocks_code() {
    let dir = TempDir::new();
    refused(&["-p", "no-such-service"], 111, "no-such-service");
    refused(&["-l", "unix:/"], 111, "unix:/");
    refused(&["-l", "unix:"], 111, "no path");
    refused(&["-l", &format!("unix:{}", dir.path(&"x".repeat(108)))], 111, "path");
    refused(&["-u", "no such user"], 33, "no such user");
    refused(&["-b", &dir.path("nowhere")], 10, "nowhere");
    refused(&["-x"], 5, "unknown flag: -x");
    let data = dir.data();
    fs::write(dir.path("data/binlog.1"), "").unwrap();
    refused(&["-b", &data, "-p0", "--slots=4"], 65, "trellis migrate");
    assert_eq!(names(&data), BTreeSet::from(["binlog.1".into()]));
}

#[test]
fn file_at_the_socket_path_is_left_there() {
    let dir = TempDir::new();
    fs::write(dir.path("file"), "text").unwrap();
    refused(&["-l", &format!("unix:{}", dir.path("file"))], 111, "of another kind");
    assert_eq!(fs::read_to_string(dir.path("file")).unwrap(), "text");
}

#[test]
fn slots_asked_for_once_are_what_the_data_says_afterwards() {
    let dir = TempDir::new();
    let data = dir.data();
    for flags in [&["--slots=3"][..], &[]] {
        let mut server = Server::start(&[&["-b", &data], flags].concat());
        assert_eq!(server.children().iter().filter(|(_, line)| line.contains("owner")).count(), 3);
        server.signal(Signal::SIGTERM);
        assert_eq!(server.wait_exit().code(), Some(0));
    }
    refused(&["-b", &data, "-p0", "--slots=2"], 65, "3 slots");
}

#[test]
fn one_slot_leaves_the_directory_as_stock_has_it() {
    let dir = TempDir::new();
    let data = dir.data();
    drop(Server::start(&["-b", &data]));
    let ours: Vec<String> = names(&data).into_iter().filter(|name| name.contains("toml")).collect();
    assert_eq!(ours, ["ids.toml"], "the ids that were used up; stock passes it over");
}

#[test]
fn privileges_are_dropped_in_every_process() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can become another user");
        return;
    }
    let dir = TempDir::new();
    let data = dir.data();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    nix::unistd::chown(Path::new(&data), Some(nobody.uid), Some(nobody.gid)).unwrap();
    let mut command = Command::new(TRELLIS);
    // Supplementary groups that must not stay.
    before_exec(&mut command, || nix::unistd::setgroups(&[Gid::from_raw(0), Gid::from_raw(4)]));
    command.args(["-VV", "-l127.0.0.1", "-p0", "-unobody", "--slots=2", "-b", &data]);
    let mut server = Server::spawn(command);
    server.wait_ready();
    let processes = server.children().into_iter().map(|(pid, _)| pid).chain([server.pid()]);
    for pid in processes {
        assert_eq!(status_field(pid, "Uid"), format!("{0} {0} {0} {0}", nobody.uid));
        assert_eq!(status_field(pid, "Gid"), format!("{0} {0} {0} {0}", nobody.gid));
        assert_eq!(status_field(pid, "Groups"), nobody.gid.to_string());
    }
    for name in ["data/topology.toml", "data/slot-000", "data/slot-001/slot.toml"] {
        assert_eq!(fs::metadata(dir.path(name)).unwrap().uid(), nobody.uid.as_raw(), "{name}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

/// Runs the program with this descriptor as 3, as a service manager hands over sockets.
fn with_fd_3(fd: OwnedFd, variables: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{variables} exec \"$0\" \"$@\" 3<&0 0</dev/null");
    command.args(["-c", &script, TRELLIS]).args(arguments).stdin(Stdio::from(fd));
    command
}

const ACTIVATED: &str = "LISTEN_PID=$$ LISTEN_FDS=1";

#[test]
fn inherited_socket_is_served_and_stays_a_secret_of_the_supervisor() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let arguments = ["-VV", "-p1", "-l", "198.51.100.1"];
    let mut server = Server::spawn(with_fd_3(listener.into(), ACTIVATED, &arguments));
    server.wait_ready();
    for flag in ["-p 1 is ignored", "-l 198.51.100.1 is ignored"] {
        assert!(server.log.iter().any(|line| line.contains(flag)), "{}", server.log.join("\n"));
    }
    TcpStream::connect(address).unwrap();
    for (pid, line) in server.children() {
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains("LISTEN_"), "{line}: {environment}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn inherited_unix_socket_is_served() {
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.path("socket")).unwrap();
    let mut server = Server::spawn(with_fd_3(listener.into(), ACTIVATED, &["-VV"]));
    server.wait_ready();
    UnixStream::connect(dir.path("socket")).unwrap();
}

#[test]
fn inherited_descriptor_that_is_no_listener_is_refused() {
    let dir = TempDir::new();
    let file = File::create(dir.path("file")).unwrap();
    let datagrams = UnixDatagram::bind(dir.path("datagrams")).unwrap();
    let (connected, _peer) = UnixStream::pair().unwrap();
    for fd in [OwnedFd::from(file), datagrams.into(), connected.into()] {
        let output = with_fd_3(fd, ACTIVATED, &["-p0"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(111), "{text}");
        assert!(text.contains("no TCP or UNIX listening socket"), "{text}");
    }
}

/// A socket meant for another process is none of ours.
#[test]
fn socket_activation_of_another_process_is_ignored() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let variables = "LISTEN_PID=1 LISTEN_FDS=1";
    let mut server = Server::spawn(with_fd_3(listener.into(), variables, &["-VV", "-l127.0.0.1", "-p0"]));
    server.wait_ready();
    server.connect();
}

/// Descriptors that our parent forgot must not keep anything open in children.
#[test]
fn children_inherit_nothing_but_their_channel() {
    let dir = TempDir::new();
    let stray = OpenOptions::new().create(true).append(true).open(dir.path("stray")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 3<&0 7<&0 0</dev/null", TRELLIS]).stdin(Stdio::from(stray));
    command.args(["-VV", "-l127.0.0.1", "-p0"]);
    let mut server = Server::spawn(command);
    server.wait_ready();
    for (pid, line) in server.children() {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let path = entry.unwrap().path();
            let target = fs::read_link(&path).unwrap_or_default();
            assert!(!target.ends_with("stray"), "{line}: {path:?} is {target:?}");
        }
    }
}

/// A child and the test in the supervisor's place.
struct Lone {
    child: Child,
    channel: Channel,
}

fn lone_owner(slot: u16, generation: u32) -> Lone {
    let (near, far) = pair().unwrap();
    let (slot, number) = (slot.to_string(), generation.to_string());
    let mut command = with_fd_3(far, "", &["owner", "--slot", &slot, "--generation", &number]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    Lone { child, channel: Channel::new(near, generation).unwrap() }
}

impl Lone {
    fn start(&mut self, start: &Start) {
        let (_, board) = Scoreboard::create(1, 1, 0).unwrap();
        self.channel.queue(Kind::Start, &encode(start), vec![board]);
        assert_eq!(self.channel.flush(), Progress::Done);
    }

    fn hello(&mut self) -> Hello {
        decode(Kind::Hello, &self.next(Kind::Hello)).unwrap()
    }

    /// Why it can't go on.
    fn farewell(&mut self) -> String {
        String::from_utf8(self.next(Kind::Farewell)).unwrap()
    }

    /// What it says next, which must be of this kind.
    fn next(&mut self, kind: Kind) -> Vec<u8> {
        let mut gone = false;
        loop {
            if let Some(frame) = self.channel.next().unwrap() {
                assert_eq!(frame.header.kind, kind);
                return frame.payload.to_vec();
            }
            assert!(!gone, "it said no {kind:?}");
            self.channel.wait_readable().unwrap();
            gone = self.channel.receive() == Progress::Gone;
        }
    }

    fn end(self) -> (Option<i32>, String) {
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn orders(slot: u16, generation: u32) -> Start {
    let topology = Topology::new(1, 8, Layout::Flat, "0123456789abcdef").unwrap();
    Start {
        role: Role::Owner,
        index: slot,
        generation,
        listeners: 0,
        fingerprint: topology.fingerprint().to_string(),
        server: ServerFacts {
            instance: "0123456789abcdef".into(),
            pid: std::process::id(),
            clock_offset: 0,
            started_at: 0,
            job_bytes: 65535,
            wal_file_bytes: 10 << 20,
            frontends: 1,
            owner_wait_ms: 5000,
            metrics_tubes: 0,
            clients: ClientLimits {
                connections: 10,
                unfinished_bytes: 65535,
                idle_s: None,
                body_s: None,
                per_address: None,
                refused: Words::default(),
            },
        },
        wal: None,
        id_floor: 1,
        drain: false,
        falloc_pattern: None,
        topology,
    }
}

#[test]
fn child_says_which_topology_it_computed() {
    let mut lone = lone_owner(0, 3);
    lone.start(&orders(0, 3));
    let hello = lone.hello();
    assert_eq!((hello.role, hello.index, hello.generation), (Role::Owner, 0, 3));
    assert_eq!(hello.fingerprint, orders(0, 3).topology.fingerprint().to_string());
    drop(lone.channel);
    let output = lone.child.wait_with_output().unwrap();
    assert!(output.status.code().is_some(), "it left by itself: {:?}", output.status);
}

#[test]
fn child_with_another_fingerprint_ends_for_good_naming_both() {
    let mut lone = lone_owner(0, 1);
    let told = "f".repeat(64);
    lone.start(&Start { fingerprint: told.clone(), ..orders(0, 1) });
    let computed = lone.hello().fingerprint;
    let farewell = lone.farewell();
    let (code, text) = lone.end();
    assert_eq!(code, Some(66), "{text}");
    assert!(text.contains(&told) && text.contains(&computed), "{text}");
    assert!(farewell.contains(&told) && text.contains(&farewell), "{farewell}");
}

#[test]
fn child_with_the_orders_of_another_ends() {
    let mut lone = lone_owner(0, 1);
    lone.start(&orders(0, 2));
    let (code, text) = lone.end();
    assert_eq!(code, Some(76), "{text}");
    assert!(text.contains("generation 2"), "{text}");
}

#[test]
fn child_whose_supervisor_is_gone_before_it_starts_ends() {
    let Lone { child, channel } = lone_owner(0, 1);
    drop(channel);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn role_started_by_hand_is_refused() {
    refused(&["owner", "--slot", "0", "--generation", "1"], 5, "by hand");
    refused(&["frontend", "--number", "0", "--generation", "1"], 5, "by hand");
    refused(&["owner"], 5, "--slot");
}

//! Starts a server, and makes sure that it ends.
//!
//! The original can't report a port that the kernel chose. So a free port is looked up first, and the server is
//! taken for started when one of its own processes listens there; if another program took the port in between, the
//! start is tried again with another one. Each server leads a process group of its own; whatever is left of the
//! group when the `Server` is dropped is killed.

use super::process::{self, group_listens, group_members, kill_group, wait_for};
use super::{Binary, Client, DEADLINE, TempDir, Variant};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What the original exits with when it can't listen.
const EXIT_PORT_TAKEN: i32 = 111;

/// A taken port is bad luck; so many in a row are something else.
const START_ATTEMPTS: u32 = 20;

/// How a server is to be started.
#[derive(Clone, Debug)]
pub struct Setup {
    binary: Binary,
    listen: Listen,
    slots: Option<u32>,
    frontends: Option<u32>,
    flags: Vec<String>,
    wal: Option<PathBuf>,
    env: Vec<(String, String)>,
    open_files: Option<u32>,
}

impl Setup {
    pub fn new(binary: Binary) -> Setup {
        let listen = Listen::port(&["-l", "127.0.0.1", "-p", "{port}"]);
        let (flags, env) = (Vec::new(), Vec::new());
        Setup { binary, listen, slots: None, frontends: None, flags, wal: None, env, open_files: None }
    }

    pub fn of(variant: Variant) -> Setup {
        match variant {
            Variant::Legacy => Setup::new(Binary::Legacy),
            Variant::TrellisOneSlot => Setup::new(Binary::Trellis),
            Variant::TrellisFourSlots => Setup::new(Binary::Trellis).slots(4),
        }
    }

    /// Listens by these flags, with `{port}` for the free port, in place of `-l 127.0.0.1 -p {port}`.
    pub fn listen(mut self, flags: &[&str]) -> Setup {
        self.listen = Listen::port(flags);
        self
    }

    /// Listens on a Unix socket (`-l unix:PATH`).
    pub fn listen_unix(mut self, path: &Path) -> Setup {
        self.listen = Listen::Unix(path.to_owned());
        self
    }

    /// Means nothing to the original, which has one of everything.
    pub fn slots(mut self, slots: u32) -> Setup {
        self.slots = Some(slots);
        self
    }

    /// As `slots`.
    pub fn frontends(mut self, frontends: u32) -> Setup {
        self.frontends = Some(frontends);
        self
    }

    pub fn flags(mut self, flags: &[&str]) -> Setup {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Keeps a log in this directory (`-b`).
    pub fn wal(mut self, directory: &Path) -> Setup {
        self.wal = Some(directory.to_owned());
        self
    }

    /// With this variable in its environment.
    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits the descriptors of each of its processes.
    pub fn open_files(mut self, limit: u32) -> Setup {
        self.open_files = Some(limit);
        self
    }

    /// Starts two servers at the same moment that can't both be. Returns the one that serves, and how the other
    /// ended. Panics if both go on.
    pub fn race(&self) -> (Server, Exit) {
        let mut racers = [(); 2].map(|()| {
            let directory = TempDir::new("server");
            Server { setup: self.clone(), directory, process: None, port: free_port() }
        });
        for racer in &mut racers {
            racer.process = Some(self.spawn(racer.port, &racer.log_path()));
        }
        let (loser, status) = wait_for("one of two servers to leave", DEADLINE, || {
            let status = |racer: &mut Server| racer.process.as_mut()?.try_wait().expect("wait");
            racers.iter_mut().enumerate().find_map(|(at, racer)| Some((at, status(racer)?)))
        });
        let [mut winner, mut left] = racers;
        if loser == 0 {
            std::mem::swap(&mut winner, &mut left);
        }
        left.process = None;
        let exit = Exit { code: status.code(), log: left.log() };
        let (group, port) = (winner.pid(), winner.port);
        wait_for("the other server to listen", DEADLINE, || group_listens(group, port).then_some(()));
        (winner, exit)
    }

    /// Starts, if nothing else was said on a free port of 127.0.0.1. Panics with the server's own words if it does
    /// not come up.
    pub fn start(&self) -> Server {
        let directory = TempDir::new("server");
        let mut server = Server { setup: self.clone(), directory, process: None, port: 0 };
        server.start();
        server
    }

    /// Starts, on a port, and returns when it answers. An error says how it ended if it never did.
    pub fn try_start(&self) -> Result<Server, Exit> {
        let directory = TempDir::new("server");
        let mut server = Server { setup: self.clone(), directory, process: None, port: 0 };
        let status = server.come_up().or_else(|| {
            // It may listen before it has read its data.
            let link = TcpStream::connect(("127.0.0.1", server.port)).ok();
            if link.and_then(|link| Client::tcp("answers?", link).try_call("list-tube-used\r\n")).is_some() {
                return None;
            }
            let child = server.process.as_mut().expect("it was started");
            let status = wait_for_exit(child, DEADLINE).expect("it leaves if it does not answer");
            kill_group(child.id() as i32);
            server.process = None;
            Some(status)
        });
        match status {
            None => Ok(server),
            Some(status) => Err(Exit { code: status.code(), log: server.log() }),
        }
    }

    /// For a server that must refuse to start: waits until it has exited by itself.
    pub fn refusal(&self) -> Exit {
        let directory = TempDir::new("server");
        let mut child = self.spawn(free_port(), &directory.join("log"));
        let status = wait_for_exit(&mut child, DEADLINE);
        let left_behind = group_members(child.id() as i32);
        kill_group(child.id() as i32);
        let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        let Some(status) = status else { panic!("{self:?} should have refused to start; it says:\n{log}") };
        assert!(left_behind.is_empty(), "{self:?} left processes behind: {left_behind:?}\n{log}");
        Exit { code: status.code(), log }
    }

    fn spawn(&self, port: u16, log: &Path) -> Child {
        let mut command = match self.open_files {
            None => Command::new(self.binary.path()),
            Some(limit) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(script).arg(self.binary.path());
                shell
            }
        };
        match &self.listen {
            Listen::Port(flags) => {
                command.args(flags.iter().map(|flag| flag.replace("{port}", &port.to_string())));
            }
            Listen::Unix(path) => {
                command.arg("-l").arg(format!("unix:{}", path.display()));
            }
        }
        if let Some(directory) = &self.wal {
            command.arg("-b").arg(directory);
        }
        command.args(&self.flags).envs(self.env.iter().map(|(name, value)| (name, value)));
        if self.binary == Binary::Trellis {
            let of_ours = [("--slots", self.slots), ("--frontends", self.frontends)];
            for (flag, count) in of_ours.iter().filter_map(|(flag, count)| Some((flag, (*count)?))) {
                command.arg(flag).arg(count.to_string());
            }
        }
        let log = File::options().create(true).append(true).open(log).expect("log file of a server");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("log file")).stderr(log);
        // A group of its own, so that all processes of a server can be found and ended together.
        command.process_group(0);
        command.spawn().unwrap_or_else(|error| panic!("start {:?}: {error}", self.binary.path()))
    }
}

#[derive(Clone, Debug)]
enum Listen {
    /// The flags that say where, with `{port}` in them.
    Port(Vec<String>),
    Unix(PathBuf),
}

impl Listen {
    fn port(flags: &[&str]) -> Listen {
        Listen::Port(flags.iter().map(|flag| (*flag).to_owned()).collect())
    }

    /// Whether the process group listens there. On a Unix socket: whether anybody does.
    fn is_ready(&self, group: i32, port: u16) -> bool {
        match self {
            Listen::Port(_) => group_listens(group, port),
            Listen::Unix(path) => UnixStream::connect(path).is_ok(),
        }
    }
}

/// How a program ended that was not to go on: its exit code (None: killed by a signal) and what it printed.
#[derive(Debug)]
pub struct Exit {
    pub code: Option<i32>,
    pub log: String,
}

pub struct Server {
    setup: Setup,
    directory: TempDir,
    process: Option<Child>,
    port: u16,
}

impl Server {
    /// A new connection. `name` appears in transcripts.
    pub fn connect(&self, name: &str) -> Client {
        let client = match &self.setup.listen {
            Listen::Port(_) => {
                TcpStream::connect(("127.0.0.1", self.port)).map(|link| Client::tcp(name, link))
            }
            Listen::Unix(path) => Client::unix(name, path),
        };
        client.unwrap_or_else(|error| panic!("{name}: can't connect: {error}"))
    }

    /// A connection whose kernel takes only a few KB before the client reads, and not much more before the server
    /// reads.
    pub fn connect_narrow(&self, name: &str) -> Client {
        /// The kernel doubles it, and takes no less than about this.
        const RECEIVE_BYTES: usize = 4096;
        /// Said by name, it does not grow with the connection.
        const SEND_BYTES: usize = 64 << 10;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a TCP socket");
        // Has to be set before the connect, which announces the window.
        socket.set_recv_buffer_size(RECEIVE_BYTES).expect("SO_RCVBUF");
        socket.set_send_buffer_size(SEND_BYTES).expect("SO_SNDBUF");
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        socket.connect(&address.into()).unwrap_or_else(|error| panic!("{name}: can't connect: {error}"));
        Client::tcp(name, socket.into())
    }

    /// How many frontends it was told to have.
    pub fn frontends(&self) -> u32 {
        self.setup.frontends.expect("the number of frontends is set")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process that was started: of Trellis, the supervisor. It leads the process group.
    pub fn pid(&self) -> i32 {
        self.process.as_ref().expect("the server runs").id() as i32
    }

    /// All its living processes.
    pub fn pids(&self) -> Vec<i32> {
        group_members(self.pid())
    }

    /// The sum of the peaks of resident memory of all its living processes, in bytes.
    pub fn peak_memory(&self) -> u64 {
        process::group_peak_memory(self.pid())
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("signal the server");
    }

    /// All that it printed since it was started first.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Ends all its processes without a chance to do anything more. Returns when they are gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.process.take() {
            // All at once: an owner that sees its supervisor go ends in an orderly way.
            kill_group(child.id() as i32);
            child.wait().expect("wait for the killed server");
        }
    }

    /// Kills only the process that was started, and returns when it is gone: of Trellis, the supervisor. The process
    /// group is returned, for a look at what is left of it.
    pub fn kill_leader(&mut self) -> i32 {
        let mut child = self.process.take().expect("the server runs");
        child.kill().expect("kill the server");
        child.wait().expect("wait for the killed server");
        child.id() as i32
    }

    /// Starts it again, after its end, with the same flags on the same directory.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs");
        self.start();
    }

    /// Asks it to leave and waits until all its processes have. Panics if that takes longer than `DEADLINE`.
    pub fn stop(&mut self) -> ExitStatus {
        self.stop_with(Signal::SIGTERM)
    }

    pub fn stop_with(&mut self, signal: Signal) -> ExitStatus {
        let group = self.pid();
        self.signal(signal);
        let child = self.process.as_mut().expect("the server runs");
        let status = wait_for_exit(child, DEADLINE).expect("the server leaves after the signal");
        wait_for("the server's other processes to leave", DEADLINE, || {
            group_members(group).is_empty().then_some(())
        });
        self.process = None;
        status
    }

    /// Kills it and starts it anew with the same flags on the same directory.
    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    fn start(&mut self) {
        if let Some(status) = self.come_up() {
            panic!("{:?} ended at start with {status}", self.setup);
        }
    }

    /// Returns when it listens, or with what it ended.
    fn come_up(&mut self) -> Option<ExitStatus> {
        for _ in 0..START_ATTEMPTS {
            self.port = free_port();
            let child = self.process.insert(self.setup.spawn(self.port, &self.directory.join("log")));
            let (group, port) = (child.id() as i32, self.port);
            let listen = &self.setup.listen;
            let exited =
                wait_for("the server to listen", DEADLINE, || match child.try_wait().expect("wait") {
                    Some(status) => Some(Some(status)),
                    None => listen.is_ready(group, port).then_some(None),
                });
            let status = exited?;
            kill_group(group);
            self.process = None;
            if status.code() != Some(EXIT_PORT_TAKEN) || matches!(self.setup.listen, Listen::Unix(_)) {
                return Some(status);
            }
        }
        panic!("{:?} found no free port in {START_ATTEMPTS} attempts", self.setup);
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if let Some(child) = &mut self.process {
            let group = child.id() as i32;
            // The original keeps nothing that SIGKILL could harm. Ours is asked first, since an orderly end of
            // all its processes is part of what it promises.
            let mut left_behind = Vec::new();
            if self.setup.binary == Binary::Trellis {
                let _ = kill(Pid::from_raw(group), Signal::SIGTERM);
                wait_for_exit(child, DEADLINE);
                left_behind = group_members(group);
            }
            let _ = child.kill();
            let _ = child.wait();
            kill_group(group);
            if !failed {
                assert!(left_behind.is_empty(), "left behind after SIGTERM: {left_behind:?}\n{}", self.log());
            }
        }
        if failed {
            eprintln!("--- {:?} said:\n{}---", self.setup, self.log());
        }
    }
}

/// Runs a program that is to end by itself with just these arguments. Panics if it goes on.
pub fn run(binary: Binary, arguments: &[&str]) -> Exit {
    Setup::new(binary).listen(&[]).flags(arguments).refusal()
}

/// None if it has not exited by itself within `limit`.
pub fn wait_for_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("wait for a program") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        // The pause of a poll: std can't wait for a child with a deadline.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a free port");
    listener.local_addr().expect("own address").port()
}

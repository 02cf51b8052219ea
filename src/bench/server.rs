//! A server under measurement or comparison: started, found in `/proc`, weighed, ended.
//!
//! It listens on a free port of 127.0.0.1, leads a process group of its own and is taken for started when it
//! has answered a command. Nothing of it is left when its `Server` is dropped, nor when we are interrupted:
//! then `interrupt` ends every group that is registered, and whoever waits for a server sees it gone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::interrupt;
use crate::error::{Exit, Fatal};
use crate::limits;

/// Which server, in which shape.
#[derive(Clone, PartialEq, Debug)]
pub enum Program {
    /// The original, as it was built beside us.
    Legacy,
    Trellis {
        slots: u32,
        frontends: Option<u16>,
    },
    /// Only reads and writes.
    Floor,
}

impl Program {
    pub fn name(&self) -> &'static str {
        match self {
            Program::Legacy => "legacy",
            Program::Trellis { .. } => "trellis",
            Program::Floor => "floor",
        }
    }

    fn command(&self) -> Result<Command, Fatal> {
        let own = std::env::current_exe().map_err(|e| Fatal::temporary("our own program's path", e))?;
        match self {
            Program::Legacy => {
                let path = own.with_file_name("beanstalkd-legacy");
                if !path.exists() {
                    let reason = format!("{} is needed beside this program", path.display());
                    return Err(Fatal::new(Exit::Usage, reason));
                }
                Ok(Command::new(path))
            }
            Program::Trellis { slots, frontends } => {
                let mut command = Command::new(own);
                command.arg("serve").arg("--slots").arg(slots.to_string());
                if let Some(frontends) = frontends {
                    command.arg("--frontends").arg(frontends.to_string());
                }
                Ok(command)
            }
            Program::Floor => {
                let mut command = Command::new(own);
                command.arg("bench-floor");
                Ok(command)
            }
        }
    }
}

/// A program with its flags; starts as often as it is asked to.
#[derive(Clone, Debug)]
pub struct Setup {
    pub program: Program,
    pub flags: Vec<String>,
    /// `-b`
    pub dir: Option<PathBuf>,
    /// Where its stderr goes.
    pub log: PathBuf,
}

/// A process of a server by what it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// The whole of a server that is one process.
    Server,
    Supervisor,
    Frontend,
    /// With its slot.
    Owner(u16),
}

impl Role {
    /// The name under which it is reported: owners together.
    pub fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Supervisor => "supervisor",
            Role::Frontend => "frontend",
            Role::Owner(_) => "owner",
        }
    }

    fn of(program: &Program, pid: i32) -> Role {
        if !matches!(program, Program::Trellis { .. }) {
            return Role::Server;
        }
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        match words.next() {
            Some(b"frontend") => Role::Frontend,
            Some(b"owner") => {
                let slot = words.nth(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
                Role::Owner(slot.unwrap_or_default())
            }
            _ => Role::Supervisor,
        }
    }
}

/// By the name of a role.
pub type ByRole<T> = BTreeMap<&'static str, T>;

pub struct Server {
    child: Child,
    pub setup: Setup,
    pub address: SocketAddr,
    processes: Vec<(Role, i32)>,
}

impl Server {
    /// Starts it and waits until it has answered, for `patience` at most.
    pub fn start(setup: &Setup, patience: Duration) -> Result<Server, Fatal> {
        // The original can't report a port that the kernel chose, so one is looked up that is free a moment
        // before. That another program takes it in between is bad luck, which isn't had so often in a row.
        for _ in 0..limits::BENCH_START_ATTEMPTS {
            let port = free_port()?;
            let mut server = Server::spawn(setup, port)?;
            if server.wait_until_it_answers(patience)? {
                server.processes = server.find_processes();
                return Ok(server);
            }
        }
        Err(Fatal::new(Exit::Listen, "no free port on 127.0.0.1"))
    }

    fn spawn(setup: &Setup, port: u16) -> Result<Server, Fatal> {
        let failed = |e: io::Error| Fatal::temporary(&format!("start of {}", setup.program.name()), e);
        let log = File::options().create(true).append(true).open(&setup.log).map_err(failed)?;
        let mut command = setup.program.command()?;
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]).args(&setup.flags);
        if let Some(dir) = &setup.dir {
            command.arg("-b").arg(dir);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        let child = command.process_group(0).spawn().map_err(failed)?;
        interrupt::register(child.id() as i32);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Server { child, setup: setup.clone(), address, processes: Vec::new() })
    }

    /// False if the port was taken.
    fn wait_until_it_answers(&mut self, patience: Duration) -> Result<bool, Fatal> {
        let end = Instant::now() + patience;
        let name = self.setup.program.name();
        loop {
            interrupt::check()?;
            if let Some(status) =
                self.child.try_wait().map_err(|e| Fatal::temporary("wait for a server", e))?
            {
                if status.code() == Some(Exit::Listen.code().into()) {
                    return Ok(false);
                }
                let log = fs::read_to_string(&self.setup.log).unwrap_or_default();
                let last = log.lines().next_back().unwrap_or_default();
                let reason = format!("{name} ended at its start with {status}: {last}");
                return Err(Fatal::new(Exit::Temporary, reason));
            }
            if self.answers(end) {
                return Ok(true);
            }
            if Instant::now() >= end {
                let reason = format!("{name} did not answer within {patience:?} of its start");
                return Err(Fatal::new(Exit::Temporary, reason));
            }
            // Between two looks: short against a start, long against a look.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn answers(&self, end: Instant) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let expected = b"USING default\r\n";
        let mut reply = [0; 15];
        stream.set_read_timeout(Some(left)).is_ok()
            && stream.write_all(b"list-tube-used\r\n").is_ok()
            && stream.read_exact(&mut reply).is_ok()
            && reply == *expected
    }

    /// The leader of the process group.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn find_processes(&self) -> Vec<(Role, i32)> {
        let members = group_members(self.pid());
        members.into_iter().map(|pid| (Role::of(&self.setup.program, pid), pid)).collect()
    }

    /// Processor time that each role has used since it was started.
    pub fn cpu(&self) -> ByRole<Duration> {
        let mut sums = ByRole::new();
        for (role, pid) in &self.processes {
            *sums.entry(role.name()).or_default() += cpu_of(*pid);
        }
        sums
    }

    /// Memory of each role in bytes: its share of what is shared, where the kernel tells it.
    pub fn memory(&self) -> ByRole<u64> {
        let mut sums = ByRole::new();
        for (role, pid) in &self.processes {
            *sums.entry(role.name()).or_default() += memory_of(*pid);
        }
        sums
    }

    /// The process that works for this slot; of the original, the one there is.
    pub fn process_of_slot(&self, slot: u16) -> Option<i32> {
        let of_slot = |role| role == Role::Server || role == Role::Owner(slot);
        self.processes.iter().find(|(role, _)| of_slot(*role)).map(|(_, pid)| *pid)
    }

    /// Of Trellis to the supervisor.
    pub fn signal(&self, signal: Signal) -> Result<(), Fatal> {
        kill(Pid::from_raw(self.pid()), signal).map_err(|e| Fatal::temporary("signal to a server", e))
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has written to stderr so far, and the servers before it with the same log.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.setup.log).unwrap_or_default()
    }

    /// Ends it without a chance to do anything more.
    pub fn kill(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.pid());
        let end = Instant::now() + limits::BENCH_STOP;
        loop {
            // While members are there nobody else can have the number; the leader is not waited for before.
            let _ = killpg(group, Signal::SIGKILL);
            if group_members(group.as_raw()).is_empty() || Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        interrupt::unregister(group.as_raw());
        let _ = self.child.wait();
    }
}

/// A port of 127.0.0.1 that was free a moment ago.
pub fn free_port() -> Result<u16, Fatal> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(|e| Fatal::temporary("a free port", e))?.port())
}

/// The living processes of a process group.
fn group_members(group: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| group_of_living(pid) == Some(group)).collect()
}

/// None for a process that is gone, or that waits to be reaped and whose threads have all ended: before, it still
/// holds its locks.
fn group_of_living(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything: state, parent, group.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count());
    let gone = state == "X" || (state == "Z" && threads() <= 1);
    (!gone).then_some(group)
}

/// To the nanosecond where the scheduler tells it, else to the clock tick.
pub fn cpu_of(pid: i32) -> Duration {
    of_the_threads(pid).unwrap_or_else(|| of_the_process(pid).unwrap_or_default())
}

fn of_the_threads(pid: i32) -> Option<Duration> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(sum))
}

fn of_the_process(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // utime and stime are fields 14 and 15; the first behind the name is 3.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

fn memory_of(pid: i32) -> u64 {
    let field = |file: &str, name: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    field("smaps_rollup", "Pss:").or_else(|| field("status", "VmRSS:")).unwrap_or(0) * 1024
}

/// A directory of our own under `parent`, removed with all that is in it.
pub struct WorkDir(PathBuf);

impl WorkDir {
    pub fn new(parent: &Path) -> Result<WorkDir, Fatal> {
        let path = parent.join(format!("trellis-beside-{}", std::process::id()));
        // Of that name there can only be one that a dead process with our number left.
        let _ = fs::remove_dir_all(&path);
        let made = fs::create_dir_all(&path);
        made.map_err(|e| Fatal::temporary(&format!("directory {}", path.display()), e))?;
        Ok(WorkDir(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A subdirectory that was not there before.
    pub fn fresh(&self, name: &str) -> Result<PathBuf, Fatal> {
        let path = self.0.join(name);
        let _ = fs::remove_dir_all(&path);
        let made = fs::create_dir(&path);
        made.map_err(|e| Fatal::temporary(&format!("directory {}", path.display()), e))?;
        Ok(path)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

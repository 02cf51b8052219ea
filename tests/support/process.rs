//! What the kernel knows about a server's processes: `/proc` and signals. Reads only, but for `kill_group`.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

/// Asks until there is an answer. Panics with `what` when `limit` is over.
pub fn wait_for<T>(what: &str, limit: Duration, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = answer() {
            return value;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        // The pause of a poll, not a guess at how long anything takes.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The living processes of a process group.
pub fn group_members(group: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| group_of_living(pid) == Some(group)).collect()
}

/// None for a process that is gone, or a zombie all of whose threads have ended: before, it still holds its locks.
fn group_of_living(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may hold blanks and parentheses; what follows its last one is: state, parent, group.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count());
    let gone = state == "X" || (state == "Z" && threads() <= 1);
    (!gone).then_some(group)
}

/// The processes that this one has started and not waited for.
pub fn children(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parent = parent.to_string();
    pids.filter(|&pid| status_field(pid, "PPid").as_deref() == Some(&parent)).collect()
}

/// One letter: `R` runs, `S` sleeps, `T` is stopped, `Z` waits to be reaped. None for a process that is gone.
pub fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Processor time that a process has used so far, in user and system mode together, of all its threads.
pub fn cpu_time(pid: i32) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    // Nanoseconds on a processor, nanoseconds in a queue, turns. (The ticks of `stat` are too coarse for a rest.)
    let times = threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(times.sum()))
}

/// Ends every process of the group and returns when none is left.
pub fn kill_group(group: i32) {
    wait_for("the killed processes to be gone", super::DEADLINE, || {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        group_members(group).is_empty().then_some(())
    });
}

/// A `name: value` line of `/proc/PID/status`, such as `VmHWM` or `Uid`.
pub fn status_field(pid: i32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))?;
    Some(line.to_owned())
}

/// Resident memory of a process now, in bytes.
pub fn memory(pid: i32) -> u64 {
    let kib = status_field(pid, "VmRSS").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The sum of the group's peaks of resident memory, in bytes.
pub fn group_peak_memory(group: i32) -> u64 {
    let peak = |pid| -> Option<u64> { status_field(pid, "VmHWM")?.split(' ').next()?.parse().ok() };
    group_members(group).into_iter().filter_map(peak).map(|kib| kib * 1024).sum()
}

/// Whether a process of the group holds the socket that listens on this TCP port. (That some socket listens there
/// is not enough: another test's server may have been given the port in between.)
pub fn group_listens(group: i32, port: u16) -> bool {
    let socket = find_tcp_socket(|socket| socket.listening && socket.local_port == port);
    let Some(TcpSocket { inode, .. }) = socket else { return false };
    let name = format!("socket:[{inode}]");
    group_members(group).into_iter().any(|pid| holds(pid, &name))
}

/// Whether the process holds the server's end of a client's connection.
pub fn holds_peer_of(pid: i32, client: &super::Client) -> bool {
    let (local, peer) = client.ports();
    let socket = find_tcp_socket(|socket| socket.local_port == peer && socket.remote_port == local);
    socket.is_some_and(|socket| holds(pid, &format!("socket:[{}]", socket.inode)))
}

fn holds(pid: i32, name: &str) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut targets = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.any(|target| target == Path::new(name))
}

/// Bytes that have arrived at the server's end of a TCP connection and were not read yet. None if there is no such
/// connection (any more).
pub fn unread_by_peer(local_port: u16, peer_port: u16) -> Option<u64> {
    let socket = find_tcp_socket(|socket| socket.local_port == peer_port && socket.remote_port == local_port);
    socket.map(|socket| socket.unread)
}

struct TcpSocket {
    local_port: u16,
    remote_port: u16,
    listening: bool,
    unread: u64,
    inode: String,
}

/// Reads no further than needed: for the whole table the kernel has to walk through a large hash.
fn find_tcp_socket(wanted: impl Fn(&TcpSocket) -> bool) -> Option<TcpSocket> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|path| File::open(path).ok());
    let lines = tables.flat_map(|table| BufReader::new(table).lines().skip(1).map_while(Result::ok));
    lines.filter_map(|line| tcp_socket(&line)).find(wanted)
}

/// `slot: local:port remote:port state tx_queue:rx_queue timer:when retransmits uid timeout inode …`, in hex.
fn tcp_socket(line: &str) -> Option<TcpSocket> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    Some(TcpSocket {
        local_port: port(fields.get(1)?)?,
        remote_port: port(fields.get(2)?)?,
        listening: *fields.get(3)? == LISTEN,
        unread: u64::from_str_radix(fields.get(4)?.rsplit_once(':')?.1, 16).ok()?,
        inode: (*fields.get(9)?).to_owned(),
    })
}

//! Making a child's process: this very program again, with its role on the command line and its control
//! channel on descriptor 3, and nothing else of ours.
//!
//! Knows nothing of what is said over the channel.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::unistd::Pid;

use crate::child::CONTROL_FD;
use crate::cli::role;
use crate::ipc::control::Role;
use crate::ipc::socket::pair;
use crate::log;

/// Of socket activation, readiness and the watchdog: the supervisor's business only.
const OWN_VARIABLES: [&str; 7] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
];

/// Signals that are for the server. They reach each process of a terminal or of a service; what they mean for
/// a child the supervisor tells it.
const IGNORED: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGPIPE];

pub struct Spawner {
    /// `-V`, as children get it.
    level: &'static str,
    format: log::Format,
    /// Keeps descriptor 3 taken, if nothing else had it.
    _reserved: Option<File>,
}

impl Spawner {
    /// Once, when inherited listening sockets are in safe hands and before the first `spawn`.
    pub fn new(verbose: u8, format: log::Format) -> io::Result<Spawner> {
        let null = File::open("/dev/null")?;
        Ok(Spawner {
            level: log::level(verbose),
            format,
            _reserved: (null.as_raw_fd() == CONTROL_FD).then_some(null),
        })
    }

    /// Starts a process. Returns its pid and our end of its control channel.
    pub fn spawn(&self, role: Role, index: u16, generation: u32) -> io::Result<(Pid, OwnedFd)> {
        let (near, far) = pair()?;
        // Not a path: it still works after the program's file was replaced, and starts the same version.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("trellis").args(role::arguments(role, index, generation)).stdin(Stdio::null());
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        if std::env::var_os(log::VARIABLE).is_none_or(|text| text.is_empty()) {
            command.env(log::VARIABLE, self.level);
        }
        command.env(log::FORMAT_VARIABLE, self.format.name());
        let control = far.as_raw_fd();
        let prepare = move || {
            // SAFETY: between fork and exec only async-signal-safe calls are allowed: these are. Descriptor 3
            // is taken in the parent for life, so this replaces neither `control` nor one that `Command`
            // uses.
            unsafe {
                if libc::dup2(control, CONTROL_FD) == -1 {
                    return Err(io::Error::last_os_error());
                }
                for signal in IGNORED {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
            Ok(())
        };
        // SAFETY: see inside; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        Ok((Pid::from_raw(child.id() as i32), near))
    }
}

/// Undoes what our own parent may have left: descriptors that children must not inherit, and a SIGCHLD that is
/// ignored, with which no child could be waited for.
pub fn clean_inheritance() -> io::Result<()> {
    // SAFETY: the default action is no handler of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        if let Some(fd) = name.to_str().and_then(|name| name.parse::<i32>().ok()).filter(|&fd| fd > 2) {
            // SAFETY: changes a flag of a descriptor; it closes nothing, and on one that is gone it fails.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

const _: () = assert!(CONTROL_FD == 3, "the lowest descriptor that the standard streams leave");

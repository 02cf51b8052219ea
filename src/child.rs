//! What every child does first, whatever its role: fences, `Start`, fingerprint, `Hello`.
//!
//! Called by `main` with what the command line says; calls the role and hands back its end. Two fences make a
//! child leave when its supervisor is gone: the end of the control channel, which the role watches, and
//! SIGKILL from the kernel. Signals for the server are the supervisor's: `spawn` has made this process ignore
//! them, since ^C and service managers reach every process of the group.

use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::error::{Exit, Fatal};
use crate::ipc::control::{Hello, Role, Start, decode, encode};
use crate::ipc::socket::{Channel, Progress};
use crate::ipc::{Header, Kind, Outbox, SessionId};
use crate::limits::FAREWELL_BYTES;
use crate::{frontend, log, owner};

/// Where a child finds its control channel.
pub const CONTROL_FD: i32 = 3;

/// The control channel, kept for what is said when everything else has ended; never closed.
static LAST_WORD: OnceLock<OwnedFd> = OnceLock::new();

/// A child's whole life.
pub fn run(role: Role, index: u16, generation: u32) -> Result<(), Fatal> {
    log::init(0, None);
    // An error-level span is shown before messages of every level.
    let span = match role {
        Role::Owner => tracing::error_span!("owner", slot = index, generation),
        Role::Frontend => tracing::error_span!("frontend", number = index, generation),
    };
    let _span = span.entered();
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say_farewell(generation, &panic.to_string());
        told(panic);
    }));
    let end = serve(role, index, generation);
    if let Err(fatal) = &end {
        tracing::error!("{fatal}");
        say_farewell(generation, &fatal.to_string());
    }
    log::finish();
    end
}

fn serve(role: Role, index: u16, generation: u32) -> Result<(), Fatal> {
    let fd = control_fd()?;
    fence(role, index)?;
    // The supervisor takes the end of the channel for the end of the process: a second descriptor keeps it open
    // until the exit code is out, also when the role has dropped its own.
    let _ = LAST_WORD.set(fd.try_clone().map_err(|e| Fatal::temporary("control channel", e))?);
    let mut channel = Channel::new(fd, generation).map_err(|e| Fatal::temporary("control channel", e))?;
    let start = receive_start(&mut channel)?;
    if (start.role, start.index, start.generation) != (role, index, generation) {
        let told = format!("{} {} generation {}", start.role, start.index, start.generation);
        return Err(Fatal::new(Exit::Ipc, format!("started with the orders of {told}")));
    }
    say_hello(&mut channel, &start)?;
    match role {
        Role::Owner => owner::run(channel, start),
        Role::Frontend => frontend::run(channel, start),
    }
}

/// Tells the supervisor why this process ends. Nothing is done about a failure: the exit code says the most
/// of it. Children say so little that the channel takes it at once and no other message is under way half
/// sent.
fn say_farewell(generation: u32, reason: &str) {
    let Some(fd) = LAST_WORD.get() else { return };
    let mut end = reason.len().min(FAREWELL_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let mut message = Outbox::new(generation);
    message.push(Header::new(Kind::Farewell, SessionId::default(), 0), &reason.as_bytes()[..end]);
    let _ = nix::unistd::write(fd, message.pending());
}

fn control_fd() -> Result<OwnedFd, Fatal> {
    let by_hand = || Fatal::new(Exit::Usage, "this role is started by `trellis serve`, not by hand");
    let path = format!("/proc/self/fd/{CONTROL_FD}");
    let target = std::fs::read_link(path).map_err(|_| by_hand())?;
    if !target.to_string_lossy().starts_with("socket:") {
        return Err(by_hand());
    }
    // SAFETY: the descriptor is open, and no other owner is there: this is the first thing the process does
    // with descriptors, and its parent put it there for this.
    Ok(unsafe { OwnedFd::from_raw_fd(CONTROL_FD) })
}

fn fence(role: Role, index: u16) -> Result<(), Fatal> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| Fatal::temporary("parent death signal", e))?;
    // Fifteen bytes are shown: "trellis-o255".
    let letter = match role {
        Role::Owner => 'o',
        Role::Frontend => 'f',
    };
    let name = CString::new(format!("trellis-{letter}{index}")).expect("no zero byte in it");
    prctl::set_name(&name).map_err(|e| Fatal::temporary("process name", e))
}

/// Waits for the first message, which has to be `Start`.
fn receive_start(channel: &mut Channel) -> Result<Start, Fatal> {
    loop {
        if let Some(frame) = channel.next().map_err(|e| Fatal::new(Exit::Ipc, e))? {
            if frame.header.kind != Kind::Start {
                return Err(Fatal::new(Exit::Ipc, format!("{:?} instead of Start", frame.header.kind)));
            }
            return decode(Kind::Start, frame.payload).map_err(|e| Fatal::new(Exit::Ipc, e));
        }
        channel.wait_readable().map_err(|e| Fatal::temporary("control channel", e))?;
        if channel.receive() == Progress::Gone {
            return Err(Fatal::new(Exit::Temporary, "the supervisor is gone"));
        }
    }
}

/// Computes the fingerprint, says it, and goes on only if it is the supervisor's too.
fn say_hello(channel: &mut Channel, start: &Start) -> Result<(), Fatal> {
    start.topology.validate().map_err(|e| Fatal::new(Exit::Fingerprint, e))?;
    let fingerprint = start.topology.fingerprint().to_string();
    let hello = Hello {
        role: start.role,
        index: start.index,
        generation: start.generation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fingerprint: fingerprint.clone(),
    };
    channel.queue(Kind::Hello, &encode(&hello), vec![]);
    // The channel is fresh: it takes a message of this size at once.
    if channel.flush() != Progress::Done {
        return Err(Fatal::new(Exit::Temporary, "the supervisor is gone"));
    }
    if fingerprint != start.fingerprint {
        let told = &start.fingerprint;
        let reason = format!("the topology's fingerprint is {fingerprint}, the supervisor has {told}");
        return Err(Fatal::new(Exit::Fingerprint, reason));
    }
    Ok(())
}

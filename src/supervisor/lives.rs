//! Births and deaths of children: making a process, killing it, and what its end means.
//!
//! Part of the supervisor; `policy` has decided before, and hears of each end. Panics if a reaped process of
//! ours ended in a way that no process can.

use std::io;

use mio::Interest;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::children::{Child, ChildId, Process};
use super::policy::{Event, State};
use super::{Supervisor, data};
use crate::error::{Class, Exit, Fatal};
use crate::ipc::Kind;
use crate::ipc::control::{Role, Start, encode};
use crate::ipc::socket::Channel;
use crate::scoreboard::{Field, Record};

impl Supervisor {
    pub(super) fn spawn(&mut self, id: ChildId) {
        let now = self.now();
        let child = self.children.get_mut(id);
        child.generation += 1;
        child.checked = false;
        child.reason = None;
        let generation = child.generation;
        if let Err(error) = self.try_spawn(id) {
            let child = self.children.get_mut(id);
            tracing::error!("{child}: not started: {error}");
            child.code = Exit::Temporary.code();
            child.reason = Some(error.to_string());
            // Half made: it must not live on unseen.
            if child.process.is_some() {
                self.kill(id);
            } else {
                child.ended(now, "not started");
                self.step(id, Event::Exited(Class::Temporary));
            }
            return;
        }
        self.record(id).set(Field::Generation, generation.into());
    }

    fn try_spawn(&mut self, id: ChildId) -> io::Result<()> {
        let start = self.start_message(id);
        let mut fds = vec![self.board_fd.try_clone()?];
        if start.role == Role::Frontend {
            fds.push(self.listener.try_clone()?);
        }
        let (pid, fd) = self.spawner.spawn(start.role, start.index, start.generation)?;
        let child = self.children.get_mut(id);
        child.process = Some(Process { pid: Some(pid), channel: None });
        tracing::debug!("{child}: process {pid}");
        let mut channel = Channel::new(fd, start.generation)?;
        channel.queue(Kind::Start, &encode(&start), fds);
        channel.flush();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut channel.stream, id.into(), interest)?;
        child.process = Some(Process { pid: Some(pid), channel: Some(channel) });
        Ok(())
    }

    fn start_message(&self, id: ChildId) -> Start {
        let child = self.children.get(id);
        let owner = child.role == Role::Owner;
        let last_id = if owner { self.board.owner(child.index).get(Field::LastId) } else { 0 };
        Start {
            role: child.role,
            index: child.index,
            generation: child.generation,
            listeners: if owner { 0 } else { 1 },
            fingerprint: self.fingerprint.clone(),
            server: self.server.clone(),
            wal: owner.then(|| data::wal(&self.settings, self.topology.layout, child.index)).flatten(),
            id_floor: last_id + 1,
            drain: self.board.draining(),
            falloc_pattern: std::env::var("TRELLIS_TEST_FALLOC").ok(),
            topology: self.topology.clone(),
        }
    }

    pub(super) fn record(&self, id: ChildId) -> Record<'_> {
        let child = self.children.get(id);
        match child.role {
            Role::Owner => self.board.owner(child.index),
            Role::Frontend => self.board.frontend(child.index),
        }
    }

    /// SIGKILL. Nothing more is heard from the child; its end is seen when it is reaped.
    pub(super) fn kill(&mut self, id: ChildId) {
        let child = self.children.get_mut(id);
        let Some(process) = &mut child.process else { return };
        process.channel = None;
        // Its number can't mean another process before it is reaped.
        if let Some(pid) = process.pid {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    /// Takes note of every process that has ended. There may be strangers among them: as process 1 we inherit
    /// orphans.
    pub(super) fn reap(&mut self) {
        loop {
            let status = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return,
                Err(nix::Error::EINTR) => continue,
                Err(error) => panic!("waitpid has no other errors: {error}"),
                Ok(status) => status,
            };
            if let Some(id) = status.pid().and_then(|pid| self.children.by_pid(pid)) {
                self.bury(id, status);
            }
        }
    }

    fn bury(&mut self, id: ChildId, status: WaitStatus) {
        if let Some(process) = &mut self.children.get_mut(id).process {
            process.pid = None;
        }
        // Its last words may still be unread.
        self.attend(id);
        self.record(id).clear_gauges();
        if let Child { role: Role::Frontend, index, .. } = *self.children.get(id) {
            self.board.seats(index).clear();
        }
        let now = self.now();
        let stopping = matches!(self.children.get(id).policy.state(), State::Stopping { .. });
        let child = self.children.get_mut(id);
        child.process = None;
        let (class, end) = match status {
            WaitStatus::Exited(_, code) => {
                child.code = code as u8;
                (Exit::class_of(code), format!("ended with code {code}"))
            }
            WaitStatus::Signaled(_, signal, _) => {
                // One that we killed for what it said keeps the code of that.
                if !matches!(child.policy.state(), State::Condemned { .. }) {
                    child.code = Exit::Temporary.code();
                }
                (Class::Temporary, format!("killed by {signal}"))
            }
            other => panic!("only ends are waited for: {other:?}"),
        };
        if let (WaitStatus::Exited(..), None) = (status, &child.reason) {
            child.reason = Exit::meaning(child.code).map(str::to_owned);
        }
        child.ended(now, &end);
        match stopping {
            true if child.code == 0 => tracing::debug!("{child} {end}"),
            true => tracing::warn!("{child} {end} while stopping"),
            false => tracing::warn!("{child} {end}"),
        }
        if let (true, Role::Owner, WaitStatus::Exited(_, 1..)) = (stopping, child.role, status) {
            let message = format!("{child} could not finish: {}", child.cause());
            self.failure.get_or_insert(Fatal { code: child.code, message });
        }
        self.step(id, Event::Exited(class));
    }
}

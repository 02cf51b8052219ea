//! The processes behind a Trellis server: which is which, stopping one, killing one, waiting for the next.
//!
//! A child says who it is on its command line (`trellis owner --slot 3 --generation 2`). Signals go to pids of the
//! server's own process group only.

use super::process::{state, wait_for};
use super::{Client, DEADLINE, Server, process};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Owner,
    Frontend,
}

/// One process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    pub role: Role,
    /// Of an owner its slot.
    pub number: u16,
    pub generation: u32,
    pub pid: i32,
}

impl Child {
    /// What a process says it is; None for one that is no child of a Trellis server, or gone.
    pub fn of_pid(pid: i32) -> Option<Child> {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<&str> = line.split('\0').collect();
        let (role, number, generation) = match words[..] {
            [_, "owner", "--slot", number, "--generation", generation, ..] => {
                (Role::Owner, number, generation)
            }
            [_, "frontend", "--number", number, "--generation", generation, ..] => {
                (Role::Frontend, number, generation)
            }
            _ => return None,
        };
        Some(Child { role, number: number.parse().ok()?, generation: generation.parse().ok()?, pid })
    }

    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    pub fn signal(&self, signal: Signal) {
        // One that has just ended by itself needs no signal any more.
        let _ = kill(Pid::from_raw(self.pid), signal);
    }

    /// Returns when it runs no more: a signal alone is only a promise.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        wait_for("a stopped process", DEADLINE, || (state(self.pid) == Some('T')).then_some(()));
    }

    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Neither a living process nor one that waits to be reaped.
    pub fn is_gone(&self) -> bool {
        Child::of_pid(self.pid) != Some(*self)
    }
}

impl Server {
    /// All living children.
    pub fn children(&self) -> Vec<Child> {
        self.pids().into_iter().filter_map(Child::of_pid).collect()
    }

    /// The child, as soon as it has a process.
    pub fn child(&self, role: Role, number: u16) -> Child {
        wait_for("a child of the server", DEADLINE, || self.find(role, number))
    }

    pub fn owner(&self, slot: u16) -> Child {
        self.child(Role::Owner, slot)
    }

    pub fn frontend(&self, number: u16) -> Child {
        self.child(Role::Frontend, number)
    }

    pub fn find(&self, role: Role, number: u16) -> Option<Child> {
        self.children().into_iter().find(|child| (child.role, child.number) == (role, number))
    }

    /// Waits for a later generation of a child that is dead or about to be.
    pub fn successor(&self, of: Child) -> Child {
        wait_for("a child to be started again", DEADLINE, || {
            self.find(of.role, of.number).filter(|child| child.generation > of.generation)
        })
    }

    /// Kills a child and waits for the process that takes its place (which may still be on its way up).
    pub fn replace(&self, child: Child) -> Child {
        child.kill();
        self.successor(child)
    }

    /// A connection that the frontend of this number has accepted: the others are stopped meanwhile.
    pub fn connect_through(&self, number: u16, name: &str) -> Client {
        // All of them: one that is on its way up would accept in another's place.
        let all = wait_for("all frontends", DEADLINE, || {
            let of_role = |child: &Child| child.role == Role::Frontend;
            let all: Vec<Child> = self.children().into_iter().filter(of_role).collect();
            (all.len() == self.frontends() as usize).then_some(all)
        });
        let (chosen, others): (Vec<Child>, Vec<Child>) =
            all.into_iter().partition(|child| child.number == number);
        let [frontend] = chosen[..] else { panic!("there is no frontend {number}") };
        others.iter().for_each(Child::stop);
        let client = self.connect(name);
        wait_for("the frontend to accept", DEADLINE, || {
            process::holds_peer_of(frontend.pid, &client).then_some(())
        });
        others.iter().for_each(Child::go_on);
        client
    }
}

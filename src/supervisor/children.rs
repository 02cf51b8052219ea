//! The table of children: who there is, which process each is now, and its control channel.
//!
//! Owners come first, then frontends; a child's place in the table is its token in the event loop and stays
//! when its process changes. Holds no opinion: `policy` decides.

use std::time::Duration;

use mio::Token;
use nix::unistd::Pid;

use super::policy::{Moment, Policy};
use super::pulse::Pulse;
use super::rising::Rising;
use super::tubes::Report;
use crate::ipc::control::{Peer, Role};
use crate::ipc::socket::Channel;

/// A child's place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChildId(usize);

/// A child's process, until its end has been dealt with.
pub struct Process {
    /// `None` once it was reaped: the number may be another's then.
    pub pid: Option<Pid>,
    /// `None` once the child closed it or was killed for what it said.
    pub channel: Option<Channel>,
}

pub struct Child {
    pub role: Role,
    pub index: u16,
    /// Of the process it is or was last; 0 before the first.
    pub generation: u32,
    pub policy: Policy,
    pub pulse: Pulse,
    pub rising: Rising,
    pub process: Option<Process>,
    /// This generation of an owner has found its log fit to be opened.
    pub checked: bool,
    /// What an owner has told of its tubes.
    pub tubes: Report,
    /// The code that its last process ended with, or that says why it was killed.
    pub code: u8,
    /// Why this process ends, if it said so or we did before we killed it.
    pub reason: Option<String>,
    /// How the last process ended, if one did.
    pub last_end: Option<End>,
}

/// The end of a process.
#[derive(Clone, PartialEq, Debug)]
pub struct End {
    pub generation: u32,
    pub at: Moment,
    /// In words, with the reason.
    pub cause: String,
}

impl Child {
    fn new(role: Role, index: u16, patience: Option<Duration>) -> Child {
        let (policy, pulse) = (Policy::new(role), Pulse::new(patience));
        Child {
            role,
            index,
            generation: 0,
            policy,
            pulse,
            rising: Rising::default(),
            process: None,
            checked: false,
            tubes: Report::default(),
            code: 0,
            reason: None,
            last_end: None,
        }
    }

    /// This generation, as its peers know it.
    pub fn peer(&self) -> Peer {
        Peer { role: self.role, index: self.index, generation: self.generation }
    }

    /// Its process is gone or could not be made.
    pub fn ended(&mut self, at: Moment, end: &str) {
        let cause = match self.reason.take() {
            Some(reason) => format!("{end}: {reason}"),
            None => end.to_owned(),
        };
        self.tubes.clear();
        self.last_end = Some(End { generation: self.generation, at, cause });
    }

    /// It serves, and answers.
    pub fn is_well(&self) -> bool {
        self.policy.is_serving() && !self.pulse.is_stalled()
    }

    /// Processes before the one it has or had last.
    pub fn restarts(&self) -> u32 {
        self.generation.saturating_sub(1)
    }

    /// How its last process ended.
    pub fn cause(&self) -> &str {
        self.last_end.as_ref().map_or("it never ran", |end| &end.cause)
    }

    pub fn channel(&mut self) -> Option<&mut Channel> {
        self.process.as_mut()?.channel.as_mut()
    }
}

impl std::fmt::Display for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} (generation {})", self.role, self.index, self.generation)
    }
}

pub struct Children {
    // owners in the order of slots, then frontends in the order of their numbers
    children: Vec<Child>,
}

impl Children {
    /// `patience`: how long one that serves may go without an answer before it is killed.
    pub fn new(owners: u16, frontends: u16, patience: Option<Duration>) -> Children {
        let owners = (0..owners).map(|slot| Child::new(Role::Owner, slot, patience));
        let frontends = (0..frontends).map(|number| Child::new(Role::Frontend, number, patience));
        Children { children: owners.chain(frontends).collect() }
    }

    pub fn ids(&self) -> impl Iterator<Item = ChildId> + use<> {
        (0..self.children.len()).map(ChildId)
    }

    pub fn of_role(&self, role: Role) -> Vec<ChildId> {
        self.ids().filter(|&id| self.get(id).role == role).collect()
    }

    pub fn get(&self, id: ChildId) -> &Child {
        &self.children[id.0]
    }

    pub fn get_mut(&mut self, id: ChildId) -> &mut Child {
        &mut self.children[id.0]
    }

    pub fn all(&self, role: Role, holds: impl Fn(&Policy) -> bool) -> bool {
        self.children.iter().filter(|child| child.role == role).all(|child| holds(&child.policy))
    }

    pub fn any(&self, role: Role, holds: impl Fn(&Child) -> bool) -> bool {
        self.children.iter().any(|child| child.role == role && holds(child))
    }

    /// The child whose process this is. `None` for a process that is none of ours.
    pub fn by_pid(&self, pid: Pid) -> Option<ChildId> {
        let place =
            self.children.iter().position(|child| child.process.as_ref().is_some_and(|p| p.pid == Some(pid)));
        place.map(ChildId)
    }

    /// The child whose token this is.
    pub fn by_token(&self, token: Token) -> Option<ChildId> {
        (token.0 < self.children.len()).then_some(ChildId(token.0))
    }
}

impl From<ChildId> for Token {
    fn from(id: ChildId) -> Token {
        Token(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lists_owners_then_frontends() {
        let children = Children::new(2, 3, None);
        let names: Vec<_> = children.ids().map(|id| children.get(id).to_string()).collect();
        assert_eq!(names[1], "owner 1 (generation 0)");
        assert_eq!(names[2], "frontend 0 (generation 0)");
        assert_eq!(children.of_role(Role::Frontend).len(), 3);
    }

    #[test]
    fn child_is_found_by_token_and_by_the_pid_it_has_now() {
        let mut children = Children::new(1, 1, None);
        let id = children.of_role(Role::Frontend)[0];
        assert_eq!(children.by_token(id.into()), Some(id));
        assert_eq!(children.by_token(Token(2)), None);
        assert_eq!(children.by_pid(Pid::from_raw(7)), None);
        children.get_mut(id).process = Some(Process { pid: Some(Pid::from_raw(7)), channel: None });
        assert_eq!(children.by_pid(Pid::from_raw(7)), Some(id));
    }
}

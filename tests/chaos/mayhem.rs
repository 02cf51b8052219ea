//! Kills and stops, at random, as many of each as asked for.

use crate::clients::Load;
use crate::history::{Death, Victim};
use crate::support::process::{group_members, wait_for};
use crate::support::{Child, DEADLINE, Random, Role, Server};
use std::time::{Duration, Instant};

/// How many deaths of each kind make a run.
#[derive(Clone, Copy, Debug)]
pub struct Goals {
    pub owners: usize,
    pub frontends: usize,
    pub supervisors: usize,
}

/// Kills of one child between two starts of the whole server. The supervisor waits longer before each next start
/// of a child that keeps dying (nothing, 0.1 s, 0.2 s), so that more would be spent on waiting.
const KILLS_A_LIFE: u32 = 3;

/// Between two blows, in milliseconds: time for the children to come up now and then, and too short at times.
const PAUSE_MS: std::ops::Range<usize> = 5..120;

/// How long a stopped process stays so, in milliseconds.
const STOP_MS: std::ops::Range<usize> = 1..250;

pub struct Mayhem<'m> {
    pub load: &'m Load,
    pub server: &'m mut Server,
    pub random: Random,
    pub slots: u16,
    pub frontends: u16,
    pub deaths: Vec<Death>,
    /// Kills of each child since the last start of the whole server: slots, then frontends.
    pub killed: Vec<u32>,
}

impl Mayhem<'_> {
    /// Returns when the goals are reached, or the time is over.
    pub fn rage(&mut self, goals: Goals, longest: Duration) {
        let until = Instant::now() + longest;
        while Instant::now() < until {
            let (owners, frontends, supervisors) = self.counts();
            let missing = [
                goals.owners.saturating_sub(owners),
                goals.frontends.saturating_sub(frontends),
                goals.supervisors.saturating_sub(supervisors),
            ];
            if missing == [0; 3] {
                return;
            }
            self.pause(PAUSE_MS);
            let children = missing[0] + missing[1];
            let strikes = children > 0 && {
                let role =
                    if self.random.below(children) < missing[0] { Role::Owner } else { Role::Frontend };
                self.strike(role)
            };
            if !strikes {
                // The children of this life have died often enough.
                assert!(goals.supervisors > 0, "more deaths than one server's life is to have: {goals:?}");
                self.kill_supervisor();
            }
        }
    }

    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |is: fn(Victim) -> bool| self.deaths.iter().filter(|death| is(death.victim)).count();
        (
            count(|victim| matches!(victim, Victim::Owner(_))),
            count(|victim| victim == Victim::Frontend),
            count(|victim| victim == Victim::Supervisor),
        )
    }

    fn pause(&mut self, milliseconds: std::ops::Range<usize>) {
        let length = milliseconds.start + self.random.below(milliseconds.len());
        std::thread::sleep(Duration::from_millis(length as u64));
    }

    /// Stops or kills a child of the role, or both. False if all have died often enough.
    fn strike(&mut self, role: Role) -> bool {
        let (first, count) = match role {
            Role::Owner => (0, self.slots),
            Role::Frontend => (self.slots, self.frontends),
        };
        let alive = |&number: &u16| self.killed[usize::from(first + number)] < KILLS_A_LIFE;
        let left: Vec<u16> = (0..count).filter(alive).collect();
        if left.is_empty() {
            return false;
        }
        let number = *self.random.pick(&left);
        // It may have been killed a moment ago.
        let Some(child) = self.server.find(role, number) else { return true };
        match self.random.below(4) {
            0 => {
                child.stop();
                self.pause(STOP_MS);
                child.go_on();
            }
            1 => {
                child.stop();
                self.pause(STOP_MS);
                self.kill(child);
            }
            _ => self.kill(child),
        }
        true
    }

    fn kill(&mut self, child: Child) {
        let start = self.load.now();
        child.kill();
        wait_for("a killed child to be gone", DEADLINE, || child.is_gone().then_some(()));
        let (victim, at) = match child.role {
            Role::Owner => (Victim::Owner(child.number), child.number),
            Role::Frontend => (Victim::Frontend, self.slots + child.number),
        };
        self.killed[usize::from(at)] += 1;
        self.deaths.push(Death { start, end: self.load.now(), victim });
    }

    fn kill_supervisor(&mut self) {
        let start = self.load.now();
        let group = self.server.kill_leader();
        wait_for("the children of a dead supervisor to leave", DEADLINE, || {
            group_members(group).is_empty().then_some(())
        });
        self.deaths.push(Death { start, end: self.load.now(), victim: Victim::Supervisor });
        self.killed.fill(0);
        self.server.start_again();
    }
}

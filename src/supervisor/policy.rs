//! What is done about one child: a table from (state, event) to the next state and actions.
//!
//! Pure: no process, no descriptor, no clock; `now` is the time since the supervisor started. The supervisor
//! turns what happens into events and carries the actions out in order. An event that a process can bring
//! about is answered in every state; one that only our own bookkeeping could is a panic.
//!
//! ```text
//! Idle ─Begin─► Starting ─Hello─► Preparing ─Ready─► Serving
//!                  ▲  └───────────────┴─────Exited──────┤
//!                  └──Due── Resting ◄───────────────────┘  a permanent end: Failed
//! any ─Stop─► Stopping ─Exited─► Stopped
//! ```
//!
//! A child that keeps dying before it is ready is shown as failed, and goes on being tried with pauses that
//! grow: when what kept it down is gone it comes back by itself.

use std::time::Duration;

use crate::error::Class;
use crate::ipc::control::Role;
use crate::limits;

/// Time since the supervisor started.
pub type Moment = Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not to be started yet.
    Idle,
    /// Its process exists and has not said who it is.
    Starting,
    /// It has the right topology; an owner replays its log.
    Preparing,
    Serving {
        since: Moment,
    },
    /// Killed for what it said or did not say; not yet reaped.
    Condemned {
        class: Class,
    },
    /// Dead, to be started again.
    Resting {
        until: Moment,
    },
    /// Dead, and not started again.
    Failed,
    /// Told to leave; killed at `until`.
    Stopping {
        until: Option<Moment>,
    },
    Stopped,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Its time has come for the first time.
    Begin,
    /// It said a valid `Hello`.
    Hello,
    /// It said `Ready`.
    Ready,
    /// It said something that can't be, or nothing for too long; permanent if the next generation would too.
    Misbehaved(Class),
    /// Its process was reaped, or could not be made.
    Exited(Class),
    /// The deadline of its state is over.
    Due,
    /// The server stops.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Make a process of the next generation.
    Spawn,
    /// SIGKILL.
    Kill,
    /// Send `Stop`.
    TellStop,
    /// Make its links to all peers that have theirs.
    Link,
    /// Tell those peers that it is gone.
    Unlink,
    /// It keeps dying before it is ready: say so, and decide what that means for the server. It is tried again.
    ShowFailed,
    /// It is not started again: say so, and decide what that means for the server.
    GiveUp,
}

/// One child's state and history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    role: Role,
    state: State,
    /// Peers have been told of it.
    linked: bool,
    /// Deaths in a row before it was ready.
    early_deaths: u32,
    /// Restarts since it last served well: makes the pauses grow.
    restarts: u32,
}

impl Policy {
    pub fn new(role: Role) -> Policy {
        Policy { role, state: State::Idle, linked: false, early_deaths: 0, restarts: 0 }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Whether peers have or should have a link to it.
    pub fn is_linked(&self) -> bool {
        self.linked
    }

    pub fn is_serving(&self) -> bool {
        matches!(self.state, State::Serving { .. })
    }

    /// It comes up: its process is there and not ready.
    pub fn is_rising(&self) -> bool {
        matches!(self.state, State::Starting | State::Preparing)
    }

    /// It is given up, or has not been ready for so many deaths that somebody has to look at it.
    pub fn is_failed(&self) -> bool {
        let is_down = matches!(self.state, State::Condemned { .. } | State::Resting { .. });
        self.state == State::Failed
            || (self.early_deaths >= limits::EARLY_DEATHS_MAX && (is_down || self.is_rising()))
    }

    /// Deaths in a row before it was ready.
    pub fn early_deaths(&self) -> u32 {
        self.early_deaths
    }

    /// No process now and none to come.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Failed | State::Stopped)
    }

    /// When `Due` is to be said.
    pub fn deadline(&self) -> Option<Moment> {
        match self.state {
            State::Resting { until } => Some(until),
            State::Stopping { until } => until,
            _ => None,
        }
    }

    /// The table.
    pub fn step(&mut self, event: Event, now: Moment) -> Vec<Action> {
        use Event::*;
        match (self.state, event) {
            (State::Idle, Begin) => self.go(State::Starting, &[Action::Spawn]),
            (State::Idle | State::Resting { .. } | State::Failed | State::Stopped, Stop) => {
                self.go(State::Stopped, &[])
            }

            (State::Starting, Hello) => self.advance(State::Preparing, Role::Frontend),
            (State::Preparing, Ready) => {
                self.early_deaths = 0;
                self.advance(State::Serving { since: now }, Role::Owner)
            }
            (State::Starting, Ready) | (State::Preparing, Hello) | (State::Serving { .. }, Hello | Ready) => {
                self.go(State::Condemned { class: Class::Temporary }, &[Action::Kill])
            }
            (State::Starting | State::Preparing | State::Serving { .. }, Misbehaved(class)) => {
                self.go(State::Condemned { class }, &[Action::Kill])
            }
            (State::Starting | State::Preparing | State::Serving { .. }, Stop) => {
                self.go(State::Stopping { until: Some(now + self.stop_time()) }, &[Action::TellStop])
            }
            (State::Starting | State::Preparing, Exited(class)) => self.died(class, None, now),
            (State::Serving { since }, Exited(class)) => self.died(class, Some(now - since), now),

            // Killed already: its last words don't matter.
            (State::Condemned { .. }, Hello | Ready | Misbehaved(_)) => vec![],
            (State::Condemned { .. }, Stop) => self.go(State::Stopping { until: None }, &[]),
            (State::Condemned { class }, Exited(_)) => self.died(class, None, now),

            (State::Resting { .. }, Due) => self.go(State::Starting, &[Action::Spawn]),

            (State::Stopping { .. }, Hello | Ready | Stop) => vec![],
            (State::Stopping { .. }, Misbehaved(_) | Due) => {
                self.go(State::Stopping { until: None }, &[Action::Kill])
            }
            (State::Stopping { .. }, Exited(_)) => {
                let unlink = std::mem::take(&mut self.linked);
                self.go(State::Stopped, if unlink { &[Action::Unlink] } else { &[] })
            }

            // No process, so nothing it could have said or done; `Begin` comes once; `Due` only at a deadline.
            (
                State::Idle | State::Resting { .. } | State::Failed | State::Stopped,
                Hello | Ready | Misbehaved(_) | Exited(_),
            )
            | (
                State::Starting | State::Preparing | State::Serving { .. } | State::Condemned { .. },
                Begin | Due,
            )
            | (State::Resting { .. } | State::Failed | State::Stopping { .. } | State::Stopped, Begin)
            | (State::Idle | State::Failed | State::Stopped, Due) => {
                panic!("{event:?} for a child that is {:?}", self.state)
            }
        }
    }

    fn go(&mut self, state: State, actions: &[Action]) -> Vec<Action> {
        self.state = state;
        actions.to_vec()
    }

    /// A step forward, with which a child of that role gets its links: a frontend when its topology is known to
    /// be ours, an owner when it has replayed its log.
    fn advance(&mut self, state: State, linked_here: Role) -> Vec<Action> {
        self.state = state;
        if self.role != linked_here {
            return vec![];
        }
        self.linked = true;
        vec![Action::Link]
    }

    /// Its process is gone, unasked. `served`: for how long, if it was ready at all.
    fn died(&mut self, class: Class, served: Option<Duration>, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        if std::mem::take(&mut self.linked) {
            actions.push(Action::Unlink);
        }
        if served.is_none() {
            self.early_deaths = self.early_deaths.saturating_add(1);
        }
        if served.is_some_and(|time| time >= Duration::from_millis(limits::SERVED_WELL_MS)) {
            self.restarts = 0;
        }
        if class == Class::Permanent {
            self.state = State::Failed;
            actions.push(Action::GiveUp);
            return actions;
        }
        let pause = pause(self.restarts);
        self.restarts = self.restarts.saturating_add(1);
        if pause.is_zero() {
            self.state = State::Starting;
            actions.push(Action::Spawn);
        } else {
            self.state = State::Resting { until: now + pause };
        }
        if served.is_none() && self.early_deaths == limits::EARLY_DEATHS_MAX {
            actions.push(Action::ShowFailed);
        }
        actions
    }

    fn stop_time(&self) -> Duration {
        Duration::from_millis(match self.role {
            Role::Owner => limits::STOP_OWNERS_MS,
            Role::Frontend => limits::STOP_FRONTENDS_MS,
        })
    }
}

/// Before the restart of this number (from 0): none, then doubling up to the longest.
fn pause(restart: u32) -> Duration {
    let doublings = match restart {
        0 => return Duration::ZERO,
        n => (n - 1).min(u64::BITS / 2),
    };
    Duration::from_millis(
        limits::RESTART_PAUSE_MS.saturating_mul(1 << doublings).min(limits::RESTART_PAUSE_MS_MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXITED: Event = Event::Exited(Class::Temporary);
    const GARBAGE: Event = Event::Misbehaved(Class::Temporary);
    const REFUSED: Event = Event::Exited(Class::Permanent);

    fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    /// A child of this role after these events, all at the time zero.
    fn child(role: Role, events: &[Event]) -> Policy {
        let mut policy = Policy::new(role);
        events.iter().for_each(|event| drop(policy.step(*event, at(0))));
        policy
    }

    fn in_state(state: State) -> Policy {
        Policy { state, ..Policy::new(Role::Owner) }
    }

    #[test]
    fn owner_is_linked_when_ready_and_frontend_when_known() {
        let mut owner = child(Role::Owner, &[]);
        assert_eq!(owner.step(Event::Begin, at(0)), [Action::Spawn]);
        assert_eq!(owner.step(Event::Hello, at(1)), []);
        assert_eq!(owner.step(Event::Ready, at(2)), [Action::Link]);
        assert_eq!(owner.state(), State::Serving { since: at(2) });

        let mut frontend = child(Role::Frontend, &[]);
        assert_eq!(frontend.step(Event::Begin, at(0)), [Action::Spawn]);
        assert_eq!(frontend.step(Event::Hello, at(1)), [Action::Link]);
        assert_eq!(frontend.step(Event::Ready, at(2)), []);
        assert!(frontend.is_serving() && frontend.is_linked());
    }

    /// Every cell of the table that leads to one place whatever the history.
    #[test]
    fn every_cell_is_as_written() {
        use Event::*;
        let states = [
            State::Idle,
            State::Starting,
            State::Preparing,
            State::Serving { since: at(0) },
            State::Condemned { class: Class::Temporary },
            State::Condemned { class: Class::Permanent },
            State::Resting { until: at(7) },
            State::Failed,
            State::Stopping { until: Some(at(7)) },
            State::Stopped,
        ];
        let events = [Begin, Hello, Ready, GARBAGE, EXITED, REFUSED, Due, Stop];
        // One row a state, one letter an event. c: killed, s: started, f: given up, o: stopped, k: killed while
        // stopping, t: told to stop, w: waits for its end, .: stays, >: a step forward, !: can't happen.
        let table = [
            "s!!!!!!o", // Idle
            "!>ccsf!t", // Starting
            "!c>csf!t", // Preparing
            "!cccsf!t", // Serving
            "!...ss!w", // Condemned for now
            "!...ff!w", // Condemned for good
            "!!!!!!so", // Resting
            "!!!!!!!o", // Failed
            "!..kook.", // Stopping
            "!!!!!!!o", // Stopped
        ];
        for (state, row) in states.into_iter().zip(table) {
            for (event, cell) in events.into_iter().zip(row.chars()) {
                let mut policy = in_state(state);
                let result = std::panic::catch_unwind(move || {
                    let actions = policy.step(event, at(1));
                    (actions, policy.state())
                });
                let name = format!("{state:?} {event:?}");
                let Ok((actions, next)) = result else {
                    assert_eq!(cell, '!', "{name} panics");
                    continue;
                };
                let expected: (&[Action], State) = match cell {
                    's' => (&[Action::Spawn], State::Starting),
                    'c' => (&[Action::Kill], State::Condemned { class: Class::Temporary }),
                    'f' => (&[Action::GiveUp], State::Failed),
                    'o' => (&[], State::Stopped),
                    'k' => (&[Action::Kill], State::Stopping { until: None }),
                    't' => {
                        let until = Some(at(1 + limits::STOP_OWNERS_MS));
                        (&[Action::TellStop], State::Stopping { until })
                    }
                    'w' => (&[], State::Stopping { until: None }),
                    '.' => (&[], state),
                    '>' if state == State::Starting => (&[], State::Preparing),
                    '>' => (&[Action::Link], State::Serving { since: at(1) }),
                    _ => panic!("{name} did not panic: {actions:?} {next:?}"),
                };
                assert_eq!((actions.as_slice(), next), expected, "{name}");
            }
        }
    }

    #[test]
    fn death_of_a_linked_child_is_told_before_its_restart() {
        let mut owner = child(Role::Owner, &[Event::Begin, Event::Hello, Event::Ready]);
        assert_eq!(owner.step(EXITED, at(5)), [Action::Unlink, Action::Spawn]);
        assert!(!owner.is_linked());
        let mut killed = child(Role::Frontend, &[Event::Begin, Event::Hello, GARBAGE]);
        assert_eq!(killed.step(EXITED, at(5)), [Action::Unlink, Action::Spawn]);
        let mut stopping = child(Role::Owner, &[Event::Begin, Event::Hello, Event::Ready, Event::Stop]);
        assert_eq!(stopping.step(EXITED, at(5)), [Action::Unlink]);
    }

    #[test]
    fn deaths_in_a_row_wait_longer_each_time_up_to_the_longest() {
        let mut owner = child(Role::Owner, &[Event::Begin]);
        let mut waits = Vec::new();
        for _ in 0..12 {
            owner.step(Event::Hello, at(0));
            owner.step(Event::Ready, at(0));
            owner.step(EXITED, at(0));
            match owner.state() {
                State::Starting => waits.push(0),
                State::Resting { until } => {
                    assert_eq!(owner.deadline(), Some(until));
                    waits.push(until.as_millis());
                    assert_eq!(owner.step(Event::Due, until), [Action::Spawn]);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(pause(u32::MAX).as_millis(), 30000);
    }

    #[test]
    fn serving_well_makes_the_next_restart_immediate() {
        let mut owner = child(Role::Owner, &[Event::Begin, Event::Hello, Event::Ready, EXITED]);
        owner.step(Event::Hello, at(0));
        owner.step(Event::Ready, at(0));
        assert_eq!(owner.step(EXITED, at(limits::SERVED_WELL_MS - 1)), [Action::Unlink]);
        owner.step(Event::Due, at(10_100));
        owner.step(Event::Hello, at(10_100));
        owner.step(Event::Ready, at(10_100));
        let actions = owner.step(EXITED, at(10_100 + limits::SERVED_WELL_MS));
        assert_eq!(actions, [Action::Unlink, Action::Spawn]);
    }

    #[test]
    fn child_that_keeps_dying_before_it_is_ready_is_shown_once_and_tried_on() {
        let mut owner = child(Role::Owner, &[Event::Begin]);
        let mut waits = Vec::new();
        for death in 1..=12 {
            let actions = owner.step(EXITED, at(0));
            let shown = actions.contains(&Action::ShowFailed);
            assert_eq!(shown, death == limits::EARLY_DEATHS_MAX, "death {death}: {actions:?}");
            assert_eq!(owner.is_failed(), death >= limits::EARLY_DEATHS_MAX, "death {death}");
            assert!(!owner.is_over() && owner.early_deaths() == death);
            if let Some(until) = owner.deadline() {
                waits.push(until.as_millis());
                assert_eq!(owner.step(Event::Due, until), [Action::Spawn]);
            }
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        // It is failed until it serves, and then as good as any.
        assert_eq!(owner.step(Event::Hello, at(0)), []);
        assert!(owner.is_failed() && owner.is_rising());
        owner.step(Event::Ready, at(0));
        assert!(!owner.is_failed() && !owner.is_rising());
        owner.step(EXITED, at(5));
        assert!(!owner.is_failed());
        // Stopped or not started again while it is failed.
        let failed = Policy { early_deaths: 9, ..in_state(State::Resting { until: at(7) }) };
        let mut stopped = failed.clone();
        assert_eq!(stopped.step(Event::Stop, at(1)), []);
        assert!(stopped.is_over() && !stopped.is_failed());
        let mut refused = failed;
        refused.step(Event::Due, at(7));
        assert_eq!(refused.step(REFUSED, at(8)), [Action::GiveUp]);
        assert!(refused.is_over() && refused.is_failed());
    }

    #[test]
    fn child_that_is_killed_while_it_serves_has_not_died_early() {
        let mut owner = child(Role::Owner, &[Event::Begin]);
        for _ in 0..3 * limits::EARLY_DEATHS_MAX {
            for event in [Event::Hello, Event::Ready, GARBAGE] {
                owner.step(event, at(0));
            }
            assert!(!owner.step(EXITED, at(0)).contains(&Action::ShowFailed));
            if let Some(until) = owner.deadline() {
                owner.step(Event::Due, until);
            }
        }
    }

    #[test]
    fn being_ready_once_starts_the_count_of_early_deaths_anew() {
        let mut owner = child(Role::Owner, &[Event::Begin]);
        for death in 0..3 * limits::EARLY_DEATHS_MAX {
            if death % 4 == 3 {
                owner.step(Event::Hello, at(0));
                owner.step(Event::Ready, at(0));
            }
            owner.step(EXITED, at(0));
            assert!(!owner.is_failed(), "death {death}");
            if let Some(until) = owner.deadline() {
                owner.step(Event::Due, until);
            }
        }
    }

    #[test]
    fn permanent_end_is_given_up_at_once() {
        for events in [&[Event::Begin][..], &[Event::Begin, Event::Hello]] {
            assert_eq!(child(Role::Owner, events).step(REFUSED, at(0)), [Action::GiveUp]);
        }
        let mut serving = child(Role::Owner, &[Event::Begin, Event::Hello, Event::Ready]);
        assert_eq!(serving.step(REFUSED, at(0)), [Action::Unlink, Action::GiveUp]);
        assert!(serving.is_over());
    }

    #[test]
    fn child_that_does_not_leave_in_time_is_killed_once() {
        let mut frontend = child(Role::Frontend, &[Event::Begin, Event::Hello, Event::Ready, Event::Stop]);
        let until = frontend.deadline().unwrap();
        assert_eq!(until, at(limits::STOP_FRONTENDS_MS));
        assert_eq!(frontend.step(Event::Due, until), [Action::Kill]);
        assert_eq!(frontend.deadline(), None);
        assert_eq!(frontend.step(EXITED, until), [Action::Unlink]);
        assert!(frontend.is_over());
    }
}

//! Whether a serving child still answers: a table from (state, event) to the next state and actions.
//!
//! Pure, as `policy` is, and apart from it: a child that does not answer is shown and otherwise left alone, for
//! what it holds up is a disk or a debugger more often than a fault of its own. At most one ping is under way,
//! so a child that stands still for hours is not met by thousands of them.
//!
//! ```text
//! Off ─Serves─► Quiet ─Due: Ping─► Asked ─Due: Stalled─► Stalled ─Due: Kill─► Given up on
//!                 ▲                  │                      │
//!                 └───────Pong───────┴────Pong: Recovered───┘        any ─Left─► Off
//! ```

use std::time::Duration;

use super::policy::Moment;
use crate::limits;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It does not serve, so it is not asked.
    Off,
    /// It answered, or has just begun; asked at `next`.
    Quiet { next: Moment },
    /// The answer to a ping is awaited.
    Asked { since: Moment },
    /// And has been for too long.
    Stalled { since: Moment },
    /// Killed for it.
    GivenUp { since: Moment },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It serves from now on.
    Serves,
    /// It does not any more.
    Left,
    /// It answered.
    Pong,
    /// The deadline of its state is over.
    Due,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send one.
    Ping,
    /// Say that it does not answer.
    SayStalled,
    /// Say that it does again, after this long.
    SayRecovered(Duration),
    /// It was allowed to stand still this long and no longer.
    Kill(Duration),
    /// It answers what nobody asked.
    Refuse,
}

/// One child's answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pulse {
    state: State,
    /// How long the last answer took.
    round_trip: Duration,
    /// After this long without an answer it is killed.
    patience: Option<Duration>,
}

impl Pulse {
    pub fn new(patience: Option<Duration>) -> Pulse {
        Pulse { state: State::Off, round_trip: Duration::ZERO, patience }
    }

    pub fn is_on(&self) -> bool {
        self.state != State::Off
    }

    pub fn is_stalled(&self) -> bool {
        matches!(self.state, State::Stalled { .. } | State::GivenUp { .. })
    }

    /// How far behind it is: what the last answer took, or the next one has taken already.
    pub fn lag(&self, now: Moment) -> Duration {
        match self.state {
            State::Off => Duration::ZERO,
            State::Quiet { .. } => self.round_trip,
            State::Asked { since } => self.round_trip.max(now - since),
            State::Stalled { since } | State::GivenUp { since } => now - since,
        }
    }

    /// When `Due` is to be said.
    pub fn deadline(&self) -> Option<Moment> {
        match self.state {
            State::Quiet { next } => Some(next),
            State::Asked { since } => Some(since + Duration::from_millis(limits::PONG_MS)),
            State::Stalled { since } => Some(since + self.patience?),
            State::Off | State::GivenUp { .. } => None,
        }
    }

    /// The table.
    pub fn step(&mut self, event: Event, now: Moment) -> Option<Action> {
        use Event::*;
        let (state, action) = match (self.state, event) {
            (State::Off, Serves) => (State::Quiet { next: now + interval() }, None),
            (_, Left) => (State::Off, None),
            // Of a ping that it got before it was told to leave.
            (State::Off | State::GivenUp { .. }, Pong) => (self.state, None),
            (State::Quiet { .. }, Pong) => (self.state, Some(Action::Refuse)),
            (State::Quiet { .. }, Due) => (State::Asked { since: now }, Some(Action::Ping)),
            (State::Asked { since }, Pong) => {
                self.round_trip = now - since;
                (State::Quiet { next: now + interval() }, None)
            }
            (State::Asked { since }, Due) => (State::Stalled { since }, Some(Action::SayStalled)),
            (State::Stalled { since }, Pong) => {
                self.round_trip = now - since;
                (State::Quiet { next: now + interval() }, Some(Action::SayRecovered(now - since)))
            }
            (State::Stalled { since }, Due) => (State::GivenUp { since }, Some(Action::Kill(now - since))),
            // It begins to serve once, and `Due` comes only at a deadline.
            (
                State::Quiet { .. } | State::Asked { .. } | State::Stalled { .. } | State::GivenUp { .. },
                Serves,
            )
            | (State::Off | State::GivenUp { .. }, Due) => {
                panic!("{event:?} for a pulse that is {:?}", self.state)
            }
        };
        self.state = state;
        action
    }
}

/// Between two looks at a child, here and in `rising`.
pub(super) fn interval() -> Duration {
    Duration::from_millis(limits::PING_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    /// What a cell comes to; `None`: it can't happen.
    type Cell = Option<(State, Option<Action>)>;

    #[test]
    fn every_cell_is_as_written() {
        use Event::*;
        let (quiet, asked) = (State::Quiet { next: at(7) }, State::Asked { since: at(0) });
        let (stalled, given_up) = (State::Stalled { since: at(0) }, State::GivenUp { since: at(0) });
        let next = State::Quiet { next: at(9 + limits::PING_MS) };
        let table: [(State, [Cell; 4]); 5] = [
            // Serves, Left, Pong, Due
            (State::Off, [Some((next, None)), Some((State::Off, None)), Some((State::Off, None)), None]),
            (
                quiet,
                [
                    None,
                    Some((State::Off, None)),
                    Some((quiet, Some(Action::Refuse))),
                    Some((State::Asked { since: at(9) }, Some(Action::Ping))),
                ],
            ),
            (
                asked,
                [
                    None,
                    Some((State::Off, None)),
                    Some((next, None)),
                    Some((stalled, Some(Action::SayStalled))),
                ],
            ),
            (
                stalled,
                [
                    None,
                    Some((State::Off, None)),
                    Some((next, Some(Action::SayRecovered(at(9))))),
                    Some((given_up, Some(Action::Kill(at(9))))),
                ],
            ),
            (given_up, [None, Some((State::Off, None)), Some((given_up, None)), None]),
        ];
        for (state, row) in table {
            for (event, cell) in [Serves, Left, Pong, Due].into_iter().zip(row) {
                let mut pulse = Pulse { state, ..Pulse::new(None) };
                let result = std::panic::catch_unwind(move || {
                    let action = pulse.step(event, at(9));
                    (pulse.state, action)
                });
                assert_eq!(result.ok(), cell, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn child_that_answers_is_asked_once_an_interval() {
        let mut pulse = Pulse::new(None);
        pulse.step(Event::Serves, at(0));
        for _ in 0..3 {
            let due = pulse.deadline().unwrap();
            assert_eq!(pulse.step(Event::Due, due), Some(Action::Ping));
            assert_eq!(pulse.step(Event::Pong, due + at(3)), None);
            assert_eq!(pulse.deadline(), Some(due + at(3 + limits::PING_MS)));
            assert_eq!(pulse.lag(due + at(500)), at(3));
        }
    }

    #[test]
    fn child_that_does_not_answer_is_told_of_once_and_lags_more_and_more() {
        let mut pulse = Pulse::new(None);
        pulse.step(Event::Serves, at(0));
        let asked = pulse.deadline().unwrap();
        pulse.step(Event::Due, asked);
        assert_eq!(pulse.lag(asked + at(5)), at(5));
        let due = pulse.deadline().unwrap();
        assert_eq!(due, asked + at(limits::PONG_MS));
        assert!(!pulse.is_stalled());
        assert_eq!(pulse.step(Event::Due, due), Some(Action::SayStalled));
        assert!(pulse.is_stalled());
        assert_eq!(pulse.deadline(), None, "nobody said that it may be killed");
        assert_eq!(pulse.lag(asked + at(3_600_000)), at(3_600_000));
        assert_eq!(pulse.step(Event::Pong, asked + at(7000)), Some(Action::SayRecovered(at(7000))));
        assert!(!pulse.is_stalled());
    }

    #[test]
    fn child_is_killed_when_patience_is_over_and_not_before_it_is_called_stalled() {
        let patience = at(limits::PONG_MS);
        let mut pulse = Pulse::new(Some(patience));
        pulse.step(Event::Serves, at(0));
        let asked = pulse.deadline().unwrap();
        pulse.step(Event::Due, asked);
        pulse.step(Event::Due, asked + patience);
        assert_eq!(pulse.deadline(), Some(asked + patience));
        assert_eq!(pulse.step(Event::Due, asked + patience), Some(Action::Kill(patience)));
        assert!(pulse.is_stalled() && pulse.deadline().is_none());
    }
}

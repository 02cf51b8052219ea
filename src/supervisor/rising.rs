//! Whether a child that is not ready yet gets on.
//!
//! Pure, as `pulse` is, which asks those that serve. A child that comes up can't be asked: it reads its log
//! in one go, and a large one takes its time. So it is looked at from outside, and taken to be well as long
//! as it was on a processor in between. One that was not, for as long as a child that serves may leave a ping
//! unanswered, hangs, on its disk as a rule: it is shown as stalled, and otherwise left alone.

use std::time::Duration;

use super::policy::Moment;
use super::process_figures::Turns;
use super::pulse::interval;
use crate::limits;

/// One child's way up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rising(Option<Watch>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Watch {
    generation: u32,
    since: Moment,
    /// When it is looked at next.
    next: Moment,
    /// What was seen last, and since when.
    turns: Option<Turns>,
    moved: Moment,
    stalled: bool,
}

/// What is to be said, once each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    Stalled,
    /// It goes on, after this long.
    Moves(Duration),
}

impl Rising {
    /// `generation`: of the process that comes up now, if one does.
    pub fn follow(&mut self, generation: Option<u32>, now: Moment) {
        if self.0.as_ref().map(|watch| watch.generation) != generation {
            self.0 = generation.map(|generation| Watch {
                generation,
                since: now,
                next: now + interval(),
                turns: None,
                moved: now,
                stalled: false,
            });
        }
    }

    /// When `look` is to be called.
    pub fn deadline(&self) -> Option<Moment> {
        self.0.as_ref().map(|watch| watch.next)
    }

    /// `turns`: what is seen of the process now. `None`: it waits for others, or nothing is known of it; that
    /// is not held against it.
    pub fn look(&mut self, turns: Option<Turns>, now: Moment) -> Option<News> {
        let watch = self.0.as_mut()?;
        watch.next = now + interval();
        if turns.is_none() || turns != watch.turns {
            let silent = now - watch.moved;
            (watch.turns, watch.moved) = (turns, now);
            return std::mem::take(&mut watch.stalled).then_some(News::Moves(silent));
        }
        let is_late = now - watch.moved >= Duration::from_millis(limits::PONG_MS);
        (is_late && !std::mem::replace(&mut watch.stalled, true)).then_some(News::Stalled)
    }

    pub fn is_stalled(&self) -> bool {
        self.0.as_ref().is_some_and(|watch| watch.stalled)
    }

    /// For how long it has not been ready, and has not moved as far as was seen. `None`: nothing comes up.
    pub fn ages(&self, now: Moment) -> Option<(Duration, Duration)> {
        self.0.as_ref().map(|watch| (now - watch.since, now - watch.moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    fn turns(n: u64) -> Option<Turns> {
        Some(Turns([n, 0, 0, 0]))
    }

    fn begun() -> Rising {
        let mut rising = Rising::default();
        rising.follow(Some(3), at(100));
        rising
    }

    #[test]
    fn child_that_gets_a_processor_is_never_stalled_however_long_it_takes() {
        let mut rising = begun();
        for n in 0..3600 {
            let now = rising.deadline().unwrap();
            assert_eq!(now, at(100 + (n + 1) * limits::PING_MS));
            assert_eq!(rising.look(turns(n), now), None);
        }
        assert!(!rising.is_stalled());
    }

    #[test]
    fn child_that_stands_still_is_told_of_once_and_when_it_moves() {
        let mut rising = begun();
        assert_eq!(rising.look(turns(5), at(1000)), None);
        assert_eq!(rising.look(turns(5), at(2000)), None);
        assert_eq!(rising.look(turns(5), at(1000 + limits::PONG_MS)), Some(News::Stalled));
        assert!(rising.is_stalled());
        assert_eq!(rising.look(turns(5), at(60_000)), None, "once");
        assert_eq!(rising.ages(at(60_000)), Some((at(59_900), at(59_000))));
        assert_eq!(rising.look(turns(6), at(61_000)), Some(News::Moves(at(60_000))));
        assert!(!rising.is_stalled());
    }

    #[test]
    fn child_that_waits_for_others_or_is_unknown_is_not_stalled() {
        let mut rising = begun();
        for n in 1..10 {
            assert_eq!(rising.look(None, at(n * 1000)), None);
        }
        assert_eq!(rising.look(turns(5), at(10_000)), None);
        assert_eq!(rising.look(turns(5), at(11_000)), None, "its time begins anew");
    }

    #[test]
    fn each_generation_is_followed_anew_and_one_that_is_ready_not_at_all() {
        let mut rising = begun();
        rising.look(turns(5), at(1000));
        rising.look(turns(5), at(9000));
        rising.follow(Some(3), at(9000));
        assert!(rising.is_stalled(), "the same");
        rising.follow(Some(4), at(9000));
        assert!(!rising.is_stalled());
        assert_eq!(rising.ages(at(9500)), Some((at(500), at(500))));
        rising.follow(None, at(9600));
        assert_eq!((rising.deadline(), rising.ages(at(9600))), (None, None));
        assert_eq!(rising.look(turns(1), at(9700)), None);
    }
}

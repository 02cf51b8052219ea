//! Keeps a fault that comes thousands of times a second from filling a disk with its lines.
//!
//! The same line is shown a few times a second, lines of the same place in the program a few dozen times;
//! what was left out is counted and told later. Lines of level debug and trace pass: who asks for them wants
//! all.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::limits::{LOG_CAUSES, LOG_LINES_PER_SECOND, LOG_REPEATS_PER_SECOND};

/// As a layer: the gate that each event passes.
pub struct Limiter {
    started: Instant,
    limits: Mutex<Limits<Identifier>>,
}

/// What was left out of one cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suppressed {
    pub lines: u64,
    /// The first of them.
    pub sample: String,
}

/// The counts, without a clock. `P` tells places in the program apart.
struct Limits<P> {
    /// By place, and by place and text.
    windows: HashMap<(P, Option<u64>), Window>,
}

/// One second of one cause.
struct Window {
    second: u64,
    lines: u32,
    suppressed: u64,
    sample: String,
}

impl Limiter {
    pub fn new() -> Limiter {
        Limiter { started: Instant::now(), limits: Mutex::new(Limits { windows: HashMap::new() }) }
    }

    /// What was left out in seconds that are over, and not told yet. With `all`: in this one, too.
    pub fn take_suppressed(&self, all: bool) -> Vec<Suppressed> {
        let now = if all { u64::MAX } else { self.second() };
        self.lock().take(now)
    }

    fn second(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Limits<Identifier>> {
        // Whoever panicked in between has left counts that are as good as any.
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for &'static Limiter {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        let mut text = Text::default();
        event.record(&mut text);
        self.lock().admit(event.metadata().callsite(), &text.0, self.second())
    }
}

impl<P: Hash + Eq + Clone> Limits<P> {
    /// Whether a line is to be shown.
    fn admit(&mut self, place: P, text: &str, second: u64) -> bool {
        if self.windows.len() >= LOG_CAUSES {
            self.windows.retain(|_, window| window.second == second || window.suppressed > 0);
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let line = (place.clone(), Some(hasher.finish()));
        // Where so many different lines come in a second that they can't be told apart, their place must do.
        if self.windows.len() < LOG_CAUSES || self.windows.contains_key(&line) {
            let window = self.windows.entry(line).or_insert_with(|| Window::new(second));
            if !window.admit(LOG_REPEATS_PER_SECOND, text, second) {
                return false;
            }
        }
        let window = self.windows.entry((place, None)).or_insert_with(|| Window::new(second));
        window.admit(LOG_LINES_PER_SECOND, text, second)
    }

    fn take(&mut self, now: u64) -> Vec<Suppressed> {
        let over = self.windows.values_mut().filter(|window| window.suppressed > 0 && window.second < now);
        over.map(Window::take).collect()
    }
}

impl Window {
    fn new(second: u64) -> Window {
        Window { second, lines: 0, suppressed: 0, sample: String::new() }
    }

    fn admit(&mut self, most: u32, text: &str, second: u64) -> bool {
        if self.second != second {
            // What it left out before stays until it is told.
            (self.second, self.lines) = (second, 0);
        }
        if self.lines < most {
            self.lines += 1;
            return true;
        }
        if self.suppressed == 0 {
            self.sample = text.to_owned();
        }
        self.suppressed += 1;
        false
    }

    fn take(&mut self) -> Suppressed {
        Suppressed { lines: std::mem::take(&mut self.suppressed), sample: std::mem::take(&mut self.sample) }
    }
}

/// An event's message and fields in one line.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let gap = if self.0.is_empty() { "" } else { " " };
        let written = match field.name() {
            "message" => write!(self.0, "{gap}{value:?}"),
            name => write!(self.0, "{gap}{name}={value:?}"),
        };
        written.expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits<u8> {
        Limits { windows: HashMap::new() }
    }

    #[test]
    fn same_line_is_shown_a_few_times_a_second_and_the_rest_is_told_once_it_is_over() {
        let mut limits = limits();
        let shown = (0..1000).filter(|_| limits.admit(1, "again", 7)).count();
        assert_eq!(shown, LOG_REPEATS_PER_SECOND as usize);
        assert_eq!(limits.take(7), [], "the second is not over");
        let left_out = Suppressed { lines: 1000 - shown as u64, sample: "again".into() };
        assert_eq!(limits.take(8), [left_out]);
        assert_eq!(limits.take(8), []);
        assert!(limits.admit(1, "again", 8));
    }

    #[test]
    fn what_was_left_out_is_not_forgotten_when_the_line_comes_again() {
        let mut limits = limits();
        let shown = (0..10).filter(|_| limits.admit(1, "again", 7)).count() as u64;
        assert!(limits.admit(1, "again", 9));
        assert_eq!(limits.take(10)[0].lines, 10 - shown);
    }

    #[test]
    fn different_lines_of_one_place_have_a_limit_of_their_own() {
        let mut limits = limits();
        let shown = (0..1000).filter(|n| limits.admit(1, &n.to_string(), 7)).count();
        assert_eq!(shown, LOG_LINES_PER_SECOND as usize);
        assert!(limits.admit(2, "another place", 7));
        assert_eq!(limits.take(8).iter().map(|s| s.lines).sum::<u64>(), 1000 - shown as u64);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut limits = limits();
        for second in 0..3 {
            for n in 0..10 * LOG_CAUSES {
                limits.admit((n % 7) as u8, &format!("{second} {n}"), second);
            }
            assert!(limits.windows.len() <= LOG_CAUSES + 7, "{}", limits.windows.len());
        }
    }
}

//! The slot's tubes as the supervisor wants to hear of them: the first by name, with their numbers.
//!
//! The core keeps its tubes in a list without order, and each is a cache miss or more. So a ping looks at a part of
//! the list (`TUBES_LOOKED_AT`), and a report comes when a round is over: at each ping where the slot has no more
//! tubes than that. From the last place to the first, because the core fills the place of a tube that goes with the
//! last one: what moves has been looked at already, or is met a second time, and nothing is missed.

use std::collections::BTreeMap;

use crate::core_ffi::{Engine, TubeStats};
use crate::limits::{FRAME_PAYLOAD_BYTES, TUBE_LINE_BYTES, TUBES_LOOKED_AT};
use crate::tube_figures::{Figures, Tube};

pub struct Survey {
    /// Most tubes of a report.
    most: usize,
    /// Places below this one are still to be looked at in this round. `None`: the next one begins.
    below: Option<usize>,
    /// `found.len() <= most`: the first by name of those that this round has met.
    found: BTreeMap<String, Figures>,
}

impl Survey {
    /// `most`: 0 if nobody wants to know.
    pub fn new(most: usize) -> Survey {
        Survey { most, below: None, found: BTreeMap::new() }
    }

    /// Looks at the next tubes. Payloads of the report's frames, if a round is over: one at least.
    pub fn look(&mut self, engine: &Engine) -> Vec<Vec<u8>> {
        if self.most == 0 {
            return Vec::new();
        }
        let count = engine.tube_count();
        // There may be fewer than when the round began.
        let end = self.below.unwrap_or(count).min(count);
        let begin = end.saturating_sub(TUBES_LOOKED_AT);
        for place in (begin..end).rev() {
            let name = engine.tube_name(place).and_then(|name| name.to_str().ok());
            if let Some(name) = name.filter(|name| self.belongs(name)) {
                self.found.insert(name.to_owned(), figures(&engine.tube_stats(place)));
                if self.found.len() > self.most {
                    self.found.pop_last();
                }
            }
        }
        self.below = Some(begin);
        if begin > 0 { Vec::new() } else { self.report() }
    }

    /// Among the first by name so far.
    fn belongs(&self, name: &str) -> bool {
        self.found.len() < self.most
            || self.found.last_key_value().is_some_and(|(last, _)| name <= last.as_str())
    }

    fn report(&mut self) -> Vec<Vec<u8>> {
        self.below = None;
        let mut frames = vec![Vec::new()];
        for (name, figures) in std::mem::take(&mut self.found) {
            if frames[frames.len() - 1].len() + TUBE_LINE_BYTES > FRAME_PAYLOAD_BYTES {
                frames.push(Vec::new());
            }
            let at = frames.len() - 1;
            Tube { name, figures }.write(&mut frames[at]);
        }
        frames
    }
}

fn figures(stats: &TubeStats) -> Figures {
    Figures {
        ready: stats.jobs_ready,
        reserved: stats.jobs_reserved,
        delayed: stats.jobs_delayed,
        buried: stats.jobs_buried,
        using: stats.using_clients,
        watching: stats.watching_clients,
        waiting: stats.waiting_clients,
        total_jobs: stats.total_jobs,
        pauses: stats.pauses,
    }
}

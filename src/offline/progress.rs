//! Shows on a terminal how far long work is; says nothing anywhere else.

use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress(ProgressBar);

impl Progress {
    /// Of so many bytes.
    pub fn bytes(doing: &'static str, total: u64) -> Progress {
        Progress::new(doing, total, "{msg} {wide_bar} {bytes}/{total_bytes} {eta}")
    }

    /// Of so many jobs.
    pub fn jobs(doing: &'static str, total: u64) -> Progress {
        Progress::new(doing, total, "{msg} {wide_bar} {human_pos}/{human_len} jobs {eta}")
    }

    fn new(doing: &'static str, total: u64, template: &str) -> Progress {
        // Draws on stderr, at most some twenty times a second, and not at all if that is no terminal.
        let style = ProgressStyle::with_template(template).expect("a template of ours");
        Progress(ProgressBar::new(total).with_style(style).with_message(doing))
    }

    pub fn advance(&self, by: u64) {
        self.0.inc(by);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

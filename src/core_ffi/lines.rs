//! What the core says for people, which stock writes to stderr: taken after calls into it, and never lost but
//! by a fault that ends the process in between.

use std::ffi::CStr;

use super::sys;

/// A line of the core, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub text: String,
    pub times: u64,
}

/// What was said since this was last called, each line once, in the order of their first times. For the thread
/// of the engine, started or not.
pub fn take_lines() -> impl Iterator<Item = Line> {
    std::iter::from_fn(|| {
        let mut line = sys::core_line { text: std::ptr::null(), times: 0 };
        // SAFETY: no call into C is under way on the one thread that makes any; the structure is ours.
        if unsafe { sys::core_next_line(&mut line) } == 0 {
            return None;
        }
        let text = match line.text.is_null() {
            true => "more lines of the core, all different".to_owned(),
            // SAFETY: NUL-terminated, and it stays until the core is called again.
            false => one_line(unsafe { CStr::from_ptr(line.text) }),
        };
        Some(Line { text, times: line.times })
    })
}

/// Whatever is in it: names of clients' tubes and of files are.
fn one_line(text: &CStr) -> String {
    text.to_string_lossy().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

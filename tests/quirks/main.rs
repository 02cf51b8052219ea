//! What the original does down to the byte, and that Trellis does it too.
//!
//! Each row is a script that runs on a fresh server three times: on the original (which proves the row), on Trellis
//! with one slot, and on Trellis with four. Rows whose subject several slots are allowed to change (the values of
//! ids, the order of tubes, a reserve over several tubes) leave the third out. Where Trellis deliberately mends the
//! original, a row has a second script for it. The rows' names are the module paths of the tests: `put::b04::on_legacy`.

#[path = "../support/mod.rs"]
mod support;

mod burying;
mod closing;
mod counting;
mod framing;
mod log;
mod numbers;
mod put;
mod reserving;
mod time;
mod tubes;
mod words;

use support::{Script, Setup, Variant};

fn run(variant: Variant, row: &str, story: &str, script: &Script) {
    println!("{row} on {variant:?}: {story}");
    script.run(Setup::of(variant));
}

/// A row for all three.
macro_rules! row {
    ($id:ident, $story:literal, $script:expr) => {
        mod $id {
            use super::*;
            #[test]
            fn on_legacy() {
                crate::run(Variant::Legacy, stringify!($id), $story, &$script);
            }
            #[test]
            fn on_trellis_1() {
                crate::run(Variant::TrellisOneSlot, stringify!($id), $story, &$script);
            }
            #[test]
            fn on_trellis_4() {
                crate::run(Variant::TrellisFourSlots, stringify!($id), $story, &$script);
            }
        }
    };
}

/// A row that several slots may change; `$why` says by what.
macro_rules! one_slot_row {
    ($id:ident, $why:literal, $story:literal, $script:expr) => {
        mod $id {
            use super::*;
            #[test]
            fn on_legacy() {
                crate::run(Variant::Legacy, stringify!($id), $story, &$script);
            }
            #[test]
            fn on_trellis_1() {
                crate::run(Variant::TrellisOneSlot, stringify!($id), $story, &$script);
            }
        }
    };
}

/// A row that Trellis mends: the original's script, then ours, which `$ours` explains.
macro_rules! mended_row {
    ($id:ident, $story:literal, $script:expr, $ours:literal, $mended:expr) => {
        mod $id {
            use super::*;
            #[test]
            fn on_legacy() {
                crate::run(Variant::Legacy, stringify!($id), $story, &$script);
            }
            #[test]
            fn on_trellis_1() {
                crate::run(Variant::TrellisOneSlot, stringify!($id), $ours, &$mended);
            }
            #[test]
            fn on_trellis_4() {
                crate::run(Variant::TrellisFourSlots, stringify!($id), $ours, &$mended);
            }
        }
    };
}

/// A row that Trellis mends and that several slots may change.
macro_rules! mended_one_slot_row {
    ($id:ident, $why:literal, $story:literal, $script:expr, $ours:literal, $mended:expr) => {
        mod $id {
            use super::*;
            #[test]
            fn on_legacy() {
                crate::run(Variant::Legacy, stringify!($id), $story, &$script);
            }
            #[test]
            fn on_trellis_1() {
                crate::run(Variant::TrellisOneSlot, stringify!($id), $ours, &$mended);
            }
        }
    };
}

/// A row that only chance decides on the original, and that holds on Trellis.
macro_rules! trellis_row {
    ($id:ident, $story:literal, $script:expr) => {
        mod $id {
            use super::*;
            #[test]
            fn on_trellis_1() {
                crate::run(Variant::TrellisOneSlot, stringify!($id), $story, &$script);
            }
            #[test]
            fn on_trellis_4() {
                crate::run(Variant::TrellisFourSlots, stringify!($id), $story, &$script);
            }
        }
    };
}

pub(crate) use {mended_one_slot_row, mended_row, one_slot_row, row, trellis_row};

/// Words that the rows share. A row's file starts with `use super::rows::*`.
mod rows {
    pub use super::support::script::one;
    pub use super::support::{Script, Variant};
    pub(crate) use super::{mended_one_slot_row, mended_row, one_slot_row, row, trellis_row};

    pub const A: &str = "A";
    pub const B: &str = "B";
    pub const C: &str = "C";
    pub const D: &str = "D";
    /// The one that puts, where others wait.
    pub const P: &str = "P";

    pub const BAD_FORMAT: &str = "BAD_FORMAT\r\n";
    pub const UNKNOWN: &str = "UNKNOWN_COMMAND\r\n";
    pub const NOT_FOUND: &str = "NOT_FOUND\r\n";
    pub const TOO_BIG: &str = "JOB_TOO_BIG\r\n";
    pub const NO_CRLF: &str = "EXPECTED_CRLF\r\n";

    /// A short command to see whether, and where, the server goes on reading commands: `CHECK` is its answer.
    pub const PROBE: &str = "list-tube-used\r\n";
    pub const CHECK: &str = "USING default\r\n";

    pub fn letters(letter: &str, count: usize) -> String {
        letter.repeat(count)
    }
}

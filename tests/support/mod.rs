//! The black-box tests' tools: start a real server, talk bytes to it, print what was said when a test fails.
//!
//! Used by every file under `tests/`. A server is one of two programs (`Binary`), lives in its own process
//! group and temporary directory, and is gone when its `Server` is dropped. Nothing here knows a reply: what
//! is right is said by the tests. All of it panics on trouble, since its callers are tests.

#![allow(dead_code, unused_imports, unused_macros)] // each test program uses its own part of the tools

pub mod binary;
pub mod children;
pub mod client;
pub mod process;
pub mod random;
pub mod routing;
pub mod script;
pub mod server;
pub mod stats;
pub mod tempdir;
pub mod template;

pub use binary::{Binary, Variant};
pub use children::{Child, Role};
pub use client::Client;
pub use random::Random;
pub use script::Script;
pub use server::{Exit, Server, Setup};
pub use stats::Stats;
pub use tempdir::TempDir;

use std::time::Duration;

/// Longest wait for something that must happen. Only a failing test waits this long, so it is generous enough
/// for a loaded machine.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// A time without a byte that counts as silence: long against a loopback reply (well under a millisecond),
/// short enough to have hundreds of them in a run. It can let a late byte pass; it can't fail a good server.
pub const QUIET: Duration = Duration::from_millis(50);

/// Makes a test of `fn $name(variant: Variant)` for each variant: `$name::on_legacy` and so on.
macro_rules! on_all_variants {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            use super::Variant;
            #[test]
            fn on_legacy() {
                super::$name(Variant::Legacy);
            }
            #[test]
            fn on_trellis_1() {
                super::$name(Variant::TrellisOneSlot);
            }
            #[test]
            fn on_trellis_4() {
                super::$name(Variant::TrellisFourSlots);
            }
        }
    )+ };
}

/// The same without four slots, for what depends on the values of ids or on the one log.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            use super::Variant;
            #[test]
            fn on_legacy() {
                super::$name(Variant::Legacy);
            }
            #[test]
            fn on_trellis_1() {
                super::$name(Variant::TrellisOneSlot);
            }
        }
    )+ };
}

pub(crate) use {on_all_variants, on_both};

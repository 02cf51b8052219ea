//! Which program a test runs: the original server or ours.
//!
//! The paths come from cargo; `TRELLIS_TEST_LEGACY` and `TRELLIS_TEST_TRELLIS` name other programs to put to the
//! same tests.

use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// The vendored C program, untouched: the reference.
    Legacy,
    Trellis,
}

impl Binary {
    pub const BOTH: [Binary; 2] = [Binary::Legacy, Binary::Trellis];

    pub fn path(self) -> PathBuf {
        let (variable, built) = match self {
            Binary::Legacy => ("TRELLIS_TEST_LEGACY", option_env!("CARGO_BIN_EXE_beanstalkd-legacy")),
            Binary::Trellis => ("TRELLIS_TEST_TRELLIS", option_env!("CARGO_BIN_EXE_trellis")),
        };
        match (std::env::var_os(variable), built) {
            (Some(path), _) => path.into(),
            (None, Some(path)) => path.into(),
            (None, None) => panic!("{self:?}: cargo builds no such program and {variable} is not set"),
        }
    }
}

/// A program together with the shape it is started in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    Legacy,
    /// Trellis as it starts without any flag of its own: one slot.
    TrellisOneSlot,
    TrellisFourSlots,
}

impl Variant {
    pub fn is_trellis(self) -> bool {
        self != Variant::Legacy
    }
}

//! Tools on data directories, without a server: what is in the logs, are they whole, copies in another shape.
//!
//! Called by the subcommands of `cli`. `data` finds the logs of a directory, `hold` keeps servers off it,
//! `check` and `dump` look, `repair` mends, `migrate` makes a copy of another shape and `verify` compares it;
//! what these make is `unfinished` first.
//! Reading never changes anything; what changes is said by the module that does it.

pub mod check;
mod copy;
mod data;
pub mod dump;
mod hold;
pub mod migrate;
mod progress;
pub mod repair;
mod unfinished;
mod verify;

pub use data::{DataDir, LogDir};

use std::env;
use std::io;
use std::path::PathBuf;

use crate::error::{Exit, Fatal};
use crate::topology::TopologyError;
use crate::wal::WalError;
use crate::wal::ids::IdsError;

impl From<WalError> for Fatal {
    fn from(error: WalError) -> Fatal {
        Fatal::new(Exit::of_data(error.source.kind()), error)
    }
}

impl From<IdsError> for Fatal {
    fn from(error: IdsError) -> Fatal {
        let exit = match &error {
            IdsError::Io { source, .. } => Exit::of_data(source.kind()),
            IdsError::Damaged { .. } => Exit::Data,
        };
        Fatal::new(exit, error)
    }
}

impl From<TopologyError> for Fatal {
    fn from(error: TopologyError) -> Fatal {
        Fatal::new(if error.is_permanent() { Exit::Data } else { Exit::Temporary }, error)
    }
}

/// Where those tools that make nothing have their temporary files: not in `/tmp` of their own accord, which is
/// memory on many machines.
fn room() -> PathBuf {
    env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

/// An error of the system about a path.
fn io_fatal(path: &std::path::Path, doing: &str, error: io::Error) -> Fatal {
    Fatal::new(Exit::of_data(error.kind()), format!("{}: {doing}: {error}", path.display()))
}

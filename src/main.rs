//! The `trellis` binary: arguments to a role, a role to an exit code.

fn main() {}

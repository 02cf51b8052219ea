//! The supervisor seen from outside: the real binary, its processes, its log and its exit codes.
//!
//! Every server has a port of its own, a directory of its own and its stderr as a pipe. All its processes hold
//! that pipe, so its end says that the last of them is gone. Nothing here sleeps: a test waits for a line of
//! the log, for the pipe's end, or for an exit, each with a limit that only a failure reaches.

mod claims;
mod inheritance;
mod life;
mod rig;
mod roles;

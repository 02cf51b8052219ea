//! Framed messages between the processes of one server: over *links* (a frontend and an owner) and over
//! *control channels* (the supervisor and each child).
//!
//! `header` is the fixed part of every frame, `link` turns bytes into frames and back without doing I/O,
//! `control` holds the messages of the control channel, `socket` is the one place that touches descriptors.
//! The byte tables and the frozen numbers are in `doc/ipc.md`.
//!
//! Architecture invariant: nothing here knows what a tube or a job is.

pub mod control;
pub mod header;
pub mod link;
pub mod socket;

pub use header::{Header, Kind, SessionId};
pub use link::{Frame, Inbox, Outbox, ProtocolError};

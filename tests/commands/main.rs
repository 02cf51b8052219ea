//! The commands, as clients use them: the same bytes to the original and to Trellis, and the same replies.
//!
//! `replies` compares the two servers reply by reply. `cuts` sends one session in all pieces that packets could make
//! of it. `load` has much of something: bytes, commands or connections.

#[path = "../support/mod.rs"]
mod support;

mod cuts;
mod load;
mod replies;
mod twins;

//! The frontend role: client connections, the protocol's framing, and the way of each command to its owner.
//!
//! Holds no jobs and no tubes: a session knows which tube it uses and which it watches, and which slots have a
//! virtual connection for it. Reply bytes come from the owners and pass through.
//!
//! Reading order: `session` (what a client connection is), `requests` (client bytes to frames), `replies`
//! (frames to client bytes), `references` (use, watch, ignore over slots), `probe` (ids that may live
//! anywhere), `waiting` (what is due by the clock), `outage` (an owner is gone), `overdue` (clients that
//! are cut off), `allowance` (what clients may take), `accepting` (who is let in), `event_loop` (sockets).
//! `owners` holds the links, `client` the client's socket, `stats` and `tube_list` the answers that are added
//! up here.

mod accepting;
mod alarms;
mod allowance;
mod client;
mod event_loop;
mod outage;
mod overdue;
mod owners;
mod probe;
mod references;
mod replies;
mod requests;
mod session;
mod stats;
mod tube_list;
mod waiting;
mod watch_list;

use crate::error::{Exit, Fatal};
use crate::ipc::control::Start;
use crate::ipc::socket::Channel;
use crate::scoreboard::Scoreboard;

/// Serves clients until the supervisor says stop or is gone.
pub fn run(mut channel: Channel, start: Start) -> Result<(), Fatal> {
    let missing = |what: &str| Fatal::new(Exit::Ipc, format!("{what} did not come with Start"));
    let board = channel.take_fd().ok_or_else(|| missing("the scoreboard"))?;
    let frontends = start.server.frontends;
    let seats = start.server.clients.seats(frontends);
    let board = Scoreboard::open(board, start.topology.slots as usize, frontends.into(), seats)
        .map_err(|e| Fatal::new(Exit::Ipc, e))?;
    let listeners = (0..start.listeners)
        .map(|_| {
            let fd = channel.take_fd().ok_or_else(|| missing("a listening socket"))?;
            client::Listener::new(fd).map_err(|e| Fatal::temporary("listening socket", e))
        })
        .collect::<Result<Vec<_>, Fatal>>()?;
    event_loop::Frontend::new(channel, &start, &board, listeners)
        .map_err(|e| Fatal::temporary("event loop", e))?
        .serve()
}

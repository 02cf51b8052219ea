//! A client connection as the frontend knows it.
//!
//! Invariants: all commands under way (`Pending::Remote`) are for one slot; each has a reply to come, in
//! order. A session has an attachment for each slot that holds a virtual connection for it, and no other. While
//! `barrier` is set nothing is begun: a change of references or a question to all owners is under way.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Instant;

use super::allowance::Allowance;
use super::client::{Output, Stream};
use super::owners::Owners;
use super::probe::Probe;
use super::stats::Facts;
use super::tube_list::TubeQuery;
use super::watch_list::WatchList;
use crate::ipc::control::Server;
use crate::ipc::{Kind, SessionId};
use crate::limits::{COMMAND_WINDOW_BYTES, OUTPUT_HOLD_BYTES};
use crate::protocol::TubeName;
use crate::scoreboard::{Field, Histogram, Record, Scoreboard, Seats};
use crate::topology::Topology;

/// What sessions share: the ways to the owners, and what is the same for all.
pub struct Context<'a> {
    pub owners: Owners,
    pub topology: &'a Topology,
    pub server: &'a Server,
    pub board: &'a Scoreboard,
    /// This frontend's own numbers.
    pub record: Record<'a>,
    pub allowance: Allowance,
    /// Where clients are from, of all frontends.
    pub seats: Seats<'a>,
    pub facts: Facts,
    pub default_tube: TubeName,
    /// Slots whose owner was too far behind when a command was to be begun: sessions wait for it to catch up.
    pub overfull: Vec<u16>,
    /// The last epoch given to a session or an attachment; none is used twice in a generation.
    pub last_epoch: u32,
    /// When the wake-up began whose events are dealt with; the same on the server's clock.
    pub now: Instant,
    pub clock: i64,
}

impl Context<'_> {
    /// A put whose body has not wholly come is on its way to its owner, which holds room for all of it.
    pub fn body_begins(&mut self, bytes: u64) {
        self.allowance.body_begins(bytes);
        self.record.set(Field::UnfinishedBytes, self.allowance.unfinished());
    }

    /// It has come, or its client is gone. Zero for a body that was whole from the start.
    pub fn body_ends(&mut self, bytes: u64) {
        if bytes > 0 {
            self.allowance.body_ends(bytes);
            self.record.set(Field::UnfinishedBytes, self.allowance.unfinished());
        }
    }

    pub fn next_epoch(&mut self) -> u32 {
        self.last_epoch = self.last_epoch.wrapping_add(1);
        self.last_epoch
    }

    /// A command's reply has come: counts how long that took, unless it was free to wait.
    pub fn answered(&self, remote: &Remote) {
        if !matches!(remote.what, What::Reserve { .. }) {
            self.record.observe(Histogram::RoundTrip, self.now.saturating_duration_since(remote.since));
        }
    }
}

pub struct Session {
    pub id: SessionId,
    pub stream: Stream,
    /// Bytes that came and could not be dealt with yet.
    pub input: Vec<u8>,
    pub mode: Mode,
    /// Declared bytes of the put's body that is on its way, if it did not come with its line.
    pub unfinished: u64,
    /// Since when its end is awaited (on the server's clock): of one that is thrown away as well.
    pub body_since: Option<i64>,
    /// When a byte was taken from the client or by it, or its owner had news (on the server's clock).
    pub active: i64,
    pub output: Output,
    pub used: TubeName,
    pub watched: WatchList,
    pub attachments: Vec<Attachment>,
    pub pending: VecDeque<Pending>,
    pub barrier: bool,
    pub query: Option<TubeQuery>,
    pub queries: u32,
    /// The next command waits for this slot to come back, since then (on the server's clock).
    pub waits_for: Option<(u16, i64)>,
    /// Commands under way wait to be sent again, since then (on the server's clock).
    pub outage: Option<i64>,
    /// A reserve over several slots was refused on this connection; the next refusal is due then.
    pub refused_before: bool,
    pub refusal_due: Option<i64>,
    /// What is set in the event loop's alarms.
    pub alarm: Option<i64>,
    /// The socket may have more to read, though no event will say so.
    pub readable: bool,
    /// The client has ended its sending half; what it sent before may still be unread. No reserve waits any
    /// more.
    pub fin: bool,
    /// Input is left that could not be begun.
    pub stalled: bool,
    /// Input is left because the client is behind with reading.
    pub held: bool,
    /// All that the client sent is read.
    pub half_closed: bool,
    /// `quit`: nothing more is read, and the connection closes after the replies before it.
    pub quitting: bool,
    /// The connection is to be closed now.
    pub dead: bool,
    pub producer: bool,
    pub worker: bool,
    /// It is in the event loop's list of sessions to look after.
    pub listed: bool,
}

/// What the next byte from the client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Of a command line.
    Line,
    /// Of a line that is too long.
    TooLong,
    /// Of a body on its way to a slot.
    Body { slot: u16, left: u64 },
    /// Of a body that is thrown away, and what is answered then.
    Skip { left: u64, reply: &'static [u8] },
}

/// A virtual connection of the session at a slot. Byte counts are modulo 2^32:
/// `acked <= sent_bytes <= acked + COMMAND_WINDOW_BYTES`, `credited <= received`.
pub struct Attachment {
    pub slot: u16,
    /// Tells it from earlier ones of the session at that slot, whose late frames mean nothing.
    pub epoch: u32,
    /// The owner has been told of it (its generation of now).
    pub established: bool,
    /// The client has the beginning of a reply whose end is still to come.
    pub partial: bool,
    /// Commands begun and answered.
    pub sent: u32,
    pub done: u32,
    /// Command bytes sent, and taken by the owner.
    pub sent_bytes: u32,
    pub acked: u32,
    /// Reply bytes received, and told to the owner as delivered.
    pub received: u32,
    pub credited: u32,
    /// Soonest end of a reservation there, on the server's clock; 0: none.
    pub deadline: i64,
}

/// A reply that the client is to get, in the order of its commands.
pub enum Pending {
    Remote(Remote),
    /// Made here, waiting for its turn; the command is counted then.
    Local {
        reply: Cow<'static, [u8]>,
        counter: Option<Field>,
    },
}

/// A command, or several alike, under way to a slot.
pub struct Remote {
    pub slot: u16,
    /// Number of the (last) command within the attachment.
    pub sequence: u32,
    /// When the first of them was sent first.
    pub since: Instant,
    pub what: What,
    /// A put that waits behind a reserve: its client is a producer once the reserve is over.
    pub produces: bool,
    /// The line, for commands that may be sent again to another generation; empty for others.
    pub line: Box<[u8]>,
}

pub enum What {
    /// Changes jobs: of unknown outcome when its owner dies. Several in a row are one entry.
    Change,
    /// Reads only.
    Read,
    /// `reserve`, when its time is over, and whether it was told DEADLINE_SOON.
    Reserve {
        until: Option<Instant>,
        cancelled: bool,
    },
    ReserveJob,
    Use(TubeName),
    Watch(TubeName),
    Ignore(TubeName),
    /// A command by an id that may live anywhere.
    Probe(Probe),
    /// The used tube's old owner lets go of it; then the client gets this reply.
    Park(Vec<u8>),
}

impl What {
    /// Whether its outcome is unknown when its owner dies before it answered.
    pub fn changes(&self) -> bool {
        match self {
            What::Change => true,
            What::Probe(probe) => probe.changes,
            _ => false,
        }
    }

    /// Whether its reply needs a look: such a command has its frame, and so its reply, to itself.
    pub fn is_special(&self) -> bool {
        !matches!(self, What::Change | What::Read | What::Reserve { .. })
    }
}

impl Attachment {
    pub fn new(slot: u16, epoch: u32) -> Attachment {
        Attachment {
            slot,
            epoch,
            established: false,
            partial: false,
            sent: 0,
            done: 0,
            sent_bytes: 0,
            acked: 0,
            received: 0,
            credited: 0,
            deadline: 0,
        }
    }

    /// Command bytes that may still be sent.
    pub fn window(&self) -> usize {
        COMMAND_WINDOW_BYTES.saturating_sub(self.sent_bytes.wrapping_sub(self.acked) as usize)
    }
}

impl Session {
    /// `clock`: the server's.
    pub fn new(id: SessionId, stream: Stream, default_tube: &TubeName, clock: i64) -> Session {
        Session {
            id,
            stream,
            input: Vec::new(),
            mode: Mode::Line,
            unfinished: 0,
            body_since: None,
            active: clock,
            output: Output::default(),
            used: default_tube.clone(),
            watched: WatchList::of(default_tube.clone()),
            attachments: Vec::with_capacity(1),
            pending: VecDeque::new(),
            barrier: false,
            query: None,
            queries: 0,
            waits_for: None,
            outage: None,
            refused_before: false,
            refusal_due: None,
            alarm: None,
            readable: true,
            fin: false,
            stalled: false,
            held: false,
            half_closed: false,
            quitting: false,
            dead: false,
            producer: false,
            worker: false,
            listed: false,
        }
    }

    pub fn attachment(&mut self, slot: u16) -> Option<&mut Attachment> {
        self.attachments.iter_mut().find(|a| a.slot == slot)
    }

    /// The slot that commands under way are for.
    pub fn flight(&self) -> Option<u16> {
        self.pending.iter().find_map(|p| match p {
            Pending::Remote(remote) => Some(remote.slot),
            _ => None,
        })
    }

    /// Attaches the session to the owner of `default`, which it uses and watches from the start.
    pub fn attach_default(&mut self, ctx: &mut Context<'_>) {
        let slot = ctx.topology.slot_of(self.used.as_bytes());
        self.attachments.push(Attachment::new(slot, ctx.next_epoch()));
        self.establish(ctx, slot);
    }

    /// The client sends no more. What it sent is still executed, but it must not wait in reserve.
    pub fn half_close(&mut self, ctx: &mut Context<'_>) {
        if std::mem::replace(&mut self.fin, true) {
            return;
        }
        if let Some(slot) = self.flight() {
            self.send_frame(ctx, slot, Kind::Cancel, 0, b"");
        }
    }

    /// Keeps what could not be dealt with yet, in not much more room than it needs: an idle client holds none.
    pub fn keep_input(&mut self, mut bytes: Vec<u8>) {
        if bytes.is_empty() || bytes.capacity() / 2 > bytes.len() {
            bytes.shrink_to_fit();
        }
        self.input = bytes;
    }

    /// Whether the client's socket is to be read. A client that does not read its replies is not read either.
    pub fn takes_input(&self) -> bool {
        !self.half_closed && !self.quitting && self.output.len() < OUTPUT_HOLD_BYTES
    }

    /// It was held up by unread replies, and is not any more.
    pub fn can_go_on(&self) -> bool {
        self.held && self.output.len() < OUTPUT_HOLD_BYTES
    }

    /// Nothing more will come of it: the client has ended it, and has all its replies.
    pub fn is_finished(&self) -> bool {
        let ended = self.quitting || (self.half_closed && !self.stalled && !self.held);
        ended
            && !self.barrier
            && self.output.is_empty()
            && (self.pending.is_empty() || (self.half_closed && self.lacks_body()))
    }

    pub fn is_producer(&mut self, record: Record<'_>) {
        if !std::mem::replace(&mut self.producer, true) {
            record.add(Field::Producers, 1);
        }
    }

    pub fn is_worker(&mut self, record: Record<'_>) {
        if !std::mem::replace(&mut self.worker, true) {
            record.add(Field::Workers, 1);
        }
    }

    /// Answers with bytes made here: at once, or when the replies before have come.
    pub fn answer(
        &mut self,
        record: Record<'_>,
        reply: impl Into<Cow<'static, [u8]>>,
        counter: Option<Field>,
    ) {
        let reply = reply.into();
        if self.pending.is_empty() {
            self.give(record, &reply, counter);
        } else {
            self.pending.push_back(Pending::Local { reply, counter });
        }
    }

    /// Gives the client a reply made here, and counts its command.
    pub fn give(&mut self, record: Record<'_>, reply: &[u8], counter: Option<Field>) {
        if let Some(counter) = counter {
            record.add(counter, 1);
        }
        self.output.push(reply);
    }
}

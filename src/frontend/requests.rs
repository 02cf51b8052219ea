//! Client bytes to frames: cuts the stream, routes each command, and sends what belongs together in one frame.
//!
//! Bytes of commands for one slot that follow each other are a *run*: it goes to the owner as it came, in as
//! few frames as it fits. What can't be begun now (another slot's replies are awaited, a window is full, a
//! slot is away) stays in the session's input, and `advance` is called again when that changes.

use std::time::{Duration, Instant};

use super::session::{Context, Mode, Pending, Remote, Session, What};
use super::tube_list::{TubeQuery, list};
use crate::ipc::header::{FLAG_PARK_WATCH, Header, Kind, SessionId};
use crate::limits::{FRAME_PAYLOAD_BYTES, LINE_BYTES, OUTPUT_HOLD_BYTES};
use crate::protocol::{Command, Discard, IdCommand, Line, command, discard, line};
use crate::scoreboard::{Field, Record};
use crate::topology::IdRoute;

pub const BAD_FORMAT: &[u8] = b"BAD_FORMAT\r\n";
pub const JOB_TOO_BIG: &[u8] = b"JOB_TOO_BIG\r\n";
pub const OUT_OF_MEMORY: &[u8] = b"OUT_OF_MEMORY\r\n";
pub const UNKNOWN_COMMAND: &[u8] = b"UNKNOWN_COMMAND\r\n";
pub const INTERNAL_ERROR: &[u8] = b"INTERNAL_ERROR\r\n";

/// Bytes of the input that go to a slot as they are: from `start` to where the reader is.
#[derive(Clone, Copy)]
struct Run {
    slot: u16,
    start: usize,
    /// It holds a reserve: a half-closed client must not wait in it.
    reserves: bool,
}

/// The input as `advance` reads it.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    run: Option<Run>,
}

/// Whether a command was begun; if not, it stays where it is.
#[derive(PartialEq, Eq)]
enum Begun {
    Yes,
    /// Its bytes are part of the run.
    InRun,
    No,
}

impl Session {
    /// Deals with `bytes`, as far as that goes now, and says how many that were.
    pub fn advance(&mut self, ctx: &mut Context<'_>, bytes: &[u8]) -> usize {
        let mut reader = Reader { bytes, at: 0, run: None };
        if std::mem::take(&mut self.stalled) && self.body_since.is_some() {
            self.body_since = Some(ctx.clock);
        }
        self.held = false;
        while !self.quitting {
            self.stalled = self.barrier;
            self.held = self.output.len() >= OUTPUT_HOLD_BYTES;
            if self.stalled || self.held || !self.step(ctx, &mut reader) {
                break;
            }
        }
        self.send_run(ctx, &mut reader);
        if self.quitting { bytes.len() } else { reader.at }
    }

    /// One line, or one piece of something longer. `false`: nothing more can be done now.
    fn step(&mut self, ctx: &mut Context<'_>, reader: &mut Reader<'_>) -> bool {
        let rest = &reader.bytes[reader.at..];
        match self.mode {
            Mode::Line => match line(rest) {
                Line::Incomplete => return false,
                Line::TooLong => {
                    self.send_run(ctx, reader);
                    self.mode = Mode::TooLong;
                    reader.at += LINE_BYTES;
                }
                Line::Whole(length) => {
                    let begun = self.begin(ctx, reader, &rest[..length]);
                    if begun == Begun::No {
                        self.stalled = true;
                        return false;
                    }
                    self.waits_for = None;
                    reader.at += length;
                    if begun == Begun::InRun && self.last_is_special() {
                        self.send_run(ctx, reader);
                    }
                }
            },
            Mode::TooLong => match discard(rest) {
                Discard::Incomplete => return false,
                Discard::Window => reader.at += LINE_BYTES,
                Discard::Ends(length) => {
                    reader.at += length;
                    self.mode = Mode::Line;
                    self.answer(ctx.record, BAD_FORMAT, None);
                }
            },
            Mode::Body { slot, left } => {
                if reader.run.is_none() {
                    reader.run = Some(Run { slot, start: reader.at, reserves: false });
                }
                let room = self.room(reader) as u64;
                let piece = left.min(rest.len() as u64).min(room);
                if piece == 0 {
                    self.stalled = !rest.is_empty();
                    return false;
                }
                reader.at += piece as usize;
                let left = left - piece;
                self.mode = if left == 0 { Mode::Line } else { Mode::Body { slot, left } };
                if left == 0 {
                    self.body_since = None;
                    ctx.body_ends(std::mem::take(&mut self.unfinished));
                }
            }
            Mode::Skip { left, reply } => {
                let piece = left.min(rest.len() as u64);
                if piece == 0 {
                    return false;
                }
                reader.at += piece as usize;
                let left = left - piece;
                self.mode = if left == 0 { Mode::Line } else { Mode::Skip { left, reply } };
                if left == 0 {
                    self.body_since = None;
                    self.answer(ctx.record, reply, None);
                }
            }
        }
        true
    }

    /// Command bytes that the run may still take.
    fn room(&mut self, reader: &Reader<'_>) -> usize {
        let Some(run) = reader.run else { return 0 };
        let taken = reader.at - run.start;
        self.attachment(run.slot).map_or(0, |a| a.window().saturating_sub(taken))
    }

    fn last_is_special(&self) -> bool {
        matches!(self.pending.back(), Some(Pending::Remote(remote)) if remote.what.is_special())
    }

    /// Begins the command of `line` (with its CR LF), if it can be begun now.
    fn begin(&mut self, ctx: &mut Context<'_>, reader: &mut Reader<'_>, line: &[u8]) -> Begun {
        let text = &line[..line.len() - 2];
        let command = command(text, ctx.server.job_bytes);
        let refused = ctx.server.clients.refused;
        if !refused.is_empty() && command != Command::Other && refused.has_word_of(text) {
            return self.refuse_command(ctx, reader, &command);
        }
        let used_slot = ctx.topology.slot_of(self.used.as_bytes());
        match command {
            Command::Put { body } => self.put(ctx, reader, used_slot, line, body.into()),
            Command::PutTooBig { body } => {
                self.refuse_put(ctx, reader, body.into(), JOB_TOO_BIG, Some(Field::CmdPut))
            }
            Command::Other | Command::PeekUsed => self.in_run(ctx, reader, used_slot, line, What::Read),
            Command::KickUsed => self.in_run(ctx, reader, used_slot, line, What::Change),
            Command::ByTube { tube, reads } => {
                let what = if reads { What::Read } else { What::Change };
                self.in_run(ctx, reader, ctx.topology.slot_of(tube.as_bytes()), line, what)
            }
            Command::ById { id, command } => {
                let IdRoute::Slot(slot) = ctx.topology.owner_of_id(id) else {
                    return self
                        .alone(ctx, reader, |s, ctx| s.begin_probe(ctx, line, command == IdCommand::Change));
                };
                let what = match command {
                    IdCommand::Peek | IdCommand::StatsJob => What::Read,
                    IdCommand::ReserveJob => What::ReserveJob,
                    IdCommand::Change => What::Change,
                };
                self.in_run(ctx, reader, slot, line, what)
            }
            Command::Reserve { timeout } => self.reserve(ctx, reader, line, timeout),
            Command::Use(tube) => self.alone(ctx, reader, |s, ctx| s.begin_use(ctx, line, tube)),
            Command::Watch(tube) => self.alone(ctx, reader, |s, ctx| s.begin_watch(ctx, line, tube)),
            Command::Ignore(tube) => self.alone(ctx, reader, |s, ctx| s.begin_ignore(ctx, line, tube)),
            Command::ListTubes => self.alone(ctx, reader, |s, ctx| s.begin_list_tubes(ctx)),
            Command::ListTubeUsed => {
                self.send_run(ctx, reader);
                let reply = format!("USING {}\r\n", self.used).into_bytes();
                self.answer(ctx.record, reply, Some(Field::CmdListTubeUsed));
                Begun::Yes
            }
            Command::ListTubesWatched => {
                self.send_run(ctx, reader);
                let reply = list(self.watched.iter().map(|t| t.as_bytes()));
                self.answer(ctx.record, reply, Some(Field::CmdListTubesWatched));
                Begun::Yes
            }
            // Alone, so that it shows what came before it and nothing of what comes behind.
            Command::Stats => self.alone(ctx, reader, |s, ctx| {
                ctx.record.add(Field::CmdStats, 1);
                s.output.push(&ctx.facts.render(ctx.board, ctx.server));
                true
            }),
            Command::Quit => self.alone(ctx, reader, |s, _| {
                s.quitting = true;
                true
            }),
        }
    }

    /// A body that is not there wholly is room taken at the owner for as long as its client likes: there is
    /// only so much of it for all clients of this frontend.
    fn put(
        &mut self,
        ctx: &mut Context<'_>,
        reader: &mut Reader<'_>,
        slot: u16,
        line: &[u8],
        body: u64,
    ) -> Begun {
        let is_whole = (reader.bytes.len() - reader.at - line.len()) as u64 >= body + 2;
        if !is_whole && !ctx.allowance.allows_body(body) {
            ctx.record.add(Field::RefusedBodies, 1);
            self.is_producer(ctx.record);
            return self.refuse_put(ctx, reader, body, OUT_OF_MEMORY, Some(Field::CmdPut));
        }
        if !self.join(ctx, reader, slot, line, What::Change) {
            return Begun::No;
        }
        self.produce(ctx.record);
        self.mode = Mode::Body { slot, left: body + 2 };
        self.body_since = Some(ctx.clock);
        if !is_whole {
            self.unfinished = body;
            ctx.body_begins(body);
        }
        Begun::InRun
    }

    /// The operator does not want this command: its client is told that there is no such one.
    fn refuse_command(&mut self, ctx: &mut Context<'_>, reader: &mut Reader<'_>, command: &Command) -> Begun {
        ctx.record.add(Field::RefusedCommands, 1);
        if let Command::Put { body } | Command::PutTooBig { body } = *command {
            return self.refuse_put(ctx, reader, body.into(), UNKNOWN_COMMAND, None);
        }
        self.send_run(ctx, reader);
        self.answer(ctx.record, UNKNOWN_COMMAND, None);
        Begun::Yes
    }

    /// Throws a put's body away and answers then. `counter`: as what it counts.
    fn refuse_put(
        &mut self,
        ctx: &mut Context<'_>,
        reader: &mut Reader<'_>,
        body: u64,
        reply: &'static [u8],
        counter: Option<Field>,
    ) -> Begun {
        self.send_run(ctx, reader);
        // Counted in its turn, like any put: not when the last of what is thrown away has come.
        self.answer(ctx.record, b"".as_slice(), counter);
        self.mode = Mode::Skip { left: body + 2, reply };
        self.body_since = Some(ctx.clock);
        Begun::Yes
    }

    fn reserve(
        &mut self,
        ctx: &mut Context<'_>,
        reader: &mut Reader<'_>,
        line: &[u8],
        timeout: Option<u32>,
    ) -> Begun {
        let slot = if ctx.topology.slots == 1 {
            0
        } else if let Some(tube) = self.watched.only() {
            ctx.topology.slot_of(tube.as_bytes())
        } else {
            self.is_worker(ctx.record);
            return self.alone(ctx, reader, |s, ctx| {
                s.refuse_multi_watch(ctx);
                true
            });
        };
        let until = timeout.map(|s| Instant::now() + Duration::from_secs(s.into()));
        let begun = self.in_run(ctx, reader, slot, line, What::Reserve { until, cancelled: false });
        if begun == Begun::InRun {
            self.is_worker(ctx.record);
            if let Some(run) = &mut reader.run {
                run.reserves = true;
            }
        }
        begun
    }

    fn in_run(
        &mut self,
        ctx: &mut Context<'_>,
        reader: &mut Reader<'_>,
        slot: u16,
        line: &[u8],
        what: What,
    ) -> Begun {
        if self.join(ctx, reader, slot, line, what) { Begun::InRun } else { Begun::No }
    }

    /// Makes a command for `slot` part of the run, if it can be begun now.
    fn join(
        &mut self,
        ctx: &mut Context<'_>,
        reader: &mut Reader<'_>,
        slot: u16,
        line: &[u8],
        what: What,
    ) -> bool {
        if reader.run.is_some_and(|run| run.slot != slot || what.is_special()) {
            self.send_run(ctx, reader);
        }
        if self.flight().is_some_and(|flight| flight != slot) || !self.reach(ctx, slot) {
            return false;
        }
        let run = *reader.run.get_or_insert(Run { slot, start: reader.at, reserves: false });
        if self.room(reader) < line.len() {
            if run.start == reader.at {
                reader.run = None;
            }
            return false;
        }
        self.expect(ctx.now, slot, line, what);
        true
    }

    /// Notes that a command of this slot is under way.
    pub fn expect(&mut self, since: Instant, slot: u16, line: &[u8], what: What) {
        let attachment = self.attachment(slot).expect("attached before a command is sent");
        attachment.sent = attachment.sent.wrapping_add(1);
        let sequence = attachment.sent;
        if let (What::Change, Some(Pending::Remote(last @ Remote { what: What::Change, .. }))) =
            (&what, self.pending.back_mut())
        {
            last.sequence = sequence;
            return;
        }
        let line = if matches!(what, What::Change) { Box::default() } else { line.into() };
        self.pending.push_back(Pending::Remote(Remote {
            slot,
            sequence,
            since,
            what,
            produces: false,
            line,
        }));
    }

    /// A put has joined the run. Its client is a producer when the owner begins it: at once, unless a reserve
    /// may wait before it.
    fn produce(&mut self, record: Record<'_>) {
        if self.producer || !self.reserves() {
            self.is_producer(record);
        } else if let Some(Pending::Remote(put)) = self.pending.back_mut() {
            put.produces = true;
        }
    }

    /// Sends the run and ends it.
    fn send_run(&mut self, ctx: &mut Context<'_>, reader: &mut Reader<'_>) {
        let Some(run) = reader.run.take() else { return };
        self.send_bytes(ctx, run.slot, &reader.bytes[run.start..reader.at], 0);
        if run.reserves && self.fin {
            self.send_frame(ctx, run.slot, Kind::Cancel, 0, b"");
        }
    }

    /// Sends command bytes, in as many frames as they need.
    pub fn send_bytes(&mut self, ctx: &mut Context<'_>, slot: u16, bytes: &[u8], flags: u16) {
        for chunk in bytes.chunks(FRAME_PAYLOAD_BYTES) {
            self.send_frame(ctx, slot, Kind::Command, flags, chunk);
        }
    }

    /// Sends one frame over an attachment, with what it owes in acknowledgement. Over a link that is down it
    /// goes nowhere: the session hears of that from `slot_down`.
    pub fn send_frame(&mut self, ctx: &mut Context<'_>, slot: u16, kind: Kind, flags: u16, payload: &[u8]) {
        let index = self.id.index;
        let undelivered = self.output.len() as u32;
        let Some(attachment) = self.attachment(slot) else { return };
        let id = SessionId { index, epoch: attachment.epoch };
        let Some(outbox) = ctx.owners.outbox(slot) else { return };
        attachment.acknowledge(undelivered);
        attachment.sent_bytes = attachment.sent_bytes.wrapping_add(payload.len() as u32);
        let mut header = Header::new(kind, id, attachment.sent);
        header.flags = flags;
        header.ack = attachment.credited;
        outbox.push(header, payload);
    }

    /// Runs something that must have all earlier replies in, and the run to itself.
    fn alone(
        &mut self,
        ctx: &mut Context<'_>,
        reader: &mut Reader<'_>,
        begin: impl FnOnce(&mut Session, &mut Context<'_>) -> bool,
    ) -> Begun {
        self.send_run(ctx, reader);
        if self.pending.is_empty() && begin(self, ctx) { Begun::Yes } else { Begun::No }
    }

    /// Asks all owners for their tubes.
    fn begin_list_tubes(&mut self, ctx: &mut Context<'_>) -> bool {
        for slot in 0..ctx.owners.count() {
            if !self.available(ctx, slot) {
                return false;
            }
        }
        ctx.record.add(Field::CmdListTubes, 1);
        self.queries = self.queries.wrapping_add(1);
        self.query = Some(TubeQuery::new(self.queries, ctx.owners.count()));
        self.barrier = true;
        for slot in 0..ctx.owners.count() {
            self.ask_tubes(ctx, slot);
        }
        true
    }

    /// Asks one owner for its tubes, as part of the question under way.
    pub fn ask_tubes(&mut self, ctx: &mut Context<'_>, slot: u16) {
        if let Some(outbox) = ctx.owners.outbox(slot) {
            outbox.push(Header::new(Kind::Query, self.id, self.queries), b"");
        }
    }

    /// Sends a reference command on its own; its reply is looked at in `references`.
    pub fn send_alone(&mut self, ctx: &mut Context<'_>, slot: u16, line: &[u8], what: What, park: bool) {
        self.expect(ctx.now, slot, line, what);
        self.send_bytes(ctx, slot, line, if park { FLAG_PARK_WATCH } else { 0 });
        self.barrier = true;
    }
}

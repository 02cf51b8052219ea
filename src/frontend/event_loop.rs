//! The frontend's event loop: listening sockets, clients, links, the control channel.
//!
//! A wake-up takes what has come from everybody, deals with it, and then writes once to each owner and each
//! client that there is something for. Clients come first: what those that were just answered send at once
//! still joins the write to its owner, for waking a process costs more than most commands. All sockets are
//! edge-triggered: what is left unread is remembered, and no state of a socket can keep the loop spinning.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use nix::sys::resource::{Resource, getrlimit};
use slab::Slab;
use tracing::{info, warn};

use super::accepting::Door;
use super::alarms::Alarms;
use super::allowance::{Allowance, Place};
use super::client::Listener;
use super::owners::Owners;
use super::session::{Context, Session};
use super::stats::Facts;
use crate::error::{Exit, Fatal};
use crate::ipc::control::{self, LinkHello, Peer, Role, Start};
use crate::ipc::header::Kind;
use crate::ipc::socket::{Channel, Link, Progress};
use crate::ipc::{Header, Inbox, SessionId};
use crate::limits::{CLIENT_READ_BYTES, EVENTS, LINK_LOSS, ROUNDS_PER_SEND, SLOTS_MAX};
use crate::log;
use crate::protocol::TubeName;
use crate::scoreboard::{Field, Scoreboard, Usage};

const CONTROL: Token = Token(0);
/// Tokens of listening sockets, links and clients: these and the number of each.
const FIRST_LISTENER: usize = 1;
const FIRST_LINK: usize = 64;
pub(super) const FIRST_CLIENT: usize = FIRST_LINK + SLOTS_MAX as usize;

pub struct Frontend<'a> {
    pub(super) poll: Poll,
    channel: Channel,
    start: &'a Start,
    pub(super) ctx: Context<'a>,
    pub(super) listeners: Vec<Listener>,
    pub(super) door: Door,
    inboxes: Vec<Receiver>,
    pub(super) sessions: Slab<Session>,
    /// Sessions to look after in this round.
    list: Vec<usize>,
    /// Clients that the last round has written to, and rounds since the owners were.
    answered: usize,
    rounds: u32,
    room: Vec<u8>,
    alarms: Alarms,
    usage: Usage<'a>,
    /// Links that ended though nobody has said that their owner did, and until when that is borne.
    unexplained: Vec<(u16, Instant)>,
    stopping: bool,
}

/// The receiving half of a slot's link.
#[derive(Default)]
struct Receiver {
    inbox: Inbox,
    /// The owner's first frame came and names our topology.
    greeted: bool,
    /// There may be more to read, though no event will say so.
    more: bool,
}

impl<'a> Frontend<'a> {
    pub fn new(
        mut channel: Channel,
        start: &'a Start,
        board: &'a Scoreboard,
        mut listeners: Vec<Listener>,
    ) -> io::Result<Frontend<'a>> {
        let poll = Poll::new()?;
        poll.registry().register(&mut channel.stream, CONTROL, Interest::READABLE | Interest::WRITABLE)?;
        for (number, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(FIRST_LISTENER + number))?;
        }
        let record = board.frontend(start.index);
        let place = Place { number: start.index, frontends: start.server.frontends };
        let (descriptors, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let slots = start.topology.slots;
        let allowance = Allowance::new(&start.server.clients, place, descriptors, slots);
        record.set(Field::ClientsMax, allowance.connections() as u64);
        let ctx = Context {
            owners: Owners::new(start.topology.slots),
            topology: &start.topology,
            server: &start.server,
            board,
            record,
            allowance,
            seats: board.seats(start.index),
            facts: Facts::gather()?,
            default_tube: TubeName::new(b"default").expect("a valid name"),
            overfull: Vec::new(),
            last_epoch: 0,
            now: Instant::now(),
            clock: start.server.clock_now(),
        };
        Ok(Frontend {
            poll,
            channel,
            start,
            ctx,
            listeners,
            door: Door::default(),
            inboxes: (0..start.topology.slots).map(|_| Receiver::default()).collect(),
            sessions: Slab::new(),
            list: Vec::new(),
            answered: 0,
            rounds: 0,
            room: vec![0; 2 * CLIENT_READ_BYTES],
            alarms: Alarms::default(),
            usage: Usage::new(record),
            unexplained: Vec::new(),
            stopping: false,
        })
    }

    pub fn serve(mut self) -> Result<(), Fatal> {
        let mut events = Events::with_capacity(EVENTS);
        let mut timeout = Some(Duration::ZERO);
        while !self.stopping {
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(Fatal::temporary("epoll", e)),
                _ => {}
            }
            self.ctx.now = Instant::now();
            self.ctx.clock = self.start.server.clock_now();
            for event in &events {
                match event.token() {
                    CONTROL => self.control()?,
                    Token(token) if token < FIRST_LINK => self.door.knocked = true,
                    Token(token) if token < FIRST_CLIENT => {
                        self.inboxes[token - FIRST_LINK].more |=
                            event.is_readable() || event.is_read_closed();
                    }
                    Token(token) => {
                        let key = token - FIRST_CLIENT;
                        if let Some(session) = self.sessions.get_mut(key) {
                            session.readable |= event.is_readable() || event.is_read_closed();
                            if event.is_read_closed() {
                                session.half_close(&mut self.ctx);
                            }
                            session.dead |= event.is_error();
                            self.look_after(key);
                        }
                    }
                }
            }
            for slot in 0..self.ctx.owners.count() {
                if self.inboxes[usize::from(slot)].more {
                    self.receive(slot)?;
                }
            }
            self.accept();
            if let Some((slot, _)) = self.unexplained.iter().find(|(_, until)| *until <= Instant::now()) {
                let reason = "closed by an owner that lives on";
                return Err(Fatal::new(Exit::Ipc, format!("link to slot {slot}: {reason}")));
            }
            self.ring();
            self.round();
            if self.more_is_likely() {
                timeout = Some(Duration::ZERO);
                continue;
            }
            self.send()?;
            self.usage.publish();
            timeout = self.timeout();
        }
        Ok(())
    }

    /// Looks after every session that something happened to.
    fn round(&mut self) {
        self.answered = 0;
        let mut list = std::mem::take(&mut self.list);
        for key in list.drain(..) {
            if self.sessions.contains(key) {
                self.sessions[key].listed = false;
                self.serve_client(key);
            }
        }
        list.append(&mut self.list);
        self.list = list;
    }

    /// One client alone would only wait longer for it.
    fn more_is_likely(&mut self) -> bool {
        self.rounds += 1;
        self.answered > 1 && self.rounds < ROUNDS_PER_SEND && !self.stopping
    }

    /// Sends to the owners, and goes on with clients that waited for a link to have room.
    fn send(&mut self) -> Result<(), Fatal> {
        self.rounds = 0;
        for slot in self.ctx.owners.send(self.poll.registry(), link_token) {
            self.drain(slot)?;
            if self.ctx.owners.is_up(slot) {
                self.link_lost(slot);
            }
        }
        let owners = &self.ctx.owners;
        let before = self.ctx.overfull.len();
        self.ctx.overfull.retain(|&slot| owners.is_full(slot));
        if self.ctx.overfull.len() < before {
            self.look_after_all(|session| session.stalled);
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if self.can_accept() || !self.list.is_empty() || self.inboxes.iter().any(|i| i.more) {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let clock = self.start.server.clock_now();
        let alarm = self.alarms.next().map(|at| Duration::from_nanos((at - clock).max(0) as u64));
        let unexplained = self.unexplained.iter().map(|(_, until)| *until).min();
        let others = [self.door.paused, unexplained].into_iter().flatten().min();
        others.map(|at| at.saturating_duration_since(now)).into_iter().chain(alarm).min()
    }

    pub(super) fn look_after(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        if !std::mem::replace(&mut session.listed, true) {
            self.list.push(key);
        }
    }

    fn look_after_all(&mut self, which: impl Fn(&Session) -> bool) {
        let keys: Vec<usize> = self.sessions.iter().filter(|(_, s)| which(s)).map(|(key, _)| key).collect();
        for key in keys {
            self.look_after(key);
        }
    }

    // ---- clients ----

    /// Reads what the client sent, deals with it and with what was left before, and sends its replies.
    fn serve_client(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        session.on_time(&mut self.ctx);
        if !session.dead {
            self.read_client(key);
        }
        let session = &mut self.sessions[key];
        if !session.dead {
            session.release_idle(&mut self.ctx);
            let unsent = session.output.len();
            session.dead |= session.output.flush(&mut session.stream).is_err();
            if session.output.len() < unsent {
                self.answered += 1;
                session.active = self.ctx.clock;
            }
            session.credit_owners(&mut self.ctx);
            session.dead |= session.is_finished();
            session.on_time(&mut self.ctx);
            let wanted = session.next_alarm(&self.ctx);
            self.alarms.set(key, &mut session.alarm, wanted);
        }
        if session.dead {
            self.close(key);
        } else if (session.readable && session.input.len() < CLIENT_READ_BYTES && session.takes_input())
            || session.can_go_on()
        {
            self.look_after(key);
        }
    }

    fn read_client(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        let mut have = session.input.len();
        let mut whole = std::mem::take(&mut session.input);
        if have > CLIENT_READ_BYTES || !session.readable || !session.takes_input() {
            let used = session.advance(&mut self.ctx, &whole);
            whole.drain(..used);
            session.keep_input(whole);
            return;
        }
        let room = &mut self.room;
        room[..have].copy_from_slice(&whole);
        let space = &mut room[have..have + CLIENT_READ_BYTES];
        match session.stream.read(space) {
            Ok(Some(0)) => {
                session.readable = false;
                session.half_closed = true;
                session.half_close(&mut self.ctx);
            }
            Ok(Some(n)) => {
                // Less than there was room for: the socket is empty, and an event will say when it is not.
                session.readable = n == CLIENT_READ_BYTES || session.fin;
                session.active = self.ctx.clock;
                have += n;
            }
            Ok(None) => session.readable = false,
            Err(_) => {
                session.dead = true;
                return;
            }
        }
        let used = session.advance(&mut self.ctx, &room[..have]);
        whole.clear();
        whole.extend_from_slice(&room[used..have]);
        session.keep_input(whole);
    }

    fn close(&mut self, key: usize) {
        let mut session = self.sessions.remove(key);
        self.alarms.set(key, &mut session.alarm, None);
        session.detach_all(&mut self.ctx);
        self.ctx.body_ends(session.unfinished);
        self.leave_seat(key);
        let record = self.ctx.record;
        record.subtract(Field::Connections, 1);
        record.subtract(Field::Producers, session.producer.into());
        record.subtract(Field::Workers, session.worker.into());
    }

    // ---- owners ----

    fn receive(&mut self, slot: u16) -> Result<(), Fatal> {
        let side = &mut self.inboxes[usize::from(slot)];
        let progress = self.ctx.owners.receive(slot, &mut side.inbox);
        side.more = progress == Progress::More;
        let fault = loop {
            match side.inbox.next() {
                Ok(None) => break None,
                Ok(Some(frame)) if !side.greeted => {
                    if frame.header.kind != Kind::LinkHello || !greets(frame.payload, slot, self.start) {
                        break Some("its hello names another topology".to_owned());
                    }
                    side.greeted = true;
                }
                Ok(Some(frame)) => {
                    let key = frame.header.session.index as usize;
                    if let Some(session) = self.sessions.get_mut(key) {
                        session.frame(&mut self.ctx, slot, frame);
                        if !std::mem::replace(&mut session.listed, true) {
                            self.list.push(key);
                        }
                    }
                }
                Err(e) => break Some(e.to_string()),
            }
        };
        if let Some(reason) = fault {
            // Nobody makes a second link to the same generation: a new generation of ours gets one.
            return Err(Fatal::new(Exit::Ipc, format!("link to slot {slot}: {reason}")));
        }
        if progress == Progress::Gone {
            self.link_lost(slot);
        }
        Ok(())
    }

    /// Reads what the end of a link still holds: answers that were on their way count.
    fn drain(&mut self, slot: u16) -> Result<(), Fatal> {
        self.inboxes[usize::from(slot)].more = true;
        while self.ctx.owners.is_up(slot) && std::mem::take(&mut self.inboxes[usize::from(slot)].more) {
            self.receive(slot)?;
        }
        Ok(())
    }

    /// The other end has closed a link. If its owner lives on, it found us at fault, and only a new
    /// generation of ours gets a new link.
    fn link_lost(&mut self, slot: u16) {
        info!(slot, "link down");
        self.unexplained.push((slot, Instant::now() + LINK_LOSS));
        self.slot_down(slot);
    }

    /// The supervisor has seen an owner's end.
    fn owner_ended(&mut self, payload: &[u8]) -> Result<(), Fatal> {
        match control::decode::<Peer>(Kind::LinkDown, payload) {
            Ok(who) if who.index < self.ctx.owners.count() => {
                self.drain(who.index)?;
                self.slot_down(who.index);
                self.unexplained.retain(|(slot, _)| *slot != who.index);
            }
            _ => warn!("LinkDown without peer"),
        }
        Ok(())
    }

    fn slot_down(&mut self, slot: u16) {
        if !self.ctx.owners.is_up(slot) {
            return;
        }
        self.ctx.owners.down(slot);
        self.inboxes[usize::from(slot)] = Receiver::default();
        for (_, session) in &mut self.sessions {
            session.slot_down(&mut self.ctx, slot);
        }
        self.look_after_all(|_| true);
    }

    fn slot_up(&mut self, payload: &[u8]) -> Result<(), Fatal> {
        let (who, fd) = match (control::decode::<Peer>(Kind::LinkUp, payload), self.channel.take_fd()) {
            (Ok(who), Some(fd)) if who.index < self.ctx.owners.count() => (who, fd),
            _ => return Err(Fatal::new(Exit::Ipc, "LinkUp without peer or descriptor")),
        };
        self.drain(who.index)?;
        self.slot_down(who.index);
        self.unexplained.retain(|(slot, _)| *slot != who.index);
        let hello = LinkHello {
            role: Role::Frontend,
            index: self.start.index,
            fingerprint: self.start.topology.fingerprint().to_string(),
        };
        let token = link_token(who.index);
        let inbox = Link::new(fd, self.start.generation, who.generation).and_then(|mut link| {
            link.outbox.push(Header::new(Kind::LinkHello, SessionId::default(), 0), &control::encode(&hello));
            self.ctx.owners.up(who.index, link, self.poll.registry(), token)
        });
        match inbox {
            Ok(inbox) => {
                self.inboxes[usize::from(who.index)] = Receiver { inbox, greeted: false, more: true };
            }
            Err(error) => return Err(Fatal::temporary("link", error)),
        }
        info!(slot = who.index, generation = who.generation, "link up");
        for (_, session) in &mut self.sessions {
            session.slot_up(&mut self.ctx, who.index);
        }
        self.look_after_all(|_| true);
        Ok(())
    }

    /// Looks after sessions whose alarm is due.
    fn ring(&mut self) {
        if self.alarms.next().is_some() {
            for key in self.alarms.due(self.start.server.clock_now()) {
                self.look_after(key);
            }
        }
    }

    // ---- the supervisor ----

    /// Publishes what would cost too much to keep up to date with each command.
    fn sample(&mut self) {
        let in_flight = self.sessions.iter().flat_map(|(_, session)| &session.attachments);
        let in_flight: u64 = in_flight.map(|a| u64::from(a.sent.wrapping_sub(a.done))).sum();
        self.ctx.record.set(Field::InFlight, in_flight);
        self.ctx.record.set(Field::LinkQueued, self.ctx.owners.queued() as u64);
    }

    fn control(&mut self) -> Result<(), Fatal> {
        let progress = self.channel.receive();
        loop {
            let (kind, payload) = match self.channel.next() {
                Ok(Some(frame)) => (frame.header.kind, frame.payload.to_vec()),
                Ok(None) => break,
                Err(e) => {
                    warn!(error = %e, "control channel");
                    self.stopping = true;
                    return Ok(());
                }
            };
            match kind {
                Kind::LinkUp => self.slot_up(&payload)?,
                Kind::Ping => {
                    log::tell_suppressed();
                    self.sample();
                    self.channel.queue(Kind::Pong, b"", vec![]);
                }
                Kind::Stop => self.stopping = true,
                Kind::Serve => {
                    self.door.open = true;
                    self.door.knocked = true;
                    self.channel.queue(Kind::Ready, b"", vec![]);
                }
                Kind::LinkDown => self.owner_ended(&payload)?,
                // Draining is the owners' business.
                Kind::Drain => {}
                kind => warn!(?kind, "unexpected control message"),
            }
        }
        // The supervisor is gone: so is the server.
        self.stopping |= progress == Progress::Gone || self.channel.flush() == Progress::Gone;
        Ok(())
    }
}

fn link_token(slot: u16) -> Token {
    Token(FIRST_LINK + usize::from(slot))
}

fn greets(payload: &[u8], slot: u16, start: &Start) -> bool {
    control::decode::<LinkHello>(Kind::LinkHello, payload).is_ok_and(|hello| {
        hello.role == Role::Owner && hello.index == slot && hello.fingerprint == start.fingerprint
    })
}

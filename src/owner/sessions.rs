//! The sessions of this slot: each a virtual connection of the core, known to its frontend's link by index and
//! epoch.
//!
//! Command bytes go into the core straight from the link's inbox, reply bytes straight into its outbox. What
//! the core can't take yet (it waits in reserve, or the client is behind with reading) is kept here, within the
//! session's window. A frame for a session that is not there (any more) changes nothing.
//!
//! Per session: `delivered <= produced <= delivered + REPLY_WINDOW_BYTES` and
//! `queued <= COMMAND_WINDOW_BYTES`, counted in bytes.

use std::collections::VecDeque;
use std::ffi::CString;

use slab::Slab;

use crate::core_ffi::{Cancel, Conn, Engine, Status};
use crate::ipc::header::{FLAG_CLOSED, FLAG_DEADLINE_SOON, FLAG_MORE, FLAG_PARK_WATCH};
use crate::ipc::{Frame, Header, Kind, Outbox, SessionId};
use crate::limits::{
    COMMAND_WINDOW_BYTES, CREDIT_BYTES, FRAME_PAYLOAD_BYTES, REPLY_WINDOW_BYTES, SESSION_INDEX_END,
};
use crate::protocol::TubeName;

/// Sessions of all links. A key is the tag of the virtual connection.
#[derive(Default)]
pub struct Sessions {
    slab: Slab<Session>,
}

/// The sessions of one link: index to epoch and key.
#[derive(Default)]
pub struct Table {
    entries: Vec<Option<(u32, usize)>>,
}

/// What a frontend may not do. It costs it its link.
#[derive(Debug, thiserror::Error)]
pub enum PeerFault {
    #[error("frame of kind {0:?} over a link")]
    Kind(Kind),
    #[error("attach of session {0} with names that are none")]
    Attach(u32),
    #[error("session {0} is over its window")]
    Window(u32),
    #[error("session index {0} is out of range")]
    Index(u32),
}

struct Session {
    conn: Conn,
    /// Which link it came over.
    peer: usize,
    id: SessionId,
    /// Command frames that the core has not taken yet.
    input: VecDeque<Chunk>,
    queued: usize,
    /// Commands answered, and what the header's `ack` tells: command bytes taken.
    done: u32,
    consumed: u32,
    credited: u32,
    produced: u32,
    delivered: u32,
    deadline_told: i64,
    /// How the core's last run ended.
    status: Status,
}

struct Chunk {
    bytes: Vec<u8>,
    taken: usize,
    flags: u16,
}

impl Table {
    fn key(&self, id: SessionId) -> Option<usize> {
        let entry = *self.entries.get(id.index as usize)?;
        entry.and_then(|(epoch, key)| (epoch == id.epoch).then_some(key))
    }

    /// Says which session was there before.
    fn insert(&mut self, id: SessionId, key: usize) -> Option<usize> {
        let index = id.index as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, None);
        }
        self.entries[index].replace((id.epoch, key)).map(|(_, old)| old)
    }

    fn remove(&mut self, id: SessionId) -> Option<usize> {
        let key = self.key(id)?;
        self.entries[id.index as usize] = None;
        Some(key)
    }

    /// Forgets all sessions of the link and says which there were.
    pub fn drain(&mut self) -> impl Iterator<Item = usize> {
        self.entries.drain(..).flatten().map(|(_, key)| key)
    }
}

impl Sessions {
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Which link a session came over.
    pub fn peer(&self, key: u64) -> Option<usize> {
        self.slab.get(key as usize).map(|s| s.peer)
    }

    /// Closes a session: its reservations are released, its references go.
    pub fn close(&mut self, key: usize) {
        self.slab.try_remove(key);
    }

    /// Handles a frame of a link.
    pub fn frame(
        &mut self,
        engine: &mut Engine,
        peer: usize,
        table: &mut Table,
        outbox: &mut Outbox,
        frame: Frame<'_>,
    ) -> Result<(), PeerFault> {
        let Frame { header, payload } = frame;
        match header.kind {
            Kind::Attach => return self.attach(engine, peer, table, outbox, header.session, payload),
            Kind::Detach => {
                if let Some(key) = table.remove(header.session) {
                    self.close(key);
                }
                return Ok(());
            }
            Kind::Query => {
                answer_tubes(engine, outbox, header);
                return Ok(());
            }
            _ => {}
        }
        let Some(key) = table.key(header.session) else { return Ok(()) };
        let session = &mut self.slab[key];
        session.delivered = header.ack;
        let open = match header.kind {
            Kind::Command => session.offer(engine, outbox, payload, header.flags)?,
            Kind::Credit => session.advance(engine, outbox),
            Kind::Cancel if header.flags & FLAG_DEADLINE_SOON != 0 => {
                session.conn.cancel(engine, Cancel::DeadlineSoon);
                true
            }
            Kind::Watch => session.watch(engine, outbox, payload)?,
            Kind::Cancel => {
                session.conn.half_close(engine);
                true
            }
            Kind::ParkUse => {
                session.park_use(engine, outbox);
                true
            }
            kind => return Err(PeerFault::Kind(kind)),
        };
        if !open {
            table.remove(header.session);
            self.close(key);
        }
        Ok(())
    }

    /// Lets a session that the core has touched say what it has to say.
    pub fn touched(&mut self, engine: &mut Engine, key: u64, table: &mut Table, outbox: &mut Outbox) {
        let Some(session) = self.slab.get_mut(key as usize) else { return };
        if !session.advance(engine, outbox) {
            table.remove(session.id);
            self.close(key as usize);
        }
    }

    /// The payload is the used tube's name, then each watched one's, a line each; an empty line parks. Watched
    /// ones for which a frame has no room come in `Watch` frames.
    fn attach(
        &mut self,
        engine: &mut Engine,
        peer: usize,
        table: &mut Table,
        outbox: &mut Outbox,
        id: SessionId,
        payload: &[u8],
    ) -> Result<(), PeerFault> {
        if id.index >= SESSION_INDEX_END {
            return Err(PeerFault::Index(id.index));
        }
        let mut names = lines(payload);
        let mut next = || match names.next() {
            Some(b"") => Ok(None),
            name => tube(id, name.unwrap_or_default()).map(Some),
        };
        let (used, watched) = (next()?, next()?);
        let more = names.map(|name| tube(id, name)).collect::<Result<Vec<CString>, PeerFault>>()?;

        let entry = self.slab.vacant_entry();
        let key = entry.key();
        let conn = Conn::open(engine, key as u64, used.as_deref(), watched.as_deref());
        let conn = conn.and_then(|mut conn| {
            for name in more {
                conn.watch(engine, &name).ok()?;
            }
            Some(conn)
        });
        let Some(conn) = conn else {
            // Out of memory: the client can't be served.
            give_up(outbox, id);
            return Ok(());
        };
        entry.insert(Session {
            conn,
            peer,
            id,
            input: VecDeque::new(),
            queued: 0,
            done: 0,
            consumed: 0,
            credited: 0,
            produced: 0,
            delivered: 0,
            deadline_told: 0,
            status: Status::NeedInput,
        });
        // A frontend detaches before it uses a number again; what one at fault left behind goes all the same.
        if let Some(old) = table.insert(id, key) {
            self.close(old);
        }
        Ok(())
    }
}

impl Session {
    /// Watches the rest of what an `Attach` had no room for. `false`: out of memory, the session is given up.
    fn watch(&mut self, engine: &mut Engine, outbox: &mut Outbox, payload: &[u8]) -> Result<bool, PeerFault> {
        for name in lines(payload) {
            if self.conn.watch(engine, &tube(self.id, name)?).is_err() {
                give_up(outbox, self.id);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a command frame. `false`: the core gave the session up.
    fn offer(
        &mut self,
        engine: &mut Engine,
        outbox: &mut Outbox,
        bytes: &[u8],
        flags: u16,
    ) -> Result<bool, PeerFault> {
        let mut taken = 0;
        if self.input.is_empty() && self.status == Status::NeedInput {
            taken = self.drive(engine, outbox, bytes, flags);
        }
        if taken < bytes.len() {
            let bytes = bytes[taken..].to_vec();
            self.queued += bytes.len();
            if self.queued > COMMAND_WINDOW_BYTES {
                return Err(PeerFault::Window(self.id.index));
            }
            self.input.push_back(Chunk { bytes, taken: 0, flags });
        }
        Ok(self.status != Status::Closed)
    }

    /// Goes on with what the core has to say, and then with what was kept, a frame at a time: replies to two
    /// command frames never share one. `false`: the core gave the session up.
    fn advance(&mut self, engine: &mut Engine, outbox: &mut Outbox) -> bool {
        self.drive(engine, outbox, b"", 0);
        while self.status == Status::NeedInput {
            let Some(mut chunk) = self.input.pop_front() else { break };
            let taken = self.drive(engine, outbox, &chunk.bytes[chunk.taken..], chunk.flags);
            chunk.taken += taken;
            self.queued -= taken;
            if chunk.taken < chunk.bytes.len() {
                self.input.push_front(chunk);
            }
        }
        self.status != Status::Closed
    }

    /// Runs the core on bytes of one command frame, as far as it goes now, and says how many it took. How it
    /// ended is in `status`; `OutputFull` also where the client is too far behind to begin.
    fn drive(&mut self, engine: &mut Engine, outbox: &mut Outbox, bytes: &[u8], flags: u16) -> usize {
        if flags & FLAG_PARK_WATCH != 0 {
            self.conn.park_watch(engine);
        }
        let mut taken = 0;
        self.status = Status::OutputFull;
        while self.status == Status::OutputFull && self.may_reply() {
            let header = Header::new(Kind::Reply, self.id, 0);
            outbox.push_with(header, FRAME_PAYLOAD_BYTES, |header, room| {
                let run = self.conn.run(engine, &bytes[taken..], room);
                taken += run.consumed;
                self.status = run.status;
                self.consumed = self.consumed.wrapping_add(run.consumed as u32);
                self.produced = self.produced.wrapping_add(run.produced as u32);
                self.done = self.done.wrapping_add(run.replies);
                if run.status == Status::Closed {
                    header.flags |= FLAG_CLOSED;
                } else if run.produced == 0 && run.replies == 0 {
                    if !self.owes_news() {
                        return None;
                    }
                    header.kind = Kind::Credit;
                }
                header.sequence = self.done;
                header.ack = self.consumed;
                header.deadline = self.conn.deadline();
                self.credited = self.consumed;
                self.deadline_told = header.deadline;
                Some(run.produced)
            });
        }
        taken
    }

    /// The client is not so far behind that another frame would burst its window.
    fn may_reply(&self) -> bool {
        self.produced.wrapping_sub(self.delivered) as usize <= REPLY_WINDOW_BYTES - FRAME_PAYLOAD_BYTES
    }

    /// The frontend must hear of this session, though there is no reply.
    fn owes_news(&self) -> bool {
        self.consumed.wrapping_sub(self.credited) as usize >= CREDIT_BYTES
            || self.conn.deadline() != self.deadline_told
    }

    /// Not a command of the client, but counted as one by both sides, so that its reply is known by its number.
    fn park_use(&mut self, engine: &mut Engine, outbox: &mut Outbox) {
        // The parking tube is always there.
        self.conn.set_used(engine, None).expect("parking needs no memory");
        self.done = self.done.wrapping_add(1);
        let mut header = Header::new(Kind::Reply, self.id, self.done);
        header.ack = self.consumed;
        header.deadline = self.conn.deadline();
        outbox.push(header, b"");
    }
}

fn lines(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    payload.split(|&b| b == b'\n')
}

fn tube(id: SessionId, name: &[u8]) -> Result<CString, PeerFault> {
    TubeName::new(name).map(|name| name.to_c_string()).ok_or(PeerFault::Attach(id.index))
}

/// Tells the frontend that the session can't be served.
fn give_up(outbox: &mut Outbox, id: SessionId) {
    let mut header = Header::new(Kind::Reply, id, 0);
    header.flags = FLAG_CLOSED;
    outbox.push(header, b"");
}

/// Answers a query for the names of all tubes: a line each, in the core's order.
fn answer_tubes(engine: &Engine, outbox: &mut Outbox, query: Header) {
    let mut names = Vec::new();
    for name in engine.tubes() {
        names.extend_from_slice(name.to_bytes());
        names.push(b'\n');
    }
    let mut chunks = names.chunks(FRAME_PAYLOAD_BYTES).peekable();
    let header = Header::new(Kind::Answer, query.session, query.sequence);
    if chunks.peek().is_none() {
        outbox.push(header, b"");
    }
    while let Some(chunk) = chunks.next() {
        let mut header = header;
        header.flags = if chunks.peek().is_some() { FLAG_MORE } else { 0 };
        outbox.push(header, chunk);
    }
}

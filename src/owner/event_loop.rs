//! The owner's event loop: links, the control channel, time.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use tracing::{info, warn};

use super::commit::Commit;
use super::numbers::Publisher;
use super::sessions::{Sessions, Table};
use super::survey::Survey;
use super::tell_core_lines;
use crate::core_ffi::Engine;
use crate::error::{Exit, Fatal};
use crate::ipc::control::{self, LinkHello, Peer as PeerMessage, Role, Start};
use crate::ipc::socket::{Channel, Link, Progress};
use crate::ipc::{Header, Kind, SessionId};
use crate::limits::{EVENTS, TRIM_IDLE};
use crate::log;
use crate::scoreboard::Scoreboard;

const CONTROL: Token = Token(0);
const SYNCED: Token = Token(1);
/// Tokens of links: this and the peer's key.
const FIRST_LINK: usize = 2;

pub struct Owner<'a> {
    poll: Poll,
    channel: Channel,
    start: Start,
    engine: Engine,
    commit: Commit,
    numbers: Publisher<'a>,
    survey: Survey,
    sessions: Sessions,
    peers: Slab<Peer>,
    stopping: bool,
}

/// A frontend generation at the other end of a link.
struct Peer {
    link: Link,
    who: PeerMessage,
    table: Table,
    /// Its first frame came and names our topology.
    greeted: bool,
    /// There may be more to read, though no event will say so.
    more: bool,
}

impl<'a> Owner<'a> {
    pub fn new(
        mut channel: Channel,
        start: Start,
        mut engine: Engine,
        mut commit: Commit,
        board: &'a Scoreboard,
    ) -> io::Result<Owner<'a>> {
        let poll = Poll::new()?;
        poll.registry().register(&mut channel.stream, CONTROL, Interest::READABLE | Interest::WRITABLE)?;
        commit.start(&mut engine, Arc::new(Waker::new(poll.registry(), SYNCED)?))?;
        Ok(Owner {
            poll,
            channel,
            engine,
            commit,
            numbers: Publisher::new(board.owner(start.index)),
            survey: Survey::new(start.server.metrics_tubes.into()),
            start,
            sessions: Sessions::default(),
            peers: Slab::new(),
            stopping: false,
        })
    }

    pub fn serve(mut self) -> Result<(), Fatal> {
        self.settle()?;
        self.channel.queue(Kind::Ready, b"", vec![]);
        self.channel.flush();
        let mut events = Events::with_capacity(EVENTS);
        let mut timeout = Duration::ZERO;
        let mut ready = Vec::new();
        // Memory that a burst has left behind is given back once nobody comes.
        let mut worked_at = None;
        while !self.stopping {
            if worked_at.is_some() {
                timeout = timeout.min(TRIM_IDLE);
            }
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(Fatal::temporary("epoll", e)),
                _ => {}
            }
            let begun = Instant::now();
            self.engine.refresh_clock();
            for event in &events {
                match event.token() {
                    CONTROL => self.control(),
                    SYNCED => {}
                    Token(token) => {
                        if let Some(peer) = self.peers.get_mut(token - FIRST_LINK) {
                            peer.more |= event.is_readable() || event.is_read_closed();
                        }
                    }
                }
            }
            ready.extend(self.peers.iter().filter(|(_, peer)| peer.more).map(|(key, _)| key));
            let brought = !ready.is_empty();
            for key in ready.drain(..) {
                self.receive(key);
            }
            timeout = self.settle()?;
            if brought {
                self.numbers.answered(begun.elapsed());
                worked_at = Some(begun);
            } else if worked_at.is_some_and(|at| at.elapsed() >= TRIM_IDLE) {
                worked_at = None;
                self.engine.trim();
            }
        }
        self.commit.finish(&mut self.engine).map_err(|e| wal_failed(&self.start, e))
    }

    /// Ends a batch: what is due is done, what was logged is committed, numbers are published, and then the
    /// replies leave. Says how long to wait for the next event.
    fn settle(&mut self) -> Result<Duration, Fatal> {
        let mut timeout = self.engine.tick();
        // A session that had news may have gone on with commands that it kept, and have something due again.
        while self.tell_touched() {
            timeout = self.engine.tick();
        }
        tell_core_lines();
        self.commit.batch(&mut self.engine).map_err(|e| wal_failed(&self.start, e))?;
        let syncs = self.commit.take_times();
        if !syncs.is_empty() {
            self.numbers.synced(&syncs, self.start.server.clock_now());
        }
        self.numbers.publish(&self.engine, self.sessions.len(), self.commit.syncs());
        let mut gone = Vec::new();
        for (key, peer) in &mut self.peers {
            if peer.link.send(self.poll.registry(), Token(FIRST_LINK + key)) == Progress::Gone {
                gone.push(key);
            } else if peer.more && !peer.link.outbox.is_full() {
                timeout = Duration::ZERO;
            }
        }
        if !gone.is_empty() {
            for key in gone {
                self.drop_peer(key, "the link broke");
            }
            timeout = Duration::ZERO; // what its sessions held is free now: somebody may be waiting for it
        }
        Ok(self.commit.due_in().map_or(timeout, |due| timeout.min(due)))
    }

    /// Lets the sessions that the core has touched say what they have to say. Whether there were any.
    fn tell_touched(&mut self) -> bool {
        let mut any = false;
        while let Some(key) = self.engine.next_touched() {
            any = true;
            if let Some(peer) = self.sessions.peer(key) {
                let Peer { link, table, .. } = &mut self.peers[peer];
                self.sessions.touched(&mut self.engine, key, table, &mut link.outbox);
            }
        }
        any
    }

    /// Takes the frames of one read of a link.
    fn receive(&mut self, key: usize) {
        let peer = &mut self.peers[key];
        if peer.link.outbox.is_full() {
            return; // it reads nothing, so nothing more is done for it; a writable event goes on
        }
        let progress = peer.link.receive();
        peer.more = progress == Progress::More;
        let fault = loop {
            let Peer { link: Link { inbox, outbox, .. }, table, greeted, .. } = peer;
            match inbox.next() {
                Ok(None) => break None,
                Ok(Some(frame)) if !*greeted => {
                    if frame.header.kind != Kind::LinkHello || !greets(frame.payload, &self.start) {
                        break Some("its hello names another topology".to_owned());
                    }
                    *greeted = true;
                }
                Ok(Some(frame)) => {
                    if let Err(e) = self.sessions.frame(&mut self.engine, key, table, outbox, frame) {
                        break Some(e.to_string());
                    }
                }
                Err(e) => break Some(e.to_string()),
            }
        };
        if let Some(reason) = fault {
            self.drop_peer(key, &reason);
        } else if progress == Progress::Gone {
            self.drop_peer(key, "it closed the link");
        }
    }

    /// A frontend generation is gone: all that its sessions held is free again.
    fn drop_peer(&mut self, key: usize, reason: &str) {
        let mut peer = self.peers.remove(key);
        info!(frontend = peer.who.index, generation = peer.who.generation, reason, "link down");
        for session in peer.table.drain() {
            self.sessions.close(session);
        }
    }

    fn control(&mut self) {
        let progress = self.channel.receive();
        loop {
            let (kind, payload) = match self.channel.next() {
                Ok(Some(frame)) => (frame.header.kind, frame.payload.to_vec()),
                Ok(None) => break,
                Err(e) => {
                    warn!(error = %e, "control channel");
                    self.stopping = true;
                    return;
                }
            };
            match kind {
                Kind::LinkUp => self.link_up(&payload),
                Kind::Drain => self.engine.drain(),
                Kind::Ping => self.pong(),
                Kind::Stop => self.stopping = true,
                // A link says by itself that it is down.
                Kind::LinkDown => {}
                kind => warn!(?kind, "unexpected control message"),
            }
        }
        // The supervisor is gone: so is the server.
        self.stopping |= progress == Progress::Gone || self.channel.flush() == Progress::Gone;
    }

    /// Answers a ping, and does what is done once a second.
    fn pong(&mut self) {
        log::tell_suppressed();
        self.numbers.sample(self.peers.iter().map(|(_, peer)| peer.link.outbox.pending().len()).sum());
        for tubes in self.survey.look(&self.engine) {
            self.channel.queue(Kind::Tubes, &tubes, vec![]);
        }
        self.channel.queue(Kind::Pong, b"", vec![]);
    }

    fn link_up(&mut self, payload: &[u8]) {
        let (who, fd) = match (control::decode::<PeerMessage>(Kind::LinkUp, payload), self.channel.take_fd())
        {
            (Ok(who), Some(fd)) => (who, fd),
            _ => return warn!("LinkUp without peer or descriptor"),
        };
        let mut link = match Link::new(fd, self.start.generation, who.generation) {
            Ok(link) => link,
            Err(error) => return warn!(%error, "link"),
        };
        let hello = LinkHello {
            role: Role::Owner,
            index: self.start.index,
            fingerprint: self.start.topology.fingerprint().to_string(),
        };
        link.outbox.push(Header::new(Kind::LinkHello, SessionId::default(), 0), &control::encode(&hello));
        let entry = self.peers.vacant_entry();
        let token = Token(FIRST_LINK + entry.key());
        if let Err(error) = link.interest.register(&mut link.stream, self.poll.registry(), token) {
            return warn!(%error, "link");
        }
        info!(frontend = who.index, generation = who.generation, "link up");
        entry.insert(Peer { link, who, table: Table::default(), greeted: false, more: true });
    }
}

fn greets(payload: &[u8], start: &Start) -> bool {
    control::decode::<LinkHello>(Kind::LinkHello, payload)
        .is_ok_and(|hello| hello.role == Role::Frontend && hello.fingerprint == start.fingerprint)
}

fn wal_failed(start: &Start, error: io::Error) -> Fatal {
    let dir = start.wal.as_ref().map_or("?", |w| &w.dir);
    Fatal::new(
        Exit::Log,
        format!(
            "slot {}: the log in {dir} can't be written: {error}; the slot stops here, so that nothing is acknowledged \
         that is not logged, and is started again from what is on disk",
            start.index
        ),
    )
}

//! The supervisor: starts, wires, watches and restarts owners and frontends. Reads no client's bytes and
//! touches no job.
//!
//! Start order: signals wait, the data and the paths are claimed, the socket listens, privileges go, owners
//! replay, then frontends accept. Ready is a message and death an end of stream and a SIGCHLD: nothing here
//! sleeps to wait. `policy` decides about one child; this file carries out what it says, and knows the one
//! thing that concerns all of them: the phase of the server.

mod children;
mod claim;
mod client_limits;
mod control;
mod data;
mod desk;
mod hearing;
mod http;
mod listen;
mod lives;
mod metrics;
mod policy;
mod process_figures;
mod pulse;
mod report;
mod rising;
mod service_manager;
mod signals;
mod spawn;
mod tubes;
mod user;
mod wiring;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::time::{ClockId, clock_gettime};

use crate::cli::Settings;
use crate::error::{Class, Exit, Fatal};
use crate::ipc::Kind;
use crate::ipc::control::{ClientLimits, Role, Server};
use crate::limits;
use crate::log;
use crate::scoreboard::Scoreboard;
use crate::topology::Topology;
use children::{ChildId, Children};
use desk::{Desk, Listener};
use policy::{Action, Event, Moment};
use service_manager::ServiceManager;
use signals::{Order, Signals};
use spawn::Spawner;

/// The token of the signals; children have theirs from 0, and desks theirs from here.
const SIGNALS: Token = Token(usize::MAX);
const CONTROL_DESK: usize = 1 << 16;
const METRICS_DESK: usize = 2 << 16;

const _: () = assert!(limits::DESK_CLIENTS < METRICS_DESK - CONTROL_DESK);
const _: () = assert!(limits::SLOTS_MAX as usize + (limits::FRONTENDS_MAX as usize) < CONTROL_DESK);

/// A whole server's life. `Ok` is an orderly end.
pub fn run(settings: Settings) -> Result<(), Fatal> {
    let frontends = settings.frontends.unwrap_or_else(default_frontends);
    let clients = client_limits::of(&settings, frontends)?;
    let mut signals = Signals::block().map_err(|e| Fatal::temporary("signals", e))?;
    spawn::clean_inheritance().map_err(|e| Fatal::temporary("inherited descriptors", e))?;
    let inherited = listen::Inherited::find();
    let spawner = Spawner::new(settings.verbose, log::format(settings.log_format))
        .map_err(|e| Fatal::temporary("/dev/null", e))?;

    let user = settings.user.as_deref().map(user::look_up).transpose()?;
    let _claims = claim::all(&settings, user.as_ref())?;
    let decision = data::look(&settings)?;
    let (layout, slots) = data::shape(&decision);
    claim::slots_are_free(&settings, layout, slots)?;
    let (listener, _path_claim) = listen::open(&settings, user.as_ref(), inherited)?;
    let mut control =
        settings.control.as_ref().map(|path| control::Socket::open(path, user.as_ref())).transpose()?;
    let metrics = settings.metrics.as_deref().map(http::listen).transpose()?;
    if let Some(user) = &user {
        user::become_user(user)?;
    }
    let topology = data::settle(&settings, decision)?;

    let mut supervisor = Supervisor::new(settings, frontends, clients, topology, listener, spawner)?;
    if let Some(socket) = &mut control {
        supervisor.open_desk(Listener::Unix(socket.take_listener()), CONTROL_DESK)?;
    }
    if let Some(listener) = metrics {
        supervisor.open_desk(Listener::Tcp(listener), METRICS_DESK)?;
    }
    // What came while we were busy holds before the first owner starts.
    supervisor.take_orders(&mut signals)?;
    supervisor.serve(signals)
}

/// Where the server as a whole is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Owners replay; nobody accepts yet.
    Recovering,
    /// Frontends start for the first time.
    Opening,
    Serving,
    /// Frontends leave, owners still answer.
    Closing,
    /// Owners finish and sync.
    Finishing,
    /// No process is left.
    Over,
}

struct Supervisor {
    settings: Settings,
    topology: Topology,
    fingerprint: String,
    server: Server,
    board: Scoreboard,
    board_fd: OwnedFd,
    listener: OwnedFd,
    spawner: Spawner,
    children: Children,
    poll: Poll,
    desks: Vec<Desk>,
    watermarks: metrics::Watermarks,
    manager: ServiceManager,
    started: Instant,
    phase: Phase,
    /// The owners have been told to open their logs.
    opened: bool,
    /// Why the server stops, if not because it was told to.
    failure: Option<Fatal>,
}

impl Supervisor {
    fn new(
        settings: Settings,
        frontends: u16,
        clients: ClientLimits,
        topology: Topology,
        listener: OwnedFd,
        spawner: Spawner,
    ) -> Result<Self, Fatal> {
        let owners = topology.slots as u16;
        let (board, board_fd) = Scoreboard::create(owners.into(), frontends.into(), clients.seats(frontends))
            .map_err(|e| Fatal::temporary("shared memory", e))?;
        Ok(Supervisor {
            fingerprint: topology.fingerprint().to_string(),
            server: server(&settings, frontends, clients)?,
            board,
            board_fd,
            listener,
            spawner,
            children: Children::new(owners, frontends, settings.kill_stalled),
            poll: Poll::new().map_err(|e| Fatal::temporary("event loop", e))?,
            desks: Vec::new(),
            watermarks: metrics::Watermarks::default(),
            manager: ServiceManager::from_environment(),
            started: Instant::now(),
            phase: Phase::Recovering,
            opened: false,
            failure: None,
            settings,
            topology,
        })
    }

    fn serve(mut self, mut signals: Signals) -> Result<(), Fatal> {
        let fd = signals.as_raw_fd();
        let registered = self.poll.registry().register(&mut SourceFd(&fd), SIGNALS, Interest::READABLE);
        registered.map_err(|e| Fatal::temporary("event loop", e))?;
        if self.phase == Phase::Recovering {
            self.step_all(Role::Owner, Event::Begin);
        }
        self.advance();
        let mut events = Events::with_capacity(64);
        let mut asked = Vec::new();
        while self.phase != Phase::Over {
            match self.poll.poll(&mut events, self.until_next_deadline()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result.map_err(|e| Fatal::temporary("event loop", e))?,
            }
            for event in &events {
                match self.children.by_token(event.token()) {
                    Some(id) => self.attend(id),
                    None if event.token() == SIGNALS => self.take_orders(&mut signals)?,
                    None => asked.push(event.token()),
                }
            }
            self.say_due();
            self.tell_manager();
            log::tell_suppressed();
            self.advance();
            // Last, so that what is told is what has come of all this.
            self.attend_desks(&asked);
            asked.clear();
        }
        self.failure.map_or(Ok(()), Err)
    }

    fn now(&self) -> Moment {
        self.started.elapsed()
    }

    fn until_next_deadline(&self) -> Option<Duration> {
        let deadlines = self.children.ids().flat_map(|id| {
            let child = self.children.get(id);
            [child.policy.deadline(), child.pulse.deadline(), child.rising.deadline()]
        });
        let desks = self.desks.iter().filter_map(Desk::deadline);
        Some(
            deadlines.flatten().chain(desks).chain(self.manager.deadline()).min()?.saturating_sub(self.now()),
        )
    }

    /// Serves a listener with answers about this server. `first`: its token; which desk it is.
    fn open_desk(&mut self, listener: Listener, first: usize) -> Result<(), Fatal> {
        let desk = Desk::new(listener, self.poll.registry(), first);
        self.desks.push(desk.map_err(|e| Fatal::temporary("event loop", e))?);
        Ok(())
    }

    fn attend_desks(&mut self, asked: &[Token]) {
        let now = self.now();
        let mut desks = std::mem::take(&mut self.desks);
        for desk in &mut desks {
            let is_due = desk.deadline().is_some_and(|deadline| deadline <= now);
            let timer = is_due.then_some(None);
            let mine: Vec<Token> = asked.iter().copied().filter(|&token| desk.owns(token)).collect();
            let is_control = desk.owns(Token(CONTROL_DESK));
            for token in mine.into_iter().map(Some).chain(timer) {
                let mut answer = |request: &[u8]| match is_control {
                    true => control::answer(request, || self.status()),
                    false => self.http_answer(request),
                };
                desk.attend(token, now, &mut answer);
            }
        }
        self.desks = desks;
    }

    fn say_due(&mut self) {
        for id in self.children.ids() {
            let now = self.now();
            let is_due = |deadline: Option<Moment>| deadline.is_some_and(|deadline| deadline <= now);
            if is_due(self.children.get(id).policy.deadline()) {
                self.step(id, Event::Due);
            }
            if is_due(self.children.get(id).pulse.deadline()) {
                self.beat(id, pulse::Event::Due);
            }
            if is_due(self.children.get(id).rising.deadline()) {
                self.look_at(id);
            }
        }
    }

    /// Signals that have come.
    fn take_orders(&mut self, signals: &mut Signals) -> Result<(), Fatal> {
        while let Some(order) = signals.next().map_err(|e| Fatal::temporary("signals", e))? {
            match order {
                Order::Stop => self.stop(None),
                Order::Drain => self.drain(),
                Order::Reap => self.reap(),
            }
        }
        Ok(())
    }

    fn drain(&mut self) {
        tracing::info!("drain mode: no new jobs");
        self.board.set_draining();
        for id in self.children.of_role(Role::Owner) {
            self.tell(id, Kind::Drain);
        }
    }

    /// Begins the end, once: the first reason counts.
    fn stop(&mut self, failure: Option<Fatal>) {
        if matches!(self.phase, Phase::Closing | Phase::Finishing | Phase::Over) {
            return;
        }
        tracing::info!("stopping");
        self.manager.tell(service_manager::STOPPING, self.now());
        self.failure = failure;
        self.phase = Phase::Closing;
        self.step_all(Role::Frontend, Event::Stop);
    }

    /// Moves the server on as far as its children are.
    fn advance(&mut self) {
        loop {
            let (owners, frontends) = (Role::Owner, Role::Frontend);
            self.phase = match self.phase {
                Phase::Recovering if self.children.all(owners, |policy| policy.is_serving()) => {
                    self.phase = Phase::Opening;
                    self.step_all(frontends, Event::Begin);
                    // A child that could not be made may have changed it.
                    self.phase
                }
                Phase::Opening if self.children.all(frontends, |policy| policy.is_serving()) => {
                    tracing::info!("ready");
                    self.manager.tell(service_manager::READY, self.now());
                    Phase::Serving
                }
                Phase::Closing if self.children.all(frontends, |policy| policy.is_over()) => {
                    self.phase = Phase::Finishing;
                    self.step_all(owners, Event::Stop);
                    Phase::Finishing
                }
                Phase::Finishing if self.children.all(owners, |policy| policy.is_over()) => {
                    tracing::info!("stopped");
                    Phase::Over
                }
                _ => return,
            };
        }
    }

    fn step_all(&mut self, role: Role, event: Event) {
        for id in self.children.of_role(role) {
            self.step(id, event);
        }
    }

    /// Gives an event to a child's policy and carries out what it says.
    fn step(&mut self, id: ChildId, event: Event) {
        let now = self.now();
        let child = self.children.get_mut(id);
        let (before, was_failed) = (child.policy.state(), child.policy.is_failed());
        let actions = child.policy.step(event, now);
        tracing::debug!("{child}: {event:?} in {before:?}: {actions:?}");
        for action in actions {
            match action {
                Action::Spawn => self.spawn(id),
                Action::Kill => self.kill(id),
                Action::TellStop => self.tell(id, Kind::Stop),
                Action::Link => {
                    if let Err(error) = wiring::link(&mut self.children, id) {
                        tracing::error!("{}: no link: {error}", self.children.get(id));
                        self.step(id, Event::Misbehaved(Class::Temporary));
                    } else if self.children.get(id).role == Role::Frontend {
                        self.tell(id, Kind::Serve);
                    }
                }
                Action::Unlink => wiring::unlink(&mut self.children, id),
                Action::ShowFailed => self.show_failed(id),
                Action::GiveUp => self.give_up(id),
            }
        }
        let child = self.children.get_mut(id);
        child.rising.follow(child.policy.is_rising().then_some(child.generation), now);
        if was_failed && child.policy.is_serving() {
            tracing::warn!("{child} serves: it is not failed any more");
        }
        match (child.policy.is_serving(), child.pulse.is_on()) {
            (true, false) => self.beat(id, pulse::Event::Serves),
            (false, true) => self.beat(id, pulse::Event::Left),
            _ => {}
        }
    }

    /// Gives an event to a child's pulse and carries out what it says.
    fn beat(&mut self, id: ChildId, event: pulse::Event) {
        let now = self.now();
        let child = self.children.get_mut(id);
        let Some(action) = child.pulse.step(event, now) else { return };
        match action {
            pulse::Action::Ping => self.tell(id, Kind::Ping),
            pulse::Action::SayStalled => {
                let ms = child.pulse.lag(now).as_millis();
                tracing::warn!("{child} is stalled: no answer to a ping for {ms} ms");
            }
            pulse::Action::SayRecovered(time) => {
                tracing::warn!("{child} answers again, after {} ms", time.as_millis());
            }
            pulse::Action::Kill(time) => {
                let reason = format!("no answer to a ping for {} ms", time.as_millis());
                tracing::error!("{child} is killed: {reason}");
                child.reason = Some(reason);
                child.code = Exit::Temporary.code();
                self.step(id, Event::Misbehaved(Class::Temporary));
            }
            pulse::Action::Refuse => {
                tracing::error!("{child}: answers a ping that nobody sent");
                self.step(id, Event::Misbehaved(Class::Temporary));
            }
        }
    }

    /// Sees whether a child that is not ready gets on.
    fn look_at(&mut self, id: ChildId) {
        let now = self.now();
        let child = self.children.get_mut(id);
        let waits = child.checked && !self.opened;
        let pid = child.process.as_ref().and_then(|process| process.pid).filter(|_| !waits);
        let turns = pid.and_then(|pid| process_figures::turns(pid.as_raw()));
        let news = child.rising.look(turns, now);
        let child = self.children.get(id);
        match news {
            None => {}
            Some(rising::News::Stalled) => {
                let stage = self.stage(child);
                tracing::warn!("{child} is stalled before it is ready: {stage}, and does not get on");
            }
            Some(rising::News::Moves(time)) => {
                tracing::warn!("{child} gets on again, after {} ms", time.as_millis());
            }
        }
    }

    fn tell(&mut self, id: ChildId, kind: Kind) {
        if let Some(channel) = self.children.get_mut(id).channel() {
            channel.queue(kind, b"", vec![]);
            channel.flush();
        }
    }

    /// A child keeps dying before it is ready. The start of the server is over with that; later it goes on
    /// without, and with it when it comes back.
    fn show_failed(&mut self, id: ChildId) {
        if matches!(self.phase, Phase::Recovering | Phase::Opening) {
            return self.give_up(id);
        }
        let child = self.children.get(id);
        let (deaths, cause) = (child.policy.early_deaths(), child.cause());
        tracing::error!(
            "{child} is failed: it ended {deaths} times before it was ready, and is tried on: {cause}"
        );
    }

    /// A child is not started again. While the server starts it needs all of them; later it goes on while one
    /// of each kind is left.
    fn give_up(&mut self, id: ChildId) {
        let child = self.children.get(id);
        let (role, code, name) = (child.role, child.code, child.to_string());
        let cause = child.cause().to_owned();
        tracing::error!("{name} is given up: {cause}");
        let starting = matches!(self.phase, Phase::Recovering | Phase::Opening);
        if starting || self.children.all(role, |policy| policy.is_over()) {
            let code = if code == 0 { Exit::Temporary.code() } else { code };
            self.stop(Some(Fatal { code, message: format!("no service without {name}: {cause}") }));
        }
    }
}

/// One for two processors: owners need the others.
fn default_frontends() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    (processors / 2).clamp(1, limits::FRONTENDS_MAX.into()) as u16
}

fn server(settings: &Settings, frontends: u16, clients: ClientLimits) -> Result<Server, Fatal> {
    let clock = |id| clock_gettime(id).map_err(|e| Fatal::temporary("clock", e));
    let nanoseconds = |time: nix::sys::time::TimeSpec| time.tv_sec() * 1_000_000_000 + time.tv_nsec();
    let wall = nanoseconds(clock(ClockId::CLOCK_REALTIME)?);
    let monotonic = nanoseconds(clock(ClockId::CLOCK_MONOTONIC)?);
    Ok(Server {
        instance: data::random_id()?,
        pid: std::process::id(),
        clock_offset: wall - monotonic,
        started_at: wall,
        job_bytes: settings.job_bytes,
        wal_file_bytes: settings.wal_file_bytes.into(),
        frontends,
        owner_wait_ms: settings.owner_wait_ms,
        metrics_tubes: if settings.metrics.is_some() { settings.metrics_tubes } else { 0 },
        clients,
    })
}

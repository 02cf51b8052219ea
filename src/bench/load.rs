//! The load: every client of one run, in a process of its own, on one thread and one epoll.
//!
//! Reads one `Spec` from stdin, says `Said` lines on stdout. A command counts when the last byte of its reply
//! has been read, if that is between the two `Said`; its latency began with the write it left in. Knows
//! nothing of servers but an address; ends with its stdin, so it never outlives who started it.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::client::{Awaited, Script};
use super::spec::{Group, Said, Spec, Tally, Work};
use crate::error::{Exit, Fatal};
use crate::limits;

/// The whole process.
pub fn run() -> Result<(), Fatal> {
    let mut line = String::new();
    let wrong = |error: &dyn std::fmt::Display| Fatal::new(Exit::Usage, format!("load: {error}"));
    let mut stdin = io::stdin().lock();
    stdin.read_line(&mut line).map_err(|e| wrong(&e))?;
    let spec: Spec = serde_json::from_str(&line).map_err(|e| wrong(&e))?;
    let last = match Load::new(spec).and_then(Load::work) {
        Ok((tallies, connections)) => (Said::Ended(tallies), Some(connections)),
        Err(Trouble(reason)) => (Said::Failed(reason), None),
    };
    say(&last.0)?;
    // The memory of the servers is read while their clients are there.
    let _ = stdin.read_to_end(&mut Vec::new());
    drop(last);
    Ok(())
}

fn say(said: &Said) -> Result<(), Fatal> {
    let text = serde_json::to_string(said).expect("plain data has a JSON form");
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|e| Fatal::temporary("load: stdout", e))
}

/// Why the run is worth nothing.
struct Trouble(String);

impl<E: std::fmt::Display> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble(error.to_string())
    }
}

/// The clients' own side of it.
struct Client {
    group: usize,
    script: Script,
    /// `None` between two visits.
    stream: Option<TcpStream>,
    connected: bool,
    /// Setup replies are still to come.
    beginning: bool,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    awaited: VecDeque<Awaited>,
    /// When the commands that are under way were written, or due.
    since: Instant,
    /// When the next write is due, where the group has a rate.
    due: Option<Instant>,
}

struct Load {
    spec: Spec,
    poll: Poll,
    clients: Vec<Client>,
    tallies: Vec<Counts>,
    /// Clients that are not set up yet.
    beginning: usize,
    phase: Phase,
    /// Jobs that producers put and consumers have not reserved.
    ahead: i64,
    /// Producers that wait for consumers.
    resting: Vec<usize>,
    /// Who is due when, soonest first. Only clients of groups with a rate.
    agenda: BTreeSet<(Instant, usize)>,
    buffer: Vec<u8>,
}

/// Where the run is; a time is when the phase ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Connecting(Instant),
    Warming(Instant),
    Counting { begun: Instant, ends: Instant },
}

struct Counts {
    commands: u64,
    latency: Histogram<u64>,
    /// Commands sent and answered since the start, for the group's limit.
    begun: u64,
    done: u64,
}

impl Load {
    fn new(spec: Spec) -> Result<Load, Trouble> {
        let now = Instant::now();
        let mut clients = Vec::new();
        for (index, group) in spec.groups.iter().enumerate() {
            for number in 0..group.clients {
                clients.push(Client {
                    group: index,
                    script: Script::new(group, number, spec.seed.wrapping_add(index as u64)),
                    stream: None,
                    connected: false,
                    beginning: true,
                    output: Vec::new(),
                    sent: 0,
                    input: Vec::new(),
                    awaited: VecDeque::new(),
                    since: now,
                    due: None,
                });
            }
        }
        let count = |_: &Group| -> Result<Counts, Trouble> {
            Ok(Counts {
                commands: 0,
                latency: Histogram::new_with_bounds(1, limits::BENCH_LATENCY_NS, 3)?,
                begun: 0,
                done: 0,
            })
        };
        Ok(Load {
            tallies: spec.groups.iter().map(count).collect::<Result<_, _>>()?,
            poll: Poll::new()?,
            beginning: clients.len(),
            clients,
            phase: Phase::Connecting(now + limits::BENCH_CONNECT),
            ahead: 0,
            resting: Vec::new(),
            agenda: BTreeSet::new(),
            buffer: vec![0; limits::BENCH_READ_BYTES],
            spec,
        })
    }

    /// Connects all, warms up, counts. Hands the connections back too, still open.
    fn work(mut self) -> Result<(Vec<Tally>, Vec<Client>), Trouble> {
        let mut events = Events::with_capacity(limits::EVENTS);
        let mut unconnected = 0;
        loop {
            // In groups that the server's backlog holds; the next ones follow when these are through.
            while unconnected < self.clients.len()
                && unconnected < self.clients.len() - self.beginning + limits::BENCH_CONNECTING
            {
                self.connect(unconnected)?;
                unconnected += 1;
            }
            match self.poll.poll(&mut events, Some(self.patience())) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            let now = Instant::now();
            for event in &events {
                let index = event.token().0;
                if event.is_writable() {
                    self.writable(index)?;
                }
                if event.is_readable() {
                    self.readable(index, now)?;
                }
            }
            self.serve_agenda(now)?;
            if self.advance(now)? {
                return Ok(self.finish());
            }
        }
    }

    fn patience(&self) -> Duration {
        let (Phase::Connecting(end) | Phase::Warming(end) | Phase::Counting { ends: end, .. }) = self.phase;
        let due = match self.phase {
            Phase::Connecting(_) => None,
            _ => self.agenda.first().map(|(due, _)| *due),
        };
        due.map_or(end, |due| due.min(end)).saturating_duration_since(Instant::now())
    }

    fn connect(&mut self, index: usize) -> Result<(), Trouble> {
        let mut stream = TcpStream::connect(self.spec.address)?;
        self.poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        let client = &mut self.clients[index];
        client.stream = Some(stream);
        client.connected = false;
        Ok(())
    }

    /// Connected, or room again for what is left to send.
    fn writable(&mut self, index: usize) -> Result<(), Trouble> {
        let client = &mut self.clients[index];
        let Some(stream) = &client.stream else { return Ok(()) };
        if client.connected {
            return client.flush();
        }
        if let Some(error) = stream.take_error()? {
            return Err(Trouble(format!("connect: {error}")));
        }
        if stream.peer_addr().is_err() {
            return Ok(());
        }
        stream.set_nodelay(true)?;
        client.connected = true;
        if !client.beginning {
            // A visit began with its connect.
            let since = client.since;
            return self.next_write(index, since);
        }
        let awaited = client.script.begin(&mut client.output);
        client.awaited.extend(awaited);
        client.flush()?;
        if client.awaited.is_empty() {
            self.begun(index);
        }
        Ok(())
    }

    /// This client is set up; the last one lets all begin.
    fn begun(&mut self, index: usize) {
        self.clients[index].beginning = false;
        self.beginning -= 1;
    }

    fn readable(&mut self, index: usize, now: Instant) -> Result<(), Trouble> {
        loop {
            let client = &mut self.clients[index];
            let Some(stream) = client.stream.as_mut().filter(|_| client.connected) else { return Ok(()) };
            match stream.read(&mut self.buffer) {
                Ok(0) => return Err(Trouble("the server closed a connection".into())),
                Ok(length) => {
                    let (group, was_beginning) = (client.group, client.beginning);
                    client.input.extend_from_slice(&self.buffer[..length]);
                    let before = client.awaited.len();
                    let reserved = client.take_replies()?;
                    let since = client.since;
                    let answered = before - client.awaited.len();
                    if was_beginning {
                        if client.awaited.is_empty() {
                            self.begun(index);
                        }
                    } else if answered > 0 {
                        self.count(group, answered as u64, reserved, since, now);
                        self.went_on(index, now)?;
                    }
                    // Edge-triggered: a full buffer may have left something, a smaller piece was all there was.
                    if length < self.buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble(format!("read: {error}"))),
            }
        }
    }

    /// So many commands of a group are answered.
    fn count(&mut self, group: usize, answered: u64, reserved: i64, since: Instant, now: Instant) {
        let work = self.spec.groups[group].work;
        match work {
            Work::Produce { .. } => self.ahead += answered as i64,
            Work::Consume => self.ahead -= reserved,
            _ => {}
        }
        let counts = &mut self.tallies[group];
        counts.done += answered;
        if matches!(self.phase, Phase::Counting { .. }) {
            counts.commands += answered;
            if work != Work::Consume || reserved == 0 {
                let latency = now.saturating_duration_since(since).as_nanos() as u64;
                counts.latency.saturating_record_n(latency.max(1), answered);
            }
        }
    }

    /// After replies: what the client does next, if it is its turn.
    fn went_on(&mut self, index: usize, now: Instant) -> Result<(), Trouble> {
        let client = &mut self.clients[index];
        let work = self.spec.groups[client.group].work;
        if !client.awaited.is_empty() {
            return Ok(());
        }
        if work == Work::Churn {
            // Closing it takes it out of the poll, too.
            client.stream = None;
            client.input.clear();
            client.since = now;
            return self.connect(index);
        }
        if work == Work::Consume {
            self.wake_producers(now)?;
        }
        match self.clients[index].due {
            None => self.next_write(index, now),
            // Its time has passed while it waited for the reply: it counts from then.
            Some(due) if due <= now => self.next_due(index, due, due),
            Some(_) => Ok(()),
        }
    }

    fn wake_producers(&mut self, now: Instant) -> Result<(), Trouble> {
        let most = self.spec.groups.iter().find_map(|group| match group.work {
            Work::Produce { ahead } => Some(i64::from(ahead)),
            _ => None,
        });
        // Not one by one at the edge: below half of it all go on.
        if !self.resting.is_empty() && self.ahead <= most.unwrap_or(0) / 2 {
            for producer in std::mem::take(&mut self.resting) {
                self.next_write(producer, now)?;
            }
        }
        Ok(())
    }

    fn serve_agenda(&mut self, now: Instant) -> Result<(), Trouble> {
        while let Some((due, index)) = self.agenda.first().copied().filter(|(due, _)| *due <= now) {
            self.agenda.remove(&(due, index));
            // A client that is still busy takes it up when its reply has come.
            if self.clients[index].awaited.is_empty() {
                // It was free, so that we woke a little late is not the server's doing.
                self.next_due(index, due, now)?;
            }
        }
        Ok(())
    }

    /// The write that was due, and the time of the one after it.
    fn next_due(&mut self, index: usize, due: Instant, since: Instant) -> Result<(), Trouble> {
        if let Some(rate) = self.spec.groups[self.clients[index].group].per_second {
            self.put_on_agenda(index, due + Duration::from_secs_f64(1.0 / rate));
        }
        self.next_write(index, since)
    }

    fn put_on_agenda(&mut self, index: usize, due: Instant) {
        self.clients[index].due = Some(due);
        self.agenda.insert((due, index));
    }

    fn next_write(&mut self, index: usize, since: Instant) -> Result<(), Trouble> {
        let client = &mut self.clients[index];
        let group = &self.spec.groups[client.group];
        let counts = &mut self.tallies[client.group];
        if let Work::Produce { ahead } = group.work {
            if self.ahead >= i64::from(ahead) {
                self.resting.push(index);
                return Ok(());
            }
        }
        let left = group.limit.map_or(u64::MAX, |limit| limit.saturating_sub(counts.begun));
        for _ in 0..u64::from(group.depth).min(left) {
            let Some(awaited) = client.script.next(&mut client.output) else { break };
            client.awaited.push_back(awaited);
            counts.begun += 1;
        }
        client.since = since;
        client.flush()
    }

    /// Moves to the next phase when this one is over. True at the end of the last.
    fn advance(&mut self, now: Instant) -> Result<bool, Trouble> {
        match self.phase {
            Phase::Connecting(_) if self.beginning == 0 => {
                self.phase = Phase::Warming(now + Duration::from_millis(self.spec.warm_ms));
                let all = self.clients.len();
                for index in 0..all {
                    match self.spec.groups[self.clients[index].group].per_second {
                        None => self.next_write(index, now)?,
                        // Spread over one period, so that they don't all come at once.
                        Some(rate) => {
                            let share = index as f64 / all as f64;
                            self.put_on_agenda(index, now + Duration::from_secs_f64(share / rate));
                        }
                    }
                }
            }
            Phase::Connecting(end) if now >= end => {
                let left = self.beginning;
                return Err(Trouble(format!("{left} clients could not be set up in time")));
            }
            Phase::Warming(end) if now >= end => {
                say(&Said::Counting)?;
                let begun = Instant::now();
                let ends = begun + Duration::from_millis(self.spec.run_ms);
                self.phase = Phase::Counting { begun, ends };
            }
            Phase::Counting { ends, .. } => return Ok(now >= ends || self.limits_reached()),
            _ => {}
        }
        Ok(false)
    }

    fn limits_reached(&self) -> bool {
        let mut limited =
            self.spec.groups.iter().zip(&self.tallies).filter(|(group, _)| group.limit.is_some());
        limited.next().is_some_and(|(group, counts)| {
            Some(counts.done) >= group.limit
                && limited.all(|(group, counts)| Some(counts.done) >= group.limit)
        })
    }

    fn finish(self) -> (Vec<Tally>, Vec<Client>) {
        let Phase::Counting { begun, .. } = self.phase else { unreachable!("only counting ends") };
        let span_ns = begun.elapsed().as_nanos() as u64;
        let tally = |(group, counts): (&Group, &Counts)| Tally {
            label: group.label.clone(),
            commands: counts.commands,
            span_ns,
            p50_ns: counts.latency.value_at_quantile(0.5),
            p99_ns: counts.latency.value_at_quantile(0.99),
            p999_ns: counts.latency.value_at_quantile(0.999),
            max_ns: counts.latency.max(),
        };
        (self.spec.groups.iter().zip(&self.tallies).map(tally).collect(), self.clients)
    }
}

impl Client {
    /// Takes whole replies off the input, and says how many of them were reservations.
    fn take_replies(&mut self) -> Result<i64, Trouble> {
        let (mut at, mut reserved) = (0, 0);
        while let Some(&awaited) = self.awaited.front() {
            let Some(length) = self.script.reply(awaited, &self.input[at..]).map_err(Trouble)? else { break };
            at += length;
            self.awaited.pop_front();
            reserved += i64::from(awaited == Awaited::Reserved);
        }
        if self.awaited.is_empty() && at < self.input.len() {
            let extra = String::from_utf8_lossy(&self.input[at..]);
            return Err(Trouble(format!("nothing was to come, but {extra:?} came")));
        }
        self.input.drain(..at);
        Ok(reserved)
    }

    fn flush(&mut self) -> Result<(), Trouble> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.sent < self.output.len() {
            match stream.write(&self.output[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble(format!("write: {error}"))),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }
}

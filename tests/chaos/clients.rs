//! The load: producers and workers that do a bit of everything, and record all of it.

use crate::history::{Action, Moment, Op, Outcome};
use crate::support::{Client, Random};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Operations on one connection before a client makes a new one.
const CONNECTION_OPS: usize = 150;

/// Ids that are remembered for commands by id.
const REMEMBERED: usize = 64;

/// What all clients of a run share.
pub struct Load {
    /// The server's socket, which stays the same over its restarts.
    pub socket: PathBuf,
    pub tubes: Vec<String>,
    pub began: Instant,
    stop: AtomicBool,
    connections: AtomicU64,
    bodies: AtomicU64,
    ids: Mutex<Vec<u64>>,
}

impl Load {
    pub fn new(socket: PathBuf, tubes: Vec<String>) -> Load {
        Load {
            socket,
            tubes,
            began: Instant::now(),
            stop: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            bodies: AtomicU64::new(0),
            ids: Mutex::new(Vec::new()),
        }
    }

    pub fn now(&self) -> Moment {
        self.began.elapsed().as_nanos() as Moment
    }

    /// Ends the load when it is dropped, also by a panic.
    pub fn end(&self) -> End<'_> {
        End(self)
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn remember(&self, id: u64, random: &mut Random) {
        let mut ids = self.ids.lock().expect("ids");
        if ids.len() < REMEMBERED {
            ids.push(id);
        } else {
            let at = random.below(REMEMBERED);
            ids[at] = id;
        }
    }

    fn some_id(&self, random: &mut Random) -> Option<u64> {
        let ids = self.ids.lock().expect("ids");
        (!ids.is_empty()).then(|| *random.pick(&ids))
    }
}

pub struct End<'l>(&'l Load);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Puts, kicks and peeks until the run is over.
pub fn produce(load: &Load, number: usize, random: Random) -> Vec<Op> {
    let mut hands = Hands::new(load, number, random);
    while let Some(mut line) = hands.connect() {
        for _ in 0..CONNECTION_OPS {
            if load.is_over() {
                break;
            }
            let goes_on = match hands.random.below(12) {
                0 => hands.turn_to(&mut line),
                1 => hands.kick(&mut line),
                2 => hands.peek(&mut line),
                _ => hands.put(&mut line),
            };
            if !goes_on {
                break;
            }
        }
        hands.leave(line);
    }
    hands.ops
}

/// Reserves, and does what can be done with a job, until the run is over.
pub fn work(load: &Load, number: usize, random: Random) -> Vec<Op> {
    let mut hands = Hands::new(load, number, random);
    while let Some(mut line) = hands.connect() {
        for _ in 0..CONNECTION_OPS {
            if load.is_over() || !hands.reserve(&mut line) {
                break;
            }
        }
        hands.leave(line);
    }
    hands.ops
}

/// A connection with the tube that it uses and watches.
struct Line {
    client: Client,
    number: u64,
    tube: String,
}

struct Hands<'l> {
    load: &'l Load,
    number: usize,
    random: Random,
    ops: Vec<Op>,
}

impl<'l> Hands<'l> {
    fn new(load: &'l Load, number: usize, random: Random) -> Hands<'l> {
        Hands { load, number, random, ops: Vec::new() }
    }

    /// A new connection on a tube of chance. None when the run is over.
    fn connect(&mut self) -> Option<Line> {
        while !self.load.is_over() {
            let number = self.load.connections.fetch_add(1, Ordering::Relaxed);
            let Ok(client) = Client::unix(&format!("{} at {number}", self.number), &self.load.socket) else {
                // The pause of a poll: the server is being started again.
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            let mut line = Line { client, number, tube: "default".to_owned() };
            if self.turn_to(&mut line) {
                return Some(line);
            }
        }
        None
    }

    fn leave(&mut self, line: Line) {
        let (connection, start) = (line.number, self.load.now());
        drop(line);
        self.record(connection, start, Action::Leave, Outcome::Done);
    }

    fn record(&mut self, connection: u64, start: Moment, action: Action, outcome: Outcome) -> bool {
        let goes_on = outcome != Outcome::Unknown;
        self.ops.push(Op { client: self.number, connection, start, end: self.load.now(), action, outcome });
        goes_on
    }

    /// Sends one command, takes its reply and records both. False when the connection is at its end.
    fn ask(&mut self, line: &mut Line, text: &str, action: Action) -> bool {
        let start = self.load.now();
        let outcome = match line.client.try_call(text) {
            Some(reply) => outcome(&action, &reply),
            None => Outcome::Unknown,
        };
        self.record(line.number, start, action, outcome)
    }

    /// Uses and watches another tube, and no other.
    fn turn_to(&mut self, line: &mut Line) -> bool {
        let tube = self.random.pick(&self.load.tubes).clone();
        let mut commands =
            vec![(format!("use {tube}\r\n"), "USING"), (format!("watch {tube}\r\n"), "WATCHING")];
        if tube != line.tube {
            commands.push((format!("ignore {}\r\n", line.tube), "WATCHING"));
        }
        for (command, word) in commands {
            let start = self.load.now();
            match line.client.try_call(&command) {
                Some(reply) if reply.starts_with(word.as_bytes()) => {}
                // The slot is away: somewhere else, on a new connection.
                Some(reply) if reply == b"INTERNAL_ERROR\r\n" => return false,
                Some(reply) => {
                    let odd = Outcome::Odd(format!("{command:?}: {}", reply.escape_ascii()));
                    self.record(line.number, start, Action::Leave, odd);
                    return false;
                }
                None => return false,
            }
        }
        line.tube = tube;
        true
    }

    /// One put, or some in one write.
    fn put(&mut self, line: &mut Line) -> bool {
        let count = if self.random.once_in(4) { self.random.below(4) + 2 } else { 1 };
        let actions: Vec<Action> = (0..count).map(|_| self.new_put(&line.tube)).collect();
        let text: String = actions.iter().map(put_text).collect();
        let start = self.load.now();
        let mut open = line.client.try_send(&text);
        for action in actions {
            let reply = if open { line.client.reply_or_end() } else { None };
            open = reply.is_some();
            let outcome = reply.map_or(Outcome::Unknown, |reply| outcome(&action, &reply));
            if let Outcome::Inserted(id) = outcome {
                self.load.remember(id, &mut self.random);
            }
            self.record(line.number, start, action, outcome);
        }
        open
    }

    fn new_put(&mut self, tube: &str) -> Action {
        let number = self.load.bodies.fetch_add(1, Ordering::Relaxed);
        // Most are short; some do not fit into one frame's beginning or one page.
        let filling = "z".repeat(if self.random.once_in(50) {
            self.random.below(20_000)
        } else {
            self.random.below(50)
        });
        Action::Put {
            tube: tube.to_owned(),
            priority: self.random.below(3) as u32,
            delay: if self.random.once_in(12) { *self.random.pick(&[1, 1000]) } else { 0 },
            // Some run out while they are held.
            ttr: if self.random.once_in(10) { 1 } else { 60 },
            body: format!("{tube}/{number}/{filling}"),
        }
    }

    fn kick(&mut self, line: &mut Line) -> bool {
        if self.random.once_in(2) {
            let bound = self.random.below(5) + 1;
            let action = Action::Kick { tube: line.tube.clone() };
            return self.ask(line, &format!("kick {bound}\r\n"), action);
        }
        match self.load.some_id(&mut self.random) {
            Some(id) => self.ask(line, &format!("kick-job {id}\r\n"), Action::KickJob { id }),
            None => true,
        }
    }

    fn peek(&mut self, line: &mut Line) -> bool {
        match self.load.some_id(&mut self.random) {
            Some(id) => self.ask(line, &format!("peek {id}\r\n"), Action::Peek { id }),
            None => true,
        }
    }

    /// Reserves by tube or by id, and goes on with the job if there is one.
    fn reserve(&mut self, line: &mut Line) -> bool {
        if self.random.once_in(40) {
            return self.reserve_and_go(line);
        }
        if self.random.once_in(20) && !self.turn_to(line) {
            return false;
        }
        let by_id = if self.random.once_in(10) { self.load.some_id(&mut self.random) } else { None };
        let open = match by_id {
            Some(id) => self.ask(line, &format!("reserve-job {id}\r\n"), Action::ReserveJob { id }),
            None => {
                let timeout = self.random.below(2);
                let action = Action::Reserve { tube: line.tube.clone() };
                self.ask(line, &format!("reserve-with-timeout {timeout}\r\n"), action)
            }
        };
        match self.ops.last().map(|op| &op.outcome) {
            Some(&Outcome::Job { id, .. }) => self.use_job(line, id),
            _ => open,
        }
    }

    fn use_job(&mut self, line: &mut Line, id: u64) -> bool {
        let priority = self.random.below(3) as u32;
        match self.random.below(20) {
            0 => {
                let delay = self.random.below(2) as u32;
                let text = format!("release {id} {priority} {delay}\r\n");
                self.ask(line, &text, Action::Release { id, priority, delay })
            }
            1 => self.ask(line, &format!("bury {id} {priority}\r\n"), Action::Bury { id }),
            2 => {
                self.ask(line, &format!("touch {id}\r\n"), Action::Touch { id })
                    && self.ask(line, &format!("delete {id}\r\n"), Action::Delete { id })
            }
            // Goes away with it.
            3 => false,
            // Keeps it while it reserves the next.
            4 => true,
            _ => self.ask(line, &format!("delete {id}\r\n"), Action::Delete { id }),
        }
    }

    /// Goes away while it waits, or while the answer is on its way.
    fn reserve_and_go(&mut self, line: &mut Line) -> bool {
        let start = self.load.now();
        line.client.try_send("reserve\r\n");
        let until = Instant::now() + Duration::from_micros(self.random.below(2000) as u64);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        self.record(line.number, start, Action::Reserve { tube: line.tube.clone() }, Outcome::Unknown)
    }
}

fn put_text(action: &Action) -> String {
    let Action::Put { priority, delay, ttr, body, .. } = action else { unreachable!("only puts come here") };
    format!("put {priority} {delay} {ttr} {}\r\n{body}\r\n", body.len())
}

/// What a reply means for a command; the checker says whether it may have it.
fn outcome(action: &Action, reply: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(reply);
    let (line, rest) = text.split_once("\r\n").unwrap_or((&text, ""));
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let expected = match action {
        Action::Put { .. } => "INSERTED",
        Action::Reserve { .. } | Action::ReserveJob { .. } => "RESERVED",
        Action::Peek { .. } => "FOUND",
        Action::Delete { .. } => "DELETED",
        Action::Release { .. } => "RELEASED",
        Action::Bury { .. } => "BURIED",
        Action::Touch { .. } => "TOUCHED",
        Action::Kick { .. } | Action::KickJob { .. } => "KICKED",
        Action::Leave => "",
    };
    let odd = || Outcome::Odd(text.to_string());
    match words[..] {
        ["INTERNAL_ERROR"] => Outcome::Refused,
        ["NOT_FOUND"] => Outcome::NotFound,
        ["TIMED_OUT" | "DEADLINE_SOON"] if expected == "RESERVED" => Outcome::Empty,
        [word] if word == expected => Outcome::Done,
        ["KICKED", _] if expected == "KICKED" => Outcome::Done,
        ["INSERTED", id] if expected == "INSERTED" => number(id).map_or_else(odd, Outcome::Inserted),
        [word @ ("RESERVED" | "FOUND"), id, length] if word == expected => {
            let body = rest.strip_suffix("\r\n").unwrap_or(rest);
            match number(id) {
                Some(id) if number(length) == Some(body.len() as u64) => {
                    Outcome::Job { id, body: body.to_owned() }
                }
                _ => odd(),
            }
        }
        _ => odd(),
    }
}

//! Many commands in one write, for tubes and jobs of several slots: every reply, in the order of the commands, and
//! the same as the original's.

use crate::support::{Binary, Client, Random, Setup, client::shown};

/// Pipelines that a run tries. Each is new, since the seed is.
const ROUNDS: usize = 40;

/// Commands of one pipeline.
const COMMANDS: usize = 60;

/// A session on one server, with the ids in the order in which it got them.
struct Side {
    client: Client,
    ids: Vec<String>,
}

impl Side {
    /// Sends everything, in pieces of the given sizes, and returns the replies with `#1` and so on for ids.
    fn play(&mut self, commands: &[String], cuts: &[usize]) -> Vec<String> {
        let bytes = self.filled(&commands.concat());
        let mut rest = bytes.as_bytes();
        for &cut in cuts {
            let (piece, more) = rest.split_at(cut.min(rest.len()));
            if !piece.is_empty() {
                self.client.send(piece);
            }
            rest = more;
        }
        if !rest.is_empty() {
            self.client.send(rest);
        }
        commands.iter().map(|command| self.reply(command)).collect()
    }

    fn reply(&mut self, command: &str) -> String {
        let reply = String::from_utf8(self.client.reply()).expect("replies in ASCII");
        if command.starts_with("list-tubes\r\n") {
            // The order over slots is the server's own.
            let mut lines: Vec<&str> = reply.lines().collect();
            lines.sort_unstable();
            return lines.join("\n");
        }
        let Some((line, rest)) = reply.split_once("\r\n") else { return reply };
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["INSERTED", id] => {
                self.ids.push(id.to_owned());
                format!("INSERTED #{}", self.ids.len())
            }
            [word @ ("RESERVED" | "FOUND"), id, _] => {
                let at = self.ids.iter().position(|known| known == id);
                format!("{word} #{} {rest}", at.map_or(0, |at| at + 1))
            }
            _ => reply,
        }
    }

    fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // From the highest, since #1 is the beginning of #10.
        for (at, id) in self.ids.iter().enumerate().rev() {
            text = text.replace(&format!("#{} ", at + 1), &format!("{id} "));
            text = text.replace(&format!("#{}\r", at + 1), &format!("{id}\r"));
        }
        text
    }
}

/// One command, with its body. `jobs` ids exist so far.
fn command(random: &mut Random, jobs: usize) -> String {
    let tube = format!("pipe-{}", random.below(9));
    let id = random.below(jobs.max(1)) + 1;
    let priority = random.below(3);
    match random.below(if jobs > 0 { 22 } else { 9 }) {
        0 | 1 => format!("use {tube}\r\n"),
        2 => format!("put {priority} 0 60 {}\r\n{tube}\r\n", tube.len()),
        3 => "list-tube-used\r\n".to_owned(),
        4 => "list-tubes\r\n".to_owned(),
        5 => "nonsense\r\n".to_owned(),
        6 => format!("pause-tube nowhere-{} 1\r\n", random.below(9)),
        7 => "put 0 0 60 x\r\n".to_owned(),
        8 => format!("stats-tube nowhere-{}\r\n", random.below(9)),
        9 => format!("reserve-job #{id}\r\n"),
        10 => format!("peek #{id}\r\n"),
        11 => format!("delete #{id}\r\n"),
        12 => format!("release #{id} {priority} 0\r\n"),
        13 => format!("bury #{id} {priority}\r\n"),
        14 => format!("kick-job #{id}\r\n"),
        15 => format!("touch #{id}\r\n"),
        16 => format!("kick {}\r\n", random.below(3) + 1),
        17 => "peek-ready\r\n".to_owned(),
        18 => "peek-buried\r\n".to_owned(),
        // Puts again: a command by id needs jobs to be about.
        _ => format!("put {priority} 0 60 {}\r\n{tube}\r\n", tube.len()),
    }
}

#[test]
fn replies_come_in_order_over_several_owners() {
    let mut random = Random::announced("replies_come_in_order_over_several_owners");
    let legacy = Setup::new(Binary::Legacy).start();
    for slots in [2, 4, 16] {
        let trellis = Setup::new(Binary::Trellis).slots(slots).frontends(2).start();
        for round in 0..ROUNDS {
            let mut sides = [&legacy, &trellis].map(|server| Side {
                client: server.connect(&format!("{:?}", server.pid())),
                ids: Vec::new(),
            });
            // Ids of one pipeline are known when the next is written.
            for _ in 0..3 {
                let jobs = sides[0].ids.len();
                let commands: Vec<String> = (0..COMMANDS).map(|_| command(&mut random, jobs)).collect();
                let length: usize = commands.iter().map(String::len).sum();
                let cuts: Vec<usize> = match random.below(3) {
                    0 => vec![],
                    1 => (0..10).map(|_| random.below(length / 5) + 1).collect(),
                    _ => vec![random.below(length)],
                };
                let [ours, theirs] = {
                    let [legacy, trellis] = &mut sides;
                    [trellis.play(&commands, &cuts), legacy.play(&commands, &cuts)]
                };
                for ((command, ours), theirs) in commands.iter().zip(&ours).zip(&theirs) {
                    assert_eq!(
                        ours,
                        theirs,
                        "{slots} slots, round {round}, {command:?} of {}",
                        shown(commands.concat().as_bytes())
                    );
                }
            }
            // What is left would be in the way of the next round.
            for side in &mut sides {
                side.client.ask("use default\r\n", "USING default\r\n");
                for id in &side.ids {
                    side.client.call(format!("delete {id}\r\n"));
                }
                side.client.nothing_more(std::time::Duration::from_millis(1));
            }
        }
    }
}

/// A client that asks many owners at once is answered by each in turn, with the bodies in their places.
#[test]
fn large_bodies_of_several_slots_arrive_whole_and_in_order() {
    const SLOTS: u32 = 4;
    const JOBS: usize = 40;
    let server = Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start();
    let mut client = server.connect("A");
    let tubes = crate::support::routing::tubes(SLOTS, "large");
    let bodies: Vec<String> =
        (0..JOBS).map(|n| char::from(b'a' + n as u8 % 26).to_string().repeat(30_000 + n)).collect();
    let puts: String = bodies
        .iter()
        .enumerate()
        .map(|(n, body)| format!("use {}\r\nput 0 0 60 {}\r\n{body}\r\n", tubes[n % tubes.len()], body.len()))
        .collect();
    client.send(puts);
    let mut ids = Vec::new();
    for number in 0..JOBS {
        client.expect(format!("USING {}\r\n", tubes[number % tubes.len()]));
        let reply = String::from_utf8(client.reply()).expect("a reply in ASCII");
        ids.push(reply.trim_end().strip_prefix("INSERTED ").expect("an id").to_owned());
    }
    client.send(ids.iter().map(|id| format!("peek {id}\r\n")).collect::<String>());
    for (id, body) in ids.iter().zip(&bodies) {
        client.expect(format!("FOUND {id} {}\r\n{body}\r\n", body.len()));
    }
}

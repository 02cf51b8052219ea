//! One client of the load: which command comes next, and whether a reply is the one it must be.
//!
//! Pure: bytes in and out, no socket, no clock. `load` gives it connections and time. A reply that is not what
//! the command's success looks like is an error: a benchmark of refusals would measure nothing.

use std::collections::VecDeque;
use std::io::Write;

use super::spec::{Group, Work};

/// The reply that a command must get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    Inserted,
    Reserved,
    Deleted,
    Using,
    Watching,
    Touched,
}

impl Awaited {
    fn word(self) -> &'static [u8] {
        match self {
            Awaited::Inserted => b"INSERTED ",
            Awaited::Reserved => b"RESERVED ",
            Awaited::Deleted => b"DELETED\r",
            Awaited::Using => b"USING ",
            Awaited::Watching => b"WATCHING ",
            Awaited::Touched => b"TOUCHED\r",
        }
    }
}

pub struct Script {
    work: Work,
    tube: String,
    /// All tubes of the group: of interest to those that change theirs.
    tubes: Vec<String>,
    /// Length, body and line end of each put.
    body: Vec<u8>,
    random: fastrand::Rng,
    /// Commands made so far.
    step: u64,
    /// Jobs to be deleted, oldest first; for `Touch` the one that is held.
    ids: VecDeque<u64>,
}

impl Script {
    /// The client with this number in its group.
    pub fn new(group: &Group, number: u32, seed: u64) -> Script {
        let mut body = format!(" {}\r\n", group.body_bytes).into_bytes();
        // No byte of it can be taken for a line's end.
        body.extend((0..group.body_bytes).map(|n| b'a' + (n % 26) as u8));
        body.extend_from_slice(b"\r\n");
        let tube = group.tubes.get(number as usize % group.tubes.len().max(1));
        Script {
            work: group.work,
            tube: tube.cloned().unwrap_or_else(|| "default".to_owned()),
            tubes: if matches!(group.work, Work::Roam | Work::Fill) {
                group.tubes.clone()
            } else {
                Vec::new()
            },
            body,
            random: fastrand::Rng::with_seed(seed ^ (u64::from(number) << 32)),
            step: 0,
            ids: VecDeque::new(),
        }
    }

    /// What goes out before the warm-up, and the replies it must get.
    pub fn begin(&mut self, out: &mut Vec<u8>) -> Vec<Awaited> {
        let tube = &self.tube;
        match self.work {
            Work::Cycle | Work::Produce { .. } | Work::Consume | Work::Touch => {
                if tube == "default" {
                    return Vec::new();
                }
                write!(out, "use {tube}\r\nwatch {tube}\r\nignore default\r\n").expect("memory takes it");
                let mut awaited = vec![Awaited::Using, Awaited::Watching, Awaited::Watching];
                if self.work == Work::Touch {
                    self.put(out);
                    out.extend_from_slice(b"reserve\r\n");
                    awaited.extend([Awaited::Inserted, Awaited::Reserved]);
                }
                awaited
            }
            Work::Put => {
                write!(out, "use {tube}\r\n").expect("memory takes it");
                vec![Awaited::Using]
            }
            // A reply proves that the server has accepted the connection.
            Work::Idle => {
                out.extend_from_slice(b"list-tube-used\r\n");
                vec![Awaited::Using]
            }
            Work::Roam | Work::Fill | Work::Churn => Vec::new(),
        }
    }

    /// The next command. `None`: there is none now; a reply or a consumer may bring one.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Option<Awaited> {
        let step = self.step;
        let awaited = match self.work {
            Work::Cycle => match step % 3 {
                0 => self.put(out),
                1 => self.reserve(out),
                // With several commands a write the first delete comes before any reply told an id.
                _ if self.ids.is_empty() => {
                    self.step += 1;
                    self.put(out)
                }
                _ => self.delete(out)?,
            },
            Work::Put | Work::Produce { .. } | Work::Churn => self.put(out),
            Work::Roam => match step % 3 {
                0 => {
                    let tube = self.random.usize(..self.tubes.len());
                    self.use_tube(tube, out)
                }
                1 => self.put(out),
                _ => self.delete(out)?,
            },
            Work::Consume if step % 2 == 0 => self.reserve(out),
            Work::Consume => self.delete(out)?,
            Work::Touch => {
                let id = self.ids.front()?;
                write!(out, "touch {id}\r\n").expect("memory takes it");
                Awaited::Touched
            }
            Work::Fill if step % 2 == 0 => self.use_tube((step / 2) as usize % self.tubes.len(), out),
            Work::Fill => self.put(out),
            Work::Idle => return None,
        };
        self.step += 1;
        Some(awaited)
    }

    fn put(&self, out: &mut Vec<u8>) -> Awaited {
        out.extend_from_slice(b"put 1024 0 3600");
        out.extend_from_slice(&self.body);
        Awaited::Inserted
    }

    fn reserve(&self, out: &mut Vec<u8>) -> Awaited {
        out.extend_from_slice(b"reserve\r\n");
        Awaited::Reserved
    }

    fn delete(&mut self, out: &mut Vec<u8>) -> Option<Awaited> {
        let id = self.ids.pop_front()?;
        write!(out, "delete {id}\r\n").expect("memory takes it");
        Some(Awaited::Deleted)
    }

    fn use_tube(&self, number: usize, out: &mut Vec<u8>) -> Awaited {
        write!(out, "use {}\r\n", self.tubes[number]).expect("memory takes it");
        Awaited::Using
    }

    /// Takes the reply at the front of `input`: its length, or `None` while it isn't whole.
    pub fn reply(&mut self, awaited: Awaited, input: &[u8]) -> Result<Option<usize>, String> {
        let Some(line) = memchr::memchr(b'\n', input).map(|at| at + 1) else { return Ok(None) };
        let text = &input[..line];
        let wrong = || format!("{awaited:?} was to come, but {:?} came", String::from_utf8_lossy(text));
        if !text.starts_with(awaited.word()) {
            return Err(wrong());
        }
        let mut numbers = text[awaited.word().len()..].split(|byte| matches!(byte, b' ' | b'\r'));
        let mut number = || numbers.next().and_then(decimal).ok_or_else(wrong);
        match awaited {
            Awaited::Reserved => {
                let (id, body) = (number()?, number()?);
                let whole = line + body as usize + 2;
                if input.len() < whole {
                    return Ok(None);
                }
                self.ids.push_back(id);
                Ok(Some(whole))
            }
            Awaited::Inserted => {
                if self.work == Work::Roam {
                    self.ids.push_back(number()?);
                }
                Ok(Some(line))
            }
            _ => Ok(Some(line)),
        }
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(work: Work) -> Script {
        Script::new(&Group { body_bytes: 3, ..Group::closed("x", 1, work) }, 0, 1)
    }

    fn commands(script: &mut Script, count: usize) -> (String, Vec<Awaited>) {
        let mut out = Vec::new();
        let awaited = (0..count).map_while(|_| script.next(&mut out)).collect();
        (String::from_utf8(out).unwrap(), awaited)
    }

    #[test]
    fn cycle_deletes_what_it_reserved() {
        let mut script = script(Work::Cycle);
        let (text, awaited) = commands(&mut script, 2);
        assert_eq!(text, "put 1024 0 3600 3\r\nabc\r\nreserve\r\n");
        assert_eq!(script.reply(awaited[0], b"INSERTED 7\r\n"), Ok(Some(12)));
        assert_eq!(script.reply(awaited[1], b"RESERVED 7 3\r\nabc\r"), Ok(None));
        assert_eq!(script.reply(awaited[1], b"RESERVED 7 3\r\nabc\r\nX"), Ok(Some(19)));
        assert_eq!(commands(&mut script, 1).0, "delete 7\r\n");
    }

    #[test]
    fn cycle_in_one_write_never_reserves_more_than_it_put() {
        let mut script = script(Work::Cycle);
        for _ in 0..50 {
            let (_, awaited) = commands(&mut script, 16);
            assert_eq!(awaited.len(), 16, "every write is full");
            for (id, awaited) in (1..).zip(awaited) {
                let reply = match awaited {
                    Awaited::Inserted => format!("INSERTED {id}\r\n"),
                    Awaited::Reserved => format!("RESERVED {id} 3\r\nabc\r\n"),
                    _ => "DELETED\r\n".to_owned(),
                };
                assert_eq!(script.reply(awaited, reply.as_bytes()), Ok(Some(reply.len())));
            }
            // What is reserved and not deleted stays within one write's worth.
            assert!(script.ids.len() <= 16, "{}", script.ids.len());
        }
    }

    #[test]
    fn reply_that_refuses_is_an_error_that_shows_it() {
        let mut script = script(Work::Put);
        let reason = script.reply(Awaited::Inserted, b"DRAINING\r\n").unwrap_err();
        assert!(reason.contains("Inserted") && reason.contains("DRAINING"), "{reason}");
        assert!(script.reply(Awaited::Reserved, b"RESERVED x 3\r\n").is_err());
    }

    #[test]
    fn reply_in_pieces_waits_for_the_rest() {
        let mut script = script(Work::Roam);
        for length in 0..12 {
            assert_eq!(script.reply(Awaited::Inserted, &b"INSERTED 9\r\n"[..length]), Ok(None));
        }
        assert_eq!(script.reply(Awaited::Inserted, b"INSERTED 9\r\nDEL"), Ok(Some(12)));
    }
}

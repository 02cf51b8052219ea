//! What a command line is and where it belongs. Words are compared as stock compares them: as prefixes, in a
//! fixed order. A line whose arguments stock would refuse is `Other`, with one exception: how much of the
//! stream a `put` takes must be known here.

use super::TubeName;
use super::numbers::{u32_and_rest, u32_whole, u64_and_rest, u64_whole};
use super::tube_name::is_name_byte;

/// A command line by what the frontend has to do with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A put whose body of so many bytes (without its CR LF) follows.
    Put {
        body: u32,
    },
    /// A put whose body is over the limit: this many bytes, then thrown away.
    PutTooBig {
        body: u32,
    },
    Use(TubeName),
    Watch(TubeName),
    Ignore(TubeName),
    /// `reserve` or `reserve-with-timeout`, the latter with its seconds.
    Reserve {
        timeout: Option<u32>,
    },
    /// A command by job id.
    ById {
        id: u64,
        command: IdCommand,
    },
    /// `stats-tube` or `pause-tube` of this tube.
    ByTube {
        tube: TubeName,
        reads: bool,
    },
    /// Looks at the used tube without changing it (`peek-ready` and its like).
    PeekUsed,
    /// Changes jobs of the used tube (`kick`).
    KickUsed,
    Stats,
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    Quit,
    /// Malformed or unknown: the core answers it.
    Other,
}

/// What is done with the job of that id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdCommand {
    Peek,
    StatsJob,
    ReserveJob,
    /// Delete, release, bury, touch, kick-job.
    Change,
}

/// Classifies a line without its CR LF. `job_bytes` is the largest body that is taken.
pub fn command(line: &[u8], job_bytes: u64) -> Command {
    if memchr::memchr(0, line).is_some() {
        return Command::Other;
    }
    known(line, job_bytes).unwrap_or(Command::Other)
}

fn known(line: &[u8], job_bytes: u64) -> Option<Command> {
    let after = |word: &str| line.strip_prefix(word.as_bytes());
    let exactly = |rest: &[u8], command: Command| rest.is_empty().then_some(command);
    let change = |id: u64| Command::ById { id, command: IdCommand::Change };

    match line.first()? {
        b'p' => {
            if let Some(rest) = after("put ") {
                put(rest, job_bytes)
            } else if let Some(rest) = after("peek ") {
                Some(Command::ById { id: u64_whole(rest)?, command: IdCommand::Peek })
            } else if let Some(rest) =
                after("peek-ready").or_else(|| after("peek-delayed")).or_else(|| after("peek-buried"))
            {
                exactly(rest, Command::PeekUsed)
            } else {
                pause_tube(after("pause-tube")?)
            }
        }
        b'r' => {
            if let Some(rest) = after("reserve-with-timeout ") {
                let (timeout, _ignored) = u32_and_rest(rest)?;
                (timeout <= i32::MAX as u32).then_some(Command::Reserve { timeout: Some(timeout) })
            } else if let Some(rest) = after("reserve-job ") {
                Some(Command::ById { id: u64_whole(rest)?, command: IdCommand::ReserveJob })
            } else if let Some(rest) = after("reserve") {
                exactly(rest, Command::Reserve { timeout: None })
            } else {
                let (id, rest) = u64_and_rest(after("release ")?)?;
                let (_priority, rest) = u32_and_rest(rest)?;
                u32_whole(rest)?;
                Some(change(id))
            }
        }
        b'd' => Some(change(u64_whole(after("delete ")?)?)),
        b'b' => {
            let (id, rest) = u64_and_rest(after("bury ")?)?;
            u32_whole(rest)?;
            Some(change(id))
        }
        b'k' => match after("kick ") {
            Some(_) => Some(Command::KickUsed),
            None => Some(change(u64_whole(after("kick-job ")?)?)),
        },
        b't' => Some(change(u64_whole(after("touch ")?)?)),
        b's' => {
            if let Some(rest) = after("stats-job ") {
                Some(Command::ById { id: u64_whole(rest)?, command: IdCommand::StatsJob })
            } else if let Some(rest) = after("stats-tube ") {
                Some(Command::ByTube { tube: TubeName::new(rest)?, reads: true })
            } else {
                exactly(after("stats")?, Command::Stats)
            }
        }
        b'u' => Some(Command::Use(TubeName::new(after("use ")?)?)),
        b'w' => Some(Command::Watch(TubeName::new(after("watch ")?)?)),
        b'i' => Some(Command::Ignore(TubeName::new(after("ignore ")?)?)),
        b'l' => {
            if let Some(rest) = after("list-tubes-watched") {
                exactly(rest, Command::ListTubesWatched)
            } else if let Some(rest) = after("list-tube-used") {
                exactly(rest, Command::ListTubeUsed)
            } else {
                exactly(after("list-tubes")?, Command::ListTubes)
            }
        }
        b'q' => after("quit").map(|_| Command::Quit),
        _ => None,
    }
}

/// The size is held against the limit before what follows it is looked at.
fn put(arguments: &[u8], job_bytes: u64) -> Option<Command> {
    let (_priority, rest) = u32_and_rest(arguments)?;
    let (_delay, rest) = u32_and_rest(rest)?;
    let (_ttr, rest) = u32_and_rest(rest)?;
    let (body, rest) = u32_and_rest(rest)?;
    if u64::from(body) > job_bytes {
        return Some(Command::PutTooBig { body });
    }
    rest.is_empty().then_some(Command::Put { body })
}

/// The blank before the name may be missing, or be several.
fn pause_tube(arguments: &[u8]) -> Option<Command> {
    let start = arguments.iter().position(|&b| b != b' ')?;
    let name = arguments[start..].iter().take_while(|&&b| is_name_byte(b)).count();
    u32_whole(&arguments[start + name..])?;
    let tube = TubeName::new(&arguments[start..start + name])?;
    Some(Command::ByTube { tube, reads: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Command {
        command(line.as_bytes(), 10)
    }

    fn name(name: &str) -> TubeName {
        TubeName::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn put_is_judged_by_its_numbers_then_the_limit_then_the_end() {
        assert_eq!(of("put 0  00 60 0010"), Command::Put { body: 10 });
        assert_eq!(of("put 0 0 60 11"), Command::PutTooBig { body: 11 });
        assert_eq!(of("put 0 0 60 11 junk"), Command::PutTooBig { body: 11 });
        for line in
            ["put 0 0 60 1 ", "put 0 0 60", "put -1 0 60 1", "put 0 0 60 4294967296", "put", "Put 0 0 60 1"]
        {
            assert_eq!(of(line), Command::Other, "{line}");
        }
    }

    #[test]
    fn word_that_only_begins_like_a_command_is_other() {
        for line in [
            "reserve ",
            "reservex",
            "reserve-job",
            "stats ",
            "statsx",
            "list-tubes ",
            "list-tubesx",
            "peek-",
            "peek-readyx",
            "kick",
            "use",
            "use  a",
            "touch\t1",
            "qui",
            "",
            "stats\0",
            "quit\0",
        ] {
            assert_eq!(of(line), Command::Other, "{line}");
        }
        assert_eq!(of("quitter's remorse"), Command::Quit);
    }

    #[test]
    fn reserve_with_timeout_ignores_what_follows_the_number() {
        assert_eq!(of("reserve-with-timeout 0abc"), Command::Reserve { timeout: Some(0) });
        assert_eq!(of("reserve-with-timeout 2147483648"), Command::Other);
        assert_eq!(of("reserve"), Command::Reserve { timeout: None });
    }

    #[test]
    fn pause_tube_needs_no_blank_before_the_name() {
        let pauses = |tube| Command::ByTube { tube: name(tube), reads: false };
        assert_eq!(of("pause-tubexyz 100"), pauses("xyz"));
        assert_eq!(of("pause-tube  default  7"), pauses("default"));
        assert_eq!(of("pause-tube 5 5"), pauses("5"));
        for line in ["pause-tube 5", "pause-tube -x 1", "pause-tube a,b 1", "pause-tube a 1 ", "pause-tube"] {
            assert_eq!(of(line), Command::Other, "{line}");
        }
    }

    #[test]
    fn commands_by_id_need_whole_arguments() {
        let change = |id| Command::ById { id, command: IdCommand::Change };
        assert_eq!(of("release  9   1   2"), change(9));
        assert_eq!(of("bury 9 1"), change(9));
        assert_eq!(of("kick-job 9"), change(9));
        assert_eq!(of("kick x"), Command::KickUsed);
        for line in ["release 9 1", "release 9 1 2 ", "bury 9", "delete 9 9", "touch", "delete -1"] {
            assert_eq!(of(line), Command::Other, "{line}");
        }
    }

    /// Lines near the edge of every rule: words, numbers and blanks put together at random.
    fn lines() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::prelude::*;
        let word = prop::sample::select(vec![
            "put ",
            "peek ",
            "peek-ready",
            "reserve",
            "reserve-with-timeout ",
            "reserve-job ",
            "delete ",
            "release ",
            "bury ",
            "kick ",
            "kick-job ",
            "touch ",
            "stats",
            "stats-job ",
            "stats-tube ",
            "use ",
            "watch ",
            "ignore ",
            "list-tubes",
            "list-tube-used",
            "list-tubes-watched",
            "quit",
            "pause-tube",
            "",
        ]);
        let piece = prop_oneof![
            any::<u64>().prop_map(|n| n.to_string().into_bytes()),
            Just(b" ".to_vec()),
            Just(b"default".to_vec()),
            prop::collection::vec(any::<u8>(), 0..4),
        ];
        (word, prop::collection::vec(piece, 0..8))
            .prop_map(|(word, pieces)| [word.as_bytes(), &pieces.concat()].concat())
    }

    proptest::proptest! {
        /// What is not refused keeps to its bounds, whatever the line.
        #[test]
        fn command_of_any_line_is_within_its_bounds(line in lines()) {
            match command(&line, 1000) {
                Command::Put { body } => assert!(body <= 1000),
                Command::PutTooBig { body } => assert!(body > 1000),
                Command::Reserve { timeout: Some(seconds) } => assert!(seconds <= i32::MAX as u32),
                Command::Quit => assert!(line.starts_with(b"quit")),
                _ => {}
            }
            if line.contains(&0) {
                assert_eq!(command(&line, 1000), Command::Other);
            }
        }
    }
}

//! The flags of the server: stock's with stock's rules, and ours as long options.
//!
//! Short flags cluster and take their argument glued or as the next word (`-f0`, `-f 0`, `-VFb DIR`), the last
//! of a kind wins, `-h` and `-v` act when they are reached, and a wrong flag ends with code 5 and the usage
//! text. Long options are `--slots 4` or `--slots=4`. Stock knows no long options, so none of its command
//! lines changes its meaning.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::numbers::size;
use super::{Command, Parsed, Saying};
use crate::error::Exit;
use crate::limits;
use crate::log;
use crate::protocol::{WORDS, Words};

/// Everything that was asked for; `None` where the data or the machine decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `-b`. UTF-8: it crosses to the owners as text.
    pub dir: Option<String>,
    /// `-f`, in milliseconds: 0 syncs before each reply. `None` with `-F`: never.
    pub sync_ms: Option<u64>,
    /// `-l`: a host, an address, or `unix:PATH`. `None`: any address.
    pub address: Option<String>,
    /// `-p`: a number or a service's name.
    pub port: String,
    /// `-u`
    pub user: Option<String>,
    /// `-z`, in bytes.
    pub job_bytes: u64,
    /// `-s`, in bytes, as given.
    pub wal_file_bytes: u32,
    /// How often `-V` was given.
    pub verbose: u8,
    /// `--log-format`; `None`: the environment decides.
    pub log_format: Option<log::Format>,
    pub slots: Option<u32>,
    pub partitions: Option<u32>,
    pub frontends: Option<u16>,
    pub owner_wait_ms: u64,
    pub max_connections: u64,
    /// `None`: what `supervisor::client_limits` says.
    pub max_unfinished_bytes: Option<u64>,
    /// `--idle-timeout`, in seconds.
    pub idle_timeout_s: Option<u32>,
    /// `--body-timeout`, in seconds.
    pub body_timeout_s: Option<u32>,
    pub max_connections_per_address: Option<u32>,
    pub refuse_commands: Words,
    /// `--kill-stalled`: how long a process may go without an answer to a ping. `None`: as long as it likes.
    pub kill_stalled: Option<Duration>,
    /// `--metrics`: address of the HTTP endpoint.
    pub metrics: Option<String>,
    /// `--metrics-tubes`: how many tubes have metrics of their own.
    pub metrics_tubes: u16,
    /// `--control`: path of the control socket.
    pub control: Option<PathBuf>,
    /// The `-l` and `-p` that were given, for the warning that an inherited socket makes them void.
    pub listen_flags: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            dir: None,
            sync_ms: Some(limits::SYNC_MS_DEFAULT),
            address: None,
            port: "11300".to_owned(),
            user: None,
            job_bytes: limits::JOB_BYTES_DEFAULT as u64,
            wal_file_bytes: limits::WAL_FILE_BYTES_DEFAULT as u32,
            verbose: 0,
            log_format: None,
            slots: None,
            partitions: None,
            frontends: None,
            owner_wait_ms: limits::OWNER_WAIT_MS_DEFAULT,
            max_connections: limits::CONNECTIONS_DEFAULT,
            max_unfinished_bytes: None,
            idle_timeout_s: None,
            body_timeout_s: None,
            max_connections_per_address: None,
            refuse_commands: Words::default(),
            kill_stalled: None,
            metrics: None,
            metrics_tubes: limits::METRICS_TUBES_DEFAULT,
            control: None,
            listen_flags: Vec::new(),
        }
    }
}

/// What `-v` prints.
pub fn version_line() -> String {
    format!("trellis {} (beanstalkd 1.13)", env!("CARGO_PKG_VERSION"))
}

pub(super) fn usage(program: &str) -> String {
    format!(
        "\
Usage: {program} [serve] [OPTIONS]

As beanstalkd:
 -b DIR    keep jobs in write-ahead logs in this directory
 -f MS     sync the logs at most once in MS milliseconds ({sync} if not given);
           -f0 syncs before each reply
 -F        never sync
 -l ADDR   listen on this address, or on unix:PATH (0.0.0.0 if not given)
 -p PORT   listen on this port (11300 if not given)
 -u USER   become this user and its group
 -z BYTES  refuse larger job bodies ({job} if not given, at most {job_max})
 -s BYTES  size of a log file ({wal} if not given)
 -v        print the version and leave
 -V        say more on stderr; twice for yet more
 -h        print this and leave

Of trellis:
 --slots N        owner processes over which tubes are divided
                  (if not given: what the data says, else 1)
 --partitions N   parts of the tube name space ({partitions} if not given)
 --frontends N    processes that face clients (if not given: one for two processors)
 --owner-wait MS  how long a command waits for a slot that is being restarted
                  ({wait} if not given)
 --max-connections N
                  clients at a time; others wait to be accepted
                  ({connections} if not given)
 --max-unfinished-bytes N
                  bodies that have not wholly arrived, summed up; further ones
                  are refused ({unfinished} if not given)
 --idle-timeout SECONDS
                  disconnect a client that is silent for so long, waits for
                  nothing and holds no job (if not given: never)
 --body-timeout SECONDS
                  disconnect a client whose job body takes longer to arrive
                  (if not given: never)
 --max-connections-per-address N
                  TCP clients of one address at a time; others are disconnected
                  (if not given: as many as there may be)
 --refuse-commands LIST
                  commands to refuse, as in kick,pause-tube
 --kill-stalled MS
                  kill and restart a process of ours that has not answered its
                  supervisor for MS milliseconds, {pong} at least (if not given:
                  it is shown as stalled and left alone)
 --log-format F   lines of the log as text or as json (text if not given)
 --metrics ADDR   serve metrics over HTTP on this address
 --metrics-tubes N
                  tubes with metrics of their own, the first by name
                  ({tubes} if not given)
 --control PATH   place of the control socket, for `{program} status`

Other commands:
 {program} status --help
 {program} topology show|route --help
 {program} wal check|dump|repair --help
 {program} migrate|export --help
 {program} compare --help
 {program} bench --help
 {program} completions bash|zsh|fish",
        sync = limits::SYNC_MS_DEFAULT,
        job = limits::JOB_BYTES_DEFAULT,
        job_max = limits::JOB_BYTES_MAX,
        wal = limits::WAL_FILE_BYTES_DEFAULT,
        partitions = limits::PARTITIONS_DEFAULT,
        wait = limits::OWNER_WAIT_MS_DEFAULT,
        connections = limits::CONNECTIONS_DEFAULT,
        unfinished = limits::UNFINISHED_BYTES_DEFAULT,
        pong = limits::PONG_MS,
        tubes = limits::METRICS_TUBES_DEFAULT,
    )
}

/// Why reading stops before the end.
enum Stop {
    Help,
    Version,
    Wrong(String),
}

/// Reads the words behind the program's name and `serve`.
pub fn parse(program: &str, words: Vec<OsString>) -> Parsed {
    let mut reader = Reader { settings: Settings::default(), notes: Vec::new() };
    let command = match reader.read(words) {
        Ok(()) => Command::Serve(reader.settings),
        Err(Stop::Help) => Command::Say(Saying { text: usage(program), to_stdout: false, exit: Exit::Done }),
        Err(Stop::Version) => {
            Command::Say(Saying { text: version_line(), to_stdout: true, exit: Exit::Done })
        }
        Err(Stop::Wrong(what)) => {
            let text = format!("{program}: {what}\n{}", usage(program));
            Command::Say(Saying { text, to_stdout: false, exit: Exit::Usage })
        }
    };
    let notes = reader.notes.into_iter().map(|note| format!("{program}: {note}")).collect();
    Parsed { notes, command }
}

struct Reader {
    settings: Settings,
    notes: Vec<String>,
}

impl Reader {
    fn read(&mut self, words: Vec<OsString>) -> Result<(), Stop> {
        let mut texts = Vec::with_capacity(words.len());
        for word in words {
            let wrong = |word: OsString| Stop::Wrong(format!("not UTF-8: {}", word.to_string_lossy()));
            texts.push(word.into_string().map_err(wrong)?);
        }
        let mut words = texts.into_iter();
        while let Some(word) = words.next() {
            if let Some(long) = word.strip_prefix("--").filter(|name| !name.is_empty()) {
                self.long(long, &mut words)?;
            } else if let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.is_empty()) {
                self.cluster(cluster, &mut words)?;
            } else {
                return Err(Stop::Wrong(format!("unknown argument: {word}")));
            }
        }
        Ok(())
    }

    /// Flags of one letter behind one dash. The rest of the word, if there is any, is the argument of the first
    /// flag that takes one.
    fn cluster(&mut self, cluster: &str, words: &mut impl Iterator<Item = String>) -> Result<(), Stop> {
        let mut rest = cluster.chars();
        while let Some(letter) = rest.next() {
            let mut argument = || match std::mem::replace(&mut rest, "".chars()).as_str() {
                "" => words.next().ok_or(Stop::Wrong(format!("flag requires an argument: -{letter}"))),
                glued => Ok(glued.to_owned()),
            };
            match letter {
                'p' => {
                    self.settings.port = argument()?;
                    self.settings.listen_flags.push(format!("-p {}", self.settings.port));
                }
                'l' => {
                    let address = argument()?;
                    self.settings.listen_flags.push(format!("-l {address}"));
                    self.settings.address = Some(address);
                }
                'z' => self.job_bytes(stock_size(&argument()?)?),
                's' => self.settings.wal_file_bytes = wal_file_bytes(stock_size(&argument()?)?)?,
                'f' => self.settings.sync_ms = Some(stock_size(&argument()?)?.min(limits::SYNC_MS_MAX)),
                'F' => self.settings.sync_ms = None,
                'u' => self.settings.user = Some(argument()?),
                'b' => self.settings.dir = Some(argument()?),
                'c' | 'n' => self.notes.push(format!("-{letter} has no effect: the log is always compacted")),
                'V' => self.settings.verbose = self.settings.verbose.saturating_add(1),
                'h' => return Err(Stop::Help),
                'v' => return Err(Stop::Version),
                _ => return Err(Stop::Wrong(format!("unknown flag: -{letter}"))),
            }
        }
        Ok(())
    }

    fn job_bytes(&mut self, asked: u64) {
        let most = limits::JOB_BYTES_MAX as u64;
        if asked > most {
            self.notes.push(format!("-z {asked}: the largest job size is {most}, which is used"));
        }
        self.settings.job_bytes = asked.min(most);
    }

    /// A long option, without its dashes.
    fn long(&mut self, option: &str, words: &mut impl Iterator<Item = String>) -> Result<(), Stop> {
        let (name, mut glued) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        let mut value = || {
            let missing = || Stop::Wrong(format!("option requires an argument: --{name}"));
            glued.take().or_else(|| words.next()).ok_or_else(missing)
        };
        let s = &mut self.settings;
        match name {
            "slots" => s.slots = Some(number(name, &value()?, 1, limits::SLOTS_MAX.into())? as u32),
            "partitions" => {
                s.partitions = Some(number(name, &value()?, 1, limits::PARTITIONS_MAX.into())? as u32);
            }
            "frontends" => {
                s.frontends = Some(number(name, &value()?, 1, limits::FRONTENDS_MAX.into())? as u16);
            }
            "owner-wait" => s.owner_wait_ms = number(name, &value()?, 0, limits::OWNER_WAIT_MS_MAX)?,
            "max-connections" => {
                s.max_connections = number(name, &value()?, 1, limits::CONNECTIONS_MAX)?;
            }
            "max-unfinished-bytes" => {
                s.max_unfinished_bytes = Some(number(name, &value()?, 0, limits::UNFINISHED_BYTES_MAX)?);
            }
            "idle-timeout" => s.idle_timeout_s = Some(seconds(name, &value()?)?),
            "body-timeout" => s.body_timeout_s = Some(seconds(name, &value()?)?),
            "max-connections-per-address" => {
                let most = number(name, &value()?, 1, limits::CONNECTIONS_MAX)?;
                s.max_connections_per_address = Some(most as u32);
            }
            "refuse-commands" => {
                let unknown = |word: String| {
                    let known = WORDS.join(", ");
                    Stop::Wrong(format!("--refuse-commands: no command {word:?}; there are {known}"))
                };
                s.refuse_commands = Words::parse(&value()?).map_err(unknown)?;
            }
            "kill-stalled" => {
                let ms = number(name, &value()?, limits::PONG_MS, limits::KILL_STALLED_MS_MAX)?;
                s.kill_stalled = Some(Duration::from_millis(ms));
            }
            "log-format" => {
                let name = value()?;
                let wrong = || Stop::Wrong(format!("--log-format {name}: must be text or json"));
                s.log_format = Some(log::Format::from_name(&name).ok_or_else(wrong)?);
            }
            "metrics" => {
                let address = value()?;
                if !names_host_and_port(&address) {
                    return Err(Stop::Wrong(format!("--metrics {address}: must be ADDR:PORT")));
                }
                s.metrics = Some(address);
            }
            "metrics-tubes" => {
                s.metrics_tubes = number(name, &value()?, 0, limits::METRICS_TUBES_MAX.into())? as u16;
            }
            "control" => s.control = Some(value()?.into()),
            "help" if glued.is_none() => return Err(Stop::Help),
            "version" if glued.is_none() => return Err(Stop::Version),
            _ => return Err(Stop::Wrong(format!("unknown flag: --{option}"))),
        }
        Ok(())
    }
}

/// As `127.0.0.1:11390`, `[::1]:11390` or `localhost:11390`. Whether there is such a host is seen later.
fn names_host_and_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok()
}

fn stock_size(text: &str) -> Result<u64, Stop> {
    size(text).ok_or(Stop::Wrong(format!("invalid size: {text}")))
}

fn wal_file_bytes(asked: u64) -> Result<u32, Stop> {
    number("", &asked.to_string(), limits::WAL_FILE_BYTES_MIN, limits::WAL_FILE_BYTES_MAX)
        .map(|bytes| bytes as u32)
        .map_err(|_| {
            let (least, most) = (limits::WAL_FILE_BYTES_MIN, limits::WAL_FILE_BYTES_MAX);
            Stop::Wrong(format!("-s {asked}: a log file has {least} to {most} bytes"))
        })
}

fn number(name: &str, text: &str, least: u64, most: u64) -> Result<u64, Stop> {
    size(text)
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| Stop::Wrong(format!("--{name} {text}: must be {least} to {most}")))
}

fn seconds(name: &str, text: &str) -> Result<u32, Stop> {
    number(name, text, 1, limits::CLIENT_SECONDS_MAX).map(|seconds| seconds as u32)
}

// Bounds above fit the types they are cast to.
const _: () = assert!(limits::WAL_FILE_BYTES_MAX <= u32::MAX as u64);
const _: () = assert!(limits::CONNECTIONS_MAX <= u32::MAX as u64);
const _: () = assert!(limits::CLIENT_SECONDS_MAX <= u32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Parsed {
        parse("trellis", line.iter().map(OsString::from).collect())
    }

    fn settings(line: &[&str]) -> Settings {
        match parsed(line).command {
            Command::Serve(settings) => settings,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn saying(line: &[&str]) -> Saying {
        match parsed(line).command {
            Command::Say(saying) => saying,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    /// Refused with code 5, the usage text behind the reason.
    fn refused(line: &[&str]) -> String {
        let saying = saying(line);
        assert_eq!((saying.exit, saying.to_stdout), (Exit::Usage, false), "{line:?}");
        let (reason, usage) = saying.text.split_once('\n').unwrap();
        assert!(usage.contains("Usage: trellis"), "{usage}");
        reason.strip_prefix("trellis: ").unwrap().to_owned()
    }

    #[test]
    fn no_flags_are_the_defaults() {
        let s = settings(&[]);
        assert_eq!(s, Settings::default());
        assert_eq!(
            (s.port.as_str(), s.sync_ms, s.job_bytes, s.wal_file_bytes),
            ("11300", Some(50), 65535, 10485760)
        );
        assert_eq!(s.owner_wait_ms, 5000);
    }

    #[test]
    fn argument_glued_or_apart_is_the_same() {
        for line in [&["-p1234"][..], &["-p", "1234"], &["-Vp1234"], &["-Vp", "1234"]] {
            assert_eq!(settings(line).port, "1234", "{line:?}");
        }
        let s = settings(&["-VVFb", "dir", "-f0", "-lunix:/run/x"]);
        assert_eq!((s.verbose, s.dir.as_deref(), s.sync_ms), (2, Some("dir"), Some(0)));
        assert_eq!(s.address.as_deref(), Some("unix:/run/x"));
        assert_eq!(settings(&["-b", "-V"]).dir.as_deref(), Some("-V"), "the next word, whatever it is");
        assert_eq!(settings(&["-p", "", "-V"]).verbose, 1, "an empty word is an argument too");
    }

    #[test]
    fn last_of_a_kind_wins() {
        assert_eq!(settings(&["-p1", "-p2"]).port, "2");
        assert_eq!(settings(&["-F", "-f7"]).sync_ms, Some(7));
        assert_eq!(settings(&["-f7", "-F"]).sync_ms, None);
    }

    #[test]
    fn listen_flags_are_remembered_for_the_warning() {
        assert_eq!(settings(&["-p1", "-l", "::1"]).listen_flags, ["-p 1", "-l ::1"]);
        assert!(settings(&["-F"]).listen_flags.is_empty());
    }

    #[test]
    fn flag_that_is_unknown_is_refused() {
        assert_eq!(refused(&["-x"]), "unknown flag: -x");
        assert_eq!(refused(&["-Vx"]), "unknown flag: -x");
        assert_eq!(refused(&["--"]), "unknown flag: --");
        assert_eq!(refused(&["--frobnicate=2"]), "unknown flag: --frobnicate=2");
        assert_eq!(refused(&["--help=2"]), "unknown flag: --help=2");
    }

    #[test]
    fn word_that_is_no_flag_is_refused() {
        assert_eq!(refused(&["words"]), "unknown argument: words");
        assert_eq!(refused(&["-V", "-"]), "unknown argument: -");
        assert_eq!(refused(&[""]), "unknown argument: ");
    }

    #[test]
    fn flag_without_its_argument_is_refused() {
        for letter in ["p", "l", "z", "s", "f", "u", "b"] {
            let flag = format!("-{letter}");
            assert_eq!(refused(&[&flag]), format!("flag requires an argument: {flag}"));
            assert_eq!(refused(&[&format!("-V{letter}")]), format!("flag requires an argument: {flag}"));
        }
        assert_eq!(refused(&["--slots"]), "option requires an argument: --slots");
    }

    #[test]
    fn size_that_is_none_is_refused() {
        for flag in ["-z", "-s", "-f"] {
            for text in ["x", "1k", "0x10", "-1", ""] {
                assert_eq!(refused(&[flag, text]), format!("invalid size: {text}"));
            }
        }
    }

    #[test]
    fn job_size_above_the_most_is_cut_with_a_note() {
        assert_eq!(settings(&["-z1073741824"]).job_bytes, 1 << 30);
        assert!(parsed(&["-z1073741824"]).notes.is_empty());
        for text in ["1073741825", "99999999999999999999999"] {
            let parsed = parsed(&["-z", text]);
            assert!(parsed.notes[0].contains("1073741824"), "{:?}", parsed.notes);
            assert!(matches!(parsed.command, Command::Serve(Settings { job_bytes: 1073741824, .. })));
        }
        assert_eq!(settings(&["-z0"]).job_bytes, 0);
    }

    #[test]
    fn log_file_size_out_of_range_is_refused_naming_it() {
        for bytes in [512, 601, 1000, 512000, 2147479552] {
            assert_eq!(settings(&["-s", &bytes.to_string()]).wal_file_bytes, bytes);
        }
        for text in ["0", "511", "2147479553", "4294967297", "99999999999999999999999"] {
            let reason = refused(&["-s", text]);
            assert!(reason.starts_with("-s ") && reason.contains("512"), "{reason}");
        }
    }

    #[test]
    fn sync_interval_beyond_the_clock_is_the_longest() {
        assert_eq!(settings(&["-f99999999999999999999"]).sync_ms, Some(limits::SYNC_MS_MAX));
    }

    #[test]
    fn flags_of_old_versions_are_noted_and_ignored() {
        let parsed = parsed(&["-cn"]);
        assert_eq!(parsed.command, Command::Serve(Settings::default()));
        assert_eq!(parsed.notes.len(), 2);
        assert!(parsed.notes[0].starts_with("trellis: -c ") && parsed.notes[1].starts_with("trellis: -n "));
    }

    #[test]
    fn help_and_version_act_when_they_are_reached() {
        for line in [&["-h"][..], &["--help"], &["-p1", "-Vh", "-x"]] {
            let saying = saying(line);
            assert_eq!((saying.exit, saying.to_stdout), (Exit::Done, false), "{line:?}");
            assert!(saying.text.starts_with("Usage: trellis"), "{}", saying.text);
        }
        for line in [&["-v"][..], &["--version"], &["-Vv", "-x"]] {
            let saying = saying(line);
            assert_eq!((saying.exit, saying.to_stdout), (Exit::Done, true), "{line:?}");
            assert_eq!(saying.text, version_line());
        }
        assert_eq!(refused(&["-x", "-h"]), "unknown flag: -x");
    }

    #[test]
    fn long_options_take_their_value_glued_or_apart() {
        for line in [&["--slots=4", "--owner-wait", "0"][..], &["--slots", "4", "--owner-wait=0"]] {
            let s = settings(line);
            assert_eq!((s.slots, s.owner_wait_ms), (Some(4), 0));
        }
        assert_eq!(settings(&["--log-format=json"]).log_format, Some(log::Format::Json));
        assert_eq!(refused(&["--log-format=xml"]), "--log-format xml: must be text or json");
        assert_eq!(settings(&["--max-connections", "500"]).max_connections, 500);
        assert_eq!(settings(&["--max-unfinished-bytes=7"]).max_unfinished_bytes, Some(7));
        let s = settings(&["--idle-timeout=60", "--body-timeout", "9"]);
        assert_eq!((s.idle_timeout_s, s.body_timeout_s), (Some(60), Some(9)));
        assert_eq!(settings(&["--max-connections-per-address=3"]).max_connections_per_address, Some(3));
        assert!(settings(&["--refuse-commands", "kick,quit"]).refuse_commands.has_word_of(b"quit"));
        let unknown = refused(&["--refuse-commands=kick,kik"]);
        assert!(unknown.starts_with("--refuse-commands: no command \"kik\"; there are put, "), "{unknown}");
        assert_eq!(settings(&["--kill-stalled", "3000"]).kill_stalled, Some(Duration::from_secs(3)));
        let s = settings(&["--partitions=16", "--frontends=2", "--metrics=[::1]:9", "--control=/run/c=d"]);
        assert_eq!((s.partitions, s.frontends), (Some(16), Some(2)));
        assert_eq!((s.metrics.as_deref(), s.control), (Some("[::1]:9"), Some(PathBuf::from("/run/c=d"))));
    }

    #[test]
    fn address_of_metrics_has_a_host_and_a_port() {
        for address in ["127.0.0.1:0", "[::1]:11390", "localhost:65535"] {
            assert_eq!(settings(&["--metrics", address]).metrics.as_deref(), Some(address));
        }
        for address in ["nonsense", "127.0.0.1", "0", "", ":80", "::1:80", "localhost:", "localhost:65536"] {
            let said = refused(&["--metrics", address]);
            assert_eq!(said, format!("--metrics {address}: must be ADDR:PORT"));
        }
    }

    #[test]
    fn tubes_with_metrics_are_counted() {
        assert_eq!(settings(&["--metrics-tubes", "0"]).metrics_tubes, 0);
        assert_eq!(settings(&["--metrics-tubes=1000"]).metrics_tubes, 1000);
        assert_eq!(refused(&["--metrics-tubes=1001"]), "--metrics-tubes 1001: must be 0 to 1000");
    }

    #[test]
    fn long_option_out_of_range_is_refused_naming_the_range() {
        assert_eq!(refused(&["--slots=0"]), "--slots 0: must be 1 to 256");
        assert_eq!(refused(&["--slots", "257"]), "--slots 257: must be 1 to 256");
        assert_eq!(refused(&["--partitions=8193"]), "--partitions 8193: must be 1 to 8192");
        assert_eq!(refused(&["--frontends=x"]), "--frontends x: must be 1 to 256");
        assert_eq!(refused(&["--max-connections=0"]), "--max-connections 0: must be 1 to 4194304");
        assert_eq!(refused(&["--idle-timeout=0"]), "--idle-timeout 0: must be 1 to 31536000");
        assert_eq!(refused(&["--kill-stalled=9"]), "--kill-stalled 9: must be 2000 to 86400000");
        assert_eq!(refused(&["--owner-wait="]), "--owner-wait : must be 0 to 86400000");
    }

    #[test]
    fn word_that_is_not_text_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let words = vec![OsString::from("-b"), OsString::from_vec(b"/d\xff".to_vec())];
        let Command::Say(saying) = parse("trellis", words).command else { panic!("not refused") };
        assert_eq!(saying.exit, Exit::Usage);
    }
}

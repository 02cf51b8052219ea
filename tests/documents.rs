//! The documents say what the program does: every flag, code, number, message, frame kind and dependency that a
//! table quotes is compared with the program or its source.
//!
//! The documents and sources are read from the repository; the flags come from the real binary's `-h`. Nothing is
//! written. A test names the document and the row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use trellis::error::{Class, Exit};
use trellis::ipc::header;
use trellis::limits;

const TRELLIS: &str = env!("CARGO_BIN_EXE_trellis");

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The part of a document under a heading, up to the next heading of the same or a higher level.
fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let start = text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}")) + 1;
    let level = heading.chars().take_while(|&c| c == '#').count();
    let body = &text[start + heading.len()..];
    let marks = (1..=level).map(|n| format!("\n{} ", "#".repeat(n)));
    let end = marks.filter_map(|mark| body.find(&mark)).min().unwrap_or(body.len());
    &body[..end]
}

/// The cells of each row of all tables in a text, without heads and rulers.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    let is_ruler = |line: &str| line.starts_with("| ---") || line.starts_with("|---");
    let row = |(at, line): (usize, &&str)| {
        let is_head = lines.get(at + 1).is_some_and(|next| is_ruler(next));
        (line.starts_with('|') && !is_head && !is_ruler(line)).then(|| cells(line))
    };
    lines.iter().enumerate().filter_map(row).collect()
}

/// The texts between backticks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A flag and the name of its argument, if it has one.
type Flags = BTreeMap<String, Option<String>>;

/// `-b DIR` or `--slots N` to its parts.
fn flag(text: &str) -> (String, Option<String>) {
    match text.split_once(' ') {
        Some((flag, argument)) => (flag.to_owned(), Some(argument.to_owned())),
        None => (text.to_owned(), None),
    }
}

/// What `-h` lists: a line of its own for each flag, the meaning two or more blanks behind it.
fn flags_of_help() -> Flags {
    let output = Command::new(TRELLIS).arg("-h").output().expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    let lines = text.lines().filter_map(|line| line.strip_prefix(' ').filter(|rest| rest.starts_with('-')));
    let flags: Flags = lines.map(|line| flag(line.split("  ").next().unwrap_or(line))).collect();
    assert!(flags.len() > 10, "{text}");
    flags
}

fn flags_of_manual() -> Flags {
    let text = read("doc/trellis.1");
    let options =
        text.split(".Sh OPTIONS").nth(1).and_then(|rest| rest.split(".Sh ").next()).expect("OPTIONS");
    let items = options.lines().filter_map(|line| line.strip_prefix(".It Fl "));
    items.map(|item| flag(&format!("-{}", item.replace(" Ar ", " ")))).collect()
}

fn flags_of_operations() -> Flags {
    let text = read("doc/operations.md");
    rows(section(&text, "### Flags")).iter().map(|row| flag(row[0].trim_matches('`'))).collect()
}

#[test]
fn flags_of_manual_and_operations_are_those_of_help() {
    let help = flags_of_help();
    assert_eq!(flags_of_manual(), help, "doc/trellis.1");
    assert_eq!(flags_of_operations(), help, "doc/operations.md");
}

#[test]
fn flags_named_anywhere_in_the_documents_exist() {
    let mut known: BTreeSet<String> = flags_of_help().into_keys().collect();
    // Taken, and rightly not listed; two flags in one word; of `bench`.
    known.extend(["-c", "-n", "--help", "--version", "-VF", "--list", "--floor"].map(str::to_owned));
    let mut seen = 0;
    for document in DOCUMENTS {
        let text = read(document);
        for span in code_spans(&text).filter(|span| span.starts_with('-') && span.len() > 1) {
            let name = match span.strip_prefix("--") {
                Some(long) => format!("--{}", long.split([' ', '=']).next().unwrap_or(long)),
                None if known.contains(span) => span.to_owned(),
                None => span.chars().take(2).collect(),
            };
            assert!(known.contains(&name), "{document}: `{span}`");
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} flags were found");
}

/// Numbers that the meaning of a flag quotes.
#[test]
fn numbers_of_flags_are_the_limits() {
    let numbers: &[(&str, &[u64])] = &[
        ("-f", &[limits::SYNC_MS_DEFAULT]),
        ("-z", &[limits::JOB_BYTES_DEFAULT as u64, limits::JOB_BYTES_MAX as u64]),
        ("-s", &[limits::WAL_FILE_BYTES_DEFAULT, limits::WAL_FILE_BYTES_MIN, limits::WAL_FILE_BYTES_MAX]),
        ("--slots", &[limits::SLOTS_MAX as u64]),
        ("--partitions", &[limits::PARTITIONS_DEFAULT as u64, limits::PARTITIONS_MAX as u64]),
        ("--frontends", &[limits::FRONTENDS_MAX as u64]),
        ("--owner-wait", &[limits::OWNER_WAIT_MS_DEFAULT, limits::OWNER_WAIT_MS_MAX]),
        ("--max-connections", &[limits::CONNECTIONS_DEFAULT, limits::CONNECTIONS_MAX]),
        (
            "--max-unfinished-bytes",
            &[
                limits::UNFINISHED_BYTES_DEFAULT,
                limits::UNFINISHED_BODIES_DEFAULT,
                limits::UNFINISHED_BYTES_MAX,
            ],
        ),
        ("--idle-timeout", &[limits::CLIENT_SECONDS_MAX]),
        ("--body-timeout", &[limits::CLIENT_SECONDS_MAX]),
        ("--max-connections-per-address", &[limits::CONNECTIONS_MAX]),
        ("--metrics-tubes", &[limits::METRICS_TUBES_DEFAULT as u64, 0, limits::METRICS_TUBES_MAX as u64]),
        ("--kill-stalled", &[limits::PONG_MS, limits::KILL_STALLED_MS_MAX]),
    ];
    let (operations, manual) = (read("doc/operations.md"), read("doc/trellis.1"));
    let has = |text: &str, number: u64| {
        text.split(|c: char| !c.is_ascii_digit()).any(|word| word == number.to_string())
    };
    for (name, wanted) in numbers {
        let row = rows(section(&operations, "### Flags"))
            .into_iter()
            .find(|row| flag(row[0].trim_matches('`')).0 == *name)
            .unwrap_or_else(|| panic!("no row for {name}"))
            .join(" ");
        let item = manual.split(".It Fl ").find(|item| item.starts_with(&format!("{} ", &name[1..])));
        let item = item.unwrap_or_else(|| panic!("no item for {name}"));
        for number in *wanted {
            assert!(has(&row, *number), "operations.md, {name}: {number} is not in {row}");
            assert!(has(item, *number), "trellis.1, {name}: {number} is not in {item}");
        }
    }
}

/// Codes and names, as `src/error.rs` writes them.
fn exits() -> BTreeMap<i32, String> {
    let source = read("src/error.rs");
    let body = source.split("pub enum Exit {").nth(1).and_then(|rest| rest.split('}').next()).expect("Exit");
    let parse = |line: &str| {
        let (name, code) = line.trim().trim_end_matches(',').split_once(" = ")?;
        Some((code.parse().ok()?, name.to_owned()))
    };
    body.lines().filter_map(parse).collect()
}

#[test]
fn exit_codes_of_the_documents_are_those_of_the_program() {
    let exits = exits();
    let text = read("doc/operations.md");
    let table = rows(section(&text, "## Exit codes"));
    let listed: BTreeMap<i32, String> = table
        .iter()
        .map(|row| (row[0].parse().expect("a code"), row[1].trim_matches('`').to_owned()))
        .collect();
    assert_eq!(listed, exits, "doc/operations.md");
    for row in table.iter().filter(|row| row[0] != Exit::Done.code().to_string()) {
        let class = match Exit::class_of(row[0].parse().expect("a code")) {
            Class::Temporary => "temporary",
            Class::Permanent => "permanent",
        };
        assert_eq!(row[2], class, "doc/operations.md, code {}", row[0]);
    }

    let manual = read("doc/trellis.1");
    let status = manual.split(".Sh EXIT STATUS").nth(1).and_then(|rest| rest.split(".Sh ").next());
    let status = status.expect("EXIT STATUS");
    let codes = status.lines().filter_map(|line| line.strip_prefix(".It ")?.parse().ok());
    assert_eq!(codes.collect::<BTreeSet<i32>>(), exits.keys().copied().collect(), "doc/trellis.1");

    let permanent: Vec<String> = exits
        .keys()
        .filter(|&&code| Exit::class_of(code) == Class::Permanent)
        .map(ToString::to_string)
        .collect();
    let unit = read("doc/systemd/trellis.service");
    let line = format!("RestartPreventExitStatus={}\n", permanent.join(" "));
    assert!(unit.contains(&line), "trellis.service: not {line}");
}

macro_rules! numbers {
    ($($name:ident $(. $unit:ident)?),* $(,)?) => {
        BTreeMap::from([$((stringify!($name), limits::$name $(.$unit())? as u64)),*])
    };
}

#[test]
fn limits_of_operations_are_those_of_the_program() {
    let limits = numbers![
        LINE_BYTES,
        TUBE_NAME_BYTES,
        JOB_BYTES_DEFAULT,
        JOB_BYTES_MAX,
        SLOTS_MAX,
        PARTITIONS_DEFAULT,
        PARTITIONS_MAX,
        FRONTENDS_MAX,
        OWNER_WAIT_MS_DEFAULT,
        OWNER_WAIT_MS_MAX,
        WAL_FILE_BYTES_DEFAULT,
        WAL_FILE_BYTES_MIN,
        WAL_FILE_BYTES_MAX,
        SYNC_MS_DEFAULT,
        CONNECTIONS_DEFAULT,
        CONNECTIONS_MAX,
        UNFINISHED_BYTES_DEFAULT,
        UNFINISHED_BODIES_DEFAULT,
        UNFINISHED_BYTES_MAX,
        CLIENT_SECONDS_MAX,
        FRONTEND_DESCRIPTORS,
        LISTEN_BACKLOG,
        ACCEPT_BATCH,
        ACCEPT_PAUSE.as_millis,
        CLIENT_READ_BYTES,
        OUTPUT_HOLD_BYTES,
        COMMAND_WINDOW_BYTES,
        REPLY_WINDOW_BYTES,
        OUTBOX_FULL_BYTES,
        DEADLINE_MARGIN.as_millis,
        REFUSAL_PAUSE.as_millis,
        RESTART_PAUSE_MS,
        RESTART_PAUSE_MS_MAX,
        SERVED_WELL_MS,
        EARLY_DEATHS_MAX,
        STOP_FRONTENDS_MS,
        STOP_OWNERS_MS,
        TAKEOVER_MS,
        PING_MS,
        PONG_MS,
        KILL_STALLED_MS_MAX,
        LINK_LOSS.as_millis,
        ID_BLOCK,
        SORT_BYTES,
        WAL_FINDINGS_LOGGED,
    ];
    let text = read("doc/operations.md");
    let table = rows(section(&text, "## Limits"));
    let value = |cell: &str| -> u64 {
        let digits: String = cell.split(' ').next().unwrap_or_default().replace(',', "");
        digits.parse().unwrap_or_else(|_| panic!("no number: {cell}"))
    };
    let listed: BTreeMap<&str, u64> =
        table.iter().map(|row| (row[0].trim_matches('`'), value(&row[1]))).collect();
    assert_eq!(listed, limits);
}

/// A quoted message is in some source file, on one line: its words between the gaps, in their order.
#[test]
fn messages_of_operations_are_those_of_the_program() {
    let sources: Vec<String> = rust_files("src").iter().map(|path| one_line_literals(path)).collect();
    let text = read("doc/operations.md");
    let table = rows(section(&text, "## Messages"));
    assert!(table.len() > 40, "{} messages", table.len());
    for row in table {
        let message = row[0].trim_matches('`');
        let in_order = |line: &str| {
            let mut rest = line;
            message.split('…').all(|words| match rest.find(words) {
                Some(at) => {
                    rest = &rest[at + words.len()..];
                    true
                }
                None => false,
            })
        };
        let said = sources.iter().flat_map(|source| source.lines()).any(in_order);
        assert!(said, "doc/operations.md: nothing says {message:?}");
    }
}

fn rust_files(dir: &str) -> Vec<PathBuf> {
    let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)];
    let mut files = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// A source with its literals that go over several lines joined, as the compiler does it.
fn one_line_literals(path: &Path) -> String {
    let source = fs::read_to_string(path).expect("a source file");
    let mut joined = String::with_capacity(source.len());
    let mut continues = false;
    for line in source.lines() {
        let line = if continues { line.trim_start() } else { line };
        continues = line.ends_with('\\');
        joined.push_str(line.trim_end_matches('\\'));
        if !continues {
            joined.push('\n');
        }
    }
    joined
}

#[test]
fn frames_of_the_document_are_those_of_the_program() {
    let (text, source) = (read("doc/ipc.md"), read("src/ipc/header.rs"));
    let mut layout =
        source.lines().filter_map(|line| line.strip_prefix("//! ")).filter(|line| line.starts_with("| "));
    let missing = layout.find(|row| !text.contains(&format!("{row}\n")));
    assert_eq!(missing, None, "doc/ipc.md has not this row of the header");

    let hex = |text: &str| u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let pair = |line: &str| {
        let (name, number) = line.trim().trim_end_matches([',', ';']).split_once(" = 0x")?;
        Some((hex(number)?, name.split([' ', ':']).rfind(|w| !w.is_empty() && *w != "u16")?.to_owned()))
    };
    let numbers: BTreeMap<u16, String> = source
        .split("kinds! {")
        .nth(1)
        .and_then(|s| s.split('}').next())
        .expect("kinds")
        .lines()
        .filter_map(pair)
        .collect();
    let kinds: BTreeMap<u16, String> = rows(section(&text, "## Kinds"))
        .iter()
        .filter(|row| row.len() == 5)
        .map(|row| (hex(&row[0]).expect("a number"), row[1].trim_matches('`').to_owned()))
        .collect();
    assert_eq!(kinds, numbers, "kinds");
    for (number, name) in &kinds {
        let kind = header::Kind::from_number(*number as u8).map(|kind| format!("{kind:?}"));
        assert_eq!(kind.as_ref(), Some(name), "kind {number:#04x}");
    }

    let flags = source.lines().filter(|line| line.starts_with("pub const FLAG_")).filter_map(pair);
    let listed = rows(section(&text, "## Kinds")).into_iter().filter(|row| row.len() == 3).map(|row| {
        let (number, name) = row[0].split_once(' ').expect("a number and a name");
        (hex(number).expect("a number"), name.trim_matches('`').to_owned())
    });
    assert_eq!(listed.collect::<BTreeMap<_, _>>(), flags.collect(), "flags");

    let version = format!("`IPC_VERSION` is {}.", header::IPC_VERSION);
    assert!(text.contains(&version), "doc/ipc.md: not {version:?}");
    for (name, value) in
        numbers![FRAME_PAYLOAD_BYTES, COMMAND_WINDOW_BYTES, REPLY_WINDOW_BYTES, CREDIT_BYTES, LINK_READ_BYTES]
    {
        let grouped = format!("{},{:03}", value / 1000, value % 1000);
        assert!(text.contains(&grouped), "doc/ipc.md: {name} is {grouped}");
    }
}

#[test]
fn dependencies_of_the_document_are_those_of_the_package() {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("a manifest");
    let names = |table: &str| -> BTreeSet<String> {
        manifest[table].as_table().expect("a table").keys().cloned().collect()
    };
    let text = read("doc/architecture.md");
    let table = rows(section(&text, "## Dependencies"));
    let listed = |mark: &str| -> BTreeSet<String> {
        let crates = table.iter().filter_map(|row| row[0].strip_prefix('`')?.split_once('`'));
        crates.filter(|(_, behind)| behind.trim() == mark).map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(listed(""), names("dependencies"));
    assert_eq!(listed("(dev)"), names("dev-dependencies"));
    let only_build: BTreeSet<String> =
        names("build-dependencies").difference(&names("dependencies")).cloned().collect();
    assert_eq!(listed("(build)"), only_build);
}

const DOCUMENTS: &[&str] = &[
    "README.md",
    "doc/architecture.md",
    "doc/differences.md",
    "doc/ipc.md",
    "doc/operations.md",
    "doc/protocol.md",
];

/// Links to files of the repository lead to one, and to a heading of it.
#[test]
fn links_lead_somewhere() {
    let mut seen = 0;
    for document in DOCUMENTS {
        let text = read(document);
        let folder = Path::new(document).parent().expect("a file has a folder");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = folder.join(file);
            let linked = if file.is_empty() { text.clone() } else { read(path.to_str().expect("text")) };
            let found =
                heading.is_empty() || linked.lines().any(|line| slug(line).as_deref() == Some(heading));
            assert!(found, "{document}: {target}");
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} links were found");
}

/// The name by which a heading is linked to.
fn slug(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let keep = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    Some(title.to_lowercase().chars().filter(|&c| keep(c)).collect::<String>().replace(' ', "-"))
}

/// Of the places named in the code map, and the folders that hold code.
#[test]
fn code_map_names_what_is_there() {
    let text = read("doc/architecture.md");
    let listed: BTreeSet<String> = rows(section(&text, "## Code map, in reading order"))
        .iter()
        .map(|row| row[0].trim_matches('`').trim_end_matches('/').to_owned())
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for place in &listed {
        assert!(root.join(place).exists(), "doc/architecture.md: no {place}");
    }
    for entry in fs::read_dir(root.join("src")).expect("src") {
        let name = format!("src/{}", entry.expect("an entry").file_name().to_string_lossy());
        let aside = ["src/lib.rs", "src/scratch.rs", "src/bin"]; // the list of modules; for tests; one file, listed
        assert!(
            listed.contains(&name) || aside.contains(&name.as_str()),
            "doc/architecture.md: {name} is missing"
        );
    }
}

/// The manual page renders without a warning, where there is something to render it with.
#[test]
fn manual_renders_without_a_warning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("doc/trellis.1");
    match Command::new("groff").args(["-mdoc", "-ww", "-z", "-Tascii"]).arg(&path).output() {
        Err(error) => println!("not checked: groff: {error}"),
        Ok(output) => assert!(output.status.success() && output.stderr.is_empty(), "{output:?}"),
    }
}

//! `--metrics`: what a scraper and a health check get, over real sockets from a real server.
//!
//! The text is taken apart by the rules of its format, its numbers are compared with the reply to `stats`, and its
//! names with `doc/`.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use support::process::wait_for;
use support::{Binary, DEADLINE, Server, Setup, TempDir};

/// A server with metrics, and where they are.
fn start(setup: Setup) -> (Server, SocketAddr) {
    let server = setup.flags(&["-V", "--metrics=127.0.0.1:0"]).start();
    let log = wait_for("the server to be ready", DEADLINE, || {
        Some(server.log()).filter(|log| log.contains(" ready\n"))
    });
    let (_, rest) = log.split_once("metrics at http://").expect("it says where");
    let address = rest.split_once("/metrics").expect("an address").0.parse().unwrap();
    (server, address)
}

struct Response {
    code: u16,
    head: String,
    body: String,
}

/// Sends these pieces, each in a packet of its own, and reads to the end.
fn talk(address: SocketAddr, pieces: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    for piece in pieces {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn response(text: &str) -> Response {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
    let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status line");
    Response { code: code.parse().unwrap(), head: head.to_lowercase(), body: body.to_owned() }
}

fn request(address: SocketAddr, method: &str, path: &str) -> Response {
    response(&talk(address, &[&format!("{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n")]))
}

fn health(address: SocketAddr, path: &str) -> (u16, String) {
    let response = request(address, "GET", path);
    (response.code, response.body)
}

type Labels = BTreeMap<String, String>;

/// The exposition: families by name with their type, samples by name and labels.
#[derive(Default)]
struct Metrics {
    types: BTreeMap<String, String>,
    samples: Vec<(String, Labels, f64)>,
}

impl Metrics {
    fn scrape(address: SocketAddr) -> Metrics {
        let response = request(address, "GET", "/metrics");
        assert_eq!(response.code, 200);
        assert!(response.head.contains("content-type: text/plain; version=0.0.4"), "{}", response.head);
        assert!(response.head.contains(&format!("content-length: {}", response.body.len())));
        Metrics::parse(&response.body)
    }

    /// The first scrape that is as wanted.
    fn scrape_when(address: SocketAddr, wanted: impl Fn(&Metrics) -> bool) -> Metrics {
        wait_for("the metrics", DEADLINE, || Some(Metrics::scrape(address)).filter(|metrics| wanted(metrics)))
    }

    /// The tubes that have metrics of their own, and their slots.
    fn tubes(&self) -> BTreeMap<&str, &str> {
        let ready = |(name, labels, _): &&(String, Labels, f64)| {
            name == "trellis_tube_jobs" && labels["state"] == "ready"
        };
        let samples = self.samples.iter().filter(ready);
        samples.map(|(_, labels, _)| (labels["tube"].as_str(), labels["slot"].as_str())).collect()
    }

    /// Panics where the format's rules are broken: a family is introduced once, by HELP and TYPE, before its samples,
    /// which stand together; no sample comes twice; buckets add up.
    fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics::default();
        let mut family = String::new();
        let mut helped = String::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                helped = rest.split_once(' ').expect("a name and a text").0.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(helped, name, "HELP and TYPE belong together");
                assert!(metrics.types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
                family = name.to_owned();
            } else {
                let (name, labels, value) = sample(line);
                let suffix =
                    name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line} in {family}"));
                match metrics.types[&family].as_str() {
                    "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                    "counter" => {
                        assert!(suffix.is_empty() && name.ends_with("_total") && value >= 0.0, "{line}")
                    }
                    "gauge" => assert!(suffix.is_empty(), "{line}"),
                    other => panic!("type {other}"),
                }
                let twice = metrics.samples.iter().any(|(n, l, _)| *n == name && *l == labels);
                assert!(!twice, "{line} twice");
                metrics.samples.push((name, labels, value));
            }
        }
        metrics.check_histograms();
        metrics
    }

    fn check_histograms(&self) {
        for (name, labels, count) in self.samples.iter().filter(|(name, ..)| name.ends_with("_count")) {
            let bucket = name.replace("_count", "_bucket");
            let of_this = |l: &Labels| labels.iter().all(|(key, value)| l.get(key) == Some(value));
            let buckets: Vec<(&str, f64)> = self
                .samples
                .iter()
                .filter(|(n, l, _)| *n == bucket && of_this(l))
                .map(|(_, l, value)| (l["le"].as_str(), *value))
                .collect();
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name}: {buckets:?}");
            assert_eq!(buckets.last(), Some(&("+Inf", *count)), "{name}");
        }
    }

    /// The sum over all samples with these labels among theirs.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |l: &Labels| labels.iter().all(|(key, value)| l.get(*key).is_some_and(|v| v == value));
        let values: Vec<f64> = self
            .samples
            .iter()
            .filter(|(n, l, _)| n == name && fits(l))
            .map(|(_, _, value)| *value)
            .collect();
        assert!(!values.is_empty(), "no {name} {labels:?}");
        values.iter().sum()
    }
}

/// `name{label="value",…} number`; no label here has a quote or a comma in it.
fn sample(line: &str) -> (String, Labels, f64) {
    let (left, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
    let (name, labels) = match left.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("a closing brace")),
        None => (left, ""),
    };
    let label = |text: &str| {
        let (key, value) = text.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
        (key.to_owned(), value.trim_matches('"').to_owned())
    };
    let labels = labels.split(',').filter(|text| !text.is_empty()).map(label).collect();
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
}

fn child(server: &Server, command_line: &str) -> Pid {
    find_child(server, command_line)
        .unwrap_or_else(|| panic!("no process {command_line:?}\n{}", server.log()))
}

fn find_child(server: &Server, command_line: &str) -> Option<Pid> {
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let wanted = command_line.replace(' ', "\0");
    server.pids().into_iter().find(|&pid| line(pid).starts_with(wanted.as_bytes())).map(Pid::from_raw)
}

#[test]
fn metrics_say_what_stats_says() {
    let wal = TempDir::new("wal");
    let (server, address) =
        start(Setup::new(Binary::Trellis).slots(3).frontends(2).wal(wal.path()).flags(&["-f0"]));
    let mut client = server.connect("client");
    for tube in ["a", "b", "c", "d", "e"] {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        assert!(client.call("put 0 0 60 1\r\nx\r\n").starts_with(b"INSERTED"));
        assert!(client.call("put 1024 100 60 1\r\nx\r\n").starts_with(b"INSERTED"));
    }
    client.ask("watch a\r\n", "WATCHING 2\r\n");
    assert_eq!(client.call("reserve\r\n"), b"UNSUPPORTED_MULTI_WATCH\r\n");
    client.ask("ignore default\r\n", "WATCHING 1\r\n");
    let reserved = client.call("reserve\r\n");
    let id = String::from_utf8_lossy(&reserved).split(' ').nth(1).unwrap().to_owned();
    client.ask(format!("bury {id} 5\r\n"), "BURIED\r\n");
    let stats = client.stats("stats");
    let metrics = Metrics::scrape(address);

    let same = [
        ("current-jobs-urgent", "trellis_jobs_urgent", ("", "")),
        ("current-jobs-ready", "trellis_jobs", ("state", "ready")),
        ("current-jobs-reserved", "trellis_jobs", ("state", "reserved")),
        ("current-jobs-delayed", "trellis_jobs", ("state", "delayed")),
        ("current-jobs-buried", "trellis_jobs", ("state", "buried")),
        ("job-timeouts", "trellis_job_timeouts_total", ("", "")),
        ("total-jobs", "trellis_jobs_put_total", ("", "")),
        ("max-job-size", "trellis_job_bytes_max", ("", "")),
        ("current-tubes", "trellis_tubes", ("", "")),
        ("current-connections", "trellis_clients", ("", "")),
        ("current-producers", "trellis_producers", ("", "")),
        ("current-workers", "trellis_workers", ("", "")),
        ("current-waiting", "trellis_waiting_clients", ("", "")),
        ("total-connections", "trellis_connections_total", ("", "")),
        ("binlog-records-written", "trellis_wal_records_written_total", ("", "")),
        ("binlog-records-migrated", "trellis_wal_records_migrated_total", ("", "")),
        ("binlog-max-size", "trellis_wal_file_bytes", ("", "")),
    ];
    for (key, name, label) in same {
        let labels: &[_] = if label.0.is_empty() { &[] } else { &[label] };
        assert_eq!(metrics.sum(name, labels), stats.number(key) as f64, "{key} and {name}");
    }
    let commands = stats.keys().into_iter().filter_map(|key| key.strip_prefix("cmd-"));
    let commands: Vec<&str> = commands.collect();
    assert_eq!(commands.len(), 22);
    for command in commands {
        let counted = metrics.sum("trellis_commands_total", &[("command", command)]);
        assert_eq!(counted, stats.number(&format!("cmd-{command}")) as f64, "{command}");
    }
    assert_eq!(metrics.sum("trellis_commands_total", &[("command", "put")]), 10.0);
    assert_eq!(metrics.sum("trellis_jobs", &[("state", "buried")]), 1.0);
    assert_eq!(metrics.sum("trellis_refused_multi_watch_total", &[]), 1.0);
    assert_eq!(metrics.sum("trellis_info", &[("run", stats.text("id"))]), 1.0);
    assert_eq!((metrics.sum("trellis_slots", &[]), metrics.sum("trellis_serving", &[])), (3.0, 1.0));

    // With -f0 each put and the bury waited for a sync, and was a batch of an owner and a round trip.
    for name in
        ["trellis_wal_sync_seconds", "trellis_owner_batch_seconds", "trellis_frontend_round_trip_seconds"]
    {
        assert!(metrics.sum(&format!("{name}_count"), &[]) >= 11.0, "{name}");
        assert!(metrics.sum(&format!("{name}_sum"), &[]) > 0.0, "{name}");
    }
    assert!(metrics.sum("trellis_wal_syncs_total", &[]) >= 11.0);
    assert!(metrics.sum("trellis_wal_bytes", &[]) >= 3.0 * metrics.sum("trellis_wal_file_bytes", &[]));
    assert!(metrics.sum("trellis_wal_live_bytes", &[]) > 10.0);
    for (role, processes) in [("owner", 3.0), ("frontend", 2.0)] {
        assert_eq!(metrics.sum("trellis_process_up", &[("role", role)]), processes);
    }
    for role in ["owner", "frontend", "supervisor"] {
        assert!(metrics.sum("trellis_process_resident_bytes", &[("role", role)]) > 100_000.0, "{role}");
    }
}

#[test]
fn metrics_and_files_name_the_same_things() {
    let wal = TempDir::new("wal");
    let (_server, address) = start(Setup::new(Binary::Trellis).wal(wal.path()));
    // Owners tell of their tubes with their first answer to a ping.
    let metrics = Metrics::scrape_when(address, |metrics| metrics.types.contains_key("trellis_tube_jobs"));
    let families: BTreeSet<String> = metrics.types.into_keys().collect();
    let read = |name: &str| {
        let path = format!("{}/doc/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let rows = read("metrics.md");
    let rows = rows.lines().filter_map(|line| line.strip_prefix("| `trellis_")?.split_once('`'));
    let documented: BTreeSet<String> = rows.map(|(name, _)| format!("trellis_{name}")).collect();
    assert_eq!(documented, families, "doc/metrics.md has a row for each family");

    for file in ["alerts.yml", "grafana-dashboard.json"] {
        let text = read(file);
        let mut names = 0;
        for (at, _) in text.match_indices("trellis_") {
            let end = text[at..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
            let name = &text[at..at + end];
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(families.contains(family), "{file}: {name}");
            names += 1;
        }
        assert!(names > 8, "{file} names {names} metrics");
    }
}

#[test]
fn health_and_restarts_follow_the_death_and_the_stall_of_an_owner() {
    let wal = TempDir::new("wal");
    let (server, address) = start(Setup::new(Binary::Trellis).slots(2).wal(wal.path()));
    assert_eq!(health(address, "/healthz"), (200, "ok\n".to_owned()));
    let mut client = server.connect("client");
    assert!(client.call("put 0 0 60 1\r\nx\r\n").starts_with(b"INSERTED"));
    let before = Metrics::scrape(address);

    let pid = child(&server, "trellis owner --slot 1");
    kill(pid, Signal::SIGSTOP).unwrap();
    let (_, reason) = wait_for("the stall", DEADLINE, || {
        Some(health(address, "/healthz")).filter(|(code, _)| *code == 503)
    });
    assert!(reason.starts_with("slot 1 is stalled: no answer to a ping for"), "{reason}");
    assert_eq!(health(address, "/readyz").0, 200, "the other slot serves");
    let metrics = Metrics::scrape(address);
    let of_slot_1 = [("role", "owner"), ("index", "1")];
    assert_eq!(metrics.sum("trellis_process_stalled", &of_slot_1), 1.0);
    assert_eq!(metrics.sum("trellis_process_up", &of_slot_1), 0.0);
    assert_eq!(metrics.sum("trellis_serving", &[]), 0.0);

    kill(pid, Signal::SIGKILL).unwrap();
    let metrics = wait_for("the next generation", DEADLINE, || {
        let metrics = Metrics::scrape(address);
        let up = metrics.sum("trellis_process_up", &of_slot_1) == 1.0;
        (up && metrics.sum("trellis_process_restarts_total", &of_slot_1) == 1.0).then_some(metrics)
    });
    assert_eq!(health(address, "/healthz").0, 200);
    // Counters go on over the restart.
    for name in ["trellis_owner_batch_seconds_count", "trellis_wal_syncs_total"] {
        let slot = [("slot", "1")];
        assert!(metrics.sum(name, &slot) >= before.sum(name, &slot), "{name}");
    }
    assert_eq!(metrics.sum("trellis_jobs_put_total", &[]), 1.0);

    // Both slots without a directory: nobody can be served any more, and the server says so until it ends.
    std::fs::rename(wal.join("slot-001"), wal.join("away")).unwrap();
    std::fs::write(wal.join("slot-001"), "").unwrap();
    kill(child(&server, "trellis owner --slot 1"), Signal::SIGKILL).unwrap();
    let (_, reason) = wait_for("the failure", DEADLINE, || {
        Some(health(address, "/healthz")).filter(|(_, body)| body.starts_with("slot 1 is failed"))
    });
    assert!(reason.contains("ended with code 1: "), "{reason}");
    assert_eq!(Metrics::scrape(address).sum("trellis_process_failed", &of_slot_1), 1.0);
    let frontend = child(&server, "trellis frontend --number 0");
    kill(frontend, Signal::SIGSTOP).unwrap();
    let (_, reason) = wait_for("the frontend's stall", DEADLINE, || {
        Some(health(address, "/readyz")).filter(|(code, _)| *code == 503)
    });
    assert!(reason.starts_with("no frontend serves: frontend 0 is stalled"), "{reason}");
    kill(frontend, Signal::SIGCONT).unwrap();
}

/// The slot's next generation finds a pipe where a file of its log was, and waits there until the test lets it go on.
#[test]
fn watch_health_and_metrics_follow_a_slot_from_its_death_over_recovery_to_service() {
    let (wal, place) = (TempDir::new("wal"), TempDir::new("control"));
    let control = format!("--control={}", place.join("control").display());
    let (server, address) =
        start(Setup::new(Binary::Trellis).slots(2).wal(wal.path()).flags(&["-f0", &control]));
    let mut watch = Command::new(Binary::Trellis.path());
    watch.args(["status", "--watch", &control]).stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_line = |begin: &str| {
        // Some twenty tables, one a second: the line comes or it never will.
        let found = lines.by_ref().take(300).find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("no line {begin:?}"))
    };
    let of_slot_1 = [("role", "owner"), ("index", "1")];
    wait_line("   1  up ");

    let (ids, away) = (wal.join("slot-001/ids.toml"), wal.join("slot-001/ids.toml.away"));
    std::fs::rename(&ids, &away).unwrap();
    mkfifo(&ids, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    kill(child(&server, "trellis owner --slot 1"), Signal::SIGKILL).unwrap();
    wait_line("TROUBLE: slot 1 is recovering: not ready for ");
    wait_line("   1  recovering ");
    let (code, reason) = health(address, "/healthz");
    assert!(code == 503 && reason.starts_with("slot 1 is recovering: not ready for "), "{code}: {reason}");
    assert!(reason.contains("it checks its log; the one before killed by SIGKILL"), "{reason}");
    assert_eq!(health(address, "/readyz").0, 200, "the other slot serves");
    let metrics = Metrics::scrape(address);
    assert_eq!(metrics.sum("trellis_process_up", &of_slot_1), 0.0);
    assert_eq!(metrics.sum("trellis_process_restarts_total", &of_slot_1), 1.0);

    // Each death before it is ready makes the pause before the next start longer: 0.1, 0.2, 0.4, 0.8 seconds. One more
    // would be the last.
    for generation in 2..6 {
        let recovers = format!("trellis owner --slot 1 --generation {generation}");
        let pid = wait_for(&recovers, DEADLINE, || {
            let recovering = health(address, "/healthz").1.starts_with("slot 1 is recovering");
            // The one before may not be known to be dead yet.
            find_child(&server, &recovers).filter(|_| recovering)
        });
        kill(pid, Signal::SIGKILL).unwrap();
    }
    wait_for("the longest pause", DEADLINE, || {
        let is_down = health(address, "/healthz").1 == "slot 1 is down: killed by SIGKILL\n";
        is_down.then(|| Metrics::scrape(address).sum("trellis_process_up", &of_slot_1) == 0.0)
    });

    // Opens once the next generation has. What it reads later is a file again.
    let mut pipe = OpenOptions::new().write(true).open(&ids).unwrap();
    let text = std::fs::read(&away).unwrap();
    std::fs::rename(&away, &ids).unwrap();
    pipe.write_all(&text).unwrap();
    drop(pipe);
    wait_line("all is well");
    wait_line("   1  up ");
    assert_eq!(health(address, "/healthz"), (200, "ok\n".to_owned()));
    let metrics = Metrics::scrape(address);
    assert_eq!(metrics.sum("trellis_process_up", &of_slot_1), 1.0);
    assert_eq!(metrics.sum("trellis_process_restarts_total", &of_slot_1), 5.0);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn limits_that_clients_met_are_counted() {
    let flags = ["--max-connections=3", "--max-unfinished-bytes=131070", "--refuse-commands=kick"];
    let (server, address) = start(Setup::new(Binary::Trellis).slots(2).frontends(2).flags(&flags));
    let mut client = server.connect_through(1, "client");
    client.ask("kick 1\r\n", "UNKNOWN_COMMAND\r\n");
    client.send("put 0 0 60 65535\r\nx").wait_until_read().expect_silence();
    let metrics = Metrics::scrape(address);
    let of = |limit| metrics.sum("trellis_client_limits_total", &[("limit", limit)]);
    assert_eq!((of("refuse-commands"), of("unfinished-bytes"), of("idle-timeout")), (1.0, 0.0, 0.0));
    assert_eq!(metrics.sum("trellis_clients_max", &[]), 3.0);
    assert_eq!(metrics.sum("trellis_clients_max", &[("frontend", "1")]), 1.0);
    assert_eq!(metrics.sum("trellis_unfinished_bytes", &[("frontend", "1")]), 65535.0);
    // That frontend is full, the other is not.
    let pauses = |frontend| {
        let labels = [("limit", "connections"), ("frontend", frontend)];
        metrics.sum("trellis_client_limits_total", &labels)
    };
    assert_eq!((pauses("0"), pauses("1")), (0.0, 1.0));
    drop(client);
    wait_for("its body to be forgotten", DEADLINE, || {
        (Metrics::scrape(address).sum("trellis_unfinished_bytes", &[]) == 0.0).then_some(())
    });
}

#[test]
fn tube_has_the_numbers_of_its_statistics() {
    const TUBE: &str = "a-b/c;d.$(e)+_9";
    let (server, address) = start(Setup::new(Binary::Trellis).slots(2).frontends(2));
    let mut client = server.connect("client");
    client.ask(format!("use {TUBE}\r\n"), format!("USING {TUBE}\r\n"));
    for delay in [0, 0, 0, 0, 100, 100] {
        assert!(client.call(format!("put 0 {delay} 60 1\r\nx\r\n")).starts_with(b"INSERTED"));
    }
    client.ask(format!("watch {TUBE}\r\n"), "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
    for _ in 0..2 {
        let job = client.call("reserve\r\n");
        let id = String::from_utf8_lossy(&job).split(' ').nth(1).unwrap().to_owned();
        client.ask(format!("bury {id} 0\r\n"), "BURIED\r\n");
    }
    client.call("reserve\r\n");
    client.ask(format!("pause-tube {TUBE} 100\r\n"), "PAUSED\r\n");
    let mut waiter = server.connect("waiter");
    waiter.ask(format!("watch {TUBE}\r\n"), "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
    waiter.send("reserve\r\n");
    let stats = wait_for("the waiter to wait", DEADLINE, || {
        let stats = client.stats(&format!("stats-tube {TUBE}"));
        (stats.number("current-waiting") == 1).then_some(stats)
    });
    let of_tube = [("tube", TUBE)];
    // The other slot tells of its tube at a time of its own.
    let metrics = Metrics::scrape_when(address, |metrics| {
        metrics.tubes().keys().eq([&TUBE, &"default"])
            && metrics.sum("trellis_tube_waiting_clients", &of_tube) == 1.0
    });
    for (key, name, label) in [
        ("current-jobs-ready", "trellis_tube_jobs", ("state", "ready")),
        ("current-jobs-reserved", "trellis_tube_jobs", ("state", "reserved")),
        ("current-jobs-delayed", "trellis_tube_jobs", ("state", "delayed")),
        ("current-jobs-buried", "trellis_tube_jobs", ("state", "buried")),
        ("current-using", "trellis_tube_using_clients", ("tube", TUBE)),
        ("current-watching", "trellis_tube_watching_clients", ("tube", TUBE)),
        ("current-waiting", "trellis_tube_waiting_clients", ("tube", TUBE)),
        ("total-jobs", "trellis_tube_jobs_put_total", ("tube", TUBE)),
        ("cmd-pause-tube", "trellis_tube_pauses_total", ("tube", TUBE)),
    ] {
        let (said, shown) = (stats.number(key), metrics.sum(name, &[of_tube[0], label]));
        assert_eq!(shown, said as f64, "{key} and {name}");
        assert!(said > 0, "{key}: nothing was compared");
    }
    assert_eq!(metrics.sum("trellis_tubes_left_out", &[]), 0.0);
}

/// More tubes than an owner looks at in one go, in an order that is not theirs.
#[test]
fn tubes_beyond_the_most_are_left_out_by_name_and_counted() {
    let (server, address) = start(Setup::new(Binary::Trellis).slots(2).flags(&["--metrics-tubes", "5"]));
    let mut client = server.connect("client");
    let tubes = 2 * trellis::limits::TUBES_LOOKED_AT + 1000;
    let names: Vec<String> = (0..tubes).map(|n| format!("tube-{:05}", n * 7919 % tubes)).collect();
    for some in names.chunks(200) {
        let puts: String = some.iter().map(|name| format!("use {name}\r\nput 0 0 60 0\r\n\r\n")).collect();
        client.send(puts);
        for name in some {
            client.expect(format!("USING {name}\r\n"));
            assert!(client.reply().starts_with(b"INSERTED"));
        }
    }
    let first = ["default", "tube-00000", "tube-00001", "tube-00002", "tube-00003"];
    let metrics = Metrics::scrape_when(address, |metrics| metrics.tubes().into_keys().eq(first));
    assert_eq!(metrics.sum("trellis_tubes_left_out", &[]), (tubes + 1 - 5) as f64);
    assert_eq!(metrics.sum("trellis_tube_jobs", &[("state", "ready")]), 4.0);
    assert_eq!(
        metrics.tubes().into_values().collect::<BTreeSet<_>>().len(),
        2,
        "both slots have some of them"
    );

    // One of them goes, and the next by name takes its place.
    client.ask("watch tube-00001\r\n", "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
    let job = client.call("reserve\r\n");
    let id = String::from_utf8_lossy(&job).split(' ').nth(1).unwrap().to_owned();
    client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    client.ask("watch tube-00000\r\n", "WATCHING 2\r\n").ask("ignore tube-00001\r\n", "WATCHING 1\r\n");
    let next = ["default", "tube-00000", "tube-00002", "tube-00003", "tube-00004"];
    Metrics::scrape_when(address, |metrics| metrics.tubes().into_keys().eq(next));
}

#[test]
fn tubes_of_a_slot_that_died_are_shown_no_more() {
    let (server, address) = start(Setup::new(Binary::Trellis));
    let mut client = server.connect("client");
    client.ask("use gone\r\n", "USING gone\r\n");
    assert!(client.call("put 0 0 60 1\r\nx\r\n").starts_with(b"INSERTED"));
    drop(client);
    Metrics::scrape_when(address, |metrics| metrics.tubes().contains_key("gone"));
    kill(child(&server, "trellis owner --slot 0"), Signal::SIGKILL).unwrap();
    let left = wait_for("the tubes to go", DEADLINE, || {
        Some(Metrics::scrape(address)).filter(|metrics| !metrics.tubes().contains_key("gone"))
    });
    assert!(left.types.contains_key("trellis_tubes_left_out"));
    Metrics::scrape_when(address, |metrics| metrics.tubes().into_keys().eq(["default"]));
}

#[test]
fn no_tubes_are_shown_when_none_are_wanted() {
    let (server, address) = start(Setup::new(Binary::Trellis).flags(&["--metrics-tubes=0"]));
    let of_owner = [("role", "owner")];
    let metrics = Metrics::scrape_when(address, |metrics| {
        // It has answered a ping.
        metrics.sum("trellis_process_lag_seconds", &of_owner) > 0.0
    });
    assert!(metrics.types.keys().all(|name| !name.starts_with("trellis_tube_")));
    assert_eq!(metrics.sum("trellis_tubes_left_out", &[]), 1.0);
    drop(server);
}

#[test]
fn requests_get_what_http_says() {
    let (server, address) = start(Setup::new(Binary::Trellis));
    let head = request(address, "HEAD", "/metrics");
    assert_eq!((head.code, head.body.as_str()), (200, ""));
    assert!(!head.head.contains("content-length: 0"), "{}", head.head);
    let post = request(address, "POST", "/metrics");
    assert!(post.code == 405 && post.head.contains("allow: get, head"), "{}", post.head);
    assert_eq!(request(address, "GET", "/nothing").code, 404);
    assert_eq!(request(address, "GET", "/healthz?verbose=1").code, 200);
    assert_eq!(response(&talk(address, &["no http\r\n\r\n"])).code, 400);
    let pieces = ["GE", "T /heal", "thz HTTP/1.1\r\nHo", "st: x\r\n", "\r\n"];
    assert_eq!(response(&talk(address, &pieces)).code, 200);

    // More than a request has: the connection ends without an answer, and the server goes on.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(100_000)).as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"");
    // Half a request and the end.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HT").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(health(address, "/healthz").0, 200);
    drop(server);
}

/// As many as are served at a time, all without a word, and a scraper that comes after them.
#[test]
fn scraper_is_served_though_others_hang_about() {
    let (server, address) = start(Setup::new(Binary::Trellis));
    let idle: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(server.connect("client").call("list-tubes\r\n").first(), Some(&b'O'), "clients don't notice");
    assert_eq!(health(address, "/healthz").0, 200);
    drop(idle);
}

#[test]
fn address_that_can_not_be_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    // What is taken may be free later; the others are mistakes, and a start again changes nothing.
    for (address, code) in [(taken.as_str(), 111), ("nonsense", 5), ("127.0.0.1:99999", 5), ("0", 5)] {
        let refused = Setup::new(Binary::Trellis).flags(&["--metrics", address]).refusal();
        assert_eq!(refused.code, Some(code), "{}", refused.log);
        assert!(refused.log.contains(&format!("--metrics {address}")), "{}", refused.log);
    }
}

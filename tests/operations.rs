//! The moves that `doc/operations.md` describes, by the commands that stand there: from stock in place and back, and
//! into slots and out of them.
//!
//! The commands are taken out of the document, its words for directories, address and port are replaced by real ones,
//! and a shell runs them. So a command that changes, or one that does not work as written, fails here.

mod support;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::process::{group_listens, kill_group, wait_for};
use support::server::{free_port, wait_for_exit};
use support::{Binary, Client, DEADLINE, Server, Setup, TempDir};

/// Of the section under this heading, the texts between backticks that are commands on something: they have a word
/// in capitals in them.
fn commands(heading: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/doc/operations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let body = text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading:?}")).1;
    let body = body.split("\n## ").next().unwrap();
    let placeholder = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let spans = body.split('`').skip(1).step_by(2);
    spans
        .filter(|span| span.starts_with("trellis ") || span.starts_with("printf "))
        .filter(|span| span.split(' ').any(placeholder))
        .map(str::to_owned)
        .collect()
}

/// A reader of the document: directories and a port, with `trellis` on the path.
struct Reader {
    folder: TempDir,
    port: u16,
}

impl Reader {
    fn new() -> Reader {
        Reader { folder: TempDir::new("operations"), port: free_port() }
    }

    fn shell(&self, command: &str) -> Command {
        let port = self.port.to_string();
        let words = command.split(' ').map(|word| match word {
            "ADDR" => "127.0.0.1",
            "PORT" => &port,
            // What the reader had before.
            "…" => "-l 127.0.0.1 -p $PORT",
            word => word,
        });
        let bin = Path::new(env!("CARGO_BIN_EXE_trellis")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", &words.collect::<Vec<_>>().join(" ")]);
        // Directories are named as in the document, relative to where the reader is.
        shell.current_dir(self.folder.path()).env("PATH", path).env("PORT", &port);
        shell
    }

    fn run(&self, command: &str) -> Output {
        self.shell(command).output().unwrap()
    }

    /// The output of a command that has to go well.
    fn said(&self, command: &str) -> String {
        let output = self.run(command);
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {:?}\n{said}", output.status);
        said
    }

    /// A server that the document starts.
    fn start(&self, command: &str) -> Started {
        let mut shell = self.shell(&format!("exec {command}"));
        let child = shell.process_group(0).stdin(Stdio::null()).spawn().unwrap();
        let started = Started { child, port: self.port };
        wait_for(command, DEADLINE, || group_listens(started.child.id() as i32, self.port).then_some(()));
        started
    }

    /// The original on this directory, with flags of its own.
    fn stock(&self, dir: &str, flags: &[&str]) -> Server {
        let dir = self.folder.join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        Setup::new(Binary::Legacy).wal(&dir).flags(flags).start()
    }
}

struct Started {
    child: Child,
    port: u16,
}

impl Started {
    fn connect(&self) -> Client {
        let stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        Client::tcp("reader", stream)
    }

    /// "Stop Trellis (SIGTERM; it ends with code 0)."
    fn stop(mut self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let status = wait_for_exit(&mut self.child, DEADLINE).expect("it stops");
        assert_eq!(status.code(), Some(0));
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        kill_group(self.child.id() as i32);
        let _ = self.child.wait();
    }
}

const JOBS: u64 = 9;

/// Jobs in every state that a log keeps, in three tubes.
fn fill(client: &mut Client) {
    for tube in ["mail", "images", "a-b/c;d.$(e)"] {
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        client.ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
        for (priority, delay, body) in
            [(1, 0, "buried".into()), (7, 3600, "\0\r\n".into()), (7, 0, "x".repeat(60_000))]
        {
            let reply = client.call(format!("put {priority} {delay} 60 {}\r\n{body}\r\n", body.len()));
            assert!(reply.starts_with(b"INSERTED"));
        }
        let job = client.call("reserve\r\n");
        let id = String::from_utf8_lossy(&job).split(' ').nth(1).unwrap().to_owned();
        client.ask(format!("bury {id} 5\r\n"), "BURIED\r\n");
        client.ask("watch default\r\n", "WATCHING 2\r\n");
        client.ask(format!("ignore {tube}\r\n"), "WATCHING 1\r\n");
    }
}

/// All that stays of each job: its body and its numbers, but for those that move with the clock or that the original
/// does not keep right over a restart.
fn jobs(client: &mut Client, ids: impl IntoIterator<Item = u64>) -> Vec<String> {
    let look = |id: u64| {
        let body = client.call(format!("peek {id}\r\n"));
        let stats = client.stats(&format!("stats-job {id}"));
        let kept = ["id", "tube", "state", "pri", "delay", "ttr", "timeouts", "kicks"];
        let fields: Vec<String> = kept.iter().map(|key| format!("{key} {}", stats.text(key))).collect();
        format!("{} {}", fields.join(" "), String::from_utf8_lossy(&body))
    };
    ids.into_iter().map(look).collect()
}

/// A directory as stock leaves it, and its jobs.
fn stock_directory(reader: &Reader) -> Vec<String> {
    let mut stock = reader.stock("DIR", &[]);
    let mut client = stock.connect("stock");
    fill(&mut client);
    let before = jobs(&mut client, 1..=JOBS);
    stock.stop_with(Signal::SIGTERM);
    before
}

#[test]
fn stock_directory_is_served_in_place_and_given_back() {
    let reader = Reader::new();
    let [serve, look, check] = commands("From stock, in place").try_into().expect("three commands");
    let before = stock_directory(&reader);
    assert!(reader.said(&check).contains("sound"), "{check} before the move");

    let server = reader.start(&serve);
    let request =
        look.strip_suffix(" | nc -q1 ADDR PORT").unwrap_or_else(|| panic!("{look}: sent otherwise"));
    let mut client = server.connect();
    client.send(reader.run(request).stdout);
    let stats = String::from_utf8(client.reply()).unwrap();
    for line in ["current-jobs-ready: 3", "current-jobs-delayed: 3", "current-jobs-buried: 3"] {
        assert!(stats.contains(&format!("\n{line}\n")), "{line}: {stats}");
    }
    assert_eq!(jobs(&mut client, 1..=JOBS), before);
    // One as large as Trellis takes, which the way back has to know of.
    client
        .send(format!("put 0 0 60 65535\r\n{}\r\n", "y".repeat(65_535)))
        .expect(format!("INSERTED {}\r\n", JOBS + 1));
    let before = jobs(&mut client, 1..=JOBS + 1);
    server.stop();

    // "with the same `-b`, and with `-z` at least two larger"
    let stock = reader.stock("DIR", &["-z", "65537"]);
    assert_eq!(jobs(&mut stock.connect("stock"), 1..=JOBS + 1), before);
}

#[test]
fn second_server_on_a_directory_in_use_ends_with_code_10() {
    let reader = Reader::new();
    let serve = commands("From stock, in place").swap_remove(0);
    let stock = reader.stock("DIR", &[]);
    let refused = reader.run(&serve);
    assert_eq!(refused.status.code(), Some(10), "{}", String::from_utf8_lossy(&refused.stderr));
    stock.connect("stock").ask("list-tube-used\r\n", "USING default\r\n");
}

#[test]
fn stock_directory_goes_into_slots_and_out_of_them() {
    let reader = Reader::new();
    let [check, migrate, serve, export] =
        commands("Into slots, and out of them").try_into().expect("four commands");
    let before = stock_directory(&reader);
    assert!(reader.said(&check).contains("sound"));
    assert!(reader.said(&migrate).contains("compared with the source"));

    let server = reader.start(&serve);
    let mut client = server.connect();
    assert_eq!(jobs(&mut client, 1..=JOBS), before);
    let said = client.call("put 3 3600 60 5\r\nlater\r\n");
    let new: u64 = String::from_utf8_lossy(&said).trim().strip_prefix("INSERTED ").unwrap().parse().unwrap();
    assert!(new > JOBS, "{new} was another job's");
    let before = jobs(&mut client, (1..=JOBS).chain([new]));
    server.stop();

    assert!(reader.said(&export).contains("compared with the source"));
    let stock = reader.stock("BACK", &["-z", "65537"]);
    assert_eq!(jobs(&mut stock.connect("stock"), (1..=JOBS).chain([new])), before);
    // The source of the first move is what it was.
    let stock = reader.stock("DIR", &[]);
    assert_eq!(stock.connect("stock").stats("stats").number("current-jobs-ready"), 3);
}

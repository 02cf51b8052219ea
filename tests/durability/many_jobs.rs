//! The tools on directories with many jobs: all of them arrive, and memory does not follow their number.
//!
//! `TRELLIS_TEST_JOBS` is the number of jobs, if it is to be another than the test can wait for.

use crate::support::TempDir;
use crate::support::process::status_field;
use crate::tool::{command, tool};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Stdio;
use trellis::limits::SORT_BYTES;
use trellis::wal::{Jobrec, State};

const TUBES: u64 = 1000;
const BODY_BYTES: usize = 100;
const FILE_BYTES: usize = 10 << 20;

/// Without a table: the table of one job takes some 200 bytes.
#[test]
fn memory_does_not_follow_the_number_of_jobs() {
    let jobs = std::env::var("TRELLIS_TEST_JOBS").map_or(400_000, |jobs| jobs.parse().expect("a number"));
    let (few, many) = (there_and_back(jobs / 8), there_and_back(jobs));
    println!("{} and {jobs} jobs took {few:?} and {many:?} MiB (migrate, export, dump)", jobs / 8);
    let allowed = (SORT_BYTES >> 20) as u64;
    for (few, many) in few.into_iter().zip(many) {
        assert!(many < few + allowed, "{few} MiB and {many} MiB");
    }
}

#[test]
fn sorting_without_a_place_for_its_files_names_it() {
    let log = TempDir::new("log");
    write_logs(log.path(), 200_000);
    let nowhere = log.join("nowhere");
    let mut tool = command(&["wal", "check", log.path().to_str().expect("UTF-8")]);
    let output = tool.env("TMPDIR", &nowhere).output().expect("trellis runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(65), "{error}");
    let words = format!("{}: writing a temporary file in it", nowhere.display());
    assert!(error.contains(&words), "{error}");
}

/// To four slots and back to one. Returns the memory that this took, in MiB.
fn there_and_back(jobs: u64) -> [u64; 3] {
    let log = TempDir::new("log");
    let live = write_logs(log.path(), jobs);
    let home = TempDir::new("target");
    let (four, flat) = (home.join("four"), home.join("flat"));
    let migrate = memory_of(&["migrate", "--slots", "4"], log.path(), &four);
    let export = memory_of(&["export"], &four, &flat);
    let (before, memory) = dumped(log.path());
    assert_eq!(before.len() as u64, live);
    assert!(before == dumped(&flat).0, "the jobs are not what they were");
    [migrate, export, memory]
}

fn memory_of(verb: &[&str], from: &Path, to: &Path) -> u64 {
    let [from, to] = [from, to].map(|path| path.to_str().expect("UTF-8"));
    let answer = tool(&[verb, &["--from", from, "--to", to]].concat()).ended(0);
    let figure = answer.out.rsplit_once(" MiB of memory").and_then(|(text, _)| text.rsplit_once(' '));
    figure.and_then(|(_, mib)| mib.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

/// All jobs but for where they are, sorted, and the tool's memory in MiB.
#[allow(clippy::zombie_processes, reason = "Clippy 1.85: not waited for after a panic, which ends the test")]
fn dumped(dir: &Path) -> (Vec<String>, u64) {
    let mut tool = command(&["wal", "dump", "--bodies", dir.to_str().expect("UTF-8")]);
    let mut tool = tool.stdout(Stdio::piped()).spawn().expect("trellis runs");
    let out = BufReader::new(tool.stdout.take().expect("a pipe"));
    let mut peak = 0;
    let mut jobs = Vec::new();
    for (number, line) in out.lines().enumerate() {
        let line = line.expect("UTF-8");
        // While it runs, as the kernel forgets it then. All is read and sorted when the first line comes.
        if number % 10_000 == 0 {
            let text = status_field(tool.id() as i32, "VmHWM");
            let kib = text.and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
            peak = peak.max(kib.unwrap_or(0) / 1024);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let place = |word: &str| word == "slot" || word == "file";
        let kept = (0..words.len()).filter(|&n| !place(words[n]) && (n == 0 || !place(words[n - 1])));
        jobs.push(kept.map(|n| words[n]).collect::<Vec<_>>().join(" "));
    }
    assert!(tool.wait().expect("it ends").success());
    jobs.sort_unstable();
    (jobs, peak)
}

/// Logs as a server leaves them: each seventh job is buried in a later record, each eighth is deleted some time after
/// it came. Returns how many are alive.
fn write_logs(dir: &Path, jobs: u64) -> u64 {
    let mut writer = Writer { dir, number: 0, bytes: FILE_BYTES, file: None };
    for id in 1..=jobs {
        let mut body = format!("body of job {id}, ").repeat(BODY_BYTES / 13).into_bytes();
        body.truncate(BODY_BYTES);
        body.extend_from_slice(b"\r\n");
        let ready = ready(id);
        writer.write(format!("tube-{}", id % TUBES).as_bytes(), ready, &body);
        if id % 7 == 0 {
            writer.write(b"", Jobrec { state: State::Buried, pri: 9, reserves: 1, buries: 1, ..ready }, b"");
        }
        if id % 8 == 0 && id > 800 {
            let gone = self::ready(id - 800);
            writer.write(b"", Jobrec { state: State::Invalid, reserves: 2, buries: 1, ..gone }, b"");
        }
    }
    writer.end_file();
    jobs - (jobs / 8 - 100)
}

fn ready(id: u64) -> Jobrec {
    let created_at = 1_700_000_000_000_000_000 + id as i64;
    let (pri, ttr) = (id as u32 % 5, 60_000_000_000);
    Jobrec { pri, ttr, created_at, ..Jobrec::ready(id, BODY_BYTES as i32 + 2) }
}

struct Writer<'a> {
    dir: &'a Path,
    number: u32,
    bytes: usize,
    file: Option<BufWriter<File>>,
}

impl Writer<'_> {
    /// A full record, or a short one without a tube.
    fn write(&mut self, tube: &[u8], jobrec: Jobrec, body: &[u8]) {
        let record = [&(tube.len() as i32).to_ne_bytes(), tube, &jobrec.encode(), body].concat();
        if self.bytes + record.len() > FILE_BYTES {
            self.end_file();
            self.number += 1;
            let file = File::create(self.dir.join(format!("binlog.{}", self.number))).expect("a log");
            let mut file = BufWriter::new(file);
            file.write_all(&7_i32.to_ne_bytes()).expect("a version");
            (self.file, self.bytes) = (Some(file), 4);
        }
        self.bytes += record.len();
        self.file.as_mut().expect("just opened").write_all(&record).expect("a record");
    }

    fn end_file(&mut self) {
        if let Some(mut file) = self.file.take() {
            file.flush().expect("a log");
        }
    }
}

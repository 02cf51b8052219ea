//! Power failures with `-f0`: whatever of the unsynced part of a log a disk has kept, no acknowledged job is lost
//! or changed and no deleted one comes back.
//!
//! A library (`power.c`) notes each call of an owner under load on its directory. Of seeded moments of that trace
//! images of the directory are built (`power_disk`), of a disk that writes in the order of the calls and of one
//! that does not, and a server is started on each. The length of the trace is the clock: a command that was
//! answered when the trace had some length was done by calls before it.
//!
//! `TRELLIS_TEST_POWER_SECONDS` makes it longer, `TRELLIS_TEST_SEED` repeats the choices (not the load's timing),
//! `TRELLIS_TEST_KEEP=1` keeps trace and images, `TRELLIS_TEST_POWER_STRICT=1` fails at findings that are allowed
//! otherwise.

use crate::fault;
use crate::power_disk::{Call, Disk, Image, Record, read, store};
use crate::support::{Client, Exit, Random, Server, Setup, TempDir, Variant};
use crate::tool::tool;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;

/// Commands of each client: some hundred files of the log are written through.
const COMMANDS: usize = 250;

/// Live jobs of each client: few enough that files empty and jobs move.
const LIVE: usize = 8;

/// Of the images; the load takes some two more.
const SECONDS: u64 = 7;

/// A hurried machine starts at least so many servers in that time.
const IMAGES_MIN: usize = 10;

/// The directory's files: a few jobs each.
const FILE_BYTES: &str = "8192";

/// Blocks that disks and file systems write at once.
const BLOCK_BYTES: [usize; 2] = [512, 4096];

struct Job {
    id: u64,
    tube: String,
    body: String,
    steps: Vec<Step>,
}

/// A command on a job, and the length of the trace before it was sent and behind its reply.
struct Step {
    sent: u64,
    acknowledged: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// It is in this state now.
    Becomes(State),
    /// It is not logged; a job that is moved meanwhile is ready after a start.
    Reserve,
    Delete,
}

/// What a start makes of it, with its priority.
type State = (&'static str, u32);

impl Job {
    /// What it may be after a failure at that length of the trace; `None`: not there.
    fn possible(&self, at: u64) -> BTreeSet<Option<State>> {
        let mut possible = BTreeSet::from([None]);
        for step in self.steps.iter().filter(|step| step.sent < at) {
            let mut after: BTreeSet<Option<State>> = match step.what {
                What::Becomes(state) => BTreeSet::from([Some(state)]),
                What::Reserve => {
                    possible.iter().flat_map(|&was| [was, was.map(|(_, p)| ("ready", p))]).collect()
                }
                What::Delete => BTreeSet::from([None]),
            };
            if step.acknowledged > at {
                after.extend(possible);
            }
            possible = after;
        }
        possible
    }

    /// Whether a command was under way that writes a short record.
    fn in_change(&self, at: u64) -> bool {
        let mut steps = self.steps.iter().skip(1).filter(|step| step.sent < at && step.acknowledged > at);
        steps.any(|step| matches!(step.what, What::Becomes(_)))
    }

    fn put_acknowledged(&self, at: u64) -> bool {
        self.steps[0].acknowledged <= at
    }
}

#[derive(Default)]
struct Count {
    images: usize,
    served: usize,
    refused: usize,
    jobs: usize,
    /// Jobs that half a record has taken for deleted.
    halves: usize,
    /// Of jobs whose put was answered, and was not.
    wrong_bodies: [usize; 2],
}

#[test]
fn acknowledged_jobs_survive_any_loss_of_what_was_not_synced() {
    let mut random = Random::announced("power");
    let seconds =
        std::env::var("TRELLIS_TEST_POWER_SECONDS").map_or(SECONDS, |text| text.parse().expect("seconds"));
    let place = TempDir::new("power");
    let (jobs, trace) = load(&place, &mut random);
    let records = read(&std::fs::read(trace).expect("a trace"));
    let moments = worthwhile(&records, &jobs);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut ordered, mut torn) = (Count::default(), Count::default());
    while Instant::now() < end {
        let ends = *random.pick(&moments);
        let at = records[ends - 1].end;
        let mut disk = Disk::default();
        let image = if random.once_in(3) {
            // What was done last before the failure that had to wait for the disk.
            let synced =
                records[..ends].iter().rposition(|r| matches!(r.call, Call::Sync(_))).map_or(0, |n| n + 1);
            let done = synced + random.below(ends - synced + 1);
            records[..done].iter().for_each(|record| disk.apply(&record.call));
            if let Some(Call::Write(name, offset, data)) = records[..ends].get(done).map(|r| &r.call) {
                disk.apply(&Call::Write(name.clone(), *offset, first_blocks(&mut random, *offset, data)));
            }
            (&mut ordered, "in order", disk.newest())
        } else {
            records[..ends].iter().for_each(|record| disk.apply(&record.call));
            let block_bytes = *random.pick(&BLOCK_BYTES);
            (&mut torn, "in any order", disk.torn(&mut random, block_bytes))
        };
        let (count, order, image) = image;
        let what = format!("record {ends} of {}, disk writes {order}", records.len());
        examine(&place, image, &jobs, at, &what, count);
    }
    for (count, order) in [(&ordered, "in order"), (&torn, "in any order")] {
        let Count { images, served, refused, jobs, halves, wrong_bodies } = count;
        println!(
            "disk writes {order}: {images} images, {served} served, {refused} refused, {jobs} jobs looked at, \
             {halves} deleted by half a record, wrong bodies: {} of acknowledged jobs, {} of others",
            wrong_bodies[0], wrong_bodies[1]
        );
    }
    assert!(ordered.images + torn.images >= IMAGES_MIN, "hardly anything happened");
    assert_eq!((ordered.refused, ordered.wrong_bodies), (0, [0, 0]), "a disk that writes in order");
    let allowed = ordered.halves + torn.halves + torn.refused + torn.wrong_bodies.iter().sum::<usize>();
    let strict = std::env::var_os("TRELLIS_TEST_POWER_STRICT").is_some();
    assert!(!strict || allowed == 0, "{allowed} findings");
}

/// Numbers of records after which there is something to lose, those more often that write much, and most often
/// those that move a job: they are rare, and what they write anew was acknowledged.
fn worthwhile(records: &[Record], jobs: &[Job]) -> Vec<usize> {
    let moves = |data: &[u8], end: u64| {
        jobs.iter().any(|job| {
            let name: Vec<u8> = job.tube.bytes().chain(job.id.to_le_bytes()).collect();
            job.put_acknowledged(end - data.len() as u64) && data.windows(name.len()).any(|w| w == name)
        })
    };
    let weight = |record: &Record| match &record.call {
        Call::Sync(_) => 0,
        Call::Write(_, _, data) if data.len() > BLOCK_BYTES[0] && data.iter().any(|&byte| byte != 0) => {
            if moves(data, record.end) {
                20
            } else {
                4
            }
        }
        _ => 1,
    };
    let weights = records.iter().map(weight).enumerate();
    weights.flat_map(|(number, weight)| std::iter::repeat_n(number + 1, weight)).collect()
}

/// A front part that ends with a block of the file.
fn first_blocks(random: &mut Random, offset: u64, data: &[u8]) -> Vec<u8> {
    let block_bytes = BLOCK_BYTES[0];
    let into_block = offset as usize % block_bytes;
    let blocks = random.below((into_block + data.len()).div_ceil(block_bytes));
    data[..(blocks * block_bytes).saturating_sub(into_block).min(data.len())].to_vec()
}

/// Runs clients against a server whose calls are noted, and stops it in an orderly way.
fn load(place: &TempDir, random: &mut Random) -> (Vec<Job>, PathBuf) {
    let log = place.path().canonicalize().expect("a path").join("log");
    std::fs::create_dir(&log).expect("a directory");
    let library = fault::build(place, "power.c");
    let trace = place.join("trace");
    let mut server = Setup::of(Variant::TrellisOneSlot)
        .wal(&log)
        .flags(&["-f0", "-s", FILE_BYTES])
        .env("LD_PRELOAD", &library.display().to_string())
        .env("POWER_DIR", &log.display().to_string())
        .env("POWER_TRACE", &trace.display().to_string())
        .start();
    let jobs = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = server.connect(&number.to_string());
                let (random, trace) = (Random::from_seed(random.next()), &trace);
                scope.spawn(move || work(client, number, random, trace))
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a client")).collect()
    });
    let moved = server.connect("moves").stats("stats").number("binlog-records-migrated");
    println!("{moved} jobs were moved");
    assert!(moved > 0, "files are never emptied");
    server.stop();
    (jobs, trace)
}

/// Puts, buries, releases and deletes in a tube of its own.
fn work(mut client: Client, number: usize, mut random: Random, trace: &Path) -> Vec<Job> {
    let length = || std::fs::metadata(trace).expect("a trace").len();
    let tube = format!("tube-{number}");
    client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
    let mut jobs: Vec<Job> = Vec::new();
    let mut live: Vec<usize> = Vec::new();
    let mut call = |command: String| {
        let sent = length();
        let reply = String::from_utf8(client.call(command)).expect("ASCII");
        (reply, sent, length())
    };
    for serial in 0..COMMANDS {
        let priority = random.below(1000) as u32;
        if live.len() < LIVE || random.once_in(3) {
            // Most below a block, some over several of them.
            let bytes = if random.once_in(3) { 500 + random.below(2500) } else { 1 + random.below(300) };
            let body: String = format!("{number}/{serial}/{:016x} ", random.next()).repeat(1 + bytes / 24);
            let (state, delay) = if random.once_in(4) { ("delayed", 3600) } else { ("ready", 0) };
            let (reply, sent, acknowledged) =
                call(format!("put {priority} {delay} 600 {}\r\n{body}\r\n", body.len()));
            let id = reply.trim_end().strip_prefix("INSERTED ").expect(&reply).parse().expect("an id");
            live.push(jobs.len());
            let what = What::Becomes((state, priority));
            jobs.push(Job { id, tube: tube.clone(), body, steps: vec![Step { sent, acknowledged, what }] });
            continue;
        }
        let place = random.below(live.len());
        let job = &mut jobs[live[place]];
        let mut step = |command: String, begins: &str, what: What| {
            let (reply, sent, acknowledged) = call(command);
            assert!(reply.starts_with(begins), "{reply}");
            job.steps.push(Step { sent, acknowledged, what });
        };
        let id = job.id;
        step(format!("reserve-job {id}\r\n"), "RESERVED", What::Reserve);
        match random.below(5) {
            0 => step(format!("bury {id} {priority}\r\n"), "BURIED", What::Becomes(("buried", priority))),
            1 => {
                step(format!("release {id} {priority} 0\r\n"), "RELEASED", What::Becomes(("ready", priority)))
            }
            2 => {
                step(
                    format!("release {id} {priority} 3600\r\n"),
                    "RELEASED",
                    What::Becomes(("delayed", priority)),
                );
            }
            _ => {
                step(format!("delete {id}\r\n"), "DELETED", What::Delete);
                live.swap_remove(place);
            }
        }
    }
    jobs
}

/// Starts a server on an image and looks at all that it serves.
fn examine(place: &TempDir, mut image: Image, jobs: &[Job], at: u64, what: &str, count: &mut Count) {
    let log = TempDir::new("power-image");
    count.images += 1;
    start_machine_anew(&mut image);
    let image = image;
    store(&image, log.path());
    let what = format!("{what} ({}, trace in {})", log.path().display(), place.path().display());
    let setup = Setup::of(Variant::TrellisOneSlot).wal(log.path()).flags(&["-f0", "-s", FILE_BYTES]);
    match setup.try_start() {
        Ok(server) => {
            count.served += 1;
            look(server, &image, jobs, at, &what, count);
        }
        Err(exit) => {
            count.refused += 1;
            let reason = exit.log.lines().find(|line| line.contains("binlog.")).unwrap_or("?");
            println!("refused: {what}: {reason}");
            refused(&exit, &log, &image, &what);
            let backup = TempDir::new("power-backup");
            let [path, copy] = [log.path(), &backup.join("copy")].map(|path| path.display().to_string());
            tool(&["wal", "repair", "--backup", &copy, &path]).ended(0);
            look(setup.start(), &image, jobs, at, &format!("repaired: {what}"), count);
        }
    }
}

/// Permanently, naming a file, with nothing changed; and the tool finds the same.
fn refused(exit: &Exit, log: &TempDir, image: &Image, what: &str) {
    /// `Exit::Data`, and that of `wal check` for a damaged log.
    const DATA: i32 = 65;
    const DAMAGED: i32 = 4;
    assert_eq!(exit.code, Some(DATA), "{what}: {}", exit.log);
    assert!(exit.log.contains("binlog."), "{what}: {}", exit.log);
    let left = std::fs::read_dir(log.path()).expect("the image").map(|entry| {
        let entry = entry.expect("a file");
        let name = entry.file_name().into_string().expect("UTF-8");
        (name, std::fs::read(entry.path()).expect("its data"))
    });
    assert!(*image == left.collect(), "{what}: the refusal has changed something");
    tool(&["wal", "check", &log.path().display().to_string()]).ended(DAMAGED);
}

/// The file of ids names the run of the machine that it was written in.
fn start_machine_anew(image: &mut Image) {
    let Some(ids) = image.get_mut("ids.toml") else { return };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    let boot = boot.trim();
    let text = std::str::from_utf8(ids).expect("UTF-8");
    assert!(text.contains(boot), "{text}");
    *ids = text.replace(boot, &"f".repeat(boot.len())).into_bytes();
}

/// All that is served is right.
fn look(mut server: Server, image: &Image, jobs: &[Job], at: u64, what: &str, count: &mut Count) {
    let mut client = server.connect("look");
    let mut found = 0;
    for job in jobs {
        let (id, possible) = (job.id, job.possible(at));
        if possible == BTreeSet::from([None]) {
            continue; // the count below tells of it
        }
        let reply = client.call(format!("peek {id}\r\n"));
        if reply == b"NOT_FOUND\r\n" {
            if !possible.contains(&None) {
                let half = job.in_change(at) && has_half_record(image, id);
                assert!(half, "{what}: job {id} is lost, it may be {possible:?}");
                println!("deleted by half a record: job {id}: {what}");
                count.halves += 1;
            }
            continue;
        }
        found += 1;
        if reply != format!("FOUND {id} {}\r\n{}\r\n", job.body.len(), job.body).as_bytes() {
            // Its own record, or that of a move, lacks a block. Nothing in the format tells.
            let whose = if job.put_acknowledged(at) { "an acknowledged" } else { "an unacknowledged" };
            println!("wrong body of {whose} job {id}: {what}");
            count.wrong_bodies[usize::from(!job.put_acknowledged(at))] += 1;
        }
        let stats = client.stats(&format!("stats-job {id}"));
        assert_eq!(stats.text("tube").trim_matches('"'), job.tube, "{what}: job {id}");
        let is = Some((stats.text("state"), stats.number("pri") as u32));
        assert!(possible.contains(&is), "{what}: job {id} is {is:?}, it may be {possible:?}");
    }
    let stats = client.stats("stats");
    let there: i64 =
        ["ready", "delayed", "buried"].iter().map(|s| stats.number(&format!("current-jobs-{s}"))).sum();
    assert_eq!(there, found as i64, "{what}: jobs that were deleted, or never put");
    let told = jobs.iter().filter(|job| job.put_acknowledged(at)).map(|job| job.id).max().unwrap_or(0);
    let reply = String::from_utf8(client.call("put 0 0 60 1\r\nx\r\n")).expect("ASCII");
    let id: u64 = reply.trim_end().strip_prefix("INSERTED ").expect(&reply).parse().expect("an id");
    assert!(id > told, "{what}: id {id} comes again, {told} was told");
    count.jobs += found;
    server.kill();
}

/// Whether a short record of this job lacks all behind the edge of a block, state included: with its times and
/// counts there, it can't be told from a deletion.
fn has_half_record(image: &Image, id: u64) -> bool {
    /// Of the record: the id behind four zeros, the end of the time of creation, the state, all.
    const ID: usize = 4;
    const CREATED_END: usize = 52;
    const STATE: usize = 80;
    const BYTES: usize = 84;
    let begin: Vec<u8> = [0; ID].into_iter().chain(id.to_le_bytes()).collect();
    image.values().any(|file| {
        let mut starts = (0..file.len().saturating_sub(BYTES)).filter(|&at| file[at..].starts_with(&begin));
        starts.any(|at| {
            let edge = (at + STATE) / BLOCK_BYTES[0] * BLOCK_BYTES[0];
            edge >= at + CREATED_END && file[edge..at + BYTES].iter().all(|&byte| byte == 0)
        })
    })
}

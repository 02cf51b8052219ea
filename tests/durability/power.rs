//! Power failures: whatever of the unsynced part of a log a disk has kept, every image of it is served, no job has
//! another body, and no told id comes again. With `-f0` no acknowledged job is lost and no deleted one comes back; with
//! `-f MS` that holds for what was acknowledged before the first call that no sync covers.
//!
//! A library (`power.c`) notes each call of an owner under load on its directory, and kills it once in between, so
//! that what it had not synced is what its successor begins with. Of seeded moments of that trace images of the
//! directory are built (`power_disk`), of a disk that writes in the order of the calls and of one that does not, and
//! a server is started on each. The length of the trace is the clock: a command that was answered when the trace had
//! some length was done by calls before it.
//!
//! `TRELLIS_TEST_POWER_SECONDS` makes each test longer, `TRELLIS_TEST_SEED` repeats the choices (not the load's timing),
//! `TRELLIS_TEST_KEEP=1` keeps trace and images.

use crate::fault;
use crate::power_disk::{Call, Disk, Image, Record, read, store};
use crate::support::{Client, Random, Server, Setup, TempDir, Variant};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;

/// Commands of each client: some hundred files of the log are written through.
const COMMANDS: usize = 250;

/// Live jobs of each client: few enough that files empty and jobs move.
const LIVE: usize = 8;

/// Noted writes of the owner before it is killed: at least, and so many more at most.
const KILL_AFTER: (usize, usize) = (100, 300);

/// Of the images of one policy; the load takes some two more.
const SECONDS: u64 = 6;

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

/// When the power fails, as a length of the trace, and what is on disk for sure then: what was acknowledged at that
/// earlier length.
#[derive(Clone, Copy)]
struct Failure {
    at: u64,
    sure: u64,
}

impl Job {
    /// What it may be afterwards; `None`: not there.
    fn possible(&self, failure: Failure) -> BTreeSet<Option<State>> {
        let mut possible = BTreeSet::from([None]);
        for step in self.steps.iter().filter(|step| step.sent < failure.at) {
            let mut after: BTreeSet<Option<State>> = match step.what {
                What::Becomes(state) => BTreeSet::from([Some(state)]),
                What::Reserve => {
                    possible.iter().flat_map(|&was| [was, was.map(|(_, p)| ("ready", p))]).collect()
                }
                What::Delete => BTreeSet::from([None]),
            };
            if step.acknowledged > failure.sure {
                after.extend(possible);
            }
            possible = after;
        }
        possible
    }

    fn put_acknowledged(&self, at: u64) -> bool {
        self.steps[0].acknowledged <= at
    }
}

/// A client's jobs.
#[derive(Default)]
struct Work {
    jobs: Vec<Job>,
    /// Puts whose reply never came: nobody knows their ids.
    nameless: usize,
}

#[derive(Default)]
struct Count {
    images: usize,
    jobs: usize,
}

#[test]
fn acknowledged_jobs_survive_any_loss_of_what_was_not_synced() {
    survives("-f0", |at, _| at);
}

/// Synced so often that a file is not full before.
#[test]
fn what_was_synced_survives_any_loss_of_the_rest() {
    survives("-f2", |at, disk| disk.unsure_from().unwrap_or(at));
}

fn survives(policy: &str, sure: impl Fn(u64, &Disk) -> u64) {
    let mut random = Random::announced("power");
    let seconds =
        std::env::var("TRELLIS_TEST_POWER_SECONDS").map_or(SECONDS, |text| text.parse().expect("seconds"));
    let place = TempDir::new("power");
    let (work, trace) = load(&place, policy, &mut random);
    let records = read(&std::fs::read(trace).expect("a trace"));
    let moments = worthwhile(&records, &work.jobs);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut ordered, mut torn) = (Count::default(), Count::default());
    while Instant::now() < end {
        let ends = *random.pick(&moments);
        let disk = Disk::after(&records[..ends]);
        let at = records[ends - 1].end;
        let failure = Failure { at, sure: sure(at, &disk) };
        let (count, order, image) = if random.once_in(3) {
            let synced = synced(&records[..ends]);
            let done = synced + random.below(ends - synced + 1);
            let mut disk = Disk::after(&records[..done]);
            if let Some(Record { call: Call::Write(name, offset, data), start, .. }) =
                records[..ends].get(done)
            {
                disk.write(*start, name, *offset, first_blocks(&mut random, *offset, data));
            }
            (&mut ordered, "in order", disk.newest())
        } else {
            let block_bytes = *random.pick(&BLOCK_BYTES);
            (&mut torn, "in any order", disk.torn(&mut random, block_bytes))
        };
        let what = format!("{policy}, record {ends} of {}, disk writes {order}", records.len());
        examine(&place, policy, image, &work, failure, &what, count);
    }
    for (Count { images, jobs }, order) in [(&ordered, "in order"), (&torn, "in any order")] {
        println!("disk writes {order}: {images} images, {jobs} jobs looked at");
    }
    assert!(ordered.images + torn.images >= IMAGES_MIN, "hardly anything happened");
}

/// So many records a disk that writes in order has for sure: those in front of a sync that has ended.
fn synced(records: &[Record]) -> usize {
    let mut begins = BTreeMap::new();
    let mut synced = 0;
    for (index, record) in records.iter().enumerate() {
        match record.call {
            Call::SyncBegins(_, number) => drop(begins.insert(number, index)),
            Call::Synced(number) => synced = synced.max(begins[&number]),
            _ => {}
        }
    }
    synced
}

/// Numbers of records after which there is something to lose, those more often that write much, and most often
/// those that move a job or begin a file: they are rare, and what moves write anew was acknowledged.
fn worthwhile(records: &[Record], jobs: &[Job]) -> Vec<usize> {
    let moves = |data: &[u8], end: u64| {
        jobs.iter().any(|job| {
            let name: Vec<u8> = job.tube.bytes().chain(job.id.to_le_bytes()).collect();
            job.put_acknowledged(end - data.len() as u64) && data.windows(name.len()).any(|w| w == name)
        })
    };
    let weight =
        |record: &Record| match &record.call {
            Call::SyncBegins(..) | Call::Synced(_) => 0,
            Call::Write(_, offset, data)
                if data.len() > BLOCK_BYTES[0] && data.iter().any(|&byte| byte != 0) =>
            {
                if moves(data, record.end) || *offset < BLOCK_BYTES[0] as u64 { 20 } else { 4 }
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
fn load(place: &TempDir, policy: &str, random: &mut Random) -> (Work, PathBuf) {
    let log = place.path().canonicalize().expect("a path").join("log");
    std::fs::create_dir(&log).expect("a directory");
    let library = fault::build(place, "power.c");
    let (trace, once) = (place.join("trace"), place.join("kill-once"));
    std::fs::write(&once, "").expect("a file");
    let kill_after = KILL_AFTER.0 + random.below(KILL_AFTER.1);
    let mut server = Setup::of(Variant::TrellisOneSlot)
        .wal(&log)
        .flags(&[policy, "-s", FILE_BYTES])
        .env("LD_PRELOAD", &library.display().to_string())
        .env("POWER_DIR", &log.display().to_string())
        .env("POWER_TRACE", &trace.display().to_string())
        .env("POWER_KILL", &kill_after.to_string())
        .env("POWER_ONCE", &once.display().to_string())
        .start();
    let work = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (random, server, trace) = (Random::from_seed(random.next()), &server, &trace);
                scope.spawn(move || work(server, number, random, trace))
            })
            .collect();
        let works = workers.into_iter().map(|worker| worker.join().expect("a client"));
        works.fold(Work::default(), |mut all, work| {
            all.jobs.extend(work.jobs);
            all.nameless += work.nameless;
            all
        })
    });
    assert!(!once.exists(), "the owner was not killed");
    let moved = server.connect("moves").stats("stats").number("binlog-records-migrated");
    println!("{moved} jobs were moved, {} puts have no known id", work.nameless);
    assert!(moved > 0, "files are never emptied");
    server.stop();
    (work, trace)
}

/// A connection in a tube of its own; a new one when the server has closed it, which leaves its last command open.
struct Caller<'a> {
    server: &'a Server,
    tube: String,
    client: Client,
    trace: &'a Path,
}

impl Caller<'_> {
    fn new<'a>(server: &'a Server, tube: String, trace: &'a Path) -> Caller<'a> {
        let mut client = server.connect(&tube);
        client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
        Caller { server, tube, client, trace }
    }

    fn length(&self) -> u64 {
        std::fs::metadata(self.trace).expect("a trace").len()
    }

    /// The reply, if there is one, and the length of the trace before and behind the call.
    fn call(&mut self, command: String) -> (Option<String>, u64, u64) {
        let sent = self.length();
        match self.client.try_call(command) {
            Some(reply) => (Some(String::from_utf8(reply).expect("ASCII")), sent, self.length()),
            None => {
                *self = Caller::new(self.server, std::mem::take(&mut self.tube), self.trace);
                (None, sent, u64::MAX)
            }
        }
    }
}

/// Puts, buries, releases and deletes in a tube of its own.
fn work(server: &Server, number: usize, mut random: Random, trace: &Path) -> Work {
    let tube = format!("tube-{number}");
    let mut caller = Caller::new(server, tube.clone(), trace);
    let mut work = Work::default();
    let mut live: Vec<usize> = Vec::new();
    for serial in 0..COMMANDS {
        let priority = random.below(1000) as u32;
        if live.len() < LIVE || random.once_in(3) {
            // Most below a block, some over several of them.
            let bytes = if random.once_in(3) { 500 + random.below(2500) } else { 1 + random.below(300) };
            let body: String = format!("{number}/{serial}/{:016x} ", random.next()).repeat(1 + bytes / 24);
            let (state, delay) = if random.once_in(4) { ("delayed", 3600) } else { ("ready", 0) };
            let (reply, sent, acknowledged) =
                caller.call(format!("put {priority} {delay} 600 {}\r\n{body}\r\n", body.len()));
            let Some(reply) = reply else {
                work.nameless += 1;
                continue;
            };
            let id = reply.trim_end().strip_prefix("INSERTED ").expect(&reply).parse().expect("an id");
            live.push(work.jobs.len());
            let what = What::Becomes((state, priority));
            work.jobs.push(Job {
                id,
                tube: tube.clone(),
                body,
                steps: vec![Step { sent, acknowledged, what }],
            });
            continue;
        }
        let place = random.below(live.len());
        let job = &mut work.jobs[live[place]];
        let id = job.id;
        let reserve = (format!("reserve-job {id}\r\n"), "RESERVED", What::Reserve);
        let (delete, change) = match random.below(5) {
            0 => {
                (false, (format!("bury {id} {priority}\r\n"), "BURIED", What::Becomes(("buried", priority))))
            }
            1 => (
                false,
                (format!("release {id} {priority} 0\r\n"), "RELEASED", What::Becomes(("ready", priority))),
            ),
            2 => (
                false,
                (
                    format!("release {id} {priority} 3600\r\n"),
                    "RELEASED",
                    What::Becomes(("delayed", priority)),
                ),
            ),
            _ => (true, (format!("delete {id}\r\n"), "DELETED", What::Delete)),
        };
        let mut open = false;
        for (command, begins, what) in [reserve, change] {
            let (reply, sent, acknowledged) = caller.call(command);
            // The reservation went with an owner that was killed after it.
            if reply.as_deref() == Some("NOT_FOUND\r\n") && begins != "RESERVED" {
                break;
            }
            job.steps.push(Step { sent, acknowledged, what });
            open = reply.is_none();
            let Some(reply) = reply else { break };
            assert!(reply.starts_with(begins), "{reply}");
        }
        if delete || open {
            live.swap_remove(place);
        }
    }
    work
}

/// Starts a server on an image and looks at all that it serves.
fn examine(
    place: &TempDir,
    policy: &str,
    mut image: Image,
    work: &Work,
    failure: Failure,
    what: &str,
    count: &mut Count,
) {
    let log = TempDir::new("power-image");
    count.images += 1;
    start_machine_anew(&mut image);
    store(&image, log.path());
    let what = format!("{what} ({}, trace in {})", log.path().display(), place.path().display());
    let setup = Setup::of(Variant::TrellisOneSlot).wal(log.path()).flags(&[policy, "-s", FILE_BYTES]);
    match setup.try_start() {
        Ok(server) => look(server, work, failure, &what, count),
        Err(exit) => panic!("refused: {what}: {}", exit.log),
    }
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
fn look(mut server: Server, work: &Work, failure: Failure, what: &str, count: &mut Count) {
    let mut client = server.connect("look");
    let mut found = 0;
    for job in &work.jobs {
        let (id, possible) = (job.id, job.possible(failure));
        if possible == BTreeSet::from([None]) {
            continue; // the count below tells of it
        }
        let reply = client.call(format!("peek {id}\r\n"));
        if reply == b"NOT_FOUND\r\n" {
            assert!(possible.contains(&None), "{what}: job {id} is lost, it may be {possible:?}");
            continue;
        }
        found += 1;
        let whole = format!("FOUND {id} {}\r\n{}\r\n", job.body.len(), job.body);
        assert!(reply == whole.as_bytes(), "{what}: job {id} has another body: {}", reply.escape_ascii());
        let stats = client.stats(&format!("stats-job {id}"));
        assert_eq!(stats.text("tube").trim_matches('"'), job.tube, "{what}: job {id}");
        let is = Some((stats.text("state"), stats.number("pri") as u32));
        assert!(possible.contains(&is), "{what}: job {id} is {is:?}, it may be {possible:?}");
    }
    let stats = client.stats("stats");
    let there: i64 =
        ["ready", "delayed", "buried"].iter().map(|s| stats.number(&format!("current-jobs-{s}"))).sum();
    let nameless = there - found as i64;
    assert!((0..=work.nameless as i64).contains(&nameless), "{what}: jobs that were deleted, or never put");
    let told =
        work.jobs.iter().filter(|job| job.put_acknowledged(failure.at)).map(|job| job.id).max().unwrap_or(0);
    let reply = String::from_utf8(client.call("put 0 0 60 1\r\nx\r\n")).expect("ASCII");
    let id: u64 = reply.trim_end().strip_prefix("INSERTED ").expect(&reply).parse().expect("an id");
    assert!(id > told, "{what}: id {id} comes again, {told} was told");
    count.jobs += found;
    server.kill();
}

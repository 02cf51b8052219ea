//! Every bound of the system in one place, with its unit and its reason.
//!
//! Stock's own numbers are named as in the C source they come from; ours say what memory or time they
//! bound. Relations between them are checked at compile time beside the constants.

/// Longest command line including CR LF, in bytes: stock's `LINE_BUF_SIZE` (11 + 201 + 12).
pub const LINE_BYTES: usize = 224;

/// Longest tube name, in bytes: stock's `MAX_TUBE_NAME_LEN - 1`.
pub const TUBE_NAME_BYTES: usize = 200;

/// Largest job body a client may ask for with `-z`, in bytes: stock's `JOB_DATA_SIZE_LIMIT_MAX`.
pub const JOB_BYTES_MAX: usize = 1 << 30;

/// Largest job body without `-z`, in bytes: stock's `JOB_DATA_SIZE_LIMIT_DEFAULT`.
pub const JOB_BYTES_DEFAULT: usize = (1 << 16) - 1;

/// Partitions of the tube name space without `--partitions`: many more than slots, so that a later
/// change of the slot count moves whole partitions.
pub const PARTITIONS_DEFAULT: u32 = 1024;

/// Most partitions a topology may have: bounds the map in memory, in `topology.toml` and in a frame.
pub const PARTITIONS_MAX: u32 = 8192;

/// Most owner slots: one process each, and three digits in the name of a slot directory.
pub const SLOTS_MAX: u32 = 256;

/// Server id, in hexadecimal digits: what stock prints as `id` in `stats` (8 random bytes).
pub const SERVER_ID_DIGITS: usize = 16;

/// Job ids end below this: a JavaScript client holds every integer up to 2^53 exactly, none beyond.
pub const JOB_ID_END: u64 = 1 << 53;

/// Largest `topology.toml` or `slot.toml` that is read, in bytes: a full map takes five characters a
/// partition ("255, "), and everything else fits one kilobyte.
pub const TOPOLOGY_FILE_BYTES: usize = PARTITIONS_MAX as usize * 5 + 4096;

/// Bytes of a log that its reader keeps in memory at a time: some hundreds of records a read.
pub const WAL_WINDOW_BYTES: usize = 1 << 16;

/// The smallest block, in bytes, that a disk writes as a whole: the larger ones are multiples of it.
pub const DISK_BLOCK_BYTES: u64 = 512;

/// Log files that are kept open while bodies are read: the one that is read in order, and those that jobs of
/// it were moved to.
pub const WAL_FILES_OPEN: usize = 8;

/// Findings kept of one scan of a log directory; more are counted only. The first says what to mend, and a
/// directory given to the wrong slot has one for every record.
pub const WAL_FINDINGS: usize = 1000;

/// Of them, those that an owner logs when it refuses to start: a screenful. `trellis wal check` shows all.
pub const WAL_FINDINGS_LOGGED: usize = 20;

/// What the tools on directories keep of records and jobs while they sort them, in bytes; the rest goes to a
/// temporary file. Some hundred thousand jobs need no file, and sorting is fast with more than a few runs.
pub const SORT_BYTES: usize = 32 << 20;

/// What one read of a sorted run brings at most, in bytes: enough for its share of the time to be small.
pub const SORT_RUN_BYTES_MAX: usize = 256 << 10;

/// And at least, however many runs there are.
pub const SORT_RUN_BYTES_MIN: usize = 4 << 10;

/// Ids that a slot reserves ahead on disk, times the slots: a million puts for one small write and sync. A
/// power failure may skip that many ids, and there are some billion blocks of them.
pub const ID_BLOCK: u64 = 1_000_000;

/// Numbers in the names of log files end below this: the core's scan takes it for "no file yet".
pub const WAL_FILE_NUMBER_END: u32 = 1 << 30;

/// Longest delay or TTR a client can ask for, in nanoseconds: 32 bits of seconds.
pub const JOB_SPAN_NS: i64 = u32::MAX as i64 * 1_000_000_000;

const _: () =
    assert!(JOB_ID_END / (ID_BLOCK * SLOTS_MAX as u64) > 1_000_000, "a power failure an hour for a century");
const _: () = assert!(LINE_BYTES >= "pause-tube  4294967295\r\n".len() + TUBE_NAME_BYTES);
const _: () = assert!(SLOTS_MAX <= PARTITIONS_MAX);
const _: () = assert!(PARTITIONS_DEFAULT <= PARTITIONS_MAX && SLOTS_MAX <= PARTITIONS_DEFAULT);
const _: () = assert!(SLOTS_MAX <= 1000, "a slot directory's name has three digits");

/// Largest payload of an IPC frame, in bytes: a chunk of 64 KiB and the reply line before it.
pub const FRAME_PAYLOAD_BYTES: usize = (64 << 10) + 256;

/// What one read of a link may bring, in bytes: a wake-up takes many frames with one system call.
pub const LINK_READ_BYTES: usize = 256 << 10;

/// Unsent bytes of a link from which on its sources are not read any more.
pub const OUTBOX_FULL_BYTES: usize = 1 << 20;

/// Bytes of one session that may be under way from frontend to owner: bounds what an owner keeps for a
/// session that waits.
pub const COMMAND_WINDOW_BYTES: usize = 128 << 10;

/// Bytes of one session that may be under way from owner to client: bounds what a frontend keeps for a
/// client that does not read.
pub const REPLY_WINDOW_BYTES: usize = 2 * FRAME_PAYLOAD_BYTES;

/// Acknowledge used-up bytes by a frame of their own from here on, where no other frame carries it.
pub const CREDIT_BYTES: usize = 32 << 10;

const _: () = assert!(LINK_READ_BYTES > 2 * FRAME_PAYLOAD_BYTES);
const _: () = assert!(REPLY_WINDOW_BYTES >= 2 * FRAME_PAYLOAD_BYTES);
const _: () = assert!(COMMAND_WINDOW_BYTES >= FRAME_PAYLOAD_BYTES + CREDIT_BYTES);
const _: () = assert!(FRAME_PAYLOAD_BYTES > JOB_BYTES_DEFAULT + 2 + LINE_BYTES);

/// Events that one wake-up takes from the kernel.
pub const EVENTS: usize = 1024;

/// What one read of a client may bring, in bytes; also what is kept of a client whose commands can't be begun.
pub const CLIENT_READ_BYTES: usize = 64 << 10;

/// Replies that a client has not taken, from which on it is not read any more, in bytes.
pub const OUTPUT_HOLD_BYTES: usize = 64 << 10;

/// Connections accepted in a row, so that a flood of them leaves time for the clients that are there.
pub const ACCEPT_BATCH: usize = 64;

/// Rounds of a frontend over its clients before it sends to the owners: few enough that a batch is some tens of
/// microseconds old at most.
pub const ROUNDS_PER_SEND: u32 = 4;

/// How long accepting rests when there is no descriptor left.
pub const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Connections that a server has at a time without `--max-connections`: as many as the service units allow
/// descriptors, so that a unit that is left as it is loses nothing, and some hundred MiB while they are idle.
pub const CONNECTIONS_DEFAULT: u64 = 1 << 16;

/// Largest `--max-connections`: as many sessions as a link tells apart of one frontend.
pub const CONNECTIONS_MAX: u64 = SESSION_INDEX_END as u64;

/// A frontend numbers its sessions from zero and uses numbers again, so an index from here on is no session.
pub const SESSION_INDEX_END: u32 = 1 << 22;

/// Descriptors that a frontend keeps for itself beside one a link: for its standard streams, its channel, its
/// polls and listening sockets, and for links to owners that are started again while the old ones are open.
pub const FRONTEND_DESCRIPTORS: u64 = 32;

/// Bytes of bodies that have not wholly arrived, in the whole server without `--max-unfinished-bytes`: some
/// thousand bodies of the largest size that is usual, and a quarter of a small machine's memory.
pub const UNFINISHED_BYTES_DEFAULT: u64 = 256 << 20;

/// As many of the largest bodies that `-z` allows may be unfinished in each frontend without the flag, if
/// that is more: who allows large bodies has clients that send them at the same time.
pub const UNFINISHED_BODIES_DEFAULT: u64 = 16;

/// Largest `--max-unfinished-bytes`: 2^48, more than there is memory.
pub const UNFINISHED_BYTES_MAX: u64 = 1 << 48;

/// Largest `--idle-timeout` and `--body-timeout`, in seconds: a year.
pub const CLIENT_SECONDS_MAX: u64 = 365 * 24 * 3600;

/// How often a frontend says that it takes no clients.
pub const ACCEPT_WARNING: std::time::Duration = std::time::Duration::from_secs(1);

/// Size of a log file without `-s`, in bytes: stock's `Filesizedef`.
pub const WAL_FILE_BYTES_DEFAULT: u64 = 10 << 20;

/// Smallest `-s`, in bytes: a file must hold its version, the longest tube name and one record; below, every
/// job would take a file of its own. Stock's own tests go down to 601.
pub const WAL_FILE_BYTES_MIN: u64 = 512;

/// Largest `-s`, in bytes: the core keeps sizes and offsets in an `int`, and rounds up to whole pages.
pub const WAL_FILE_BYTES_MAX: u64 = i32::MAX as u64 & !4095;

/// `-f` when it isn't given, in milliseconds: stock's `DEFAULT_FSYNC_MS`.
pub const SYNC_MS_DEFAULT: u64 = 50;

/// Largest `-f`, in milliseconds: the core counts nanoseconds in 63 bits.
pub const SYNC_MS_MAX: u64 = i64::MAX as u64 / 1_000_000;

/// Most frontends: each has a link to each owner, so this times `SLOTS_MAX` descriptors bounds the links.
pub const FRONTENDS_MAX: u16 = 256;

/// How long a command waits for a slot without `--owner-wait`, in milliseconds: longer than a restart takes,
/// shorter than clients wait for any answer.
pub const OWNER_WAIT_MS_DEFAULT: u64 = 5000;

/// Largest `--owner-wait`, in milliseconds: a day.
pub const OWNER_WAIT_MS_MAX: u64 = 24 * 3600 * 1000;

/// Connections that the kernel completes before they are accepted: stock's number.
pub const LISTEN_BACKLOG: i32 = 1024;

/// First pause before a child is started again, in milliseconds; each next one is twice as long. The very first
/// restart has none.
pub const RESTART_PAUSE_MS: u64 = 100;

/// Longest pause before a child is started again, in milliseconds.
pub const RESTART_PAUSE_MS_MAX: u64 = 30_000;

/// A child that served this long had a good start: its next restart is immediate again, in milliseconds.
pub const SERVED_WELL_MS: u64 = 10_000;

/// Deaths in a row before it was ready after which a child is shown as failed; it is tried on.
pub const EARLY_DEATHS_MAX: u32 = 5;

/// How often the same line of the log is shown in a second: enough to see that it repeats.
pub const LOG_REPEATS_PER_SECOND: u32 = 5;

/// How many different lines of one place in the program are shown in a second: as many as a server of
/// ordinary size has processes.
pub const LOG_LINES_PER_SECOND: u32 = 50;

/// Lines that are told apart in a second: bounds what is kept of them.
pub const LOG_CAUSES: usize = 256;

/// Clients of the control socket or of the metrics that are served at a time; others wait in the kernel's
/// queue.
pub const DESK_CLIENTS: usize = 16;

/// Longest request to the supervisor, in bytes: an HTTP request with the headers of a browser.
pub const DESK_REQUEST_BYTES: usize = 8 << 10;

/// How long such a client may take from being accepted to having left: a scrape over a slow line.
pub const DESK_CLIENT_TIME: std::time::Duration = std::time::Duration::from_secs(5);

/// Where `trellis status` looks for a server without `--control`: what the service unit uses.
pub const CONTROL_PATH_DEFAULT: &str = "/run/trellis/control";

/// Largest answer that `trellis status` reads, in bytes: 2 KiB for each of the most processes there can be.
pub const STATUS_BYTES: u64 = (SLOTS_MAX as u64 + FRONTENDS_MAX as u64) * 2048 + 4096;

/// How long `trellis status` waits for an answer: longer than the server lets other clients take.
pub const STATUS_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Between two tables of `trellis status --watch`: as often as the server pings.
pub const STATUS_INTERVAL: std::time::Duration = std::time::Duration::from_millis(PING_MS);

const _: () = assert!(DESK_CLIENT_TIME.as_secs() < STATUS_PATIENCE.as_secs());
const _: () = assert!(FAREWELL_BYTES * 2 <= 2048, "a status names it twice");

/// Longest reason that a child gives for its end, in bytes: a file's name, an offset, two tube names and the
/// words between them.
pub const FAREWELL_BYTES: usize = 1000;

/// Of the core's lines at a start that failed, the last that its reason repeats: what went wrong and what came
/// of it, from a file that can't be made to the replay that is given up, are four.
pub const CORE_LINES_IN_REASON: usize = 5;

/// Between the answer to a ping and the next ping, in milliseconds: an idle server wakes up once a second for
/// each of its processes, and what `status` says is no older.
pub const PING_MS: u64 = 1000;

/// Without an answer for this long a child counts as stalled, and one that is not ready without having been
/// on a processor for this long, in milliseconds: longer than a healthy disk takes to sync and a busy machine
/// to schedule, shorter than a client waits.
pub const PONG_MS: u64 = 2000;

/// Tubes with metrics of their own without `--metrics-tubes`: nine series each, so about as many as a server of
/// ordinary size has otherwise.
pub const METRICS_TUBES_DEFAULT: u16 = 100;

/// Largest `--metrics-tubes`: nine thousand series a scrape, and 400 kB that an owner may send with a ping.
pub const METRICS_TUBES_MAX: u16 = 1000;

/// Tubes that an owner looks at for their metrics at one ping: half a millisecond where each is a cache miss. A
/// slot with more takes that many pings for a round.
pub const TUBES_LOOKED_AT: usize = 2000;

/// Longest line about one tube: its name and nine numbers of 64 bits, each behind a blank, and the line's end.
pub const TUBE_LINE_BYTES: usize = TUBE_NAME_BYTES + 9 * 21 + 1;

const _: () = assert!(TUBE_LINE_BYTES <= FRAME_PAYLOAD_BYTES);

/// How long until a word that the service manager had no room for is tried again: soon for a person, rarely for a
/// processor.
pub const NOTIFY_RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// Largest `--kill-stalled`, in milliseconds: a day.
pub const KILL_STALLED_MS_MAX: u64 = 24 * 3600 * 1000;

/// How long frontends may take to leave when the server stops, in milliseconds. With the next one it stays
/// below the ten seconds that container runtimes wait before they kill.
pub const STOP_FRONTENDS_MS: u64 = 2000;

/// How long owners may take to finish and sync when the server stops, in milliseconds.
pub const STOP_OWNERS_MS: u64 = 6000;

/// How long a start waits for what the processes of a killed server still hold, in milliseconds: they leave
/// within one second.
pub const TAKEOVER_MS: u64 = 1500;

/// Between two looks at it, in milliseconds: a restart is not slowed noticeably, nor a processor kept busy.
pub const TAKEOVER_STEP_MS: u64 = 10;

const _: () = assert!(WAL_FILE_BYTES_MIN <= 601 && WAL_FILE_BYTES_DEFAULT <= WAL_FILE_BYTES_MAX);
const _: () = assert!(WAL_FILE_BYTES_MIN as usize > TUBE_NAME_BYTES + 128, "a version, a name and a record");
const _: () = assert!(RESTART_PAUSE_MS < RESTART_PAUSE_MS_MAX);
const _: () = assert!(STOP_FRONTENDS_MS + STOP_OWNERS_MS < 10_000);

/// How long before the end of a reservation its holder is told DEADLINE_SOON: stock's `SAFETY_MARGIN`.
pub const DEADLINE_MARGIN: std::time::Duration = std::time::Duration::from_secs(1);

/// How long a reserve over several slots waits for its refusal, after the first on a connection.
pub const REFUSAL_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// How long a frontend bears a lost link before it takes the loss for its own fault: longer than the supervisor
/// needs to say that the owner has ended.
pub const LINK_LOSS: std::time::Duration = std::time::Duration::from_secs(10);

/// What one read of the load's client may bring, in bytes: the replies of a full write with small bodies.
pub const BENCH_READ_BYTES: usize = 64 << 10;

/// Connections that the load opens at once: half of what waits in a backlog, so that none is turned away.
pub const BENCH_CONNECTING: usize = LISTEN_BACKLOG as usize / 2;

/// How long the load's clients may take to connect and set up.
pub const BENCH_CONNECT: std::time::Duration = std::time::Duration::from_secs(60);

/// Longest latency that the load tells from longer ones, in nanoseconds: no run takes that long.
pub const BENCH_LATENCY_NS: u64 = 3600 * 1_000_000_000;

/// Idle connections of the benchmark.
pub const BENCH_IDLE: u32 = 10_000;

/// How often another free port is looked for when a server finds the last one taken.
pub const BENCH_START_ATTEMPTS: u32 = 20;

/// How long a server may take to answer its first command with nothing to recover.
pub const BENCH_START: std::time::Duration = std::time::Duration::from_secs(30);

/// How long filling a log with a million jobs, or recovering them, may take.
pub const BENCH_RECOVERY: std::time::Duration = std::time::Duration::from_secs(600);

/// How long a server that was told to stop may take before it is killed.
pub const BENCH_STOP: std::time::Duration = std::time::Duration::from_secs(15);

/// How long one process is stopped to see what the others do: many times the longest undisturbed wait.
pub const BENCH_STALL: std::time::Duration = std::time::Duration::from_secs(5);

/// How long a comparison waits for a reply or a number that must come. Only a difference takes that long.
pub const COMPARE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// How late a step of a scenario about time may begin: what falls due is at least a quarter of a second away.
pub const COMPARE_LATE: std::time::Duration = std::time::Duration::from_millis(150);

/// How often a scenario that showed a difference is tried again before the difference is taken for chance.
pub const COMPARE_LOOKS: u32 = 3;

/// How long a scenario is made shorter.
pub const COMPARE_SHORTEN: std::time::Duration = std::time::Duration::from_secs(90);

/// A pause between two recorded steps from which on it is kept: shorter ones mean nothing to a server whose
/// unit is the second.
pub const COMPARE_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// How long an owner has had nothing to do when it gives freed memory back, once: a pause that a busy slot
/// never has.
pub const TRIM_IDLE: std::time::Duration = std::time::Duration::from_secs(1);

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

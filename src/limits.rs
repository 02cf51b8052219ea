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

//! The slot as a whole: start, time, numbers, and what its log wants done.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, FromRawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::sys;

/// What a slot is started with; `core_options` of the header says more.
pub struct Options {
    pub slot: u32,
    pub slots: u32,
    pub id_floor: u64,
    pub clock_offset: i64,
    pub has_default: bool,
    pub wal: Option<WalOptions>,
    pub falloc_pattern: Option<CString>,
}

pub struct WalOptions {
    pub dir: CString,
    pub file_bytes: i32,
    pub seed: u64,
    /// Behind the last record that is there; of file 0: there is none.
    pub end: WalPlace,
}

/// Why the engine did not start. The core's lines say more.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the core was started before in this process")]
    Twice,
    #[error("the core did not start: {0}")]
    Core(io::Error),
    /// Of no use any more: the core would have ended the process with this code.
    #[error("the core gave up its start with code {0}")]
    GaveUp(u8),
}

/// The C core of this process. Not `Send`: its globals belong to the thread that started it.
pub struct Engine {
    _one_thread: PhantomData<*mut ()>,
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// A file of the log, by its number, and an offset in it.
pub type WalPlace = sys::core_wal_place;

/// What the log wants done once what was written before is on file (and synced, where syncing is on).
#[derive(Debug)]
pub enum Chore {
    Close(File),
    Unlink(PathBuf),
    /// A file was made: its name must survive, too.
    SyncDir,
}

impl Engine {
    /// Starts the core and replays its log. Once per process.
    pub fn start(options: Options) -> Result<Engine, StartError> {
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(StartError::Twice);
        }
        // The core keeps these strings for the process's life.
        let keep = |s: CString| -> *const _ { s.into_raw() };
        let (wal_dir, wal_file_bytes, wal_seed, wal_end) = match options.wal {
            Some(wal) => (keep(wal.dir), wal.file_bytes, wal.seed, wal.end),
            None => (std::ptr::null(), 0, 0, WalPlace::default()),
        };
        let options = sys::core_options {
            slot: options.slot,
            slots: options.slots,
            id_floor: options.id_floor,
            clock_offset: options.clock_offset,
            has_default: options.has_default.into(),
            wal_dir,
            wal_file_bytes,
            wal_seed,
            wal_end,
            falloc_pattern: options.falloc_pattern.map_or(std::ptr::null(), keep),
        };
        // SAFETY: called once; the strings live as long as the process.
        match unsafe { sys::core_start(&options) } {
            0 => Ok(Engine { _one_thread: PhantomData }),
            code @ ..0 => Err(StartError::GaveUp(code.unsigned_abs() as u8)),
            errno => Err(StartError::Core(io::Error::from_raw_os_error(errno))),
        }
    }

    /// No new jobs from now on.
    pub fn drain(&mut self) {
        // SAFETY: sets a flag of the core.
        unsafe { sys::core_drain() }
    }

    /// Reads the kernel's clock. Once a batch: in between, the core's time stands still but for a nanosecond
    /// a reading.
    pub fn refresh_clock(&mut self) {
        // SAFETY: touches the core's clock only.
        unsafe { sys::core_clock_refresh() }
    }

    /// Does what is due (delays, pauses, time to run, timeouts) and says how long nothing more will be.
    pub fn tick(&mut self) -> Duration {
        // SAFETY: the engine is started and no other call is under way (`&mut self`).
        let ns = unsafe { sys::core_tick() };
        Duration::from_nanos(ns.max(0) as u64)
    }

    /// The tag of a connection that has something to say since it was last run, each once.
    pub fn next_touched(&mut self) -> Option<u64> {
        // SAFETY: as `tick`; a listed connection is open, for closing takes it off the list.
        unsafe {
            let conn = sys::core_next_touched();
            (!conn.is_null()).then(|| sys::core_conn_tag(conn))
        }
    }

    /// Gives memory back that the core has freed. Costs time that grows with the memory: for a slot that is idle.
    pub fn trim(&mut self) {
        // SAFETY: touches the allocator only, which locks for itself.
        unsafe { libc::malloc_trim(0) };
    }

    pub fn stats(&self) -> sys::core_stats {
        let mut stats = sys::core_stats::default();
        // SAFETY: the engine is started; the core fills in the whole structure.
        unsafe { sys::core_stats_read(&mut stats) };
        stats
    }

    /// The highest id that was handed out or read from the log.
    pub fn last_id(&self) -> u64 {
        // SAFETY: the engine is started.
        unsafe { sys::core_next_id() - 1 }
    }

    /// Names of all tubes, in stock's order.
    pub fn tubes(&self) -> impl Iterator<Item = &CStr> {
        // SAFETY: the engine is started.
        let count = unsafe { sys::core_tube_count() };
        // SAFETY: a name is NUL-terminated and stays while no call changes the tubes, which the borrow of
        // `self` rules out.
        (0..count).map(|i| unsafe { CStr::from_ptr(sys::core_tube_name(i)) })
    }

    pub fn tube_count(&self) -> usize {
        // SAFETY: the engine is started.
        unsafe { sys::core_tube_count() }
    }

    /// The name of the tube at this place in stock's order. A new tube gets the last place; when one goes, the
    /// last one takes its place.
    pub fn tube_name(&self, index: usize) -> Option<&CStr> {
        // SAFETY: as `tubes`; null beyond the last place.
        unsafe {
            let name = sys::core_tube_name(index);
            (!name.is_null()).then(|| CStr::from_ptr(name))
        }
    }

    /// The numbers of the tube at this place.
    pub fn tube_stats(&self, index: usize) -> sys::core_tube_stats {
        let mut stats = sys::core_tube_stats::default();
        // SAFETY: the engine is started; the core fills in the whole structure.
        unsafe { sys::core_tube_stats_read(index, &mut stats) };
        stats
    }

    /// Writes what was logged since the last call. An error means that the slot must stop, and that no reply
    /// made since then may leave.
    pub fn flush_wal(&mut self) -> io::Result<()> {
        // SAFETY: as `tick`.
        match unsafe { sys::core_wal_flush() } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// The log file that was written to since the last call, if any and if it is still open.
    pub fn take_written_wal(&mut self) -> Option<BorrowedFd<'_>> {
        // SAFETY: as `tick`; the core keeps the descriptor open until a chore hands it over.
        unsafe {
            let fd = sys::core_wal_written_fd();
            (fd >= 0).then(|| BorrowedFd::borrow_raw(fd))
        }
    }

    /// Behind all records. There is a log.
    pub fn wal_end(&self) -> WalPlace {
        let mut place = WalPlace::default();
        // SAFETY: as `tick`; with a log, the core has a file that it writes to.
        unsafe { sys::core_wal_end(&mut place) };
        place
    }

    /// To be called when all in front of this place is on disk: later records say so.
    pub fn wal_synced(&mut self, place: WalPlace) {
        // SAFETY: as `tick`.
        unsafe { sys::core_wal_synced(&place) }
    }

    /// The next thing to do for the log, in order.
    pub fn next_chore(&mut self) -> Option<Chore> {
        let mut chore = sys::core_wal_chore { kind: 0, fd: -1, path: std::ptr::null_mut() };
        // SAFETY: as `tick`; what the core hands over is ours: the descriptor, and the path until it is freed.
        unsafe {
            if sys::core_wal_next_chore(&mut chore) == 0 {
                return None;
            }
            Some(match chore.kind as u32 {
                sys::CORE_WAL_CLOSE => Chore::Close(File::from_raw_fd(chore.fd)),
                sys::CORE_WAL_UNLINK => {
                    use std::os::unix::ffi::OsStringExt;
                    let path = CStr::from_ptr(chore.path).to_bytes().to_vec();
                    sys::core_wal_chore_free(&mut chore);
                    Chore::Unlink(std::ffi::OsString::from_vec(path).into())
                }
                _ => Chore::SyncDir,
            })
        }
    }
}

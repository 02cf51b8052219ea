//! A virtual connection: the core's `Conn` for one client session.

use std::ffi::CStr;
use std::ptr::NonNull;

use super::{Engine, sys};

/// One session inside the core. Dropping it closes the connection: its reservations are released.
pub struct Conn {
    /// Not `Send`, as the engine: `NonNull` sees to it.
    conn: NonNull<sys::core_conn>,
}

/// Why `Conn::run` came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// All input was consumed; the next bytes may come any time.
    NeedInput,
    /// Waits in reserve; input may be left.
    Waiting,
    /// A reply is pending for which there was no room.
    OutputFull,
    /// The core gave the connection up.
    Closed,
}

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Bytes of input taken.
    pub consumed: usize,
    /// Bytes of output written.
    pub produced: usize,
    /// Replies completed.
    pub replies: u32,
    pub status: Status,
}

/// What a cancelled reserve is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancel {
    TimedOut,
    DeadlineSoon,
}

fn name_or_null(name: Option<&CStr>) -> *const std::ffi::c_char {
    name.map_or(std::ptr::null(), CStr::as_ptr)
}

impl Conn {
    /// Opens a connection that uses and watches the given tubes; `None` parks. `tag` comes back from
    /// `Engine::next_touched`. `None`: out of memory.
    pub fn open(_engine: &mut Engine, tag: u64, used: Option<&CStr>, watched: Option<&CStr>) -> Option<Conn> {
        // SAFETY: the engine is started and not in a call; the names live through it.
        let conn = unsafe { sys::core_conn_open(tag, name_or_null(used), name_or_null(watched)) };
        NonNull::new(conn).map(|conn| Conn { conn })
    }

    /// Feeds `input` to the connection and lets it write to `output`, until it needs or can do no more.
    pub fn run(&mut self, _engine: &mut Engine, input: &[u8], output: &mut [u8]) -> Run {
        let mut result = sys::core_result { consumed: 0, produced: 0, replies: 0, status: 0 };
        // SAFETY: the connection is open; the core reads and writes within the slices and keeps no pointer
        // to them.
        unsafe {
            sys::core_run(
                self.conn.as_ptr(),
                input.as_ptr(),
                input.len(),
                output.as_mut_ptr(),
                output.len(),
                &mut result,
            );
        }
        Run {
            consumed: result.consumed,
            produced: result.produced,
            replies: result.replies,
            status: match result.status as u32 {
                sys::CORE_NEED_INPUT => Status::NeedInput,
                sys::CORE_WAITING => Status::Waiting,
                sys::CORE_OUTPUT_FULL => Status::OutputFull,
                _ => Status::Closed,
            },
        }
    }

    /// Uses a tube, or parks the use. Not a command: nothing is counted or answered.
    pub fn set_used(&mut self, _engine: &mut Engine, tube: Option<&CStr>) -> Result<(), OutOfMemory> {
        // SAFETY: as `open`.
        out_of_memory(unsafe { sys::core_conn_use(self.conn.as_ptr(), name_or_null(tube)) })
    }

    /// Watches one more tube. Not a command: nothing is counted or answered.
    pub fn watch(&mut self, _engine: &mut Engine, tube: &CStr) -> Result<(), OutOfMemory> {
        // SAFETY: as `open`.
        out_of_memory(unsafe { sys::core_conn_watch(self.conn.as_ptr(), tube.as_ptr()) })
    }

    /// Lets the next `ignore` take away the last tube that is watched here.
    pub fn park_watch(&mut self, _engine: &mut Engine) {
        // SAFETY: as `open`.
        unsafe { sys::core_conn_park_watch(self.conn.as_ptr()) }
    }

    /// Ends a waiting reserve. If it does not wait (any more), nothing happens.
    pub fn cancel(&mut self, _engine: &mut Engine, reason: Cancel) {
        let reason = match reason {
            Cancel::TimedOut => sys::CORE_CANCEL_TIMED_OUT,
            Cancel::DeadlineSoon => sys::CORE_CANCEL_DEADLINE_SOON,
        };
        // SAFETY: as `open`.
        unsafe { sys::core_conn_cancel(self.conn.as_ptr(), reason as i32) }
    }

    /// The client sends no more: no reserve of its waits from now on.
    pub fn half_close(&mut self, _engine: &mut Engine) {
        // SAFETY: as `open`.
        unsafe { sys::core_conn_half_close(self.conn.as_ptr()) }
    }

    /// The soonest end of a reservation it holds, on the core's clock; 0: it holds none.
    pub fn deadline(&self) -> i64 {
        // SAFETY: as `open`.
        unsafe { sys::core_conn_deadline(self.conn.as_ptr()) }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // SAFETY: open until here; only the engine's thread has it, and no call is under way, since no call
        // into C ever comes back into Rust.
        unsafe { sys::core_conn_close(self.conn.as_ptr()) }
    }
}

/// The core found no memory; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("out of memory")]
pub struct OutOfMemory;

fn out_of_memory(errno: i32) -> Result<(), OutOfMemory> {
    if errno == 0 { Ok(()) } else { Err(OutOfMemory) }
}

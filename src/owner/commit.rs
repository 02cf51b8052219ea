//! Keeps the log's promises: what a batch logged is written in one go, synced as `-f` and `-F` say, and an old
//! file is closed or unlinked only after what replaced it is written (and synced, where syncing is on).
//!
//! With `-f0` no reply leaves before one fsync that covers the whole batch. With `-f MS` a thread syncs, so
//! that no client waits for the disk, and a timer sees to trailing records. An error means that the owner
//! must stop at once, before any reply of the batch leaves. Ids are reserved before their replies leave, and
//! noted before the last record of them may go. After each sync the core learns how far the log is on disk, so
//! that its records can say it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use crate::core_ffi::{Chore, Engine, WalPlace};
use crate::ipc::control::Wal;
use crate::wal::ids::IdFloor;

/// A slot's commits.
pub struct Commit {
    /// `None`: no log, or never synced (`-F`).
    policy: Policy,
    /// Where the log files are, to sync their names; `None`: no log.
    dir: Option<Arc<File>>,
    /// As `dir`.
    ids: Option<IdFloor>,
    syncs: u64,
    /// How long syncs took that nobody has asked about yet.
    times: Vec<Duration>,
    /// `Policy::Every` only: what the next sync has to cover and may then do.
    next: SyncJob,
    /// The file that was written last, by its number in the core and as a handle of ours.
    current: Option<(RawFd, Arc<File>)>,
    synced_at: Instant,
    syncer: Option<Syncer>,
}

#[derive(Clone, Copy)]
enum Policy {
    Never,
    /// Before any reply of the batch leaves.
    Always,
    /// At most this often, in the background.
    Every(Duration),
}

/// What one background sync covers, and what may be done after it.
#[derive(Default)]
struct SyncJob {
    files: Vec<Arc<File>>,
    /// Names were made that have to survive.
    names: bool,
    after: Vec<Chore>,
}

struct Syncer {
    jobs: Sender<SyncJob>,
    results: Receiver<io::Result<Duration>>,
    busy: bool,
    /// What the sync under way covers.
    covers: WalPlace,
}

impl Commit {
    pub fn new(wal: Option<&Wal>, ids: Option<IdFloor>) -> io::Result<Commit> {
        let policy = match wal.map(|w| w.sync_ms) {
            None | Some(None) => Policy::Never,
            Some(Some(0)) => Policy::Always,
            Some(Some(ms)) => Policy::Every(Duration::from_millis(ms)),
        };
        let dir = wal.map(|w| File::open(&w.dir)).transpose()?.map(Arc::new);
        Ok(Commit {
            policy,
            dir,
            ids,
            syncs: 0,
            times: Vec::new(),
            next: SyncJob::default(),
            current: None,
            synced_at: Instant::now(),
            syncer: None,
        })
    }

    /// Starts the thread that syncs in the background, if the policy has one. `waker` is woken when a sync
    /// has ended. What was there before is on disk, if the policy syncs at all.
    pub fn start(&mut self, engine: &mut Engine, waker: Arc<mio::Waker>) -> io::Result<()> {
        if !matches!(self.policy, Policy::Never) {
            engine.wal_synced(WalPlace { offset: 0, ..engine.wal_end() });
        }
        if !matches!(self.policy, Policy::Every(_)) {
            return Ok(());
        }
        let (jobs, todo) = bounded::<SyncJob>(1);
        let (done, results) = bounded(1);
        let dir = Arc::clone(self.dir.as_ref().expect("a policy of syncing comes with a log"));
        std::thread::Builder::new().name("wal-sync".into()).spawn(move || {
            for job in todo {
                let begun = Instant::now();
                let result = job.run(&dir).map(|()| begun.elapsed());
                if done.send(result).is_err() || waker.wake().is_err() {
                    return;
                }
            }
        })?;
        self.syncer = Some(Syncer { jobs, results, busy: false, covers: WalPlace::default() });
        Ok(())
    }

    /// Syncs done so far.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// How long each sync took that has ended since this was last called.
    pub fn take_times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.times)
    }

    /// Commits what was logged since the last call.
    pub fn batch(&mut self, engine: &mut Engine) -> io::Result<()> {
        if self.dir.is_none() {
            return Ok(());
        }
        engine.flush_wal()?;
        if let Some(ids) = &mut self.ids {
            ids.reserve(engine.last_id())?;
        }
        match self.policy {
            Policy::Never => {
                engine.take_written_wal();
                while let Some(chore) = self.next_chore(engine)? {
                    finish(chore, None)?;
                }
            }
            Policy::Always => self.sync_now(engine)?,
            Policy::Every(interval) => self.sync_later(engine, interval)?,
        }
        Ok(())
    }

    /// What is to be done next. A file that is to be unlinked may have the last records of some ids.
    fn next_chore(&mut self, engine: &mut Engine) -> io::Result<Option<Chore>> {
        let chore = engine.next_chore();
        if let (Some(Chore::Unlink(_)), Some(ids)) = (&chore, &mut self.ids) {
            ids.cover(engine.last_id())?;
        }
        Ok(chore)
    }

    /// How long until `batch` should be called though nothing is logged.
    pub fn due_in(&self) -> Option<Duration> {
        let Policy::Every(interval) = self.policy else { return None };
        let idle = self.syncer.as_ref().is_some_and(|s| !s.busy);
        (idle && !self.next.is_empty()).then(|| interval.saturating_sub(self.synced_at.elapsed()))
    }

    /// The last commit of all: everything is on disk when it returns.
    pub fn finish(&mut self, engine: &mut Engine) -> io::Result<()> {
        if let Some(syncer) = self.syncer.as_mut().filter(|s| s.busy) {
            syncer.busy = false;
            syncer.results.recv().map_err(io::Error::other)??;
        }
        if let Policy::Every(_) = self.policy {
            engine.flush_wal()?;
            self.collect(engine)?;
            let dir = self.dir.as_ref().expect("there is a log");
            std::mem::take(&mut self.next).run(dir)?;
        } else {
            self.batch(engine)?;
        }
        match (self.policy, self.ids.take()) {
            // Nothing was synced: the ids stay reserved for the case that the machine stops.
            (Policy::Never, _) | (_, None) => Ok(()),
            (_, Some(ids)) => ids.close(),
        }
    }

    fn sync_now(&mut self, engine: &mut Engine) -> io::Result<()> {
        let mut after = Vec::new();
        let mut synced = false;
        let begun = Instant::now();
        while let Some(chore) = self.next_chore(engine)? {
            match &chore {
                Chore::Close(file) => {
                    file.sync_data()?;
                    synced = true;
                }
                Chore::SyncDir => self.dir.as_ref().expect("there is a log").sync_all()?,
                Chore::Unlink(_) => {}
            }
            after.push(chore);
        }
        if let Some(fd) = engine.take_written_wal() {
            nix::unistd::fdatasync(fd)?;
            synced = true;
        }
        engine.wal_synced(engine.wal_end());
        if synced {
            self.syncs += 1;
            self.times.push(begun.elapsed());
        }
        after.into_iter().try_for_each(|chore| finish(chore, self.dir.as_deref()))
    }

    fn sync_later(&mut self, engine: &mut Engine, interval: Duration) -> io::Result<()> {
        self.collect(engine)?;
        let syncer = self.syncer.as_mut().expect("started with the event loop");
        match syncer.results.try_recv() {
            Ok(result) => {
                syncer.busy = false;
                self.times.push(result?);
                engine.wal_synced(syncer.covers);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the thread that syncs has ended"));
            }
        }
        if !syncer.busy && !self.next.is_empty() && self.synced_at.elapsed() >= interval {
            self.synced_at = Instant::now();
            self.syncs += 1;
            syncer.busy = true;
            syncer.covers = engine.wal_end();
            syncer.jobs.send(std::mem::take(&mut self.next)).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Adds what was written and what is to be done to the next background sync.
    fn collect(&mut self, engine: &mut Engine) -> io::Result<()> {
        if let Some(fd) = engine.take_written_wal() {
            let raw = fd.as_raw_fd();
            if self.current.as_ref().is_none_or(|(number, _)| *number != raw) {
                self.current = Some((raw, Arc::new(File::from(fd.try_clone_to_owned()?))));
            }
            let (_, file) = self.current.as_ref().expect("just set");
            if !self.next.files.iter().any(|f| Arc::ptr_eq(f, file)) {
                self.next.files.push(Arc::clone(file));
            }
        }
        while let Some(chore) = self.next_chore(engine)? {
            match &chore {
                // The core may use the number again for another file.
                Chore::Close(file) => {
                    if self.current.as_ref().is_some_and(|(number, _)| *number == file.as_raw_fd()) {
                        self.current = None;
                    }
                }
                Chore::SyncDir => self.next.names = true,
                Chore::Unlink(_) => {}
            }
            self.next.after.push(chore);
        }
        Ok(())
    }
}

impl SyncJob {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.after.is_empty()
    }

    fn run(self, dir: &File) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        for chore in &self.after {
            if let Chore::Close(file) = chore {
                file.sync_data()?;
            }
        }
        if self.names {
            dir.sync_all()?;
        }
        self.after.into_iter().try_for_each(|chore| finish(chore, Some(dir)))
    }
}

/// Does what had to wait. With `dir`, an earlier unlink is on disk before the next: a gap in the numbers of
/// files would look like a lost one.
fn finish(chore: Chore, dir: Option<&File>) -> io::Result<()> {
    match chore {
        Chore::Close(file) => drop(file),
        Chore::Unlink(path) => {
            dir.map_or(Ok(()), File::sync_all)?;
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(io::Error::new(e.kind(), format!("unlink {}: {e}", path.display())));
                }
                _ => {}
            }
        }
        Chore::SyncDir => {}
    }
    Ok(())
}

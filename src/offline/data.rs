//! Which logs a data directory has, and what belongs into each of them. Read only.

use std::path::{Path, PathBuf};

use crate::error::{Exit, Fatal};
use crate::topology::{
    self, Asked, Decision, Found, IDENTITY_FILE, Layout, Topology, TopologyError, UNFINISHED_FILE, decide,
    slot_dir_name,
};
use crate::wal::ids::IdsError;
use crate::wal::{
    JobSorter, Policy, Salvage, Scan, Tally, ids, log_bytes, salvage, scan_records, scan_watched,
};

/// A data directory, or one slot's directory of it.
pub struct DataDir {
    pub path: PathBuf,
    /// `None`: logs of a single-process server, or of a topology that can't be believed.
    pub topology: Option<Topology>,
    pub logs: Vec<LogDir>,
    /// Why it is not served as it is, as far as its logs are not concerned.
    pub faults: Vec<String>,
    /// It is one slot's directory.
    pub one_slot: bool,
}

/// A directory with the logs of a slot. They may be none.
pub struct LogDir {
    pub path: PathBuf,
    pub slot: u16,
}

impl DataDir {
    pub fn look(path: &Path) -> Result<DataDir, Fatal> {
        if path.join(IDENTITY_FILE).exists() && path.parent().is_some() {
            return DataDir::one_slot(path);
        }
        Ok(DataDir::of(path, &topology::scan(path)?))
    }

    /// The same of a directory that is still being made.
    pub fn look_at_unfinished(path: &Path) -> Result<DataDir, Fatal> {
        Ok(DataDir::of(path, &Found { unfinished: false, ..topology::scan(path)? }))
    }

    fn of(path: &Path, found: &Found) -> DataDir {
        let flat = || LogDir { path: path.to_owned(), slot: 0 };
        let slot = |slot: u16| LogDir { path: path.join(slot_dir_name(slot)), slot };
        let mut data = DataDir {
            path: path.to_owned(),
            topology: None,
            logs: Vec::new(),
            faults: Vec::new(),
            one_slot: false,
        };
        match decide(found, Asked::default()) {
            Decision::Use(topology) => {
                data.logs = match topology.layout {
                    Layout::Flat => vec![flat()],
                    Layout::Slots => (0..topology.slots as u16).map(slot).collect(),
                };
                data.topology = Some(topology);
            }
            Decision::ServeFlat { .. } => data.logs.push(flat()),
            Decision::Create(_) => {}
            Decision::Refuse(error) => {
                data.faults.push(error.to_string());
                data.logs.extend(found.flat_logs.then(flat));
                data.logs.extend(found.slots.iter().filter(|found| found.logs).map(|found| slot(found.slot)));
            }
        }
        data
    }

    /// For who looks at the logs: an error if there are none, or if nobody can say which ids are used up.
    pub fn with_logs(self) -> Result<DataDir, Fatal> {
        if self.logs.is_empty() && self.faults.is_empty() {
            let reason = "there are no logs in it: is it the right directory, and mounted?";
            return Err(Fatal::new(Exit::Data, format!("{}: {reason}", self.path.display())));
        }
        for log in &self.logs {
            match ids::past(&log.path) {
                Err(error @ IdsError::Io { .. }) => return Err(error.into()),
                // What is in it is for the report.
                Ok(_) | Err(IdsError::Damaged { .. }) => {}
            }
        }
        Ok(self)
    }

    /// A slot's directory, with the topology beside it.
    fn one_slot(path: &Path) -> Result<DataDir, Fatal> {
        let identity = topology::load_identity(path)?;
        // A path such as `slot-001` has an empty parent.
        let absolute = path.canonicalize().map_err(|error| super::io_fatal(path, "finding it", error))?;
        let home = absolute.parent().unwrap_or(&absolute);
        let (topology, mut faults) = match topology::load(home) {
            Ok(topology) if topology.slot_identity(identity.slot) == identity => (Some(topology), vec![]),
            Ok(_) => {
                let reason = "it belongs to another server or topology than the directory around it";
                (None, vec![format!("{}: {reason}", path.display())])
            }
            Err(error) => (None, vec![error.to_string()]),
        };
        if home.join(UNFINISHED_FILE).exists() {
            faults.push(TopologyError::Unfinished { dir: home.to_owned() }.to_string());
        }
        let logs = vec![LogDir { path: path.to_owned(), slot: identity.slot }];
        Ok(DataDir { path: path.to_owned(), topology, logs, faults, one_slot: true })
    }

    /// The bytes of all logs.
    pub fn log_bytes(&self) -> Result<u64, Fatal> {
        let mut sum = 0;
        for log in &self.logs {
            sum += log_bytes(&log.path)?;
        }
        Ok(sum)
    }

    /// Reads the logs of one slot as its owner would before it opens them.
    pub fn scan(&self, log: &LogDir, watch: &dyn Fn(u64)) -> Result<Scan, Fatal> {
        self.with_policy(log, |policy| scan_watched(&log.path, policy, watch).map_err(Fatal::from))
    }

    /// The same, but for the jobs, which go to the sorter: memory does not follow their number.
    pub fn sort(
        &self,
        number: usize,
        jobs: &mut JobSorter,
        watch: &dyn Fn(u64),
    ) -> Result<Scan<Tally>, Fatal> {
        let log = &self.logs[number];
        self.with_policy(log, |policy| jobs.read(number, &log.path, policy, watch).map_err(Fatal::from))
    }

    /// The same without looking at what records say of jobs.
    pub fn scan_records(&self, log: &LogDir) -> Result<Scan<()>, Fatal> {
        self.with_policy(log, |policy| scan_records(&log.path, policy).map_err(Fatal::from))
    }

    /// Reads what is whole in the logs of one slot.
    pub fn salvage(&self, log: &LogDir, watch: &dyn Fn(u64)) -> Result<Salvage, Fatal> {
        self.with_policy(log, |policy| salvage(&log.path, policy, watch).map_err(Fatal::from))
    }

    fn with_policy<T>(&self, log: &LogDir, read: impl FnOnce(Policy<'_>) -> T) -> T {
        // One that can't be read is a fault of its own.
        let past = ids::past(&log.path).unwrap_or_default();
        let all = Policy { power_failed: past.power_failed, seed: past.seed, ..Policy::default() };
        match self.topology.as_ref().filter(|topology| topology.slots > 1) {
            None => read(all),
            Some(topology) => {
                let slot_of = |tube: &[u8]| topology.slot_of(tube);
                let id_fits = |id| topology.id_fits(log.slot, id);
                read(Policy { own_slot: log.slot, slot_of: Some(&slot_of), id_fits: Some(&id_fits), ..all })
            }
        }
    }
}

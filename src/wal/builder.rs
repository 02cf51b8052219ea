//! Writes logs by hand, whole or broken, for the tests of the reader. Compiled for tests only.

use super::format::{Jobrec, State, VERSION_BYTES, Version, offset};
use super::seal::{self, Place, Synced};

/// Bytes of a log and where its records start.
#[derive(Clone)]
pub struct Log {
    version: Version,
    pub bytes: Vec<u8>,
    /// Of each record, and last the end of them all.
    pub bounds: Vec<usize>,
    /// Of the checksums, and what the next records say.
    seal: Option<(u64, Synced)>,
}

/// Of the directory of all sealed logs here.
pub const SEED: u64 = 0x5eed;

/// A ready job of ten bytes, its times telling jobs apart.
pub fn job(id: u64) -> Jobrec {
    let created_at = 1_700_000_000_000_000_000 + id as i64 * 1000;
    Jobrec { pri: 10, ttr: 60_000_000_000, created_at, ..Jobrec::ready(id, 10) }
}

/// A body that `job` has room for.
pub const BODY: &[u8] = b"abcdefgh\r\n";

impl Log {
    pub fn new(version: Version) -> Log {
        Log { version, bytes: version.number().to_ne_bytes().into(), bounds: vec![VERSION_BYTES], seal: None }
    }

    pub fn v7() -> Log {
        Log::new(Version::V7)
    }

    /// The file of this number, its records sealed.
    pub fn sealed(number: u32) -> Log {
        Log::sealed_behind(number, None)
    }

    /// The same; the record before its first one ends there.
    pub fn sealed_behind(number: u32, behind: Option<Place>) -> Log {
        let mut log = Log::v7();
        let seed = seal::file_seed(SEED, number);
        log.bytes.extend(seal::write::mark(seed, behind));
        log.bounds = vec![log.bytes.len()];
        log.seal = Some((seed, Synced::UpTo { files_back: 0, offset: 0 }));
        log
    }

    /// The next records are written when so much was on disk.
    pub fn synced(mut self, synced: Synced) -> Log {
        self.seal = Some((self.seal.expect("a sealed log").0, synced));
        self
    }

    /// The next records are written when all before them was on disk.
    pub fn synced_here(self) -> Log {
        let offset = self.bytes.len() as u32;
        self.synced(Synced::UpTo { files_back: 0, offset })
    }

    pub fn full(mut self, tube: &str, jobrec: Jobrec, body: &[u8]) -> Log {
        self.name(tube.len() as i64);
        self.bytes.extend_from_slice(tube.as_bytes());
        self.jobrec(jobrec);
        self.bytes.extend_from_slice(body);
        self.end()
    }

    pub fn put(self, tube: &str, id: u64) -> Log {
        self.full(tube, job(id), BODY)
    }

    pub fn short(mut self, jobrec: Jobrec) -> Log {
        self.name(0);
        self.jobrec(jobrec);
        self.end()
    }

    pub fn delete(self, id: u64) -> Log {
        self.short(Jobrec { state: State::Invalid, ..job(id) })
    }

    /// Bytes that are no record.
    pub fn raw(mut self, bytes: &[u8]) -> Log {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn zeros(self, count: usize) -> Log {
        self.raw(&vec![0; count])
    }

    /// Changes the byte at an offset from the start of the last record.
    pub fn patch(mut self, at: usize, bytes: &[u8]) -> Log {
        let from = self.bounds[self.bounds.len() - 2] + at;
        self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// The length in front of a name, whatever it says.
    fn name(&mut self, length: i64) {
        match self.version {
            Version::V5 => self.bytes.extend_from_slice(&length.to_ne_bytes()),
            Version::V7 => self.bytes.extend_from_slice(&(length as i32).to_ne_bytes()),
        }
    }

    fn jobrec(&mut self, jobrec: Jobrec) {
        let mut bytes = jobrec.encode();
        if self.version == Version::V5 {
            for at in [offset::DELAY, offset::TTR, offset::CREATED_AT, offset::DEADLINE_AT] {
                let time = i64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
                bytes[at..at + 8].copy_from_slice(&(time / 1000).to_ne_bytes());
            }
        }
        self.bytes.extend_from_slice(&bytes[..self.version.jobrec_bytes()]);
    }

    fn end(mut self) -> Log {
        if let Some((seed, synced)) = self.seal {
            let at = self.bounds[self.bounds.len() - 1];
            let record = &mut self.bytes[at..];
            let name_bytes = i32::from_ne_bytes(record[..4].try_into().unwrap()) as usize;
            seal::write::seal(record, 4 + name_bytes, seed, at as u64, synced);
        }
        self.bounds.push(self.bytes.len());
        self
    }
}

//! What a disk may hold when the power fails: a model fed with the calls that `power.c` has noted. Pure but for
//! writing an image into a directory.
//!
//! Sure is the data of a file up to its last fsync, and the names up to the last fsync of the directory. Of the
//! rest each block of a file is independently as it was after any of the writes that touched it (so half of a
//! block is never new), its length is any that it had, and each making, unlinking or renaming was done or not. An
//! fsync of a file is not taken to keep its name.

use crate::support::Random;
use std::collections::BTreeMap;
use std::path::Path;

/// A call, and where its record ends in the trace.
pub struct Record {
    pub call: Call,
    pub end: u64,
}

pub enum Call {
    Create(String),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    /// Of the directory, if the name is empty.
    Sync(String),
    Unlink(String),
    Rename(String, String),
}

/// Panics unless it is whole records.
pub fn read(trace: &[u8]) -> Vec<Record> {
    /// The fixed part of a record, see `power.c`.
    const HEAD: usize = 17;
    let mut records = Vec::new();
    let mut at = 0;
    while at < trace.len() {
        let number = |from: usize, length: usize| {
            let mut bytes = [0; 8];
            bytes[..length].copy_from_slice(&trace[at + from..at + from + length]);
            u64::from_le_bytes(bytes)
        };
        let [first, second, data] = [number(1, 2), number(3, 2), number(13, 4)].map(|n| n as usize);
        let (kind, offset) = (trace[at], number(5, 8));
        let mut rest = &trace[at + HEAD..];
        let mut take = |length: usize| {
            let (taken, behind) = rest.split_at(length);
            rest = behind;
            taken
        };
        let mut name = |length| String::from_utf8(take(length).to_vec()).expect("UTF-8");
        let (first, second) = (name(first), name(second));
        let data = take(data).to_vec();
        let call = match kind {
            b'c' => Call::Create(first),
            b'w' => Call::Write(first, offset, data),
            b't' => Call::Truncate(first, offset),
            b's' => Call::Sync(first),
            b'u' => Call::Unlink(first),
            b'r' => Call::Rename(first, second),
            other => panic!("no call: {other}"),
        };
        at = trace.len() - rest.len();
        records.push(Record { call, end: at as u64 });
    }
    records
}

/// Names and what is in each file.
pub type Image = BTreeMap<String, Vec<u8>>;

pub fn store(image: &Image, directory: &Path) {
    for (name, data) in image {
        std::fs::write(directory.join(name), data).expect("a file of an image");
    }
}

#[derive(Clone, Default)]
pub struct Disk {
    files: Vec<File>,
    /// As processes see them.
    names: BTreeMap<String, usize>,
    /// As they are on disk for sure.
    sure: BTreeMap<String, usize>,
    /// Not sure yet.
    changes: Vec<Change>,
}

#[derive(Clone, Default)]
struct File {
    sure: Vec<u8>,
    pending: Vec<Piece>,
}

#[derive(Clone)]
enum Piece {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone)]
enum Change {
    Make(String, usize),
    Unlink(String),
    Rename(String, String, usize),
}

impl Disk {
    pub fn apply(&mut self, call: &Call) {
        match call {
            Call::Create(name) => {
                self.files.push(File::default());
                let file = self.files.len() - 1;
                self.change(Change::Make(name.clone(), file));
            }
            Call::Write(name, offset, data) => {
                self.file(name).pending.push(Piece::Write(*offset, data.clone()));
            }
            Call::Truncate(name, length) => self.file(name).pending.push(Piece::Length(*length)),
            Call::Sync(name) if name.is_empty() => {
                self.changes.clear();
                self.sure.clone_from(&self.names);
            }
            Call::Sync(name) => {
                let file = self.file(name);
                file.sure = file.newest();
                file.pending.clear();
            }
            Call::Unlink(name) => self.change(Change::Unlink(name.clone())),
            Call::Rename(from, to) => {
                let file = self.names[from];
                self.change(Change::Rename(from.clone(), to.clone(), file));
            }
        }
    }

    /// All of it, as after a kill of the processes alone.
    pub fn newest(&self) -> Image {
        self.names.iter().map(|(name, &file)| (name.clone(), self.files[file].newest())).collect()
    }

    /// One of the many that there may be.
    pub fn torn(&self, random: &mut Random, block_bytes: usize) -> Image {
        let mut names = self.sure.clone();
        for change in &self.changes {
            if random.once_in(2) {
                change.make(&mut names);
            }
        }
        names.iter().map(|(name, &file)| (name.clone(), self.files[file].torn(random, block_bytes))).collect()
    }

    fn file(&mut self, name: &str) -> &mut File {
        &mut self.files[self.names[name]]
    }

    fn change(&mut self, change: Change) {
        change.make(&mut self.names);
        self.changes.push(change);
    }
}

impl Change {
    fn make(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Change::Make(name, file) => {
                names.insert(name.clone(), *file);
            }
            Change::Unlink(name) => {
                names.remove(name);
            }
            Change::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}

impl File {
    fn newest(&self) -> Vec<u8> {
        let mut data = self.sure.clone();
        for piece in &self.pending {
            match piece {
                Piece::Write(offset, bytes) => put(&mut data, *offset as usize, bytes),
                Piece::Length(length) => data.resize(*length as usize, 0),
            }
        }
        data
    }

    fn torn(&self, random: &mut Random, block_bytes: usize) -> Vec<u8> {
        let mut lengths = vec![self.sure.len()];
        let mut touched: BTreeMap<usize, usize> = BTreeMap::new();
        for piece in &self.pending {
            let last = lengths[lengths.len() - 1];
            match piece {
                Piece::Write(offset, bytes) => {
                    let offset = *offset as usize;
                    lengths.push(last.max(offset + bytes.len()));
                    let blocks = offset / block_bytes..(offset + bytes.len()).div_ceil(block_bytes);
                    blocks.for_each(|block| *touched.entry(block).or_default() += 1);
                }
                Piece::Length(length) => lengths.push(*length as usize),
            }
        }
        // Of each block so many writes are on disk.
        let kept: BTreeMap<usize, usize> =
            touched.into_iter().map(|(block, writes)| (block, random.below(writes + 1))).collect();
        let mut data = self.sure.clone();
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        for piece in &self.pending {
            let Piece::Write(offset, bytes) = piece else { continue };
            let (mut from, end) = (*offset as usize, *offset as usize + bytes.len());
            while from < end {
                let block = from / block_bytes;
                let to = end.min((block + 1) * block_bytes);
                let number = seen.entry(block).or_default();
                *number += 1;
                if *number <= kept[&block] {
                    let start = *offset as usize;
                    put(&mut data, from, &bytes[from - start..to - start]);
                }
                from = to;
            }
        }
        data.resize(*random.pick(&lengths), 0);
        data
    }
}

/// Writes there; a gap becomes zeros.
fn put(data: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[offset..end].copy_from_slice(bytes);
}

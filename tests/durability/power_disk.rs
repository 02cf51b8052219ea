//! What a disk may hold when the power fails: a model fed with the calls that `power.c` has noted. Pure but for
//! writing an image into a directory.
//!
//! Sure is the data of a file up to the begin of its last fsync, and the names up to that of the directory. Of the
//! rest each block of a file is independently as it was after any of the writes that touched it (so half of a
//! block is never new), its length is any that it had, and each making, unlinking or renaming was done or not. An
//! fsync of a file is not taken to keep its name.

use crate::support::Random;
use std::collections::BTreeMap;
use std::path::Path;

/// A call, and where its record is in the trace.
pub struct Record {
    pub call: Call,
    pub start: u64,
    pub end: u64,
}

pub enum Call {
    Create(String),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    /// A sync begins, of the directory if the name is empty.
    SyncBegins(String, u64),
    /// The sync with this number has ended.
    Synced(u64),
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
            b'b' => Call::SyncBegins(first, offset),
            b's' => Call::Synced(offset),
            b'u' => Call::Unlink(first),
            b'r' => Call::Rename(first, second),
            other => panic!("no call: {other}"),
        };
        let start = at as u64;
        at = trace.len() - rest.len();
        records.push(Record { call, start, end: at as u64 });
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
    changes: Unsure<Change>,
    /// By their numbers: of which file (`None`: the directory), and how much each covers.
    syncs: BTreeMap<u64, (Option<usize>, usize)>,
}

#[derive(Clone, Default)]
struct File {
    sure: Vec<u8>,
    pending: Unsure<Piece>,
}

/// What was done in order and is not sure yet, each with the begin of its record.
#[derive(Clone)]
struct Unsure<T> {
    /// So many became sure before.
    before: usize,
    list: Vec<(u64, T)>,
}

impl<T> Default for Unsure<T> {
    fn default() -> Self {
        Unsure { before: 0, list: Vec::new() }
    }
}

impl<T> Unsure<T> {
    fn count(&self) -> usize {
        self.before + self.list.len()
    }

    /// Takes off what is sure once the first `count` are.
    fn settle(&mut self, count: usize) -> Vec<T> {
        let settled = count.saturating_sub(self.before);
        self.before += settled;
        self.list.drain(..settled).map(|(_, done)| done).collect()
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter().map(|(_, done)| done)
    }

    fn begins(&self) -> Option<u64> {
        self.list.first().map(|(start, _)| *start)
    }
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
    pub fn after(records: &[Record]) -> Disk {
        let mut disk = Disk::default();
        records.iter().for_each(|record| disk.apply(record));
        disk
    }

    fn apply(&mut self, Record { call, start, .. }: &Record) {
        match call {
            Call::Create(name) => {
                self.files.push(File::default());
                let file = self.files.len() - 1;
                self.change(*start, Change::Make(name.clone(), file));
            }
            Call::Write(name, offset, data) => self.write(*start, name, *offset, data.clone()),
            Call::Truncate(name, length) => {
                let file = self.names[name];
                self.files[file].pending.list.push((*start, Piece::Length(*length)));
            }
            Call::SyncBegins(name, number) => {
                let file = (!name.is_empty()).then(|| self.names[name]);
                let count = file.map_or(self.changes.count(), |file| self.files[file].pending.count());
                self.syncs.insert(*number, (file, count));
            }
            Call::Synced(number) => match self.syncs[number] {
                (None, count) => {
                    let sure = &mut self.sure;
                    self.changes.settle(count).iter().for_each(|change| change.make(sure));
                }
                (Some(file), count) => self.files[file].settle(count),
            },
            Call::Unlink(name) => self.change(*start, Change::Unlink(name.clone())),
            Call::Rename(from, to) => {
                let file = self.names[from];
                self.change(*start, Change::Rename(from.clone(), to.clone(), file));
            }
        }
    }

    /// Of a write whose record begins there.
    pub fn write(&mut self, start: u64, name: &str, offset: u64, data: Vec<u8>) {
        let file = self.names[name];
        self.files[file].pending.list.push((start, Piece::Write(offset, data)));
    }

    /// Where the record of the first call begins that is not sure, if there is one.
    pub fn unsure_from(&self) -> Option<u64> {
        let files = self.names.values().filter_map(|&file| self.files[file].pending.begins());
        files.chain(self.changes.begins()).min()
    }

    /// All of it, as after a kill of the processes alone.
    pub fn newest(&self) -> Image {
        self.names.iter().map(|(name, &file)| (name.clone(), self.files[file].newest())).collect()
    }

    /// One of the many that there may be.
    pub fn torn(&self, random: &mut Random, block_bytes: usize) -> Image {
        let mut names = self.sure.clone();
        for change in self.changes.iter() {
            if random.once_in(2) {
                change.make(&mut names);
            }
        }
        names.iter().map(|(name, &file)| (name.clone(), self.files[file].torn(random, block_bytes))).collect()
    }

    fn change(&mut self, start: u64, change: Change) {
        change.make(&mut self.names);
        self.changes.list.push((start, change));
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

impl Piece {
    fn make(&self, data: &mut Vec<u8>) {
        match self {
            Piece::Write(offset, bytes) => put(data, *offset as usize, bytes),
            Piece::Length(length) => data.resize(*length as usize, 0),
        }
    }
}

impl File {
    fn settle(&mut self, count: usize) {
        let sure = &mut self.sure;
        self.pending.settle(count).iter().for_each(|piece| piece.make(sure));
    }

    fn newest(&self) -> Vec<u8> {
        let mut data = self.sure.clone();
        self.pending.iter().for_each(|piece| piece.make(&mut data));
        data
    }

    fn torn(&self, random: &mut Random, block_bytes: usize) -> Vec<u8> {
        let mut lengths = vec![self.sure.len()];
        let mut touched: BTreeMap<usize, usize> = BTreeMap::new();
        for piece in self.pending.iter() {
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
        for piece in self.pending.iter() {
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

//! Sorts more entries than memory is to hold: sorted runs in a temporary file, then a merge of all of them.
//!
//! Entries are of one size and sorted by a key; the order of equal keys is left open. Nothing is written while
//! all of them fit. The file has no name, so that nothing is left of it however the process ends; errors name
//! the directory that it is in.
//!
//! Memory stays below the bound that was given, while adding as well as while reading, up to some hundred
//! million entries: beyond that each run costs `SORT_RUN_BYTES_MIN`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::slice;

use super::finding::WalError;
use crate::limits;

/// What can be sorted.
pub trait Entry: Copy {
    type Key: Ord;
    /// In the file.
    const BYTES: usize;

    fn key(&self) -> Self::Key;

    /// `into` has `BYTES` bytes, and so has what `decode` is given.
    fn encode(&self, into: &mut [u8]);

    fn decode(bytes: &[u8]) -> Self;
}

/// Takes entries in any order.
pub struct Sorter<T> {
    dir: PathBuf,
    bound: usize,
    // entries.len() * size_of::<T>() <= bound
    entries: Vec<T>,
    runs: Option<Runs>,
}

/// Sorted runs, one behind the other.
struct Runs {
    dir: PathBuf,
    file: File,
    /// In bytes of the file.
    places: Vec<Range<u64>>,
    bound: usize,
}

/// All entries, to be read in their order, as often as wanted.
pub struct Sorted<T>(Kept<T>);

enum Kept<T> {
    Memory(Vec<T>),
    Disk(Runs),
}

impl<T: Entry> Sorter<T> {
    /// The temporary file is made in `dir`; `bound` is in bytes.
    pub fn new(dir: &Path, bound: usize) -> Sorter<T> {
        Sorter { dir: dir.to_owned(), bound, entries: Vec::new(), runs: None }
    }

    pub fn push(&mut self, entry: T) -> Result<(), WalError> {
        let most = (self.bound / size_of::<T>()).max(1);
        if self.entries.len() == most {
            self.spill()?;
        }
        // All at once: memory that is not used yet costs nothing, that of a vector which grows is taken twice.
        self.entries.reserve_exact(most - self.entries.len());
        self.entries.push(entry);
        Ok(())
    }

    pub fn finish(mut self) -> Result<Sorted<T>, WalError> {
        if self.runs.is_some() {
            self.spill()?;
        }
        Ok(Sorted(match self.runs {
            Some(runs) => Kept::Disk(runs),
            None => {
                self.entries.sort_unstable_by_key(T::key);
                Kept::Memory(self.entries)
            }
        }))
    }

    fn spill(&mut self) -> Result<(), WalError> {
        self.entries.sort_unstable_by_key(T::key);
        let failed = |error| WalError::new(&self.dir, "writing a temporary file in it", error);
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => {
                let file = tempfile::tempfile_in(&self.dir).map_err(failed)?;
                none.insert(Runs { dir: self.dir.clone(), file, places: Vec::new(), bound: self.bound })
            }
        };
        runs.append(&self.entries).map_err(failed)?;
        self.entries.clear();
        Ok(())
    }
}

impl Runs {
    fn append<T: Entry>(&mut self, entries: &[T]) -> io::Result<()> {
        let start = self.places.last().map_or(0, |place| place.end);
        let mut file = BufWriter::with_capacity(limits::SORT_RUN_BYTES_MAX, &self.file);
        let mut bytes = vec![0; T::BYTES];
        for entry in entries {
            entry.encode(&mut bytes);
            file.write_all(&bytes)?;
        }
        file.flush()?;
        self.places.push(start..start + (entries.len() * T::BYTES) as u64);
        Ok(())
    }
}

impl<T: Entry> Sorted<T> {
    pub fn stream(&self) -> Result<Stream<'_, T>, WalError> {
        match &self.0 {
            Kept::Memory(entries) => Ok(Stream(Reading::Memory(entries.iter()))),
            Kept::Disk(runs) => Merge::new(runs).map(|merge| Stream(Reading::Disk(merge))),
        }
    }
}

/// The entries one after another.
pub struct Stream<'a, T: Entry>(Reading<'a, T>);

enum Reading<'a, T: Entry> {
    Memory(slice::Iter<'a, T>),
    Disk(Merge<'a, T>),
}

impl<T: Entry> Stream<'_, T> {
    #[allow(
        clippy::should_implement_trait,
        reason = "an error ends the work, which an iterator's user may miss"
    )]
    pub fn next(&mut self) -> Result<Option<T>, WalError> {
        match &mut self.0 {
            Reading::Memory(entries) => Ok(entries.next().copied()),
            Reading::Disk(merge) => merge.next(),
        }
    }
}

struct Merge<'a, T: Entry> {
    runs: &'a Runs,
    /// A piece of each run, its first entry not yet given.
    pieces: Vec<Piece>,
    /// The key of each run's first entry, the smallest on top.
    heads: BinaryHeap<Reverse<(T::Key, usize)>>,
}

struct Piece {
    /// Of the run, behind this piece.
    rest: Range<u64>,
    buffer: Vec<u8>,
    at: usize,
}

impl<'a, T: Entry> Merge<'a, T> {
    fn new(runs: &'a Runs) -> Result<Merge<'a, T>, WalError> {
        let piece =
            (runs.bound / runs.places.len()).clamp(limits::SORT_RUN_BYTES_MIN, limits::SORT_RUN_BYTES_MAX);
        let piece = (piece / T::BYTES).max(1) * T::BYTES;
        let new = |rest: &Range<u64>| Piece { rest: rest.clone(), buffer: vec![0; piece], at: piece };
        let pieces = runs.places.iter().map(new).collect();
        let mut merge = Merge { runs, pieces, heads: BinaryHeap::new() };
        for run in 0..merge.pieces.len() {
            merge.expose(run)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<T>, WalError> {
        let Some(Reverse((_, run))) = self.heads.pop() else { return Ok(None) };
        let entry = self.pieces[run].head();
        self.pieces[run].at += T::BYTES;
        self.expose(run)?;
        Ok(Some(entry))
    }

    /// Puts a run's first entry among the heads, if it has one.
    fn expose(&mut self, run: usize) -> Result<(), WalError> {
        let piece = &mut self.pieces[run];
        if piece.at == piece.buffer.len() {
            let failed = |error| WalError::new(&self.runs.dir, "reading a temporary file in it", error);
            piece.refill(&self.runs.file).map_err(failed)?;
        }
        if piece.at < piece.buffer.len() {
            self.heads.push(Reverse((piece.head::<T>().key(), run)));
        }
        Ok(())
    }
}

impl Piece {
    fn head<T: Entry>(&self) -> T {
        T::decode(&self.buffer[self.at..self.at + T::BYTES])
    }

    /// Empty at the end of the run.
    fn refill(&mut self, file: &File) -> io::Result<()> {
        let count = (self.rest.end - self.rest.start).min(self.buffer.len() as u64) as usize;
        self.buffer.truncate(count);
        file.read_exact_at(&mut self.buffer, self.rest.start)?;
        self.rest.start += count as u64;
        self.at = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TempDir;
    use proptest::prelude::*;

    /// A key and something that belongs to it.
    type Pair = (u32, u64);

    impl Entry for Pair {
        type Key = u32;
        const BYTES: usize = 12;

        fn key(&self) -> u32 {
            self.0
        }

        fn encode(&self, into: &mut [u8]) {
            into[..4].copy_from_slice(&self.0.to_ne_bytes());
            into[4..].copy_from_slice(&self.1.to_ne_bytes());
        }

        fn decode(bytes: &[u8]) -> Pair {
            let (key, rest) = bytes.split_at(4);
            (u32::from_ne_bytes(key.try_into().unwrap()), u64::from_ne_bytes(rest.try_into().unwrap()))
        }
    }

    fn read(sorted: &Sorted<Pair>) -> Vec<Pair> {
        let mut stream = sorted.stream().unwrap();
        std::iter::from_fn(|| stream.next().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn entries_come_as_a_vector_would_sort_them_twice(
            entries in prop::collection::vec((0..500_u32, any::<u64>()), 0..3000),
            bound in 1..80_000_usize,
        ) {
            let dir = TempDir::new();
            let mut sorter = Sorter::new(&dir, bound);
            entries.iter().for_each(|entry| sorter.push(*entry).unwrap());
            prop_assert!(sorter.entries.capacity() * size_of::<Pair>() <= bound.max(size_of::<Pair>()));
            let sorted = sorter.finish().unwrap();
            let mut found = read(&sorted);
            prop_assert!(found.is_sorted_by_key(Entry::key));
            prop_assert_eq!(&found, &read(&sorted));
            let mut expected = entries;
            expected.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(std::fs::read_dir(&*dir).unwrap().count(), 0);
        }
    }

    #[test]
    fn runs_of_many_pieces_are_merged() {
        let dir = TempDir::new();
        let mut sorter = Sorter::new(&dir, 1 << 20);
        let entries = (0..400_000_u32).map(|n| (n.wrapping_mul(2_654_435_761), u64::from(n)));
        entries.clone().for_each(|entry| sorter.push(entry).unwrap());
        let sorted = sorter.finish().unwrap();
        assert!(matches!(&sorted.0, Kept::Disk(runs) if runs.places.len() == 7));
        let mut expected: Vec<Pair> = entries.collect();
        expected.sort_unstable();
        assert!(read(&sorted) == expected);
    }

    #[test]
    fn directory_without_room_for_a_file_is_named() {
        let dir = TempDir::new();
        let mut sorter = Sorter::new(&dir.join("nowhere"), 1);
        sorter.push((1, 1)).unwrap();
        let error = sorter.push((2, 2)).unwrap_err().to_string();
        assert!(error.contains("nowhere: writing a temporary file in it"), "{error}");
    }
}

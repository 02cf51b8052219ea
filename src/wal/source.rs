//! Bytes of a log file from somewhere, and a window over them.
//!
//! The length is taken once: a file that grows meanwhile is read up to where it ended, one that shrinks is
//! an I/O error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::limits;

/// Something that can be read at an offset. A file, or bytes in a test.
pub trait Source {
    /// Length in bytes. Never changes.
    fn length(&self) -> u64;

    /// As `pread`: some bytes from `offset` on, 0 at the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A file opened for reading.
pub struct FileSource {
    file: File,
    length: u64,
}

impl FileSource {
    pub fn open(path: &Path) -> io::Result<FileSource> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(FileSource { file, length })
    }
}

impl Source for FileSource {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(into, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, into)
    }
}

impl Source for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Fills `into` from `offset` on; an error if the source ends before that.
pub(super) fn read_exact(source: &dyn Source, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        let count = source.read_at(offset, into)?;
        if count == 0 {
            let reason = "the file became shorter while it was read";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        offset += count as u64;
        into = &mut into[count..];
    }
    Ok(())
}

/// A part of a source in memory that moves along.
// filled <= buffer.len() == WAL_WINDOW_BYTES; start + filled <= source.length()
pub(super) struct Window<'a> {
    source: Box<dyn Source + 'a>,
    start: u64,
    filled: usize,
    buffer: Box<[u8]>,
}

impl<'a> Window<'a> {
    pub(super) fn new(source: impl Source + 'a) -> Window<'a> {
        Window {
            source: Box::new(source),
            start: 0,
            filled: 0,
            buffer: vec![0; limits::WAL_WINDOW_BYTES].into(),
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.source.length()
    }

    /// `count` bytes at `offset`. Panics if they reach beyond the source or are more than the window holds.
    pub(super) fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        assert!(count <= self.buffer.len() && offset + count as u64 <= self.length());
        let inside = offset >= self.start && offset + count as u64 <= self.start + self.filled as u64;
        if !inside {
            self.fill(offset)?;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..from + count])
    }

    /// The offset of the first byte from `offset` on that is not zero; `None` if all are.
    pub(super) fn first_nonzero(&mut self, mut offset: u64) -> io::Result<Option<u64>> {
        while offset < self.length() {
            // What the window has from there on, or else a window full.
            let loaded = (self.start..self.start + self.filled as u64).contains(&offset);
            let end = if loaded { self.start + self.filled as u64 } else { self.length() };
            let count = (end - offset).min(self.buffer.len() as u64) as usize;
            if let Some(at) = self.bytes(offset, count)?.iter().position(|&byte| byte != 0) {
                return Ok(Some(offset + at as u64));
            }
            offset += count as u64;
        }
        Ok(None)
    }

    fn fill(&mut self, offset: u64) -> io::Result<()> {
        let count = (self.length() - offset).min(self.buffer.len() as u64) as usize;
        self.filled = 0;
        read_exact(&*self.source, offset, &mut self.buffer[..count])?;
        (self.start, self.filled) = (offset, count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_gives_any_bytes_and_finds_the_first_that_is_not_zero() {
        let mut bytes = vec![0; 3 * limits::WAL_WINDOW_BYTES];
        let last = bytes.len() - 1;
        bytes[last] = 9;
        bytes[5] = 4;
        let mut window = Window::new(&bytes);
        assert_eq!(window.bytes(last as u64 - 1, 2).unwrap(), [0, 9]);
        assert_eq!(window.bytes(4, 2).unwrap(), [0, 4]);
        assert_eq!(window.first_nonzero(0).unwrap(), Some(5));
        assert_eq!(window.first_nonzero(6).unwrap(), Some(last as u64));
        assert_eq!(window.first_nonzero(last as u64 + 1).unwrap(), None);
        drop(window);
        bytes[last] = 0;
        assert_eq!(Window::new(&bytes).first_nonzero(6).unwrap(), None);
    }

    #[test]
    fn source_that_shrinks_is_an_error() {
        struct Shrunk;
        impl Source for Shrunk {
            fn length(&self) -> u64 {
                10
            }
            fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
                Ok(if offset < 5 { into.len().min(1) } else { 0 })
            }
        }
        let error = Window::new(&Shrunk).bytes(0, 6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

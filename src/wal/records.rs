//! The records of a directory that is sound, one after another, with their bodies.
//!
//! For whoever wants to go through several directories side by side. What `scan` would find is no concern here:
//! where a file stops, its records end.

use std::path::{Path, PathBuf};
use std::vec;

use super::finding::WalError;
use super::reader::{Next, Opened, Reader, Record};
use super::scan::{log_name, log_names, log_number};
use super::source::FileSource;

pub struct Records {
    dir: PathBuf,
    numbers: vec::IntoIter<u32>,
    open: Option<(PathBuf, Reader<'static>)>,
}

impl Records {
    pub fn open(dir: &Path) -> Result<Records, WalError> {
        let mut numbers: Vec<u32> = log_names(dir)?.iter().filter_map(|name| log_number(name)).collect();
        numbers.sort_unstable();
        Ok(Records { dir: dir.to_owned(), numbers: numbers.into_iter(), open: None })
    }

    #[allow(
        clippy::should_implement_trait,
        reason = "an error ends the work, which an iterator's user may miss"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, WalError> {
        loop {
            if let Some((path, reader)) = &mut self.open {
                match reader.next().map_err(|error| WalError::new(path, "reading it", error))? {
                    Next::Record(record) => return Ok(Some(record)),
                    Next::End | Next::Stopped(_) => self.open = None,
                }
            }
            let Some(number) = self.numbers.next() else { return Ok(None) };
            let path = self.dir.join(log_name(number));
            let source =
                FileSource::open(&path).map_err(|error| WalError::new(&path, "opening it", error))?;
            match Reader::open(source).map_err(|error| WalError::new(&path, "reading it", error))? {
                Opened::Log(reader) => self.open = Some((path, reader)),
                Opened::Empty | Opened::Stopped(_) => {}
            }
        }
    }

    /// A piece of the body of the record that came last: from this offset in its file, at most so many bytes.
    pub fn body_piece(&mut self, offset: u64, most: u64) -> Result<&[u8], WalError> {
        let (path, reader) = self.open.as_mut().expect("a record came");
        reader.body_piece(offset, most).map_err(|error| WalError::new(path, "reading a body", error))
    }
}

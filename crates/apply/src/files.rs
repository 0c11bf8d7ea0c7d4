//! Files of LOAD DATA statements, between their blocks' arrival and the statement that reads them.

use std::collections::HashMap;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use spate_schedule::item::FileBlock;
use tempfile::SpooledTempFile;

use spate_replica::{Error, Result};

/// A file up to this size is kept in memory; a larger one goes to a file without a name, in the archive's directory.
const MEMORY_BYTES_MAX: usize = 1 << 20;

/// A source has as many open at a time as it has sessions that load; a binlog that begins more and never reads them is damaged.
const FILES_MAX: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    files: HashMap<u32, SpooledTempFile>,
}

impl Files {
    /// No file; large ones will lie in `directory`.
    pub(crate) fn in_directory(directory: PathBuf) -> Files {
        Files { directory, files: HashMap::new() }
    }

    /// Takes a block of a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn append(&mut self, block: &FileBlock) -> Result<()> {
        if block.is_first {
            self.files.remove(&block.file_id);
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&block.file_id) {
            return Err(self.failed(io::Error::other("too many files were begun and never read")));
        }
        let new = || tempfile::spooled_tempfile_in(MEMORY_BYTES_MAX, &self.directory);
        let written = self.files.entry(block.file_id).or_insert_with(new).write_all(&block.bytes);
        written.map_err(|error| self.failed(error))
    }

    /// The whole file, from its beginning.
    ///
    /// # Errors
    /// [`Error::Io`] if no block of it came.
    pub(crate) fn open(&mut self, file_id: u32) -> Result<&mut dyn Read> {
        let directory = self.directory.display().to_string();
        let failed = move |source| Error::Io { action: format!("keep a file of LOAD DATA in {directory}"), source };
        let missing = || io::Error::other("the binlog does not hold the file");
        let file = self.files.get_mut(&file_id).ok_or_else(missing).map_err(&failed)?;
        file.rewind().map_err(&failed)?;
        Ok(file)
    }

    /// The file is of no use any more.
    pub(crate) fn remove(&mut self, file_id: u32) {
        self.files.remove(&file_id);
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Io { action: format!("keep a file of LOAD DATA in {}", self.directory.display()), source }
    }
}

//! A handle on an archive: its files, its tail, and readers that begin anywhere in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::FileSystem;
use crate::tail::{ArchiveFile, Tail};
use crate::walked::Walked;
use crate::{Error, Result};

/// A cheap, cloneable handle for all readers.
#[derive(Debug, Clone)]
pub struct Archive {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    tail: Tail,
    /// The place where the last walk through a directory of another process ended; `None` with a writer in this
    /// process.
    walked: Option<Walked>,
}

impl Archive {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, dir: &Path) -> Archive {
        Archive { inner: Arc::new(Inner { fs, dir: dir.to_path_buf(), tail: Tail::default(), walked: None }) }
    }

    pub(crate) fn with_walk(fs: Arc<dyn FileSystem>, dir: &Path, walked: Walked) -> Archive {
        let walked = Some(walked);
        Archive { inner: Arc::new(Inner { fs, dir: dir.to_path_buf(), tail: Tail::default(), walked }) }
    }

    pub(crate) fn walked(&self) -> Option<&Walked> {
        self.inner.walked.as_ref()
    }

    /// How far the archive reaches, and how to wait for more.
    pub fn tail(&self) -> &Tail {
        &self.inner.tail
    }

    /// The archive's directory.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// The archive's files, oldest first.
    pub fn files(&self) -> Vec<Arc<ArchiveFile>> {
        self.tail().lock().files.iter().cloned().collect()
    }

    /// The path of a local file.
    pub fn path_of(&self, file: &ArchiveFile) -> PathBuf {
        self.inner.dir.join(&**file.name())
    }

    /// Fills `buffer` from `offset` of a local file, as an event's `file` and `offset` name the place. Verifies
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Corrupt`] if the file ends before the buffer is full.
    pub fn read_at(&self, file: &ArchiveFile, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let path = self.path_of(file);
        let handle = self.fs().open_read(&path).map_err(Error::io("open", &path))?;
        let filled = handle.read_at(offset, buffer).map_err(Error::io("read", &path))?;
        if filled < buffer.len() {
            return Err(Error::malformed(
                &path,
                offset + filled as u64,
                "binlog file",
                "the file is shorter than it was",
            ));
        }
        Ok(())
    }

    /// Bytes of all files together, without their indexes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn total_bytes(&self) -> Result<u64> {
        self.files().iter().map(|file| self.length_of(file)).sum()
    }

    pub(crate) fn length_of(&self, file: &ArchiveFile) -> Result<u64> {
        if let Some(length) = file.sealed_length() {
            return Ok(length);
        }
        let path = self.path_of(file);
        let handle = self.fs().open_read(&path).map_err(Error::io("open", &path))?;
        handle.length().map_err(Error::io("read", &path))
    }

    pub(crate) fn fs(&self) -> &dyn FileSystem {
        &*self.inner.fs
    }

    /// How many bytes of a file readers may see.
    pub fn visible_length(&self, file: &ArchiveFile) -> u64 {
        if let Some(length) = file.sealed_length() {
            return length;
        }
        let state = self.tail().lock();
        if state.received.file_ordinal == file.ordinal {
            state.received.offset
        } else {
            file.sealed_length().unwrap_or(0)
        }
    }

    /// The file that follows a sealed one.
    pub(crate) fn file_after(&self, file: &ArchiveFile) -> Option<Arc<ArchiveFile>> {
        let state = self.tail().lock();
        let next = state.files.partition_point(|other| other.ordinal <= file.ordinal);
        state.files.get(next).cloned()
    }

    /// Turns `error` into [`Error::Purged`] if the file cannot be opened because it was purged.
    pub(crate) fn purged_or(&self, error: Error, file: &ArchiveFile) -> Error {
        let state = self.tail().lock();
        match state.files.front() {
            Some(first) if first.ordinal > file.ordinal => {
                let dir = self.dir().to_path_buf();
                Error::Purged { dir, wanted: file.first_seqno(), first: first.first_seqno() }
            }
            _ => error,
        }
    }

    pub(crate) fn no_such_place(&self, wanted: String, why: String) -> Error {
        Error::NoSuchPlace { dir: self.dir().to_path_buf(), wanted, why }
    }
}

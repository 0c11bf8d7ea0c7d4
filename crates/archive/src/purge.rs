//! Removes files that are no longer needed.
//!
//! The list marks a file as being purged, durably, before the file is removed. So after a crash in between, the next
//! start finishes the purge.

use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::{EventHeader, FILE_MAGIC};

use crate::index::{index_path, last_record};
use crate::position::Applied;
use crate::recovery::finish_purges;
use crate::tail::ArchiveFile;
use crate::writer::ArchiveWriter;
use crate::{Error, Result};

/// How many of the applied files to keep. With neither bound, none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Keep files as long as all together have at most this many bytes; `None` sets no bound.
    pub bytes_max: Option<u64>,
    /// Keep files whose last transaction committed at most this many seconds ago; `None` sets no bound.
    pub age_seconds_max: Option<u64>,
}

/// The files that a purge removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Number of files.
    pub files: usize,
    /// Their length in bytes, without indexes.
    pub bytes: u64,
}

impl ArchiveWriter {
    /// Removes the oldest files that exceed a bound of `retention` and hold no transaction after `applied`. Exceeding
    /// one bound is enough. The last file always stays. `now_seconds` is the time since 1970.
    ///
    /// # Errors
    /// [`Error::Io`]: the next purge or start removes the files that are left over. [`Error::SyncFailed`]: crash.
    pub fn purge(&mut self, retention: &Retention, applied: Applied, now_seconds: u64) -> Result<Purged> {
        self.check_usable()?;
        let purged = self.find_purgeable(retention, applied, now_seconds)?;
        if purged.files > 0 {
            self.unlist(purged.files)?;
        }
        let finished = finish_purges(self.archive.fs(), self.archive.dir(), self.list.clone());
        self.list = self.poison_if_fatal(finished)?;
        Ok(purged)
    }

    fn find_purgeable(&self, retention: &Retention, applied: Applied, now_seconds: u64) -> Result<Purged> {
        let files = self.archive.files();
        let mut bytes_left = self.archive.total_bytes()?;
        let mut purged = Purged::default();
        for pair in files.windows(2) {
            let (file, next) = (&pair[0], &pair[1]);
            let length = self.archive.length_of(file)?;
            let is_applied = next.start.seqno <= applied.0;
            let is_too_much = retention.bytes_max.is_some_and(|maximum| bytes_left > maximum);
            let is_too_old = match retention.age_seconds_max {
                Some(maximum) => self.last_seconds(file)?.saturating_add(maximum) < now_seconds,
                None => false,
            };
            let is_unwanted = *retention == Retention::default() || is_too_much || is_too_old;
            if !is_applied || !is_unwanted {
                break;
            }
            bytes_left -= length;
            purged.files += 1;
            purged.bytes += length;
        }
        Ok(purged)
    }

    /// The time when the last transaction of a file committed, or when the file was begun if it has none.
    fn last_seconds(&self, file: &ArchiveFile) -> Result<u64> {
        let path = self.archive.path_of(file);
        if let Some(last) = last_record(self.archive.fs(), &path, file.first_seqno()) {
            return Ok(u64::from(last.commit_seconds));
        }
        let mut header = [0; HEADER_LENGTH];
        let offset = FILE_MAGIC.len() as u64;
        self.archive.read_at(file, offset, &mut header)?;
        let header = EventHeader::parse(&header).map_err(Error::corrupt(&path, offset))?;
        Ok(u64::from(header.timestamp_seconds))
    }

    /// Takes the first `count` files from the list. On a full disk, removes their indexes first, which can be rebuilt,
    /// to make room for the new list.
    fn unlist(&mut self, count: usize) -> Result<()> {
        let mut list = self.list.clone();
        list.purging.extend(list.files.drain(..count).map(|file| file.name));
        let mut stored = list.store(self.archive.fs(), self.archive.dir());
        if matches!(stored, Err(Error::DiskFull { .. })) {
            for name in &list.purging {
                let path = index_path(&self.archive.dir().join(name));
                // A file that cannot be removed makes no room; the second attempt will say so.
                let _ = self.archive.fs().remove(&path);
            }
            stored = list.store(self.archive.fs(), self.archive.dir());
        }
        self.poison_if_fatal(stored)?;
        self.list = list;
        self.archive.tail().update(|state| drop(state.files.drain(..count)));
        Ok(())
    }
}

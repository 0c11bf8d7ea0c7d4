//! Appends a source's events to the archive.
//!
//! Invariants: the files hold whole events only, in the order in which they came; readers see whole transactions only;
//! transactions published as durable were fsynced; after an error that is not fatal the same call may be repeated, and
//! nothing is lost.

mod incoming;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spate_binlog::{Boundary, EventHeader, EventType, GtidPosition};

use crate::archive::Archive;
use crate::follower::Follower;
use crate::fs::{FileHandle, FileSystem};
use crate::index::{IndexWriter, TransactionRecord};
use crate::list::FileList;
use crate::names::LOCK_NAME;
use crate::position::{Durable, LogEnd, Received};
use crate::recovery::{Recovered, recover};
use crate::stopping::stopping_point;
use crate::tail::ArchiveFile;
use crate::{Error, Result};
use incoming::Incoming;

/// When received bytes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// At every flush, as a semi-synchronous source needs.
    Always,
    /// At the first flush after this time since the last sync.
    Interval(Duration),
    /// When the operating system decides, and whenever a file is finished.
    Os,
}

/// How the writer works.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// When received bytes are made durable.
    pub sync: SyncPolicy,
    /// Bytes held in memory before they are written to the file even without a flush.
    pub buffer_bytes_max: usize,
    /// The GTID position at which an archive without files begins; `None` if it is unknown. An archive with files knows
    /// its own.
    pub start_position: Option<GtidPosition>,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        let sync = SyncPolicy::Interval(Duration::from_secs(1));
        WriterOptions { sync, buffer_bytes_max: BUFFER_BYTES_MAX, start_position: None }
    }
}

/// Large enough that writes cost nothing per byte during catch-up.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Index records held back until the next sync can call them durable: 1 MiB of them.
const INDEX_RECORDS_PENDING_MAX: usize = 16 * 1024;

/// The outcome of appending an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// The event is in the archive, with this place in its transaction.
    Stored(Boundary),
    /// The archive had the event already: after a reconnect a source repeats events before the place that was asked
    /// for.
    AlreadyThere,
    /// The source made the event for the stream only: it is in no binlog file, and not in the archive.
    Artificial,
}

/// The file that is being appended to.
#[derive(Debug)]
pub(crate) struct CurrentFile {
    pub(crate) file: Arc<ArchiveFile>,
    pub(crate) path: PathBuf,
    pub(crate) handle: Box<dyn FileHandle>,
    pub(crate) index: IndexWriter,
    /// Bytes written to the file.
    pub(crate) flushed: u64,
    /// True if every event has the offset that it has in the source's file.
    pub(crate) is_aligned: bool,
    pub(crate) has_transactions: bool,
}

/// The end of the last event outside an unfinished transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WholeEnd {
    pub(crate) offset: u64,
    pub(crate) source_position: u64,
}

/// What the last sync has made durable.
#[derive(Debug, Clone, Copy)]
struct Synced {
    at: Instant,
    /// Bytes were written since.
    is_behind: bool,
}

/// The one writer of an archive. Owned by one thread; everyone else holds an [`Archive`].
/// Its parts are the files that it writes, what is on its way into them, and how far both are: one more than twelve.
#[derive(Debug)]
pub struct ArchiveWriter {
    pub(crate) archive: Archive,
    pub(crate) options: WriterOptions,
    pub(crate) list: FileList,
    pub(crate) follower: Follower,
    pub(crate) current: Option<CurrentFile>,
    /// A source file that was announced and has no local file yet; `None` if there is none.
    pub(crate) incoming: Option<Incoming>,
    /// Bytes taken after `current.flushed`, not yet written.
    pub(crate) pending: Vec<u8>,
    pub(crate) whole_end: WholeEnd,
    /// Index records that are not written yet.
    records: Vec<TransactionRecord>,
    /// The index record of the last transaction. `None`: the archive has none.
    last: Option<TransactionRecord>,
    synced: Synced,
    poisoned: Option<String>,
    _lock: Box<dyn Any + Send>,
}

impl ArchiveWriter {
    /// Opens and recovers the archive in `dir`, or begins one there.
    ///
    /// # Errors
    /// [`Error::Locked`] if it has a writer; [`Error::Corrupt`] or [`Error::Inconsistent`] if it holds damage that no
    /// crash explains; [`Error::NotAnArchive`] if the directory holds another program's binlog; [`Error::Io`].
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path, options: WriterOptions) -> Result<ArchiveWriter> {
        fs.create_dir(dir).map_err(Error::io("create", dir))?;
        let lock_path = dir.join(LOCK_NAME);
        let lock = fs.try_lock(&lock_path).map_err(Error::io("lock", &lock_path))?;
        let Some(lock) = lock else { return Err(Error::Locked { dir: dir.to_path_buf() }) };
        let recovered = recover(&*fs, dir, options.start_position.clone())?;
        let archive = Archive::new(fs, dir);
        Ok(ArchiveWriter::resume(archive, options, recovered, lock))
    }

    fn resume(
        archive: Archive,
        options: WriterOptions,
        recovered: Recovered,
        lock: Box<dyn Any + Send>,
    ) -> ArchiveWriter {
        let offset = recovered.current.as_ref().map_or(0, |current| current.length);
        let whole_end = WholeEnd { offset, source_position: recovered.follower.source_position };
        let current = recovered.current.map(|current| CurrentFile {
            path: archive.path_of(&current.file),
            file: current.file,
            handle: current.handle,
            index: current.index,
            flushed: current.length,
            is_aligned: current.is_aligned,
            has_transactions: current.has_transactions,
        });
        let writer = ArchiveWriter {
            archive,
            options,
            list: recovered.list,
            follower: recovered.follower,
            current,
            incoming: None,
            pending: Vec::new(),
            whole_end,
            records: Vec::new(),
            last: recovered.last,
            synced: Synced { at: Instant::now(), is_behind: false },
            poisoned: None,
            _lock: lock,
        };
        let end = writer.end();
        writer.archive.tail().update(|state| {
            state.files = recovered.files;
            state.received = Received(end.clone());
            state.durable = Durable(end);
        });
        writer
    }

    /// The handle for readers.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// The end of the last whole transaction taken, flushed or not: the place where the source is to continue.
    pub fn end(&self) -> LogEnd {
        let (ordinal, name) = self
            .current
            .as_ref()
            .map_or_else(|| (0, Arc::from("")), |current| (current.file.ordinal, Arc::clone(current.file.name())));
        LogEnd {
            seqno: if self.follower.tracker.in_transaction() { self.follower.seqno - 1 } else { self.follower.seqno },
            file_ordinal: ordinal,
            file: name,
            offset: self.whole_end.offset,
            source_file: Arc::clone(&self.follower.source_file),
            source_position: self.whole_end.source_position,
            last_gtid: self.last.and_then(|record| record.gtid),
            gtid_position: Arc::new(self.follower.gtid_position.clone()),
            gtid_position_known: self.follower.position_known,
            commit_seconds: self.last.map_or(0, |record| record.commit_seconds),
        }
    }

    /// Announces that the events from here on come from `source_file`, whose format description event is `format` (as
    /// it came, whole). Drops an unfinished transaction. The local file is begun, or the last one continued, with the
    /// first event.
    ///
    /// # Errors
    /// [`Error::Rejected`] for a bad name or format description; those of [`ArchiveWriter::flush`].
    pub fn begin_file(&mut self, source_file: &str, format: &[u8]) -> Result<()> {
        self.check_usable()?;
        let incoming = Incoming::new(self.archive.dir(), source_file, format)?;
        self.discard_partial_transaction()?;
        self.write_pending()?;
        let is_new = self.archive.files().iter().all(|file| **file.source_name() != *source_file);
        if is_new {
            self.create_file(&incoming)?;
            self.incoming = None;
        } else {
            self.incoming = Some(incoming);
        }
        Ok(())
    }

    /// Takes one whole event, header to checksum, and verifies it. It becomes visible with a later
    /// [`ArchiveWriter::flush`].
    ///
    /// # Errors
    /// [`Error::Rejected`] if it is damaged or cannot stand here; those of [`ArchiveWriter::flush`] if the buffer is
    /// full: then the event was not taken, and can be given again.
    pub fn append(&mut self, event: &[u8]) -> Result<Appended> {
        self.check_usable()?;
        let header = EventHeader::parse(event).map_err(|source| self.rejected(source))?;
        if header.event_length as usize != event.len() {
            return Err(self.malformed(format!(
                "{} bytes do not match a length of {}",
                event.len(),
                header.event_length
            )));
        }
        if header.is_artificial() {
            return Ok(Appended::Artificial);
        }
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            return Err(self.malformed("a format description begins a file and cannot be appended to one".into()));
        }
        if self.incoming.is_some() && !self.place(&header, event)? {
            return Ok(Appended::AlreadyThere);
        }
        self.split_at_gap(&header)?;
        if self.pending.len() + event.len() > self.options.buffer_bytes_max {
            self.write_pending()?;
        }
        self.take(&header, event).map(Appended::Stored)
    }

    /// Drops the events of a transaction whose end has not come, as after a lost connection. True if there were any.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing was dropped.
    pub fn discard_partial_transaction(&mut self) -> Result<bool> {
        self.check_usable()?;
        if !self.follower.tracker.in_transaction() {
            return Ok(false);
        }
        let Some(current) = &mut self.current else { return Ok(false) };
        if self.whole_end.offset < current.flushed {
            current.handle.truncate(self.whole_end.offset).map_err(Error::io("truncate", &current.path))?;
            current.flushed = self.whole_end.offset;
            self.pending.clear();
        } else {
            self.pending.truncate((self.whole_end.offset - current.flushed) as usize);
        }
        self.follower.abandon_transaction();
        self.follower.source_position = self.whole_end.source_position;
        Ok(true)
    }

    /// Writes all taken events to the file, shows its whole transactions to readers, and syncs if the policy says so.
    /// Call it whenever the source pauses, and after [`ArchiveWriter::sync_due_in`].
    ///
    /// # Errors
    /// [`Error::DiskFull`]: nothing is lost, repeat the call later. [`Error::SyncFailed`]: crash.
    pub fn flush(&mut self) -> Result<()> {
        self.check_usable()?;
        self.write_pending()?;
        let is_due = match self.options.sync {
            SyncPolicy::Always => self.synced.is_behind,
            SyncPolicy::Interval(interval) => self.synced.is_behind && self.synced.at.elapsed() >= interval,
            SyncPolicy::Os => false,
        };
        if is_due {
            return self.sync();
        }
        if self.records.len() > INDEX_RECORDS_PENDING_MAX { self.write_records(false) } else { Ok(()) }
    }

    /// Writes all taken events to the file and makes them durable.
    ///
    /// # Errors
    /// As [`ArchiveWriter::flush`].
    pub fn sync(&mut self) -> Result<()> {
        self.check_usable()?;
        self.write_pending()?;
        let Some(current) = &self.current else { return Ok(()) };
        if self.synced.is_behind {
            let synced = current.handle.sync().map_err(Error::sync(&current.path));
            self.poison_if_fatal(synced)?;
            stopping_point("after-archive-sync");
            self.synced.is_behind = false;
            self.synced.at = Instant::now();
            self.archive.tail().update(|state| state.durable = Durable(state.received.0.clone()));
        }
        self.write_records(true)
    }

    /// The time until a sync is due; then call [`ArchiveWriter::flush`] even if no event came. `None` if no sync is
    /// due.
    pub fn sync_due_in(&self) -> Option<Duration> {
        match self.options.sync {
            SyncPolicy::Interval(interval) if self.synced.is_behind => {
                Some(interval.saturating_sub(self.synced.at.elapsed()))
            }
            SyncPolicy::Always if self.synced.is_behind => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Bytes taken that are not in the file yet.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    fn take(&mut self, header: &EventHeader, event: &[u8]) -> Result<Boundary> {
        let Some(current) = &mut self.current else {
            return Err(self.malformed("no file was begun for it".into()));
        };
        let offset = current.flushed + self.pending.len() as u64;
        let end = offset + event.len() as u64;
        let boundary = match self.follower.take(header, event, offset, true) {
            Ok(boundary) => boundary,
            Err(source) => return Err(self.rejected(source)),
        };
        if boundary == Boundary::Begin {
            self.refuse_repeated()?;
        }
        let Some(current) = &mut self.current else { return Ok(boundary) };
        current.is_aligned &= header.next_position == end as u32;
        self.pending.extend_from_slice(event);
        if matches!(boundary, Boundary::End | Boundary::Whole) {
            let record = self.follower.record(header, end);
            current.has_transactions = true;
            self.records.push(record);
            self.last = Some(record);
        }
        if !self.follower.tracker.in_transaction() {
            self.whole_end = WholeEnd { offset: end, source_position: self.follower.source_position };
        }
        Ok(boundary)
    }

    /// Refuses a transaction that is sent twice in a row: the source was asked for the wrong place.
    fn refuse_repeated(&mut self) -> Result<()> {
        let Some(event) = self.follower.tracker.gtid() else { return Ok(()) };
        if !self.follower.gtid_position.ends_with(event.gtid) {
            return Ok(());
        }
        self.follower.abandon_transaction();
        self.follower.source_position = self.whole_end.source_position;
        Err(self.malformed(format!("transaction {} is in the archive already", event.gtid)))
    }

    pub(crate) fn write_pending(&mut self) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if !self.pending.is_empty() {
            current
                .handle
                .write_at(current.flushed, &self.pending)
                .map_err(Error::write(&current.path, current.flushed))?;
            current.flushed += self.pending.len() as u64;
            self.pending.clear();
            // Free the memory of a single large event.
            self.pending.shrink_to(self.options.buffer_bytes_max);
            self.synced.is_behind = true;
            stopping_point("after-archive-append");
        }
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        let end = self.end();
        let state = self.archive.tail().lock();
        let is_news = (state.received.file_ordinal, state.received.offset) != (end.file_ordinal, end.offset);
        drop(state);
        if is_news {
            self.archive.tail().update(|state| state.received = Received(end));
        }
    }

    fn write_records(&mut self, durable: bool) -> Result<()> {
        if let (Some(current), false) = (&mut self.current, self.records.is_empty()) {
            current.index.append(&self.records, durable)?;
            self.records.clear();
        }
        Ok(())
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        match &self.poisoned {
            None => Ok(()),
            Some(why) => Err(Error::Poisoned { dir: self.archive.dir().to_path_buf(), why: why.clone() }),
        }
    }

    pub(crate) fn poison_if_fatal<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && error.is_fatal()
        {
            self.poisoned = Some(error.to_string());
            self.archive.tail().update(|state| state.is_closed = true);
        }
        result
    }

    pub(crate) fn malformed(&self, why: String) -> Error {
        self.rejected(spate_binlog::Error::Malformed { what: "event stream", why })
    }

    fn rejected(&self, source: spate_binlog::Error) -> Error {
        let path =
            self.current.as_ref().map_or_else(|| self.archive.dir().to_path_buf(), |current| current.path.clone());
        let offset = self.current.as_ref().map_or(0, |current| current.flushed + self.pending.len() as u64);
        Error::Rejected { path, offset, source_file: self.follower.source_file.to_string(), source }
    }
}

impl Drop for ArchiveWriter {
    /// Wakes readers, which must not wait for a closed writer. Events that were not flushed are lost, as in a crash.
    fn drop(&mut self) {
        self.archive.tail().update(|state| state.is_closed = true);
    }
}

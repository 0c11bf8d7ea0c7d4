//! Reads whole events of one file in large blocks.
//!
//! Invariant: the reader never reads at or after `limit`, so it never sees bytes that the writer has not published.

use std::ops::Range;
use std::path::{Path, PathBuf};

use spate_binlog::EventHeader;
use spate_binlog::header::HEADER_LENGTH;

use crate::fs::{FileHandle, FileSystem};
use crate::{Error, Result};

/// How large reads and events may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Bytes per read. Larger blocks cost memory per reader; smaller ones cost system calls.
    pub block_bytes: usize,
    /// The largest event that is held in memory; a larger one is [`Error::EventTooLarge`].
    pub event_bytes_max: usize,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { block_bytes: BLOCK_BYTES, event_bytes_max: EVENT_BYTES_MAX }
    }
}

/// Large enough that a system call costs nothing per byte, small enough to stay in the cache.
const BLOCK_BYTES: usize = 1 << 20;
/// The servers' own limit: `max_allowed_packet` is at most 1 GiB; the rest is room for the header and added fields.
const EVENT_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// An event in the buffer of an [`EventBlocks`].
pub(crate) struct RawEvent {
    pub(crate) header: EventHeader,
    pub(crate) offset: u64,
    pub(crate) range: Range<usize>,
}

/// The bytes at the current offset.
pub(crate) enum Next {
    Event(RawEvent),
    /// The limit is reached exactly.
    Limit,
    /// An event begins here but does not end before the limit.
    Torn(spate_binlog::Error),
}

/// A forward reader of the raw events of one file.
#[derive(Debug)]
pub(crate) struct EventBlocks {
    file: Box<dyn FileHandle>,
    path: PathBuf,
    options: ReadOptions,
    buffer: Vec<u8>,
    /// File offset of `buffer[0]`.
    buffer_offset: u64,
    /// The next event begins at `buffer[start]`; bytes up to `buffer[filled]` are valid.
    start: usize,
    filled: usize,
    limit: u64,
}

impl EventBlocks {
    /// Opens a file at its first event, and checks its magic bytes.
    pub(crate) fn open(fs: &dyn FileSystem, path: &Path, options: ReadOptions, limit: u64) -> Result<EventBlocks> {
        let file = fs.open_read(path).map_err(Error::io("open", path))?;
        let mut magic = spate_binlog::FILE_MAGIC;
        let filled = file.read_at(0, &mut magic).map_err(Error::io("read", path))?;
        if filled < magic.len() || magic != spate_binlog::FILE_MAGIC {
            return Err(Error::malformed(path, 0, "binlog file", "it does not begin with a binlog file's magic bytes"));
        }
        Ok(EventBlocks {
            file,
            path: path.to_path_buf(),
            options,
            buffer: Vec::new(),
            buffer_offset: magic.len() as u64,
            start: 0,
            filled: 0,
            limit,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the next event.
    pub(crate) fn offset(&self) -> u64 {
        self.buffer_offset + self.start as u64
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Lets the reader go up to `limit`, which never shrinks.
    pub(crate) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Continues at another offset.
    pub(crate) fn jump(&mut self, offset: u64) {
        self.buffer_offset = offset;
        self.start = 0;
        self.filled = 0;
    }

    /// The bytes of the event that was last returned by [`EventBlocks::next`].
    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The next event. Its bytes stay in the buffer until the next call.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Next> {
        loop {
            let available = &self.buffer[self.start..self.filled];
            let mut needed = HEADER_LENGTH;
            if available.len() >= HEADER_LENGTH {
                let header = EventHeader::parse(available).map_err(Error::corrupt(&self.path, self.offset()))?;
                needed = header.event_length as usize;
                if available.len() >= needed {
                    let offset = self.offset();
                    let range = self.start..self.start + needed;
                    self.start = range.end;
                    return Ok(Next::Event(RawEvent { header, offset, range }));
                }
            }
            let left = self.limit.saturating_sub(self.offset());
            if left == 0 {
                return Ok(Next::Limit);
            }
            if needed as u64 > left {
                let available = left as usize;
                return Ok(Next::Torn(spate_binlog::Error::Truncated { what: "event", needed, available }));
            }
            self.fill(needed)?;
        }
    }

    /// Reads on until at least `needed` bytes from the current offset are in the buffer.
    #[cold]
    fn fill(&mut self, needed: usize) -> Result<()> {
        let offset = self.offset();
        if needed > self.options.event_bytes_max {
            let (length, maximum) = (needed as u64, self.options.event_bytes_max as u64);
            return Err(Error::EventTooLarge { path: self.path.clone(), offset, length, maximum });
        }
        self.buffer.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        self.buffer_offset = offset;
        let left = usize::try_from(self.limit - offset).unwrap_or(usize::MAX);
        let size = needed.max(self.options.block_bytes.min(left)).max(self.filled);
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        } else if self.buffer.len() > size.max(self.options.block_bytes) {
            // A single large event made the buffer grow.
            self.buffer.truncate(size.max(self.options.block_bytes));
            self.buffer.shrink_to_fit();
        }
        let end = self.buffer.len().min(left);
        let target = &mut self.buffer[self.filled..end];
        let wanted = target.len();
        let count = self.file.read_at(offset + self.filled as u64, target).map_err(Error::io("read", &self.path))?;
        self.filled += count;
        if count < wanted {
            let at = offset + self.filled as u64;
            return Err(Error::malformed(&self.path, at, "binlog file", "the file is shorter than it was"));
        }
        Ok(())
    }
}

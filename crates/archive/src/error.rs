//! Errors of the archive, and what the caller should do about each.

use std::io;
use std::path::{Path, PathBuf};

use spate_binlog::GtidPosition;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Every error names its file and, where there is one, the offset.
///
/// There are three kinds. *Transient* ([`Error::is_transient`]): nothing is lost, repeat the same call later. *Fatal*
/// ([`Error::is_fatal`]): the state of the disk is unknown, crash and let recovery find it out. Definite: all others.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, such as "read".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The disk is full. Acknowledged transactions stay; the same flush can be repeated when there is space.
    #[error("no space left for {} at offset {offset}: free some disk space, the archive then continues", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// The offset of the bytes that were not written.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// An fsync failed: any part of the unsynced bytes may be on disk. The writer accepts no more events.
    #[error("fsync of {} failed, the state on disk is unknown: {source}", path.display())]
    SyncFailed {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The writer met a fatal error before.
    #[error("the archive in {} accepts no more events after an earlier failure: {why}", dir.display())]
    Poisoned {
        /// The archive.
        dir: PathBuf,
        /// The earlier failure.
        why: String,
    },
    /// Another process (or another writer in this one) writes this archive.
    #[error("the archive in {} is in use by another writer; stop it, or choose another directory", dir.display())]
    Locked {
        /// The archive.
        dir: PathBuf,
    },
    /// Bytes in a binlog file differ from the bytes that were written there.
    #[error("{} is corrupt at offset {offset}: {source}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset at which the bad event begins.
        offset: u64,
        /// The defect.
        source: spate_binlog::Error,
    },
    /// The list of the archive's files and the files contradict each other.
    #[error("{}: {why}", path.display())]
    Inconsistent {
        /// The list, or the file that contradicts it.
        path: PathBuf,
        /// The contradiction.
        why: String,
    },
    /// An event is larger than [`crate::ReadOptions::event_bytes_max`].
    #[error("the event in {} at offset {offset} has {length} bytes, more than the bound of {maximum}", path.display())]
    EventTooLarge {
        /// The file.
        path: PathBuf,
        /// The offset at which the event begins.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// The bound in bytes.
        maximum: u64,
    },
    /// The writer was given bytes that cannot follow the archive's last event.
    #[error("the event from {source_file} cannot be archived in {} at offset {offset}: {source}", path.display())]
    Rejected {
        /// The local file for the event.
        path: PathBuf,
        /// The offset for the event in that file.
        offset: u64,
        /// The source's file.
        source_file: String,
        /// The defect.
        source: spate_binlog::Error,
    },
    /// A seek asks for transactions before the archive's beginning.
    #[error(
        "the archive in {} begins at GTID position '{begins}' and lacks transactions after '{wanted}'",
        dir.display()
    )]
    BeginsAfter {
        /// The archive.
        dir: PathBuf,
        /// The position that was asked for.
        wanted: GtidPosition,
        /// The position before the archive's first transaction.
        begins: GtidPosition,
    },
    /// A seek asks for a place that the archive does not have.
    #[error("the archive in {} has no {wanted}: {why}", dir.display())]
    NoSuchPlace {
        /// The archive.
        dir: PathBuf,
        /// The place, in words.
        wanted: String,
        /// The range that it has instead, or another reason.
        why: String,
    },
    /// Files that a reader had not reached yet were purged.
    #[error("transaction {wanted} of the archive in {} was purged, the first one left is {first}", dir.display())]
    Purged {
        /// The archive.
        dir: PathBuf,
        /// The seqno that the reader needs next.
        wanted: u64,
        /// The first seqno that is still there.
        first: u64,
    },
    /// The directory is not an archive, or not one set of binlog files.
    #[error("{}: {why}", dir.display())]
    NotAnArchive {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        why: String,
    },
}

impl Error {
    /// True if nothing is lost and the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::DiskFull { .. } => true,
            Error::Io { source, .. } => {
                use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
                matches!(source.kind(), Interrupted | TimedOut | WouldBlock)
            }
            _ => false,
        }
    }

    /// True if the process should crash at once: only recovery can find out the state on disk.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Error::SyncFailed { .. } | Error::Poisoned { .. })
    }

    /// For `map_err`: an I/O error with its operation and path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source }
    }

    /// For `map_err`: a failed write; a full disk becomes [`Error::DiskFull`].
    pub(crate) fn write(path: &Path, offset: u64) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { path: path.to_path_buf(), offset, source }
            }
            _ => Error::Io { action: "write", path: path.to_path_buf(), source },
        }
    }

    /// For `map_err`: a failed fsync.
    pub(crate) fn sync(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::SyncFailed { path: path.to_path_buf(), source }
    }

    /// For `map_err`: bad bytes in a file.
    pub(crate) fn corrupt(path: &Path, offset: u64) -> impl FnOnce(spate_binlog::Error) -> Error {
        move |source| Error::Corrupt { path: path.to_path_buf(), offset, source }
    }

    pub(crate) fn malformed(path: &Path, offset: u64, what: &'static str, why: impl Into<String>) -> Error {
        Error::corrupt(path, offset)(spate_binlog::Error::Malformed { what, why: why.into() })
    }
}

//! How far the archive reaches: received, durable and applied are three different types, so that none is taken for
//! another.

use std::ops::Deref;
use std::sync::Arc;

use spate_binlog::{Gtid, GtidPosition};

/// A place in the archive between two transactions, with all data that a status page or a source needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// The last transaction before this place; 0 if there is none.
    pub seqno: u64,
    /// Number of the local file. It rises from file to file, and is not reused while the archive is open.
    pub file_ordinal: u64,
    /// Name of the local file; empty while the archive has none.
    pub file: Arc<str>,
    /// Offset in the local file.
    pub offset: u64,
    /// Name of the source's file.
    pub source_file: Arc<str>,
    /// Offset in the source's file.
    pub source_position: u64,
    /// GTID of the last transaction; `None` if it has none, or was not seen since the archive was opened.
    pub last_gtid: Option<Gtid>,
    /// The GTID position after all transactions before this place.
    pub gtid_position: Arc<GtidPosition>,
    /// False if the archive began at a place whose GTID position was unknown. Then `gtid_position` lacks the domains
    /// that have not been active since, and only `source_file` and `source_position` say where the source is to
    /// continue.
    pub gtid_position_known: bool,
    /// When the last transaction committed, in seconds since 1970, by the source's clock; 0 if unknown.
    pub commit_seconds: u32,
}

/// The end of the received transactions: whole, written to the file, visible to readers, not yet safe from a power cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received(pub(crate) LogEnd);

/// The end of the transactions that are safe on disk. Only these may be acknowledged to a semi-synchronous source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durable(pub(crate) LogEnd);

/// The last transaction that all readers of the archive have applied. A purge removes no file with a later one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Applied(pub u64);

impl Deref for Received {
    type Target = LogEnd;

    fn deref(&self) -> &LogEnd {
        &self.0
    }
}

impl Deref for Durable {
    type Target = LogEnd;

    fn deref(&self) -> &LogEnd {
        &self.0
    }
}

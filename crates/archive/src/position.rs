//! How far the archive reaches: received, durable and applied are three different types, so that none passes for another.

use std::ops::Deref;
use std::sync::Arc;

use spate_binlog::{Gtid, GtidPosition};

/// A place in the archive between two transactions, with everything that a status page or a source wants to know of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// The last transaction before this place; 0 if there is none.
    pub seqno: u64,
    /// Number of the local file; rises from file to file, never used twice while the archive is open.
    pub file_ordinal: u64,
    /// Name of the local file; empty while the archive has none.
    pub file: Arc<str>,
    /// Offset in the local file.
    pub offset: u64,
    /// Name of the source's file.
    pub source_file: Arc<str>,
    /// Offset in the source's file.
    pub source_position: u64,
    /// GTID of the last transaction, if it has one and was seen since the archive was opened.
    pub last_gtid: Option<Gtid>,
    /// The GTID position after everything before this place.
    pub gtid_position: Arc<GtidPosition>,
    /// False if the archive began somewhere without knowing the GTID position there: then `gtid_position` lacks the domains
    /// that have not been active since, and only `source_file` and `source_position` say where to go on.
    pub gtid_position_known: bool,
    /// When the last transaction committed, in seconds since 1970, by the source's clock; 0 if unknown.
    pub commit_seconds: u32,
}

/// The end of what was received: whole transactions, written to the file, visible to readers, not yet safe from a power cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received(pub(crate) LogEnd);

/// The end of what is safe on disk: the only thing that may be acknowledged to a semi-synchronous source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durable(pub(crate) LogEnd);

/// The last transaction that everyone has applied: what purging may not go beyond.
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

//! What a load tells while it runs and when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use serde::Serialize;

use crate::indexes::IndexChoice;
use crate::manifest::Totals;

/// How far a load is; others may look at it at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes read from inputs, as they are on disk.
    pub(crate) bytes_read: Arc<AtomicU64>,
    /// Bytes that there are; 0 if nobody knows.
    pub(crate) bytes: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) loaded: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) doing: Mutex<String>,
}

impl Progress {
    /// Bytes that were read, and bytes that there are; 0 if nobody knows.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_read.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// What is loaded by this run.
    pub fn totals(&self) -> Totals {
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Totals { records: number(&self.records), loaded: number(&self.loaded), rejected: number(&self.rejected) }
    }

    /// What is being done, in some words.
    pub fn doing(&self) -> String {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tell(&self, doing: String) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    pub(crate) fn add(&self, totals: Totals) {
        self.records.fetch_add(totals.records, Ordering::Relaxed);
        self.loaded.fetch_add(totals.loaded, Ordering::Relaxed);
        self.rejected.fetch_add(totals.rejected, Ordering::Relaxed);
    }
}

/// A file, when its load has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileReport {
    /// Its name.
    pub file: String,
    /// True if an earlier run had loaded all of it.
    pub was_loaded: bool,
    /// All that is loaded of it, by this run and earlier ones.
    pub totals: Totals,
    /// The file that says what was rejected, and why.
    pub rejects: Option<PathBuf>,
    /// Rejected records that are not in it: an earlier run wrote them to another directory.
    pub rejects_elsewhere: u64,
}

impl FileReport {
    pub(crate) fn loaded_before(file: String, totals: Totals) -> FileReport {
        FileReport { file, was_loaded: true, totals, rejects: None, rejects_elsewhere: 0 }
    }
}

/// A record that a dry run would reject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownReject {
    /// The file.
    pub file: String,
    /// The line, from 1; of records without lines, their number.
    pub line: u64,
    /// Why.
    pub reason: String,
    /// The beginning of the record.
    pub record: String,
}

/// A load that has ended.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The load's name.
    pub job: String,
    /// True if nothing was written.
    pub dry_run: bool,
    /// How long it took.
    pub seconds: f64,
    /// Bytes that were read from disk.
    pub bytes: u64,
    /// Connections that loaded.
    pub connections: usize,
    /// What this run did.
    pub totals: Totals,
    /// The rows that each table got from this run.
    pub tables: BTreeMap<String, u64>,
    /// The tables that were made, or would be.
    pub new_tables: BTreeSet<String>,
    /// The same of partitions, each behind its table.
    pub new_partitions: BTreeSet<String>,
    /// The files; of a watcher's, the latest ones.
    pub files: Vec<FileReport>,
    /// How rows came into the tables.
    pub door: String,
    /// What the server keeps when it crashes, and whether its binlog has the load.
    pub durability: String,
    /// When the indexes of new tables were made; `None` if none were.
    pub indexes: Option<IndexChoice>,
    /// So long the indexes took behind the rows.
    pub index_seconds: f64,
    /// Of a dry run: the first records that would be rejected.
    pub first_rejects: Vec<ShownReject>,
    /// Why not all is loaded. What is, stays; `None`: all is.
    pub failure: Option<String>,
}

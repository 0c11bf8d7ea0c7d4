//! Prefetching: other connections read the pages that the applier is about to need, so that it finds them in memory.
//!
//! The preparing stage tells the *feeder* of each row change. The feeder writes lookups of the rows (`lookups.rs`), and gives them to
//! a pool of *readers*, each a thread with a connection. They keep close before the applier, which says how far it is: what is read too
//! early has left the replica's memory before it is needed. What comes too late is dropped. Nothing waits for a reader, and a reader that
//! fails is only missed.
//!
//! Whether rows are prefetched is decided chunk by chunk (`trial.rs`).

mod feeder;
pub mod harmless;
mod lookups;
mod reader;
pub mod rows;
mod trial;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spate_replica::status::Status;
use spate_schedule::TableName;

use trial::Trial;

pub(crate) use feeder::{Feeder, FeederState};
pub(crate) use reader::Reader;

/// Chunks that are read before the one that is being executed has its answer. The next must be in memory when it begins.
const CHUNKS_AHEAD: u64 = 2;

/// Queries that wait for a reader: those for most chunks that may be on their way to the applier. With their largest size, 4 MiB.
pub(crate) const QUERIES_MAX: usize = 256;

/// Connections that read. A fast disk gives three times as much at this depth as to one reader.
pub(crate) const READERS: usize = 8;

/// How long a reader sleeps before it looks whether the session is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// When rows are read by other connections before they are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PrefetchWhen {
    /// While it makes applying faster, which is tried out.
    #[default]
    Helpful,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A chunk of rows on its way to the applier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkMark {
    /// Its number in the session, from 1.
    pub(crate) number: u64,
    pub(crate) rows: u64,
    pub(crate) is_prefetched: bool,
}

/// A query for a reader.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// The chunk whose rows it looks for.
    pub(crate) chunk: u64,
    pub(crate) table: TableName,
    pub(crate) sql: Vec<u8>,
    pub(crate) rows: usize,
}

/// What feeder, readers and applier share.
#[derive(Debug)]
pub(crate) struct Prefetching<'a> {
    /// `None`: rows are always prefetched.
    trial: Option<Mutex<Trial>>,
    /// The number of the last chunk that the applier has finished.
    finished: Mutex<u64>,
    changed: Condvar,
    /// Tables that could not be read: their rows are left alone.
    unreadable: Mutex<BTreeSet<TableName>>,
    over: AtomicBool,
    status: &'a Status,
}

impl<'a> Prefetching<'a> {
    /// `None` if nothing is ever prefetched.
    pub(crate) fn new(when: PrefetchWhen, status: &'a Status) -> Option<Prefetching<'a>> {
        let trial = match when {
            PrefetchWhen::Helpful => Some(Mutex::default()),
            PrefetchWhen::Always => None,
            PrefetchWhen::Never => return None,
        };
        Some(Prefetching {
            trial,
            finished: Mutex::default(),
            changed: Condvar::new(),
            unreadable: Mutex::default(),
            over: AtomicBool::new(false),
            status,
        })
    }

    /// The applier has finished a chunk, which took so long.
    pub(crate) fn finish(&self, mark: ChunkMark, took: Duration) {
        if let Some(trial) = &self.trial {
            lock(trial).measure(mark.rows, mark.is_prefetched, took);
        }
        let mut finished = lock(&self.finished);
        *finished = mark.number.max(*finished);
        self.changed.notify_all();
    }

    /// The session is over.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// True if the rows of the next chunk are to be prefetched.
    fn begin_chunk(&self) -> bool {
        self.trial.as_ref().is_none_or(|trial| lock(trial).next_chunk())
    }

    /// Waits until the chunk is close to the applier. False if the applier is past it, or the session over.
    fn wait_until_near(&self, chunk: u64) -> bool {
        let mut finished = lock(&self.finished);
        while *finished + CHUNKS_AHEAD < chunk {
            if self.over.load(Ordering::Acquire) {
                return false;
            }
            let waited = self.changed.wait_timeout(finished, LOOK_EVERY);
            finished = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *finished < chunk && !self.over.load(Ordering::Acquire)
    }

    fn is_readable(&self, table: &TableName) -> bool {
        !lock(&self.unreadable).contains(table)
    }

    fn tell(&self, message: &str) {
        self.status.note("prefetch", message);
    }

    /// Leaves a table alone from now on, and says why.
    fn leave_alone(&self, table: &TableName, why: &spate_connection::Error) {
        if lock(&self.unreadable).insert(table.clone()) {
            self.status.note("prefetch", &format!("rows of {table} are not prefetched: {why}"));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

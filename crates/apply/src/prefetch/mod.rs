//! Prefetching: other connections read the pages that the applier is about to need, so that it finds them in memory.
//!
//! The preparing stage tells the *feeder* of each row change. The feeder writes lookups of the rows (`lookups.rs`), and gives them to
//! a pool of *readers*, each a thread with a connection. They keep close before the applier, which says how far it is: what is read too
//! early has left the replica's memory before it is needed. What comes too late is dropped. Nothing waits for a reader, and a reader that
//! fails is only missed.
//!
//! Whether rows are prefetched is decided chunk by chunk (`trial.rs`), when a chunk is about to be executed: what was measured is new then. The
//! lookups of its rows are written before that, wherever they may be wanted.

mod feeder;
pub mod harmless;
mod lookups;
mod reader;
pub mod rows;
mod trial;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spate_replica::status::Status;
use spate_schedule::TableName;

use trial::Trial;

pub(crate) use feeder::{Feeder, FeederState};
pub(crate) use reader::Reader;

/// Chunks that are read before the one that is being executed has its answer. The next must be in memory when it begins.
const CHUNKS_AHEAD: usize = 2;

/// Chunks that may have been written and not yet applied: a dozen are on their way. Beyond, the applier has answers for none, and more lookups would
/// wait in vain.
const WRITTEN_AHEAD_MAX: u32 = 16;

/// Queries that wait for a reader: those for most chunks that may be on their way to the applier. With their largest size, 8 MiB.
pub(crate) const QUERIES_MAX: usize = 512;

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
    /// Lookups of its rows were written.
    pub(crate) has_lookups: bool,
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
    progress: Mutex<Progress>,
    /// The applier has finished a chunk.
    changed: Condvar,
    /// Tables that could not be read: their rows are left alone.
    unreadable: Mutex<BTreeSet<TableName>>,
    over: AtomicBool,
    status: &'a Status,
}

/// How far the applier is, and what follows.
#[derive(Debug)]
struct Progress {
    /// `None`: rows are always prefetched.
    trial: Option<Trial>,
    /// The number of the last chunk that was begun.
    begun: u64,
    /// The number of the last chunk that the applier has finished.
    finished: u64,
    /// Whether the next chunks after that one are prefetched.
    near: VecDeque<bool>,
}

impl Progress {
    fn new(trial: Option<Trial>) -> Progress {
        let mut progress = Progress { trial, begun: 0, finished: 0, near: VecDeque::new() };
        progress.decide();
        progress
    }

    /// Decides for all chunks that have come near.
    fn decide(&mut self) {
        while self.near.len() < CHUNKS_AHEAD {
            self.near.push_back(self.trial.as_mut().is_none_or(Trial::next_chunk));
        }
    }

    /// The applier has finished a chunk, which took so long; `None`: nobody has measured it.
    fn finish(&mut self, mark: ChunkMark, took: Option<Duration>) {
        let mut was_wanted = false;
        while self.finished < mark.number {
            self.finished += 1;
            was_wanted = self.near.pop_front().unwrap_or_default();
        }
        if let (Some(trial), Some(took)) = (&mut self.trial, took) {
            trial.measure(mark.rows, was_wanted && mark.has_lookups, took);
        }
        self.decide();
    }

    /// `None`: the chunk is too far ahead to say. False too if it is past.
    fn is_wanted(&self, chunk: u64) -> Option<bool> {
        let Some(ahead) = chunk.checked_sub(self.finished + 1) else { return Some(false) };
        self.near.get(usize::try_from(ahead).ok()?).copied()
    }
}

/// A chunk that is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begun {
    number: u64,
    /// Lookups of its rows may be wanted.
    may_be_wanted: bool,
    /// Nothing is known of the rows yet.
    is_undecided: bool,
}

impl<'a> Prefetching<'a> {
    /// `None` if nothing is ever prefetched.
    pub(crate) fn new(when: PrefetchWhen, status: &'a Status) -> Option<Prefetching<'a>> {
        let trial = match when {
            PrefetchWhen::Helpful => Some(Trial::default()),
            PrefetchWhen::Always => None,
            PrefetchWhen::Never => return None,
        };
        Some(Prefetching {
            progress: Mutex::new(Progress::new(trial)),
            changed: Condvar::new(),
            unreadable: Mutex::default(),
            over: AtomicBool::new(false),
            status,
        })
    }

    /// The applier has finished a chunk, which took so long. `None`: it was committed in one packet, and nobody has measured it.
    pub(crate) fn finish(&self, mark: ChunkMark, took: Option<Duration>) {
        lock(&self.progress).finish(mark, took);
        self.changed.notify_all();
    }

    /// The session is over.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// The next chunk begins to be written.
    fn begin_chunk(&self) -> Begun {
        let mut progress = lock(&self.progress);
        progress.begun += 1;
        let is_near = progress.begun <= progress.finished + u64::from(WRITTEN_AHEAD_MAX);
        Begun {
            number: progress.begun,
            may_be_wanted: progress.trial.as_ref().is_none_or(|trial| is_near && trial.may_be_on()),
            is_undecided: progress.trial.as_ref().is_some_and(Trial::is_undecided),
        }
    }

    /// Waits until the chunk is close to the applier. False if its rows are not to be prefetched: that does not help, the applier is past
    /// them, or the session is over.
    fn wait_until_near(&self, chunk: u64) -> bool {
        let mut progress = lock(&self.progress);
        loop {
            if self.over.load(Ordering::Acquire) {
                return false;
            }
            if let Some(is_wanted) = progress.is_wanted(chunk) {
                return is_wanted;
            }
            let waited = self.changed.wait_timeout(progress, LOOK_EVERY);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u64) -> ChunkMark {
        ChunkMark { number, rows: 1_000, has_lookups: true }
    }

    #[test]
    fn a_chunk_is_decided_on_when_it_is_near() {
        let mut progress = Progress::new(Some(Trial::default()));
        assert_eq!([1, 2, 3].map(|chunk| progress.is_wanted(chunk)), [Some(false), Some(false), None]);
        // Their rows took half a millisecond each: they are on a slow disk.
        progress.finish(mark(1), Some(Duration::from_millis(500)));
        progress.finish(mark(2), Some(Duration::from_millis(500)));
        assert_eq!([2, 3, 4, 5].map(|chunk| progress.is_wanted(chunk)), [Some(false), Some(false), Some(true), None]);
    }

    #[test]
    fn chunks_that_nobody_has_measured_are_passed() {
        let mut progress = Progress::new(None);
        progress.finish(mark(7), None);
        assert_eq!([7, 8, 9, 10].map(|chunk| progress.is_wanted(chunk)), [Some(false), Some(true), Some(true), None]);
    }

    #[test]
    fn no_lookups_are_written_where_nothing_is_measured() {
        let status = Status::new(String::new(), String::new(), Box::new(|_, _| {}));
        let prefetching = Prefetching::new(PrefetchWhen::Helpful, &status).unwrap();
        let may_be_wanted: Vec<bool> =
            (0..=WRITTEN_AHEAD_MAX).map(|_| prefetching.begin_chunk().may_be_wanted).collect();
        assert_eq!(may_be_wanted.iter().filter(|wanted| **wanted).count(), WRITTEN_AHEAD_MAX as usize);
        assert_eq!(may_be_wanted.last(), Some(&false));
        prefetching.finish(mark(u64::from(WRITTEN_AHEAD_MAX)), None);
        assert!(prefetching.begin_chunk().may_be_wanted);
    }

    #[test]
    fn a_chunk_without_lookups_does_not_count_as_prefetched() {
        let mut progress = Progress::new(Some(Trial::default()));
        progress.finish(mark(1), Some(Duration::from_millis(500)));
        progress.finish(mark(2), Some(Duration::from_millis(500)));
        let without_lookups = ChunkMark { has_lookups: false, ..mark(4) };
        progress.finish(mark(3), Some(Duration::from_millis(500)));
        let measured = |progress: &Progress| progress.trial.as_ref().map(Trial::chunks_with);
        progress.finish(without_lookups, Some(Duration::from_millis(500)));
        assert_eq!(measured(&progress), Some(0));
        progress.finish(mark(5), Some(Duration::from_millis(60)));
        assert_eq!(measured(&progress), Some(1));
    }
}

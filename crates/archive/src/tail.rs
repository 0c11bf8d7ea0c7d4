//! The live end of an archive, shared by its writer and its readers.
//!
//! Invariant: `received` only moves from one transaction's end to a later one's, and everything before it is in the
//! files.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::follower::Follower;
use crate::list::FileFacts;
use crate::position::{Durable, Received};

/// One local binlog file. Shared, so that an event can name its file without a copy.
#[derive(Debug)]
pub struct ArchiveFile {
    pub(crate) ordinal: u64,
    pub(crate) name: Arc<str>,
    pub(crate) source_name: Arc<str>,
    /// The state before the file's first event.
    pub(crate) start: Follower,
    /// The final length of the file; [`OPEN`] while the writer may still append to it.
    sealed_length: AtomicU64,
    /// Ranges of transactions without an end, which readers do not show.
    abandoned: Mutex<Vec<Range<u64>>>,
}

const OPEN: u64 = u64::MAX;

impl ArchiveFile {
    pub(crate) fn new(ordinal: u64, name: &str, start: Follower) -> ArchiveFile {
        let source_name = Arc::clone(&start.source_file);
        let sealed_length = AtomicU64::new(OPEN);
        ArchiveFile { ordinal, name: Arc::from(name), source_name, start, sealed_length, abandoned: Mutex::default() }
    }

    /// The file's name in the archive's directory.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The name of the source's file that it copies, whole or in part. (A relay log may hold parts of several: see
    /// [`crate::ArchivedEvent::source_file`].)
    pub fn source_name(&self) -> &Arc<str> {
        &self.source_name
    }

    /// The seqno of the first transaction that begins in it (or would, if there is none yet).
    pub fn first_seqno(&self) -> u64 {
        self.start.seqno + 1
    }

    /// What a list says of it.
    pub fn facts(&self) -> FileFacts {
        FileFacts {
            name: self.name.to_string(),
            source_name: self.source_name.to_string(),
            first_seqno: self.first_seqno(),
            start: self.start.position_known.then(|| self.start.gtid_position.clone()),
        }
    }

    pub(crate) fn abandon(&self, range: Range<u64>) {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).push(range);
    }

    /// The next place at or before `visible` where abandoned events begin or end, seen from `offset`; and whether those
    /// up to that place are abandoned.
    pub(crate) fn next_limit(&self, offset: u64, visible: u64) -> (u64, bool) {
        for range in self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if offset < range.start {
                return (range.start.min(visible), false);
            }
            if offset < range.end {
                return (range.end.min(visible), true);
            }
        }
        (visible, false)
    }

    pub(crate) fn seal(&self, length: u64) {
        self.sealed_length.store(length, Ordering::Release);
    }

    /// Its final length. `None`: it may grow.
    pub fn sealed_length(&self) -> Option<u64> {
        let length = self.sealed_length.load(Ordering::Acquire);
        (length != OPEN).then_some(length)
    }
}

#[derive(Debug, Default)]
pub(crate) struct TailState {
    pub(crate) files: VecDeque<Arc<ArchiveFile>>,
    pub(crate) received: Received,
    pub(crate) durable: Durable,
    pub(crate) is_closed: bool,
}

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// There is more.
    Ready,
    /// The timeout passed.
    TimedOut,
    /// The writer was closed: no more events will come.
    Closed,
}

/// Publishes how far the archive reaches, and wakes the threads that wait for more.
#[derive(Debug, Default)]
pub struct Tail {
    state: Mutex<TailState>,
    changed: Condvar,
}

impl Tail {
    /// The end of the received transactions.
    pub fn received(&self) -> Received {
        self.lock().received.clone()
    }

    /// The end of the durable transactions.
    pub fn durable(&self) -> Durable {
        self.lock().durable.clone()
    }

    /// Waits until more than `seqno` transactions were received.
    pub fn wait_received_beyond(&self, seqno: u64, timeout: Duration) -> Waited {
        self.wait_until(timeout, |state| state.received.seqno > seqno)
    }

    /// Waits until transaction `seqno` is durable.
    pub fn wait_durable(&self, seqno: u64, timeout: Duration) -> Waited {
        self.wait_until(timeout, |state| state.durable.seqno >= seqno)
    }

    /// Waits until an event was received after `offset` of the file with that ordinal.
    pub(crate) fn wait_beyond(&self, file_ordinal: u64, offset: u64, timeout: Duration) -> Waited {
        self.wait_until(timeout, |state| (state.received.file_ordinal, state.received.offset) > (file_ordinal, offset))
    }

    fn wait_until(&self, timeout: Duration, mut is_there: impl FnMut(&TailState) -> bool) -> Waited {
        let end = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if is_there(&state) {
                return Waited::Ready;
            }
            if state.is_closed {
                return Waited::Closed;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::TimedOut;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// No invariant spans a panic of another thread: every update below is a single assignment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, TailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut TailState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

//! How far a session has come: what was handed to the applier, and what it has committed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Seqnos of this session's transactions; 0 before the first.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    handed: AtomicU64,
    applied: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    /// The session's first transaction begins after `seqno`.
    pub(crate) fn begin_after(&self, seqno: u64) {
        self.handed(seqno);
        self.applied(seqno);
    }

    /// How many transactions are on their way and not committed.
    pub(crate) fn in_doubt(&self) -> u64 {
        self.last_handed().saturating_sub(self.last_applied())
    }

    /// Everything up to `seqno` is on its way to the replica.
    pub(crate) fn handed(&self, seqno: u64) {
        self.handed.store(seqno, Ordering::Release);
    }

    /// The last transaction that may have reached the replica.
    pub(crate) fn last_handed(&self) -> u64 {
        self.handed.load(Ordering::Acquire)
    }

    /// Everything up to `seqno` is committed.
    pub(crate) fn applied(&self, seqno: u64) {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = seqno;
        self.changed.notify_all();
    }

    /// The last transaction committed.
    pub(crate) fn last_applied(&self) -> u64 {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `seqno` is committed; false if the time is over first.
    pub(crate) fn wait_applied(&self, seqno: u64, timeout: Duration) -> bool {
        let applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(applied, timeout, |applied| *applied < seqno);
        *waited.unwrap_or_else(PoisonError::into_inner).0 >= seqno
    }
}

//! How far a session has come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spate_replica::reached::Reached;
use spate_schedule::applied::AppliedSet;

use crate::{Pace, PartEnd};

/// How far a session has come: which transactions were handed to workers, and which of them are applied.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    /// Seqno of the last transaction that a worker was given; 0 before the first.
    handed_out: AtomicU64,
    /// Seqno of the last definition that is in effect: it may be committed with what comes after it.
    executed: AtomicU64,
    pace: Mutex<Pace>,
    applied: Mutex<AppliedSet>,
    changed: Condvar,
    /// How far this process has come, with all its sessions.
    reached: &'a Reached,
}

impl<'a> Progress<'a> {
    /// Nothing was handed out yet.
    pub(crate) fn new(reached: &'a Reached) -> Progress<'a> {
        Progress {
            handed_out: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            pace: Mutex::new(Pace::Unknown),
            applied: Mutex::default(),
            changed: Condvar::new(),
            reached,
        }
    }

    /// The session's first transaction comes after `seqno`.
    pub(crate) fn begin_after(&self, seqno: u64) {
        self.handed_out.store(seqno, Ordering::Release);
        *self.lock() = AppliedSet::up_to(seqno);
        self.changed.notify_all();
    }

    /// How many transactions were handed out and are not known to be applied.
    pub(crate) fn in_doubt(&self) -> u64 {
        let applied = self.lock();
        self.last_handed().saturating_sub(applied.low() + applied.count_beyond())
    }

    pub(crate) fn hand_out(&self, seqno: u64) {
        self.handed_out.store(seqno, Ordering::Release);
        let mut pace = self.lock_pace();
        if *pace == Pace::Unknown {
            *pace = Pace::Awaited;
        }
    }

    /// What a row change costs, by the latest batch that says it.
    pub(crate) fn pace(&self) -> Pace {
        *self.lock_pace()
    }

    /// A batch of so many row changes of the source took so long.
    pub(crate) fn measure(&self, row_changes: u64, took: Duration) {
        let mut pace = self.lock_pace();
        *pace = pace.after(row_changes, took);
    }

    fn lock_pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last transaction that may have reached the replica.
    pub(crate) fn last_handed(&self) -> u64 {
        self.handed_out.load(Ordering::Acquire)
    }

    /// A worker has committed a batch that ends so.
    pub(crate) fn commit(&self, end: &PartEnd) {
        self.reached.commit(&end.checkpoint);
        for skipped in &end.skipped {
            self.reached.leave_out(skipped.gtid);
        }
        self.lock().add(end.seqnos());
        self.changed.notify_all();
    }

    /// The replica has answered in the session that applies, or one as old.
    pub(crate) fn replica_answers(&self) {
        self.reached.answer(Instant::now());
    }

    /// The last transaction that is applied together with all before it.
    pub(crate) fn last_applied(&self) -> u64 {
        self.lock().low()
    }

    /// Waits until `seqno` and all before it are applied; false if the time is over first.
    pub(crate) fn wait_applied(&self, seqno: u64, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |applied| applied.low() < seqno);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// A definition, which is this transaction, is in effect; all before it are applied.
    pub(crate) fn execute(&self, seqno: u64) {
        // With the lock, so that nobody is about to wait for it.
        let _applied = self.lock();
        self.executed.store(seqno, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits until `seqno` and all before it are in effect; false if the time is over first.
    pub(crate) fn wait_in_effect(&self, seqno: u64, timeout: Duration) -> bool {
        let is_awaited = |applied: &mut AppliedSet| applied.low().max(self.executed.load(Ordering::Acquire)) < seqno;
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, is_awaited);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, AppliedSet> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

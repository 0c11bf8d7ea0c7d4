//! The coordinator hands parts out to the workers, and owns the applied set. There is one worker today, so the set is always a position.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use spate_binlog::Gtid;
use spate_replica::reached::Reached;
use spate_schedule::applied::AppliedSet;

use crate::halt::{Halt, Result};
use crate::hold::HoldState;
use crate::{Part, PartEnd};

/// How long to wait for a worker before looking whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// The worker's end of its lane: it asks for a part, and takes it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// One message asks for one part.
    pub(crate) hunger: Sender<()>,
    pub(crate) parts: Receiver<Part>,
}

/// What gathering needs of what comes after it.
pub trait Dispatch {
    /// Seqno of the last transaction before the first of this session.
    fn begin_after(&mut self, seqno: u64);

    /// Notes that this transaction is begun, if it may be: a comparison may ask the applier to hold before it.
    fn may_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool;

    /// Waits until this transaction may be begun; false if somebody asks the session to stop first.
    fn wait_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool;

    /// True if a worker has nothing to do, which is waited for.
    ///
    /// # Errors
    /// [`Halt::StageEnded`].
    fn is_hungry_within(&mut self, timeout: Duration) -> Result<bool>;

    /// Gives the part to a worker, once one has nothing to do.
    ///
    /// # Errors
    /// [`Halt::StageEnded`], also if somebody asks the session to stop meanwhile.
    fn hand_out(&mut self, part: Part) -> Result<()>;

    /// Waits until this transaction and all before it are applied.
    ///
    /// # Errors
    /// [`Halt::StageEnded`] if somebody asks the session to stop first.
    fn wait_applied(&mut self, seqno: u64) -> Result<()>;
}

/// Hands parts out.
#[derive(Debug)]
pub(crate) struct Coordinator<'a> {
    parts: Sender<Part>,
    hunger: Receiver<()>,
    /// The worker has asked for a part that it did not get yet.
    is_hungry: bool,
    progress: &'a Progress<'a>,
    hold: &'a HoldState,
    stop: &'a AtomicBool,
}

impl<'a> Coordinator<'a> {
    /// A coordinator, and the lane of its worker.
    pub(crate) fn new(
        progress: &'a Progress<'a>,
        hold: &'a HoldState,
        stop: &'a AtomicBool,
    ) -> (Coordinator<'a>, Lane) {
        let (parts, parts_out) = bounded(1);
        let (hunger_in, hunger) = bounded(1);
        let coordinator = Coordinator { parts, hunger, is_hungry: false, progress, hold, stop };
        (coordinator, Lane { hunger: hunger_in, parts: parts_out })
    }
}

impl Dispatch for Coordinator<'_> {
    fn begin_after(&mut self, seqno: u64) {
        self.progress.begin_after(seqno);
    }

    fn may_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool {
        self.hold.try_begin(gtid, seqno)
    }

    fn wait_begin(&mut self, gtid: Option<Gtid>, seqno: u64) -> bool {
        self.hold.wait_begin(gtid, seqno, self.stop)
    }

    fn is_hungry_within(&mut self, timeout: Duration) -> Result<bool> {
        if !self.is_hungry {
            self.is_hungry = match self.hunger.recv_timeout(timeout) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return Err(Halt::StageEnded),
            };
        }
        Ok(self.is_hungry)
    }

    fn hand_out(&mut self, part: Part) -> Result<()> {
        while !self.is_hungry_within(STOP_CHECK)? {
            if self.stop.load(Ordering::Acquire) {
                return Err(Halt::StageEnded);
            }
        }
        self.is_hungry = false;
        self.progress.hand_out(part.reached.seqno);
        spate_archive::stopping_point("after-gathering");
        self.parts.send(part).map_err(|_| Halt::StageEnded)
    }

    fn wait_applied(&mut self, seqno: u64) -> Result<()> {
        while !self.progress.wait_applied(seqno, STOP_CHECK) {
            if self.stop.load(Ordering::Acquire) {
                return Err(Halt::StageEnded);
            }
        }
        Ok(())
    }
}

/// How far a session has come: which transactions were handed to workers, and which of them are applied.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    /// Seqno of the last transaction that a worker was given; 0 before the first.
    handed_out: AtomicU64,
    applied: Mutex<AppliedSet>,
    changed: Condvar,
    /// How far this process has come, with all its sessions.
    reached: &'a Reached,
}

impl<'a> Progress<'a> {
    /// Nothing was handed out yet.
    pub(crate) fn new(reached: &'a Reached) -> Progress<'a> {
        Progress { handed_out: AtomicU64::new(0), applied: Mutex::default(), changed: Condvar::new(), reached }
    }

    /// The session's first transaction comes after `seqno`.
    fn begin_after(&self, seqno: u64) {
        self.hand_out(seqno);
        *self.lock() = AppliedSet::up_to(seqno);
        self.changed.notify_all();
    }

    /// How many transactions were handed out and are not known to be applied.
    pub(crate) fn in_doubt(&self) -> u64 {
        let applied = self.lock();
        self.last_handed().saturating_sub(applied.low() + applied.count_beyond())
    }

    fn hand_out(&self, seqno: u64) {
        self.handed_out.store(seqno, Ordering::Release);
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

    /// The last transaction that is applied together with all before it.
    pub(crate) fn last_applied(&self) -> u64 {
        self.lock().low()
    }

    /// Waits until `seqno` and all before it are applied; false if the time is over first.
    fn wait_applied(&self, seqno: u64, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |applied| applied.low() < seqno);
        waited.unwrap_or_else(PoisonError::into_inner).0.low() >= seqno
    }

    fn lock(&self) -> MutexGuard<'_, AppliedSet> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

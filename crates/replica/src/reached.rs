//! How far the replica has come, as this process has seen it. Stages and the supervisor decide by this value; the status only
//! shows it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use spate_binlog::Gtid;

use crate::checkpoint::Checkpoint;

/// How far the replica has come.
#[derive(Debug, Default)]
pub struct Reached(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    checkpoint: Checkpoint,
    /// `None` until this process committed a batch.
    seqno_here: Option<u64>,
    batches: u64,
    /// Bounded by the list of those that a person has named.
    left_out: BTreeSet<Gtid>,
}

impl Reached {
    /// The checkpoint was found on the replica, or put there.
    pub fn find(&self, checkpoint: &Checkpoint) {
        self.lock().checkpoint.clone_from(checkpoint);
    }

    /// This process has committed a batch, which ends at the checkpoint.
    pub fn commit(&self, checkpoint: &Checkpoint) {
        let mut inner = self.lock();
        inner.checkpoint.clone_from(checkpoint);
        inner.seqno_here = Some(checkpoint.seqno);
        inner.batches += 1;
    }

    /// This transaction was left out, now or by an earlier run, because a person has named it.
    pub fn leave_out(&self, gtid: Gtid) {
        self.lock().left_out.insert(gtid);
    }

    /// The checkpoint as it is on the replica.
    pub fn checkpoint(&self) -> Checkpoint {
        self.lock().checkpoint.clone()
    }

    /// Seqno of the last transaction that the replica has.
    pub fn seqno(&self) -> u64 {
        self.lock().checkpoint.seqno
    }

    /// Seqno of the last transaction of this archive that this process has seen committed. `None`: it has committed none.
    pub fn seqno_here(&self) -> Option<u64> {
        self.lock().seqno_here
    }

    /// Batches that this process has committed.
    pub fn batches(&self) -> u64 {
        self.lock().batches
    }

    /// True if this transaction was left out because a person has named it.
    pub fn has_left_out(&self, gtid: Gtid) -> bool {
        self.lock().left_out.contains(&gtid)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

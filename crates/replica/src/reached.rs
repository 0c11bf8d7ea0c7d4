//! How far the replica has come, as this process has seen it. Stages and the supervisor decide by this value; the status only
//! shows it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spate_binlog::Gtid;

use crate::checkpoint::Checkpoint;

/// A replica that does not flush each commit does so once a second, or a little later. A crash undoes what came after.
const LASTING_AFTER: Duration = Duration::from_secs(3);

/// How far the replica has come.
#[derive(Debug, Default)]
pub struct Reached(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    checkpoint: Checkpoint,
    /// Seqno of the last transaction that this session has committed; 0: none.
    committed: u64,
    /// What was committed then is lasting if the replica is still there after a while.
    waiting: Option<(u64, Instant)>,
    /// Seqno of the last transaction that a crash of the replica does not undo, of those that this process has committed; 0: none.
    lasting: u64,
    batches: u64,
    /// Bounded by the list of those that a person has named.
    left_out: BTreeSet<Gtid>,
}

impl Reached {
    /// The checkpoint was found on the replica, or put there.
    pub fn find(&self, checkpoint: &Checkpoint) {
        self.lock().checkpoint.clone_from(checkpoint);
    }

    /// A session begins. If the replica was away before, it may have undone what was committed last.
    pub fn begin_session(&self) {
        let mut inner = self.lock();
        (inner.committed, inner.waiting) = (0, None);
    }

    /// The replica has answered, in a session that began before the latest commit.
    pub fn answer(&self, now: Instant) {
        let mut inner = self.lock();
        match inner.waiting {
            Some((_, since)) if now.saturating_duration_since(since) < LASTING_AFTER => return,
            Some((seqno, _)) => inner.lasting = seqno.max(inner.lasting),
            None => {}
        }
        inner.waiting = Some((inner.committed, now));
    }

    /// This process has committed a batch, which ends at the checkpoint.
    pub fn commit(&self, checkpoint: &Checkpoint) {
        let mut inner = self.lock();
        inner.checkpoint.clone_from(checkpoint);
        inner.committed = checkpoint.seqno;
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

    /// Seqno of the last transaction of this archive that the replica will not ask for again: this process has seen it committed, and
    /// the replica alive some seconds later. 0: there is none.
    pub fn lasting_seqno(&self) -> u64 {
        self.lock().lasting
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seqno: u64) -> Checkpoint {
        Checkpoint { seqno, ..Checkpoint::default() }
    }

    #[test]
    fn commits_last_once_the_replica_has_lived_on() {
        let (reached, begin) = (Reached::default(), Instant::now());
        let after = |milliseconds| begin + Duration::from_millis(milliseconds);
        reached.begin_session();
        reached.answer(after(0));
        reached.commit(&at(5));
        reached.answer(after(2_000));
        assert_eq!(reached.lasting_seqno(), 0);
        // What was there at the answer before this one.
        reached.answer(after(3_000));
        reached.commit(&at(9));
        assert_eq!(reached.lasting_seqno(), 0);
        reached.answer(after(6_500));
        assert_eq!(reached.lasting_seqno(), 5);
        reached.answer(after(9_500));
        assert_eq!(reached.lasting_seqno(), 9);
    }

    #[test]
    fn commits_that_a_crash_undid_do_not_last() {
        let (reached, begin) = (Reached::default(), Instant::now());
        reached.commit(&at(5));
        reached.answer(begin);
        // The replica is away, and has lost the end when it comes back.
        reached.begin_session();
        for seconds in [10, 20, 30] {
            reached.answer(begin + Duration::from_secs(seconds));
            assert_eq!(reached.lasting_seqno(), 0);
        }
        reached.commit(&at(6));
        reached.answer(begin + Duration::from_secs(40));
        reached.answer(begin + Duration::from_secs(50));
        assert_eq!(reached.lasting_seqno(), 6);
    }
}

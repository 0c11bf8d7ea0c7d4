//! The jobs that are not committed: which of them may begin, which executor has each, and what becomes of it.

mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spate_replica::Error;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::status::{BatchStatus, Status};
use spate_schedule::depend::Waits;

use super::Parallel;
use super::jobs::{Begun, Done, Phase, State, Waiting, weight};
use crate::Part;
use crate::halt::{Halt, Result};
use crate::progress::Progress;

pub(crate) use turns::{Next, Turn};

/// Transactions that are gathered and not committed. Enough to find parallelism behind a long transaction; the set of applied ones, which each
/// commit writes, grows with it.
const TRANSACTIONS_MAX: usize = 2048;

/// Without the order kept, the checkpoint moves with each so many transactions: until then, the executors' lists name those that are applied.
const SEAL_EVERY: u64 = 64;

/// What an executor does for the row of `spate.checkpoint` after it has committed a job. Only without the order kept.
#[derive(Debug)]
pub(crate) struct Sealing {
    /// The last transaction that the row covers.
    pub(crate) sealed_seqno: u64,
    /// From where to where the executor moves it now. `None`: it is left where it is.
    pub(crate) moves: Option<(Checkpoint, Checkpoint)>,
}

/// The jobs of a session.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    bytes_max: usize,
    state: Mutex<State>,
    /// One for each executor.
    wakes: Vec<Condvar>,
    /// The sessions of the executors; 0 if there is none yet.
    sessions: Vec<AtomicU32>,
    /// Wakes those that wait for room, or for the end of all.
    room: Condvar,
    progress: &'a Progress<'a>,
    status: &'a Status,
    /// Set when the session is to end.
    over: &'a AtomicBool,
}

impl<'a> Pool<'a> {
    /// A pool without jobs. `bytes_max`: of row images in it.
    pub(crate) fn new(
        parallel: &Parallel,
        bytes_max: usize,
        progress: &'a Progress<'a>,
        status: &'a Status,
        over: &'a AtomicBool,
    ) -> Pool<'a> {
        Pool {
            bytes_max,
            state: Mutex::new(State {
                appliers: parallel.first_appliers(),
                keeps_order: parallel.keeps_order,
                ..State::default()
            }),
            wakes: std::iter::repeat_with(Condvar::new).take(parallel.connections()).collect(),
            sessions: std::iter::repeat_with(AtomicU32::default).take(parallel.connections()).collect(),
            room: Condvar::new(),
            progress,
            status,
            over,
        }
    }

    /// Everything up to this transaction is applied, and the row of `spate.checkpoint` is there. (Its seqno may be another archive's.)
    pub(crate) fn begin_after(&self, seqno: u64, checkpoint: &Checkpoint) {
        let mut state = self.lock();
        state.low = seqno;
        state.written = seqno;
        state.low_checkpoint.clone_from(checkpoint);
        state.sealed.clone_from(checkpoint);
        state.sealed_seqno = seqno;
    }

    /// The session of an executor.
    pub(crate) fn connected(&self, executor: usize, session: u32) {
        self.sessions[executor].store(session, Ordering::Release);
    }

    /// Whose session it is. `None`: no executor's.
    pub(crate) fn executor_of(&self, session: u32) -> Option<usize> {
        self.sessions.iter().position(|known| known.load(Ordering::Acquire) == session)
    }

    /// True if there is room for another job.
    ///
    /// # Errors
    /// [`Halt::StageEnded`] after an error.
    pub(crate) fn has_room_within(&self, timeout: Duration) -> Result<bool> {
        let is_full = |state: &mut State| state.error.is_none() && !self.has_room(state);
        let waited = self.room.wait_timeout_while(self.lock(), timeout, is_full);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.error.is_some() {
            return Err(Halt::StageEnded);
        }
        Ok(self.has_room(&mut state))
    }

    fn has_room(&self, state: &mut State) -> bool {
        let is_within =
            |part: usize| state.transactions < TRANSACTIONS_MAX * part / 4 && state.bytes < self.bytes_max / 4 * part;
        // Who waits for room is woken for many jobs, not for each.
        state.is_full = !is_within(if state.is_full { 3 } else { 4 });
        !state.is_full
    }

    /// True if no job is left.
    ///
    /// # Errors
    /// As [`Pool::has_room_within`].
    pub(crate) fn is_drained_within(&self, timeout: Duration) -> Result<bool> {
        let has_jobs = |state: &mut State| state.error.is_none() && !state.is_drained();
        let waited = self.room.wait_timeout_while(self.lock(), timeout, has_jobs);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.error.is_some() { Err(Halt::StageEnded) } else { Ok(state.is_drained()) }
    }

    /// The last transaction that is applied together with all before it.
    pub(crate) fn low(&self) -> u64 {
        self.lock().low
    }

    /// Where the replica is, and where the row of `spate.checkpoint` is. Only once the pool is drained.
    pub(crate) fn checkpoints(&self) -> (Checkpoint, Checkpoint) {
        let state = self.lock();
        (state.low_checkpoint.clone(), state.sealed.clone())
    }

    /// Adds a job, behind all others.
    pub(crate) fn add(&self, part: Part, waits: Waits) {
        let job = part.reached.seqno;
        let mut state = self.lock();
        state.bytes += weight(&part);
        state.transactions += part.hints.len();
        let is_open = |state: &State, on: &u64| {
            *on > state.written
                && (state.begun.contains_key(on) || state.ready.contains_key(on) || state.waiting.contains_key(on))
        };
        let on: Vec<u64> = waits.on.into_iter().filter(|on| is_open(&state, on)).collect();
        let mut missing = on.len();
        for on in on {
            state.dependents.entry(on).or_default().push(job);
        }
        if waits.after > state.low {
            missing += 1;
            state.behind.entry(waits.after).or_default().push(job);
        }
        match missing {
            0 => state.add_ready(part),
            _ => drop(state.waiting.insert(job, Waiting { part, missing })),
        }
        self.wake_idle(&mut state);
    }

    fn begin(&self, state: &mut State, executor: usize, part: &Part, mark: impl FnOnce(&mut Begun)) {
        let job = part.reached.seqno;
        let mut begun = Begun {
            executor,
            after_seqno: part.end.as_ref().map_or(0, |end| end.after_seqno),
            phase: Phase::Executing,
            is_counted: false,
            is_long: false,
            since: Instant::now(),
            oldest_seconds: part.oldest_seconds,
        };
        mark(&mut begun);
        state.begun.insert(job, begun);
        self.status.timeline().begin(job, part.gtid(), executor);
    }

    /// The row of `spate.checkpoint` is there.
    pub(crate) fn sealed(&self, checkpoint: Checkpoint) {
        let mut state = self.lock();
        state.is_sealing = false;
        state.sealed_seqno = checkpoint.seqno;
        state.sealed = checkpoint;
        self.room.notify_all();
    }

    /// The job has written the position, and its rows: until it is committed, the server has others wait for both. So the next one may write the
    /// position, and those that change the same rows may begin.
    pub(crate) fn wrote(&self, part: &Part) {
        let mut state = self.lock();
        state.written = part.end.as_ref().map_or(state.written, |end| end.checkpoint.seqno);
        let freed = state.dependents.remove(&part.reached.seqno).unwrap_or_default();
        state.free(freed);
        self.wake_next_turn(&state);
        self.wake_idle(&mut state);
    }

    /// The job is committed. Who has to move the checkpoint is told in the same moment: nobody may take the pool for drained, and move it too.
    pub(crate) fn commit(&self, part: &Part, net_row_changes: u64) -> Sealing {
        let mut state = self.lock();
        self.commit_in(&mut state, [(part, net_row_changes)]);
        let is_due = !state.keeps_order && !state.is_sealing && state.low >= state.sealed_seqno + SEAL_EVERY;
        state.is_sealing |= is_due;
        Sealing {
            sealed_seqno: state.sealed_seqno,
            moves: is_due.then(|| (state.sealed.clone(), state.low_checkpoint.clone())),
        }
    }

    /// These jobs are committed, in this order, with so many net row changes.
    pub(crate) fn commit_all<'p>(&self, jobs: impl IntoIterator<Item = (&'p Part, u64)>) {
        self.commit_in(&mut self.lock(), jobs);
    }

    fn commit_in<'p>(&self, state: &mut State, jobs: impl IntoIterator<Item = (&'p Part, u64)>) {
        for (part, net_row_changes) in jobs {
            self.end(state, part, net_row_changes);
        }
        while let Some(Done { end, batch }) = state.take_next_done() {
            self.progress.commit(&end);
            self.status.applied(&end.checkpoint, Some(&batch));
            state.low = end.checkpoint.seqno;
            state.low_checkpoint = end.checkpoint;
        }
        if let Some((_, oldest)) = state.begun.first_key_value() {
            self.status.applying(oldest.oldest_seconds);
        }
        let mut freed = vec![];
        while let Some(entry) = state.behind.first_entry()
            && *entry.key() <= state.low
        {
            freed.extend(entry.remove());
        }
        state.free(freed);
        self.wake_next_turn(state);
        self.wake_idle(state);
        if state.jobs() == 0 || state.is_full && self.has_room(state) {
            self.room.notify_all();
        }
        if state.is_ended() {
            self.wakes.iter().for_each(Condvar::notify_all);
        }
    }

    fn end(&self, state: &mut State, part: &Part, net_row_changes: u64) {
        let Some(end) = part.end.clone() else { return };
        let job = part.reached.seqno;
        state.end_execution(job);
        let begun = state.begun.remove(&job);
        state.long -= usize::from(begun.as_ref().is_some_and(|begun| begun.is_long));
        self.status.timeline().committed(job);
        state.bytes = state.bytes.saturating_sub(weight(part));
        state.transactions = state.transactions.saturating_sub(part.hints.len());
        let batch = BatchStatus {
            transactions: end.transactions,
            row_changes: part.batch.statistics.row_changes,
            net_row_changes,
            milliseconds: begun.map_or(0.0, |begun| begun.since.elapsed().as_secs_f64() * 1e3),
        };
        state.committed += end.transactions;
        state.done.insert(end.after_seqno, Done { end, batch });
        let freed = state.dependents.remove(&job).unwrap_or_default();
        state.free(freed);
    }

    /// Jobs are committed in the source's order.
    pub(crate) fn keeps_order(&self) -> bool {
        self.lock().keeps_order
    }

    /// How many transactions were committed.
    pub(crate) fn committed(&self) -> u64 {
        self.lock().committed
    }

    /// True if there are jobs that were not begun: the replica is what limits.
    pub(crate) fn is_limited(&self) -> bool {
        let state = self.lock();
        !state.ready.is_empty() || !state.waiting.is_empty()
    }

    /// So many may execute from now on.
    pub(crate) fn set_appliers(&self, appliers: usize) {
        let mut state = self.lock();
        let more = appliers.saturating_sub(state.appliers);
        state.appliers = appliers;
        // Each wakes the next if there is more to begin.
        if more > 0 {
            self.wake_idle(&mut state);
        }
    }

    /// Whose turn it is may wait for it.
    fn wake_next_turn(&self, state: &State) {
        let next = state.begun.values().take_while(|begun| begun.after_seqno <= state.turn()).last();
        if let Some(begun) = next.filter(|begun| begun.phase != Phase::Executing) {
            self.wakes[begun.executor].notify_all();
        }
    }

    fn wake_idle(&self, state: &mut State) {
        if state.may_begin()
            && let Some(executor) = state.idle.pop()
        {
            self.wakes[executor].notify_all();
        }
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.wakes.iter().for_each(Condvar::notify_all);
    }

    /// True if nothing more comes, and nothing is left or may go on.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.error.is_some() || state.is_closed && state.jobs() == 0
    }

    /// An executor has failed: the session ends.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.error.get_or_insert(error);
        self.over.store(true, Ordering::Release);
        drop(state);
        self.wakes.iter().for_each(Condvar::notify_all);
        self.room.notify_all();
    }

    /// Why an executor has failed. `None`: none has.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.lock().error.take()
    }

    /// If a job has executed for as long as this, and later ones wait for their turns: the executors of all that were begun, by their jobs.
    pub(crate) fn stalled(&self, patience: Duration) -> Option<BTreeMap<u64, usize>> {
        let state = self.lock();
        let is_stalled = |begun: &Begun| begun.phase == Phase::Executing && begun.since.elapsed() >= patience;
        let mut behind = state.begun.values().skip_while(|begun| !is_stalled(begun));
        let is_waited_for = behind.any(|begun| begun.phase == Phase::Executed);
        let all = || state.begun.iter().map(|(&job, begun)| (job, begun.executor)).collect();
        (state.keeps_order && is_waited_for).then(all)
    }

    /// These jobs hold back earlier ones: they are rolled back, if they wait for their turns.
    pub(crate) fn unwant(&self, jobs: &BTreeSet<u64>) {
        let mut state = self.lock();
        for job in jobs {
            if let Some(begun) = state.begun.get_mut(job).filter(|begun| begun.phase == Phase::Executed) {
                begun.phase = Phase::Unwanted;
                self.wakes[begun.executor].notify_all();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spate_binlog::{ChecksumAlgorithm, FormatDescription};
    use spate_replica::TransactionPlace;
    use spate_replica::reached::Reached;
    use spate_schedule::batch::Batch;
    use spate_schedule::depend::ParallelBy;

    use super::*;
    use crate::PartEnd;
    use crate::concurrent::Appliers;

    /// A job of all transactions from one place to another.
    fn job(from: u64, to: u64) -> Part {
        let at = |seqno| Checkpoint { seqno, ..Checkpoint::default() };
        Part {
            batch: Batch::default(),
            format: Arc::new(FormatDescription {
                server_version: String::new(),
                created_seconds: 0,
                post_header_lengths: vec![],
                checksum: ChecksumAlgorithm::None,
            }),
            server_id: 1,
            oldest_seconds: 0.0,
            from: at(from),
            hints: vec![],
            place: TransactionPlace::default(),
            reached: at(to),
            end: Some(PartEnd {
                checkpoint: at(to),
                after_seqno: from,
                transactions: to - from,
                skipped: vec![],
                ignored: 0,
                levels: false,
            }),
            is_followed: false,
            fingerprint: None,
            turn: None,
            passes_over: false,
        }
    }

    /// Who drains the pool moves the checkpoint, too: not while an executor is about to.
    #[test]
    fn pool_is_not_drained_until_the_checkpoint_is_where_an_executor_moves_it() {
        let (reached, over) = (Reached::default(), AtomicBool::new(false));
        let (progress, status) =
            (Progress::new(&reached), Status::new(String::new(), String::new(), Box::new(|_, _| {})));
        let parallel =
            Parallel { by: ParallelBy::WriteSet, appliers: Appliers::Number(1), keeps_order: false, group: 1 };
        let pool = Pool::new(&parallel, usize::MAX, &progress, &status, &over);
        let is_drained = || pool.is_drained_within(Duration::ZERO).unwrap();
        pool.begin_after(0, &Checkpoint::default());
        for (from, to, is_due) in [(0, SEAL_EVERY - 1, false), (SEAL_EVERY - 1, SEAL_EVERY, true)] {
            pool.add(job(from, to), Waits::default());
            let Next::Job(part) = pool.next(0) else { panic!("it is the only one") };
            assert!(!is_drained());
            let sealing = pool.commit(&part, 1);
            assert_eq!(sealing.sealed_seqno, 0);
            assert_eq!(is_drained(), !is_due);
            if let Some((from, to)) = sealing.moves {
                assert_eq!((from.seqno, to.seqno), (0, SEAL_EVERY));
                pool.sealed(to);
            }
        }
        assert!(is_drained());
        let (low, sealed) = pool.checkpoints();
        assert_eq!((low.seqno, sealed.seqno), (SEAL_EVERY, SEAL_EVERY));
    }
}

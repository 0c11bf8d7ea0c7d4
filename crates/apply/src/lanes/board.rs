//! Which batches are with the appliers, and which all of these have committed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spate_replica::checkpoint::Checkpoint;
use spate_replica::status::{ApplierStatus, BatchStatus, ShardingStatus, Status};
use spate_replica::{Error, Result};
use spate_schedule::shards::{ShardMap, Together};

use super::Sharding;
use crate::progress::Progress;
use crate::{Part, PartEnd};

/// Batches that are with appliers: what the fastest may be ahead of the slowest.
pub(super) const BATCHES_MAX: usize = 8;

/// What the divider, the appliers and the keeper know of each other.
#[derive(Debug)]
pub(crate) struct Board<'a> {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
    spread_max: Duration,
    delay_max: Duration,
    progress: &'a Progress<'a>,
    status: &'a Status,
    /// The session is over.
    over: &'a AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Those with appliers, oldest first.
    batches: VecDeque<Shared>,
    bytes: usize,
    /// What `spate.checkpoint` says of the replica as a whole.
    sealed: Checkpoint,
    loads: Vec<Load>,
    divided_by: String,
    together: [u64; 3],
    /// How long batches have waited for an applier that was too far behind, and how often they went on without it.
    waited: Duration,
    escapes: u64,
    error: Option<Error>,
    is_closed: bool,
}

/// A batch that is with appliers.
#[derive(Debug)]
struct Shared {
    end: PartEnd,
    oldest_seconds: f64,
    /// The appliers that have not committed their shares.
    left: BTreeSet<u32>,
    given: Instant,
    row_changes: u64,
    net_row_changes: u64,
    bytes: usize,
}

#[derive(Debug, Clone, Default)]
struct Load {
    shares: u64,
    net_row_changes: u64,
    busy: Duration,
    /// Commit time, on the source, of the last transaction of which it has applied all its rows.
    reached_seconds: u64,
    /// Schemas and tables that it was given.
    shards: Vec<String>,
}

/// What can be given to appliers now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It can; `is_beyond` if one of them is too far behind, and was waited for long enough.
    Free { is_beyond: bool },
    /// They have enough.
    Full,
    /// One of them is too far behind.
    Spread,
}

impl<'a> Board<'a> {
    pub(crate) fn new(
        sharding: &Sharding,
        bytes_max: usize,
        progress: &'a Progress<'a>,
        status: &'a Status,
        over: &'a AtomicBool,
    ) -> Board<'a> {
        let loads = vec![Load::default(); sharding.appliers as usize];
        Board {
            state: Mutex::new(State { loads, ..State::default() }),
            changed: Condvar::new(),
            bytes_max,
            spread_max: sharding.spread_max,
            delay_max: sharding.delay_max,
            progress,
            status,
            over,
        }
    }

    /// Nothing is with appliers, and the replica as a whole is here.
    pub(crate) fn begin_after(&self, from: &Checkpoint) {
        let mut state = self.lock();
        state.sealed.clone_from(from);
        state.loads.iter_mut().for_each(|load| load.reached_seconds = from.source_seconds);
    }

    /// Whether a batch that ends there can be given to appliers.
    pub(crate) fn room(&self, end_seconds: u64) -> Room {
        let state = self.lock();
        let Some(oldest) = state.batches.front() else { return Room::Free { is_beyond: false } };
        let is_beyond = end_seconds as f64 - oldest.oldest_seconds > self.spread_max.as_secs_f64();
        match () {
            () if state.batches.len() >= BATCHES_MAX || state.bytes >= self.bytes_max => Room::Full,
            () if is_beyond && oldest.given.elapsed() < self.delay_max => Room::Spread,
            () => Room::Free { is_beyond },
        }
    }

    /// Waits until something changes, or the time is over. False if the session ends.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let state = self.lock();
        if state.error.is_some() {
            return false;
        }
        drop(self.changed.wait_timeout(state, patience));
        !self.has_failed()
    }

    /// A batch has waited for so long because of the spread, and went on without the end of that, perhaps.
    pub(crate) fn count_wait(&self, waited: Duration, is_beyond: bool) {
        let mut state = self.lock();
        state.waited += waited;
        state.escapes += u64::from(is_beyond);
    }

    /// These appliers get shares of the part.
    pub(crate) fn give(&self, part: &Part, to: BTreeSet<u32>, bytes: usize, row_changes: u64) {
        let Some(end) = part.end.clone() else { return };
        let mut state = self.lock();
        state.bytes += bytes;
        state.batches.push_back(Shared {
            end,
            oldest_seconds: part.oldest_seconds,
            left: to,
            given: Instant::now(),
            row_changes,
            net_row_changes: 0,
            bytes,
        });
        if let Some(oldest) = state.batches.front() {
            self.status.applying(oldest.oldest_seconds);
        }
        self.status.sharding(state.report());
        self.changed.notify_all();
    }

    /// A batch is kept together.
    pub(crate) fn count_together(&self, why: Together) {
        self.lock().together[why as usize] += 1;
    }

    /// The applier has committed its share of the batch that ends so.
    pub(crate) fn commit(&self, applier: u32, end: &PartEnd, net_row_changes: u64, took: Duration) {
        let mut state = self.lock();
        let place = state.batches.iter().position(|shared| shared.end.checkpoint.seqno == end.checkpoint.seqno);
        if let Some(load) = state.loads.get_mut(applier as usize) {
            load.shares += 1;
            load.net_row_changes += net_row_changes;
            load.busy += took;
            load.reached_seconds = end.checkpoint.source_seconds;
        }
        if let Some(shared) = place.and_then(|place| state.batches.get_mut(place)) {
            shared.left.remove(&applier);
            shared.net_row_changes += net_row_changes;
        }
        self.changed.notify_all();
    }

    /// Waits until there is something to seal: from where to where the checkpoint of the replica as a whole is to be moved. `None` if the time is over
    /// first.
    pub(crate) fn wait_sealable(&self, patience: Duration) -> Option<(Checkpoint, Checkpoint)> {
        let is_waiting = |state: &mut State| state.sealable().is_none() && !state.is_over();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.sealable().map(|to| (state.sealed.clone(), to.clone()))
    }

    /// The checkpoint of the replica as a whole is there.
    pub(crate) fn sealed(&self, to: &Checkpoint) {
        let mut state = self.lock();
        while state.batches.front().is_some_and(|shared| shared.end.checkpoint.seqno <= to.seqno) {
            let Some(shared) = state.batches.pop_front() else { break };
            state.bytes = state.bytes.saturating_sub(shared.bytes);
            self.progress.measure(shared.row_changes, shared.given.elapsed());
            self.progress.commit(&shared.end);
            let batch = BatchStatus {
                transactions: shared.end.transactions,
                row_changes: shared.row_changes,
                net_row_changes: shared.net_row_changes,
                milliseconds: shared.given.elapsed().as_secs_f64() * 1e3,
            };
            self.status.applied(&shared.end.checkpoint, Some(&batch));
            self.status.left_out(&shared.end.skipped, shared.end.ignored);
        }
        if let Some(oldest) = state.batches.front() {
            self.status.applying(oldest.oldest_seconds);
        }
        state.sealed.clone_from(to);
        self.status.sharding(state.report());
        self.changed.notify_all();
    }

    /// True if nothing is with appliers, and the checkpoint of the replica as a whole says so.
    pub(crate) fn is_level(&self) -> bool {
        self.lock().batches.is_empty()
    }

    /// This is how rows are divided from now on.
    pub(crate) fn divide_by(&self, map: &ShardMap) {
        let mut state = self.lock();
        map.by.name().clone_into(&mut state.divided_by);
        for load in &mut state.loads {
            load.shards.clear();
        }
        for (shard, &applier) in &map.assigned {
            if let Some(load) = state.loads.get_mut(applier as usize) {
                load.shards.push(shard.clone());
            }
        }
        self.status.sharding(state.report());
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// True if nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Somebody has failed: the session ends.
    pub(crate) fn fail(&self, error: Error) {
        self.lock().error.get_or_insert(error);
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// True if the session ends because somebody has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().error.is_some()
    }

    /// What somebody has failed at.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.lock().error.take()
    }

    /// Takes what a stage has ended with.
    pub(crate) fn end(&self, ended: Result<()>) {
        if let Err(error) = ended {
            self.fail(error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Where the replica as a whole is, if that is beyond what was sealed.
    fn sealable(&self) -> Option<&Checkpoint> {
        let done = self.batches.iter().take_while(|shared| shared.left.is_empty());
        done.last().map(|shared| &shared.end.checkpoint)
    }

    fn is_over(&self) -> bool {
        self.error.is_some() || self.is_closed && self.batches.is_empty()
    }

    fn report(&self) -> ShardingStatus {
        let total: u64 = self.loads.iter().map(|load| load.net_row_changes).sum();
        let newest = self.loads.iter().map(|load| load.reached_seconds).max().unwrap_or_default();
        let appliers = (0..).zip(&self.loads).map(|(number, load)| {
            let waiting = self.batches.iter().filter(|shared| shared.left.contains(&number)).count();
            let behind = if waiting == 0 { 0 } else { newest.saturating_sub(load.reached_seconds) };
            ApplierStatus {
                applier: number + 1,
                shares: load.shares,
                row_changes: load.net_row_changes,
                load: load.net_row_changes as f64 / total.max(1) as f64,
                busy_seconds: load.busy.as_secs_f64(),
                waiting: waiting as u64,
                behind_seconds: behind as f64,
                shards: load.shards.clone(),
            }
        });
        let appliers: Vec<ApplierStatus> = appliers.collect();
        let most = appliers.iter().map(|applier| applier.load).fold(0.0, f64::max);
        let [statements, critical, order] = self.together;
        ShardingStatus {
            divided_by: self.divided_by.clone(),
            skew: most * appliers.len() as f64,
            waited_for_spread_seconds: self.waited.as_secs_f64(),
            went_on_beyond_spread: self.escapes,
            together_statements: statements,
            together_critical: critical,
            together_order: order,
            appliers,
        }
    }
}

//! The jobs that are not committed, as the pool keeps them under its lock.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use spate_replica::Error;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::status::BatchStatus;

use crate::{Part, PartEnd};

/// Where a job is that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Executing,
    /// It waits for its turn.
    Executed,
    /// The same, and it is in the way of an earlier one.
    Unwanted,
    /// It was rolled back, and waits for all before it.
    Deferred,
    Committing,
}

/// A job that was begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) executor: usize,
    pub(super) after_seqno: u64,
    pub(super) phase: Phase,
    pub(super) since: Instant,
    pub(super) oldest_seconds: f64,
}

/// A job that is about to be committed, while the session has not seen it.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) end: PartEnd,
    pub(super) batch: BatchStatus,
}

/// A job that waits for others.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) part: Part,
    /// How many it waits for; all up to one transaction count as one.
    pub(super) missing: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// This transaction and all before it are applied.
    pub(super) low: u64,
    /// The position of this transaction, or of a later one, is written and may not be committed.
    pub(super) written: u64,
    pub(super) low_checkpoint: Checkpoint,
    pub(super) waiting: HashMap<u64, Waiting>,
    pub(super) ready: BTreeMap<u64, Part>,
    /// By a job: those that wait for it.
    pub(super) dependents: HashMap<u64, Vec<u64>>,
    /// By a transaction: those that wait for it and all before it.
    pub(super) behind: BTreeMap<u64, Vec<u64>>,
    pub(super) begun: BTreeMap<u64, Begun>,
    pub(super) executing: usize,
    /// How many may execute.
    pub(super) appliers: usize,
    /// Transactions that were committed.
    pub(super) committed: u64,
    /// Committed, and some before them are not.
    pub(super) done: BTreeMap<u64, Done>,
    /// Executors that have nothing to do; the last to have had something comes last.
    pub(super) idle: Vec<usize>,
    pub(super) bytes: usize,
    pub(super) transactions: usize,
    /// Where the row of `spate.checkpoint` is.
    pub(super) sealed: Checkpoint,
    pub(super) sealed_seqno: u64,
    pub(super) is_sealing: bool,
    pub(super) is_closed: bool,
    pub(super) error: Option<Error>,
}

impl State {
    /// True if the first job that waits for none may begin: one whose turn it is may always, since all others may wait for it.
    pub(super) fn may_begin(&self) -> bool {
        let Some((_, first)) = self.ready.first_key_value() else { return false };
        self.executing < self.appliers || first.end.as_ref().is_some_and(|end| end.after_seqno <= self.low)
    }

    /// Jobs that are not committed.
    pub(super) fn jobs(&self) -> usize {
        self.waiting.len() + self.ready.len() + self.begun.len()
    }

    /// One of those that these wait for is out of their way.
    pub(super) fn free(&mut self, jobs: Vec<u64>) {
        for job in jobs {
            let Some(waiting) = self.waiting.get_mut(&job) else { continue };
            waiting.missing -= 1;
            if waiting.missing == 0
                && let Some(Waiting { part, .. }) = self.waiting.remove(&job)
            {
                self.ready.insert(job, part);
            }
        }
    }

    /// Nothing is left that an executor does.
    pub(super) fn is_drained(&self) -> bool {
        self.jobs() == 0 && !self.is_sealing
    }

    /// The job behind this transaction may be committed.
    pub(super) fn turn(&self) -> u64 {
        self.low.max(self.written)
    }

    pub(super) fn phase(&self, job: u64) -> Option<Phase> {
        self.begun.get(&job).map(|begun| begun.phase)
    }

    pub(super) fn enter(&mut self, job: u64, phase: Phase) {
        if let Some(begun) = self.begun.get_mut(&job) {
            begun.phase = phase;
        }
    }

    /// The job executes no more; true if it did.
    pub(super) fn end_execution(&mut self, job: u64) -> bool {
        let was_executing = self.phase(job) == Some(Phase::Executing);
        self.executing -= usize::from(was_executing);
        was_executing
    }

    /// Nothing more will begin.
    pub(super) fn is_ended(&self) -> bool {
        self.is_closed && self.ready.is_empty() && self.waiting.is_empty()
    }

    /// The job behind the watermark, if it is committed.
    pub(super) fn take_next_done(&mut self) -> Option<Done> {
        let entry = self.done.first_entry()?;
        (*entry.key() <= self.low).then(|| entry.remove())
    }
}

/// What a job counts for in memory: its rows are in the pool and, encoded, with its executor.
pub(super) fn weight(part: &Part) -> usize {
    const EACH: usize = 1 << 10;
    EACH + 2 * usize::try_from(part.batch.statistics.event_bytes).unwrap_or(usize::MAX / 4)
}

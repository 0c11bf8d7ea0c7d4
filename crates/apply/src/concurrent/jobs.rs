//! The jobs that are not committed, as the pool keeps them under its lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use spate_replica::Error;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::status::BatchStatus;

use crate::{Part, PartEnd};

/// A run has at most so many jobs, and so has a packet: its cost is spread over them, and few have to be sent again behind one that is refused.
pub(super) const RUN_JOBS_MAX: usize = 64;

/// And so many bytes. A job that has more by itself is a long one: it is executed beside the runs, ahead of its turn.
const RUN_BYTES_MAX: usize = 256 << 10;

/// So many long jobs are open beside the runs. It is the server's memory and locks that they take.
const LONG_AT_ONCE: usize = 8;

/// Where a job is that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is in a run, which waits for its turn, and has no locks yet.
    Prepared,
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
    /// It is one of those that execute, of which there are so many at most.
    pub(super) is_counted: bool,
    /// It is a long one beside the runs.
    pub(super) is_long: bool,
    pub(super) since: Instant,
    pub(super) oldest_seconds: f64,
}

/// A job that is about to be committed, while the session has not seen it.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) end: PartEnd,
    pub(super) batch: BatchStatus,
}

/// What an executor begins.
pub(super) enum Taken {
    /// It waits for none.
    Job(Box<Part>),
    /// The same, beside a run.
    Long(Box<Part>),
    /// Consecutive ones, which are executed one behind the other when it is the first one's turn.
    Run(Vec<Part>),
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
    pub(super) waiting: BTreeMap<u64, Waiting>,
    pub(super) ready: BTreeMap<u64, Part>,
    /// Those of them that are long.
    pub(super) ready_long: BTreeSet<u64>,
    /// By a job: those that wait for it.
    pub(super) dependents: HashMap<u64, Vec<u64>>,
    /// By a transaction: those that wait for it and all before it.
    pub(super) behind: BTreeMap<u64, Vec<u64>>,
    pub(super) begun: BTreeMap<u64, Begun>,
    pub(super) executing: usize,
    /// How many may execute.
    pub(super) appliers: usize,
    /// The executor that applies runs, while it has some.
    pub(super) run_holder: Option<usize>,
    /// Long jobs that were begun beside the runs.
    pub(super) long: usize,
    /// Jobs are committed in the source's order.
    pub(super) keeps_order: bool,
    /// Transactions that were committed.
    pub(super) committed: u64,
    /// Committed, and some before them are not.
    pub(super) done: BTreeMap<u64, Done>,
    /// Executors that have nothing to do; the last to have had something comes last.
    pub(super) idle: Vec<usize>,
    pub(super) bytes: usize,
    pub(super) transactions: usize,
    /// No more are taken until there is room for many.
    pub(super) is_full: bool,
    /// Where the row of `spate.checkpoint` is.
    pub(super) sealed: Checkpoint,
    pub(super) sealed_seqno: u64,
    pub(super) is_sealing: bool,
    pub(super) is_closed: bool,
    pub(super) error: Option<Error>,
}

impl State {
    /// True if something may begin.
    pub(super) fn may_begin(&self) -> bool {
        if self.applies_runs() {
            return self.may_begin_run() || self.may_begin_long();
        }
        // One whose turn it is may always, since all others may wait for it.
        let Some(first) = self.first_ready() else { return false };
        self.executing < self.appliers || first.end.as_ref().is_some_and(|end| end.after_seqno <= self.low)
    }

    /// Jobs are applied one after the other, many in a packet.
    fn applies_runs(&self) -> bool {
        self.keeps_order && self.appliers == 1
    }

    fn may_begin_run(&self) -> bool {
        self.run_holder.is_none() && self.first_not_begun().is_some()
    }

    /// Only beside a run, or if it comes next: whoever is free takes what comes next, else all would wait behind that.
    fn may_begin_long(&self) -> bool {
        let is_next = || self.ready_long.first().copied() == self.first_not_begun().map(|part| part.reached.seqno);
        self.long < LONG_AT_ONCE && !self.ready_long.is_empty() && (self.run_holder.is_some() || is_next())
    }

    fn first_ready(&self) -> Option<&Part> {
        self.ready.first_key_value().map(|(_, part)| part)
    }

    fn first_not_begun(&self) -> Option<&Part> {
        let waiting = self.waiting.first_key_value().map(|(_, waiting)| &waiting.part);
        match (self.first_ready(), waiting) {
            (Some(ready), Some(waiting)) if waiting.reached.seqno < ready.reached.seqno => Some(waiting),
            (ready, waiting) => ready.or(waiting),
        }
    }

    /// What an executor begins, if anything may begin.
    pub(super) fn take(&mut self) -> Option<Taken> {
        if !self.may_begin() {
            return None;
        }
        if !self.applies_runs() {
            let (&first, _) = self.ready.first_key_value()?;
            return self.remove_ready(first).map(|part| Taken::Job(Box::new(part)));
        }
        if let Some(&long) = self.ready_long.first()
            && self.may_begin_long()
        {
            self.long += 1;
            return self.remove_ready(long).map(|part| Taken::Long(Box::new(part)));
        }
        Some(Taken::Run(self.take_run()))
    }

    /// The run behind this transaction, if it can be taken now.
    pub(super) fn take_run_behind(&mut self, seqno: u64) -> Option<Vec<Part>> {
        let first = self.first_not_begun().filter(|_| self.applies_runs())?;
        let is_next = first.end.as_ref().is_some_and(|end| end.after_seqno == seqno);
        is_next.then(|| self.take_run())
    }

    fn take_run(&mut self) -> Vec<Part> {
        let mut run: Vec<Part> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.first_not_begun()
            && run.len() < RUN_JOBS_MAX
        {
            bytes += weight(next);
            if run.last().is_some_and(|last| bytes > RUN_BYTES_MAX || !next.follows(last)) {
                break;
            }
            let job = next.reached.seqno;
            let waiting = self.waiting.remove(&job).map(|waiting| waiting.part);
            run.extend(waiting.or_else(|| self.remove_ready(job)));
        }
        run
    }

    /// The job waits for none.
    pub(super) fn add_ready(&mut self, part: Part) {
        let job = part.reached.seqno;
        if weight(&part) > RUN_BYTES_MAX {
            self.ready_long.insert(job);
        }
        self.ready.insert(job, part);
    }

    fn remove_ready(&mut self, job: u64) -> Option<Part> {
        self.ready_long.remove(&job);
        self.ready.remove(&job)
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
                self.add_ready(part);
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

    pub(super) fn enter(&mut self, job: u64, phase: Phase) {
        if let Some(begun) = self.begun.get_mut(&job) {
            begun.phase = phase;
        }
    }

    /// The job executes no more; true if it did.
    pub(super) fn end_execution(&mut self, job: u64) -> bool {
        let begun = self.begun.get_mut(&job);
        let was_counted = begun.is_some_and(|begun| std::mem::take(&mut begun.is_counted));
        self.executing -= usize::from(was_counted);
        was_counted
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

impl Part {
    /// True if there is nothing between the other and this.
    fn follows(&self, other: &Part) -> bool {
        let ends = self.end.as_ref().zip(other.end.as_ref());
        ends.is_some_and(|(own, other)| own.after_seqno == other.checkpoint.seqno)
    }
}

/// What a job counts for in memory: its rows are in the pool and, encoded, with its executor.
pub(super) fn weight(part: &Part) -> usize {
    const EACH: usize = 1 << 10;
    EACH + 2 * usize::try_from(part.batch.statistics.event_bytes).unwrap_or(usize::MAX / 4)
}

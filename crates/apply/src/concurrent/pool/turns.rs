//! What the executors ask for, and wait for: jobs, and their turns.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use spate_replica::applier_lock::PING_EVERY;

use super::Pool;
use crate::Part;
use crate::concurrent::jobs::{Phase, State, Taken};

/// What an executor does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Applies this.
    Job(Box<Part>),
    /// Applies these, one behind the other.
    Run(Vec<Part>),
    /// Says something to its connection.
    Ping,
    /// Ends.
    End,
}

/// What becomes of a job that was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is committed: all before it are.
    Commit,
    /// It is rolled back, since it holds back an earlier one.
    RollBack,
    /// It goes on waiting, and says something to its connection meanwhile.
    Ping,
    /// The session ends.
    End,
}

impl Pool<'_> {
    /// What this executor does next; waits for it.
    pub(crate) fn next(&self, executor: usize) -> Next {
        let mut state = self.lock();
        if state.run_holder == Some(executor) {
            state.run_holder = None;
        }
        loop {
            if state.error.is_some() || state.is_ended() {
                return Next::End;
            }
            let taken = state.take();
            let is_long = matches!(taken, Some(Taken::Long(_)));
            match taken {
                None => {}
                Some(Taken::Job(part) | Taken::Long(part)) => {
                    state.executing += 1;
                    self.begin(&mut state, executor, &part, |begun| {
                        begun.is_counted = true;
                        begun.is_long = is_long;
                    });
                    self.wake_idle(&mut state);
                    return Next::Job(part);
                }
                Some(Taken::Run(run)) => {
                    state.run_holder = Some(executor);
                    for part in &run {
                        self.begin(&mut state, executor, part, |begun| begun.phase = Phase::Prepared);
                    }
                    self.wake_idle(&mut state);
                    return Next::Run(run);
                }
            }
            state.idle.push(executor);
            let timed_out;
            (state, timed_out) = self.sleep(executor, state);
            state.idle.retain(|&idle| idle != executor);
            if timed_out {
                return Next::Ping;
            }
        }
    }

    /// The run behind this transaction, which is the last of those that the executor applies. `None`: nothing is there yet that may follow it.
    pub(crate) fn next_run(&self, executor: usize, seqno: u64) -> Option<Vec<Part>> {
        let mut state = self.lock();
        if state.error.is_some() {
            return None;
        }
        let run = state.take_run_behind(seqno)?;
        for part in &run {
            self.begin(&mut state, executor, part, |_| {});
        }
        Some(run)
    }

    /// True if all before the job are committed, or about to be.
    pub(crate) fn is_its_turn(&self, part: &Part) -> bool {
        part.end.as_ref().is_some_and(|end| end.after_seqno <= self.lock().turn())
    }

    /// The job was executed and is not committed. Waits for its turn.
    pub(crate) fn wait_turn(&self, executor: usize, part: &Part) -> Turn {
        let job = part.reached.seqno;
        let mut state = self.lock();
        if state.end_execution(job) {
            self.wake_idle(&mut state);
        }
        if let Some(begun) = state.begun.get_mut(&job).filter(|begun| begun.phase == Phase::Executing) {
            begun.phase = Phase::Executed;
            self.status.timeline().executed(job);
        }
        loop {
            if state.error.is_some() {
                return Turn::End;
            }
            let turn = state.turn();
            let Some(begun) = state.begun.get_mut(&job) else { return Turn::End };
            if begun.phase == Phase::Unwanted {
                begun.phase = Phase::Deferred;
                return Turn::RollBack;
            }
            if begun.after_seqno <= turn {
                begun.phase = Phase::Committing;
                return Turn::Commit;
            }
            let timed_out;
            (state, timed_out) = self.sleep(executor, state);
            if timed_out {
                return Turn::Ping;
            }
        }
    }

    /// Waits for the turn of the run's first job.
    pub(crate) fn wait_run(&self, executor: usize, run: &[Part]) -> Turn {
        let mut state = self.lock();
        let after_seqno = run.first().and_then(|part| part.end.as_ref()).map_or(0, |end| end.after_seqno);
        loop {
            if state.error.is_some() {
                return Turn::End;
            }
            if after_seqno <= state.turn() {
                run.iter().for_each(|part| state.enter(part.reached.seqno, Phase::Executing));
                return Turn::Commit;
            }
            let timed_out;
            (state, timed_out) = self.sleep(executor, state);
            if timed_out {
                return Turn::Ping;
            }
        }
    }

    /// Waits to be woken; true if that takes so long that the connection should hear of its client.
    fn sleep<'s>(&self, executor: usize, state: MutexGuard<'s, State>) -> (MutexGuard<'s, State>, bool) {
        let waited = self.wakes[executor].wait_timeout(state, PING_EVERY);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, waited.timed_out())
    }

    /// The job was rolled back. Waits until all before it are committed.
    pub(crate) fn wait_late(&self, executor: usize, part: &Part) -> Turn {
        let job = part.reached.seqno;
        let mut state = self.lock();
        if state.end_execution(job) {
            self.wake_idle(&mut state);
        }
        state.enter(job, Phase::Deferred);
        self.status.timeline().rolled_back(job);
        loop {
            if state.error.is_some() {
                return Turn::End;
            }
            let low = state.low;
            let Some(begun) = state.begun.get_mut(&job) else { return Turn::End };
            if begun.after_seqno <= low {
                begun.phase = Phase::Executing;
                begun.is_counted = true;
                begun.since = Instant::now();
                state.executing += 1;
                return Turn::Commit;
            }
            let timed_out;
            (state, timed_out) = self.sleep(executor, state);
            if timed_out {
                return Turn::Ping;
            }
        }
    }
}

//! The supervisor's decisions when a session has ended. No I/O, no clock: it is told how the session went, and returns the next step.

use std::collections::BTreeSet;

use spate_apply::gather::GatherEnd;
use spate_apply::halt::Halt;
use spate_apply::limits::BatchLimits;
use spate_apply::plan::{PipelineWhen, SessionPlan};
use spate_apply::session::SessionReport;
use spate_replica::Error;
use spate_replica::lock_holders::LockWaits;
use spate_schedule::Surprise;

use crate::narrowing::{Narrowing, Pace};

/// Whether a session is retried after an error, how, and what a person is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Retried at once: the batch is taken apart, session by session, until the change that the replica refuses stands alone. A
    /// person is told once that a batch failed.
    Narrow,
    /// Not retried: the change stands alone, and the error names it. With repairs, everything before it is applied first.
    Name,
    /// Not retried: only a person can know how far a statement has come. The error asks for `--interrupted-statement`.
    Ask,
    /// Retried after a delay that grows, for as long as it takes. A person is told the error, and that Spate waits.
    Retry,
    /// Not retried: the run ends with the error, which says what to do.
    Stop,
}

impl Policy {
    /// The table of all errors.
    pub(crate) fn of(error: &Error) -> Policy {
        match error {
            Error::Batch { .. }
            | Error::RowsMissing { .. }
            | Error::Misfit { .. }
            | Error::SomeTransaction { .. }
            | Error::PacketTooLarge { .. } => Policy::Narrow,
            Error::Change { .. } if error.is_transient() => Policy::Retry,
            Error::Change { .. } | Error::Transaction { .. } => Policy::Name,
            Error::Interrupted { .. } => Policy::Ask,
            Error::Wire(_) | Error::Archive(_) if error.is_transient() => Policy::Retry,
            Error::Wire(_)
            | Error::Archive(_)
            | Error::Hold(_)
            | Error::NoTable { .. }
            | Error::NoStatus { .. }
            | Error::Surprising { .. }
            | Error::ChangeTooLarge { .. }
            | Error::Checkpoint { .. }
            | Error::Note { .. }
            | Error::Locked { .. }
            | Error::NoStart { .. }
            | Error::HalfDone { .. }
            | Error::NotPrepared { .. }
            | Error::CheckpointMoved { .. }
            | Error::TableLost { .. }
            | Error::Purged { .. }
            | Error::Unsuitable { .. }
            | Error::Check { .. }
            | Error::Privilege { .. }
            | Error::LockedOut { .. }
            | Error::Stream { .. }
            | Error::Unexplained
            | Error::Io { .. } => Policy::Stop,
        }
    }
}

/// What the supervisor does next.
#[derive(Debug)]
pub(crate) enum Directive {
    /// Begin another session at once.
    Continue(Said),
    /// Begin another session later.
    Retry {
        /// Why.
        error: Error,
        /// Waiting for a lock does not seem to help: name the sessions that hold locks.
        waits_in_vain: bool,
    },
    /// End without an error; the end was reached, or somebody asked Spate to stop.
    End {
        /// The end was reached.
        is_reached: bool,
    },
    /// End with this error.
    Stop(Error),
    /// End, because the intake has ended; the intake tells the reason.
    EndWithIntake,
}

/// What people are told before the next session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing.
    Nothing,
    /// An error that Spate deals with.
    Error(String),
    /// Something worth knowing.
    Note(&'static str),
}

/// How a session was to go, and how it went.
pub(crate) struct Session {
    /// How it went.
    pub(crate) report: SessionReport,
    /// It was to apply row by row.
    pub(crate) one_by_one: bool,
    /// It was to make one transaction a batch.
    pub(crate) is_alone: bool,
    /// It was to repair changes that an interruption had left half done.
    pub(crate) repairs: bool,
    /// Ordinal of the last transaction that the replica has.
    pub(crate) applied_seqno: u64,
}

/// What the supervisor knows of the sessions before.
#[derive(Debug)]
pub(crate) struct Supervision {
    narrowing: Narrowing,
    /// Transactions of which it is known what they turn out to be, by their ordinals.
    expected: BTreeSet<(u64, Surprise)>,
    /// The last transaction that can be applied, and why the one after it cannot. `None`: nothing is known to be wrong.
    known_error: Option<(u64, Error)>,
    /// Why the batch that was tried last was refused.
    refusal: Option<String>,
    lock_waits: LockWaits,
    /// The latest session has waited for a lock in vain: it may have been its own, of another connection.
    has_met_lock: bool,
}

impl Supervision {
    /// Before the first session. `repairs`: rows that differ are made what the source says.
    pub(crate) fn new(repairs: bool) -> Supervision {
        Supervision {
            narrowing: Narrowing::new(repairs),
            expected: BTreeSet::new(),
            known_error: None,
            refusal: None,
            lock_waits: LockWaits::default(),
            has_met_lock: false,
        }
    }

    /// How large the next session's batches are to be.
    pub(crate) fn pace(&self) -> Pace {
        self.narrowing.pace()
    }

    /// The last transaction that the next session is to apply. `None`: as many as come.
    pub(crate) fn last_seqno(&self) -> Option<u64> {
        let known_good = self.known_error.as_ref().map(|(seqno, _)| *seqno);
        [self.narrowing.last_seqno(), known_good].into_iter().flatten().min()
    }

    /// The plan of the next session. `base`: what all sessions of the run have in common.
    pub(crate) fn next_plan(&self, base: &SessionPlan) -> SessionPlan {
        let pace = self.pace();
        let one_by_one = pace.by_rows().is_some();
        let transactions_max = pace.batch_max().min(base.limits.transactions_max);
        SessionPlan {
            limits: BatchLimits { transactions_max, ..base.limits },
            one_by_one,
            repairs: base.repairs.filter(|_| one_by_one),
            last_seqno: [self.last_seqno(), base.last_seqno].into_iter().flatten().min(),
            transactions_max: pace.by_rows(),
            expected: self.expected.clone(),
            pipeline: if self.has_met_lock { PipelineWhen::Never } else { base.pipeline },
            ..base.clone()
        }
    }

    /// A session has ended. `is_end_applied` finds out whether everything up to the end of the run is applied.
    pub(crate) fn ended(&mut self, session: Session, is_end_applied: &dyn Fn() -> bool) -> Directive {
        let refused_before = self.refusal.take();
        let SessionReport { result, last_handed, last_applied, in_doubt } = session.report;
        let error = match result {
            Ok(GatherEnd::Stopped) => return Directive::End { is_reached: false },
            Ok(GatherEnd::Reached) => return self.reached(last_applied, session.repairs, is_end_applied),
            Err(Halt::StageEnded) => return Directive::EndWithIntake,
            Err(Halt::TurnedOut { seqno, surprise }) => {
                return self.gather_again(seqno, surprise, session.applied_seqno);
            }
            Err(Halt::ForeignKeysChanged) => {
                return Directive::Continue(Said::Note(
                    "the replica's foreign keys are others than its definitions said: reading all definitions again",
                ));
            }
            Err(Halt::Behind { seqno, error }) => {
                self.known_error = Some((seqno, error));
                return Directive::Continue(Said::Nothing);
            }
            Err(Halt::Failed(error)) => error,
        };
        self.has_met_lock = error.is_lock_conflict();
        match Policy::of(&error) {
            Policy::Narrow => self.narrow(error, in_doubt, last_handed),
            // A change that could not be repaired does not keep back the changes before it.
            Policy::Name
                if session.one_by_one && !session.is_alone && self.narrowing.refused(in_doubt, last_handed) =>
            {
                Directive::Continue(Said::Nothing)
            }
            Policy::Ask => Directive::Stop(half_done(error, refused_before)),
            Policy::Retry => {
                let waits_in_vain = self.lock_waits.is_in_vain(&error, session.applied_seqno);
                if waits_in_vain {
                    // Until the statement stands alone, and is named; everything before it is applied.
                    self.narrowing.refused(in_doubt, last_handed);
                }
                Directive::Retry { error, waits_in_vain }
            }
            Policy::Name | Policy::Stop => Directive::Stop(error),
        }
    }

    fn reached(&mut self, last_applied: u64, repairs: bool, is_end_applied: &dyn Fn() -> bool) -> Directive {
        let is_all = self.known_error.as_ref().is_none_or(|(seqno, _)| last_applied >= *seqno);
        match self.known_error.take_if(|_| is_all) {
            Some((_, error)) => Directive::Stop(error),
            None if is_end_applied() => Directive::End { is_reached: true },
            None if repairs || self.narrowing.reached(last_applied) => Directive::Continue(Said::Nothing),
            // An error that is known is never lost.
            None => match self.known_error.take() {
                Some((_, error)) => Directive::Stop(error),
                None => Directive::End { is_reached: true },
            },
        }
    }

    fn narrow(&mut self, error: Error, in_doubt: u64, last_handed: u64) -> Directive {
        let is_first = self.narrowing.pace() == Pace::Full;
        // Alone, too, the transaction fails before its first change: a privilege is missing, not a row.
        if !self.narrowing.refused(in_doubt, last_handed) {
            const GRANT: &str = "GRANT BINLOG REPLAY ON *.* TO <the user of Spate>";
            return Directive::Stop(match error {
                Error::Batch { source } => Error::from(source).with_missing_privilege("replay row changes", GRANT),
                other => other,
            });
        }
        self.refusal = Some(error.to_string());
        let how = "applying its transactions in ever smaller batches to find out which";
        Directive::Continue(match is_first {
            true => Said::Error(format!("a batch failed ({error}): {how}")),
            false => Said::Nothing,
        })
    }

    fn gather_again(&mut self, seqno: u64, surprise: Surprise, applied_seqno: u64) -> Directive {
        self.expected.retain(|(known, _)| *known > applied_seqno);
        // A transaction that turns out to be what it was expected to be would do so for ever.
        match self.expected.insert((seqno, surprise)) {
            true => Directive::Continue(Said::Nothing),
            false => Directive::Stop(Error::Surprising { seqno, surprise }),
        }
    }
}

/// A statement that this run has tried and the replica has refused is not unclear, but half done.
fn half_done(error: Error, refused_before: Option<String>) -> Error {
    match (error, refused_before) {
        (Error::Interrupted { gtid, place, statement }, Some(refusal)) => {
            Error::HalfDone { gtid, place, statement, refusal }
        }
        (error, _) => error,
    }
}

#[cfg(test)]
mod golden;

//! Two workers that apply batches in turn: while one batch executes and commits, the next is executed as far as it has nothing to do with it.
//!
//! ```text
//! gather (read, fold) ─▶ coordinator ─▶ alternator ─▶ two workers in turn ─▶ replica
//!                                          └─ what is more than rows, small, or read from disk ─▶ the worker, with nothing beside it
//! ```
//! The *alternator* divides each batch into the rows that may go ahead (`schedule/ahead.rs`) and the rest. A worker executes the first, waits until
//! the other has committed the batch before (its *turn*), executes the rest, and commits all in one transaction. So the replica still commits batch
//! after batch: readers see the same states as with one worker.

mod alternator;
mod pair;
mod turns;

/// When batches are executed before it is their turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PipelineWhen {
    /// While that makes applying faster: the replica is behind, and rows are found in its memory.
    #[default]
    Helpful,
    /// Whenever a batch is nothing but rows.
    Always,
    /// Never.
    Never,
}

pub(crate) use pair::Pair;
pub(crate) use turns::{Turn, Turns};

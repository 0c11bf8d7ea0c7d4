//! Transactions of the source that stay transactions of the replica, applied beside each other.
//!
//! ```text
//! gather ─▶ coordinator ─▶ dependencies ─job─▶ pool ─▶ executors, a connection each ─▶ replica
//!                 └─ what is more than rows ─▶ the worker, with nothing beside it
//! ```
//! A *job* is one transaction, or several that are committed together. The gathering stage ends a batch with each; `schedule/depend.rs` says which
//! earlier ones it waits for; an *executor* takes the oldest that waits for none. At most `appliers` of them execute at a time (`tuning.rs` can
//! find that number out). With the order
//! kept, one that has executed waits for its turn on its own connection, while another takes its place: a long transaction does not idle the
//! others, and only the number of open transactions has a bound.
//!
//! One applier with the order kept is a way of its own. Its executor takes *runs*: the jobs that come next, whatever they wait for, since those
//! are applied before them on the same connection. Many are in a packet, and the next packet is sent before this one is answered. Long jobs are
//! executed beside it, ahead of their turn.
//!
//! Locks may be in the way where keys are not: gaps, unique indexes. A job that is rolled back by that, or that holds back an earlier one, is
//! executed again once all before it are committed.

mod encoding;
mod executor;
mod front;
mod jobs;
mod lock_waits;
mod pool;
mod tuner;
mod tuning;

use spate_schedule::depend::ParallelBy;

pub(crate) use encoding::Encoder;
pub(crate) use executor::{Executor, Hand};
pub(crate) use front::Front;
pub(crate) use lock_waits::LockWaits;
pub(crate) use pool::Pool;
pub(crate) use tuner::Tuner;

/// With the order kept, so many transactions may be open for each that executes: a hundred short ones behind a long one with four appliers. Each
/// has a connection, which is made when it is first needed.
const OPEN_PER_APPLIER: usize = 32;

/// The most connections that apply: a server's default limit is 151.
pub const OPEN_MAX: usize = 128;

/// How many jobs execute at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appliers {
    /// So many; at least one.
    Number(usize),
    /// As many as are fastest.
    Auto,
}

impl Appliers {
    /// How many at most.
    fn most(self) -> usize {
        match self {
            Appliers::Number(number) => number,
            Appliers::Auto => tuning::LARGEST,
        }
    }
}

/// How transactions are applied beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallel {
    /// How parallelism is found.
    pub by: ParallelBy,
    /// How many execute at a time.
    pub appliers: Appliers,
    /// They are committed in the source's order.
    pub keeps_order: bool,
    /// So many consecutive transactions are committed together; at least one.
    pub group: u64,
}

impl Parallel {
    /// How many execute at first.
    fn first_appliers(&self) -> usize {
        match self.appliers {
            Appliers::Number(number) => number,
            Appliers::Auto => tuning::first(self.keeps_order),
        }
    }

    /// How many connections that takes.
    pub fn connections(&self) -> usize {
        match self.keeps_order {
            true => (self.appliers.most() * OPEN_PER_APPLIER).min(OPEN_MAX.max(self.appliers.most())),
            false => self.appliers.most(),
        }
    }
}

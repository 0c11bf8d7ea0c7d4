//! What was done, for people and programs.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters, from the beginning of the process.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) transactions: AtomicU64,
    pub(crate) row_changes: AtomicU64,
    pub(crate) passed_row_changes: AtomicU64,
    pub(crate) near_row_changes: AtomicU64,
    pub(crate) switched_off_row_changes: AtomicU64,
    pub(crate) statements: AtomicU64,
    pub(crate) ignored_statements: AtomicU64,
    pub(crate) recent_rows: AtomicU64,
    pub(crate) queries: AtomicU64,
    pub(crate) looked_up_rows: AtomicU64,
    pub(crate) dropped_queries: AtomicU64,
    pub(crate) slow_queries: AtomicU64,
    pub(crate) failed_queries: AtomicU64,
    pub(crate) restarts: AtomicU64,
}

/// Their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Transactions that were read from the relay logs.
    pub transactions: u64,
    /// Their row changes; a statement counts as one.
    pub row_changes: u64,
    /// Those that the applier had passed when they were read.
    pub passed_row_changes: u64,
    /// Those that were too near before the applier.
    pub near_row_changes: u64,
    /// Those that were not looked up since it did not help, or to find out whether it does.
    pub switched_off_row_changes: u64,
    /// Statements of the source that came near enough.
    pub statements: u64,
    /// Those of which nothing is looked up: they are no plain UPDATE or DELETE of one table that finds its rows by an index.
    pub ignored_statements: u64,
    /// Rows that were not looked up since they had been a short time ago.
    pub recent_rows: u64,
    /// Queries that were executed.
    pub queries: u64,
    /// Rows that they looked for.
    pub looked_up_rows: u64,
    /// Queries that were not executed since the applier had passed their rows.
    pub dropped_queries: u64,
    /// Queries that took longer than they may.
    pub slow_queries: u64,
    /// Queries that the server refused.
    pub failed_queries: u64,
    /// How often reading began again at the applier's place.
    pub restarts: u64,
}

impl Counters {
    /// The values now.
    pub fn values(&self) -> Counted {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            transactions: value(&self.transactions),
            row_changes: value(&self.row_changes),
            passed_row_changes: value(&self.passed_row_changes),
            near_row_changes: value(&self.near_row_changes),
            switched_off_row_changes: value(&self.switched_off_row_changes),
            statements: value(&self.statements),
            ignored_statements: value(&self.ignored_statements),
            recent_rows: value(&self.recent_rows),
            queries: value(&self.queries),
            looked_up_rows: value(&self.looked_up_rows),
            dropped_queries: value(&self.dropped_queries),
            slow_queries: value(&self.slow_queries),
            failed_queries: value(&self.failed_queries),
            restarts: value(&self.restarts),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

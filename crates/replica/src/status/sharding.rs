//! What each of several appliers has done.

use serde::{Deserialize, Serialize};

/// The appliers that divide the rows among themselves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardingStatus {
    /// What tables are divided by: `row` or `schema`.
    pub divided_by: String,
    /// The load of the busiest applier over the average: 1 is even, the number of appliers is the worst.
    pub skew: f64,
    /// How long batches waited for an applier that was more than `--max-spread` behind.
    pub waited_for_spread_seconds: f64,
    /// How often they went on without it, after `--max-delay`.
    pub went_on_beyond_spread: u64,
    /// Batches that one applier applied while the others waited, because they held more than rows.
    pub together_statements: u64,
    /// The same because of a critical table.
    pub together_critical: u64,
    /// The same because of row keys that changed in an order that no applier alone knows.
    pub together_order: u64,
    /// Each of them.
    pub appliers: Vec<ApplierStatus>,
}

/// One of several appliers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplierStatus {
    /// Its number, from 1.
    pub applier: u32,
    /// Its shares of batches that it has committed.
    pub shares: u64,
    /// Net row changes in them.
    pub row_changes: u64,
    /// The part of all appliers' row changes that is its own, up to 1.
    pub load: f64,
    /// How long it has applied, from a share's first statement to its commit.
    pub busy_seconds: f64,
    /// Shares that it was given and has not committed.
    pub waiting: u64,
    /// So much of the source's time is it behind the applier that is furthest.
    pub behind_seconds: f64,
    /// The schemas and tables that it was given, where they are given one after the other.
    pub shards: Vec<String>,
}

//! What a status page shows. Numbers are counters, which only grow while the process lives, or gauges, which say how something is now;
//! their units end their names, and a number without one counts what it is called.

use serde::{Deserialize, Serialize};

use super::sharding::ShardingStatus;
use super::timeline::JobTimes;

/// A place in the source's history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionStatus {
    /// The GTID position.
    pub gtid: String,
    /// The source's binlog file.
    pub file: String,
    /// Offset in it, in bytes.
    pub position: u64,
    /// Ordinal of the last transaction.
    pub seqno: u64,
}

/// What the last batch was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchStatus {
    /// Source transactions in it.
    pub transactions: u64,
    /// Row changes in the source's events.
    pub row_changes: u64,
    /// Row changes left after folding.
    pub net_row_changes: u64,
    /// From its first statement to its commit.
    pub milliseconds: f64,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorStatus {
    /// Seconds since 1970.
    pub at_seconds: u64,
    /// Which stage: `intake` or `applier`.
    pub stage: String,
    /// What happened, where, and what to do.
    pub message: String,
}

/// A transaction that was left out because somebody said so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedStatus {
    /// Its GTID.
    pub gtid: String,
    /// The source's binlog file.
    pub file: String,
    /// Offset of its end, in bytes.
    pub position: u64,
    /// When it was left out, in seconds since 1970.
    pub at_seconds: u64,
}

/// What is kept of the archive, and what was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeStatus {
    /// Files removed since the start.
    pub files: u64,
    /// Their bytes, without indexes.
    pub bytes: u64,
    /// When the last of them was removed, in seconds since 1970; 0 if none was.
    pub at_seconds: u64,
}

/// Everything at one moment. All groups are flat in JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Version of Spate.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// `user@host:port` of the source.
    pub source: String,
    /// `user@host:port` of the replica.
    pub replica: String,
    /// How row changes are written: `replay` or `sql`; empty before the first.
    #[serde(default)]
    pub dialect: String,
    /// What the intake is doing: `connecting`, `receiving`, `waiting: …`, `stopped`.
    pub intake: String,
    /// What the applier is doing, likewise.
    pub applier: String,
    /// How many transactions execute at a time, and why, where that is found out; else empty.
    #[serde(default)]
    pub appliers: String,
    /// How far source, archive and replica are.
    #[serde(flatten)]
    pub positions: Positions,
    /// How things are now.
    #[serde(flatten)]
    pub gauges: Gauges,
    /// What was done since the start.
    #[serde(flatten)]
    pub counters: Counters,
    /// The last batch.
    pub last_batch: BatchStatus,
    /// The latest of what a person may have to know, in words.
    #[serde(flatten)]
    pub notices: Notices,
    /// The appliers that divide the rows among themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharding: Option<ShardingStatus>,
    /// The latest transactions that were applied beside each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<JobTimes>,
}

/// How far source, archive and replica are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Positions {
    /// Received from the source and written to the archive.
    pub received: PositionStatus,
    /// Safe on the archive's disk.
    pub durable: PositionStatus,
    /// Committed on the replica.
    pub applied: PositionStatus,
}

/// Gauges: how things are now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gauges {
    /// Since the process started.
    pub uptime_seconds: f64,
    /// Age of the oldest transaction that was received and not applied; 0 if there is none. MariaDB's binlog tells whole
    /// seconds only.
    pub lag_seconds: f64,
    /// How many transactions were received and not applied.
    pub lag_transactions: u64,
    /// Transactions applied, over the last seconds.
    pub transactions_per_second: f64,
    /// Source row changes applied, over the last seconds.
    pub row_changes_per_second: f64,
    /// Bytes received from the source, over the last seconds.
    pub received_bytes_per_second: f64,
}

/// Counters, since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Transactions applied.
    pub transactions: u64,
    /// Source row changes applied.
    pub row_changes: u64,
    /// Net row changes applied.
    pub net_row_changes: u64,
    /// Batches committed.
    pub batches: u64,
    /// Bytes received from the source.
    pub received_bytes: u64,
    /// Transactions left out because of the server that they come from.
    #[serde(default)]
    pub ignored_transactions: u64,
    /// Row changes whose pages other connections read before they were applied.
    #[serde(default)]
    pub prefetched_row_changes: u64,
    /// Net row changes that were executed while the batch before theirs was not committed.
    #[serde(default)]
    pub executed_ahead_row_changes: u64,
    /// Row changes repaired.
    #[serde(default)]
    pub repairs: u64,
    /// Changed tables that have no primary key and no unique key of columns that are NOT NULL.
    #[serde(default)]
    pub tables_without_key: u64,
    /// What was removed from the archive.
    #[serde(default)]
    pub purged: PurgeStatus,
}

/// The latest of what a person may have to know, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notices {
    /// Transactions that were left out because somebody said so.
    #[serde(default)]
    pub skipped: Vec<SkippedStatus>,
    /// Repairs.
    #[serde(default)]
    pub latest_repairs: Vec<String>,
    /// Names of changed tables without a key.
    #[serde(default)]
    pub latest_tables_without_key: Vec<String>,
    /// Errors and warnings.
    pub errors: Vec<ErrorStatus>,
}

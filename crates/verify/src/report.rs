//! What a comparison found. Everything serialises, for programs that read it.

use serde::Serialize;

/// The outcome of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where both servers were read.
    pub position: Position,
    /// One entry per table that exists on either side and was not filtered out, by name.
    pub tables: Vec<TableReport>,
    /// Rows of the source that were compared.
    pub rows_compared: u64,
    /// How long it took.
    pub seconds: f64,
    /// How long the applier was held for it; 0 if it was not.
    pub hold_seconds: f64,
    /// Pairs of connections that compared. Fewer than asked for if a busy source gave no more snapshots at one position.
    pub connections: usize,
}

impl Report {
    /// True if no table differs.
    pub fn is_identical(&self) -> bool {
        self.tables.iter().all(|table| matches!(table.verdict, Verdict::Identical))
    }
}

/// Where the servers were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Position {
    /// True if both snapshots have provably the same position.
    pub is_exact: bool,
    /// The source snapshot's GTID position, if known.
    pub source_gtid: Option<String>,
    /// The source snapshot's binlog file, if known.
    pub source_file: Option<String>,
    /// The source snapshot's offset in that file, if known.
    pub source_offset: Option<u64>,
    /// The position that the replica's snapshot says it has, if known.
    pub replica_gtid: Option<String>,
}

/// What was found of one table.
#[derive(Debug, Clone, Serialize)]
pub struct TableReport {
    /// The schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// Whether it is the same on both sides.
    pub verdict: Verdict,
    /// Columns that only the replica has, behind the others. Their values were not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_columns: Vec<String>,
    /// Rows on the source; 0 if they were not counted.
    pub source_rows: u64,
    /// Rows on the replica; 0 if they were not counted.
    pub replica_rows: u64,
    /// False if the table's engine has no snapshots: then the table was read as it was at that moment.
    pub is_in_snapshot: bool,
}

/// Whether a table is the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The replica has the same columns, or more behind them; the same rows.
    Identical,
    /// Same columns, other rows.
    RowsDiffer(RowDifferences),
    /// Other columns; the rows were not compared.
    ColumnsDiffer {
        /// One sentence for each difference.
        differences: Vec<String>,
    },
    /// Only on the source.
    MissingOnReplica,
    /// Only on the replica.
    MissingOnSource,
}

/// Which rows differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RowDifferences {
    /// The key ranges whose hashes differ, in key order.
    pub ranges: Vec<KeyRange>,
    /// The rows that differ; 0 for a table without a usable key, where rows cannot be told apart. At least so many if one row has more
    /// versions than can be held.
    pub rows: u64,
    /// The first of them.
    pub keys: Vec<DifferingKey>,
}

/// A part of a table: all keys above `after`, up to and including `up_to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyRange {
    /// Exclusive; `None` is from the table's beginning.
    pub after: Option<String>,
    /// Inclusive; `None` is to the table's end.
    pub up_to: Option<String>,
    /// Rows of the source in it.
    pub source_rows: u64,
    /// Rows of the replica in it.
    pub replica_rows: u64,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DifferingKey {
    /// The key, as `column=value`, comma-separated.
    pub key: String,
    /// How it differs.
    pub difference: RowDifference,
}

/// How a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowDifference {
    /// On both sides, with other contents.
    Contents,
    /// Only on the source.
    MissingOnReplica,
    /// Only on the replica.
    MissingOnSource,
}

//! The result of a comparison. All of it serialises, for programs that read it.

use serde::Serialize;

/// The outcome of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The position of both servers' snapshots.
    pub position: Position,
    /// One entry per table that exists on either side and was not filtered out, by name.
    pub tables: Vec<TableReport>,
    /// Rows of the source that were compared.
    pub rows_compared: u64,
    /// Duration of the comparison.
    pub seconds: f64,
    /// Duration of the hold; 0 if there was none.
    pub hold_seconds: f64,
    /// Pairs of connections that compared. Fewer than requested if a busy source gave no more snapshots at one
    /// position.
    pub connections: usize,
}

impl Report {
    /// True if no table differs.
    pub fn is_identical(&self) -> bool {
        self.tables.iter().all(|table| matches!(table.verdict, Verdict::Identical))
    }
}

/// The positions of the servers' snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Position {
    /// True if both snapshots are known to have the same position.
    pub is_exact: bool,
    /// The source snapshot's GTID position, if known.
    pub source_gtid: Option<String>,
    /// The source snapshot's binlog file, if known.
    pub source_file: Option<String>,
    /// The source snapshot's offset in that file, if known.
    pub source_offset: Option<u64>,
    /// The position that the replica's snapshot contains, if known.
    pub replica_gtid: Option<String>,
}

/// The result of one table.
#[derive(Debug, Clone, Serialize)]
pub struct TableReport {
    /// The schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// Whether it is the same on both sides.
    pub verdict: Verdict,
    /// Columns that only the replica has, after the others. Their values were not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_columns: Vec<String>,
    /// Rows on the source; 0 if they were not counted.
    pub source_rows: u64,
    /// Rows on the replica; 0 if they were not counted.
    pub replica_rows: u64,
    /// False if the table's engine has no snapshots: then Spate read the table as it was at that moment.
    pub is_in_snapshot: bool,
}

/// Whether a table is the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The replica has the same columns, or more after them, and the same rows.
    Identical,
    /// The columns are the same, but the rows differ.
    RowsDiffer(RowDifferences),
    /// The columns differ; the rows were not compared.
    ColumnsDiffer {
        /// One sentence for each difference.
        differences: Vec<String>,
    },
    /// Only the source has the table.
    MissingOnReplica,
    /// Only the replica has the table.
    MissingOnSource,
}

/// The rows that differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RowDifferences {
    /// The key ranges whose hashes differ, in key order.
    pub ranges: Vec<KeyRange>,
    /// The number of rows that differ; 0 for a table without a usable key, whose rows have no identity. A lower bound
    /// if one row has more versions than fit in memory.
    pub rows: u64,
    /// The keys of the first of them.
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
    /// Both sides have the row, with different contents.
    Contents,
    /// Only the source has the row.
    MissingOnReplica,
    /// Only the replica has the row.
    MissingOnSource,
}

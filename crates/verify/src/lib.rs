//! Compares a source and a replica, table by table, at exactly the same position.
//!
//! The tour, in the order of a comparison:
//! - `hold`: how an applier is asked to wait at the source snapshot's position;
//! - `snapshot`: sessions on the source that all read one state, whose position is known;
//! - `meet`: both servers' snapshots, brought to one position;
//! - `catalog`: the tables on both sides, and whether their columns are alike;
//! - `digest`: the SQL that hashes ranges of rows;
//! - `compare`: ranges hashed on both sides, in parallel; [`Report`] says what differs.
//!
//! Privileges. On the source: SELECT on what is compared; BINLOG ADMIN, so that nobody's DDL waits for the comparison; RELOAD
//! only if it is too busy to give several snapshots one position otherwise. On the replica: SELECT on what is compared and
//! on `spate.checkpoint`; SELECT, INSERT, UPDATE, DELETE on `spate.hold`; BINLOG ADMIN as on the source, and to keep the
//! request out of the replica's own binlog; READ_ONLY ADMIN lets it through on a replica that is read-only. The snapshots are long transactions: until the end, both servers keep old row versions.

use std::time::{Duration, Instant};

use spate_connection::endpoint::Endpoint;

mod catalog;
mod compare;
mod digest;
mod error;
mod hold;
mod meet;
mod report;
mod snapshot;
#[cfg(test)]
mod tests;

pub use catalog::TableName;
pub use error::{Error, Result};
pub use report::{DifferingKey, KeyRange, Position, Report, RowDifference, RowDifferences, TableReport, Verdict};

/// What to compare, and how.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The source.
    pub source: Endpoint,
    /// The replica.
    pub replica: Endpoint,
    /// Pairs of connections that compare at the same time.
    pub connections: usize,
    /// Compare the tables of these schemas. With no schemas and no tables, all are compared.
    pub schemas: Vec<String>,
    /// Compare these tables.
    pub tables: Vec<TableName>,
    /// Rows hashed in one piece; fewer of wide rows.
    pub range_rows: u64,
    /// How many differing keys to report per table.
    pub differing_keys_max: usize,
    /// Compare whatever the positions are. Differences may then be changes on their way.
    pub without_position: bool,
    /// How long to wait for the applier to stop, and again for it to reach the source's position.
    pub catch_up_timeout: Duration,
}

impl VerifyOptions {
    /// Everything, over four pairs of connections.
    pub fn new(source: Endpoint, replica: Endpoint) -> VerifyOptions {
        VerifyOptions {
            source,
            replica,
            connections: 4,
            schemas: Vec::new(),
            tables: Vec::new(),
            range_rows: 20_000,
            differing_keys_max: 100,
            without_position: false,
            catch_up_timeout: Duration::from_secs(300),
        }
    }
}

/// What a comparison is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The applier is asked to stop.
    Holding,
    /// The replica is on its way to the source snapshot's position.
    CatchingUp {
        /// That position.
        position: String,
    },
    /// Rows are compared.
    Comparing {
        /// Rows of the source compared so far.
        rows_compared: u64,
        /// How many there are, by the source's rough statistics.
        rows_estimated: u64,
    },
}

/// Who is told of the progress; from several threads.
pub type ProgressSink<'a> = &'a (dyn Fn(&Progress) + Sync);

/// Compares. That the servers differ is not an error: [`Report::is_identical`] says it.
///
/// # Errors
/// Whatever kept the comparison from being made; see [`Error`].
pub fn run(options: &VerifyOptions, progress: ProgressSink<'_>) -> Result<Report> {
    let begun = Instant::now();
    let filter = catalog::Filter { schemas: options.schemas.clone(), tables: options.tables.clone() };
    let mut meeting = meet::meet(options, &filter, progress)?;
    if let Some(name) = filter.unknown(&meeting.source_catalog, &meeting.replica_catalog) {
        return Err(Error::NothingToCompare { name });
    }
    meeting.choose_hash();
    let sizes = catalog::read_sizes(&mut meeting.source_control, &filter)?;
    let tables = compare::compare(&mut meeting, sizes, options, progress)?;
    Ok(Report {
        position: meeting.position,
        rows_compared: tables.iter().map(|table| table.source_rows).sum(),
        tables,
        seconds: begun.elapsed().as_secs_f64(),
        hold_seconds: meeting.hold_seconds,
        connections: meeting.source.len(),
    })
}

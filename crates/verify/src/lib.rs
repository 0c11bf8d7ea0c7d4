//! Compares a source and a replica, table by table, at exactly the same position.
//!
//! The tour, in the order of a comparison:
//! - `hold`: asks an applier to wait at the source snapshot's position;
//! - `snapshot`: sessions on the source that all read one state, whose position is known;
//! - `meet`: brings both servers' snapshots to one position;
//! - `catalog`: the tables on both sides, and whether their columns are alike;
//! - `digest`: the SQL that hashes ranges of rows;
//! - `compare`: hashes ranges on both sides, in parallel; [`Report`] lists the differences.
//!
//! Privileges on the source:
//! - SELECT on the compared tables;
//! - BINLOG ADMIN, so that no client's DDL waits for the comparison;
//! - RELOAD, only if the source is too busy to give several snapshots one position otherwise.
//!
//! Privileges on the replica:
//! - SELECT on the compared tables and on `spate.checkpoint`;
//! - SELECT, INSERT, UPDATE, DELETE on `spate.hold`;
//! - BINLOG ADMIN, as on the source, and to keep the hold out of the replica's own binlog;
//! - READ_ONLY ADMIN, to write the hold on a replica that is read-only.
//!
//! The snapshots are long transactions: until the comparison ends, both servers keep old row versions.

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

/// The tables to compare, and how to compare them.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The source.
    pub source: Endpoint,
    /// The replica.
    pub replica: Endpoint,
    /// Pairs of connections that compare at the same time.
    pub connections: usize,
    /// Compare the tables of these schemas. If both `schemas` and `tables` are empty, compare all tables.
    pub schemas: Vec<String>,
    /// Compare these tables.
    pub tables: Vec<TableName>,
    /// Rows in one range; a range of wide rows has fewer.
    pub range_rows: u64,
    /// How many differing keys to report per table.
    pub differing_keys_max: usize,
    /// Compare even if the positions differ. A reported difference may then be a change that the replica has yet to
    /// apply.
    pub without_position: bool,
    /// How long to wait for the applier to stop, and again for it to reach the source's position.
    pub catch_up_timeout: Duration,
}

impl VerifyOptions {
    /// Compares all tables, over four pairs of connections.
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

/// A step of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Asks the applier to stop.
    Holding,
    /// Waits until the replica reaches the source snapshot's position.
    CatchingUp {
        /// The source snapshot's GTID position.
        position: String,
    },
    /// Compares rows.
    Comparing {
        /// Rows of the source compared so far.
        rows_compared: u64,
        /// Rows of the source in all, by its rough statistics.
        rows_estimated: u64,
    },
}

/// Gets the progress; several threads call it.
pub type ProgressSink<'a> = &'a (dyn Fn(&Progress) + Sync);

/// Compares the two servers. A difference is not an error: see [`Report::is_identical`].
///
/// # Errors
/// Any [`Error`] that prevents the comparison.
pub fn run(options: &VerifyOptions, progress: ProgressSink<'_>) -> Result<Report> {
    let begun = Instant::now();
    let filter = catalog::Filter { schemas: options.schemas.clone(), tables: options.tables.clone() };
    let mut meeting = meet::meet(options, &filter, progress)?;
    if let Some(name) = filter.find_unknown_name(&meeting.source_catalog, &meeting.replica_catalog) {
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

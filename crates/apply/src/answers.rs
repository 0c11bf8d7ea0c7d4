//! Answers of the replica, held against what was expected of them.

use spate_binlog::RowsKind;
use spate_connection::{CODE_DEADLOCK, CODE_LOCK_WAIT, Connection, Peer};
use spate_replica::checkpoint::CODE_MOVED;
use spate_replica::{Error, Result};

use super::command::{Change, Execution, Expected, RowCheck};
use super::sessions::refusal;

/// "Unknown table", "Unknown SEQUENCE", "Unknown VIEW", "database doesn't exist", "Trigger does not exist", of a DROP.
const CODES_UNKNOWN: [u16; 5] = [1051, 4091, 4092, 1008, 1360];
const CODE_ROW_NOT_FOUND: u16 = 1032;
pub(crate) const CODE_DUPLICATE_KEY: u16 = 1062;
/// A duplicate, of a key that is not named, of one that is, and with its name.
const CODES_DUPLICATE: [u16; 3] = [1022, CODE_DUPLICATE_KEY, 1586];
const CODE_DATA_TRUNCATED: u16 = 1265;

/// True if a server has said that it did not execute a statement, and nobody has interrupted it.
pub(crate) fn is_final_refusal(error: &spate_connection::Error) -> bool {
    /// Other sessions held a lock.
    const LOCK_CODES: [u16; 2] = [CODE_LOCK_WAIT, CODE_DEADLOCK];
    error
        .code()
        .is_some_and(|code| !spate_connection::ServerError::is_transient_code(code) || LOCK_CODES.contains(&code))
}

/// Holds an answer against what was expected.
pub(crate) fn answered(
    connection: &Connection,
    answer: spate_connection::Result<()>,
    execution: Execution,
) -> Result<()> {
    compare_with_expected(connection, answer, execution.expected).map_err(|error| refused(error, execution.change))
}

/// The same, of an answer whose error is not told yet.
pub(crate) fn compare_with_expected(
    connection: &Connection,
    answer: spate_connection::Result<()>,
    expected: Expected,
) -> spate_connection::Result<()> {
    match (answer, expected) {
        (Ok(()), Expected::Failure(code)) => Err(refusal(
            connection,
            code,
            "the statement ended with this error on the source, and succeeds here".into(),
        )),
        (Err(error), Expected::Failure(code)) if error.code().is_some_and(|actual| is_same_refusal(actual, code)) => {
            Ok(())
        }
        (Err(error), Expected::Gone) if error.code().is_some_and(|code| CODES_UNKNOWN.contains(&code)) => Ok(()),
        (answer, _) => answer,
    }
}

/// Looks whether statements found the rows that they were to change, and wrote values as they are.
pub(crate) fn checked(
    connection: &Connection,
    outcome: &spate_connection::Outcome,
    checks: &[RowCheck],
) -> spate_connection::Result<()> {
    for check in checks {
        let Some(statement) = outcome.each.get(check.statement) else {
            return Err(refusal(connection, CODE_ROW_NOT_FOUND, "an answer is missing".to_owned()));
        };
        let (verb, found) = match check.kind {
            RowsKind::Insert => ("insert into", statement.affected_rows),
            RowsKind::Update => ("update in", statement.matched_rows.unwrap_or(statement.affected_rows)),
            RowsKind::Delete => ("delete from", statement.affected_rows),
        };
        if found != check.rows {
            let message = format!("of {} rows to {verb} {}, {found} were found", check.rows, check.table);
            return Err(refusal(connection, CODE_ROW_NOT_FOUND, message));
        }
        if check.warnings.is_some_and(|warnings| warnings != statement.warnings) {
            let message = format!("a value for {} would not be stored as it is", check.table);
            return Err(refusal(connection, CODE_DATA_TRUNCATED, message));
        }
    }
    Ok(())
}

/// True if a server may say the one where another says the other: which of several it finds first is up to it.
fn is_same_refusal(actual: u16, expected: u16) -> bool {
    actual == expected || CODES_DUPLICATE.contains(&actual) && CODES_DUPLICATE.contains(&expected)
}

/// From `Records: 3  Deleted: 0  Skipped: 1  Warnings: 1`.
pub(crate) fn skipped_rows(info: &str) -> u64 {
    let skipped = info.split_once("Skipped: ").map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
    skipped.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Names a refusal because the checkpoint is not where it was left; others become what `otherwise` makes of them.
pub(crate) fn refused_checkpoint(
    error: spate_connection::Error,
    replica: &Peer,
    otherwise: impl FnOnce(spate_connection::Error) -> Error,
) -> Error {
    match error.code() {
        Some(CODE_MOVED) => Error::CheckpointMoved { replica: replica.to_string() },
        _ => otherwise(error),
    }
}

/// Gives a server's refusal its place, if that is known; otherwise the next session takes the batch apart.
pub(crate) fn refused(source: spate_connection::Error, change: Option<Change>) -> Error {
    let is_named = source.code() == Some(CODE_LOCK_WAIT) && change.is_some();
    if source.server_error().is_none() || source.is_transient() && !is_named {
        return source.into();
    }
    match change {
        Some(Change { place, what, has_shares, .. }) => {
            let advice = advice(source.code());
            Error::Change { has_shares, place, change: what, source, advice }
        }
        None => Error::Batch { source },
    }
}

/// Advice about a refused change, by the server's error number.
fn advice(code: Option<u16>) -> &'static str {
    match code {
        Some(1032) => {
            "The row is missing on the replica: somebody deleted it there, or the replica began at a wrong position. \
             --on-conflict repair makes rows what the source says; --skip leaves this transaction out"
        }
        Some(1062) => {
            "The row is on the replica already: somebody wrote there, or the replica began at a wrong position. \
             --on-conflict repair makes rows what the source says; --skip leaves this transaction out"
        }
        // The server does not say more when a replayed row does not fit.
        Some(1105 | 1677) => {
            "The replica's table may have columns of other types, to which the source's values cannot be converted: compare SHOW \
             CREATE TABLE on both. (slave_type_conversions=ALL_NON_LOSSY on the replica allows wider types.)"
        }
        Some(1146) => "The table is missing on the replica",
        Some(1153) => "Raise max_allowed_packet on the replica",
        // A path that is none: see how changes of documents are written.
        Some(3143) => {
            "The JSON document on the replica is not the one that the source changed: compare the replica with the source (spate \
             verify)"
        }
        Some(CODE_LOCK_WAIT | CODE_DEADLOCK) => "Other sessions write to the replica",
        Some(1290 | 1836) => "The replica is read-only for this user: it needs the privilege READ_ONLY ADMIN",
        Some(1044 | 1142 | 1143 | 1227 | 1370 | 1698) => "The user of Spate lacks a privilege on the replica",
        _ => "Compare the replica with the source (spate verify), or leave this transaction out (--skip)",
    }
}

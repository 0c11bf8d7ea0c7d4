//! Spate's own schema on the replica: all its tables, created together where any is missing.

use crate::error::{Error, Result};
use crate::{applier_lock, checkpoint, hold_request, journal, lock_names, records, temporary, told_defaults};
use spate_connection::Connection;

const GRANT: &str = "GRANT ALL PRIVILEGES ON spate.* TO <the user of Spate>";

const CREATE_SCHEMA: &str = "CREATE DATABASE IF NOT EXISTS spate";

/// Each table's name, and the statement that creates it.
const TABLES: [(&str, &str); 11] = [
    ("checkpoint", checkpoint::CREATE_TABLE),
    ("lock_name", lock_names::CREATE_TABLE),
    ("session", applier_lock::CREATE_TABLE),
    ("intent", journal::CREATE_TABLE),
    ("prepared", journal::CREATE_PREPARED_TABLE),
    ("hold", hold_request::CREATE_TABLE),
    ("skipped", records::CREATE_SKIPPED),
    ("repaired", records::CREATE_REPAIRED),
    ("temporary_table", temporary::CREATE_TABLE),
    ("temporary_row", temporary::CREATE_ROWS),
    ("session_state", told_defaults::CREATE_TABLE),
];

/// Creates missing tables. Usually none is missing, and one question finds that out.
///
/// # Errors
/// Any error of the connection; a missing privilege names the GRANT.
pub fn create(connection: &mut Connection) -> Result<()> {
    let names = TABLES.map(|(name, _)| format!("'{name}'")).join(", ");
    let present = connection.query(&format!(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'spate' AND TABLE_NAME IN ({names})"
    ))?;
    if present.single_text() == Some(TABLES.len().to_string()) {
        return Ok(());
    }
    let mut create = |sql: &str| {
        let created = connection.execute(sql.as_bytes());
        created.map_err(|error| Error::from(error).with_missing_privilege("create Spate's own schema", GRANT))
    };
    create(CREATE_SCHEMA)?;
    for (_, sql) in TABLES {
        create(sql)?;
        spate_archive::stopping_point("after-own-table");
    }
    Ok(())
}

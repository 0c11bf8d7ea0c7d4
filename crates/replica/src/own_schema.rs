//! Spate's own schema on the replica: all its tables, created together where any is missing.

use crate::checkpoint::position_type;
use crate::error::{Error, Result};
use crate::hold_request::until_position;
use crate::{
    applier_lock, checkpoint, hold_request, journal, lock_names, new_source, records, sharding, spread, temporary,
    told_defaults,
};
use spate_connection::Connection;

/// What creates the schema.
pub const GRANT: &str = "GRANT ALL PRIVILEGES ON spate.* TO <the user of Spate>";

/// Each table's name, and the statement that creates it.
const TABLES: [(&str, &str); 16] = [
    ("checkpoint", checkpoint::CREATE_TABLE),
    ("spread", spread::CREATE_TABLE),
    ("sharding", sharding::CREATE_TABLE),
    ("dealt", sharding::CREATE_DEALT),
    ("lock_name", lock_names::CREATE_TABLE),
    ("session", applier_lock::CREATE_TABLE),
    ("account", applier_lock::CREATE_ACCOUNT),
    ("intent", journal::CREATE_TABLE),
    ("prepared", journal::CREATE_PREPARED_TABLE),
    ("hold", hold_request::CREATE_TABLE),
    ("skipped", records::CREATE_SKIPPED),
    ("repaired", records::CREATE_REPAIRED),
    ("temporary_table", temporary::CREATE_TABLE),
    ("temporary_row", temporary::CREATE_ROWS),
    ("session_state", told_defaults::CREATE_TABLE),
    ("new_source", new_source::CREATE_TABLE),
];

/// Fails if somebody has put a view into the schema: to read it may execute functions with the rights of Spate's account.
fn refuse_views(connection: &mut Connection, schema: &str) -> Result<()> {
    let views = connection.query(&format!(
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{schema}' AND TABLE_TYPE = 'VIEW'"
    ))?;
    let Some(view) = views.text_at(0, 0) else { return Ok(()) };
    let why = format!(
        "somebody has put the view {view:?} into the schema {schema}, which is Spate's own: look who may write there, DROP VIEW, and let no \
         other account have privileges on it"
    );
    Err(Error::Unsuitable { peer: connection.peer().to_string(), why })
}

/// Forgets where replication was, and all that a next session would go on with: for a server that was restored, whose place is another now. What was
/// left out or repaired stays on record.
///
/// # Errors
/// Any error of the connection.
pub fn forget(connection: &mut Connection) -> Result<()> {
    const KEPT: [&str; 3] = ["skipped", "repaired", "new_source"];
    create(connection)?;
    connection.execute(new_source::TAKE_AWAY.as_bytes())?;
    for (name, _) in TABLES.iter().filter(|(name, _)| !KEPT.contains(name)) {
        connection.execute(format!("DELETE FROM spate.{name}").as_bytes())?;
    }
    Ok(())
}

/// Creates tables of another use than replication, in a schema of their own, where they are missing: each name, and the statement that creates it.
/// `grant` is what a missing privilege needs.
///
/// # Errors
/// As [`create`].
pub fn create_tables(
    connection: &mut Connection,
    schema: &str,
    tables: &[(&str, &str)],
    grant: &'static str,
) -> Result<()> {
    let names: Vec<String> = tables.iter().map(|(name, _)| format!("'{name}'")).collect();
    let present = connection.query(&format!(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{schema}' AND TABLE_NAME IN ({}) \
         AND TABLE_TYPE = 'BASE TABLE'",
        names.join(", ")
    ))?;
    if present.single_text() == Some(tables.len().to_string()) {
        return Ok(());
    }
    create_all(connection, schema, tables, grant)
}

fn create_all(connection: &mut Connection, schema: &str, tables: &[(&str, &str)], grant: &'static str) -> Result<()> {
    refuse_views(connection, schema)?;
    execute(connection, &format!("CREATE DATABASE IF NOT EXISTS {schema}"), grant)?;
    for (_, sql) in tables {
        execute(connection, sql, grant)?;
        spate_archive::stopping_point("after-own-table");
    }
    Ok(())
}

fn execute(connection: &mut Connection, sql: &str, grant: &'static str) -> Result<()> {
    let created = connection.execute(sql.as_bytes()).map(drop);
    created.map_err(|error| Error::from(error).with_missing_privilege("create Spate's own schema", grant))
}

/// Creates missing tables. Usually none is missing, and one question finds that out.
///
/// # Errors
/// Any error of the connection; a missing privilege names the GRANT.
pub fn create(connection: &mut Connection) -> Result<()> {
    create_tables(connection, "spate", &TABLES, GRANT)
}

/// Counts what earlier versions did not have: documents with rows of temporary tables, and positions above 64 KiB.
const COUNT_LATER_COLUMNS: &str = "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'spate' \
     AND (TABLE_NAME = 'temporary_row' AND COLUMN_NAME = 'documents' OR DATA_TYPE = 'mediumtext' \
     AND (TABLE_NAME IN ('checkpoint', 'intent') AND COLUMN_NAME = 'gtid_position' OR TABLE_NAME = 'hold' AND COLUMN_NAME = 'until_position'))";
const LATER_COLUMNS: &str = "4";

/// What adds them. Each can be repeated.
const ALTER: [&str; 4] = [
    "ALTER TABLE spate.temporary_row ADD COLUMN documents JSON",
    concat!("ALTER TABLE spate.checkpoint MODIFY gtid_position ", position_type!(), " NOT NULL"),
    concat!("ALTER TABLE spate.intent MODIFY gtid_position ", position_type!(), " NOT NULL"),
    concat!("ALTER TABLE spate.hold MODIFY ", until_position!()),
];
/// The server's error of a column that is there.
const CODE_DUPLICATE_COLUMN: u16 = 1060;

/// Alters the tables of an earlier version. Only for the holder of the applier's lock: an applier of that version may be at work. Usually there is nothing to
/// alter, and one question finds that out.
///
/// # Errors
/// As [`create`].
pub fn upgrade(connection: &mut Connection) -> Result<()> {
    if connection.query(COUNT_LATER_COLUMNS)?.single_text().as_deref() == Some(LATER_COLUMNS) {
        return Ok(());
    }
    for sql in ALTER {
        match connection.execute(sql.as_bytes()) {
            Err(error) if error.server_error().is_some_and(|error| error.code == CODE_DUPLICATE_COLUMN) => {}
            altered => {
                let altered = altered.map(drop).map_err(Error::from);
                altered.map_err(|error| error.with_missing_privilege("alter Spate's own schema", GRANT))?;
            }
        }
    }
    Ok(())
}

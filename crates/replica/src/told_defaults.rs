//! The last value of `explicit_defaults_for_timestamp` in MySQL's events.
//!
//! They say it only of statements that make TIMESTAMP columns. For what comes after, be it an ALTER TABLE or an INSERT, the server's own
//! applier goes on with what it was told last; a new session of Spate's would go by the replica's global setting. So it is kept on the
//! replica.

use crate::checkpoint::APPLIER;
use crate::error::Result;
use spate_connection::{Connection, Vendor};

/// The table of the last value: one row for each applier, once there is a value.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.session_state (\
     applier INT UNSIGNED NOT NULL PRIMARY KEY, \
     explicit_defaults_for_timestamp TINYINT UNSIGNED NOT NULL) ENGINE=InnoDB \
     COMMENT='what a new session of the applier begins with'";

/// Sets up a session of MySQL. Not within a transaction, where the server refuses it.
pub fn set_sql(is_explicit: bool) -> Vec<u8> {
    format!("SET SESSION {}", assignment(is_explicit)).into_bytes()
}

/// The same, as an assignment of a SET.
pub fn assignment(is_explicit: bool) -> String {
    format!("explicit_defaults_for_timestamp={}", u8::from(is_explicit))
}

/// Keeps it. Whether the statement that says it was executed does not matter: the next session executes it first of all, and it says the
/// same again.
pub fn keep_sql(is_explicit: bool) -> Vec<u8> {
    format!("REPLACE INTO spate.session_state VALUES ({APPLIER},{})", u8::from(is_explicit)).into_bytes()
}

/// Sets this session of the applier to the last value. `None` if it was not said yet, or if sessions of the vendor are told
/// with every statement.
///
/// # Errors
/// Any error of the connection.
pub fn resume(connection: &mut Connection) -> Result<Option<bool>> {
    if connection.server_version().vendor != Vendor::MySql {
        return Ok(None);
    }
    let kept = connection
        .query(&format!("SELECT explicit_defaults_for_timestamp FROM spate.session_state WHERE applier={APPLIER}"))?;
    let told = kept.single_text().map(|value| value != "0");
    if let Some(is_explicit) = told {
        connection.execute(&set_sql(is_explicit))?;
    }
    Ok(told)
}

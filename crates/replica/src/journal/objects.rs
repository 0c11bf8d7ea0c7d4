//! Fingerprints of the objects that a definition names. They tell whether it took effect.

use spate_schedule::TableName;
use spate_schedule::statement::{Exchanged, Object};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::Result;
use spate_connection::{Connection, Vendor, quote};

/// A digest of objects: their definitions. Where something may be exchanged that has the same definition, also the numbers by which
/// InnoDB knows tables. Other engines have none, and columns neither: then rows tell the one from the other, and if they are the same
/// in all that is exchanged, it does not matter.
///
/// # Errors
/// Any error of the connection.
pub(super) fn fingerprint(connection: &mut Connection, objects: &[Object], exchanged: Exchanged) -> Result<String> {
    let is_mysql = connection.server_version().vendor == Vendor::MySql;
    let mut text = String::new();
    for object in objects {
        match object {
            Object::Table(table) => {
                text += &shown(connection, &format!("SHOW CREATE TABLE {}", quoted(table)))?;
                let numbers = match exchanged {
                    Exchanged::Tables => engine_numbers(connection, table)?,
                    Exchanged::Nothing | Exchanged::Columns => String::new(),
                };
                let has_numbers = !numbers.is_empty() && !numbers.starts_with("error ");
                text += &numbers;
                if exchanged != Exchanged::Nothing && !has_numbers {
                    text += &shown(connection, &format!("CHECKSUM TABLE {}", quoted(table)))?;
                }
            }
            Object::Trigger(trigger) => {
                text += &shown(connection, &format!("SHOW CREATE TRIGGER {}", quoted(trigger)))?;
            }
            Object::Schema(schema) => {
                text += &shown(connection, &format!("SHOW CREATE DATABASE {}", quote::identifier(schema)))?;
            }
            Object::Accounts if is_mysql => {
                const TABLES: &str = "CHECKSUM TABLE mysql.user, mysql.db, mysql.tables_priv, mysql.columns_priv, \
                     mysql.procs_priv, mysql.proxies_priv, mysql.global_grants, mysql.role_edges, mysql.default_roles";
                text += &shown(connection, TABLES)?;
            }
            Object::Routines if is_mysql => {
                const ROUTINES: &str = "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE, CREATED, LAST_ALTERED, \
                     ROUTINE_DEFINITION, DTD_IDENTIFIER, SQL_DATA_ACCESS, SECURITY_TYPE, ROUTINE_COMMENT, DEFINER \
                     FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA <> 'sys' ORDER BY 1, 2, 3";
                text += &shown(connection, ROUTINES)?;
                text += &shown(connection, "CHECKSUM TABLE mysql.procs_priv")?;
            }
            Object::Events if is_mysql => {
                const EVENTS: &str = "SELECT EVENT_SCHEMA, EVENT_NAME, CREATED, LAST_ALTERED, EVENT_DEFINITION, STATUS, \
                     EXECUTE_AT, INTERVAL_VALUE, INTERVAL_FIELD, STARTS, ENDS, ON_COMPLETION, EVENT_COMMENT, DEFINER \
                     FROM information_schema.EVENTS ORDER BY 1, 2";
                text += &shown(connection, EVENTS)?;
            }
            Object::Accounts => {
                const TABLES: &str = "CHECKSUM TABLE mysql.global_priv, mysql.db, mysql.tables_priv, mysql.columns_priv, \
                     mysql.procs_priv, mysql.roles_mapping, mysql.proxies_priv";
                text += &shown(connection, TABLES)?;
            }
            Object::Routines => text += &shown(connection, "CHECKSUM TABLE mysql.proc, mysql.procs_priv")?,
            Object::Events => text += &shown(connection, "CHECKSUM TABLE mysql.event")?,
        }
        text.push('\0');
    }
    Ok(format!("{:032x}", xxh3_128(text.as_bytes())))
}

/// The [`fingerprint`] of one table that does not exist.
///
/// # Errors
/// As there.
pub(super) fn fingerprint_of_absence(connection: &mut Connection) -> Result<String> {
    let nowhere = TableName { schema: "spate".to_owned(), table: "no such table".to_owned() };
    fingerprint(connection, &[Object::Table(nowhere)], Exchanged::Nothing)
}

/// The answer to a question as text; a refusal (what was asked for is not there) is an answer too.
fn shown(connection: &mut Connection, sql: &str) -> Result<String> {
    let mut text = String::new();
    match connection.query(sql) {
        Ok(answer) => {
            for value in answer.rows.iter().flatten() {
                let value = value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                text += &without_counter(&value);
                text.push('\n');
            }
        }
        Err(error) => match error.server_error() {
            Some(refusal) if !error.is_transient() => text = format!("error {}", refusal.code),
            _ => return Err(error.into()),
        },
    }
    Ok(text)
}

/// Counters move with the rows, which is nothing that a definition did.
pub(crate) fn without_counter(definition: &str) -> String {
    const COUNTER: &str = " AUTO_INCREMENT=";
    let Some(start) = definition.find(COUNTER) else { return definition.to_owned() };
    let rest = definition[start + COUNTER.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{}{rest}", &definition[..start])
}

/// InnoDB's numbers of a table and its partitions, as far as this user may see them (it takes the privilege PROCESS). The server looks
/// through all tables for them.
fn engine_numbers(connection: &mut Connection, table: &TableName) -> Result<String> {
    let condition = match connection.server_version().vendor {
        Vendor::MariaDb => {
            let part = |name: &str| format!("CONVERT(CONVERT({} USING filename) USING binary)", quote::text(name));
            let file = format!("CONCAT({}, '/', {})", part(&table.schema), part(&table.table));
            let sql = format!("BINARY NAME = {file} OR BINARY NAME LIKE CONCAT(REPLACE({file}, '_', '\\_'), '#P#%')");
            format!("information_schema.INNODB_SYS_TABLES WHERE {sql}")
        }
        Vendor::MySql => {
            let file = format!("{}/{}", file_pattern(&table.schema), file_pattern(&table.table));
            let patterns = [file.clone(), format!("{file}#p#%")].map(|pattern| quote::text(&pattern));
            format!("information_schema.INNODB_TABLES WHERE NAME LIKE {} OR NAME LIKE {}", patterns[0], patterns[1])
        }
    };
    shown(connection, &format!("SELECT NAME, TABLE_ID FROM {condition} ORDER BY NAME"))
}

/// What the name of a table's file looks like. MySQL does not say how it writes letters that a file's name should not hold, so they
/// stand for anything: the numbers of other tables do no harm, since nothing else changes them meanwhile.
fn file_pattern(name: &str) -> String {
    let mut pattern = String::new();
    for character in name.chars() {
        match character {
            '_' => pattern.push_str("\\_"),
            plain if plain.is_ascii_alphanumeric() => pattern.push(plain),
            _ => pattern.push('%'),
        }
    }
    pattern
}

/// True if the replica has this table, and can open it.
///
/// # Errors
/// Any error of the connection.
pub(super) fn is_readable(connection: &mut Connection, table: &TableName) -> Result<bool> {
    Ok(!shown(connection, &format!("SHOW CREATE TABLE {}", quoted(table)))?.starts_with("error "))
}

/// True if the replica has no table or view of this name.
///
/// # Errors
/// Any error of the connection.
pub(super) fn is_absent(connection: &mut Connection, table: &TableName) -> Result<bool> {
    const NO_SUCH_TABLE: u16 = 1146;
    const NO_SUCH_SCHEMA: u16 = 1049;
    let shown = shown(connection, &format!("SHOW CREATE TABLE {}", quoted(table)))?;
    Ok([NO_SUCH_TABLE, NO_SUCH_SCHEMA].iter().any(|code| shown == format!("error {code}")))
}

/// Its name for a statement.
pub(super) fn quoted(table: &TableName) -> String {
    format!("{}.{}", quote::identifier(&table.schema), quote::identifier(&table.table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_without_counter_stays_equal() {
        let definition = "CREATE TABLE `t` (…) ENGINE=InnoDB AUTO_INCREMENT=42 DEFAULT CHARSET=latin1";
        assert_eq!(without_counter(definition), "CREATE TABLE `t` (…) ENGINE=InnoDB DEFAULT CHARSET=latin1");
        assert_eq!(without_counter("CREATE TABLE `t` (…)"), "CREATE TABLE `t` (…)");
    }
}

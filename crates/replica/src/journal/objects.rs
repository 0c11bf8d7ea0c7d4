//! Fingerprints of the objects that a definition names. They tell whether it took effect.

use spate_schedule::TableName;
use spate_schedule::statement::{Exchanged, Object};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::Result;
use spate_connection::quote::{self, NO_VIEW};
use spate_connection::{Connection, ResultSet, Vendor};

/// The servers' codes for a table, and a schema, that is not there.
const ABSENT: [u16; 2] = [1146, 1049];

/// A digest of objects: their definitions. Where something may be exchanged that has the same definition, also the numbers by which
/// InnoDB knows tables. Other engines have none, and columns neither: then rows tell the one from the other, and if they are the same
/// in all that is exchanged, it does not matter.
///
/// # Errors
/// Any error of the connection.
pub(super) fn fingerprint(connection: &mut Connection, objects: &[Object], exchanged: Exchanged) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        text += &definition(connection, object)?;
        if let Object::Table(table) = object
            && exchanged != Exchanged::Nothing
        {
            let numbers = match exchanged {
                Exchanged::Tables => engine_numbers(connection, table)?,
                Exchanged::Nothing | Exchanged::Columns => String::new(),
            };
            text += &numbers;
            if numbers.is_empty() || numbers.starts_with("error ") {
                text += &shown(connection, &format!("CHECKSUM TABLE {}", quoted(table)))?;
                text += &content(connection, table)?;
            }
        }
        text.push('\0');
    }
    Ok(digest(&text))
}

/// What the server says of an object.
fn definition(connection: &mut Connection, object: &Object) -> Result<String> {
    let is_mysql = connection.server_version().vendor == Vendor::MySql;
    match object {
        Object::Table(table) => said(show_table(connection, table)),
        Object::Trigger(trigger) => shown(connection, &format!("SHOW CREATE TRIGGER {}", quoted(trigger))),
        Object::Schema(schema) => shown(connection, &format!("SHOW CREATE DATABASE {}", quote::identifier(schema))),
        Object::Accounts if is_mysql => {
            const TABLES: &str = "CHECKSUM TABLE mysql.user, mysql.db, mysql.tables_priv, mysql.columns_priv, \
                 mysql.procs_priv, mysql.proxies_priv, mysql.global_grants, mysql.role_edges, mysql.default_roles";
            shown(connection, TABLES)
        }
        Object::Routines if is_mysql => {
            const ROUTINES: &str = "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE, CREATED, LAST_ALTERED, \
                 ROUTINE_DEFINITION, DTD_IDENTIFIER, SQL_DATA_ACCESS, SECURITY_TYPE, ROUTINE_COMMENT, DEFINER \
                 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA <> 'sys' ORDER BY 1, 2, 3";
            let routines = shown(connection, ROUTINES)?;
            Ok(routines + &shown(connection, "CHECKSUM TABLE mysql.procs_priv")?)
        }
        Object::Events if is_mysql => {
            const EVENTS: &str = "SELECT EVENT_SCHEMA, EVENT_NAME, CREATED, LAST_ALTERED, EVENT_DEFINITION, STATUS, \
                 EXECUTE_AT, INTERVAL_VALUE, INTERVAL_FIELD, STARTS, ENDS, ON_COMPLETION, EVENT_COMMENT, DEFINER \
                 FROM information_schema.EVENTS ORDER BY 1, 2";
            shown(connection, EVENTS)
        }
        Object::Accounts => {
            const TABLES: &str = "CHECKSUM TABLE mysql.global_priv, mysql.db, mysql.tables_priv, mysql.columns_priv, \
                 mysql.procs_priv, mysql.roles_mapping, mysql.proxies_priv";
            shown(connection, TABLES)
        }
        Object::Routines => shown(connection, "CHECKSUM TABLE mysql.proc, mysql.procs_priv"),
        Object::Events => shown(connection, "CHECKSUM TABLE mysql.event"),
    }
}

fn show_table(connection: &mut Connection, table: &TableName) -> spate_connection::Result<ResultSet> {
    connection.query(&format!("SHOW CREATE TABLE {}", quoted(table)))
}

fn digest(text: &str) -> String {
    format!("{:032x}", xxh3_128(text.as_bytes()))
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
    said(connection.query(sql))
}

fn said(answer: spate_connection::Result<ResultSet>) -> Result<String> {
    let mut text = String::new();
    match answer {
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

const COUNTER: &str = " AUTO_INCREMENT=";

/// A sum over a table's rows that depends on which column holds which value. (CHECKSUM TABLE strings texts together without their lengths.)
fn content(connection: &mut Connection, table: &TableName) -> Result<String> {
    let columns = connection.query(&format!(
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY ORDINAL_POSITION",
        quote::text(&table.schema),
        quote::text(&table.table)
    ))?;
    let names = (0..columns.rows.len()).filter_map(|row| columns.text_at(row, 0));
    let digests: Vec<String> =
        names.map(|name| format!("COALESCE(SHA2(CAST({} AS BINARY), 256), '-')", quote::identifier(&name))).collect();
    if digests.is_empty() {
        return Ok(String::new());
    }
    let row = format!("CONV(LEFT(SHA2(CONCAT_WS(',', {}), 256), 15), 16, 10)", digests.join(", "));
    let sql = format!("SELECT COUNT(*), SUM(CAST({row} AS UNSIGNED)) FROM {} {NO_VIEW}", quoted(table));
    shown(connection, &sql)
}

/// Counters move with the rows, which is nothing that a definition did.
pub(crate) fn without_counter(definition: &str) -> String {
    match counter(definition) {
        Counter::At(start) => {
            let rest = definition[start + COUNTER.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{}{rest}", &definition[..start])
        }
        Counter::None => definition.to_owned(),
        // A definition that looks as it was is executed again, which the server refuses. One that looks otherwise is taken for executed.
        Counter::Unclear => definition.replace(|c: char| c.is_ascii_digit(), ""),
    }
}

enum Counter {
    /// It begins there.
    At(usize),
    None,
    /// The text does not end as it should.
    Unclear,
}

/// Where the counter stands: among the table's options, which are outside of all parentheses. Comments and defaults may hold the same letters.
fn counter(definition: &str) -> Counter {
    let bytes = definition.as_bytes();
    let (mut depth, mut quote, mut at) = (0i64, None, 0);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(b'\''), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'\'' | b'`' | b'"')) => quote = Some(byte),
            (None, b'(') => depth += 1,
            (None, b')') => depth -= 1,
            (None, b' ') if depth == 0 && bytes[at..].starts_with(COUNTER.as_bytes()) => return Counter::At(at),
            (None, _) => {}
        }
        at += 1;
    }
    if depth == 0 && quote.is_none() { Counter::None } else { Counter::Unclear }
}

/// The [`fingerprint`] of objects of which nothing is exchanged, if nothing else than definitions that name them changes it. `None`: rows may make
/// a partition, or it is that of a view or a MERGE table, which changes with the tables that it is made of. Engines that are not known may find
/// their definitions anywhere.
///
/// # Errors
/// Any error of the connection.
pub(super) fn fingerprint_if_stable(connection: &mut Connection, objects: &[Object]) -> Result<Option<String>> {
    let mut text = String::new();
    for object in objects {
        text += &match object {
            Object::Table(table) => {
                let answer = show_table(connection, table);
                if !is_stable(&answer) {
                    return Ok(None);
                }
                said(answer)?
            }
            other => definition(connection, other)?,
        };
        text.push('\0');
    }
    Ok(Some(digest(&text)))
}

/// True if what SHOW CREATE TABLE says is of a table alone, or of none.
fn is_stable(answer: &spate_connection::Result<ResultSet>) -> bool {
    const ENGINES: [&str; 9] =
        ["InnoDB", "MyISAM", "Aria", "MEMORY", "CSV", "ARCHIVE", "BLACKHOLE", "ROCKSDB", "ndbcluster"];
    match answer {
        Ok(answer) => answer.text(0, "Create Table").is_some_and(|text| {
            let has_engine = |name: &str| text.contains(&format!(" ENGINE={name}"));
            ENGINES.into_iter().any(has_engine) && !text.contains("PARTITION BY SYSTEM_TIME")
        }),
        Err(error) => error.server_error().is_some_and(|refusal| ABSENT.contains(&refusal.code)),
    }
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
    Ok(!said(show_table(connection, table))?.starts_with("error "))
}

/// True if the replica has no table or view of this name.
///
/// # Errors
/// Any error of the connection.
pub(super) fn is_absent(connection: &mut Connection, table: &TableName) -> Result<bool> {
    let shown = said(show_table(connection, table))?;
    Ok(ABSENT.iter().any(|code| shown == format!("error {code}")))
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

    #[test]
    fn counter_is_among_the_tables_options_only() {
        let definition = |counter: &str| {
            format!(
                "CREATE TABLE ` AUTO_INCREMENT=1(` (`a` int COMMENT 'it''s \\\\ an AUTO_INCREMENT=3) \\'(', \
                 `b` text DEFAULT concat(')',\" AUTO_INCREMENT=4\"))  ENGINE=InnoDB{counter} COMMENT=' AUTO_INCREMENT=6'"
            )
        };
        let with = definition(" AUTO_INCREMENT=42");
        assert_eq!(without_counter(&with), definition(""));
        assert_eq!(without_counter(&definition("")), definition(""));
        let unclear = |number: u32| format!("CREATE TABLE `t` ('… ENGINE=InnoDB AUTO_INCREMENT={number}");
        assert_eq!(without_counter(&unclear(1)), without_counter(&unclear(23)));
    }
}

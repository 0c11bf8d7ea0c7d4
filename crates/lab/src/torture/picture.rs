//! The whole contents of a server, in a form that can be compared: definitions, rows, counters, accounts.

use std::collections::BTreeMap;

use mysql::{Row, Value};
use serde::{Deserialize, Serialize};

use super::world::OWN_SCHEMAS;
use crate::Result;
use crate::sandbox::{ACCOUNT, Sandbox};
use crate::sql::{Session, quote};
use crate::vendor::Vendor;

/// The kind of an object that can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A schema's defaults.
    Schema,
    /// The output of SHOW CREATE, without the counter.
    Definition,
    /// Rows; of a system-versioned table also the history, without the timestamps.
    Rows,
    /// An AUTO_INCREMENT counter.
    Counter,
    /// A sequence's state.
    Sequence,
    /// A trigger, routine or event.
    Program,
    /// Accounts and privileges.
    Account,
    /// Transactions that are prepared.
    Prepared,
    /// Files of temporary tables.
    Leftover,
}

/// An object of a server.
pub(super) type Subject = (Class, String);

/// The contents of a server: the lines of each object, sorted.
pub(super) type Picture = BTreeMap<Subject, Vec<String>>;

/// Accounts of the laboratory and of the servers.
fn own_accounts() -> String {
    format!("'root', 'mariadb.sys', 'mysql', 'PUBLIC', 'mysql.sys', 'mysql.session', 'mysql.infoschema', '{ACCOUNT}'")
}

/// Reads the whole contents.
pub(super) fn take(server: &Sandbox) -> Result<Picture> {
    let mut session = server.connect()?;
    // Bytes as they are stored, without conversion of character sets.
    session.run(
        "SET SESSION sql_mode = '', time_zone = '+00:00', sql_select_limit = DEFAULT, character_set_results = NULL",
    )?;
    session.run("SET SESSION TRANSACTION READ ONLY")?;
    let mut picture = Picture::new();
    schemas(&mut session, &mut picture)?;
    tables(&mut session, &mut picture)?;
    for (title, sql) in programs(server.vendor()) {
        for line in lines(&mut session, &sql)? {
            let name = line.split(" | ").take(2).collect::<Vec<_>>().join(".");
            picture.insert((Class::Program, format!("{title} {name}")), vec![line]);
        }
    }
    for (table, sql) in accounts(server.vendor()) {
        picture.insert((Class::Account, format!("mysql.{table}")), lines(&mut session, &sql)?);
    }
    let prepared = lines(
        &mut session,
        match server.vendor() {
            Vendor::MariaDb => "XA RECOVER FORMAT='SQL'",
            Vendor::MySql => "XA RECOVER CONVERT XID",
        },
    )?;
    picture.insert((Class::Prepared, "XA RECOVER".to_owned()), prepared);
    picture.insert((Class::Leftover, "temporary tables".to_owned()), leftovers(server));
    Ok(picture)
}

fn schemas(session: &mut Session, picture: &mut Picture) -> Result<()> {
    let rows: Vec<(String, String, String)> = session.rows(&format!(
        "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA
         WHERE SCHEMA_NAME NOT IN ({OWN_SCHEMAS})"
    ))?;
    for (name, charset, collation) in rows {
        picture.insert((Class::Schema, name), vec![format!("{charset} {collation}")]);
    }
    Ok(())
}

fn tables(session: &mut Session, picture: &mut Picture) -> Result<()> {
    let tables: Vec<(String, String, String)> = session.rows(&format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES
         WHERE TABLE_SCHEMA NOT IN ({OWN_SCHEMAS}) ORDER BY 1, 2"
    ))?;
    for (schema, table, kind) in tables {
        let name = format!("{}.{}", quote(&schema), quote(&table));
        match kind.as_str() {
            "VIEW" => {
                let definition = lines_or_error(session, &format!("SHOW CREATE VIEW {name}"));
                picture.insert((Class::Definition, name), definition);
            }
            "SEQUENCE" => {
                let state = lines_or_error(session, &format!("SELECT * FROM {name}"));
                picture.insert((Class::Sequence, name.clone()), state);
                let definition = lines_or_error(session, &format!("SHOW CREATE TABLE {name}"));
                picture.insert((Class::Definition, name), definition);
            }
            _ => table_of(session, picture, &schema, &table, kind.contains("VERSIONED"))?,
        }
    }
    Ok(())
}

fn table_of(session: &mut Session, picture: &mut Picture, schema: &str, table: &str, is_versioned: bool) -> Result<()> {
    let name = format!("{}.{}", quote(schema), quote(table));
    let definition = lines_or_error(session, &format!("SHOW CREATE TABLE {name}")).concat();
    let (definition, counter) = split_counter(&definition);
    picture.insert((Class::Definition, name.clone()), definition.split("\\n").map(str::to_owned).collect());
    picture.insert((Class::Counter, name.clone()), counter.into_iter().collect());
    let columns: Vec<(String, String, Option<String>)> = session.rows(&format!(
        "SELECT COLUMN_NAME, DATA_TYPE, GENERATION_EXPRESSION FROM information_schema.COLUMNS
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY ORDINAL_POSITION",
        text_literal(schema),
        text_literal(table)
    ))?;
    // Each server that executes the change writes its own timestamps.
    let is_stamp = |expression: &Option<String>| matches!(expression.as_deref(), Some("ROW START" | "ROW END"));
    let selected: Vec<String> = columns
        .iter()
        .filter(|(_, _, expression)| !is_stamp(expression))
        .map(|(column, kind, _)| match kind.as_str() {
            // A FLOAT loses digits as text; a DOUBLE does not.
            "float" => format!("CAST({} AS DOUBLE)", quote(column)),
            _ => quote(column),
        })
        .collect();
    let history = if is_versioned { " FOR SYSTEM_TIME ALL" } else { "" };
    let rows = lines_or_error(session, &format!("SELECT {} FROM {name}{history}", selected.join(", ")));
    picture.insert((Class::Rows, name), rows);
    Ok(())
}

/// Queries for triggers, routines and events; the first two columns name them.
fn programs(vendor: Vendor) -> [(&'static str, String); 3] {
    // MySQL stamps a trigger with the fraction of a second in which it was made.
    let stamp = if vendor == Vendor::MariaDb { "CREATED," } else { "" };
    let triggers = format!(
        "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_MANIPULATION, EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE,
                ACTION_ORDER, ACTION_STATEMENT, ACTION_TIMING, {stamp} SQL_MODE, DEFINER, CHARACTER_SET_CLIENT,
                COLLATION_CONNECTION, DATABASE_COLLATION
         FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA NOT IN ({OWN_SCHEMAS})"
    );
    let [routines, events] = match vendor {
        Vendor::MariaDb => [
            format!("SELECT * FROM mysql.proc WHERE db NOT IN ({OWN_SCHEMAS})"),
            // Without an event's last execution and its creating server, which each server sets itself.
            format!(
                "SELECT db, name, body, definer, execute_at, interval_value, interval_field, created, modified, starts, ends,
                        status, on_completion, sql_mode, comment, time_zone, character_set_client, collation_connection,
                        db_collation, body_utf8
                 FROM mysql.event WHERE db NOT IN ({OWN_SCHEMAS})"
            ),
        ],
        Vendor::MySql => [
            format!(
                "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE, DTD_IDENTIFIER, ROUTINE_DEFINITION, IS_DETERMINISTIC,
                        SQL_DATA_ACCESS, SECURITY_TYPE, SQL_MODE, ROUTINE_COMMENT, DEFINER, CHARACTER_SET_CLIENT,
                        COLLATION_CONNECTION, DATABASE_COLLATION
                 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA NOT IN ({OWN_SCHEMAS})"
            ),
            format!(
                "SELECT EVENT_SCHEMA, EVENT_NAME, EVENT_DEFINITION, EVENT_TYPE, INTERVAL_VALUE, INTERVAL_FIELD, STATUS, SQL_MODE
                 FROM information_schema.EVENTS WHERE EVENT_SCHEMA NOT IN ({OWN_SCHEMAS})"
            ),
        ],
    };
    [("trigger", triggers), ("routine", routines), ("event", events)]
}

/// The tables of accounts and privileges, and the conditions that exclude the servers' own.
fn accounts(vendor: Vendor) -> Vec<(&'static str, String)> {
    let own = own_accounts();
    let of_others =
        |columns: &str, table: &str| format!("SELECT {columns} FROM mysql.{table} WHERE User NOT IN ({own})");
    let mut tables = vec![
        ("db", of_others("*", "db")),
        ("tables_priv", of_others("Host, Db, User, Table_name, Table_priv, Column_priv", "tables_priv")),
        ("columns_priv", of_others("Host, Db, User, Table_name, Column_name, Column_priv", "columns_priv")),
        ("procs_priv", of_others("Host, Db, User, Routine_name, Routine_type, Proc_priv", "procs_priv")),
    ];
    match vendor {
        Vendor::MariaDb => {
            tables.push(("global_priv", of_others("*", "global_priv")));
            tables.push(("roles_mapping", "SELECT * FROM mysql.roles_mapping".to_owned()));
        }
        Vendor::MySql => {
            const SHOWN: &str = "Host, User, Select_priv, Insert_priv, Update_priv, Delete_priv, Create_view_priv, Grant_priv,
                Super_priv, ssl_type, plugin, authentication_string, account_locked, password_lifetime, User_attributes";
            tables.push(("user", of_others(SHOWN, "user")));
            tables.push(("global_grants", of_others("*", "global_grants")));
            tables.push(("role_edges", "SELECT * FROM mysql.role_edges".to_owned()));
            tables.push(("default_roles", "SELECT * FROM mysql.default_roles".to_owned()));
        }
    }
    tables
}

/// Counts the files of temporary tables that no session has any more. Their names are random.
fn leftovers(server: &Sandbox) -> Vec<String> {
    let directory = server.data_directory().with_file_name("tmp");
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    let count =
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("#sql-temptable")).count();
    vec![format!("{count} files")]
}

/// Takes `AUTO_INCREMENT=n` out of a table's options.
fn split_counter(definition: &str) -> (String, Option<String>) {
    const WORD: &str = " AUTO_INCREMENT=";
    let options = definition.rfind(") ENGINE=").unwrap_or(0);
    let Some(found) = definition[options..].find(WORD).map(|found| options + found) else {
        return (definition.to_owned(), None);
    };
    let digits = &definition[found + WORD.len()..];
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    (format!("{}{}", &definition[..found], &digits[end..]), Some(digits[..end].to_owned()))
}

/// Of a table that cannot be read, the error is compared.
fn lines_or_error(session: &mut Session, sql: &str) -> Vec<String> {
    lines(session, sql).unwrap_or_else(|error| match error {
        crate::Error::Sql { source, .. } => vec![format!("error: {source}")],
        other => vec![format!("error: {other}")],
    })
}

pub(super) fn lines(session: &mut Session, sql: &str) -> Result<Vec<String>> {
    let rows: Vec<Row> = session.rows(sql)?;
    let mut lines: Vec<String> =
        rows.into_iter().map(|row| row.unwrap().iter().map(shown).collect::<Vec<_>>().join(" | ")).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// A value as text; two texts are equal only if the values' bytes are.
fn shown(value: &Value) -> String {
    match value {
        Value::NULL => "NULL".to_owned(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.escape_debug().to_string(),
            Err(_) => format!("0x{}", bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>()),
        },
        other => format!("{other:?}"),
    }
}

pub(super) fn text_literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_increment_is_removed_from_table_options_only() {
        let definition =
            "CREATE TABLE `t` (`a` int COMMENT ' AUTO_INCREMENT=4') ENGINE=InnoDB AUTO_INCREMENT=17 DEFAULT CHARSET=x";
        let (rest, counter) = split_counter(definition);
        assert_eq!(counter.as_deref(), Some("17"));
        assert_eq!(rest, "CREATE TABLE `t` (`a` int COMMENT ' AUTO_INCREMENT=4') ENGINE=InnoDB DEFAULT CHARSET=x");
        assert_eq!(split_counter("CREATE TABLE `t` () ENGINE=InnoDB").1, None);
    }

    #[test]
    fn different_bytes_give_different_text() {
        let bytes = |bytes: &[u8]| shown(&Value::Bytes(bytes.to_vec()));
        assert_ne!(bytes(b"a"), bytes(b"a "));
        assert_ne!(bytes(b"\xff"), bytes(b"\xfe"));
        assert_ne!(bytes(b""), shown(&Value::NULL));
        assert_ne!(bytes(b"a\nb"), bytes(b"a\\nb"));
    }
}

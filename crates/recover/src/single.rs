//! Copies single tables from the recovered server to one that is in use, beside what is there.
//!
//! Each is made under its new name, filled, and compared value by value; one that was not copied as a whole is dropped again. Values travel as bytes:
//! no character set and no number is converted.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, quote};
use spate_replica::asking;

use crate::error::{Error, Result};
use crate::scratch::Scratch;
use crate::sealing;

/// Bytes of one INSERT, about: well below every server's max_allowed_packet, but for a single large row.
const STATEMENT_BYTES: usize = 1 << 20;
/// The suffix of a copy's name, if none is said.
const SUFFIX: &str = "_restored";
/// Names of tables have so many letters.
const NAME_LETTERS_MAX: usize = 64;

/// A table, and the name of its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlyTable {
    /// Where it is in the recovered server.
    pub schema: String,
    /// Its name there.
    pub table: String,
    /// Where the copy goes.
    pub new_schema: String,
    /// The copy's name.
    pub new_table: String,
}

impl FromStr for OnlyTable {
    type Err = String;

    /// `shop.orders`, or `shop.orders=shop.orders_of_monday`.
    fn from_str(text: &str) -> std::result::Result<OnlyTable, String> {
        let expected = || format!("expected SCHEMA.TABLE or SCHEMA.TABLE=SCHEMA.TABLE, not '{text}'");
        let (from, to) = text.split_once('=').map_or((text, None), |(from, to)| (from, Some(to)));
        let (schema, table) = from.split_once('.').ok_or_else(expected)?;
        let (new_schema, new_table) = match to {
            Some(to) => to.split_once('.').map(|(schema, table)| (schema, table.to_owned())).ok_or_else(expected)?,
            None => (schema, format!("{table}{SUFFIX}")),
        };
        if [schema, table, new_schema, &new_table].iter().any(|name| name.is_empty()) {
            return Err(expected());
        }
        if new_table.chars().count() > NAME_LETTERS_MAX {
            return Err(format!("'{new_table}' is too long for a table's name: choose one with {from}=SCHEMA.TABLE"));
        }
        Ok(OnlyTable { schema: schema.into(), table: table.into(), new_schema: new_schema.into(), new_table })
    }
}

/// A table that was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The recovered table.
    pub table: String,
    /// Its copy on the server.
    pub copy: String,
    /// Rows.
    pub rows: u64,
}

/// Fails early if a copy could not be made.
pub(crate) fn check(live: &mut Connection, tables: &[OnlyTable]) -> Result<()> {
    for only in tables {
        let (schema, table) = (quote::text(&only.new_schema), quote::text(&only.new_table));
        let there = live.query(&format!(
            "SELECT (SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {schema}), \
             (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table})"
        ))?;
        if there.text_at(0, 0).as_deref() == Some("0") {
            return Err(Error::Refused(format!("{} has no schema {}: create it first", live.peer(), only.new_schema)));
        }
        if there.text_at(0, 1).as_deref() != Some("0") {
            let name = format!("{}.{}", only.new_schema, only.new_table);
            return Err(Error::Refused(format!(
                "{} has a table {name} already: choose another name with --only {}.{}=SCHEMA.TABLE",
                live.peer(),
                only.schema,
                only.table
            )));
        }
    }
    Ok(())
}

/// Copies the tables. Each has a name of its own until it is whole.
pub(crate) fn copy(scratch: &Scratch, live: &Endpoint, tables: &[OnlyTable], stop: &AtomicBool) -> Result<Vec<Copied>> {
    let mut copied = Vec::with_capacity(tables.len());
    for only in tables {
        let (mut from, mut to) = (session(scratch.endpoint(), "recovered server")?, session(live, "server")?);
        let hash = sealing::hash(format!("{}.{}", only.new_schema, only.new_table).as_bytes());
        let partial = quote::qualified(&only.new_schema, &format!("spate_copy_{}", &hash[..16]));
        let definition = definition(&mut from, only, &partial)?;
        // A run that was killed may have left it.
        to.execute(format!("DROP TABLE IF EXISTS {partial}").as_bytes())?;
        to.execute(definition.as_bytes())?;
        let new = quote::qualified(&only.new_schema, &only.new_table);
        let filled = fill(&mut from, &mut to, only, &partial, stop);
        let named = filled.and_then(|rows| {
            to.execute(format!("RENAME TABLE {partial} TO {new}").as_bytes())?;
            Ok(rows)
        });
        match named {
            Ok(rows) => copied.push(Copied {
                table: format!("{}.{}", only.schema, only.table),
                copy: format!("{}.{}", only.new_schema, only.new_table),
                rows,
            }),
            Err(error) => {
                // The connection may be in the middle of something.
                let dropped = session(live, "server")
                    .and_then(|mut again| Ok(again.execute(format!("DROP TABLE IF EXISTS {partial}").as_bytes())?));
                return Err(match dropped {
                    Ok(_) => error,
                    Err(second) => {
                        Error::Refused(format!("{error}; and the half copied table {partial} is still there: {second}"))
                    }
                });
            }
        }
    }
    Ok(copied)
}

/// A session in which every value that was stored can be stored again.
fn session(endpoint: &Endpoint, peer: &'static str) -> Result<Connection> {
    let mut connection = asking::connect(endpoint, &ConnectOptions::new(peer))?;
    connection.execute(
        b"SET NAMES utf8mb4; SET SESSION character_set_results = NULL, time_zone = '+00:00', \
          sql_mode = 'NO_AUTO_VALUE_ON_ZERO', foreign_key_checks = 0, unique_checks = 0",
    )?;
    Ok(connection)
}

/// The table under its new name, without foreign keys: these would tie the live tables.
fn definition(from: &mut Connection, only: &OnlyTable, new: &str) -> Result<String> {
    let name = quote::qualified(&only.schema, &only.table);
    let kind = from.query(&format!(
        "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        quote::text(&only.schema),
        quote::text(&only.table)
    ))?;
    const ENGINES: [&str; 6] = ["InnoDB", "MyISAM", "Aria", "ARCHIVE", "CSV", "ROCKSDB"];
    let engine = kind.text_at(0, 1).unwrap_or_default();
    if kind.text_at(0, 0).is_some_and(|kind| kind != "VIEW")
        && !ENGINES.iter().any(|known| engine.eq_ignore_ascii_case(known))
    {
        return Err(Error::Refused(format!(
            "the table {name} is of the engine {engine}, whose rows are elsewhere: it has nothing to copy"
        )));
    }
    if kind.text_at(0, 0).is_some_and(|kind| kind == "SYSTEM VERSIONED") {
        return Err(Error::Refused(format!(
            "the table {name} is system-versioned, and a copy would lose its history: recover the server with --to DIR, and take it from there"
        )));
    }
    let shown = from.query(&format!("SHOW CREATE TABLE {name}"));
    let shown = shown
        .map_err(|error| Error::Refused(format!("the table {}.{} cannot be read: {error}", only.schema, only.table)))?;
    let text =
        shown.text(0, "Create Table").ok_or_else(|| Error::Refused(format!("{name} is no table, but a view")))?;
    let mut lines: Vec<&str> = text.lines().filter(|line| !is_foreign_key(line)).collect();
    let Some(first) = lines.first_mut() else { return Err(Error::Refused(format!("{name} has no definition"))) };
    let head = format!("CREATE TABLE {new} (");
    if !first.starts_with("CREATE TABLE") || !first.trim_end().ends_with('(') {
        return Err(Error::Refused(format!("the definition of {name} begins with {first:?}")));
    }
    *first = &head;
    let lines: Vec<String> = lines.iter().map(|line| without_check_name(line)).collect();
    let body = lines.join("\n");
    // The last line of the list may have lost its follower.
    Ok(body.replace(",\n)", "\n)"))
}

/// Servers write each on a line of its own, and line ends within comments as `\n`.
fn is_foreign_key(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("CONSTRAINT `") && line.contains("` FOREIGN KEY (")
}

/// A check whose name would be that of the live table's, in the same schema.
fn without_check_name(line: &str) -> String {
    let rest = line.trim_start().strip_prefix("CONSTRAINT `");
    match rest.and_then(|rest| rest.split_once("` CHECK (")) {
        Some((name, check)) if !name.contains('`') => format!("  CHECK ({check}"),
        _ => line.to_owned(),
    }
}

/// What a column's values are, in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Digits, as they are.
    Number,
    /// Bytes of the column's own character set, or of none.
    Bytes,
    /// A document or the like, which must be text.
    Document,
}

/// Fills the new table, and compares it with the old one.
fn fill(from: &mut Connection, to: &mut Connection, only: &OnlyTable, new: &str, stop: &AtomicBool) -> Result<u64> {
    let columns = columns(from, only)?;
    let chosen: Vec<String> = columns.iter().map(|(name, form, kind)| chosen(name, *form, kind)).collect();
    let names: Vec<String> = columns.iter().map(|(name, ..)| quote::identifier(name)).collect();
    let old = quote::qualified(&only.schema, &only.table);
    let head = format!("INSERT INTO {new} ({}) VALUES ", names.join(", "));
    let mut statement = head.clone();
    let (mut rows, mut failed) = (0u64, None);
    from.for_each_row(format!("SELECT {} FROM {old}", chosen.join(", ")), |row| {
        if stop.load(Ordering::Acquire) {
            failed = Some(Error::Stopped);
            return ControlFlow::Break(());
        }
        if statement.len() > head.len() {
            statement.push(',');
        }
        statement.push('(');
        for (index, (_, form, _)) in columns.iter().enumerate() {
            if index > 0 {
                statement.push(',');
            }
            push_value(&mut statement, *form, row.get(index));
        }
        statement.push(')');
        rows += 1;
        if statement.len() >= STATEMENT_BYTES {
            failed = to.execute(statement.as_bytes()).err().map(Error::from);
            statement.truncate(head.len());
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if statement.len() > head.len() {
        to.execute(statement.as_bytes())?;
    }
    let (digest_there, digest_here) = (digest(from, &old, &columns)?, digest(to, new, &columns)?);
    // Vendors write some values in another way.
    let is_comparable = from.server_version().vendor == to.server_version().vendor;
    let count = digest_here.0;
    if count != rows || is_comparable && digest_here != digest_there {
        return Err(Error::Refused(format!(
            "the copy is not the same as the recovered {old} after {rows} rows were copied (it has {count}): some of its values cannot be copied as \
             text (documents with numbers of other types), so recover the server with --to DIR, and take the table from there"
        )));
    }
    Ok(rows)
}

/// How many rows a table has, and a sum over all their values, whatever their order.
fn digest(connection: &mut Connection, table: &str, columns: &[(String, Form, String)]) -> Result<(u64, String)> {
    let values: Vec<String> = columns
        .iter()
        .map(|(name, form, kind)| match form {
            Form::Bytes => format!("COALESCE(HEX({}), '-')", quote::identifier(name)),
            _ => format!("COALESCE(CAST({} AS CHAR), '-')", chosen(name, *form, kind)),
        })
        .collect();
    let row = format!("CONCAT_WS('#', {})", values.join(", "));
    let sums = connection.query(&format!(
        "SELECT COUNT(*), COALESCE(SUM(CRC32({row})), 0), COALESCE(BIT_XOR(CRC32(REVERSE({row}))), 0) FROM {table}"
    ))?;
    let text = |column| sums.text_at(0, column).unwrap_or_default();
    Ok((text(0).parse().unwrap_or_default(), format!("{} {}", text(1), text(2))))
}

/// A column as it is selected: a FLOAT's own digits are too few for its value, and raw values of spatial types and bits are bytes anyway.
fn chosen(name: &str, form: Form, kind: &str) -> String {
    let column = quote::identifier(name);
    match kind {
        "float" if form == Form::Number => format!("CAST({column} AS DOUBLE)"),
        "enum" | "set" => format!("CAST({column} AS UNSIGNED)"),
        _ => column,
    }
}

fn push_value(statement: &mut String, form: Form, value: Option<&[u8]>) {
    let Some(value) = value else { return statement.push_str("NULL") };
    match form {
        Form::Number => statement.push_str(&String::from_utf8_lossy(value)),
        Form::Document => {
            statement.push_str("CONVERT(x'");
            push_hex(statement, value);
            statement.push_str("' USING utf8mb4)");
        }
        Form::Bytes if value.is_empty() => statement.push_str("''"),
        Form::Bytes => {
            statement.push_str("x'");
            push_hex(statement, value);
            statement.push('\'');
        }
    }
}

fn push_hex(statement: &mut String, value: &[u8]) {
    for byte in value {
        // Writing to a string cannot fail.
        let _ = write!(statement, "{byte:02x}");
    }
}

/// The columns whose values are stored, with their types.
fn columns(from: &mut Connection, only: &OnlyTable) -> Result<Vec<(String, Form, String)>> {
    let rows = from.query(&format!(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} \
         AND COALESCE(GENERATION_EXPRESSION, '') = '' AND EXTRA NOT LIKE '%GENERATED ALWAYS%' ORDER BY ORDINAL_POSITION",
        quote::text(&only.schema),
        quote::text(&only.table)
    ))?;
    let mut columns = Vec::with_capacity(rows.rows.len());
    for row in 0..rows.rows.len() {
        let (Some(name), Some(kind)) = (rows.text_at(row, 0), rows.text_at(row, 1)) else { continue };
        let kind = kind.to_lowercase();
        let form = match kind.as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "float" | "double" | "year" => {
                Form::Number
            }
            // A number is a member also where none is valid, and where one is the empty text.
            "enum" | "set" => Form::Number,
            "json" | "uuid" | "inet4" | "inet6" => Form::Document,
            _ => Form::Bytes,
        };
        columns.push((name, form, kind));
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_made_or_said() {
        let made: OnlyTable = "shop.orders".parse().unwrap();
        assert_eq!((made.new_schema.as_str(), made.new_table.as_str()), ("shop", "orders_restored"));
        let said: OnlyTable = "shop.orders=old.o".parse().unwrap();
        assert_eq!((said.new_schema.as_str(), said.new_table.as_str()), ("old", "o"));
        for wrong in ["orders", ".x", "x.", "a.b=c", "a.b=.c", &format!("a.{}", "x".repeat(60))] {
            assert!(wrong.parse::<OnlyTable>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_keep_their_bytes() {
        let mut statement = String::new();
        push_value(&mut statement, Form::Bytes, Some(b"a'\xff"));
        push_value(&mut statement, Form::Bytes, Some(b""));
        push_value(&mut statement, Form::Number, Some(b"-1.5"));
        push_value(&mut statement, Form::Document, Some(b"{}"));
        push_value(&mut statement, Form::Bytes, None);
        assert_eq!(statement, "x'6127ff'''-1.5CONVERT(x'7b7d' USING utf8mb4)NULL");
    }

    #[test]
    fn foreign_keys_are_left_out_of_a_copy() {
        assert!(is_foreign_key("  CONSTRAINT `a` FOREIGN KEY (`b`) REFERENCES `c` (`d`),"));
        assert!(!is_foreign_key("  CONSTRAINT `a` CHECK (`b` > 0)"));
        assert!(!is_foreign_key("  `CONSTRAINT` int COMMENT '` FOREIGN KEY ('"));
    }
}

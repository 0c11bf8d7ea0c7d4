//! The contents of a server in a form that servers of different vendors share: tables, their columns' names, and
//! their rows as text that both vendors print alike.

use serde_json::Value;

use super::picture::{Class, Picture, text_literal};
use super::world::OWN_SCHEMAS;
use crate::Result;
use crate::sandbox::Sandbox;
use crate::sql::{Session, quote};
use crate::vendor::Vendor;

/// Reads all tables.
pub(super) fn take(server: &Sandbox) -> Result<Picture> {
    let mut session = server.connect()?;
    session.run("SET NAMES utf8mb4")?;
    session.run("SET SESSION sql_mode = '', time_zone = '+00:00', sql_select_limit = DEFAULT")?;
    let tables: Vec<(String, String)> = session.rows(&format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
         WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ({OWN_SCHEMAS}) ORDER BY 1, 2"
    ))?;
    let mut picture = Picture::new();
    for (schema, table) in tables {
        table_of(&mut session, server.vendor(), &mut picture, &schema, &table)?;
    }
    Ok(picture)
}

fn table_of(session: &mut Session, vendor: Vendor, picture: &mut Picture, schema: &str, table: &str) -> Result<()> {
    let columns: Vec<(String, String, String)> = session.rows(&format!(
        "SELECT COLUMN_NAME, DATA_TYPE, IS_NULLABLE FROM information_schema.COLUMNS
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY ORDINAL_POSITION",
        text_literal(schema),
        text_literal(table)
    ))?;
    let expressions: Vec<String> =
        columns.iter().map(|(name, kind, _)| expression(vendor, name, &kind.to_ascii_lowercase())).collect();
    let name = format!("{}.{}", quote(schema), quote(table));
    let rows: Vec<mysql::Row> = session.rows(&format!("SELECT {} FROM {name}", expressions.join(", ")))?;
    let mut lines: Vec<String> = rows
        .into_iter()
        .map(|row| {
            let values = row.unwrap().into_iter().zip(&columns);
            values.map(|(value, (name, kind, _))| shown(name, kind, value)).collect::<Vec<_>>().join(" | ")
        })
        .collect();
    lines.sort_unstable();
    picture.insert((Class::Rows, name.clone()), lines);
    let definition = columns.iter().map(|(name, _, nullable)| format!("{name}, NULL: {nullable}")).collect();
    picture.insert((Class::Definition, name), definition);
    Ok(())
}

/// A column as text that both vendors print alike.
fn expression(vendor: Vendor, name: &str, kind: &str) -> String {
    let name = quote(name);
    match kind {
        "bit" => format!("CAST({name} + 0 AS CHAR)"),
        // A FLOAT loses digits as text; a DOUBLE does not.
        "float" => format!("CAST(CAST({name} AS DOUBLE) AS CHAR)"),
        "json" if vendor == Vendor::MySql => format!("CAST({name} AS CHAR)"),
        "point" | "geometry" | "linestring" => format!("HEX({name})"),
        _ if kind.ends_with("blob") || kind.ends_with("binary") => format!("HEX({name})"),
        _ => format!("CAST({name} AS CHAR)"),
    }
}

/// A value for comparison. MariaDB keeps the original text of JSON, MySQL its parsed value; names of such columns begin
/// with a `j`. The vendors write numbers with an exponent differently.
fn shown(name: &str, kind: &str, value: mysql::Value) -> String {
    let mysql::Value::Bytes(bytes) = value else {
        return if value == mysql::Value::NULL { "NULL".to_owned() } else { format!("{value:?}") };
    };
    let text = String::from_utf8_lossy(&bytes);
    if name.starts_with('j')
        && let Ok(document) = serde_json::from_str::<Value>(&text)
    {
        return format!("JSON {document}");
    }
    if matches!(kind, "float" | "double")
        && let Ok(number) = text.parse::<f64>()
    {
        return format!("{number:e}");
    }
    format!("'{}'", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_documents_with_one_meaning_are_equal() {
        let shown = |name: &str, text: &str| shown(name, "longtext", mysql::Value::Bytes(text.into()));
        assert_eq!(shown("j1", "{\"b\":1,  \"a\":[]}"), shown("j1", "{\"a\": [], \"b\": 1}"));
        assert_ne!(shown("v1", "{\"b\":1}"), shown("v1", "{\"b\": 1}"));
        assert_ne!(shown("j1", "null"), super::shown("j1", "longtext", mysql::Value::NULL));
        assert_ne!(shown("v1", "NULL"), super::shown("v1", "longtext", mysql::Value::NULL));
    }

    #[test]
    fn numbers_in_any_notation_are_equal() {
        let shown = |kind: &str, text: &str| shown("p1", kind, mysql::Value::Bytes(text.into()));
        assert_eq!(shown("double", "0.0000325"), shown("double", "3.25e-5"));
        assert_ne!(shown("double", "0.0000325"), shown("double", "3.26e-5"));
        assert_ne!(shown("decimal", "1.0"), shown("decimal", "1.00"));
    }
}

//! What is in the tables, as text that means the same on both vendors' servers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use spate_lab::vendor::Vendor;

use super::Server;
use super::server::TABLES_OF_USERS;

/// Checks that two servers hold the same rows in tables of the same names and columns, whatever their vendors.
pub fn assert_same(source: &Server, replica: &Server) {
    let (source_columns, replica_columns) = (columns(source), columns(replica));
    let tables = |columns: &Columns| columns.keys().cloned().collect::<Vec<_>>();
    assert_eq!(tables(&source_columns), tables(&replica_columns), "the tables");
    assert!(!source_columns.is_empty(), "no table is there to compare");
    for (table, of_source) in &source_columns {
        let of_replica = &replica_columns[table];
        // MariaDB keeps JSON as the text that it was, MySQL as the value that it means.
        let is_json = |column: &Column| column.1 == "json";
        let json: BTreeSet<usize> = (0..of_source.len())
            .filter(|&at| is_json(&of_source[at]) || of_replica.get(at).is_some_and(is_json))
            .collect();
        let (of_source, of_replica) = (rows(source, table, of_source, &json), rows(replica, table, of_replica, &json));
        assert_eq!(of_source, of_replica, "table {table} differs between source and replica");
    }
}

/// A column's name and type.
type Column = (String, String);
type Columns = BTreeMap<String, Vec<Column>>;

fn columns(server: &Server) -> Columns {
    let lines = server.sql(&format!(
        "SELECT CONCAT('`', table_schema, '`.`', table_name, '`'), CONCAT('`', column_name, '`'), data_type \
         FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) \
         WHERE {TABLES_OF_USERS} ORDER BY table_schema, table_name, ordinal_position"
    ));
    let mut columns = Columns::new();
    for line in lines.lines() {
        let [table, name, data_type] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        columns.entry(table.to_owned()).or_default().push((name.to_owned(), data_type.to_ascii_lowercase()));
    }
    columns
}

/// All rows in the order of their text.
fn rows(server: &Server, table: &str, columns: &[Column], json: &BTreeSet<usize>) -> Vec<String> {
    let expressions: Vec<String> = columns.iter().map(|column| expression(server, column)).collect();
    let text = server.sql(&format!("SELECT {} FROM {table}", expressions.join(", ")));
    let canonical = |(at, value): (usize, &str)| match json.contains(&at) && value != "NULL" {
        true => serde_json::from_str::<Value>(&value.replace("\\\\", "\\")).unwrap().to_string(),
        false => value.to_owned(),
    };
    let mut rows: Vec<String> =
        text.lines().map(|line| line.split('\t').enumerate().map(canonical).collect::<Vec<_>>().join("\t")).collect();
    rows.sort();
    rows
}

/// A column as text that both vendors print alike.
fn expression(server: &Server, (name, data_type): &Column) -> String {
    let is_binary = data_type.ends_with("blob") || data_type.ends_with("binary");
    match data_type.as_str() {
        "bit" => format!("{name} + 0"),
        "json" if server.kind.vendor() == Vendor::MySql => format!("CAST({name} AS CHAR)"),
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
        | "geometrycollection" | "geomcollection" => format!("HEX({name})"),
        _ if is_binary => format!("HEX({name})"),
        _ => name.clone(),
    }
}

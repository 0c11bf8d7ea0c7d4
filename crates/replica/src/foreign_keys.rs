//! Which foreign keys the replica has, and which tables they connect.
//!
//! MySQL is asked for `information_schema.REFERENTIAL_CONSTRAINTS`. MariaDB is not: once a table with a foreign key has
//! been moved to another schema, this question, like the two others that list foreign keys there, can crash the server
//! (10.11.19 does). InnoDB's own dictionary answers at once for ten thousand tables, but only for an account with the privilege PROCESS, and
//! it truncates long names. Other accounts, and all if a name is truncated, get the same from the tables' definitions, in a second or two.

mod definition;

use std::collections::HashMap;

use spate_schedule::TableName;
use spate_sql::Servers;

use spate_connection::{Connection, Error, Result, ResultSet, Vendor, quote};

/// The dictionary shows so many characters of a name, and nothing says that more follow.
const DICTIONARY_NAME_CHARACTERS: usize = 193;
/// Deleting or updating the parent's row changes the child's: the bits for CASCADE and SET NULL.
const ACTION_BITS: u32 = 0b1111;
/// What InnoDB calls a table that is being made, or that a crash has left, as its dictionary writes names: a table that somebody
/// has given such a name is `@0023sql…` there.
const UNFINISHED: &str = "%/#sql%";
/// Definitions that are asked for before the first is received: more saves nothing, as they are made one after the other, and
/// the questions fit in any socket's buffer.
const DEFINITIONS_IN_FLIGHT_MAX: usize = 64;

/// "Access denied; you need … the PROCESS privilege", and "unknown table": a server that was started without InnoDB's.
const NO_DICTIONARY: [u16; 2] = [1227, 1109];
/// The account may not see the table; without its foreign keys, Spate would fold what their actions depend on.
const DENIED: [u16; 4] = [1044, 1045, 1142, 1227];

/// A foreign key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignKey {
    /// The table whose rows refer to others.
    pub child: TableName,
    pub(crate) parent: TableName,
    /// The engine changes rows of the child by itself.
    pub has_action: bool,
}

/// All foreign keys of a server, in any order.
///
/// # Errors
/// Any error of the connection.
pub fn read(connection: &mut Connection) -> Result<Vec<ForeignKey>> {
    if connection.server_version().vendor == Vendor::MySql {
        return from_constraints(connection);
    }
    let known = match from_dictionary(connection) {
        Err(Error::Server { error, .. }) if NO_DICTIONARY.contains(&error.code) => None,
        answer => answer?,
    };
    match known {
        Some(keys) => Ok(keys),
        None => from_definitions(connection),
    }
}

fn from_constraints(connection: &mut Connection) -> Result<Vec<ForeignKey>> {
    let rows = connection.query(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, \
         UPDATE_RULE, DELETE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS",
    )?;
    let is_action = |rule: String| rule == "CASCADE" || rule.starts_with("SET ");
    Ok(keys(&rows, |text| is_action(text(4)) || is_action(text(5))))
}

/// What InnoDB's dictionary says; `None` if a name in it may be cut off. Names are as in file names there; the server itself reads
/// them.
fn from_dictionary(connection: &mut Connection) -> Result<Option<Vec<ForeignKey>>> {
    let part = |name: &str, index: i8| {
        format!("CONVERT(CONVERT(CAST(SUBSTRING_INDEX({name}, '/', {index}) AS BINARY) USING filename) USING utf8mb4)")
    };
    let rows = connection.query(&format!(
        "SELECT {}, {}, {}, {}, TYPE, GREATEST(CHAR_LENGTH(FOR_NAME), CHAR_LENGTH(REF_NAME)) \
         FROM information_schema.INNODB_SYS_FOREIGN WHERE FOR_NAME NOT LIKE '{UNFINISHED}'",
        part("FOR_NAME", 1),
        part("FOR_NAME", -1),
        part("REF_NAME", 1),
        part("REF_NAME", -1),
    ))?;
    let number = |row, column| rows.text_at(row, column).and_then(|text| text.parse::<usize>().ok());
    let is_whole = |row| number(row, 5).is_some_and(|length| length < DICTIONARY_NAME_CHARACTERS);
    if !(0..rows.rows.len()).all(is_whole) {
        return Ok(None);
    }
    // An entry that is no number is taken for an action: that folds too little, not too much.
    Ok(Some(keys(&rows, |text| text(4).parse().map_or(true, |bits: u32| bits & ACTION_BITS != 0))))
}

/// The rows of an answer that begins with the schema and the name of the child, and of the parent.
fn keys(rows: &ResultSet, has_action: impl Fn(&dyn Fn(usize) -> String) -> bool) -> Vec<ForeignKey> {
    let key = |row| {
        let text = |column| rows.text_at(row, column).unwrap_or_default();
        ForeignKey {
            child: TableName { schema: text(0), table: text(1) },
            parent: TableName { schema: text(2), table: text(3) },
            has_action: has_action(&text),
        }
    };
    (0..rows.rows.len()).map(key).collect()
}

/// Only InnoDB's tables have foreign keys.
fn from_definitions(connection: &mut Connection) -> Result<Vec<ForeignKey>> {
    let rows = connection.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE ENGINE = 'InnoDB' \
         AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN ('mysql', 'sys')",
    )?;
    let table = |row| Some(TableName { schema: rows.text_at(row, 0)?, table: rows.text_at(row, 1)? });
    let tables: Vec<TableName> = (0..rows.rows.len()).filter_map(table).collect();
    let server = Servers::only(connection.server_version().reader());
    let mut keys = Vec::new();
    for tables in tables.chunks(DEFINITIONS_IN_FLIGHT_MAX) {
        for table in tables {
            let table = quote::qualified(&table.schema, &table.table);
            // Names in backticks, and a backslash before what would end a text.
            let sql = format!("SET STATEMENT sql_mode = '', sql_quote_show_create = 1 FOR SHOW CREATE TABLE {table}");
            connection.send_query(sql.as_bytes())?;
        }
        let (mut failure, mut unclear) = (None, None);
        for table in tables {
            match connection.receive_rows() {
                Ok(rows) => {
                    let definition = rows.text_at(0, 1).unwrap_or_default();
                    match definition::foreign_keys(table, &definition, server) {
                        Ok(found) => keys.extend(found),
                        Err(doubt) => {
                            unclear = Some(format!("the definition of {table} cannot be read: {}", doubt.why))
                        }
                    }
                }
                Err(error @ Error::Server { .. }) if !is_passed_over(&error) => failure = Some(error),
                // Gone since, or one that nobody can open: no row of it can be changed either.
                Err(Error::Server { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if let Some(why) = unclear {
            return Err(Error::Protocol { peer: connection.peer().clone(), why });
        }
    }
    Ok(keys)
}

fn is_passed_over(error: &Error) -> bool {
    !error.is_transient() && !error.code().is_some_and(|code| DENIED.contains(&code))
}

/// For each table in a foreign key: the name of its group, and for each group whether an engine action occurs in it.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: HashMap<TableName, usize>,
    has_actions: Vec<bool>,
}

impl Groups {
    pub(crate) fn new(keys: Vec<ForeignKey>) -> Groups {
        let mut groups = Groups::default();
        for ForeignKey { child, parent, has_action } in keys {
            groups.connect(child, parent, has_action);
        }
        groups
    }

    /// The tables that foreign keys connect with others.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.groups.keys()
    }

    /// True if foreign keys connect this table with one that the engine changes by itself.
    pub(crate) fn has_actions(&self, table: &TableName) -> bool {
        self.groups.get(table).is_some_and(|&group| self.has_actions[group])
    }

    /// The number of the tables that foreign keys connect with this one. `None`: there are no others.
    pub(crate) fn of(&self, table: &TableName) -> Option<usize> {
        self.groups.get(table).copied()
    }

    fn connect(&mut self, child: TableName, parent: TableName, has_action: bool) {
        let (kept, merged) = (self.group(child), self.group(parent));
        for group in self.groups.values_mut().filter(|group| **group == merged) {
            *group = kept;
        }
        self.has_actions[kept] |= self.has_actions[merged] || has_action;
    }

    fn group(&mut self, table: TableName) -> usize {
        let next = self.has_actions.len();
        let group = *self.groups.entry(table).or_insert(next);
        if group == next {
            self.has_actions.push(false);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &str) -> TableName {
        TableName { schema: "s".into(), table: table.into() }
    }

    #[test]
    fn cascade_orders_all_connected_tables() {
        let mut groups = Groups::default();
        groups.connect(name("b"), name("a"), false);
        groups.connect(name("d"), name("c"), true);
        groups.connect(name("f"), name("e"), false);
        groups.connect(name("c"), name("b"), false);
        for (table, expected) in [("a", true), ("b", true), ("c", true), ("d", true), ("e", false), ("z", false)] {
            assert_eq!(groups.has_actions(&name(table)), expected, "{table}");
        }
    }
}

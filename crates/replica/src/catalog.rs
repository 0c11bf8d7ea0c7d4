//! What the replica says of its tables, in the words that folding needs.

use std::collections::HashMap;

use spate_schedule::TableDefinition;
use spate_schedule::TableName;
use spate_schedule::definition::{ColumnDefinition, LookupDefinition};
use spate_schedule::sequence::SequenceBounds;

use crate::wire::{Connection, Result, ResultSet, quote};

/// Reads definitions over a connection of its own, so that the applier's is never in the way.
///
/// Foreign keys are read once for all tables and kept until [`Catalog::forget`], since a table's policy depends on every
/// table that foreign keys connect it with.
#[derive(Debug)]
pub struct Catalog {
    connection: Connection,
    foreign_keys: Option<ForeignKeys>,
    transactional_engines: Option<Vec<String>>,
    /// The user may delete rows of every table, and sees every trigger.
    may_delete_anywhere: Option<bool>,
}

/// For each table in a foreign key: the name of its group, and for each group whether an engine action occurs in it.
#[derive(Debug, Default)]
struct ForeignKeys {
    groups: HashMap<TableName, usize>,
    has_actions: Vec<bool>,
}

#[derive(Debug)]
struct Index {
    name: String,
    columns: Vec<Option<usize>>,
    is_unique: bool,
    has_null: bool,
    is_prefix: bool,
    is_btree: bool,
    is_hash: bool,
}

impl Catalog {
    /// A catalog over `connection`.
    pub fn new(connection: Connection) -> Catalog {
        Catalog { connection, foreign_keys: None, transactional_engines: None, may_delete_anywhere: None }
    }

    /// Forgets what DDL may have changed.
    pub fn forget(&mut self) {
        self.foreign_keys = None;
    }

    /// The definition of a table, or `None` if the replica does not have it (or does not show it to this user).
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn definition(&mut self, name: &TableName) -> Result<Option<TableDefinition>> {
        let place =
            format!("TABLE_SCHEMA = {} AND TABLE_NAME = {}", quote::text(&name.schema), quote::text(&name.table));
        let table = self
            .connection
            .query(&format!("SELECT ENGINE, TABLE_TYPE FROM information_schema.TABLES WHERE {place}"))?;
        if table.rows.is_empty() {
            return Ok(None);
        }
        let columns = self.connection.query(&format!(
            "SELECT COLUMN_NAME, COLUMN_TYPE, EXTRA, GENERATION_EXPRESSION FROM information_schema.COLUMNS \
             WHERE {place} ORDER BY ORDINAL_POSITION"
        ))?;
        let has_period = (0..columns.rows.len()).any(|row| columns.text_at(row, 3).as_deref() == Some("ROW START"));
        let mut columns = (0..columns.rows.len()).map(|row| column(&columns, row)).collect::<Vec<_>>();
        let indexes = self.indexes(&place, &columns)?;
        let engine = table.text_at(0, 0).unwrap_or_default();
        let is_system_versioned = table.text_at(0, 1).as_deref() == Some("SYSTEM VERSIONED");
        let hashes = indexes.iter().filter(|index| index.is_unique && index.is_hash && engine != "MEMORY").count();
        columns.extend(unlisted(is_system_versioned && !has_period, hashes));
        let is_transactional = self.transactional_engines()?.contains(&engine);
        let has_engine_actions = self.foreign_keys()?.has_actions(name);
        let row_key_index = row_key_index(&indexes);
        let row_key = row_key_index.map_or(vec![], |index| indexes[index].columns.iter().copied().flatten().collect());
        let others = || {
            let is_other = |&(position, index): &(usize, &Index)| index.is_unique && Some(position) != row_key_index;
            indexes.iter().enumerate().filter(is_other).map(|(_, index)| index)
        };
        let mut unique_columns: Vec<usize> =
            others().flat_map(|index| index.columns.iter().copied().flatten()).collect();
        unique_columns.sort_unstable();
        unique_columns.dedup();
        let is_hidden = |column: &Option<usize>| column.is_none_or(|column| columns[column].is_generated);
        let has_hidden_unique_key = others().any(|index| index.columns.iter().any(is_hidden));
        let lookup = if row_key.is_empty() { self.lookup(name, &place)? } else { LookupDefinition::default() };
        Ok(Some(TableDefinition {
            name: name.clone(),
            lookup,
            row_key,
            unique_columns,
            has_hidden_unique_key,
            is_system_versioned,
            sequence: match table.text_at(0, 1).as_deref() {
                Some("SEQUENCE") => Some(self.sequence_bounds(name)?),
                _ => None,
            },
            engine,
            is_transactional,
            has_engine_actions,
            columns,
        }))
    }

    fn sequence_bounds(&mut self, name: &TableName) -> Result<SequenceBounds> {
        let table = quote::qualified(&name.schema, &name.table);
        let sql = format!("SELECT minimum_value, maximum_value, increment FROM {table}");
        let row = self.connection.query(&sql)?;
        let number = |column| row.text_at(0, column).and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(SequenceBounds { minimum: number(0), maximum: number(1), increment: number(2) })
    }

    fn indexes(&mut self, place: &str, columns: &[ColumnDefinition]) -> Result<Vec<Index>> {
        // Without ORDER BY: the server lists keys in its own order, in which the first unique key without NULL is the one
        // that it treats as the primary key.
        let rows = self.connection.query(&format!(
            "SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME, NULLABLE, SUB_PART, INDEX_TYPE \
             FROM information_schema.STATISTICS WHERE {place}"
        ))?;
        let mut indexes: Vec<Index> = Vec::new();
        for row in 0..rows.rows.len() {
            let text = |column| rows.text_at(row, column);
            let name = text(0).unwrap_or_default();
            if indexes.last().is_none_or(|index| index.name != name) {
                let (is_unique, is_btree) = (text(1).as_deref() == Some("0"), text(5).as_deref() == Some("BTREE"));
                indexes.push(Index {
                    name,
                    columns: vec![],
                    is_unique,
                    has_null: false,
                    is_prefix: false,
                    is_btree,
                    is_hash: text(5).as_deref() == Some("HASH"),
                });
            }
            let column = text(2).and_then(|name| columns.iter().position(|column| column.name == name));
            if let Some(index) = indexes.last_mut() {
                index.columns.push(column);
                index.has_null |= text(3).as_deref() == Some("YES");
                index.is_prefix |= text(4).is_some();
            }
        }
        Ok(indexes)
    }

    /// How rows of a table without a row key can be found.
    fn lookup(&mut self, name: &TableName, place: &str) -> Result<LookupDefinition> {
        let indexes = self.connection.query(&format!(
            "SELECT COALESCE(MAX(GREATEST(CARDINALITY, 1)), 0) FROM information_schema.STATISTICS \
             WHERE {place} AND INDEX_TYPE = 'BTREE'"
        ))?;
        let distinct_values = indexes.single_text().and_then(|text| text.parse().ok()).unwrap_or(0);
        let (schema, table) = (quote::text(&name.schema), quote::text(&name.table));
        let triggers = self.connection.query(&format!(
            "SELECT 1 FROM information_schema.TRIGGERS \
             WHERE EVENT_OBJECT_SCHEMA = {schema} AND EVENT_OBJECT_TABLE = {table} LIMIT 1"
        ))?;
        let by_statement = triggers.rows.is_empty() && self.may_delete_anywhere()?;
        Ok(LookupDefinition { distinct_values, by_statement })
    }

    /// Whether the user has certain privileges everywhere. (Without the privilege TRIGGER, triggers exist that are not
    /// shown.)
    fn may_delete_anywhere(&mut self) -> Result<bool> {
        if let Some(known) = self.may_delete_anywhere {
            return Ok(known);
        }
        let user = self.connection.query("SELECT CURRENT_USER()")?.single_text().unwrap_or_default();
        let (name, host) = user.rsplit_once('@').unwrap_or((&user, ""));
        let rows = self.connection.query(&format!(
            "SELECT COUNT(DISTINCT PRIVILEGE_TYPE) FROM information_schema.USER_PRIVILEGES \
             WHERE PRIVILEGE_TYPE IN ('SELECT', 'DELETE', 'TRIGGER') AND GRANTEE = {}",
            quote::text(&format!("'{name}'@'{host}'"))
        ))?;
        let may = rows.single_text().as_deref() == Some("3");
        self.may_delete_anywhere = Some(may);
        Ok(may)
    }

    fn transactional_engines(&mut self) -> Result<&[String]> {
        if self.transactional_engines.is_none() {
            let sql = "SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES'";
            let rows = self.connection.query(sql)?;
            self.transactional_engines = Some((0..rows.rows.len()).filter_map(|row| rows.text_at(row, 0)).collect());
        }
        Ok(self.transactional_engines.as_deref().unwrap_or_default())
    }

    fn foreign_keys(&mut self) -> Result<&ForeignKeys> {
        if self.foreign_keys.is_none() {
            let rows = self.connection.query(
                "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, \
                 UPDATE_RULE, DELETE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS",
            )?;
            self.foreign_keys = Some(ForeignKeys::from_rows(&rows));
        }
        Ok(self.foreign_keys.get_or_insert_default())
    }
}

impl ForeignKeys {
    fn from_rows(rows: &ResultSet) -> ForeignKeys {
        let mut keys = ForeignKeys::default();
        for row in 0..rows.rows.len() {
            let text = |column| rows.text_at(row, column).unwrap_or_default();
            let child = TableName { schema: text(0), table: text(1) };
            let parent = TableName { schema: text(2), table: text(3) };
            let is_action = |rule: String| rule == "CASCADE" || rule.starts_with("SET ");
            keys.connect(child, parent, is_action(text(4)) || is_action(text(5)));
        }
        keys
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

    fn has_actions(&self, table: &TableName) -> bool {
        self.groups.get(table).is_some_and(|&group| self.has_actions[group])
    }
}

fn column(rows: &ResultSet, row: usize) -> ColumnDefinition {
    let text = |column| rows.text_at(row, column).unwrap_or_default();
    let extra = text(2).to_ascii_uppercase();
    ColumnDefinition {
        name: text(0),
        column_type: text(1),
        is_unsigned: text(1).contains("unsigned"),
        is_auto_increment: extra.contains("AUTO_INCREMENT"),
        is_generated: extra.contains("GENERATED") || extra.contains("VIRTUAL") || extra.contains("PERSISTENT"),
    }
}

/// Columns that the server keeps behind those that it lists, and logs with every row: when a row's version began and ended, and
/// a hash for each unique key that is too long for an index of its own.
fn unlisted(has_versions: bool, hashes: usize) -> impl Iterator<Item = ColumnDefinition> {
    let named = |name: String| ColumnDefinition {
        name,
        column_type: String::new(),
        is_unsigned: false,
        is_auto_increment: false,
        is_generated: true,
    };
    let versions = if has_versions { ["row_start", "row_end"].as_slice() } else { &[] };
    let hashes = (1..=hashes).map(|number| format!("DB_ROW_HASH_{number}"));
    versions.iter().map(|&name| name.to_owned()).chain(hashes).map(named)
}

/// The primary key, or the first unique key on whole columns that are all NOT NULL.
fn row_key_index(indexes: &[Index]) -> Option<usize> {
    let primary = indexes.iter().position(|index| index.name == "PRIMARY");
    let is_equivalent = |index: &Index| {
        index.is_unique
            && index.is_btree
            && !index.has_null
            && !index.is_prefix
            && index.columns.iter().all(Option::is_some)
    };
    primary.or_else(|| indexes.iter().position(is_equivalent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &str) -> TableName {
        TableName { schema: "s".into(), table: table.into() }
    }

    #[test]
    fn one_cascade_orders_all_tables_that_foreign_keys_connect() {
        let mut keys = ForeignKeys::default();
        keys.connect(name("b"), name("a"), false);
        keys.connect(name("d"), name("c"), true);
        keys.connect(name("f"), name("e"), false);
        keys.connect(name("c"), name("b"), false);
        for (table, expected) in [("a", true), ("b", true), ("c", true), ("d", true), ("e", false), ("z", false)] {
            assert_eq!(keys.has_actions(&name(table)), expected, "{table}");
        }
    }
}

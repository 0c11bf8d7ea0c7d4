//! What the replica says of a table, and what follows for folding it.

use std::fmt;

use spate_binlog::TableMap;

/// A table's schema and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The schema (database).
    pub schema: String,
    /// The table.
    pub table: String,
}

impl TableName {
    /// True if a statement that says this name may mean `other`: some servers do not tell upper from lower case.
    pub fn may_be(&self, other: &TableName) -> bool {
        may_be(&self.table, &other.table) && may_be(&self.schema, &other.schema)
    }
}

/// Beyond ASCII, each server folds letter case in its own way: the final sigma, the dotted I, the sign of Kelvin.
fn may_be(one: &str, other: &str) -> bool {
    !one.is_ascii() || !other.is_ascii() || one.eq_ignore_ascii_case(other)
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// A column as the replica defines it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// Its type as the server writes it: `int(10) unsigned`, `varchar(20)`. Empty if nobody said.
    pub column_type: String,
    /// For numbers: has it no sign?
    pub is_unsigned: bool,
    /// Does the engine generate its values, and keep a counter of the highest?
    pub is_auto_increment: bool,
    /// Is it computed from other columns, or by the server?
    pub is_generated: bool,
    /// For text: its character set. Empty for everything else.
    pub charset: String,
    /// For text: its collation. Empty for everything else.
    pub collation: String,
    /// May it be NULL?
    pub is_nullable: bool,
    /// Has it no default of its own, so that only a session that is not strict lets an insert leave it out? It then becomes what
    /// its type begins with, or NULL. False if nobody said.
    pub lacks_default: bool,
}

/// A table as the replica defines it. Column indexes count from 0 in the table's order.
/// Flat, since each field is one answer of the replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableDefinition {
    /// Its name.
    pub name: TableName,
    /// Its columns, in order.
    pub columns: Vec<ColumnDefinition>,
    /// The primary key's columns, in key order; or, without one, those of the first unique key whose columns are all NOT
    /// NULL, which the servers treat as the primary key. Empty: the table has neither.
    pub row_key: Vec<usize>,
    /// The name of that key; empty if there is none.
    pub row_key_name: String,
    /// The columns of every other unique key that would do as well: whole columns that are all NOT NULL.
    pub equivalent_keys: Vec<Vec<usize>>,
    /// Columns of every other unique key.
    pub unique_columns: Vec<usize>,
    /// A unique key stands on something that row images may not show, such as an expression: any update may change it.
    pub has_hidden_unique_key: bool,
    /// The engine's name.
    pub engine: String,
    /// The column that says when a version of a row ended (ROW END). `None`: the server does not keep the table's history.
    pub row_end: Option<usize>,
    /// Is its history divided into partitions of so many rows (PARTITION BY SYSTEM_TIME LIMIT)?
    pub has_history_limit: bool,
    /// Is it a sequence?
    pub is_sequence: bool,
    /// Can the engine roll back?
    pub is_transactional: bool,
    /// The table is connected, through foreign keys, with one whose CASCADE or SET NULL the engine carries out.
    pub has_engine_actions: bool,
    /// The server computes something of its rows, or checks them, by expressions, and does so as the session's state says. False where a
    /// source says nothing of its sessions.
    pub depends_on_session: bool,
    /// How its rows can be found if it has no row key.
    pub lookup: LookupDefinition,
    /// A trigger that a statement would fire, if there is one, and if somebody asked.
    pub trigger: Option<String>,
}

/// What decides how the rows of a table without a row key are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookupDefinition {
    /// Different values in the index that tells rows apart best, as the server estimates; 0 without an index. The server
    /// looks through all rows, divided by this, for each row that is deleted by its image.
    pub distinct_values: u64,
    /// A statement may delete its rows: no trigger fires, and the privileges are there.
    pub by_statement: bool,
}

/// How the row changes of a table are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoldPolicy {
    /// As net row changes, by row key.
    Fold,
    /// As a list of rows that are told by their images: see [`crate::keyless`].
    Keyless,
    /// One by one, in the source's order.
    Ordered(OrderedReason),
}

/// Why a table's row changes are not folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderedReason {
    /// No primary key and no unique key whose columns are all NOT NULL; and an AUTO_INCREMENT column, whose counter every
    /// insert raises, or columns that only the replica has, which an update must keep.
    NoKey,
    /// Foreign keys with CASCADE or SET NULL: the engine must see each change, in order, with checks on.
    EngineActions,
    /// The server keeps the table's history: every change counts, not only the last.
    SystemVersioned,
    /// The binlog does not tell how long its values are (temporal columns in the format before MySQL 5.6).
    Unmeasurable,
    /// The replica has columns of its own, whose values depend on the order and the ways in which a row became what it is.
    OwnColumns,
    /// The AUTO_INCREMENT column is not in the key, or is no integer: its counter depends on every value that a row has had.
    CounterApart,
    /// Its engine cannot roll back: after a crash each change is looked at by itself.
    Irrevocable,
    /// The same transaction creates it, so the replica cannot be asked about it yet.
    JustCreated,
}

impl fmt::Display for OrderedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OrderedReason::NoKey => "it has no primary key and no unique key whose columns are all NOT NULL",
            OrderedReason::EngineActions => "foreign keys with CASCADE or SET NULL connect it",
            OrderedReason::SystemVersioned => "it is system-versioned",
            OrderedReason::Unmeasurable => "it has temporal columns in the format before MySQL 5.6",
            OrderedReason::OwnColumns => "it has columns that the source's table does not have",
            OrderedReason::CounterApart => "its AUTO_INCREMENT column is not in the key, or is no integer",
            OrderedReason::Irrevocable => "its engine cannot roll back",
            OrderedReason::JustCreated => "the same transaction creates it",
        })
    }
}

impl TableDefinition {
    /// How changes described by `map` are applied to this table.
    pub fn fold_policy(&self, map: &TableMap, takes_cascades: bool) -> FoldPolicy {
        if map.unmeasurable_column().is_some() {
            return FoldPolicy::Ordered(OrderedReason::Unmeasurable);
        }
        if !self.is_transactional {
            return FoldPolicy::Ordered(OrderedReason::Irrevocable);
        }
        if self.has_engine_actions && !takes_cascades {
            return FoldPolicy::Ordered(OrderedReason::EngineActions);
        }
        if self.row_end.is_some() {
            return FoldPolicy::Ordered(OrderedReason::SystemVersioned);
        }
        if self.columns.iter().skip(map.columns.len()).any(|column| !column.is_generated) {
            return FoldPolicy::Ordered(OrderedReason::OwnColumns);
        }
        if self.row_key.is_empty() {
            let is_whole = self.columns.len() == map.columns.len() && self.auto_increment_column().is_none();
            let has_values = self.columns.iter().any(|column| !column.is_generated);
            return if is_whole && has_values {
                FoldPolicy::Keyless
            } else {
                FoldPolicy::Ordered(OrderedReason::NoKey)
            };
        }
        let is_apart = |column: usize| {
            !self.row_key.contains(&column) || !map.columns.get(column).is_some_and(|of| of.is_integer())
        };
        if self.row_key.iter().any(|&column| column >= map.columns.len()) {
            // It is computed, from what only the replica knows how.
            return FoldPolicy::Ordered(OrderedReason::OwnColumns);
        }
        if self.auto_increment_column().is_some_and(is_apart) {
            return FoldPolicy::Ordered(OrderedReason::CounterApart);
        }
        FoldPolicy::Fold
    }

    /// The columns that are not computed from others: rows that are equal in them are equal.
    pub fn stored_columns(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|&column| !self.columns[column].is_generated).collect()
    }

    /// The index of the AUTO_INCREMENT column, if there is one.
    pub fn auto_increment_column(&self) -> Option<usize> {
        self.columns.iter().position(|column| column.is_auto_increment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_ascii_may_be_any_name() {
        let name = |table: &str| TableName { schema: "d".into(), table: table.into() };
        assert!(name("Tab").may_be(&name("tAB")) && !name("tab").may_be(&name("tabs")));
        for (one, other) in [("ΟΔΟΣ", "οδοσ"), ("İx", "ix"), ("\u{212a}", "k"), ("ä", "Ä")] {
            assert!(name(one).may_be(&name(other)), "{one} {other}");
        }
    }
}

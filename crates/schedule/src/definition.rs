//! The definition of a table, as the replica tells it, and the way of applying its row changes that follows from it.

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
    /// True if this name in a statement may mean `other`: some servers do not distinguish upper and lower case.
    pub fn may_be(&self, other: &TableName) -> bool {
        may_be(&self.table, &other.table) && may_be(&self.schema, &other.schema)
    }
}

/// Beyond ASCII, each server folds letter case in its own way: the final sigma, the dotted I, the sign of Kelvin.
fn may_be(one: &str, other: &str) -> bool {
    !one.is_ascii() || !other.is_ascii() || one.eq_ignore_ascii_case(other)
}

impl TableName {
    /// All letters of it, whatever they are: not to be shown.
    pub(crate) fn full(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A line break in a name would begin a line of a log.
        let visible = |name: &str| name.replace(char::is_control, "\u{fffd}");
        write!(f, "{}.{}", visible(&self.schema), visible(&self.table))
    }
}

/// A column as the replica defines it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// Its type as the server writes it: `int(10) unsigned`, `varchar(20)`. Empty if unknown.
    pub column_type: String,
    /// True if a number is unsigned.
    pub is_unsigned: bool,
    /// True if it is AUTO_INCREMENT: the engine generates its values, and keeps a counter of the highest.
    pub is_auto_increment: bool,
    /// True if the server computes it, for example from other columns.
    pub is_generated: bool,
    /// The character set of a text; empty for other columns.
    pub charset: String,
    /// The collation of a text; empty for other columns.
    pub collation: String,
    /// True if it may be NULL.
    pub is_nullable: bool,
    /// True if it has no default, so that an insert may leave it out only in a session that is not strict. It then
    /// becomes the implicit default of its type, or NULL. False if unknown.
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
    /// The primary key's columns, in key order; or, without one, those of the first unique key whose columns are all
    /// NOT NULL, which the servers treat as the primary key. Empty if the table has neither.
    pub row_key: Vec<usize>,
    /// The name of that key; empty if there is none.
    pub row_key_name: String,
    /// The columns of every other unique key that would do as well: whole columns that are all NOT NULL.
    pub equivalent_keys: Vec<Vec<usize>>,
    /// Columns of every other unique key.
    pub unique_columns: Vec<usize>,
    /// The same, key by key.
    pub unique_keys: Vec<UniqueKey>,
    /// The number of the tables that foreign keys connect with this one, directly or not; all have the same. `None`: no foreign key concerns it.
    pub foreign_group: Option<usize>,
    /// Every other index whose entries stand in the order of columns, on columns that have names.
    pub secondary_indexes: Vec<SecondaryIndex>,
    /// True if a unique key is on something that row images may not show, such as an expression: any update may change
    /// it.
    pub has_hidden_unique_key: bool,
    /// The engine's name.
    pub engine: String,
    /// The ROW END column, which says when a version of a row ended. `None` if the server does not keep the table's
    /// history.
    pub row_end: Option<usize>,
    /// True if its history is divided into partitions of a number of rows (PARTITION BY SYSTEM_TIME LIMIT).
    pub has_history_limit: bool,
    /// True if it is a sequence.
    pub is_sequence: bool,
    /// True if it is a view. What is changed through one may execute functions of anybody.
    pub is_view: bool,
    /// True if the engine can roll back.
    pub is_transactional: bool,
    /// True if foreign keys connect the table with one whose CASCADE or SET NULL the engine carries out.
    pub has_engine_actions: bool,
    /// True if the server computes or checks its rows by expressions that depend on the session's state. False if the
    /// source does not log the state of its sessions.
    pub depends_on_session: bool,
    /// How to find its rows if it has no row key.
    pub lookup: LookupDefinition,
    /// A trigger that a statement would fire; `None` if there is none, or if it was not asked for.
    pub trigger: Option<String>,
}

/// An index besides the row key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecondaryIndex {
    /// Its name.
    pub name: String,
    /// Its columns, or those of which it holds the beginnings, in the index's order.
    pub columns: Vec<usize>,
}

/// A unique key besides the row key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UniqueKey {
    /// Its columns; those that have no name are not among them.
    pub columns: Vec<usize>,
    /// It compares only the beginnings of some column.
    pub is_prefix: bool,
}

/// The facts that decide how to find the rows of a table without a row key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookupDefinition {
    /// The server's estimate of distinct values in the most selective index; 0 without an index. To delete a row by its
    /// image, the server searches the number of all rows divided by this.
    pub distinct_values: u64,
    /// True if a statement may delete its rows: no trigger fires, and Spate's account has the privileges.
    pub by_statement: bool,
}

/// How the row changes of a table are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoldPolicy {
    /// As net row changes, by row key.
    Fold,
    /// As a list of rows that are identified by their images: see [`crate::keyless`].
    Keyless,
    /// One by one, in the source's order.
    Ordered(OrderedReason),
}

/// The reason why a table's row changes are not folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderedReason {
    /// No primary key and no unique key whose columns are all NOT NULL; and an AUTO_INCREMENT column, whose counter
    /// every insert raises, or columns that only the replica has, which an update must keep.
    NoKey,
    /// Foreign keys with CASCADE or SET NULL: the engine must see each change, in order, with checks on.
    EngineActions,
    /// The server keeps the table's history: every change counts, not only the last.
    SystemVersioned,
    /// The binlog does not give the length of its values (temporal columns in the format before MySQL 5.6).
    Unmeasurable,
    /// The replica has columns of its own, whose values depend on the order and the kind of a row's changes.
    OwnColumns,
    /// The AUTO_INCREMENT column is not in the key, or not an integer: its counter depends on every value that a row
    /// has had.
    CounterApart,
    /// Its engine cannot roll back: after a crash each change is checked by itself.
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
            OrderedReason::CounterApart => "its AUTO_INCREMENT column is not in the key, or is not an integer",
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
            // Only the replica knows how it is computed.
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

    /// The index of the AUTO_INCREMENT column; `None` if there is none.
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

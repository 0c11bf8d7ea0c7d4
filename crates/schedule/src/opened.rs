//! The tables that the source has opened for a statement.
//!
//! MariaDB's rows events open child tables, too, whose rows the engine changes by itself: a table map without rows. So where a statement
//! opens several tables, the foreign keys that connect them should be known. Other reasons to open several (triggers, changes of
//! several tables) are more common, so each set of tables is looked at once, until the next definition.

use std::collections::HashSet;

/// Sets of tables of which it is known why they are opened together. More are looked at again.
const KNOWN_SETS_MAX: usize = 4 << 10;

/// The tables of the open statement, by the ids of their maps.
#[derive(Debug, Default)]
pub(crate) struct OpenedTables {
    tables: Vec<u64>,
    /// The statement's rows have begun, and all of its maps have come.
    has_rows: bool,
    known: HashSet<Vec<u64>>,
}

impl OpenedTables {
    /// Takes a table map.
    pub(crate) fn open(&mut self, table_id: u64) {
        if std::mem::take(&mut self.has_rows) {
            self.tables.clear();
        }
        // The map is given again once its definition is known.
        if !self.tables.contains(&table_id) {
            self.tables.push(table_id);
        }
    }

    /// Takes a rows event. True for the first of a statement that opens several tables of which nobody has looked yet why.
    pub(crate) fn begin_rows(&mut self) -> bool {
        if std::mem::replace(&mut self.has_rows, true) || self.tables.len() < 2 || self.known.contains(&self.tables) {
            return false;
        }
        if self.known.len() >= KNOWN_SETS_MAX {
            self.known.clear();
        }
        self.known.insert(self.tables.clone());
        true
    }

    /// The tables of the open statement.
    pub(crate) fn tables(&self) -> impl Iterator<Item = u64> {
        self.tables.iter().copied()
    }

    /// A definition may have changed why tables are opened together.
    pub(crate) fn doubt(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_several_tables_is_looked_at_once() {
        let mut opened = OpenedTables::default();
        let mut asks = |tables: &[u64]| {
            tables.iter().for_each(|&id| opened.open(id));
            // The event is given again, and more rows follow.
            [opened.begin_rows(), opened.begin_rows(), opened.begin_rows()]
        };
        assert_eq!(asks(&[1]), [false; 3]);
        assert_eq!(asks(&[1, 2]), [true, false, false]);
        assert_eq!(asks(&[1, 2]), [false; 3]);
        assert_eq!(asks(&[2, 2]), [false; 3]);
        assert_eq!(asks(&[1, 3]), [true, false, false]);
        opened.doubt();
        opened.open(1);
        opened.open(2);
        assert!(opened.begin_rows());
    }
}

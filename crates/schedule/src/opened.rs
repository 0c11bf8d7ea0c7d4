//! The tables that the source has opened for a statement.
//!
//! MariaDB's statements also open child tables whose rows the engine changes by itself: such a table has a map without
//! rows. So if a statement opens several tables, the foreign keys that connect them must be known. Triggers and changes
//! of several tables are more common reasons, so each set of tables is checked once, until the next definition.

use std::collections::HashSet;

/// The most sets of tables that are remembered as checked. Further sets are checked each time.
const KNOWN_SETS_MAX: usize = 4 << 10;

/// The tables of the open statement, by the ids of their maps.
#[derive(Debug, Default)]
pub(crate) struct OpenedTables {
    tables: Vec<u64>,
    /// True if the statement's rows have begun: all of its maps have come.
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

    /// Takes a rows event. True for the first one of a statement that opens several tables, a set that was not checked
    /// yet.
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

    /// Forgets the checked sets: a new definition may have changed the reasons.
    pub(crate) fn doubt(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_set_of_several_tables_is_checked_once() {
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

//! What one transaction of a binlog is, as far as parallelism is concerned.

use std::sync::Arc;

use spate_binlog::{Gtid, LogicalClock};

/// A number that stands for a table of the binlog, from 0, in the order of their first row.
pub type TableNumber = u32;

/// What may be applied beside a transaction, by what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Only changes of rows, each known by its key.
    #[default]
    Rows,
    /// So many changes of rows that they are not told apart.
    ManyRows,
    /// A statement of a session: what it reads and changes is not in the binlog.
    Statement,
    /// A definition, which stands alone.
    Definition,
}

/// One transaction.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// Its number in what was read, from 1.
    pub seqno: u64,
    /// Its GTID, if it has one.
    pub gtid: Option<Gtid>,
    /// When it was committed, in seconds since 1970, by the source's clock.
    pub commit_seconds: u32,
    /// When its first change was made, likewise.
    pub begin_seconds: u32,
    /// The source's file in which it ends.
    pub source_file: Arc<str>,
    /// Where in it.
    pub source_position: u64,
    /// Bytes of its events.
    pub bytes: u64,
    /// Row changes.
    pub rows: u64,
    /// Statements that are not changes of rows, without BEGIN and COMMIT.
    pub statements: u64,
    /// What may be applied beside it.
    pub reach: Reach,
    /// Hashes of the rows that it changes, each with its table. An update that changes the key has two.
    pub keys: Vec<u64>,
    /// Row changes of tables whose rows cannot be told apart.
    pub keyless_rows: u64,
    /// Hashes of these tables.
    pub keyless_tables: Vec<u64>,
    /// Hashes of the schemas that it changes, or whose sessions it is of.
    pub schemas: Vec<u64>,
    /// MariaDB: the number of its commit group, with its domain.
    pub commit_group: Option<(u32, u64)>,
    /// MySQL: its place among those that committed beside it.
    pub logical_clock: Option<LogicalClock>,
}

impl Default for Transaction {
    fn default() -> Transaction {
        Transaction {
            seqno: 0,
            gtid: None,
            commit_seconds: 0,
            begin_seconds: 0,
            source_file: Arc::from(""),
            source_position: 0,
            bytes: 0,
            rows: 0,
            statements: 0,
            reach: Reach::Rows,
            keys: Vec::new(),
            keyless_rows: 0,
            keyless_tables: Vec::new(),
            schemas: Vec::new(),
            commit_group: None,
            logical_clock: None,
        }
    }
}

impl Transaction {
    /// Seconds between its first event and its commit, by the source's clock.
    pub fn seconds(&self) -> u64 {
        u64::from(self.commit_seconds.saturating_sub(self.begin_seconds))
    }

    /// Makes it empty, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        let source_file = self.source_file.clone();
        let mut empty = Transaction { source_file, ..Transaction::default() };
        std::mem::swap(&mut empty.keys, &mut self.keys);
        std::mem::swap(&mut empty.schemas, &mut self.schemas);
        std::mem::swap(&mut empty.keyless_tables, &mut self.keyless_tables);
        empty.keys.clear();
        empty.schemas.clear();
        empty.keyless_tables.clear();
        *self = empty;
    }

    /// It changes rows of a table that cannot be told apart.
    pub(crate) fn add_keyless(&mut self, table: u64, rows: u64) {
        self.keyless_rows += rows;
        if !self.keyless_tables.contains(&table) {
            self.keyless_tables.push(table);
        }
    }

    /// It is at least of this reach.
    pub(crate) fn reach_at_least(&mut self, reach: Reach) {
        if (reach as u8) > (self.reach as u8) {
            self.reach = reach;
        }
    }
}

//! The temporary tables of the source's sessions, as far as its statements name them. (In row format the source logs no
//! statement that creates or uses one.)

use std::collections::{BTreeMap, BTreeSet};

use spate_sql::Vendor;

use crate::definition::TableName;
use crate::item::Statement;
use crate::statement::{self, Object, StatementClass};
use crate::{Error, Result};

/// A temporary table of a session of the source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemporaryTable {
    /// The session's id on the source.
    pub thread_id: u32,
    /// The table.
    pub name: TableName,
}

impl TemporaryTable {
    /// Stands for tables of a session that no statement names: a function or a trigger has created them.
    pub fn unnamed_of(thread_id: u32) -> TemporaryTable {
        TemporaryTable { thread_id, name: TableName { schema: String::new(), table: String::new() } }
    }

    /// True if it stands for tables that no statement names.
    pub fn is_unnamed(&self) -> bool {
        self.name.table.is_empty()
    }
}

/// The temporary tables at a place in the binlog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemporaryTables {
    /// The tables that exist.
    pub open: BTreeSet<TemporaryTable>,
    /// The sessions that have used their tables since the batch before.
    pub used_by: BTreeSet<u32>,
    /// The sessions of `used` that have done more than drop some.
    pub needed_by: BTreeSet<u32>,
}

impl TemporaryTables {
    /// Records a statement. `uses_one` means that the source says that it uses a temporary table.
    pub(crate) fn note(&mut self, statement: &Statement, uses_one: bool) {
        let thread_id = statement.thread_id;
        if uses_one || statement.class == StatementClass::Temporary {
            self.used_by.insert(thread_id);
            if !statement::drops_tables(statement.text()) {
                self.needed_by.insert(thread_id);
            }
        }
        match statement.class {
            StatementClass::Temporary => {
                // A statement with a doubt here was refused.
                let named = statement::temporary_tables(statement.text(), &statement.database);
                let (creates, names) = named.unwrap_or_default();
                for name in names {
                    let table = TemporaryTable { thread_id, name };
                    if creates {
                        self.open.insert(table)
                    } else {
                        self.open.remove(&table)
                    };
                }
            }
            StatementClass::Definition if may_rename(statement, uses_one) => self.record_rename(statement),
            _ => {}
        }
    }

    /// Tables that cannot exist any more: the statement creates one of them, so its session is not the one that had
    /// them. (MySQL does not log its restart for a replica that was lagging.)
    pub(crate) fn outlived_by(&self, statement: &Statement) -> Vec<TemporaryTable> {
        if statement.class != StatementClass::Temporary || statement.error_code != 0 {
            return vec![];
        }
        let thread_id = statement.thread_id;
        let named = statement::temporary_tables(statement.text(), &statement.database);
        let (creates, names) = named.unwrap_or_default();
        let exists = |name| self.open.contains(&TemporaryTable { thread_id, name });
        if !creates || statement::takes_what_exists(statement.text()) || !names.into_iter().any(exists) {
            return vec![];
        }
        self.open.iter().filter(|table| table.thread_id == thread_id).cloned().collect()
    }

    /// Renames temporary tables. ALTER TABLE may rename one, to the last name in the statement; RENAME TABLE several,
    /// in order.
    fn record_rename(&mut self, statement: &Statement) {
        let touched = statement::touched(statement.text(), &statement.database).unwrap_or_default();
        let tables = touched.into_iter().filter_map(|object| match object {
            Object::Table(name) => Some(TemporaryTable { thread_id: statement.thread_id, name }),
            _ => None,
        });
        let tables: Vec<TemporaryTable> = tables.collect();
        if !statement::renames_tables(statement.text()) {
            if let [from, .., to] = tables.as_slice() {
                self.rename(from, to);
            }
            return;
        }
        for pair in tables.chunks_exact(2) {
            self.rename(&pair[0], &pair[1]);
        }
    }

    fn rename(&mut self, from: &TemporaryTable, to: &TemporaryTable) {
        if self.open.remove(from) {
            self.open.insert(to.clone());
            self.used_by.insert(to.thread_id);
            self.needed_by.insert(to.thread_id);
        }
    }
}

/// The servers whose sessions have temporary tables. Sessions of several servers, in one binlog, may have the same
/// number.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    servers: BTreeMap<u32, u32>,
}

impl Origins {
    /// Records a statement of a server's session.
    ///
    /// # Errors
    /// [`Error::Refused`] if another server's session of the same number has temporary tables: the applier's session
    /// could not distinguish the tables of the two.
    pub(crate) fn check(&mut self, statement: &Statement, server_id: u32, tables: &TemporaryTables) -> Result<()> {
        let thread_id = statement.thread_id;
        let has_some = |thread_id: u32| tables.open.iter().any(|table| table.thread_id == thread_id);
        let is_of_another = self.servers.get(&thread_id).is_some_and(|&known| known != server_id);
        if is_of_another && has_some(thread_id) {
            let why = format!(
                "session {thread_id} of the server {} has temporary tables, and this is a session of the same number of the server \
                 {server_id}: execute it on the replica by hand, and leave the transaction out (--skip), or restart Spate once \
                 the first session has ended",
                self.servers.get(&thread_id).copied().unwrap_or_default()
            );
            return Err(Error::Refused { what: spate_sql::excerpt(&statement.sql), why });
        }
        if statement.class == StatementClass::Temporary || has_some(thread_id) {
            self.servers.retain(|&thread_id, _| has_some(thread_id));
            self.servers.insert(thread_id, server_id);
        }
        Ok(())
    }
}

/// True if a definition may rename a temporary table. MariaDB does not log that RENAME TABLE uses one: a table with the
/// name of a temporary one is that one. MySQL's RENAME TABLE renames no temporary table.
fn may_rename(statement: &Statement, uses_one: bool) -> bool {
    let source = statement.reading.servers.source;
    match statement::renames_tables(statement.text()) {
        true => source.is_none_or(|source| source.vendor == Vendor::MariaDb),
        false => uses_one,
    }
}

#[cfg(test)]
mod tests {
    use spate_sql::{Reading, SqlText};

    use super::*;

    fn classified(sql: &str) -> StatementClass {
        statement::classify(SqlText { sql: sql.as_bytes(), reading: &Reading::plain() }).unwrap()
    }

    fn noted(statements: &[(u32, &str)]) -> TemporaryTables {
        let mut tables = TemporaryTables::default();
        for (thread_id, sql) in statements {
            let class = classified(sql);
            let statement =
                Statement { thread_id: *thread_id, class, sql: sql.as_bytes().to_vec(), ..Statement::of_ours("d") };
            tables.note(&statement, sql.contains("tmp"));
        }
        tables
    }

    fn open(tables: &TemporaryTables) -> Vec<String> {
        tables.open.iter().map(|table| format!("{} {}", table.thread_id, table.name)).collect()
    }

    #[test]
    fn temporary_tables_belong_to_their_session() {
        let tables = noted(&[
            (7, "CREATE TEMPORARY TABLE tmp (a INT)"),
            (8, "CREATE TEMPORARY TABLE tmp (a INT)"),
            (9, "INSERT INTO t VALUES (1)"),
            (7, "DROP TEMPORARY TABLE IF EXISTS `tmp`"),
        ]);
        assert_eq!(open(&tables), ["8 d.tmp"]);
        assert_eq!(tables.used_by, BTreeSet::from([7, 8]));
    }

    #[test]
    fn session_that_creates_an_existing_table_is_another() {
        let tables = noted(&[
            (7, "CREATE TEMPORARY TABLE tmp (a INT)"),
            (7, "CREATE TEMPORARY TABLE tmp2 (a INT)"),
            (8, "CREATE TEMPORARY TABLE tmp (a INT)"),
        ]);
        let outlived = |thread_id, sql: &str, error_code| {
            let class = classified(sql);
            let sql = sql.as_bytes().to_vec();
            tables.outlived_by(&Statement { thread_id, class, sql, error_code, ..Statement::of_ours("d") }).len()
        };
        assert_eq!(outlived(7, "CREATE TEMPORARY TABLE tmp (a INT)", 0), 2);
        assert_eq!(outlived(7, "CREATE TEMPORARY TABLE tmp (a INT)", 1050), 0);
        assert_eq!(outlived(7, "CREATE TEMPORARY TABLE IF NOT EXISTS tmp (a INT)", 0), 0);
        assert_eq!(outlived(7, "CREATE OR REPLACE TEMPORARY TABLE tmp (a INT)", 0), 0);
        assert_eq!(outlived(7, "CREATE TEMPORARY TABLE other (a INT)", 0), 0);
        assert_eq!(outlived(9, "CREATE TEMPORARY TABLE tmp (a INT)", 0), 0);
        assert_eq!(outlived(7, "DROP TEMPORARY TABLE tmp", 0), 0);
    }

    #[test]
    fn temporary_tables_can_be_renamed() {
        let tables = noted(&[
            (7, "CREATE TEMPORARY TABLE tmp (a INT)"),
            (7, "ALTER TABLE tmp ADD b INT, RENAME TO e.tmp2"),
            (7, "RENAME TABLE e.tmp2 TO d.tmp3"),
            (7, "ALTER TABLE tmp3 ADD c INT"),
        ]);
        assert_eq!(open(&tables), ["7 d.tmp3"]);
        let tables = noted(&[
            (7, "CREATE TEMPORARY TABLE tmp (a INT)"),
            (7, "CREATE TEMPORARY TABLE tmp2 (a INT)"),
            (7, "RENAME TABLE base TO other, tmp TO tmp3, tmp2 TO tmp, tmp3 TO e.tmp2, other TO base"),
        ]);
        assert_eq!(open(&tables), ["7 d.tmp", "7 e.tmp2"]);
    }
}

//! Temporary tables that functions and triggers of the source make. The binlog has only the statement that calls them, so nobody knows the
//! tables' names, and no copies are made. Spate knows only which of the source's sessions have such tables, since the replica's server counts
//! the tables that a statement creates. After a restart, statements of those sessions that use temporary tables are refused.

use std::collections::BTreeSet;

use spate_schedule::Statement;
use spate_schedule::statement::StatementClass;
use spate_schedule::temporary::TemporaryTable;

use super::outlet::Outlet;
use crate::halt::Result;
use spate_connection::Vendor;
use spate_replica::Error;

/// The beginning of the statement that servers log at the end of a session: it drops the tables that the session still has.
const SESSION_END: &[u8] = b"DROP /*!40005 TEMPORARY */ TABLE IF EXISTS ";

/// The sessions of the source that have temporary tables without a name.
#[derive(Debug, Default)]
pub(super) struct UnnamedTables {
    /// Those whose tables exist in the applier's session.
    present: BTreeSet<u32>,
    /// Those whose tables ended with an earlier one.
    lost: BTreeSet<u32>,
    /// Sessions that have ended with the source, while their tables are still there.
    left_over: BTreeSet<u32>,
}

impl UnnamedTables {
    /// Takes out those that could not be made again.
    pub(super) fn take_lost(&mut self, lost: &mut BTreeSet<TemporaryTable>) {
        self.lost = lost.iter().filter(|table| table.is_unnamed()).map(|table| table.thread_id).collect();
        lost.retain(|table| !table.is_unnamed());
    }

    /// True if no session of the source has any.
    pub(super) fn are_none(&self) -> bool {
        self.present.is_empty() && self.lost.is_empty() && self.left_over.is_empty()
    }

    /// What is kept of them.
    pub(super) fn kept(&self) -> impl Iterator<Item = TemporaryTable> {
        self.present.union(&self.lost).copied().map(TemporaryTable::unnamed_of)
    }

    /// Tells why a statement cannot be executed: it may use such a table that is gone, or one that should be gone and is not.
    pub(super) fn refusal(&mut self, statement: &Statement) -> Option<String> {
        let thread_id = statement.thread_id;
        let is_drop = spate_schedule::statement::drops_tables(statement.text());
        if self.left_over.contains(&thread_id) && !is_drop {
            return Some(format!(
                "the source was restarted, and temporary tables that functions or triggers have made for an earlier session {thread_id} are \
                 still there: start Spate again"
            ));
        }
        if statement.class == StatementClass::Temporary && statement.sql.starts_with(SESSION_END) {
            self.present.remove(&thread_id);
            self.lost.remove(&thread_id);
        }
        (self.lost.contains(&thread_id) && statement.is_thread_specific && !is_drop).then(|| {
            format!(
                "it uses temporary tables of the source's session {thread_id}, for which functions or triggers have made some that could \
                 not be kept: execute it on the replica by hand, and leave the transaction out (--skip)"
            )
        })
    }

    /// How many tables the applier's session has created, if the statement that comes could create some that nothing names.
    pub(super) fn count_before(statement: &Statement, vendor: Vendor, outlet: &mut Outlet<'_>) -> Result<Option<u64>> {
        let may_create = statement.is_thread_specific && statement.class == StatementClass::Change;
        if may_create { created(vendor, outlet).map(Some) } else { Ok(None) }
    }

    /// Takes note of the statement that was sent since. (One that drops what it creates cannot be told from one that drops what may have
    /// been there, and then creates it.) True if its session had no such tables before.
    pub(super) fn note(
        &mut self,
        statement: &Statement,
        before: u64,
        vendor: Vendor,
        outlet: &mut Outlet<'_>,
    ) -> Result<bool> {
        Ok(created(vendor, outlet)? != before && self.present.insert(statement.thread_id))
    }

    /// The sessions are gone. Their tables have no names by which they could be dropped: they end with the applier's session.
    pub(super) fn source_restarted(&mut self) {
        self.left_over.append(&mut self.present);
        self.lost.clear();
    }
}

/// The server counts tables that functions and triggers create, too.
fn created(vendor: Vendor, outlet: &mut Outlet<'_>) -> Result<u64> {
    let sql = match vendor {
        Vendor::MariaDb => "SHOW SESSION STATUS LIKE 'Com\\_create\\_temporary\\_table'",
        Vendor::MySql => "SHOW SESSION STATUS LIKE 'Com\\_create\\_table'",
    };
    let row = outlet.ask(sql.into(), None)?.unwrap_or_default();
    let count = row.get(1).and_then(Option::as_deref).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    count.ok_or_else(|| Error::NoStatus { variable: sql.to_owned() }.into())
}

//! Default databases of the source's statements. A session stays in a database that another has dropped, which only its own server can do:
//! an applier that is a client has to be somewhere else meanwhile.

use std::collections::HashSet;

use spate_schedule::Statement;
use spate_schedule::statement::{StatementClass, may_drop_schema};

use super::outlet::Outlet;
use crate::halt::Result;
use spate_connection::quote;

/// The session is put here when its default database is gone: a statement finds nothing there that it could change without naming its
/// database.
pub(super) const NO_DATABASE: &[u8] = b"USE information_schema";

/// Databases that are remembered: as many as busy sources have. To forget them costs a question each.
const KNOWN_MAX: usize = 1000;

/// The databases that the replica has had since the last statement that may have dropped one.
#[derive(Debug, Default)]
pub(super) struct DefaultDatabases {
    known: HashSet<String>,
}

impl DefaultDatabases {
    /// False if the replica has not the statement's default database, once all before the statement is executed.
    ///
    /// # Errors
    /// As [`Outlet::ask`].
    pub(super) fn has(&mut self, statement: &Statement, outlet: &mut Outlet<'_>) -> Result<bool> {
        let database = &statement.database;
        let mut has = database.is_empty() || self.known.contains(database);
        if !has {
            let name = quote::text(database);
            let sql = format!("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {name}");
            has = outlet.ask(sql.into_bytes(), None)?.is_some();
            if has {
                if self.known.len() == KNOWN_MAX {
                    self.known.clear();
                }
                self.known.insert(database.clone());
            }
        }
        if statement.class == StatementClass::Definition && may_drop_schema(statement.text()) {
            self.known.clear();
        }
        Ok(has)
    }
}

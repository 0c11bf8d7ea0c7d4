//! What gathering asks of the replica, and how a running one answers.

use spate_binlog::FormatDescription;
use spate_replica::catalog::Catalog;
use spate_replica::choice::{self, Dialect, DialectChoice};
use spate_replica::journal::Intent;
use spate_replica::others::{Noticed, Others};
use spate_replica::{Error, Result};
use spate_schedule::outdated::Outdated;
use spate_schedule::versioning::LastMoment;
use spate_schedule::{TableDefinition, TableName};
use spate_sql::Server;

/// Which tables are asked for together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Only the one that is needed.
    Alone,
    /// Others along with it, which may be needed next.
    WithOthers,
}

/// Definitions of tables, and what else gathering goes by.
pub trait Definitions {
    /// The server that reads the statements. `None`: no server does.
    fn reader(&self) -> Option<Server>;

    /// Until when the replica's time stamps reach. `None`: as far as the source's.
    ///
    /// # Errors
    /// Any error of the connection.
    fn last_moment(&mut self) -> Result<Option<LastMoment>>;

    /// The session's first transaction was logged in this format.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] if rows of such a source cannot be written to this replica as they are to be.
    fn begin(&mut self, format: &FormatDescription) -> Result<()>;

    /// What others have changed on the replica since this was last asked.
    ///
    /// # Errors
    /// Any error of the connection.
    fn look_for_others(&mut self) -> Result<Noticed>;

    /// Forgets outdated definitions, and returns which these are: more than was asked if foreign keys connect one of the tables with
    /// others.
    fn forget(&mut self, outdated: &Outdated) -> Outdated;

    /// True if the replica's foreign keys are not those by which definitions were made.
    ///
    /// # Errors
    /// Any error of the connection.
    fn foreign_keys_have_changed(&mut self) -> Result<bool>;

    /// A definition that needs no question. `None`: it needs one.
    fn at_hand(&mut self, name: &TableName) -> Option<TableDefinition>;

    /// The definition of a table, of which the source has logged this table map. `None`: the replica has no such table.
    ///
    /// # Errors
    /// Any error of the connection; [`Error::Transaction`] without a place, if the map cannot be read.
    fn definition(&mut self, name: &TableName, map: &[u8], reading: Reading) -> Result<Option<TableDefinition>>;

    /// True if definitions are noted before they are executed, with what their objects are then.
    fn are_noted(&self) -> bool {
        false
    }

    /// What the objects are that this definition is about to change. `None`: that is known only when all before it is in effect. Asked for only
    /// if definitions are noted.
    ///
    /// # Errors
    /// Any error of the connection.
    fn fingerprint(&mut self, _intent: &Intent) -> Result<Option<String>> {
        Ok(None)
    }
}

/// Asks a running replica.
#[derive(Debug)]
pub(crate) struct ReplicaDefinitions<'a> {
    pub(crate) catalog: Catalog,
    /// Others that change definitions on the replica.
    pub(crate) others: Others<'a>,
    pub(crate) choice: DialectChoice,
}

impl Definitions for ReplicaDefinitions<'_> {
    fn reader(&self) -> Option<Server> {
        Some(self.catalog.server_version().reader())
    }

    fn last_moment(&mut self) -> Result<Option<LastMoment>> {
        Ok(Some(self.catalog.last_moment()?))
    }

    fn begin(&mut self, format: &FormatDescription) -> Result<()> {
        if self.choice.choose(choice::vendor_of(format))? == Dialect::Sql {
            self.catalog.include_triggers();
        }
        Ok(())
    }

    fn look_for_others(&mut self) -> Result<Noticed> {
        Ok(self.catalog.look_for_others(&mut self.others)?)
    }

    fn forget(&mut self, outdated: &Outdated) -> Outdated {
        self.catalog.forget(outdated)
    }

    fn foreign_keys_have_changed(&mut self) -> Result<bool> {
        self.catalog.foreign_keys_have_changed().map_err(Error::from)
    }

    fn at_hand(&mut self, name: &TableName) -> Option<TableDefinition> {
        self.catalog.at_hand(name)
    }

    fn definition(&mut self, name: &TableName, _map: &[u8], reading: Reading) -> Result<Option<TableDefinition>> {
        let definition = match reading {
            Reading::Alone => self.catalog.definition_alone(name),
            Reading::WithOthers => self.catalog.definition(name),
        };
        definition.map_err(Error::from)
    }

    fn are_noted(&self) -> bool {
        true
    }

    fn fingerprint(&mut self, intent: &Intent) -> Result<Option<String>> {
        self.catalog.fingerprint(intent)
    }
}

//! What stops a batch from being built. All of it is definite: trying again would end the same way.

use crate::definition::TableName;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A definite error; the caller adds the transaction that it stands in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The event's bytes do not decode.
    #[error(transparent)]
    Binlog(#[from] spate_binlog::Error),
    /// Rows of a table that the replica does not have.
    #[error("the replica has no table {0}")]
    NoTable(TableName),
    /// The replica's table cannot take the source's rows.
    #[error("table {table}: {why}")]
    Definition {
        /// The table.
        table: TableName,
        /// What is wrong with it.
        why: String,
    },
    /// The transaction is to be kept apart from others ([`crate::BatchBuilder::expect_undo`]): the source rolled it back, or it
    /// changed something that cannot be rolled back.
    #[error("the source rolled the transaction back, or could not have done so")]
    Undone,
    /// The binlog holds something that Spate does not apply.
    #[error("{what} cannot be applied: {why}")]
    Refused {
        /// The event or statement.
        what: String,
        /// Why not, and what to do.
        why: String,
    },
}

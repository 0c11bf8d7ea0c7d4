//! Errors that stop a batch from being built. All are definite: a retry would end the same way.

use std::fmt;

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
        /// The reason.
        why: String,
    },
    /// The transaction turned out to be of another kind, and must be gathered again ([`crate::BatchBuilder::expect`]).
    #[error("{0}")]
    TurnedOut(Surprise),
    /// The binlog holds something that Spate does not apply.
    #[error("{what} cannot be applied: {why}")]
    Refused {
        /// The event or statement.
        what: String,
        /// The reason, and advice.
        why: String,
    },
}

/// A surprise about a transaction that comes when parts of it are among others, or on their way, already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Surprise {
    /// The source rolled it back, or it changed something that cannot be rolled back: it must be kept apart from
    /// others.
    Undone,
    /// An XA transaction that was committed without being prepared.
    OnePhase,
    /// It creates temporary tables with this `explicit_defaults_for_timestamp`, which is another than before.
    TimestampDefaults(bool),
    /// The source's table map contradicts the definition by which rows were gathered: everything before the transaction
    /// must be applied, and definitions must be read again.
    Redefined,
    /// Changes of a row contradict each other, which were folded by another thread: see [`crate::BatchBuilder::fold_alone`].
    Contradicts,
}

impl fmt::Display for Surprise {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Surprise::Undone => "the source rolled the transaction back, or could not have done so",
            Surprise::OnePhase => "the source committed the XA transaction without preparing it",
            Surprise::TimestampDefaults(_) => {
                "it creates temporary tables with another explicit_defaults_for_timestamp"
            }
            Surprise::Redefined => "the source's table is not what the replica's definition says",
            Surprise::Contradicts => "changes of a row contradict each other",
        })
    }
}

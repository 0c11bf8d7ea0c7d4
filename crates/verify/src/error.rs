//! Why a comparison could not be made. (That the servers differ is no error: it is the report.)

/// Shorthand for results of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Talking to a server failed.
    #[error(transparent)]
    Wire(#[from] spate_connection::Error),
    /// A server's answer is not what it should be.
    #[error("unexpected answer: {why}")]
    Unexpected {
        /// What was expected.
        why: String,
    },
    /// The source cannot tell where in its binlog a snapshot lies.
    #[error(
        "the source does not say which binlog position its snapshot has ({why}); \
         --no-position compares anyway, without being exact"
    )]
    SourcePositionUnknown {
        /// Why not.
        why: String,
    },
    /// The replica does not know which position it has.
    #[error(
        "the replica holds no position: neither Spate's checkpoint nor that of its own replication; \
         --no-position compares anyway, without being exact"
    )]
    ReplicaPositionUnknown,
    /// Nothing is applying and the positions differ.
    #[error(
        "the source is at {source_position}, the replica at {replica_position}, and nothing is applying: run spate \
         replicate until they meet, or stop the writes on the source; --no-position compares anyway, without being exact"
    )]
    PositionsDiffer {
        /// The source snapshot's position.
        source_position: String,
        /// What the replica has applied.
        replica_position: String,
    },
    /// The applier did not answer the request to stop.
    #[error("the applier at work on the replica has not answered the request to hold within {seconds} s; is it alive?")]
    HoldIgnored {
        /// How long we waited.
        seconds: u64,
    },
    /// The replica did not reach the source snapshot's position in time.
    #[error(
        "the replica did not reach {source_position} within {seconds} s (it is at {replica_position}); let it catch up \
         first, or allow more time"
    )]
    CatchUpTooSlow {
        /// The source snapshot's position.
        source_position: String,
        /// What the replica has applied.
        replica_position: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The replica moved although it was held.
    #[error("the replica moved from {wanted} to {found} while it was held: something else than Spate applies there")]
    ReplicaMoved {
        /// Where it was held.
        wanted: String,
        /// Where a snapshot found it.
        found: String,
    },
    /// Another comparison holds this replica.
    #[error("another verify is at work on this replica")]
    Busy,
    /// A table was altered after the snapshot was taken.
    #[error("table {table} was altered while it was compared; run verify again")]
    TableAltered {
        /// The table.
        table: String,
    },
    /// A schema or table was named that neither server has.
    #[error("neither the source nor the replica has {name}")]
    NothingToCompare {
        /// What was named.
        name: String,
    },
    /// Rows could not be hashed.
    #[error("the {role} could not hash {rows} rows of table {table}")]
    Unhashable {
        /// Which server.
        role: &'static str,
        /// The table.
        table: String,
        /// How many rows.
        rows: u64,
    },
    /// A position is not a MariaDB GTID position.
    #[error("the position '{text}' cannot be read: {error}")]
    Position {
        /// What was found.
        text: String,
        /// What is wrong with it.
        error: spate_binlog::Error,
    },
}

impl Error {
    /// True if running the comparison again may succeed without anyone doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Wire(error) => error.is_transient(),
            Error::TableAltered { .. } | Error::Busy | Error::CatchUpTooSlow { .. } => true,
            _ => false,
        }
    }

    pub(super) fn unexpected(why: impl Into<String>) -> Error {
        Error::Unexpected { why: why.into() }
    }
}

//! Why a comparison failed. (A difference between the servers is no error: the report lists it.)

/// Shorthand for results of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection or a query failed.
    #[error(transparent)]
    Wire(#[from] spate_connection::Error),
    /// What Spate keeps on the replica cannot be read.
    #[error(transparent)]
    Replica(#[from] spate_replica::Error),
    /// A server's answer makes no sense.
    #[error("unexpected answer: {why}")]
    Unexpected {
        /// What is wrong with it.
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
    /// The replica has no record of its position.
    #[error(
        "the replica holds no position: neither Spate's checkpoint nor that of its own replication; \
         --no-position compares anyway, without being exact"
    )]
    ReplicaPositionUnknown,
    /// No applier runs, and the positions differ.
    #[error(
        "the source is at {source_position}, the replica at {replica_position}, and no applier runs: run spate \
         replicate until they meet, or stop the writes on the source; --no-position compares anyway, without being exact"
    )]
    PositionsDiffer {
        /// The source snapshot's position.
        source_position: String,
        /// What the replica has applied.
        replica_position: String,
    },
    /// The applier did not answer the request to stop.
    #[error(
        "the applier on the replica has not answered the request to hold within {seconds} s: check that spate replicate \
         still runs, or stop it"
    )]
    HoldIgnored {
        /// Time that Spate waited, in seconds.
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
        /// Time that Spate waited, in seconds.
        seconds: u64,
    },
    /// The replica's position changed during the hold.
    #[error(
        "the replica moved from {wanted} to {found} while it was held: another program than Spate applies there; stop it, \
         and run verify again"
    )]
    ReplicaMoved {
        /// The position of the hold.
        wanted: String,
        /// The position of a snapshot.
        found: String,
    },
    /// Another comparison holds this replica.
    #[error("another verify runs on this replica; run verify again when it has ended")]
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
        /// The schema or table.
        name: String,
    },
    /// Rows could not be hashed.
    #[error("the {role} could not hash {rows} rows of table {table}")]
    Unhashable {
        /// The server: `source` or `replica`.
        role: &'static str,
        /// The table.
        table: String,
        /// How many rows.
        rows: u64,
    },
    /// A position is not a MariaDB GTID position.
    #[error("the position '{text}' cannot be read: {error}")]
    Position {
        /// The text of the position.
        text: String,
        /// Why it cannot be parsed.
        error: spate_binlog::Error,
    },
}

impl Error {
    /// True if another run may succeed although nobody changes anything.
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

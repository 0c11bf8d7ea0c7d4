//! Errors that can stop replication, and whether a retry can help.

use std::fmt;

use spate_binlog::GtidPosition;
use spate_connection::{CODE_DEADLOCK, CODE_LOCK_WAIT};
use spate_schedule::Surprise;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Where a transaction stands: its GTID and its place in the source's binlog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransactionPlace {
    /// Its GTID; empty if it has none.
    pub gtid: String,
    /// The source's binlog file.
    pub file: String,
    /// Offset in that file: of the transaction's end, or of the event that is at fault.
    pub position: u64,
}

impl fmt::Display for TransactionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.gtid.is_empty() {
            write!(f, "transaction {} ", self.gtid)?;
        }
        write!(f, "at {}:{}", self.file, self.position)
    }
}

/// Everything that can go wrong while replicating.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection failed, or a server refused something.
    #[error(transparent)]
    Wire(#[from] spate_connection::Error),
    /// The archive failed.
    #[error(transparent)]
    Archive(#[from] spate_archive::Error),
    /// The request of a comparison to wait could not be understood.
    #[error(transparent)]
    Hold(#[from] crate::hold_request::HoldRequestError),
    /// A transaction holds something that is damaged or that Spate does not apply.
    #[error("{place}: {error}. Nothing of it was applied")]
    Transaction {
        /// Which one.
        place: TransactionPlace,
        /// What is wrong with it.
        error: spate_schedule::Error,
    },
    /// The replica lacks a table that a transaction changes.
    #[error("{place}: the replica has no table {table} (or shows it to nobody but its owner: {hint})")]
    NoTable {
        /// Which transaction.
        place: TransactionPlace,
        /// The table.
        table: String,
        /// The GRANT that would show it.
        hint: String,
    },
    /// The replica refused a batch; which transaction of it is still to be found out.
    #[error("the replica refused it: {source}")]
    Batch {
        /// What the replica said.
        source: spate_connection::Error,
    },
    /// Rows that a batch deletes from a table without a key are not there; which transaction of it is still to be found out.
    #[error("{missing} rows to delete from {table}, which has no key, are not on the replica")]
    RowsMissing {
        /// The table.
        table: String,
        /// How many rows.
        missing: u64,
    },
    /// A change of a document does not fit the replica's; which transaction of the batch it is in, is still to be found out.
    #[error("a change of a JSON document of {table} does not fit: {why}")]
    Misfit {
        /// The table.
        table: String,
        /// Why not.
        why: String,
    },
    /// A transaction of a batch cannot be applied; which one is still to be found out.
    #[error("{error}")]
    SomeTransaction {
        /// Why not.
        error: spate_schedule::Error,
    },
    /// The replica does not answer a question about its session.
    #[error("the replica does not answer '{variable}'")]
    NoStatus {
        /// What it was asked.
        variable: String,
    },
    /// A transaction was gathered as what it had turned out to be, and turned out to be that once more.
    #[error(
        "the transaction with the ordinal {seqno} in the archive: {surprise}. Spate knew that and could still not gather it, which is a \
         defect of Spate. Nothing of it was applied; leave the transaction out (--skip) if it may be missing"
    )]
    Surprising {
        /// Its ordinal in the archive.
        seqno: u64,
        /// What it turned out to be.
        surprise: Surprise,
    },
    /// A statement does not fit into the replica's largest packet; which change needs it, is still to be found out.
    #[error(
        "a change needs a statement of {bytes} bytes, and the replica's max_allowed_packet is {max_allowed_packet}: \
         raise it there"
    )]
    PacketTooLarge {
        /// Bytes of the statement.
        bytes: usize,
        /// The replica's limit in bytes.
        max_allowed_packet: usize,
    },
    /// One change of one transaction does not fit into the replica's largest packet, nor in two of them if it is of a row.
    #[error(
        "{place}: {change}: it needs a statement of {bytes} bytes. The replica's max_allowed_packet is {replica_bytes}, the \
         source's {}. Nothing of this transaction was applied. SET GLOBAL max_allowed_packet on the replica to {} or more \
         (at most 1 GiB), and start again",
        source_bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string()),
        (bytes + 1024).next_multiple_of(1024)
    )]
    ChangeTooLarge {
        /// Which transaction.
        place: TransactionPlace,
        /// The change, its table and key.
        change: String,
        /// Bytes of the statement.
        bytes: usize,
        /// The replica's limit in bytes.
        replica_bytes: usize,
        /// The source's limit in bytes, if it was asked.
        source_bytes: Option<u64>,
    },
    /// The replica refused one change of one transaction.
    #[error("{place}: {change}: {source}. {} {advice}", applied(*.has_shares))]
    Change {
        /// Several appliers were interrupted, and some of them have applied their rows of it.
        has_shares: bool,
        /// Which transaction.
        place: TransactionPlace,
        /// The change, its table and key.
        change: String,
        /// What the replica said.
        source: spate_connection::Error,
        /// What to do about it.
        advice: &'static str,
    },
    /// The checkpoint on the replica cannot be used.
    #[error("the checkpoint on the {replica} cannot be read: {why}")]
    Checkpoint {
        /// Which replica.
        replica: String,
        /// What is wrong with it.
        why: String,
    },
    /// A note in Spate's schema that Spate did not write, or whose transaction the archive does not hold.
    #[error(
        "spate.intent on the {replica} has {what}, but {why}. Only Spate may write to the schema spate. Look who else has, and what the \
         replica holds; --interrupted-statement repeat then drops the note, and applies what comes after spate.checkpoint"
    )]
    Note {
        /// Which replica.
        replica: String,
        /// The note.
        what: String,
        /// Why it is none of ours.
        why: String,
    },
    /// Another Spate applies to this replica.
    #[error(
        "another Spate applies to the {replica} (its connection id is {holder}): stop it first, or wait until it ends"
    )]
    Locked {
        /// Which replica.
        replica: String,
        /// The other's connection id.
        holder: String,
    },
    /// Nobody said where to begin.
    #[error(
        "the {replica} has no checkpoint, so say where to begin: --start gtid:<set> (for a replica restored from a backup: \
         the backup's GTID position), --start file:<name>:<offset>, --start earliest, or --start current"
    )]
    NoStart {
        /// Which replica.
        replica: String,
    },
    /// A statement was interrupted, and only a person can know whether it took effect.
    #[error(
        "an earlier run was interrupted while executing the statement of transaction {gtid} at {place}: `{statement}`. \
         Look whether it took effect on the replica, then start with --interrupted-statement done (it did) or \
         --interrupted-statement repeat (it did not)"
    )]
    Interrupted {
        /// GTID of the statement.
        gtid: String,
        /// `file:position` on the source.
        place: String,
        /// The statement.
        statement: String,
    },
    /// A statement was refused, and only a person can know how much of its transaction took effect.
    #[error(
        "transaction {gtid} at {place}, `{statement}`: {refusal}. What it did before that cannot be rolled back. Look what took effect \
         on the replica, then start with --interrupted-statement done (all of it, or you made it so) or \
         --interrupted-statement repeat (nothing)"
    )]
    HalfDone {
        /// Its GTID.
        gtid: String,
        /// `file:position` on the source.
        place: String,
        /// What it is.
        statement: String,
        /// The replica's error.
        refusal: String,
    },
    /// An XA transaction ends that the replica has not prepared.
    #[error(
        "transaction {gtid} at {place} ends the XA transaction {xid}, which is not prepared on the {replica} (XA RECOVER): it was \
         prepared before the replica's first position, or the server has lost it. Look whether its changes are on the replica \
         (spate verify); if they are, or are made by hand, leave this transaction out (--skip gtid:{gtid})"
    )]
    NotPrepared {
        /// GTID of its end.
        gtid: String,
        /// `file:position` on the source.
        place: String,
        /// Its id.
        xid: String,
        /// Which replica.
        replica: String,
    },
    /// Somebody else has moved the checkpoint.
    #[error(
        "the checkpoint on the {replica} (spate.checkpoint) is not where this Spate has left it: another Spate applies to this \
         replica, or somebody has changed the row. Nothing of the batch was applied. Make sure that there is only one \
         Spate, then start again: it goes on where the checkpoint is"
    )]
    CheckpointMoved {
        /// Which replica.
        replica: String,
    },
    /// The replica's server lost a table when it was killed during a statement.
    #[error(
        "an earlier run was interrupted while executing {statement}, and the replica's server has come back without the table \
         {table} ({source}). MySQL mostly finds it at one more start: restart the replica's server, then start again"
    )]
    TableLost {
        /// The statement.
        statement: String,
        /// The table.
        table: String,
        /// What the replica said.
        source: spate_connection::Error,
    },
    /// The source no longer has binlog files that are needed.
    #[error(
        "the {source_server} no longer has the binlog that follows GTID position '{wanted}': {message}. The oldest it has is \
         {oldest}. Rebuild the replica from a newer backup, or copy the missing binlog files into an archive"
    )]
    Purged {
        /// Which source.
        source_server: String,
        /// From where on it was asked.
        wanted: GtidPosition,
        /// What the source said.
        message: String,
        /// The oldest binlog file and its GTID position.
        oldest: String,
    },
    /// A server cannot be used in its role.
    #[error("the {peer} cannot be used: {why}")]
    Unsuitable {
        /// Which server.
        peer: String,
        /// Why not, and what to do.
        why: String,
    },
    /// The look at both ends before anything runs found what keeps Spate from working.
    #[error("{found} (`spate check` shows all that was looked at)")]
    Check {
        /// What was found, and what to do.
        found: String,
    },
    /// A user lacks a privilege.
    #[error("the {peer} refuses to {action}: {message}. Give the privilege with: {grant}")]
    Privilege {
        /// Which server.
        peer: String,
        /// What was tried.
        action: &'static str,
        /// What the server said.
        message: String,
        /// The statement that gives it.
        grant: String,
    },
    /// A replicated statement changed the applier's own account.
    #[error(
        "{place}: {change} was executed as on the source, and now the replica no longer lets Spate work: {error}. Give the \
         account back there (CREATE USER, GRANT; spate replicate --help lists what it needs), or start with another that the \
         source does not have; replication goes on after this statement"
    )]
    LockedOut {
        /// Which transaction.
        place: TransactionPlace,
        /// The statement.
        change: String,
        /// What the replica refuses.
        error: Box<Error>,
    },
    /// The source's stream breaks the protocol.
    #[error("the {peer} sent {what}: {error}")]
    Stream {
        /// Which source.
        peer: String,
        /// Which event, and where.
        what: String,
        /// What is wrong with it.
        error: spate_binlog::Error,
    },
    /// A session ended, and no stage says why.
    #[error(
        "applying ended, and no stage of Spate tells the reason, which is a defect of Spate. Start it again: it resumes at its checkpoint"
    )]
    Unexplained,
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why not.
        source: std::io::Error,
    },
}

/// How much of a transaction was applied whose change was refused.
fn applied(has_shares: bool) -> &'static str {
    match has_shares {
        true => {
            "Several appliers share the rows: some of this transaction may be applied already, so it cannot be left out until this change is applied."
        }
        false => "Nothing of this transaction was applied.",
    }
}

impl Error {
    /// True if trying again later can help, without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Wire(error) | Error::Batch { source: error } | Error::Change { source: error, .. } => {
                error.is_transient()
            }
            Error::Archive(error) => error.is_transient(),
            _ => false,
        }
    }

    /// True if a transaction of the replica did not get a lock, or lost those that it had.
    pub fn is_lock_conflict(&self) -> bool {
        matches!(self.code(), Some(CODE_LOCK_WAIT | CODE_DEADLOCK))
    }

    /// The number of a server's error.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Error::Wire(error) | Error::Batch { source: error } | Error::Change { source: error, .. } => error.code(),
            _ => None,
        }
    }

    /// Turns "access denied" of any kind into an error that names the GRANT.
    pub fn with_missing_privilege(self, action: &'static str, grant: &str) -> Error {
        /// Access denied: to a database, to commands of replicas, to a table, to a column, missing SUPER or its parts.
        const DENIED: [u16; 6] = [1044, 1045, 1142, 1143, 1227, 1370];
        match &self {
            Error::Wire(spate_connection::Error::Server { peer, error }) if DENIED.contains(&error.code) => {
                Error::Privilege {
                    peer: peer.to_string(),
                    action,
                    message: error.message.clone(),
                    grant: grant.to_owned(),
                }
            }
            _ => self,
        }
    }
}

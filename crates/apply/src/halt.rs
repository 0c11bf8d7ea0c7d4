//! Why a stage stops before its work is done: an error, or a signal. A signal is no failure: it tells the stages beside it, or the
//! supervisor, how to continue.

use spate_replica::Error;
use spate_schedule::Surprise;

/// Shorthand for the results of stages.
pub type Result<T> = std::result::Result<T, Halt>;

/// Why a stage stopped.
#[derive(Debug)]
pub enum Halt {
    /// Something failed.
    Failed(Error),
    /// Signal: a neighbouring stage has ended, and tells the reason itself.
    StageEnded,
    /// Signal: a transaction turned out to be what it did not seem to be. It is to be gathered again, with that knowledge.
    TurnedOut {
        /// Ordinal of the transaction in the archive.
        seqno: u64,
        /// What the transaction is.
        surprise: Surprise,
    },
    /// Signal: the replica's foreign keys are not those by which changes were gathered. All definitions are to be read again.
    ForeignKeysChanged,
    /// Signal: a transaction cannot be applied, but those before it can, and are not applied yet.
    Behind {
        /// The last transaction that can be applied.
        seqno: u64,
        /// Why the one after it cannot.
        error: Error,
    },
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error)
    }
}

impl From<spate_connection::Error> for Halt {
    fn from(error: spate_connection::Error) -> Halt {
        Halt::Failed(error.into())
    }
}

impl From<spate_archive::Error> for Halt {
    fn from(error: spate_archive::Error) -> Halt {
        Halt::Failed(error.into())
    }
}

//! The errors of a failover.

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a failover does not go on. Whatever was done until then stays valid: the same command goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection, a server or the archive failed.
    #[error(transparent)]
    Replica(#[from] spate_replica::Error),
    /// The plan has steps that lose or damage something, or that cannot work.
    #[error("cannot promote {candidate}: {}", reasons.join("; "))]
    Refused {
        /// The server that was to be promoted.
        candidate: String,
        /// Why not, and what helps.
        reasons: Vec<String>,
    },
    /// A server does not do what a step waits for.
    #[error("{server}: {what}")]
    Step {
        /// Which server.
        server: String,
        /// What it was to do, and what helps.
        what: String,
    },
    /// Surplus transactions cannot be undone.
    #[error("{server}: its surplus transactions cannot be undone: {why}. No row was changed")]
    Surplus {
        /// The server that has them.
        server: String,
        /// Which one, and why.
        why: String,
    },
    /// A file cannot be written or read.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The consensus store does not answer, or refuses.
    #[error("etcd: {0}")]
    Etcd(String),
    /// Somebody has asked the program to end.
    #[error("interrupted: the same command goes on from here")]
    Interrupted,
    /// This watcher does not hold the lease any more.
    #[error("the lease in etcd is lost: another watcher may decide now, so this one stops before its next step")]
    LeaseLost,
}

impl From<spate_connection::Error> for Error {
    fn from(error: spate_connection::Error) -> Error {
        Error::Replica(error.into())
    }
}

impl From<spate_archive::Error> for Error {
    fn from(error: spate_archive::Error) -> Error {
        Error::Replica(error.into())
    }
}

impl Error {
    /// A step that failed on a server.
    pub(crate) fn step(server: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Step { server: server.into(), what: what.into() }
    }
}

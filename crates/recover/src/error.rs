//! Why a backup or a recovery failed.

use std::io;
use std::path::{Path, PathBuf};

/// Of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a backup or a recovery failed. What was complete before stays; what was not is invisible, and is removed by the next run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The place of the backups does not do what it is asked to.
    #[error("{target}: cannot {what}: {source}")]
    Target {
        /// The place of the backups.
        target: String,
        /// What was tried.
        what: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// The place of the backups cannot be understood.
    #[error("the target '{target}': {why}")]
    BadTarget {
        /// As it was given.
        target: String,
        /// What is wrong, and what helps.
        why: String,
    },
    /// Something in the place of the backups is not what it was when it was written.
    #[error("{target}: {object} is damaged: {why}")]
    Damaged {
        /// The place of the backups.
        target: String,
        /// The object.
        object: String,
        /// What is wrong.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A key cannot be read, or does not fit.
    #[error("{key}: {why}")]
    Key {
        /// The key, or the file that holds it.
        key: String,
        /// What is wrong, and what helps.
        why: String,
    },
    /// A program that a backup or a recovery needs has failed, or is not there.
    #[error("{program}: {why}")]
    Program {
        /// The program.
        program: String,
        /// What it said, and what helps.
        why: String,
    },
    /// It is not done, and what helps.
    #[error("{0}")]
    Refused(String),
    /// The archive does not have everything between the base and the end.
    #[error("between the base {base} and {end}, the binlog is incomplete: {why}")]
    Gap {
        /// The base's name.
        base: String,
        /// Where the recovery is to end, for people.
        end: String,
        /// Which files are missing.
        why: String,
    },
    /// The archive belongs to another server than the base.
    #[error("the base {base} is of another server than the binlog: {why}")]
    Foreign {
        /// The base's name.
        base: String,
        /// What contradicts.
        why: String,
    },
    /// The connection to a server.
    #[error(transparent)]
    Connection(#[from] spate_connection::Error),
    /// A server that is restored.
    #[error(transparent)]
    Replica(#[from] spate_replica::Error),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] spate_archive::Error),
    /// Somebody asked Spate to stop.
    #[error("stopped by a signal; nothing half done stays")]
    Stopped,
}

impl Error {
    pub(crate) fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        let path = path.as_ref().to_owned();
        move |source| Error::File { path, source }
    }

    pub(crate) fn program(program: impl AsRef<Path>, why: impl Into<String>) -> Error {
        Error::Program { program: program.as_ref().display().to_string(), why: why.into() }
    }
}

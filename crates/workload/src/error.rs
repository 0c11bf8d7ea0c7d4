//! Why a replay failed.

use std::io;
use std::path::{Path, PathBuf};

/// Of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A log is not what it must be.
    #[error("{}, line {line}: {why}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong, and what helps.
        why: String,
    },
    /// The input holds nothing to replay.
    #[error("{input}: {why}")]
    Nothing {
        /// The input.
        input: String,
        /// Why, and what helps.
        why: String,
    },
    /// An archive, or a directory of binlogs, cannot be read.
    #[error(transparent)]
    Binlog(Box<spate_archive::Error>),
    /// The server, or the connection to it.
    #[error(transparent)]
    Connection(#[from] spate_connection::Error),
    /// A signal came before anything was executed.
    #[error("a signal ended the replay before it began")]
    Stopped,
    /// A page cannot be drawn.
    #[error("the page cannot be made: {0}")]
    Page(#[from] spate_page::PageError),
    /// More sessions at a time than are allowed.
    #[error(
        "more than {max} recorded sessions are open at the same time (at {at:.1} s): raise --sessions-max, or let --threads share the statements"
    )]
    Sessions {
        /// The limit.
        max: usize,
        /// Seconds since the first statement.
        at: f64,
    },
}

impl Error {
    pub(crate) fn file(path: impl AsRef<Path>, error: io::Error) -> Error {
        Error::File { path: path.as_ref().to_owned(), error }
    }
}

//! Why a load failed.

use std::io;
use std::path::{Path, PathBuf};

/// Of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a load failed. What was committed before stays, and the next run goes on behind it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The layout is wrong.
    #[error("the layout {name}: {why}")]
    Layout {
        /// Where it was read.
        name: String,
        /// The line, and what is wrong.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// An input is not what it must be.
    #[error("{input}, {place}: {why}")]
    Input {
        /// The input.
        input: String,
        /// The line or byte.
        place: String,
        /// What is wrong, and what helps.
        why: String,
    },
    /// A file was loaded before, and is another one now; or the like.
    #[error("{input}: {why}")]
    Manifest {
        /// The input.
        input: String,
        /// What does not fit, and what helps.
        why: String,
    },
    /// A table is not what it must be.
    #[error("table {table}: {why}")]
    Table {
        /// The table.
        table: String,
        /// What is wrong, and what helps.
        why: String,
    },
    /// The server, or the connection to it.
    #[error(transparent)]
    Connection(#[from] spate_connection::Error),
    /// Spate's own schema.
    #[error(transparent)]
    OwnSchema(#[from] spate_replica::Error),
    /// Another load of this name is running.
    #[error(
        "another load of the name {job} is running on this server (connection {connection}): wait for it, or give this one another --name"
    )]
    Running {
        /// The load's name.
        job: String,
        /// The server's number of its connection.
        connection: String,
    },
    /// A signal came.
    #[error("stopped by a signal; what is loaded stays, and the same command goes on behind it")]
    Stopped,
}

impl Error {
    pub(crate) fn layout(name: &str, why: String) -> Error {
        Error::Layout { name: name.to_owned(), why }
    }

    pub(crate) fn file(path: impl AsRef<Path>, error: io::Error) -> Error {
        Error::File { path: path.as_ref().to_owned(), error }
    }

    /// True if others than this one file may be loaded.
    pub(crate) fn is_of_file(&self) -> bool {
        matches!(self, Error::File { .. } | Error::Input { .. } | Error::Manifest { .. })
    }

    /// True if the same may succeed in a moment.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Error::Connection(error) => error.is_transient(),
            _ => false,
        }
    }
}

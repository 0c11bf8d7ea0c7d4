//! What can go wrong while binlogs are analysed.

use thiserror::Error;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an analysis.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory cannot be read: see the archive's error.
    #[error(transparent)]
    Archive(#[from] spate_archive::Error),
    /// An event cannot be read.
    #[error("the event that ends at {place} cannot be read")]
    Transaction {
        /// The source's file and the offset in it.
        place: String,
        /// What is wrong with it.
        #[source]
        error: spate_binlog::Error,
    },
    /// Costs cannot be worked out from the runs.
    #[error("costs are worked out from a run of one applier and one of several, and there is none of {missing}")]
    Runs {
        /// What is missing.
        missing: &'static str,
    },
    /// The page could not be made.
    #[error(transparent)]
    Page(#[from] spate_page::PageError),
}

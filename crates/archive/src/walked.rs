//! How far a directory of another process was walked.

use std::sync::{Arc, Mutex};

use crate::follower::Follower;
use crate::index::TransactionRecord;
use crate::tail::ArchiveFile;

/// How to find the files in a directory that another process writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// Their common name without number, such as `mariadb-bin`; needed only if the directory holds several such sets.
    /// `None` takes the only set.
    pub base_name: Option<String>,
}

/// The end of the last walk, which is the end of the last whole transaction.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) options: DirectoryOptions,
    pub(crate) end: Mutex<End>,
}

#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) file: Option<Arc<ArchiveFile>>,
    pub(crate) offset: u64,
    pub(crate) follower: Follower,
    pub(crate) last: Option<TransactionRecord>,
}

//! How far a directory that somebody else writes was walked.

use std::sync::{Arc, Mutex};

use crate::follower::Follower;
use crate::index::TransactionRecord;
use crate::tail::ArchiveFile;

/// How to find the files of a directory that is not ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// Their common name without number, such as `mariadb-bin`. Needed only if the directory holds several such sets.
    pub base_name: Option<String>,
}

/// Where the last walk ended: at the end of the last whole transaction.
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

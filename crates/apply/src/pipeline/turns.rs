//! Whose turn it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spate_replica::{Error, Result};

use crate::progress::Progress;

/// How often one who waits looks whether the other has failed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What two workers know of each other.
#[derive(Debug)]
pub(crate) struct Turns<'a> {
    pub(crate) progress: &'a Progress<'a>,
    error: Mutex<Option<Error>>,
    has_failed: AtomicBool,
    /// The session is over.
    over: &'a AtomicBool,
}

/// Whether one who waits may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Come,
    NotYet,
    /// The other has failed.
    Never,
}

impl<'a> Turns<'a> {
    pub(crate) fn new(progress: &'a Progress<'a>, over: &'a AtomicBool) -> Turns<'a> {
        Turns { progress, error: Mutex::default(), has_failed: AtomicBool::new(false), over }
    }

    /// Waits for a moment until everything up to this transaction is applied.
    pub(crate) fn wait(&self, seqno: u64) -> Turn {
        match () {
            () if self.progress.wait_applied(seqno, LOOK_EVERY) => Turn::Come,
            () if self.has_failed() => Turn::Never,
            () => Turn::NotYet,
        }
    }

    /// Takes what a stage has ended with. After a failure, the session ends.
    pub(crate) fn end(&self, ended: Result<()>) {
        let Err(error) = ended else { return };
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        self.over.store(true, Ordering::Release);
    }

    /// True if one of them has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// What the first of them has failed at.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

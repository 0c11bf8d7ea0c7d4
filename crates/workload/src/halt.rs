//! Whether a replay goes on: until a signal, or until a part of it has failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;

/// Shared by all threads of a replay.
#[derive(Debug, Clone)]
pub(crate) struct Halt {
    stop: Arc<AtomicBool>,
    has_failed: Arc<AtomicBool>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl Halt {
    /// A signal raises `stop`.
    pub(crate) fn new(stop: &Arc<AtomicBool>) -> Halt {
        Halt { stop: Arc::clone(stop), has_failed: Arc::default(), failure: Arc::default() }
    }

    /// True if nothing more is to be executed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_stopped() || self.has_failed.load(Ordering::Acquire)
    }

    /// True after a signal.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Keeps a failure that is told at the end. The first is the one that is told.
    pub(crate) fn note(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Ends the replay.
    pub(crate) fn fail(&self, error: Error) {
        self.note(error);
        self.has_failed.store(true, Ordering::Release);
    }

    /// The failure, if there was one.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

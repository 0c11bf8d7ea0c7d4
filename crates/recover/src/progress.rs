//! How far a backup or a recovery is; others may look at it at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How far a backup or a recovery is.
#[derive(Debug, Default)]
pub struct Progress {
    plain_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    expected_bytes: AtomicU64,
    doing: Mutex<String>,
}

impl Progress {
    /// Bytes of data that were written or read so far; those that are stored of them; and how many bytes of data there will be (0 if nobody knows).
    pub fn bytes(&self) -> (u64, u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.plain_bytes), get(&self.stored_bytes), get(&self.expected_bytes))
    }

    /// What is being done, for people.
    pub fn doing(&self) -> String {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn stored(&self, plain: u64, stored: u64) {
        self.plain_bytes.fetch_add(plain, Ordering::Relaxed);
        self.stored_bytes.fetch_add(stored, Ordering::Relaxed);
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.plain_bytes.store(0, Ordering::Relaxed);
        self.stored_bytes.store(0, Ordering::Relaxed);
        self.expected_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, what: impl Into<String>) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }
}

//! How large things may get.

use std::time::Duration;

/// Bounds of a batch. Whichever is reached first ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Source transactions.
    pub transactions_max: u64,
    /// Bytes of memory that the gathered batch may hold.
    pub memory_bytes_max: usize,
    /// Time since its first transaction was gathered.
    pub duration_max: Duration,
}

/// The least that Spate can work with.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// What `--memory` is without the option.
pub const MEMORY_BYTES_DEFAULT: u64 = 512 << 20;

/// Default of `--batch-transactions`: more would fold little more and make readers wait longer for the next state.
pub const BATCH_TRANSACTIONS_DEFAULT: u64 = 1_000_000;

/// Default of `--batch-seconds`.
pub const BATCH_DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Two batches are in memory at once: one being gathered and one being prepared. Each may take this share of the budget; the
/// rest is for statements on their way, sorting, and the buffers of intake and reader.
const BATCH_SHARE: (u64, u64) = (5, 16);

impl BatchLimits {
    /// The limits that keep a process within `memory_bytes`.
    pub fn within(memory_bytes: u64) -> BatchLimits {
        BatchLimits {
            transactions_max: BATCH_TRANSACTIONS_DEFAULT,
            memory_bytes_max: (memory_bytes * BATCH_SHARE.0 / BATCH_SHARE.1) as usize,
            duration_max: BATCH_DURATION_DEFAULT,
        }
    }
}

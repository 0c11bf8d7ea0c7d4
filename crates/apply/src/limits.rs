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
    /// Time of the source between its first transaction and its last, in seconds.
    pub source_seconds_max: u64,
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
    /// None at all.
    pub const NONE: BatchLimits = BatchLimits {
        transactions_max: u64::MAX,
        memory_bytes_max: usize::MAX,
        duration_max: Duration::MAX,
        source_seconds_max: u64::MAX,
    };

    /// The same for batches of which several are with appliers at once, whose positions may differ by so much of the source's time.
    #[must_use]
    pub(crate) fn shared(self, spread_max: Duration) -> BatchLimits {
        const SHARE: usize = 2;
        BatchLimits {
            memory_bytes_max: self.memory_bytes_max / SHARE,
            source_seconds_max: spread_max.as_secs() / SHARE as u64 + 1,
            ..self
        }
    }

    /// The same for batches of which three are in memory at once, one gathered and two applied in turn, and of those up to three quarters twice.
    #[must_use]
    pub(crate) fn in_turn(self) -> BatchLimits {
        const SHARE: (usize, usize) = (4, 5);
        BatchLimits { memory_bytes_max: self.memory_bytes_max / SHARE.1 * SHARE.0, ..self }
    }

    /// The limits that keep a process within `memory_bytes`.
    pub fn within(memory_bytes: u64) -> BatchLimits {
        BatchLimits {
            transactions_max: BATCH_TRANSACTIONS_DEFAULT,
            memory_bytes_max: (memory_bytes * BATCH_SHARE.0 / BATCH_SHARE.1) as usize,
            duration_max: BATCH_DURATION_DEFAULT,
            source_seconds_max: u64::MAX,
        }
    }
}

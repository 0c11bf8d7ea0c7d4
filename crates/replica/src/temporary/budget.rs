//! How much copies of temporary tables may write. A copy is the whole table: a statement of a few bytes can double a table, or change one
//! row of a large one, and each batch that does would write the table again, to the replica's data and to its binlog.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spate_schedule::temporary::TemporaryTable;

/// Bytes that copies may write at once, and so the largest copy: some seconds of the replica's work, and a small part of the binlog file
/// that it goes to (1 GiB by default).
pub(super) const COPY_BYTES_MAX: u64 = 16 << 20;

/// Bytes of copies per second, on average: 22 GB a day if a source never stops to change large temporary tables.
pub(super) const COPY_BYTES_PER_SECOND: u64 = 256 << 10;

/// The bytes that copies may still write in this session, and the tables that wait for more. Those are marked as lost until then.
#[derive(Debug)]
pub struct CopyBudget {
    bytes: u64,
    refilled: Instant,
    /// Tables that were too large when they were last looked at, and when the budget has refilled enough for them.
    waiting: BTreeMap<TemporaryTable, Instant>,
}

impl CopyBudget {
    /// A full budget.
    pub fn new(now: Instant) -> CopyBudget {
        CopyBudget { bytes: COPY_BYTES_MAX, refilled: now, waiting: BTreeMap::new() }
    }

    /// Forgets tables that do not exist any more.
    pub(super) fn retain(&mut self, open: &BTreeSet<TemporaryTable>) {
        self.waiting.retain(|table, _| open.contains(table));
    }

    /// True if the table is marked as lost.
    pub(super) fn is_waiting(&self, table: &TemporaryTable) -> bool {
        self.waiting.contains_key(table)
    }

    /// True if the table is marked as lost, and there is no use to look at it before the budget has refilled.
    pub(super) fn waits_on(&self, table: &TemporaryTable, now: Instant) -> bool {
        self.waiting.get(table).is_some_and(|due| now < *due)
    }

    /// True if a copy of so many bytes may be written; then they are taken. If not, the table waits.
    pub(super) fn take(&mut self, table: &TemporaryTable, bytes: u64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled).as_millis();
        let refill = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(COPY_BYTES_PER_SECOND) / 1000;
        self.refilled = now;
        self.bytes = self.bytes.saturating_add(refill).min(COPY_BYTES_MAX);
        let missing = bytes.saturating_sub(self.bytes);
        if missing > 0 {
            let wait = Duration::from_secs(missing.div_ceil(COPY_BYTES_PER_SECOND).min(WAIT_SECONDS_MAX));
            self.waiting.insert(table.clone(), now + wait);
            return false;
        }
        self.bytes -= bytes;
        self.waiting.remove(table);
        true
    }
}

/// What was too large may be smaller by then.
const WAIT_SECONDS_MAX: u64 = 600;

#[cfg(test)]
mod tests {
    use spate_schedule::TableName;

    use super::*;

    fn table(thread_id: u32) -> TemporaryTable {
        TemporaryTable { thread_id, name: TableName { schema: "d".into(), table: "x".into() } }
    }

    #[test]
    fn copy_beyond_the_budget_waits_for_its_refill() {
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        let mut budget = CopyBudget::new(begin);
        assert!(budget.take(&table(1), COPY_BYTES_MAX, begin));
        assert!(!budget.take(&table(2), 2 * COPY_BYTES_PER_SECOND, begin));
        assert!(budget.waits_on(&table(2), begin + second));
        assert!(!budget.waits_on(&table(2), begin + 2 * second));
        assert!(budget.take(&table(2), 2 * COPY_BYTES_PER_SECOND, begin + 2 * second));
        assert!(!budget.is_waiting(&table(2)));
    }

    #[test]
    fn table_larger_than_the_budget_is_never_copied() {
        let begin = Instant::now();
        let mut budget = CopyBudget::new(begin);
        assert!(!budget.take(&table(1), u64::MAX, begin));
        assert!(budget.waits_on(&table(1), begin + Duration::from_secs(WAIT_SECONDS_MAX - 1)));
        let later = begin + Duration::from_secs(WAIT_SECONDS_MAX);
        assert!(!budget.waits_on(&table(1), later));
        assert!(!budget.take(&table(1), COPY_BYTES_MAX + 1, later));
        budget.retain(&BTreeSet::new());
        assert!(!budget.is_waiting(&table(1)));
    }
}

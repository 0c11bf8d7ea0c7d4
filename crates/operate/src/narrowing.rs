//! How a refused batch is taken apart, session by session, until the change that the replica refuses stands alone.
//!
//! Each try has an eighth of the transactions of the one before in a batch, still folded, so everything that comes before the
//! bad transaction is applied at nearly full speed: all tries together read and apply a small multiple of the refused batch,
//! and a batch of a million transactions needs seven. Only what is left then is applied row by row: one transaction if the
//! replica's refusal is the end; if rows are repaired, as many as it takes to not start over for each of them.

/// Each try has so many times fewer transactions in a batch.
const NARROWER: u64 = 8;

/// The first time, at most so many transactions are repaired row by row.
const REPAIR_TRANSACTIONS_MIN: u64 = 64;

/// With one repair after the other, at most so many.
const REPAIR_TRANSACTIONS_MAX: u64 = 1 << 16;

/// What a session is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Batches as large as they get.
    Full,
    /// Folded batches of at most so many transactions.
    Narrow(u64),
    /// Row by row, so many transactions, at most `batch` of them in one transaction of the replica.
    Rows { transactions: u64, batch: u64 },
}

impl Pace {
    /// The most transactions that one transaction of the replica is to hold.
    pub(crate) fn batch_max(self) -> u64 {
        match self {
            Pace::Full => u64::MAX,
            Pace::Narrow(batch) | Pace::Rows { batch, .. } => batch,
        }
    }

    /// The most transactions that the session is to apply, row by row. `None`: it folds, and goes on.
    pub(crate) fn by_rows(self) -> Option<u64> {
        match self {
            Pace::Full | Pace::Narrow(_) => None,
            Pace::Rows { transactions, .. } => Some(transactions),
        }
    }
}

/// Decides the pace of the next session. Everything up to `last_seqno` was on its way when the first batch was refused; behind
/// it, the pace is full again.
#[derive(Debug)]
pub(crate) struct Narrowing {
    repairs: bool,
    pace: Pace,
    last_seqno: Option<u64>,
    repair_transactions: u64,
}

impl Narrowing {
    /// Nothing was refused yet.
    pub(crate) fn new(repairs: bool) -> Narrowing {
        Narrowing { repairs, pace: Pace::Full, last_seqno: None, repair_transactions: REPAIR_TRANSACTIONS_MIN }
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// Where the session is to end, if it may not go on for ever.
    pub(crate) fn last_seqno(&self) -> Option<u64> {
        self.last_seqno
    }

    /// A batch was refused, with `in_doubt` transactions on their way and not committed, up to `last_handed`. False if there is
    /// nothing left to take apart.
    pub(crate) fn refused(&mut self, in_doubt: u64, last_handed: u64) -> bool {
        let most = self.pace.batch_max();
        self.last_seqno = Some(self.last_seqno.unwrap_or(0).max(last_handed));
        let next = most.min(in_doubt.max(1)) / NARROWER;
        let is_by_rows = self.pace.by_rows().is_some();
        self.pace = match self.repairs {
            _ if is_by_rows && most == 1 => return false,
            // A change that cannot be repaired goes alone, so that everything before it commits.
            _ if is_by_rows => Pace::Rows { transactions: self.repair_transactions, batch: 1 },
            true if next <= self.repair_transactions => {
                let transactions = self.repair_transactions;
                Pace::Rows { transactions, batch: transactions }
            }
            false if most == 1 || in_doubt <= 1 => Pace::Rows { transactions: 1, batch: 1 },
            _ => Pace::Narrow(next.max(1)),
        };
        true
    }

    /// A session did all that it was to do, up to `applied`. False if there is no narrowing to end.
    pub(crate) fn reached(&mut self, applied: u64) -> bool {
        let Some(last_seqno) = self.last_seqno else { return false };
        let is_over = applied >= last_seqno;
        self.pace = match self.pace {
            Pace::Rows { .. } if self.repairs && !is_over => {
                // Where one row was wrong, others are likely to be.
                let transactions = self.repair_transactions * NARROWER;
                self.repair_transactions = (self.repair_transactions * 2).min(REPAIR_TRANSACTIONS_MAX);
                Pace::Narrow(transactions)
            }
            _ => Pace::Full,
        };
        if self.pace == Pace::Full {
            self.last_seqno = None;
            self.repair_transactions = REPAIR_TRANSACTIONS_MIN;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies transactions 1 to `count`, of which those in `bad` are refused in every folded batch; a repair makes them succeed.
    /// Returns the number of transactions that were tried, the sessions, and where it ended.
    fn play(count: u64, bad: &[u64], repairs: bool) -> (u64, u64, u64) {
        let (mut applied, mut tried, mut sessions) = (0, 0, 0);
        let mut narrowing = Narrowing::new(repairs);
        loop {
            sessions += 1;
            let batch = narrowing.pace().batch_max();
            let end = match narrowing.pace() {
                Pace::Full => count,
                Pace::Narrow(_) => narrowing.last_seqno().unwrap_or(count).min(count),
                Pace::Rows { transactions, .. } => count.min(applied + transactions),
            };
            let mut refused = None;
            while applied < end && refused.is_none() {
                let last = applied.saturating_add(batch).min(end);
                tried += last - applied;
                let is_bad = bad.iter().any(|bad| (applied + 1..=last).contains(bad));
                let mends = repairs && matches!(narrowing.pace(), Pace::Rows { .. });
                match is_bad && !mends {
                    true => refused = Some((last - applied, last)),
                    false => applied = last,
                }
            }
            match refused {
                Some((in_doubt, last)) if !narrowing.refused(in_doubt, last) => return (tried, sessions, applied),
                Some(_) => {}
                None if !narrowing.reached(applied) => return (tried, sessions, applied),
                None => {}
            }
        }
    }

    #[test]
    fn narrowing_finds_the_bad_transaction_after_applying_all_before_it() {
        for count in [1, 2, 7, 8, 9, 64, 65, 1000, 100_000] {
            for bad in [1, 2, count / 2, count - 1, count].into_iter().filter(|bad| (1..=count).contains(bad)) {
                let (tried, sessions, applied) = play(count, &[bad], false);
                assert_eq!(applied, bad - 1, "{bad} of {count}");
                assert!(tried <= 3 * count + 10, "{bad} of {count}: {tried}");
                assert!(sessions <= 9, "{bad} of {count}: {sessions} sessions");
            }
        }
    }

    #[test]
    fn narrowing_with_repairs_reaches_the_end() {
        for count in [1, 2, 63, 64, 65, 1000, 1_000_000] {
            let (tried, sessions, applied) = play(count, &[count / 2 + 1], true);
            assert_eq!(applied, count);
            assert!(tried <= 4 * count + 10 && sessions <= 20, "{count}: {tried} in {sessions} sessions");
        }
    }

    #[test]
    fn narrowing_with_many_repairs_does_not_restart_each_time() {
        let bad: Vec<u64> = (1..=100_000).filter(|seqno| seqno % 10 == 0).collect();
        let (tried, sessions, applied) = play(100_000, &bad, true);
        assert_eq!(applied, 100_000);
        assert!(sessions < 50 && tried < 1_500_000, "{tried} in {sessions} sessions");
    }
}

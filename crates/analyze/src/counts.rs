//! What is counted of the transactions besides their parallelism, in bounded memory.

use serde::Serialize;

use crate::hashed::HashedSet;
use crate::transaction::{Reach, Transaction};

/// Points of time that are told apart.
const MOMENTS_MAX: usize = 1 << 10;

/// Different rows in a batch at most; a batch with more ends there.
const FOLDED_ROWS_MAX: usize = 4 << 20;

/// Transactions and row changes of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Seconds since 1970 at which it begins.
    pub seconds: u64,
    /// Transactions that were committed in it.
    pub transactions: u64,
    /// Their row changes.
    pub rows: u64,
    /// Bytes of their events.
    pub bytes: u64,
}

/// Transactions over time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    width: u64,
    moments: Vec<Moment>,
}

impl Timeline {
    pub(crate) fn add(&mut self, transaction: &Transaction) {
        let seconds = u64::from(transaction.commit_seconds);
        self.width = self.width.max(1);
        let mut begin = seconds - seconds % self.width;
        // Clocks go back, and several threads write their time before they wait for each other.
        let place = match self.moments.iter().rposition(|moment| moment.seconds <= begin) {
            Some(place) if self.moments[place].seconds == begin => place,
            place => {
                let place = place.map_or(0, |place| place + 1);
                self.moments.insert(place, Moment { seconds: begin, ..Moment::default() });
                place
            }
        };
        let moment = &mut self.moments[place];
        moment.transactions += 1;
        moment.rows += transaction.rows;
        moment.bytes += transaction.bytes;
        while self.moments.len() > MOMENTS_MAX {
            self.width *= 2;
            begin -= begin % self.width;
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        let mut joined: Vec<Moment> = Vec::with_capacity(self.moments.len());
        for moment in &self.moments {
            let seconds = moment.seconds - moment.seconds % self.width;
            match joined.last_mut().filter(|last| last.seconds == seconds) {
                Some(last) => {
                    last.transactions += moment.transactions;
                    last.rows += moment.rows;
                    last.bytes += moment.bytes;
                }
                None => joined.push(Moment { seconds, ..*moment }),
            }
        }
        self.moments = joined;
    }

    /// Seconds of an interval, and the intervals that have transactions.
    pub(crate) fn finish(self) -> (u64, Vec<Moment>) {
        (self.width.max(1), self.moments)
    }
}

/// How many things have a size from `from` to `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// The smallest size.
    pub from: u64,
    /// The largest.
    pub to: u64,
    /// So many have it.
    pub count: u64,
}

impl SizeCount {
    /// The sizes, for people.
    pub fn range(&self) -> String {
        if self.from == self.to { self.from.to_string() } else { format!("{} to {}", self.from, self.to) }
    }
}

/// Counts by size, in powers of two.
#[derive(Debug)]
pub(crate) struct Sizes {
    counts: [u64; 64],
    things: u64,
    sum: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { counts: [0; 64], things: 0, sum: 0 }
    }
}

impl Sizes {
    pub(crate) fn add(&mut self, size: u64) {
        // 1, 2, 3–4, 5–8, …
        let place = (64 - size.max(1).saturating_sub(1).leading_zeros()).min(63);
        self.counts[place as usize] += 1;
        self.things += 1;
        self.sum += size;
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / self.things.max(1) as f64
    }

    pub(crate) fn finish(&self) -> Vec<SizeCount> {
        let last = self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let range = |place: usize| match place {
            0 => (1, 1),
            place => ((1u64 << (place - 1)) + 1, 1u64 << place),
        };
        let counted = |(place, &count): (usize, &u64)| {
            let (from, to) = range(place);
            SizeCount { from, to, count }
        };
        self.counts[..last].iter().enumerate().map(counted).collect()
    }
}

/// Transactions that follow each other and have the same mark, such as that of their commit group.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    mark: Option<(u64, u64)>,
    length: u64,
    pub(crate) sizes: Sizes,
}

impl Runs {
    /// `None`: it is alone.
    pub(crate) fn add(&mut self, mark: Option<(u64, u64)>) {
        if mark.is_some() && mark == self.mark {
            self.length += 1;
            return;
        }
        self.finish();
        self.mark = mark;
        self.length = 1;
    }

    pub(crate) fn finish(&mut self) {
        if self.length > 0 {
            self.sizes.add(std::mem::take(&mut self.length));
        }
    }
}

/// What is left of row changes if batches of so many transactions are folded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Folded {
    /// Transactions in a batch; 0: as many as there are, up to four million different rows.
    pub batch_transactions: u64,
    /// Row changes.
    pub rows: u64,
    /// Different rows of each batch, summed up: so many changes are left at most.
    pub net_rows: u64,
}

impl Folded {
    /// What a table of these says above each column.
    pub const HEADER: [&str; 4] = ["batch of", "row changes", "different rows", "left"];

    /// A line of such a table.
    pub fn cells(&self) -> Vec<String> {
        let size = if self.batch_transactions == 0 { "all".to_owned() } else { self.batch_transactions.to_string() };
        let left = 100.0 * self.net_rows as f64 / self.rows.max(1) as f64;
        vec![size, self.rows.to_string(), self.net_rows.to_string(), format!("{left:.1} %")]
    }
}

/// Counts what folding leaves, without folding: rows that are different.
#[derive(Debug)]
pub(crate) struct Folding {
    batch_transactions: u64,
    in_batch: u64,
    rows: HashedSet,
    total_rows: u64,
    net_rows: u64,
}

impl Folding {
    pub(crate) fn new(batch_transactions: u64) -> Folding {
        Folding { batch_transactions, in_batch: 0, rows: HashedSet::default(), total_rows: 0, net_rows: 0 }
    }

    pub(crate) fn add(&mut self, transaction: &Transaction) {
        self.total_rows += transaction.rows;
        if transaction.reach == Reach::Rows {
            self.rows.extend(&transaction.keys);
            self.net_rows += transaction.keyless_rows;
        } else {
            // They are not folded, and what comes later is not folded with what came before.
            self.end_batch();
            self.net_rows += transaction.rows;
        }
        self.in_batch += 1;
        let is_full = self.batch_transactions > 0 && self.in_batch >= self.batch_transactions;
        if is_full || self.rows.len() > FOLDED_ROWS_MAX {
            self.end_batch();
        }
    }

    fn end_batch(&mut self) {
        self.net_rows += self.rows.len() as u64;
        self.rows.clear();
        self.in_batch = 0;
    }

    pub(crate) fn finish(mut self) -> Folded {
        self.end_batch();
        Folded { batch_transactions: self.batch_transactions, rows: self.total_rows, net_rows: self.net_rows }
    }
}

/// A transaction that stands out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outstanding {
    /// Its GTID; empty if it has none.
    pub gtid: String,
    /// Where it ends: file and offset on the source.
    pub place: String,
    /// Row changes.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Seconds between its first event and its commit, by the source's clock.
    pub seconds: u64,
}

/// The few with the largest of some measure.
#[derive(Debug)]
pub(crate) struct Largest {
    measure: fn(&Transaction) -> u64,
    max: usize,
    /// Largest first.
    found: Vec<(u64, Outstanding)>,
}

impl Largest {
    pub(crate) fn new(max: usize, measure: fn(&Transaction) -> u64) -> Largest {
        Largest { measure, max, found: Vec::new() }
    }

    pub(crate) fn add(&mut self, transaction: &Transaction) {
        let size = (self.measure)(transaction);
        if size == 0 || (self.found.len() == self.max && self.found.last().is_none_or(|(least, _)| size <= *least)) {
            return;
        }
        let place = self.found.partition_point(|(other, _)| *other >= size);
        self.found.insert(place, (size, outstanding(transaction)));
        self.found.truncate(self.max);
    }

    pub(crate) fn finish(self) -> Vec<Outstanding> {
        self.found.into_iter().map(|(_, transaction)| transaction).collect()
    }
}

fn outstanding(transaction: &Transaction) -> Outstanding {
    Outstanding {
        gtid: transaction.gtid.map_or_else(String::new, |gtid| gtid.to_string()),
        place: format!("{}:{}", transaction.source_file, transaction.source_position),
        rows: transaction.rows,
        bytes: transaction.bytes,
        seconds: transaction.seconds(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        let mut sizes = Sizes::default();
        for size in [1, 1, 2, 3, 4, 5, 8, 9] {
            sizes.add(size);
        }
        let counts: Vec<(u64, u64, u64)> = sizes.finish().iter().map(|s| (s.from, s.to, s.count)).collect();
        assert_eq!(counts, [(1, 1, 2), (2, 2, 1), (3, 4, 2), (5, 8, 2), (9, 16, 1)]);
        assert!((sizes.mean() - 33.0 / 8.0).abs() < 1e-9);
    }

    #[test]
    fn timeline_of_a_year_stays_small() {
        let mut timeline = Timeline::default();
        for number in 0..100_000u32 {
            let commit_seconds = 1_700_000_000 + number * 300;
            timeline.add(&Transaction { commit_seconds, rows: 2, bytes: 3, ..Transaction::default() });
        }
        let (width, moments) = timeline.finish();
        assert!(moments.len() <= MOMENTS_MAX && moments.len() > MOMENTS_MAX / 4, "{}", moments.len());
        assert!(width.is_power_of_two());
        assert_eq!(moments.iter().map(|moment| moment.rows).sum::<u64>(), 200_000);
        assert!(moments.is_sorted_by_key(|moment| moment.seconds));
    }

    #[test]
    fn folding_counts_different_rows_of_each_batch() {
        let of = |keys: &[u64], reach| Transaction {
            rows: keys.len() as u64,
            keys: keys.to_vec(),
            reach,
            ..Transaction::default()
        };
        let all = [
            of(&[1, 2], Reach::Rows),
            of(&[1], Reach::Rows),
            of(&[1], Reach::Rows),
            Transaction { rows: 1, keyless_rows: 1, ..Transaction::default() },
            of(&[9], Reach::Statement),
            of(&[2], Reach::Rows),
        ];
        let folded = |size| {
            let mut folding = Folding::new(size);
            all.iter().for_each(|transaction| folding.add(transaction));
            folding.finish()
        };
        assert_eq!(folded(1), Folded { batch_transactions: 1, rows: 7, net_rows: 7 });
        assert_eq!(folded(2).net_rows, 2 + 1 + 1 + 1 + 1);
        assert_eq!(folded(0).net_rows, 2 + 1 + 1 + 1);
    }

    #[test]
    fn runs_are_groups() {
        let mut runs = Runs::default();
        for mark in [Some((0, 1)), Some((0, 1)), None, None, Some((0, 1)), Some((0, 2))] {
            runs.add(mark);
        }
        runs.finish();
        let counts: Vec<(u64, u64)> = runs.sizes.finish().iter().map(|s| (s.to, s.count)).collect();
        assert_eq!(counts, [(1, 4), (2, 1)]);
    }

    #[test]
    fn largest_are_kept_in_order() {
        let mut largest = Largest::new(2, |transaction| transaction.rows);
        for rows in [3, 9, 0, 5, 7] {
            largest.add(&Transaction { rows, ..Transaction::default() });
        }
        let rows: Vec<u64> = largest.finish().iter().map(|transaction| transaction.rows).collect();
        assert_eq!(rows, [9, 7]);
    }
}

//! What an answer holds, as a checksum: of its rows, its results, its columns, and the rows that were changed.

use spate_connection::Row;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Adds up an answer while it comes.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    is_ordered: bool,
    /// Of the results that have ended.
    results: u64,
    /// Of the rows of the result that is coming.
    result: u64,
}

impl Answer {
    pub(crate) fn new(is_ordered: bool) -> Answer {
        Answer { is_ordered, ..Answer::default() }
    }

    /// A result with so many columns begins.
    pub(crate) fn begin_result(&mut self, columns: usize) {
        self.end_result();
        self.results = mix(self.results, columns as u64 + 1);
    }

    pub(crate) fn row(&mut self, row: &Row<'_>) {
        self.values(row.iter());
    }

    fn values<'a>(&mut self, values: impl Iterator<Item = Option<&'a [u8]>>) {
        let mut hash = 0;
        for value in values {
            // NULL and an empty text are different.
            let seed = hash ^ value.map_or(1, |value| 2 + value.len() as u64);
            hash = xxh3_64_with_seed(value.unwrap_or_default(), seed);
            self.bytes += value.map_or(0, <[u8]>::len) as u64;
        }
        self.rows += 1;
        self.result = match self.is_ordered {
            true => mix(self.result, hash),
            false => self.result.wrapping_add(hash),
        };
    }

    fn end_result(&mut self) {
        self.results = mix(self.results, self.result);
        self.result = 0;
    }

    /// Of the whole answer; `results` counts those without rows, too.
    pub(crate) fn checksum(mut self, results: usize, affected_rows: u64) -> u64 {
        self.end_result();
        mix(mix(self.results, results as u64), affected_rows)
    }
}

fn mix(of: u64, next: u64) -> u64 {
    of.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ next
}

#[cfg(test)]
mod tests {
    use super::*;

    type Values<'a> = &'a [Option<&'a [u8]>];

    /// Results as columns and rows; the number of results; rows changed.
    fn checksum(results: &[(usize, &[Values<'_>])], count: usize, affected_rows: u64) -> u64 {
        let mut answer = Answer::new(false);
        for (columns, rows) in results {
            answer.begin_result(*columns);
            rows.iter().for_each(|row| answer.values(row.iter().copied()));
        }
        answer.checksum(count, affected_rows)
    }

    #[test]
    fn all_that_may_differ_is_in_it() {
        let (one, two): (Values<'_>, Values<'_>) = (&[Some(b"1")], &[Some(b"2")]);
        let all = [
            checksum(&[(1, &[one, two])], 1, 0),
            checksum(&[(1, &[one]), (1, &[two])], 2, 0),
            checksum(&[(1, &[one]), (1, &[])], 2, 0),
            checksum(&[(1, &[one])], 1, 0),
            checksum(&[(1, &[&[None]])], 1, 0),
            checksum(&[(1, &[])], 1, 0),
            checksum(&[(2, &[])], 1, 0),
            checksum(&[], 1, 0),
            checksum(&[], 1, 1),
            checksum(&[], 2, 0),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "number {at} is as another");
        }
        assert_eq!(checksum(&[(1, &[one, two])], 1, 0), checksum(&[(1, &[two, one])], 1, 0), "no order is asked for");
    }
}

//! What was looked up a short time ago is still in the server's memory.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

/// Rows that were looked up recently, by hashes of what was asked. Two rows with one hash: the second is not looked up, and its pages are
/// read by the applier.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Rows after which the younger generation becomes the older one.
    rows_max: usize,
    younger: HashSet<u64>,
    older: HashSet<u64>,
}

impl Recent {
    /// For a server whose memory holds this many rows that were looked up.
    pub(crate) fn new(rows_in_memory: u64) -> Recent {
        /// Rows that are remembered at most: 2 × 16 MiB of hashes.
        const ROWS_MAX: u64 = 1 << 20;
        let rows_max = usize::try_from(rows_in_memory.clamp(2, ROWS_MAX) / 2).unwrap_or(1);
        Recent { rows_max, younger: HashSet::new(), older: HashSet::new() }
    }

    /// True if the row is new; it is remembered.
    pub(crate) fn is_new(&mut self, table: u64, parts: &[&[u8]]) -> bool {
        let hash = parts
            .iter()
            .fold(table, |hash, part| hash.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ xxh3_64(part));
        if self.younger.contains(&hash) || self.older.contains(&hash) {
            return false;
        }
        if self.younger.len() >= self.rows_max {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_rows_are_known_for_a_while() {
        let mut recent = Recent::new(8);
        assert!(recent.is_new(1, &[b"a", b"b"]) && !recent.is_new(1, &[b"a", b"b"]));
        assert!(recent.is_new(2, &[b"a", b"b"]) && recent.is_new(1, &[b"b", b"a"]));
        for number in 0..8_u8 {
            assert!(recent.is_new(3, &[&[number]]));
        }
        assert!(recent.is_new(1, &[b"a", b"b"]));
        assert!(recent.younger.len() + recent.older.len() <= 8);
    }
}

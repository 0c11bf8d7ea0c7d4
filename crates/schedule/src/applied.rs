//! Which transactions are applied, where several workers commit independently of each other.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The transactions that are applied, by their seqnos: all up to a low watermark, and runs of others beyond it.
///
/// Invariants: the runs are disjoint, ascending, and not adjacent, and the first of them does not begin right after the watermark. So
/// the watermark is as high as it can be, and a set without runs is a position. The number of runs is bounded by the number of batches on
/// their way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedSet {
    low: u64,
    /// The first seqno of each run beyond the watermark, with the last.
    beyond: BTreeMap<u64, u64>,
}

impl AppliedSet {
    /// All transactions up to `low`, and none beyond; 0 is none at all.
    pub fn up_to(low: u64) -> AppliedSet {
        AppliedSet { low, beyond: BTreeMap::new() }
    }

    /// Adds transactions; those that are in the set already stay.
    pub fn add(&mut self, seqnos: RangeInclusive<u64>) {
        let (mut first, mut last) = (*seqnos.start(), *seqnos.end());
        if first > last {
            return;
        }
        // Runs that touch the new one become part of it.
        while let Some((&start, &end)) = self.beyond.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            self.beyond.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        if first <= self.low.saturating_add(1) {
            self.low = self.low.max(last);
        } else {
            self.beyond.insert(first, last);
        }
    }

    /// True if the transaction is applied.
    pub fn contains(&self, seqno: u64) -> bool {
        seqno <= self.low || self.beyond.range(..=seqno).next_back().is_some_and(|(_, &last)| seqno <= last)
    }

    /// The low watermark: this transaction and all before it are applied.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// How many transactions are applied beyond the watermark.
    pub fn count_beyond(&self) -> u64 {
        self.beyond.iter().map(|(first, last)| last - first + 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_beyond_the_watermark_join_it_once_the_gap_is_filled() {
        let mut set = AppliedSet::up_to(10);
        set.add(13..=14);
        set.add(16..=20);
        assert_eq!((set.low(), set.count_beyond()), (10, 7));
        assert!(set.contains(10) && !set.contains(11) && set.contains(13) && !set.contains(15) && set.contains(20));
        set.add(15..=15);
        assert_eq!(set.beyond, BTreeMap::from([(13, 20)]));
        set.add(11..=12);
        assert_eq!(set, AppliedSet::up_to(20));
    }

    proptest! {
        #[test]
        fn applied_set_equals_a_set_of_numbers(low in 0u64..20, runs in prop::collection::vec((1u64..60, 0u64..8), 0..30)) {
            let mut set = AppliedSet::up_to(low);
            let mut model: BTreeSet<u64> = (1..=low).collect();
            for (first, more) in runs {
                set.add(first..=first + more);
                model.extend(first..=first + more);
                let watermark = (1..).take_while(|seqno| model.contains(seqno)).last().unwrap_or(0);
                prop_assert_eq!(set.low(), watermark);
                prop_assert_eq!(set.count_beyond() + set.low(), model.len() as u64);
                for seqno in 1..80 {
                    prop_assert_eq!(set.contains(seqno), model.contains(&seqno));
                }
                let ends: Vec<_> = set.beyond.iter().map(|(&first, &last)| (first, last)).collect();
                prop_assert!(ends.first().is_none_or(|&(first, _)| first > set.low() + 1));
                prop_assert!(ends.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            }
        }
    }
}

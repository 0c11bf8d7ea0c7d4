//! How many jobs execute at a time, found out while they do: twice as many, or half as many, as long as that is faster.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The first number that is tried.
pub(crate) const FIRST: usize = 4;

/// The largest number that is tried: a server's default limit is 151 connections.
pub(crate) const LARGEST: usize = 64;

/// A number is better if it applies this much more; a smaller one, if it applies this much less at most.
const MARGIN: f64 = 1.05;

/// How long the best number is kept before its neighbours are tried again, in measurements: the workload may have changed.
const KEPT: u32 = 40;

/// What was measured of a number counts that much less with each new measurement of it.
const OLD_SHARE: f64 = 0.5;

/// Decides how many execute at a time. Numbers are powers of two.
#[derive(Debug)]
pub(crate) struct Tuning {
    best: usize,
    trying: Trying,
    /// Transactions per second, by the number of appliers.
    rates: BTreeMap<usize, f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trying {
    /// The best one; its neighbours come after so many measurements.
    Best {
        left: u32,
    },
    More,
    Fewer,
}

impl Tuning {
    pub(crate) fn new() -> Tuning {
        Tuning { best: FIRST, trying: Trying::Best { left: 1 }, rates: BTreeMap::new() }
    }

    /// How many execute at a time now.
    pub(crate) fn appliers(&self) -> usize {
        match self.trying {
            Trying::Best { .. } => self.best,
            Trying::More => self.best * 2,
            Trying::Fewer => self.best / 2,
        }
    }

    /// So many transactions per second were applied with [`Tuning::appliers`], while more could have been begun.
    pub(crate) fn measured(&mut self, rate: f64) {
        let appliers = self.appliers();
        let rate = self.rates.get(&appliers).map_or(rate, |old| old * OLD_SHARE + rate * (1.0 - OLD_SHARE));
        self.rates.insert(appliers, rate);
        let best_rate = self.rates.get(&self.best).copied().unwrap_or_default();
        self.trying = match self.trying {
            Trying::Best { left } if left > 1 => Trying::Best { left: left - 1 },
            Trying::Best { .. } => self.more_or_fewer(),
            Trying::More if rate > best_rate * MARGIN => {
                self.best = appliers;
                // Its own other neighbour is known.
                if appliers < LARGEST { Trying::More } else { Trying::Best { left: KEPT } }
            }
            Trying::More if self.best > 1 => Trying::Fewer,
            Trying::Fewer if rate * MARGIN > best_rate => {
                self.best = appliers;
                if appliers > 1 { Trying::Fewer } else { Trying::Best { left: KEPT } }
            }
            Trying::More | Trying::Fewer => Trying::Best { left: KEPT },
        };
    }

    fn more_or_fewer(&self) -> Trying {
        if self.best < LARGEST { Trying::More } else { Trying::Fewer }
    }

    /// What was chosen and why, for people.
    pub(crate) fn reason(&self) -> String {
        let mut text = format!("{} at a time", self.appliers());
        for (place, (appliers, rate)) in self.rates.iter().enumerate() {
            let before = if place == 0 { ": " } else { ", " };
            // A text takes whatever is written.
            let _taken = write!(text, "{before}{appliers} apply {rate:.0}/s");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(tuning: &mut Tuning, rate_of: impl Fn(usize) -> f64) -> usize {
        for _ in 0..200 {
            let rate = rate_of(tuning.appliers());
            tuning.measured(rate);
        }
        tuning.best
    }

    #[test]
    fn the_peak_is_found_from_both_sides() {
        for peak in [1_usize, 2, 4, 8, 16, 32, 64] {
            let rate_of = |appliers: usize| {
                let distance = (appliers as f64 / peak as f64).log2().abs();
                1000.0 * 0.8_f64.powf(distance)
            };
            assert_eq!(settle(&mut Tuning::new(), rate_of), peak);
        }
    }

    #[test]
    fn fewer_are_enough_where_more_do_not_help() {
        assert_eq!(settle(&mut Tuning::new(), |_| 500.0), 1);
    }

    #[test]
    fn a_peak_that_moves_is_followed() {
        let mut tuning = Tuning::new();
        let rate_of = |peak: f64| move |appliers: usize| 1000.0 * 0.7_f64.powf((appliers as f64 / peak).log2().abs());
        assert_eq!(settle(&mut tuning, rate_of(32.0)), 32);
        for _ in 0..10 {
            settle(&mut tuning, rate_of(4.0));
        }
        assert_eq!(tuning.best, 4);
        assert!(tuning.reason().contains("apply"), "{}", tuning.reason());
    }
}

//! How many jobs execute at a time, found out while they do: twice as many, or half as many, as long as that is faster.

use std::collections::BTreeMap;
use std::fmt::Write;

/// With the order kept, one applier applies many transactions in a packet, and nothing waits for anything but the server. That is the fastest way
/// where rows are in memory and there are few processors.
const ONE_AFTER_THE_OTHER: usize = 1;

/// The first number of several that is tried.
const FIRST: usize = 4;

/// The largest number that is tried: a server's default limit is 151 connections.
pub(crate) const LARGEST: usize = 64;

/// A number is better if it applies this much more; a smaller one, if it applies this much less at most.
const MARGIN: f64 = 1.05;

/// How long the best number is kept before its neighbours are tried again, in measurements: the workload may have changed.
const KEPT: u32 = 40;

/// What was measured of the best number counts that much less with each new measurement of it.
const OLD_SHARE: f64 = 0.5;

/// How many execute at first.
pub(crate) fn first(keeps_order: bool) -> usize {
    if keeps_order { ONE_AFTER_THE_OTHER } else { FIRST }
}

/// Decides how many execute at a time. Numbers are powers of two.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// One at a time is a way of its own: it says nothing of two, nor two of it.
    is_one_apart: bool,
    best: usize,
    trying: Trying,
    /// Transactions per second, by the number of appliers.
    rates: BTreeMap<usize, f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trying {
    /// The best one; the others come after so many measurements.
    Best {
        left: u32,
    },
    More,
    Fewer,
    One,
}

impl Tuning {
    pub(crate) fn new(keeps_order: bool) -> Tuning {
        let best = first(keeps_order);
        Tuning { is_one_apart: keeps_order, best, trying: Trying::Best { left: 1 }, rates: BTreeMap::new() }
    }

    /// How many execute at a time now.
    pub(crate) fn appliers(&self) -> usize {
        match self.trying {
            Trying::Best { .. } => self.best,
            Trying::More if self.is_apart() => FIRST,
            Trying::More => self.best * 2,
            Trying::Fewer => self.best / 2,
            Trying::One => ONE_AFTER_THE_OTHER,
        }
    }

    fn is_apart(&self) -> bool {
        self.is_one_apart && self.best == ONE_AFTER_THE_OTHER
    }

    /// So many transactions per second were applied with [`Tuning::appliers`]. `is_limited`: by the replica, and not because the source had no more.
    pub(crate) fn measured(&mut self, rate: f64, is_limited: bool) {
        let appliers = self.appliers();
        let best_rate = self.rates.get(&self.best).copied().unwrap_or_default();
        let is_trying = !matches!(self.trying, Trying::Best { .. });
        if !(is_limited || is_trying && rate > best_rate * MARGIN) {
            // It says nothing of the number that is tried. The replica keeps up meanwhile, and the best one will do.
            if is_trying {
                self.trying = Trying::Best { left: KEPT };
            }
            return;
        }
        // Of one that is tried again, what was measured before is long ago.
        let known = self.rates.get(&appliers).filter(|_| !is_trying);
        self.rates.insert(appliers, known.map_or(rate, |old| old * OLD_SHARE + rate * (1.0 - OLD_SHARE)));
        let is_better = match self.trying {
            Trying::Best { left } => {
                let is_over = left <= 1;
                self.trying =
                    if is_over { self.next_of(Trying::Best { left: KEPT }) } else { Trying::Best { left: left - 1 } };
                return;
            }
            Trying::More => rate > best_rate * MARGIN,
            Trying::Fewer | Trying::One => rate * MARGIN > best_rate,
        };
        if is_better {
            self.best = appliers;
        }
        // A better one's own other neighbour is known.
        let goes_on = is_better && self.can_try(self.trying);
        if !goes_on {
            self.trying = if is_better { Trying::Best { left: KEPT } } else { self.next_of(self.trying) };
        }
    }

    /// What is tried behind this, which was no better.
    fn next_of(&self, tried: Trying) -> Trying {
        let order = [Trying::More, Trying::Fewer, Trying::One];
        let behind = order.iter().position(|other| *other == tried).map_or(0, |place| place + 1);
        let next = order.into_iter().skip(behind).find(|other| self.can_try(*other));
        next.unwrap_or(Trying::Best { left: KEPT })
    }

    fn can_try(&self, trying: Trying) -> bool {
        match trying {
            Trying::Best { .. } => true,
            Trying::More => self.best < LARGEST,
            Trying::Fewer => self.best > if self.is_one_apart { 2 } else { 1 },
            Trying::One => self.is_one_apart && self.best != ONE_AFTER_THE_OTHER,
        }
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
            tuning.measured(rate, true);
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
            assert_eq!(settle(&mut Tuning::new(false), rate_of), peak);
        }
    }

    #[test]
    fn fewer_are_enough_where_more_do_not_help() {
        assert_eq!(settle(&mut Tuning::new(false), |_| 500.0), 1);
        assert_eq!(settle(&mut Tuning::new(true), |_| 500.0), 1);
    }

    #[test]
    fn a_peak_that_moves_is_followed() {
        let mut tuning = Tuning::new(false);
        let rate_of = |peak: f64| move |appliers: usize| 1000.0 * 0.7_f64.powf((appliers as f64 / peak).log2().abs());
        assert_eq!(settle(&mut tuning, rate_of(32.0)), 32);
        for _ in 0..10 {
            settle(&mut tuning, rate_of(4.0));
        }
        assert_eq!(tuning.best, 4);
        assert!(tuning.reason().contains("apply"), "{}", tuning.reason());
    }

    #[test]
    fn a_try_that_the_source_ends_is_no_choice() {
        let mut tuning = Tuning::new(true);
        tuning.measured(1000.0, false);
        assert_eq!(tuning.appliers(), 1, "nothing is tried as long as the replica keeps up");
        tuning.measured(1000.0, true);
        assert_eq!(tuning.appliers(), 4);
        tuning.measured(300.0, false);
        assert_eq!(tuning.appliers(), 1, "a source that pauses is no reason to stay");
        let mut tuning = Tuning::new(true);
        tuning.measured(1000.0, true);
        tuning.measured(2000.0, false);
        assert_eq!(tuning.best, 4, "it was faster, and has caught up");
        let mut tuning = Tuning::new(true);
        let rate_of = |four: f64| move |appliers: usize| if appliers == 1 { 1000.0 } else { four };
        assert_eq!(settle(&mut tuning, rate_of(300.0)), 1);
        while tuning.appliers() == 1 {
            tuning.measured(1000.0, true);
        }
        tuning.measured(1100.0, false);
        assert_eq!(tuning.best, 4, "what it came to before counts no more");
    }

    /// With the order kept, one says nothing of two.
    #[test]
    fn one_at_a_time_is_tried_from_everywhere() {
        let rate_of = |one: f64, peak: f64| {
            move |appliers: usize| match appliers {
                1 => one,
                _ => 1000.0 * 0.7_f64.powf((appliers as f64 / peak).log2().abs()),
            }
        };
        let mut tuning = Tuning::new(true);
        assert_eq!(tuning.appliers(), 1);
        assert_eq!(settle(&mut tuning, rate_of(1500.0, 8.0)), 1);
        for _ in 0..10 {
            settle(&mut tuning, rate_of(100.0, 32.0));
        }
        assert_eq!(tuning.best, 32);
        for _ in 0..10 {
            settle(&mut tuning, rate_of(1500.0, 32.0));
        }
        assert_eq!(tuning.best, 1);
    }
}

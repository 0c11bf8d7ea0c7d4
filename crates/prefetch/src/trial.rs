//! Whether reading ahead helps: the applier's own speed with it is compared with that without it, again and again.
//!
//! What was read ahead still helps for a while after reading has stopped. So the applier's speed without it is measured only once it has
//! passed what was read.

use std::time::Duration;

/// How long the applier is watched without reading ahead.
const WITHOUT: Duration = Duration::from_millis(400);
/// How long it is watched with it, the first times.
const WITH: Duration = Duration::from_secs(2);
/// It is given up after this time where it clearly harms: the applier is at most this share as fast. Two cores have no time for both, perhaps.
const HARM_WITHIN: Duration = Duration::from_millis(500);
const HARM: f64 = 0.9;
/// How long reading ahead goes on before the next comparison, where it helps.
const BETWEEN: Duration = Duration::from_secs(30);
/// How long it rests where it does not help.
const REST: Duration = Duration::from_secs(60);
/// What happens this long after reading has begun says little of it.
const SETTLE: Duration = Duration::from_millis(300);
/// Comparisons one after the other that it has to lose: any other work of the server makes one of them wrong.
const LOST_MAX: u32 = 2;
/// It helps if the applier is so much faster.
const GAIN: f64 = 1.03;

/// What the applier did in a time.
#[derive(Debug, Clone, Copy, Default)]
struct Speed {
    bytes: u64,
    seconds: f64,
}

impl Speed {
    fn add(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes;
        self.seconds += took.as_secs_f64();
    }

    fn bytes_per_second(self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-3)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not reading, measured.
    Without,
    /// Reading, measured after a moment.
    With { is_settled: bool },
    /// Not reading; the applier still profits from what was read.
    Draining,
    /// Not reading, since it does not help.
    Resting,
}

/// What a comparison has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    /// It helps: the applier is so many times as fast.
    Helps(f64),
    /// It does not, and rests.
    Rests(f64),
}

/// Decides when to read ahead.
#[derive(Debug)]
pub(crate) struct Trial {
    phase: Phase,
    left: Duration,
    with: Speed,
    without: Speed,
    lost: u32,
    has_won: bool,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial {
            phase: Phase::Without,
            left: WITHOUT,
            with: Speed::default(),
            without: Speed::default(),
            lost: 0,
            has_won: false,
        }
    }
}

impl Trial {
    /// True if to read ahead now.
    pub(crate) fn is_on(&self) -> bool {
        matches!(self.phase, Phase::With { .. })
    }

    /// The applier has advanced by so many bytes in this time. `has_drained`: it is past all that was read ahead. Returns what was found
    /// out, if a comparison ended.
    pub(crate) fn watch(&mut self, bytes: u64, took: Duration, has_drained: bool) -> Option<Verdict> {
        match self.phase {
            Phase::Without => self.without.add(bytes, took),
            Phase::With { is_settled: true } => self.with.add(bytes, took),
            Phase::With { is_settled: false } | Phase::Resting => {}
            Phase::Draining if has_drained => self.begin(Phase::Without, WITHOUT),
            Phase::Draining => return None,
        }
        self.left = self.left.saturating_sub(took);
        if self.harms() {
            return Some(self.compare());
        }
        if !self.left.is_zero() {
            return None;
        }
        match self.phase {
            // Nothing to measure.
            Phase::Without if self.without.bytes == 0 => self.begin(Phase::Without, WITHOUT),
            Phase::Without if self.with.seconds > 0.0 => return Some(self.compare()),
            Phase::Without => self.begin(Phase::With { is_settled: false }, SETTLE),
            Phase::With { is_settled: false } => {
                let time = if self.has_won { BETWEEN } else { WITH };
                self.begin(Phase::With { is_settled: true }, time);
            }
            Phase::With { is_settled: true } if self.has_won || self.with.bytes == 0 => {
                self.begin(Phase::Draining, Duration::ZERO);
            }
            // The first comparison is with what was before.
            Phase::With { is_settled: true } => return Some(self.compare()),
            Phase::Draining => {}
            Phase::Resting => {
                *self = Trial::default();
            }
        }
        None
    }

    /// True if the first comparison need not come to its end.
    fn harms(&self) -> bool {
        self.phase == Phase::With { is_settled: true }
            && !self.has_won
            && self.with.bytes > 0
            && self.with.seconds >= HARM_WITHIN.as_secs_f64()
            && self.with.bytes_per_second() < self.without.bytes_per_second() * HARM
    }

    fn begin(&mut self, phase: Phase, time: Duration) {
        (self.phase, self.left) = (phase, time);
    }

    fn compare(&mut self) -> Verdict {
        let gain = self.with.bytes_per_second() / self.without.bytes_per_second().max(1.0);
        (self.with, self.without) = (Speed::default(), Speed::default());
        let has_won = gain >= GAIN;
        self.lost = if has_won { 0 } else { self.lost + 1 };
        self.has_won = has_won;
        if self.lost >= LOST_MAX {
            self.begin(Phase::Resting, REST);
            return Verdict::Rests(gain);
        }
        match has_won {
            true => self.begin(Phase::With { is_settled: false }, SETTLE),
            false => self.begin(Phase::Draining, Duration::ZERO),
        }
        Verdict::Helps(gain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of the time in which it is on, and the last verdict, for an applier of these speeds in bytes per millisecond.
    fn run(seconds: u64, with: u64, without: u64) -> (f64, Option<Verdict>) {
        let mut trial = Trial::default();
        let (mut on, mut verdict) = (0, None);
        let steps = seconds * 50;
        let mut drained = 0;
        for _ in 0..steps {
            let is_on = trial.is_on();
            on += u64::from(is_on);
            drained = if is_on { 0 } else { drained + 1 };
            let speed = if is_on || drained < 10 { with } else { without };
            let found = trial.watch(speed * 20, Duration::from_millis(20), drained >= 10);
            verdict = found.or(verdict);
        }
        (on as f64 / steps as f64, verdict)
    }

    #[test]
    fn reading_ahead_goes_on_where_it_helps() {
        let (share, verdict) = run(120, 30, 10);
        assert!(share > 0.93, "{share}");
        assert!(matches!(verdict, Some(Verdict::Helps(gain)) if gain > 2.5), "{verdict:?}");
        // Soon, too.
        assert!(run(10, 30, 10).0 > 0.9);
    }

    #[test]
    fn reading_ahead_rests_where_it_does_not_help() {
        for with in [10, 8] {
            let (share, verdict) = run(600, with, 10);
            assert!(share < 0.1, "{share}");
            assert!(matches!(verdict, Some(Verdict::Rests(_))), "{verdict:?}");
        }
    }

    #[test]
    fn reading_ahead_that_harms_is_given_up_soon() {
        // Two comparisons, a moment and half a second each.
        let (share, verdict) = run(10, 7, 10);
        assert!(share < 0.2, "{share}");
        assert!(matches!(verdict, Some(Verdict::Rests(_))), "{verdict:?}");
    }

    #[test]
    fn resting_applier_says_nothing() {
        assert_eq!(run(60, 0, 0), (0.0, None));
    }
}

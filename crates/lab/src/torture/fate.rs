//! When a trial's program and servers are killed, drawn from the seed.

use std::time::Duration;

use super::settings::{Beginning, Failure, Settings};
use crate::random::Random;

/// Draws the failures of a trial and their times.
pub(super) struct Fate {
    random: Random,
    failures: Vec<Failure>,
    next: Duration,
    every: Duration,
    /// When Spate is started again; `None` if it runs.
    returns: Option<Duration>,
}

impl Fate {
    /// The fate of a trial that writes for `time`.
    pub(super) fn new(settings: &Settings, time: Duration) -> Fate {
        let mut random = Random::new(settings.seed ^ 0xfa7e);
        let every = Duration::from_millis(700 + random.below(2500) as u64);
        let returns = (settings.beginning == Beginning::HalfWay).then_some(time / 2);
        Fate { next: every, random, failures: settings.failures.clone(), every, returns }
    }

    /// The failure that is due, if any. `now` counts from the trial's beginning.
    pub(super) fn strikes(&mut self, now: Duration, was_started: bool, is_running: bool) -> Option<Failure> {
        if self.returns.is_some_and(|time| now >= time) {
            self.returns = None;
            return Some(Failure::SpateStarts);
        }
        if now < self.next || self.failures.is_empty() {
            return None;
        }
        self.next = now + self.every.mul_f64(0.5 + self.random.below(100) as f64 / 100.0);
        let failure = *self.random.pick(&self.failures)?;
        let is_of_spate = matches!(failure, Failure::SpateKilled | Failure::SpateStopped);
        if is_of_spate && !(was_started && is_running) {
            return None;
        }
        if is_of_spate {
            // Down for a moment, or long enough for a backlog.
            self.returns = Some(now + Duration::from_millis([0, 100, 1500][self.random.below(3)]));
        }
        Some(failure)
    }
}

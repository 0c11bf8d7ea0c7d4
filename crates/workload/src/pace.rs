//! When statements are due.

use std::time::{Duration, Instant};

use crate::halt::Halt;

/// The clock of a replay: statements are due so long after its beginning.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    begun: Instant,
    halt: Halt,
}

impl Clock {
    /// Begins shortly from now, so that the first statements are not late.
    pub(crate) fn new(halt: Halt) -> Clock {
        const SHORTLY: Duration = Duration::from_millis(100);
        let now = Instant::now();
        Clock { begun: now.checked_add(SHORTLY).unwrap_or(now), halt }
    }

    /// Seconds from the beginning to `at`; 0 before.
    pub(crate) fn seconds_until(&self, at: Instant) -> f64 {
        at.checked_duration_since(self.begun).map_or(0.0, |since| since.as_secs_f64())
    }

    /// How long it is until something is due. What is beyond all times is never due.
    pub(crate) fn left(&self, due: Duration) -> Duration {
        self.begun.checked_add(due).map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()))
    }

    /// Waits until less than `ahead` is left, roughly. Ends early when the replay is over.
    pub(crate) fn wait_until_near(&self, due: Duration, ahead: Duration) {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        while !self.halt.is_over() {
            match self.left(due).checked_sub(ahead) {
                Some(long) if !long.is_zero() => std::thread::sleep(long.min(LOOK_EVERY)),
                _ => return,
            }
        }
    }

    /// Waits until something is due: sleeps until shortly before, and then looks again and again, for a sleep ends some hundred microseconds late.
    pub(crate) fn wait_until(&self, due: Duration) {
        const SPARED: Duration = Duration::from_micros(200);
        self.wait_until_near(due, SPARED);
        while !self.halt.is_over() && !self.left(due).is_zero() {
            std::thread::yield_now();
        }
    }
}

/// A record's seconds at a pace. What is beyond all times is never due.
pub(crate) fn due(seconds: f64, factor: f64) -> Duration {
    Duration::try_from_secs_f64((seconds / factor).max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_all_times_is_never_due() {
        let clock = Clock::new(Halt::new(&std::sync::Arc::default()));
        for seconds in [1e300, f64::INFINITY, 1.8e19, 9e18] {
            assert!(clock.left(due(seconds, 1.0)) > Duration::from_secs(1 << 40), "{seconds}");
        }
        for seconds in [f64::NEG_INFINITY, -1.0, f64::NAN, 0.0] {
            assert_eq!(due(seconds, 2.0), Duration::ZERO, "{seconds}");
        }
        assert_eq!(due(3.0, 2.0), Duration::from_millis(1500));
    }
}

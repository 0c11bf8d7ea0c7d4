//! Delays between two attempts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(5);

/// An attempt that worked for this long was a success: the next failure is the first in a row.
const SUCCESS_AFTER: Duration = Duration::from_secs(10);

/// Delays that double with each failure in a row.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { next: DELAY_MIN }
    }
}

impl Backoff {
    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(DELAY_MAX);
        delay
    }

    /// Resets the delay if the attempt that has just failed had worked for a while.
    pub fn note_success_after(&mut self, worked_for: Duration) {
        if worked_for >= SUCCESS_AFTER {
            *self = Backoff::default();
        }
    }

    /// Waits for `delay`, or until `stop` is set.
    pub fn wait(&self, delay: Duration, stop: &AtomicBool) {
        const STOP_CHECK: Duration = Duration::from_millis(50);
        let end = Instant::now() + delay;
        while !stop.load(Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(STOP_CHECK));
        }
    }
}

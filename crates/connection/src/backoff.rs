//! How long to wait before trying again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(5);

/// What held for this long had succeeded: the next failure is a new one.
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
    /// The delay before the next try.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(DELAY_MAX);
        delay
    }

    /// Starts over if what has just failed had worked for a while.
    pub fn note_success_after(&mut self, worked_for: Duration) {
        if worked_for >= SUCCESS_AFTER {
            *self = Backoff::default();
        }
    }

    /// Waits, but not past `stop`.
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

//! Whether the machine is as fast as it was a moment ago: a virtual machine's processors and disk are shared with others, who come and go.
//!
//! There are three yardsticks: a fixed computation, messages between processors, and writes that wait for the disk. What is measured while others are
//! busy says nothing of the contender. So a measurement waits until the machine is as fast as usual; what the servers of the measurement before still
//! do behind it comes to its end meanwhile. A machine that stays slower is as usual after a while: then the report tells how much it changed. (A look
//! behind a measurement would say more of those servers than of others.)

use std::time::{Duration, Instant};

use super::statistics::median;

/// The latest speeds that a measurement may begin with, by which it is known what is usual.
const LOOKS: usize = 15;
/// With fewer, nothing is known.
const LOOKS_MIN: usize = 3;
/// Between two looks of one that waits.
const PAUSE: Duration = Duration::from_secs(5);

/// Looks at the machine before each measurement.
pub(super) struct Steadiness<'c> {
    yardstick: Box<dyn FnMut() -> f64 + 'c>,
    /// What takes so many times as long as usual is slow: others are busy.
    slow: f64,
    pause: Duration,
    /// A machine that is slow for so long is as usual.
    patience: Duration,
    /// What was not slow, in milliseconds, the latest last.
    looks: Vec<f64>,
}

impl<'c> Steadiness<'c> {
    /// `yardstick` returns the milliseconds that it has taken, `slow` times as long as usual is slow, for which is waited with `patience`; `looks`
    /// are those of before an interruption.
    pub(super) fn new(
        yardstick: impl FnMut() -> f64 + 'c,
        slow: f64,
        patience: Duration,
        looks: Vec<f64>,
    ) -> Steadiness<'c> {
        Steadiness { yardstick: Box::new(yardstick), slow, pause: PAUSE, patience, looks }
    }

    /// How long the yardstick takes, after the machine has become as fast as usual, or its speed the usual one.
    pub(super) fn settle(&mut self, tell: impl Fn()) -> f64 {
        self.looks.drain(..self.looks.len().saturating_sub(LOOKS));
        let usual = median(&self.looks).filter(|_| self.looks.len() >= LOOKS_MIN);
        let is_slow = |took: f64| usual.is_some_and(|usual| took > usual * self.slow);
        let mut took = (self.yardstick)();
        let began = Instant::now();
        if is_slow(took) {
            tell();
        }
        while is_slow(took) {
            if began.elapsed() >= self.patience {
                // The next ones do not wait for what has been.
                self.looks.clear();
                self.looks.extend([took; LOOKS_MIN - 1]);
                break;
            }
            std::thread::sleep(self.pause);
            took = (self.yardstick)();
        }
        self.looks.push(took);
        took
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    /// No test is to wait for it.
    const PATIENCE: Duration = Duration::from_secs(300);

    /// Of a machine that is always as fast.
    pub(in super::super) fn steady() -> Steadiness<'static> {
        scripted(vec![50.0])
    }

    /// Of a machine whose looks are these, the last one for ever.
    pub(in super::super) fn scripted(looks: Vec<f64>) -> Steadiness<'static> {
        let mut left = looks.into_iter().peekable();
        let mut last = 50.0;
        let yardstick = move || {
            last = left.next().unwrap_or(last);
            last
        };
        Steadiness { pause: Duration::from_millis(1), ..Steadiness::new(yardstick, 1.25, PATIENCE, Vec::new()) }
    }

    #[test]
    fn a_machine_that_is_busy_for_a_moment_is_waited_for() {
        let mut machine = scripted(vec![50.0, 51.0, 49.0, 90.0, 70.0, 52.0]);
        for expected in [50.0, 51.0, 49.0, 52.0] {
            assert_eq!(machine.settle(|| {}), expected);
        }
    }

    #[test]
    fn a_machine_that_stays_slower_is_as_usual_after_a_while() {
        let mut machine = scripted([vec![50.0; 40], vec![100.0]].concat());
        machine.patience = Duration::from_millis(200);
        for _ in 0..40 {
            assert_eq!(machine.settle(|| panic!("as usual")), 50.0);
        }
        assert!(machine.looks.len() <= LOOKS + 1);
        let (began, told) = (Instant::now(), Cell::new(0));
        assert_eq!(machine.settle(|| told.set(told.get() + 1)), 100.0);
        assert!(began.elapsed() >= machine.patience);
        assert_eq!(told.get(), 1);
        assert_eq!(machine.settle(|| panic!("as usual")), 100.0);
    }

    #[test]
    fn the_first_looks_say_nothing() {
        let mut machine = scripted(vec![50.0, 500.0, 50.0, 80.0, 60.0]);
        for expected in [50.0, 500.0, 50.0] {
            assert_eq!(machine.settle(|| panic!("nothing is known")), expected);
        }
        assert_eq!(machine.settle(|| {}), 60.0);
    }
}

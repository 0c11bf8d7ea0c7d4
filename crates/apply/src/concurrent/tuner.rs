//! Measures how fast jobs are applied, and sets how many execute at a time.

use std::time::{Duration, Instant};

use spate_replica::status::Status;

use super::Pool;
use super::tuning::Tuning;

/// How often is looked whether jobs wait.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A measurement takes so many looks.
const LOOKS: u32 = 10;

/// At so many of which jobs waited: else the source limits, and not the number of appliers.
const LOOKS_LIMITED: u32 = 8;

/// Sets how many execute at a time.
pub(crate) struct Tuner<'a> {
    pub(crate) pool: &'a Pool<'a>,
    pub(crate) status: &'a Status,
}

impl Tuner<'_> {
    /// Measures until the session ends.
    pub(crate) fn run(self) {
        let mut tuning = Tuning::new(self.pool.keeps_order());
        while !self.pool.is_over() {
            self.status.appliers(tuning.reason());
            let (began, before) = (Instant::now(), self.pool.committed());
            let mut limited = 0;
            for _ in 0..LOOKS {
                std::thread::park_timeout(LOOK_EVERY);
                limited += u32::from(self.pool.is_limited());
            }
            // Before the first is applied, connections are made and files read.
            let has_begun = before > 0;
            if has_begun && !self.pool.is_over() {
                let rate = (self.pool.committed() - before) as f64 / began.elapsed().as_secs_f64();
                tuning.measured(rate, limited >= LOOKS_LIMITED);
                self.pool.set_appliers(tuning.appliers());
            }
        }
    }
}

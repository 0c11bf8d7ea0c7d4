//! How far behind a replica is while a contender catches up, sampled beside it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::native;
use crate::report::write_live;
use crate::results::RaceResult;
use crate::sampling::POINTS_MAX;
use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::vendor::Vendor;
use crate::{Error, Result};

/// How often it is asked.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// How often the report is written anew.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LagSample {
    /// Seconds since the contender began.
    pub seconds: f64,
    /// How many seconds the replica is behind the backlog's end: of native replication by its own account, of Spate by its checkpoint.
    pub behind_seconds: u64,
}

/// Who applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applier {
    /// The server's own replication.
    Native,
    /// Spate.
    Spate,
}

/// A report that is written while a race runs: its file, and the race until now.
#[derive(Debug, Clone)]
pub struct LiveReport {
    /// The file.
    pub path: PathBuf,
    /// What has run already.
    pub result: RaceResult,
}

/// Samples until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    thread: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<LagSample>>>,
}

impl Sampler {
    /// Begins to sample this replica. `end_seconds`: when the backlog ended, since 1970; 0 if it is not known.
    ///
    /// # Errors
    /// [`crate::Error::Sql`] if it cannot be connected to.
    pub fn start(
        replica: &Sandbox,
        applier: Applier,
        name: &str,
        end_seconds: u64,
        live: Option<LiveReport>,
    ) -> Result<Sampler> {
        let session = replica.connect_to_look()?;
        let (over, samples) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let asking = Asking { vendor: replica.vendor(), session, applier, name: name.to_owned(), end_seconds, live };
        let (ending, taken) = (Arc::clone(&over), Arc::clone(&samples));
        let thread = thread::spawn(move || asking.run(&ending, &taken));
        Ok(Sampler { thread: Some(thread), over, samples })
    }

    /// Stops, and returns what was sampled.
    pub fn stop(mut self) -> Vec<LagSample> {
        self.end();
        std::mem::take(&mut self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ended = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

struct Asking {
    vendor: Vendor,
    session: Session,
    applier: Applier,
    name: String,
    end_seconds: u64,
    live: Option<LiveReport>,
}

impl Asking {
    fn run(mut self, over: &AtomicBool, samples: &Mutex<Vec<LagSample>>) {
        let begun = Instant::now();
        let (mut written_at, mut every) = (begun, SAMPLE_EVERY);
        while !over.load(Ordering::Acquire) {
            let behind = self.behind_seconds();
            // A late answer would be taken for that to the next question.
            if behind.as_ref().is_err_and(Error::is_of_connection) {
                return;
            }
            // A server that does not know leaves a gap.
            if let Ok(Some(behind_seconds)) = behind {
                let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                samples.push(LagSample { seconds: begun.elapsed().as_secs_f64(), behind_seconds });
                // With more, every second one is left out.
                if samples.len() > POINTS_MAX {
                    every *= 2;
                    let mut number = 0;
                    samples.retain(|_| {
                        number += 1;
                        number % 2 == 0
                    });
                }
                if let Some(live) = self.live.as_ref().filter(|_| written_at.elapsed() >= REPORT_EVERY) {
                    written_at = Instant::now();
                    // The report at the end says what cannot be written.
                    let _written = write_live(&live.result, &self.name, &samples, &live.path);
                }
            }
            thread::park_timeout(every);
        }
    }

    /// A source that has been idle since the backlog's end would make every replica look as late as that is ago.
    fn behind_seconds(&mut self) -> Result<Option<u64>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let behind = match self.applier {
            Applier::Native => native::seconds_behind(self.vendor, &mut self.session)?,
            Applier::Spate => {
                let row =
                    self.session.first_row("SELECT MAX(source_seconds) FROM spate.checkpoint WHERE applier = 0")?;
                let applied: Option<u64> = row.and_then(|row| row.get_opt(0)).and_then(std::result::Result::ok);
                applied.filter(|&applied| applied > 0).map(|applied| now.saturating_sub(applied))
            }
        };
        let idle = if self.end_seconds == 0 { 0 } else { now.saturating_sub(self.end_seconds) };
        Ok(behind.map(|behind| behind.saturating_sub(idle)))
    }
}

//! What the machine, the servers and the programs do while something is measured, once a second.
//!
//! One thread looks at `/proc`, asks each server for its counters over a connection of its own, and asks a running `spate replicate` for its
//! status. A look takes some milliseconds, so that it takes less than a hundredth of one processor. Counters become rates between two
//! looks; a server that is too busy to answer leaves a gap.

mod devices;
mod processes;
mod series;
mod server;
mod spate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use series::{POINTS_MAX, Series};

use devices::Devices;
use processes::Processes;
use series::Recorder;
use server::ServerCounters;

use crate::sandbox::Sandbox;
use crate::{Result, threads};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// What is watched.
pub struct Watched<'a> {
    /// Servers, by the names that they have in series: `source`, `replica`.
    pub servers: Vec<(&'a str, &'a Sandbox)>,
    /// A directory on the disk that is watched.
    pub directory: &'a Path,
    /// The directory of an archive that a `spate replicate` may use. `None`: there is no Spate.
    pub archive: Option<PathBuf>,
}

/// Samples until it is stopped.
#[derive(Debug)]
pub struct Sampling {
    thread: Option<JoinHandle<Vec<Series>>>,
    over: Arc<AtomicBool>,
}

impl Sampling {
    /// Begins to sample.
    ///
    /// # Errors
    /// [`crate::Error::Sql`] if a server cannot be connected to.
    pub fn start(watched: &Watched<'_>) -> Result<Sampling> {
        let mut looks: Vec<Box<dyn Look>> = vec![
            Box::new(Processes::new(watched.servers.iter().map(|(name, server)| (*name, server.process())))),
            Box::new(Devices::new(watched.directory)),
        ];
        for (name, server) in &watched.servers {
            looks.push(Box::new(ServerCounters::new(name, server)?));
        }
        if let Some(archive) = &watched.archive {
            looks.push(Box::new(spate::SpateCounters::new(archive.clone())));
        }
        let over = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&over);
        let thread = thread::spawn(move || sample(looks, &ending));
        Ok(Sampling { thread: Some(thread), over })
    }

    /// Stops, and returns what was sampled.
    pub fn stop(mut self) -> Vec<Series> {
        self.end()
    }

    fn end(&mut self) -> Vec<Series> {
        self.over.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Vec::new() };
        thread.thread().unpark();
        threads::ended(thread.join())
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.end();
    }
}

/// One place to look at.
trait Look: Send {
    /// Tells the recorder what is seen now.
    fn look(&mut self, recorder: &mut Recorder);
}

fn sample(mut looks: Vec<Box<dyn Look>>, over: &AtomicBool) -> Vec<Series> {
    let begun = Instant::now();
    let mut recorder = Recorder::default();
    for number in 0_u32.. {
        recorder.begin_look(begun.elapsed());
        looks.iter_mut().for_each(|look| look.look(&mut recorder));
        // Rates need two looks; the last one is taken when the measurement ends.
        if over.load(Ordering::Acquire) {
            break;
        }
        let next = EVERY * (number + 1);
        while !over.load(Ordering::Acquire) && begun.elapsed() < next {
            thread::park_timeout(next.saturating_sub(begun.elapsed()));
        }
    }
    recorder.into_series()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessIdentity;

    #[test]
    fn sampling_takes_less_than_a_hundredth_of_a_processor() {
        const LOOKS: u32 = 20;
        let own = ProcessIdentity::own().unwrap();
        let mut looks: [Box<dyn Look>; 2] =
            [Box::new(Processes::new([("own", own)].into_iter())), Box::new(Devices::new(Path::new("/tmp")))];
        let mut recorder = Recorder::default();
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        for number in 0..LOOKS {
            recorder.begin_look(EVERY * number);
            looks.iter_mut().for_each(|look| look.look(&mut recorder));
        }
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let used = Duration::try_from(after).unwrap() - Duration::try_from(before).unwrap();
        // Unoptimised, on a slow machine and beside other tests; optimised it is a tenth of this.
        assert!(used < EVERY * LOOKS / 20, "{used:?} for {LOOKS} looks");
        let series = recorder.into_series();
        assert!(series.iter().any(|series| series.name == "own memory"), "{series:?}");
    }
}

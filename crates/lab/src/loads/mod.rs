//! Loads that no program of others has: each with a name, a seed and a size. A load has tables in each schema, and workers that execute one transaction
//! after the other.

mod alters;
mod bulk;
mod counters;
mod definitions;
mod keyless;
mod queue;
mod skewed;
mod sysbench;
pub mod tpcc;
mod wide;

pub(crate) use sysbench::Distribution;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::workload::{LoadLimits, Workload};
use crate::{Error, Result, threads};

/// How large a load's tables are in each schema: what both numbers mean, the load says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadSize {
    /// Tables, or what the load has several of.
    pub(crate) tables: u64,
    /// Rows in each.
    pub(crate) rows: u64,
    /// The exponent of Zipf's law in hundredths, where it matters.
    pub(crate) skew_hundredths: u32,
}

/// A kind of load.
pub(crate) trait Load: Sync {
    /// Makes the tables in the session's schema, and fills them.
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()>;

    /// Connections to each schema.
    fn workers(&self) -> usize;

    /// The worker with this number, from 0.
    fn worker(&self, number: usize, size: LoadSize, random: Random) -> Box<dyn Worker>;
}

/// A connection's part of a load.
pub(crate) trait Worker: Send {
    /// Executes the next transaction.
    ///
    /// # Errors
    /// [`Error::Sql`]. A conflict with another transaction is none for the load: the worker goes on with another transaction.
    fn transaction(&mut self, session: &mut Session) -> Result<()>;
}

/// The load of a workload, if it is one of these.
pub(crate) fn load_of(workload: Workload) -> Option<&'static dyn Load> {
    match workload {
        Workload::Cached | Workload::Io | Workload::Shards | Workload::Updates => None,
        Workload::Definitions => Some(&definitions::Definitions),
        Workload::Tpcc => Some(&tpcc::Tpcc),
        Workload::Skewed => Some(&skewed::Skewed),
        Workload::Wide => Some(&wide::Wide),
        Workload::Queue => Some(&queue::Queue),
        Workload::Counters => Some(&counters::Counters),
        Workload::Bulk => Some(&bulk::Bulk),
        Workload::Alters => Some(&alters::Alters),
        Workload::Keyless => Some(&keyless::Keyless),
    }
}

/// Makes the tables of a workload in a schema, and fills them. Each schema has rows of its own.
pub(crate) fn fill(workload: Workload, server: &Sandbox, schema: &str, size: LoadSize, seed: u64) -> Result<()> {
    let (mut session, mut random) = (session_in(server, schema)?, Random::new(seed ^ hash(schema)));
    match load_of(workload) {
        Some(load) => load.fill(&mut session, size, &mut random),
        None => sysbench::fill(&mut session, size, keys_of(workload), &mut random),
    }
}

/// How a load of sysbench draws its keys.
pub(crate) fn keys_of(workload: Workload) -> Distribution {
    match workload {
        Workload::Cached => Distribution::Special,
        _ => Distribution::Uniform,
    }
}

/// A running load on one schema; ended when dropped.
#[derive(Debug)]
pub(crate) struct LoadRun {
    threads: Vec<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl LoadRun {
    /// Starts the load, which ends by itself when it has come to its limits: those of this schema.
    pub(crate) fn start(
        load: &'static dyn Load,
        server: &Sandbox,
        schema: &str,
        size: LoadSize,
        limits: LoadLimits,
        seed: u64,
    ) -> Result<LoadRun> {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut random = Random::new(seed ^ hash(schema));
        let mut run = LoadRun { threads: Vec::new(), stop };
        for number in 0..load.workers() {
            let session = session_in(server, schema)?;
            let worker = load.worker(number, size, random.fork());
            let pace = Pace { limits, begun: Instant::now(), count: Arc::clone(&count), stop: Arc::clone(&run.stop) };
            run.threads.push(thread::spawn(move || work(worker, session, &pace)));
        }
        Ok(run)
    }

    /// True while it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.threads.iter().any(|thread| !thread.is_finished())
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub(crate) fn finish(mut self) -> Result<()> {
        threads::all_ended(self.threads.drain(..).map(JoinHandle::join))
    }
}

impl Drop for LoadRun {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// When the next transaction is due, and whether there is one. All workers of a schema share the count.
struct Pace {
    limits: LoadLimits,
    begun: Instant,
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Pace {
    /// Waits for the next transaction's time; false if the load is over.
    fn wait(&self) -> bool {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if self.limits.transactions.is_some_and(|transactions| number >= transactions) {
            return false;
        }
        if let Some(rate) = self.limits.rate {
            let due = self.begun + Duration::from_secs_f64(number as f64 / rate.max(1) as f64);
            let end = self.begun + self.limits.duration;
            while !self.stop.load(Ordering::Acquire) && Instant::now() < due.min(end) {
                thread::sleep(due.min(end).saturating_duration_since(Instant::now()).min(STOP_CHECK));
            }
        }
        self.begun.elapsed() < self.limits.duration && !self.stop.load(Ordering::Acquire)
    }
}

/// How often a waiting worker looks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

fn work(mut worker: Box<dyn Worker>, mut session: Session, pace: &Pace) -> Result<()> {
    while pace.wait() {
        match worker.transaction(&mut session) {
            Err(error) if is_conflict(&error) => session.run("ROLLBACK")?,
            result => result?,
        }
    }
    Ok(())
}

/// A deadlock, a lock that took too long, a failed certification: nothing is wrong with the load.
fn is_conflict(error: &Error) -> bool {
    const CONFLICTS: [u16; 3] = [1213, 1205, 1020];
    match error {
        Error::Sql { source, .. } => {
            matches!(&**source, mysql::Error::MySqlError(error) if CONFLICTS.contains(&error.code))
        }
        _ => false,
    }
}

fn session_in(server: &Sandbox, schema: &str) -> Result<Session> {
    let mut session = server.connect()?;
    session.run(&format!("USE {schema}"))?;
    Ok(session)
}

/// A number of a name, the same on every machine: FNV-1a.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// So many rows in one INSERT.
const ROWS_IN_INSERT: u64 = 200;

/// Inserts the rows 1 to `rows`, many at a time. `values` gives the text of a row, without parentheses.
fn insert_rows(
    session: &mut Session,
    into: &str,
    rows: std::ops::RangeInclusive<u64>,
    mut values: impl FnMut(u64) -> String,
) -> Result<()> {
    let (mut next, last) = (*rows.start(), *rows.end());
    while next <= last {
        let end = last.min(next + ROWS_IN_INSERT - 1);
        let texts: Vec<String> = (next..=end).map(|row| format!("({})", values(row))).collect();
        session.run(&format!("INSERT INTO {into} VALUES {}", texts.join(",")))?;
        next = end + 1;
    }
    Ok(())
}

/// A text of letters, at least and at most so long.
fn letters(random: &mut Random, least: usize, most: usize) -> String {
    let length = least + random.below(most - least + 1);
    (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

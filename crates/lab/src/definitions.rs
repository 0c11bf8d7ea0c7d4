//! A load of definitions among small changes: half of its transactions are definitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Result;
use crate::sql::Session;

/// One round. `{i}` is its number, `{id}` a row of the schema's first table. It leaves no table behind.
const ROUND: [&str; 14] = [
    "CREATE TABLE d{i} (id INT PRIMARY KEY, v INT)",
    "INSERT INTO d{i} VALUES (1, {i})",
    "ALTER TABLE d{i} ADD COLUMN w INT",
    "INSERT INTO d{i} VALUES (2, {i}, {i})",
    "RENAME TABLE d{i} TO r{i}",
    "UPDATE r{i} SET v = v + 1",
    "UPDATE sbtest1 SET k = k + 1 WHERE id = {id}",
    "TRUNCATE TABLE r{i}",
    "INSERT INTO r{i} VALUES (3, {i}, {i})",
    "CREATE TABLE s{i} (id INT PRIMARY KEY) SELECT id, k FROM sbtest1 WHERE id <= 3",
    "UPDATE s{i} SET k = 0 WHERE id = 1",
    "DROP TABLE s{i}",
    "UPDATE sbtest1 SET k = k - 1 WHERE id = {id}",
    "DROP TABLE r{i}",
];

/// A running load on one schema.
#[derive(Debug)]
pub(crate) struct DefinitionsRun {
    thread: Option<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl DefinitionsRun {
    /// Starts the load, which ends by itself after `duration`. With a rate, that many transactions per second.
    pub(crate) fn start(
        session: Session,
        schema: String,
        rows: u64,
        duration: Duration,
        rate: Option<u64>,
    ) -> DefinitionsRun {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || write(session, &schema, rows, (duration, rate), &stopped));
        DefinitionsRun { thread: Some(thread), stop }
    }

    /// True while it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// [`crate::Error::Sql`].
    pub(crate) fn finish(mut self) -> Result<()> {
        let thread = self.thread.take();
        thread.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for DefinitionsRun {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn write(
    mut session: Session,
    schema: &str,
    rows: u64,
    (duration, rate): (Duration, Option<u64>),
    stop: &AtomicBool,
) -> Result<()> {
    session.run(&format!("USE {schema}"))?;
    let begun = Instant::now();
    let mut transactions = 0;
    for round in 0_u64.. {
        for statement in ROUND {
            if begun.elapsed() >= duration || stop.load(Ordering::Acquire) {
                return Ok(());
            }
            let id = 1 + round % rows.max(1);
            session.run(&statement.replace("{i}", &round.to_string()).replace("{id}", &id.to_string()))?;
            transactions += 1;
            if let Some(rate) = rate {
                let due = begun + Duration::from_secs_f64(f64::from(transactions) / rate.max(1) as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
    }
    Ok(())
}

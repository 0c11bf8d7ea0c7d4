//! When transactions that are applied beside each other began, had executed, and were committed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use spate_binlog::Gtid;

/// Jobs that are kept: the latest. More than can be open at a time, and than a page shows.
pub(super) const JOBS_MAX: usize = 256;

/// A job: a transaction, or a few that share a commit. Times are in seconds since Spate's start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobTimes {
    /// The GTID of its last transaction; empty if it has none.
    pub gtid: String,
    /// The ordinal of that in the archive.
    pub seqno: u64,
    /// The connection that executes it, from 0.
    pub applier: usize,
    /// When it was begun.
    pub begun_seconds: f64,
    /// When it had executed. `None`: it has not.
    pub executed_seconds: Option<f64>,
    /// When it was committed. `None`: it is not.
    pub committed_seconds: Option<f64>,
    /// How often it was rolled back and executed again.
    pub rolled_back: u32,
}

/// The latest jobs.
#[derive(Debug)]
pub struct Timeline {
    started: Instant,
    jobs: Mutex<BTreeMap<u64, Job>>,
}

#[derive(Debug)]
struct Job {
    gtid: Option<Gtid>,
    applier: usize,
    begun: Instant,
    executed: Option<Instant>,
    committed: Option<Instant>,
    rolled_back: u32,
}

impl Timeline {
    pub(super) fn new(started: Instant) -> Timeline {
        Timeline { started, jobs: Mutex::default() }
    }

    /// A connection begins with a job.
    pub fn begin(&self, seqno: u64, gtid: Option<Gtid>, applier: usize) {
        let mut jobs = self.lock();
        while jobs.len() >= JOBS_MAX {
            // Those that are open are fewer.
            let first = jobs.iter().find(|(_, job)| job.committed.is_some()).or(jobs.first_key_value());
            let Some((&first, _)) = first else { break };
            jobs.remove(&first);
        }
        let job = Job { gtid, applier, begun: Instant::now(), executed: None, committed: None, rolled_back: 0 };
        jobs.insert(seqno, job);
    }

    /// The job has executed.
    pub fn executed(&self, seqno: u64) {
        if let Some(job) = self.lock().get_mut(&seqno) {
            job.executed = Some(Instant::now());
        }
    }

    /// The job is committed.
    pub fn committed(&self, seqno: u64) {
        if let Some(job) = self.lock().get_mut(&seqno) {
            let now = Instant::now();
            job.executed.get_or_insert(now);
            job.committed = Some(now);
        }
    }

    /// The job was rolled back, and will be executed again.
    pub fn rolled_back(&self, seqno: u64) {
        if let Some(job) = self.lock().get_mut(&seqno) {
            job.executed = None;
            job.rolled_back += 1;
        }
    }

    /// The session is over: what is not committed is rolled back.
    pub fn clear(&self) {
        self.lock().retain(|_, job| job.committed.is_some());
    }

    pub(super) fn report(&self) -> Vec<JobTimes> {
        let seconds = |at: Instant| at.duration_since(self.started).as_secs_f64();
        let times = |(&seqno, job): (&u64, &Job)| JobTimes {
            gtid: job.gtid.map(|gtid| gtid.to_string()).unwrap_or_default(),
            seqno,
            applier: job.applier,
            begun_seconds: seconds(job.begun),
            executed_seconds: job.executed.map(seconds),
            committed_seconds: job.committed.map(seconds),
            rolled_back: job.rolled_back,
        };
        self.lock().iter().map(times).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_jobs_are_kept_and_others_make_room() {
        let timeline = Timeline::new(Instant::now());
        timeline.begin(1, None, 0);
        for seqno in 2..=2 * JOBS_MAX as u64 {
            timeline.begin(seqno, None, 1);
            timeline.executed(seqno);
            timeline.committed(seqno);
        }
        timeline.rolled_back(1);
        let jobs = timeline.report();
        assert_eq!((jobs.len(), jobs[0].seqno, jobs[0].rolled_back), (JOBS_MAX, 1, 1));
        assert!(jobs[0].executed_seconds.is_none() && jobs[1].committed_seconds.is_some());
        timeline.clear();
        assert_eq!(timeline.report().len(), JOBS_MAX - 1);
    }
}

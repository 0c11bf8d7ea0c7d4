//! The status of a running Spate. Stages report at their boundaries; nothing of it is read by their logic, which goes by
//! [`Reached`](crate::reached::Reached).

mod report;
mod sharding;
mod timeline;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spate_archive::{Archive, LogEnd};
use spate_schedule::difference::Contradiction;

use crate::checkpoint::Checkpoint;
use crate::exclusions::Skipped;

pub use report::{
    BatchStatus, Counters, ErrorStatus, Gauges, Notices, PositionStatus, Positions, PurgeStatus, SkippedStatus,
    StatusReport,
};
pub use sharding::{ApplierStatus, ShardingStatus};
pub use timeline::{JobTimes, Timeline};

/// Rates are averages over about this long.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// Errors kept for the status page: the latest; older ones are in the log.
const ERRORS_MAX: usize = 20;

/// Names of tables without a key that are kept for the status page: the latest; the log has all.
const KEYLESS_NAMES_MAX: usize = 100;

/// The same of tables that differ from the source's.
const DIFFERENCE_WARNINGS_MAX: usize = 5;

/// Skipped transactions kept for the status page: the latest; `spate.skipped` on the replica has all.
pub(crate) const SKIPPED_MAX: usize = 20;

/// Repairs kept for the status page: the latest; the log has all, and `spate.repaired` on the replica counts them.
pub const REPAIRS_MAX: usize = 20;

/// The repairs of a transaction.
#[derive(Debug, Default)]
pub struct Repairs {
    /// How many rows.
    pub count: u64,
    /// The latest of them, in words; no more than a status page shows.
    pub latest: Vec<String>,
}

/// Told once of everything worth a line in a log: the stage, and the message.
pub type Notify = Box<dyn Fn(&str, &str) + Send + Sync>;

/// Where stages report to.
pub struct Status {
    started: Instant,
    state: Mutex<State>,
    received_bytes: AtomicU64,
    timeline: Timeline,
    notify: Notify,
}

#[derive(Debug, Default)]
struct State {
    report: StatusReport,
    /// How far the archive reaches.
    archive: Option<Archive>,
    applied: Checkpoint,
    /// Commit time on the source of the oldest transaction that is not applied, 0 if none was seen yet.
    oldest_unapplied_seconds: f64,
    /// The last transaction received, as the intake told.
    received_seqno: u64,
    /// The latest commit time that was believed: in the binlog's order it only grows. See [`State::believe`].
    latest_commit_seconds: f64,
    /// What the source's clock showed, and when. From then on our own time that no one sets counts: a change of our clock
    /// does not change the lag.
    source_clock: Option<(Instant, f64)>,
    /// The source's `max_allowed_packet`, for messages.
    source_packet_bytes: Option<u64>,
    /// The largest event of which it was said that it is larger than the memory of a batch; 0 if none was.
    largest_event_bytes: u64,
    samples: Vec<Sample>,
    /// Tables of which it was said that they have no key.
    keyless_tables: HashSet<String>,
    /// Tables of which it was said that they are others on the source.
    differing_tables: HashSet<String>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    transactions: u64,
    row_changes: u64,
    received_bytes: u64,
}

impl Status {
    /// A status of a Spate that has just started.
    pub fn new(source: String, replica: String, notify: Notify) -> Status {
        let report = StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            source,
            replica,
            intake: "starting".to_owned(),
            applier: "starting".to_owned(),
            ..StatusReport::default()
        };
        let state = State { report, ..State::default() };
        let started = Instant::now();
        let (state, received_bytes, timeline) = (Mutex::new(state), AtomicU64::new(0), Timeline::new(started));
        Status { started, state, received_bytes, timeline, notify }
    }

    /// Everything, now.
    pub fn report(&self) -> StatusReport {
        let mut state = self.lock();
        state.report.counters.received_bytes = self.received_bytes.load(Ordering::Relaxed);
        state.sample();
        let mut report = state.report.clone();
        report.timeline = self.timeline.report();
        report.gauges.uptime_seconds = self.started.elapsed().as_secs_f64();
        if let Some(archive) = &state.archive {
            report.positions.received = position(&archive.tail().received());
            report.positions.durable = position(&archive.tail().durable());
        }
        report.positions.applied = PositionStatus {
            gtid: state.applied.gtid_position.to_string(),
            file: state.applied.source_file.clone(),
            position: state.applied.source_position,
            seqno: state.applied.seqno,
        };
        report.gauges.lag_transactions = report.positions.received.seqno.saturating_sub(report.positions.applied.seqno);
        if state.received_seqno > state.applied.seqno && state.oldest_unapplied_seconds > 0.0 {
            report.gauges.lag_seconds = (state.source_now() - state.oldest_unapplied_seconds).max(0.0);
        }
        report
    }

    /// Where those report to that apply transactions beside each other.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Names another source.
    pub fn source(&self, source: String) {
        self.lock().report.source = source;
    }

    /// Says what the intake is doing.
    pub fn intake(&self, what: impl Into<String>) {
        self.lock().report.intake = what.into();
    }

    /// Says what the applier is doing.
    pub fn applier(&self, what: impl Into<String>) {
        self.lock().report.applier = what.into();
    }

    /// Notes what the source's clock shows now, in seconds since 1970.
    pub fn source_clock(&self, seconds: f64) {
        self.lock().source_clock = Some((Instant::now(), seconds));
    }

    /// Notes the source's `max_allowed_packet`.
    pub fn source_packet(&self, bytes: u64) {
        self.lock().source_packet_bytes = Some(bytes);
    }

    /// The source's `max_allowed_packet` in bytes, if it was asked.
    pub fn source_packet_bytes(&self) -> Option<u64> {
        self.lock().source_packet_bytes
    }

    /// Notes the archive.
    pub fn archive(&self, archive: Archive) {
        let mut state = self.lock();
        state.received_seqno = archive.tail().received().seqno;
        state.archive = Some(archive);
    }

    /// Notes how far the archive reaches. On a replica that was caught up, what comes next is the oldest to be applied, even
    /// if nobody applies it yet.
    pub fn received(&self, end: &LogEnd) {
        let mut state = self.lock();
        if state.received_seqno <= state.applied.seqno && end.seqno > state.applied.seqno {
            state.oldest_unapplied_seconds = state.believe(f64::from(end.commit_seconds));
        }
        state.received_seqno = end.seqno;
    }

    /// Adds to the bytes that were received.
    pub fn received_bytes(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes the commit time of the oldest transaction on its way, in seconds since 1970.
    pub fn applying(&self, oldest_seconds: f64) {
        let mut state = self.lock();
        state.oldest_unapplied_seconds = state.believe(oldest_seconds);
    }

    /// Notes how far the replica has come; with a batch, what it held.
    pub fn applied(&self, checkpoint: &Checkpoint, batch: Option<&BatchStatus>) {
        let mut state = self.lock();
        if batch.is_none() {
            state.oldest_unapplied_seconds = state.believe(checkpoint.source_seconds as f64);
        }
        state.applied.clone_from(checkpoint);
        if let Some(batch) = batch {
            let counters = &mut state.report.counters;
            counters.transactions += batch.transactions;
            counters.row_changes += batch.row_changes;
            counters.net_row_changes += batch.net_row_changes;
            counters.batches += 1;
            state.report.last_batch = batch.clone();
        }
    }

    /// Notes the transactions that earlier runs left out.
    pub fn skipped_before(&self, skipped: Vec<SkippedStatus>) {
        self.lock().report.notices.skipped = skipped;
    }

    /// Notes transactions that were left out, once they are committed as such.
    pub fn left_out(&self, skipped: &[Skipped], ignored: u64) {
        self.lock().report.counters.ignored_transactions += ignored;
        for Skipped { gtid, place } in skipped {
            let status = SkippedStatus {
                gtid: gtid.to_string(),
                file: place.file.clone(),
                position: place.position,
                at_seconds: unix_seconds() as u64,
            };
            push_bounded(&mut self.lock().report.notices.skipped, status, SKIPPED_MAX);
            self.note("applier", &format!("{place} was left out, as --skip says; spate.skipped on the replica has it"));
        }
    }

    /// Notes repairs, once they are committed.
    pub fn repaired(&self, repairs: Repairs) {
        let mut state = self.lock();
        state.report.counters.repairs += repairs.count;
        for repair in repairs.latest {
            push_bounded(&mut state.report.notices.latest_repairs, repair, REPAIRS_MAX);
        }
    }

    /// Counts row changes whose pages were read before they were applied.
    pub fn prefetched(&self, row_changes: u64) {
        self.lock().report.counters.prefetched_row_changes += row_changes;
    }

    /// Counts row changes that were executed before the batch before theirs was committed.
    pub fn executed_ahead(&self, row_changes: u64) {
        self.lock().report.counters.executed_ahead_row_changes += row_changes;
    }

    /// Notes files removed from the archive.
    pub fn purged(&self, files: u64, bytes: u64) {
        let purged = &mut self.lock().report.counters.purged;
        purged.files += files;
        purged.bytes += bytes;
        purged.at_seconds = unix_seconds() as u64;
    }

    /// Notes an error, once: a repetition of the latest only moves its time.
    pub fn error(&self, stage: &str, message: impl Into<String>) {
        let (message, at_seconds) = (message.into(), unix_seconds() as u64);
        if self.remember(stage, &message, at_seconds) {
            (self.notify)(stage, &message);
        }
    }

    /// Warns, once, of a table whose changes cost the replica more than they need.
    pub fn table_without_key(&self, table: &str) {
        {
            let mut state = self.lock();
            if state.keyless_tables.contains(table) {
                return;
            }
            state.keyless_tables.insert(table.to_owned());
            state.report.counters.tables_without_key = state.keyless_tables.len() as u64;
            push_bounded(&mut state.report.notices.latest_tables_without_key, table.to_owned(), KEYLESS_NAMES_MAX);
        }
        self.note(
            "applier",
            &format!(
                "table {table} has no primary key and no unique key whose columns are all NOT NULL: to find a row, the replica \
                 looks through the table. Give it a primary key"
            ),
        );
    }

    /// Tells that a definition is out of date, or the replica's table another than the source's: which of both, a second look shows.
    pub fn table_redefined(&self, contradiction: &Contradiction, gtid: &str) {
        let message = format!(
            "table {}: its definition as Spate has read it does not fit what the binlog says at {gtid} ({}): reading the replica's definitions \
             once more",
            contradiction.definition.name, contradiction
        );
        self.note("applier", &message);
    }

    /// Tells, once, of a table that differs from the source's.
    pub fn table_differs(&self, contradiction: &Contradiction) {
        let name = &contradiction.definition.name;
        let told = {
            let mut state = self.lock();
            if !state.differing_tables.insert(name.to_string()) {
                return;
            }
            state.differing_tables.len()
        };
        let message = format!(
            "table {name} on the replica is not what it is on the source ({}): rows are applied to it as it is",
            contradiction
        );
        match contradiction.is_silent() && told <= DIFFERENCE_WARNINGS_MAX {
            true => self.error("applier", message),
            false => self.note("applier", &message),
        }
    }

    /// Warns of an event that alone is larger than a batch may be, and again of one that is twice as large.
    pub fn large_event(&self, bytes: u64, batch_bytes: usize, place: &str) {
        {
            let mut state = self.lock();
            if bytes < state.largest_event_bytes.saturating_mul(2) {
                return;
            }
            state.largest_event_bytes = bytes;
        }
        self.error(
            "applier",
            format!(
                "the event of {bytes} bytes at {place} is larger than a batch may be within --memory ({batch_bytes} bytes): \
                 until it is applied, Spate may take several times its size beyond --memory"
            ),
        );
    }

    /// Tells of something that is no error.
    pub fn note(&self, stage: &str, message: &str) {
        (self.notify)(stage, message);
    }

    /// Says how many transactions execute at a time, and why.
    pub fn appliers(&self, what: String) {
        self.lock().report.appliers = what;
    }

    /// Says what each of several appliers has done.
    pub fn sharding(&self, sharding: ShardingStatus) {
        self.lock().report.sharding = Some(sharding);
    }

    /// Says how row changes are written, and why, the first time.
    pub(crate) fn dialect(&self, dialect: &str, why: Option<&str>) {
        let before = std::mem::replace(&mut self.lock().report.dialect, dialect.to_owned());
        if let (true, Some(why)) = (before != dialect, why) {
            self.note("applier", why);
        }
    }

    fn remember(&self, stage: &str, message: &str, at_seconds: u64) -> bool {
        let mut state = self.lock();
        let errors = &mut state.report.notices.errors;
        if let Some(last) = errors.last_mut().filter(|last| last.message == message && last.stage == stage) {
            last.at_seconds = at_seconds;
            return false;
        }
        let error = ErrorStatus { at_seconds, stage: stage.to_owned(), message: message.to_owned() };
        push_bounded(errors, error, ERRORS_MAX);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Status").field("state", &self.state).finish_non_exhaustive()
    }
}

impl State {
    fn source_now(&self) -> f64 {
        self.source_clock.map_or_else(unix_seconds, |(then, seconds)| seconds + then.elapsed().as_secs_f64())
    }

    /// The commit time that the lag is measured by. The source's sessions write there what they like (`SET timestamp`), and its
    /// clock can be set: a time before that of an earlier transaction is taken for that one's, a time to come for now.
    fn believe(&mut self, commit_seconds: f64) -> f64 {
        let now = self.source_now();
        if commit_seconds > now {
            return now;
        }
        self.latest_commit_seconds = self.latest_commit_seconds.max(commit_seconds);
        self.latest_commit_seconds
    }

    /// Keeps the samples of the last seconds, and works out the rates between the oldest and now.
    fn sample(&mut self) {
        let now = Sample {
            at: Instant::now(),
            transactions: self.report.counters.transactions,
            row_changes: self.report.counters.row_changes,
            received_bytes: self.report.counters.received_bytes,
        };
        self.samples.retain(|sample| now.at.duration_since(sample.at) <= RATE_WINDOW);
        if self.samples.last().is_none_or(|last| now.at.duration_since(last.at) >= RATE_WINDOW / 20) {
            self.samples.push(now);
        }
        let Some(oldest) = self.samples.first() else { return };
        let seconds = now.at.duration_since(oldest.at).as_secs_f64();
        if seconds > 0.0 {
            let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
            self.report.gauges.transactions_per_second = rate(now.transactions, oldest.transactions);
            self.report.gauges.row_changes_per_second = rate(now.row_changes, oldest.row_changes);
            self.report.gauges.received_bytes_per_second = rate(now.received_bytes, oldest.received_bytes);
        }
    }
}

fn position(end: &LogEnd) -> PositionStatus {
    PositionStatus {
        gtid: end.gtid_position.to_string(),
        file: end.source_file.to_string(),
        position: end.source_position,
        seqno: end.seqno,
    }
}

/// Adds to a list that keeps its last `maximum` entries.
pub fn push_bounded<T>(list: &mut Vec<T>, entry: T, maximum: usize) {
    if list.len() >= maximum {
        list.remove(0);
    }
    list.push(entry);
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_at(source_now: f64) -> State {
        State { source_clock: Some((Instant::now(), source_now)), ..State::default() }
    }

    #[test]
    fn large_event_warns_again_only_at_twice_the_size() {
        let told = std::sync::Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let notify = move |_: &str, message: &str| heard.lock().unwrap().push(message.to_owned());
        let status = Status::new(String::new(), String::new(), Box::new(notify));
        for bytes in [1000, 1000, 1999, 2000, 500] {
            status.large_event(bytes, 100, "binlog.000001:4");
        }
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("1000 bytes at binlog.000001:4") && told[1].contains("2000 bytes"), "{told:?}");
    }

    #[test]
    fn commit_times_of_past_and_future_are_not_believed() {
        let mut state = state_at(10_000.0);
        assert_eq!(state.believe(9_000.0), 9_000.0);
        assert_eq!(state.believe(1.0), 9_000.0, "before an earlier transaction");
        let now = state.believe(50_000.0);
        assert!((10_000.0..10_060.0).contains(&now), "to come: {now}");
        assert_eq!(state.believe(9_500.0), 9_500.0, "a date to come hides nothing that is late");
    }
}

//! The lag as an application sees it: the laboratory inserts beats on the source, and watches for them on the replica.
//!
//! This process sees both ends, so one monotonic clock times them. A beat's lag is the time from the return of its
//! commit on the source to the first read of the replica that shows it; reads are about a millisecond apart, which errs
//! on the long side.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::dataset::BEAT_SCHEMA;
use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::threads::Stop;
use crate::{Error, Result, threads};

/// Time from one beat to the next.
pub const BEAT_EVERY: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A sender and a watcher of beats.
#[derive(Debug)]
pub struct Beats {
    stop: Stop,
    latest_lag_microseconds: Arc<AtomicU64>,
    sender: JoinHandle<Result<Vec<SentBeat>>>,
    watcher: JoinHandle<Result<Vec<Instant>>>,
}

/// When a beat's insert was sent, and when its commit returned.
#[derive(Debug, Clone, Copy)]
struct SentBeat {
    sent: Instant,
    committed: Instant,
}

/// The times that the sender and the watcher share, in the order of the beats.
type Sent = Arc<Mutex<Vec<SentBeat>>>;

/// Percentiles of a duration, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of beats.
    pub count: u64,
    /// Half of the beats were no slower.
    pub p50: f64,
    /// 90 of 100 were no slower.
    pub p90: f64,
    /// 99 of 100 were no slower.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

/// The lag that the beats have shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Lag {
    /// Time from the commit on the source to the first read of the replica that shows it.
    pub commit_to_visible_ms: Percentiles,
    /// The same from the time the insert was sent, so it includes the source's own execution and commit.
    pub insert_to_visible_ms: Percentiles,
    /// How much longer half of the last quarter of the beats took than half of the first quarter: a follower that is too slow falls behind
    /// steadily, however little.
    pub growth_ms: f64,
}

impl Beats {
    /// Starts to send and to watch.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn start(source: &Sandbox, replica: &Sandbox) -> Result<Beats> {
        let (mut to, mut from) = (source.connect()?, replica.connect()?);
        let first: u64 = to.value(&format!("SELECT COALESCE(MAX(id), 0) + 1 FROM {BEAT_SCHEMA}.beats"))?;
        let (stop, latest) = (Stop::default(), Arc::new(AtomicU64::new(0)));
        let sent = Sent::default();
        let (sender_stop, sender_sent) = (stop.stopping(), Arc::clone(&sent));
        let sender = std::thread::spawn(move || {
            send(&mut to, first, &sender_stop, &sender_sent)?;
            Ok(sender_sent.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
        });
        let (watcher_stop, watcher_latest) = (stop.stopping(), Arc::clone(&latest));
        let watcher = std::thread::spawn(move || watch(&mut from, first, &watcher_stop, &sent, &watcher_latest));
        Ok(Beats { stop, latest_lag_microseconds: latest, sender, watcher })
    }

    /// The lag of the beat that was seen last.
    pub fn latest_lag(&self) -> Duration {
        Duration::from_micros(self.latest_lag_microseconds.load(Ordering::Relaxed))
    }

    /// Stops sending, waits until every beat has been seen (at most [`ARRIVAL_LIMIT`]), and sums up.
    ///
    /// # Errors
    /// [`Error::Sql`]; [`Error::TimedOut`] if a beat never arrived.
    pub fn finish(self) -> Result<Lag> {
        self.stop.set();
        let (sent, seen) = (threads::ended(self.sender.join())?, threads::ended(self.watcher.join())?);
        if seen.len() < sent.len() {
            let advice = "is it still replicating? its own log says more".into();
            let what = format!("waiting for {} of {} beats on the replica", sent.len() - seen.len(), sent.len());
            return Err(Error::TimedOut { what, limit: ARRIVAL_LIMIT, advice });
        }
        let lags = |from: fn(&SentBeat) -> Instant| -> Vec<Duration> {
            sent.iter().zip(&seen).map(|(beat, seen)| seen.saturating_duration_since(from(beat))).collect()
        };
        let visible = lags(|beat| beat.committed);
        Ok(Lag {
            commit_to_visible_ms: percentiles(visible.iter().copied()),
            insert_to_visible_ms: percentiles(lags(|beat| beat.sent).into_iter()),
            growth_ms: growth_ms(&visible),
        })
    }
}

/// How long the last beats may take to arrive.
pub const ARRIVAL_LIMIT: Duration = Duration::from_secs(120);

fn send(session: &mut Session, first: u64, stop: &AtomicBool, beats: &Sent) -> Result<()> {
    let mut next = Instant::now();
    for id in first.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let sent = Instant::now();
        session.run(&format!("INSERT INTO {BEAT_SCHEMA}.beats VALUES ({id}, {now})"))?;
        let beat = SentBeat { sent, committed: Instant::now() };
        beats.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(beat);
        // A late beat does not shorten the pause before the next ones.
        next = (next + BEAT_EVERY).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Notes the time at which each beat first appears, until it is told to stop and has seen all beats that were sent.
fn watch(
    session: &mut Session,
    first: u64,
    stop: &AtomicBool,
    beats: &Sent,
    latest: &AtomicU64,
) -> Result<Vec<Instant>> {
    let look = format!("SELECT COALESCE(MAX(id), 0) FROM {BEAT_SCHEMA}.beats");
    let (mut seen, mut stopped_at) = (Vec::new(), None);
    loop {
        // In this order: the read must show every beat that was sent before it.
        let stopping = stop.load(Ordering::Acquire);
        let highest: u64 = session.value(&look)?;
        let now = Instant::now();
        let arrived = (highest + 1).saturating_sub(first) as usize;
        if arrived > seen.len() {
            seen.resize(arrived, now);
            let beats = beats.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // The beat may appear here before its commit has returned on the source.
            let lag =
                beats.get(arrived - 1).map_or(Duration::ZERO, |beat| now.saturating_duration_since(beat.committed));
            latest.store(lag.as_micros() as u64, Ordering::Relaxed);
        }
        if stopping {
            let since = *stopped_at.get_or_insert(now);
            let sent = beats.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).len();
            // The sender may be in its last insert when it is told to stop.
            let all_seen = seen.len() >= sent && now - since > 5 * BEAT_EVERY;
            if all_seen || now - since > ARRIVAL_LIMIT {
                return Ok(seen);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// From the first quarter to the last.
fn growth_ms(lags: &[Duration]) -> f64 {
    let quarter = lags.len() / 4;
    let half_of = |some: &[Duration]| percentiles(some.iter().copied()).p50;
    if quarter == 0 { 0.0 } else { half_of(&lags[lags.len() - quarter..]) - half_of(&lags[..quarter]) }
}

fn percentiles(durations: impl Iterator<Item = Duration>) -> Percentiles {
    /// Three digits are kept of each value, whatever its size.
    const DIGITS: u8 = 3;
    /// Longer than any run waits for a beat.
    const LONGEST_MICROSECONDS: u64 = 3_600_000_000;
    let histogram = Histogram::<u64>::new_with_bounds(1, LONGEST_MICROSECONDS, DIGITS);
    let Ok(mut histogram) = histogram else { return Percentiles::default() };
    durations.for_each(|duration| histogram.saturating_record(duration.as_micros() as u64));
    let milliseconds = |microseconds: u64| microseconds as f64 / 1e3;
    Percentiles {
        count: histogram.len(),
        p50: milliseconds(histogram.value_at_quantile(0.5)),
        p90: milliseconds(histogram.value_at_quantile(0.9)),
        p99: milliseconds(histogram.value_at_quantile(0.99)),
        max: milliseconds(histogram.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_percentiles_are_exact_to_three_digits() {
        let found = percentiles((1..=1000).map(Duration::from_millis));
        assert_eq!(found.count, 1000);
        for (value, expected) in [(found.p50, 500.0), (found.p90, 900.0), (found.p99, 990.0), (found.max, 1000.0)] {
            assert!((value - expected).abs() <= expected / 1000.0, "{value} is not {expected}");
        }
        assert_eq!(percentiles(std::iter::empty()), Percentiles::default());
    }

    #[test]
    fn steady_loss_is_growth() {
        let milliseconds =
            |lags: &[u64]| -> Vec<Duration> { lags.iter().map(|lag| Duration::from_millis(*lag)).collect() };
        let losing: Vec<u64> = (0..100).map(|beat| 5 + 4 * beat).collect();
        assert!(growth_ms(&milliseconds(&losing)) > 250.0);
        assert!(growth_ms(&milliseconds(&[5; 100])).abs() < 0.1);
        assert_eq!(growth_ms(&milliseconds(&[5, 9])), 0.0);
    }

    #[test]
    fn one_slow_beat_changes_only_the_maximum() {
        let found = percentiles((0..1000).map(|beat| Duration::from_millis(if beat == 500 { 5000 } else { 2 })));
        assert_eq!((found.p50, found.p99), (2.0, 2.0));
        assert!(found.max >= 4995.0);
    }
}

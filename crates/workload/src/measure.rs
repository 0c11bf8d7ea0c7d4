//! What responses add up to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Digests that are told apart; all beyond are one. No application has so many.
const DIGESTS_MAX: usize = 20_000;
/// The slowest responses that are kept.
const SLOWEST_MAX: usize = 50;
/// Of the text of a slow statement so much is kept.
const STATEMENT_SHOWN_MAX: usize = 500;
/// The highest latency that is told apart: an hour, in microseconds.
const LATENCY_MAX: u64 = 3_600_000_000;

/// The answer to one statement.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// The number of its input.
    pub(crate) input: usize,
    pub(crate) session: u64,
    pub(crate) digest: u64,
    pub(crate) digest_text: Arc<str>,
    /// When it was to begin, and when it began, in seconds since the replay's beginning.
    pub(crate) due: f64,
    pub(crate) began: f64,
    pub(crate) ended: f64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Rows that the statement changed.
    pub(crate) affected_rows: u64,
    /// Of all results and rows, and of how many rows were changed.
    pub(crate) checksum: u64,
    /// The statement's own, so that answers to the same statements can be compared.
    pub(crate) statement_hash: u64,
    pub(crate) error: Option<(u16, String)>,
    /// Only of slow statements.
    pub(crate) statement: Option<String>,
}

impl Response {
    /// From when it was due to its end, in microseconds.
    fn latency(&self) -> u64 {
        ((self.ended - self.due).max(0.0) * 1e6) as u64
    }
}

/// A distribution of latencies, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// On average.
    pub mean: f64,
    /// Half of them are below.
    pub p50: f64,
    /// 95 of 100 are below.
    pub p95: f64,
    /// 99 of 100 are below.
    pub p99: f64,
    /// 999 of 1000 are below.
    pub p999: f64,
    /// The highest.
    pub max: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// How many answers took how long: up to so many milliseconds (and longer than the entry before), so many. Entries of none are left out.
pub type Distribution = Vec<(f64, u64)>;

/// Each entry of a distribution is so many times as long as the one before.
const STEP: f64 = std::f64::consts::SQRT_2;
/// The first one ends here, in microseconds.
const FIRST_STEP: u64 = 32;

fn distribution(histogram: &Histogram<u64>) -> Distribution {
    let steps = histogram.iter_log(FIRST_STEP, STEP);
    let steps = steps.map(|step| (step.value_iterated_to() as f64 / 1e3, step.count_since_last_iteration()));
    steps.filter(|(_, count)| *count > 0).collect()
}

/// Statements that differ only in their values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DigestReport {
    /// Its hash, hexadecimal.
    pub digest: String,
    /// The statement without its values.
    pub text: String,
    /// How many were answered.
    pub count: u64,
    /// How many of them by an error.
    pub errors: u64,
    /// Rows in all answers.
    pub rows: u64,
    /// Bytes in all answers.
    pub bytes: u64,
    /// Rows that were changed.
    #[serde(default)]
    pub affected_rows: u64,
    /// From when they were due to their ends.
    pub latency_ms: Latency,
    /// The same, all of it.
    #[serde(default)]
    pub distribution_ms: Distribution,
    /// Of the answers to all statements, whatever their order; hexadecimal.
    pub checksum: String,
}

/// Answers of about one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeReport {
    /// At most so many bytes.
    pub bytes_max: u64,
    /// How many.
    pub count: u64,
    /// From when they were due to their ends.
    pub latency_ms: Latency,
    /// The same, all of it.
    #[serde(default)]
    pub distribution_ms: Distribution,
}

/// One of the slowest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowReport {
    /// Seconds since the beginning when it was due.
    pub due: f64,
    /// From then to its end.
    pub latency_ms: f64,
    /// Rows of its answer.
    pub rows: u64,
    /// The session.
    pub session: u64,
    /// The beginning of the statement.
    pub statement: String,
}

/// An input's share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InputReport {
    /// Its name.
    pub name: String,
    /// How its statements were shared among connections.
    pub sharing: String,
    /// Statements that were answered.
    pub statements: u64,
    /// Errors among the answers.
    pub errors: u64,
    /// Seconds from the beginning to its last answer.
    pub seconds: f64,
    /// From when they were due to their ends.
    pub latency_ms: Latency,
}

struct OfDigest {
    text: Arc<str>,
    count: u64,
    errors: u64,
    rows: u64,
    bytes: u64,
    affected_rows: u64,
    checksum: u64,
    latency: Histogram<u64>,
}

/// Adds up responses.
pub(crate) struct Measured {
    digests: HashMap<u64, OfDigest>,
    sizes: BTreeMap<u32, Histogram<u64>>,
    all: Histogram<u64>,
    /// How late statements began, in microseconds.
    late: Histogram<u64>,
    inputs: Vec<(InputReport, Histogram<u64>)>,
    per_second: Vec<u64>,
    slowest: Vec<SlowReport>,
    errors: BTreeMap<u16, (u64, String)>,
    statements: u64,
    rows: u64,
    bytes: u64,
    seconds: f64,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Statements that were answered.
    pub statements: u64,
    /// Rows in the answers.
    pub rows: u64,
    /// Bytes in the answers.
    pub bytes: u64,
    /// Seconds from the beginning to the last answer.
    pub seconds: f64,
    /// From when statements were due to their ends.
    pub latency_ms: Latency,
    /// From when they were due to when they began.
    pub late_ms: Latency,
    /// The inputs.
    pub inputs: Vec<InputReport>,
    /// Answers in each second.
    pub per_second: Vec<u64>,
    /// By digest, those that took longest in all first.
    pub digests: Vec<DigestReport>,
    /// By the size of the answer.
    pub sizes: Vec<SizeReport>,
    /// The slowest.
    pub slowest: Vec<SlowReport>,
    /// By the server's error number: how many, and the text of one.
    pub errors: BTreeMap<u16, (u64, String)>,
}

fn histogram() -> Histogram<u64> {
    // Two digits: a percent is told apart. The bounds are constants that the library accepts.
    #[allow(clippy::unwrap_used, reason = "constants")]
    let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, 2).unwrap();
    histogram
}

impl Measured {
    pub(crate) fn new(inputs: impl Iterator<Item = (String, String)>) -> Measured {
        let input = |(name, sharing)| (InputReport { name, sharing, ..InputReport::default() }, histogram());
        Measured {
            digests: HashMap::new(),
            sizes: BTreeMap::new(),
            all: histogram(),
            late: histogram(),
            inputs: inputs.map(input).collect(),
            per_second: vec![],
            slowest: vec![],
            errors: BTreeMap::new(),
            statements: 0,
            rows: 0,
            bytes: 0,
            seconds: 0.0,
        }
    }

    /// The latency from which on a response is among the slowest, in seconds.
    pub(crate) fn is_slow(slowest: &[SlowReport], latency_ms: f64) -> bool {
        slowest.len() < SLOWEST_MAX || slowest.last().is_some_and(|last| latency_ms > last.latency_ms)
    }

    pub(crate) fn add(&mut self, response: &Response) {
        let latency = response.latency().max(1);
        self.statements += 1;
        self.rows += response.rows;
        self.bytes += response.bytes;
        self.seconds = self.seconds.max(response.ended);
        self.all.saturating_record(latency);
        self.late.saturating_record((((response.began - response.due).max(0.0)) * 1e6) as u64);
        let second = response.ended.max(0.0) as usize;
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        self.per_second[second] += 1;
        // Each size is four times the one before.
        let size = u64::BITS - response.bytes.leading_zeros();
        self.sizes.entry(size.div_ceil(2)).or_insert_with(histogram).saturating_record(latency);
        if let Some((input, of_input)) = self.inputs.get_mut(response.input) {
            input.statements += 1;
            input.errors += u64::from(response.error.is_some());
            input.seconds = input.seconds.max(response.ended);
            of_input.saturating_record(latency);
        }
        if let Some((code, message)) = &response.error {
            self.errors.entry(*code).or_insert_with(|| (0, message.clone())).0 += 1;
        }
        self.add_to_digest(response, latency);
        self.add_to_slowest(response, latency as f64 / 1e3);
    }

    fn add_to_digest(&mut self, response: &Response, latency: u64) {
        let (mut hash, mut text) = (response.digest, &response.digest_text);
        let others: Arc<str>;
        if self.digests.len() >= DIGESTS_MAX && !self.digests.contains_key(&hash) {
            others = Arc::from("all others");
            (hash, text) = (0, &others);
        }
        let of = self.digests.entry(hash).or_insert_with(|| OfDigest {
            text: Arc::clone(text),
            count: 0,
            errors: 0,
            rows: 0,
            bytes: 0,
            affected_rows: 0,
            checksum: 0,
            latency: histogram(),
        });
        of.count += 1;
        of.errors += u64::from(response.error.is_some());
        of.rows += response.rows;
        of.bytes += response.bytes;
        of.affected_rows += response.affected_rows;
        let answer = response.checksum ^ response.error.as_ref().map_or(0, |(code, _)| u64::from(*code) << 48);
        // Which answer belongs to which statement counts, when it came does not.
        of.checksum = of.checksum.wrapping_add(answer.rotate_left(17).wrapping_mul(response.statement_hash | 1));
        of.latency.saturating_record(latency);
    }

    fn add_to_slowest(&mut self, response: &Response, latency_ms: f64) {
        let Some(statement) = response.statement.as_ref().filter(|_| Measured::is_slow(&self.slowest, latency_ms))
        else {
            return;
        };
        let report = SlowReport {
            due: response.due,
            latency_ms,
            rows: response.rows,
            session: response.session,
            statement: statement.chars().take(STATEMENT_SHOWN_MAX).collect(),
        };
        let at = self.slowest.partition_point(|other| other.latency_ms >= latency_ms);
        self.slowest.insert(at, report);
        self.slowest.truncate(SLOWEST_MAX);
    }

    pub(crate) fn sums(self) -> Sums {
        let mut digests: Vec<DigestReport> = self
            .digests
            .into_iter()
            .map(|(hash, of)| DigestReport {
                digest: format!("{hash:016x}"),
                text: of.text.to_string(),
                count: of.count,
                errors: of.errors,
                rows: of.rows,
                bytes: of.bytes,
                affected_rows: of.affected_rows,
                latency_ms: Latency::of(&of.latency),
                distribution_ms: distribution(&of.latency),
                checksum: format!("{:016x}", of.checksum),
            })
            .collect();
        let all = |digest: &DigestReport| digest.latency_ms.mean * digest.count as f64;
        digests.sort_by(|one, other| all(other).total_cmp(&all(one)));
        let size = |(size, histogram): (u32, Histogram<u64>)| SizeReport {
            bytes_max: 1_u64.checked_shl(2 * size).map_or(u64::MAX, |end| end - 1),
            count: histogram.len(),
            latency_ms: Latency::of(&histogram),
            distribution_ms: distribution(&histogram),
        };
        let input = |(report, histogram): (InputReport, Histogram<u64>)| InputReport {
            latency_ms: Latency::of(&histogram),
            ..report
        };
        Sums {
            statements: self.statements,
            rows: self.rows,
            bytes: self.bytes,
            seconds: self.seconds,
            latency_ms: Latency::of(&self.all),
            late_ms: Latency::of(&self.late),
            inputs: self.inputs.into_iter().map(input).collect(),
            per_second: self.per_second,
            digests,
            sizes: self.sizes.into_iter().map(size).collect(),
            slowest: self.slowest,
            errors: self.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_every_answer_once() {
        let mut latencies = histogram();
        [1, 20, 31, 40, 1_000, 1_000_000].iter().for_each(|latency| latencies.saturating_record(*latency));
        let found = distribution(&latencies);
        assert_eq!(found.iter().map(|(_, count)| count).sum::<u64>(), 6, "{found:?}");
        assert_eq!(found[0].1, 3, "{found:?}");
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "{found:?}");
        assert!(found.last().is_some_and(|(end, _)| (1_000.0..1_500.0).contains(end)), "{found:?}");
    }
}

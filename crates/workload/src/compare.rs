//! Two replays of one workload, beside each other.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::measure::{DigestReport, Latency};
use crate::replay::ReplayReport;

/// A digest of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The statement without its values.
    pub text: String,
    /// Answers in either.
    pub counts: [u64; 2],
    /// Milliseconds on average.
    pub mean_ms: [f64; 2],
    /// Milliseconds below which 95 of 100 are.
    pub p95_ms: [f64; 2],
    /// Errors in either.
    pub errors: [u64; 2],
    /// What is to be said of it.
    pub verdict: Verdict,
}

/// What became of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Other rows, or other errors.
    DifferentResult,
    /// It took longer.
    Slower,
    /// It took less.
    Faster,
    /// As before.
    Same,
    /// Only one of the replays has it, or answered it as often.
    NotComparable,
}

/// Both replays.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Seconds that either took.
    pub seconds: [f64; 2],
    /// Statements of either.
    pub statements: [u64; 2],
    /// All digests: other results first, then the slower ones.
    pub digests: Vec<Compared>,
}

impl Comparison {
    /// How many digests have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.digests.iter().filter(|digest| digest.verdict == verdict).count()
    }
}

/// Both the average and the median must have moved by so much: what is less is noise of most machines.
const NOTABLE: f64 = 1.2;
/// Or else the average, and the 95th percentile by so much: only some answers have become slower, …
const NOTABLE_TAIL: f64 = 1.5;
/// … of so many at least, since few slow ones decide it.
const COUNT_MIN_TAIL: u64 = 100;
/// With fewer answers, one slow one decides.
const COUNT_MIN: u64 = 5;
/// What is faster than this, in milliseconds, is measured too coarsely to be compared.
const MILLISECONDS_MIN: f64 = 0.05;

/// Compares a second replay with a first one.
pub fn compare(first: &ReplayReport, second: &ReplayReport) -> Comparison {
    let by_digest = |report: &ReplayReport| -> BTreeMap<String, DigestReport> {
        report.sums.digests.iter().map(|digest| (digest.digest.clone(), digest.clone())).collect()
    };
    let (of_first, mut of_second) = (by_digest(first), by_digest(second));
    let mut digests: Vec<Compared> =
        of_first.into_iter().map(|(digest, one)| compared(Some(&one), of_second.remove(&digest).as_ref())).collect();
    digests.extend(of_second.values().map(|other| compared(None, Some(other))));
    let rank = |verdict: Verdict| match verdict {
        Verdict::DifferentResult => 0,
        Verdict::Slower => 1,
        Verdict::NotComparable => 2,
        Verdict::Faster => 3,
        Verdict::Same => 4,
    };
    let weight =
        |digest: &Compared| digest.mean_ms[1].max(digest.mean_ms[0]) * digest.counts[1].max(digest.counts[0]) as f64;
    digests
        .sort_by(|one, other| rank(one.verdict).cmp(&rank(other.verdict)).then(weight(other).total_cmp(&weight(one))));
    Comparison {
        seconds: [first.sums.seconds, second.sums.seconds],
        statements: [first.sums.statements, second.sums.statements],
        digests,
    }
}

fn compared(one: Option<&DigestReport>, other: Option<&DigestReport>) -> Compared {
    let both = [one, other];
    let verdict = match both {
        [Some(one), Some(other)] if one.count != other.count => Verdict::NotComparable,
        [Some(one), Some(other)] if one.checksum != other.checksum || one.errors != other.errors => {
            Verdict::DifferentResult
        }
        [Some(one), Some(other)] => verdict_of(one, other),
        _ => Verdict::NotComparable,
    };
    let of = |value: fn(&DigestReport) -> f64| both.map(|digest| digest.map_or(0.0, value));
    Compared {
        text: both.into_iter().flatten().next().map(|digest| digest.text.clone()).unwrap_or_default(),
        counts: both.map(|digest| digest.map_or(0, |digest| digest.count)),
        mean_ms: of(|digest| digest.latency_ms.mean),
        p95_ms: of(|digest| digest.latency_ms.p95),
        errors: both.map(|digest| digest.map_or(0, |digest| digest.errors)),
        verdict,
    }
}

fn verdict_of(one: &DigestReport, other: &DigestReport) -> Verdict {
    let (before, after) = (one.latency_ms, other.latency_ms);
    let is_measured = one.count >= COUNT_MIN && before.mean.max(after.mean) >= MILLISECONDS_MIN;
    let grew = |from: Latency, to: Latency| {
        let has_tail = one.count >= COUNT_MIN_TAIL && to.p95 > from.p95 * NOTABLE_TAIL;
        to.mean > from.mean * NOTABLE && (to.p50 > from.p50 * NOTABLE || has_tail)
    };
    match is_measured {
        true if grew(before, after) => Verdict::Slower,
        true if grew(after, before) => Verdict::Faster,
        _ => Verdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(count: u64, [mean, p50, p95]: [f64; 3]) -> DigestReport {
        DigestReport { count, latency_ms: Latency { mean, p50, p95, ..Latency::default() }, ..DigestReport::default() }
    }

    #[test]
    fn a_digest_is_slower_if_most_or_its_slowest_answers_are() {
        for (count, before, after, verdict) in [
            (100, [1.0, 1.0, 2.0], [1.3, 1.3, 2.0], Verdict::Slower),
            (100, [1.0, 1.0, 2.0], [1.3, 1.0, 4.0], Verdict::Slower),
            (100, [1.3, 1.0, 4.0], [1.0, 1.0, 2.0], Verdict::Faster),
            (50, [1.0, 1.0, 2.0], [1.3, 1.0, 4.0], Verdict::Same),
            (100, [1.0, 1.0, 2.0], [1.1, 1.0, 4.0], Verdict::Same),
            (100, [1.0, 1.0, 2.0], [1.3, 1.1, 2.5], Verdict::Same),
            (100, [0.01, 0.01, 0.02], [0.04, 0.04, 0.04], Verdict::Same),
        ] {
            assert_eq!(verdict_of(&digest(count, before), &digest(count, after)), verdict, "{before:?} {after:?}");
        }
    }
}

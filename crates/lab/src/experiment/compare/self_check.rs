//! Whether the noise lets anything be seen: halves of one result, compared with each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::{MetricComparison, SEED, Verdict, compare};
use crate::experiment::result::{Better, ExperimentResult, better};
use crate::random::Random;
use crate::{Error, Result, output};

/// How often halves of one result are told apart: as they are, and with a slowdown planted into one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct SelfCheck {
    /// How often the halves were drawn.
    pub(super) trials: u32,
    /// How often something was told to be worse or better although nothing was.
    pub(super) false_alarms: u32,
    /// The planted slowdown in percent.
    pub(super) planted_percent: u32,
    /// How often it was found by any metric.
    pub(super) found: u32,
    /// How often each metric found it: memory varies less than seconds.
    pub(super) found_by: BTreeMap<String, u32>,
}

/// Draws halves of the repetitions, and compares them.
///
/// # Errors
/// [`Error::NotComparable`] with fewer than four repetitions.
pub(super) fn self_check(result: &ExperimentResult, only: &[(String, String)]) -> Result<SelfCheck> {
    const TRIALS: u32 = 20;
    const PLANTED_PERCENT: u32 = 10;
    let repetitions: BTreeSet<u32> = result.runs.iter().map(|run| run.repetition).collect();
    if repetitions.len() < 4 {
        let repetitions = repetitions.len();
        let why = format!("halves of {repetitions} repetitions tell no noise; measure with --repetitions 10");
        return Err(Error::NotComparable { why });
    }
    let mut random = Random::new(SEED);
    let mut check = SelfCheck { trials: TRIALS, planted_percent: PLANTED_PERCENT, ..SelfCheck::default() };
    for _ in 0..TRIALS {
        let mut order: Vec<u32> = repetitions.iter().copied().collect();
        random.shuffle(&mut order);
        let (first, second) = order.split_at(order.len() / 2);
        let half = |numbers: &[u32]| {
            let mut half = result.clone();
            half.runs.retain(|run| numbers.contains(&run.repetition));
            half
        };
        let (first, mut second) = (half(first), half(second));
        let equal = compare(&first, &second, only)?;
        check.false_alarms += u32::from(equal.all().any(|cell| cell.verdict != Verdict::Same));
        plant(&mut second, 1.0 + f64::from(PLANTED_PERCENT) / 100.0);
        let slower = compare(&first, &second, only)?;
        check.found += u32::from(slower.metrics.iter().any(MetricComparison::is_worse));
        for metric in slower.metrics {
            let is_found = metric.is_worse();
            *check.found_by.entry(metric.metric).or_default() += u32::from(is_found);
        }
    }
    Ok(check)
}

/// Makes all runs so many times slower.
fn plant(result: &mut ExperimentResult, times: f64) {
    for (metric, value) in result.runs.iter_mut().flat_map(|run| &mut run.measured.metrics) {
        match better(metric) {
            Some(Better::Lower) => *value *= times,
            Some(Better::Higher) => *value /= times,
            None => {}
        }
    }
}

impl SelfCheck {
    pub(super) fn show(&self, json: Option<&Path>) -> Result<ExitCode> {
        let SelfCheck { trials, false_alarms, planted_percent, found, found_by } = self;
        let found_by: Vec<String> = found_by.iter().map(|(metric, found)| format!("{metric} {found}")).collect();
        let text = format!(
            "Halves of the repetitions, {trials} times: told apart {false_alarms} times as they are; \
             a slowdown of {planted_percent} % in one half was found {found} times (by {}).",
            found_by.join(", ")
        );
        output::show(&text, self, json)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::result::tests::result;

    #[test]
    fn halves_of_a_result_find_a_planted_slowdown() {
        let noise = [1.0, 1.02, 0.99, 1.01, 0.985, 1.005, 0.99, 1.015, 1.0, 0.995];
        let runs: Vec<_> =
            (1..).zip(noise).map(|(repetition, noise)| ("cached", "spate", repetition, 2.0 * noise)).collect();
        let mut result = result(&runs);
        result.header.repetitions = u32::MAX;
        let check = self_check(&result, &[]).unwrap();
        assert_eq!((check.false_alarms, check.found), (0, check.trials));
        assert_eq!(check.found_by, BTreeMap::from([("seconds".to_owned(), check.trials)]));
        // A failed run falls into one half or the other, which says nothing of the slowdown.
        let mut failed = result.clone();
        failed.runs[0].measured.failure = Some("it gave up".to_owned());
        let check = self_check(&failed, &[("contender".to_owned(), "spate".to_owned())]).unwrap();
        assert_eq!(check.found, check.found_by["seconds"]);
        result.runs.truncate(1);
        assert!(self_check(&result, &[]).unwrap_err().to_string().contains("--repetitions 10"));
    }
}

//! Runs of a result, chosen by their labels, and what they have in common.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::result::{ExperimentResult, GAVE_UP, Run};
use super::statistics::{Noise, Pair, Ratio, median, spread};

/// Some runs of a result, in their order.
#[derive(Debug, Clone, Default)]
pub struct Selection<'a> {
    runs: Vec<&'a Run>,
}

impl<'a> Selection<'a> {
    /// All runs.
    pub fn of(result: &'a ExperimentResult) -> Selection<'a> {
        Selection { runs: result.runs.iter().collect() }
    }

    /// Those of a setting.
    pub fn in_setting(&self, setting: &str) -> Selection<'a> {
        self.only(|run| run.setting == setting)
    }

    /// Those with a label.
    pub fn with(&self, name: &str, value: &str) -> Selection<'a> {
        self.only(|run| run.label(name) == value)
    }

    /// Those with each value of a label; without the label, all of them together.
    pub fn by(&self, name: &str) -> Vec<Selection<'a>> {
        match self.values_of(name) {
            values if values.is_empty() => vec![self.clone()],
            values => values.into_iter().map(|value| self.with(name, value)).collect(),
        }
    }

    /// Those for which `is_wanted`.
    pub fn only(&self, is_wanted: impl Fn(&Run) -> bool) -> Selection<'a> {
        Selection { runs: self.runs.iter().copied().filter(|run| is_wanted(run)).collect() }
    }

    /// The same, in the order of a label's values.
    pub fn sorted_by(&self, name: &str) -> Selection<'a> {
        let mut runs = self.runs.clone();
        runs.sort_by(|a, b| by_numbers(a.label(name), b.label(name)));
        Selection { runs }
    }

    /// The runs.
    pub fn runs(&self) -> &[&'a Run] {
        &self.runs
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The different values of a label, numbers in them by their size.
    pub fn values_of(&self, name: &str) -> Vec<&'a str> {
        let mut values: Vec<&str> =
            self.runs.iter().map(|run| run.label(name)).filter(|value| !value.is_empty()).collect();
        values.sort_by(|a, b| by_numbers(a, b));
        values.dedup();
        values
    }

    /// The values of a metric, of those runs that came to their end with the right rows.
    pub fn metric(&self, name: &str) -> Vec<f64> {
        let ended = self.runs.iter().filter(|run| run.measured.is_sound());
        ended.filter_map(|run| run.measured.metrics.get(name).copied()).collect()
    }

    /// The median of a metric; `None` if no run has it.
    pub fn median(&self, name: &str) -> Option<f64> {
        median(&self.metric(name))
    }

    /// The same, if all of them came to their end with the right rows: who fails in one repetition does not win in another.
    pub fn sound_median(&self, name: &str) -> Option<f64> {
        self.median(name).filter(|_| self.is_sound())
    }

    /// True if a contender is among them whose name begins so.
    pub fn has_contender(&self, prefix: &str) -> bool {
        self.runs.iter().any(|run| run.label("contender").starts_with(prefix))
    }

    /// How far runs of the same cell are from each other in a metric; `None` if no cell was measured more than once.
    pub fn noise(&self, name: &str) -> Option<Noise> {
        let mut cells: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.measured.is_sound()) {
            if let Some(value) = run.measured.metrics.get(name).copied().filter(|value| *value > 0.0) {
                cells.entry(run.cell()).or_default().push(value);
            }
        }
        Noise::of(&cells.into_values().collect::<Vec<_>>())
    }

    /// How a metric of these runs relates to that of `others`, within `noise`.
    pub fn ratio_to(&self, others: &Selection<'_>, name: &str, noise: Option<&Noise>) -> Option<Ratio> {
        /// The same results are always told in the same words.
        const SEED: u64 = 1;
        let pair = Pair { first: others.metric(name), second: self.metric(name) };
        let is_told = |side: &[f64]| !side.is_empty() && side.iter().all(|value| *value > 0.0);
        let is_told = is_told(&pair.first) && is_told(&pair.second);
        noise.filter(|_| is_told).map(|noise| noise.ratio(&pair, SEED))
    }

    /// The median of a metric as text, with the spread of repeated runs: `12.3 ± 4 %`, and how many of them failed. Why there is none, if there is none.
    pub fn shown(&self, name: &str, show: impl Fn(f64) -> String) -> String {
        let values = self.metric(name);
        let Some(median) = median(&values) else { return self.why_nothing() };
        let mut text = show(median);
        let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(*value), b.max(*value)));
        match spread(&values) {
            // A part of about nothing says nothing.
            _ if least <= 0.0 && most > least => text += &format!(" ({} to {})", show(least), show(most)),
            Some(spread) if spread >= 0.005 => text += &format!(" ± {:.0} %", spread * 100.0),
            _ => {}
        }
        match self.unsound() {
            0 => text,
            failed => format!("{text} ({failed} of {} failed)", self.runs.len()),
        }
    }

    /// True if all came to their end, with the right rows.
    pub fn is_sound(&self) -> bool {
        self.unsound() == 0
    }

    /// Runs that did not come to their end, or came to other rows.
    fn unsound(&self) -> usize {
        self.runs.iter().filter(|run| !run.measured.is_sound()).count()
    }

    fn why_nothing(&self) -> String {
        let limit = self.runs.iter().find_map(|run| run.measured.metrics.get(GAVE_UP));
        match limit {
            Some(limit) => format!("not within {limit:.0} s"),
            None if self.unsound() > 0 => "failed".to_owned(),
            None => "–".to_owned(),
        }
    }
}

/// Texts by the numbers in them: `native:4` before `native:16`.
pub fn by_numbers(a: &str, b: &str) -> Ordering {
    parts(a).cmp(&parts(b))
}

/// Words and numbers of a text, in their order.
fn parts(text: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|character: char| character.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        // Numbers come before words; a number too large for one counts as a word.
        parts.push(match part.parse::<u64>() {
            Ok(number) if is_digit => (number, ""),
            _ => (u64::MAX, part),
        });
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;

    #[test]
    fn label_values_are_sorted_by_their_numbers() {
        let result = result(&[
            ("a", "native:16", 1, 1.0),
            ("a", "native:4", 1, 1.0),
            ("a", "native:16", 2, 1.0),
            ("a", "E1", 1, 1.0),
        ]);
        assert_eq!(Selection::of(&result).values_of("contender"), ["E1", "native:4", "native:16"]);
        assert_eq!(by_numbers("zipf 0.7", "zipf 0.9"), Ordering::Less);
        assert_eq!(by_numbers("10000", "1000000"), Ordering::Less);
    }

    #[test]
    fn repeated_runs_show_their_spread() {
        let result = result(&[
            ("a", "spate", 1, 10.0),
            ("a", "spate", 2, 12.0),
            ("a", "spate", 3, 11.0),
            ("b", "spate", 1, 99.0),
        ]);
        let runs = Selection::of(&result).in_setting("a").with("contender", "spate");
        assert_eq!(runs.shown("seconds", |seconds| format!("{seconds:.1}")), "11.0 ± 9 %");
        assert_eq!(runs.shown("unknown", |seconds| format!("{seconds:.1}")), "–");
        let mut result = result;
        for (run, growth) in result.runs.iter_mut().zip([-3.0, 4.0, 1.0]) {
            run.measured.metric("growth_ms", growth);
        }
        let runs = Selection::of(&result).in_setting("a");
        assert_eq!(runs.shown("growth_ms", |growth| format!("{growth:.1}")), "1.0 (-3.0 to 4.0)");
    }

    #[test]
    fn failed_run_has_no_value() {
        let mut result = result(&[("a", "spate", 1, 10.0)]);
        result.runs[0].measured.failure = Some("gave up".into());
        let runs = Selection::of(&result);
        assert_eq!(
            (runs.median("seconds"), runs.shown("seconds", |value| value.to_string())),
            (None, "failed".to_owned())
        );
        result.runs[0].measured.metric(GAVE_UP, 120.0);
        assert_eq!(Selection::of(&result).shown("seconds", |value| value.to_string()), "not within 120 s");
    }

    #[test]
    fn run_with_other_rows_has_no_value() {
        let mut result = result(&[("a", "spate", 1, 10.0), ("a", "spate", 2, 1.0)]);
        result.runs[1].measured.check_tables(&["a.b".to_owned()]);
        let runs = Selection::of(&result);
        assert_eq!(runs.shown("seconds", |value| value.to_string()), "10 (1 of 2 failed)");
    }
}

//! `lab compare`: what became slower from one result to another, by more than the noise.

mod differences;
mod self_check;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comfy_table::Table;
use serde::Serialize;

use differences::{Difference, differences};
use self_check::self_check;

use super::driver::{CALIBRATION, DISK_CALIBRATION, MESSAGE_CALIBRATION};
use super::result::{self, Better, ExperimentResult, Run, better};
use super::statistics::{self, Cell, Ratio, median};
use crate::screen::{Screen, table};
use crate::{Error, Result, output};

pub(crate) const EXAMPLES: &str = "\
Examples:
  # Two results of the same experiment, from two builds
  spate lab experiment shards --size tiny --repetitions 5 --json before.json
  spate lab experiment shards --size tiny --repetitions 5 --json after.json
  spate lab compare before.json after.json

  # Two results from one file each, of an experiment that measures several contenders: only Spate's
  spate lab compare before.json after.json --only contender=spate

  # Would a slowdown of a tenth be seen here? Halves of one result's repetitions are compared, as they are and with one planted
  spate lab experiment lag --size tiny --repetitions 10 --json many.json
  spate lab compare many.json

The noise is taken from the repetitions: results that were measured once cannot be compared. The exit status is 0 if nothing became worse by
more than the noise, 1 if something did, and 2 if the results cannot be compared.";

/// The seed of the draws: the same two results always compare in the same way.
const SEED: u64 = 1;
/// The machine is said to have another speed if the same computation takes so much more or less time.
const SPEED_TOLERANCE: f64 = 0.05;
/// Messages between processors vary more, …
const MESSAGE_TOLERANCE: f64 = 0.1;
/// … and the disk still more.
const DISK_TOLERANCE: f64 = 0.25;

/// Options of `lab compare`.
#[derive(Debug, Args)]
pub struct CompareOptions {
    /// The result before
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// The result after. Without it, halves of the first one's repetitions are compared with each other
    #[arg(value_name = "AFTER.json")]
    after: Option<PathBuf>,
    /// Only runs with this label; may be given several times
    #[arg(long, value_name = "LABEL=VALUE", value_parser = label)]
    only: Vec<(String, String)>,
    /// Write the comparison to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn label(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as contender=spate")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A comparison of two results.
#[derive(Debug, Clone, Serialize)]
pub struct ResultComparison {
    /// How the time of a fixed computation changed: 2 is a machine of half the speed. `None`: it was not measured.
    pub machine: Option<f64>,
    /// How that of fixed messages between processors did.
    pub messages: Option<f64>,
    /// How that of fixed writes to the disk did.
    pub disk: Option<f64>,
    /// Each metric that can become worse.
    pub metrics: Vec<MetricComparison>,
    /// Cells that only one of the results has.
    pub only_in_one: Vec<String>,
    /// Cells that fail more often than before, come to other rows, or do nothing any more.
    pub broken: Vec<String>,
    /// Which of the results are those of an interrupted run.
    pub incomplete: Vec<String>,
    /// Server, machine and options in which they differ.
    pub differences: Vec<String>,
}

/// A metric in two results.
#[derive(Debug, Clone, Serialize)]
pub struct MetricComparison {
    /// Its name.
    pub metric: String,
    /// Whether small or large values are good.
    pub better: Better,
    /// All cells together.
    pub overall: CellComparison,
    /// Each cell.
    pub cells: Vec<CellComparison>,
}

/// A cell, or all of them, in two results.
#[derive(Debug, Clone, Serialize)]
pub struct CellComparison {
    /// Its name.
    pub cell: String,
    /// The median before; `None` for all cells together.
    pub before: Option<f64>,
    /// The median after.
    pub after: Option<f64>,
    /// After divided by before.
    pub ratio: f64,
    /// The least ratio that the noise leaves possible.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// What it means.
    pub verdict: Verdict,
}

/// What a ratio means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It became worse by more than the noise.
    Worse,
    /// It became better by more than the noise.
    Better,
    /// It is within the noise.
    Same,
}

impl CompareOptions {
    /// Compares, and shows what came of it.
    ///
    /// # Errors
    /// [`Error::File`]. Results that cannot be read or compared are told, with the exit status 2.
    pub fn run(self) -> Result<ExitCode> {
        let not_comparable = |error: Error| {
            Screen::default().note(&format!("spate lab: {error}"));
            Ok(ExitCode::from(2))
        };
        let before = match ExperimentResult::read(&self.before) {
            Ok(before) => before,
            Err(error) => return not_comparable(error),
        };
        let Some(after) = &self.after else {
            return match self_check(&before, &self.only) {
                Ok(check) => check.show(self.json.as_deref()),
                Err(error) => not_comparable(error),
            };
        };
        let after = match ExperimentResult::read(after) {
            Ok(after) => after,
            Err(error) => return not_comparable(error),
        };
        let comparison = match compare(&before, &after, &self.only) {
            Ok(comparison) => comparison,
            Err(error) => return not_comparable(error),
        };
        let text = format!("{}\n{}", comparison.to_table(), comparison.summary());
        output::show(&text, &comparison, self.json.as_deref())?;
        Ok(if comparison.is_worse() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Compares two results of one experiment.
///
/// # Errors
/// [`Error::NotComparable`].
pub fn compare(
    before: &ExperimentResult,
    after: &ExperimentResult,
    only: &[(String, String)],
) -> Result<ResultComparison> {
    let not = |why: String| Error::NotComparable { why };
    let (first, second) = (&before.header, &after.header);
    if (&first.experiment, first.size, &first.server) != (&second.experiment, second.size, &second.server) {
        return Err(not(format!(
            "one is '{}' of size {} on {}, the other is '{}' of size {} on {}",
            first.experiment, first.size, first.server, second.experiment, second.size, second.server
        )));
    }
    let differences = differences(first, second);
    if let Some(load) = differences.iter().find(|line| line.is_load) {
        return Err(not(format!("their loads are not the same: {}", load.in_words())));
    }
    for (name, value) in only {
        if !before.runs.iter().any(|run| run.label(name) == value) {
            return Err(not(format!("no run has the label {name}={value}")));
        }
    }
    let yardstick = |result: &ExperimentResult, name: &str| median(&result::values(&result.runs, name));
    let changed = |name: &str| yardstick(before, name).zip(yardstick(after, name)).map(|(a, b)| b / a);
    let (machine, messages, disk) = (changed(CALIBRATION), changed(MESSAGE_CALIBRATION), changed(DISK_CALIBRATION));
    let speed = Speed::of(machine, messages, disk);
    let (cells_before, cells_after) = (values(before, only), values(after, only));
    let mut metrics = Vec::new();
    let names: BTreeSet<&String> = cells_before.keys().map(|(metric, _)| metric).collect();
    let judged: Vec<(&String, Better)> =
        names.into_iter().filter_map(|metric| Some((metric, better(metric)?))).collect();
    let count = judged.len();
    for (metric, good) in judged {
        let of_metric = cells_before.iter().filter(|((name, _), _)| name == metric);
        let (names, cells): (Vec<&String>, Vec<Cell>) = of_metric
            .filter_map(|(key, first)| {
                let second = cells_after.get(key)?;
                Some((&key.1, Cell { first: first.clone(), second: second.clone() }))
            })
            .unzip();
        let Some(comparison) = statistics::compare(&cells, count, SEED) else { continue };
        let middle = |side: &BTreeMap<u32, f64>| median(&side.values().copied().collect::<Vec<_>>());
        let told = |name: &str, cell: Option<&Cell>, ratio: &Ratio| {
            let ratio = speed.explains(metric, good, ratio);
            CellComparison {
                cell: name.to_owned(),
                before: cell.and_then(|cell| middle(&cell.first)),
                after: cell.and_then(|cell| middle(&cell.second)),
                ratio: ratio.ratio,
                least: ratio.least,
                most: ratio.most,
                verdict: verdict(good, &ratio),
            }
        };
        metrics.push(MetricComparison {
            metric: metric.clone(),
            better: good,
            overall: told("all cells", None, &comparison.overall),
            cells: names
                .iter()
                .zip(cells.iter().zip(&comparison.cells))
                .map(|(name, (cell, ratio))| told(name, Some(cell), ratio))
                .collect(),
        });
    }
    if metrics.is_empty() {
        let why = "no cell is in both with more than one repetition, and without repetitions nothing tells the noise; \
                   measure with --repetitions 5";
        return Err(not(why.to_owned()));
    }
    let measured = |result: &ExperimentResult| -> BTreeSet<String> {
        result.runs.iter().filter(|run| is_wanted(run, only)).map(Run::cell).collect()
    };
    let only_in_one = measured(before).symmetric_difference(&measured(after)).cloned().collect();
    let mut broken = broken(before, after, only);
    broken.extend(gone(&cells_before, &cells_after, after, only));
    let incomplete = [(before, "before"), (after, "after")].into_iter().filter(|(result, _)| !result.complete);
    let incomplete = incomplete.map(|(_, which)| which.to_owned()).collect();
    let differences = differences.iter().map(Difference::in_words).collect();
    Ok(ResultComparison { machine, messages, disk, metrics, only_in_one, broken, incomplete, differences })
}

/// How many times as long what is always the same took after as before, as far as that is more than chance.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Speed {
    machine: f64,
    messages: f64,
    disk: f64,
}

impl Speed {
    fn of(machine: Option<f64>, messages: Option<f64>, disk: Option<f64>) -> Speed {
        Speed {
            machine: beyond(machine, SPEED_TOLERANCE).unwrap_or(1.0),
            messages: beyond(messages, MESSAGE_TOLERANCE).unwrap_or(1.0),
            disk: beyond(disk, DISK_TOLERANCE).unwrap_or(1.0),
        }
    }

    /// A ratio with what the machine explains of it: how much memory is used does not depend on how fast that is, nor processor time on the disk.
    fn explains(self, metric: &str, good: Better, ratio: &Ratio) -> Ratio {
        let disk = if metric.ends_with("_cpu_seconds") { 1.0 } else { self.disk };
        let speeds = [self.machine, self.messages, disk];
        let (slower, faster) = (speeds.into_iter().fold(1.0, f64::max), speeds.into_iter().fold(1.0, f64::min));
        match good {
            _ if metric == "spate_peak_mib" => *ratio,
            Better::Lower => Ratio { least: ratio.least / slower, most: ratio.most / faster, ..*ratio },
            Better::Higher => Ratio { least: ratio.least * faster, most: ratio.most * slower, ..*ratio },
        }
    }
}

/// A change that is more than chance.
fn beyond(change: Option<f64>, tolerance: f64) -> Option<f64> {
    change.filter(|change| (change - 1.0).abs() > tolerance)
}

/// By metric and cell, what was measured in each repetition.
type Values = BTreeMap<(String, String), BTreeMap<u32, f64>>;

/// The cells in which there is nothing left of what was more before: no transaction a second, for example. Ratios do not tell that.
fn gone(before: &Values, after: &Values, result: &ExperimentResult, only: &[(String, String)]) -> Vec<String> {
    let measured: BTreeSet<String> =
        result.runs.iter().filter(|run| is_wanted(run, only) && run.measured.is_sound()).map(Run::cell).collect();
    let is_gone = |metric: &String, cell: &String| {
        better(metric) == Some(Better::Higher)
            && measured.contains(cell)
            && !after.contains_key(&(metric.clone(), cell.clone()))
    };
    let gone = before.keys().filter(|(metric, cell)| is_gone(metric, cell));
    gone.map(|(metric, cell)| format!("{cell}: no {metric} any more")).collect()
}

/// The cells of which a greater part of the runs is unsound than before.
fn broken(before: &ExperimentResult, after: &ExperimentResult, only: &[(String, String)]) -> Vec<String> {
    let unsound = |result: &ExperimentResult| {
        let mut cells: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for run in result.runs.iter().filter(|run| is_wanted(run, only)) {
            let (unsound, all) = cells.entry(run.cell()).or_default();
            *unsound += u64::from(!run.measured.is_sound());
            *all += 1;
        }
        cells
    };
    let (first, second) = (unsound(before), unsound(after));
    let is_worse = |cell: &String, (unsound, all): (u64, u64)| {
        first.get(cell).is_some_and(|(before, of)| unsound * of > before * all)
    };
    second.iter().filter(|(cell, counts)| is_worse(cell, **counts)).map(|(cell, _)| cell.clone()).collect()
}

fn is_wanted(run: &Run, only: &[(String, String)]) -> bool {
    only.iter().all(|(name, value)| run.label(name) == value)
}

fn values(result: &ExperimentResult, only: &[(String, String)]) -> Values {
    let mut values = Values::new();
    for run in result.runs.iter().filter(|run| is_wanted(run, only) && run.measured.is_sound()) {
        // Of a backlog, seconds and transactions a second are the same.
        let is_backlog = run.measured.metrics.contains_key("seconds");
        let is_told = |metric: &str, value: f64| value > 0.0 && !(is_backlog && metric == "transactions_per_second");
        for (metric, value) in run.measured.metrics.iter().filter(|(metric, value)| is_told(metric, **value)) {
            values.entry((metric.clone(), run.cell())).or_default().insert(run.repetition, *value);
        }
    }
    values
}

fn verdict(good: Better, ratio: &Ratio) -> Verdict {
    match (ratio.is_significant(), good, ratio.ratio > 1.0) {
        (false, ..) => Verdict::Same,
        (true, Better::Lower, true) | (true, Better::Higher, false) => Verdict::Worse,
        _ => Verdict::Better,
    }
}

impl MetricComparison {
    fn all(&self) -> impl Iterator<Item = &CellComparison> {
        std::iter::once(&self.overall).chain(&self.cells)
    }

    fn is_worse(&self) -> bool {
        self.all().any(|cell| cell.verdict == Verdict::Worse)
    }
}

impl ResultComparison {
    /// True if anything became worse by more than the noise, or fails.
    pub fn is_worse(&self) -> bool {
        !self.broken.is_empty() || self.metrics.iter().any(MetricComparison::is_worse)
    }

    fn all(&self) -> impl Iterator<Item = &CellComparison> {
        self.metrics.iter().flat_map(MetricComparison::all)
    }

    /// For people.
    pub fn to_table(&self) -> Table {
        let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        let row = |metric: &MetricComparison, cell: &CellComparison| {
            vec![
                metric.metric.clone(),
                cell.cell.clone(),
                number(cell.before),
                number(cell.after),
                format!("{:.3}", cell.ratio),
                format!("{:.3} to {:.3}", cell.least, cell.most),
                match cell.verdict {
                    Verdict::Worse => "WORSE".to_owned(),
                    Verdict::Better => "better".to_owned(),
                    Verdict::Same => "within the noise".to_owned(),
                },
            ]
        };
        let rows = self.metrics.iter().flat_map(|metric| {
            std::iter::once(&metric.overall).chain(&metric.cells).map(|cell| row(metric, cell)).collect::<Vec<_>>()
        });
        table(&["metric", "cell", "before", "after", "ratio", "possible", "verdict"], 2, rows.collect())
    }

    /// The verdict in some lines.
    pub fn summary(&self) -> String {
        let count = |verdict| self.all().filter(|cell| cell.verdict == verdict).count();
        let mut text = format!(
            "{} worse, {} better, {} within the noise",
            count(Verdict::Worse),
            count(Verdict::Better),
            count(Verdict::Same)
        );
        for (change, tolerance, what) in [
            (self.machine, SPEED_TOLERANCE, "The machine itself was not the same: a fixed computation"),
            (self.messages, MESSAGE_TOLERANCE, "The processors did not wake each other as fast: fixed messages"),
            (self.disk, DISK_TOLERANCE, "The disk was not the same: fixed writes"),
        ] {
            if let Some(change) = beyond(change, tolerance) {
                text += &format!(
                    "\n{what} took {change:.2} times as long after as before. What differs by as much at most is within the noise."
                );
            }
        }
        if !self.broken.is_empty() {
            text += &format!("\nWORSE: more runs fail, come to other rows, or do nothing: {}", self.broken.join("; "));
        }
        for difference in &self.differences {
            text += &format!("\nNot the same: {difference}");
        }
        for which in &self.incomplete {
            text += &format!("\nThe result {which} is that of an interrupted run.");
        }
        if !self.only_in_one.is_empty() {
            text += &format!("\nOnly in one of the results: {}", self.only_in_one.join("; "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;

    fn runs(slowdown: f64) -> ExperimentResult {
        let noise = [1.0, 1.02, 0.99, 1.01, 0.985];
        let spate: Vec<f64> = noise.iter().map(|noise| 2.0 * noise * slowdown).collect();
        let mut runs: Vec<(&str, &str, u32, f64)> = Vec::new();
        for (number, seconds) in spate.iter().enumerate() {
            runs.push(("cached", "spate", number as u32 + 1, *seconds));
            runs.push(("cached", "native:4", number as u32 + 1, 20.0 * noise[4 - number]));
        }
        result(&runs)
    }

    #[test]
    fn slower_cell_is_named() {
        let comparison = compare(&runs(1.0), &runs(1.1), &[]).unwrap();
        assert!(comparison.is_worse());
        let cells = &comparison.metrics[0].cells;
        let of = |contender: &str| cells.iter().find(|cell| cell.cell.contains(contender)).unwrap();
        assert_eq!((of("spate").verdict, of("native:4").verdict), (Verdict::Worse, Verdict::Same));
        assert!(comparison.to_table().to_string().contains("WORSE"));
    }

    #[test]
    fn faster_is_not_worse() {
        let comparison = compare(&runs(1.1), &runs(1.0), &[]).unwrap();
        assert!(!comparison.is_worse(), "{}", comparison.to_table());
    }

    #[test]
    fn cell_that_fails_is_worse() {
        let (before, mut after) = (runs(1.0), runs(1.0));
        after.runs[0].measured.failure = Some("it gave up".into());
        let comparison = compare(&before, &after, &[]).unwrap();
        assert!(comparison.is_worse() && comparison.summary().contains("WORSE: more runs fail"), "{comparison:?}");
        assert!(!compare(&after, &after, &[]).unwrap().is_worse());
        assert!(!compare(&after, &before, &[]).unwrap().is_worse());
        let mut after = runs(1.0);
        after.runs[1].measured.check_tables(&["a.b".to_owned()]);
        assert_eq!(compare(&before, &after, &[]).unwrap().broken.len(), 1);
    }

    #[test]
    fn only_cells_that_one_result_lacks_are_told() {
        let (before, mut after) = (runs(1.0), runs(1.0));
        // It is zero in the other, and one cell fails in both.
        after.runs.iter_mut().for_each(|run| run.measured.metric("conflicts_per_second", 1.0));
        let with_failure = |result: &ExperimentResult| {
            let mut result = result.clone();
            let native = result.runs.iter_mut().filter(|run| run.label("contender") == "native:4");
            native.for_each(|run| run.measured.failure = Some("it gave up".into()));
            result
        };
        let comparison = compare(&with_failure(&before), &with_failure(&after), &[]).unwrap();
        assert_eq!(comparison.only_in_one, Vec::<String>::new());
        after.runs.retain(|run| run.label("contender") == "spate");
        let comparison = compare(&before, &after, &[]).unwrap();
        assert!(
            matches!(&comparison.only_in_one[..], [cell] if cell.contains("native:4")),
            "{:?}",
            comparison.only_in_one
        );
    }

    #[test]
    fn contender_that_does_nothing_any_more_is_worse() {
        let with = |rate: f64| {
            let mut result = runs(1.0);
            for run in &mut result.runs {
                let of = if run.label("contender") == "spate" { rate } else { 1_000.0 };
                run.measured.metrics = [("transactions_per_second".to_owned(), of)].into();
            }
            result
        };
        let comparison = compare(&with(1_000.0), &with(0.0), &[]).unwrap();
        assert!(
            comparison.is_worse() && comparison.broken[0].contains("no transactions_per_second any more"),
            "{comparison:?}"
        );
        assert!(!compare(&with(1_000.0), &with(1_000.0), &[]).unwrap().is_worse());
        let mut after = with(1_000.0);
        after.complete = false;
        let summary = compare(&with(1_000.0), &after, &[]).unwrap().summary();
        assert!(summary.contains("The result after is that of an interrupted run"), "{summary}");
    }

    #[test]
    fn labels_choose_what_is_compared() {
        let only = [("contender".to_owned(), "native:4".to_owned())];
        let comparison = compare(&runs(1.0), &runs(2.0), &only).unwrap();
        assert!(!comparison.is_worse());
        let unknown = [("contender".to_owned(), "typo".to_owned())];
        let message = compare(&runs(1.0), &runs(2.0), &unknown).unwrap_err().to_string();
        assert!(message.contains("contender=typo"), "{message}");
    }

    #[test]
    fn machine_of_another_speed_is_told() {
        let (mut before, mut after) = (runs(1.0), runs(1.0));
        before.runs.iter_mut().for_each(|run| run.measured.metric(CALIBRATION, 20.0));
        after.runs.iter_mut().for_each(|run| run.measured.metric(CALIBRATION, 50.0));
        before.runs.iter_mut().for_each(|run| run.measured.metric(DISK_CALIBRATION, 10.0));
        after.runs.iter_mut().for_each(|run| run.measured.metric(DISK_CALIBRATION, 30.0));
        before.runs.iter_mut().for_each(|run| run.measured.metric(MESSAGE_CALIBRATION, 80.0));
        after.runs.iter_mut().for_each(|run| run.measured.metric(MESSAGE_CALIBRATION, 100.0));
        let summary = compare(&before, &after, &[]).unwrap().summary();
        assert!(summary.contains("fixed messages took 1.25 times"), "{summary}");
        assert!(
            summary.contains("2.50 times as long") && summary.contains("fixed writes took 3.00 times"),
            "{summary}"
        );
    }

    #[test]
    fn what_a_slower_machine_explains_is_not_worse() {
        let at = |slowdown: f64, machine: f64| {
            let mut result = runs(slowdown);
            result.runs.iter_mut().for_each(|run| run.measured.metric(CALIBRATION, machine));
            result
        };
        assert!(compare(&at(1.0, 20.0), &at(1.2, 20.0), &[]).unwrap().is_worse());
        assert!(!compare(&at(1.0, 20.0), &at(1.2, 25.0), &[]).unwrap().is_worse());
        assert!(compare(&at(1.0, 20.0), &at(1.6, 25.0), &[]).unwrap().is_worse());
        assert!(!compare(&at(1.2, 25.0), &at(1.0, 20.0), &[]).unwrap().is_worse());
        let ratio = Ratio { ratio: 1.2, least: 1.1, most: 1.3 };
        let slow_messages = Speed::of(Some(1.01), Some(1.5), None);
        for metric in ["seconds", "spate_cpu_seconds"] {
            assert!(!slow_messages.explains(metric, Better::Lower, &ratio).is_significant());
        }
        let slow_disk = Speed::of(Some(1.01), Some(1.09), Some(1.5));
        assert!(!slow_disk.explains("seconds", Better::Lower, &ratio).is_significant());
        assert_eq!(slow_disk.explains("spate_cpu_seconds", Better::Lower, &ratio), ratio);
        assert_eq!(slow_disk.explains("spate_peak_mib", Better::Lower, &ratio), ratio);
    }

    #[test]
    fn other_loads_are_not_compared_and_other_options_are_told() {
        let with = |facts: [&str; 2]| {
            let mut result = runs(1.0);
            result.header.settings = [("cached".to_owned(), facts.map(str::to_owned).to_vec())].into();
            result
        };
        let before = with(["data: 10 rows", "source: --sync-binlog=0"]);
        let message =
            compare(&before, &with(["data: 20 rows", "source: --sync-binlog=0"]), &[]).unwrap_err().to_string();
        assert!(message.contains("cached, data: '10 rows' before, '20 rows' after"), "{message}");
        let told = compare(&before, &with(["data: 10 rows", "source: --sync-binlog=1"]), &[]).unwrap().summary();
        assert!(told.contains("Not the same: cached, source: '--sync-binlog=0' before"), "{told}");
        let told = compare(&before, &with(["native:4: SET x", "data: 10 rows"]), &[]).unwrap().summary();
        assert!(
            told.contains("native:4: 'nothing' before, 'SET x' after") && !told.contains("10 rows"),
            "in another order: {told}"
        );
    }

    #[test]
    fn what_cannot_be_read_is_not_worse() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("a.json");
        output::write_json(&runs(1.0), &there).unwrap();
        let missing = directory.path().join("b.json");
        for (before, after) in [(&missing, Some(&there)), (&there, Some(&missing)), (&missing, None)] {
            let options =
                CompareOptions { before: before.clone(), after: after.cloned(), only: Vec::new(), json: None };
            assert_eq!(format!("{:?}", options.run().unwrap()), format!("{:?}", ExitCode::from(2)));
        }
        let options = CompareOptions { before: there.clone(), after: Some(there), only: Vec::new(), json: None };
        assert_eq!(format!("{:?}", options.run().unwrap()), format!("{:?}", ExitCode::SUCCESS));
    }

    #[test]
    fn different_experiments_are_not_compared() {
        let mut other = runs(1.0);
        other.header.server = "mysql-9.7".into();
        let message = compare(&runs(1.0), &other, &[]).unwrap_err().to_string();
        assert!(message.contains("mariadb-10.11") && message.contains("mysql-9.7"), "{message}");
        let once = result(&[("cached", "spate", 1, 2.0)]);
        let message = compare(&once, &once, &[]).unwrap_err().to_string();
        assert!(message.contains("--repetitions"), "{message}");
    }
}

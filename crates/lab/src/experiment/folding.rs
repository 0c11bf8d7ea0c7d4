//! How net row changes, the size of batches and the time to catch up relate, over the skew of keys and the length of the backlog; and what `spate analyze` says
//! of it from the binlogs alone.

use std::path::Path;

use super::blocks::{Block, Graph};
use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::on_course::{OnCourse, limit};
use super::plan::{Compared, Setting, Size, labels};
use super::result::{ExperimentResult, Labels, Measured};
use super::selection::Selection;
use crate::backlog::BacklogPlan;
use crate::course::{Conditions, Course};
use crate::workload::{Shape, Workload};
use crate::{Result, spate_program};
use spate_page::Scale;

pub(super) const ABOUT: &str = "Transactions that change three rows, as sysbench's oltp_write_only does, with keys that are drawn evenly and by Zipf's law with several exponents, for backlogs of several lengths. \
    Spate applies each with batches of different limits. Measured are the row changes that folding leaves, and how long it takes; beside them is what spate analyze \
    says of the same binlogs: the number of different rows in batches of that size (without a limit, in one batch: it says nothing where memory made several of it).";

/// The limit that lets a batch take everything there is, within Spate's memory.
const EVERYTHING: u64 = 0;

/// The exponents of Zipf's law, in hundredths, by their names.
fn all_keys(size: Size) -> Vec<(String, u32)> {
    let name = |hundredths: u32| match hundredths {
        0 => "uniform".to_owned(),
        _ => format!("zipf {:.1}", f64::from(hundredths) / 100.0),
    };
    let exponents: &[u32] = size.of(&[0, 100], &[0, 70, 80, 90, 100, 110, 120], &[0, 70, 80, 90, 100, 110, 120]);
    exponents.iter().map(|hundredths| (name(*hundredths), *hundredths)).collect()
}

/// Transactions of the backlogs.
fn backlogs(size: Size) -> &'static [u64] {
    // A tiny run takes a second: shorter ones vary too much to be compared.
    size.of(&[20_000], &[10_000, 100_000], &[10_000, 100_000, 1_000_000, 10_000_000])
}

fn limits(size: Size) -> &'static [u64] {
    size.of(&[100, EVERYTHING], &[10, 100, 1_000, 10_000, EVERYTHING], &[10, 100, 1_000, 10_000, 100_000, EVERYTHING])
}

fn shape(size: Size, skew_hundredths: u32) -> Shape {
    let (rows, pool) = size.of((5_000, 64), (50_000, 1_024), (1_000_000, 8_192));
    Shape::new(Workload::Skewed, None, Some(rows), Some(pool)).with_skew(skew_hundredths)
}

fn setting_name(keys: &str, transactions: u64) -> String {
    format!("{keys}, {transactions} transactions")
}

pub(super) struct Folding;

impl Experiment for Folding {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let size = bench.size;
        let mut settings = Vec::new();
        for (name, keys) in all_keys(size) {
            for &transactions in backlogs(size) {
                let cells: Vec<Labels> = limits(size)
                    .iter()
                    .map(|limit| {
                        labels([
                            ("keys", name.clone()),
                            ("backlog", transactions.to_string()),
                            ("batch", if *limit == EVERYTHING { "all".to_owned() } else { limit.to_string() }),
                        ])
                    })
                    .collect();
                let shape = shape(size, keys);
                let load = format!("{transactions} transactions of three changes, keys {name}");
                settings.push(Setting {
                    name: setting_name(&name, transactions),
                    disk_bytes: 3 * shape.server_bytes() + transactions * 6_000,
                    facts: facts::of(bench.binaries.vendor(), &shape, &load, &cells),
                    cells,
                });
            }
        }
        settings
    }

    fn compared(&self) -> Compared {
        Compared::Settings
    }

    fn open<'a>(&self, bench: Bench<'a>, setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        let size = bench.size;
        let of_setting = |(name, keys): (String, u32)| {
            let transactions = backlogs(size).iter().find(|count| setting_name(&name, **count) == setting.name)?;
            Some((keys, *transactions))
        };
        let found = all_keys(size).into_iter().find_map(of_setting);
        let (keys, transactions) = found.ok_or_else(|| setting.unknown())?;
        let plan = BacklogPlan::of_transactions(shape(size, keys), transactions);
        let course = Course::prepare(bench.home, bench.binaries, &plan, directory, bench.screen)?;
        let predicted = predict(&course)?;
        let limit = limit(size);
        let inner =
            OnCourse::new(course, move |_| Conditions::usual(limit)).with_contenders(|cell| {
                match cell["batch"].as_str() {
                    "all" => "spate".to_owned(),
                    limit => format!("spate:batch-transactions={limit}"),
                }
            });
        Ok(Box::new(Predicted { inner, predicted }))
    }
}

/// By the limit of a batch, the row changes that `analyze` says are left.
type Prediction = Vec<(u64, f64)>;

fn predict(course: &Course<'_>) -> Result<Prediction> {
    let analysis = spate_program::analyze(&course.backlog.source.data_directory())?;
    let folded = analysis["folded"].as_array().into_iter().flatten();
    Ok(folded.filter_map(|size| Some((size["batch_transactions"].as_u64()?, size["net_rows"].as_f64()?))).collect())
}

struct Predicted<'a> {
    inner: OnCourse<'a>,
    predicted: Prediction,
}

impl Stage for Predicted<'_> {
    fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
        let mut measured = self.inner.measure(cell, directory)?;
        let limit = cell["batch"].parse().unwrap_or(EVERYTHING);
        if let Some((_, rows)) = self.predicted.iter().find(|(size, _)| *size == limit) {
            measured.metric(PREDICTED, *rows);
        }
        Ok(measured)
    }
}

pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let all = Selection::of(result);
    let mut blocks = Vec::new();
    for backlog in all.values_of("backlog") {
        let runs = all.with("backlog", backlog);
        let mut rows = Vec::new();
        for keys in runs.values_of("keys") {
            for batch in runs.values_of("batch") {
                let own = runs.with("keys", keys).with("batch", batch);
                let whole = |value: f64| format!("{value:.0}");
                rows.push(vec![
                    keys.to_owned(),
                    batch.to_owned(),
                    own.shown("backlog_row_changes", whole),
                    own.shown("spate_net_row_changes", whole),
                    if is_predicted(batch, &own) { own.shown(PREDICTED, whole) } else { "–".to_owned() },
                    own.shown("spate_batches", whole),
                    own.shown("seconds", |seconds| format!("{seconds:.2}")),
                    own.shown("transactions_per_second", whole),
                ]);
            }
        }
        let title = format!("A backlog of {backlog} transactions");
        let header =
            ["keys", "batch of at most", "row changes", "net", "predicted", "batches", "seconds", "transactions/s"];
        blocks.push(Block::table(&title, &header, rows));
        for (what, metric, per_change) in
            [("net row changes, in % of all", "spate_net_row_changes", true), ("seconds", "seconds", false)]
        {
            let line = |keys: &str, metric: &str| -> Vec<(f64, f64)> {
                let own = runs.with("keys", keys);
                let points = own.values_of("batch").into_iter().filter_map(|batch| {
                    let cell = own.with("batch", batch);
                    let value = cell.median(metric).filter(|_| metric != PREDICTED || is_predicted(batch, &cell))?;
                    let value = if per_change { 100.0 * value / cell.median("backlog_row_changes")? } else { value };
                    Some((batch_size(backlog, batch, &cell)?, value))
                });
                points.collect()
            };
            let mut lines: Vec<(String, Vec<(f64, f64)>)> =
                runs.values_of("keys").into_iter().map(|keys| (keys.to_owned(), line(keys, metric))).collect();
            if per_change {
                let predicted = runs.values_of("keys").into_iter();
                lines.extend(predicted.map(|keys| (format!("{keys}, predicted"), line(keys, PREDICTED))));
            }
            blocks.push(Block::Graph(Graph {
                title: format!("{title}: {what}"),
                across: "transactions of a batch, at most".to_owned(),
                up: what.to_owned(),
                across_scale: Scale::Decades,
                lines,
                ..Graph::default()
            }));
        }
    }
    blocks.extend(over_backlogs(&all));
    blocks
}

/// What `spate analyze` says is left.
const PREDICTED: &str = "predicted_net_row_changes";

/// Without a limit, the prediction is of one batch with everything: it says nothing of several, which is what memory may make of it.
fn is_predicted(batch: &str, cell: &Selection<'_>) -> bool {
    batch != "all" || cell.median("spate_batches").is_some_and(|batches| batches <= 1.0)
}

/// Transactions of a batch: its limit, or, of batches without one, what memory left of the backlog.
fn batch_size(backlog: &str, batch: &str, cell: &Selection<'_>) -> Option<f64> {
    if let Ok(limit) = batch.parse() {
        return Some(limit);
    }
    Some(backlog.parse::<f64>().ok()? / cell.median("spate_batches").unwrap_or(1.0).max(1.0))
}

/// How long a replica takes that was away for a longer or a shorter time, and what is left of its backlog, in batches as large as memory allows.
fn over_backlogs(all: &Selection<'_>) -> Vec<Block> {
    let backlogs = all.values_of("backlog");
    if backlogs.len() < 2 {
        return Vec::new();
    }
    let graph = |what: &str, value: fn(&Selection<'_>) -> Option<f64>| {
        let line = |keys: &str| {
            let own = all.with("keys", keys).with("batch", "all");
            let points = backlogs
                .iter()
                .filter_map(|backlog| Some((backlog.parse().ok()?, value(&own.with("backlog", backlog))?)));
            (keys.to_owned(), points.collect())
        };
        Block::Graph(Graph {
            title: format!("Over the backlog, in batches as large as memory allows: {what}"),
            across: "transactions of the backlog".to_owned(),
            up: what.to_owned(),
            across_scale: Scale::Decades,
            lines: all.values_of("keys").into_iter().map(line).collect(),
            ..Graph::default()
        })
    };
    vec![
        graph("net row changes, in % of all", |cell| {
            Some(100.0 * cell.median("spate_net_row_changes")? / cell.median("backlog_row_changes")?)
        }),
        graph("seconds to catch up (the lag of a replica that was away)", |cell| cell.median("seconds")),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::result::Run;
    use super::super::result::tests::result;
    use super::*;

    fn run(keys: &str, backlog: &str, batch: &str, net: f64, batches: f64) -> Run {
        let mut run = result(&[(&setting_name(keys, backlog.parse().unwrap()), "", 1, 2.0)]).runs.remove(0);
        run.labels = labels([("keys", keys.to_owned()), ("backlog", backlog.to_owned()), ("batch", batch.to_owned())]);
        for (metric, value) in [
            ("backlog_row_changes", 1_000.0),
            ("spate_net_row_changes", net),
            ("predicted_net_row_changes", net / 2.0),
            ("spate_batches", batches),
        ] {
            run.measured.metric(metric, value);
        }
        run
    }

    #[test]
    fn curves_are_over_batches_and_backlogs() {
        let mut all = result(&[]);
        all.runs = vec![
            run("uniform", "1000", "10", 900.0, 100.0),
            run("uniform", "1000", "all", 500.0, 4.0),
            run("uniform", "10000", "all", 100.0, 1.0),
        ];
        let blocks = blocks(&all);
        let graphs: Vec<&Graph> = blocks
            .iter()
            .filter_map(|block| match block {
                Block::Graph(graph) => Some(graph),
                _ => None,
            })
            .collect();
        // Batches without a limit are drawn at the size that they had.
        assert_eq!(graphs[0].lines[0], ("uniform".to_owned(), vec![(10.0, 90.0), (250.0, 50.0)]));
        assert_eq!(
            graphs[0].lines[1],
            ("uniform, predicted".to_owned(), vec![(10.0, 45.0)]),
            "four batches were not predicted"
        );
        let over = graphs.iter().find(|graph| graph.title.starts_with("Over the backlog")).unwrap();
        assert_eq!(over.lines[0].1, [(1_000.0, 50.0), (10_000.0, 10.0)]);
    }
}

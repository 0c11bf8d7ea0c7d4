//! Tungsten's benchmark of parallel replication: 30 schemas that share nothing, 30 channels, cached and bound by the disk.

use std::path::{Path, PathBuf};

use super::blocks::{Block, Graph};
use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::on_course::{OnCourse, SINGLE, limit};
use super::plan::{Setting, Size, labels};
use super::result::{ExperimentResult, Labels, Run};
use super::selection::Selection;
use crate::backlog::BacklogPlan;
use crate::course::{BufferPool, Conditions, Course};
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};
use crate::{Error, Result};

pub(super) const ABOUT: &str = "A replica was away while sysbench wrote to 30 schemas that share nothing: transactions of 14 selects (10 by key, 4 ranges), 4 updates of an \
    indexed column and 2 of another. Measured is how long it takes to apply what it has received, with full durability, in memory (cached) and with a buffer pool \
    for a tenth of the rows, which is empty at first (I/O-bound). All rows are equally likely. Native: one applier, four, and one for each schema in the servers' default mode and in one that \
    waits less for others. Spate: batches (snapshot), \
    appliers that do not wait for each other (shard), with and without rules that give each schema to an applier, one applier for each schema, and one transaction for one.";

/// Seconds over which the binlog that was processed is summed up: ten, as Tungsten's graph did, where a run takes minutes.
fn window_seconds(size: Size) -> f64 {
    size.of(1.0, 1.0, 10.0)
}

fn shapes(size: Size) -> [(&'static str, Shape); 2] {
    let (schemas, rows) = size.of((6, 10_000), (30, 60_000), (30, 1_000_000));
    let shape = |pool| Shape::new(Workload::Shards, None, Some(rows), Some(pool)).with_schemas(schemas);
    let rows_mib = shape(0).rows_bytes() >> 20;
    let (cached, io) = (2 * rows_mib + 128, (rows_mib / 10).max(8));
    [("cached", shape(cached)), ("I/O-bound", shape(io))]
}

fn contenders(size: Size, vendor: Vendor) -> Vec<String> {
    let channels = size.of(6, 30, 30);
    let native = match vendor {
        Vendor::MariaDb => vec![
            "native:0".to_owned(),
            "native:4:optimistic".to_owned(),
            format!("native:{channels}:optimistic"),
            format!("native:{channels}:aggressive"),
        ],
        Vendor::MySql => vec![
            "native:1:order".to_owned(),
            "native:4:order".to_owned(),
            format!("native:{channels}:order"),
            format!("native:{channels}:free"),
        ],
    };
    let one_each = format!("spate:consistency=shard,parallel-by=shard,appliers={channels} + rules");
    let spate = [
        "spate",
        "spate:consistency=shard,appliers=4",
        "spate:consistency=shard,parallel-by=shard,appliers=4",
        "spate:consistency=shard,parallel-by=shard,appliers=4 + rules",
        &one_each,
        "spate:consistency=transaction,appliers=16,commit-order=free",
    ];
    native.into_iter().chain(spate.map(str::to_owned)).collect()
}

pub(super) struct Shards;

impl Experiment for Shards {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let contenders = contenders(bench.size, bench.binaries.vendor());
        let cells: Vec<Labels> =
            contenders.iter().map(|contender| labels([("contender", contender.clone())])).collect();
        let load = "sysbench's oltp_read_write with 14 selects, 4 updates of an indexed column and 2 of another, all rows equally often";
        let setting = |(name, shape): (&str, Shape)| Setting {
            name: name.to_owned(),
            facts: facts::of(bench.binaries.vendor(), &shape, load, &cells),
            cells: cells.clone(),
            disk_bytes: 3 * shape.server_bytes() + bench.size.of(1 << 28, 4 << 30, 100 << 30),
        };
        shapes(bench.size).map(setting).into()
    }

    fn open<'a>(&self, bench: Bench<'a>, setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        let size = bench.size;
        let [cached, io] = shapes(size);
        let (_, shape) =
            [cached, io].into_iter().find(|(name, _)| *name == setting.name).ok_or_else(|| setting.unknown())?;
        let plan = BacklogPlan::of_transactions(shape, size.of(2_500, 40_000, 3_600_000));
        let course = Course::prepare(bench.home, bench.binaries, &plan, directory, bench.screen)?;
        for cell in &setting.cells {
            if let Some((_, appliers)) = with_rules(cell) {
                write_rules(&shape, appliers, &rules_in(directory, appliers))?;
            }
        }
        let directory = directory.to_owned();
        let limit = limit(size);
        let buffer_pool = if setting.name == io.0 { BufferPool::Empty } else { BufferPool::AsItWas };
        let stage = OnCourse::new(course, move |_| Conditions { buffer_pool, ..Conditions::usual(limit) });
        Ok(Box::new(stage.with_contenders(move |cell| contender(cell, &directory))))
    }
}

/// The program's options of a contender with rules, and its number of appliers.
fn with_rules(cell: &Labels) -> Option<(&str, usize)> {
    let options = cell.get("contender")?.strip_suffix(" + rules")?;
    let (_, appliers) = options.rsplit_once("appliers=")?;
    Some((options, appliers.parse().ok()?))
}

fn rules_in(directory: &Path, appliers: usize) -> PathBuf {
    directory.join(format!("rules-{appliers}.toml"))
}

/// Each schema goes to one applier, one after the other.
fn write_rules(shape: &Shape, appliers: usize, path: &PathBuf) -> Result<()> {
    let mut text = "unknown = \"schema\"\n".to_owned();
    for (number, schema) in shape.schema_names().iter().enumerate() {
        text += &format!("\n[[rule]]\ntables = [\"{schema}.*\"]\nto = {}\n", 1 + number % appliers);
    }
    std::fs::write(path, text).map_err(Error::file("write", path))
}

fn contender(cell: &Labels, directory: &Path) -> String {
    match with_rules(cell) {
        Some((options, appliers)) => format!("{options},rules={}", rules_in(directory, appliers).display()),
        None => cell.get("contender").cloned().unwrap_or_else(|| "spate".to_owned()),
    }
}

pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let mut blocks = vec![Block::Text(
        "Binlog that was processed is counted as applied transactions times their mean size; a batch counts when it commits.".to_owned(),
    )];
    for setting in result.settings() {
        let runs = Selection::of(result).in_setting(setting);
        let single = SINGLE.iter().find_map(|name| runs.with("contender", name).median("seconds"));
        let rows = runs.values_of("contender").into_iter().map(|contender| {
            let own = runs.with("contender", contender);
            let ratio = single.zip(own.median("seconds"));
            vec![
                contender.to_owned(),
                own.shown("seconds", |seconds| format!("{seconds:.1}")),
                own.shown("seconds", |seconds| format!("{:.2}", seconds / 60.0)),
                ratio.map_or_else(|| "–".to_owned(), |(single, seconds)| format!("{:.2}", single / seconds)),
                own.shown("transactions_per_second", |rate| format!("{rate:.0}")),
                own.shown("replica_cpu_seconds", |seconds| format!("{seconds:.1}")),
            ]
        });
        let header = ["contender", "seconds", "minutes", "× one native applier", "transactions/s", "replica CPU s"];
        blocks.push(Block::table(setting, &header, rows.collect()));
        let sorted = runs.sorted_by("contender");
        let firsts = || sorted.runs().iter().filter(|run| run.repetition == 1);
        let over_time = |what: &str, up: &str, lines| {
            let (title, across) = (format!("{setting}: {what}"), "seconds".to_owned());
            Block::Graph(Graph { title, across, up: up.to_owned(), lines, ..Graph::default() })
        };
        let window = window_seconds(result.header.size);
        let binlog = format!("MB of binlog processed in {window} s");
        blocks.push(over_time(&binlog, "MB", firsts().map(|run| binlog_over_time(run, window)).collect()));
        blocks.push(over_time("the buffer pool", "MB", firsts().map(|run| buffer_pool_over_time(run)).collect()));
    }
    blocks
}

/// A named line of a graph.
type Line = (String, Vec<(f64, f64)>);

/// Applied transactions as bytes, in each window: in this load all have about the same size.
fn binlog_over_time(run: &Run, window: f64) -> Line {
    let metric = |name: &str| run.measured.metrics.get(name).copied().unwrap_or_default();
    let transaction_mb = metric("backlog_mb") / metric("backlog_transactions").max(1.0);
    let (contender, rates) = line(run, "replica applied", transaction_mb);
    (contender, in_windows(&rates, window))
}

/// Of rates since the point before, how much came in each window; behind the last point nothing comes.
fn in_windows(rates: &[(f64, f64)], window: f64) -> Vec<(f64, f64)> {
    let mut windows: Vec<f64> = Vec::new();
    let mut from = 0.0;
    for &(until, rate) in rates {
        while from < until {
            let number = (from / window) as usize;
            windows.resize(windows.len().max(number + 1), 0.0);
            let end = until.min((number + 1) as f64 * window);
            windows[number] += rate * (end - from);
            from = end;
        }
    }
    windows.into_iter().enumerate().map(|(number, sum)| ((number + 1) as f64 * window, sum)).collect()
}

fn buffer_pool_over_time(run: &Run) -> Line {
    /// A thousand pages.
    const MB: f64 = 16.384;
    line(run, "replica buffer pool filled", MB)
}

/// A series of a run, with all values times `factor`.
fn line(run: &Run, series: &str, factor: f64) -> Line {
    let found = run.measured.series.iter().find(|one| one.name == series);
    let points = found.into_iter().flat_map(|series| &series.points);
    (run.label("contender").to_owned(), points.map(|&(at, value)| (at, value * factor)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_all_that_came() {
        let rates = [(1.0, 5.0), (2.5, 4.0), (25.0, 2.0)];
        let windows = in_windows(&rates, 10.0);
        assert_eq!(windows, [(10.0, 5.0 + 6.0 + 15.0), (20.0, 20.0), (30.0, 10.0)]);
        assert_eq!(in_windows(&[(0.3, 10.0)], 10.0), [(10.0, 3.0)]);
        assert!(in_windows(&[], 10.0).is_empty());
    }
}

//! The lag of each contender under a steady load, for rising rates: where each begins to fall behind.

use std::path::Path;

use super::blocks::{Block, Graph};
use super::driver::{Bench, Experiment, Stage};
use super::plan::{Setting, Size, labels};
use super::result::{ExperimentResult, Labels, Measured};
use super::selection::Selection;
use crate::contender::Contender;
use crate::follower::{LivePlan, LiveResult};
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};
use crate::{Result, steady};
use spate_page::Scale;

pub(super) const ABOUT: &str = "A source takes so many transactions a second (sysbench's oltp_write_only), and a replica follows; both are durable. The lag is the time from the commit on the \
    source to the first look at the replica that shows the row, for 50 rows a second. The knee of a contender is the highest rate at which its lag stays below a second in 99 of 100 cases.";

/// A contender follows if 99 of 100 beats are no later.
const FOLLOWS_MS: f64 = 1_000.0;

fn rates(size: Size) -> &'static [u64] {
    size.of(
        &[200, 2_000],
        &[250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000],
        &[250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000],
    )
}

fn plan(size: Size, rate: u64) -> LivePlan {
    let rows = size.of(2_000, 50_000, 1_000_000);
    let shape = Shape::new(Workload::Cached, None, Some(rows), Some(size.of(64, 512, 4_096)));
    LivePlan { shape, rate, warm_up_seconds: size.of(1, 3, 60), seconds: size.of(4, 20, 600) }
}

fn contenders(vendor: Vendor) -> [&'static str; 4] {
    match vendor {
        Vendor::MariaDb => ["native:0", "native:4:optimistic", "native:16:optimistic", "spate"],
        Vendor::MySql => ["native:1:order", "native:4:order", "native:16:order", "spate"],
    }
}

pub(super) struct LagExperiment;

impl Experiment for LagExperiment {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let mut cells = Vec::new();
        for rate in rates(bench.size) {
            for contender in contenders(bench.binaries.vendor()) {
                cells.push(labels([("contender", contender.to_owned()), ("rate", rate.to_string())]));
            }
        }
        let shape = plan(bench.size, 1).shape;
        let disk_bytes = 3 * shape.server_bytes() + bench.size.of(1 << 28, 2 << 30, 50 << 30);
        vec![Setting { name: "steady load".to_owned(), cells, disk_bytes }]
    }

    fn open<'a>(&self, bench: Bench<'a>, _setting: &Setting, _directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        Ok(Box::new(Steady { bench }))
    }
}

struct Steady<'a> {
    bench: Bench<'a>,
}

impl Stage for Steady<'_> {
    fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
        let Bench { home, binaries, size, screen } = self.bench;
        let contender: Contender = cell["contender"].parse()?;
        let plan = plan(size, cell["rate"].parse().unwrap_or(1));
        steady::measure(home, binaries, &contender, &plan, directory, &screen).map(measured)
    }
}

fn measured(result: LiveResult) -> Measured {
    let mut measured = Measured { series: result.series, ..Measured::default() };
    let lag = result.lag.commit_to_visible_ms;
    for (name, value) in [
        ("lag_p50_ms", Some(lag.p50)),
        ("lag_p90_ms", Some(lag.p90)),
        ("lag_p99_ms", Some(lag.p99)),
        ("lag_max_ms", Some(lag.max)),
        ("source_transactions_per_second", Some(result.achieved_rate)),
        ("replica_cpu_cores", Some(result.server_cpu_cores)),
        ("source_cpu_cores", Some(result.source_cpu_cores)),
        ("spate_cpu_cores", result.spate_cpu_cores),
    ] {
        if let Some(value) = value {
            measured.metric(name, value);
        }
    }
    measured.check_tables(&result.different_tables);
    measured
}

pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let runs = Selection::of(result);
    let contenders = runs.values_of("contender");
    let mut blocks = Vec::new();
    let knees = contenders.iter().map(|contender| {
        let own = runs.with("contender", contender);
        vec![(*contender).to_owned(), knee(&own).map_or_else(|| "none of them".to_owned(), |rate| rate.to_string())]
    });
    blocks.push(Block::table("The highest rate that each follows", &["contender", "transactions/s"], knees.collect()));
    let mut rows = Vec::new();
    for rate in runs.values_of("rate") {
        for contender in &contenders {
            let own = runs.with("rate", rate).with("contender", contender);
            let milliseconds = |value: f64| format!("{value:.1}");
            rows.push(vec![
                rate.to_owned(),
                (*contender).to_owned(),
                own.shown("source_transactions_per_second", |rate| format!("{rate:.0}")),
                own.shown("lag_p50_ms", milliseconds),
                own.shown("lag_p90_ms", milliseconds),
                own.shown("lag_p99_ms", milliseconds),
                own.shown("lag_max_ms", milliseconds),
                own.shown("replica_cpu_cores", |cores| format!("{cores:.2}")),
            ]);
        }
    }
    let header = ["offered /s", "contender", "committed /s", "p50 ms", "p90 ms", "p99 ms", "max ms", "replica cores"];
    blocks.push(Block::table("Lag", &header, rows));
    for (metric, what) in [("lag_p50_ms", "half of the beats"), ("lag_p99_ms", "99 of 100 beats")] {
        let line = |contender: &&str| {
            let own = runs.with("contender", contender);
            let points = own
                .values_of("rate")
                .into_iter()
                .filter_map(|rate| Some((rate.parse().ok()?, own.with("rate", rate).median(metric)?)));
            ((*contender).to_owned(), points.collect())
        };
        blocks.push(Block::Graph(Graph {
            title: format!("Lag of {what} over the offered load"),
            across: "transactions a second".to_owned(),
            up: "ms".to_owned(),
            up_scale: Scale::Decades,
            lines: contenders.iter().map(line).collect(),
            ..Graph::default()
        }));
    }
    blocks
}

/// The highest rate up to which it follows at every rate.
fn knee(own: &Selection<'_>) -> Option<u64> {
    let follows = |rate: &&str| own.with("rate", rate).median("lag_p99_ms").is_some_and(|lag| lag <= FOLLOWS_MS);
    own.values_of("rate").into_iter().take_while(follows).last()?.parse().ok()
}

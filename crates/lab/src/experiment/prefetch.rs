//! Replication Booster's claim: rows are updated by their primary key faster than the replica's applier finds them on its disk; a program that reads
//! ahead of it in the relay log lets it catch up.

use std::path::Path;
use std::time::Duration;

use super::blocks::{Block, Graph};
use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::on_course::{OnCourse, limit};
use super::plan::{Setting, Size, labels};
use super::result::{ExperimentResult, Labels};
use super::selection::Selection;
use super::statistics::{failed, outcome};
use crate::Result;
use crate::backlog::BacklogPlan;
use crate::course::{Conditions, Course};
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};

pub(super) const ABOUT: &str = "A source updates single rows by their primary keys, all equally often; the replica's buffer pool holds a small part of them. Measured is how long the \
    replica takes to apply what it has received, durable, by its own replication, with spate prefetch reading ahead of it, and by Spate. The setting with a \
    slow disk lets each read that a thread of the server waits for take half a millisecond longer (by strace), as a disk does that serves many reads at a time.";

/// What a slow disk adds to each read.
const READ_LATENCY: Duration = Duration::from_micros(500);
const AS_IT_IS: &str = "disk as it is";
const SLOW: &str = "slow disk";

fn shape(size: Size) -> Shape {
    let (rows, pool) = size.of((30_000, 24), (400_000, 64), (10_000_000, 1_024));
    Shape::new(Workload::Updates, None, Some(rows), Some(pool))
}

fn contenders(vendor: Vendor) -> Vec<&'static str> {
    match vendor {
        Vendor::MariaDb => {
            vec!["native:0", "native:0+prefetch", "native:8:optimistic", "native:8:optimistic+prefetch", "spate"]
        }
        Vendor::MySql => {
            vec!["native:1:order", "native:1:order+prefetch", "native:8:order", "native:8:order+prefetch", "spate"]
        }
    }
}

pub(super) struct Prefetch;

impl Experiment for Prefetch {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let (shape, vendor) = (shape(bench.size), bench.binaries.vendor());
        let cells = contenders(vendor).into_iter().map(|name| labels([("contender", name.to_owned())]));
        let cells: Vec<Labels> = cells.collect();
        let load = "sysbench's oltp_update_non_index, all rows equally often";
        let setting = |name: &str| Setting {
            name: name.to_owned(),
            facts: facts::of(vendor, &shape, load, &cells),
            cells: cells.clone(),
            disk_bytes: 3 * shape.server_bytes() + bench.size.of(1 << 28, 2 << 30, 50 << 30),
        };
        [AS_IT_IS, SLOW].map(setting).into()
    }

    fn open<'a>(&self, bench: Bench<'a>, setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        let size = bench.size;
        // Without a limit, a source that has everything in memory writes much more than a slow disk can follow in a measurement's time.
        let (transactions, rate) = size.of((2_000, 1_000), (40_000, 2_000), (3_000_000, 5_000));
        let plan = BacklogPlan { rate: Some(rate), ..BacklogPlan::of_transactions(shape(size), transactions) };
        let course = Course::prepare(bench.home, bench.binaries, &plan, directory, bench.screen)?;
        let read_latency = (setting.name == SLOW).then_some(READ_LATENCY);
        let limit = limit(size);
        Ok(Box::new(OnCourse::new(course, move |_| {
            let mut conditions = Conditions::usual(limit);
            conditions.read_latency = read_latency;
            conditions
        })))
    }
}

/// The contender that a program which reads ahead helps.
fn plain(contender: &str) -> &str {
    contender.split('+').next().unwrap_or_default()
}

/// Whether reading ahead helps, told in the same words where it does and where it does not.
fn verdicts(result: &ExperimentResult) -> Vec<Block> {
    let all = Selection::of(result);
    let noise = all.noise("seconds");
    let mut verdicts = Vec::new();
    for setting in result.settings() {
        let runs = all.in_setting(setting);
        for helped in runs.values_of("contender").into_iter().filter(|contender| contender.contains('+')) {
            let (with, without) = (runs.with("contender", helped), runs.with("contender", plain(helped)));
            if with.is_empty() || without.is_empty() {
                continue;
            }
            let (native, before, after) =
                (plain(helped), without.sound_median("seconds"), with.sound_median("seconds"));
            let text = match before.zip(after) {
                Some((before, after)) => {
                    let words = outcome(before / after, without.ratio_to(&with, "seconds", noise.as_ref()).as_ref());
                    let times = before / after;
                    format!("{words}: with spate prefetch, {native} is {times:.2} times as fast as without.")
                }
                None => {
                    let which = if after.is_none() { "with" } else { "without" };
                    let words = failed(before.is_some(), after.is_some());
                    format!("{words}: {which} spate prefetch, {native} does not always come to its end.")
                }
            };
            verdicts.push(Block::Verdict(format!("{setting}: {text}")));
        }
    }
    verdicts
}

pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let mut blocks = verdicts(result);
    for setting in result.settings() {
        let runs = Selection::of(result).in_setting(setting);
        let contenders = runs.values_of("contender");
        let rows = contenders.iter().map(|contender| {
            let own = runs.with("contender", contender);
            let without = runs.with("contender", plain(contender)).median("seconds");
            let gain = without.zip(own.median("seconds")).filter(|_| contender.contains('+'));
            vec![
                (*contender).to_owned(),
                own.shown("seconds", |seconds| format!("{seconds:.1}")),
                own.shown("transactions_per_second", |rate| format!("{rate:.0}")),
                gain.map_or_else(|| "–".to_owned(), |(without, with)| format!("{:.2}", without / with)),
                own.shown("replica_cpu_seconds", |seconds| format!("{seconds:.1}")),
            ]
        });
        let header = ["contender", "seconds", "updates/s", "× without prefetch", "replica CPU s"];
        blocks.push(Block::table(setting, &header, rows.collect()));
        let sorted = runs.sorted_by("contender");
        let lines = sorted.runs().iter().filter(|run| run.repetition == 1).filter_map(|run| {
            let behind = run.measured.series.iter().find(|series| series.name == "seconds behind")?;
            Some((run.label("contender").to_owned(), behind.points.clone()))
        });
        blocks.push(Block::Graph(Graph {
            title: format!("{setting}: seconds behind the source"),
            across: "seconds".to_owned(),
            up: "seconds behind".to_owned(),
            lines: lines.collect(),
            ..Graph::default()
        }));
        blocks.push(counters(setting, &runs));
    }
    blocks
}

/// All counters of the programs that read ahead.
fn counters(setting: &str, runs: &Selection<'_>) -> Block {
    let ahead = runs.only(|run| run.label("contender").contains("+prefetch"));
    let contenders = ahead.values_of("contender");
    let mut names: Vec<&String> = ahead.runs().iter().flat_map(|run| run.measured.metrics.keys()).collect();
    names
        .retain(|name| name.starts_with("spate_") && !["spate_cpu_seconds", "spate_peak_mib"].contains(&name.as_str()));
    names.sort();
    names.dedup();
    let rows = names.into_iter().map(|name| {
        let values = contenders
            .iter()
            .map(|contender| ahead.with("contender", contender).shown(name, |value| format!("{value:.0}")));
        std::iter::once(name.trim_start_matches("spate_").replace('_', " ")).chain(values).collect()
    });
    let rows = rows.collect();
    let header = std::iter::once("counter").chain(contenders.iter().copied()).map(str::to_owned).collect();
    Block::Table { title: format!("{setting}: what spate prefetch counted"), header, rows }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;

    #[test]
    fn reading_ahead_has_a_verdict_of_its_own() {
        let runs = |contender: &'static str, seconds: f64| {
            [(SLOW, contender, 1, seconds), (SLOW, contender, 2, seconds * 1.01)]
        };
        let all = [
            runs("native:0", 10.0),
            runs("native:0+prefetch", 4.0),
            runs("native:8", 2.0),
            runs("native:8+prefetch", 3.0),
        ];
        let mut result = result(&all.concat());
        result.runs[2].measured.metric("spate_lookups", 7.0);
        let texts: Vec<String> = verdicts(&result).iter().map(|block| format!("{block:?}")).collect();
        assert!(texts[0].contains("Spate wins: with spate prefetch, native:0 is 2.50 times"), "{texts:?}");
        assert!(texts[1].contains("Spate LOSES: with spate prefetch, native:8 is 0.67 times"), "{texts:?}");
        result.runs[3].measured.failure = Some("gave up".to_owned());
        let failed = format!("{:?}", verdicts(&result)[0]);
        assert!(
            failed.contains("Spate LOSES: with spate prefetch, native:0 does not always come to its end"),
            "{failed}"
        );
        let mut part = result.clone();
        part.runs.retain(|run| run.label("contender") != "native:0");
        assert_eq!(verdicts(&part).len(), 1, "what was not measured has no verdict");
        let Block::Table { header, rows, .. } = counters(SLOW, &Selection::of(&result)) else { panic!() };
        assert_eq!(header, ["counter", "native:0+prefetch", "native:8+prefetch"]);
        assert_eq!(rows, [["lookups", "7 (1 of 2 failed)", "–"]]);
    }
}

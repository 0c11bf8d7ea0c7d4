//! Parallel replication over what a replica logs, its durability and its number of appliers: the tables that MariaDB's production users
//! published, over the chain A → B → C → D with the commit groups widened on C.
//!
//! D is measured as an *intermediate* source (it logs what it applies), as a replica *with binlog* (which it does not write to), and as a *standard*
//! one without a binlog; each durable (its binlog and its redo log are flushed with each commit) and relaxed. Four data sets go from bound by the
//! processors (E1) to bound by the disk (E4).

use std::path::Path;
use std::time::Duration;

use super::blocks::{Block, hours_minutes_seconds};
use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::on_course::{OnCourse, SINGLE, limit};
use super::plan::{Setting, Size, labels};
use super::result::{ExperimentResult, Labels};
use super::selection::Selection;
use crate::Result;
use crate::backlog::BacklogPlan;
use crate::chain::{self, ChainPlan, Waiting};
use crate::course::{Conditions, Course, ReplicaLog};
use crate::server_options::Durability;
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};

pub(super) const ABOUT: &str = "A → B → C → D, each with the server's own replication; C waits before it commits, so that more transactions share a commit group. \
    Measured is how long D takes to apply what it has received from C: as an intermediate source (it logs what it applies), with a binlog that it does not \
    write to, and without a binlog; durable (binlog and redo log are flushed with each commit) and relaxed; with so many appliers, and by Spate. Native \
    settings are those that the servers' documentation recommends: MariaDB's conservative mode (by commit groups) and optimistic mode (its default), MySQL's \
    writeset dependencies with commits in the source's order, and free. Spate's batches are transactions of its own: whoever replicates from an intermediate D \
    gets the source's changes, but not its transactions. So Spate is measured there one transaction for one, too.";

/// The replica's logs, by label.
const LOGS: [(&str, ReplicaLog); 3] =
    [("intermediate", ReplicaLog::Intermediate), ("with binlog", ReplicaLog::Own), ("standard", ReplicaLog::Standard)];
const DURABILITIES: [(&str, Durability); 2] = [("durable", Durability::Durable), ("relaxed", Durability::Relaxed)];

/// The data sets: their names, loads, rows in each table, and the replica's memory in MiB. The first two fit into it. All keys are equally likely:
/// where many transactions change the same rows, no commit group widens.
fn data_sets(size: Size) -> Vec<(&'static str, Shape)> {
    let shape = |workload, rows, pool| Shape::new(workload, None, Some(rows), Some(pool));
    let [e1, e2, e3, e4] = match size {
        Size::Tiny => [(5_000, 64), (10_000, 64), (20_000, 64), (50_000, 24)],
        Size::Small => [(10_000, 512), (100_000, 512), (200_000, 192), (500_000, 64)],
        Size::Paper => [(50_000, 2_048), (500_000, 4_096), (2_000_000, 1_024), (5_000_000, 512)],
    };
    let all = [
        ("E1", shape(Workload::Io, e1.0, e1.1)),
        ("E2", shape(Workload::Io, e2.0, e2.1)),
        ("E3", shape(Workload::Io, e3.0, e3.1)),
        ("E4", shape(Workload::Io, e4.0, e4.1)),
    ];
    all.into_iter().filter(|(name, _)| size != Size::Tiny || *name == "E1" || *name == "E4").collect()
}

fn contenders(size: Size, vendor: Vendor) -> Vec<String> {
    let appliers: &[u32] = size.of(&[10], &[5, 10, 20, 40, 80], &[5, 10, 20, 40, 80]);
    let (single, modes) = match vendor {
        Vendor::MariaDb => ("native:0", ["conservative", "optimistic"]),
        Vendor::MySql => ("native:1:order", ["order", "free"]),
    };
    let modes = modes.iter().take(size.of(1, 2, 2));
    let native = modes.flat_map(|mode| appliers.iter().map(move |appliers| format!("native:{appliers}:{mode}")));
    let spate = ["spate", "spate:consistency=transaction", "spate:consistency=transaction,commit-order=free"]
        .map(str::to_owned);
    [single.to_owned()].into_iter().chain(native).chain(spate).collect()
}

fn cells(size: Size, vendor: Vendor) -> Vec<Labels> {
    let mut cells = Vec::new();
    for (log, _) in LOGS {
        for (durability, _) in DURABILITIES {
            for contender in contenders(size, vendor) {
                // Who replicates from D needs the source's transactions, one for one; nobody replicates from the other kinds.
                if contender.contains("consistency=transaction") && log != "intermediate" {
                    continue;
                }
                cells.push(labels([
                    ("log", log.to_owned()),
                    ("durability", durability.to_owned()),
                    ("contender", contender),
                ]));
            }
        }
    }
    cells
}

fn plan(size: Size, shape: Shape) -> ChainPlan {
    ChainPlan {
        backlog: BacklogPlan::of_transactions(shape, size.of(3_000, 30_000, 3_600_000)),
        waiting: Waiting::USUAL,
        limit: limit(size),
    }
}

pub(super) struct DurabilityExperiment;

impl Experiment for DurabilityExperiment {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let (size, vendor) = (bench.size, bench.binaries.vendor());
        let setting = |(name, shape): (&str, Shape)| {
            let mut facts =
                facts::of(vendor, &shape, "sysbench's oltp_write_only, all rows equally often", &cells(size, vendor));
            let waiting =
                plan(size, shape).waiting.options(vendor).map(|(option, value)| format!("--{option}={value}"));
            facts.push(format!("C, whose commit groups D gets: {}", waiting.join(" ")));
            Setting {
                name: name.to_owned(),
                cells: cells(size, vendor),
                // A, B, C and D, the frozen data, and each with a redo log and binlogs.
                disk_bytes: 5 * (shape.server_bytes() + size.of(100 << 20, 1 << 30, 200 << 30)),
                facts,
            }
        };
        data_sets(size).into_iter().map(setting).collect()
    }

    fn open<'a>(&self, bench: Bench<'a>, setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        let found = data_sets(bench.size).into_iter().find(|(name, _)| *name == setting.name);
        let (_, shape) = found.ok_or_else(|| setting.unknown())?;
        let plan = plan(bench.size, shape);
        let widened = chain::widen(bench.home, bench.binaries, &plan, directory, &bench.screen)?;
        let facts = [("group_size_a", "A"), ("group_size_b", "B"), ("group_size_c", "C")].into_iter();
        let facts = facts.filter_map(|(metric, server)| {
            Some((metric, widened.groups.iter().find(|groups| groups.server == server)?.mean))
        });
        let facts = facts.collect();
        let course = Course::over(bench.binaries, shape, widened.dataset, widened.backlog, bench.screen);
        let limit = limit(bench.size);
        Ok(Box::new(OnCourse::new(course, move |cell| conditions(cell, limit)).with_facts(facts)))
    }
}

fn conditions(cell: &Labels, limit: Duration) -> Conditions {
    let label = |name: &str| cell.get(name).map_or("", String::as_str);
    let mut conditions = Conditions::usual(limit);
    if let Some((_, log)) = LOGS.iter().find(|(name, _)| *name == label("log")) {
        conditions.log = *log;
    }
    if let Some((_, durability)) = DURABILITIES.iter().find(|(name, _)| *name == label("durability")) {
        conditions.durability = *durability;
    }
    conditions
}

/// A table for each data set, in the form in which the annex has them.
pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let mut blocks = Vec::new();
    for setting in result.settings() {
        let runs = Selection::of(result).in_setting(setting);
        let mut rows = Vec::new();
        for (log, _) in LOGS {
            for (durability, _) in DURABILITIES {
                rows.extend(rows_of(&runs.with("log", log).with("durability", durability), log, durability));
            }
        }
        let header = [
            "replica",
            "durability",
            "contender",
            "h:mm.ss",
            "seconds",
            "speed-up from single",
            "speed-up from the previous",
        ];
        let size = |metric: &str| runs.median(metric).map_or_else(|| "–".to_owned(), |size| format!("{size:.2}"));
        blocks.push(Block::table(&format!("{setting}: D catches up"), &header, rows));
        // MySQL's binlog does not say what was committed together, only what need not wait for what.
        let group = match result.header.server.starts_with("mysql") {
            true => {
                "Transactions with the same last_committed, on average, which follows from the rows that they write (WRITESET), so that what C waits hardly shows"
            }
            false => "Transactions of a commit group, on average",
        };
        blocks.push(Block::Text(format!(
            "{group}: A {}, B {}, C {}. Backlog: {:.0} transactions.",
            size("group_size_a"),
            size("group_size_b"),
            size("group_size_c"),
            runs.median("backlog_transactions").unwrap_or_default()
        )));
    }
    blocks
}

/// A contender's mode of parallel replication.
fn mode(contender: &str) -> &str {
    contender.splitn(3, ':').nth(2).unwrap_or_default()
}

/// The contenders of one kind of replica: first native ones by their number of appliers, each mode for itself, then Spate.
fn rows_of(runs: &Selection<'_>, log: &str, durability: &str) -> Vec<Vec<String>> {
    let mut sorted: Vec<&str> = runs.values_of("contender");
    // Stable: within a mode they stay sorted by their numbers.
    sorted.sort_by_key(|contender| (contender.starts_with("spate"), !SINGLE.contains(contender), mode(contender)));
    let seconds_of = |contender: &str| runs.with("contender", contender).median("seconds");
    let single = SINGLE.iter().find_map(|single| seconds_of(single));
    let mut before: Option<&str> = None;
    let mut rows = Vec::new();
    for contender in sorted {
        let own = runs.with("contender", contender);
        let seconds = own.median("seconds");
        // The first of a mode comes after the single one; Spate, of which each is another setting, after none.
        let previous = match before {
            _ if contender.starts_with("spate") || SINGLE.contains(&contender) => None,
            Some(before) if mode(before) == mode(contender) && !SINGLE.contains(&before) => seconds_of(before),
            _ => single,
        };
        let ratio = |from: Option<f64>| {
            from.zip(seconds)
                .map_or_else(|| "–".to_owned(), |(from, seconds)| format!("{:.2}", from / seconds.max(1e-9)))
        };
        rows.push(vec![
            log.to_owned(),
            durability.to_owned(),
            contender.to_owned(),
            seconds.map_or_else(|| "–".to_owned(), hours_minutes_seconds),
            own.shown("seconds", |seconds| format!("{seconds:.2}")),
            ratio(single),
            ratio(previous),
        ]);
        before = Some(contender);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;

    /// The contender, and its speed-up from the previous one, in the order of the table.
    fn steps(runs: &[(&str, f64)]) -> Vec<(String, String)> {
        let runs: Vec<_> = runs.iter().map(|(contender, seconds)| ("E1", *contender, 1, *seconds)).collect();
        let result = result(&runs);
        let rows = rows_of(&Selection::of(&result), "standard", "durable");
        rows.into_iter().map(|row| (row[2].clone(), row[6].clone())).collect()
    }

    #[test]
    fn each_mode_is_compared_from_one_applier_on() {
        let mariadb = [
            ("spate:consistency=transaction", 30.0),
            ("spate", 1.0),
            ("native:10:optimistic", 20.0),
            ("native:5:optimistic", 40.0),
            ("native:10:conservative", 25.0),
            ("native:5:conservative", 50.0),
            ("native:0", 100.0),
        ];
        let texts = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let expected = [
            ("native:0", "–"),
            ("native:5:conservative", "2.00"),
            ("native:10:conservative", "2.00"),
            ("native:5:optimistic", "2.50"),
            ("native:10:optimistic", "2.00"),
            ("spate", "–"),
            ("spate:consistency=transaction", "–"),
        ];
        assert_eq!(steps(&mariadb), texts(&expected));
        let mysql = [("native:1:order", 100.0), ("native:5:free", 40.0), ("native:5:order", 50.0), ("spate", 1.0)];
        let expected = [("native:1:order", "–"), ("native:5:free", "2.50"), ("native:5:order", "2.00"), ("spate", "–")];
        assert_eq!(steps(&mysql), texts(&expected));
    }
}

//! Galera under sysbench: how transactions a second and their latency go with the number of threads, for one server, for clusters that are written to at
//! one or more nodes, and for a source whose replica is Spate's.
//!
//! What is written to is a *topology*: another kind of cluster joins by one more of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::blocks::{Block, Graph};
use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::plan::{Compared, Setting, Size, labels};
use super::result::{ExperimentResult, Labels, Measured};
use super::selection::Selection;
use super::statistics::outcome;
use crate::buffer_pool;
use crate::comparison::{checksums, different_tables};
use crate::contender::Contender;
use crate::course::ReplicaLog;
use crate::dataset::{DataSet, become_replica, replica_options, source_options};
use crate::follower::{Follower, wait_until_applied};
use crate::galera::{self, Cluster};
use crate::oltp::{End, OltpPlan};
use crate::sampling::{Sampling, Series, Watched};
use crate::sandbox::{Lifetime, Sandbox};
use crate::server_options::{Durability, Flush, ServerOptions};
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};
use crate::{Result, threads};
use spate_page::Scale;

pub(super) const ABOUT: &str = "Sysbench's oltp_read_write as fast as it goes, by a number of threads that doubles: on a single server (with each combination of sync_binlog and innodb_flush_log_at_trx_commit of 1 and 0, with and without Galera's library, with a small redo log), on real Galera \
    clusters of one, two and three nodes that are written to at one or more of them (MariaDB; eight appliers in each node; TLS between them), and on a source that waits for Spate's acknowledgement of each commit (semi-synchronous replication) while Spate \
    applies it to a replica. Everything is on one machine: the nodes share its processors and its disk.";

/// Something that can be written to.
struct Topology {
    name: &'static str,
    /// How many nodes it has, and at how many of them it is written to.
    writers: &'static [usize],
    kind: Kind,
    flush: Flush,
    /// `None`: the data set's usual one.
    redo_log_mib: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One server.
    Single,
    /// So many nodes with Galera.
    Galera(usize),
    /// A source that waits for acknowledgements, and a replica of Spate's.
    SemiSync,
}

const SMALL_REDO_LOG_MIB: u64 = 16;

const DURABLE: Flush = Durability::Durable.flush();
/// Nothing is flushed with a commit, as the original measured it.
const RELAXED: Flush = Flush { sync_binlog: 0, innodb_flush_log_at_trx_commit: 0 };
const ONLY_REDO_LOG: Flush = Flush { sync_binlog: 0, innodb_flush_log_at_trx_commit: 1 };
const ONLY_BINLOG: Flush = Flush { sync_binlog: 1, innodb_flush_log_at_trx_commit: 0 };

const fn topology(name: &'static str, kind: Kind, flush: Flush, writers: &'static [usize]) -> Topology {
    Topology { name, writers, kind, flush, redo_log_mib: None }
}

const TOPOLOGIES: [Topology; 14] = [
    topology("single server", Kind::Single, DURABLE, &[1]),
    topology("single server, relaxed", Kind::Single, RELAXED, &[1]),
    topology("single server, sync_binlog 0, flush 1", Kind::Single, ONLY_REDO_LOG, &[1]),
    topology("single server, sync_binlog 1, flush 0", Kind::Single, ONLY_BINLOG, &[1]),
    Topology {
        redo_log_mib: Some(SMALL_REDO_LOG_MIB),
        ..topology("single server, redo log of 16 MiB", Kind::Single, DURABLE, &[1])
    },
    topology("Galera, 1 node", Kind::Galera(1), DURABLE, &[1]),
    topology("Galera, 1 node, relaxed", Kind::Galera(1), RELAXED, &[1]),
    topology("Galera, 1 node, sync_binlog 0, flush 1", Kind::Galera(1), ONLY_REDO_LOG, &[1]),
    topology("Galera, 1 node, sync_binlog 1, flush 0", Kind::Galera(1), ONLY_BINLOG, &[1]),
    topology("Galera, 2 nodes", Kind::Galera(2), DURABLE, &[1]),
    topology("Galera, 2 nodes, relaxed", Kind::Galera(2), RELAXED, &[1, 2]),
    topology("Galera, 3 nodes, relaxed", Kind::Galera(3), RELAXED, &[1, 2, 3]),
    topology("semi-synchronous, Spate", Kind::SemiSync, DURABLE, &[1]),
    topology("semi-synchronous, Spate, relaxed", Kind::SemiSync, RELAXED, &[1]),
];

fn topologies(bench: &Bench<'_>) -> impl Iterator<Item = &'static Topology> {
    let (vendor, size) = (bench.binaries.vendor(), bench.size);
    TOPOLOGIES.iter().filter(move |topology| {
        let is_possible = vendor == Vendor::MariaDb || !matches!(topology.kind, Kind::Galera(_));
        let is_short = topology.redo_log_mib.is_none() && topology.flush == DURABLE && topology.kind != Kind::Galera(2)
            || topology.kind == Kind::Galera(3);
        is_possible && (size != Size::Tiny || is_short)
    })
}

/// Where only one of two logs is flushed, some numbers of threads show the difference.
fn threads(size: Size, flush: Flush) -> &'static [u32] {
    if [ONLY_REDO_LOG, ONLY_BINLOG].contains(&flush) {
        return size.of(&[8], &[1, 16, 128], &[1, 16, 128, 1_023]);
    }
    size.of(&[1, 8], &[1, 2, 4, 8, 16, 32, 64, 128, 256], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_023])
}

/// What all servers have: that many connections, each with sysbench's prepared statements and open tables.
fn with_flush_and_room(options: ServerOptions, flush: Flush) -> ServerOptions {
    options
        .with("max-connections", 1_200)
        .with("max-prepared-stmt-count", 1_048_576)
        .with("table-open-cache", 20_000)
        .with_flush(flush)
}

/// The options of its servers, but for those of a cluster and of a source.
fn options_of(bench: &Bench<'_>, topology: &Topology) -> ServerOptions {
    let vendor = bench.binaries.vendor();
    let options = replica_options(vendor, &shape(bench.size), ReplicaLog::Intermediate);
    let options = with_flush_and_room(options, topology.flush);
    match topology.redo_log_mib {
        Some(mebibytes) => options.with_redo_log_mib(vendor, mebibytes),
        None => options,
    }
}

fn shape(size: Size) -> Shape {
    let (tables, rows, pool) = size.of((2, 2_000, 64), (8, 50_000, 256), (16, 1_000_000, 4_096));
    Shape::new(Workload::Cached, Some(tables), Some(rows), Some(pool)).with_schemas(1)
}

pub(super) struct Masters;

impl Experiment for Masters {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let shape = shape(bench.size);
        let setting = |topology: &Topology| {
            let nodes = match topology.kind {
                Kind::Single => 1,
                Kind::Galera(nodes) => nodes as u64,
                Kind::SemiSync => 2,
            };
            let mut cells = Vec::new();
            for writers in topology.writers {
                for threads in
                    threads(bench.size, topology.flush).iter().filter(|threads| **threads as usize >= *writers)
                {
                    cells.push(labels([("writers", writers.to_string()), ("threads", threads.to_string())]));
                }
            }
            let per_node = shape.data_bytes() + shape.server_bytes() + bench.size.of(1 << 28, 4 << 30, 100 << 30);
            let options = options_of(bench, topology);
            let mut facts = vec![
                "load: sysbench's oltp_read_write, some rows more often than others (special)".to_owned(),
                format!("{nodes} servers: {}", facts::in_words(&options)),
            ];
            facts.extend(match topology.kind {
                Kind::Single => None,
                Kind::Galera(_) => Some(format!("each node: {}", galera::in_words())),
                Kind::SemiSync => {
                    Some(format!("source: {}", bench.binaries.vendor().semi_sync_statements().join("; ")))
                }
            });
            Setting { name: topology.name.to_owned(), cells, disk_bytes: (nodes + 1) * per_node, facts }
        };
        topologies(bench).map(setting).collect()
    }

    fn compared(&self) -> Compared {
        Compared::Settings
    }

    fn open<'a>(&self, bench: Bench<'a>, setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        let shape = shape(bench.size);
        let topology =
            TOPOLOGIES.iter().find(|topology| topology.name == setting.name).ok_or_else(|| setting.unknown())?;
        let step = bench.screen.spinner(&format!("{}: the servers", topology.name));
        let dataset = DataSet::open(bench.home, bench.binaries, &shape)?;
        let options = options_of(&bench, topology);
        let stage =
            Written { size: bench.size, shape, servers: start(&bench, topology, &dataset, directory, &options)? };
        step.finish_and_clear();
        Ok(Box::new(stage))
    }
}

/// A source and the replica that follows it. They end in the order of the fields.
struct Pair {
    follower: Follower<'static>,
    replica: Sandbox,
    source: Sandbox,
    /// The archive that Spate writes.
    archive: PathBuf,
}

/// What was started for a topology.
enum Servers {
    Single(Box<Sandbox>),
    Galera(Cluster),
    SemiSync(Box<Pair>),
}

fn start(
    bench: &Bench<'_>,
    topology: &Topology,
    dataset: &DataSet,
    directory: &Path,
    options: &ServerOptions,
) -> Result<Servers> {
    let binaries = bench.binaries;
    let restore = |name: &str, options: &ServerOptions| dataset.restore(binaries, &directory.join(name), options);
    match topology.kind {
        Kind::Single => Ok(Servers::Single(Box::new(restore("server", options)?))),
        Kind::Galera(nodes) => {
            let cluster = Cluster::start(binaries, &dataset.frozen, directory, nodes, options, Lifetime::Ours)?;
            cluster.nodes.iter().try_for_each(buffer_pool::load)?;
            Ok(Servers::Galera(cluster))
        }
        Kind::SemiSync => {
            let shape = shape(bench.size);
            let source = source_options(binaries.vendor(), &shape);
            let source = restore("source", &with_flush_and_room(source, topology.flush))?;
            for statement in binaries.vendor().semi_sync_statements() {
                source.connect()?.run(statement)?;
            }
            let replica = restore("replica", options)?;
            become_replica(&replica, &dataset.facts.position)?;
            let spate: Contender = "spate:semi-sync".parse()?;
            let account = (&source, dataset.facts.password.as_str());
            let place = directory.join("replica");
            let follower = Follower::start(&spate, "spate", account, &replica, Some(&dataset.facts.position), &place)?;
            wait_until_semi_synchronous(&source)?;
            Ok(Servers::SemiSync(Box::new(Pair { follower, replica, source, archive: place.join("archive") })))
        }
    }
}

/// Waits until a replica acknowledges.
fn wait_until_semi_synchronous(source: &Sandbox) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(60);
    let mut session = source.connect()?;
    let question =
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients')";
    threads::wait_until("a replica that acknowledges", LIMIT, || {
        let clients: Vec<(String, u64)> = session.rows(question)?;
        Ok(if clients.iter().any(|(_, count)| *count > 0) { Ok(()) } else { Err(source.log_tail()) })
    })
}

impl Servers {
    /// All servers, those that can be written to first.
    fn all(&self) -> Vec<(&'static str, &Sandbox)> {
        const NODES: [&str; 3] = ["node 1", "node 2", "node 3"];
        match self {
            Servers::Single(server) => vec![("server", &**server)],
            Servers::Galera(cluster) => NODES.into_iter().zip(&cluster.nodes).collect(),
            Servers::SemiSync(pair) => vec![("source", &pair.source), ("replica", &pair.replica)],
        }
    }

    /// Waits until all have what was committed on any.
    fn settle(&mut self) -> Result<()> {
        match self {
            Servers::Single(_) => Ok(()),
            Servers::Galera(cluster) => cluster.settle(),
            Servers::SemiSync(pair) => {
                pair.follower.check()?;
                wait_until_applied(&pair.source, &pair.replica)
            }
        }
    }
}

struct Written {
    size: Size,
    shape: Shape,
    servers: Servers,
}

impl Stage for Written {
    fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
        let measured = self.write(cell, directory);
        measured.map_err(|error| self.servers.all().iter().fold(error, |error, (_, server)| server.blame(error)))
    }
}

impl Written {
    fn write(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
        let number = |name: &str| cell.get(name).and_then(|value| value.parse::<u32>().ok()).unwrap_or(1);
        let plan = OltpPlan {
            shape: self.shape,
            script: "oltp_read_write",
            threads: number("threads"),
            end: End::Seconds(self.size.of(3, 15, 300)),
        };
        let all = self.servers.all();
        let writers: Vec<&Sandbox> = all.iter().map(|(_, server)| *server).take(number("writers") as usize).collect();
        // What the run before left to be written does not disturb this one, and its binlogs take no room.
        for (_, server) in &all {
            let mut session = server.connect()?;
            session.run("FLUSH BINARY LOGS")?;
            session.run("PURGE BINARY LOGS BEFORE NOW()")?;
        }
        rustix::fs::sync();
        let archive = match &self.servers {
            Servers::SemiSync(pair) => Some(pair.archive.clone()),
            Servers::Single(_) | Servers::Galera(_) => None,
        };
        let sampling = Sampling::start(&Watched { servers: all.clone(), directory, archive })?;
        let result = plan.run(&writers)?;
        let series = sampling.stop();
        let mut measured = Measured { series, ..Measured::default() };
        measured.metric("transactions_per_second", result.transactions_per_second);
        measured.metric("latency_mean_ms", result.latency_mean_ms);
        measured.metric("latency_p95_ms", result.latency_p95_ms);
        measured.metric("conflicts_per_second", result.conflicts_per_second);
        for (metric, series) in [
            ("certification_failures_per_second", "certification failures"),
            ("aborts_per_second", "brute force aborts"),
            ("processor_cores", "processor"),
        ] {
            let sum = means(&measured, &all, series).fold(0.0, |sum, mean| sum + mean);
            measured.metric(metric, sum);
        }
        // All nodes count the same pauses.
        let paused = means(&measured, &all, "flow control paused").fold(0.0, f64::max);
        measured.metric("flow_control_paused_percent", paused);
        for (metric, series) in [("machine_cores", "machine processor"), ("disk_busy_percent", "disk busy")] {
            if let Some(busy) = mean_of(&measured, series) {
                measured.metric(metric, busy);
            }
        }
        drop(writers);
        let ended = Instant::now();
        self.servers.settle()?;
        measured.metric("settle_seconds", ended.elapsed().as_secs_f64());
        let all = self.servers.all();
        let Some((_, first)) = all.first() else { return Ok(measured) };
        let expected = checksums(first)?;
        for (name, server) in all.iter().skip(1) {
            let different: Vec<String> = different_tables(&expected, &checksums(server)?)
                .into_iter()
                .map(|table| format!("{name}: {table}"))
                .collect();
            measured.check_tables(&different);
        }
        Ok(measured)
    }
}

/// The mean of a series of each server that has it.
fn means<'a>(measured: &'a Measured, servers: &'a [(&str, &Sandbox)], name: &'a str) -> impl Iterator<Item = f64> + 'a {
    servers.iter().filter_map(move |(server, _)| mean_of(measured, &format!("{server} {name}")))
}

/// The mean of a series over time.
fn mean_of(measured: &Measured, name: &str) -> Option<f64> {
    measured.series.iter().find(|series| series.name == name).map(Series::mean)
}

pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let all = Selection::of(result);
    let mut lines: Vec<(String, Selection<'_>)> = Vec::new();
    for setting in result.settings() {
        let runs = all.in_setting(setting);
        let writers = runs.values_of("writers");
        for written in &writers {
            let name = if writers.len() > 1 { format!("{setting}, {written} written to") } else { setting.to_owned() };
            lines.push((name, runs.with("writers", written)));
        }
    }
    let mut blocks = Vec::new();
    for (metric, what, digits) in [
        ("transactions_per_second", "Transactions a second", 0),
        ("latency_mean_ms", "Latency, mean, ms", 2),
        ("latency_p95_ms", "Latency, 95 of 100 are no slower, ms", 2),
        ("conflicts_per_second", "Transactions rolled back for a conflict, a second", 1),
        ("flow_control_paused_percent", "Flow control paused, % of the time", 1),
        ("certification_failures_per_second", "Certification failures a second, all nodes", 1),
        ("aborts_per_second", "Transactions that a certified one of another node rolled back, a second", 1),
        ("processor_cores", "Processors that the servers kept busy", 2),
        ("machine_cores", "Processors that were busy, sysbench and Spate included", 2),
        ("disk_busy_percent", "Disk busy, % of the time", 0),
        ("settle_seconds", "Seconds behind the end, until all servers had everything", 2),
    ] {
        let threads = all.values_of("threads");
        let header = std::iter::once("threads".to_owned()).chain(lines.iter().map(|(name, _)| name.clone())).collect();
        let row = |count: &&str| {
            let cells = lines
                .iter()
                .map(|(_, runs)| runs.with("threads", count).shown(metric, |value| format!("{value:.digits$}")));
            std::iter::once((*count).to_owned()).chain(cells).collect()
        };
        blocks.push(Block::Table { title: what.to_owned(), header, rows: threads.iter().map(row).collect() });
        let drawn = lines.iter().map(|(name, runs)| {
            let points = runs
                .values_of("threads")
                .into_iter()
                .filter_map(|count| Some((count.parse().ok()?, runs.with("threads", count).median(metric)?)));
            (name.clone(), points.collect())
        });
        blocks.push(Block::Graph(Graph {
            title: what.to_owned(),
            across: "threads".to_owned(),
            up: what.to_owned(),
            across_scale: Scale::Doubling,
            lines: drawn.collect(),
            ..Graph::default()
        }));
    }
    blocks.insert(0, peaks(&lines, result.header.machine.processors));
    blocks.splice(1..1, repeated(&lines));
    blocks.splice(0..0, verdict(&all, &lines));
    blocks
}

/// The most transactions a second of the ways that keep a second copy, each with its commits on disk.
fn verdict(all: &Selection<'_>, lines: &[(String, Selection<'_>)]) -> Option<Block> {
    let most = |name: &str| {
        let (_, runs) = lines.iter().find(|(line, _)| line == name)?;
        let rates = runs.values_of("threads").into_iter().filter_map(|count| {
            let at = runs.with("threads", count);
            at.median(RATE).filter(|_| at.is_sound()).map(|rate| (rate, at))
        });
        rates.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let ((spate, of_spate), (galera, of_galera)) = (most("semi-synchronous, Spate")?, most("Galera, 2 nodes")?);
    let possible = of_spate.ratio_to(&of_galera, RATE, all.noise(RATE).as_ref());
    let words = outcome(spate / galera, possible.as_ref());
    Some(Block::Verdict(format!(
        "Two durable copies: {words}: a semi-synchronous source with Spate commits {spate:.0} transactions a second at most, Galera with two \
         nodes {galera:.0}. (Spate's replica applies them a moment later; Galera's second node could be written to as well.)"
    )))
}

const RATE: &str = "transactions_per_second";

/// Whether repetitions come to the same: how many do within a tenth, and which do not at all.
fn repeated(lines: &[(String, Selection<'_>)]) -> Option<Block> {
    const SAME: f64 = 0.1;
    let mut apart: Vec<(f64, String)> = Vec::new();
    for (name, runs) in lines {
        for count in runs.values_of("threads") {
            let rates = runs.with("threads", count).metric(RATE);
            let (least, most) =
                rates.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
            if rates.len() > 1 && least > 0.0 {
                apart.push((most / least - 1.0, format!("{name}, {count} threads")));
            }
        }
    }
    apart.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (farthest, cell) = apart.first()?;
    let same = apart.iter().filter(|(apart, _)| *apart <= SAME).count();
    Some(Block::Text(format!(
        "Repetitions: in {same} of {} cells, transactions a second are within {:.0} % of each other; farthest apart, by {:.0} %, are those of {cell}.",
        apart.len(),
        SAME * 100.0,
        farthest * 100.0
    )))
}

/// This part of the most is as good as it.
const AS_GOOD: f64 = 0.95;

/// The fewest threads with which about the most is reached, and the most of all.
fn knee<'a>(runs: &Selection<'a>) -> Option<(&'a str, bool)> {
    let counts = runs.values_of("threads");
    let rate = |count: &str| runs.with("threads", count).median(RATE);
    let most = counts.iter().filter_map(|count| rate(count)).max_by(f64::total_cmp)?;
    let knee = *counts.iter().find(|count| rate(count).is_some_and(|rate| rate >= AS_GOOD * most))?;
    Some((knee, counts.last() == Some(&knee)))
}

/// What keeps it from committing more: everything of which there is no more, or that is in the way.
fn limits(at: &Selection<'_>, processors: usize) -> String {
    let metric = |name: &str| at.median(name).unwrap_or_default();
    let rate = metric(RATE).max(1e-9);
    let reasons = [
        (metric("machine_cores") >= 0.9 * processors as f64, "all processors are busy"),
        (metric("disk_busy_percent") >= 80.0, "the disk is busy"),
        (metric("flow_control_paused_percent") >= 10.0, "flow control pauses it"),
        (
            metric("conflicts_per_second").max(metric("aborts_per_second")) >= 0.1 * rate,
            "transactions are rolled back for conflicts (certification, deadlocks)",
        ),
    ];
    let reasons: Vec<&str> = reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason).collect();
    let is_measured = |topology: &&Topology| at.runs().iter().any(|run| run.setting == topology.name);
    let waits = |topology: &Topology| topology.flush != RELAXED || topology.kind == Kind::SemiSync;
    let waits = TOPOLOGIES.iter().find(is_measured).is_some_and(waits);
    match (reasons.is_empty(), waits) {
        (false, _) => reasons.join(", "),
        (true, true) => "nothing is busy: it waits for commits to be flushed or acknowledged".to_owned(),
        (true, false) => "not known: nothing that was measured is used up".to_owned(),
    }
}

/// Where each stops to scale, and why.
fn peaks(lines: &[(String, Selection<'_>)], processors: usize) -> Block {
    let row = |(name, runs): &(String, Selection<'_>)| {
        let (best, is_last) = knee(runs).unwrap_or(("–", false));
        let at = runs.with("threads", best);
        let one = |metric: &str| at.shown(metric, |value| format!("{value:.1}"));
        vec![
            name.clone(),
            if is_last { format!("{best}, the most that were measured") } else { best.to_owned() },
            at.shown(RATE, |rate| format!("{rate:.0}")),
            match at.is_empty() {
                true => "–".to_owned(),
                false if is_last => "it has not stopped".to_owned(),
                false => limits(&at, processors),
            },
            one("machine_cores"),
            one("disk_busy_percent"),
            one("flow_control_paused_percent"),
            one("certification_failures_per_second"),
            one("conflicts_per_second"),
        ]
    };
    let header = [
        "what is written to",
        "stops at threads",
        "transactions/s",
        "because",
        "processors of all",
        "disk busy %",
        "flow control paused %",
        "certification failures/s",
        "conflicts/s",
    ];
    Block::table("Where each stops to scale, and why", &header, lines.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::result::Run;
    use super::super::result::tests::result;
    use super::*;

    fn at(setting: &str, threads: u32, repetition: u32, rate: f64, metrics: &[(&str, f64)]) -> Run {
        let mut run = result(&[(setting, "", repetition, 1.0)]).runs.remove(0);
        run.labels = labels([("threads", threads.to_string()), ("writers", "1".to_owned())]);
        run.measured.metric(RATE, rate);
        metrics.iter().for_each(|(name, value)| run.measured.metric(name, *value));
        run
    }

    #[test]
    fn it_stops_to_scale_where_more_threads_bring_no_more() {
        let mut all = result(&[]);
        all.header.machine.processors = 2;
        let busy = [("machine_cores", 1.95), ("disk_busy_percent", 85.0)];
        all.runs = vec![
            at("Galera, 2 nodes", 1, 1, 100.0, &[]),
            at("Galera, 2 nodes", 8, 1, 390.0, &busy),
            at("Galera, 2 nodes", 64, 1, 400.0, &busy),
            at("Galera, 2 nodes", 128, 1, 300.0, &[("conflicts_per_second", 200.0)]),
            at("semi-synchronous, Spate", 1, 1, 150.0, &[]),
            at("semi-synchronous, Spate", 8, 1, 600.0, &[]),
        ];
        let again: Vec<Run> = all.runs.iter().map(|run| Run { repetition: 2, ..run.clone() }).collect();
        all.runs.extend(again);
        let blocks = blocks(&all);
        let Block::Verdict(verdict) = &blocks[0] else { panic!("{:?}", blocks[0]) };
        assert!(verdict.contains("Spate wins: a semi-synchronous source with Spate commits 600"), "{verdict}");
        let Block::Table { rows, .. } = &blocks[1] else { panic!("{:?}", blocks[1]) };
        assert_eq!(rows[0][..4], ["Galera, 2 nodes", "8", "390", "all processors are busy, the disk is busy"]);
        assert_eq!(rows[1][1], "8, the most that were measured");
        assert_eq!(rows[1][3], "it has not stopped");
        let one = |setting: &str| {
            let mut all = all.clone();
            all.runs.iter_mut().for_each(|run| run.setting = setting.to_owned());
            limits(&Selection::of(&all).with("threads", "1"), 2)
        };
        assert!(
            one("single server").contains("flushed")
                && one("semi-synchronous, Spate, relaxed").contains("acknowledged")
        );
        assert!(
            one("single server, relaxed").contains("not known")
                && one("Galera, 3 nodes, relaxed").contains("not known")
        );
        let Block::Text(text) = &blocks[2] else { panic!("{:?}", blocks[2]) };
        assert!(text.contains("in 6 of 6 cells"), "{text}");
        all.runs[1].measured.metric(RATE, 780.0);
        let told = format!("{:?}", super::blocks(&all));
        assert!(
            told.contains("in 5 of 6 cells") && told.contains("by 100 %, are those of Galera, 2 nodes, 8 threads"),
            "{told}"
        );
        let one = Selection::of(&all).with("threads", "128");
        assert!(limits(&one, 2).contains("conflicts"));
    }

    #[test]
    fn each_combination_of_flushes_is_measured_with_and_without_galera() {
        for kind in [Kind::Single, Kind::Galera(1)] {
            let flushes = TOPOLOGIES.iter().filter(|topology| topology.kind == kind && topology.redo_log_mib.is_none());
            let flushes: Vec<(u8, u8)> = flushes
                .map(|topology| (topology.flush.sync_binlog, topology.flush.innodb_flush_log_at_trx_commit))
                .collect();
            for wanted in [(1, 1), (0, 1), (1, 0), (0, 0)] {
                assert!(flushes.contains(&wanted), "{kind:?} {wanted:?}");
            }
        }
    }
}

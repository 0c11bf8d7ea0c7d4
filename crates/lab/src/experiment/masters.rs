//! Galera under sysbench: how transactions a second and their latency go with the number of threads, for one server, for clusters that are written to at
//! one or more nodes, and for a source whose replica is Spate's.
//!
//! What is written to is a *topology*: another kind of cluster joins by one more of them.

use std::path::Path;

use super::blocks::{Block, Graph};
use super::driver::{Bench, Experiment, Stage};
use super::plan::{Setting, Size, labels};
use super::result::{ExperimentResult, Labels, Measured};
use super::selection::Selection;
use crate::Result;
use crate::buffer_pool;
use crate::comparison::{checksums, different_tables};
use crate::contender::Contender;
use crate::course::ReplicaLog;
use crate::dataset::{DataSet, become_replica, replica_options, source_options};
use crate::follower::{Follower, wait_until_applied};
use crate::galera::Cluster;
use crate::oltp::OltpPlan;
use crate::sampling::{Sampling, Watched};
use crate::sandbox::{Lifetime, Sandbox};
use crate::server_options::{Durability, ServerOptions};
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};
use spate_page::Scale;

pub(super) const ABOUT: &str = "Sysbench's oltp_read_write as fast as it goes, by a number of threads that doubles: on a single server (durable and relaxed, with and without Galera's library, with a small redo log), on real Galera \
    clusters of one, two and three nodes that are written to at one or more of them, and on a source that waits for Spate's acknowledgement of each commit (semi-synchronous replication) while Spate \
    applies it to a replica. Everything is on one machine: the nodes share its processors and its disk.";

/// Something that can be written to.
struct Topology {
    name: &'static str,
    /// How many nodes it has, and at how many of them it is written to.
    writers: &'static [usize],
    kind: Kind,
    durability: Durability,
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

const TOPOLOGIES: [Topology; 8] = [
    Topology {
        name: "single server",
        writers: &[1],
        kind: Kind::Single,
        durability: Durability::Durable,
        redo_log_mib: None,
    },
    Topology {
        name: "single server, relaxed",
        writers: &[1],
        kind: Kind::Single,
        durability: Durability::Relaxed,
        redo_log_mib: None,
    },
    Topology {
        name: "single server, redo log of 16 MiB",
        writers: &[1],
        kind: Kind::Single,
        durability: Durability::Durable,
        redo_log_mib: Some(SMALL_REDO_LOG_MIB),
    },
    Topology {
        name: "Galera, 1 node",
        writers: &[1],
        kind: Kind::Galera(1),
        durability: Durability::Durable,
        redo_log_mib: None,
    },
    Topology {
        name: "Galera, 1 node, relaxed",
        writers: &[1],
        kind: Kind::Galera(1),
        durability: Durability::Relaxed,
        redo_log_mib: None,
    },
    Topology {
        name: "Galera, 2 nodes, relaxed",
        writers: &[1, 2],
        kind: Kind::Galera(2),
        durability: Durability::Relaxed,
        redo_log_mib: None,
    },
    Topology {
        name: "Galera, 3 nodes, relaxed",
        writers: &[1, 2, 3],
        kind: Kind::Galera(3),
        durability: Durability::Relaxed,
        redo_log_mib: None,
    },
    Topology {
        name: "semi-synchronous, Spate",
        writers: &[1],
        kind: Kind::SemiSync,
        durability: Durability::Durable,
        redo_log_mib: None,
    },
];

fn topologies(bench: &Bench<'_>) -> impl Iterator<Item = &'static Topology> {
    let (vendor, size) = (bench.binaries.vendor(), bench.size);
    TOPOLOGIES.iter().filter(move |topology| {
        let is_possible = vendor == Vendor::MariaDb || !matches!(topology.kind, Kind::Galera(_));
        let is_short = topology.redo_log_mib.is_none() && topology.durability == Durability::Durable
            || topology.kind == Kind::Galera(3);
        is_possible && (size != Size::Tiny || is_short)
    })
}

fn threads(size: Size) -> &'static [u32] {
    size.of(&[1, 8], &[1, 2, 4, 8, 16, 32, 64, 128, 256], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_023])
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
                for threads in threads(bench.size).iter().filter(|threads| **threads as usize >= *writers) {
                    cells.push(labels([("writers", writers.to_string()), ("threads", threads.to_string())]));
                }
            }
            let per_node = shape.data_bytes() + shape.server_bytes() + bench.size.of(1 << 28, 4 << 30, 100 << 30);
            Setting { name: topology.name.to_owned(), cells, disk_bytes: (nodes + 1) * per_node }
        };
        topologies(bench).map(setting).collect()
    }

    fn open<'a>(&self, bench: Bench<'a>, setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        let shape = shape(bench.size);
        let topology = TOPOLOGIES.iter().find(|topology| topology.name == setting.name).unwrap_or(&TOPOLOGIES[0]);
        let step = bench.screen.spinner(&format!("{}: the servers", topology.name));
        let dataset = DataSet::open(bench.home, bench.binaries, &shape)?;
        let vendor = bench.binaries.vendor();
        let mut options = replica_options(vendor, &shape, ReplicaLog::Intermediate)
            .with("max-connections", 1_200)
            .with_durability(topology.durability);
        if let Some(mebibytes) = topology.redo_log_mib {
            options = options.with_redo_log_mib(vendor, mebibytes);
        }
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
            let source_options = source_options(binaries.vendor(), &shape)
                .with("max-connections", 1_200)
                .with_durability(topology.durability);
            let source = restore("source", &source_options)?;
            for statement in binaries.vendor().semi_sync_statements() {
                source.connect()?.run(statement)?;
            }
            let replica = restore(
                "replica",
                &replica_options(binaries.vendor(), &shape, ReplicaLog::Own).with_durability(topology.durability),
            )?;
            become_replica(&replica, &dataset.facts.position)?;
            let spate: Contender = "spate:semi-sync".parse()?;
            let account = (&source, dataset.facts.password.as_str());
            let place = directory.join("replica");
            let follower = Follower::start(&spate, "spate", account, &replica, Some(&dataset.facts.position), &place)?;
            Ok(Servers::SemiSync(Box::new(Pair { follower, replica, source })))
        }
    }
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
        let number = |name: &str| cell.get(name).and_then(|value| value.parse::<u32>().ok()).unwrap_or(1);
        let plan = OltpPlan {
            shape: self.shape,
            script: "oltp_read_write",
            threads: number("threads"),
            seconds: self.size.of(3, 15, 300),
        };
        let all = self.servers.all();
        let writers: Vec<&Sandbox> = all.iter().map(|(_, server)| *server).take(number("writers") as usize).collect();
        // What the run before left to be written does not disturb this one.
        rustix::fs::sync();
        let sampling = Sampling::start(&Watched { servers: all.clone(), directory, archive: None })?;
        let result =
            plan.run(&writers).map_err(|error| all.iter().fold(error, |error, (_, server)| server.blame(error)))?;
        let series = sampling.stop();
        let mut measured = Measured { series, ..Measured::default() };
        measured.metric("transactions_per_second", result.transactions_per_second);
        measured.metric("latency_mean_ms", result.latency_mean_ms);
        measured.metric("latency_p95_ms", result.latency_p95_ms);
        measured.metric("conflicts_per_second", result.conflicts_per_second);
        for (metric, series) in [
            ("flow_control_paused_percent", "flow control paused"),
            ("certification_failures_per_second", "certification failures"),
            ("aborts_per_second", "brute force aborts"),
            ("processor_cores", "processor"),
        ] {
            measured.metric(metric, sum_of_means(&measured, &all, series));
        }
        drop(writers);
        self.servers.settle()?;
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

/// The mean of a series of each server, summed up.
fn sum_of_means(measured: &Measured, servers: &[(&str, &Sandbox)], name: &str) -> f64 {
    let mean = |server: &str| {
        let series = measured.series.iter().find(|series| series.name == format!("{server} {name}"))?;
        let sum: f64 = series.points.iter().map(|(_, value)| value).sum();
        Some(sum / series.points.len().max(1) as f64)
    };
    // The sum of nothing would be -0.
    servers.iter().filter_map(|(server, _)| mean(server)).fold(0.0, |sum, mean| sum + mean)
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
        ("flow_control_paused_percent", "Flow control paused, % of the time, all nodes", 1),
        ("certification_failures_per_second", "Certification failures a second, all nodes", 1),
        ("processor_cores", "Processors that the servers kept busy", 2),
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
    blocks.insert(0, peaks(&lines));
    blocks
}

/// Where each stops to scale, and what it was doing there.
fn peaks(lines: &[(String, Selection<'_>)]) -> Block {
    let row = |(name, runs): &(String, Selection<'_>)| {
        let rate = |count: &str| runs.with("threads", count).median("transactions_per_second").unwrap_or_default();
        let best = runs.values_of("threads").into_iter().max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or_default();
        let at = runs.with("threads", best);
        let one = |metric: &str| at.shown(metric, |value| format!("{value:.1}"));
        vec![
            name.clone(),
            best.to_owned(),
            at.shown("transactions_per_second", |rate| format!("{rate:.0}")),
            one("processor_cores"),
            one("flow_control_paused_percent"),
            one("certification_failures_per_second"),
            one("conflicts_per_second"),
        ]
    };
    let header = [
        "what is written to",
        "most at threads",
        "transactions/s",
        "processors busy",
        "flow control paused %",
        "certification failures/s",
        "conflicts/s",
    ];
    Block::table("Where each stops to scale", &header, lines.iter().map(row).collect())
}

//! What is written to: servers that are started for a topology, and a run of sysbench on them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::driver::{Bench, Stage};
use super::super::plan::Size;
use super::super::result::{Labels, Measured};
use super::{Kind, Topology, shape, with_flush_and_room};
use crate::buffer_pool;
use crate::comparison::{checksums, different_tables};
use crate::contender::Contender;
use crate::dataset::{DataSet, become_replica, source_options};
use crate::follower::{Follower, wait_until_applied};
use crate::galera::Cluster;
use crate::oltp::{End, OltpPlan};
use crate::sampling::{Sampling, Series, Watched};
use crate::sandbox::{Lifetime, Sandbox};
use crate::server_options::ServerOptions;
use crate::workload::Shape;
use crate::{Result, threads};

/// A source and the replica that follows it. They end in the order of the fields.
pub(super) struct Pair {
    follower: Follower<'static>,
    replica: Sandbox,
    source: Sandbox,
    /// The archive that Spate writes.
    archive: PathBuf,
}

/// What was started for a topology.
pub(super) enum Servers {
    Single(Box<Sandbox>),
    Galera(Cluster),
    SemiSync(Box<Pair>),
}

pub(super) fn start(
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
            Servers::SemiSync(pair) => wait_until_applied(&pair.source, &pair.replica, &mut pair.follower),
        }
    }
}

/// What is measured.
pub(super) struct Written {
    pub(super) size: Size,
    pub(super) shape: Shape,
    pub(super) servers: Servers,
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

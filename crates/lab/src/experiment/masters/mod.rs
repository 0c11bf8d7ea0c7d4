//! Galera under sysbench: how transactions a second and their latency go with the number of threads, for one server, for clusters that are written to at
//! one or more nodes, and for a source whose replica is Spate's.
//!
//! What is written to is a *topology*: another kind of cluster joins by one more of them.

mod servers;
mod tables;

use std::path::Path;

use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::plan::{Compared, Setting, Size, labels};
use crate::Result;
use crate::course::ReplicaLog;
use crate::dataset::{DataSet, replica_options};
use crate::galera;
use crate::server_options::{Durability, Flush, ServerOptions};
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};

use servers::{Written, start};
pub(super) use tables::blocks;

pub(super) const ABOUT: &str = "Sysbench's oltp_read_write as fast as it goes, by a number of threads that doubles: on a single server (with each combination of sync_binlog and innodb_flush_log_at_trx_commit of 1 and 0, with and without Galera's library, with a small redo log), on real Galera \
    clusters of one, two and three nodes that are written to at one or more of them (MariaDB; four appliers for each processor in each node; TLS between them), and on a source that waits for Spate's acknowledgement of each commit (semi-synchronous replication) while Spate \
    applies it to a replica. Everything is on one machine: the nodes share its processors and its disk. \
    The numbers of threads come in any order, one after the other, on the same servers.";

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

#[cfg(test)]
mod tests {
    use super::*;

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

//! What a person needs to know to judge a setting: its data and load, the options of its servers, and how native replication is set.

use crate::contender::{Contender, NativeMode};
use crate::course::ReplicaLog;
use crate::dataset::{replica_options, source_options};
use crate::native;
use crate::server_options::{Durability, ServerOptions};
use crate::vendor::Vendor;
use crate::workload::Shape;

use super::result::Labels;

/// A line for each; `load` is the load in words.
pub(super) fn of(vendor: Vendor, shape: &Shape, load: &str, cells: &[Labels]) -> Vec<String> {
    let Shape { schemas, tables, rows, seed, .. } = shape;
    let mut facts = vec![
        format!("data: {schemas} schemas of {tables} tables of {rows} rows"),
        format!("load: {load}; drawn from the seed {seed}"),
        format!("source: {}", in_words(&source_options(vendor, shape))),
        format!("replica: {}", in_words(&replica_options(vendor, shape, ReplicaLog::Own))),
    ];
    let durabilities = [Durability::Durable, Durability::Relaxed]
        .map(|durability| format!("{durability}: {}", in_words(&ServerOptions::default().with_durability(durability))));
    facts.extend(durabilities);
    if cells.iter().any(|cell| cell.contains_key("log")) {
        let option = vendor.replica_log_option();
        facts.push(format!("intermediate: --{option}=1; with binlog: --{option}=0; standard: --skip-log-bin"));
    }
    let is_native = |cell: &&Labels| cell.get("contender").is_some_and(|name| name.starts_with("native"));
    if cells.iter().any(|cell| is_native(&cell)) {
        facts.push(native::advice(vendor).to_owned());
    }
    let mut contenders: Vec<&str> = cells.iter().filter_map(|cell| cell.get("contender")).map(String::as_str).collect();
    contenders.sort_by(|a, b| super::selection::by_numbers(a, b));
    contenders.dedup();
    facts.extend(contenders.into_iter().filter_map(|contender| {
        let Ok(Contender::Native { threads, mode, prefetch: None }) = contender.parse() else { return None };
        let mode = mode.unwrap_or(NativeMode::usual(vendor));
        Some(format!("{contender}: {}", native::applier_statements(vendor, threads, mode).join("; ")))
    }));
    facts
}

/// What a fact is of, which stands before the colon, and the fact.
pub(super) fn parts(fact: &str) -> (&str, &str) {
    fact.split_once(": ").unwrap_or(("", fact))
}

pub(super) fn in_words(options: &ServerOptions) -> String {
    options.arguments().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::plan::labels;
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn options_and_settings_are_told() {
        let shape = Shape::new(Workload::Cached, None, None, None);
        let cells = ["spate", "native:4:optimistic"].map(|name| labels([("contender", name.to_owned())]));
        let facts = of(Vendor::MariaDb, &shape, "sysbench's oltp_write_only", &cells).join("\n");
        for told in [
            "4 schemas of 2 tables of 50000 rows",
            "oltp_write_only; drawn from the seed 2",
            "replica: --server-id=2",
            "--slave-parallel-max-queued=16777216",
            "relaxed: --innodb-flush-log-at-trx-commit=2 --sync-binlog=0",
            "native:4:optimistic: SET GLOBAL slave_parallel_threads = 4; SET GLOBAL slave_parallel_mode = 'optimistic'",
            "the MariaDB documentation advises under \"Parallel Replication\"",
        ] {
            assert!(facts.contains(told), "{told}: {facts}");
        }
    }
}

//! Data sets on real servers: the same seed makes the same rows, and each copy's server begins with the same buffer pool.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use spate_lab::Error;
use spate_lab::course::ReplicaLog;
use spate_lab::dataset::{DataSet, replica_options};
use spate_lab::home::LabHome;
use spate_lab::sandbox::{Lifetime, Sandbox};
use spate_lab::server_options::Durability;
use spate_lab::version::{ServerBinaries, ServerVersion};
use spate_lab::workload::{Shape, Workload};

fn installed(name: &str) -> ServerBinaries {
    let binaries = name.parse::<ServerVersion>().and_then(ServerVersion::resolve);
    binaries.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn copies_begin_with_the_buffer_pool_of_the_data_set() {
    copies_are_warm(&ServerVersion::installed().unwrap());
}

#[test]
fn copies_on_mysql_begin_with_the_buffer_pool_of_the_data_set() {
    copies_are_warm(&installed("mysql-9.7"));
}

fn copies_are_warm(binaries: &ServerBinaries) {
    let root = tempfile::tempdir().unwrap();
    let home = LabHome::at(&root.path().join("home")).unwrap();
    let shape = Shape::new(Workload::Cached, Some(2), Some(4_000), Some(64)).with_schemas(2);
    let mut dataset = DataSet::open(&home, binaries, &shape).unwrap();
    let options = |pool: &str| {
        replica_options(binaries.vendor(), &shape, ReplicaLog::Standard)
            .with_durability(Durability::Relaxed)
            .with("innodb-buffer-pool-size", pool)
    };
    let pages = |server: &Sandbox| server.connect().unwrap().status("Innodb_buffer_pool_pages_data").unwrap();
    let cold = Sandbox::restore(binaries, &dataset.frozen, &root.path().join("cold"), &options("64M"), Lifetime::Ours)
        .unwrap();
    let before = pages(&cold);
    for (schema, table) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        for index in ["PRIMARY".to_owned(), format!("k_{table}")] {
            let query = format!("SELECT COUNT(*) FROM bench{schema}.sbtest{table} FORCE INDEX ({index})");
            assert_eq!(cold.connect().unwrap().value::<u64>(&query).unwrap(), 4_000);
        }
    }
    let all = pages(&cold);
    drop(cold);
    assert!(all > before + 200, "{before} pages, and {all} when all rows have been read");
    let first = dataset.restore(binaries, &root.path().join("first"), &options("64M")).unwrap();
    let second = dataset.restore(binaries, &root.path().join("second"), &options("64M")).unwrap();
    let (warm, again) = (pages(&first), pages(&second));
    assert!(warm >= all * 95 / 100, "{warm} pages of {all}");
    assert!(warm.abs_diff(again) <= warm / 20, "{warm} and {again} pages");
    drop((first, second));
    // One that takes only a part of the list begins too.
    drop(dataset.restore(binaries, &root.path().join("small"), &options("8M")).unwrap());

    // A list of pages that are not there must be noticed; otherwise "warm" proves nothing.
    let other = root.path().join("other");
    spate_lab::home::copy_directory(&dataset.frozen, &other).unwrap();
    let list: String = (0..3_000).map(|page| format!("99999,{page}\n")).collect();
    fs::write(other.join("ib_buffer_pool"), list).unwrap();
    let made = std::mem::replace(&mut dataset.frozen, other);
    let refused = dataset.restore(binaries, &root.path().join("refused"), &options("64M"));
    assert!(matches!(refused, Err(Error::ColdBufferPool { .. })), "{refused:?}");

    // One of an older laboratory is made again.
    fs::remove_file(made.join("ib_buffer_pool")).unwrap();
    let again = DataSet::open(&home, binaries, &shape).unwrap();
    assert!(again.frozen.join("ib_buffer_pool").is_file());
}

#[test]
fn same_seed_makes_the_same_rows() {
    let binaries = ServerVersion::installed().unwrap();
    let root = tempfile::tempdir().unwrap();
    for workload in [Workload::Cached, Workload::Wide] {
        let shape = Shape::new(workload, Some(5), Some(300), Some(64)).with_schemas(2);
        let [one, other] = ["one", "other"].map(|name| made_in(&root.path().join(name), &binaries, &shape));
        assert_eq!(one.facts.manifest.checksums.len(), 11, "with the table of beats");
        assert_eq!(one.facts.manifest.checksums, other.facts.manifest.checksums, "{workload:?}");
    }
}

fn made_in(home: &Path, binaries: &ServerBinaries, shape: &Shape) -> DataSet {
    DataSet::open(&LabHome::at(home).unwrap(), binaries, shape).unwrap()
}

//! The data set from which source and replica start: created once per server build and shape, then copied.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::home::{self, LabHome};
use crate::sandbox::{self, Lifetime, Sandbox};
use crate::server_options::{Durability, ServerOptions};
use crate::vendor::Vendor;
use crate::version::ServerBinaries;
use crate::workload::Shape;
use crate::{Error, Result};

/// The schema of the beats that measure the lag; it is in every data set.
pub const BEAT_SCHEMA: &str = "beat";

/// Server ids of the laboratory.
pub const SOURCE_SERVER_ID: u32 = 1;
/// See [`SOURCE_SERVER_ID`].
pub const REPLICA_SERVER_ID: u32 = 2;

/// A frozen data directory with tables in it, at a known position.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// The data directory; only ever copied.
    pub frozen: PathBuf,
    /// The facts about it.
    pub facts: DataSetFacts,
}

/// The facts about a frozen data directory, as its state file has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DataSetFacts {
    /// The GTID position of its last transaction.
    pub position: String,
    /// Password of the account [`sandbox::ACCOUNT`].
    pub password: String,
}

impl DataSet {
    /// The data set of a shape. Takes it from the cache, or creates it.
    ///
    /// # Errors
    /// Those of starting a server and running sysbench.
    pub fn open(home: &LabHome, binaries: &ServerBinaries, shape: &Shape) -> Result<DataSet> {
        let place = home.dataset(&format!("{}-{}", binaries.cache_key(), shape.cache_key()));
        if !place.is_dir() {
            let work = home.work()?;
            let made = work.path().join("dataset");
            home::create_private_directory(&made)?;
            let server = work.path().join("filling");
            let pristine = sandbox::pristine_data(home, binaries)?;
            home::copy_directory(&pristine, &server.join("data"))?;
            let facts = fill(binaries, shape, &server, &made.join("data"))?;
            home::write_state(&made.join("facts.json"), &facts)?;
            home::publish_directory(&made, &place)?;
        }
        let facts = home::read_state(&place.join("facts.json"))?;
        Ok(DataSet { frozen: place.join("data"), facts })
    }
}

/// Fills a server that has a pristine data directory, and freezes it. The rows are loaded without a binlog; then one is
/// begun by the creation of the beat schema, so that the data set has a GTID position of its own.
fn fill(
    binaries: &ServerBinaries,
    shape: &Shape,
    directory: &std::path::Path,
    frozen: &std::path::Path,
) -> Result<DataSetFacts> {
    let options = source_options(binaries.vendor(), shape).with_durability(Durability::Relaxed);
    let without_binlog = options.clone().with("skip-log-bin", 1);
    let password = sandbox::random_password()?;
    let server = Sandbox::start(binaries, directory, &without_binlog, Lifetime::Ours)?;
    server.create_account(&password)?;
    shape.prepare(&server)?;
    server.stop()?;

    let server = Sandbox::start(binaries, directory, &options, Lifetime::Ours)?;
    let mut session = server.connect()?;
    session.run(&format!("CREATE DATABASE {BEAT_SCHEMA}"))?;
    session.run(&format!(
        "CREATE TABLE {BEAT_SCHEMA}.beats (id BIGINT PRIMARY KEY, sent_microseconds BIGINT NOT NULL) ENGINE=InnoDB"
    ))?;
    session.run("FLUSH BINARY LOGS")?;
    let position = server.logged_position()?;
    server.freeze(frozen)?;
    Ok(DataSetFacts { position, password })
}

/// A source's options, without its durability.
pub fn source_options(vendor: Vendor, shape: &Shape) -> ServerOptions {
    ServerOptions::base(vendor, SOURCE_SERVER_ID)
        .with("innodb-buffer-pool-size", format!("{}M", shape.source_buffer_pool_mib()))
        .with_redo_log_mib(vendor, shape.redo_log_mib())
        .with("innodb-flush-method", "O_DIRECT")
}

/// A replica's options, without its durability. It has a binlog, but logs replicated changes only if
/// `with_replica_binlog`.
pub fn replica_options(vendor: Vendor, shape: &Shape, with_replica_binlog: bool) -> ServerOptions {
    ServerOptions::base(vendor, REPLICA_SERVER_ID)
        .with("innodb-buffer-pool-size", format!("{}M", shape.buffer_pool_mib))
        .with_redo_log_mib(vendor, shape.redo_log_mib())
        .with("innodb-flush-method", "O_DIRECT")
        .with_replica_log(vendor, with_replica_binlog)
}

/// Makes a started copy of a data set a replica: empties its binlog, and sets the position of its data.
///
/// # Errors
/// [`Error::Sql`].
pub fn become_replica(replica: &Sandbox, position: &str) -> Result<(), Error> {
    let mut session = replica.connect()?;
    replica.vendor().begin_at_statements(position).iter().try_for_each(|statement| session.run(statement))
}

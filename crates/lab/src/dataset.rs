//! The data set from which source and replica start: created once per server build and shape, then copied.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::buffer_pool;
use crate::comparison::{Checksums, checksums};
use crate::course::ReplicaLog;
use crate::home::{self, LabHome};
use crate::sandbox::{self, Lifetime, Sandbox};
use crate::server_options::{Durability, ServerOptions};
use crate::vendor::Vendor;
use crate::version::ServerBinaries;
use crate::workload::{DATA_SEED, Shape};
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
    /// What it holds.
    pub manifest: Manifest,
}

/// What a data set holds, and how it was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    /// The data set's name.
    pub name: String,
    /// The server's series.
    pub server: String,
    /// The server's full version.
    pub server_version: String,
    /// The options of the server that was filled.
    pub options: ServerOptions,
    /// Schemas, and tables in each.
    pub schemas: usize,
    /// Tables in each schema.
    pub tables: usize,
    /// Rows in each table.
    pub rows: u64,
    /// From which its rows are drawn.
    pub seed: u64,
    /// Each table's checksum.
    pub checksums: Checksums,
}

/// The file of the facts, beside the data directory.
pub const FACTS_FILE: &str = "facts.json";

impl DataSet {
    /// The data set of a shape. Takes it from the cache, or creates it.
    ///
    /// # Errors
    /// Those of starting a server and running sysbench.
    pub fn open(home: &LabHome, binaries: &ServerBinaries, shape: &Shape) -> Result<DataSet> {
        let place = home.dataset(&name(binaries, shape));
        // Those of older laboratories have no list of their buffer pool.
        if !place.join("data").join(buffer_pool::LIST).is_file() {
            home::remove_if_there(&place)?;
            let work = home.work()?;
            let made = work.path().join("dataset");
            home::create_private_directory(&made)?;
            let server = work.path().join("filling");
            let pristine = sandbox::pristine_data(home, binaries)?;
            home::copy_directory(&pristine, &server.join("data"))?;
            let facts = fill(binaries, shape, &server, &made.join("data"))?;
            home::write_state(&made.join(FACTS_FILE), &facts)?;
            home::publish_directory(&made, &place)?;
        }
        let facts = home::read_state(&place.join(FACTS_FILE))?;
        Ok(DataSet { frozen: place.join("data"), facts })
    }

    /// Starts a server on a copy, and fills its buffer pool as it was.
    ///
    /// # Errors
    /// Those of [`Sandbox::restore`]; [`Error::ColdBufferPool`].
    pub fn restore(&self, binaries: &ServerBinaries, directory: &Path, options: &ServerOptions) -> Result<Sandbox> {
        let server = Sandbox::restore(binaries, &self.frozen, directory, options, Lifetime::Ours)?;
        buffer_pool::load(&server)?;
        Ok(server)
    }

    /// Its name.
    pub fn name(&self) -> String {
        let place = self.frozen.parent().and_then(Path::file_name);
        place.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

fn name(binaries: &ServerBinaries, shape: &Shape) -> String {
    format!("{}-{}", binaries.cache_key(), shape.cache_key())
}

/// Fills a server that has a pristine data directory, and freezes it. The rows are loaded without a binlog; then one is
/// begun by the creation of the beat schema, so that the data set has a GTID position of its own.
fn fill(binaries: &ServerBinaries, shape: &Shape, directory: &Path, frozen: &Path) -> Result<DataSetFacts> {
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
    let manifest = Manifest {
        name: name(binaries, shape),
        server: binaries.version.to_string(),
        server_version: binaries.full_version.clone(),
        options,
        schemas: shape.schemas,
        tables: shape.tables,
        rows: shape.rows,
        seed: DATA_SEED,
        checksums: checksums(&server)?,
    };
    buffer_pool::keep(&server)?;
    server.freeze(frozen)?;
    Ok(DataSetFacts { position, password, manifest })
}

/// A source's options, without its durability.
pub fn source_options(vendor: Vendor, shape: &Shape) -> ServerOptions {
    ServerOptions::base(vendor, SOURCE_SERVER_ID)
        .with("innodb-buffer-pool-size", format!("{}M", shape.source_buffer_pool_mib()))
        .with_redo_log_mib(vendor, shape.redo_log_mib())
        .with("innodb-flush-method", "O_DIRECT")
}

/// A replica's options, without its durability.
pub fn replica_options(vendor: Vendor, shape: &Shape, log: ReplicaLog) -> ServerOptions {
    let options = ServerOptions::base(vendor, REPLICA_SERVER_ID)
        .with("innodb-buffer-pool-size", format!("{}M", shape.buffer_pool_mib))
        .with_redo_log_mib(vendor, shape.redo_log_mib())
        .with("innodb-flush-method", "O_DIRECT")
        .with_replica_log(vendor, log == ReplicaLog::Intermediate);
    // Of the default, 128 KiB, one long transaction is enough to keep MariaDB's SQL thread from reading on; its documentation
    // recommends more. MySQL's default is 128 MiB.
    let options = match vendor {
        Vendor::MariaDb => options.with("slave-parallel-max-queued", 16 << 20),
        Vendor::MySql => options,
    };
    if log == ReplicaLog::Standard { options.with("skip-log-bin", 1) } else { options }
}

/// Makes a started copy of a data set a replica: empties its binlog, if it has one, and sets the position of its data.
///
/// # Errors
/// [`Error::Sql`].
pub fn become_replica(replica: &Sandbox, position: &str) -> Result<(), Error> {
    let mut session = replica.connect()?;
    let has_binlog: bool = session.value("SELECT @@GLOBAL.log_bin")?;
    let version = &replica.binaries().full_version;
    let statements = replica.vendor().begin_at_statements(version, position, has_binlog);
    statements.iter().try_for_each(|statement| session.run(statement))
}

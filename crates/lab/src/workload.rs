//! The write loads: their tables, keys and rate. Changes come from sysbench, or from [`crate::loads`].

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::loads::{self, Distribution, LoadRun, LoadSize, load_of};
use crate::process::ProcessIdentity;
use crate::sandbox::{Sandbox, dying_with_us};
use crate::{Error, Result, threads};

/// A known load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// All rows fit into the buffer pool: 4 schemas × 2 tables × 50,000 rows, 2 GiB of buffer pool, sysbench's own
    /// distribution of keys.
    Cached,
    /// Few rows fit: 4 schemas × 2 tables × 1,000,000 rows, 256 MiB of buffer pool, uniform keys, O_DIRECT.
    Io,
    /// Definitions among small changes, half of the transactions each: 4 schemas × 3 tables × 100 rows, and the tables that come and
    /// go
    Definitions,
    /// Rows that are read and updated by their key or their index, as Tungsten's benchmark did: 14 selects, 4 updates of an indexed column and
    /// 2 of another in a transaction, in 30 schemas of 1 table × 100,000 rows
    Shards,
    /// Updates of one row by its primary key: 4 schemas × 2 tables × 200,000 rows, 64 MiB of buffer pool, uniform keys, O_DIRECT
    Updates,
    /// Orders, payments and deliveries like those of TPC-C, whose books balance: 4 schemas × 2 warehouses of 10 districts with 300 customers
    Tpcc,
    /// Rows that are changed by Zipf's law, with the exponent 1: 4 schemas × 2 tables × 50,000 rows
    Skewed,
    /// Rows of 60 columns, texts and blobs up to 200 kB: 4 schemas × 2 tables × 2,000 rows
    Wide,
    /// Queues of jobs that are inserted, taken and deleted: 4 schemas × 2 tables × 1,000 rows
    Queue,
    /// Few rows that every transaction changes: 4 schemas × 2 tables × 1,000 rows
    Counters,
    /// Jobs that change a tenth of a table, among small transfers: 4 schemas × 2 tables × 50,000 rows
    Bulk,
    /// Tables that are altered while they are written to: 4 schemas × 3 tables × 5,000 rows
    Alters,
    /// Tables without a key, with equal rows: 4 schemas × 2 tables × 1,000 rows
    Keyless,
}

/// The tables that a load writes to, and the memory that a replica has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Determines the distribution of keys.
    pub workload: Workload,
    /// One sysbench process writes to each schema.
    pub schemas: usize,
    /// Tables in each schema.
    pub tables: usize,
    /// Rows in each table.
    pub rows: u64,
    /// The replica's buffer pool in MiB.
    pub buffer_pool_mib: u64,
    /// How unevenly rows are changed, for loads that can: the exponent of Zipf's law in hundredths; 0: all equally often.
    pub skew_hundredths: u32,
    /// From which the transactions are drawn.
    pub seed: u64,
}

/// Changes with the tables or rows that a load is given: data sets of before are others.
const DATA_FORMAT: &str = "v2";
/// From which the rows of data sets are drawn.
pub const DATA_SEED: u64 = 1;
/// From which transactions are drawn, unless another is given.
pub const LOAD_SEED: u64 = 2;
/// Zipf's own law.
const USUAL_SKEW_HUNDREDTHS: u32 = 100;
/// Schemas that are filled at the same time, each over its connection.
const FILLED_AT_A_TIME: usize = 4;
/// Threads of each sysbench process.
const THREADS_PER_SCHEMA: usize = 4;
/// Time that sysbench gets, after its time is up, to finish its running statements.
const END_LIMIT: Duration = Duration::from_secs(60);

impl Shape {
    /// A workload with its default numbers, or with the given ones; `None` is the default.
    pub fn new(workload: Workload, tables: Option<usize>, rows: Option<u64>, buffer_pool_mib: Option<u64>) -> Shape {
        let (usual_tables, usual_rows, usual_buffer_pool_mib) = match workload {
            Workload::Cached => (2, 50_000, 2048),
            Workload::Io => (2, 1_000_000, 256),
            Workload::Definitions => (3, 100, 256),
            Workload::Shards => (1, 100_000, 2048),
            Workload::Updates => (2, 200_000, 64),
            Workload::Tpcc => (2, 300, 1024),
            Workload::Wide => (2, 2_000, 512),
            Workload::Queue | Workload::Counters | Workload::Keyless => (2, 1_000, 256),
            Workload::Bulk | Workload::Skewed => (2, 50_000, 512),
            Workload::Alters => (3, 5_000, 256),
        };
        Shape {
            workload,
            schemas: if workload == Workload::Shards { 30 } else { 4 },
            tables: tables.unwrap_or(usual_tables),
            rows: rows.unwrap_or(usual_rows),
            buffer_pool_mib: buffer_pool_mib.unwrap_or(usual_buffer_pool_mib),
            skew_hundredths: if workload == Workload::Skewed { USUAL_SKEW_HUNDREDTHS } else { 0 },
            seed: LOAD_SEED,
        }
    }

    /// The schemas' names.
    pub fn schema_names(&self) -> Vec<String> {
        (1..=self.schemas).map(|ordinal| format!("bench{ordinal}")).collect()
    }

    /// Redo log of the servers in MiB: large enough that a catch-up does not wait for checkpoints, small for small
    /// tests.
    pub fn redo_log_mib(&self) -> u64 {
        if self.rows < 10_000 { 32 } else { 512 }
    }

    /// The source's buffer pool in MiB. The source must write fast, so the data fits, up to half of the machine's
    /// memory.
    pub fn source_buffer_pool_mib(&self) -> u64 {
        let wanted = match self.workload {
            Workload::Io | Workload::Shards | Workload::Updates => {
                self.buffer_pool_mib.max((2 * self.data_bytes()) >> 20)
            }
            _ => self.buffer_pool_mib,
        };
        wanted.min(machine_memory_mib() / 2).max(64)
    }

    /// What a data directory takes on disk, about.
    pub fn data_bytes(&self) -> u64 {
        /// Of a server's own files.
        const SERVER_BYTES: u64 = 150 << 20;
        SERVER_BYTES + self.rows_bytes()
    }

    /// What the tables take, with their indexes, about.
    pub fn rows_bytes(&self) -> u64 {
        let row_bytes = match self.workload {
            // A customer of each of ten districts, with an order of ten lines, and 33 items in stock.
            Workload::Tpcc => 10 * 2_500 + 33 * 200,
            Workload::Wide => 20_000,
            // Of sysbench's tables, with their index.
            _ => 240,
        };
        self.rows * (self.schemas * self.tables) as u64 * row_bytes
    }

    /// What a server with these tables takes on disk, about, before anything is written to it.
    pub fn server_bytes(&self) -> u64 {
        self.data_bytes() + (self.redo_log_mib() << 20)
    }

    /// What is needed on disk, about, while so many servers with these tables have binlogs of so many bytes: each has a copy, and so has the cache.
    pub fn disk_bytes(&self, servers: u64, binlog_bytes: u64) -> u64 {
        (servers + 1) * self.server_bytes() + 2 * servers * binlog_bytes
    }

    /// What a load of so many transactions a second (`None`: as many as possible) writes to the binlog in so many seconds, about.
    pub fn binlog_bytes(&self, rate: Option<u64>, seconds: u64) -> u64 {
        /// What a source with everything in memory writes, about.
        const TRANSACTIONS_PER_SECOND: u64 = 5_000;
        let transaction_bytes = match self.workload {
            // Texts of up to 200 kB.
            Workload::Wide => 60_000,
            // A tenth of a table now and then.
            Workload::Bulk => 20_000,
            // Sysbench's, and others with about as many rows.
            _ => 2_000,
        };
        rate.unwrap_or(TRANSACTIONS_PER_SECOND) * seconds * transaction_bytes
    }

    /// The same tables, whose rows are changed more or less unevenly.
    #[must_use]
    pub fn with_skew(self, exponent_hundredths: u32) -> Shape {
        Shape { skew_hundredths: exponent_hundredths, ..self }
    }

    /// The same tables, to which other transactions of the same kind are written.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Shape {
        Shape { seed, ..self }
    }

    /// The same tables in so many schemas.
    #[must_use]
    pub fn with_schemas(self, schemas: usize) -> Shape {
        Shape { schemas, ..self }
    }

    /// Distinguishes data sets in names of cache directories.
    pub fn cache_key(&self) -> String {
        let rows = match load_of(self.workload) {
            Some(_) => format!("{:?}", self.workload),
            // Sysbench's tables have other rows where keys are drawn otherwise.
            None => format!("{:?}", loads::keys_of(self.workload)),
        };
        let Shape { schemas, tables, rows: count, .. } = self;
        format!("{}-{schemas}x{tables}x{count}-redo{}-{DATA_FORMAT}", rows.to_lowercase(), self.redo_log_mib())
    }

    /// Creates the tables and fills them, some schemas at a time.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn prepare(&self, source: &Sandbox) -> Result<()> {
        let (mut session, schemas) = (source.connect()?, self.schema_names());
        schemas.iter().try_for_each(|schema| session.run(&format!("CREATE DATABASE {schema}")))?;
        let fill = |schema: &String| loads::fill(self.workload, source, schema, self.load_size(), DATA_SEED);
        schemas.chunks(FILLED_AT_A_TIME).try_for_each(|some| {
            thread::scope(|scope| {
                let fills: Vec<_> = some.iter().map(|schema| scope.spawn(move || fill(schema))).collect();
                threads::all_ended(fills.into_iter().map(thread::ScopedJoinHandle::join))
            })
        })
    }

    /// Starts the load: it ends by itself when it has come to its limits, or when the [`Load`] is stopped.
    ///
    /// # Errors
    /// [`Error::ProgramNotRun`].
    pub fn start_load(&self, source: &Sandbox, limits: LoadLimits) -> Result<Load> {
        let LoadLimits { duration, rate, transactions } = limits;
        let mut load = Load::default();
        for (ordinal, schema) in self.schema_names().iter().enumerate() {
            // The remainder goes to the first processes.
            let part =
                |whole: u64| whole / self.schemas as u64 + u64::from((ordinal as u64) < whole % self.schemas as u64);
            let rate = rate.map(|rate| part(rate).max(1));
            if let Some(own) = load_of(self.workload) {
                let limits = LoadLimits { duration, rate, transactions: transactions.map(part) };
                load.own.push(LoadRun::start(own, source, schema, self.load_size(), limits, self.seed)?);
                continue;
            }
            let mut command = self.sysbench(source, schema);
            command
                .arg(format!("--time={}", duration.as_secs()))
                .arg(sysbench_seed(self.seed, ordinal))
                .arg(format!("--events={}", transactions.map_or(0, part)));
            if let Some(rate) = rate {
                command.arg(format!("--rate={rate}"));
            }
            load.runs.push(SysbenchRun::start(command.arg("run"))?);
        }
        Ok(load)
    }

    fn load_size(&self) -> LoadSize {
        LoadSize { tables: self.tables as u64, rows: self.rows, skew_hundredths: self.skew_hundredths }
    }

    /// Thirty schemas have a connection each.
    fn threads_per_schema(&self) -> usize {
        if self.workload == Workload::Shards { 1 } else { THREADS_PER_SCHEMA }
    }

    /// A sysbench with a script of its own for one schema, over so many connections.
    pub(crate) fn sysbench_script(&self, script: &str, server: &Sandbox, schema: &str, threads: usize) -> Command {
        let mut command = dying_with_us(Path::new("sysbench"));
        command
            .arg(script)
            .arg("--db-driver=mysql")
            .arg(format!("--mysql-socket={}", server.socket().display()))
            .arg("--mysql-user=root")
            .arg(format!("--mysql-db={schema}"))
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows))
            .arg(format!("--threads={threads}"));
        command
    }

    fn sysbench(&self, source: &Sandbox, schema: &str) -> Command {
        let statements = match self.workload {
            Workload::Shards => "oltp_read_write",
            Workload::Updates => "oltp_update_non_index",
            _ => "oltp_write_only",
        };
        let keys = match loads::keys_of(self.workload) {
            Distribution::Special => "special",
            Distribution::Uniform => "uniform",
        };
        let mut command = self.sysbench_script(statements, source, schema, self.threads_per_schema());
        command.arg(format!("--rand-type={keys}")).args(self.statement_counts());
        command
    }

    /// How many statements of which kind a transaction has, where that is not sysbench's own.
    fn statement_counts(&self) -> &'static [&'static str] {
        match self.workload {
            // Ten point selects and four ranges are sysbench's own.
            Workload::Shards => &["--index-updates=4", "--non-index-updates=2", "--delete-inserts=0"],
            _ => &[],
        }
    }
}

/// Sysbench's processes draw different transactions, and the same ones each time. (0 would be the time.)
pub(crate) fn sysbench_seed(seed: u64, ordinal: usize) -> String {
    let own = seed.wrapping_mul(1_000).wrapping_add(ordinal as u64) % (1 << 31);
    format!("--rand-seed={}", own.max(1))
}

/// How much a load writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadLimits {
    /// No longer than this.
    pub duration: Duration,
    /// Transactions per second in all; `None`: as many as the source takes.
    pub rate: Option<u64>,
    /// Transactions in all; `None`: as many as the duration allows.
    pub transactions: Option<u64>,
}

/// A running load; ended when dropped.
#[derive(Debug, Default)]
pub struct Load {
    runs: Vec<SysbenchRun>,
    own: Vec<LoadRun>,
}

impl Load {
    /// True while any of its processes runs.
    pub fn is_running(&self) -> bool {
        self.runs.iter().any(|run| run.process.is_some_and(ProcessIdentity::is_running))
            || self.own.iter().any(LoadRun::is_running)
    }

    /// Waits until the load ends by itself.
    ///
    /// # Errors
    /// [`Error::ProgramFailed`] if a sysbench failed, [`Error::TimedOut`] if one does not end; [`Error::Sql`].
    pub fn finish(self) -> Result<()> {
        self.runs.into_iter().try_for_each(|run| run.finish(LOAD_LIMIT).map(drop))?;
        self.own.into_iter().try_for_each(LoadRun::finish)
    }

    /// Ends the load now, and waits until the source has finished its running statements.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::TimedOut`].
    pub fn stop(self, source: &Sandbox) -> Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(10);
        drop(self);
        let mut session = source.connect()?;
        let connections = "SELECT COUNT(*) FROM information_schema.processlist WHERE db LIKE 'bench%'";
        let begun = Instant::now();
        while session.value::<u64>(connections)? > 0 {
            if begun.elapsed() > END_LIMIT {
                let advice = "SHOW PROCESSLIST on it says what it does".into();
                return Err(Error::TimedOut {
                    what: "the end of the load on the source".into(),
                    limit: END_LIMIT,
                    advice,
                });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// Behind the longest load.
pub(crate) const LOAD_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// A running sysbench; ended when dropped.
#[derive(Debug)]
pub(crate) struct SysbenchRun {
    shown: String,
    child: Child,
    process: Option<ProcessIdentity>,
    /// Collects what it prints, so that a full pipe never stops it.
    output: Option<thread::JoinHandle<String>>,
}

impl SysbenchRun {
    pub(crate) fn start(command: &mut Command) -> Result<SysbenchRun> {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(|source| {
                Error::ProgramNotRun {
                    program: "sysbench".into(),
                    advice: "`./x setup` installs it; on Debian it is the package sysbench.",
                    source,
                }
            })?;
        let output = child.stdout.take().map(|stdout| {
            thread::spawn(move || std::io::read_to_string(stdout).unwrap_or_else(|error| error.to_string()))
        });
        let process = ProcessIdentity::of(child.id());
        Ok(SysbenchRun { shown: format!("{command:?}").replace('"', ""), child, process, output })
    }

    /// Waits for its end, so long at most; what it printed.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<String> {
        if let Some(process) = self.process
            && !process.wait_for_end(limit)
        {
            let advice = "is the server's disk full, or the machine overloaded?".into();
            return Err(Error::TimedOut { what: self.shown.clone(), limit, advice });
        }
        let output = self.output.take().and_then(|output| output.join().ok()).unwrap_or_default();
        let status = self.child.wait().map_err(|source| Error::ProgramNotRun {
            program: "sysbench".into(),
            advice: "It was started, but its end cannot be seen.",
            source,
        })?;
        if status.success() {
            return Ok(output);
        }
        let errors: Vec<&str> = output.lines().filter(|line| line.contains("FATAL")).collect();
        let output = if errors.is_empty() { output } else { errors.join("\n") };
        Err(Error::ProgramFailed { program: self.shown.clone(), status: status.to_string(), output })
    }
}

impl Drop for SysbenchRun {
    fn drop(&mut self) {
        if let Some(process) = self.process {
            process.signal(Signal::TERM);
            process.wait_for_end(END_LIMIT);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The machine's memory in MiB; 1 GiB if it is unknown.
pub(crate) fn machine_memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parse_memory_total_mib(&text).unwrap_or(1024)
}

fn parse_memory_total_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_options_override_the_definition() {
        let cached = Shape::new(Workload::Cached, None, None, None);
        assert_eq!((cached.schemas, cached.tables, cached.rows, cached.buffer_pool_mib), (4, 2, 50_000, 2048));
        let io = Shape::new(Workload::Io, Some(1), Some(10), Some(64));
        assert_eq!((io.tables, io.rows, io.buffer_pool_mib, io.redo_log_mib()), (1, 10, 64, 32));
    }

    #[test]
    fn skewed_keys_are_skewed_unless_told_otherwise() {
        assert_eq!(Shape::new(Workload::Skewed, None, None, None).skew_hundredths, 100);
        assert_eq!(Shape::new(Workload::Skewed, None, None, None).with_skew(0).skew_hundredths, 0);
        assert_eq!(Shape::new(Workload::Cached, None, None, None).skew_hundredths, 0);
        assert_ne!(sysbench_seed(2, 0), sysbench_seed(2, 1));
        assert_eq!(sysbench_seed(0, 0), "--rand-seed=1");
    }

    #[test]
    fn shards_have_the_updates_of_the_original() {
        let counts = |workload| Shape::new(workload, None, None, None).statement_counts();
        assert_eq!(counts(Workload::Shards), ["--index-updates=4", "--non-index-updates=2", "--delete-inserts=0"]);
        assert!(counts(Workload::Cached).is_empty());
    }

    #[test]
    fn machine_memory_is_read_from_the_kernel() {
        assert_eq!(parse_memory_total_mib("MemTotal:       2097152 kB\nMemFree: 1 kB"), Some(2048));
        assert!(machine_memory_mib() > 0);
    }
}

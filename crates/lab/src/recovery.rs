//! Point-in-time recovery: the same base and the same binlogs, by the servers' own programs and by `spate restore`.
//!
//! The source is backed up, writes for a while, and stops. Each way then begins with the base, and ends with every transaction. The servers of both have
//! the same settings: they do not wait for the disk, and log nothing.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::Table;
use serde::Serialize;

use crate::backlog::binlog_files;
use crate::binlog_count::count_files;
use crate::comparison::{checksums, different_tables};
use crate::dataset::{DataSet, source_options};
use crate::home::{self, LabHome};
use crate::sandbox::{ACCOUNT, Lifetime, Sandbox};
use crate::screen::{Screen, megabytes, table, thousands};
use crate::server_options::{Durability, ServerOptions};
use crate::vendor::Vendor;
use crate::version::{ServerBinaries, ServerVersion};
use crate::workload::{LoadLimits, Shape, Workload};
use crate::{Error, Result, output, spate_program};

/// Shown behind the options of `lab recover`.
pub const EXAMPLES: &str = "\
Examples:
  spate lab recover --seconds 20
  spate lab recover --server mysql-9.7 --seconds 20 --json recover.json

The exit status is 0 only if both ways led to the source's rows.";

/// Options of `lab recover`.
#[derive(Debug, Args)]
pub struct RecoverOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// The tables
    #[arg(long, value_enum, default_value_t = Workload::Cached)]
    workload: Workload,
    /// How long the source writes after the base, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Write the result to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One way to recover.
#[derive(Debug, Clone, Serialize)]
pub struct Way {
    /// Its name.
    pub name: String,
    /// From the base to a data directory, in seconds.
    pub base_seconds: f64,
    /// From there to the last transaction, in seconds.
    pub replay_seconds: f64,
    /// Tables that are not the source's; empty if it succeeded.
    pub different_tables: Vec<String>,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryResult {
    /// The server's version.
    pub server: String,
    /// Transactions behind the base,
    pub transactions: u64,
    /// their row changes,
    pub row_changes: u64,
    /// and the bytes of their binlogs.
    pub binlog_bytes: u64,
    /// How long the source wrote, in seconds.
    pub load_seconds: u64,
    /// How the base was made.
    pub method: String,
    /// The ways: the servers' own first.
    pub ways: Vec<Way>,
    /// How many times faster `spate restore` was from the base on.
    pub replay_ratio: f64,
}

impl RecoverOptions {
    /// Measures, and shows the result.
    ///
    /// # Errors
    /// Those of running servers and programs.
    pub fn run(self) -> Result<ExitCode> {
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let work = home.work()?;
        let shape = Shape::new(self.workload, None, None, None);
        let screen = Screen::default();
        // The source, the base in its place, and a recovered server.
        screen.claim_disk(work.path(), shape.disk_bytes(3, shape.binlog_bytes(None, self.seconds)))?;
        let recovery = Recovery { binaries: &binaries, shape, seconds: self.seconds, place: work.path(), screen };
        let result = recovery.run(&home)?;
        output::show(&format!("{}\n{}", result.summary(), result.to_table()), &result, self.json.as_deref())?;
        let is_identical = result.ways.iter().all(|way| way.different_tables.is_empty());
        Ok(if is_identical { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl RecoveryResult {
    fn summary(&self) -> String {
        format!(
            "{}: base by {}, then {} transactions, {} row changes, {} of binlog in {} s; from the base on, spate restore was {:.1} times as fast",
            self.server,
            self.method,
            thousands(self.transactions),
            thousands(self.row_changes),
            megabytes(self.binlog_bytes),
            self.load_seconds,
            self.replay_ratio
        )
    }

    fn to_table(&self) -> Table {
        let rows = self.ways.iter().map(|way| {
            vec![
                way.name.clone(),
                format!("{:.1}", way.base_seconds),
                format!("{:.1}", way.replay_seconds),
                format!("{:.0}", self.transactions as f64 / way.replay_seconds.max(1e-3)),
                if way.different_tables.is_empty() { "identical".into() } else { way.different_tables.join(", ") },
            ]
        });
        table(&["way", "base, s", "replay, s", "transactions/s", "rows"], 1, rows.collect())
    }
}

struct Recovery<'a> {
    binaries: &'a ServerBinaries,
    shape: Shape,
    seconds: u64,
    place: &'a Path,
    screen: Screen,
}

impl Recovery<'_> {
    fn run(&self, home: &LabHome) -> Result<RecoveryResult> {
        let vendor = self.binaries.vendor();
        let step = self.screen.spinner("the data set");
        let dataset = DataSet::open(home, self.binaries, &self.shape)?;
        let directory = self.place.join("source");
        home::copy_directory(&dataset.frozen, &directory.join("data"))?;
        let options = source_options(vendor, &self.shape).with_durability(Durability::Relaxed);
        let source = Sandbox::start(self.binaries, &directory, &options, Lifetime::Ours)?;
        if vendor == Vendor::MySql {
            source.connect()?.run("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")?;
        }
        step.finish_and_clear();
        let step = self.screen.spinner("the base");
        let base = self.base(&source, &dataset)?;
        step.finish_and_clear();
        let position = &base["base"]["position"];
        let (file, offset) = (text(position, "file"), position["offset"].as_u64().unwrap_or_default());
        self.load(&source)?;
        let expected = checksums(&source)?;
        let data = source.data_directory();
        source.stop()?;
        let logs = binlog_files(&data)?;
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let logs: Vec<PathBuf> = logs.into_iter().filter(|path| name(path) >= file).collect();
        let count = count_files(&logs)?;
        let own = self.own_way(&data, &logs, &file, offset, &expected)?;
        let ours = self.our_way(&data, &expected)?;
        let replay_ratio = own.replay_seconds / ours.replay_seconds.max(1e-3);
        Ok(RecoveryResult {
            server: format!("{} ({})", self.binaries.version, self.binaries.full_version),
            transactions: count.transactions,
            row_changes: count.row_changes,
            binlog_bytes: count.bytes,
            load_seconds: self.seconds,
            method: text(&base["base"], "method"),
            ways: vec![own, ours],
            replay_ratio,
        })
    }

    fn base(&self, source: &Sandbox, dataset: &DataSet) -> Result<serde_json::Value> {
        let endpoint = format!("{ACCOUNT}@127.0.0.1:{}", source.port());
        let mut arguments = vec!["backup".into(), "base".into(), "--json".into(), "--source".into(), endpoint];
        if self.binaries.vendor() == Vendor::MySql {
            arguments.push("--source-allow-clear-password".into());
        }
        arguments.extend(self.where_things_are());
        spate_program::run(&arguments, &[("SPATE_SOURCE_PASSWORD", dataset.facts.password.as_str())])
    }

    fn where_things_are(&self) -> Vec<String> {
        let programs = self.binaries.daemon.parent().unwrap_or(Path::new("/usr/sbin"));
        let path = |path: &Path| path.display().to_string();
        vec!["--target".into(), path(&self.place.join("backups")), "--programs".into(), path(programs)]
    }

    fn load(&self, source: &Sandbox) -> Result<()> {
        let load = {
            let duration = Duration::from_secs(self.seconds);
            self.shape.start_load(source, LoadLimits { duration, rate: None, transactions: None })?
        };
        let bar = self.screen.seconds_bar("the source writes", self.seconds);
        let begun = Instant::now();
        while load.is_running() {
            std::thread::sleep(Duration::from_millis(100));
            bar.set_position(begun.elapsed().as_secs().min(self.seconds));
        }
        load.finish()?;
        bar.finish_and_clear();
        Ok(())
    }

    fn restore(&self, to: &Path, archive: &Path, until: &str) -> Result<serde_json::Value> {
        let path = |path: &Path| path.display().to_string();
        let mut arguments: Vec<String> =
            ["restore", "--json", "--base-name", "binlog", "--archive"].map(str::to_owned).to_vec();
        let memory = format!("{}MiB", self.shape.buffer_pool_mib);
        arguments.extend([
            path(archive),
            "--to".into(),
            path(to),
            "--until".into(),
            until.to_owned(),
            "--memory".into(),
            memory,
        ]);
        for (name, value) in self.settings() {
            arguments.extend(["--server-option".into(), format!("--{name}={value}")]);
        }
        arguments.extend(self.where_things_are());
        spate_program::run(&arguments, &[])
    }

    /// Of the servers of both ways.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let redo_log = format!("{}M", self.shape.redo_log_mib());
        vec![(self.binaries.vendor().redo_log_option(), redo_log), ("innodb-flush-method", "O_DIRECT".into())]
    }

    /// The base by `spate restore`, with nothing behind it; then `mysqlbinlog | mysql`.
    fn own_way(
        &self,
        archive: &Path,
        logs: &[PathBuf],
        file: &str,
        offset: u64,
        expected: &crate::comparison::Checksums,
    ) -> Result<Way> {
        let directory = self.place.join("own");
        home::create_private_directory(&directory)?;
        let restored = self.restore(&directory.join("data"), archive, &format!("file:{file}:{offset}"))?;
        let vendor = self.binaries.vendor();
        let mut options = ServerOptions::base(vendor, 9)
            .with("innodb-buffer-pool-size", format!("{}M", self.shape.buffer_pool_mib))
            .with("innodb-flush-log-at-trx-commit", 0)
            .with("max-allowed-packet", "1G")
            .with("skip-log-bin", 1);
        for (name, value) in self.settings() {
            options = options.with(name, value);
        }
        let server = Sandbox::start(self.binaries, &directory, &options, Lifetime::Ours)?;
        let (reader, client) = match vendor {
            Vendor::MariaDb => ("mariadb-binlog", "mariadb"),
            Vendor::MySql => ("mysqlbinlog", "mysql"),
        };
        let step = self.screen.spinner(&format!("{reader} | {client}"));
        let begun = Instant::now();
        let failed = |program: &str| {
            let program = program.to_owned();
            move |source| Error::ProgramNotRun { program, advice: "It belongs to the server's package.", source }
        };
        let mut reading = std::process::Command::new(self.binaries.program(reader))
            .arg(format!("--start-position={offset}"))
            .args(logs)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed(reader))?;
        let from = reading.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let written = std::process::Command::new(self.binaries.program(client))
            .args(["--no-defaults", "-uroot", "--binary-mode", "--max-allowed-packet=1G"])
            .arg(format!("--socket={}", server.socket().display()))
            .stdin(from)
            .output()
            .map_err(failed(client))?;
        let status = reading.wait().map_err(failed(reader))?;
        if !written.status.success() || !status.success() {
            return Err(Error::ProgramFailed {
                program: format!("{reader} | {client}"),
                status: format!("{status}, {}", written.status),
                output: String::from_utf8_lossy(&written.stderr).into_owned(),
            });
        }
        let replay_seconds = begun.elapsed().as_secs_f64();
        step.finish_and_clear();
        let different_tables = different_tables(expected, &checksums(&server)?);
        server.stop()?;
        let base_seconds = restored["base_seconds"].as_f64().unwrap_or_default();
        Ok(Way { name: format!("{reader} | {client}"), base_seconds, replay_seconds, different_tables })
    }

    fn our_way(&self, archive: &Path, expected: &crate::comparison::Checksums) -> Result<Way> {
        let directory = self.place.join("ours");
        home::create_private_directory(&directory)?;
        let step = self.screen.spinner("spate restore");
        let restored = self.restore(&directory.join("data"), archive, "latest")?;
        step.finish_and_clear();
        let server =
            Sandbox::start(self.binaries, &directory, &ServerOptions::base(self.binaries.vendor(), 9), Lifetime::Ours)?;
        let different_tables = different_tables(expected, &checksums(&server)?);
        server.stop()?;
        let seconds = |name: &str| restored[name].as_f64().unwrap_or_default();
        // To look for the place in the binlogs is part of its replay.
        let replay_seconds = seconds("apply_seconds") + seconds("binlog_seconds");
        Ok(Way {
            name: "spate restore".into(),
            base_seconds: seconds("base_seconds"),
            replay_seconds,
            different_tables,
        })
    }
}

fn text(value: &serde_json::Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

//! The command line.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use spate_archive::SyncPolicy;
use spate_lab::LabCommand;
use spate_replica::endpoint::{Endpoint, OPTION_GROUPS};
use spate_replica::limits::{self, BatchLimits};
use spate_replica::until::{Start, Until};

use crate::Failure;

const REPLICATE_EXAMPLES: &str = "\
Examples:
  # A replica restored from a backup that was taken at GTID position 0-1-5000
  SPATE_SOURCE_PASSWORD=… SPATE_REPLICA_PASSWORD=… \\
  spate replicate --source repl@db1:3306 --replica spate@db2:3306 --archive /var/lib/spate --start gtid:0-1-5000

  # Again after a stop: the checkpoint on the replica knows where to go on
  spate replicate --source repl@db1 --replica spate@/run/mysqld/mysqld.sock --archive /var/lib/spate \\
      --source-defaults-file /etc/spate/source.cnf --replica-defaults-file /etc/spate/replica.cnf

  # Catch up and end
  spate replicate --source repl@db1 --replica spate@db2 --archive /var/lib/spate --until caught-up

Privileges, on the source:   GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO repl@…
on the replica:              GRANT ALL PRIVILEGES ON spate.* TO spate@…;
                             GRANT SELECT, INSERT, UPDATE, DELETE, BINLOG REPLAY, BINLOG ADMIN, READ_ONLY ADMIN ON *.* TO spate@…
                             and, to apply DDL, the privileges that the statements need.";

const STATUS_EXAMPLES: &str = "\
Examples:
  spate status --archive /var/lib/spate
  spate status --archive /var/lib/spate --json | jq .lag_seconds";

const VERIFY_EXAMPLES: &str = "\
Examples:
  spate verify --source spate@db1 --replica spate@db2
  spate verify --source spate@db1 --replica spate@db2 --schema shop --connections 8 --json

The exit status is 0 if everything is identical, 1 if something differs or the comparison could not be made.";

const FETCH_EXAMPLES: &str = "\
Examples:
  spate archive fetch --source repl@db1 --archive /var/lib/spate --start earliest --until caught-up";

const FOLD_STATS_EXAMPLES: &str = "\
Examples:
  # What would folding save here, and how fast is it?
  spate archive fold-stats /var/lib/mysql
  spate archive fold-stats /var/lib/spate --batch-transactions 1000 --batch-transactions 100000 --json";

/// A parallel replicator for MySQL and MariaDB
///
/// Reads ahead, folds thousands of transactions into their net row changes, replays row images verbatim in key order, and
/// commits once, together with its own position.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 120)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Keep a replica up to date with its source
    #[command(after_help = REPLICATE_EXAMPLES)]
    Replicate(ReplicateArguments),
    /// Ask a running `replicate` how it is doing
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArguments),
    /// Compare source and replica, table by table, at one position
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArguments),
    /// Work with the local copy of the source's binlog
    Archive {
        #[command(subcommand)]
        command: ArchiveCommand,
    },
    /// The laboratory: sandboxes of real servers, races, lag under a live load
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Receive the source's binlog, without a replica
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch(FetchArguments),
    /// Show what folding makes of a directory of binlogs, for several sizes of batch
    #[command(after_help = FOLD_STATS_EXAMPLES)]
    FoldStats(FoldStatsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SourceArguments {
    /// The source: [user@]host[:port] or [user@]/path/to/socket
    #[arg(long, value_name = "ENDPOINT")]
    source: Endpoint,
    /// Option file with user and password for the source (groups client, client-mariadb, spate). Without it the password is
    /// taken from SPATE_SOURCE_PASSWORD
    #[arg(long, value_name = "FILE")]
    source_defaults_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplicaArguments {
    /// The replica: [user@]host[:port] or [user@]/path/to/socket
    #[arg(long, value_name = "ENDPOINT")]
    replica: Endpoint,
    /// Option file with user and password for the replica (groups client, client-mariadb, spate). Without it the password is
    /// taken from SPATE_REPLICA_PASSWORD
    #[arg(long, value_name = "FILE")]
    replica_defaults_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ArchivingArguments {
    /// Directory of the archive, the local copy of the source's binlog; made if it is missing
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: PathBuf,
    /// When to make the archive durable: always (with each group of transactions), interval (once a second), os
    #[arg(long, value_name = "WHEN", value_parser = parse_sync, default_value = "interval")]
    pub(crate) archive_sync: SyncPolicy,
    /// Acknowledge transactions to a semi-synchronous source, once they are durable in the archive
    #[arg(long)]
    pub(crate) semi_sync: bool,
    /// Our id among the source's replicas; without it, one is made from the archive's path
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) server_id: Option<u32>,
    /// Where to begin, if there is nothing to go on from: gtid:<set>, file:<name>:<offset>, earliest or current
    #[arg(long, value_name = "PLACE")]
    pub(crate) start: Option<Start>,
    /// Where to end: gtid:<set>, file:<name>:<offset>, or caught-up (with what the source has when it is asked)
    #[arg(long, value_name = "PLACE")]
    pub(crate) until: Option<Until>,
    /// Print the final status as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplicateArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) archiving: ArchivingArguments,
    /// Memory to stay within
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, default_value = "512MiB")]
    memory: u64,
    /// At most so many source transactions in a batch
    #[arg(long, value_name = "N", default_value_t = limits::BATCH_TRANSACTIONS_DEFAULT,
          value_parser = clap::value_parser!(u64).range(1..))]
    batch_transactions: u64,
    /// At most so long is a batch gathered, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = limits::BATCH_DURATION_DEFAULT.as_secs_f64(),
          value_parser = parse_seconds)]
    batch_seconds: f64,
    /// Keep what is applied out of the replica's own binlog
    #[arg(long)]
    pub(crate) no_replica_binlog: bool,
    /// What became of a statement during which an earlier run was interrupted
    #[arg(long, value_name = "OUTCOME", value_enum)]
    pub(crate) interrupted_statement: Option<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Outcome {
    /// It took effect
    Done,
    /// It did not, and is to be executed again
    Repeat,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Directory of the archive that the running `replicate` uses
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    /// Compare the tables of this schema; may be repeated. Without --schema and --table, all are compared
    #[arg(long = "schema", value_name = "NAME")]
    pub(crate) schemas: Vec<String>,
    /// Compare this table, written schema.table; may be repeated
    #[arg(long = "table", value_name = "SCHEMA.TABLE")]
    pub(crate) tables: Vec<String>,
    /// Pairs of connections that compare at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) connections: usize,
    /// Compare whatever the positions are; differences may then be changes on their way
    #[arg(long)]
    pub(crate) no_position: bool,
    /// How long to wait for the replica to reach the source's position, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = parse_seconds)]
    pub(crate) catch_up_seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) archiving: ArchivingArguments,
}

#[derive(Debug, Args)]
pub(crate) struct FoldStatsArguments {
    /// An archive, or any directory of binlogs or relay logs
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Name of the binlog files without their number, if the directory holds several sets
    #[arg(long, value_name = "NAME")]
    pub(crate) base_name: Option<String>,
    /// Sizes of batch to show, in transactions; 0 is everything at once
    #[arg(long, value_name = "N", default_values_t = [1, 100, 1_000, 10_000, 0])]
    pub(crate) batch_transactions: Vec<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl SourceArguments {
    /// The source, with what the option file and the environment add.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Failure> {
        complete(&self.source, self.source_defaults_file.as_ref(), "SPATE_SOURCE_PASSWORD")
    }
}

impl ReplicaArguments {
    /// The replica, with what the option file and the environment add.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Failure> {
        complete(&self.replica, self.replica_defaults_file.as_ref(), "SPATE_REPLICA_PASSWORD")
    }
}

fn complete(given: &Endpoint, file: Option<&PathBuf>, variable: &str) -> Result<Endpoint, Failure> {
    let mut endpoint = given.clone();
    if let Some(file) = file {
        endpoint = endpoint.with_option_file(file, &OPTION_GROUPS)?;
    }
    let endpoint = endpoint.with_password_variable(variable)?;
    endpoint.address()?;
    endpoint.user()?;
    Ok(endpoint)
}

impl ArchivingArguments {
    /// The id among the source's replicas: given, or made from the archive's path, so that it is the same at every start.
    pub(crate) fn server_id(&self) -> u32 {
        /// Ids that people choose are small.
        const MADE_IDS_BEGIN: u32 = 1 << 31;
        self.server_id.unwrap_or_else(|| {
            let path = std::path::absolute(&self.archive).unwrap_or_else(|_| self.archive.clone());
            let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
            let text = format!("{}:{}", host.trim(), path.display());
            // FNV-1a: any even spread will do.
            let hash =
                text.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            MADE_IDS_BEGIN | hash
        })
    }
}

impl ReplicateArguments {
    pub(crate) fn limits(&self) -> BatchLimits {
        BatchLimits {
            transactions_max: self.batch_transactions,
            duration_max: Duration::from_secs_f64(self.batch_seconds),
            ..BatchLimits::within(self.memory)
        }
    }
}

fn parse_sync(text: &str) -> Result<SyncPolicy, String> {
    match text {
        "always" => Ok(SyncPolicy::Always),
        "interval" => Ok(SyncPolicy::Interval(Duration::from_secs(1))),
        "os" => Ok(SyncPolicy::Os),
        _ => Err("expected always, interval or os".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(seconds),
        _ => Err("expected a number of seconds above 0".to_owned()),
    }
}

/// `512MiB`, `1G`, `536870912`: powers of 1024, whatever the unit's spelling, as the servers' own options.
fn parse_memory(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("expected a size such as 512MiB or 2GiB".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a size such as 512MiB or 2GiB".to_owned())?;
    let bytes = number.checked_mul(1 << shift).ok_or("that is too much")?;
    if bytes < limits::MEMORY_BYTES_MIN {
        return Err(format!("at least {} MiB are needed", limits::MEMORY_BYTES_MIN >> 20));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_memory("512MiB"), Ok(512 << 20));
        assert_eq!(parse_memory("1g"), Ok(1 << 30));
        assert_eq!(parse_memory("134217728"), Ok(128 << 20));
        for wrong in ["", "MiB", "1 lot", "-5M", "1MiB", "99999999999999999999", "99999999999G"] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
    }
}

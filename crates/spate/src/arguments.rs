//! The command line.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use spate_apply::limits::{self, BatchLimits};
use spate_apply::plan::{PipelineWhen, PrefetchWhen};
use spate_archive::{Retention, SyncPolicy};
use spate_binlog::{Gtid, GtidPosition};
use spate_replica::choice::{Dialect, WantedDialect};
use spate_replica::exclusions::Exclusions;
use spate_replica::until::{Start, Until};
use spate_schedule::fold::HELPERS_MAX;

use crate::connection_arguments::{CommonArguments, ReplicaArguments, SourceArguments};
use crate::failover_arguments::{FollowArguments, PromoteArguments, WatchArguments};
use crate::help_examples::{
    ANALYZE_EXAMPLES, BACKUP_EXAMPLES, CHECK_EXAMPLES, FETCH_EXAMPLES, FOLD_STATS_EXAMPLES, FOLLOW_EXAMPLES,
    HANDBACK_EXAMPLES, HANDOVER_EXAMPLES, LIST_EXAMPLES, LOAD_EXAMPLES, PREFETCH_EXAMPLES, PROMOTE_EXAMPLES,
    PURGE_EXAMPLES, REPLAY_EXAMPLES, REPLICATE_EXAMPLES, RESTORE_EXAMPLES, STATUS_EXAMPLES, TAKEOVER_EXAMPLES,
    VERIFY_EXAMPLES, WATCH_EXAMPLES,
};
use crate::load_arguments::LoadArguments;
use crate::parallel_arguments::{Applied, ParallelArguments};
use crate::recover_arguments::{BackupCommand, RestoreArguments};
use crate::replay_arguments::ReplayArguments;

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
    Replicate(Box<ReplicateArguments>),
    /// Look at source and replica before anything runs
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArguments),
    /// Ask a running `replicate` how it is doing
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArguments),
    /// Compare source and replica, table by table, at one position
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArguments),
    /// Hand a replica over to its server's own replication, which then goes on where Spate ended
    #[command(after_help = HANDOVER_EXAMPLES)]
    Handover(HandoverArguments),
    /// Take over from a replica's own replication: stop it, and go on from exactly there
    #[command(after_help = TAKEOVER_EXAMPLES)]
    Takeover(Box<TakeoverArguments>),
    /// Let a replica's own replication go on where Spate has ended
    #[command(after_help = HANDBACK_EXAMPLES)]
    Handback(HandbackArguments),
    /// Make a replica the source, without losing anything that can be had, and point the other replicas at it
    #[command(after_help = PROMOTE_EXAMPLES)]
    Promote(Box<PromoteArguments>),
    /// Let a server follow another by its own replication; what it has too much is saved and undone first
    #[command(after_help = FOLLOW_EXAMPLES)]
    Follow(Box<FollowArguments>),
    /// Watch a source with others, and promote a replica when a majority of the watchers says that it is dead
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(Box<WatchArguments>),
    /// Read ahead of a server's own replication, so that it finds the pages that it needs in memory
    #[command(after_help = PREFETCH_EXAMPLES)]
    Prefetch(PrefetchArguments),
    /// Tell what parallelism binlogs have: what is hot, what folding leaves, and how fast a replica could be
    #[command(after_help = ANALYZE_EXAMPLES)]
    Analyze(AnalyzeArguments),
    /// Load files of records into tables, each record once
    #[command(after_help = LOAD_EXAMPLES)]
    Load(Box<LoadArguments>),
    /// Replay a captured workload against a server, and measure every response
    #[command(after_help = REPLAY_EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Replay(Box<ReplayArguments>),
    /// Back up a server: bases, and the archive's binlogs beside them
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup {
        #[command(subcommand)]
        command: BackupCommand,
    },
    /// Recover a server, or single tables, to any transaction
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(Box<RestoreArguments>),
    /// Work with the local copy of the source's binlog
    Archive {
        #[command(subcommand)]
        command: ArchiveCommand,
    },
    /// The laboratory: sandboxes of real servers, races, lag under a live load
    #[command(disable_help_flag = true)]
    Lab {
        /// What the laboratory is to do: see `spate lab --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Receive the source's binlog, without a replica
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch(FetchArguments),
    /// List the files of an archive, or of any directory of binlogs or relay logs
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArguments),
    /// Remove the oldest files of an archive that nobody is using now
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(PurgeArguments),
    /// Show what folding makes of a directory of binlogs, for several sizes of batch
    #[command(after_help = FOLD_STATS_EXAMPLES)]
    FoldStats(FoldStatsArguments),
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
    /// Keep the archive at about this size: remove the oldest files that are not needed any more (that are applied, for
    /// `replicate`). Without this and --keep-archive-age, nothing is removed
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    keep_archive_size: Option<u64>,
    /// Keep files of the archive for so long, such as 12h or 7d, if they are not needed any more
    #[arg(long, value_name = "DURATION", value_parser = parse_age)]
    keep_archive_age: Option<Duration>,
    /// Print the final status as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

// Flat, since each field is one option, or a group of them.
#[derive(Debug, Args)]
pub(crate) struct ReplicateArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
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
    /// Leave these transactions out; the table spate.skipped on the replica will say so. May be repeated
    #[arg(long, value_name = "gtid:D-S-N|UUID:N[-M][,…]", value_parser = parse_gtids)]
    skip: Vec<GtidList>,
    /// What to do with a row change that does not fit the replica's rows: stop there, or make the row as the source's is
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop")]
    pub(crate) on_conflict: Conflict,
    /// How row changes are written: replayed as the source's own row images (replay), as SQL statements (sql), or whichever is
    /// best of what the replica allows (auto)
    #[arg(long, value_name = "DIALECT", value_enum, default_value = "auto")]
    pub(crate) dialect: DialectArgument,
    /// When to read rows, over connections of their own, before they are applied: while that makes applying faster, which is tried
    /// out (auto), always, or never
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) prefetch: PrefetchArgument,
    /// When to execute a batch of rows, as far as it has nothing to do with the one before, while that is not committed: while that makes
    /// applying faster (auto), always, or never. In any case, batches are committed one after the other; for --consistency snapshot
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) pipelining: PipeliningArgument,
    /// Threads that fold large tables beside the one that reads; without it, one for each processor beyond two, and at most 4
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=HELPERS_MAX as i64))]
    fold_threads: Option<u8>,
    #[command(flatten)]
    parallel: ParallelArguments,
    /// Leave out what these servers wrote, to break a ring; each Spate of the ring names its replica's id. It also makes the
    /// replica log what is applied under the id of the server that wrote it
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    ignore_server_ids: Vec<u32>,
    /// Let the replica's own replication apply, and take over from it when it is this much behind, by its own account
    #[arg(long, value_name = "DURATION", value_parser = parse_age, conflicts_with_all = ["until", "start"])]
    pub(crate) takeover_when_behind: Option<Duration>,
    /// Hand back to the replica's own replication when Spate has caught up, until it is behind again
    #[arg(long, requires = "takeover_when_behind")]
    pub(crate) handback_when_caught_up: bool,
    /// Go on from the new source when spate promote says on the replica that there is one, with the account and the options of --source. Its archive is
    /// made in the directory promoted-N of the archive's
    #[arg(long, conflicts_with = "takeover_when_behind")]
    pub(crate) follow_promotions: bool,
    /// The replication channel (MariaDB: the connection's name) that is taken over, if there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
}

/// The transactions that one --skip names.
#[derive(Debug, Clone)]
pub(crate) struct GtidList(Vec<Gtid>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Conflict {
    /// Stop, and name the transaction, the table and the row
    Stop,
    /// Overwrite rows that are there, insert rows that are missing, remove rows that have a unique value of another row
    Repair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PrefetchArgument {
    /// While it makes applying faster: where rows are read from disk
    Auto,
    /// For every large batch
    Always,
    /// Never
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PipeliningArgument {
    /// While it makes applying faster: where rows are found in the replica's memory, and the replica is behind
    Auto,
    /// For every batch that is nothing but rows
    Always,
    /// Never
    Never,
}

impl PipeliningArgument {
    pub(crate) fn when(self) -> PipelineWhen {
        match self {
            PipeliningArgument::Auto => PipelineWhen::Helpful,
            PipeliningArgument::Always => PipelineWhen::Always,
            PipeliningArgument::Never => PipelineWhen::Never,
        }
    }
}

impl PrefetchArgument {
    pub(crate) fn when(self) -> PrefetchWhen {
        match self {
            PrefetchArgument::Auto => PrefetchWhen::Helpful,
            PrefetchArgument::Always => PrefetchWhen::Always,
            PrefetchArgument::Never => PrefetchWhen::Never,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DialectArgument {
    /// Replay where the replica is of the source's vendor and the account may, else SQL
    Auto,
    /// BINLOG statements that hold the source's row images
    Replay,
    /// Multi-row INSERT, UPDATE and DELETE statements
    Sql,
}

impl DialectArgument {
    /// `None` is the best that the replica allows.
    pub(crate) fn wanted(self) -> WantedDialect {
        match self {
            DialectArgument::Auto => None,
            DialectArgument::Replay => Some(Dialect::Replay),
            DialectArgument::Sql => Some(Dialect::Sql),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Outcome {
    /// It took effect
    Done,
    /// It did not, and is to be executed again
    Repeat,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Directory of the archive, there or to be made
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// Our id among the source's replicas, as for `replicate`
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) server_id: Option<u32>,
    /// As `replicate` will be started: what is applied is kept out of the replica's own binlog
    #[arg(long)]
    pub(crate) no_replica_binlog: bool,
    /// As `replicate` will be started
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop")]
    pub(crate) on_conflict: Conflict,
    /// As `replicate` will be started
    #[arg(long, value_name = "DIALECT", value_enum, default_value = "auto")]
    pub(crate) dialect: DialectArgument,
    /// As `replicate` will be started: what these servers wrote is left out
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ignore_server_ids: Vec<u32>,
    /// Instead of looking, print the privileges on the replica that what the archive holds needs, as GRANT statements
    #[arg(long, requires = "archive")]
    pub(crate) grants: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Directory of the archive that the running `replicate` uses
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw when the latest transactions executed, waited for their turn, and were committed (--consistency transaction)
    #[arg(long, conflicts_with = "json")]
    pub(crate) timeline: bool,
    /// What each applier has of the work, how far it is behind, and how even that is (--consistency shard)
    #[arg(long, conflicts_with = "timeline")]
    pub(crate) appliers: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
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
pub(crate) struct HandoverArguments {
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TakeoverArguments {
    #[command(flatten)]
    pub(crate) replicate: ReplicateArguments,
}

#[derive(Debug, Args)]
pub(crate) struct HandbackArguments {
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// The replication channel (MariaDB: the connection's name), if there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PrefetchArguments {
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// The replication channel (MariaDB: the connection's name), if there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Connections that read
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// Stay at most so many seconds of the source's time ahead of the SQL thread
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub(crate) seconds_prefetch: u64,
    /// Leave row changes alone that are nearer than so many before the SQL thread
    #[arg(long, value_name = "EVENTS", default_value_t = 100)]
    pub(crate) offset_events: u64,
    /// Look where the SQL thread is this often
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) millis_sleep: u64,
    /// Read ahead without trying out whether it helps
    #[arg(long)]
    pub(crate) always: bool,
    /// Print the counters as JSON at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(flatten)]
    pub(crate) archiving: ArchivingArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// An archive, or any directory of binlogs or relay logs
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Name of the binlog files without their number, if the directory holds several sets
    #[arg(long, value_name = "NAME")]
    pub(crate) base_name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(id = "bounds", required = true, multiple = true, args = ["before", "keep_size", "keep_age"])]
pub(crate) struct PurgeArguments {
    /// The archive
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Remove also what no replica is known to have applied
    #[arg(long, conflicts_with = "replica")]
    pub(crate) even_unapplied: bool,
    /// Remove nothing from this place on: gtid:<set> or file:<name of the source's file>
    #[arg(long, value_name = "PLACE")]
    pub(crate) before: Option<Before>,
    /// Remove as long as all files together are larger than this
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) keep_size: Option<u64>,
    /// Remove what is older than this, such as 12h or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_age)]
    pub(crate) keep_age: Option<Duration>,
}

/// The most appliers that are simulated.
pub(crate) const APPLIERS_SIMULATED_MAX: u32 = 1024;

#[derive(Debug, Args)]
pub(crate) struct AnalyzeArguments {
    /// An archive, or any directory of binlogs or relay logs
    #[arg(value_name = "DIR", required_unless_present = "source", conflicts_with = "source")]
    pub(crate) directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Of a source: receive its binlogs into this archive and keep them. Without it, they are received into a temporary
    /// directory, which must have room for them, and removed
    #[arg(long, value_name = "DIR", requires = "source")]
    pub(crate) archive: Option<PathBuf>,
    /// Of a source: where to begin: gtid:<set>, file:<name>:<offset>, earliest or current
    #[arg(long, value_name = "PLACE", requires = "source", default_value = "earliest")]
    pub(crate) start: Start,
    /// Name of the binlog files without their number, if the directory holds several sets
    #[arg(long, value_name = "NAME")]
    pub(crate) base_name: Option<String>,
    /// Numbers of appliers to simulate
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(APPLIERS_SIMULATED_MAX)))]
    pub(crate) appliers: Vec<u32>,
    /// The replica's processors; without it, as many as there are here
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) processors: Option<u32>,
    /// What the replica takes to begin a transaction, in microseconds
    #[arg(long, value_name = "MICROSECONDS", value_parser = parse_microseconds)]
    pub(crate) transaction_cost: Option<f64>,
    /// What it takes for a row change
    #[arg(long, value_name = "MICROSECONDS", value_parser = parse_microseconds)]
    pub(crate) row_cost: Option<f64>,
    /// What it takes for a statement
    #[arg(long, value_name = "MICROSECONDS", value_parser = parse_microseconds)]
    pub(crate) statement_cost: Option<f64>,
    /// What it takes for a commit
    #[arg(long, value_name = "MICROSECONDS", value_parser = parse_microseconds)]
    pub(crate) commit_cost: Option<f64>,
    /// Work the costs out from runs that were measured with these binlogs, and compare all of them with the simulation: what spate lab race --json has
    /// written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["transaction_cost", "row_cost", "statement_cost", "commit_cost"])]
    pub(crate) race: Option<PathBuf>,
    /// Also write a page with graphs: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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

impl ArchivingArguments {
    /// The id among the source's replicas: given, or made from the archive's path, so that it is the same at every start.
    pub(crate) fn server_id(&self) -> u32 {
        self.server_id.unwrap_or_else(|| made_server_id(&self.archive))
    }
}

/// An id among the source's replicas that is made from the archive's path.
pub(crate) fn made_server_id(archive: &Path) -> u32 {
    /// Ids that people choose are small.
    const MADE_IDS_BEGIN: u32 = 1 << 31;
    let path = std::path::absolute(archive).unwrap_or_else(|_| archive.to_owned());
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let text = format!("{}:{}", host.trim(), path.display());
    // FNV-1a: any even spread will do.
    let hash = text.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    MADE_IDS_BEGIN | hash
}

impl ArchivingArguments {
    /// The part of the archive to keep. `None`: all.
    pub(crate) fn retention(&self) -> Option<Retention> {
        retention(self.keep_archive_size, self.keep_archive_age)
    }
}

/// `None` without any bound.
pub(crate) fn retention(size: Option<u64>, age: Option<Duration>) -> Option<Retention> {
    let retention = Retention { bytes_max: size, age_seconds_max: age.map(|age| age.as_secs()) };
    (retention != Retention::default()).then_some(retention)
}

impl ReplicateArguments {
    /// Threads that fold large tables beside the one that reads.
    pub(crate) fn fold_helpers(&self) -> usize {
        /// One reads, and one prepares what the replica executes.
        const OTHERS: usize = 2;
        let processors = || std::thread::available_parallelism().map_or(OTHERS, usize::from);
        self.fold_threads.map_or_else(|| processors().saturating_sub(OTHERS).min(HELPERS_MAX), usize::from)
    }

    /// Transactions that are left out.
    pub(crate) fn exclusions(&self) -> Exclusions {
        Exclusions {
            gtids: self.skip.iter().flat_map(|list| list.0.iter().copied()).collect(),
            server_ids: self.ignore_server_ids.iter().copied().collect(),
            applied: BTreeSet::new(),
        }
    }

    /// How transactions are applied.
    pub(crate) fn applied(&self) -> Result<Applied, String> {
        self.parallel.plan(!self.ignore_server_ids.is_empty(), self.memory)
    }

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

fn parse_microseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(microseconds) if (0.0..=1e9).contains(&microseconds) => Ok(microseconds),
        _ => Err("expected a number of microseconds".to_owned()),
    }
}

/// `gtid:0-1-42,0-1-43`; unlike in a position, a domain may come more than once.
fn parse_gtids(text: &str) -> Result<GtidList, String> {
    let expected = "expected gtid: and GTIDs, such as gtid:0-1-42";
    let list = text.strip_prefix("gtid:").ok_or(expected)?;
    let mut gtids = Vec::new();
    for part in list.split(',') {
        match part.split_once(':') {
            None => gtids.push(parse_gtid(part)?),
            Some((uuid, rest)) => parse_intervals(uuid, rest, &mut gtids)?,
        }
    }
    Ok(GtidList(gtids))
}

fn parse_gtid(text: &str) -> Result<Gtid, String> {
    text.parse().map_err(|error: spate_binlog::Error| error.to_string())
}

/// What follows a UUID in a set of MySQL's: `5`, `5-9:12`, `tag:5-9:other:1`.
fn parse_intervals(uuid: &str, rest: &str, gtids: &mut Vec<Gtid>) -> Result<(), String> {
    /// Each is remembered, and recorded on the replica. Who leaves out more wants another start.
    const LEFT_OUT_MAX: usize = 100_000;
    let mut origin = uuid.to_owned();
    for part in rest.split(':') {
        if part.starts_with(|first: char| !first.is_ascii_digit()) {
            origin = format!("{uuid}:{part}");
            continue;
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{part}' is no interval of numbers"));
        let (first, last) = (number(first)?, number(last)?);
        let count = last.checked_sub(first).ok_or_else(|| format!("'{part}' ends before it begins"))?;
        if count >= (LEFT_OUT_MAX - gtids.len().min(LEFT_OUT_MAX)) as u64 {
            return Err(format!("more than {LEFT_OUT_MAX} transactions: begin behind them instead"));
        }
        for number in first..=last {
            gtids.push(parse_gtid(&format!("{origin}:{number}"))?);
        }
    }
    match rest.rsplit(':').next().is_some_and(|last| last.starts_with(|first: char| first.is_ascii_digit())) {
        true => Ok(()),
        false => Err(format!("'{uuid}:{rest}' names no transaction")),
    }
}

/// `90s`, `30m`, `12h`, `7d`.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    let expected = "expected a duration such as 90s, 30m, 12h or 7d";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| expected)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return Err(expected.to_owned()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "that is too long".to_owned())
}

/// `512MiB`, `1G`, `536870912`: powers of 1024, whatever the unit's spelling, as the servers' own options.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
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
    number.checked_mul(1 << shift).ok_or_else(|| "that is too much".to_owned())
}

pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
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
    fn transactions_and_ages() {
        assert_eq!(parse_gtids("gtid:0-1-2,0-1-3").unwrap().0.len(), 2);
        const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let list = parse_gtids(&format!("gtid:{UUID}:7,{UUID}:9-11:13:tag:4-5,0-1-2")).unwrap();
        let numbers: Vec<u64> = list.0.iter().map(Gtid::number).collect();
        assert_eq!(numbers, [7, 9, 10, 11, 13, 4, 5, 2]);
        assert_eq!(list.0[5].to_string(), format!("{UUID}:tag:4"));
        for wrong in ["", "tag", "5-", "-5", "5-4", "0", "1-100001", "5:", "5x", "1-18446744073709551615"] {
            assert!(parse_gtids(&format!("gtid:{UUID}:{wrong}")).is_err(), "{wrong}");
        }
        for wrong in ["", "0-1-2", "gtid:", "gtid:0-1", "gtid:0-1-2,"] {
            assert!(parse_gtids(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_age("7d"), Ok(Duration::from_secs(7 * 86400)));
        assert_eq!(parse_age("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "7", "d", "7w", "-1d", "99999999999999999999d", "9999999999999999999d"] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
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

/// Before which place files are removed.
#[derive(Debug, Clone)]
pub(crate) enum Before {
    /// Files in which this position covers everything.
    Gtid(GtidPosition),
    /// Files before this file of the source.
    File(String),
}

impl FromStr for Before {
    type Err = String;

    fn from_str(text: &str) -> Result<Before, String> {
        match text.split_once(':') {
            Some(("gtid", position)) => {
                position.parse().map(Before::Gtid).map_err(|error: spate_binlog::Error| error.to_string())
            }
            Some(("file", name)) if !name.is_empty() => Ok(Before::File(name.to_owned())),
            _ => Err("expected gtid:<set> or file:<name>".to_owned()),
        }
    }
}

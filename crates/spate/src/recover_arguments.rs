//! The command lines of `spate backup` and `spate restore`.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use spate_recover::goal::Goal;
use spate_recover::keep::Keep;
use spate_recover::manifest::Method;
use spate_recover::single::OnlyTable;

use crate::arguments::{parse_age, parse_memory};
use crate::connection_arguments::{CommonArguments, ReplicaArguments, ServerArguments, SourceArguments};
use crate::help_examples::{
    BACKUP_ARCHIVE_EXAMPLES, BACKUP_BASE_EXAMPLES, BACKUP_KEY_EXAMPLES, BACKUP_LIST_EXAMPLES, BACKUP_PRUNE_EXAMPLES,
    BACKUP_VERIFY_EXAMPLES,
};

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Make a base: one state of a server, with its exact place in the binlog
    #[command(after_help = BACKUP_BASE_EXAMPLES)]
    Base(Box<BaseArguments>),
    /// Store an archive's binlogs beside the bases, once or as they grow
    #[command(after_help = BACKUP_ARCHIVE_EXAMPLES)]
    Archive(ShipArguments),
    /// List bases and binlogs
    #[command(after_help = BACKUP_LIST_EXAMPLES)]
    List(BackupListArguments),
    /// Remove old bases, and the binlogs that no base needs any more
    #[command(after_help = BACKUP_PRUNE_EXAMPLES)]
    Prune(PruneArguments),
    /// Restore the newest base with all binlogs, check every table, and compare with the source
    #[command(after_help = BACKUP_VERIFY_EXAMPLES)]
    Verify(Box<BackupVerifyArguments>),
    /// Make a pair of keys: one that encrypts, one that decrypts
    #[command(after_help = BACKUP_KEY_EXAMPLES)]
    Key {
        /// File for the secret key; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TargetArguments {
    /// Where backups are: a directory, or an object store (s3://bucket/prefix, gs://, az://), whose address and credentials come from the environment
    /// as for the vendor's own tools (AWS_ACCESS_KEY_ID, AWS_ENDPOINT …)
    #[arg(long = "target", value_name = "PLACE")]
    pub(crate) target: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MethodArgument {
    /// MariaDB's own program, on the server's machine
    MariadbBackup,
    /// MySQL's clone plugin, over the network
    Clone,
    /// A file system's snapshot, which --hook takes
    Snapshot,
}

impl From<MethodArgument> for Method {
    fn from(method: MethodArgument) -> Method {
        match method {
            MethodArgument::MariadbBackup => Method::MariadbBackup,
            MethodArgument::Clone => Method::Clone,
            MethodArgument::Snapshot => Method::Snapshot,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct BaseArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// How; without it, by the vendor's own means: mariadb-backup, or MySQL's clone plugin; with --hook, by a snapshot
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) method: Option<MethodArgument>,
    /// Encrypt for this public key (age1…), or those in a file. May be repeated: each of the secret keys then opens it
    #[arg(long, value_name = "KEY|FILE")]
    pub(crate) encrypt_to: Vec<String>,
    /// Where the server's programs are, before PATH: mariadb-backup, mysqld …
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,
    /// Directory for a temporary copy of the data (clone), with room for it; without it, the system's for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Command that takes a snapshot of the file system while the server is locked: it is told SPATE_HOOK=take or release, SPATE_DATADIR and
    /// SPATE_BASE, and prints the path of the snapshot's data directory
    #[arg(long, value_name = "COMMAND")]
    pub(crate) hook: Option<String>,
    /// The server may be locked for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) hook_seconds: u64,
    /// Afterwards, remove old bases: keep the newest of each of so many days, weeks and months
    #[arg(long, value_name = "7d,4w,12m")]
    pub(crate) keep: Option<Keep>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShipArguments {
    /// The archive: `spate replicate` and `spate archive fetch` write one
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Encrypt for this public key (age1…), or those in a file. May be repeated
    #[arg(long, value_name = "KEY|FILE")]
    pub(crate) encrypt_to: Vec<String>,
    /// Go on until stopped, and look for more so often, such as 10s
    #[arg(long, value_name = "DURATION", value_parser = parse_age)]
    pub(crate) follow: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupListArguments {
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Keep the newest base of each of so many days, weeks and months (UTC), and every binlog since the oldest of these bases
    #[arg(long, value_name = "7d,4w,12m")]
    pub(crate) keep: Keep,
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `restore` and `backup verify` have in common.
#[derive(Debug, Args)]
pub(crate) struct RecoveryArguments {
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Which base; without it, the newest before the end
    #[arg(long, value_name = "ID")]
    pub(crate) base: Option<String>,
    /// Take the binlogs from this archive, or any directory of binlogs, instead of the target
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// Name of the binlog files without their number, if that directory holds several sets
    #[arg(long, value_name = "NAME", requires = "archive")]
    pub(crate) base_name: Option<String>,
    /// File with the secret key of what is encrypted
    #[arg(long, value_name = "FILE", env = "SPATE_BACKUP_IDENTITY")]
    pub(crate) identity: Option<PathBuf>,
    /// Where the server's programs are, before PATH: mariadbd, mysqld …, of the same series as the server that was backed up
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,
    /// For the pages of the server that restores; Spate takes as much for folding
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, default_value = "1GiB")]
    pub(crate) memory: u64,
    /// A further option of the server that restores, such as --plugin-load-add=file_key_management. May be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) server_option: Vec<String>,
}

#[derive(Debug, Args)]
#[group(id = "destination", required = true, multiple = false, args = ["to", "replica", "only"])]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    pub(crate) recovery: RecoveryArguments,
    /// New data directory for the recovered server
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    /// Recover only this table, and copy it beside the live one: SCHEMA.TABLE (the copy is TABLE_restored), or SCHEMA.TABLE=SCHEMA.TABLE. May be
    /// repeated; --server says where the copies go
    #[arg(long, value_name = "TABLE", requires = "server")]
    pub(crate) only: Vec<OnlyTable>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Where to end: latest, time:2026-11-26T14:00:00Z (before what was committed then), gtid:SET (with it), before-gtid:GTID,
    /// file:NAME:OFFSET, or before-statement:TEXT
    #[arg(long, value_name = "PLACE", default_value = "latest")]
    pub(crate) until: Goal,
    /// Directory for a temporary recovery (--only), with room for the whole server; without it, the system's for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// The recovered server is to go on as a replica: keep Spate's checkpoint in it, so that `spate replicate` continues there
    #[arg(long, requires = "to")]
    pub(crate) keep_checkpoint: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupVerifyArguments {
    #[command(flatten)]
    pub(crate) recovery: RecoveryArguments,
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Directory for the temporary recovery, with room for the whole server; without it, the system's for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Go on until stopped, and verify so often, such as 24h
    #[arg(long, value_name = "DURATION", value_parser = parse_age)]
    pub(crate) every: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

//! The command lines of `spate promote`, `spate follow` and `spate watch`.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::path::PathBuf;

use clap::Args;

use crate::connection_arguments::{CommonArguments, ReplicaArguments, SourceArguments};

/// The account with which servers replicate from each other.
#[derive(Debug, Args)]
pub(crate) struct ReplicationArguments {
    /// The account with which servers replicate from the new source; its password is in SPATE_REPLICATION_PASSWORD, or in the group
    /// spate-replication of an option file. Without it, each server keeps the account that it has
    #[arg(long, value_name = "USER", help_heading = "Replication")]
    pub(crate) replication_user: Option<String>,
    /// Let servers replicate over TLS
    #[arg(long, help_heading = "Replication")]
    pub(crate) replication_tls: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PromoteArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Another replica of the old source, to be pointed at the new one; may be repeated. Account and TLS as for --replica
    #[arg(long = "other", value_name = "ENDPOINT", help_heading = "Connections")]
    pub(crate) others: Vec<String>,
    #[command(flatten)]
    pub(crate) replication: ReplicationArguments,
    /// The address by which the others reach the new source; without it, the one by which this program does
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
    /// The archive of the Spate that applied to the replica: what it holds is applied first
    #[arg(long, value_name = "DIR", requires = "source")]
    pub(crate) archive: Option<PathBuf>,
    /// The old source does not answer, and is dead, or no client reaches it: go on without it
    #[arg(long)]
    pub(crate) source_is_dead: bool,
    /// Go on although transactions are lost that the old source or another replica has
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Go on although somebody wrote to the replica: its own transactions become everybody's
    #[arg(long)]
    pub(crate) accept_errant: bool,
    /// How long the replica may take to apply what it has, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) drain_seconds: u64,
    /// Change nothing: say what would be done, and what would be lost
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FollowArguments {
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(flatten)]
    pub(crate) replication: ReplicationArguments,
    /// The address by which the replica reaches the source; without it, the one by which this program does
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
    /// The replication channel that the new source takes, where the replica has others than the one without a name; '' is that one
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Save transactions that the source lacks in a new directory in this one (binlog files and a list), then undo them
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// Change nothing: say what the replica has that the source lacks
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// A replica that may be promoted; may be repeated. Account and TLS as for --source. Of those that have the same, the first is promoted
    #[arg(long = "replica", value_name = "ENDPOINT", required = true, help_heading = "Connections")]
    pub(crate) replicas: Vec<String>,
    #[command(flatten)]
    pub(crate) replication: ReplicationArguments,
    /// A server of etcd, http://host:port; may be repeated. Without it, nothing is promoted
    #[arg(long = "etcd", value_name = "URL")]
    pub(crate) etcd: Vec<String>,
    /// The name of these servers in etcd, the same for all watchers
    #[arg(long, value_name = "NAME", default_value = "spate")]
    pub(crate) cluster: String,
    /// This watcher's name, another one for each
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// How many watchers there are: a majority of them decides
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) watchers: usize,
    /// Within so many seconds of the source's death, another server takes writes
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=3600))]
    pub(crate) within: u64,
    /// Executed by a shell after a promotion, with SPATE_EVENT=promoted, SPATE_NEW_SOURCE and SPATE_OLD_SOURCE (host:port) in its environment
    #[arg(long, value_name = "COMMAND")]
    pub(crate) hook: Option<String>,
    /// Answer proxies there: /source/HOST:PORT and /replica/HOST:PORT are 200 for the server that is one, else 503
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) check_listen: Option<String>,
}

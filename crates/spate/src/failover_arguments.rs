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

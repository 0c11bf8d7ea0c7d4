//! The part of the command line that says whether the source's transactions stay what they are, and how they are applied beside each other.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use clap::Args;
use spate_apply::concurrent::{Appliers, OPEN_MAX};
use spate_apply::plan::Parallel;
use spate_schedule::depend::ParallelBy;

/// How transactions are applied.
#[derive(Debug, Args)]
pub(crate) struct ParallelArguments {
    /// What the replica's transactions are: batches of many, of which each leaves a state that the source had (snapshot), or those of the source,
    /// one to one, with its GTIDs (transaction)
    #[arg(long, value_name = "WHAT", value_enum, default_value = "snapshot", help_heading = "Parallel transactions")]
    consistency: Consistency,
    /// How is found out which transactions may be applied beside each other: by their schemas (shard), by those that committed together on a source
    /// of MariaDB (commit-group), by MySQL's logical clock, or by the keys of their rows (write-set)
    #[arg(
        long,
        value_name = "POLICY",
        value_enum,
        default_value = "write-set",
        help_heading = "Parallel transactions"
    )]
    parallel_by: ParallelByArgument,
    /// Commit in the source's order (preserve), or as transactions come to their ends (free)
    #[arg(long, value_name = "ORDER", value_enum, default_value = "preserve", help_heading = "Parallel transactions")]
    commit_order: CommitOrder,
    /// So many transactions execute at a time, or as many as are found to be fastest (auto)
    #[arg(long, value_name = "N|auto", default_value = APPLIERS_DEFAULT, value_parser = parse_appliers,
          help_heading = "Parallel transactions")]
    appliers: Appliers,
    /// So many consecutive transactions share a commit of the replica, which has the last one's GTID
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=GROUP_MAX),
          help_heading = "Parallel transactions")]
    group: u64,
}

/// Default of `--appliers`: enough for the server to write many commits to disk at once.
const APPLIERS_DEFAULT: &str = "16";

/// The most appliers: a server's default limit is 151 connections.
const APPLIERS_MAX: usize = OPEN_MAX;

/// The largest `--group`: readers wait for all of it, and a batch of more is better folded.
const GROUP_MAX: u64 = 10_000;

/// What the replica's transactions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Consistency {
    /// Batches, folded
    Snapshot,
    /// The source's own transactions
    Transaction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ParallelByArgument {
    /// Transactions of different schemas
    Shard,
    /// Those that committed together on the source (MariaDB)
    CommitGroup,
    /// Those that MySQL's logical clock says were committing beside each other
    LogicalClock,
    /// Those that write different rows
    WriteSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CommitOrder {
    /// That of the source: each state that a reader sees is one that the source had
    Preserve,
    /// Any: each transaction is whole
    Free,
}

impl ParallelArguments {
    /// How transactions are applied beside each other; `None` if they become batches. `is_in_ring`: some servers' are left out.
    pub(crate) fn plan(&self, is_in_ring: bool) -> Result<Option<Parallel>, String> {
        if self.consistency == Consistency::Snapshot {
            return Ok(None);
        }
        let refused =
            |option: &str, why: &str| Err(format!("--consistency transaction and {option} exclude each other: {why}"));
        if is_in_ring {
            return refused("--ignore-server-ids", "in a ring, what is applied takes the id of its origin");
        }
        if self.commit_order == CommitOrder::Free && self.group > 1 {
            return refused(
                "--group with --commit-order free",
                "without an order, a server writes many commits at once by itself",
            );
        }
        Ok(Some(Parallel {
            by: match self.parallel_by {
                ParallelByArgument::Shard => ParallelBy::Shard,
                ParallelByArgument::CommitGroup => ParallelBy::CommitGroup,
                ParallelByArgument::LogicalClock => ParallelBy::LogicalClock,
                ParallelByArgument::WriteSet => ParallelBy::WriteSet,
            },
            appliers: self.appliers,
            keeps_order: self.commit_order == CommitOrder::Preserve,
            group: self.group,
        }))
    }
}

/// `16`, `auto`.
fn parse_appliers(text: &str) -> Result<Appliers, String> {
    match text.parse() {
        Ok(number @ 1..=APPLIERS_MAX) => Ok(Appliers::Number(number)),
        _ if text == "auto" => Ok(Appliers::Auto),
        _ => Err(format!("expected auto, or a number from 1 to {APPLIERS_MAX}")),
    }
}

//! The part of the command line that says whether the source's transactions stay what they are, and how they are applied beside each other.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use spate_apply::concurrent::{Appliers, OPEN_MAX};
use spate_apply::lanes::{self, RuleSource};
use spate_apply::plan::{Parallel, Sharding};
use spate_operate::rules::RuleFile;
use spate_schedule::depend::ParallelBy;
use spate_schedule::shards::{DivideBy, Rules};

use crate::arguments::parse_age;

/// How transactions are applied.
#[derive(Debug, Args)]
pub(crate) struct ParallelArguments {
    /// What the replica's transactions are: batches of many, of which each leaves a state that the source had (snapshot); those of the source,
    /// one to one, with its GTIDs (transaction); or batches of several appliers, each with its own rows, that do not wait for each other (shard)
    #[arg(long, value_name = "WHAT", value_enum, default_value = "snapshot", help_heading = "Parallel transactions")]
    consistency: Consistency,
    /// How is found out which transactions may be applied beside each other: by their schemas (shard), by those that committed together on a source
    /// of MariaDB (commit-group), by MySQL's logical clock, or by the keys of their rows (write-set, the default). With --consistency shard: what
    /// divides the rows among appliers, their keys (key, the default) or their schemas (shard)
    #[arg(long, value_name = "POLICY", value_enum, help_heading = "Parallel transactions")]
    parallel_by: Option<ParallelByArgument>,
    /// Commit in the source's order (preserve), or as transactions come to their ends (free)
    #[arg(long, value_name = "ORDER", value_enum, default_value = "preserve", help_heading = "Parallel transactions")]
    commit_order: CommitOrder,
    /// So many transactions execute at a time, or as many as are found to be fastest (auto, the default with --commit-order preserve; 16 with free).
    /// With --consistency shard: the number of appliers, 4 unless said
    #[arg(long, value_name = "N|auto", value_parser = parse_appliers, help_heading = "Parallel transactions")]
    appliers: Option<Appliers>,
    /// So many consecutive transactions share a commit of the replica, which has the last one's GTID
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=GROUP_MAX),
          help_heading = "Parallel transactions")]
    group: u64,
    /// With --consistency shard: so much of the source's time may lie between what two appliers have applied
    #[arg(long, value_name = "DURATION", value_parser = parse_age, help_heading = "Parallel transactions")]
    max_spread: Option<Duration>,
    /// With --consistency shard: so long the others wait for an applier that is further behind than --max-spread, and then go on
    #[arg(long, value_name = "DURATION", value_parser = parse_age, help_heading = "Parallel transactions")]
    max_delay: Option<Duration>,
    /// With --consistency shard: which schemas and tables go to which applier, and which wait for all; read again on SIGHUP
    #[arg(long, value_name = "FILE", help_heading = "Parallel transactions")]
    rules: Option<PathBuf>,
}

/// Default of `--appliers` with the order kept: what is fastest depends on the disk, the rows and the processors.
const APPLIERS_DEFAULT: Appliers = Appliers::Auto;

/// The same without an order: enough for the server to write many commits to disk at once.
const UNORDERED_DEFAULT: Appliers = Appliers::Number(16);

/// The same where each has its own rows, and folds them: more of them share less.
const SHARDS_DEFAULT: Appliers = Appliers::Number(4);

/// What each of those appliers may have on its way to the replica, beyond the batches.
const SHARD_MEMORY_BYTES: u64 = 3 << 20;

/// The part of the memory that may be on its way to the replica.
const ON_THE_WAY: (u64, u64) = (3, 8);

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
    /// Batches of each applier's own rows
    Shard,
}

/// How transactions are applied.
#[derive(Debug)]
pub(crate) enum Applied {
    /// As batches.
    Snapshot,
    /// Each as one of the replica.
    Transaction(Parallel),
    /// Divided among appliers.
    Shard(Sharding, Option<RuleFile>),
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
    /// Rows of different keys (--consistency shard)
    Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CommitOrder {
    /// That of the source: each state that a reader sees is one that the source had
    Preserve,
    /// Any: each transaction is whole
    Free,
}

impl ParallelArguments {
    /// How transactions are applied. `is_in_ring`: some servers' are left out.
    pub(crate) fn plan(&self, is_in_ring: bool, memory_bytes: u64) -> Result<Applied, String> {
        let is_of_shards = self.max_spread.is_some() || self.max_delay.is_some() || self.rules.is_some();
        if is_of_shards && self.consistency != Consistency::Shard {
            return Err("--max-spread, --max-delay and --rules are for --consistency shard".to_owned());
        }
        if is_in_ring && self.consistency != Consistency::Snapshot {
            let why = "--ignore-server-ids and --consistency transaction or shard exclude each other: in a ring, what is applied takes the id of its origin";
            return Err(why.to_owned());
        }
        match self.consistency {
            Consistency::Snapshot => Ok(Applied::Snapshot),
            Consistency::Transaction => self.of_transactions().map(Applied::Transaction),
            Consistency::Shard => self.of_shards(memory_bytes),
        }
    }

    fn of_shards(&self, memory_bytes: u64) -> Result<Applied, String> {
        let by = match self.parallel_by.unwrap_or(ParallelByArgument::Key) {
            ParallelByArgument::Key => DivideBy::Row,
            ParallelByArgument::Shard => DivideBy::Schema,
            _ => return Err("--consistency shard divides rows: --parallel-by key or shard".to_owned()),
        };
        if self.commit_order == CommitOrder::Free || self.group > 1 {
            return Err(
                "--commit-order and --group are for --consistency transaction: shards have no order among themselves"
                    .to_owned(),
            );
        }
        let Appliers::Number(appliers) = self.appliers.unwrap_or(SHARDS_DEFAULT) else {
            let why = "--appliers auto is for --consistency transaction: the number of shards decides which applier has which rows";
            return Err(why.to_owned());
        };
        let appliers = u32::try_from(appliers).unwrap_or(u32::MAX);
        if appliers > lanes::APPLIERS_MAX {
            return Err(format!("--consistency shard has at most {} --appliers", lanes::APPLIERS_MAX));
        }
        let memory_min = u64::from(appliers) * SHARD_MEMORY_BYTES * ON_THE_WAY.1 / ON_THE_WAY.0;
        if memory_bytes < memory_min {
            return Err(format!("--appliers {appliers} take at least --memory {}MiB", memory_min.div_ceil(1 << 20)));
        }
        let file = self.rules.clone().map(|path| RuleFile { path });
        let rules = file.as_ref().map_or(Ok(Rules::default()), |file| file.read(appliers))?;
        let sharding = Sharding {
            appliers,
            by,
            rules: RuleSource::new(rules),
            spread_max: self.max_spread.unwrap_or(lanes::SPREAD_DEFAULT),
            delay_max: self.max_delay.unwrap_or(lanes::DELAY_DEFAULT),
        };
        Ok(Applied::Shard(sharding, file))
    }

    fn of_transactions(&self) -> Result<Parallel, String> {
        let refused =
            |option: &str, why: &str| Err(format!("--consistency transaction and {option} exclude each other: {why}"));
        if self.commit_order == CommitOrder::Free && self.group > 1 {
            return refused(
                "--group with --commit-order free",
                "without an order, a server writes many commits at once by itself",
            );
        }
        Ok(Parallel {
            by: match self.parallel_by.unwrap_or(ParallelByArgument::WriteSet) {
                ParallelByArgument::Shard => ParallelBy::Shard,
                ParallelByArgument::CommitGroup => ParallelBy::CommitGroup,
                ParallelByArgument::LogicalClock => ParallelBy::LogicalClock,
                ParallelByArgument::WriteSet => ParallelBy::WriteSet,
                ParallelByArgument::Key => {
                    return refused(
                        "--parallel-by key",
                        "it divides rows, not transactions: write-set goes by their keys",
                    );
                }
            },
            appliers: self.appliers.unwrap_or(match self.commit_order {
                CommitOrder::Preserve => APPLIERS_DEFAULT,
                CommitOrder::Free => UNORDERED_DEFAULT,
            }),
            keeps_order: self.commit_order == CommitOrder::Preserve,
            group: self.group,
        })
    }
}

/// Transactions one to one, with the source's GTIDs, as without further options.
pub(crate) fn one_to_one() -> Parallel {
    Parallel { by: ParallelBy::WriteSet, appliers: APPLIERS_DEFAULT, keeps_order: true, group: 1 }
}

/// `16`, `auto`.
fn parse_appliers(text: &str) -> Result<Appliers, String> {
    match text.parse() {
        Ok(number @ 1..=APPLIERS_MAX) => Ok(Appliers::Number(number)),
        _ if text == "auto" => Ok(Appliers::Auto),
        _ => Err(format!("expected auto, or a number from 1 to {APPLIERS_MAX}")),
    }
}

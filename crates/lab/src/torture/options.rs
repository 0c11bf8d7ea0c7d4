//! The command line of `spate lab torture`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::feature::{Feature, FeatureSet};
use super::report::TortureResult;
use super::settings::Failures;
use super::{Torture, TorturePlan};
use crate::binlog_format::Format;
use crate::contender;
use crate::home::{self, LabHome};
use crate::screen::Screen;
use crate::version::{ServerBinaries, ServerVersion};
use crate::{Result, output};

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  # Ten seeds of 15 seconds each, everything allowed, everything killed now and then
  spate lab torture --seed 1 --seeds 10 --seconds 15 --failures all --json torture.json

  # One seed again, kept and made as short as it goes
  spate lab torture --seed 7 --seconds 15 --failures all --keep ./torture --shrink

  # MySQL against its own replication; and from MariaDB to MySQL, where only the source can tell what is right
  spate lab torture --server mysql-9.7 --seeds 10
  spate lab torture --server mariadb-10.11 --replica mysql-9.7 --seeds 10

  # What --keep has kept, again
  spate lab torture --replay ./torture/seed-7.shrunk.jsonl

Each seed starts a source, a replica that follows by the server's own replication, and one that Spate keeps; in the end
both replicas must hold the same. Between vendors there is no such replication: Spate's replica must hold what the source
holds, in what both vendors know. The exit status is 0 only if no seed found a difference.

Features: types, keys, long-keys, generated, compressed, dml, foreign-keys, triggers, routines, partitions,
system-versioning, sequences, views, ddl, create-select, two-phase-alter, accounts, temporary-tables, load-data, xa,
engines, statement-context, domains, clients, events, spellings, replica-settings, by-hand, chain.";

/// Options of `spate replicate`, as arguments of its command line.
#[derive(Debug, Clone)]
pub struct SpateOptions(pub(crate) Vec<String>);

impl FromStr for SpateOptions {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<SpateOptions, String> {
        contender::spate_arguments(text).map(SpateOptions)
    }
}

/// Options of `lab torture`. The structure is flat because each field is one command-line option.
#[derive(Debug, Args)]
pub struct TortureOptions {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// How long each seed writes
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// How the source logs changes; without it, drawn from the seed
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Features that are not used
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    without: Vec<Feature>,
    /// Just these features, all of them in each seed
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    only: Vec<Feature>,
    /// The programs to kill during the torture
    #[arg(long, value_enum, default_value_t = Failures::None)]
    failures: Failures,
    /// Shrink the statements that show a finding, in at most so many seconds; 240 without a number
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "240")]
    shrink: Option<u64>,
    /// Keep the record of each seed in this directory, and with a finding also Spate's files
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Repeat a record that was kept, instead of making statements
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "seconds", "format", "without", "only", "failures", "spate"])]
    replay: Option<PathBuf>,
    /// Server of the source, and of the replicas too without --replica: mariadb-10.11, mariadb-11.8, mysql-9.7,
    /// mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// Server of the replica
    #[arg(long, value_name = "VERSION")]
    replica: Option<ServerVersion>,
    /// Options of `spate replicate` beside those that a seed draws, such as dialect=sql
    #[arg(long, value_name = "OPTION=VALUE,…")]
    spate: Option<SpateOptions>,
    /// Let `spate prefetch` read ahead of the native replica
    #[arg(long)]
    prefetch_native: bool,
    /// Write the result to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl TortureOptions {
    /// Runs the seeds, and prints the findings.
    ///
    /// # Errors
    /// Those of preparing the servers, and of writing the result.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let source = ServerBinaries::choose(self.server)?;
        let replica = self.replica.map_or_else(|| Ok(source.clone()), ServerVersion::resolve)?;
        let home = LabHome::open()?;
        // The source, Spate's replica, that of native replication, and a replica of Spate's.
        Screen::default().claim_disk(home.root(), 4 * home::SMALL_SERVER_BYTES)?;
        let plan = TorturePlan {
            features: FeatureSet::chosen(&self.only, &self.without),
            draw_features: self.only.is_empty(),
            format: self.format,
            failures: self.failures,
            time: Duration::from_secs(self.seconds),
            shrink: self.shrink.map(Duration::from_secs),
            keep: self.keep.clone(),
            spate: None,
            spate_arguments: self.spate.clone().map(|options| options.0).unwrap_or_default(),
            prefetches_natively: self.prefetch_native,
        };
        let torture = Torture::prepare(&home, &source, &replica, plan, Screen::default())?;
        let mut result = TortureResult { seeds: vec![] };
        let mut take = |seed: super::SeedResult, again: String| {
            let story = seed.story(&again);
            if !story.is_empty() {
                Screen::default().note(&story);
            }
            result.seeds.push(seed);
        };
        match &self.replay {
            Some(record) => take(torture.replay(record)?, format!("spate lab torture --replay {}", record.display())),
            None => (self.seed..self.seed.saturating_add(self.seeds))
                .for_each(|seed| take(torture.seed(seed), self.repeat_command(seed))),
        }
        output::show(&result.to_table(), &result, self.json.as_deref())?;
        Ok(if result.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The command that repeats a seed.
    fn repeat_command(&self, seed: u64) -> String {
        let mut command = format!("spate lab torture --seed {seed} --seconds {}", self.seconds);
        if let Some(format) = self.format {
            command += &format!(" --format {format}");
        }
        for (option, version) in [("--server", self.server), ("--replica", self.replica)] {
            if let Some(version) = version {
                command += &format!(" {option} {version}");
            }
        }
        for (option, features) in [("--without", &self.without), ("--only", &self.only)] {
            if !features.is_empty() {
                let names: Vec<&str> = features.iter().map(|feature| feature.name()).collect();
                command += &format!(" {option} {}", names.join(","));
            }
        }
        if let Some(SpateOptions(arguments)) = &self.spate {
            let options: Vec<&str> = arguments.iter().map(|argument| argument.trim_start_matches('-')).collect();
            command += &format!(" --spate {}", options.join(","));
        }
        if self.prefetch_native {
            command += " --prefetch-native";
        }
        if self.failures != Failures::None {
            command += &format!(" --failures {}", format!("{:?}", self.failures).to_lowercase());
        }
        command
    }
}

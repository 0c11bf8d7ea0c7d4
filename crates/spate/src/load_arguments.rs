//! The command line of `spate load`.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use spate_load::{Duplicates, IndexStrategy};

use crate::arguments::{parse_age, parse_size};
use crate::connection_arguments::{CommonArguments, ServerArguments};

#[derive(Debug, Args)]
pub(crate) struct LoadArguments {
    /// Files of records, plain or compressed by gzip or zstd; directories of such; - for standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// What records are like, and which table each goes to (TOML)
    #[arg(long, value_name = "FILE", required_unless_present = "table")]
    pub(crate) layout: Option<PathBuf>,
    /// Without a layout's own tables: the one for all records, such as cdr.calls, or one with values of columns in its name, such as cdr.calls_{start:%Y%m%d}
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Option<String>,
    /// The table that those of --table are created like, where they are not there
    #[arg(long, value_name = "SCHEMA.TABLE", requires = "table")]
    pub(crate) template: Option<String>,
    /// Without a layout: the form of the files; without this, as their names say
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "layout")]
    pub(crate) format: Option<FormatArgument>,
    /// Without a layout: the first record names the columns
    #[arg(long, conflicts_with = "layout")]
    pub(crate) header: bool,
    /// A name for the load: under each, a file is loaded once. Without it, the table's
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Connections that load at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) connections: u16,
    /// Memory to stay within
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    pub(crate) memory: u64,
    /// What to do with a record whose key is there: reject it, ignore it, or let it replace the other. But for reject, one connection loads, so that
    /// the order of the files decides
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = DuplicatesArgument::Reject)]
    pub(crate) duplicates: DuplicatesArgument,
    /// When to make the indexes of new tables that are not unique: before the rows, after them, or as a sample and the sizes suggest
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = IndexesArgument::Auto)]
    pub(crate) indexes: IndexesArgument,
    /// Keep the load out of the server's binlog: its replicas do not get the rows
    #[arg(long)]
    pub(crate) no_binlog: bool,
    /// The time zone of times in the files, for columns of the type TIMESTAMP; without it, the server's
    #[arg(long, value_name = "ZONE")]
    pub(crate) time_zone: Option<String>,
    /// Directory for the records that were not loaded, and why
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) rejects: PathBuf,
    /// Write nothing: show what would go where, and the first records that would be rejected
    #[arg(long, conflicts_with = "watch")]
    pub(crate) dry_run: bool,
    /// Load the files that come into the directories, until a signal
    #[arg(long)]
    pub(crate) watch: bool,
    /// With --watch: a file is whole when nobody has written to it for so long
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_age, requires = "watch")]
    pub(crate) settle: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Of files without a layout.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FormatArgument {
    /// Fields between commas, as RFC 4180 has them
    Csv,
    /// The same between tabs
    Tsv,
    /// As LOAD DATA reads them without options: tabs, backslashes, \N
    LoadData,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DuplicatesArgument {
    /// It goes to the rejects
    Reject,
    /// It is left out
    Ignore,
    /// It takes the other's place
    Replace,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum IndexesArgument {
    /// With the tables
    Before,
    /// When all rows are there
    After,
    /// Measure, and choose
    Auto,
}

impl From<DuplicatesArgument> for Duplicates {
    fn from(argument: DuplicatesArgument) -> Duplicates {
        match argument {
            DuplicatesArgument::Reject => Duplicates::Reject,
            DuplicatesArgument::Ignore => Duplicates::Ignore,
            DuplicatesArgument::Replace => Duplicates::Replace,
        }
    }
}

impl From<IndexesArgument> for IndexStrategy {
    fn from(argument: IndexesArgument) -> IndexStrategy {
        match argument {
            IndexesArgument::Before => IndexStrategy::Before,
            IndexesArgument::After => IndexStrategy::After,
            IndexesArgument::Auto => IndexStrategy::Auto,
        }
    }
}

//! The command line of `spate replay`.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use spate_workload::{InputFormat, LogTable, Pace};

use crate::connection_arguments::{CapturedArguments, CommonArguments, ServerArguments};

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    #[command(subcommand)]
    pub(crate) command: Option<ReplayCommand>,
    /// General logs, slow logs, or timed statements (CSV); - for standard input. Behind a comma: threads=N, each=N, sessions, or name=NAME for this one
    #[arg(value_name = "FILE[,…]", required_unless_present = "from_table")]
    pub(crate) inputs: Vec<String>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) captured: CapturedArguments,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Read the workload from this table of the --captured server
    #[arg(long, value_enum, value_name = "TABLE", conflicts_with = "inputs")]
    pub(crate) from_table: Option<TableArgument>,
    /// What the files are; without it, what their first lines say
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) format: Option<LogArgument>,
    /// So many connections share the statements, instead of one for each recorded session
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
    /// With --threads: each connection executes all statements
    #[arg(long, requires = "threads")]
    pub(crate) each: bool,
    /// When statements are executed: recorded, 2x (twice as fast), 0.5x, or fastest
    #[arg(long, value_name = "PACE", default_value = "recorded", value_parser = parse_pace)]
    pub(crate) pace: PaceArgument,
    /// Also replay what writes rows or definitions: it changes the server's data, as the statements say. With --threads, each statement commits by
    /// itself, and what needs its session (transactions, variables, temporary tables) is left out
    #[arg(long)]
    pub(crate) writes: bool,
    /// Default schema of sessions whose own is not recorded
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// At most so many recorded sessions of an input at a time, each with a connection and a thread
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) sessions_max: usize,
    /// Write a line for each response
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a page with graphs: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write all figures, for `spate replay compare`; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// Compare two replays: what became slower or faster, and what has another result
    Compare(CompareArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// What --json of the first replay has written
    #[arg(value_name = "A.json")]
    pub(crate) first: PathBuf,
    /// And of the second
    #[arg(value_name = "B.json")]
    pub(crate) second: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PaceArgument(pub(crate) Pace);

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogArgument {
    /// A general log
    GeneralLog,
    /// A slow log
    SlowLog,
    /// Timed statements, with a header
    Csv,
    /// An archive, or any directory of binlogs: the statements that it has the text of
    Binlog,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TableArgument {
    /// mysql.general_log
    GeneralLog,
    /// mysql.slow_log
    SlowLog,
    /// performance_schema.events_statements_history_long
    History,
}

impl From<LogArgument> for InputFormat {
    fn from(argument: LogArgument) -> InputFormat {
        match argument {
            LogArgument::GeneralLog => InputFormat::GeneralLog,
            LogArgument::SlowLog => InputFormat::SlowLog,
            LogArgument::Csv => InputFormat::Csv,
            LogArgument::Binlog => InputFormat::Binlog,
        }
    }
}

impl From<TableArgument> for LogTable {
    fn from(argument: TableArgument) -> LogTable {
        match argument {
            TableArgument::GeneralLog => LogTable::General,
            TableArgument::SlowLog => LogTable::Slow,
            TableArgument::History => LogTable::History,
        }
    }
}

fn parse_pace(text: &str) -> Result<PaceArgument, String> {
    const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;
    let factor = match text {
        "fastest" => return Ok(PaceArgument(Pace::Fastest)),
        "recorded" => 1.0,
        other => other.strip_suffix('x').and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0),
    };
    match FACTORS.contains(&factor) {
        true => Ok(PaceArgument(Pace::Recorded(factor))),
        false => Err("expected recorded, fastest, or a factor such as 2x, from 0.000001x to 1000000x".to_owned()),
    }
}

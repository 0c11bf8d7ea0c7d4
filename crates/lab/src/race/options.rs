//! The command line of `lab race`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{Race, RacePlan};
use crate::backlog::BacklogPlan;
use crate::binlog_format::Format;
use crate::chain::Waiting;
use crate::contender::Contender;
use crate::course::BacklogPlace;
use crate::home::LabHome;
use crate::screen::Screen;
use crate::server_options::{Durability, ServerOption};
use crate::version::{ServerBinaries, ServerVersion};
use crate::workload::{LOAD_SEED, Shape, Workload};
use crate::{Result, output};

/// Shown behind the options.
pub const EXAMPLES: &str = "\
Examples:
  # Spate against the server's own replication, everything in memory, nothing may be lost
  spate lab race --workload cached --durability durable --seconds 20 \\
      --contender native:0 --contender native:16:optimistic --contender spate --json race.json

  # Two settings of Spate on the same backlog, kept for the next race
  spate lab race --workload cached --reuse-backlog --contender spate:batch-transactions=100 \\
      --contender spate:batch-transactions=10000

  # MySQL against itself: commits in the source's order, and as they come
  spate lab race --server mysql-9.7 --contender native:1 --contender native:16 --contender native:16:free

  # A quick look with small tables
  spate lab race --rows 1000 --tables 1 --buffer-pool-mib 64 --seconds 2 --contender native:4 --contender spate

  # At the end of a chain A → B → C → D, where C waits before it commits, so that its commit groups are wide
  spate lab race --chain --seconds 10 --contender native:10:conservative --contender spate

The exit status is 0 only if every contender caught up and all its tables are identical to the source's.";

/// Options of `lab race`. The structure is flat because each field is one command-line option.
#[derive(Debug, Args)]
pub struct RaceOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// The tables, and the replica's memory for them
    #[arg(long, value_enum, default_value_t = Workload::Cached)]
    workload: Workload,
    /// How the source logs changes
    #[arg(long, value_enum, default_value_t = Format::Row)]
    format: Format,
    /// What the replica may lose when the machine stops
    #[arg(long, value_enum, default_value_t = Durability::Durable)]
    durability: Durability,
    /// How long the source writes while the replica is down
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// A contender: native:THREADS[:MODE][+prefetch[:option=value…]] or spate[:option=value,option=value…]; may be given several times
    #[arg(long = "contender", required = true, value_name = "CONTENDER")]
    contenders: Vec<Contender>,
    /// Write the result to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page for people to this file, with the falling lag of each contender; a browser follows it while the race runs
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Where the backlog is when the clock starts
    #[arg(long, value_enum, default_value_t = BacklogPlace::Received)]
    backlog: BacklogPlace,
    /// Let the replica log what it applies
    #[arg(long)]
    replica_binlog: bool,
    /// Option of the replica's server; may be given several times
    #[arg(long = "replica-option", value_name = "NAME=VALUE")]
    replica_options: Vec<ServerOption>,
    /// Tables in each of the 4 schemas, instead of the workload's number
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=5_000))]
    tables: Option<u16>,
    /// Rows in each table, instead of the workload's number
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: Option<u64>,
    /// The replica's buffer pool in MiB, instead of the workload's
    #[arg(long, value_parser = clap::value_parser!(u64).range(16..))]
    buffer_pool_mib: Option<u64>,
    /// Transactions per second that the source writes; without it, as many as it can
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    #[command(flatten)]
    drawn: Drawn,
    /// Slow the replica's disk down: each read of a page for which its server waits takes so much longer; needs strace
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    read_latency_microseconds: Option<u64>,
    /// Let the backlog go through intermediate sources, A → B → C → D: contenders apply on D what C has in its binlog
    #[arg(long)]
    chain: bool,
    /// C waits until so many transactions can be committed together …
    #[arg(long, requires = "chain", default_value_t = Waiting::USUAL.count, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    wait_count: u32,
    /// … but no longer than this
    #[arg(long, requires = "chain", default_value_t = Waiting::USUAL.microseconds,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    wait_microseconds: u32,
    /// Keep the backlog, and reuse the one that an earlier race with the same load kept
    #[arg(long)]
    reuse_backlog: bool,
    /// Give up on a contender after this long
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    limit_seconds: u64,
}

/// How transactions are drawn.
#[derive(Debug, Clone, Copy, Args)]
pub struct Drawn {
    /// Draw the load's transactions from this
    #[arg(long, default_value_t = LOAD_SEED)]
    seed: u64,
    /// How unevenly the workload `skewed` changes rows: the exponent of Zipf's law; 0: all equally often
    #[arg(long, value_name = "EXPONENT", value_parser = exponent_hundredths)]
    zipf: Option<u32>,
}

impl Drawn {
    /// A load that is drawn so.
    pub(crate) fn of(self, shape: Shape) -> Shape {
        let shape = shape.with_seed(self.seed);
        self.zipf.map_or(shape, |hundredths| shape.with_skew(hundredths))
    }
}

fn exponent_hundredths(text: &str) -> std::result::Result<u32, String> {
    match text.parse::<f64>() {
        Ok(exponent) if (0.0..=5.0).contains(&exponent) => Ok((exponent * 100.0).round() as u32),
        _ => Err("an exponent is a number from 0 to 5, such as 1.2".to_owned()),
    }
}

impl RaceOptions {
    /// Runs the race and shows its result.
    ///
    /// # Errors
    /// Those of [`Race::prepare`] and [`Race::run`].
    pub fn run(self) -> Result<ExitCode> {
        let shape = Shape::new(self.workload, self.tables.map(usize::from), self.rows, self.buffer_pool_mib);
        let shape = self.drawn.of(shape);
        let plan = RacePlan {
            backlog: BacklogPlan {
                shape,
                format: self.format,
                seconds: self.seconds,
                rate: self.rate,
                transactions: None,
                reuse: self.reuse_backlog,
            },
            place: self.backlog,
            durability: self.durability,
            replica_binlog: self.replica_binlog,
            replica_options: self.replica_options,
            chain: self.chain.then_some(Waiting { count: self.wait_count, microseconds: self.wait_microseconds }),
            read_latency: self.read_latency_microseconds.map(Duration::from_micros),
            limit: Duration::from_secs(self.limit_seconds),
            report: self.report,
        };
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let work = home.work()?;
        // Source and replica; A, B and C.
        let servers = if self.chain { 4 } else { 2 };
        let binlog = shape.binlog_bytes(self.rate, self.seconds);
        Screen::default().claim_disk(work.path(), shape.disk_bytes(servers, binlog))?;
        let race = Race::prepare(&home, &binaries, &plan, work.path(), Screen::default())?;
        let result = race.run(&self.contenders, work.path())?;
        output::show(&format!("{}\n{}", result.summary(), result.to_table()), &result, self.json.as_deref())?;
        if let Some(failure) = &result.failure {
            Screen::default().note(&format!("The race ended early. {failure}"));
        }
        Ok(if result.all_identical() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

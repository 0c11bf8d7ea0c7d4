//! The command line of `lab chain`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{ChainPlan, LastPlan, Waiting, run};
use crate::Result;
use crate::backlog::BacklogPlan;
use crate::binlog_format::Format;
use crate::home::LabHome;
use crate::output;
use crate::screen::Screen;
use crate::server_options::Durability;
use crate::version::{ServerBinaries, ServerVersion};
use crate::workload::{Shape, Workload};

/// Shown behind the options.
pub const EXAMPLES: &str = "\
Examples:
  # Ten seconds of load on A; C waits for 40 transactions, or 50 ms, before it commits
  spate lab chain --seconds 10 --wait-count 40 --wait-microseconds 50000 --json chain.json

  # D with 1, 5, 10 and 20 appliers, and without its disk
  spate lab chain --seconds 10 --appliers 1,5,10,20 --durability relaxed

The exit status is 0 only if D's tables are always those of A.";

/// Options of `lab chain`.
#[derive(Debug, Args)]
pub struct ChainOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// How long A writes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Transactions per second that A writes; without it, as many as it can
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// C waits until so many transactions can be committed together …
    #[arg(long, default_value_t = Waiting::USUAL.count, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    wait_count: u32,
    /// … but no longer than this
    #[arg(long, default_value_t = Waiting::USUAL.microseconds, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    wait_microseconds: u32,
    /// Numbers of D's appliers
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_values_t = [1, 4, 16],
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    appliers: Vec<u32>,
    /// What D may lose when the machine stops
    #[arg(long, value_enum, default_value_t = Durability::Durable)]
    durability: Durability,
    /// Rows in each table, instead of the workload's number
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: Option<u64>,
    /// Write the result to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Give up on a server after this long
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    limit_seconds: u64,
}

impl ChainOptions {
    /// Runs the scenario and shows its result.
    ///
    /// # Errors
    /// Those of [`run`].
    pub fn run(self) -> Result<ExitCode> {
        const BUFFER_POOL_MIB: u64 = 512;
        let plan = ChainPlan {
            backlog: BacklogPlan {
                shape: Shape::new(Workload::Cached, None, self.rows, Some(BUFFER_POOL_MIB)),
                format: Format::Row,
                seconds: self.seconds,
                rate: self.rate,
                transactions: None,
                reuse: false,
            },
            waiting: Waiting { count: self.wait_count, microseconds: self.wait_microseconds },
            limit: Duration::from_secs(self.limit_seconds),
        };
        let last = LastPlan { appliers: self.appliers, durability: self.durability };
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let work = home.work()?;
        let screen = Screen::default();
        // A, B, C and D.
        let shape = plan.backlog.shape;
        screen.claim_disk(work.path(), shape.disk_bytes(4, shape.binlog_bytes(self.rate, self.seconds)))?;
        let result = run(&home, &binaries, &plan, &last, work.path(), &screen)?;
        output::show(&format!("{}\n{}", result.summary(), result.to_table()), &result, self.json.as_deref())?;
        Ok(if result.all_identical() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

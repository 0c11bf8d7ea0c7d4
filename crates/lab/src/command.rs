//! The command line of the laboratory: its options, and what each command prints.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::calls::options::{GenerateCommand, StudyCommand};
use crate::chain::{self, ChainOptions};
use crate::contender::Contender;
use crate::dataset_command::{self, DatasetCommand};
use crate::equal::{self, EqualOptions};
use crate::experiment;
use crate::experiment::compare::CompareOptions;
use crate::experiment::options::ExperimentOptions;
use crate::experiment::report::ReportOptions;
use crate::failover::{self, FailoverOptions};
use crate::follower::LivePlan;
use crate::home::LabHome;
use crate::race::{self, Drawn, RaceOptions};
use crate::recovery::{self, RecoverOptions};
use crate::sandbox_registry::{self, Layout, ServerRecord, Topology};
use crate::screen::{self, Screen};
use crate::server_options::{Durability, ServerOption};
use crate::torture::options::{self, TortureOptions};
use crate::version::{ServerBinaries, ServerVersion};
use crate::workload::{Shape, Workload};
use crate::{Result, demo, output, steady};

const SANDBOX_EXAMPLES: &str = "\
Examples:
  spate lab sandbox start --replicas 2
  spate lab sandbox start --name big --server mariadb-10.11 -o innodb_buffer_pool_size=1G
  spate lab sandbox start --name my --server mysql-9.7
  spate lab sandbox start --name abcd --topology chain --replicas 3       # A → B → C → D
  spate lab sandbox start --name late --topology star --replicas 2 --delay-seconds 600
  spate lab sandbox start --name galera --topology galera --replicas 2    # three nodes
  spate lab sandbox list
  spate lab sandbox stop big
  spate lab sandbox stop --all";

const STEADY_EXAMPLES: &str = "\
Examples:
  spate lab steady --rate 2000 --seconds 60 --json steady.json
  spate lab steady --rate 500 --seconds 20 --follower native:16:optimistic

  # Orders and payments, whose books a reader of the replica finds balanced at every moment
  spate lab steady --workload tpcc --rate 200 --seconds 60

The lag is the time from the commit on the source to the first look at the replica that shows the row; 50 rows per
second are watched. The exit status is 0 only if all tables are identical afterwards, and a load's consistency conditions held all the time.";

const DEMO_EXAMPLES: &str = "\
Examples:
  spate lab demo
  spate lab demo --json demo.json";

/// Sandboxes of real servers, catch-up races, lag under a live load.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Make, list, remove, export and import the data sets that servers begin with
    #[command(after_help = dataset_command::EXAMPLES)]
    Dataset {
        #[command(subcommand)]
        /// The command.
        command: DatasetCommand,
    },
    /// Remove what earlier commands left: sandboxes whose servers have crashed, the files of killed commands; with --all also what is kept
    Clean {
        /// Also sandboxes that were stopped with --keep-data, data sets, backlogs, empty data directories, runs of interrupted experiments
        #[arg(long)]
        all: bool,
    },
    /// Start, list and stop real servers in directories of their own
    Sandbox {
        #[command(subcommand)]
        /// The command.
        command: SandboxCommand,
    },
    /// Let contenders catch up with the same backlog from the same replica, one after the other
    #[command(after_help = race::EXAMPLES)]
    Race(RaceOptions),
    /// Measure the lag under a live load
    #[command(after_help = STEADY_EXAMPLES)]
    Steady(SteadyOptions),
    /// Widen the commit groups of an intermediate source, and measure what the server behind it gains
    #[command(after_help = chain::EXAMPLES)]
    Chain(ChainOptions),
    /// Kill a source under load, promote a replica, and let the old source come back, again and again
    #[command(after_help = failover::EXAMPLES)]
    Failover(FailoverOptions),
    /// Compare Spate with the server's own replication under hostile statements and failures, drawn from a seed
    #[command(after_help = options::EXAMPLES)]
    Torture(TortureOptions),
    /// Compare what Spate and the server's own replication make of your statements on your kind of replica
    #[command(after_help = equal::EXAMPLES)]
    Equal(EqualOptions),
    /// Recover to the last transaction by the servers' own programs, and by spate restore
    #[command(after_help = recovery::EXAMPLES)]
    Recover(RecoverOptions),
    /// Make data
    Generate {
        #[command(subcommand)]
        /// The command.
        command: GenerateCommand,
    },
    /// Repeat a study, step by step, beside Spate
    Study {
        #[command(subcommand)]
        /// The command.
        command: StudyCommand,
    },
    /// Repeat one of the field's measurements, at any size, with its tables and graphs
    #[command(after_help = experiment::options::EXAMPLES)]
    Experiment(ExperimentOptions),
    /// Make a page of experiments' results
    #[command(after_help = experiment::report::EXAMPLES)]
    Report(ReportOptions),
    /// Say what became slower from one result to another, by more than the noise
    #[command(after_help = experiment::compare::EXAMPLES)]
    Compare(CompareOptions),
    /// Show it all: a replica a minute behind, the race to catch up, the lag under a live load
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoOptions),
}

/// The commands for sandboxes.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Start a source and replicas, and print how to connect
    #[command(after_help = SANDBOX_EXAMPLES)]
    Start(StartOptions),
    /// Show all sandboxes
    #[command(after_help = SANDBOX_EXAMPLES)]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop sandboxes and remove their data
    #[command(after_help = SANDBOX_EXAMPLES)]
    Stop {
        /// Which one
        #[arg(default_value = DEFAULT_NAME)]
        name: String,
        /// All of them
        #[arg(long)]
        all: bool,
        /// Keep the data; `start` with the same name and the same options continues with it
        #[arg(long)]
        keep_data: bool,
    },
}

const DEFAULT_NAME: &str = "lab";

/// Options of `lab sandbox start`.
#[derive(Debug, Args)]
pub struct StartOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// Number of replicas beside the source; of a Galera cluster, nodes beside the first
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=16))]
    replicas: u8,
    /// Who follows whom by the servers' own replication
    #[arg(long, value_enum, default_value_t = Topology::Apart)]
    topology: Topology,
    /// Replicas apply each transaction so long after its commit on the source (star and chain)
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    delay_seconds: u32,
    /// Name of the sandbox
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// Option of the servers; may be given several times
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
    options: Vec<ServerOption>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StartOptions {
    fn layout(&self) -> Layout {
        Layout { topology: self.topology, replicas: self.replicas.into(), delay_seconds: self.delay_seconds }
    }
}

/// Options of `lab steady`.
#[derive(Debug, Args)]
pub struct SteadyOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// Transactions per second on the source
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(4..))]
    rate: u64,
    /// How long the lag is measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How long the load runs before that
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    warm_up_seconds: u64,
    /// The tables, and what is written to them
    #[arg(long, value_enum, default_value_t = Workload::Cached)]
    workload: Workload,
    /// The follower: spate[:option=value,option=value…] or native:THREADS[:MODE][+prefetch[:option=value…]]
    #[arg(long, default_value = "spate", value_name = "CONTENDER")]
    follower: Contender,
    /// Tables in each of the 4 schemas
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tables: Option<u16>,
    /// Rows in each table
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: Option<u64>,
    #[command(flatten)]
    drawn: Drawn,
    /// Write the result to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Options of `lab demo`.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// Write the results to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs a command of the laboratory.
///
/// # Errors
/// Any error that prevents a result. A bad result (tables that differ) is no error, but an
/// exit status other than 0.
pub fn run(command: LabCommand) -> Result<ExitCode> {
    match command {
        LabCommand::Sandbox { command } => sandbox(command),
        LabCommand::Dataset { command } => command.run(),
        LabCommand::Clean { all } => clean(all),
        LabCommand::Race(options) => options.run(),
        LabCommand::Steady(options) => steady(options),
        LabCommand::Chain(options) => options.run(),
        LabCommand::Failover(options) => options.run(),
        LabCommand::Torture(options) => options.run(),
        LabCommand::Equal(options) => options.run(),
        LabCommand::Recover(options) => options.run(),
        LabCommand::Generate { command: GenerateCommand::Cdr(options) } => options.run(),
        LabCommand::Study { command: StudyCommand::Cdr(options) } => options.run(),
        LabCommand::Study { command: StudyCommand::Replay(options) } => options.run(),
        LabCommand::Study { command: StudyCommand::Points(options) } => options.run(),
        LabCommand::Experiment(options) => options.run(),
        LabCommand::Report(options) => options.run(),
        LabCommand::Compare(options) => options.run(),
        LabCommand::Demo(options) => demo(options),
    }
}

fn sandbox(command: SandboxCommand) -> Result<ExitCode> {
    let home = LabHome::open()?;
    match command {
        SandboxCommand::Start(options) => {
            let binaries = ServerBinaries::choose(options.server)?;
            let step = Screen::default().spinner("the servers start");
            let started = sandbox_registry::start(&home, &binaries, &options.name, options.layout(), &options.options);
            step.finish_and_clear();
            let records = started?;
            show_servers(&records, options.json)?;
            if !options.json && options.topology == Topology::Apart {
                screen::print(&how_to_connect(&records));
            }
        }
        SandboxCommand::List { json } => show_servers(&sandbox_registry::list(&home)?, json)?,
        SandboxCommand::Stop { name, all: false, keep_data } => sandbox_registry::stop(&home, &name, keep_data)?,
        SandboxCommand::Stop { all: true, keep_data, .. } => {
            let mut names: Vec<String> =
                sandbox_registry::list(&home)?.into_iter().map(|record| record.sandbox).collect();
            names.dedup();
            names.iter().try_for_each(|name| sandbox_registry::stop(&home, name, keep_data))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes what is left. Servers that run, and the commands that run, keep theirs.
fn clean(all: bool) -> Result<ExitCode> {
    let home = LabHome::open()?;
    // First: while another command runs, it removes nothing.
    if all {
        home.remove_caches()?;
    }
    sandbox_registry::clean(&home, all)?;
    Ok(ExitCode::SUCCESS)
}

fn show_servers(records: &[ServerRecord], json: bool) -> Result<()> {
    if json {
        return output::print_json(&records);
    }
    let row = |record: &ServerRecord| {
        let state = if record.is_running() { "running" } else { "stopped" };
        vec![
            record.sandbox.clone(),
            record.role.clone(),
            record.server.clone(),
            state.to_owned(),
            format!("127.0.0.1:{}", record.port),
            format!("mariadb -u root -S {}", record.socket.display()),
        ]
    };
    let header = ["sandbox", "role", "server", "state", "address", "connect with"];
    screen::print(&screen::table(&header, header.len(), records.iter().map(row).collect()).to_string());
    Ok(())
}

/// How to let Spate replicate between the first two servers.
fn how_to_connect(records: &[ServerRecord]) -> String {
    let [source, replica, ..] = records else {
        return String::new();
    };
    // The certificate of a sandbox proves nothing, and accounts of MySQL need the password itself at the first login.
    let allowed = if source.server.starts_with("mysql") { " --source-allow-clear-password" } else { "" };
    format!(
        "Over TCP the user is '{}' with the password {}.\nReplicate with:\n  SPATE_SOURCE_PASSWORD={} spate replicate \
         --source {}@127.0.0.1:{}{allowed} --replica root@{} --archive ./archive --start earliest",
        source.user,
        source.password,
        source.password,
        source.user,
        source.port,
        replica.socket.display()
    )
}

fn steady(options: SteadyOptions) -> Result<ExitCode> {
    /// Enough for the tables; the load is about commits, not about memory.
    const BUFFER_POOL_MIB: u64 = 512;
    let shape = Shape::new(options.workload, options.tables.map(usize::from), options.rows, Some(BUFFER_POOL_MIB));
    let shape = options.drawn.of(shape);
    let plan =
        LivePlan { shape, rate: options.rate, warm_up_seconds: options.warm_up_seconds, seconds: options.seconds };
    let binaries = ServerBinaries::choose(options.server)?;
    let home = LabHome::open()?;
    let work = home.work()?;
    let binlog = shape.binlog_bytes(Some(options.rate), options.warm_up_seconds + options.seconds);
    Screen::default().claim_disk(work.path(), shape.disk_bytes(2, binlog))?;
    let result = steady::measure(
        &home,
        &binaries,
        &options.follower,
        &plan,
        Durability::Durable,
        work.path(),
        &Screen::default(),
    )?;
    let books = result.books.as_ref().map_or_else(String::new, |books| format!("\n{}", steady::books_in_words(books)));
    output::show(&format!("{}{books}", steady::to_table(&[&result])), &result, options.json.as_deref())?;
    Ok(if result.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn demo(options: DemoOptions) -> Result<ExitCode> {
    let binaries = ServerBinaries::choose(options.server)?;
    let result = demo::run(&LabHome::open()?, &binaries, options.json.as_deref())?;
    Ok(if result.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! Intermediate sources: a chain A → B → C → D of servers with the vendor's own replication, where C waits before it commits, so that more transactions
//! share a commit group, and D has more to do at the same time.
//!
//! B and C apply the backlog of the server before and log it. How many transactions a commit group has is read from each server's binlog, by `spate analyze`;
//! how much that helps is what D takes with so many appliers, which go by the groups (MariaDB: conservative, MySQL: the logical clock).

mod options;

use std::path::Path;
use std::time::Duration;

use comfy_table::Table;
use indicatif::ProgressBar;
use serde::Serialize;

pub use options::{ChainOptions, EXAMPLES};

use crate::backlog::{Backlog, BacklogPlan};
use crate::comparison::{checksums, different_tables};
use crate::contender::NativeMode;
use crate::course::ReplicaLog;
use crate::dataset::{DataSet, become_replica, replica_options, source_options};
use crate::home::LabHome;
use crate::native::NativeReplication;
use crate::sandbox::{Lifetime, Sandbox};
use crate::screen::{Screen, table};
use crate::server_options::{Durability, ServerOptions};
use crate::spate_program;
use crate::vendor::Vendor;
use crate::version::ServerBinaries;
use crate::{Error, Result};

/// B and C have to be done before D can begin, and are not what is measured.
const FAST_APPLIERS: u32 = 16;

/// Server ids of B, C and D, behind those of source and replica.
const FIRST_ID: u32 = 11;

/// How C waits before it commits.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// Until so many transactions can be committed together,
    pub count: u32,
    /// but no longer than this, in microseconds.
    pub microseconds: u32,
}

impl Waiting {
    /// Unless one says otherwise.
    pub const USUAL: Waiting = Waiting { count: 40, microseconds: 50_000 };

    /// The options by which C waits.
    pub(crate) fn options(self, vendor: Vendor) -> [(&'static str, u32); 2] {
        let Waiting { count, microseconds } = self;
        match vendor {
            Vendor::MariaDb => [("binlog-commit-wait-count", count), ("binlog-commit-wait-usec", microseconds)],
            Vendor::MySql => {
                [("binlog-group-commit-sync-no-delay-count", count), ("binlog-group-commit-sync-delay", microseconds)]
            }
        }
    }
}

/// The chain up to C.
#[derive(Debug, Clone)]
pub struct ChainPlan {
    /// What A writes.
    pub backlog: BacklogPlan,
    /// How C waits.
    pub waiting: Waiting,
    /// Give up after this.
    pub limit: Duration,
}

/// What is measured behind it.
#[derive(Debug, Clone)]
pub struct LastPlan {
    /// The numbers of D's appliers.
    pub appliers: Vec<u32>,
    /// Whether D writes each commit to the disk.
    pub durability: Durability,
}

/// The commit groups in a server's binlog.
#[derive(Debug, Clone, Serialize)]
pub struct Groups {
    /// A, B or C.
    pub server: String,
    /// Transactions of a group, on average.
    pub mean: f64,
}

/// How wide they are.
pub(crate) fn groups_in_words(groups: &[Groups]) -> String {
    let groups: Vec<String> =
        groups.iter().map(|groups| format!("{}: {:.2} transactions a group", groups.server, groups.mean)).collect();
    groups.join(", ")
}

/// What D took, behind a C of one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Variant {
    /// How C waits; empty if it does not.
    pub waiting: String,
    /// How long C took.
    pub intermediate_seconds: f64,
    /// In C's binlog.
    pub group_size: f64,
    /// How long D took, by its number of appliers.
    pub runs: Vec<Run>,
}

/// D, with so many appliers.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// How many.
    pub appliers: u32,
    /// How long it took.
    pub seconds: f64,
    /// Its tables are those of A.
    pub identical: bool,
}

/// The result of the scenario.
#[derive(Debug, Clone, Serialize)]
pub struct ChainResult {
    /// The server's version.
    pub server: String,
    /// Transactions of the backlog.
    pub transactions: u64,
    /// Commit groups of A and B.
    pub groups: Vec<Groups>,
    /// C without waiting, and with it.
    pub variants: Vec<Variant>,
}

impl ChainResult {
    /// True if all tables were those of A.
    pub fn all_identical(&self) -> bool {
        self.variants.iter().flat_map(|variant| &variant.runs).all(|run| run.identical)
    }

    /// For people: a line for each setting of C, with what D takes in seconds, and how many times as fast as one applier that is.
    pub fn to_table(&self) -> Table {
        let numbers =
            self.variants.first().map(|variant| variant.runs.iter().map(|run| run.appliers)).into_iter().flatten();
        let mut header = vec!["C waits".to_owned(), "C takes s".to_owned(), "transactions a group".to_owned()];
        header.extend(numbers.map(|appliers| format!("D with {appliers}")));
        let rows = self.variants.iter().map(|variant| {
            let waiting = if variant.waiting.is_empty() { "no".to_owned() } else { variant.waiting.clone() };
            let one = variant.runs.first().map_or(0.0, |run| run.seconds);
            let mut row =
                vec![waiting, format!("{:.1}", variant.intermediate_seconds), format!("{:.2}", variant.group_size)];
            row.extend(variant.runs.iter().map(|run| {
                let mark = if run.identical { "" } else { " DIFFERENT" };
                format!("{:.1} ({:.2} ×){mark}", run.seconds, one / run.seconds)
            }));
            row
        });
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        table(&header, 1, rows.collect())
    }

    /// What was applied, and by whom.
    pub fn summary(&self) -> String {
        let groups = groups_in_words(&self.groups);
        format!("{}: {} transactions; {groups}", self.server, self.transactions)
    }
}

/// A chain that is being built.
struct Chain<'a> {
    binaries: &'a ServerBinaries,
    plan: &'a ChainPlan,
    dataset: &'a DataSet,
    end: String,
    directory: &'a Path,
    screen: &'a Screen,
}

/// Builds the chain and measures it.
///
/// # Errors
/// Those of the load, the servers and their replication. Tables that differ are part of the result.
pub fn run(
    home: &LabHome,
    binaries: &ServerBinaries,
    plan: &ChainPlan,
    last: &LastPlan,
    directory: &Path,
    screen: &Screen,
) -> Result<ChainResult> {
    let (dataset, Backlog { source: a, facts }) = first(home, binaries, plan, directory, screen)?;
    let chain = Chain { binaries, plan, dataset: &dataset, end: facts.end.clone(), directory, screen };
    let (b, groups) = chain.first_two(a)?;
    let mut variants = Vec::new();
    for waits in [false, true] {
        let (c, took) = chain.intermediate(&b, waits)?;
        let waiting: Vec<String> =
            plan.waiting.options(binaries.vendor()).iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut runs = Vec::new();
        for &appliers in &last.appliers {
            let name = format!("d-{appliers}");
            let d = chain.server(&name, FIRST_ID + 2, false, last.durability, |options| options)?;
            let took = chain.follow(&name, &d, &c, (appliers, chain.group_mode()))?;
            let identical = different_tables(&checksums(&d)?, &facts.checksums).is_empty();
            runs.push(Run { appliers, seconds: took.as_secs_f64(), identical });
            d.stop()?;
            let place = directory.join(&name);
            std::fs::remove_dir_all(&place).map_err(Error::file("remove", &place))?;
        }
        variants.push(Variant {
            waiting: if waits { waiting.join(" ") } else { String::new() },
            intermediate_seconds: took.as_secs_f64(),
            group_size: group_size(&c)?,
            runs,
        });
        c.stop()?;
    }
    Ok(ChainResult {
        server: format!("{} ({})", binaries.version, binaries.full_version),
        transactions: facts.count.transactions,
        groups,
        variants,
    })
}

/// The data set, and A with what it has written.
fn first(
    home: &LabHome,
    binaries: &ServerBinaries,
    plan: &ChainPlan,
    directory: &Path,
    screen: &Screen,
) -> Result<(DataSet, Backlog)> {
    let step = screen.spinner("the data set");
    let dataset = DataSet::open(home, binaries, &plan.backlog.shape)?;
    step.finish_and_clear();
    let backlog = Backlog::open(home, binaries, &dataset, &plan.backlog, &directory.join("a"), screen)?;
    Ok((dataset, backlog))
}

/// A source behind two others, whose commit groups are wide.
pub struct Widened {
    /// The data that the backlog begins with.
    pub dataset: DataSet,
    /// C, at rest, with the whole backlog in its binlog.
    pub backlog: Backlog,
    /// The commit groups of A, B and C.
    pub groups: Vec<Groups>,
}

/// Builds the chain up to C, which waits.
///
/// # Errors
/// As [`run`].
pub fn widen(
    home: &LabHome,
    binaries: &ServerBinaries,
    plan: &ChainPlan,
    directory: &Path,
    screen: &Screen,
) -> Result<Widened> {
    let (dataset, Backlog { source: a, facts }) = first(home, binaries, plan, directory, screen)?;
    let chain = Chain { binaries, plan, dataset: &dataset, end: facts.end.clone(), directory, screen };
    let (b, mut groups) = chain.first_two(a)?;
    let (c, _) = chain.intermediate(&b, true)?;
    groups.push(Groups { server: "C".to_owned(), mean: group_size(&c)? });
    let of_b = b.stop()?;
    let step = screen.spinner("C comes to rest");
    c.connect()?.run("SET GLOBAL innodb_fast_shutdown = 0")?;
    let of_c = c.stop()?;
    for finished in [directory.join("a"), of_b] {
        std::fs::remove_dir_all(&finished).map_err(Error::file("remove", &finished))?;
    }
    let options = source_options(binaries.vendor(), &plan.backlog.shape)
        .with_durability(Durability::Relaxed)
        .with_replica_log(binaries.vendor(), true)
        .with("server-id", FIRST_ID + 1);
    let source = Sandbox::start(binaries, &of_c, &options, Lifetime::Ours)?;
    step.finish_and_clear();
    Ok(Widened { dataset, backlog: Backlog { source, facts }, groups })
}

impl Chain<'_> {
    /// B applies what A has; A is not needed any more.
    fn first_two(&self, a: Sandbox) -> Result<(Sandbox, Vec<Groups>)> {
        let b = self.server("b", FIRST_ID, true, Durability::Relaxed, |options| options)?;
        self.follow("b", &b, &a, (FAST_APPLIERS, NativeMode::usual(self.binaries.vendor())))?;
        let groups = [("A", group_size(&a)?), ("B", group_size(&b)?)];
        a.stop()?;
        Ok((b, groups.map(|(server, mean)| Groups { server: server.to_owned(), mean }).into()))
    }

    /// C applies what B has, and waits before each commit or does not; how long it took.
    fn intermediate(&self, b: &Sandbox, waits: bool) -> Result<(Sandbox, Duration)> {
        let name = if waits { "c-waiting" } else { "c" };
        let c = self.server(name, FIRST_ID + 1, true, Durability::Durable, |options| match waits {
            true => self
                .plan
                .waiting
                .options(self.binaries.vendor())
                .into_iter()
                .fold(options, |options, (name, value)| options.with(name, value)),
            false => options,
        })?;
        // Those that wait for others must be there to be waited for.
        let appliers = if waits { self.plan.waiting.count.max(FAST_APPLIERS) } else { FAST_APPLIERS };
        let took = self.follow(name, &c, b, (appliers, NativeMode::usual(self.binaries.vendor())))?;
        Ok((c, took))
    }

    /// A server with the data that the backlog begins with.
    fn server(
        &self,
        name: &str,
        id: u32,
        logs: bool,
        durability: Durability,
        with: impl FnOnce(ServerOptions) -> ServerOptions,
    ) -> Result<Sandbox> {
        let (vendor, shape) = (self.binaries.vendor(), &self.plan.backlog.shape);
        let log = if logs { ReplicaLog::Intermediate } else { ReplicaLog::Own };
        let options = replica_options(vendor, shape, log).with_durability(durability).with("server-id", id);
        let place = self.directory.join(name);
        let server = self.dataset.restore(self.binaries, &place, &with(options))?;
        let position = &self.dataset.facts.position;
        become_replica(&server, position)?;
        if vendor == Vendor::MariaDb {
            // Whoever follows it begins behind this, which is in no binlog of its own.
            server.connect()?.run(&format!("SET GLOBAL gtid_binlog_state = '{position}'"))?;
        }
        Ok(server)
    }

    /// Has `server` fetch and then apply the whole backlog from `source`; returns how long the applying took.
    fn follow(&self, name: &str, server: &Sandbox, source: &Sandbox, appliers: (u32, NativeMode)) -> Result<Duration> {
        let followed = self.try_to_follow(name, server, source, appliers);
        followed.map_err(|error| server.blame(source.blame(error)))
    }

    fn try_to_follow(
        &self,
        name: &str,
        server: &Sandbox,
        source: &Sandbox,
        appliers: (u32, NativeMode),
    ) -> Result<Duration> {
        let step = self.screen.spinner(&format!("{name} fetches the backlog"));
        let password = &self.dataset.facts.password;
        let mut native =
            NativeReplication::prepare(name, appliers, source, password, server, &self.end, self.plan.limit)?;
        native.receive()?;
        step.finish_and_clear();
        let step = self.screen.spinner(&format!("{name} applies it with {} appliers", appliers.0));
        let took = native.apply(&ProgressBar::hidden())?;
        step.finish_and_clear();
        native.stop()?;
        Ok(took)
    }

    /// The mode that goes by commit groups.
    fn group_mode(&self) -> NativeMode {
        match self.binaries.vendor() {
            Vendor::MariaDb => NativeMode::Conservative,
            Vendor::MySql => NativeMode::Order,
        }
    }
}

/// How many transactions the commit groups in a server's binlog have, on average.
fn group_size(server: &Sandbox) -> Result<f64> {
    let analysis = spate_program::analyze(&server.data_directory())?;
    Ok(analysis["group_size_mean"].as_f64().unwrap_or_default())
}

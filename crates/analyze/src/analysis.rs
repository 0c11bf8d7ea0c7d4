//! The whole analysis, from a directory of binlogs to its figures.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use spate_archive::{Archive, ReadOptions, Seek};
use spate_binlog::Gtid;

use crate::Result;
use crate::advice;
use crate::counts::{Folded, Folding, Largest, Moment, Outstanding, Runs, SizeCount, Timeline};
use crate::dependencies::Policy;
use crate::reading::Transactions;
use crate::simulating::Simulating;
use crate::simulation::{CommitOrder, Costs, SerialShares, Setting};
use crate::tables::{HotRow, TableFacts};
use crate::transaction::{Reach, Transaction};

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Transactions between two looks at the clock.
const TRANSACTIONS_UNTOLD: u64 = 1 << 10;

/// Rows, tables and transactions that are named.
const NAMED: usize = 20;

/// What is to be looked at.
#[derive(Debug, Clone)]
pub struct Options {
    /// Numbers of appliers to simulate.
    pub appliers: Vec<u32>,
    /// Sizes of batch to fold, in transactions; 0 is everything at once.
    pub fold: Vec<u64>,
    /// What things cost on the replica.
    pub costs: Costs,
    /// The replica's processors.
    pub processors: u32,
    /// What more appliers do not make faster.
    pub serial: SerialShares,
    /// Threads that simulate.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        let here = thread::available_parallelism().map_or(1, usize::from);
        Options {
            appliers: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
            fold: vec![1, 10, 100, 1_000, 10_000, 100_000, 0],
            costs: Costs::default(),
            processors: here as u32,
            serial: SerialShares::default(),
            threads: here,
        }
    }
}

/// How far an analysis is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// Of so many.
    pub bytes_total: u64,
    /// Transactions that were read.
    pub transactions: u64,
    /// How long it has taken.
    pub elapsed: Duration,
}

/// What a setting brings, by the simulation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SpeedUp {
    /// What may be at the same time, in which order, with how many appliers.
    #[serde(flatten)]
    pub setting: Setting,
    /// So many times as fast as one applier that commits each transaction by itself.
    pub factor: f64,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Analysis {
    /// Transactions.
    pub transactions: u64,
    /// Row changes.
    pub rows: u64,
    /// Statements other than changes of rows.
    pub statements: u64,
    /// Definitions.
    pub definitions: u64,
    /// Bytes of the transactions' events.
    pub bytes: u64,
    /// The first commit, in seconds since 1970.
    pub first_seconds: u32,
    /// The last one.
    pub last_seconds: u32,
    /// How long the analysis took.
    pub analysis_seconds: f64,
    /// Seconds of each of `moments`.
    pub moment_seconds: u64,
    /// Transactions over time. Intervals without any are not there.
    pub moments: Vec<Moment>,
    /// The source's hint at what committed together, if it gives one: `commit-group` or `logical-clock`.
    pub hint: Option<Policy>,
    /// How many groups have which size, by that hint.
    pub group_sizes: Vec<SizeCount>,
    /// Transactions in a group on average.
    pub group_size_mean: f64,
    /// What folding leaves.
    pub folded: Vec<Folded>,
    /// What things are taken to cost.
    pub costs: Costs,
    /// How many processors the replica is taken to have.
    pub processors: u32,
    /// Transactions that were simulated.
    pub simulated_transactions: u64,
    /// How long one applier takes that commits each transaction by itself, by the simulation.
    pub serial_seconds: f64,
    /// What each policy could bring.
    pub speed_ups: Vec<SpeedUp>,
    /// What each could bring with any number of appliers: the longest chain of transactions that wait for each other decides.
    pub limits: Vec<SpeedUp>,
    /// Tables.
    pub tables: u64,
    /// Those with the most row changes.
    pub hottest_tables: Vec<TableFacts>,
    /// Tables whose rows cannot be told apart.
    pub keyless_tables: Vec<TableFacts>,
    /// Tables for whose primary key the first column is taken, since the binlog does not tell it.
    pub tables_with_assumed_key: u64,
    /// Rows with the most changes.
    pub hottest_rows: Vec<HotRow>,
    /// Transactions with the most row changes.
    pub largest: Vec<Outstanding>,
    /// Transactions that took the longest on the source.
    pub longest: Vec<Outstanding>,
    /// What limits parallelism, and what helps, in plain words.
    pub advice: Vec<String>,
}

impl Analysis {
    /// The policies that were simulated.
    pub fn policies(&self) -> impl Iterator<Item = Policy> {
        self.limits.iter().map(|limit| limit.setting.policy)
    }

    /// What a policy could bring in this order, by the number of appliers.
    pub fn speed_ups_of(&self, policy: Policy, order: CommitOrder) -> impl Iterator<Item = &SpeedUp> {
        self.speed_ups
            .iter()
            .filter(move |speed_up| speed_up.setting.policy == policy && speed_up.setting.order == order)
    }

    /// What a policy could bring with any number of appliers.
    pub fn limit_of(&self, policy: Policy) -> Option<&SpeedUp> {
        self.limits.iter().find(|limit| limit.setting.policy == policy)
    }

    /// What was read, in one sentence.
    pub fn summary(&self) -> String {
        format!(
            "{} transactions in {} s, {} row changes in {} tables, {} statements, {} definitions, {:.1} MB",
            self.transactions,
            self.last_seconds.saturating_sub(self.first_seconds),
            self.rows,
            self.tables,
            self.statements,
            self.definitions,
            self.bytes as f64 / 1e6
        )
    }
}

/// Reads all transactions of an archive, or of any directory of binlogs that was opened as one.
///
/// # Errors
/// [`crate::Error::Archive`], [`crate::Error::Transaction`].
pub fn analyze(archive: &Archive, options: &Options, tell: &mut dyn FnMut(&Progress)) -> Result<Analysis> {
    let hint = hint(archive)?;
    let policies: Vec<Policy> = [Policy::Shard, Policy::WriteSet].into_iter().chain(hint).collect();
    let settings = settings(&policies, &options.appliers);
    thread::scope(|scope| {
        let simulating =
            Simulating::begin(scope, options.threads, (options.costs, options.processors), &policies, &settings);
        count(archive, options, hint, simulating, tell)
    })
}

/// What the source says of what committed together. `None`: nothing.
fn hint(archive: &Archive) -> Result<Option<Policy>> {
    /// Servers of an older version may have written the first ones.
    const LOOKED_AT: usize = 10_000;
    let mut transactions = Transactions::new(archive.reader(&Seek::Earliest, ReadOptions::default())?, 0);
    for _ in 0..LOOKED_AT {
        match transactions.next()? {
            // A transaction that committed alone has no group's number.
            Some(Transaction { gtid: Some(Gtid::MariaDb(_)), .. }) => return Ok(Some(Policy::CommitGroup)),
            Some(transaction) if transaction.logical_clock.is_some() => return Ok(Some(Policy::LogicalClock)),
            Some(_) => {}
            None => break,
        }
    }
    Ok(None)
}

fn settings(policies: &[Policy], appliers: &[u32]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &policy in policies {
        for order in CommitOrder::ALL {
            settings.extend(appliers.iter().map(|&appliers| Setting { policy, order, appliers: Some(appliers) }));
        }
        settings.push(Setting { policy, order: CommitOrder::Preserve, appliers: None });
    }
    settings
}

fn count(
    archive: &Archive,
    options: &Options,
    hint: Option<Policy>,
    mut simulating: Simulating<'_>,
    tell: &mut dyn FnMut(&Progress),
) -> Result<Analysis> {
    let began = Instant::now();
    let bytes_total = archive.total_bytes()?;
    let mut reading = Transactions::new(archive.reader(&Seek::Earliest, ReadOptions::default())?, NAMED);
    let mut timeline = Timeline::default();
    let mut groups = Runs::default();
    let mut folding: Vec<Folding> = options.fold.iter().map(|&size| Folding::new(size)).collect();
    let mut largest = Largest::new(NAMED, |transaction| transaction.rows);
    let mut longest = Largest::new(NAMED, Transaction::seconds);
    let (mut transactions, mut rows, mut statements, mut definitions, mut bytes) = (0, 0, 0, 0, 0);
    let (mut first_seconds, mut last_seconds) = (0, 0);
    let mut told = began;
    while let Some(transaction) = reading.next()? {
        if transactions == 0 {
            first_seconds = transaction.commit_seconds;
        }
        last_seconds = last_seconds.max(transaction.commit_seconds);
        transactions += 1;
        rows += transaction.rows;
        statements += transaction.statements;
        definitions += u64::from(transaction.reach == Reach::Definition);
        bytes += transaction.bytes;
        timeline.add(transaction);
        groups.add(group(transaction, hint));
        folding.iter_mut().for_each(|folding| folding.add(transaction));
        largest.add(transaction);
        longest.add(transaction);
        simulating.add(transaction);
        if transactions % TRANSACTIONS_UNTOLD == 0 && told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            tell(&Progress { bytes, bytes_total, transactions, elapsed: began.elapsed() });
        }
    }
    groups.finish();
    let simulated = simulating.finish();
    let speed_up = |setting: Setting, nanoseconds: u64| SpeedUp {
        setting,
        factor: options.serial.applied(setting.order, simulated.serial_nanoseconds as f64 / nanoseconds.max(1) as f64),
    };
    let all: Vec<SpeedUp> = simulated
        .simulations
        .iter()
        .map(|simulation| speed_up(simulation.setting(), simulation.nanoseconds()))
        .collect();
    let (mut limits, mut speed_ups): (Vec<SpeedUp>, Vec<SpeedUp>) =
        all.into_iter().partition(|speed_up| speed_up.setting.appliers.is_none());
    let order = |speed_up: &SpeedUp| {
        let Setting { policy, order, appliers } = speed_up.setting;
        (policy as u8, order as u8, appliers)
    };
    limits.sort_by_key(order);
    speed_ups.sort_by_key(order);
    let tables = reading.tables().by_rows();
    let (moment_seconds, moments) = timeline.finish();
    let mut analysis = Analysis {
        transactions,
        rows,
        statements,
        definitions,
        bytes,
        first_seconds,
        last_seconds,
        analysis_seconds: 0.0,
        moment_seconds,
        moments,
        hint,
        group_sizes: hint.map_or_else(Vec::new, |_| groups.sizes.finish()),
        group_size_mean: hint.map_or(0.0, |_| groups.sizes.mean()),
        folded: folding.into_iter().map(Folding::finish).collect(),
        costs: options.costs,
        processors: options.processors,
        simulated_transactions: simulated.transactions,
        serial_seconds: simulated.serial_nanoseconds as f64 / 1e9 * transactions as f64
            / simulated.transactions.max(1) as f64,
        speed_ups,
        limits,
        tables: tables.len() as u64,
        tables_with_assumed_key: tables.iter().filter(|table| table.is_key_assumed).count() as u64,
        keyless_tables: tables.iter().filter(|table| table.is_keyless && table.rows > 0).take(NAMED).cloned().collect(),
        hottest_tables: tables.into_iter().filter(|table| table.rows > 0).take(NAMED).collect(),
        hottest_rows: reading.tables().hottest(),
        largest: largest.finish(),
        longest: longest.finish(),
        advice: Vec::new(),
    };
    analysis.advice = advice::of(&analysis);
    analysis.analysis_seconds = began.elapsed().as_secs_f64();
    Ok(analysis)
}

/// The mark that transactions have in common which committed together.
fn group(transaction: &Transaction, hint: Option<Policy>) -> Option<(u64, u64)> {
    match hint {
        Some(Policy::LogicalClock) => transaction.logical_clock.map(|clock| (0, clock.last_committed)),
        _ => transaction.commit_group.map(|(domain, group)| (u64::from(domain), group)),
    }
}

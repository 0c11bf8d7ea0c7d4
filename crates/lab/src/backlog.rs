//! A source that wrote while its replica was down: the contenders of a race catch up with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::binlog_count::{BinlogCount, count_files};
use crate::binlog_format::Format;
use crate::comparison::{Checksums, checksums};
use crate::dataset::{DataSet, source_options};
use crate::home::{self, LabHome};
use crate::position::transactions;
use crate::sandbox::{Lifetime, Sandbox};
use crate::screen::Screen;
use crate::server_options::Durability;
use crate::version::ServerBinaries;
use crate::workload::{LOAD_SEED, LoadLimits, Shape};
use crate::{Error, Result};

/// A running, idle source with a backlog after the data set's position.
#[derive(Debug)]
pub struct Backlog {
    /// The source.
    pub source: Sandbox,
    /// The facts about the backlog.
    pub facts: BacklogFacts,
}

/// The facts about a backlog, as its state file has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BacklogFacts {
    /// The replica's GTID position.
    pub start: String,
    /// The GTID position to reach.
    pub end: String,
    /// Transactions, row changes and bytes in between.
    pub count: BinlogCount,
    /// How long the source wrote, in seconds.
    pub seconds: u64,
    /// The source's tables at the end.
    pub checksums: Checksums,
    /// Password of the source's account. Each data set has its own, so it also identifies the backlog's data set.
    pub password: String,
}

/// How to make a backlog.
#[derive(Debug, Clone, Copy)]
pub struct BacklogPlan {
    /// The tables.
    pub shape: Shape,
    /// How the source logs changes.
    pub format: Format,
    /// How long the source writes, in seconds.
    pub seconds: u64,
    /// Transactions per second in all; `None`: as many as possible.
    pub rate: Option<u64>,
    /// Transactions in all: a load that takes longer than `seconds` for them fails. `None`: as many as it writes meanwhile.
    pub transactions: Option<u64>,
    /// Keep the backlog, and reuse one that was kept for the same plan.
    pub reuse: bool,
}

impl Backlog {
    /// Makes the backlog, with its source in `directory`, or reuses the one that an earlier race kept.
    ///
    /// # Errors
    /// Those of running servers and sysbench.
    pub fn open(
        home: &LabHome,
        binaries: &ServerBinaries,
        dataset: &DataSet,
        plan: &BacklogPlan,
        directory: &Path,
        screen: &Screen,
    ) -> Result<Backlog> {
        let kept = home.backlog(&plan.cache_key(binaries));
        let facts = match kept_facts(&kept, plan, dataset)? {
            Some(facts) => {
                home::copy_directory(&kept.join("data"), &directory.join("data"))?;
                facts
            }
            None => {
                let write = |source: &Sandbox| load(source, plan, screen).map_err(|error| source.blame(error));
                let facts = write_load(binaries, dataset, plan, directory, screen, &write)?;
                if plan.reuse {
                    keep(directory, &facts, &kept)?;
                }
                facts
            }
        };
        Ok(Backlog { source: start_source(binaries, plan, directory)?, facts })
    }
}

impl Backlog {
    /// A backlog of what `write` does to the source, whose tables are those of the plan's data set; the rest of the plan does not matter.
    ///
    /// # Errors
    /// Those of running servers, and of `write`.
    pub fn written_by(
        binaries: &ServerBinaries,
        dataset: &DataSet,
        plan: &BacklogPlan,
        directory: &Path,
        screen: &Screen,
        write: &dyn Fn(&Sandbox) -> Result<()>,
    ) -> Result<Backlog> {
        let facts = write_load(binaries, dataset, plan, directory, screen, write)?;
        Ok(Backlog { source: start_source(binaries, plan, directory)?, facts })
    }
}

/// The facts of a kept backlog, if the plan allows it and it belongs to this data set. Removes an outdated one.
fn kept_facts(kept: &Path, plan: &BacklogPlan, dataset: &DataSet) -> Result<Option<BacklogFacts>> {
    if !(plan.reuse && kept.is_dir()) {
        return Ok(None);
    }
    let facts: BacklogFacts = home::read_state(&kept.join("facts.json"))?;
    if facts.password == dataset.facts.password {
        return Ok(Some(facts));
    }
    fs::remove_dir_all(kept).map_err(Error::file("remove", kept))?;
    Ok(None)
}

fn keep(directory: &Path, facts: &BacklogFacts, kept: &Path) -> Result<()> {
    let made = directory.join("kept");
    home::copy_directory(&directory.join("data"), &made.join("data"))?;
    home::write_state(&made.join("facts.json"), facts)?;
    home::publish_directory(&made, kept)
}

/// Loads of a number of transactions end by it: one that takes so long has failed.
const LOAD_SECONDS_MAX: u64 = 7 * 24 * 3_600;

impl BacklogPlan {
    /// So many transactions with row images, whatever time they take: two backlogs of one plan are as large as each other.
    pub fn of_transactions(shape: Shape, transactions: u64) -> BacklogPlan {
        let (seconds, transactions) = (LOAD_SECONDS_MAX, Some(transactions));
        BacklogPlan { shape, format: Format::Row, seconds, rate: None, transactions, reuse: false }
    }

    fn cache_key(&self, binaries: &ServerBinaries) -> String {
        let rate = self.rate.map_or_else(|| "full".to_owned(), |rate| rate.to_string());
        let rate = self.transactions.map_or(rate.clone(), |transactions| format!("{rate}-{transactions}t"));
        let workload = format!("{:?}", self.shape.workload).to_lowercase();
        let format = if self.format == Format::Row { String::new() } else { format!("-{}", self.format) };
        let skew = match self.shape.skew_hundredths {
            0 => String::new(),
            hundredths => format!("-zipf{hundredths}"),
        };
        let seed = match self.shape.seed {
            LOAD_SEED => String::new(),
            seed => format!("-seed{seed}"),
        };
        let (server, shape) = (binaries.cache_key(), self.shape.cache_key());
        format!("{server}-{workload}{skew}{seed}-{shape}-{}s-{rate}{format}", self.seconds)
    }
}

fn start_source(binaries: &ServerBinaries, plan: &BacklogPlan, directory: &Path) -> Result<Sandbox> {
    let options = source_options(binaries.vendor(), &plan.shape)
        .with_durability(Durability::Relaxed)
        .with("binlog-format", plan.format);
    Sandbox::start(binaries, directory, &options, Lifetime::Ours)
}

/// Runs the plan's load on the source.
fn load(source: &Sandbox, plan: &BacklogPlan, screen: &Screen) -> Result<()> {
    let duration = Duration::from_secs(plan.seconds);
    let limits = LoadLimits { duration, rate: plan.rate, transactions: plan.transactions };
    let (begun, first) = (Instant::now(), transactions(&source.logged_position()?));
    let load = plan.shape.start_load(source, limits)?;
    let bar = match plan.transactions {
        Some(transactions) => screen.count_bar("the source writes", transactions),
        None => screen.seconds_bar("the source writes", plan.seconds),
    };
    while load.is_running() {
        std::thread::sleep(Duration::from_millis(100));
        bar.set_position(match plan.transactions {
            Some(_) => transactions(&source.logged_position()?).saturating_sub(first),
            None => begun.elapsed().as_secs().min(plan.seconds),
        });
    }
    load.finish()?;
    bar.finish_and_clear();
    if plan.transactions.is_some() && begun.elapsed() >= duration {
        let advice = "fewer transactions were written than two comparable backlogs have".to_owned();
        return Err(Error::TimedOut { what: "the source's load".to_owned(), limit: duration, advice });
    }
    Ok(())
}

/// Has a copy of the data set written to, then stops and purges the source, so that no background work of it
/// disturbs the race later.
fn write_load(
    binaries: &ServerBinaries,
    dataset: &DataSet,
    plan: &BacklogPlan,
    directory: &Path,
    screen: &Screen,
    write: &dyn Fn(&Sandbox) -> Result<()>,
) -> Result<BacklogFacts> {
    home::copy_directory(&dataset.frozen, &directory.join("data"))?;
    let source = start_source(binaries, plan, directory)?;
    let mut session = source.connect()?;
    let start = source.logged_position()?;
    if start != dataset.facts.position {
        let why = format!("its source stands at {start} instead of {}; delete the cache", dataset.facts.position);
        return Err(Error::Sandbox { name: dataset.frozen.display().to_string(), why });
    }
    let before = binlog_files(&source.data_directory())?;
    let begun = Instant::now();
    write(&source)?;
    let written = begun.elapsed();
    let end = source.logged_position()?;
    let step = screen.spinner("the source's checksums");
    let checksums = checksums(&source)?;
    step.finish_and_clear();
    let step = screen.spinner("the source comes to rest");
    session.run("SET GLOBAL innodb_fast_shutdown = 0")?;
    drop(session);
    let data = source.data_directory();
    source.stop()?;
    // The load began in the file that was current at the start.
    let first = before.len().saturating_sub(1);
    let count = count_files(&binlog_files(&data)?[first..])?;
    step.finish_and_clear();
    let password = dataset.facts.password.clone();
    Ok(BacklogFacts { start, end, count, seconds: written.as_secs_f64().round() as u64, checksums, password })
}

/// The binlog files of a server, oldest first.
pub(crate) fn binlog_files(data: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(data).map_err(Error::file("list", data))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_binlog(path)).collect();
    paths.sort();
    Ok(paths)
}

fn is_binlog(path: &Path) -> bool {
    let ordinal = path.extension().and_then(|extension| extension.to_str());
    path.file_stem().is_some_and(|stem| stem == "binlog")
        && ordinal.is_some_and(|ordinal| ordinal.bytes().all(|byte| byte.is_ascii_digit()))
}

//! A source that wrote while its replica was down: the contenders of a race catch up with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::binlog_count::{BinlogCount, count_files};
use crate::comparison::{Checksums, checksums};
use crate::dataset::{DataSet, source_options};
use crate::home::{self, LabHome};
use crate::sandbox::{Lifetime, Sandbox};
use crate::screen::Screen;
use crate::server_options::Durability;
use crate::torture::settings::Format;
use crate::version::ServerBinaries;
use crate::workload::Shape;
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
                let facts = write_load(binaries, dataset, plan, directory, screen)?;
                if plan.reuse {
                    keep(directory, &facts, &kept)?;
                }
                facts
            }
        };
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

impl BacklogPlan {
    fn cache_key(&self, binaries: &ServerBinaries) -> String {
        let rate = self.rate.map_or_else(|| "full".to_owned(), |rate| rate.to_string());
        let workload = format!("{:?}", self.shape.workload).to_lowercase();
        let format = if self.format == Format::Row { String::new() } else { format!("-{}", self.format) };
        format!("{}-{workload}-{}-{}s-{rate}{format}", binaries.cache_key(), self.shape.cache_key(), self.seconds)
    }
}

fn start_source(binaries: &ServerBinaries, plan: &BacklogPlan, directory: &Path) -> Result<Sandbox> {
    let options = source_options(binaries.vendor(), &plan.shape)
        .with_durability(Durability::Relaxed)
        .with("binlog-format", plan.format);
    Sandbox::start(binaries, directory, &options, Lifetime::Ours)
}

/// Runs the load on a copy of the data set, then stops and purges the source, so that no background work of it
/// disturbs the race later.
fn write_load(
    binaries: &ServerBinaries,
    dataset: &DataSet,
    plan: &BacklogPlan,
    directory: &Path,
    screen: &Screen,
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
    let load = plan.shape.start_load(&source, Duration::from_secs(plan.seconds), plan.rate)?;
    let bar = screen.seconds_bar("the source writes", plan.seconds);
    let begun = Instant::now();
    while load.is_running() {
        std::thread::sleep(Duration::from_millis(100));
        bar.set_position(begun.elapsed().as_secs().min(plan.seconds));
    }
    load.finish()?;
    bar.finish_and_clear();
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
    Ok(BacklogFacts { start, end, count, seconds: plan.seconds, checksums, password })
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

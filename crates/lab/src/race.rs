//! The catch-up race: contenders apply the same backlog to copies of the same replica, one after the other.
//!
//! The race is fair: every contender gets a fresh copy of the same data directory, a server with the same options, a
//! warm buffer pool and a quiet machine (nothing left to write out, the source idle). With `--backlog received`, each
//! has the whole backlog in local files before the clock starts: native replication in its relay log, Spate in its
//! archive. Afterwards every table must equal the source's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backlog::{Backlog, BacklogPlan};
use crate::comparison::{checksums, different_tables};
use crate::contender::{Contender, NativeMode, distinct_names};
use crate::dataset::{BEAT_SCHEMA, DataSet, become_replica, replica_options};
use crate::home::LabHome;
use crate::lag_samples::{Applier, LiveReport, Sampler};
use crate::native::NativeReplication;
use crate::position::transactions;
use crate::report;
use crate::results::{ContenderResult, RaceResult};
use crate::sandbox::{Lifetime, Sandbox};
use crate::screen::{Screen, thousands};
use crate::server_options::{Durability, ServerOption};
use crate::spate_program::{SpateProgram, SpateUsage};
use crate::sql::quote;
use crate::version::ServerBinaries;
use crate::workload::Workload;
use crate::{Error, Result};

/// The work that the clock measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BacklogPlace {
    /// The backlog has been received already: the clock measures applying it.
    Received,
    /// The backlog is still on the source: the clock measures fetching and applying it.
    Source,
}

/// The definition of a race, without its contenders.
#[derive(Debug, Clone)]
pub struct RacePlan {
    /// The load.
    pub backlog: BacklogPlan,
    /// The work that the clock measures.
    pub place: BacklogPlace,
    /// The replica's durability.
    pub durability: Durability,
    /// True if the replica logs the changes that it applies.
    pub replica_binlog: bool,
    /// Further options of the replica.
    pub replica_options: Vec<ServerOption>,
    /// Added to each read for which the replica's server waits.
    pub read_latency: Option<Duration>,
    /// Time limit of a contender.
    pub limit: Duration,
    /// Where to write a page for people, while it runs and after. `None`: nowhere.
    pub report: Option<PathBuf>,
}

/// A race with its backlog.
pub struct Race<'a> {
    plan: &'a RacePlan,
    binaries: &'a ServerBinaries,
    dataset: DataSet,
    screen: Screen,
    /// The source and its backlog.
    pub backlog: Backlog,
}

impl<'a> Race<'a> {
    /// Makes the data set and the backlog; the source's files go to `directory`.
    ///
    /// # Errors
    /// Those of running servers and sysbench.
    pub fn prepare(
        home: &LabHome,
        binaries: &'a ServerBinaries,
        plan: &'a RacePlan,
        directory: &Path,
        screen: Screen,
    ) -> Result<Race<'a>> {
        let step = screen
            .spinner(&format!("the data set ({} tables)", plan.backlog.shape.schemas * plan.backlog.shape.tables));
        let dataset = DataSet::open(home, binaries, &plan.backlog.shape)?;
        step.finish_and_clear();
        let backlog = Backlog::open(home, binaries, &dataset, &plan.backlog, &directory.join("source"), &screen)?;
        let count = backlog.facts.count;
        screen.note(&format!(
            "backlog: {} transactions, {} row changes in {} s",
            thousands(count.transactions),
            thousands(count.row_changes),
            backlog.facts.seconds
        ));
        Ok(Race { plan, binaries, dataset, screen, backlog })
    }

    /// Lets all contenders run, and ranks them.
    ///
    /// # Errors
    /// Those of running servers. A contender's own failure is part of the result.
    pub fn run(&self, contenders: &[Contender], directory: &Path) -> Result<RaceResult> {
        let mut result = self.result();
        let contenders: Vec<Contender> =
            contenders.iter().map(|contender| contender.clone().on(self.binaries.vendor())).collect::<Result<_>>()?;
        for (number, (contender, name)) in contenders.iter().zip(distinct_names(&contenders)).enumerate() {
            let replica = directory.join(format!("replica-{number}"));
            let (outcome, running) = self.run_one(contender, &name, &replica, &result)?;
            drop(running);
            if !self.keeps_files() {
                std::fs::remove_dir_all(&replica).map_err(Error::file("remove", &replica))?;
            }
            result.contenders.push(outcome);
            result.rank();
        }
        if let Some(path) = &self.plan.report {
            report::write(&result, path)?;
        }
        Ok(result)
    }

    /// True if a contender's files stay until all have run. Some file systems (ext4 without a journal) do not use again what was removed
    /// in the last minutes, and a new file costs looking past it: with 10,000 tables a CREATE took a millisecond more in every
    /// contender but the first.
    fn keeps_files(&self) -> bool {
        self.plan.backlog.shape.workload == Workload::Definitions
    }

    /// A result without contenders.
    pub fn result(&self) -> RaceResult {
        let (plan, facts) = (self.plan, &self.backlog.facts);
        RaceResult {
            workload: plan.backlog.shape.workload,
            durability: plan.durability,
            server: format!("{} ({})", self.binaries.version, self.binaries.full_version),
            backlog: match plan.place {
                BacklogPlace::Received => "received",
                BacklogPlace::Source => "source",
            },
            replica_binlog: plan.replica_binlog,
            read_latency_microseconds: plan.read_latency.map(|latency| latency.as_micros() as u64),
            shape: plan.backlog.shape,
            load_seconds: facts.seconds,
            transactions: facts.count.transactions,
            row_changes: facts.count.row_changes,
            binlog_bytes: facts.count.bytes,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            contenders: Vec::new(),
            best_native: None,
            ratio_vs_best_native: Default::default(),
        }
    }

    /// Lets one contender run on a fresh replica in `directory`, which is still running afterwards. `before`: what has run already.
    ///
    /// # Errors
    /// Those of running servers. The contender's own failure is part of the result.
    pub fn run_one(
        &self,
        contender: &Contender,
        name: &str,
        directory: &Path,
        before: &RaceResult,
    ) -> Result<(ContenderResult, Sandbox)> {
        let step = self.screen.spinner(&format!("{name}: a fresh replica"));
        let replica = self.fresh_replica(directory)?;
        step.finish_and_clear();
        let mut result = ContenderResult {
            name: name.to_owned(),
            native: matches!(contender, Contender::Native { .. }),
            ..Default::default()
        };
        let live = self.plan.report.as_ref().map(|path| LiveReport { path: path.clone(), result: before.clone() });
        let applier = if result.native { Applier::Native } else { Applier::Spate };
        let sampler = Sampler::start(&replica, applier, name, self.backlog.facts.count.last_seconds, live)?;
        let caught_up = match contender {
            Contender::Native { threads, mode, prefetch } => {
                let mode = mode.unwrap_or(NativeMode::usual(self.binaries.vendor()));
                let prefetch = prefetch.as_ref().map(|arguments| (arguments.as_slice(), directory));
                self.run_native(name, (*threads, mode), prefetch, &replica, &mut result)
            }
            Contender::Spate { arguments, .. } => self.run_spate(name, arguments, &replica, directory, &mut result),
        };
        result.seconds_behind = sampler.stop();
        match caught_up {
            Ok(()) => self.compare(&replica, &mut result)?,
            Err(error) => {
                if let Error::TimedOut { limit, .. } = error {
                    result.gave_up_after_seconds = Some(limit.as_secs_f64());
                }
                self.screen.note(&format!("{name}: {error}"));
                result.error = Some(error.to_string());
            }
        }
        if let Some(seconds) = result.seconds {
            self.screen.note(&format!("{name}: {seconds:.2} s"));
        }
        Ok((result, replica))
    }

    fn fresh_replica(&self, directory: &Path) -> Result<Sandbox> {
        let options = replica_options(self.binaries.vendor(), &self.plan.backlog.shape, self.plan.replica_binlog)
            .with_durability(self.plan.durability)
            .with_all(&self.plan.replica_options);
        let binaries = ServerBinaries { read_latency: self.plan.read_latency, ..self.binaries.clone() };
        let replica = Sandbox::restore(&binaries, &self.dataset.frozen, directory, &options, Lifetime::Ours)?;
        become_replica(&replica, &self.backlog.facts.start)?;
        warm(&replica)?;
        Ok(replica)
    }

    fn run_native(
        &self,
        name: &str,
        appliers: (u32, NativeMode),
        prefetch: Option<(&[String], &Path)>,
        replica: &Sandbox,
        result: &mut ContenderResult,
    ) -> Result<()> {
        let (facts, source) = (&self.backlog.facts, &self.backlog.source);
        let mut native =
            NativeReplication::prepare(name, appliers, source, &facts.password, replica, &facts.end, self.plan.limit)?;
        if self.plan.place == BacklogPlace::Received {
            let step = self.screen.spinner(&format!("{name}: receives the backlog"));
            native.receive()?;
            step.finish_and_clear();
        }
        let bar = self.screen.count_bar(name, transactions(&facts.end));
        let clock = ServerClock::start(source, replica);
        let ahead = prefetch.map(|(arguments, directory)| {
            SpateProgram::new(source, &facts.password, replica, directory)?.prefetch(arguments)
        });
        let ahead = ahead.transpose()?;
        let applied = native.apply(&bar);
        clock.stop(result);
        if let Some(ahead) = ahead {
            let usage = ahead.stop()?;
            result.spate_cpu_seconds = Some(usage.cpu.as_secs_f64());
            result.spate_peak_rss_bytes = Some(usage.peak_resident_bytes);
        }
        bar.finish_and_clear();
        result.seconds = Some(applied?.as_secs_f64());
        Ok(())
    }

    fn run_spate(
        &self,
        name: &str,
        arguments: &[String],
        replica: &Sandbox,
        directory: &Path,
        result: &mut ContenderResult,
    ) -> Result<()> {
        let (facts, source) = (&self.backlog.facts, &self.backlog.source);
        let program = SpateProgram::new(source, &facts.password, replica, directory)?;
        if self.plan.place == BacklogPlace::Received {
            let step = self.screen.spinner(&format!("{name}: receives the backlog"));
            program.fetch(&facts.start, self.plan.limit)?;
            step.finish_and_clear();
        }
        let mut arguments = arguments.to_vec();
        if !self.plan.replica_binlog {
            arguments.push("--no-replica-binlog".into());
        }
        let step = self.screen.spinner(name);
        let clock = ServerClock::start(source, replica);
        let usage = program
            .replicate(Some(&facts.start), Some(&facts.end), &arguments)
            .and_then(|running| running.wait(self.plan.limit));
        clock.stop(result);
        step.finish_and_clear();
        let SpateUsage { wall, cpu, peak_resident_bytes } = usage?;
        result.seconds = Some(wall.as_secs_f64());
        result.spate_cpu_seconds = Some(cpu.as_secs_f64());
        result.spate_peak_rss_bytes = Some(peak_resident_bytes);
        Ok(())
    }

    fn compare(&self, replica: &Sandbox, result: &mut ContenderResult) -> Result<()> {
        let step = self.screen.spinner(&format!("{}: all tables identical?", result.name));
        result.different_tables = different_tables(&self.backlog.facts.checksums, &checksums(replica)?);
        result.identical = result.different_tables.is_empty();
        step.finish_and_clear();
        if !result.identical {
            self.screen.note(&format!("{}: DIFFERENT tables: {}", result.name, result.different_tables.join(", ")));
        }
        Ok(())
    }
}

/// The servers' processor time during a race.
struct ServerClock<'a> {
    source: &'a Sandbox,
    replica: &'a Sandbox,
    source_before: Duration,
    replica_before: Duration,
}

impl<'a> ServerClock<'a> {
    /// Waits until everything written so far is on disk, then starts.
    fn start(source: &'a Sandbox, replica: &'a Sandbox) -> ServerClock<'a> {
        rustix::fs::sync();
        ServerClock { source, replica, source_before: source.cpu_time(), replica_before: replica.cpu_time() }
    }

    fn stop(self, result: &mut ContenderResult) {
        result.source_cpu_seconds = self.source.cpu_time().saturating_sub(self.source_before).as_secs_f64();
        result.server_cpu_seconds = self.replica.cpu_time().saturating_sub(self.replica_before).as_secs_f64();
    }
}

/// Reads every index of every table of the data set once, to fill the buffer pool.
fn warm(server: &Sandbox) -> Result<()> {
    let mut session = server.connect()?;
    let indexes: Vec<(String, String, String)> = session.rows(&format!(
        "SELECT DISTINCT table_schema, table_name, index_name FROM information_schema.statistics
         WHERE table_schema LIKE 'bench%' OR table_schema = '{BEAT_SCHEMA}'"
    ))?;
    for (schema, table, index) in indexes {
        let (schema, table, index) = (quote(&schema), quote(&table), quote(&index));
        session.run(&format!("SELECT COUNT(*) FROM {schema}.{table} FORCE INDEX ({index})"))?;
    }
    Ok(())
}

//! What contenders run over: a data set, a source with a backlog, and the conditions under which a replica catches up with it.
//!
//! It is fair: every contender gets a fresh copy of the same data directory, a server with the same options, a
//! warm buffer pool and a quiet machine (nothing left to write out, the source idle). With [`BacklogPlace::Received`], each
//! has the whole backlog in local files before the clock starts: native replication in its relay log, Spate in its
//! archive. Afterwards every table must equal the source's.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backlog::{Backlog, BacklogPlan};
use crate::comparison::{checksums, different_tables};
use crate::contender::{Contender, NativeMode};
use crate::dataset::{DataSet, become_replica, replica_options};
use crate::home::LabHome;
use crate::lag_samples::{Applier, LiveReport, Sampler};
use crate::loads::tpcc::books::Books;
use crate::native::NativeReplication;
use crate::position::transactions;
use crate::results::ContenderResult;
use crate::sampling::{Sampling, Watched};
use crate::sandbox::{Lifetime, Sandbox};
use crate::screen::{Screen, thousands};
use crate::server_options::{Durability, ServerOption};
use crate::spate_program::{SpateProgram, prepare_replica};
use crate::version::ServerBinaries;
use crate::workload::Shape;
use crate::{Error, Result};

/// The work that the clock measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BacklogPlace {
    /// The backlog has been received already: the clock measures applying it.
    Received,
    /// The backlog is still on the source: the clock measures fetching and applying it.
    Source,
}

/// What a replica logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaLog {
    /// What it applies too: it can be the source of others.
    Intermediate,
    /// What is written to it, but not what it applies.
    Own,
    /// Nothing: it has no binlog.
    Standard,
}

/// With which buffer pool a replica begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferPool {
    /// With the data set's pages.
    AsItWas,
    /// Without any, as after the start of a server that keeps no list.
    Empty,
}

/// Under which conditions a replica catches up.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// The work that the clock measures.
    pub place: BacklogPlace,
    /// The replica's durability.
    pub durability: Durability,
    /// What the replica logs.
    pub log: ReplicaLog,
    /// With which buffer pool it begins.
    pub buffer_pool: BufferPool,
    /// Further options of the replica.
    pub replica_options: Vec<ServerOption>,
    /// Added to each read for which the replica's server waits.
    pub read_latency: Option<Duration>,
    /// Time limit of a contender.
    pub limit: Duration,
}

impl Conditions {
    /// The backlog has been received, the replica is durable and does not log what it applies.
    pub fn usual(limit: Duration) -> Conditions {
        Conditions {
            place: BacklogPlace::Received,
            durability: Durability::Durable,
            log: ReplicaLog::Own,
            buffer_pool: BufferPool::AsItWas,
            replica_options: Vec::new(),
            read_latency: None,
            limit,
        }
    }
}

/// A data set, and a source with a backlog after it.
pub struct Course<'a> {
    binaries: &'a ServerBinaries,
    shape: Shape,
    dataset: DataSet,
    screen: Screen,
    /// The source and its backlog.
    pub backlog: Backlog,
}

impl<'a> Course<'a> {
    /// Makes the data set and the backlog; the source's files go to `directory`.
    ///
    /// # Errors
    /// Those of running servers and sysbench.
    pub fn prepare(
        home: &LabHome,
        binaries: &'a ServerBinaries,
        plan: &BacklogPlan,
        directory: &Path,
        screen: Screen,
    ) -> Result<Course<'a>> {
        let step = screen.spinner(&format!("the data set ({} tables)", plan.shape.schemas * plan.shape.tables));
        let dataset = DataSet::open(home, binaries, &plan.shape)?;
        step.finish_and_clear();
        let backlog = Backlog::open(home, binaries, &dataset, plan, &directory.join("source"), &screen)?;
        Ok(Course::over(binaries, plan.shape, dataset, backlog, screen))
    }

    /// With a backlog that there is already.
    pub fn over(
        binaries: &'a ServerBinaries,
        shape: Shape,
        dataset: DataSet,
        backlog: Backlog,
        screen: Screen,
    ) -> Course<'a> {
        let count = backlog.facts.count;
        screen.note(&format!(
            "backlog: {} transactions, {} row changes in {} s",
            thousands(count.transactions),
            thousands(count.row_changes),
            backlog.facts.seconds
        ));
        Course { binaries, shape, dataset, screen, backlog }
    }

    /// The server.
    pub fn binaries(&self) -> &ServerBinaries {
        self.binaries
    }

    /// Lets one contender run on a fresh replica in `directory`, which is still running afterwards. `live`: a report that is written meanwhile.
    ///
    /// # Errors
    /// Those of running servers. The contender's own failure is part of the result.
    pub fn run_one(
        &self,
        conditions: &Conditions,
        contender: &Contender,
        name: &str,
        directory: &Path,
        live: Option<LiveReport>,
    ) -> Result<(ContenderResult, Sandbox)> {
        let step = self.screen.spinner(&format!("{name}: a fresh replica"));
        let replica = self.fresh_replica(conditions, directory).map_err(|error| self.backlog.source.blame(error))?;
        step.finish_and_clear();
        let result = self.catch_up(conditions, contender, name, &replica, directory, live);
        let result = result.map_err(|error| replica.blame(self.backlog.source.blame(error)))?;
        Ok((result, replica))
    }

    /// Lets one contender catch up on a fresh replica, whose files are in `directory`.
    ///
    /// # Errors
    /// As [`Course::run_one`].
    pub fn catch_up(
        &self,
        conditions: &Conditions,
        contender: &Contender,
        name: &str,
        replica: &Sandbox,
        directory: &Path,
        live: Option<LiveReport>,
    ) -> Result<ContenderResult> {
        let mut result = ContenderResult {
            name: name.to_owned(),
            native: matches!(contender, Contender::Native { .. }),
            ..Default::default()
        };
        let race = Lane { course: self, conditions, name, replica, directory, live };
        let caught_up = match contender {
            Contender::Native { threads, mode, prefetch } => {
                let mode = mode.unwrap_or(NativeMode::usual(self.binaries.vendor()));
                race.run_native((*threads, mode), prefetch.as_deref(), &mut result)
            }
            Contender::Spate { arguments, .. } => race.run_spate(arguments, &mut result),
        };
        match caught_up {
            Ok(()) => self.compare(replica, &mut result)?,
            Err(error) => {
                let error = replica.blame(self.backlog.source.blame(error));
                if let Error::ServerCrashed { .. } = error {
                    return Err(error);
                }
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
        Ok(result)
    }

    /// A replica at the beginning of the backlog.
    ///
    /// # Errors
    /// Those of running servers.
    pub fn fresh_replica(&self, conditions: &Conditions, directory: &Path) -> Result<Sandbox> {
        let options = replica_options(self.binaries.vendor(), &self.shape, conditions.log)
            .with_durability(conditions.durability)
            .with_all(&conditions.replica_options);
        let binaries = ServerBinaries { read_latency: conditions.read_latency, ..self.binaries.clone() };
        let replica = match conditions.buffer_pool {
            BufferPool::AsItWas => self.dataset.restore(&binaries, directory, &options)?,
            BufferPool::Empty => {
                Sandbox::restore(&binaries, &self.dataset.frozen, directory, &options, Lifetime::Ours)?
            }
        };
        become_replica(&replica, &self.backlog.facts.start)?;
        Ok(replica)
    }

    fn compare(&self, replica: &Sandbox, result: &mut ContenderResult) -> Result<()> {
        let step = self.screen.spinner(&format!("{}: all tables identical?", result.name));
        result.different_tables = different_tables(&self.backlog.facts.checksums, &checksums(replica)?);
        for (server, role) in [(&self.backlog.source, "source"), (replica, "replica")] {
            result.different_tables.extend(Books::audit_if_any(server, &self.shape, role)?);
        }
        result.identical = result.different_tables.is_empty();
        step.finish_and_clear();
        if !result.identical {
            self.screen.note(&format!("{}: DIFFERENT tables: {}", result.name, result.different_tables.join(", ")));
        }
        Ok(())
    }
}

/// One contender's run.
struct Lane<'a> {
    course: &'a Course<'a>,
    conditions: &'a Conditions,
    name: &'a str,
    replica: &'a Sandbox,
    /// The replica's files are here, and the contender's.
    directory: &'a Path,
    live: Option<LiveReport>,
}

impl Lane<'_> {
    fn run_native(
        self,
        appliers: (u32, NativeMode),
        prefetch: Option<&[String]>,
        result: &mut ContenderResult,
    ) -> Result<()> {
        let Lane { course, conditions, name, replica, directory, .. } = self;
        let (facts, source) = (&course.backlog.facts, &course.backlog.source);
        let mut native =
            NativeReplication::prepare(name, appliers, source, &facts.password, replica, &facts.end, conditions.limit)?;
        if conditions.place == BacklogPlace::Received {
            let step = course.screen.spinner(&format!("{name}: receives the backlog"));
            native.receive()?;
            step.finish_and_clear();
        }
        let bar = course.screen.count_bar(name, transactions(&facts.end));
        let clock = Clock::start(self, Applier::Native)?;
        let ahead = prefetch
            .map(|arguments| SpateProgram::new(source, &facts.password, replica, directory)?.prefetch(arguments));
        let applied = ahead.transpose().and_then(|ahead| Ok((native.apply(&bar)?, ahead)));
        clock.stop(result);
        bar.finish_and_clear();
        let (seconds, ahead) = applied?;
        if let Some(ahead) = ahead {
            result.note_usage(ahead.stop()?);
        }
        result.seconds = Some(seconds.as_secs_f64());
        Ok(())
    }

    fn run_spate(self, arguments: &[String], result: &mut ContenderResult) -> Result<()> {
        let Lane { course, conditions, name, replica, directory, .. } = self;
        let (facts, source) = (&course.backlog.facts, &course.backlog.source);
        let program = SpateProgram::new(source, &facts.password, replica, directory)?;
        prepare_replica(replica, arguments)?;
        if conditions.place == BacklogPlace::Received {
            let step = course.screen.spinner(&format!("{name}: receives the backlog"));
            program.fetch(&facts.start, conditions.limit)?;
            step.finish_and_clear();
        }
        let mut arguments = arguments.to_vec();
        arguments.push("--json".into());
        if conditions.log != ReplicaLog::Intermediate {
            arguments.push("--no-replica-binlog".into());
        }
        let step = course.screen.spinner(name);
        let clock = Clock::start(self, Applier::Spate)?;
        let usage = program
            .replicate(Some(&facts.start), Some(&facts.end), &arguments)
            .and_then(|running| running.wait(conditions.limit));
        clock.stop(result);
        step.finish_and_clear();
        let usage = usage?;
        result.seconds = Some(usage.wall.as_secs_f64());
        result.note_usage(usage);
        Ok(())
    }
}

/// What is watched while the clock runs.
struct Clock<'a> {
    source: &'a Sandbox,
    replica: &'a Sandbox,
    source_before: Duration,
    replica_before: Duration,
    sampling: Sampling,
    sampler: Sampler,
}

impl<'a> Clock<'a> {
    /// Waits until everything written so far is on disk, then starts.
    fn start(lane: Lane<'a>, applier: Applier) -> Result<Clock<'a>> {
        let Lane { course, name, replica, directory, live, .. } = lane;
        let source = &course.backlog.source;
        rustix::fs::sync();
        let watched = Watched {
            servers: vec![("replica", replica), ("source", source)],
            directory,
            archive: (applier == Applier::Spate).then(|| directory.join("archive")),
        };
        let sampling = Sampling::start(&watched)?;
        let sampler = Sampler::start(replica, applier, name, course.backlog.facts.count.last_seconds, live)?;
        let (source_before, replica_before) = (source.cpu_time(), replica.cpu_time());
        Ok(Clock { source, replica, source_before, replica_before, sampling, sampler })
    }

    fn stop(self, result: &mut ContenderResult) {
        result.source_cpu_seconds = self.source.cpu_time().saturating_sub(self.source_before).as_secs_f64();
        result.server_cpu_seconds = self.replica.cpu_time().saturating_sub(self.replica_before).as_secs_f64();
        result.series = self.sampling.stop();
        result.seconds_behind = self.sampler.stop();
    }
}

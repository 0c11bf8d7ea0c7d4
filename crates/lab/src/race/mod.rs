//! The catch-up race: contenders apply the same backlog to copies of the same replica, one after the other.

mod options;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use options::{Drawn, EXAMPLES, RaceOptions};

use crate::backlog::BacklogPlan;
use crate::chain::{self, ChainPlan, Groups, Waiting};
use crate::contender::{Contender, distinct_names};
use crate::course::{BacklogPlace, BufferPool, Conditions, Course, ReplicaLog};
use crate::home::LabHome;
use crate::lag_samples::LiveReport;
use crate::report;
use crate::results::{ContenderResult, RaceResult};
use crate::sandbox::Sandbox;
use crate::screen::Screen;
use crate::server_options::{Durability, ServerOption};
use crate::version::ServerBinaries;
use crate::workload::Workload;
use crate::{Error, Result};

/// The definition of a race, without its contenders.
#[derive(Debug, Clone)]
pub struct RacePlan {
    /// The load.
    pub backlog: BacklogPlan,
    /// The work that the clock measures.
    pub place: BacklogPlace,
    /// The replica's durability.
    pub durability: Durability,
    /// The replica is D of a chain A → B → C → D whose C waits so; `None`: it replicates from the source.
    pub chain: Option<Waiting>,
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
    conditions: Conditions,
    /// The commit groups of the chain.
    groups: Vec<Groups>,
    /// What the contenders run over.
    pub course: Course<'a>,
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
        let conditions = Conditions {
            place: plan.place,
            durability: plan.durability,
            log: if plan.replica_binlog { ReplicaLog::Intermediate } else { ReplicaLog::Own },
            buffer_pool: BufferPool::AsItWas,
            replica_options: plan.replica_options.clone(),
            read_latency: plan.read_latency,
            limit: plan.limit,
        };
        let (course, groups) = match plan.chain {
            None => (Course::prepare(home, binaries, &plan.backlog, directory, screen)?, vec![]),
            Some(waiting) => {
                let chain = ChainPlan { backlog: plan.backlog, waiting, limit: plan.limit };
                let chain::Widened { dataset, backlog, groups } =
                    chain::widen(home, binaries, &chain, directory, &screen)?;
                (Course::over(binaries, plan.backlog.shape, dataset, backlog, screen), groups)
            }
        };
        Ok(Race { plan, conditions, groups, course })
    }

    /// Lets all contenders run, and ranks them.
    ///
    /// # Errors
    /// Those of running servers. A contender's own failure is part of the result.
    pub fn run(&self, contenders: &[Contender], directory: &Path) -> Result<RaceResult> {
        let mut result = self.result();
        let contenders: Vec<Contender> = contenders
            .iter()
            .map(|contender| contender.clone().on(self.course.binaries().vendor()))
            .collect::<Result<_>>()?;
        for (number, (contender, name)) in contenders.iter().zip(distinct_names(&contenders)).enumerate() {
            let replica = directory.join(format!("replica-{number}"));
            let (outcome, running) = match self.run_one(contender, &name, &replica, &result) {
                Ok(ran) => ran,
                // What the others came to is kept.
                Err(error) if !result.contenders.is_empty() => {
                    result.failure = Some(format!("{name}: {error}"));
                    break;
                }
                Err(error) => return Err(error),
            };
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
        let (plan, facts, binaries) = (self.plan, &self.course.backlog.facts, self.course.binaries());
        RaceResult {
            workload: plan.backlog.shape.workload,
            durability: plan.durability,
            server: format!("{} ({})", binaries.version, binaries.full_version),
            backlog: match plan.place {
                BacklogPlace::Received => "received",
                BacklogPlace::Source => "source",
            },
            replica_binlog: plan.replica_binlog,
            groups: self.groups.clone(),
            read_latency_microseconds: plan.read_latency.map(|latency| latency.as_micros() as u64),
            shape: plan.backlog.shape,
            load_seconds: facts.seconds,
            transactions: facts.count.transactions,
            row_changes: facts.count.row_changes,
            binlog_bytes: facts.count.bytes,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            contenders: Vec::new(),
            best_native: None,
            failure: None,
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
        let live = self.plan.report.as_ref().map(|path| LiveReport { path: path.clone(), result: before.clone() });
        self.course.run_one(&self.conditions, contender, name, directory, live)
    }
}

//! Point queries of sysbench, recorded by the server's general log: sysbench itself and `spate replay` execute as many of them, in turns.

use std::path::Path;

use comfy_table::Table;
use serde::Serialize;

use crate::course::ReplicaLog;
use crate::dataset::{DataSet, replica_options};
use crate::experiment::statistics::median;
use crate::home::LabHome;
use crate::oltp::{End, OltpPlan};
use crate::screen::{Screen, table, thousands};
use crate::version::ServerBinaries;
use crate::workload::{Shape, Workload};
use crate::{Error, Result, spate_program};

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct PointsPlan {
    /// Queries of each run.
    pub queries: u64,
    /// Connections of each.
    pub threads: u16,
    /// Turns.
    pub repetitions: u32,
}

/// One turn.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Round {
    /// Queries a second of sysbench.
    pub sysbench: f64,
    /// The same of `spate replay`.
    pub replay: f64,
}

impl Round {
    fn ratio(self) -> f64 {
        self.replay / self.sysbench
    }
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct PointsResult {
    /// The server's version.
    pub server: String,
    /// Queries of each run.
    pub queries: u64,
    /// Connections of each.
    pub threads: u16,
    /// The turns.
    pub rounds: Vec<Round>,
}

impl PointsResult {
    /// For people.
    pub fn to_table(&self) -> Table {
        let rate = |rate: f64| format!("{rate:.0}");
        let row = |(number, round): (usize, &Round)| {
            vec![(number + 1).to_string(), rate(round.sysbench), rate(round.replay), percent(round.ratio())]
        };
        let rows = self.rounds.iter().enumerate().map(row).collect();
        table(&["turn", "sysbench, queries/s", "spate replay, queries/s", "replay of sysbench"], 0, rows)
    }

    /// What was executed, and how the replay compares.
    pub fn summary(&self) -> String {
        let ratios: Vec<f64> = self.rounds.iter().map(|round| round.ratio()).collect();
        let median = median(&ratios).unwrap_or_default();
        format!(
            "{}: {} recorded point queries, {} connections as fast as they can: spate replay reaches {} of sysbench's rate (median)",
            self.server,
            thousands(self.queries),
            self.threads,
            percent(median)
        )
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 1e2)
}

/// A query in the general log, and what is measured of it, about.
const RECORDED_BYTES: u64 = 300;

/// Records and replays. `measured` sees what is measured after each turn.
///
/// # Errors
/// Those of the server and of the programs.
pub fn run(
    home: &LabHome,
    binaries: &ServerBinaries,
    plan: PointsPlan,
    directory: &Path,
    screen: &Screen,
    mut measured: impl FnMut(&PointsResult) -> Result<()>,
) -> Result<PointsResult> {
    let shape = Shape::new(Workload::Cached, Some(2), Some(50_000), Some(256)).with_schemas(1);
    screen.claim_disk(directory, shape.disk_bytes(1, 0) + plan.queries * RECORDED_BYTES)?;
    let step = screen.spinner("the server");
    let dataset = DataSet::open(home, binaries, &shape)?;
    let options = replica_options(binaries.vendor(), &shape, ReplicaLog::Intermediate);
    let server = dataset.restore(binaries, &directory.join("server"), &options)?;
    step.finish_and_clear();
    let sysbench = OltpPlan {
        shape,
        script: "oltp_point_select",
        threads: u32::from(plan.threads),
        end: End::Events(plan.queries),
    };
    let step = screen.spinner("sysbench's queries are recorded");
    let log = directory.join("general.log");
    let mut session = server.connect()?;
    session.run(&format!("SET GLOBAL general_log_file = '{}'", log.display()))?;
    session.run("SET GLOBAL general_log = ON")?;
    sysbench.run(&[&server])?;
    session.run("SET GLOBAL general_log = OFF")?;
    step.finish_and_clear();
    let mut result = PointsResult {
        server: binaries.full_version.clone(),
        queries: plan.queries,
        threads: plan.threads,
        rounds: vec![],
    };
    for number in 1..=plan.repetitions {
        let step = screen.spinner(&format!("turn {number} of {}", plan.repetitions));
        let replay = || spate_program::replay(&server, &[format!("{},threads={}", log.display(), plan.threads)]);
        // Who comes first finds another machine than who comes second: the speed of shared processors goes up and down.
        let (of_sysbench, report) = if number % 2 == 1 {
            let first = sysbench.run(&[&server])?;
            (first, replay()?)
        } else {
            let first = replay()?;
            (sysbench.run(&[&server])?, first)
        };
        let figure = |name: &str| report["sums"][name].as_f64().unwrap_or_default();
        let errors = report["sums"]["errors"].as_object().map_or(0, serde_json::Map::len);
        // The sessions' own first statements are beside them.
        if errors > 0 || figure("statements") < plan.queries as f64 {
            return Err(Error::ProgramFailed {
                program: "spate replay".to_owned(),
                status: format!(
                    "0, with {} of {} queries, and {errors} kinds of errors",
                    figure("statements"),
                    plan.queries
                ),
                output: report["sums"]["errors"].to_string(),
            });
        }
        let replay = figure("statements") / figure("seconds").max(1e-9);
        result.rounds.push(Round { sysbench: of_sysbench.transactions_per_second, replay });
        step.finish_and_clear();
        measured(&result)?;
    }
    Ok(result)
}

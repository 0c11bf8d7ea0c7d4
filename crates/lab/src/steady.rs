//! The steady state: a source under a live load, and a replica that follows it.

use std::path::Path;

use comfy_table::Table;

use crate::Result;
use crate::beat::Percentiles;
use crate::contender::Contender;
use crate::course::ReplicaLog;
use crate::dataset::{DataSet, become_replica, replica_options, source_options};
use crate::follower::{Follower, LivePlan, LiveResult};
use crate::home::LabHome;
use crate::loads::tpcc::books::Books;
use crate::screen::{Screen, megabytes, table, thousands};
use crate::server_options::Durability;
use crate::version::ServerBinaries;

/// Measures `contender` under the plan's load. The replica is durable.
///
/// # Errors
/// Those of the load, the servers and the follower. Tables that differ are part of the result.
pub fn measure(
    home: &LabHome,
    binaries: &ServerBinaries,
    contender: &Contender,
    plan: &LivePlan,
    source: Durability,
    directory: &Path,
    screen: &Screen,
) -> Result<LiveResult> {
    let step = screen.spinner("the data set and the servers");
    let dataset = DataSet::open(home, binaries, &plan.shape)?;
    let restore = |name: &str, options| dataset.restore(binaries, &directory.join(name), &options);
    let source = restore("source", source_options(binaries.vendor(), &plan.shape).with_durability(source))?;
    let replica = restore(
        "replica",
        replica_options(binaries.vendor(), &plan.shape, ReplicaLog::Own).with_durability(Durability::Durable),
    )?;
    let position = &dataset.facts.position;
    become_replica(&replica, position)?;
    step.finish_and_clear();
    let contender = &contender.clone().on(binaries.vendor())?;
    let name = contender.to_string();
    let account = (&source, dataset.facts.password.as_str());
    let follower = Follower::start(contender, &name, account, &replica, Some(position), &directory.join("replica"))?;
    let result = plan.run(&name, follower, &source, &replica, &directory.join("replica"), screen);
    result.map_err(|error| replica.blame(source.blame(error)))
}

/// What readers found, in words.
pub fn books_in_words(books: &Books) -> String {
    let looks =
        format!("{} looks at the replica, {} different states", thousands(books.looks), thousands(books.states));
    match books.broken.as_slice() {
        [] => format!("The books balance: {looks}."),
        broken => format!("The books DO NOT balance ({looks}):\n{}", broken.join("\n")),
    }
}

/// For people.
pub fn to_table(results: &[&LiveResult]) -> Table {
    let header = [
        "follower",
        "transactions/s",
        "lag p50 ms",
        "p90",
        "p99",
        "max",
        "beats",
        "Spate CPU cores",
        "Spate peak",
        "tables",
    ];
    let row = |result: &&LiveResult| {
        let Percentiles { count, p50, p90, p99, max } = result.lag.commit_to_visible_ms;
        let mut row = vec![result.follower.clone(), thousands(result.achieved_rate.round() as u64)];
        row.extend([p50, p90, p99, max].map(|milliseconds| format!("{milliseconds:.1}")));
        row.push(thousands(count));
        row.push(result.spate_cpu_cores.map_or_else(|| "–".into(), |cores| format!("{cores:.3}")));
        row.push(result.spate_peak_rss_bytes.map_or_else(|| "–".into(), megabytes));
        row.push(if result.identical {
            "identical".into()
        } else {
            format!("{} DIFFERENT", result.different_tables.len())
        });
        row
    };
    table(&header, 1, results.iter().map(row).collect())
}

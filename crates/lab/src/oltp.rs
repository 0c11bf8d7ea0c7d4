//! Sysbench's transactions at a number of threads, on one or more servers at a time: how many a second, and how long each takes.

use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sandbox::Sandbox;
use crate::workload::{LOAD_LIMIT, Shape, SysbenchRun, sysbench_seed};
use crate::{Error, Result};

/// What is written how.
#[derive(Debug, Clone, Copy)]
pub struct OltpPlan {
    /// The tables, in its first schema.
    pub shape: Shape,
    /// Sysbench's script.
    pub script: &'static str,
    /// Connections in all.
    pub threads: u32,
    /// How long.
    pub end: End,
}

/// When sysbench ends.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// After so many seconds.
    Seconds(u64),
    /// After so many events, whose statements are not prepared: a log has them as they are.
    Events(u64),
}

impl End {
    /// When it is over for certain.
    fn limit(self) -> Duration {
        /// Sysbench connects before its time begins, and ends when its last transaction does.
        const MARGIN: Duration = Duration::from_secs(600);
        match self {
            End::Seconds(seconds) => Duration::from_secs(seconds) + MARGIN,
            End::Events(_) => LOAD_LIMIT,
        }
    }
}

/// What sysbench has measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OltpResult {
    /// Transactions a second, of all servers together.
    pub transactions_per_second: f64,
    /// The mean of all transactions.
    pub latency_mean_ms: f64,
    /// 95 of 100 took no longer; of several servers the slowest one's.
    pub latency_p95_ms: f64,
    /// Transactions a second that were rolled back for a deadlock or a failed certification, and begun again.
    pub conflicts_per_second: f64,
}

/// Conflicts between transactions, which a client repeats: deadlock, lock wait, row changed meanwhile.
const IGNORED_ERRORS: &str = "1213,1205,1020";

impl OltpPlan {
    /// Writes to `servers` at the same time, each with its part of the threads.
    ///
    /// # Errors
    /// [`Error::ProgramNotRun`], [`Error::ProgramFailed`].
    pub fn run(&self, servers: &[&Sandbox]) -> Result<OltpResult> {
        allow_many_files();
        let count = u32::try_from(servers.len().max(1)).unwrap_or(1);
        let part = |number: u32| self.threads / count + u32::from(number < self.threads % count);
        let loads: Vec<(u32, &&Sandbox)> = (0..).map(part).zip(servers).filter(|(threads, _)| *threads > 0).collect();
        let runs: Vec<SysbenchRun> = loads
            .iter()
            .enumerate()
            .map(|(number, (threads, server))| {
                // Two that draw the same keys would meet each other more often than chance has it.
                let seed = sysbench_seed(self.shape.seed, number);
                SysbenchRun::start(self.command(server, *threads).arg(seed).arg("run"))
            })
            .collect::<Result<_>>()?;
        let results: Vec<OltpResult> =
            runs.into_iter().map(|run| parse(&run.finish(self.end.limit())?)).collect::<Result<_>>()?;
        Ok(together(&results))
    }

    fn command(&self, server: &Sandbox, threads: u32) -> Command {
        let schema = self.shape.schema_names().into_iter().next().unwrap_or_default();
        let mut command = self.shape.sysbench_script(self.script, server, &schema, threads as usize);
        command.arg(format!("--mysql-ignore-errors={IGNORED_ERRORS}")).arg("--percentile=95");
        match self.end {
            End::Seconds(seconds) => command.arg(format!("--time={seconds}")).arg("--events=0"),
            End::Events(events) => {
                command.arg("--time=0").arg(format!("--events={events}")).arg("--db-ps-mode=disable")
            }
        };
        command
    }
}

/// Programs that this one starts may have as many connections as the system allows.
fn allow_many_files() {
    let limits = getrlimit(Resource::Nofile);
    let _as_many_as_before = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
}

fn together(results: &[OltpResult]) -> OltpResult {
    let rate: f64 = results.iter().map(|result| result.transactions_per_second).sum();
    let weighted: f64 = results.iter().map(|result| result.transactions_per_second * result.latency_mean_ms).sum();
    OltpResult {
        transactions_per_second: rate,
        latency_mean_ms: if rate > 0.0 { weighted / rate } else { 0.0 },
        latency_p95_ms: results.iter().map(|result| result.latency_p95_ms).fold(0.0, f64::max),
        conflicts_per_second: results.iter().map(|result| result.conflicts_per_second).sum(),
    }
}

fn parse(output: &str) -> Result<OltpResult> {
    let line = |name: &str| output.lines().find_map(|line| line.trim().strip_prefix(name));
    // `transactions:   1234   (123.40 per sec.)`
    let rate = |name: &str| line(name)?.split_once('(')?.1.split_whitespace().next()?.parse::<f64>().ok();
    let number = |name: &str| line(name)?.trim().parse::<f64>().ok();
    let read = || {
        Some(OltpResult {
            transactions_per_second: rate("transactions:")?,
            latency_mean_ms: number("avg:")?,
            latency_p95_ms: number("95th percentile:")?,
            conflicts_per_second: rate("ignored errors:")?,
        })
    };
    read().ok_or_else(|| Error::ProgramFailed {
        program: "sysbench".to_owned(),
        status: "0, but without its figures".to_owned(),
        output: output.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
SQL statistics:
    transactions:                        5000   (499.50 per sec.)
    queries:                             100000 (9990.00 per sec.)
    ignored errors:                      20     (2.00 per sec.)
    reconnects:                          0      (0.00 per sec.)

Latency (ms):
         min:                                    1.35
         avg:                                    2.00
         max:                                   24.67
         95th percentile:                        3.25
         sum:                                 9999.99
";

    #[test]
    fn figures_are_read_from_sysbench() {
        let found = parse(OUTPUT).unwrap();
        let expected = OltpResult {
            transactions_per_second: 499.5,
            latency_mean_ms: 2.0,
            latency_p95_ms: 3.25,
            conflicts_per_second: 2.0,
        };
        assert_eq!(found, expected);
        assert!(parse("FATAL: nothing").is_err());
    }

    #[test]
    fn several_servers_add_up() {
        let of = |rate, mean, p95| OltpResult {
            transactions_per_second: rate,
            latency_mean_ms: mean,
            latency_p95_ms: p95,
            conflicts_per_second: 1.0,
        };
        let all = together(&[of(100.0, 1.0, 5.0), of(300.0, 3.0, 4.0)]);
        assert_eq!((all.transactions_per_second, all.latency_mean_ms, all.latency_p95_ms), (400.0, 2.5, 5.0));
        assert_eq!(together(&[]), OltpResult::default());
    }
}

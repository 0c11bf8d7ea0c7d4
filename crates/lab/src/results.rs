//! The result of a race, as JSON for programs and as a table for people.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::Serialize;

use crate::chain::{Groups, groups_in_words};
use crate::lag_samples::LagSample;
use crate::sampling::Series;
use crate::screen::{megabytes, table, thousands};
use crate::server_options::Durability;
use crate::spate_program::SpateUsage;
use crate::workload::Shape;

/// The result of a race. The structure is flat because its fields are those of the JSON result.
#[derive(Debug, Clone, Serialize)]
pub struct RaceResult {
    /// `cached` or `io`.
    pub workload: crate::workload::Workload,
    /// The replica's durability.
    pub durability: Durability,
    /// The server's series and full version.
    pub server: String,
    /// `received` if the clock measured only applying, `source` if it also measured fetching.
    pub backlog: &'static str,
    /// True if the replica logged the changes that it applied.
    pub replica_binlog: bool,
    /// The commit groups of the chain A → B → C at whose end the replica is; empty if it replicates from the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Groups>,
    /// Added to each read for which the replica's server waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_latency_microseconds: Option<u64>,
    /// The data set.
    pub shape: Shape,
    /// How long the source had written, in seconds.
    pub load_seconds: u64,
    /// Transactions in the backlog.
    pub transactions: u64,
    /// Rows changed in the backlog.
    pub row_changes: u64,
    /// Size of the backlog, in bytes.
    pub binlog_bytes: u64,
    /// Processors of the machine.
    pub processors: usize,
    /// Each contender, in the order they ran.
    pub contenders: Vec<ContenderResult>,
    /// The fastest native contender; `None` if no native one finished.
    pub best_native: Option<String>,
    /// How many times faster than the best native one each contender was. If no native one finished, a lower bound.
    pub ratio_vs_best_native: BTreeMap<String, f64>,
    /// Why the others did not run, if some did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One contender's run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ContenderResult {
    /// The contender's text on the command line.
    pub name: String,
    /// True for the server's own replication.
    pub native: bool,
    /// Wall-clock seconds until it had caught up; `None` if it did not.
    pub seconds: Option<f64>,
    /// True if all tables equal the source's.
    pub identical: bool,
    /// Tables that differ.
    pub different_tables: Vec<String>,
    /// Why it did not finish; `None` if it did.
    pub error: Option<String>,
    /// The time limit, if it was stopped there; otherwise `None`.
    pub gave_up_after_seconds: Option<f64>,
    /// Processor time of the replica's server.
    pub server_cpu_seconds: f64,
    /// Processor time of the source's server.
    pub source_cpu_seconds: f64,
    /// Processor time of `spate`; `None` for native contenders.
    pub spate_cpu_seconds: Option<f64>,
    /// Peak of the resident memory of `spate`; `None` for native contenders.
    pub spate_peak_rss_bytes: Option<u64>,
    /// How far behind it was while it caught up.
    pub seconds_behind: Vec<LagSample>,
    /// What the machine, the servers and `spate` did meanwhile, once a second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// What `spate` said at its end: its counters. `None` for native contenders that it does not read ahead of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spate_report: Option<serde_json::Value>,
}

impl ContenderResult {
    /// What a program of Spate's used and reported.
    pub(crate) fn note_usage(&mut self, usage: SpateUsage) {
        self.spate_cpu_seconds = Some(usage.cpu.as_secs_f64());
        self.spate_peak_rss_bytes = Some(usage.peak_resident_bytes);
        self.spate_report = usage.report;
    }
}

impl RaceResult {
    /// Fills in the best native contender, and the ratios of the others.
    pub fn rank(&mut self) {
        let natives = || self.contenders.iter().filter(|contender| contender.native);
        let finished = natives().filter(|native| native.identical).filter_map(|native| Some((native, native.seconds?)));
        let stopped = natives().filter_map(|native| Some((native, native.gave_up_after_seconds?)));
        let best = finished.min_by(|a, b| a.1.total_cmp(&b.1)).or_else(|| stopped.min_by(|a, b| a.1.total_cmp(&b.1)));
        let Some((native, native_seconds)) = best else { return };
        let ratios = self.contenders.iter().filter(|contender| contender.identical).filter_map(|contender| {
            let seconds = contender.seconds.filter(|seconds| *seconds > 0.0)?;
            Some((contender.name.clone(), native_seconds / seconds))
        });
        let (ratios, name) = (ratios.collect(), native.name.clone());
        self.ratio_vs_best_native = ratios;
        self.best_native = Some(name);
    }

    /// True if every contender caught up and has the source's tables.
    pub fn all_identical(&self) -> bool {
        self.failure.is_none() && self.contenders.iter().all(|contender| contender.identical)
    }

    /// The result as a table for people.
    pub fn to_table(&self) -> Table {
        let header = [
            "contender",
            "seconds",
            "transactions/s",
            "× best native",
            "replica CPU s",
            "Spate CPU s",
            "Spate peak",
            "tables",
        ];
        let rows = self.contenders.iter().map(|contender| self.table_row(contender)).collect();
        table(&header, 1, rows)
    }

    /// The race in one line, and one more behind a chain.
    pub fn summary(&self) -> String {
        let summary = format!(
            "{} · {} · {}: {} transactions, {} row changes, {} of binlog",
            self.server,
            serde_json::to_value(self.workload)
                .ok()
                .and_then(|name| Some(name.as_str()?.to_owned()))
                .unwrap_or_default(),
            self.durability,
            thousands(self.transactions),
            thousands(self.row_changes),
            megabytes(self.binlog_bytes),
        );
        match self.groups.is_empty() {
            true => summary,
            false => format!("{summary}\nAt the end of a chain: {}", groups_in_words(&self.groups)),
        }
    }

    fn table_row(&self, contender: &ContenderResult) -> Vec<String> {
        let nothing = || "–".to_owned();
        let seconds = match (contender.seconds, contender.gave_up_after_seconds) {
            (Some(seconds), _) => format!("{seconds:.2}"),
            (None, Some(seconds)) => format!("> {seconds:.0}"),
            (None, None) => "failed".to_owned(),
        };
        let rate = contender.seconds.filter(|seconds| *seconds > 0.0);
        let rate = rate.map_or_else(nothing, |seconds| thousands((self.transactions as f64 / seconds) as u64));
        let ratio = self.ratio_vs_best_native.get(&contender.name);
        let tables = match (contender.identical, contender.different_tables.len()) {
            (true, _) => "identical".to_owned(),
            (false, 0) => "unknown".to_owned(),
            (false, count) => format!("{count} DIFFERENT"),
        };
        vec![
            contender.name.clone(),
            seconds,
            rate,
            ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}")),
            format!("{:.1}", contender.server_cpu_seconds),
            contender.spate_cpu_seconds.map_or_else(nothing, |seconds| format!("{seconds:.2}")),
            contender.spate_peak_rss_bytes.map_or_else(nothing, megabytes),
            tables,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn contender(name: &str, seconds: Option<f64>, identical: bool) -> ContenderResult {
        let native = name.starts_with("native");
        ContenderResult { name: name.into(), native, seconds, identical, ..ContenderResult::default() }
    }

    fn race(contenders: Vec<ContenderResult>) -> RaceResult {
        let mut race = RaceResult {
            workload: Workload::Cached,
            durability: Durability::Durable,
            server: "mariadb-10.11".into(),
            backlog: "received",
            replica_binlog: false,
            groups: vec![],
            read_latency_microseconds: None,
            shape: Shape::new(Workload::Cached, None, None, None),
            load_seconds: 20,
            transactions: 1000,
            row_changes: 4000,
            binlog_bytes: 2_000_000,
            processors: 2,
            contenders,
            best_native: None,
            failure: None,
            ratio_vs_best_native: BTreeMap::new(),
        };
        race.rank();
        race
    }

    #[test]
    fn best_native_contender_is_the_fastest_identical_one() {
        let race = race(vec![
            contender("native:0", Some(40.0), true),
            contender("native:16:optimistic", Some(20.0), true),
            contender("native:99:aggressive", Some(1.0), false),
            contender("spate", Some(2.0), true),
            contender("spate:memory=1", Some(0.5), false),
        ]);
        assert_eq!(race.best_native.as_deref(), Some("native:16:optimistic"));
        let expected = [("native:0", 0.5), ("native:16:optimistic", 1.0), ("spate", 10.0)];
        assert_eq!(race.ratio_vs_best_native, expected.map(|(name, ratio)| (name.to_owned(), ratio)).into());
        assert!(!race.all_identical());
    }

    #[test]
    fn stopped_native_contender_gives_a_lower_bound() {
        let mut slow = contender("native:0", None, false);
        slow.gave_up_after_seconds = Some(90.0);
        let race = race(vec![slow, contender("spate", Some(3.0), true)]);
        assert_eq!(race.ratio_vs_best_native["spate"], 30.0);
        assert!(race.to_table().to_string().contains("> 90"));
    }

    #[test]
    fn race_without_native_contender_has_no_ratio() {
        let race = race(vec![contender("spate", Some(3.0), true)]);
        assert_eq!((race.best_native, race.ratio_vs_best_native.len()), (None, 0));
    }

    #[test]
    fn race_json_has_the_documented_fields() {
        let json = serde_json::to_value(race(vec![contender("native:0", Some(1.5), true)])).unwrap();
        for field in ["workload", "durability", "transactions", "row_changes", "binlog_bytes", "best_native"] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert_eq!(json["workload"], "cached");
        assert_eq!(json["durability"], "durable");
        assert_eq!(json["ratio_vs_best_native"]["native:0"], 1.0);
        let contender = json["contenders"][0].as_object().unwrap();
        for field in ["name", "seconds", "identical", "server_cpu_seconds", "spate_cpu_seconds", "spate_peak_rss_bytes"]
        {
            assert!(contender.contains_key(field), "{field}");
        }
    }
}

//! What an experiment has measured, as its JSON result.
//!
//! A result is a list of runs. A run is identified by its setting, its labels (`contender=native:4`, `durability=relaxed`) and its
//! repetition; it has metrics (numbers whose names end with their units), series over time, lanes of a timeline, and checks. Reports and
//! comparisons know nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::plan::Size;
use crate::sampling::Series;
use crate::{Error, Result, home};

/// The version of the results that this laboratory writes and reads.
pub const RESULT_VERSION: u32 = 1;

/// A result with hundreds of runs and their series takes a tenth.
const BYTES_MAX: u64 = 512 << 20;

/// What every version has.
#[derive(Deserialize)]
struct Versioned {
    version: Option<u64>,
}

/// Labels of a run, by name.
pub type Labels = BTreeMap<String, String>;

/// The result of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// [`RESULT_VERSION`] of the laboratory that wrote it.
    pub version: u32,
    /// The facts about it.
    #[serde(flatten)]
    pub header: Header,
    /// When the last run ended, in RFC 3339.
    pub ended: String,
    /// False if it was interrupted.
    pub complete: bool,
    /// All runs, in the order in which they ran.
    pub runs: Vec<Run>,
}

/// What was measured, and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The experiment's name.
    pub experiment: String,
    /// Its size.
    pub size: Size,
    /// The server's series.
    pub server: String,
    /// The server's full version.
    pub server_version: String,
    /// What the program said of its version, and when it was built.
    pub spate_version: String,
    /// When the laboratory was built.
    #[serde(default)]
    pub laboratory_version: String,
    /// The machine.
    pub machine: Machine,
    /// The command that repeats it.
    pub command: String,
    /// From which the order of the runs is drawn.
    pub seed: u64,
    /// How often each cell is measured.
    pub repetitions: u32,
    /// When it began, in RFC 3339.
    pub begun: String,
    /// By setting what a person needs to know to judge it, a line each.
    #[serde(default)]
    pub settings: BTreeMap<String, Vec<String>>,
}

/// One measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What all its contenders had in common: the data, the load.
    pub setting: String,
    /// What distinguishes it within the setting.
    pub labels: Labels,
    /// From 1.
    pub repetition: u32,
    /// In which place of the whole experiment it ran, from 1.
    pub order: u32,
    /// What came of it.
    #[serde(flatten)]
    pub measured: Measured,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Numbers; their names end with their units.
    pub metrics: BTreeMap<String, f64>,
    /// Values over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// What happened when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    /// What must hold: the tables are identical, the books balance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Why the contender did not come to its end. `None`: it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Something that took some time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Which lane it is drawn in.
    pub lane: String,
    /// What it was.
    pub name: String,
    /// When it began, in seconds.
    pub begin: f64,
    /// When it ended, in seconds.
    pub end: f64,
}

/// Something that must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// Whether it does.
    pub holds: bool,
    /// What contradicts it; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

/// Which values of a metric are good ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Small ones.
    Lower,
    /// Large ones.
    Higher,
}

/// Whether small or large values of a metric are good; `None` for one that only describes.
pub fn better(metric: &str) -> Option<Better> {
    const LOWER: [&str; 9] = [
        "seconds",
        "lag_p50_ms",
        "lag_p99_ms",
        "latency_mean_ms",
        "latency_p95_ms",
        "short_visible_mean_ms",
        "spate_cpu_seconds",
        "spate_peak_mib",
        "replica_cpu_seconds",
    ];
    const HIGHER: [&str; 1] = ["transactions_per_second"];
    if LOWER.contains(&metric) {
        Some(Better::Lower)
    } else if HIGHER.contains(&metric) {
        Some(Better::Higher)
    } else {
        None
    }
}

impl ExperimentResult {
    /// Reads a result.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::NoResult`] if it is of another version or none at all.
    pub fn read(path: &Path) -> Result<ExperimentResult> {
        let text = home::read_at_most(path, BYTES_MAX)?;
        let bad = |why: String| Error::NoResult { path: path.to_owned(), why };
        let found: Versioned =
            serde_json::from_slice(&text).map_err(|error| bad(format!("it is no JSON of a result ({error})")))?;
        match found.version {
            Some(version) if version == u64::from(RESULT_VERSION) => {}
            Some(version) => {
                let advice = "use the spate-lab that wrote it, or run the experiment again";
                return Err(bad(format!(
                    "it has version {version}, and this laboratory reads {RESULT_VERSION}; {advice}"
                )));
            }
            None => {
                return Err(bad("it has no version; `spate lab experiment NAME --json FILE` writes results".into()));
            }
        }
        let result: ExperimentResult = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        match result.runs.iter().flat_map(|run| &run.measured.series).find(|series| !series.is_possible()) {
            Some(series) => Err(bad(format!("no experiment has samples like those of '{}'", series.name))),
            None => Ok(result),
        }
    }

    /// True if all checks of all runs hold, and no contender failed.
    pub fn is_sound(&self) -> bool {
        self.complete && self.runs.iter().all(|run| run.measured.is_sound())
    }

    /// The settings, in the order in which they were measured.
    pub fn settings(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.runs.iter().map(|run| run.setting.as_str()).filter(|setting| seen.insert(*setting)).collect()
    }
}

impl Measured {
    /// True if all checks hold and the contender came to its end.
    pub fn is_sound(&self) -> bool {
        self.failure.is_none() && self.checks.iter().all(|check| check.holds)
    }

    /// True if a check does not hold, or the contender failed otherwise than by taking too long.
    pub fn is_wrong(&self) -> bool {
        self.checks.iter().any(|check| !check.holds) || self.failure.is_some() && !self.metrics.contains_key(GAVE_UP)
    }

    /// Adds a number. What is none (of a division by nothing) is left out: JSON cannot hold it.
    pub fn metric(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.metrics.insert(name.to_owned(), value);
        }
    }

    /// Adds a check of tables.
    pub fn check_tables(&mut self, different: &[String]) {
        self.checks.push(Check {
            name: "tables identical".to_owned(),
            holds: different.is_empty(),
            details: different.join(", "),
        });
    }
}

impl Run {
    /// A label; empty if it has none of this name.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// What the same cell of another result has too.
    pub fn cell(&self) -> String {
        cell_name(&self.setting, &self.labels)
    }
}

/// The metric of a contender that took too long: after how many seconds it was given up.
pub const GAVE_UP: &str = "gave_up_after_seconds";

/// The time now, in RFC 3339.
pub fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).map_or_else(|_| String::new(), |now| now.to_string())
}

/// The values of a metric, in the order of the runs.
pub fn values(runs: &[Run], metric: &str) -> Vec<f64> {
    runs.iter().filter_map(|run| run.measured.metrics.get(metric).copied()).collect()
}

/// The name of a cell: its setting and its labels.
pub fn cell_name(setting: &str, labels: &Labels) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if labels.is_empty() { setting.to_owned() } else { format!("{setting}: {}", labels.join(" ")) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A result with these runs: setting, contender, repetition, seconds.
    pub(in crate::experiment) fn result(runs: &[(&str, &str, u32, f64)]) -> ExperimentResult {
        let run = |(order, &(setting, contender, repetition, seconds)): (usize, &(&str, &str, u32, f64))| {
            let mut measured = Measured::default();
            measured.metric("seconds", seconds);
            measured.check_tables(&[]);
            Run {
                setting: setting.to_owned(),
                labels: Labels::from([("contender".to_owned(), contender.to_owned())]),
                repetition,
                order: order as u32 + 1,
                measured,
            }
        };
        ExperimentResult {
            version: RESULT_VERSION,
            header: Header {
                experiment: "shards".into(),
                size: Size::Tiny,
                server: "mariadb-10.11".into(),
                server_version: "10.11.9".into(),
                spate_version: "0.1.0".into(),
                machine: Machine::default(),
                command: "spate lab experiment shards".into(),
                seed: 1,
                repetitions: 1,
                begun: "2026-01-01T00:00:00Z".into(),
                laboratory_version: "0.1.0".into(),
                settings: BTreeMap::new(),
            },
            ended: "2026-01-01T00:01:00Z".into(),
            complete: true,
            runs: runs.iter().enumerate().map(run).collect(),
        }
    }

    #[test]
    fn result_survives_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        let written = result(&[("cached", "spate", 1, 2.5)]);
        crate::output::write_json(&written, &path).unwrap();
        let read = ExperimentResult::read(&path).unwrap();
        assert_eq!((read.header, read.runs), (written.header, written.runs));
    }

    #[test]
    fn result_of_another_version_is_refused_with_both_versions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        for (text, word) in [
            ("{\"version\": 7}", "version 7, and this laboratory reads 1"),
            ("{\"workload\": \"cached\"}", "has no version"),
            ("nonsense", "no JSON of a result"),
            ("{\"version\": 1}", "missing field"),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = ExperimentResult::read(&path).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("a.json"), "{message}");
        }
    }

    #[test]
    fn failed_check_makes_a_result_unsound() {
        let mut unsound = result(&[("cached", "spate", 1, 2.5)]);
        assert!(unsound.is_sound());
        unsound.runs[0].measured.check_tables(&["a.b".to_owned()]);
        assert!(!unsound.is_sound());
    }
}

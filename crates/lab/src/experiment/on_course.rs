//! A setting in which contenders catch up with a backlog, each on a fresh replica.

use std::path::Path;
use std::time::Duration;

use super::driver::Stage;
use super::plan::Size;
use super::result::{GAVE_UP, Labels, Measured};
use crate::Result;
use crate::contender::Contender;
use crate::course::{Conditions, Course};
use crate::results::ContenderResult;
use crate::sampling::Series;

/// Counters of Spate's report that become metrics.
const COUNTERS: [&str; 5] = ["transactions", "row_changes", "net_row_changes", "batches", "retries"];

/// Native replication with one applier, by vendor.
pub(super) const SINGLE: [&str; 2] = ["native:0", "native:1:order"];

/// How long a contender may take.
pub(super) fn limit(size: Size) -> Duration {
    Duration::from_secs(size.of(120, 1_800, 24 * 3_600))
}

/// A course that is ready, and how a cell's labels become conditions.
pub(super) struct OnCourse<'a> {
    course: Course<'a>,
    conditions: Box<dyn Fn(&Labels) -> Conditions + 'a>,
    contender: Box<dyn Fn(&Labels) -> String + 'a>,
    /// Facts about the setting that each run gets as metrics.
    facts: Vec<(&'static str, f64)>,
}

impl<'a> OnCourse<'a> {
    pub(super) fn new(course: Course<'a>, conditions: impl Fn(&Labels) -> Conditions + 'a) -> OnCourse<'a> {
        let contender = |cell: &Labels| cell.get("contender").cloned().unwrap_or_else(|| "spate".to_owned());
        OnCourse { course, conditions: Box::new(conditions), contender: Box::new(contender), facts: Vec::new() }
    }

    /// How a cell's labels become the contender, if they do not name it as the command line does.
    pub(super) fn with_contenders(mut self, contender: impl Fn(&Labels) -> String + 'a) -> OnCourse<'a> {
        self.contender = Box::new(contender);
        self
    }

    pub(super) fn with_facts(mut self, facts: Vec<(&'static str, f64)>) -> OnCourse<'a> {
        self.facts = facts;
        self
    }
}

impl Stage for OnCourse<'_> {
    fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
        let text = (self.contender)(cell);
        let contender = text.parse::<Contender>()?.on(self.course.binaries().vendor())?;
        let conditions = (self.conditions)(cell);
        let (result, replica) =
            self.course.run_one(&conditions, &contender, &text, &directory.join("replica"), None)?;
        drop(replica);
        let mut measured = measured(result);
        let count = self.course.backlog.facts.count;
        measured.metric("backlog_transactions", count.transactions as f64);
        measured.metric("backlog_row_changes", count.row_changes as f64);
        measured.metric("backlog_mb", count.bytes as f64 / 1e6);
        if let Some(seconds) = measured.metrics.get("seconds").copied().filter(|seconds| *seconds > 0.0) {
            measured.metric("transactions_per_second", count.transactions as f64 / seconds);
        }
        self.facts.iter().for_each(|(name, value)| measured.metric(name, *value));
        Ok(measured)
    }
}

/// What a contender has done, as metrics.
pub(super) fn measured(result: ContenderResult) -> Measured {
    let mut measured = Measured { series: result.series, failure: result.error, ..Measured::default() };
    for (name, value) in [
        ("seconds", result.seconds),
        (GAVE_UP, result.gave_up_after_seconds),
        ("replica_cpu_seconds", Some(result.server_cpu_seconds)),
        ("source_cpu_seconds", Some(result.source_cpu_seconds)),
        ("spate_cpu_seconds", result.spate_cpu_seconds),
        ("spate_peak_mib", result.spate_peak_rss_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))),
    ] {
        if let Some(value) = value {
            measured.metric(name, value);
        }
    }
    if let Some(serde_json::Value::Object(report)) = &result.spate_report {
        // Of a prefetch each field is a counter, of a replication some are.
        let is_counter = |name: &str| COUNTERS.contains(&name) || !report.contains_key("applied");
        for (name, value) in report.iter().filter(|(name, _)| is_counter(name)) {
            if let Some(value) = value.as_f64() {
                measured.metric(&format!("spate_{name}"), value);
            }
        }
    }
    let points = result.seconds_behind.iter().map(|sample| (sample.seconds, sample.behind_seconds as f64)).collect();
    measured.series.push(Series { name: "seconds behind".into(), unit: "seconds".into(), points });
    if measured.failure.is_none() {
        measured.check_tables(&result.different_tables);
    }
    measured
}

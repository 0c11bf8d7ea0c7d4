//! The results of a torture, for people and programs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::feature::FeatureSet;
use super::judge::Finding;
use super::settings::{Failure, Settings};
use super::shrink::Shrunk;
use super::step::as_text;
use super::trial::TrialResult;
use crate::Result;
use crate::binlog_format::Format;
use crate::screen::{table, thousands};

/// A shrunk record longer than this is not printed; it is in the kept file.
const SHOWN_STEPS_MAX: usize = 25;

/// The outcome of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Both replicas are equal.
    Identical,
    /// The server's own replication stopped, or a server crashed by itself, so there was nothing to compare with.
    NativeStopped,
    /// There is a finding.
    Different,
    /// The laboratory itself failed.
    Error,
}

/// The result of one seed. The structure is flat because its fields are those of the JSON result.
#[derive(Debug, Clone, Serialize)]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// `row`, `mixed` or `statement`.
    pub format: Format,
    /// The features in use.
    pub features: FeatureSet,
    /// The failures that could be injected.
    pub failures: Vec<Failure>,
    /// The outcome.
    pub verdict: Verdict,
    /// Statements on the source.
    pub statements: u64,
    /// Statements that failed on the source.
    pub statements_failed: u64,
    /// Number of failed statements, by the source's error number.
    pub source_errors: BTreeMap<u16, u64>,
    /// Transactions in the binlog.
    pub transactions: u64,
    /// Kills and stops.
    pub failures_injected: u64,
    /// The findings.
    pub findings: Vec<Finding>,
    /// Notes for people.
    pub notes: Vec<String>,
    /// The shortest statements that show the first finding; `None` if it was not shrunk.
    pub shrunk: Option<String>,
    /// Why there is no verdict; `None` if there is one.
    pub error: Option<String>,
    /// Time from the start of the servers to the verdict.
    pub seconds: f64,
}

/// All seeds.
#[derive(Debug, Clone, Serialize)]
pub struct TortureResult {
    /// The results, in the order of the seeds.
    pub seeds: Vec<SeedResult>,
}

impl SeedResult {
    pub(super) fn new(
        settings: &Settings,
        outcome: Result<(TrialResult, Option<Shrunk>)>,
        time: Duration,
    ) -> SeedResult {
        let (result, shrunk, error) = match outcome {
            Ok((result, shrunk)) => (result, shrunk, None),
            Err(error) => (TrialResult::default(), None, Some(error.to_string())),
        };
        let native_stopped = result.notes.iter().any(|note| note.starts_with("native stopped"));
        let verdict = match (&error, result.findings.is_empty(), native_stopped) {
            (Some(_), _, _) => Verdict::Error,
            (None, false, _) => Verdict::Different,
            (None, true, true) => Verdict::NativeStopped,
            (None, true, false) => Verdict::Identical,
        };
        SeedResult {
            seed: settings.seed,
            format: settings.format,
            features: settings.features.clone(),
            failures: settings.failures.clone(),
            verdict,
            statements: result.statements,
            statements_failed: result.errors.values().sum(),
            source_errors: result.errors,
            transactions: result.transactions,
            failures_injected: result.failures,
            findings: result.findings,
            notes: result.notes,
            shrunk: shrunk.map(|shrunk| describe(&shrunk)),
            error,
            seconds: time.as_secs_f64(),
        }
    }

    /// True if this seed found no fault of Spate.
    pub fn is_sound(&self) -> bool {
        matches!(self.verdict, Verdict::Identical | Verdict::NativeStopped)
    }

    /// The findings and notes, for people; empty if there are none.
    pub fn story(&self, repeat: &str) -> String {
        let mut story = String::new();
        if !self.is_sound() {
            story += &format!("seed {} ({}): ", self.seed, self.format);
            story += &match &self.error {
                Some(error) => format!("no verdict: {error}\n"),
                None => format!("{} finding(s)\n", self.findings.len()),
            };
            for finding in &self.findings {
                story += &format!("  {}\n{}\n", finding.headline(), indented(&finding.details()));
            }
            story += &format!("  source options and features: {}\n  again with: {repeat}\n", self.features);
        }
        for note in &self.notes {
            story += &format!("  seed {}, note: {note}\n", self.seed);
        }
        if let Some(shrunk) = &self.shrunk {
            story += &format!("  shrunk:\n{}\n", indented(shrunk));
        }
        story.trim_end().to_owned()
    }
}

impl TortureResult {
    /// True if no seed found anything.
    pub fn is_sound(&self) -> bool {
        self.seeds.iter().all(SeedResult::is_sound)
    }

    /// A line for each seed.
    pub fn to_table(&self) -> String {
        let header =
            ["seed", "format", "verdict", "statements", "failed", "transactions", "failures", "seconds", "finding"];
        let row = |seed: &SeedResult| {
            let first = seed.findings.first().map(Finding::headline).or_else(|| seed.error.clone()).unwrap_or_default();
            vec![
                seed.seed.to_string(),
                seed.format.to_string(),
                format!("{:?}", seed.verdict),
                thousands(seed.statements),
                thousands(seed.statements_failed),
                thousands(seed.transactions),
                seed.failures_injected.to_string(),
                format!("{:.1}", seed.seconds),
                first.lines().next().unwrap_or_default().chars().take(80).collect(),
            ]
        };
        let failed = self.seeds.iter().filter(|seed| !seed.is_sound()).count();
        let statements = self.seeds.iter().map(|seed| seed.statements).sum();
        let kills: u64 = self.seeds.iter().map(|seed| seed.failures_injected).sum();
        format!(
            "{}\n{} seeds, {} statements, {kills} failures injected; {failed} seeds with findings",
            table(&header, 3, self.seeds.iter().map(row).collect()),
            self.seeds.len(),
            thousands(statements)
        )
    }
}

fn describe(shrunk: &Shrunk) -> String {
    let settings = &shrunk.settings;
    let options: Vec<String> =
        settings.source_options.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    let end = if shrunk.is_minimal { "minimal" } else { "time was up" };
    let head = format!(
        "-- source: --binlog-format={} {}\n-- spate replicate {}\n-- {} steps after {} trials, {end}; Spate begins {:?}\n",
        settings.format,
        options.join(" "),
        settings.spate_arguments.join(" "),
        shrunk.steps.len(),
        shrunk.trials,
        settings.beginning,
    );
    let shown = &shrunk.steps[..shrunk.steps.len().min(SHOWN_STEPS_MAX)];
    let more = shrunk.steps.len() - shown.len();
    let end = if more > 0 { format!("-- … and {more} more\n") } else { String::new() };
    head + &as_text(shown) + &end
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

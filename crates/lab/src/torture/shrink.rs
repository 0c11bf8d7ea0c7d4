//! Shrinks a long record to a short one with the same finding: delta debugging over recorded steps.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use super::judge::Finding;
use super::servers::Ground;
use super::settings::{Beginning, Settings};
use super::step::Step;
use super::trial::{Script, TrialResult, run};
use crate::Result;

/// A shrunk record.
#[derive(Debug)]
pub(super) struct Shrunk {
    /// The settings with which it is repeated.
    pub(super) settings: Settings,
    /// The remaining steps.
    pub(super) steps: Vec<Step>,
    /// Number of trials.
    pub(super) trials: usize,
    /// True if no step can be left out; false if time was up.
    pub(super) is_minimal: bool,
}

/// Tries of one record.
struct Laboratory<'a> {
    ground: &'a Ground,
    settings: Settings,
    signature: String,
    headline: String,
    directory: &'a Path,
    trials: usize,
    deadline: Instant,
    tell: &'a dyn Fn(&str),
}

/// Shrinks a record. `None` if a repetition does not show its first finding again.
pub(super) fn shrink(
    ground: &Ground,
    settings: &Settings,
    (steps, finding): (&[Step], &Finding),
    time: Duration,
    directory: &Path,
    tell: &dyn Fn(&str),
) -> Result<Option<Shrunk>> {
    let mut laboratory = Laboratory {
        ground,
        settings: settings.clone(),
        signature: finding.signature(),
        headline: finding.headline(),
        directory,
        trials: 0,
        deadline: Instant::now() + time,
        tell,
    };
    let Some(mut steps) = laboratory.reproduce(steps)? else { return Ok(None) };
    steps = laboratory.keep_what_matters(steps)?;
    steps = laboratory.minimize(steps)?;
    let is_minimal = !laboratory.is_over();
    Ok(Some(Shrunk { settings: laboratory.settings, steps, trials: laboratory.trials, is_minimal }))
}

impl Laboratory<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// True if these steps show the finding.
    fn shows(&mut self, steps: &[Step]) -> Result<bool> {
        self.trials += 1;
        (self.tell)(&format!("shrinking: trial {} with {} steps", self.trials, steps.len()));
        let place = self.directory.join(format!("shrink-{}", self.trials));
        let result = run(self.ground, &self.settings, Script::Repeat(steps), &place, &|_| {});
        let _ = std::fs::remove_dir_all(&place);
        let TrialResult { findings, .. } = result?;
        Ok(findings.iter().any(|finding| finding.signature() == self.signature))
    }

    /// Tries first without failures and with the whole record as one backlog, which is deterministic; then with the
    /// original settings.
    fn reproduce(&mut self, steps: &[Step]) -> Result<Option<Vec<Step>>> {
        let calm: Vec<Step> = steps.iter().filter(|step| !step.is_failure()).cloned().collect();
        let original = self.settings.beginning;
        for (beginning, steps) in
            [(Beginning::AtTheEnd, calm.as_slice()), (Beginning::AtOnce, calm.as_slice()), (original, steps)]
        {
            self.settings.beginning = beginning;
            if self.shows(steps)? {
                return Ok(Some(steps.to_vec()));
            }
        }
        Ok(None)
    }

    /// True if the finding names this table.
    fn names(&self, table: &str) -> bool {
        self.headline.contains(&format!(".{}", table.replace("``", "`")))
            || self.headline.contains(&format!("`{table}`"))
    }

    /// Tries likely cuts: steps after the first occurrence, and statements about other tables, rarely matter.
    fn keep_what_matters(&mut self, mut steps: Vec<Step>) -> Result<Vec<Step>> {
        let tables: Vec<String> = tables_of(&steps).into_iter().filter(|table| self.names(table)).collect();
        if !tables.is_empty() {
            let is_about = |step: &Step| {
                step.statement().is_none_or(|sql| {
                    is_about_the_session(sql) || tables.iter().any(|table| sql.contains(&format!("`{table}`")))
                })
            };
            let guess: Vec<Step> = steps.iter().filter(|step| is_about(step)).cloned().collect();
            if guess.len() < steps.len() && self.shows(&guess)? {
                steps = guess;
            }
        }
        // The shortest beginning that shows the finding, by bisection.
        let (mut low, mut high) = (0, steps.len());
        while low + 1 < high && !self.is_over() {
            let middle = low.midpoint(high);
            if self.shows(&steps[..middle])? { high = middle } else { low = middle }
        }
        steps.truncate(high);
        Ok(steps)
    }

    /// Zeller's and Hildebrandt's ddmin: leaves out ever smaller parts while the rest shows the finding.
    fn minimize(&mut self, mut steps: Vec<Step>) -> Result<Vec<Step>> {
        let mut parts = 2;
        while steps.len() >= 2 {
            let size = steps.len().div_ceil(parts);
            let mut is_smaller = false;
            let mut begin = 0;
            while begin < steps.len() {
                if self.is_over() {
                    return Ok(steps);
                }
                let end = (begin + size).min(steps.len());
                let rest: Vec<Step> = steps[..begin].iter().chain(&steps[end..]).cloned().collect();
                if self.shows(&rest)? {
                    steps = rest;
                    is_smaller = true;
                } else {
                    begin = end;
                }
            }
            if size == 1 && !is_smaller {
                break;
            }
            parts = if is_smaller { parts.max(2) } else { parts * 2 }.min(steps.len().max(2));
        }
        Ok(steps)
    }
}

/// The quoted names of the tables, views and sequences that the statements create.
fn tables_of(steps: &[Step]) -> BTreeSet<String> {
    let name = |step: &Step| {
        let (_, rest) = step.statement().filter(|sql| sql.starts_with("CREATE"))?.split_once("`.`")?;
        // A quote within the name is doubled.
        let mut end = 0;
        while let Some(found) = rest[end..].find('`') {
            end += found;
            if !rest[end + 1..].starts_with('`') {
                return Some(rest[..end].to_owned());
            }
            end += 2;
        }
        None
    };
    steps.iter().filter_map(name).collect()
}

/// True for the context of other statements: transactions, settings, schemas.
fn is_about_the_session(sql: &str) -> bool {
    const WORDS: [&str; 11] = [
        "BEGIN",
        "START",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT",
        "RELEASE",
        "SET ",
        "USE ",
        "XA ",
        "CREATE DATABASE",
        "ALTER DATABASE",
    ];
    WORDS.iter().any(|word| sql.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_names_are_found_in_statements() {
        let steps = [
            Step::sql(0, "CREATE TABLE `odd ``name`.`t``q` (id INT)"),
            Step::sql(0, "CREATE SEQUENCE `d1`.`s2`"),
            Step::sql(0, "INSERT INTO `d1`.`x` VALUES (1)"),
            Step::sql(0, "CREATE DATABASE `d1`"),
        ];
        assert_eq!(tables_of(&steps).into_iter().collect::<Vec<_>>(), ["s2", "t``q"]);
    }

    #[test]
    fn shrinking_keeps_settings_and_transactions() {
        assert!(is_about_the_session("SET NAMES latin1") && is_about_the_session("XA END 'x'"));
        assert!(!is_about_the_session("DROP TABLE t"));
    }
}

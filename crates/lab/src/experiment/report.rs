//! `lab report`: results as one page for people, which needs nothing but a browser, and as Markdown.
//!
//! A report begins with the verdict, in the same size for a win and a loss; then come the experiment's own tables and graphs
//! ([`super::reports`]), what was sampled, the checks, and how to repeat it. The results themselves are part of the page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use spate_page::{document, raw_figures};

use super::blocks::{Block, Graph, to_html, to_markdown};
use super::driver::{CALIBRATION, DISK_CALIBRATION, MESSAGE_CALIBRATION};
use super::result::{ExperimentResult, Run, cell_name, values};
use super::selection::{Selection, by_numbers};
use super::statistics::{median, spread};
use super::{facts, reports};
use crate::{Error, Result, home};

pub(crate) const EXAMPLES: &str = "\
Examples:
  spate lab report shards.json --html shards.html
  spate lab report shards-mariadb.json shards-mysql.json --html shards.html --markdown shards.md";

/// Series that are shown of each run, one graph for each and setting; all others are in the figures. What there is none of in an experiment is not shown.
const SHOWN_SERIES: [&str; 14] = [
    "replica commits",
    "replica processor",
    "disk reads",
    "server commits",
    "node 1 commits",
    "node 1 flow control paused",
    "source commits",
    "replica applied",
    "spate processor",
    "disk writes",
    "disk read latency",
    "disk busy",
    "replica buffer pool filled",
    "memory used",
];

/// With more groups of runs than this, only the first series are shown of each.
const GROUPS_IN_FULL: usize = 4;
const SERIES_OF_MANY: usize = 7;

/// Options of `lab report`.
#[derive(Debug, Args)]
pub struct ReportOptions {
    /// Results of experiments
    #[arg(required = true, value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// Write the page to this file
    #[arg(long, value_name = "FILE", required_unless_present = "markdown")]
    html: Option<PathBuf>,
    /// Write the tables to this file, in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl ReportOptions {
    /// Writes the report.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::NoResult`], [`Error::Report`].
    pub fn run(self) -> Result<ExitCode> {
        for written in self.html.iter().chain(&self.markdown) {
            let is_same =
                |read: &PathBuf| read.canonicalize().is_ok_and(|read| Some(read) == written.canonicalize().ok());
            if self.results.iter().any(is_same) {
                let why = "it is one of the results; give another file".to_owned();
                return Err(Error::BadArgument { what: "file for a report", text: written.display().to_string(), why });
            }
        }
        let results: Vec<ExperimentResult> =
            self.results.iter().map(|path| ExperimentResult::read(path)).collect::<Result<_>>()?;
        if let Some(path) = &self.html {
            write_html(&results, path)?;
        }
        if let Some(path) = &self.markdown {
            home::write_whole(path, markdown(&results).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes results as a page.
///
/// # Errors
/// [`Error::File`], [`Error::Report`].
pub fn write_html(results: &[ExperimentResult], path: &Path) -> Result<()> {
    let mut body = String::new();
    for result in results {
        body += &to_html(&blocks(result))?;
        body += &raw_figures(result).map_err(Error::Report)?;
    }
    let title = title(results);
    home::write_whole(path, document(&title, &title, None, &body).as_bytes())
}

fn markdown(results: &[ExperimentResult]) -> String {
    let parts: Vec<String> = results.iter().map(|result| to_markdown(&blocks(result))).collect();
    format!("# {}\n\n{}", title(results), parts.join(""))
}

fn title(results: &[ExperimentResult]) -> String {
    let mut names: Vec<&str> = results.iter().map(|result| result.header.experiment.as_str()).collect();
    names.dedup();
    format!("Experiment: {}", names.join(", "))
}

/// All parts of a result's report.
pub fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let header = &result.header;
    let mut blocks = vec![Block::Heading(format!("{} · {} · {}", header.experiment, header.server, header.size))];
    blocks.push(Block::Text(reports::about(&header.experiment).to_owned()));
    if !result.complete {
        let done = result.runs.len();
        blocks.push(Block::Verdict(format!(
            "Interrupted: these are the {done} measurements that were made; the same command goes on."
        )));
    }
    blocks.extend(reports::blocks(result));
    blocks.extend(checks(result));
    blocks.extend(sampled(result));
    blocks.extend(circumstances(result));
    blocks
}

/// What does not hold, and what failed; in one line if everything is as it must be.
fn checks(result: &ExperimentResult) -> Vec<Block> {
    let count = result.runs.iter().flat_map(|run| &run.measured.checks).count();
    let broken: Vec<Vec<String>> = result
        .runs
        .iter()
        .flat_map(|run| {
            let of_checks = run.measured.checks.iter().filter(|check| !check.holds);
            let of_checks =
                of_checks.map(|check| vec![run.cell(), format!("NOT {}", check.name), check.details.clone()]);
            let failure = run.measured.failure.iter().map(|why| vec![run.cell(), "failed".to_owned(), why.clone()]);
            of_checks.chain(failure).collect::<Vec<_>>()
        })
        .collect();
    if broken.is_empty() {
        let count = if count == 0 { "No checks were made".to_owned() } else { format!("All {count} checks hold") };
        return vec![Block::Text(format!("{count}, in {} measurements.", result.runs.len()))];
    }
    vec![Block::table("What does not hold", &["measurement", "what", "details"], broken)]
}

/// A graph for each series of runs that differ in their contender, with a line for each: of its repetitions the first.
fn sampled(result: &ExperimentResult) -> Vec<Block> {
    let mut graphs = Vec::new();
    let groups = groups(result);
    let shown = if groups.len() <= GROUPS_IN_FULL { &SHOWN_SERIES[..] } else { &SHOWN_SERIES[..SERIES_OF_MANY] };
    for (setting, runs) in &groups {
        for &name in shown {
            let lines: Vec<(String, Vec<(f64, f64)>)> = runs
                .runs()
                .iter()
                .filter_map(|run| {
                    let series = run.measured.series.iter().find(|series| series.name == name)?;
                    Some((line_name(run), series.points.clone()))
                })
                .collect();
            let unit = runs.runs().iter().flat_map(|run| &run.measured.series).find(|series| series.name == name);
            let Some(unit) = unit.map(|series| series.unit.clone()) else { continue };
            let (title, across) = (format!("{setting}: {name}"), "seconds".to_owned());
            graphs.push(Block::Graph(Graph { title, across, up: unit, lines, ..Graph::default() }));
        }
    }
    if graphs.is_empty() {
        return Vec::new();
    }
    vec![Block::Folded { title: "What was sampled, once a second".to_owned(), blocks: graphs }]
}

/// The first repetitions, by their settings and all labels but the contender; without contenders, by their settings.
fn groups(result: &ExperimentResult) -> Vec<(String, Selection<'_>)> {
    let first = Selection::of(result).only(|run| run.repetition == 1);
    let has_contenders = !first.values_of("contender").is_empty();
    let name = |run: &Run| {
        let labels = run.labels.iter().filter(|(name, _)| has_contenders && *name != "contender");
        cell_name(&run.setting, &labels.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let mut names: Vec<String> = first.runs().iter().map(|run| name(run)).collect();
    names.sort_by(|a, b| by_numbers(a, b));
    names.dedup();
    names
        .into_iter()
        .map(|group| (group.clone(), first.only(|run| name(run) == group).sorted_by("contender")))
        .collect()
}

fn line_name(run: &Run) -> String {
    if let Some(contender) = run.labels.get("contender") {
        return contender.clone();
    }
    let values: Vec<String> = run.labels.iter().map(|(name, value)| format!("{name} {value}")).collect();
    values.join(", ")
}

/// The machine, the versions, the command.
fn circumstances(result: &ExperimentResult) -> Vec<Block> {
    let header = &result.header;
    let machine = &header.machine;
    let speed = |name: &str| {
        let times = values(&result.runs, name);
        median(&times).map_or_else(String::new, |milliseconds| {
            let spread = spread(&times).unwrap_or_default() * 100.0;
            format!("{milliseconds:.0} ms, at most {spread:.0} % off between measurements")
        })
    };
    let rows = [
        ("Server", header.server_version.clone()),
        ("Spate", header.spate_version.clone()),
        ("Laboratory", header.laboratory_version.clone()),
        ("Processors", format!("{} × {}", machine.processors, machine.processor)),
        ("Memory", format!("{} MiB", machine.memory_mib)),
        ("System", format!("{}, kernel {}", machine.system, machine.kernel)),
        ("File system", machine.file_system.clone()),
        ("A fixed computation takes", speed(CALIBRATION)),
        ("Fixed messages between processors take", speed(MESSAGE_CALIBRATION)),
        ("Fixed writes to the disk take", speed(DISK_CALIBRATION)),
        ("Repetitions", header.repetitions.to_string()),
        ("Seed of the order", header.seed.to_string()),
        ("Measured", format!("{} to {}", header.begun, result.ended)),
        ("Command", header.command.clone()),
    ];
    let rows =
        rows.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| vec![name.to_owned(), value]);
    let mut blocks = vec![Block::table("Circumstances", &["what", "which"], rows.collect())];
    let told = header.settings.iter().flat_map(|(setting, told)| {
        told.iter().map(move |fact| {
            let (what, which) = facts::parts(fact);
            vec![setting.clone(), what.to_owned(), which.to_owned()]
        })
    });
    let told: Vec<Vec<String>> = told.collect();
    if !told.is_empty() {
        let table = Block::table("Of each setting", &["setting", "of what", "which"], told);
        blocks.push(Block::Folded { title: "Data, loads and options of the servers".to_owned(), blocks: vec![table] });
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;
    use crate::sampling::Series;

    #[test]
    fn report_names_what_does_not_hold() {
        let mut result = result(&[("cached", "native:0", 1, 9.0), ("cached", "spate", 1, 1.0)]);
        assert!(markdown(std::slice::from_ref(&result)).contains("All 2 checks hold, in 2 measurements."));
        result.runs[1].measured.check_tables(&["bench1.sbtest1".to_owned()]);
        result.runs[0].measured.failure = Some("duplicate key".to_owned());
        let text = markdown(&[result]);
        assert!(
            text.contains("NOT tables identical") && text.contains("bench1.sbtest1") && text.contains("duplicate key"),
            "{text}"
        );
    }

    #[test]
    fn interrupted_result_says_so() {
        let mut result = result(&[("cached", "spate", 1, 1.0)]);
        result.complete = false;
        assert!(markdown(&[result]).contains("**Interrupted: these are the 1 measurements"));
    }

    #[test]
    fn page_holds_the_result_and_its_samples() {
        let mut result = result(&[("cached", "spate", 1, 1.0)]);
        let points = vec![(0.0, 1.0), (1.0, 1.5)];
        result.runs[0].measured.series.push(Series { name: "disk reads".into(), unit: "per second".into(), points });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.html");
        write_html(&[result], &path).unwrap();
        let page = std::fs::read_to_string(path).unwrap();
        assert!(page.contains("cached: disk reads") && page.contains("<figure class=\"graph\">"), "{page}");
        assert!(page.contains("&quot;machine&quot;") || page.contains("\"machine\""), "the figures are in the page");
    }
}

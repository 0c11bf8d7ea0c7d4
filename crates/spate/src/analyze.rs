//! `spate analyze`: what parallelism binlogs have.

mod measured;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use spate_analyze::{
    Analysis, Calibration, CommitOrder, Costs, Folded, HotRow, Measured, Options, Policy, Progress, TableFacts,
    analyze, calibrate, page,
};
use spate_archive::{Archive, DirectoryOptions, RealFileSystem, SyncPolicy};
use spate_receive::FetchOptions;
use spate_receive::intake::IntakeOptions;
use spate_replica::until::Until;

use self::measured::Runs;
use crate::arguments::{AnalyzeArguments, made_server_id};
use crate::{Failure, archive, print, say, signals};

/// Lines of each list on the terminal; the page and JSON have more.
const SHOWN: usize = 5;

pub(crate) fn run(arguments: &AnalyzeArguments) -> Result<ExitCode, Failure> {
    let temporary;
    let (directory, name) = match &arguments.directory {
        Some(directory) => (directory.clone(), directory.display().to_string()),
        None => {
            temporary = tempfile::Builder::new().prefix("spate-analyze-").tempdir()?;
            let directory = arguments.archive.clone().unwrap_or_else(|| temporary.path().join("archive"));
            (directory.clone(), receive_all(arguments, directory)?)
        }
    };
    let options = DirectoryOptions { base_name: arguments.base_name.clone() };
    let archive = Archive::open(Arc::new(RealFileSystem), &directory, options)?;
    if archive.files().is_empty() {
        return Err(format!("{name} holds no binlog files").into());
    }
    let costs = Costs::default();
    let costs = Costs {
        transaction: arguments.transaction_cost.unwrap_or(costs.transaction),
        row: arguments.row_cost.unwrap_or(costs.row),
        statement: arguments.statement_cost.unwrap_or(costs.statement),
        commit: arguments.commit_cost.unwrap_or(costs.commit),
    };
    let mut appliers = arguments.appliers.clone();
    appliers.sort_unstable();
    appliers.dedup();
    let line = progress_line();
    let options = Options::default();
    let processors = arguments.processors.unwrap_or(options.processors);
    let options = Options { appliers, costs, processors, ..options };
    let (options, calibrations) = match &arguments.race {
        Some(race) => calibrated(&archive, options, race)?,
        None => (options, vec![]),
    };
    let analysis = analyze(&archive, &options, &mut |progress| show(&line, progress))?;
    line.finish_and_clear();
    if let Some(path) = &arguments.html {
        let html = page(&analysis, &name)?;
        std::fs::write(path, html).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        say(&format!("the page is {}", path.display()));
    }
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&Report { analysis: &analysis, calibrations: &calibrations })?)?,
        false => {
            print(&text(&analysis))?;
            calibrations.iter().try_for_each(|of| print(&comparison(of)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The analysis, with what runs say of its costs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    analysis: &'a Analysis,
    #[serde(skip_serializing_if = "<[CalibrationOf]>::is_empty")]
    calibrations: &'a [CalibrationOf],
}

/// What the runs of one kind of applier say.
#[derive(Debug, Serialize)]
struct CalibrationOf {
    of: &'static str,
    #[serde(flatten)]
    calibration: Calibration,
}

/// The costs that runs tell. The analysis goes by those of Spate, if there are any.
fn calibrated(archive: &Archive, options: Options, race: &Path) -> Result<(Options, Vec<CalibrationOf>), Failure> {
    let mut calibrations = Vec::new();
    for Runs { of, measured } in measured::read(race)? {
        let calibration =
            calibrate(archive, &options, &measured).map_err(|error| format!("{} ({of}): {error}", race.display()))?;
        calibrations.push(CalibrationOf { of, calibration });
    }
    let options = match calibrations.last() {
        Some(of) => of.calibration.applied_to(options),
        None => options,
    };
    Ok((options, calibrations))
}

fn comparison(of: &CalibrationOf) -> String {
    let Calibration { costs: Costs { transaction, row, statement, commit }, serial, .. } = &of.calibration;
    let header = ["run", "seconds", "simulated", "difference"];
    let rows = of.calibration.compared.iter().map(|compared| {
        let mark = if compared.is_calibration { " (costs are from it)" } else { "" };
        let difference = format!("{:+.0} %{mark}", compared.difference() * 1e2);
        let Measured { name, seconds, .. } = &compared.measured;
        vec![name.clone(), format!("{seconds:.2}"), format!("{:.2}", compared.predicted_seconds), difference]
    });
    format!(
        "\nRuns of {}, and the simulation ({transaction:.0} µs for a transaction, {row:.1} for a row change, {statement:.0} for a statement, {commit:.0} for a \
         commit; not faster with more appliers: {:.0} % with the order kept, {:.0} % with commits delegated, {:.0} % with the order free):\n{}",
        of.of,
        serial.preserve * 1e2,
        serial.preserve_delegated * 1e2,
        serial.free * 1e2,
        table(&header, rows)
    )
}

/// Receives what the source has now. Returns the source's name.
fn receive_all(arguments: &AnalyzeArguments, archive_dir: PathBuf) -> Result<String, Failure> {
    let source = arguments.source.endpoint(&arguments.common)?;
    let name = source.to_string();
    let server_id = made_server_id(&archive_dir);
    let options = FetchOptions {
        intake: IntakeOptions { start_place: None, source, server_id, semi_sync: false },
        archive_dir,
        sync: SyncPolicy::Os,
        start: Some(arguments.start.clone()),
        until: Until::CaughtUp,
        retention: None,
    };
    let stop = signals::stop_flag()?;
    archive::receive(&options, &stop)?;
    match stop.load(Ordering::Acquire) {
        true => Err("stopped before all was received".into()),
        false => Ok(name),
    }
}

fn progress_line() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {msg}  {eta} to go");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(line: &ProgressBar, progress: &Progress) {
    line.set_length(progress.bytes_total);
    line.set_position(progress.bytes);
    line.set_message(format!("{} transactions", progress.transactions));
}

fn text(analysis: &Analysis) -> String {
    let mut parts = vec![facts(analysis)];
    for policy in analysis.policies() {
        let limit = analysis.limit_of(policy).map_or(0.0, |limit| limit.factor);
        parts.push(format!(
            "Times as fast as one applier, beside each other by {} (at most {limit:.1}, with appliers and processors without end):\n{}",
            policy.name(),
            speed_ups(analysis, policy)
        ));
    }
    parts.push(format!(
        "(by a simulation with {} processors, {} µs for a transaction, {} for a row change, {} for a statement, {} for a commit)",
        analysis.processors, analysis.costs.transaction, analysis.costs.row, analysis.costs.statement, analysis.costs.commit
    ));
    let folded = table(&Folded::HEADER, analysis.folded.iter().map(Folded::cells));
    parts.push(format!("What folding leaves of row changes:\n{folded}"));
    if !analysis.hottest_tables.is_empty() {
        let tables = table(&TableFacts::HEADER, analysis.hottest_tables.iter().take(SHOWN).map(TableFacts::cells));
        parts.push(format!("Tables with the most row changes:\n{tables}"));
    }
    if !analysis.hottest_rows.is_empty() {
        let rows = table(&HotRow::HEADER, analysis.hottest_rows.iter().take(SHOWN).map(HotRow::cells));
        parts.push(format!("Rows with the most changes:\n{rows}"));
    }
    let advice: Vec<String> = analysis.advice.iter().map(|line| format!("- {line}")).collect();
    parts.push(advice.join("\n"));
    parts.join("\n\n")
}

fn facts(analysis: &Analysis) -> String {
    let mut text = analysis.summary();
    if !analysis.group_sizes.is_empty() {
        let counted = analysis.group_sizes.iter().filter(|size| size.count > 0);
        let sizes: Vec<String> = counted.map(|size| format!("{} of {}", size.count, size.range())).collect();
        text +=
            &format!("\ncommit groups: {:.2} transactions on average; {}", analysis.group_size_mean, sizes.join(", "));
    }
    text
}

fn table(header: &[impl ToString], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header.iter().map(ToString::to_string));
    table.add_rows(rows);
    table
}

fn speed_ups(analysis: &Analysis, policy: Policy) -> Table {
    let numbers = analysis.speed_ups_of(policy, CommitOrder::Preserve).filter_map(|speed_up| speed_up.setting.appliers);
    let header: Vec<String> =
        std::iter::once("appliers".to_owned()).chain(numbers.map(|number| number.to_string())).collect();
    let rows = CommitOrder::ALL.into_iter().map(|order| {
        let factors = analysis.speed_ups_of(policy, order).map(|speed_up| format!("{:.2}", speed_up.factor));
        std::iter::once(order.name().to_owned()).chain(factors).collect()
    });
    table(&header, rows)
}

//! `spate analyze`: what parallelism binlogs have.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use spate_analyze::{Analysis, CommitOrder, Costs, Options, Policy, Progress, analyze, page};
use spate_archive::{Archive, DirectoryOptions, RealFileSystem, SyncPolicy};
use spate_receive::FetchOptions;
use spate_receive::intake::IntakeOptions;
use spate_replica::until::Until;

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
    let analysis = analyze(&archive, &options, &mut |progress| show(&line, progress))?;
    line.finish_and_clear();
    if let Some(path) = &arguments.html {
        let html = page(&analysis, &name)?;
        std::fs::write(path, html).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        say(&format!("the page is {}", path.display()));
    }
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&analysis)?)?,
        false => print(&text(&analysis))?,
    }
    Ok(ExitCode::SUCCESS)
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
    for policy in Policy::ALL {
        if analysis.speed_ups.iter().any(|speed_up| speed_up.setting.policy == policy) {
            let limit =
                analysis.limits.iter().find(|limit| limit.setting.policy == policy).map_or(0.0, |limit| limit.factor);
            parts.push(format!(
                "Times as fast as one applier, beside each other by {} (at most {limit:.1}, with appliers and processors without end):\n{}",
                policy.name(),
                speed_ups(analysis, policy)
            ));
        }
    }
    parts.push(format!(
        "(by a simulation with {} processors, {} µs for a transaction, {} for a row change, {} for a statement, {} for a commit)",
        analysis.processors, analysis.costs.transaction, analysis.costs.row, analysis.costs.statement, analysis.costs.commit
    ));
    parts.push(format!("What folding leaves of row changes:\n{}", folded(analysis)));
    if !analysis.hottest_tables.is_empty() {
        parts.push(format!("Tables with the most row changes:\n{}", tables(analysis)));
    }
    if !analysis.hottest_rows.is_empty() {
        parts.push(format!("Rows with the most changes:\n{}", rows(analysis)));
    }
    let advice: Vec<String> = analysis.advice.iter().map(|line| format!("- {line}")).collect();
    parts.push(advice.join("\n"));
    parts.join("\n\n")
}

fn facts(analysis: &Analysis) -> String {
    let seconds = analysis.last_seconds.saturating_sub(analysis.first_seconds);
    let mut text = format!(
        "{} transactions in {seconds} s, {} row changes in {} tables, {} statements, {} definitions, {:.1} MB",
        analysis.transactions,
        analysis.rows,
        analysis.tables,
        analysis.statements,
        analysis.definitions,
        analysis.bytes as f64 / 1e6
    );
    if !analysis.group_sizes.is_empty() {
        let sizes: Vec<String> = analysis
            .group_sizes
            .iter()
            .filter(|size| size.count > 0)
            .map(|size| match size.from == size.to {
                true => format!("{} of {}", size.count, size.from),
                false => format!("{} of {} to {}", size.count, size.from, size.to),
            })
            .collect();
        text +=
            &format!("\ncommit groups: {:.2} transactions on average; {}", analysis.group_size_mean, sizes.join(", "));
    }
    text
}

fn new_table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    table
}

fn headers(header: &[&str]) -> Table {
    new_table(header.iter().map(|&title| title.to_owned()).collect())
}

fn speed_ups(analysis: &Analysis, policy: Policy) -> Table {
    let of = |order| {
        analysis
            .speed_ups
            .iter()
            .filter(move |speed_up| speed_up.setting.policy == policy && speed_up.setting.order == order)
    };
    let numbers = of(CommitOrder::Preserve).filter_map(|speed_up| speed_up.setting.appliers);
    let header = std::iter::once("appliers".to_owned()).chain(numbers.map(|number| number.to_string()));
    let mut table = new_table(header.collect());
    for order in CommitOrder::ALL {
        let factors = of(order).map(|speed_up| format!("{:.2}", speed_up.factor));
        table.add_row(std::iter::once(order.name().to_owned()).chain(factors));
    }
    table
}

fn folded(analysis: &Analysis) -> Table {
    let mut table = headers(&["batch of", "row changes", "different rows", "left"]);
    for folded in &analysis.folded {
        let size =
            if folded.batch_transactions == 0 { "all".to_owned() } else { folded.batch_transactions.to_string() };
        let left = 100.0 * folded.net_rows as f64 / folded.rows.max(1) as f64;
        table.add_row([size, folded.rows.to_string(), folded.net_rows.to_string(), format!("{left:.1} %")]);
    }
    table
}

fn tables(analysis: &Analysis) -> Table {
    let mut table = headers(&["table", "row changes", "bytes", "key"]);
    for facts in analysis.hottest_tables.iter().take(SHOWN) {
        let key = match (facts.is_keyless, facts.is_key_assumed) {
            (true, _) => "none",
            (_, true) => "the first column, perhaps",
            _ => "yes",
        };
        table.add_row([facts.name.clone(), facts.rows.to_string(), facts.bytes.to_string(), key.to_owned()]);
    }
    table
}

fn rows(analysis: &Analysis) -> Table {
    let mut table = headers(&["row", "table", "changes"]);
    for row in analysis.hottest_rows.iter().take(SHOWN) {
        table.add_row([row.key.clone(), row.table.clone(), row.changes.to_string()]);
    }
    table
}

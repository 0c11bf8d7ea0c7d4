//! `spate status`.

mod appliers;
mod timeline;

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use spate_replica::status::{PositionStatus, StatusReport};

use crate::arguments::StatusArguments;
use crate::{Failure, print, status_socket};

pub(crate) fn run(arguments: &StatusArguments) -> Result<ExitCode, Failure> {
    let report = status_socket::ask(&arguments.archive).map_err(|error| {
        let dir = arguments.archive.display();
        format!("no spate replicate answers for the archive in {dir} ({error}): is it running, with this --archive?")
    })?;
    if arguments.timeline {
        print(&timeline::text(&report.timeline, report.gauges.uptime_seconds))?;
    } else if arguments.appliers && !arguments.json {
        let sharding =
            report.sharding.as_ref().ok_or("one applier applies all: it runs without --consistency shard")?;
        print(&appliers::text(sharding))?;
    } else if arguments.json {
        print(&serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Of what there may be many, the latest are shown; `--json` has more.
const SHOWN_MAX: usize = 5;

/// Columns, where the output is no terminal that says how many it has.
const WIDTH: u16 = 120;

/// A table without rows, as wide as the terminal.
fn empty_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table
}

fn text(report: &StatusReport) -> String {
    let mut table = empty_table();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("source", report.source.clone());
    row("replica", report.replica.clone());
    row("intake", report.intake.clone());
    row("applier", report.applier.clone());
    if !report.appliers.is_empty() {
        row("appliers", report.appliers.clone());
    }
    row("received", place(&report.positions.received));
    row("durable", place(&report.positions.durable));
    row("applied", place(&report.positions.applied));
    row("lag", format!("{:.1} s, {} transactions", report.gauges.lag_seconds, report.gauges.lag_transactions));
    row(
        "rates",
        format!(
            "{:.0} transactions/s, {:.0} row changes/s, {:.1} MB/s received",
            report.gauges.transactions_per_second,
            report.gauges.row_changes_per_second,
            report.gauges.received_bytes_per_second / 1e6
        ),
    );
    let batch = &report.last_batch;
    row(
        "last batch",
        format!(
            "{} transactions, {} row changes, {} net, {:.1} ms",
            batch.transactions, batch.row_changes, batch.net_row_changes, batch.milliseconds
        ),
    );
    row(
        "since start",
        format!(
            "{} transactions, {} row changes, {} net, {} batches in {:.0} s",
            report.counters.transactions,
            report.counters.row_changes,
            report.counters.net_row_changes,
            report.counters.batches,
            report.gauges.uptime_seconds
        ),
    );
    if report.counters.ignored_transactions > 0 {
        row("ignored", format!("{} transactions of --ignore-server-ids", report.counters.ignored_transactions));
    }
    if report.counters.purged.files > 0 {
        row(
            "archive",
            format!("{} files ({} bytes) removed", report.counters.purged.files, report.counters.purged.bytes),
        );
    }
    for skipped in latest(&report.notices.skipped) {
        row("skipped", format!("{}  {}:{}", skipped.gtid, skipped.file, skipped.position));
    }
    if report.counters.repairs > 0 {
        row(
            "repairs",
            format!("{} row changes since start (spate.repaired on the replica counts them)", report.counters.repairs),
        );
    }
    for repair in latest(&report.notices.latest_repairs) {
        row("repair", repair.clone());
    }
    if report.counters.tables_without_key > 0 {
        let names = latest(&report.notices.latest_tables_without_key).join(", ");
        row("without key", format!("{} changed tables, the latest: {names}", report.counters.tables_without_key));
    }
    let errors = latest(&report.notices.errors);
    if errors.len() < report.notices.errors.len() {
        row("earlier", format!("{} errors and warnings, with --json", report.notices.errors.len() - errors.len()));
    }
    for error in errors {
        row(&format!("{} says", error.stage), error.message.clone());
    }
    table.to_string()
}

/// The last few of what is listed oldest first.
fn latest<T>(list: &[T]) -> &[T] {
    &list[list.len().saturating_sub(SHOWN_MAX)..]
}

fn place(position: &PositionStatus) -> String {
    let gtid = if position.gtid.is_empty() { "-" } else { &position.gtid };
    if position.file.is_empty() { gtid.to_owned() } else { format!("{gtid}  {}:{}", position.file, position.position) }
}

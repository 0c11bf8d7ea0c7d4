//! One line on the terminal that says how replication is doing, twice a second.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use spate_replica::status::{Status, StatusReport};

const INTERVAL: Duration = Duration::from_millis(500);

/// The line, or nothing if standard error is no terminal.
pub(crate) fn line() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {wide_msg}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// Draws until `over`.
pub(crate) fn draw(line: &ProgressBar, status: &Status, over: &AtomicBool) {
    if line.is_hidden() {
        return;
    }
    while !over.load(Ordering::Acquire) {
        line.set_message(text(&status.report()));
        line.tick();
        std::thread::park_timeout(INTERVAL);
    }
    line.finish_and_clear();
}

pub(crate) fn text(report: &StatusReport) -> String {
    let applied = if report.positions.applied.gtid.is_empty() { "-" } else { &report.positions.applied.gtid };
    format!(
        "applied {applied}  lag {:.1} s, {} transactions  {:.0} transactions/s, {:.0} row changes/s  \
         last batch {} transactions in {:.0} ms  intake {}",
        report.gauges.lag_seconds,
        report.gauges.lag_transactions,
        report.gauges.transactions_per_second,
        report.gauges.row_changes_per_second,
        report.last_batch.transactions,
        report.last_batch.milliseconds,
        report.intake,
    )
}

//! Draws when transactions executed, waited, and were committed.

use std::fmt::Write;

use spate_replica::status::JobTimes;

/// Columns of the drawing.
const WIDTH: usize = 60;

/// Transactions that are drawn: those that are open, and the latest of the others.
const DRAWN_MAX: usize = 40;

/// A line for each transaction. `now_seconds`: since Spate's start.
pub(super) fn text(jobs: &[JobTimes], now_seconds: f64) -> String {
    let open = jobs.iter().filter(|job| job.committed_seconds.is_none()).count();
    let skipped = jobs.len().saturating_sub(DRAWN_MAX.max(open));
    let mut passed = 0;
    let is_drawn = |job: &&JobTimes| {
        let is_open = job.committed_seconds.is_none();
        passed += usize::from(!is_open);
        is_open || passed > skipped
    };
    let drawn: Vec<&JobTimes> = jobs.iter().filter(is_drawn).take(DRAWN_MAX).collect();
    let Some(from) = drawn.iter().map(|job| job.begun_seconds).min_by(f64::total_cmp) else {
        return "no transactions were applied beside each other: --consistency transaction does that".to_owned();
    };
    let ends = drawn.iter().map(|job| job.committed_seconds.unwrap_or(now_seconds));
    let to = ends.max_by(f64::total_cmp).unwrap_or(now_seconds).max(from + 1e-6);
    let column = |seconds: f64| (((seconds - from) / (to - from) * WIDTH as f64) as usize).min(WIDTH - 1);
    let name_width = drawn.iter().map(|job| name(job).len()).max().unwrap_or_default();
    let mut text = String::new();
    for job in &drawn {
        let (begun, end) = (column(job.begun_seconds), column(job.committed_seconds.unwrap_or(now_seconds)));
        let executed = job.executed_seconds.map_or(end + 1, column);
        let bar = (0..WIDTH).map(|at| match at {
            at if at < begun || at > end => ' ',
            at if at == end && job.committed_seconds.is_some() => '|',
            at if at <= executed => '#',
            _ => '.',
        });
        let bar: String = bar.collect();
        let again =
            if job.rolled_back > 0 { format!("  rolled back {} times", job.rolled_back) } else { String::new() };
        // A text takes whatever is written.
        let _taken = writeln!(text, "{:name_width$}  {:>3}  {bar}{again}", name(job), job.applier);
    }
    let _taken = writeln!(text, "{:name_width$}  {:>3}  {:.3} s in all", "", "", to - from);
    text.push_str("# executes   . waits for its turn   | is committed; the number is that of the connection");
    text
}

fn name(job: &JobTimes) -> String {
    if job.gtid.is_empty() { format!("#{}", job.seqno) } else { job.gtid.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_transaction_and_those_behind_it() {
        let job = |seqno, begun, executed, committed| JobTimes {
            gtid: format!("0-1-{seqno}"),
            seqno,
            applier: seqno as usize,
            begun_seconds: begun,
            executed_seconds: executed,
            committed_seconds: committed,
            rolled_back: 0,
        };
        let jobs = [job(1, 0.0, None, None), job(2, 0.0, Some(0.9), None), job(10, 5.0, Some(5.5), None)];
        let text = text(&jobs, 6.0);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("0-1-1     1  {}", "#".repeat(60)));
        assert_eq!(lines[1], format!("0-1-2     2  {}{}", "#".repeat(10), ".".repeat(50)));
        assert_eq!(lines[2], format!("0-1-10   10  {}{}{}", " ".repeat(50), "#".repeat(6), ".".repeat(4)));
        assert!(super::text(&[], 1.0).contains("--consistency transaction"));
    }
}

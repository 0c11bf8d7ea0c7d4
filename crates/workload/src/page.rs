//! A replay as a page for people: one HTML file that needs nothing else.

use spate_page::{Axes, Line, Scale, document, escaped, figures, graph, table};

use crate::error::Result;
use crate::measure::{Distribution, Latency};
use crate::replay::ReplayReport;

const GRAPH_HEIGHT: u32 = 320;
/// Digests that have a line of their own in the table.
const SHOWN_MAX: usize = 30;
/// The same in a graph.
const DRAWN_MAX: usize = 5;

fn cells(latency: &Latency) -> Vec<String> {
    [latency.mean, latency.p50, latency.p95, latency.p99, latency.p999, latency.max]
        .iter()
        .map(|milliseconds| format!("{milliseconds:.2}"))
        .collect()
}

/// How long answers took: a histogram of each kind.
fn distributions(shown: &[(String, &Distribution)]) -> Result<String> {
    curves(shown, ("milliseconds", "% of the answers took so long"), |counts, all| {
        counts.iter().map(|(end, count)| (*end, *count as f64 / all * 1e2)).collect()
    })
}

/// How slow the slowest parts of the answers are.
fn slower_parts(shown: &[(String, &Distribution)]) -> Result<String> {
    curves(shown, ("one answer in … is slower", "milliseconds"), |counts, all| {
        let mut rest = all;
        let curve = counts.iter().map(|(end, count)| {
            rest -= *count as f64;
            (all / rest.max(1.0), *end)
        });
        curve.collect()
    })
}

/// A line for each kind; `points` makes it of a distribution and the number of its answers.
fn curves(
    shown: &[(String, &Distribution)],
    (across, up): (&str, &str),
    points: impl Fn(&Distribution, f64) -> Vec<(f64, f64)>,
) -> Result<String> {
    let axes = Axes { height: GRAPH_HEIGHT, across_scale: Scale::Decades, ..Axes::new(across, up) };
    let all = |counts: &Distribution| counts.iter().map(|(_, count)| count).sum::<u64>() as f64;
    let lines: Vec<Line<'_>> =
        shown.iter().map(|(name, counts)| (name.as_str(), points(counts, all(counts)))).collect();
    Ok(graph(&lines, &axes)?)
}

/// The page.
///
/// # Errors
/// [`crate::Error::Page`].
pub fn page(report: &ReplayReport) -> Result<String> {
    let sums = &report.sums;
    let errors: u64 = sums.errors.values().map(|(count, _)| count).sum();
    let mut html = format!(
        "<p>{} statements in {:.1} s ({:.0} a second), {errors} errors; {}. Server: {}.</p>",
        sums.statements,
        sums.seconds,
        sums.statements as f64 / sums.seconds.max(1e-9),
        escaped(&report.pace),
        escaped(&report.server.version)
    );
    if let Some(failure) = &report.failure {
        html += &format!("<p><b>The replay failed, and measured only a part: {}</b></p>", escaped(failure));
    }
    let header = |first: &'static str| [first, "answers", "mean ms", "p50", "p95", "p99", "p99.9", "max"];
    html += "<h2>Inputs</h2>";
    html += &table(
        &header("input"),
        sums.inputs.iter().map(|input| {
            let name = format!("{} ({})", input.name, input.sharing);
            [vec![name, input.statements.to_string()], cells(&input.latency_ms)].concat()
        }),
    );
    html += "<h2>Answers a second</h2>";
    let points = sums.per_second.iter().enumerate().map(|(second, count)| (second as f64, *count as f64)).collect();
    let axes = Axes { height: GRAPH_HEIGHT, ..Axes::new("seconds", "answers a second") };
    html += &graph(&[("answers", points)], &axes)?;
    html +=
        "<h2>Latency by statement, in milliseconds</h2><p>From when a statement was due to the end of its answer.</p>";
    let shown: Vec<(String, &Distribution)> = sums
        .digests
        .iter()
        .take(DRAWN_MAX)
        .map(|digest| (digest.text.chars().take(60).collect(), &digest.distribution_ms))
        .collect();
    html += &distributions(&shown)?;
    html += &slower_parts(&shown)?;
    html += &table(
        &header("statement"),
        sums.digests
            .iter()
            .take(SHOWN_MAX)
            .map(|digest| [vec![digest.text.clone(), digest.count.to_string()], cells(&digest.latency_ms)].concat()),
    );
    html += "<h2>Latency by the size of the answer</h2>";
    let shown: Vec<(String, &Distribution)> =
        sums.sizes.iter().map(|size| (format!("up to {} bytes", size.bytes_max), &size.distribution_ms)).collect();
    html += &distributions(&shown)?;
    html += &table(
        &header("at most bytes"),
        sums.sizes
            .iter()
            .map(|size| [vec![size.bytes_max.to_string(), size.count.to_string()], cells(&size.latency_ms)].concat()),
    );
    html += "<h2>The slowest</h2>";
    html += &table(
        &["statement", "ms", "rows", "due at s", "session"],
        sums.slowest.iter().map(|slow| {
            let (latency, due) = (format!("{:.2}", slow.latency_ms), format!("{:.3}", slow.due));
            vec![slow.statement.clone(), latency, slow.rows.to_string(), due, slow.session.to_string()]
        }),
    );
    if !sums.errors.is_empty() {
        html += "<h2>Errors</h2>";
        html += &table(
            &["one of them", "code", "count"],
            sums.errors.iter().map(|(code, (count, text))| vec![text.clone(), code.to_string(), count.to_string()]),
        );
    }
    html += "<h2>The server meanwhile</h2>";
    html += &table(
        &["counter", "grew by"],
        report.server.counters.iter().map(|(name, value)| vec![name.clone(), value.to_string()]),
    );
    if !report.server.disks.is_empty() {
        html += &table(
            &["disk", "busy", "busiest second", "read MB", "written MB", "holds"],
            report.server.disks.iter().map(|disk| {
                let holds = match (disk.has_data, disk.has_temporary) {
                    (true, true) => "data and temporary files",
                    (true, false) => "data",
                    (false, true) => "temporary files",
                    (false, false) => "",
                };
                let percent = |part: f64| format!("{:.0} %", part * 1e2);
                vec![
                    disk.name.clone(),
                    percent(disk.busy),
                    percent(disk.busiest_second),
                    format!("{:.1}", disk.read_mb),
                    format!("{:.1}", disk.written_mb),
                    holds.to_owned(),
                ]
            }),
        );
    }
    html += &figures(report)?;
    Ok(document("Spate: a replay", "A replay", None, &html))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_that_it_is_a_part() {
        let report = ReplayReport { failure: Some("a.csv, line 5: <b>".to_owned()), ..ReplayReport::default() };
        let html = page(&report).unwrap();
        assert!(html.contains("measured only a part: a.csv, line 5: &lt;b"), "{html}");
    }
}

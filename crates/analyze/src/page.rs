//! An analysis as a page for people: one HTML file that needs nothing else.

use plotters::prelude::*;

use crate::analysis::Analysis;
use crate::dependencies::Policy;
use crate::simulation::CommitOrder;
use crate::{Error, Result};

/// Size of a graph in pixels of a screen; a browser makes it fit.
const GRAPH_SIZE: (u32, u32) = (960, 360);

/// Colours that stay apart in print and for most colour-blind people, on light and on dark ground.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
    table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;border-bottom:1px solid #ccc;text-align:right}\
    td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto;background:#fff}\
    pre{white-space:pre-wrap;font-size:12px}@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}}\
    @media print{body{max-width:none}}";

/// The page of an analysis of `directory`.
///
/// # Errors
/// [`Error::Graph`].
pub fn page(analysis: &Analysis, directory: &str) -> Result<String> {
    let mut html = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Spate: what parallelism {0} has</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\
         <h1>What parallelism {0} has</h1><p>{1}</p>",
        escaped(directory),
        escaped(&summary(analysis))
    );
    html += "<h2>In short</h2><ul>";
    for line in &analysis.advice {
        html += &format!("<li>{}</li>", escaped(line));
    }
    html += "</ul><h2>Transactions and row changes a second</h2>";
    html += &rates(analysis)?;
    html += &format!("<h2>How fast a replica could be</h2><p>{}</p>", escaped(&model(analysis)));
    for policy in Policy::ALL {
        if analysis.speed_ups.iter().any(|speed_up| speed_up.setting.policy == policy) {
            html += &format!("<h3>Beside each other by {}</h3>", policy.name());
            html += &speed_ups(analysis, policy)?;
        }
    }
    if !analysis.group_sizes.is_empty() {
        html += &format!(
            "<h2>Transactions that committed together</h2><p>{:.2} on average, by what the source logs.</p>",
            analysis.group_size_mean
        );
        html += &table(
            &["transactions in a group", "groups"],
            analysis.group_sizes.iter().map(|size| vec![range(size.from, size.to), size.count.to_string()]),
        );
    }
    html += "<h2>What folding leaves</h2>";
    html += &table(
        &["batch of", "row changes", "different rows", "left"],
        analysis.folded.iter().map(|folded| {
            let size =
                if folded.batch_transactions == 0 { "all".to_owned() } else { folded.batch_transactions.to_string() };
            let left = 100.0 * folded.net_rows as f64 / folded.rows.max(1) as f64;
            vec![size, folded.rows.to_string(), folded.net_rows.to_string(), format!("{left:.1} %")]
        }),
    );
    html += "<h2>Tables with the most row changes</h2>";
    html += &table(
        &["table", "row changes", "bytes", "key"],
        analysis.hottest_tables.iter().map(|facts| {
            let key = match (facts.is_keyless, facts.is_key_assumed) {
                (true, _) => "none",
                (_, true) => "the first column, perhaps",
                _ => "yes",
            };
            vec![facts.name.clone(), facts.rows.to_string(), facts.bytes.to_string(), key.to_owned()]
        }),
    );
    html += "<h2>Rows with the most changes</h2>";
    html += &table(
        &["row", "table", "changes"],
        analysis.hottest_rows.iter().map(|row| vec![row.key.clone(), row.table.clone(), row.changes.to_string()]),
    );
    for (title, all) in [("Largest transactions", &analysis.largest), ("Longest transactions", &analysis.longest)] {
        html += &format!("<h2>{title}</h2>");
        html += &table(
            &["transaction", "ends at", "row changes", "bytes", "seconds"],
            all.iter().map(|found| {
                let numbers = [found.rows, found.bytes, found.seconds].map(|number| number.to_string());
                [found.gtid.clone(), found.place.clone()].into_iter().chain(numbers).collect()
            }),
        );
    }
    let json = serde_json::to_string_pretty(analysis).map_err(|error| Error::Graph(error.to_string()))?;
    Ok(format!("{html}<details><summary>All figures</summary><pre>{}</pre></details></body></html>\n", escaped(&json)))
}

/// What was read, in one sentence.
pub(crate) fn summary(analysis: &Analysis) -> String {
    format!(
        "{} transactions of {} s, {} row changes in {} tables, {} statements, {:.1} MB.",
        analysis.transactions,
        analysis.last_seconds.saturating_sub(analysis.first_seconds),
        analysis.rows,
        analysis.tables,
        analysis.statements,
        analysis.bytes as f64 / 1e6
    )
}

/// What the simulation assumes.
fn model(analysis: &Analysis) -> String {
    let costs = analysis.costs;
    format!(
        "A simulation of {} transactions, compared with one applier that commits each by itself. It takes {} µs for a transaction, {} µs for a row \
         change, {} µs for a statement and {} µs for a commit, on {} processors; an applier takes the first transaction that waits for nothing.",
        analysis.simulated_transactions,
        costs.transaction,
        costs.row,
        costs.statement,
        costs.commit,
        analysis.processors
    )
}

fn range(from: u64, to: u64) -> String {
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut html = "<table><thead><tr>".to_owned();
    for title in header {
        html += &format!("<th>{title}</th>");
    }
    html += "</tr></thead><tbody>";
    for row in rows {
        html += "<tr>";
        for cell in row {
            html += &format!("<td>{}</td>", escaped(&cell));
        }
        html += "</tr>";
    }
    html + "</tbody></table>"
}

type Line = (&'static str, Vec<(f64, f64)>);

fn rates(analysis: &Analysis) -> Result<String> {
    let width = analysis.moment_seconds.max(1) as f64;
    let first = analysis.moments.first().map_or(0, |moment| moment.seconds);
    let line = |value: fn(&crate::Moment) -> u64| {
        let point = |moment: &crate::Moment| ((moment.seconds - first) as f64, value(moment) as f64 / width);
        analysis.moments.iter().map(point).collect()
    };
    let lines = [("transactions", line(|moment| moment.transactions)), ("row changes", line(|moment| moment.rows))];
    graph(&lines, "seconds since the first", "a second", false)
}

fn speed_ups(analysis: &Analysis, policy: Policy) -> Result<String> {
    let of = |order: CommitOrder| -> Line {
        let points = analysis
            .speed_ups
            .iter()
            .filter(|speed_up| speed_up.setting.policy == policy && speed_up.setting.order == order)
            .filter_map(|speed_up| Some((f64::from(speed_up.setting.appliers?), speed_up.factor)))
            .collect();
        (order.name(), points)
    };
    graph(&CommitOrder::ALL.map(of), "appliers", "times as fast", true)
}

/// Lines as an SVG picture; `is_log`: across, each step doubles.
fn graph(lines: &[Line], across: &str, up: &str, is_log: bool) -> Result<String> {
    let scaled = |x: f64| if is_log { x.max(1.0).log2() } else { x };
    let all = || lines.iter().flat_map(|(_, points)| points.iter());
    let last = all().map(|&(x, _)| scaled(x)).fold(1.0, f64::max);
    let highest = all().map(|&(_, y)| y).fold(1.0, f64::max) * 1.05;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, GRAPH_SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..last, 0.0..highest)
            .map_err(drawing)?;
        let label = |x: &f64| if is_log { format!("{:.0}", x.exp2()) } else { format!("{x:.0}") };
        chart
            .configure_mesh()
            .x_desc(across)
            .y_desc(up)
            .x_labels(if is_log { last as usize + 1 } else { 10 })
            .x_label_formatter(&label)
            .light_line_style(WHITE)
            .draw()
            .map_err(drawing)?;
        for ((name, points), &colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let points = points.iter().map(|&(x, y)| (scaled(x), y));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(drawing)?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().map_err(drawing)?;
        root.present().map_err(drawing)?;
    }
    Ok(svg)
}

fn drawing<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> Error {
    Error::Graph(error.to_string())
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

//! An analysis as a page for people: one HTML file that needs nothing else.

use spate_page::{Axes, Line, Scale, document, escaped, figures, graph, table};

use crate::Result;
use crate::analysis::Analysis;
use crate::counts::{Folded, Moment};
use crate::dependencies::Policy;
use crate::simulation::CommitOrder;
use crate::tables::{HotRow, TableFacts};

/// Height of a graph in pixels of a screen.
const GRAPH_HEIGHT: u32 = 360;

/// The page of an analysis of `directory`.
///
/// # Errors
/// [`crate::Error::Page`].
pub fn page(analysis: &Analysis, directory: &str) -> Result<String> {
    let mut html = format!("<p>{}.</p><h2>In short</h2><ul>", escaped(&analysis.summary()));
    for line in &analysis.advice {
        html += &format!("<li>{}</li>", escaped(line));
    }
    html += "</ul><h2>Transactions and row changes a second</h2>";
    html += &rates(analysis)?;
    html += &format!("<h2>How fast a replica could be</h2><p>{}</p>", escaped(&model(analysis)));
    for policy in analysis.policies() {
        html += &format!("<h3>Beside each other by {}</h3>", policy.name());
        html += &speed_ups(analysis, policy)?;
    }
    if !analysis.group_sizes.is_empty() {
        html += &format!(
            "<h2>Transactions that committed together</h2><p>{:.2} on average, by what the source logs.</p>",
            analysis.group_size_mean
        );
        let sizes = analysis.group_sizes.iter().map(|size| vec![size.range(), size.count.to_string()]);
        html += &table(&["transactions in a group", "groups"], sizes);
    }
    html += "<h2>What folding leaves</h2>";
    html += &table(&Folded::HEADER, analysis.folded.iter().map(Folded::cells));
    html += "<h2>Tables with the most row changes</h2>";
    html += &table(&TableFacts::HEADER, analysis.hottest_tables.iter().map(TableFacts::cells));
    html += "<h2>Rows with the most changes</h2>";
    html += &table(&HotRow::HEADER, analysis.hottest_rows.iter().map(HotRow::cells));
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
    html += &figures(analysis)?;
    let title = format!("what parallelism {directory} has");
    Ok(document(&format!("Spate: {title}"), &format!("W{}", &title[1..]), None, &html))
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

fn rates(analysis: &Analysis) -> Result<String> {
    let width = analysis.moment_seconds.max(1) as f64;
    let first = analysis.moments.first().map_or(0, |moment| moment.seconds);
    let line = |value: fn(&Moment) -> u64| {
        let point = |moment: &Moment| ((moment.seconds - first) as f64, value(moment) as f64 / width);
        analysis.moments.iter().map(point).collect()
    };
    let lines = [("transactions", line(|moment| moment.transactions)), ("row changes", line(|moment| moment.rows))];
    let axes = Axes { height: GRAPH_HEIGHT, ..Axes::new("seconds since the first", "a second") };
    Ok(graph(&lines, &axes)?)
}

fn speed_ups(analysis: &Analysis, policy: Policy) -> Result<String> {
    let of = |order: CommitOrder| -> Line<'_> {
        let points = analysis
            .speed_ups_of(policy, order)
            .filter_map(|speed_up| Some((f64::from(speed_up.setting.appliers?), speed_up.factor)))
            .collect();
        (order.name(), points)
    };
    let axes = Axes { height: GRAPH_HEIGHT, across_scale: Scale::Doubling, ..Axes::new("appliers", "times as fast") };
    Ok(graph(&CommitOrder::ALL.map(of), &axes)?)
}

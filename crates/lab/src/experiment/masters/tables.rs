//! The report: tables and graphs over the threads, where each stops to scale, and what limits it.

use spate_page::Scale;

use super::super::blocks::{Block, Graph};
use super::super::result::ExperimentResult;
use super::super::selection::Selection;
use super::super::statistics::{failed, outcome};
use super::{Kind, RELAXED, TOPOLOGIES, Topology};

pub(in crate::experiment) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let all = Selection::of(result);
    let mut lines: Vec<(String, Selection<'_>)> = Vec::new();
    let mut settings = result.settings();
    // They were measured in any order.
    settings.sort_by_key(|setting| TOPOLOGIES.iter().position(|topology| topology.name == *setting));
    for setting in settings {
        let runs = all.in_setting(setting);
        let writers = runs.values_of("writers");
        for written in &writers {
            let name = if writers.len() > 1 { format!("{setting}, {written} written to") } else { setting.to_owned() };
            lines.push((name, runs.with("writers", written)));
        }
    }
    let mut blocks = Vec::new();
    for (metric, what, digits) in [
        ("transactions_per_second", "Transactions a second", 0),
        ("latency_mean_ms", "Latency, mean, ms", 2),
        ("latency_p95_ms", "Latency, 95 of 100 are no slower, ms", 2),
        ("conflicts_per_second", "Transactions rolled back for a conflict (deadlock, certification), a second", 1),
        ("flow_control_paused_percent", "Flow control paused, % of the time", 1),
        ("certification_failures_per_second", "Certification failures a second, all nodes", 1),
        ("aborts_per_second", "Transactions that a certified one of another node rolled back, a second", 1),
        ("processor_cores", "Processors that the servers kept busy", 2),
        ("machine_cores", "Processors that were busy, sysbench and Spate included", 2),
        ("disk_busy_percent", "Disk busy, % of the time", 0),
        ("settle_seconds", "Seconds behind the end, until all servers had everything", 2),
    ] {
        let threads = all.values_of("threads");
        let header = std::iter::once("threads".to_owned()).chain(lines.iter().map(|(name, _)| name.clone())).collect();
        let row = |count: &&str| {
            let cells = lines
                .iter()
                .map(|(_, runs)| runs.with("threads", count).shown(metric, |value| format!("{value:.digits$}")));
            std::iter::once((*count).to_owned()).chain(cells).collect()
        };
        blocks.push(Block::Table { title: what.to_owned(), header, rows: threads.iter().map(row).collect() });
        let drawn = lines.iter().map(|(name, runs)| {
            let points = runs
                .values_of("threads")
                .into_iter()
                .filter_map(|count| Some((count.parse().ok()?, runs.with("threads", count).median(metric)?)));
            (name.clone(), points.collect())
        });
        blocks.push(Block::Graph(Graph {
            title: what.to_owned(),
            across: "threads".to_owned(),
            up: what.to_owned(),
            across_scale: Scale::Doubling,
            lines: drawn.collect(),
            ..Graph::default()
        }));
    }
    blocks.insert(0, peaks(&lines, result.header.machine.processors));
    blocks.splice(1..1, repeated(&lines));
    blocks.splice(0..0, PAIRS.into_iter().filter_map(|pair| verdict(&all, &lines, pair)));
    blocks
}

/// The ways that keep a second copy, each with its commits on disk, and with nothing flushed.
const PAIRS: [(&str, &str, &str); 2] = [
    ("Two durable copies", "semi-synchronous, Spate", "Galera, 2 nodes"),
    ("Two copies, nothing flushed", "semi-synchronous, Spate, relaxed", "Galera, 2 nodes, relaxed, 1 written to"),
];

/// The most transactions a second of the one way and of the other.
fn verdict(
    all: &Selection<'_>,
    lines: &[(String, Selection<'_>)],
    (what, of_spate, of_galera): (&str, &str, &str),
) -> Option<Block> {
    let runs_of = |name: &str| lines.iter().find(|(line, _)| line == name).map(|(_, runs)| runs);
    let ((spate, at_spate), (galera, at_galera)) = match (most(runs_of(of_spate)?), most(runs_of(of_galera)?)) {
        (Some(spate), Some(galera)) => (spate, galera),
        (spate, galera) => {
            let words = failed(galera.is_some(), spate.is_some());
            let who = if spate.is_none() { of_spate } else { of_galera };
            let text = format!("{what}: {words}: with no number of threads, {who} always comes to its end.");
            return Some(Block::Verdict(text));
        }
    };
    let possible = at_spate.ratio_to(&at_galera, RATE, all.noise(RATE).as_ref());
    let words = outcome(spate / galera, possible.as_ref());
    Some(Block::Verdict(format!(
        "{what}: {words}: a semi-synchronous source with Spate commits {spate:.0} transactions a second at most, Galera with two \
         nodes {galera:.0}. (Spate's replica applies them a moment later; Galera's second node could be written to as well.)"
    )))
}

/// The most transactions a second, and the runs that have them: with which number of threads all come to their end.
fn most<'a>(runs: &Selection<'a>) -> Option<(f64, Selection<'a>)> {
    let rates = runs.values_of("threads").into_iter().filter_map(|count| {
        let at = runs.with("threads", count);
        at.sound_median(RATE).map(|rate| (rate, at))
    });
    rates.max_by(|a, b| a.0.total_cmp(&b.0))
}

const RATE: &str = "transactions_per_second";

/// Whether repetitions come to the same: how many do within a tenth, and which do not at all.
fn repeated(lines: &[(String, Selection<'_>)]) -> Option<Block> {
    const SAME: f64 = 0.1;
    let mut apart: Vec<(f64, String)> = Vec::new();
    for (name, runs) in lines {
        for count in runs.values_of("threads") {
            let rates = runs.with("threads", count).metric(RATE);
            let (least, most) =
                rates.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
            if rates.len() > 1 && least > 0.0 {
                apart.push((most / least - 1.0, format!("{name}, {count} threads")));
            }
        }
    }
    apart.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (farthest, cell) = apart.first()?;
    let same = apart.iter().filter(|(apart, _)| *apart <= SAME).count();
    Some(Block::Text(format!(
        "Repetitions: in {same} of {} cells, transactions a second are within {:.0} % of each other; farthest apart, by {:.0} %, are those of {cell}.",
        apart.len(),
        SAME * 100.0,
        farthest * 100.0
    )))
}

/// This part of the most is as good as it.
const AS_GOOD: f64 = 0.95;

/// The fewest threads with which about the most is reached, and the most of all.
fn knee<'a>(runs: &Selection<'a>) -> Option<(&'a str, bool)> {
    let counts = runs.values_of("threads");
    let rate = |count: &str| runs.with("threads", count).median(RATE);
    let most = counts.iter().filter_map(|count| rate(count)).max_by(f64::total_cmp)?;
    let knee = *counts.iter().find(|count| rate(count).is_some_and(|rate| rate >= AS_GOOD * most))?;
    Some((knee, counts.last() == Some(&knee)))
}

/// What keeps it from committing more: everything of which there is no more, or that is in the way.
fn limits(at: &Selection<'_>, processors: usize) -> String {
    let metric = |name: &str| at.median(name).unwrap_or_default();
    let rate = metric(RATE).max(1e-9);
    let reasons = [
        (metric("machine_cores") >= 0.85 * processors as f64, "all processors are busy"),
        (metric("disk_busy_percent") >= 80.0, "the disk is busy"),
        (metric("flow_control_paused_percent") >= 10.0, "flow control pauses it"),
        (
            metric("conflicts_per_second").max(metric("aborts_per_second")) >= 0.1 * rate,
            "transactions are rolled back for conflicts (certification, deadlocks)",
        ),
    ];
    let reasons: Vec<&str> = reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason).collect();
    let is_measured = |topology: &&Topology| at.runs().iter().any(|run| run.setting == topology.name);
    let waits = |topology: &Topology| topology.flush != RELAXED || topology.kind == Kind::SemiSync;
    let waits = TOPOLOGIES.iter().find(is_measured).is_some_and(waits);
    match (reasons.is_empty(), waits) {
        (false, _) => reasons.join(", "),
        (true, true) => "nothing is busy: it waits for commits to be flushed or acknowledged".to_owned(),
        (true, false) => "not known: nothing that was measured is used up".to_owned(),
    }
}

/// Where each stops to scale, and why.
fn peaks(lines: &[(String, Selection<'_>)], processors: usize) -> Block {
    let row = |(name, runs): &(String, Selection<'_>)| {
        let (best, is_last) = knee(runs).unwrap_or(("–", false));
        let at = runs.with("threads", best);
        let one = |metric: &str| at.shown(metric, |value| format!("{value:.1}"));
        vec![
            name.clone(),
            if is_last { format!("{best}, the most that were measured") } else { best.to_owned() },
            at.shown(RATE, |rate| format!("{rate:.0}")),
            match at.is_empty() {
                true => "–".to_owned(),
                false if is_last => "it has not stopped".to_owned(),
                false => limits(&at, processors),
            },
            one("machine_cores"),
            one("disk_busy_percent"),
            one("flow_control_paused_percent"),
            one("certification_failures_per_second"),
            one("conflicts_per_second"),
        ]
    };
    let header = [
        "what is written to",
        "stops at threads",
        "transactions/s",
        "because",
        "processors of all",
        "disk busy %",
        "flow control paused %",
        "certification failures/s",
        "conflicts/s",
    ];
    Block::table("Where each stops to scale, and why", &header, lines.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::super::plan::labels;
    use super::super::super::result::Run;
    use super::super::super::result::tests::result;
    use super::*;

    fn at(setting: &str, threads: u32, repetition: u32, rate: f64, metrics: &[(&str, f64)]) -> Run {
        let mut run = result(&[(setting, "", repetition, 1.0)]).runs.remove(0);
        run.labels = labels([("threads", threads.to_string()), ("writers", "1".to_owned())]);
        run.measured.metric(RATE, rate);
        metrics.iter().for_each(|(name, value)| run.measured.metric(name, *value));
        run
    }

    #[test]
    fn it_stops_to_scale_where_more_threads_bring_no_more() {
        let mut all = result(&[]);
        all.header.machine.processors = 2;
        let busy = [("machine_cores", 1.95), ("disk_busy_percent", 85.0)];
        all.runs = vec![
            at("Galera, 2 nodes", 1, 1, 100.0, &[]),
            at("Galera, 2 nodes", 8, 1, 390.0, &busy),
            at("Galera, 2 nodes", 64, 1, 400.0, &busy),
            at("Galera, 2 nodes", 128, 1, 300.0, &[("conflicts_per_second", 200.0)]),
            at("semi-synchronous, Spate", 1, 1, 150.0, &[]),
            at("semi-synchronous, Spate", 8, 1, 600.0, &[]),
        ];
        let again: Vec<Run> = all.runs.iter().map(|run| Run { repetition: 2, ..run.clone() }).collect();
        all.runs.extend(again);
        let blocks = blocks(&all);
        let Block::Verdict(verdict) = &blocks[0] else { panic!("{:?}", blocks[0]) };
        assert!(verdict.contains("Spate wins: a semi-synchronous source with Spate commits 600"), "{verdict}");
        let Block::Table { rows, .. } = &blocks[1] else { panic!("{:?}", blocks[1]) };
        assert_eq!(rows[0][..4], ["Galera, 2 nodes", "8", "390", "all processors are busy, the disk is busy"]);
        assert_eq!(rows[1][1], "8, the most that were measured");
        assert_eq!(rows[1][3], "it has not stopped");
        let one = |setting: &str| {
            let mut all = all.clone();
            all.runs.iter_mut().for_each(|run| run.setting = setting.to_owned());
            limits(&Selection::of(&all).with("threads", "1"), 2)
        };
        assert!(
            one("single server").contains("flushed")
                && one("semi-synchronous, Spate, relaxed").contains("acknowledged")
        );
        assert!(
            one("single server, relaxed").contains("not known")
                && one("Galera, 3 nodes, relaxed").contains("not known")
        );
        let Block::Text(text) = &blocks[2] else { panic!("{:?}", blocks[2]) };
        assert!(text.contains("in 6 of 6 cells"), "{text}");
        all.runs[1].measured.metric(RATE, 780.0);
        let told = format!("{:?}", super::blocks(&all));
        assert!(
            told.contains("in 5 of 6 cells") && told.contains("by 100 %, are those of Galera, 2 nodes, 8 threads"),
            "{told}"
        );
        all.runs
            .iter_mut()
            .filter(|run| run.setting.contains("Spate"))
            .for_each(|run| run.measured.failure = Some("x".into()));
        let failed = format!("{:?}", super::blocks(&all)[0]);
        assert!(
            failed.contains("Spate LOSES: with no number of threads, semi-synchronous, Spate always comes to its end"),
            "{failed}"
        );
        let mut relaxed = result(&[]);
        let of = |setting: &str, writers: &str, rate: f64| {
            let mut run = at(setting, 8, 1, rate, &[]);
            run.labels = labels([("threads", "8".to_owned()), ("writers", writers.to_owned())]);
            run
        };
        relaxed.runs = vec![
            of("Galera, 2 nodes, relaxed", "1", 900.0),
            of("Galera, 2 nodes, relaxed", "2", 700.0),
            of("semi-synchronous, Spate, relaxed", "1", 450.0),
        ];
        let Block::Verdict(verdict) = &super::blocks(&relaxed)[0] else { panic!("no verdict") };
        assert!(verdict.contains("nothing flushed") && verdict.contains("LOSES"), "{verdict}");
        let one = Selection::of(&all).with("threads", "128");
        assert!(limits(&one, 2).contains("conflicts"));
    }
}

//! The lag of each contender under a steady load, for rising rates: where each begins to fall behind.

use std::path::Path;

use super::blocks::{Block, Graph};
use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::plan::{Setting, Size, labels};
use super::result::{ExperimentResult, Labels, Measured};
use super::selection::Selection;
use super::statistics::{Outcome, failed, median, outcome};
use crate::contender::Contender;
use crate::follower::{LivePlan, LiveResult};
use crate::server_options::Durability;
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};
use crate::{Error, Result, steady};
use spate_page::Scale;

pub(super) const ABOUT: &str = "A source takes so many transactions a second (sysbench's oltp_write_only), and a replica follows. The replica is durable; the source is not, else its disk would limit what is offered. The lag is the time from the commit on the \
    source to the first look at the replica that shows the row, for 50 rows a second. The knee of a contender is the highest offered rate at which (and below which) its lag stays below a second in 99 of 100 cases, and does not grow.";

/// A contender follows if 99 of 100 beats are no later, …
const FOLLOWS_MS: f64 = 1_000.0;
/// … if their lag does not grow by more than this from the first quarter of the measurement to the last, …
const GROWS_MS: f64 = 200.0;
/// … and if the source commits this part of what was offered.
const OFFERED_PART: f64 = 0.9;

fn rates(size: Size) -> &'static [u64] {
    size.of(
        &[200, 2_000],
        &[250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000],
        &[250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000],
    )
}

fn plan(size: Size, rate: u64) -> LivePlan {
    let rows = size.of(2_000, 50_000, 1_000_000);
    let shape = Shape::new(Workload::Cached, None, Some(rows), Some(size.of(64, 512, 4_096)));
    LivePlan { shape, rate, warm_up_seconds: size.of(1, 3, 60), seconds: size.of(4, 20, 600) }
}

fn contenders(vendor: Vendor) -> [&'static str; 4] {
    match vendor {
        Vendor::MariaDb => ["native:0", "native:4:optimistic", "native:16:optimistic", "spate"],
        Vendor::MySql => ["native:1:order", "native:4:order", "native:16:order", "spate"],
    }
}

pub(super) struct LagExperiment;

impl Experiment for LagExperiment {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let mut cells = Vec::new();
        for rate in rates(bench.size) {
            for contender in contenders(bench.binaries.vendor()) {
                cells.push(labels([("contender", contender.to_owned()), ("rate", rate.to_string())]));
            }
        }
        let shape = plan(bench.size, 1).shape;
        let disk_bytes = 3 * shape.server_bytes() + bench.size.of(1 << 28, 2 << 30, 50 << 30);
        let load = "sysbench's oltp_write_only at the offered rate, some rows more often than others (special); the source is relaxed, the replica durable";
        let facts = facts::of(bench.binaries.vendor(), &shape, load, &cells);
        vec![Setting { name: "steady load".to_owned(), cells, disk_bytes, facts }]
    }

    fn open<'a>(&self, bench: Bench<'a>, _setting: &Setting, _directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        Ok(Box::new(Steady { bench }))
    }
}

struct Steady<'a> {
    bench: Bench<'a>,
}

impl Stage for Steady<'_> {
    fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
        let Bench { home, binaries, size, screen } = self.bench;
        let contender: Contender = cell["contender"].parse()?;
        let plan = plan(size, cell["rate"].parse().unwrap_or(1));
        match steady::measure(home, binaries, &contender, &plan, Durability::Relaxed, directory, &screen) {
            Ok(result) => Ok(measured(result)),
            // Sysbench gives up when too many transactions are due that the source has not taken.
            Err(error @ Error::LoadEnded { .. }) => {
                let mut measured = Measured { failure: Some(error.to_string()), ..Measured::default() };
                measured.metric(LOAD_ENDED, 1.0);
                Ok(measured)
            }
            Err(error) => Err(error),
        }
    }
}

/// The metric of a run whose load ended early: nothing is known of its contender.
const LOAD_ENDED: &str = "load_ended_early";

fn measured(result: LiveResult) -> Measured {
    let mut measured = Measured { series: result.series, ..Measured::default() };
    let lag = result.lag.commit_to_visible_ms;
    for (name, value) in [
        ("lag_p50_ms", Some(lag.p50)),
        ("lag_p90_ms", Some(lag.p90)),
        ("lag_p99_ms", Some(lag.p99)),
        ("lag_max_ms", Some(lag.max)),
        ("lag_growth_ms", Some(result.lag.growth_ms)),
        ("source_transactions_per_second", Some(result.achieved_rate)),
        ("replica_cpu_cores", Some(result.server_cpu_cores)),
        ("source_cpu_cores", Some(result.source_cpu_cores)),
        ("spate_cpu_cores", result.spate_cpu_cores),
    ] {
        if let Some(value) = value {
            measured.metric(name, value);
        }
    }
    measured.check_tables(&result.different_tables);
    measured
}

pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let runs = Selection::of(result);
    let contenders = runs.values_of("contender");
    let mut blocks = Vec::new();
    let knees: Vec<(&str, Vec<Knee>)> =
        contenders.iter().map(|contender| (*contender, knees(&runs.with("contender", contender)))).collect();
    blocks.push(verdict(&knees));
    blocks.extend(lag_verdict(&runs));
    let rows = knees.iter().map(|(contender, knees)| {
        let mut ends: Vec<&str> = knees.iter().map(|knee| knee.end.in_words()).collect();
        ends.dedup();
        let committed: Vec<f64> = knees.iter().map(|knee| knee.committed).collect();
        vec![
            (*contender).to_owned(),
            range(knees),
            format!("{:.0}", median(&committed).unwrap_or_default()),
            ends.join("; "),
        ]
    });
    let header = ["contender", "offered /s", "committed /s", "what ends there"];
    blocks.push(Block::table("The highest rate that each follows", &header, rows.collect()));
    let mut rows = Vec::new();
    for rate in runs.values_of("rate") {
        for contender in &contenders {
            let own = runs.with("rate", rate).with("contender", contender);
            let milliseconds = |value: f64| format!("{value:.1}");
            rows.push(vec![
                rate.to_owned(),
                (*contender).to_owned(),
                own.shown("source_transactions_per_second", |rate| format!("{rate:.0}")),
                own.shown("lag_p50_ms", milliseconds),
                own.shown("lag_p90_ms", milliseconds),
                own.shown("lag_p99_ms", milliseconds),
                own.shown("lag_max_ms", milliseconds),
                own.shown("lag_growth_ms", milliseconds),
                own.shown("replica_cpu_cores", |cores| format!("{cores:.2}")),
            ]);
        }
    }
    let header = [
        "offered /s",
        "contender",
        "committed /s",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "max ms",
        "growth ms",
        "replica cores",
    ];
    blocks.push(Block::table("Lag", &header, rows));
    for (metric, what) in [("lag_p50_ms", "half of the beats"), ("lag_p99_ms", "99 of 100 beats")] {
        let line = |contender: &&str| {
            let own = runs.with("contender", contender);
            let points = own.values_of("rate").into_iter().filter_map(|rate| {
                let at = own.with("rate", rate);
                Some((rate.parse().ok()?, at.median(metric)?))
            });
            let mut points: Vec<(f64, f64)> = points.collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            ((*contender).to_owned(), points)
        };
        blocks.push(Block::Graph(Graph {
            title: format!("Lag of {what} over the load"),
            across: "transactions a second that were offered".to_owned(),
            up: "ms".to_owned(),
            up_scale: Scale::Decades,
            lines: contenders.iter().map(line).collect(),
            ..Graph::default()
        }));
    }
    blocks
}

/// Where a contender's lag begins to grow.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Knee {
    /// The highest rate that was offered and that the contender follows, as it follows all below; 0: it follows none.
    offered: u64,
    /// What the source committed a second of it.
    committed: f64,
    end: End,
}

/// Why a contender is not seen to follow more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its lag grows.
    FallsBehind,
    /// It fails, or comes to other rows.
    Fails,
    /// The source takes no more.
    Source,
    /// No more was offered.
    Offer,
}

impl End {
    fn in_words(self) -> &'static str {
        match self {
            End::FallsBehind => "it falls behind",
            End::Fails => "it fails",
            End::Source => "the source takes no more",
            End::Offer => "no more was offered",
        }
    }
}

/// A contender's knee in each repetition.
fn knees(own: &Selection<'_>) -> Vec<Knee> {
    let mut repetitions: Vec<u32> = own.runs().iter().map(|run| run.repetition).collect();
    repetitions.sort_unstable();
    repetitions.dedup();
    repetitions.into_iter().map(|repetition| knee(&own.only(|run| run.repetition == repetition))).collect()
}

fn knee(own: &Selection<'_>) -> Knee {
    let mut knee = Knee { offered: 0, committed: 0.0, end: End::Offer };
    for rate in own.values_of("rate") {
        let (at, offered) = (own.with("rate", rate), rate.parse().unwrap_or_default());
        if at.runs().iter().any(|run| run.measured.metrics.contains_key(LOAD_ENDED)) {
            return Knee { end: End::Source, ..knee };
        }
        if !at.is_sound() {
            return Knee { end: End::Fails, ..knee };
        }
        let follows = at.median("lag_p99_ms").is_some_and(|lag| lag <= FOLLOWS_MS)
            && at.median("lag_growth_ms").is_some_and(|growth| growth <= GROWS_MS);
        if !follows {
            return Knee { end: End::FallsBehind, ..knee };
        }
        let committed = at.median("source_transactions_per_second").unwrap_or_default();
        knee = Knee { offered, committed, ..knee };
        if committed < OFFERED_PART * offered as f64 {
            return Knee { end: End::Source, ..knee };
        }
    }
    knee
}

/// The rates of all repetitions: `2000`, or `1000 to 2000`.
fn range(knees: &[Knee]) -> String {
    let offered = || knees.iter().map(|knee| knee.offered);
    match (offered().min(), offered().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or_default().to_string(),
    }
}

/// Who follows the most, told in the same words for a win and a loss. Rates are offered in steps: one wins only if it follows a higher one in every repetition.
fn verdict(knees: &[(&str, Vec<Knee>)]) -> Block {
    let least = |knees: &[Knee]| knees.iter().map(|knee| knee.offered).min().unwrap_or_default();
    let most = |knees: &[Knee]| knees.iter().map(|knee| knee.offered).max().unwrap_or_default();
    let best = |prefix: &str| {
        let of = knees.iter().filter(|(contender, knees)| contender.starts_with(prefix) && !knees.is_empty());
        of.max_by_key(|(_, knees)| (most(knees), least(knees)))
    };
    let (Some((native, of_native)), Some((_, of_spate))) = (best("native"), best("spate")) else {
        return Block::Verdict("There is nothing to compare.".to_owned());
    };
    let falls_behind = |knees: &[Knee]| knees.iter().all(|knee| matches!(knee.end, End::FallsBehind | End::Fails));
    let is_measured_once = of_spate.len() == 1;
    let outcome = if least(of_spate) > most(of_native) && falls_behind(of_native) {
        if is_measured_once { Outcome::WinsOnce } else { Outcome::Wins }
    } else if least(of_native) > most(of_spate) && falls_behind(of_spate) {
        if is_measured_once { Outcome::LosesOnce } else { Outcome::Loses }
    } else {
        Outcome::Nobody
    };
    Block::Verdict(format!(
        "{outcome}: Spate follows {} offered transactions a second, the best native setting ({native}) {}.",
        range(of_spate),
        range(of_native)
    ))
}

/// Whose rows are seen sooner, of half of the beats, told in the same words for a win and a loss. At each rate Spate is compared with the native
/// setting that is the fastest there, and the worst of all for Spate is the verdict.
fn lag_verdict(runs: &Selection<'_>) -> Option<Block> {
    const METRIC: &str = "lag_p50_ms";
    let noise = runs.noise(METRIC);
    let mut outcomes = Vec::new();
    let mut told: Option<(f64, String)> = None;
    for rate in runs.values_of("rate") {
        let at = runs.with("rate", rate);
        let seen = |contender: &&str| {
            let own = at.with("contender", contender);
            own.sound_median(METRIC).filter(|lag| *lag > 0.0).map(|lag| (lag, own))
        };
        let best = |prefix: &str| {
            let of = at.values_of("contender").into_iter().filter(|contender| contender.starts_with(prefix));
            of.filter_map(|contender| Some((contender, seen(&contender)?))).min_by(|a, b| a.1.0.total_cmp(&b.1.0))
        };
        let is_offered = !at.runs().iter().any(|run| run.measured.metrics.contains_key(LOAD_ENDED));
        let is_compared = is_offered && at.has_contender("native") && at.has_contender("spate");
        let (Some((native, of_native)), Some((_, of_spate))) = (best("native"), best("spate")) else {
            outcomes.extend(is_compared.then(|| failed(best("native").is_some(), best("spate").is_some())));
            continue;
        };
        let ratio = of_native.0 / of_spate.0;
        outcomes.push(outcome(ratio, of_native.1.ratio_to(&of_spate.1, METRIC, noise.as_ref()).as_ref()));
        if told.as_ref().is_none_or(|(least, _)| ratio < *least) {
            let text = format!("{:.1} ms with Spate and {:.1} with {native} at {rate}/s", of_spate.0, of_native.0);
            told = Some((ratio, text));
        }
    }
    let told = told.map_or_else(String::new, |(_, told)| format!("; at its worst, after {told}"));
    let count = |wanted: [Outcome; 2]| outcomes.iter().filter(|outcome| wanted.contains(outcome)).count();
    let (later, sooner) = (count([Outcome::Loses, Outcome::LosesOnce]), count([Outcome::Wins, Outcome::WinsOnce]));
    let outcome = outcomes.iter().min()?;
    Some(Block::Verdict(format!(
        "Lag of half of the rows: {outcome}: at {later} of {} rates Spate shows them later than the best native setting by more than the noise, or not at all, at {sooner} sooner\
         {told}.",
        outcomes.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::super::result::{Labels, Run};
    use super::*;

    /// A run at an offered rate: committed, lag, growth.
    fn at(contender: &str, offered: u64, committed: f64, lag: f64, growth: f64) -> Run {
        let mut run = result(&[("steady load", contender, 1, 1.0)]).runs.remove(0);
        run.labels =
            Labels::from([("contender".to_owned(), contender.to_owned()), ("rate".to_owned(), offered.to_string())]);
        run.measured.metric("source_transactions_per_second", committed);
        run.measured.metric("lag_p99_ms", lag);
        run.measured.metric("lag_growth_ms", growth);
        run
    }

    #[test]
    fn rows_that_are_seen_later_are_a_loss() {
        let seen = |contender: &str, rate: u64, repetition: u32, lag: f64| {
            let mut run = at(contender, rate, rate as f64, 5.0, 0.0);
            run.repetition = repetition;
            run.measured.metric("lag_p50_ms", lag);
            run
        };
        let mut all = result(&[]);
        for (contender, lag) in [("native:0", 2.0), ("native:4", 1.0), ("spate", 3.0)] {
            all.runs.extend(
                [1, 2].map(|repetition| seen(contender, 500, repetition, lag * (1.0 + f64::from(repetition) / 100.0))),
            );
        }
        let told = format!("{:?}", lag_verdict(&Selection::of(&all)));
        assert!(
            told.contains("Spate LOSES: at 1 of 1 rates")
                && told.contains("after 3.0 ms with Spate and 1.0 with native:4 at 500/s"),
            "{told}"
        );
        all.runs
            .iter_mut()
            .filter(|run| run.label("contender") == "spate")
            .for_each(|run| run.measured.failure = Some("x".into()));
        let told = format!("{:?}", lag_verdict(&Selection::of(&all)));
        assert!(told.contains("Spate LOSES: at 1 of 1 rates"), "{told}");
        all.runs.retain(|run| run.label("contender") != "spate");
        assert_eq!(lag_verdict(&Selection::of(&all)).map(|_| ()), None, "what was not measured has no verdict");
    }

    #[test]
    fn knee_is_what_was_committed_while_the_lag_did_not_grow() {
        let mut all = result(&[]);
        all.runs = vec![
            at("native:0", 500, 500.0, 5.0, 1.0),
            at("native:0", 1_000, 990.0, 900.0, 700.0),
            at("native:0", 2_000, 1_000.0, 5.0, 0.0),
            at("spate", 500, 500.0, 30.0, 0.0),
            at("spate", 1_000, 990.0, 30.0, -2.0),
            at("spate", 2_000, 1_050.0, 40.0, 3.0),
            at("spate", 4_000, 1_040.0, 5_000.0, 900.0),
        ];
        let runs = Selection::of(&all);
        let native = knees(&runs.with("contender", "native:0"));
        assert_eq!(native, [Knee { offered: 500, committed: 500.0, end: End::FallsBehind }]);
        let spate = knees(&runs.with("contender", "spate"));
        assert_eq!(spate, [Knee { offered: 2_000, committed: 1_050.0, end: End::Source }]);
        let of = |native: &[Knee], spate: &[Knee]| match verdict(&[
            ("native:0", native.to_vec()),
            ("spate", spate.to_vec()),
        ]) {
            Block::Verdict(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(of(&native, &spate).starts_with("Measured once: Spate wins: Spate follows 2000"));
        assert!(of(&spate, &native).starts_with("Measured once: Spate LOSES"));
        assert!(of(&spate, &spate).starts_with("Nobody wins"));
        let behind = |offered| Knee { offered, committed: offered as f64, end: End::FallsBehind };
        assert!(of(&[behind(1_000)], &[behind(500)]).starts_with("Measured once: Spate LOSES"));
        assert!(of(&[behind(1_000)], &[behind(1_000)]).starts_with("Nobody wins"));
        assert!(of(&[behind(0)], &[behind(0)]).starts_with("Nobody wins"));
        assert!(of(&[behind(500), behind(1_000)], &[behind(1_000), behind(2_000)]).starts_with("Nobody wins"));
        assert!(
            of(&[behind(500), behind(500)], &[behind(1_000), behind(2_000)])
                .starts_with("Spate wins: Spate follows 1000 to 2000")
        );
    }

    #[test]
    fn load_that_ends_early_says_nothing_of_the_contender() {
        let mut all = result(&[]);
        all.runs = vec![at("spate", 500, 500.0, 5.0, 1.0), at("spate", 1_000, 0.0, 0.0, 0.0)];
        all.runs[1].measured = Measured { failure: Some("the load ended".to_owned()), ..Measured::default() };
        let ends = |all: &ExperimentResult| knees(&Selection::of(all))[0].end;
        assert_eq!(ends(&all), End::Fails);
        all.runs[1].measured.metric(LOAD_ENDED, 1.0);
        assert_eq!(ends(&all), End::Source);
        all.runs.pop();
        assert_eq!(ends(&all), End::Offer);
    }
}

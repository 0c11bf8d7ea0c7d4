//! The experiments by name: what they are, and what their reports show.

use super::blocks::Block;
use super::driver::Experiment;
use super::result::ExperimentResult;
use super::selection::Selection;
use super::statistics::{outcome, spread};
use super::{durability, folding, lag, long_transactions, masters, prefetch, shards};

/// The name of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExperimentName {
    /// Tungsten's benchmark: 30 schemas, 30 channels, in memory and bound by the disk
    Shards,
    /// What a replica logs, its durability and its appliers, behind a chain of servers with wide commit groups
    Durability,
    /// A program that reads ahead of the replica's own applier
    Prefetch,
    /// Galera under sysbench, beside a single server and semi-synchronous replication with Spate
    Masters,
    /// Long transactions among short ones, as timelines
    LongTransactions,
    /// The lag under a rising load: where each begins to fall behind
    Lag,
    /// Net row changes, batches and time over the skew of keys and the backlog
    Folding,
}

impl ExperimentName {
    /// All of them.
    pub const ALL: [ExperimentName; 7] = [
        ExperimentName::Shards,
        ExperimentName::Durability,
        ExperimentName::Prefetch,
        ExperimentName::Masters,
        ExperimentName::LongTransactions,
        ExperimentName::Lag,
        ExperimentName::Folding,
    ];

    /// As the command line and the results have it.
    pub fn name(self) -> &'static str {
        match self {
            ExperimentName::Shards => "shards",
            ExperimentName::Durability => "durability",
            ExperimentName::Prefetch => "prefetch",
            ExperimentName::Masters => "masters",
            ExperimentName::LongTransactions => "long-transactions",
            ExperimentName::Lag => "lag",
            ExperimentName::Folding => "folding",
        }
    }

    /// The experiment itself.
    pub fn experiment(self) -> Box<dyn Experiment> {
        match self {
            ExperimentName::Shards => Box::new(shards::Shards),
            ExperimentName::Durability => Box::new(durability::DurabilityExperiment),
            ExperimentName::Prefetch => Box::new(prefetch::Prefetch),
            ExperimentName::Masters => Box::new(masters::Masters),
            ExperimentName::LongTransactions => Box::new(long_transactions::LongTransactions),
            ExperimentName::Lag => Box::new(lag::LagExperiment),
            ExperimentName::Folding => Box::new(folding::Folding),
        }
    }

    fn of(name: &str) -> Option<ExperimentName> {
        ExperimentName::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// What an experiment measures, in some sentences.
pub fn about(name: &str) -> &'static str {
    match ExperimentName::of(name) {
        None => "",
        Some(ExperimentName::Shards) => shards::ABOUT,
        Some(ExperimentName::Durability) => durability::ABOUT,
        Some(ExperimentName::Prefetch) => prefetch::ABOUT,
        Some(ExperimentName::Masters) => masters::ABOUT,
        Some(ExperimentName::LongTransactions) => long_transactions::ABOUT,
        Some(ExperimentName::Lag) => lag::ABOUT,
        Some(ExperimentName::Folding) => folding::ABOUT,
    }
}

/// The experiment's own part of a report: who was faster, then its tables and graphs.
pub fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let own = match ExperimentName::of(&result.header.experiment) {
        None => Vec::new(),
        Some(ExperimentName::Shards) => shards::blocks(result),
        Some(ExperimentName::Durability) => durability::blocks(result),
        Some(ExperimentName::Prefetch) => prefetch::blocks(result),
        Some(ExperimentName::Masters) => masters::blocks(result),
        Some(ExperimentName::LongTransactions) => long_transactions::blocks(result),
        Some(ExperimentName::Lag) => lag::blocks(result),
        Some(ExperimentName::Folding) => folding::blocks(result),
    };
    verdicts(result).into_iter().chain(own).collect()
}

/// For each setting in which native replication and Spate catch up with the same: which was faster, told in the same words for a win and a loss.
fn verdicts(result: &ExperimentResult) -> Vec<Block> {
    result
        .settings()
        .into_iter()
        .flat_map(|setting| {
            let runs = Selection::of(result).in_setting(setting);
            let mut promises: Vec<&str> = runs.values_of("contender").into_iter().filter_map(promise).collect();
            promises.sort_unstable();
            promises.dedup();
            let of = |promised: &&str| {
                let name = if promises.len() > 1 { format!("{setting}, {promised}") } else { setting.to_owned() };
                verdict(&name, &runs.only(|run| promise(run.label("contender")).is_none_or(|one| one == *promised)))
            };
            promises.iter().filter_map(of).collect::<Vec<_>>()
        })
        .collect()
}

/// What readers of a replica of Spate's see between two of its commits; `None` for native replication.
fn promise(contender: &str) -> Option<&'static str> {
    let is = |word: &str| contender.contains(&format!("consistency={word}"));
    match contender.starts_with("spate") {
        false => None,
        true if is("transaction") => Some("one transaction for one"),
        true if is("shard") => Some("shards apart"),
        true => Some("batches"),
    }
}

fn verdict(setting: &str, runs: &Selection<'_>) -> Option<Block> {
    // Where the replica differs too, the fastest of each has to be of the same kind of replica.
    let kinds: Vec<Selection<'_>> = if runs.values_of("log").is_empty() {
        vec![runs.clone()]
    } else {
        let kind = |log: &str, durability: &str| runs.with("log", log).with("durability", durability);
        runs.values_of("log")
            .iter()
            .flat_map(|log| {
                runs.values_of("durability").into_iter().map(|durability| kind(log, durability)).collect::<Vec<_>>()
            })
            .collect()
    };
    let kinds: Vec<Selection<'_>> = kinds.into_iter().filter(|kind| !kind.is_empty()).collect();
    let races: Vec<Race> = kinds.iter().filter_map(race_of_the_best).collect();
    let least = races.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let most = races.iter().map(|race| race.ratio).fold(0.0, f64::max);
    let ratio = match races.len() {
        1 => format!("{:.2}", least.ratio),
        _ => format!("{:.2} to {most:.2}", least.ratio),
    };
    let words = outcome(least.ratio, least.spread);
    let Race { native, spate, .. } = least;
    let mut text =
        format!("{setting}: {words}: {spate} is {ratio} times as fast as the best native setting ({native}).");
    if races.len() < kinds.len() {
        let without = kinds.len() - races.len();
        text += &format!(" Of {without} of {} kinds of replicas, one of both did not come to its end.", kinds.len());
    }
    Some(Block::Verdict(text))
}

/// The fastest native contender and the fastest of Spate.
struct Race {
    /// How many times as fast the latter is.
    ratio: f64,
    /// How far runs of both are from their medians.
    spread: f64,
    native: String,
    spate: String,
}

fn race_of_the_best(runs: &Selection<'_>) -> Option<Race> {
    let best = |prefix: &str| {
        let of = runs
            .only(|run| run.label("contender").starts_with(prefix) && !run.label("contender").contains("+prefetch"));
        let timed = of.values_of("contender").into_iter().filter_map(|contender| {
            let own = of.with("contender", contender);
            let off = spread(&own.metric("seconds")).unwrap_or_default();
            Some((own.median("seconds")?, contender.to_owned(), off))
        });
        timed.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (native_seconds, native, native_off) = best("native")?;
    let (spate_seconds, spate, spate_off) = best("spate")?;
    let (ratio, spread) = (native_seconds / spate_seconds, native_off + spate_off);
    (spate_seconds > 0.0).then_some(Race { ratio, spread, native, spate })
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;

    fn verdict_of(native: f64, spate: f64) -> String {
        let result = result(&[
            ("cached", "native:0", 1, 99.0),
            ("cached", "native:16", 1, native),
            ("cached", "spate", 1, spate),
        ]);
        let mut told = told(&result);
        assert_eq!(told.len(), 1, "{told:?}");
        told.remove(0)
    }

    /// All verdicts.
    fn told(result: &ExperimentResult) -> Vec<String> {
        let text = |block| match block {
            Block::Verdict(text) => text,
            other => panic!("{other:?}"),
        };
        verdicts(result).into_iter().map(text).collect()
    }

    #[test]
    fn lost_race_is_told_like_a_won_one() {
        let won = verdict_of(10.0, 2.0);
        assert!(
            won.contains("Spate wins: spate is 5.00 times as fast as the best native setting (native:16)"),
            "{won}"
        );
        let lost = verdict_of(1.0, 2.0);
        assert!(lost.contains("Spate LOSES: spate is 0.50 times as fast"), "{lost}");
    }

    #[test]
    fn each_promise_has_its_verdict() {
        let result = result(&[
            ("long", "native:4", 1, 5.0),
            ("long", "spate", 1, 2.5),
            ("long", "spate:consistency=transaction,appliers=2", 1, 10.0),
        ]);
        let told = told(&result);
        assert_eq!(told.len(), 2);
        assert!(told[0].starts_with("long, batches: Spate wins: spate is 2.00"), "{told:?}");
        assert!(told[1].starts_with("long, one transaction for one: Spate LOSES"), "{told:?}");
    }

    #[test]
    fn what_is_within_the_spread_is_no_win() {
        let result = result(&[
            ("cached", "native:4", 1, 10.0),
            ("cached", "native:4", 2, 12.0),
            ("cached", "spate", 1, 9.9),
            ("cached", "spate", 2, 11.5),
        ]);
        let told = told(&result);
        assert!(told[0].contains("Nobody wins by more than the spread"), "{told:?}");
    }

    #[test]
    fn each_name_is_its_own() {
        let mut names: Vec<&str> = ExperimentName::ALL.iter().map(|name| name.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ExperimentName::ALL.len());
        assert!(ExperimentName::ALL.iter().all(|name| !about(name.name()).is_empty()));
    }
}

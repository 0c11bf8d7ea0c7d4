//! The experiments by name: what they are, and what their reports show.

use super::blocks::Block;
use super::driver::Experiment;
use super::result::{ExperimentResult, GAVE_UP};
use super::selection::Selection;
use super::statistics::{Noise, Outcome, outcome};
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
    let all = Selection::of(result);
    // Where nobody catches up with anything, nobody is late.
    let times = ["seconds", GAVE_UP];
    if !all.runs().iter().any(|run| times.iter().any(|time| run.measured.metrics.contains_key(*time))) {
        return Vec::new();
    }
    let noise = all.noise("seconds");
    result
        .settings()
        .into_iter()
        .flat_map(|setting| {
            let runs = all.in_setting(setting);
            let mut promises: Vec<&str> = runs.values_of("contender").into_iter().filter_map(promise).collect();
            promises.sort_unstable();
            promises.dedup();
            let of = |promised: &&str| {
                let name = if promises.len() > 1 { format!("{setting}, {promised}") } else { setting.to_owned() };
                let own = runs.only(|run| promise(run.label("contender")).is_none_or(|one| one == *promised));
                verdict(&name, &own, noise.as_ref())
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

fn verdict(setting: &str, runs: &Selection<'_>, noise: Option<&Noise>) -> Option<Block> {
    // Where the replica differs too, the fastest of each has to be of the same kind of replica.
    let mut kinds = vec![runs.clone()];
    for label in ["log", "durability"] {
        kinds = kinds.iter().flat_map(|kind| kind.by(label)).collect();
    }
    let kinds: Vec<Selection<'_>> =
        kinds.into_iter().filter(|kind| kind.has_contender("native") && kind.has_contender("spate")).collect();
    let (mut races, mut lost, mut unopposed, mut void) = (Vec::new(), 0, 0, 0);
    for kind in &kinds {
        match (best(kind, "native"), best(kind, "spate")) {
            (Some(native), Some(spate)) => races.push(Race::of(kind, native, spate, noise)),
            (Some(_), None) => lost += 1,
            (None, Some(_)) => unopposed += 1,
            (None, None) => void += 1,
        }
    }
    let least = races.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let outcome = match least {
        _ if lost > 0 => Outcome::Loses,
        // Of several kinds of replicas, the worst for Spate is told.
        Some(least) => races.iter().map(|race| race.outcome).min().unwrap_or(least.outcome),
        None if unopposed > 0 => Outcome::Wins,
        None if void > 0 => Outcome::Nobody,
        None => return None,
    };
    let mut text = format!("{setting}: {outcome}:");
    if let Some(Race { ratio, native, spate, .. }) = least {
        let most = races.iter().map(|race| race.ratio).fold(0.0, f64::max);
        let ratio = if races.len() == 1 { format!("{ratio:.2}") } else { format!("{ratio:.2} to {most:.2}") };
        text += &format!(" {spate} is {ratio} times as fast as the best native setting ({native}).");
    }
    for (count, what) in [
        (lost, "Spate did not come to its end, native replication did"),
        (unopposed, "Spate came to its end, no native setting did"),
        (void, "nobody came to its end"),
    ] {
        match count {
            0 => {}
            _ if kinds.len() == 1 => text += &format!(" {what}."),
            _ => text += &format!(" With {count} of {} kinds of replicas, {what}.", kinds.len()),
        }
    }
    Some(Block::Verdict(text))
}

/// The fastest native contender and the fastest of Spate.
struct Race {
    /// How many times as fast the latter is.
    ratio: f64,
    /// Who wins.
    outcome: Outcome,
    native: String,
    spate: String,
}

impl Race {
    fn of(runs: &Selection<'_>, native: (f64, &str), spate: (f64, &str), noise: Option<&Noise>) -> Race {
        let of = |contender: &str| runs.with("contender", contender);
        let possible = of(native.1).ratio_to(&of(spate.1), "seconds", noise);
        let ratio = native.0 / spate.0;
        Race {
            ratio,
            outcome: outcome(ratio, possible.as_ref()),
            native: native.1.to_owned(),
            spate: spate.1.to_owned(),
        }
    }
}

/// The contender that took the fewest seconds, of those whose names begin so and which nothing helps.
fn best<'a>(runs: &Selection<'a>, prefix: &str) -> Option<(f64, &'a str)> {
    let is_wanted = |name: &str| name.starts_with(prefix) && !name.contains("+prefetch");
    let contenders = runs.values_of("contender").into_iter().filter(|name| is_wanted(name));
    let timed = contenders.filter_map(|name| Some((runs.with("contender", name).sound_median("seconds")?, name)));
    timed.filter(|(seconds, _)| *seconds > 0.0).min_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;

    /// Each measured twice, and about as fast both times.
    fn verdict_of(native: f64, spate: f64) -> String {
        let twice = |contender: &'static str, seconds: f64| {
            [("cached", contender, 1, seconds), ("cached", contender, 2, seconds * 1.01)]
        };
        let runs = [twice("native:0", 99.0), twice("native:16", native), twice("spate", spate)].concat();
        let mut told = told(&result(&runs));
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
        assert!(told[0].starts_with("long, batches: Measured once: Spate wins: spate is 2.00"), "{told:?}");
        assert!(told[1].starts_with("long, one transaction for one: Measured once: Spate LOSES"), "{told:?}");
    }

    #[test]
    fn what_is_within_the_noise_is_no_win() {
        // Twice as fast in both repetitions, but others differ as much from themselves.
        let result = result(&[
            ("cached", "native:4", 1, 10.0),
            ("cached", "native:4", 2, 10.2),
            ("cached", "native:8", 1, 20.0),
            ("cached", "native:8", 2, 41.0),
            ("cached", "spate", 1, 9.9),
            ("cached", "spate", 2, 9.8),
        ]);
        let told = told(&result);
        assert!(told[0].contains("Nobody wins by more than the noise"), "{told:?}");
    }

    #[test]
    fn who_does_not_come_to_an_end_has_not_won() {
        let mut result = result(&[("cached", "native:4", 1, 1.0), ("cached", "spate", 1, 2.0)]);
        result.runs[0].measured.failure = Some("gave up".to_owned());
        assert_eq!(told(&result), ["cached: Spate wins: Spate came to its end, no native setting did."]);
        result.runs[1].measured.failure = Some("gave up".to_owned());
        assert_eq!(told(&result), ["cached: Nobody wins: nobody came to its end."]);
        result.runs[0].measured.failure = None;
        assert_eq!(told(&result), ["cached: Spate LOSES: Spate did not come to its end, native replication did."]);
    }

    #[test]
    fn contenders_that_do_not_catch_up_have_no_verdict_of_it() {
        let mut result = result(&[("steady load", "native:4", 1, 1.0), ("steady load", "spate", 1, 2.0)]);
        result.runs.iter_mut().for_each(|run| run.measured.metrics.clear());
        assert!(told(&result).is_empty());
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

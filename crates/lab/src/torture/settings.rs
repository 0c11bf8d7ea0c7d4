//! What a seed decides before the first statement: the source's options, who fails, how Spate is run.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::feature::{Feature, FeatureSet};
use super::random::Random;
use crate::server_options::{Durability, ServerOptions};
use crate::vendor::Vendor;

/// How the source logs changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Rows.
    Row,
    /// Statements where they are safe.
    Mixed,
    /// Statements.
    Statement,
    /// Drawn from the seed.
    Any,
}

/// Who is killed while the torture goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Failures {
    /// Nobody.
    None,
    /// Spate: killed, or asked to stop, and started again.
    Spate,
    /// The server of Spate's replica: killed and started again.
    Replica,
    /// The source: killed and started again.
    Source,
    /// All of them.
    All,
}

/// One failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// `kill -9` of Spate; it stays away until [`Failure::SpateStarts`].
    SpateKilled,
    /// Spate is asked to stop, and must end with success.
    SpateStopped,
    /// Spate is started again.
    SpateStarts,
    /// `kill -9` of the replica's server, which is started again at once.
    ReplicaKilled,
    /// `kill -9` of the source, which is started again at once.
    SourceKilled,
}

/// When Spate begins to follow: with a backlog before it, it folds more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beginning {
    /// Before the first statement.
    AtOnce,
    /// When half of the time is over.
    HalfWay,
    /// After the last statement.
    AtTheEnd,
}

/// Everything that is drawn from a seed before the first statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The seed.
    pub seed: u64,
    /// `row`, `mixed` or `statement`.
    pub format: Format,
    /// What is used.
    pub features: FeatureSet,
    /// Number of client sessions.
    pub sessions: usize,
    /// Options of the source, beyond those of every server.
    pub source_options: Vec<(String, String)>,
    /// Arguments of `spate replicate`.
    pub spate_arguments: Vec<String>,
    /// When Spate begins.
    pub beginning: Beginning,
    /// Failures to choose from; none if it is empty.
    pub failures: Vec<Failure>,
}

impl Settings {
    /// Draws a seed's settings from what is allowed. With `draw_features` not all that is allowed is used.
    pub fn draw(seed: u64, format: Format, allowed: &FeatureSet, draw_features: bool, failures: Failures) -> Settings {
        let mut random = Random::new(seed);
        let drawn_format = [Format::Row, Format::Row, Format::Mixed, Format::Statement][random.below(4)];
        let format = if format == Format::Any { drawn_format } else { format };
        let drawn_features = allowed.draw(&mut random.fork());
        let mut features = if draw_features { drawn_features } else { allowed.clone() };
        let failures = draw_failures(&mut random.fork(), failures);
        if failures.contains(&Failure::ReplicaKilled) {
            // What the server itself loses when it is killed is not Spate's to keep.
            features.remove(Feature::Engines);
        }
        Settings {
            seed,
            format,
            sessions: 3 + random.below(4),
            source_options: source_options(&mut random.fork(), format, &features),
            spate_arguments: spate_arguments(&mut random.fork()),
            beginning: [Beginning::AtOnce, Beginning::AtOnce, Beginning::HalfWay, Beginning::AtTheEnd][random.below(4)],
            features,
            failures,
        }
    }

    /// The source's options.
    pub(super) fn source(&self) -> ServerOptions {
        let durability =
            if self.failures.contains(&Failure::SourceKilled) { Durability::Durable } else { Durability::Relaxed };
        let mut options = common(1).with_durability(durability).with("binlog-format", self.format);
        for (name, value) in &self.source_options {
            options = options.with(name, value);
        }
        // A statement that would have to wait for another session fails at once: there is one driver for all sessions.
        options.with("innodb-lock-wait-timeout", 0).with("lock-wait-timeout", 0)
    }

    /// The options of the replica with this server id.
    pub(super) fn replica(&self, server_id: u32) -> ServerOptions {
        let durability =
            if self.failures.contains(&Failure::ReplicaKilled) { Durability::Durable } else { Durability::Relaxed };
        common(server_id).with_durability(durability).with("slave-net-timeout", 10)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Row => "row",
            Format::Mixed => "mixed",
            Format::Statement => "statement",
            Format::Any => "any",
        })
    }
}

/// What all three servers have, small so that they start fast. Options that decide what a statement does and are in no
/// binlog must be equal on all of them, as an administrator would have it.
fn common(server_id: u32) -> ServerOptions {
    ServerOptions::base(Vendor::MariaDb, server_id)
        .with("innodb-buffer-pool-size", "32M")
        .with("innodb-log-file-size", "8M")
        .with("innodb-undo-log-truncate", 0)
        .with("key-buffer-size", "1M")
        .with("aria-pagecache-buffer-size", "8M")
        .with("system-versioning-alter-history", "KEEP")
        .with("log-bin-trust-function-creators", 1)
        .with("log-slave-updates", 0)
        .with("max-connections", 40)
}

fn source_options(random: &mut Random, format: Format, features: &FeatureSet) -> Vec<(String, String)> {
    let mut options = Vec::new();
    let mut set = |name: &str, value: &str| options.push((name.to_owned(), value.to_owned()));
    let image = random.word(&["FULL", "FULL", "MINIMAL", "NOBLOB"]);
    set("binlog-row-image", image);
    set("binlog-checksum", random.word(&["CRC32", "CRC32", "NONE"]));
    set("max-binlog-size", random.word(&["16384", "131072", "1048576", "1073741824"]));
    set("binlog-annotate-row-events", random.word(&["0", "1"]));
    if random.chance(35) {
        set("log-bin-compress", "1");
        set("log-bin-compress-min-len", "10");
    }
    set("character-set-server", random.word(&["utf8mb4", "utf8mb4", "latin1"]));
    if format != Format::Statement {
        set("innodb-autoinc-lock-mode", random.word(&["1", "2"]));
        // Statements lock no more than the rows that they change, so that more of them succeed.
        set("transaction-isolation", random.word(&["READ-COMMITTED", "READ-COMMITTED", "REPEATABLE-READ"]));
    }
    if features.has(Feature::TwoPhaseAlter) && random.chance(70) {
        set("binlog-alter-two-phase", "1");
    }
    options
}

fn spate_arguments(random: &mut Random) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut set = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
    if random.chance(50) {
        set("--batch-transactions", random.word(&["1", "3", "20", "300"]));
    }
    if random.chance(30) {
        set("--batch-seconds", random.word(&["0.05", "1"]));
    }
    if random.chance(50) {
        set("--memory", "64MiB");
    }
    set("--archive-sync", random.word(&["always", "interval", "os"]));
    if random.chance(40) {
        arguments.push("--no-replica-binlog".to_owned());
    }
    arguments
}

fn draw_failures(random: &mut Random, failures: Failures) -> Vec<Failure> {
    let of_spate = [Failure::SpateKilled, Failure::SpateStopped];
    match failures {
        Failures::None => vec![],
        Failures::Spate => of_spate.to_vec(),
        Failures::Replica => vec![Failure::ReplicaKilled],
        Failures::Source => vec![Failure::SourceKilled],
        Failures::All => {
            let all = [Failure::SpateKilled, Failure::SpateStopped, Failure::ReplicaKilled, Failure::SourceKilled];
            // One seed in four has none, so that what has nothing to do with failures is seen without them.
            if random.chance(25) { vec![] } else { random.some(&all, 60) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, failures: Failures) -> Settings {
        Settings::draw(seed, Format::Any, &FeatureSet::chosen(&[], &[]), true, failures)
    }

    #[test]
    fn a_seed_always_draws_the_same_and_seeds_differ() {
        assert_eq!(draw(5, Failures::All), draw(5, Failures::All));
        let formats: Vec<Format> = (0..30).map(|seed| draw(seed, Failures::All).format).collect();
        for format in [Format::Row, Format::Mixed, Format::Statement] {
            assert!(formats.contains(&format));
        }
        assert!(!formats.contains(&Format::Any));
    }

    #[test]
    fn engines_that_lose_data_are_not_killed() {
        for seed in 0..100 {
            let settings = draw(seed, Failures::Replica);
            assert_eq!(settings.failures, [Failure::ReplicaKilled]);
            assert!(!settings.features.has(Feature::Engines));
        }
    }
}

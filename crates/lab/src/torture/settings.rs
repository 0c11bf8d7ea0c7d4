//! The settings that a seed determines before the first statement: the servers' options, the failures, Spate's
//! arguments.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::feature::{Feature, FeatureSet};
use super::pair::Pair;
use super::vendor_options::{self, common};
use crate::binlog_format::Format;
use crate::random::Random;
use crate::server_options::{Durability, ServerOptions};
use crate::vendor::Vendor;

/// The programs that the torture kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Failures {
    /// None.
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

/// When Spate begins to follow. With a backlog it folds more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beginning {
    /// Before the first statement.
    AtOnce,
    /// After half of the time.
    HalfWay,
    /// After the last statement.
    AtTheEnd,
}

/// A chain needs another server and another Spate, so most seeds leave it out. Together with the drawing of features,
/// one seed in four has it.
const CHAINS_LEFT_OUT_PERCENT: usize = 60;

/// All settings that are drawn from a seed before the first statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The seed.
    pub seed: u64,
    /// The vendors of the servers.
    #[serde(default)]
    pub pair: Pair,
    /// `row`, `mixed` or `statement`.
    pub format: Format,
    /// The features in use.
    pub features: FeatureSet,
    /// Number of client sessions.
    pub sessions: usize,
    /// Options of the source, beyond those of every server.
    pub source_options: Vec<(String, String)>,
    /// Options of both replicas, beyond those of every server.
    #[serde(default)]
    pub replica_options: Vec<(String, String)>,
    /// Arguments of `spate replicate`.
    pub spate_arguments: Vec<String>,
    /// When Spate begins.
    pub beginning: Beginning,
    /// Failures to choose from; none if it is empty.
    pub failures: Vec<Failure>,
}

impl Settings {
    /// Draws a seed's settings from the features that are allowed and that the servers support. With `draw_features`
    /// the seed uses only some of them.
    pub fn draw(
        seed: u64,
        pair: Pair,
        format: Option<Format>,
        allowed: &FeatureSet,
        draw_features: bool,
        failures: Failures,
    ) -> Settings {
        let allowed = &pair.features(allowed);
        let mut random = Random::new(seed);
        let drawn_format = [Format::Row, Format::Row, Format::Mixed, Format::Statement][random.below(4)];
        let format = pair.format(format.unwrap_or(drawn_format));
        let drawn_features = allowed.draw(&mut random.fork());
        let mut features = if draw_features { drawn_features } else { allowed.clone() };
        if draw_features && random.fork().chance(CHAINS_LEFT_OUT_PERCENT) {
            features.remove(Feature::Chain);
        }
        let failures = draw_failures(&mut random.fork(), failures);
        if failures.contains(&Failure::ReplicaKilled) {
            // Spate is not responsible for rows that the server itself loses when it is killed.
            features.remove(Feature::Engines);
            // A server that is killed during CREATE TABLE may leave partitions that no statement can remove.
            features.remove(Feature::Partitions);
        }
        if failures.contains(&Failure::SpateKilled) && features.has(Feature::SystemVersioning) {
            // After a kill Spate would ask a person about tables whose engine cannot roll back.
            features.remove(Feature::Engines);
        }
        if format == Format::Statement && pair.source == Vendor::MySql {
            features.remove(Feature::Xa);
        }
        if format != Format::Row && failures.contains(&Failure::SpateKilled) {
            // After a kill Spate would ask a person how far a statement got that cannot be rolled back.
            features.remove(Feature::Engines);
        }
        Settings {
            seed,
            pair,
            format,
            sessions: 3 + random.below(4),
            source_options: vendor_options::draw(&mut random.fork(), pair, format, &features),
            replica_options: match features.has(Feature::ReplicaSettings) {
                true => vendor_options::unusual(&mut random.fork(), pair.replica),
                false => vec![],
            },
            spate_arguments: spate_arguments(&mut random.fork(), pair, &features),
            beginning: [Beginning::AtOnce, Beginning::AtOnce, Beginning::HalfWay, Beginning::AtTheEnd][random.below(4)],
            features,
            failures,
        }
    }

    /// The source's options.
    pub(super) fn source(&self) -> ServerOptions {
        let durability =
            if self.failures.contains(&Failure::SourceKilled) { Durability::Durable } else { Durability::Relaxed };
        let vendor = self.pair.source;
        let mut options =
            common(vendor, self.pair.is_mixed(), 1).with_durability(durability).with("binlog-format", self.format);
        for (name, value) in &self.source_options {
            options = options.with(name, value);
        }
        vendor_options::without_waits(options, vendor)
    }

    /// The options of the replica that follows by the server's own replication. It writes a binlog if Spate's replica
    /// does: a server that logs rows must compute whole rows, including generated columns, and that may fail.
    pub(super) fn native(&self, server_id: u32) -> ServerOptions {
        let options = self.replica(server_id);
        let logs = !self.spate_arguments.iter().any(|argument| argument == "--no-replica-binlog");
        if logs { options.with(self.pair.replica.replica_log_option(), 1) } else { options }
    }

    /// The options of the replica with this server id.
    pub(super) fn replica(&self, server_id: u32) -> ServerOptions {
        let durability =
            if self.failures.contains(&Failure::ReplicaKilled) { Durability::Durable } else { Durability::Relaxed };
        let vendor = self.pair.replica;
        let mut options = common(vendor, self.pair.is_mixed(), server_id).with_durability(durability);
        let of_source = self.source_options.iter().find(|(name, _)| name == vendor_options::FOREIGN_KEYS_IN_ENGINE);
        if let (Vendor::MySql, Some((name, value))) = (vendor, of_source) {
            options = options.with(name, value);
        }
        for (name, value) in &self.replica_options {
            options = options.with(name, value);
        }
        vendor_options::of_replica(options, vendor)
    }
}

fn spate_arguments(random: &mut Random, pair: Pair, features: &FeatureSet) -> Vec<String> {
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
    // The next server in a chain reads the binlog. MySQL loses prepared XA transactions without it, so Spate refuses
    // them.
    let must_log = features.has(Feature::Chain) || (pair.replica == Vendor::MySql && features.has(Feature::Xa));
    if random.chance(40) && !must_log {
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
            // One seed in four has no failures, so that its findings have other causes.
            if random.chance(25) { vec![] } else { random.some(&all, 60) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, failures: Failures) -> Settings {
        Settings::draw(seed, Pair::default(), None, &FeatureSet::chosen(&[], &[]), true, failures)
    }

    #[test]
    fn settings_are_equal_for_one_seed_and_differ_between_seeds() {
        assert_eq!(draw(5, Failures::All), draw(5, Failures::All));
        let formats: Vec<Format> = (0..30).map(|seed| draw(seed, Failures::All).format).collect();
        for format in [Format::Row, Format::Mixed, Format::Statement] {
            assert!(formats.contains(&format));
        }
    }

    #[test]
    fn replica_kills_exclude_engines_that_lose_data() {
        for seed in 0..100 {
            let settings = draw(seed, Failures::Replica);
            assert_eq!(settings.failures, [Failure::ReplicaKilled]);
            assert!(!settings.features.has(Feature::Engines));
        }
    }
}

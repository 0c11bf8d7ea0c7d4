//! The features of a torture: named groups of statements and definitions, each of which can be excluded.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::{Error, Result};

macro_rules! features {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A group of statements and definitions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Feature {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Feature {
            /// All of them.
            pub const ALL: &[Feature] = &[$(Feature::$variant,)+];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Feature::$variant => $name,)+ }
            }
        }
    };
}

features! {
    /// Every column type, character set and collation; without it, integers and short strings.
    Types = "types",
    /// Tables with several unique keys, prefix keys, keys of several columns, and no key at all.
    Keys = "keys",
    /// Unique keys over whole texts and blobs, which the server keeps as hashes.
    LongKeys = "long-keys",
    /// Virtual and stored generated columns.
    Generated = "generated",
    /// Compressed columns.
    Compressed = "compressed",
    /// REPLACE, ON DUPLICATE KEY, INSERT … SELECT, changes of several tables, savepoints, large transactions.
    Dml = "dml",
    /// Foreign keys with every action, self references, cycles.
    ForeignKeys = "foreign-keys",
    /// Triggers.
    Triggers = "triggers",
    /// Procedures and functions.
    Routines = "routines",
    /// Partitioned tables.
    Partitions = "partitions",
    /// System-versioned tables.
    SystemVersioning = "system-versioning",
    /// Sequences.
    Sequences = "sequences",
    /// Views, and changes through them.
    Views = "views",
    /// ALTER, RENAME, DROP, TRUNCATE, CREATE OR REPLACE and indexes, while other sessions change rows.
    Ddl = "ddl",
    /// CREATE TABLE … SELECT.
    CreateSelect = "create-select",
    /// ALTER that is logged in two phases.
    TwoPhaseAlter = "two-phase-alter",
    /// Accounts, roles and privileges.
    Accounts = "accounts",
    /// Temporary tables.
    TemporaryTables = "temporary-tables",
    /// LOAD DATA, also LOCAL.
    LoadData = "load-data",
    /// XA transactions.
    Xa = "xa",
    /// MyISAM, Aria and MEMORY, also in one transaction with InnoDB.
    Engines = "engines",
    /// Session settings that change the effect of a statement.
    StatementContext = "statement-context",
    /// Several GTID domains.
    Domains = "domains",
    /// Sessions of accounts with fewer privileges than root.
    Clients = "clients",
    /// Events of the event scheduler.
    Events = "events",
    /// Definitions with comments and line ends between their words.
    Spellings = "spellings",
    /// Replicas whose global settings differ from the source's.
    ReplicaSettings = "replica-settings",
    /// Indexes, columns and triggers that a person adds on both replicas during the torture.
    ByHand = "by-hand",
    /// A second replica that follows Spate's replica, by another Spate.
    Chain = "chain",
}

/// Some features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureSet(BTreeSet<Feature>);

impl FeatureSet {
    /// All features but `without`, or just `only` if there are any.
    pub fn chosen(only: &[Feature], without: &[Feature]) -> FeatureSet {
        let from = if only.is_empty() { Feature::ALL } else { only };
        FeatureSet(from.iter().copied().filter(|feature| !without.contains(feature)).collect())
    }

    /// About two thirds of these: in a seed with all features each would occur too seldom.
    pub(super) fn draw(&self, random: &mut Random) -> FeatureSet {
        const KEPT_PERCENT: usize = 65;
        let drawn = Feature::ALL.iter().filter(|_| random.chance(KEPT_PERCENT)).copied();
        let drawn: BTreeSet<Feature> = drawn.collect();
        FeatureSet(self.0.intersection(&drawn).copied().collect())
    }

    /// True if the feature is among them.
    pub fn has(&self, feature: Feature) -> bool {
        self.0.contains(&feature)
    }

    pub(super) fn remove(&mut self, feature: Feature) {
        self.0.remove(&feature);
    }
}

impl fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|feature| feature.name()).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Feature {
    type Err = Error;

    fn from_str(text: &str) -> Result<Feature> {
        Feature::ALL.iter().find(|feature| feature.name() == text).copied().ok_or_else(|| {
            let names: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
            Error::BadArgument {
                what: "feature",
                text: text.to_owned(),
                why: format!("known are {}", names.join(", ")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_set_obeys_only_and_without() {
        let set = FeatureSet::chosen(&[Feature::Dml, Feature::Xa], &[Feature::Xa]);
        assert_eq!(set.to_string(), "dml");
        assert!(!FeatureSet::chosen(&[], &[Feature::Xa]).has(Feature::Xa));
        assert!(FeatureSet::chosen(&[], &[]).has(Feature::Xa));
    }

    #[test]
    fn feature_names_equal_the_json_names() {
        for feature in Feature::ALL {
            assert_eq!(feature.name().parse::<Feature>().unwrap(), *feature);
            assert_eq!(serde_json::to_value(feature).unwrap(), feature.name());
        }
        assert!("teleport".parse::<Feature>().unwrap_err().to_string().contains("foreign-keys"));
    }
}

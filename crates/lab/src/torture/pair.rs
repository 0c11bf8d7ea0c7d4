//! The vendors of a torture's servers, and the features that they share.

use serde::{Deserialize, Serialize};

use super::feature::{Feature, FeatureSet};
use crate::binlog_format::Format;
use crate::vendor::Vendor;

/// The vendors of source and replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Of the source.
    pub source: Vendor,
    /// Of the replica, or of both.
    pub replica: Vendor,
}

/// Features that MySQL lacks, or for which it has other words than the generated ones.
const NOT_ON_MYSQL: [Feature; 7] = [
    Feature::LongKeys,
    Feature::Compressed,
    Feature::SystemVersioning,
    Feature::Sequences,
    Feature::TwoPhaseAlter,
    Feature::Clients,
    Feature::Events,
];

/// Features that mean the same to both vendors, as rows or as statements.
const SHARED: [Feature; 8] = [
    Feature::Types,
    Feature::Keys,
    Feature::Generated,
    Feature::Dml,
    Feature::ForeignKeys,
    Feature::Partitions,
    Feature::Ddl,
    Feature::LoadData,
];

impl Default for Pair {
    fn default() -> Pair {
        Pair { source: Vendor::MariaDb, replica: Vendor::MariaDb }
    }
}

impl Pair {
    /// True if the servers are of different vendors. The source itself is the oracle then.
    pub(super) fn is_mixed(self) -> bool {
        self.source != self.replica
    }

    /// True if a replica can follow by the servers' own replication.
    pub(super) fn has_native(self) -> bool {
        !self.is_mixed()
    }

    /// True if statements must be such that MySQL understands them.
    pub(super) fn speaks_mysql(self) -> bool {
        self.source == Vendor::MySql || self.is_mixed()
    }

    /// The features of `allowed` that these servers support.
    pub(super) fn features(self, allowed: &FeatureSet) -> FeatureSet {
        let mut features = allowed.clone();
        for &feature in Feature::ALL {
            let is_foreign = self.speaks_mysql() && NOT_ON_MYSQL.contains(&feature);
            if is_foreign || (self.is_mixed() && !SHARED.contains(&feature)) {
                features.remove(feature);
            }
        }
        features
    }

    /// The format of a seed. Between vendors it is always row format, because statements may mean something else.
    pub(super) fn format(self, drawn: Format) -> Format {
        if self.is_mixed() { Format::Row } else { drawn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: Pair = Pair { source: Vendor::MariaDb, replica: Vendor::MySql };

    #[test]
    fn mixed_pair_uses_only_shared_features() {
        let all = FeatureSet::chosen(&[], &[]);
        assert_eq!(Pair::default().features(&all), all);
        let mysql = Pair { source: Vendor::MySql, replica: Vendor::MySql }.features(&all);
        assert!(!mysql.has(Feature::Sequences) && mysql.has(Feature::Xa));
        let mixed = MIXED.features(&all);
        assert!(mixed.has(Feature::Types) && !mixed.has(Feature::Xa) && !mixed.has(Feature::Sequences));
        assert_eq!(MIXED.format(Format::Statement), Format::Row);
    }
}

//! Transactions that are left out: those that somebody named, and those that come from certain servers.

use std::collections::BTreeSet;

use spate_binlog::{Gtid, GtidPosition};

use crate::error::TransactionPlace;

/// Transactions that are not applied. The position moves past them all the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Transactions that a person decided to leave out: `--skip`. Each is recorded on the replica.
    pub gtids: BTreeSet<Gtid>,
    /// Servers in a ring whose transactions the replica has already: `--ignore-server-ids`.
    pub server_ids: BTreeSet<u32>,
    /// Transactions that an earlier session has applied ahead of others.
    pub applied: BTreeSet<Gtid>,
}

/// Why a transaction is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// It was named.
    Named,
    /// It comes from an ignored server.
    Server,
    /// It is applied already.
    Applied,
}

/// A named transaction that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its GTID.
    pub gtid: Gtid,
    /// Where it stands.
    pub place: TransactionPlace,
}

impl Exclusions {
    /// Why a transaction is left out, if it is. `server_id` is the one in its first event's header.
    pub fn of(&self, gtid: Option<Gtid>, server_id: u32) -> Option<Exclusion> {
        let is_from = |server_id| self.server_ids.contains(&server_id);
        if is_from(server_id) || gtid.and_then(|gtid| gtid.server_id()).is_some_and(is_from) {
            return Some(Exclusion::Server);
        }
        let gtid = gtid?;
        if self.applied.contains(&gtid) {
            return Some(Exclusion::Applied);
        }
        self.gtids.contains(&gtid).then_some(Exclusion::Named)
    }

    /// True if there is a ring to be broken: what is applied must then be logged under the id of the server it came from.
    pub fn break_ring(&self) -> bool {
        !self.server_ids.is_empty()
    }

    /// The named transactions that a replica at `position` has behind it already.
    pub fn behind(&self, position: &GtidPosition) -> Vec<Gtid> {
        self.gtids.iter().copied().filter(|&gtid| position.covers(gtid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusions_match_servers_and_named_transactions() {
        let named: Gtid = "0-1-5".parse().unwrap();
        let exclusions = Exclusions { gtids: [named].into(), server_ids: [7].into(), applied: BTreeSet::new() };
        assert_eq!(exclusions.of(Some(named), 1), Some(Exclusion::Named));
        assert_eq!(exclusions.of("0-1-6".parse().ok(), 1), None);
        assert_eq!(exclusions.of("0-7-6".parse().ok(), 7), Some(Exclusion::Server));
        assert_eq!(exclusions.of(None, 7), Some(Exclusion::Server));
        assert_eq!(exclusions.behind(&"0-1-4".parse().unwrap()), []);
        assert_eq!(exclusions.behind(&"0-1-5,1-1-9".parse().unwrap()), [named]);
    }
}

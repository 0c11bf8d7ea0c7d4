//! The transactions of an archive that a GTID position covers.
//!
//! MariaDB's position names the last transaction of each domain. Sequence numbers mostly rise within a domain, but need
//! not: a source without `gtid_strict_mode` accepts any number from another server or from a session. So a position
//! covers the transactions that stand in the archive up to the named one. Only if the named one is not in the archive
//! do the sequence numbers decide.

use std::collections::BTreeMap;

use spate_binlog::{Gtid, GtidPosition};

use crate::follower::Follower;

/// The transactions that a position covers.
#[derive(Debug, Clone)]
pub(crate) struct Covered {
    position: GtidPosition,
    /// By domain, the seqno up to which transactions are covered. Has only the domains whose last transaction is in the
    /// archive, or stands right before it.
    ends: BTreeMap<u32, u64>,
}

impl Covered {
    pub(crate) fn new(position: GtidPosition) -> Covered {
        Covered { position, ends: BTreeMap::new() }
    }

    /// True if the place of each domain's last transaction is known.
    pub(crate) fn is_located(&self) -> bool {
        self.position.domains().all(|last| self.ends.contains_key(&last.domain_id))
    }

    /// Records the place of a transaction.
    pub(crate) fn locate(&mut self, gtid: Gtid, seqno: u64) {
        if let Gtid::MariaDb(gtid) = gtid
            && self.position.domains().any(|last| last == gtid)
        {
            self.ends.insert(gtid.domain_id, seqno);
        }
    }

    /// Records the domains whose last transaction stands right before a file.
    pub(crate) fn locate_start(&mut self, start: &Follower) {
        if !start.position_known {
            return;
        }
        for last in self.position.domains() {
            if start.gtid_position.domains().any(|before| before == last) {
                self.ends.entry(last.domain_id).or_insert(start.seqno);
            }
        }
    }

    /// True if the position covers the transaction `gtid`, which stands in the archive as number `seqno`.
    pub(crate) fn covers(&self, gtid: Gtid, seqno: u64) -> bool {
        match gtid {
            Gtid::MariaDb(of_domain) => match self.ends.get(&of_domain.domain_id) {
                Some(&end) => seqno <= end,
                None => self.position.covers(gtid),
            },
            Gtid::MySql(_) => self.position.covers(gtid),
        }
    }

    /// As [`Covered::covers`], for one transaction after the other: once one of a domain is not covered, no later one
    /// is.
    pub(crate) fn covers_next(&mut self, gtid: Gtid, seqno: u64) -> bool {
        self.locate(gtid, seqno);
        let covers = self.covers(gtid, seqno);
        if let Gtid::MariaDb(of_domain) = gtid
            && !covers
        {
            self.ends.entry(of_domain.domain_id).or_insert(seqno.saturating_sub(1));
        }
        covers
    }

    /// True if all transactions before a file are covered.
    pub(crate) fn covers_all_before(&self, start: &Follower) -> bool {
        let before = &start.gtid_position;
        if before.domains().next().is_none() {
            return self.position.covers_all(before);
        }
        before.domains().all(|last| match self.ends.get(&last.domain_id) {
            Some(&end) => start.seqno <= end || self.position.domains().any(|of_position| of_position == last),
            None => self.position.covers(Gtid::MariaDb(last)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(position: &str) -> Covered {
        Covered::new(position.parse().unwrap())
    }

    fn gtid(text: &str) -> Gtid {
        text.parse().unwrap()
    }

    #[test]
    fn later_transaction_of_any_number_is_not_covered() {
        let mut last = covered("0-9-572");
        for (seqno, name) in [(10, "0-1-571"), (11, "0-1-577"), (12, "0-9-572"), (13, "0-1-540")] {
            last.locate(gtid(name), seqno);
        }
        assert!(last.is_located());
        assert!(last.covers(gtid("0-1-577"), 11) && last.covers(gtid("0-9-572"), 12));
        assert!(!last.covers(gtid("0-1-540"), 13));
    }

    #[test]
    fn numbers_decide_where_the_last_transaction_is_missing() {
        let mut last = covered("0-1-5,1-1-7");
        assert!(last.covers_next(gtid("0-1-4"), 1) && !last.is_located());
        assert!(!last.covers_next(gtid("0-1-6"), 2));
        // After the first transaction that is not covered, the numbers promise no order.
        assert!(!last.covers_next(gtid("0-2-5"), 3));
        assert!(last.covers_next(gtid("1-1-7"), 4) && !last.covers_next(gtid("1-1-3"), 5));
        assert!(!last.covers_next(gtid("2-1-1"), 6));
    }

    #[test]
    fn positions_of_mysql_compare_as_sets() {
        const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let mut last = covered(&format!("{UUID}:1-5:8"));
        assert!(last.is_located());
        assert!(last.covers_next(gtid(&format!("{UUID}:8")), 1));
        assert!(!last.covers_next(gtid(&format!("{UUID}:7")), 2));
        assert!(last.covers_next(gtid(&format!("{UUID}:5")), 3));
    }
}

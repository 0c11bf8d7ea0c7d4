//! What a server has applied, and what of it another one lacks. Pure.
//!
//! MySQL's history is a set of GTIDs. MariaDB tells the last number of each *origin* (a domain and a server id), which is as exact: each origin's
//! numbers rise. Where MariaDB's binlog does not hold all that was applied (`is_complete` is false), only the last GTID of each domain is known.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use spate_binlog::{Gtid, GtidPosition, MariaDbGtid};

/// The transactions that a server has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// MySQL: the set of all transactions. MariaDB: the last of each domain.
    pub position: GtidPosition,
    /// MariaDB: the last number of each domain and server id.
    pub origins: BTreeMap<(u32, u32), u64>,
    /// MariaDB: the last number of each domain before the oldest binlog file.
    pub oldest: BTreeMap<u32, u64>,
    /// MariaDB: true if `origins` names all servers whose transactions it has logged, since its binlog was begun.
    pub is_complete: bool,
    /// Transactions that this history does not have, though it may have others of the same numbers, by the name of the note that says so.
    pub excluded: BTreeMap<String, Vec<Excluded>>,
}

/// Transactions that were undone on a server, so that it could follow. It may give their numbers to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    /// As in [`Range::origin`].
    pub origin: String,
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
}

/// Consecutive transactions of one origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Range {
    /// MySQL: the UUID, with a tag if there is one. MariaDB: domain and server id.
    pub origin: String,
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// MariaDB: the last number of this origin that the other has, if it knows the origin. Where several servers wrote in turn, `first` is beyond it.
    #[serde(skip)]
    pub known: Option<u64>,
}

impl Range {
    /// True if the transaction is one of these.
    pub fn holds(&self, origin: &str, number: u64) -> bool {
        self.origin == origin && number > self.known.unwrap_or(self.first - 1) && number <= self.last
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator =
            if self.origin.contains(|c: char| c.is_ascii_hexdigit()) && self.origin.len() > 32 { ':' } else { '-' };
        match self.first == self.last {
            true => write!(f, "{}{separator}{}", self.origin, self.first),
            false => write!(f, "{}{separator}{}…{}", self.origin, self.first, self.last),
        }
    }
}

/// Transactions that one server has and another lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Surplus {
    /// How many.
    pub transactions: u64,
    /// False if there may be more: an origin that the other has never seen, of which only the last number is known.
    pub is_exact: bool,
    /// Which.
    pub ranges: Vec<Range>,
}

impl Surplus {
    /// True if nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl fmt::Display for Surplus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        let least = if self.is_exact { "" } else { "at least " };
        write!(f, "{least}{} transactions", self.transactions)?;
        let shown: Vec<String> = self.ranges.iter().take(SHOWN).map(Range::to_string).collect();
        let more = if self.ranges.len() > SHOWN { ", …" } else { "" };
        if self.ranges.is_empty() { Ok(()) } else { write!(f, " ({}{more})", shown.join(", ")) }
    }
}

impl History {
    /// A history of which only the position is known.
    pub fn of_position(position: GtidPosition) -> History {
        let origins = position.domains().map(|gtid| ((gtid.domain_id, gtid.server_id), gtid.sequence)).collect();
        History { position, origins, ..History::default() }
    }

    /// Adds the last transaction of an origin of MariaDB's.
    pub fn add(&mut self, gtid: MariaDbGtid) {
        let last = self.origins.entry((gtid.domain_id, gtid.server_id)).or_default();
        *last = (*last).max(gtid.sequence);
        if !self.position.covers(Gtid::MariaDb(gtid)) {
            self.position.advance(Gtid::MariaDb(gtid));
        }
    }

    /// The transactions of this history that `other` lacks.
    pub fn missing_from(&self, other: &History) -> Surplus {
        let mut surplus = Surplus { is_exact: true, ..Surplus::default() };
        for (origin, numbers) in self.position.origins() {
            let theirs = other.position.origins().find(|(found, _)| *found == origin).map(|(_, numbers)| numbers);
            for range in numbers.ranges() {
                let mut first = range.start;
                for known in theirs.into_iter().flat_map(|numbers| numbers.ranges()) {
                    if known.end <= first || known.start >= range.end {
                        continue;
                    }
                    surplus.push(origin.to_string(), first, known.start.saturating_sub(1), None);
                    first = known.end;
                }
                surplus.push(origin.to_string(), first, range.end - 1, None);
            }
        }
        for (&(domain, server), &last) in &self.origins {
            if let Some((first, is_exact)) = other.first_missing(self, domain, server, last) {
                surplus.is_exact &= is_exact;
                surplus.push(format!("{domain}-{server}"), first, last, other.origins.get(&(domain, server)).copied());
            }
        }
        // Who has not got the note has not got what came after it either: what it has of these numbers are the old ones.
        let unknown = other.excluded.iter().filter(|(note, _)| !self.excluded.contains_key(*note));
        for excluded in unknown.flat_map(|(_, excluded)| excluded) {
            self.push_excluded(excluded, &mut surplus);
        }
        surplus.transactions = count(&surplus.ranges);
        surplus
    }

    fn push_excluded(&self, Excluded { origin, first, last }: &Excluded, surplus: &mut Surplus) {
        let mut push = |from: u64, to: u64| {
            let is_there = surplus.ranges.iter().any(|known| known.holds(origin, from) && known.holds(origin, to));
            if !is_there {
                surplus.push(origin.clone(), from, to, Some(from - 1));
            }
        };
        for (_, numbers) in self.position.origins().filter(|(found, _)| found.to_string() == *origin) {
            for range in numbers.ranges() {
                push((*first).max(range.start), (*last).min(range.end - 1));
            }
        }
        let of_origin = self.origins.iter().find(|((domain, server), _)| format!("{domain}-{server}") == *origin);
        if let Some((_, &reached)) = of_origin {
            push(*first, (*last).min(reached));
        }
    }

    /// The first number of an origin up to `last` that this history lacks, and whether it is surely the first.
    fn first_missing(&self, theirs: &History, domain: u32, server: u32, last: u64) -> Option<(u64, bool)> {
        let reached = self.position.domains().find(|gtid| gtid.domain_id == domain);
        let known = self.origins.get(&(domain, server)).copied();
        match known {
            Some(known) if known >= last => return None,
            None if !self.is_complete && reached.is_some_and(|reached| reached.sequence >= last) => return None,
            _ => {}
        }
        match self.last_common(theirs, domain) {
            // Up to there both are the same, of whatever server.
            Some(common) if common < last => Some((common.max(known.unwrap_or(0)) + 1, true)),
            None if reached.is_none() && theirs.oldest.get(&domain).is_none_or(|&oldest| oldest == 0) => {
                Some((1, true))
            }
            _ => Some((known.map_or(last, |known| known + 1), false)),
        }
    }

    /// The highest number of a domain that both surely have: of some server, each has all up to the lesser of its last numbers.
    fn last_common(&self, other: &History, domain: u32) -> Option<u64> {
        let of_domain = self.origins.range((domain, 0)..=(domain, u32::MAX));
        of_domain.filter_map(|(origin, &last)| other.origins.get(origin).map(|&theirs| theirs.min(last))).max()
    }

    /// True if this history has all that `other` has.
    pub fn has_all_of(&self, other: &History) -> bool {
        other.missing_from(self).is_empty()
    }
}

impl Surplus {
    fn push(&mut self, origin: String, first: u64, last: u64, known: Option<u64>) {
        if first <= last {
            self.ranges.push(Range { origin, first, last, known });
        }
    }
}

/// In a domain of MariaDB's a number is one transaction, whichever server's; ranges of servers that wrote one after the other overlap.
fn count(ranges: &[Range]) -> u64 {
    let mut sorted: Vec<(String, u64, u64)> =
        ranges.iter().map(|range| (counted_as(&range.origin).to_owned(), range.first, range.last)).collect();
    sorted.sort();
    let (mut count, mut end) = (0, (String::new(), 0));
    for (group, first, last) in sorted {
        let begin = if end.0 == group { first.max(end.1 + 1) } else { first };
        if begin <= last {
            count += last - begin + 1;
            end = (group, last);
        }
    }
    count
}

fn counted_as(origin: &str) -> &str {
    const UUID_LETTERS: usize = 36;
    match origin.len() < UUID_LETTERS {
        true => origin.split('-').next().unwrap_or(origin),
        false => origin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn mariadb(state: &str) -> History {
        let mut history = History { is_complete: true, ..History::default() };
        state.split(',').filter(|gtid| !gtid.is_empty()).for_each(|gtid| history.add(gtid.parse().unwrap()));
        history
    }

    fn mysql(set: &str) -> History {
        History::of_position(set.parse().unwrap())
    }

    fn missing(one: &History, other: &History) -> String {
        one.missing_from(other).to_string()
    }

    #[test]
    fn surplus_of_an_old_source_is_exact() {
        let (old, new) = (mariadb("0-1-103"), mariadb("0-1-100,0-2-150"));
        assert_eq!(missing(&old, &new), "3 transactions (0-1-101…103)");
        // Where the domain has parted is known, too: after what both have of the same server.
        assert_eq!(missing(&new, &old), "50 transactions (0-2-101…150)");
        let (old, new) = (mysql(&format!("{UUID}:1-103")), mysql(&format!("{UUID}:1-50:52-100")));
        assert_eq!(missing(&old, &new), format!("4 transactions ({UUID}:51, {UUID}:101…103)"));
        assert!(new.missing_from(&old).is_empty());
    }

    #[test]
    fn a_replica_that_is_behind_lacks_a_domain_s_numbers_once() {
        let (behind, ahead) = (mariadb("0-1-100"), mariadb("0-1-160,0-2-150"));
        assert_eq!(ahead.missing_from(&behind).transactions, 60);
        assert!(ahead.has_all_of(&behind));
    }

    /// Servers that were the source in turn: what comes after the last transaction that both have is missing, and no more.
    #[test]
    fn sources_in_turn_are_counted_once() {
        let (first_again, second) = (mariadb("0-1-65,0-2-60"), mariadb("0-1-10,0-2-60"));
        let surplus = first_again.missing_from(&second);
        assert_eq!(surplus.to_string(), "5 transactions (0-1-61…65)");
        assert!(surplus.ranges[0].holds("0-1", 61) && !surplus.ranges[0].holds("0-2", 61));
        // A source of which nobody has received anything, and one that was promoted instead of it.
        let (unheard, promoted) = (mariadb("0-1-100,0-3-110"), mariadb("0-1-100,0-2-101"));
        assert_eq!(missing(&unheard, &promoted), "10 transactions (0-3-101…110)");
        assert_eq!(missing(&promoted, &unheard), "1 transactions (0-2-101)");
    }

    /// Numbers that were given to other transactions, after those that had them were undone, do not hide the old ones.
    #[test]
    fn excluded_transactions_are_found_behind_numbers_used_again() {
        let noted = |mut history: History, origin: &str| {
            let excluded = Excluded { origin: origin.to_owned(), first: 101, last: 103 };
            history.excluded.insert("note".to_owned(), vec![excluded]);
            history
        };
        let (source, left) = (noted(mariadb("0-1-150"), "0-1"), mariadb("0-1-103"));
        assert_eq!(missing(&left, &source), "3 transactions (0-1-101…103)");
        assert!(noted(mariadb("0-1-120"), "0-1").missing_from(&source).is_empty());
        assert!(mariadb("0-1-100").missing_from(&source).is_empty());
        let (source, left) = (noted(mysql(&format!("{UUID}:1-150")), UUID), mysql(&format!("{UUID}:1-102")));
        assert_eq!(missing(&left, &source), format!("2 transactions ({UUID}:101…102)"));
        assert!(noted(mysql(&format!("{UUID}:1-120")), UUID).missing_from(&source).is_empty());
        assert!(mysql(&format!("{UUID}:1-100")).missing_from(&source).is_empty());
    }

    /// An origin that the other does not know, with numbers that both are beyond, may be older than what the other remembers.
    #[test]
    fn old_origins_are_in_doubt() {
        let surplus = mariadb("0-1-150,0-3-5").missing_from(&mariadb("0-1-150"));
        assert!(!surplus.is_exact && !surplus.is_empty(), "{surplus}");
    }

    #[test]
    fn errant_transactions_are_found() {
        let (errant, other) = (mariadb("0-1-150,0-2-101"), mariadb("0-1-150"));
        let found = errant.missing_from(&other);
        assert!(!found.is_exact && found.ranges[0].last == 101, "{found}");
        // Also if they are older than what the other's binlog still holds.
        let other = History { oldest: BTreeMap::from([(0, 120)]), ..other };
        assert!(!errant.missing_from(&other).is_exact);
    }

    #[test]
    fn a_replica_without_a_binlog_is_compared_by_its_position() {
        let ahead = mariadb("0-1-120,0-2-150");
        let behind = History::of_position("0-2-140".parse().unwrap());
        assert_eq!(missing(&ahead, &behind), "10 transactions (0-2-141…150)");
        assert!(ahead.has_all_of(&behind));
    }

    #[test]
    fn a_new_server_s_transactions_follow_the_position() {
        let (behind, ahead) = (mariadb("0-1-100"), mariadb("0-1-100,0-2-110"));
        assert_eq!(missing(&ahead, &behind), "10 transactions (0-2-101…110)");
    }
}

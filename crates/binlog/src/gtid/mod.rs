//! Global transaction ids of both vendors, and positions made of them.
//!
//! MariaDB's is `domain-server-sequence`, and a position is the last one of each domain ([`mariadb`]). MySQL's is
//! `uuid:number` or `uuid:tag:number`, and a position is a set of them ([`mysql`]).

pub mod mariadb;
pub mod mysql;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

pub use mariadb::{MariaDbGtid, Xid};
pub use mysql::{MySqlGtid, NumberSet, Origin};

use crate::cursor::Cursor;
use crate::{Error, Result};

/// One GTID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gtid {
    /// `domain-server-sequence`.
    MariaDb(MariaDbGtid),
    /// `uuid:number` or `uuid:tag:number`.
    MySql(MySqlGtid),
}

impl Gtid {
    /// The server that first committed the transaction, if the GTID has its number (MariaDB's has).
    pub fn server_id(&self) -> Option<u32> {
        match self {
            Gtid::MariaDb(gtid) => Some(gtid.server_id),
            Gtid::MySql(_) => None,
        }
    }

    /// The number that rises with each transaction: the sequence number in its domain, or the number of its origin.
    pub fn number(&self) -> u64 {
        match self {
            Gtid::MariaDb(gtid) => gtid.sequence,
            Gtid::MySql(gtid) => gtid.number,
        }
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gtid::MariaDb(gtid) => gtid.fmt(f),
            Gtid::MySql(gtid) => gtid.fmt(f),
        }
    }
}

impl FromStr for Gtid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Gtid> {
        match text.contains(':') {
            true => text.parse().map(Gtid::MySql),
            false => text.parse().map(Gtid::MariaDb),
        }
    }
}

/// A place in the history of a source: on MariaDB the last GTID of each domain, on MySQL the set of all GTIDs before
/// it. Its text form is the servers' own, comma-separated.
///
/// Invariants: at most one GTID per domain, no empty set. The empty position is before all transactions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidPosition {
    domains: BTreeMap<u32, MariaDbGtid>,
    origins: BTreeMap<Origin, NumberSet>,
}

impl GtidPosition {
    /// Moves the position to just after `gtid`.
    pub fn advance(&mut self, gtid: Gtid) {
        match gtid {
            Gtid::MariaDb(gtid) => drop(self.domains.insert(gtid.domain_id, gtid)),
            Gtid::MySql(gtid) => self.origins.entry(gtid.origin).or_default().insert(gtid.number),
        }
    }

    /// Moves the position to after all transactions that `other` covers.
    pub fn advance_to(&mut self, other: &GtidPosition) {
        for gtid in other.domains.values().map(|&gtid| Gtid::MariaDb(gtid)) {
            if !self.covers(gtid) {
                self.advance(gtid);
            }
        }
        for (origin, numbers) in &other.origins {
            self.origins.entry(*origin).or_default().insert_all(numbers);
        }
    }

    /// True if the position covers the transaction: `gtid`'s domain has reached or passed its sequence, or the set
    /// holds it.
    pub fn covers(&self, gtid: Gtid) -> bool {
        match gtid {
            Gtid::MariaDb(gtid) => {
                self.domains.get(&gtid.domain_id).is_some_and(|reached| reached.sequence >= gtid.sequence)
            }
            Gtid::MySql(gtid) => self.origins.get(&gtid.origin).is_some_and(|numbers| numbers.contains(gtid.number)),
        }
    }

    /// True if this position covers all transactions that `other` covers.
    pub fn covers_all(&self, other: &GtidPosition) -> bool {
        other.domains.values().all(|&gtid| self.covers(Gtid::MariaDb(gtid)))
            && other
                .origins
                .iter()
                .all(|(origin, numbers)| self.origins.get(origin).is_some_and(|reached| reached.contains_all(numbers)))
    }

    /// True if `gtid` is the last of its domain, or in the set.
    pub fn ends_with(&self, gtid: Gtid) -> bool {
        match gtid {
            Gtid::MariaDb(last) => self.domains.get(&last.domain_id) == Some(&last),
            Gtid::MySql(_) => self.covers(gtid),
        }
    }

    /// True if the position covers no transaction of `gtid`'s domain or origin.
    pub fn is_before_all_of(&self, gtid: Gtid) -> bool {
        match gtid {
            Gtid::MariaDb(gtid) => !self.domains.contains_key(&gtid.domain_id),
            Gtid::MySql(gtid) => !self.origins.contains_key(&gtid.origin),
        }
    }

    /// True if there may be a transaction of `gtid`'s domain or origin that is not covered and comes before `gtid`.
    pub fn has_gap_before(&self, gtid: Gtid) -> bool {
        match gtid {
            Gtid::MariaDb(gtid) => {
                let reached = self.domains.get(&gtid.domain_id).map_or(0, |reached| reached.sequence);
                gtid.sequence > reached.saturating_add(1)
            }
            Gtid::MySql(gtid) => {
                let reached = self.origins.get(&gtid.origin).map_or(1, NumberSet::first_missing);
                gtid.number > reached
            }
        }
    }

    /// The last GTID of each of MariaDB's domains, by rising domain.
    pub fn domains(&self) -> impl Iterator<Item = MariaDbGtid> + '_ {
        self.domains.values().copied()
    }

    /// MySQL's origins, and the numbers of each that the position covers.
    pub fn origins(&self) -> impl Iterator<Item = (&Origin, &NumberSet)> + '_ {
        self.origins.iter()
    }

    /// Adds transactions of one of MySQL's origins: from the first number up to, but not including, the second.
    pub fn add_numbers(&mut self, origin: Origin, numbers: std::ops::Range<u64>) {
        if !numbers.is_empty() {
            self.origins.entry(origin).or_default().insert_range(numbers);
        }
    }

    /// True if the position covers no transaction.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.origins.is_empty()
    }
}

impl fmt::Display for GtidPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for gtid in self.domains() {
            write!(f, "{comma}{gtid}")?;
            comma = ",";
        }
        for (origin, numbers) in &self.origins {
            write!(f, "{comma}{origin}{numbers}")?;
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for GtidPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<GtidPosition> {
        let mut position = GtidPosition::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            if part.contains(':') {
                mysql::parse_set(part, |origin, numbers| position.add_numbers(origin, numbers))?;
                continue;
            }
            let gtid: MariaDbGtid = part.parse()?;
            if position.domains.contains_key(&gtid.domain_id) {
                let why = format!("domain {} is named twice in '{text}'", gtid.domain_id);
                return Err(Error::malformed("GTID position", why));
            }
            position.domains.insert(gtid.domain_id, gtid);
        }
        if !position.domains.is_empty() && !position.origins.is_empty() {
            let why = format!("'{text}' mixes GTIDs of MariaDB and of MySQL");
            return Err(Error::malformed("GTID position", why));
        }
        Ok(position)
    }
}

/// The event that begins a transaction and names it: `GTID_EVENT` (162) on MariaDB, `GTID_LOG_EVENT` (33) or
/// `GTID_TAGGED_LOG_EVENT` (42) on MySQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GtidEvent {
    /// The transaction's id.
    pub gtid: Gtid,
    /// MariaDB's `FL_…` bits as the server wrote them; 0 on MySQL.
    pub flags: u8,
    /// MariaDB: transactions with equal commit ids committed together on the source.
    pub commit_id: Option<u64>,
    /// MariaDB: the second byte of flags, `FL_EXTRA_…`.
    pub extra_flags: u8,
    /// MySQL: the time when the sending server committed the transaction, in microseconds since 1970; `None` on MariaDB
    /// and older servers.
    pub commit_microseconds: Option<u64>,
    /// MySQL: where the transaction stands among those that were committing beside it; `None` on MariaDB and older servers.
    pub logical_clock: Option<LogicalClock>,
}

/// MySQL's hint which transactions may be applied beside each other: all whose `last_committed` is below the sequence number of
/// each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalClock {
    /// The last transaction of the file that this one has to come after.
    pub last_committed: u64,
    /// The transaction's number in its file, from 1.
    pub sequence_number: u64,
}

impl GtidEvent {
    /// The group is one statement (DDL or not transactional): no COMMIT or XID follows.
    pub const STANDALONE: u8 = 0x01;
    /// A commit id is present.
    pub const GROUP_COMMIT_ID: u8 = 0x02;
    /// All its engines are transactional.
    pub const TRANSACTIONAL: u8 = 0x04;
    /// May be applied in parallel with earlier transactions (the user allowed it).
    pub const ALLOW_PARALLEL: u8 = 0x08;
    /// Waited for a row lock on the source.
    pub const WAITED: u8 = 0x10;
    /// The group is DDL.
    pub const DDL: u8 = 0x20;
    /// The group ends with XA PREPARE.
    pub const PREPARED_XA: u8 = 0x40;
    /// The group completes a prepared XA transaction.
    pub const COMPLETED_XA: u8 = 0x80;

    /// In the extra flags: the START of a two-phase ALTER TABLE, which another group commits or rolls back.
    pub const EXTRA_START_ALTER: u8 = 0x02;
    /// In the extra flags: the group commits an ALTER TABLE that an earlier group began.
    pub const EXTRA_COMMIT_ALTER: u8 = 0x04;
    /// In the extra flags: the group rolls back an ALTER TABLE that an earlier group began.
    pub const EXTRA_ROLLBACK_ALTER: u8 = 0x08;

    /// Parses the body of MariaDB's event; `server_id` is the one in its header.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn parse_mariadb(server_id: u32, body: &[u8]) -> Result<GtidEvent> {
        let mut cursor = Cursor::new(body, "GTID event");
        let sequence = cursor.u64()?;
        let domain_id = cursor.u32()?;
        let flags = cursor.u8()?;
        let commit_id = match flags & Self::GROUP_COMMIT_ID {
            0 => None,
            _ => Some(cursor.u64()?),
        };
        if flags & (Self::PREPARED_XA | Self::COMPLETED_XA) != 0 {
            let _format_id = cursor.u32()?;
            let lengths = usize::from(cursor.u8()?) + usize::from(cursor.u8()?);
            cursor.take(lengths)?;
        }
        // Short events are padded with zeros, which read as "no extra flags".
        let extra_flags = if cursor.is_empty() { 0 } else { cursor.u8()? };
        let gtid = Gtid::MariaDb(MariaDbGtid { domain_id, server_id, sequence });
        Ok(GtidEvent { gtid, flags, commit_id, extra_flags, commit_microseconds: None, logical_clock: None })
    }

    /// True if any of the `FL_…` bits in `mask` is set.
    pub fn has(&self, mask: u8) -> bool {
        self.flags & mask != 0
    }
}

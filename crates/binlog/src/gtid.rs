//! Global transaction ids of MariaDB: `domain-server-sequence`, and positions made of one per domain.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::cursor::Cursor;
use crate::{Error, Result};

/// One MariaDB GTID, written `domain-server-sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gtid {
    /// The replication domain: an independent stream of transactions.
    pub domain_id: u32,
    /// The server that first committed the transaction.
    pub server_id: u32,
    /// Rises by at least one with each transaction of the domain.
    pub sequence: u64,
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain_id, self.server_id, self.sequence)
    }
}

impl FromStr for Gtid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Gtid> {
        let wrong =
            || Error::malformed("GTID", format!("'{text}' is not of the form domain-server-sequence, such as 0-1-42"));
        let mut parts = text.trim().splitn(3, '-');
        let mut part = || parts.next().ok_or_else(wrong);
        Ok(Gtid {
            domain_id: part()?.parse().map_err(|_| wrong())?,
            server_id: part()?.parse().map_err(|_| wrong())?,
            sequence: part()?.parse().map_err(|_| wrong())?,
        })
    }
}

/// A place in the history of a source: the last GTID of each domain. Written as the servers do, comma-separated.
///
/// Invariant: at most one GTID per domain. The empty position is before everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidPosition {
    domains: BTreeMap<u32, Gtid>,
}

impl GtidPosition {
    /// Moves the position of `gtid`'s domain to `gtid`.
    pub fn advance(&mut self, gtid: Gtid) {
        self.domains.insert(gtid.domain_id, gtid);
    }

    /// The last GTID of a domain, if there is one.
    pub fn get(&self, domain_id: u32) -> Option<Gtid> {
        self.domains.get(&domain_id).copied()
    }

    /// True if `gtid`'s domain has reached or passed `gtid`'s sequence.
    pub fn covers(&self, gtid: Gtid) -> bool {
        self.get(gtid.domain_id).is_some_and(|reached| reached.sequence >= gtid.sequence)
    }

    /// True if every domain of `other` has been reached here.
    pub fn covers_all(&self, other: &GtidPosition) -> bool {
        other.iter().all(|gtid| self.covers(gtid))
    }

    /// The GTIDs by rising domain.
    pub fn iter(&self) -> impl Iterator<Item = Gtid> + '_ {
        self.domains.values().copied()
    }

    /// True if no domain has a GTID.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }
}

impl fmt::Display for GtidPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, gtid) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{gtid}")?;
        }
        Ok(())
    }
}

impl FromStr for GtidPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<GtidPosition> {
        let mut position = GtidPosition::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let gtid: Gtid = part.parse()?;
            if position.get(gtid.domain_id).is_some() {
                return Err(Error::malformed(
                    "GTID position",
                    format!("domain {} is named twice in '{text}'", gtid.domain_id),
                ));
            }
            position.advance(gtid);
        }
        Ok(position)
    }
}

/// The event that begins every MariaDB transaction (`GTID_EVENT`, type 162).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GtidEvent {
    /// The transaction's id.
    pub gtid: Gtid,
    /// `FL_…` bits as the server wrote them.
    pub flags: u8,
    /// Transactions with equal commit ids committed together on the source.
    pub commit_id: Option<u64>,
    /// The second byte of flags: `FL_EXTRA_…`.
    pub extra_flags: u8,
}

impl GtidEvent {
    /// The event group is one statement (DDL or not transactional): no COMMIT or XID follows.
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

    /// In the extra flags: an ALTER TABLE begins that another group will complete or undo.
    pub const EXTRA_START_ALTER: u8 = 0x02;
    /// In the extra flags: an ALTER TABLE begun by an earlier group is completed.
    pub const EXTRA_COMMIT_ALTER: u8 = 0x04;
    /// In the extra flags: an ALTER TABLE begun by an earlier group is undone.
    pub const EXTRA_ROLLBACK_ALTER: u8 = 0x08;

    /// Parses an event's body; `server_id` is the one in its header.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn parse(server_id: u32, body: &[u8]) -> Result<GtidEvent> {
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
        Ok(GtidEvent { gtid: Gtid { domain_id, server_id, sequence }, flags, commit_id, extra_flags })
    }

    /// True if any of the `FL_…` bits in `mask` is set.
    pub fn has(&self, mask: u8) -> bool {
        self.flags & mask != 0
    }
}

/// The name of an XA transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xid {
    /// Number of the name's format.
    pub format_id: u32,
    /// Global part.
    pub global: Vec<u8>,
    /// Branch qualifier; may be empty.
    pub branch: Vec<u8>,
}

impl Xid {
    /// The XID in the body of a GTID event ([`GtidEvent::PREPARED_XA`], [`GtidEvent::COMPLETED_XA`]); `None` if the group is
    /// no part of an XA transaction.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn of_gtid_event(body: &[u8]) -> Result<Option<Xid>> {
        const FLAGS_OFFSET: usize = 12;
        let mut cursor = Cursor::new(body, "XID of a GTID event");
        cursor.take(FLAGS_OFFSET)?;
        let flags = cursor.u8()?;
        if flags & (GtidEvent::PREPARED_XA | GtidEvent::COMPLETED_XA) == 0 {
            return Ok(None);
        }
        if flags & GtidEvent::GROUP_COMMIT_ID != 0 {
            cursor.u64()?;
        }
        let format_id = cursor.u32()?;
        let (global_length, branch_length) = (usize::from(cursor.u8()?), usize::from(cursor.u8()?));
        let global = cursor.take(global_length)?.to_vec();
        Ok(Some(Xid { format_id, global, branch: cursor.take(branch_length)?.to_vec() }))
    }
}

/// As XA statements take it: `X'…',X'…',format`.
impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut part = |bytes: &[u8]| {
            f.write_str("X'")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
            f.write_str("',")
        };
        part(&self.global)?;
        part(&self.branch)?;
        write!(f, "{}", self.format_id)
    }
}

/// The GTID position before a file's first transaction (`GTID_LIST_EVENT`, type 163). A file may hold several GTIDs for a
/// domain, one per server; the domain's position is the last of them.
///
/// # Errors
/// [`Error::Truncated`].
pub fn parse_gtid_list(body: &[u8]) -> Result<GtidPosition> {
    /// The upper four bits of the count are flags.
    const COUNT_MASK: u32 = (1 << 28) - 1;
    let mut cursor = Cursor::new(body, "GTID list event");
    let count = cursor.u32()? & COUNT_MASK;
    let mut position = GtidPosition::default();
    for _ in 0..count {
        let domain_id = cursor.u32()?;
        let server_id = cursor.u32()?;
        let sequence = cursor.u64()?;
        position.advance(Gtid { domain_id, server_id, sequence });
    }
    Ok(position)
}

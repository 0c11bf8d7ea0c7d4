//! MariaDB's GTIDs: `domain-server-sequence`.

use std::fmt;
use std::str::FromStr;

use super::{Gtid, GtidEvent, GtidPosition};
use crate::cursor::Cursor;
use crate::{Error, Result};

/// One MariaDB GTID, written `domain-server-sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MariaDbGtid {
    /// The replication domain: an independent stream of transactions.
    pub domain_id: u32,
    /// The server that first committed the transaction.
    pub server_id: u32,
    /// Rises by at least one with each transaction of the domain.
    pub sequence: u64,
}

impl fmt::Display for MariaDbGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain_id, self.server_id, self.sequence)
    }
}

impl FromStr for MariaDbGtid {
    type Err = Error;

    fn from_str(text: &str) -> Result<MariaDbGtid> {
        let wrong = || {
            Error::malformed(
                "GTID",
                format!("'{}' is not of the form domain-server-sequence, such as 0-1-42", text.escape_debug()),
            )
        };
        let mut parts = text.trim().splitn(3, '-');
        let mut part = || parts.next().ok_or_else(wrong);
        Ok(MariaDbGtid {
            domain_id: part()?.parse().map_err(|_| wrong())?,
            server_id: part()?.parse().map_err(|_| wrong())?,
            sequence: part()?.parse().map_err(|_| wrong())?,
        })
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
    /// The XID in the body of a GTID event ([`GtidEvent::PREPARED_XA`], [`GtidEvent::COMPLETED_XA`]); `None` if the
    /// group does not belong to an XA transaction.
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

impl Xid {
    /// The XID that an XA statement names, written as the servers log it: `XA COMMIT X'…',X'…',format`.
    pub fn of_statement(statement: &[u8]) -> Option<Xid> {
        let text = std::str::from_utf8(statement).ok()?;
        let mut words = text.split_ascii_whitespace();
        if !words.next()?.eq_ignore_ascii_case("XA") {
            return None;
        }
        words.next()?;
        let mut parts = words.next()?.split(',');
        let (global, branch) = (hexadecimal(parts.next()?)?, hexadecimal(parts.next()?)?);
        Some(Xid { format_id: parts.next()?.parse().ok()?, global, branch })
    }
}

/// The bytes of `X'…'`.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("X'").or_else(|| text.strip_prefix("x'"))?.strip_suffix('\'')?;
    let digits: Vec<u32> = digits.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// The form that XA statements take: `X'…',X'…',format`.
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

/// The GTID position before a file's first transaction (`GTID_LIST_EVENT`, type 163). A file may hold several GTIDs for
/// a domain, one per server; the domain's position is the last of them.
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
        position.advance(Gtid::MariaDb(MariaDbGtid { domain_id, server_id, sequence }));
    }
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It may come from a table that others write, and is shown on a terminal.
    #[test]
    fn wrong_gtid_is_shown_without_control_characters() {
        for text in ["\u{1b}[31mred\nspate: all is well", "1-2"] {
            let mariadb = text.parse::<MariaDbGtid>().unwrap_err().to_string();
            let any = text.parse::<crate::GtidPosition>().unwrap_err().to_string();
            assert!(![mariadb, any].concat().contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn xid_is_read_as_it_is_written() {
        let xid = Xid { format_id: 7, global: b"a\xff".to_vec(), branch: vec![] };
        for statement in [format!("XA START {xid}"), format!("xa commit {xid}"), format!("XA ROLLBACK {xid} ")] {
            assert_eq!(Xid::of_statement(statement.as_bytes()), Some(xid.clone()));
        }
        for statement in ["XA RECOVER", "XA COMMIT 'x'", "BEGIN", "XA COMMIT X'1',X'',1", ""] {
            assert_eq!(Xid::of_statement(statement.as_bytes()), None);
        }
    }
}

//! Which transactions are applied ahead of others, where several appliers commit independently of each other: each writes what it has applied
//! behind the checkpoint, in the same transaction.

use std::collections::BTreeSet;
use std::fmt::Write;

use spate_binlog::encode::ColumnBitmap;
use spate_binlog::{Gtid, GtidPosition};
use spate_schedule::emit::OwnUpdate;

use crate::error::{Error, Result, TransactionPlace};
use spate_connection::{Connection, Peer};

/// The table: one row for each applier.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.spread (\
     applier INT UNSIGNED NOT NULL PRIMARY KEY, \
     version BIGINT UNSIGNED NOT NULL, \
     gtids MEDIUMTEXT CHARACTER SET ascii NOT NULL COMMENT 'applied behind the checkpoint, ahead of others'\
     ) ENGINE=InnoDB COMMENT='transactions that are applied ahead of others'";

/// The transactions that are applied although some before them are not.
///
/// # Errors
/// Any error of the connection; [`Error::Checkpoint`] if a row cannot be read.
pub fn read(connection: &mut Connection) -> Result<BTreeSet<Gtid>> {
    let rows = connection.query("SELECT gtids FROM spate.spread")?;
    let mut spread = BTreeSet::new();
    for row in 0..rows.rows.len() {
        let text = rows.text_at(row, 0).unwrap_or_default();
        for gtid in text.split(',').filter(|gtid| !gtid.is_empty()) {
            let wrong = |error: spate_binlog::Error| Error::Checkpoint {
                replica: connection.peer().to_string(),
                why: format!("spate.spread names {gtid:?}: {error}"),
            };
            spread.insert(gtid.parse().map_err(wrong)?);
        }
    }
    Ok(spread)
}

/// Those of them that the checkpoint's position does not cover.
pub fn beyond(spread: &BTreeSet<Gtid>, position: &GtidPosition) -> BTreeSet<Gtid> {
    spread.iter().copied().filter(|&gtid| !position.covers(gtid)).collect()
}

/// Sees to it that each of so many appliers has a row.
///
/// # Errors
/// Any error of the connection.
pub fn make_rows(connection: &mut Connection, appliers: usize) -> Result<()> {
    let present = connection.query("SELECT COUNT(*) FROM spate.spread")?.single_text();
    if present.and_then(|count| count.parse::<usize>().ok()).is_some_and(|count| count >= appliers) {
        return Ok(());
    }
    let rows: Vec<String> = (0..appliers).map(|applier| format!("({applier},0,'')")).collect();
    let sql = format!("INSERT IGNORE INTO spate.spread (applier,version,gtids) VALUES {}", rows.join(","));
    connection.execute(sql.as_bytes())?;
    Ok(())
}

/// The statement that writes what an applier has applied behind the checkpoint.
pub fn update_sql(applier: usize, gtids: impl Iterator<Item = Gtid>) -> String {
    format!("UPDATE spate.spread SET version=version+1,gtids='{}' WHERE applier={applier}", text_of(gtids))
}

fn text_of(gtids: impl Iterator<Item = Gtid>) -> String {
    let mut text = String::new();
    for (place, gtid) in gtids.enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // A text takes whatever is written.
        let _taken = write!(text, "{comma}{gtid}");
    }
    text
}

/// The same as a row of a transaction's own statement: the server has none to parse for it.
pub fn update_row(applier: usize, gtids: impl Iterator<Item = Gtid>) -> OwnUpdate {
    const NO_NULLS: u8 = 0;
    const COLUMNS: usize = 3;
    const LENGTH_BYTES: usize = 3;
    let text = text_of(gtids);
    let mut images = Vec::with_capacity(16 + text.len());
    images.push(NO_NULLS);
    images.extend_from_slice(&u32::try_from(applier).unwrap_or(u32::MAX).to_le_bytes());
    images.push(NO_NULLS);
    images.extend_from_slice(&text.len().to_le_bytes()[..LENGTH_BYTES]);
    images.extend_from_slice(text.as_bytes());
    OwnUpdate {
        map: TABLE_MAP,
        columns: (ColumnBitmap::only(COLUMNS, &[0]), ColumnBitmap::only(COLUMNS, &[2])),
        images,
    }
}

/// The table as a binlog describes it, from its id on: schema, name, the types of the columns and what there is to know of them.
const TABLE_MAP: &[u8] = b"\0\0\0\0\0\0\x01\0\x05spate\0\x06spread\0\x03\x03\x08\xfc\x01\x03\0";

/// The statement after which no transaction is ahead of others.
pub fn clear_sql() -> &'static str {
    "UPDATE spate.spread SET gtids='' WHERE gtids<>''"
}

/// The error of a transaction that the replica has passed over.
pub fn not_executed(replica: &Peer, place: &TransactionPlace) -> Error {
    let why = format!(
        "it has not executed the transaction {} at {}:{}: it has that GTID already, and Spate's checkpoint does not know of it. Somebody else has \
         applied it, or set gtid_purged: clone the replica again, or begin at another position",
        place.gtid, place.file, place.position
    );
    Error::Unsuitable { peer: replica.to_string(), why }
}

//! Records on the replica of transactions that were left out and of rows that were repaired. Spate writes each in the transaction that it
//! is about, so the record is there exactly if the effect is.

use std::collections::BTreeSet;

use spate_binlog::Gtid;
use spate_schedule::TableName;

use crate::error::{Result, TransactionPlace};
use crate::exclusions::Skipped;
use crate::status::{SKIPPED_MAX, SkippedStatus};
use spate_connection::{Connection, quote};

/// A key of a repaired row is kept up to this many characters.
const KEY_CHARACTERS_MAX: usize = 500;

/// The table of transactions that were left out.
pub(crate) const CREATE_SKIPPED: &str = "CREATE TABLE IF NOT EXISTS spate.skipped (\
     gtid VARCHAR(100) CHARACTER SET ascii NOT NULL PRIMARY KEY, \
     source_file VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     source_position BIGINT UNSIGNED NOT NULL COMMENT 'end of the transaction', \
     skipped_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, \
     why VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL) ENGINE=InnoDB COMMENT='transactions that were left out'";

/// The table of repairs. One row a table and kind of repair: bounded, and what a person asks first.
pub(crate) const CREATE_REPAIRED: &str = "CREATE TABLE IF NOT EXISTS spate.repaired (\
     schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     repair VARCHAR(20) CHARACTER SET ascii NOT NULL, \
     repairs BIGINT UNSIGNED NOT NULL, \
     first_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, \
     last_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, \
     last_gtid VARCHAR(100) CHARACTER SET ascii NOT NULL, \
     last_source_file VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     last_source_position BIGINT UNSIGNED NOT NULL, \
     last_row_key TEXT CHARACTER SET utf8mb4 NOT NULL, \
     PRIMARY KEY (schema_name, table_name, repair)) ENGINE=InnoDB COMMENT='rows that were not as the source left them'";

/// The statement that records a skip; to be executed before the checkpoint moves, in the same transaction.
pub fn skip_sql(skipped: &Skipped) -> String {
    format!(
        "REPLACE INTO spate.skipped (gtid, source_file, source_position, why) VALUES ('{}', {}, {}, '--skip')",
        skipped.gtid,
        quote::text(&skipped.place.file),
        skipped.place.position,
    )
}

/// The latest skips on the replica, oldest first.
///
/// # Errors
/// Any error of the connection.
pub fn latest_skips(connection: &mut Connection) -> Result<Vec<SkippedStatus>> {
    let rows = connection.query(&format!(
        "SELECT gtid, source_file, source_position, UNIX_TIMESTAMP(skipped_at) FROM spate.skipped \
         ORDER BY skipped_at DESC, gtid DESC LIMIT {SKIPPED_MAX}"
    ))?;
    let number = |row, column| rows.text_at(row, column).and_then(|text| text.parse().ok()).unwrap_or_default();
    let skip = |row| SkippedStatus {
        gtid: rows.text_at(row, 0).unwrap_or_default(),
        file: rows.text_at(row, 1).unwrap_or_default(),
        position: number(row, 2),
        at_seconds: number(row, 3),
    };
    Ok((0..rows.rows.len()).rev().map(skip).collect())
}

/// Which of these transactions an earlier run has left out.
///
/// # Errors
/// Any error of the connection.
pub fn skipped_of(connection: &mut Connection, gtids: &BTreeSet<Gtid>) -> Result<Vec<Gtid>> {
    if gtids.is_empty() {
        return Ok(vec![]);
    }
    let names: Vec<String> = gtids.iter().map(|gtid| quote::text(&gtid.to_string())).collect();
    let rows = connection.query(&format!("SELECT gtid FROM spate.skipped WHERE gtid IN ({})", names.join(",")))?;
    Ok((0..rows.rows.len()).filter_map(|row| rows.text_at(row, 0)?.parse().ok()).collect())
}

/// The statement that counts a repair.
pub fn repair_sql(table: &TableName, repair: &str, place: &TransactionPlace, key: &str) -> String {
    let key: String = key.chars().take(KEY_CHARACTERS_MAX).collect();
    format!(
        "INSERT INTO spate.repaired (schema_name, table_name, repair, repairs, last_gtid, last_source_file, \
         last_source_position, last_row_key) VALUES ({}, {}, {}, 1, {}, {}, {}, {}) \
         ON DUPLICATE KEY UPDATE repairs=repairs+1, last_at=CURRENT_TIMESTAMP, last_gtid=VALUES(last_gtid), \
         last_source_file=VALUES(last_source_file), last_source_position=VALUES(last_source_position), \
         last_row_key=VALUES(last_row_key)",
        quote::text(&table.schema),
        quote::text(&table.table),
        quote::text(repair),
        quote::text(&place.gtid),
        quote::text(&place.file),
        place.position,
        quote::text(&key),
    )
}

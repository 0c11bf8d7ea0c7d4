//! Waits for locks that do not end, and sessions that may hold the locks.

use crate::error::Error;
use spate_connection::{CODE_LOCK_WAIT, Connection, Result};

/// Names in a message.
const HOLDERS_MAX: usize = 5;

/// The transactions of the replica that hold locks, the oldest first. (That of the session that waited has ended.) What waited is gone by
/// then, so nothing tells which of them it was.
const SQL: &str = "SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), p.USER, p.HOST, p.COMMAND \
    FROM information_schema.INNODB_TRX t LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id \
    WHERE t.trx_rows_locked > 0 OR t.trx_tables_locked > 0 ORDER BY t.trx_started LIMIT 6";

/// Waits for locks that ended without them, with nothing applied in between.
#[derive(Debug, Default)]
pub struct LockWaits {
    /// The last transaction that was applied then.
    seqno: u64,
    times: u32,
}

impl LockWaits {
    /// True if waiting seems not to help: another session's transaction that is over soon has let the second try pass.
    pub fn is_in_vain(&mut self, error: &Error, applied: u64) -> bool {
        const TRIES: u32 = 2;
        if error.code() != Some(CODE_LOCK_WAIT) {
            return false;
        }
        let times = if self.seqno == applied { self.times + 1 } else { 1 };
        *self = LockWaits { seqno: applied, times };
        times >= TRIES
    }
}

/// A sentence about them.
pub fn told(connection: &mut Connection) -> String {
    match holders(connection) {
        Ok(holders) if holders.is_empty() => {
            "No transaction holds locks now: something that was over soon, or the lock of a table's definition"
                .to_owned()
        }
        Ok(holders) => {
            let more = if holders.len() > HOLDERS_MAX { " and others" } else { "" };
            format!("Locks are held by {}{more}", holders[..holders.len().min(HOLDERS_MAX)].join(", "))
        }
        Err(error) => format!("Who holds locks could not be asked ({error}); it takes the privilege PROCESS"),
    }
}

fn holders(connection: &mut Connection) -> Result<Vec<String>> {
    let rows = connection.query(SQL)?;
    let text = |row, column| rows.text_at(row, column).unwrap_or_default();
    let holder = |row| {
        let (thread, seconds) = (text(row, 0), text(row, 1));
        match thread.as_str() {
            "0" => format!("a prepared XA transaction, for {seconds} s (XA RECOVER lists them)"),
            _ => format!("session {thread} ({}@{}, {}), for {seconds} s", text(row, 2), text(row, 3), text(row, 4)),
        }
    };
    Ok((0..rows.rows.len()).map(holder).collect())
}

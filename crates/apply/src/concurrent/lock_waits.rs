//! Jobs that wait for their turn and hold a lock that an earlier one waits for: the server does not know that they wait, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spate_connection::{Connection, Vendor};

use super::Pool;
use crate::sessions::SessionMaker;
use spate_replica::Result;

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The oldest job has executed for so long when the server is asked what it waits for.
const PATIENCE: Duration = Duration::from_millis(40);

/// Between two questions. InnoDB answers from a copy, which it makes again only if nobody has read it for 100 ms: who asks more often than that
/// is told the same for ever.
const ASK_EVERY: Duration = Duration::from_millis(150);

/// If the server does not say who waits for whom (the account lacks a privilege, there is no performance schema, or InnoDB's copy is old), all that
/// wait for their turns are rolled back after so long; if that was in vain, after twice as long.
const BLIND_PATIENCE: Duration = Duration::from_secs(1);

/// So many times as long if what the server says explains why the oldest job waits: for somebody else's lock. An old copy may say so for ever.
const EXPLAINED: u32 = 10;

/// Sees to it that no job waits for a later one.
pub(crate) struct LockWaits<'a> {
    pub(crate) maker: SessionMaker<'a>,
    pub(crate) pool: &'a Pool<'a>,
}

impl LockWaits<'_> {
    /// Looks until the session ends.
    pub(crate) fn run(self) {
        // Opened when it is first needed. A failure is only missed: it then goes by time.
        let mut asking = None;
        let mut asked: Option<Instant> = None;
        let mut oldest = None;
        let mut blind_patience = BLIND_PATIENCE;
        while !self.pool.is_over() {
            std::thread::park_timeout(LOOK_EVERY);
            if asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
                continue;
            }
            let Some(begun) = self.pool.stalled(PATIENCE) else { continue };
            asked = Some(Instant::now());
            let first = begun.keys().next().copied();
            if oldest != first {
                (oldest, blind_patience) = (first, BLIND_PATIENCE);
            }
            let patience = match self.in_the_way(&mut asking, &begun) {
                Ok(InTheWay::NobodyWaits) => continue,
                Ok(InTheWay::Others) => blind_patience * EXPLAINED,
                Ok(InTheWay::Unknown) => blind_patience,
                Ok(InTheWay::Jobs(jobs)) => {
                    self.pool.unwant(&jobs);
                    blind_patience
                }
                Err(_) => {
                    asking = None;
                    blind_patience
                }
            };
            if self.pool.stalled(patience).is_some() {
                self.pool.unwant(&begun.keys().copied().collect());
                blind_patience *= 2;
            }
        }
    }

    fn in_the_way(&self, asking: &mut Option<Connection>, begun: &BTreeMap<u64, usize>) -> Result<InTheWay> {
        let connection = match asking {
            Some(connection) => connection,
            none => none.insert(self.maker.connect_with_timeout()?),
        };
        let waits = connection.query(waits_query(connection.server_version().vendor))?;
        let job_of = |text: Option<String>| {
            let id: u32 = text?.parse().ok()?;
            let executor = self.pool.executor_of(id)?;
            begun.iter().find(|&(_, &begun)| begun == executor).map(|(&job, _)| job)
        };
        let pair = |row| Some((job_of(waits.text_at(row, 0))?, job_of(waits.text_at(row, 1))?));
        let pairs = (0..waits.rows.len()).filter_map(pair);
        let jobs: BTreeSet<u64> =
            pairs.filter(|(waiting, holding)| holding > waiting).map(|(_, holding)| holding).collect();
        Ok(if !jobs.is_empty() {
            InTheWay::Jobs(jobs)
        } else if !waits.rows.is_empty() {
            InTheWay::Others
        } else if somebody_waits(connection)? {
            InTheWay::Unknown
        } else {
            InTheWay::NobodyWaits
        })
    }
}

/// What holds the locks that jobs wait for.
enum InTheWay {
    /// These, for which earlier ones wait.
    Jobs(BTreeSet<u64>),
    /// Earlier jobs, or other sessions.
    Others,
    /// The server does not say (MySQL's does by its performance schema, which may be off; and InnoDB's copy is old where a monitor asks for it all
    /// the time).
    Unknown,
    NobodyWaits,
}

/// Does a session wait for a row's lock? The counter shows it where the copy is old, and the copy where the counter is wrong.
fn somebody_waits(connection: &mut Connection) -> Result<bool> {
    let counted = connection.query("SHOW GLOBAL STATUS LIKE 'Innodb\\_row\\_lock\\_current\\_waits'")?;
    if !counted.rows.is_empty() && counted.text_at(0, 1).as_deref() != Some("0") {
        return Ok(true);
    }
    let waiting =
        connection.query("SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'")?;
    Ok(waiting.single_text().as_deref() != Some("0"))
}

/// Asks which session waits for which.
fn waits_query(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::MariaDb => {
            "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id FROM information_schema.INNODB_LOCK_WAITS w \
             JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id \
             JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id"
        }
        Vendor::MySql => {
            "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id FROM performance_schema.data_lock_waits w \
             JOIN information_schema.INNODB_TRX r ON r.trx_id = w.REQUESTING_ENGINE_TRANSACTION_ID \
             JOIN information_schema.INNODB_TRX b ON b.trx_id = w.BLOCKING_ENGINE_TRANSACTION_ID"
        }
    }
}

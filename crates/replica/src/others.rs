//! Definitions that others change on the replica while Spate runs: people, other programs.
//!
//! Spate reads definitions of tables once. A server counts the statements that change definitions, of all sessions together and of each
//! session. If the former count rises by more than those of Spate's own sessions, others have changed something. Looking costs one short
//! question, which Spate asks from time to time, when a batch begins.
//!
//! Settings of what row changes do are looked at, too: whether they fire triggers (MariaDB), and whether rows that are missing or there already
//! are errors.
//!
//! A change of which the server hears no statement (a file that is exchanged below it) is not noticed, nor is one that is made while a batch
//! is on its way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spate_archive::is_blind_to;
use spate_schedule::BatchBuilder;

use spate_connection::{Connection, Result, Vendor};

/// Between two looks: a question takes the server a fraction of a millisecond.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Counters that both vendors have of statements that may change how rows are to be applied.
const COUNTERS: [&str; 14] = [
    "Com_alter_db",
    "Com_alter_table",
    "Com_create_db",
    "Com_create_index",
    "Com_create_sequence",
    "Com_create_table",
    "Com_create_trigger",
    "Com_drop_db",
    "Com_drop_index",
    "Com_drop_sequence",
    "Com_drop_table",
    "Com_drop_trigger",
    "Com_rename_table",
    "Com_truncate",
];

/// How many of them Spate's applying sessions have executed.
#[derive(Debug, Default)]
pub struct OwnDefinitions {
    executed: AtomicU64,
    /// More were begun than are counted.
    is_behind: AtomicBool,
    /// A look is due, and cannot tell what is Spate's own.
    is_wanted: AtomicBool,
    /// What was counted of others for it.
    others: Mutex<Option<u64>>,
}

impl OwnDefinitions {
    /// A session is about to execute another.
    pub fn begin(&self) {
        self.is_behind.store(true, Ordering::Release);
    }

    /// True if all are counted that the sessions have executed.
    pub fn is_counted(&self) -> bool {
        !self.is_behind.load(Ordering::Acquire)
    }

    /// Counts those of Spate's sessions until now. (Statements of others beside them look like others': a few definitions are read once more
    /// than needed.)
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn count<'c>(&self, sessions: impl IntoIterator<Item = &'c mut Connection>) -> Result<()> {
        let mut executed = 0_u64;
        for session in sessions {
            executed = executed.wrapping_add(count(session, "SESSION")?);
        }
        self.executed.store(executed, Ordering::Release);
        self.is_behind.store(false, Ordering::Release);
        Ok(())
    }

    /// True if a look is due that needs a count of others'. It is asked once.
    pub fn take_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::AcqRel)
    }

    /// Counts others' for a look that is due, right after Spate's own were counted, by a session in which none came in between.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn count_others(&self, session: &mut Connection) -> Result<()> {
        let others = count(session, "GLOBAL")?.wrapping_sub(self.executed.load(Ordering::Acquire));
        *self.lock_others() = Some(others);
        Ok(())
    }

    fn lock_others(&self) -> MutexGuard<'_, Option<u64>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notices changes by others.
#[derive(Debug)]
pub struct Others<'a> {
    own: &'a OwnDefinitions,
    last: Look,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    others: u64,
    ways: Ways,
    at: Instant,
}

/// How a replica treats replayed rows otherwise than rows of its own users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ways {
    /// They fire triggers (MariaDB's slave_run_triggers_for_rbr).
    pub(crate) fires_triggers: bool,
    /// Rows that are missing are passed over, and rows that are there already are overwritten (MariaDB's slave_exec_mode=IDEMPOTENT), or the
    /// rest of an event with them is left out (slave_skip_errors), without a word: what becomes of a row depends on each of its changes, and on
    /// the events that they came in.
    pub(crate) is_forgiving: bool,
}

impl Ways {
    /// Has changes made as these ways need it.
    pub fn tell(self, builder: &mut BatchBuilder) {
        if self.fires_triggers {
            builder.fire_triggers();
        } else if self.is_forgiving {
            builder.never_fold();
        }
    }
}

/// Changes by others since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Noticed {
    /// Definitions of tables.
    pub definitions: bool,
    /// What row changes do now.
    pub ways: Ways,
}

impl<'a> Others<'a> {
    /// From what was executed until now on, on the server of `asking`.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn begin(asking: &mut Connection, own: &'a OwnDefinitions) -> Result<Others<'a>> {
        let look = look(asking, own)?;
        Ok(Others { own, last: look })
    }

    /// What row changes did on the replica when it was looked at last.
    pub fn ways(&self) -> Ways {
        self.last.ways
    }

    /// What others have changed since the last look. It asks the server only if that was long enough ago.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn look(&mut self, asking: &mut Connection) -> Result<Noticed> {
        if self.last.at.elapsed() < LOOK_EVERY || is_blind_to("others") {
            return Ok(Noticed::default());
        }
        let now = match self.own.lock_others().take() {
            Some(others) => Look { others, ways: ways(asking)?, at: Instant::now() },
            None if self.own.is_counted() => look(asking, self.own)?,
            None => {
                self.own.is_wanted.store(true, Ordering::Release);
                return Ok(Noticed::default());
            }
        };
        let last = std::mem::replace(&mut self.last, now);
        Ok(Noticed { definitions: now.others != last.others, ways: now.ways })
    }
}

fn look(asking: &mut Connection, own: &OwnDefinitions) -> Result<Look> {
    // Statements that the applier executes between the two count as others' once, and cost some questions.
    let executed = own.executed.load(Ordering::Acquire);
    let all = count(asking, "GLOBAL")?;
    let ways = ways(asking)?;
    Ok(Look { others: all.wrapping_sub(executed), ways, at: Instant::now() })
}

fn ways(connection: &mut Connection) -> Result<Ways> {
    // MySQL has had the name of the one since 8.0.26, and its replay does not go by the mode.
    let settings = connection.query(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
         ('slave_run_triggers_for_rbr', 'slave_exec_mode', 'slave_skip_errors', 'replica_skip_errors')",
    )?;
    let vendor = connection.server_version().vendor;
    let is_not = |name: &str, usual: &str| {
        let named = (0..settings.rows.len()).filter(|&row| settings.text_at(row, 0).as_deref() == Some(name));
        named.into_iter().any(|row| settings.text_at(row, 1).is_some_and(|value| value != usual))
    };
    let skips = is_not("slave_skip_errors", "OFF") || is_not("replica_skip_errors", "OFF");
    Ok(Ways {
        fires_triggers: is_not("slave_run_triggers_for_rbr", "NO"),
        is_forgiving: skips || vendor == Vendor::MariaDb && is_not("slave_exec_mode", "STRICT"),
    })
}

fn count(connection: &mut Connection, scope: &str) -> Result<u64> {
    // The session for definitions is in the state of one of the source's: without this, the texts may be of a character set that cannot be compared
    // with the variables' names.
    let names = COUNTERS.map(|name| format!("_latin1'{name}'")).join(",");
    let rows = connection.query(&format!("SHOW {scope} STATUS WHERE Variable_name IN ({names})"))?;
    let counted = (0..rows.rows.len()).filter_map(|row| rows.text_at(row, 1)?.parse::<u64>().ok());
    Ok(counted.sum())
}

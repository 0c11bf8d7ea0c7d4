//! Definitions that others change on the replica while Spate runs: people, other programs.
//!
//! What Spate knows of tables it has read once. A server counts the statements that change definitions, of all sessions together and of each
//! session; what is in the one count and not in those of Spate's own sessions, others have done. Looking costs one short question, so it
//! is asked from time to time, when a batch begins.
//!
//! MariaDB's setting whether row changes fire triggers is looked at, too.
//!
//! A change of which the server hears no statement (a file that is exchanged below it) is not noticed, nor is one that is made while a batch
//! is on its way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spate_archive::is_blind_to;

use crate::wire::{Connection, Result, Vendor};

/// Between two looks: a question takes the server a fraction of a millisecond.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What both vendors count of the statements that may change how rows are to be applied. (Each counts more than it has of these.)
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

/// What Spate's applying session has executed of them.
#[derive(Debug, Default)]
pub(crate) struct OwnDefinitions {
    executed: AtomicU64,
}

impl OwnDefinitions {
    /// Counts what the session has executed until now. (What sessions beside it do looks like others': a few definitions are read once more than
    /// needed.)
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn count(&self, session: &mut Connection) -> Result<()> {
        self.executed.store(count(session, "SESSION")?, Ordering::Release);
        Ok(())
    }
}

/// Notices what others do.
#[derive(Debug)]
pub(crate) struct Others<'a> {
    own: &'a OwnDefinitions,
    last: Look,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    others: u64,
    fires_triggers: bool,
    at: Instant,
}

/// What others have changed since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Noticed {
    pub(crate) definitions: bool,
    /// Row changes fire triggers now.
    pub(crate) fires_triggers: bool,
}

impl<'a> Others<'a> {
    /// From what was executed until now on, on the server of `asking`.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn begin(asking: &mut Connection, own: &'a OwnDefinitions) -> Result<Others<'a>> {
        let look = look(asking, own)?;
        Ok(Others { own, last: look })
    }

    /// True if row changes fired triggers on the replica when it was looked at last.
    pub(crate) fn fires_triggers(&self) -> bool {
        self.last.fires_triggers
    }

    /// What others have changed since the last look. It asks the server only if that was long enough ago.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn look(&mut self, asking: &mut Connection) -> Result<Noticed> {
        if self.last.at.elapsed() < LOOK_EVERY || is_blind_to("others") {
            return Ok(Noticed::default());
        }
        let now = look(asking, self.own)?;
        let last = std::mem::replace(&mut self.last, now);
        Ok(Noticed { definitions: now.others != last.others, fires_triggers: now.fires_triggers })
    }
}

fn look(asking: &mut Connection, own: &OwnDefinitions) -> Result<Look> {
    // What the applier executes between the two is taken for others' once, and costs some questions.
    let executed = own.executed.load(Ordering::Acquire);
    let all = count(asking, "GLOBAL")?;
    let fires_triggers = fires_triggers(asking)?;
    Ok(Look { others: all.wrapping_sub(executed), fires_triggers, at: Instant::now() })
}

/// True if row changes fire triggers on the replica (MariaDB's slave_run_triggers_for_rbr).
///
/// # Errors
/// Any error of the connection.
fn fires_triggers(connection: &mut Connection) -> Result<bool> {
    if connection.server_version().vendor == Vendor::MySql {
        return Ok(false);
    }
    let setting = connection.query("SELECT @@GLOBAL.slave_run_triggers_for_rbr")?.single_text();
    Ok(setting.is_some_and(|setting| setting != "NO"))
}

fn count(connection: &mut Connection, scope: &str) -> Result<u64> {
    let names = COUNTERS.map(|name| format!("'{name}'")).join(",");
    let rows = connection.query(&format!("SHOW {scope} STATUS WHERE Variable_name IN ({names})"))?;
    let counted = (0..rows.rows.len()).filter_map(|row| rows.text_at(row, 1)?.parse::<u64>().ok());
    Ok(counted.sum())
}

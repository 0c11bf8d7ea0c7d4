//! The named lock of the one session that applies, and what becomes of it when a connection dies on one side only.
//!
//! The lock belongs to a session of the replica's server. If the network swallows the connection, the server may not notice
//! for hours: the session stays, and with it the lock. Two things end it:
//! - *this* process comes back on a new connection: it recognises the session as its own, by a second lock whose name no
//!   other process has, and ends it;
//! - *another* process, on another machine, wants to take over: a session that says nothing for [`IDLE_SECONDS_MAX`] is ended
//!   by the server itself, and one that is alive says something every [`PING_EVERY`].
//!
//! Some things are executed in sessions beside that one: notes, and parts of XA transactions. Each holds a lock of its own, and
//! whoever has taken the applier's lock first ends those that an earlier applier left: they may still be at something that
//! the note they left says is yet to be done.
//!
//! Either way the server has rolled back or committed what the session was at before it gives the lock away, so whoever holds
//! the lock reads a checkpoint that nobody else will move.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::time::Duration;

use crate::checkpoint;
use crate::error::{Error, Result};
use crate::verify::hold::APPLIER_LOCK;
use crate::wire::{Connection, quote};

/// The server ends an applier's session that is silent for this long.
const IDLE_SECONDS_MAX: u64 = 60;

/// How often an applier without work says something: four times before its silence would end it.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(IDLE_SECONDS_MAX / 4);

/// How long to wait for the end of a session that was told to end.
const END_WAIT_SECONDS: u32 = 10;

/// A session beside the one that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// For notes, and for what ends an XA transaction.
    Journal,
    /// Inside an XA transaction.
    Branch,
}

impl Beside {
    fn lock_name(self) -> String {
        match self {
            Beside::Journal => quote::text(&format!("{APPLIER_LOCK}.journal")),
            Beside::Branch => quote::text(&format!("{APPLIER_LOCK}.branch")),
        }
    }

    /// Takes the lock of such a session for this one; it ends with the session.
    ///
    /// # Errors
    /// [`Error::Locked`] if another session holds it; any error of the connection.
    pub(crate) fn take(self, connection: &mut Connection) -> Result<()> {
        let name = self.lock_name();
        let taken = connection.query(&format!("SELECT GET_LOCK({name}, {END_WAIT_SECONDS})"))?;
        if taken.single_text().as_deref() == Some("1") {
            return Ok(());
        }
        let holder = connection.query(&format!("SELECT IS_USED_LOCK({name})"))?.single_text();
        let replica = connection.peer().to_string();
        Err(Error::Locked { replica, holder: holder.unwrap_or_else(|| "unknown".to_owned()) })
    }

    /// Ends the session that an earlier applier left.
    fn end(self, connection: &mut Connection) -> Result<()> {
        let name = self.lock_name();
        if let Some(holder) = connection.query(&format!("SELECT IS_USED_LOCK({name})"))?.single_text() {
            end_session(connection, &holder);
        }
        self.take(connection)?;
        connection.query(&format!("SELECT RELEASE_LOCK({name})"))?;
        Ok(())
    }
}

/// Takes the lock for this session, ending a session of this same process that still has it.
///
/// # Errors
/// [`crate::Error::Locked`] if another process holds it; any error of the connection.
pub(crate) fn take(connection: &mut Connection) -> Result<()> {
    let own = quote::text(own_name());
    let applier = quote::text(APPLIER_LOCK);
    let holder = connection
        .query(&format!("SELECT IF(IS_USED_LOCK({applier}) = IS_USED_LOCK({own}), IS_USED_LOCK({own}), NULL)"))?;
    if let Some(abandoned) = holder.single_text() {
        end_session(connection, &abandoned);
    }
    checkpoint::lock(connection)?;
    Beside::Journal.end(connection)?;
    Beside::Branch.end(connection)?;
    connection.query(&format!("SELECT GET_LOCK({own}, 10)"))?;
    connection.execute(format!("SET SESSION wait_timeout={IDLE_SECONDS_MAX}").as_bytes())?;
    Ok(())
}

fn end_session(connection: &mut Connection, id: &str) {
    // It may end by itself at just this moment.
    let _ended = connection.execute(format!("KILL CONNECTION {id}").as_bytes());
}

/// A name that no other process has.
fn own_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let (one, other) = (RandomState::new().hash_one(1), RandomState::new().hash_one(2));
        format!("{APPLIER_LOCK}.{one:016x}{other:016x}")
    })
}

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
//! Statements of the source run in the session that applies, and may release its locks. So before it commits what they did, it takes
//! again what is missing ([`ApplierLock::keep`]), and a batch commits only if the checkpoint is still where it began.
//!
//! Either way the server has rolled back or committed what the session was at before it gives the lock away, so whoever holds
//! the lock reads a checkpoint that nobody else will move.

use std::sync::OnceLock;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::lock_names::{self, LockNames};
use crate::wire::{Connection, quote};

/// The server ends an applier's session that is silent for this long.
const IDLE_SECONDS_MAX: u64 = 60;

/// How often an applier without work says something: four times before its silence would end it.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(IDLE_SECONDS_MAX / 4);

/// How long to wait for a lock: after a crash the server may still be ending the old session, and its last commit.
const WAIT_SECONDS: u32 = 10;

/// The locks of the sessions that apply to one replica.
#[derive(Debug, Clone)]
pub(crate) struct ApplierLock {
    names: LockNames,
}

/// A session beside the one that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// For notes, and for what ends an XA transaction.
    Journal,
    /// Inside an XA transaction.
    Branch,
}

impl ApplierLock {
    /// Takes the lock for this session, ending a session of this same process that still has it. Spate's own tables must be there.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it; any error of the connection.
    pub(crate) fn take(connection: &mut Connection) -> Result<ApplierLock> {
        let lock = ApplierLock { names: LockNames::make(connection)? };
        let (own, applier) = (own_name(), lock.names.applier());
        let holder = connection
            .query(&format!("SELECT IF(IS_USED_LOCK({applier}) = IS_USED_LOCK({own}), IS_USED_LOCK({own}), NULL)"))?;
        if let Some(abandoned) = holder.single_text() {
            end_session(connection, &abandoned);
        }
        take(connection, &applier, WAIT_SECONDS)?;
        lock.end_beside(Beside::Journal, connection)?;
        lock.end_beside(Beside::Branch, connection)?;
        take(connection, &own, WAIT_SECONDS)?;
        connection.execute(format!("SET SESSION wait_timeout={IDLE_SECONDS_MAX}").as_bytes())?;
        Ok(lock)
    }

    /// Takes again, for the session that applies, what a statement of the source has released.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has taken it meanwhile; any error of the connection.
    pub(crate) fn keep(&self, connection: &mut Connection) -> Result<()> {
        keep(connection, &self.names.applier())?;
        keep(connection, &own_name())
    }

    /// Takes the lock of a session beside the one that applies for this one; it ends with the session.
    ///
    /// # Errors
    /// [`Error::Locked`] if another session holds it; any error of the connection.
    pub(crate) fn take_beside(&self, beside: Beside, connection: &mut Connection) -> Result<()> {
        take(connection, &self.name(beside), WAIT_SECONDS)
    }

    /// As [`ApplierLock::keep`], for a session beside the one that applies.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn keep_beside(&self, beside: Beside, connection: &mut Connection) -> Result<()> {
        keep(connection, &self.name(beside))
    }

    /// Ends the session that an earlier applier left.
    fn end_beside(&self, beside: Beside, connection: &mut Connection) -> Result<()> {
        let name = self.name(beside);
        if let Some(holder) = connection.query(&format!("SELECT IS_USED_LOCK({name})"))?.single_text() {
            end_session(connection, &holder);
        }
        take(connection, &name, WAIT_SECONDS)?;
        connection.query(&format!("SELECT RELEASE_LOCK({name})"))?;
        Ok(())
    }

    fn name(&self, beside: Beside) -> String {
        match beside {
            Beside::Journal => self.names.journal(),
            Beside::Branch => self.names.branch(),
        }
    }
}

/// Takes a lock for this session; `name` is quoted.
fn take(connection: &mut Connection, name: &str, wait_seconds: u32) -> Result<()> {
    let answer = connection.query(&format!("SELECT GET_LOCK({name}, {wait_seconds})"))?;
    if answer.single_text().as_deref() == Some("1") {
        return Ok(());
    }
    let holder = connection.query(&format!("SELECT IS_USED_LOCK({name})"))?.single_text();
    let replica = connection.peer().to_string();
    Err(Error::Locked { replica, holder: holder.unwrap_or_else(|| "unknown".to_owned()) })
}

/// Takes a lock if this session has it no more. Taken twice, it would have to be released twice.
fn keep(connection: &mut Connection, name: &str) -> Result<()> {
    let is_held = connection.query(&format!("SELECT IS_USED_LOCK({name}) = CONNECTION_ID()"))?;
    if is_held.single_text().as_deref() == Some("1") { Ok(()) } else { take(connection, name, 0) }
}

fn end_session(connection: &mut Connection, id: &str) {
    // It may end by itself at just this moment.
    let _ended = connection.execute(format!("KILL CONNECTION {id}").as_bytes());
}

/// A name that no other process has, quoted.
fn own_name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    quote::text(NAME.get_or_init(|| format!("spate.process.{}", lock_names::random())))
}

//! The named lock of the one session that applies, and what becomes of it when a connection dies on one side only.
//!
//! The lock belongs to a session of the replica's server. If the network swallows the connection, the server may not notice
//! for hours: the session stays, and with it the lock. Two things end it:
//! - *this* process comes back on a new connection: it recognises the session as its own, by a second lock whose name no
//!   other process has, and ends it;
//! - *another* process, on another machine, wants to take over: a session that says nothing for [`IDLE_SECONDS_MAX`] is ended
//!   by the server itself, and one that is alive says something every [`PING_EVERY`].
//!
//! Either way the server has rolled back or committed what the session was at before it gives the lock away, so whoever holds
//! the lock reads a checkpoint that nobody else will move.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::time::Duration;

use crate::checkpoint;
use crate::error::Result;
use crate::verify::hold::APPLIER_LOCK;
use crate::wire::{Connection, quote};

/// The server ends an applier's session that is silent for this long.
const IDLE_SECONDS_MAX: u64 = 60;

/// How often an applier without work says something: four times before its silence would end it.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(IDLE_SECONDS_MAX / 4);

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
        // It may end by itself at just this moment.
        let _ended = connection.execute(format!("KILL CONNECTION {abandoned}").as_bytes());
    }
    checkpoint::lock(connection)?;
    connection.query(&format!("SELECT GET_LOCK({own}, 10)"))?;
    connection.execute(format!("SET SESSION wait_timeout={IDLE_SECONDS_MAX}").as_bytes())?;
    Ok(())
}

/// A name that no other process has.
fn own_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let (one, other) = (RandomState::new().hash_one(1), RandomState::new().hash_one(2));
        format!("{APPLIER_LOCK}.{one:016x}{other:016x}")
    })
}

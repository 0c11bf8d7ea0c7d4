//! The comparison's side of a hold; [`spate_replica::hold_request`] describes the steps.

use spate_binlog::GtidPosition;
use spate_connection::{Connection, quote};
use spate_replica::lock_names::LockNames;

use super::error::{Error, Result};

pub(super) fn parse_position(text: &str) -> Result<GtidPosition> {
    text.parse().map_err(|error| Error::Position { text: text.to_owned(), error })
}

/// A hold that this comparison has requested on the replica.
///
/// Dropping it without [`Hold::release`] removes the request too, if the connection still works; otherwise the request
/// expires.
pub(super) struct Hold<'a> {
    replica: &'a mut Connection,
    /// The name of the comparison's lock, quoted.
    lock: String,
    is_held: bool,
}

impl<'a> Hold<'a> {
    /// Asks the applier to stop now.
    ///
    /// The session should not log, because the request is no part of the source's history. Without the privilege for
    /// that, the replica's own binlog contains the request, which does no harm.
    pub(super) fn request_stop(replica: &'a mut Connection) -> Result<Hold<'a>> {
        let lock = LockNames::make(replica)?.verify();
        let is_taken = replica.query(&format!("SELECT GET_LOCK({lock}, 0)"))?;
        if is_taken.single_text().as_deref() != Some("1") {
            return Err(Error::Busy);
        }
        let mut hold = Hold { replica, lock, is_held: false };
        hold.replica.execute(
            b"REPLACE INTO spate.hold (id, token, until_position, heartbeat) VALUES (1, UUID_SHORT(), NULL, UTC_TIMESTAMP(6))",
        )?;
        hold.is_held = true;
        Ok(hold)
    }

    /// True if the applier has stopped.
    pub(super) fn is_acknowledged(&mut self) -> Result<bool> {
        let answer = self.replica.query("SELECT acknowledged_token = token FROM spate.hold WHERE id = 1")?;
        Ok(answer.single_text().as_deref() == Some("1"))
    }

    /// Lets the applier continue to a position.
    pub(super) fn allow_until(&mut self, position: &GtidPosition) -> Result<()> {
        let sql = format!(
            "UPDATE spate.hold SET until_position = {}, token = UUID_SHORT(), heartbeat = UTC_TIMESTAMP(6) WHERE id = 1",
            quote::text(&position.to_string())
        );
        self.replica.execute(sql.as_bytes())?;
        Ok(())
    }

    /// Renews the heartbeat, so that the request does not expire.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.replica.execute(b"UPDATE spate.hold SET heartbeat = UTC_TIMESTAMP(6) WHERE id = 1")?;
        Ok(())
    }

    /// The connection, for other queries during the hold.
    pub(super) fn replica(&mut self) -> &mut Connection {
        self.replica
    }

    /// Ends the hold: the applier continues.
    pub(super) fn release(mut self) -> Result<()> {
        self.is_held = false;
        let sql = format!("DELETE FROM spate.hold WHERE id = 1; DO RELEASE_LOCK({})", self.lock);
        self.replica.execute(sql.as_bytes())?;
        Ok(())
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if self.is_held {
            // The comparison has failed. If this statement fails too, the request expires.
            let _ignored = self.replica.execute(b"DELETE FROM spate.hold WHERE id = 1");
        }
    }
}

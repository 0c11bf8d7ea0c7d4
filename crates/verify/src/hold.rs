//! A comparison's own side of its request to an applier to wait: see [`spate_replica::hold_request`] for the steps.

use spate_binlog::GtidPosition;
use spate_connection::{Connection, quote};
use spate_replica::lock_names::LockNames;

use super::error::{Error, Result};

pub(super) fn parse_position(text: &str) -> Result<GtidPosition> {
    text.parse().map_err(|error| Error::Position { text: text.to_owned(), error })
}

/// Verify's side: a request on the replica. Dropped without [`Hold::release`] it is taken back all the same, as far as the
/// connection still carries, and otherwise by its age.
pub(super) struct Hold<'a> {
    replica: &'a mut Connection,
    /// The name of the comparison's lock, quoted.
    lock: String,
    is_held: bool,
}

impl<'a> Hold<'a> {
    /// True if an applier is at work on the replica.
    pub(super) fn is_applier_present(replica: &mut Connection) -> Result<bool> {
        let Some(names) = LockNames::read(replica)? else { return Ok(false) };
        let holder = replica.query(&format!("SELECT IS_USED_LOCK({})", names.applier()))?;
        Ok(holder.single_text().is_some())
    }

    /// Asks the applier to stop now. The session should not log, as the request is no part of the source's history; if it
    /// may not refrain, the request lands in the replica's own binlog, which is untidy and no more.
    pub(super) fn stop_now(replica: &'a mut Connection) -> Result<Hold<'a>> {
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

    /// Lets the applier go on to a position.
    pub(super) fn run_until(&mut self, position: &GtidPosition) -> Result<()> {
        let sql = format!(
            "UPDATE spate.hold SET until_position = {}, token = UUID_SHORT(), heartbeat = UTC_TIMESTAMP(6) WHERE id = 1",
            quote::text(&position.to_string())
        );
        self.replica.execute(sql.as_bytes())?;
        Ok(())
    }

    /// Says that we are still here.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.replica.execute(b"UPDATE spate.hold SET heartbeat = UTC_TIMESTAMP(6) WHERE id = 1")?;
        Ok(())
    }

    /// The connection, for the questions that have to be asked meanwhile.
    pub(super) fn replica(&mut self) -> &mut Connection {
        self.replica
    }

    /// Lets the applier go on.
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
            // On the way out with an error; if this fails too, the request expires.
            let _expires = self.replica.execute(b"DELETE FROM spate.hold WHERE id = 1");
        }
    }
}

//! Moves the checkpoint of the replica as a whole behind what all appliers have committed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use spate_archive::stopping_point;
use spate_connection::Connection;
use spate_replica::applier_lock::PING_EVERY;
use spate_replica::{Error, Result};

use super::Board;
use crate::answers::refused_checkpoint;

/// How often to look whether the session is over.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Moves the checkpoint.
#[derive(Debug)]
pub(crate) struct Keeper<'a> {
    pub(crate) board: &'a Board<'a>,
    /// The divider's, too.
    pub(crate) connection: &'a Mutex<Connection>,
}

impl Keeper<'_> {
    /// Runs until all is committed, or somebody fails.
    pub(crate) fn run(self) {
        if let Err(error) = self.keep() {
            self.board.fail(error);
        }
    }

    fn keep(&self) -> Result<()> {
        let mut answered = Instant::now();
        while !self.board.is_over() {
            let sealable = self.board.wait_sealable(LOOK_EVERY);
            if sealable.is_none() && answered.elapsed() < PING_EVERY {
                continue;
            }
            let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            answered = Instant::now();
            let Some((from, to)) = sealable else {
                connection.execute(b"DO 0")?;
                continue;
            };
            stopping_point("before-seal");
            let moved = connection.execute(to.update_sql(&from).as_bytes());
            moved.map_err(|error| refused_checkpoint(error, connection.peer(), Error::from))?;
            stopping_point("after-seal");
            self.board.sealed(&to);
        }
        Ok(())
    }
}

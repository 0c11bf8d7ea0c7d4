//! The server's own replication as a contender.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use mysql::Row;

use crate::contender::NativeMode;
use crate::sandbox::{ACCOUNT, Sandbox};
use crate::sql::Session;
use crate::{Error, Result};

/// One wait for the end position, after which progress and errors are looked at.
const WAIT_SECONDS: f64 = 0.5;

/// A replica that is set up to follow a source by itself.
pub struct NativeReplication<'a> {
    name: &'a str,
    session: Session,
    end: &'a str,
    limit: Duration,
}

impl<'a> NativeReplication<'a> {
    /// Points `replica` at `source` and sets its appliers; nothing runs yet.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn prepare(
        name: &'a str,
        (threads, mode): (u32, NativeMode),
        source: &Sandbox,
        password: &str,
        replica: &Sandbox,
        end: &'a str,
        limit: Duration,
    ) -> Result<NativeReplication<'a>> {
        let mut session = replica.connect()?;
        session.run(&format!("SET GLOBAL slave_parallel_threads = {threads}"))?;
        session.run(&format!("SET GLOBAL slave_parallel_mode = '{mode}'"))?;
        session.run(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = '{ACCOUNT}',
             MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_PASSWORD = '{password}'",
            source.port()
        ))?;
        Ok(NativeReplication { name, session, end, limit })
    }

    /// Fetches the whole backlog into the relay log, without applying any of it.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::ReplicationStopped`], [`Error::TimedOut`].
    pub fn receive(&mut self) -> Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        self.session.run("START SLAVE IO_THREAD")?;
        let begun = Instant::now();
        while self.status_text("Gtid_IO_Pos")?.as_deref() != Some(self.end) {
            self.check_errors()?;
            self.check_limit(begun, "fetching the backlog")?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Starts whatever does not run yet, and waits until the end position is applied. The bar follows the sequence number
    /// of the applied GTID.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::ReplicationStopped`]; [`Error::TimedOut`], which says how far it came.
    pub fn apply(&mut self, bar: &ProgressBar) -> Result<Duration> {
        let wait = format!("SELECT MASTER_GTID_WAIT('{}', {WAIT_SECONDS})", self.end);
        let begun = Instant::now();
        self.session.run("START SLAVE")?;
        while self.session.value::<i64>(&wait)? != 0 {
            self.check_errors()?;
            let position: String = self.session.value("SELECT @@GLOBAL.gtid_slave_pos")?;
            bar.set_position(sequence(&position));
            self.check_limit(begun, &format!("catching up (it came to {position} of {})", self.end))?;
        }
        Ok(begun.elapsed())
    }

    /// Fetches and applies from now on.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn follow(&mut self) -> Result<()> {
        self.session.run("START SLAVE")
    }

    /// Stops fetching and applying.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn stop(&mut self) -> Result<()> {
        self.session.run("STOP SLAVE")
    }

    /// An error if replication has stopped with one.
    ///
    /// # Errors
    /// [`Error::ReplicationStopped`], [`Error::Sql`].
    pub fn check_errors(&mut self) -> Result<()> {
        for column in ["Last_SQL_Error", "Last_IO_Error"] {
            if let Some(why) = self.status_text(column)?.filter(|why| !why.is_empty()) {
                return Err(Error::ReplicationStopped { contender: self.name.to_owned(), why });
            }
        }
        Ok(())
    }

    fn check_limit(&self, begun: Instant, what: &str) -> Result<()> {
        if begun.elapsed() <= self.limit {
            return Ok(());
        }
        Err(Error::TimedOut {
            what: format!("{}: {what}", self.name),
            limit: self.limit,
            advice: "--limit-seconds allows more".into(),
        })
    }

    fn status_text(&mut self, column: &str) -> Result<Option<String>> {
        let row: Option<Row> = self.session.first_row("SHOW SLAVE STATUS")?;
        Ok(row.and_then(|row| row.get_opt::<String, _>(column)).and_then(|value| value.ok()))
    }
}

/// The sequence number of a position with one domain; 0 if there is none.
pub fn sequence(position: &str) -> u64 {
    position.rsplit('-').next().and_then(|sequence| sequence.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_last_number() {
        assert_eq!(sequence("0-1-42"), 42);
        assert_eq!(sequence(""), 0);
    }
}

//! The server's own replication as a contender.

mod mariadb;
mod mysql;

use std::time::{Duration, Instant};

use ::mysql::Row;
use indicatif::ProgressBar;

use crate::contender::NativeMode;
use crate::position::transactions;
use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::vendor::Vendor;
use crate::{Error, Result};

/// One wait for the end position, after which progress and errors are looked at.
const WAIT_SECONDS: f64 = 0.5;

/// How a vendor's server is told to replicate. Positions are the vendor's own.
trait Dialect {
    /// Sets the number of appliers and how they find what may run in parallel.
    fn set_appliers(&self, threads: u32, mode: NativeMode) -> Vec<String>;
    /// Names the source; nothing runs yet.
    fn name_source(&self, port: u16, password: &str) -> String;
    /// Starts to receive, without applying.
    fn start_receiver(&self) -> &'static str;
    /// Starts whatever does not run yet.
    fn start(&self) -> &'static str;
    /// Stops all.
    fn stop(&self) -> &'static str;
    /// Shows one row of what it does, with the columns `Last_SQL_Error` and `Last_IO_Error`.
    fn status(&self) -> &'static str;
    /// The columns of the status that say whether the applier runs, and the receiver.
    fn running_columns(&self) -> [&'static str; 2];
    /// The column of the status that says what was received.
    fn received_column(&self) -> &'static str;
    /// Is the position received, by what that column says?
    fn has_received(&self, session: &mut Session, received: &str, end: &str) -> Result<bool>;
    /// Waits so many seconds for a position; the answer is 0 if it is applied.
    fn wait(&self, end: &str, seconds: f64) -> String;
}

fn dialect(vendor: Vendor) -> &'static dyn Dialect {
    match vendor {
        Vendor::MariaDb => &mariadb::MariaDb,
        Vendor::MySql => &mysql::MySql,
    }
}

/// The server's own replication, as it says itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct NativeState {
    /// The applied position.
    pub(crate) position: String,
    /// Why it stopped, if it has.
    pub(crate) error: Option<String>,
    /// It has not stopped, but waits for what it will not get.
    pub(crate) stands_still: bool,
}

/// Lets `replica` follow `source` from where it stands.
pub(crate) fn begin_to_follow(source: &Sandbox, password: &str, replica: &Sandbox) -> Result<()> {
    let (dialect, mut session) = (dialect(replica.vendor()), replica.connect()?);
    session.run(&dialect.name_source(source.port(), password))?;
    session.run(dialect.start())
}

/// How far a replica's own replication is, asked over `session`.
pub(crate) fn state(vendor: Vendor, session: &mut Session) -> Result<NativeState> {
    let dialect = dialect(vendor);
    let position = vendor.applied_position(session)?;
    let row = session.first_row(dialect.status())?;
    let text = |column: &str| {
        let row = row.as_ref()?;
        row.get_opt::<Option<String>, _>(column)?.ok()?
    };
    let stopped = |thread: &str, error: &str| {
        (text(thread).as_deref() == Some("No")).then(|| text(error).unwrap_or_default()).filter(|why| !why.is_empty())
    };
    let [applier, receiver] = dialect.running_columns();
    let error = stopped(applier, "Last_SQL_Error").or_else(|| stopped(receiver, "Last_IO_Error"));
    Ok(NativeState { position, error, stands_still: false })
}

/// A replica that is set up to follow a source by itself.
pub struct NativeReplication<'a> {
    name: &'a str,
    vendor: Vendor,
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
        let (vendor, mut session) = (replica.vendor(), replica.connect()?);
        let dialect = dialect(vendor);
        dialect.set_appliers(threads, mode).iter().try_for_each(|statement| session.run(statement))?;
        session.run(&dialect.name_source(source.port(), password))?;
        Ok(NativeReplication { name, vendor, session, end, limit })
    }

    /// Fetches the whole backlog into the relay log, without applying any of it.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::ReplicationStopped`], [`Error::TimedOut`].
    pub fn receive(&mut self) -> Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let dialect = dialect(self.vendor);
        self.session.run(dialect.start_receiver())?;
        let begun = Instant::now();
        loop {
            let received = self.status_text(dialect.received_column())?.unwrap_or_default();
            if dialect.has_received(&mut self.session, &received, self.end)? {
                return Ok(());
            }
            self.check_errors()?;
            self.check_limit(begun, "fetching the backlog")?;
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Starts whatever does not run yet, and waits until the end position is applied. The bar follows the number of
    /// applied transactions.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::ReplicationStopped`]; [`Error::TimedOut`], which says how far it came.
    pub fn apply(&mut self, bar: &ProgressBar) -> Result<Duration> {
        let wait = dialect(self.vendor).wait(self.end, WAIT_SECONDS);
        let begun = Instant::now();
        self.follow()?;
        while self.session.value::<i64>(&wait)? != 0 {
            self.check_errors()?;
            let position = self.vendor.applied_position(&mut self.session)?;
            bar.set_position(transactions(&position));
            self.check_limit(begun, &format!("catching up (it came to {position} of {})", self.end))?;
        }
        Ok(begun.elapsed())
    }

    /// Fetches and applies from now on.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn follow(&mut self) -> Result<()> {
        self.session.run(dialect(self.vendor).start())
    }

    /// Stops fetching and applying.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn stop(&mut self) -> Result<()> {
        self.session.run(dialect(self.vendor).stop())
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
        let row: Option<Row> = self.session.first_row(dialect(self.vendor).status())?;
        Ok(row.and_then(|row| row.get_opt::<String, _>(column)).and_then(|value| value.ok()))
    }
}

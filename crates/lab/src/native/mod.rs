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

/// Duration of one wait for the end position; between two waits the laboratory checks progress and errors.
const WAIT_SECONDS: f64 = 0.5;

/// A vendor's statements that control replication. Positions are in the vendor's format.
trait Dialect {
    /// Sets the number of appliers and their mode of parallel replication.
    fn set_appliers(&self, threads: u32, mode: NativeMode) -> Vec<String>;
    /// Sets the source, without starting replication.
    fn name_source(&self, port: u16, password: &str) -> String;
    /// Has a replica apply each transaction so many seconds after its commit on the source.
    fn delay(&self, seconds: u32) -> String;
    /// Starts to receive, without applying.
    fn start_receiver(&self) -> &'static str;
    /// Starts the threads that do not run yet.
    fn start(&self) -> &'static str;
    /// Stops replication.
    fn stop(&self) -> &'static str;
    /// Shows the status in one row, with the columns `Last_SQL_Error` and `Last_IO_Error`.
    fn status(&self) -> &'static str;
    /// The columns of the status that show whether the applier and the receiver run.
    fn running_columns(&self) -> [&'static str; 2];
    /// The column of the status with the received position.
    fn received_column(&self) -> &'static str;
    /// True if that column shows that the position has been received.
    fn has_received(&self, session: &mut Session, received: &str, end: &str) -> Result<bool>;
    /// Waits this many seconds for a position; the answer is 0 if it is applied.
    fn wait(&self, end: &str, seconds: f64) -> String;
}

fn dialect(vendor: Vendor) -> &'static dyn Dialect {
    match vendor {
        Vendor::MariaDb => &mariadb::MariaDb,
        Vendor::MySql => &mysql::MySql,
    }
}

/// The statements that set the number of appliers and their mode.
pub(crate) fn applier_statements(vendor: Vendor, threads: u32, mode: NativeMode) -> Vec<String> {
    dialect(vendor).set_appliers(threads, mode)
}

/// Whose advice the settings of native replication are.
pub(crate) fn advice(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::MariaDb => {
            "native replication is set as the MariaDB documentation advises under \"Parallel Replication\": the modes optimistic (the default) and conservative, \
             which both keep the order of commits (it does not advise aggressive, which `shards` measures too), and a larger slave_parallel_max_queued, so that one long transaction does not stop the reading"
        }
        Vendor::MySql => {
            "native replication is set as the MySQL Reference Manual advises under \"Replica Server Options and Variables\" and \"Binary Logging Options and \
             Variables\": dependencies by write sets, the order of commits kept (the default) or, as another contender, free"
        }
    }
}

/// The state of the server's own replication.
#[derive(Debug, Clone, Default)]
pub(crate) struct NativeState {
    /// The applied position.
    pub(crate) position: String,
    /// Why it stopped; `None` if it has not.
    pub(crate) error: Option<String>,
    /// True if it has not stopped, but waits without end.
    pub(crate) stands_still: bool,
}

/// Lets `replica` follow `source` from its own position, so many seconds later.
pub(crate) fn begin_to_follow(source: &Sandbox, password: &str, replica: &Sandbox, delay_seconds: u32) -> Result<()> {
    let (dialect, mut session) = (dialect(replica.vendor()), replica.connect()?);
    session.run(&dialect.name_source(source.port(), password))?;
    session.run(&dialect.delay(delay_seconds))?;
    session.run(dialect.start())
}

/// Reads the state of a replica's own replication over `session`.
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

/// How many seconds behind its source the replica says that it is; `None` while it does not say.
pub(crate) fn seconds_behind(vendor: Vendor, session: &mut Session) -> Result<Option<u64>> {
    let row: Option<Row> = session.first_row(dialect(vendor).status())?;
    let text = |column: &str| row.as_ref()?.get_opt::<Option<u64>, _>(column)?.ok()?;
    Ok(text("Seconds_Behind_Master").or_else(|| text("Seconds_Behind_Source")))
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
    /// Sets the source of `replica` and its appliers, without starting replication.
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

    /// Starts the threads that do not run yet, and waits until the end position is applied. The bar shows the number of
    /// applied transactions.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::ReplicationStopped`]; [`Error::TimedOut`] with the position that it reached.
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

    /// Starts to fetch and apply.
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

    /// Checks that replication has not stopped with an error.
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

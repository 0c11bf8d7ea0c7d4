//! The applier's sessions on the replica: the one that applies and holds the lock, one for notes that are durable at once, and
//! one for each XA transaction that is being prepared.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use spate_binlog::Xid;

use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, ShutdownHandle, Vendor};
use spate_replica::applier_lock::{ApplierLock, Role};
use spate_replica::asking;
use spate_replica::choice::WantedDialect;
use spate_replica::dialect::session_settings;
use spate_replica::gtids::GtidKeeping;
use spate_replica::journal;
use spate_replica::others::OwnDefinitions;
use spate_replica::{Error, Result};

/// What needs a session that logs nothing.
const WITHOUT_BINLOG: &str = "keep its binlog off for a session";

/// How long to wait for the end of a session that prepared an XA transaction: only then can another end the transaction.
const DETACH_WAIT_MAX: Duration = Duration::from_secs(30);
const DETACH_LOOK_EVERY: Duration = Duration::from_millis(2);

/// A replica that does not answer a question of nothing for this long is taken to be gone, or out of reach. Long, since a
/// busy one is not to be taken for dead: its transaction would be rolled back, and begun again.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Ends connections from another thread, also those that are opened later.
#[derive(Debug)]
pub(crate) struct Ends(Mutex<Vec<ShutdownHandle>>);

impl Ends {
    /// Will end these connections.
    pub(crate) fn new(handles: impl IntoIterator<Item = ShutdownHandle>) -> Ends {
        Ends(Mutex::new(handles.into_iter().collect()))
    }

    /// Ends all.
    pub(crate) fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(ShutdownHandle::shutdown);
    }

    /// Will end this one, too.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn add(&self, connection: &Connection) -> Result<()> {
        let handle = connection.shutdown_handle()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }
}

/// How an applier's sessions are made.
#[derive(Debug, Clone, Copy)]
pub struct SessionMaker<'a> {
    /// Where the replica is.
    pub replica: &'a Endpoint,
    /// Keep what is applied out of the replica's own binlog.
    pub without_binlog: bool,
    /// How row changes are to be written.
    pub dialect: WantedDialect,
    /// Transactions keep the source's GTIDs: what Spate writes by itself has none that could meet them.
    pub keeps_gtids: bool,
}

impl SessionMaker<'_> {
    /// Connects, no more. Its statements may take any time.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn connect(&self) -> Result<Connection> {
        let options = ConnectOptions { local_files: true, ..ConnectOptions::new("replica") };
        Ok(asking::connect_to_apply(self.replica, &options)?)
    }

    /// Connects, for questions that every replica answers at once.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn connect_with_timeout(&self) -> Result<Connection> {
        let mut connection = self.connect()?;
        connection.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(connection)
    }

    /// Connects, and sets what every applier session sets.
    ///
    /// # Errors
    /// Any error of the connection; a missing privilege names the GRANT.
    pub(crate) fn open(&self) -> Result<Connection> {
        let mut connection = self.connect()?;
        self.set_up(&mut connection)?;
        Ok(connection)
    }

    /// Sets what every applier session sets.
    ///
    /// # Errors
    /// Any error of the connection; a missing privilege names the GRANT.
    pub(crate) fn set_up(&self, connection: &mut Connection) -> Result<()> {
        let settings = session_settings(connection.server_version());
        connection.execute(settings.as_bytes())?;
        if let Some(sql) =
            GtidKeeping::Source(connection.server_version().vendor).end_sql().filter(|_| self.keeps_gtids)
        {
            connection.execute(sql.as_bytes())?;
        }
        if self.without_binlog { asking::log_nothing(connection, WITHOUT_BINLOG) } else { Ok(()) }
    }

    /// Checks that the applier may keep a statement out of the replica's binlog.
    ///
    /// # Errors
    /// A missing privilege names the GRANT; any error of the connection.
    pub(crate) fn check_silence(&self, connection: &mut Connection) -> Result<()> {
        if !self.without_binlog {
            asking::log_nothing(connection, WITHOUT_BINLOG)?;
            connection.execute(b"SET SESSION sql_log_bin=1")?;
        }
        Ok(())
    }
}

/// How a session logs, and how that limits XA transactions that it prepares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logging {
    /// What it executes is logged.
    pub(crate) is_on: bool,
    /// XA transactions that it prepares would be rolled back by a crash of the server: MySQL finds out by its binlog, if it has one, which are to be kept.
    pub(crate) loses_prepared: bool,
    /// XA transactions may change rows at READ COMMITTED. Not if the session is to log statements, which would then not be safe.
    pub(crate) may_read_committed: bool,
}

impl Logging {
    /// Asks how this session logs, which is as all of the applier's do.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn ask(connection: &mut Connection) -> Result<Logging> {
        let vendor = connection.server_version().vendor;
        let rows = connection
            .query("SHOW SESSION VARIABLES WHERE Variable_name IN ('log_bin', 'sql_log_bin', 'binlog_format')")?;
        let settings: Vec<_> = (0..rows.rows.len()).map(|row| (rows.text_at(row, 0), rows.text_at(row, 1))).collect();
        let is = |name: &str, value: &str| {
            settings.iter().any(|(other, text)| other.as_deref() == Some(name) && text.as_deref() == Some(value))
        };
        let logs = is("log_bin", "ON") && is("sql_log_bin", "ON");
        Ok(Logging {
            is_on: logs,
            loses_prepared: vendor == Vendor::MySql && is("log_bin", "ON") && !logs,
            may_read_committed: !(logs && is("binlog_format", "STATEMENT")),
        })
    }
}

/// An error as the server should have reported it.
pub(crate) fn refusal(connection: &Connection, code: u16, message: String) -> spate_connection::Error {
    let error = spate_connection::ServerError { code, sql_state: String::new(), message, statement: 0 };
    spate_connection::Error::Server { peer: connection.peer().clone(), error }
}

pub(crate) struct Sessions<'a> {
    ends: &'a Ends,
    maker: SessionMaker<'a>,
    main: Connection,
    lock: ApplierLock,
    /// Opened when it is first needed.
    journal: Option<Connection>,
    /// Executes definitions, in the state of the source's sessions, and nothing else. Opened when it is first needed.
    definer: Option<Connection>,
    branch: Option<Connection>,
}

impl<'a> Sessions<'a> {
    /// Sessions beside `main`, which holds the lock.
    pub(crate) fn new(maker: SessionMaker<'a>, main: Connection, lock: ApplierLock, ends: &'a Ends) -> Sessions<'a> {
        Sessions { ends, maker, main, lock, journal: None, definer: None, branch: None }
    }

    fn open(&self) -> Result<Connection> {
        let connection = self.maker.open()?;
        self.ends.add(&connection)?;
        Ok(connection)
    }

    /// Takes the lock again in the session that applies: a statement of the source may have released it.
    ///
    /// # Errors
    /// [`Error::Locked`] if another session has taken it; any error of the connection.
    pub(crate) fn keep_lock(&mut self) -> Result<()> {
        self.lock.keep(Role::Main, &mut self.main)
    }

    /// The session that applies.
    pub(crate) fn main(&mut self) -> &mut Connection {
        &mut self.main
    }

    /// The session in which changes are executed now.
    pub(crate) fn current(&mut self) -> &mut Connection {
        self.branch.as_mut().unwrap_or(&mut self.main)
    }

    /// A session whose changes are durable at once.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn journal(&mut self) -> Result<&mut Connection> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => {
                let mut journal = self.open()?;
                self.lock.take_for(Role::Journal, &mut journal)?;
                journal
            }
        };
        Ok(self.journal.insert(journal))
    }

    /// The session for definitions.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn definer(&mut self) -> Result<&mut Connection> {
        let definer = match self.definer.take() {
            Some(definer) => definer,
            None => {
                let mut definer = self.open()?;
                let lock = self.lock.clone();
                lock.begin(Role::Definer, &mut definer, self.journal()?)?;
                definer
            }
        };
        Ok(self.definer.insert(definer))
    }

    /// Counts the definitions that the sessions have executed.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn count_definitions(&mut self, own: &OwnDefinitions) -> Result<()> {
        Ok(own.count(std::iter::once(&mut self.main).chain(&mut self.definer))?)
    }

    /// The same, and others', if a look at them is due. Nothing may be in flight.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn count_definitions_if_wanted(&mut self, own: &OwnDefinitions) -> Result<()> {
        if own.take_wanted() {
            self.count_definitions(own)?;
            own.count_others(&mut self.main)?;
        }
        Ok(())
    }

    /// Goes on in a session of its own, which begins with these statements.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn open_branch(&mut self, statements: &[Vec<u8>]) -> Result<()> {
        let mut branch = self.open()?;
        let lock = self.lock.clone();
        lock.begin(Role::Branch, &mut branch, self.journal()?)?;
        for sql in statements {
            branch.execute(sql)?;
        }
        self.branch = Some(branch);
        Ok(())
    }

    /// Adds to the branch's XA transaction the change that each has, since the server forgets a prepared one without any. If it has
    /// no other, it is begun again for that: rows that it has only looked at would stay locked with it, and neither the source
    /// nor a native replica locks them.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn mark_branch(&mut self, xid: &Xid) -> Result<()> {
        if let Some(branch) = &mut self.branch {
            self.lock.keep(Role::Branch, branch)?;
        }
        let branch = self.current();
        if !journal::has_changed_rows(branch)? {
            branch.execute(format!("XA END {xid};XA ROLLBACK {xid};XA START {xid}").as_bytes())?;
        }
        branch.execute(journal::prepare_sql(xid).as_bytes())?;
        Ok(())
    }

    /// Ends the branch's session, and waits until the server has ended it too.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] if the server does not end it; any error of the connection.
    pub(crate) fn close_branch(&mut self) -> Result<()> {
        let Some(branch) = self.branch.take() else { return Ok(()) };
        let id = branch.connection_id();
        drop(branch);
        let look = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
        let deadline = Instant::now() + DETACH_WAIT_MAX;
        while self.journal()?.query(&look)?.single_text().as_deref() != Some("0") {
            if Instant::now() > deadline {
                let why = format!("it does not end the session {id}, which has prepared an XA transaction");
                return Err(Error::Unsuitable { peer: self.main.peer().to_string(), why });
            }
            std::thread::sleep(DETACH_LOOK_EVERY);
        }
        Ok(())
    }
}

//! The client sessions of the source, all driven by one thread, statement by statement.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{Conn, LocalInfileHandler, OptsBuilder};

use super::step::{Action, FILES, Step};
use super::waits::WaitEnder;
use crate::sandbox::Sandbox;
use crate::vendor::Vendor;
use crate::{Error, Result};

/// No statement waits for another session, so one that takes this long hangs, and the driver drops its connection.
const STATEMENT_LIMIT: Duration = Duration::from_secs(30);

/// Accounts of sessions beside root: one with all privileges, and one that may only change rows and create programs.
pub(super) const CLIENTS: [&str; 2] = ["writer", "clerk"];

/// The outcome of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was executed.
    Done,
    /// The server refused it, with this error number. That is no fault.
    Failed(u16),
    /// The connection is lost, and the session's state with it.
    Lost,
}

/// The sessions.
pub(super) struct Driver {
    socket: PathBuf,
    files: PathBuf,
    /// Password of the accounts in [`CLIENTS`]; `None`: all sessions are root's.
    password: Option<String>,
    connections: Vec<Option<Conn>>,
    /// Kills statements that wait for locks; `None` if the server's options can prevent such waits.
    waits: Option<WaitEnder>,
}

impl Driver {
    pub(super) fn new(source: &Sandbox, files: &Path, password: Option<String>) -> Driver {
        let socket = source.socket();
        let waits = (source.vendor() == Vendor::MySql).then(|| WaitEnder::start(socket));
        Driver { socket: socket.to_owned(), files: files.to_owned(), password, connections: Vec::new(), waits }
    }

    /// A connection for a session, with the session's account.
    fn connect(&self, session: usize) -> Result<Conn> {
        let account = match &self.password {
            Some(password) if !session.is_multiple_of(CLIENTS.len() + 1) => {
                Some((CLIENTS[session % (CLIENTS.len() + 1) - 1], password.as_str()))
            }
            _ => None,
        };
        connect(&self.socket, &self.files, account)
    }

    /// Executes a step that is no failure.
    ///
    /// # Errors
    /// [`Error::Sql`] if the source accepts no connection, [`Error::File`].
    pub(super) fn execute(&mut self, step: &Step) -> Result<Outcome> {
        match &step.action {
            Action::Reconnect => {
                self.disconnect(step.session);
                Ok(Outcome::Lost)
            }
            Action::Failure(_) | Action::OnReplicas(_) => Ok(Outcome::Done),
            Action::Sql(sql) => self.run(step.session, sql),
            Action::Load { sql, file, content } => {
                let path = self.files.join(file);
                fs::write(&path, content).map_err(Error::file("write", &path))?;
                self.run(step.session, sql)
            }
        }
    }

    /// Ends all sessions, and waits until the source has ended them: it logs the drop of their temporary tables.
    pub(super) fn disconnect_all(&mut self) {
        (0..self.connections.len()).for_each(|session| self.disconnect(session));
    }

    /// Drops all connections: the server has crashed.
    pub(super) fn lose_all(&mut self) {
        self.connections.clear();
    }

    fn disconnect(&mut self, session: usize) {
        let Some(Some(connection)) = self.connections.get_mut(session).map(Option::take) else { return };
        // The server ends a session some time after its connection. The next step must come after that.
        let id = connection.connection_id();
        drop(connection);
        let Ok(mut observer) = connect(&self.socket, &self.files, None) else { return };
        let gone = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
        let deadline = std::time::Instant::now() + STATEMENT_LIMIT;
        while observer.query_first::<u64, _>(&gone).is_ok_and(|count| count != Some(0))
            && std::time::Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn run(&mut self, session: usize, sql: &str) -> Result<Outcome> {
        if self.connections.len() <= session {
            self.connections.resize_with(session + 1, || None);
        }
        let sql = sql.replace(FILES, &self.files.display().to_string());
        if self.connections[session].is_none() {
            self.connections[session] = Some(self.connect(session)?);
        }
        let Some(connection) = &mut self.connections[session] else { return Ok(Outcome::Lost) };
        let id = connection.connection_id();
        let outcome = match &self.waits {
            Some(waits) => waits.during(id, || connection.query_drop(&sql)),
            None => connection.query_drop(&sql),
        };
        match outcome {
            Ok(()) => Ok(Outcome::Done),
            Err(mysql::Error::MySqlError(error)) => Ok(Outcome::Failed(error.code)),
            Err(_) => {
                self.connections[session] = None;
                Ok(Outcome::Lost)
            }
        }
    }
}

fn connect(socket: &Path, files: &Path, account: Option<(&str, &str)>) -> Result<Conn> {
    let files = files.to_owned();
    let give = move |name: &[u8], stream: &mut mysql::LocalInfile<'_>| {
        let name = String::from_utf8_lossy(name).into_owned();
        // The name comes from the server: send only files of our directory.
        let name = Path::new(&name).file_name().unwrap_or_default();
        stream.write_all(&fs::read(files.join(name))?)
    };
    let options = OptsBuilder::new()
        .user(Some(account.map_or("root", |(user, _)| user)))
        .pass(account.map(|(_, password)| password))
        .socket(socket.to_str())
        .ip_or_hostname(Some("localhost"))
        .prefer_socket(true)
        .stmt_cache_size(0)
        .read_timeout(Some(STATEMENT_LIMIT))
        .local_infile_handler(Some(LocalInfileHandler::new(give)));
    Conn::new(options).map_err(|source| Error::Sql {
        server: "server 'source'".to_owned(),
        statement: format!("connect to {}", socket.display()),
        source: Box::new(source),
    })
}

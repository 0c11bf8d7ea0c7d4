//! One real database server in its own directory.
//!
//! Invariants: it reads no configuration of the machine (`--no-defaults`), listens on 127.0.0.1 at a port that the
//! kernel gave, and writes only below its directory. A server that belongs to this process ends with it; a detached one
//! runs until it is stopped through its recorded [`ProcessIdentity`].

mod launch;
mod pristine;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

pub(crate) use launch::free_port;
pub use launch::{dying_with_us, remove_socket_directory};
use launch::{socket_path, spawn};
pub use pristine::{pristine_data, random_password};

use crate::home::{copy_directory, create_private_directory};
use crate::process::ProcessIdentity;
use crate::server_options::ServerOptions;
use crate::sql::Session;
pub use crate::vendor::ACCOUNT;
use crate::vendor::Vendor;
use crate::version::ServerBinaries;
use crate::{Error, Result};

/// Time limit of a start, which may replay the redo log.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Time limit of one question to a server that starts. A node that joins its cluster meanwhile can lose a question, and never answers it.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Time limit of a clean stop, which writes the whole buffer pool.
const STOP_LIMIT: Duration = Duration::from_secs(300);
/// Attempts to find a port that no other program takes before the server binds it.
const PORT_ATTEMPTS: usize = 5;
/// The directory of programs that servers call, beside those of the servers.
pub(crate) const PROGRAMS: &str = "programs";
/// How much of an error log a message shows.
const SHOWN_LOG_BYTES: u64 = 2_000;

/// How long a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the [`Sandbox`] is dropped, or this process ends however it does.
    Ours,
    /// Until a command stops it, once it has been [left running](Sandbox::leave_running).
    Detached,
}

/// A running server.
#[derive(Debug)]
pub struct Sandbox {
    binaries: ServerBinaries,
    directory: PathBuf,
    socket: PathBuf,
    port: u16,
    process: ProcessIdentity,
    /// `None` for a server that another process started.
    child: Option<Child>,
    lifetime: Lifetime,
}

impl Sandbox {
    /// Starts a server on a copy of the data directory `frozen`.
    ///
    /// # Errors
    /// [`Error::File`], and those of [`Sandbox::start`].
    pub fn restore(
        binaries: &ServerBinaries,
        frozen: &Path,
        directory: &Path,
        options: &ServerOptions,
        lifetime: Lifetime,
    ) -> Result<Sandbox> {
        copy_directory(frozen, &data_directory(directory))?;
        Sandbox::start(binaries, directory, options, lifetime)
    }

    /// Starts a server on the data directory that is in `directory` already, and waits until it answers.
    ///
    /// # Errors
    /// [`Error::ServerNotStarted`] with the end of its error log; [`Error::ProgramNotRun`]; [`Error::File`].
    pub fn start(
        binaries: &ServerBinaries,
        directory: &Path,
        options: &ServerOptions,
        lifetime: Lifetime,
    ) -> Result<Sandbox> {
        create_private_directory(&directory.join("tmp"))?;
        binaries.vendor().identify(&data_directory(directory), options.server_id())?;
        let socket = socket_path(directory)?;
        let mut attempt = 1;
        loop {
            let port = free_port(directory)?;
            let mut sandbox = spawn(binaries, directory, &socket, port, options, lifetime)?;
            match sandbox.wait_until_ready() {
                Ok(()) => return Ok(sandbox),
                Err(Error::ServerNotStarted { log_tail, .. })
                    if log_tail.contains("Address already in use") && attempt < PORT_ATTEMPTS =>
                {
                    attempt += 1;
                }
                // Dropped, it ends.
                Err(error) => return Err(error),
            }
        }
    }

    /// A server that another process started, if it is still the same.
    pub fn attach(
        binaries: &ServerBinaries,
        directory: &Path,
        socket: &Path,
        port: u16,
        process: ProcessIdentity,
    ) -> Option<Sandbox> {
        process.is_running().then(|| Sandbox {
            binaries: binaries.clone(),
            directory: directory.to_owned(),
            socket: socket.to_owned(),
            port,
            process,
            child: None,
            lifetime: Lifetime::Detached,
        })
    }

    /// Lets it run on after this value is gone, and this process.
    pub fn leave_running(mut self) {
        self.child = None;
    }

    /// A new connection as root.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn connect(&self) -> Result<Session> {
        Session::open(&self.socket, &self.name())
    }

    /// A new connection as root, for those who look on: they do not wait longer than some seconds for an answer.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn connect_to_look(&self) -> Result<Session> {
        const LIMIT: Duration = Duration::from_secs(30);
        Session::open_within(&self.socket, &self.name(), Some(LIMIT))
    }

    /// A new connection as root to a server that may not answer yet: who asks it asks again on a new one.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn connect_while_starting(&self) -> Result<Session> {
        Session::open_within(&self.socket, &self.name(), Some(ANSWER_LIMIT))
    }

    /// Creates the account for TCP, with all privileges, and does not log it.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn create_account(&self, password: &str) -> Result<()> {
        let (vendor, mut session) = (self.binaries.vendor(), self.connect()?);
        session.run("SET SESSION sql_log_bin = 0")?;
        vendor.account_statements(password).iter().try_for_each(|statement| session.run(statement))
    }

    /// The server's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process.
    pub fn process(&self) -> ProcessIdentity {
        self.process
    }

    /// Its data directory.
    pub fn data_directory(&self) -> PathBuf {
        data_directory(&self.directory)
    }

    /// Which server it is.
    pub fn binaries(&self) -> &ServerBinaries {
        &self.binaries
    }

    /// The last line of its error log that is an error and contains `word`.
    pub fn last_error(&self, word: &str) -> Option<String> {
        let log = fs::read(error_log(&self.directory)).ok()?;
        let log = String::from_utf8_lossy(&log);
        log.lines().rfind(|line| line.contains("[ERROR]") && line.contains(word)).map(str::to_owned)
    }

    /// The end of its error log.
    pub fn log_tail(&self) -> String {
        tail_of(&error_log(&self.directory))
    }

    /// The vendor of the server.
    pub fn vendor(&self) -> Vendor {
        self.binaries().vendor()
    }

    /// The GTID position of all that is in the server's binlog.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn logged_position(&self) -> Result<String> {
        self.vendor().logged_position(&mut self.connect()?)
    }

    /// The error, and that this server has ended by itself, if it has.
    pub fn blame(&self, error: Error) -> Error {
        /// Its connections break a moment before it has ended.
        const ENDING: Duration = Duration::from_millis(500);
        let is_told = matches!(&error, Error::ServerCrashed { server, .. } if *server == self.name());
        if is_told || !self.process.wait_for_end(ENDING) {
            return error;
        }
        let ended = self.child.as_ref().and_then(|child| {
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
            waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG)
                .ok()
                .flatten()
        });
        let status = match ended.map(|status| (status.terminating_signal(), status.exit_status())) {
            Some((Some(signal), _)) => format!("killed by signal {signal}"),
            Some((None, Some(status))) => format!("exit status {status}"),
            _ => "how is not known".to_owned(),
        };
        Error::ServerCrashed { server: self.name(), status, log_tail: self.log_tail(), source: Box::new(error) }
    }

    /// Processor time that the server has used since its start.
    pub fn cpu_time(&self) -> Duration {
        self.process.cpu_time().unwrap_or_default()
    }

    /// Stops the server cleanly and waits for its end.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn stop(mut self) -> Result<PathBuf> {
        self.process.signal(Signal::TERM);
        let stopped = self.process.wait_for_end(STOP_LIMIT);
        self.reap();
        if !stopped {
            return Err(Error::TimedOut {
                what: format!("stopping the server in {}", self.directory.display()),
                limit: STOP_LIMIT,
                advice: format!("its process id is {}", self.process.id),
            });
        }
        Ok(self.directory.clone())
    }

    /// Kills the server; its data is not needed any more. Where that is.
    pub fn kill(mut self) -> PathBuf {
        self.process.signal(Signal::KILL);
        self.process.wait_for_end(STOP_LIMIT);
        self.reap();
        self.directory.clone()
    }

    /// Kills the server, as a crash would, and starts it again in the same place: same port, same socket, its own data.
    ///
    /// # Errors
    /// Those of [`Sandbox::start`].
    pub fn crash_and_restart(&mut self, options: &ServerOptions) -> Result<()> {
        self.reap();
        let _ = fs::remove_file(&self.socket);
        let next = spawn(&self.binaries, &self.directory, &self.socket, self.port, options, self.lifetime)?;
        // The old server has ended, and was reaped; dropping it must not remove the socket's directory.
        let mut old = std::mem::replace(self, next);
        old.lifetime = Lifetime::Detached;
        self.wait_until_ready()
    }

    /// Stops the server cleanly and moves on with a copy of its data in `frozen`; the sandbox's own data stays.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::File`].
    pub fn freeze(self, frozen: &Path) -> Result<()> {
        let directory = self.stop()?;
        copy_directory(&data_directory(&directory), frozen)
    }

    fn name(&self) -> String {
        let name = self.directory.file_name().map(|name| name.to_string_lossy().into_owned());
        format!("server '{}'", name.unwrap_or_default())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if self.socket.exists() && self.answers() {
                return Ok(());
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            let why = match ended {
                Some(status) => format!("it ended with {status}"),
                None if Instant::now() > deadline => format!("no answer within {} s", START_LIMIT.as_secs()),
                None => {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
            };
            let log_tail = tail_of(&error_log(&self.directory));
            return Err(Error::ServerNotStarted { directory: self.directory.clone(), why, log_tail });
        }
    }

    /// True if this server answers, and not one that was at its place before.
    fn answers(&self) -> bool {
        let port = self.connect_while_starting().and_then(|mut session| session.value::<u16>("SELECT @@GLOBAL.port"));
        port.is_ok_and(|port| port == self.port)
    }

    /// Kills the child if it still runs, and reaps it.
    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.reap();
        if self.lifetime == Lifetime::Ours {
            remove_socket_directory(&self.directory);
        }
    }
}

/// Ends the servers whose data directories are below `directory`, and that nobody knows: what started them has ended before it could write down that it had.
/// Whoever calls this holds the lock of what is in `directory`, so that nobody starts one meanwhile.
pub fn end_unknown_servers(directory: &Path) {
    for process in ProcessIdentity::all().filter(|process| is_server_on(*process, directory)) {
        process.signal(Signal::KILL);
        process.wait_for_end(STOP_LIMIT);
    }
}

/// True if the process is a server whose data is below `directory`.
pub fn is_server_on(process: ProcessIdentity, directory: &Path) -> bool {
    let sought = format!("--datadir={}/", directory.display());
    process.arguments().iter().any(|argument| argument.starts_with(&sought))
}

fn data_directory(directory: &Path) -> PathBuf {
    directory.join("data")
}

fn error_log(directory: &Path) -> PathBuf {
    directory.join("error.log")
}

/// The end of a log, for messages.
pub fn tail_of(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_LOG_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("({} cannot be read: {error})", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn server_that_loses_a_question_does_not_answer_within_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        // Who connects is taken, and hears nothing.
        let _listener = UnixListener::bind(&socket).unwrap();
        let process = ProcessIdentity::own().unwrap();
        let binaries = ServerBinaries::for_tests();
        let sandbox = Sandbox::attach(&binaries, directory.path(), &socket, 1, process).unwrap();
        let asked = Instant::now();
        assert!(!sandbox.answers());
        assert!((ANSWER_LIMIT..ANSWER_LIMIT * 4).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    }
}

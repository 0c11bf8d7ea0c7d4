//! The errors of the laboratory. Each message says what failed, where, and what to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::screen::megabytes;

/// An error of the laboratory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be used.
    #[error("could not {action} {path}: {source}", path = path.display())]
    File {
        /// The attempted action, as a verb: "create", "copy to".
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A directory that the laboratory would write to, and remove from, is not its own.
    #[error("{} is not the laboratory's: {why}; name another directory in SPATE_LAB_DIRECTORY", path.display())]
    NotOurs {
        /// Which one.
        path: PathBuf,
        /// Why it is not taken.
        why: String,
    },
    /// The disk is too small for what was asked.
    #[error("{} is on a disk with {} free, and {} are needed", path.display(), megabytes(*free), megabytes(*needed))]
    DiskTooSmall {
        /// Where.
        path: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// A report could not be drawn.
    #[error("could not make the report")]
    Report(#[source] spate_page::PageError),
    /// No server version has this name.
    #[error("unknown server version '{name}'; known are: {known}")]
    UnknownServerVersion {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The machine has no server that the laboratory knows, or another version.
    #[error("{server} is not installed: {why}\n{advice}")]
    ServerNotInstalled {
        /// The version that is needed.
        server: String,
        /// What the laboratory found instead.
        why: String,
        /// How to get it.
        advice: &'static str,
    },
    /// A program that the laboratory runs is missing or could not be started.
    #[error("could not run {program}: {source}\n{advice}")]
    ProgramNotRun {
        /// Its name or path.
        program: String,
        /// How to get it.
        advice: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// A program ended with a failure.
    #[error("`{program}` failed with {status}; the end of its output:\n{output}")]
    ProgramFailed {
        /// The command, without secrets.
        program: String,
        /// Exit status.
        status: String,
        /// The tail of its output.
        output: String,
    },
    /// A sandboxed server did not start.
    #[error("the server in {directory} did not start: {why}; the end of its error log:\n{log_tail}", directory = directory.display())]
    ServerNotStarted {
        /// The sandbox.
        directory: PathBuf,
        /// The cause.
        why: String,
        /// The last lines of the error log.
        log_tail: String,
    },
    /// A statement or connection failed.
    #[error("{server}: {source}\nwhile running: {statement}")]
    Sql {
        /// Which sandbox.
        server: String,
        /// The statement, shortened; or "connect".
        statement: String,
        /// The error of the server or the connection.
        source: Box<mysql::Error>,
    },
    /// A result set has no value of the expected type.
    #[error("{server}: `{statement}` gave no usable result")]
    UnexpectedResult {
        /// Which sandbox.
        server: String,
        /// The statement, shortened.
        statement: String,
    },
    /// A server did not load the pages of its data set.
    #[error("the buffer pool has {loaded} pages, although {} lists {wanted} that fit: nothing is measured with it", list.display())]
    ColdBufferPool {
        /// The list of pages.
        list: PathBuf,
        /// How many of them fit.
        wanted: u64,
        /// How many are there.
        loaded: u64,
    },
    /// A step took longer than its limit.
    #[error("{what} took longer than {} s\n{advice}", limit.as_secs())]
    TimedOut {
        /// The step.
        what: String,
        /// The limit.
        limit: Duration,
        /// What to do.
        advice: String,
    },
    /// A value on the command line cannot be parsed.
    #[error("'{text}' is not a {what}: {why}")]
    BadArgument {
        /// The kind of value: "contender", "server option".
        what: &'static str,
        /// The value.
        text: String,
        /// The error, with a correct example.
        why: String,
    },
    /// The native applier stopped with an error.
    #[error("{contender}: the server's own replication stopped: {why}")]
    ReplicationStopped {
        /// Which contender.
        contender: String,
        /// The server's message.
        why: String,
    },
    /// A contender did not catch up, and the next step needs that.
    #[error("{contender} did not catch up, so there is nothing more to show: {why}")]
    ContenderFailed {
        /// Which contender.
        contender: String,
        /// Its own error.
        why: String,
    },
    /// A named sandbox cannot be used in this way.
    #[error("sandbox '{name}': {why}")]
    Sandbox {
        /// Its name.
        name: String,
        /// The cause, and what to do.
        why: String,
    },
    /// A binlog file of the source could not be read.
    #[error("{path} at offset {offset}: {source}", path = path.display())]
    Binlog {
        /// The file.
        path: PathBuf,
        /// Where the event begins.
        offset: u64,
        /// What is wrong with it.
        source: spate_binlog::Error,
    },
    /// A file is no result of an experiment that this laboratory can read.
    #[error("{path} is no result of an experiment that can be read: {why}", path = path.display())]
    NoResult {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// There is no such data set, or a file holds none.
    #[error("data set {name}: {why}")]
    NoDataSet {
        /// Its name, or the file.
        name: String,
        /// The cause, and what to do.
        why: String,
    },
    /// Two results cannot be compared.
    #[error("the results cannot be compared: {why}")]
    NotComparable {
        /// What prevents it.
        why: String,
    },
    /// An interrupted experiment was measured under other circumstances.
    #[error(
        "{directory} holds runs of an interrupted experiment that do not belong to this one: they are of {what}\n\
         --fresh forgets them and begins again",
        directory = directory.display()
    )]
    OtherRuns {
        /// Where they are.
        directory: PathBuf,
        /// The difference.
        what: &'static str,
    },
    /// The program is another one than that which was measured before.
    #[error(
        "the measured program was replaced meanwhile: it was {was}, and is {is}\n\
         build elsewhere while an experiment runs; with the program of before the same command goes on, and --fresh begins again"
    )]
    ProgramReplaced {
        /// The version and when it was built.
        was: String,
        /// The same of what stands in its place.
        is: String,
    },
    /// A load ended before what it was needed for.
    #[error("the load ended before the measurement did: {why}")]
    LoadEnded {
        /// What its program says.
        why: String,
    },
    /// Another command of the laboratory works on the same.
    #[error("another command works on {what}; wait until it has ended")]
    InUse {
        /// On what.
        what: String,
    },
    /// A server ended although nobody stopped it.
    #[error(
        "{server} ended by itself ({status}) during a measurement. The end of its error log:\n{log_tail}\nWhat it was used for then failed: {source}"
    )]
    ServerCrashed {
        /// Which one.
        server: String,
        /// How it ended.
        status: String,
        /// The last lines of it.
        log_tail: String,
        /// What failed.
        source: Box<Error>,
    },
    /// A state file of the laboratory is damaged.
    #[error("{path} is not a state file of this laboratory: {source}; delete its directory and start again", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// True if the connection is of no more use: an answer may still come, to a question that was given up.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Error::Sql { source, .. } if !matches!(**source, mysql::Error::MySqlError(_)))
    }

    /// For `map_err` on errors of the file system.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { action, path, source }
    }
}

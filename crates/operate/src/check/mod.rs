//! A look at both ends before anything runs, for what keeps Spate from working and for what may trouble it later.
//!
//! Each check makes one [`Finding`], good or bad, from as few questions as possible, so that a start on ten thousand tables
//! waits for none of them. Errors keep `replicate` from starting; warnings do not.
//!
//! - `facts`: what a server says of itself, asked once;
//! - `server`: each of them alone; `pair`: the two together;
//! - `rights`: the accounts; `grants`: what the statements in the archive need; `history`: whether the source still has what is needed;
//! - `tables`: what their definitions mean; `surroundings`: clocks, time zones, disk.

mod facts;
mod grants;
mod history;
mod pair;
mod rights;
mod server;
mod surroundings;
mod tables;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use facts::Facts;
pub use grants::{Grant, Grants, grants};
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};
use spate_replica::asking;
use spate_replica::choice::WantedDialect;
use spate_replica::{Error, Result};

/// How long a server may take for one answer. The slowest question reads all definitions of tables.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a start waits for a source that may be away: there may be much in the archive to apply meanwhile.
const IMPATIENCE: Duration = Duration::from_secs(2);

/// How good or bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Nobody could look, or there is nothing to look at.
    Skipped,
    /// Spate will work, but not as well or not as safely as it could.
    Warning,
    /// Spate will not work.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Ok => "ok",
            Level::Skipped => "skipped",
            Level::Warning => "warning",
            Level::Error => "error",
        })
    }
}

/// Where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// On the source.
    Source,
    /// On the replica.
    Replica,
    /// Between the two.
    Both,
    /// On this machine, where the archive is.
    Archive,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Source => "source",
            Place::Replica => "replica",
            Place::Both => "both",
            Place::Archive => "archive",
        })
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name; the same for good and for bad.
    pub check: &'static str,
    /// Where.
    pub place: Place,
    /// How good or bad.
    pub level: Level,
    /// The finding, in words.
    pub message: String,
    /// What to do about it; empty if nothing has to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

impl Finding {
    fn new(check: &'static str, place: Place, level: Level, message: impl Into<String>) -> Finding {
        Finding { check, place, level, message: message.into(), advice: String::new() }
    }

    fn ok(check: &'static str, place: Place, message: impl Into<String>) -> Finding {
        Finding::new(check, place, Level::Ok, message)
    }

    fn warning(check: &'static str, place: Place, message: impl Into<String>) -> Finding {
        Finding::new(check, place, Level::Warning, message)
    }

    fn error(check: &'static str, place: Place, message: impl Into<String>) -> Finding {
        Finding::new(check, place, Level::Error, message)
    }

    fn skipped(check: &'static str, place: Place, why: impl fmt::Display) -> Finding {
        Finding::new(check, place, Level::Skipped, format!("not looked at: {why}"))
    }

    fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = advice.into();
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.check, self.place, self.message)?;
        if !self.advice.is_empty() {
            write!(f, ". {}", self.advice)?;
        }
        Ok(())
    }
}

/// All that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True if something keeps Spate from working.
    pub fn has_errors(&self) -> bool {
        self.of_level(Level::Error).next().is_some()
    }

    /// How the finding is judged.
    pub fn of_level(&self, level: Level) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.level == level)
    }

    fn add(&mut self, found: impl IntoIterator<Item = Finding>) {
        self.findings.extend(found);
    }

    /// Adds what a question found; one that a server refuses is no error of the check.
    fn ask(&mut self, check: &'static str, place: Place, found: Result<Vec<Finding>>) -> Result<()> {
        match found {
            Ok(found) => self.add(found),
            Err(Error::Privilege { message, grant, .. }) => {
                self.add([Finding::skipped(check, place, message).advise(grant)]);
            }
            Err(Error::Wire(spate_connection::Error::Server { error, .. })) if !error.is_transient() => {
                self.add([Finding::skipped(check, place, error)]);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// What is to be looked at, and what will be done.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The source.
    pub source: Endpoint,
    /// The replica.
    pub replica: Endpoint,
    /// The archive's directory, if there is to be one.
    pub archive_dir: Option<PathBuf>,
    /// Spate's own server id.
    pub server_id: Option<u32>,
    /// See [`crate::ApplyOptions::without_replica_binlog`].
    pub without_replica_binlog: bool,
    /// How row changes are to be written.
    pub dialect: WantedDialect,
    /// Row changes that do not fit will be repaired.
    pub repairs: bool,
    /// Some servers' transactions will be left out: see [`spate_replica::exclusions::Exclusions::server_ids`].
    pub is_ring: bool,
}

/// Looks at everything.
///
/// # Errors
/// A connection that breaks while it looks. That a server cannot be reached at all is a finding.
pub fn run(options: &CheckOptions) -> Result<Report> {
    let mut report = Report::default();
    let source = connect(&options.source, "source", Place::Source, &mut report);
    let replica = connect(&options.replica, "replica", Place::Replica, &mut report);
    let (Some(mut source), Some(mut replica)) = (source, replica) else { return Ok(report) };
    look(&mut source, &mut replica, options, &mut report)?;
    let (source, replica) = (&mut source, &mut replica);
    report.ask("retention", Place::Source, history::look(source, replica, options.archive_dir.as_deref()))?;
    report.ask("clocks", Place::Both, surroundings::clocks(source, replica))?;
    report.ask("time zones", Place::Both, surroundings::time_zones(source, replica))?;
    report.ask("collations", Place::Both, tables::collations(source, replica))?;
    report.ask("keys", Place::Replica, tables::keys(replica))?;
    report.ask("engines", Place::Replica, tables::engines(replica))?;
    report.ask("engines", Place::Both, tables::missing_engines(source, replica))?;
    report.ask("cascades", Place::Replica, tables::cascades(replica))?;
    Ok(report)
}

/// The checks of every start: none that takes longer with more tables, and none that needs a source that is away.
///
/// # Errors
/// Any error of the replica's connection.
pub(crate) fn run_at_start(replica: &mut Connection, options: &CheckOptions) -> Result<Report> {
    let mut report = Report::default();
    let impatient = ConnectOptions { connect_timeout: IMPATIENCE, ..connect_options("source") };
    let Ok(mut source) = asking::connect(&options.source, &impatient) else {
        // The intake waits for it, and says so.
        return Ok(report);
    };
    match look(&mut source, replica, options, &mut report) {
        Err(Error::Wire(error)) if error.is_transient() && replica.query("SELECT 1").is_ok() => Ok(Report::default()),
        looked => looked.map(|()| report),
    }
}

fn connect_options(role: &str) -> ConnectOptions {
    ConnectOptions { read_timeout: Some(PATIENCE), ..ConnectOptions::new(role) }
}

fn connect(endpoint: &Endpoint, role: &str, place: Place, report: &mut Report) -> Option<Connection> {
    match asking::connect(endpoint, &connect_options(role)) {
        Ok(connection) => Some(connection),
        Err(error) => {
            report.add([Finding::error("connection", place, error.to_string())]);
            None
        }
    }
}

/// The checks of every start.
fn look(source: &mut Connection, replica: &mut Connection, options: &CheckOptions, report: &mut Report) -> Result<()> {
    let facts_of_source = Facts::read(source, &options.source)?;
    let facts_of_replica = Facts::read(replica, &options.replica)?;
    report.add(server::source(&facts_of_source));
    report.add(server::replica(&facts_of_replica));
    report.add(pair::compare(&facts_of_source, &facts_of_replica, options.server_id));
    report.ask("privileges", Place::Source, rights::source(source, &facts_of_source))?;
    report.ask(
        "privileges",
        Place::Replica,
        rights::replica(replica, &facts_of_replica, facts_of_source.version.vendor, options),
    )?;
    report.ask("binlog filters", Place::Source, server::filters(source, &facts_of_source))?;
    report.ask("own replication", Place::Replica, server::own_replication(replica, &facts_of_source))?;
    report.ask("replication filters", Place::Replica, server::own_filters(replica))?;
    report.ask("events", Place::Replica, server::events(replica, &facts_of_replica))?;
    report.ask("plugins", Place::Both, tables::plugins(source, replica))?;
    if let Some(directory) = &options.archive_dir {
        report.add([surroundings::disk(directory, &facts_of_source)]);
    }
    Ok(())
}

/// At most this many names in a message; there may be thousands.
const NAMES_MAX: usize = 10;

/// `a.b, a.c and 17 more`.
fn list_some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

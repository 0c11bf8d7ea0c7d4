//! Questions to the source: can it serve us, and where does its history begin and end?

use std::fmt;

use spate_binlog::GtidPosition;

use crate::error::{Error, Result};
use crate::until::Start;
use crate::wire::{Connection, ServerVersion, Vendor, quote};

const GRANT_MONITOR: &str = "GRANT BINLOG MONITOR ON *.* TO <the user of Spate>";

/// What the intake needs to know of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    pub(crate) has_checksums: bool,
    pub(crate) has_semi_sync: bool,
    /// Its `max_allowed_packet`, in bytes.
    pub(crate) packet_bytes: u64,
}

/// The oldest binlog file that a source has, and the GTID position at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldestBinlog {
    pub(crate) file: String,
    pub(crate) position: GtidPosition,
}

impl fmt::Display for OldestBinlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which begins at GTID position '{}'", self.file, self.position)
    }
}

/// Refuses servers that Spate does not know.
///
/// # Errors
/// [`Error::Unsuitable`] names the version.
pub(crate) fn check_version(connection: &Connection) -> Result<()> {
    let version: &ServerVersion = connection.server_version();
    if version.vendor == Vendor::MariaDb && version.is_at_least(10, 5) {
        return Ok(());
    }
    let why = format!("it is {version}, and this version of Spate works with MariaDB 10.5 and later");
    Err(Error::Unsuitable { peer: connection.peer().to_string(), why })
}

/// Looks whether a server can be the source.
///
/// # Errors
/// [`Error::Unsuitable`] says what to change there; any error of the connection.
pub(crate) fn check_source(connection: &mut Connection) -> Result<SourceFacts> {
    check_version(connection)?;
    let answer = connection.query(
        "SELECT @@log_bin, @@global.binlog_checksum, @@global.rpl_semi_sync_master_enabled, @@global.max_allowed_packet",
    )?;
    let text = |column| answer.text_at(0, column).unwrap_or_default();
    if text(0) != "1" {
        let why = "it writes no binlog: set log_bin in its configuration and restart it".to_owned();
        return Err(Error::Unsuitable { peer: connection.peer().to_string(), why });
    }
    Ok(SourceFacts {
        has_checksums: text(1) == "CRC32",
        has_semi_sync: text(2) == "1",
        packet_bytes: text(3).parse().unwrap_or(0),
    })
}

/// The source's position now.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn current_position(connection: &mut Connection) -> Result<GtidPosition> {
    let text = connection.query("SELECT @@global.gtid_binlog_pos")?.single_text().unwrap_or_default();
    parse(connection, &text)
}

/// The beginning of what the source still has.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub(crate) fn oldest_binlog(connection: &mut Connection) -> Result<OldestBinlog> {
    let files = connection
        .query("SHOW BINARY LOGS")
        .map_err(|error| Error::from(error).or_privilege("list its binlog files", GRANT_MONITOR))?;
    let file = files.text_at(0, 0).unwrap_or_default();
    let position = position_at(connection, &file, 4)?;
    Ok(OldestBinlog { file, position })
}

/// The GTID position at which to begin.
///
/// # Errors
/// [`Error::Unsuitable`] if the source does not have the place; any error of the connection.
pub(crate) fn resolve_start(connection: &mut Connection, start: &Start) -> Result<GtidPosition> {
    match start {
        Start::Gtid(position) => Ok(position.clone()),
        Start::Current => current_position(connection),
        Start::Earliest => Ok(oldest_binlog(connection)?.position),
        Start::File { file, position } => position_at(connection, file, *position),
    }
}

fn position_at(connection: &mut Connection, file: &str, position: u64) -> Result<GtidPosition> {
    let sql = format!("SELECT BINLOG_GTID_POS({}, {position})", quote::text(file));
    let answer = connection.query(&sql)?;
    match answer.single_text() {
        Some(text) => parse(connection, &text),
        None => {
            let why = format!("it has no place {file}:{position} in its binlog (SHOW BINARY LOGS lists its files)");
            Err(Error::Unsuitable { peer: connection.peer().to_string(), why })
        }
    }
}

fn parse(connection: &Connection, text: &str) -> Result<GtidPosition> {
    text.parse().map_err(|error: spate_binlog::Error| Error::Unsuitable {
        peer: connection.peer().to_string(),
        why: format!("its GTID position cannot be read: {error}"),
    })
}

//! Queries on the source: can it serve us, and where does its history begin and end?

use std::fmt;

use spate_binlog::GtidPosition;

use spate_connection::{Connection, Vendor, quote};
use spate_replica::known_servers::check_version;
use spate_replica::until::Start;
use spate_replica::{Error, Result};

const GRANT_MONITOR: &str = "GRANT BINLOG MONITOR ON *.* TO <the user of Spate>";
const GRANT_CLIENT: &str = "GRANT REPLICATION CLIENT ON *.* TO <the user of Spate>";

/// The source's properties that the intake needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    pub(crate) has_checksums: bool,
    pub(crate) has_semi_sync: bool,
    /// Its `max_allowed_packet`, in bytes.
    pub(crate) packet_bytes: u64,
    /// True if all its transactions have GTIDs.
    pub(crate) has_gtids: bool,
}

/// A place in a source's history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourcePlace {
    /// The GTID position.
    pub gtid_position: GtidPosition,
    /// The binlog file and the offset in it; `None` if the source's transactions have GTIDs.
    pub file: Option<(String, u64)>,
}

/// The oldest binlog file that a source has, and the GTID position at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestBinlog {
    pub(crate) file: String,
    /// The GTID position at its beginning.
    pub position: GtidPosition,
}

impl fmt::Display for OldestBinlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which begins at GTID position '{}'", self.file, self.position)
    }
}

/// Offset of a binlog file's first event.
const FIRST_EVENT: u64 = 4;

/// Events that one SHOW BINLOG EVENTS lists at most.
const LISTED_EVENTS_MAX: u64 = 10_000;

/// Checks whether a server can be the source.
///
/// # Errors
/// [`Error::Unsuitable`] says what to change on the source; any error of the connection.
pub(crate) fn check_source(connection: &mut Connection) -> Result<SourceFacts> {
    check_version(connection)?;
    let answer = connection.query(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_checksum', 'max_allowed_packet', 'gtid_mode', \
         'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')",
    )?;
    let value = |name: &str| {
        let row = (0..answer.rows.len()).find(|&row| answer.text_at(row, 0).is_some_and(|found| found == name));
        row.and_then(|row| answer.text_at(row, 1)).unwrap_or_default()
    };
    if value("log_bin") != "ON" {
        let why = "it writes no binlog: set log_bin in its configuration and restart it".to_owned();
        return Err(Error::Unsuitable { peer: connection.peer().to_string(), why });
    }
    let is_semi_sync = |name| value(name) == "ON";
    Ok(SourceFacts {
        has_checksums: value("binlog_checksum") == "CRC32",
        has_semi_sync: is_semi_sync("rpl_semi_sync_master_enabled") || is_semi_sync("rpl_semi_sync_source_enabled"),
        packet_bytes: value("max_allowed_packet").parse().unwrap_or(0),
        has_gtids: connection.server_version().vendor == Vendor::MariaDb || value("gtid_mode") == "ON",
    })
}

/// The source's position now.
///
/// # Errors
/// Any error of the connection.
pub fn current_place(connection: &mut Connection) -> Result<SourcePlace> {
    let has_gtids = check_source(connection)?.has_gtids;
    query_current_place(connection, has_gtids)
}

fn query_current_place(connection: &mut Connection, has_gtids: bool) -> Result<SourcePlace> {
    let sql = match connection.server_version().vendor {
        Vendor::MariaDb => "SELECT @@global.gtid_binlog_pos",
        Vendor::MySql if has_gtids => "SELECT @@global.gtid_executed",
        Vendor::MySql => {
            let status = connection.server_version().binlog_status_sql();
            let answer = connection
                .query(status)
                .map_err(|error| Error::from(error).with_missing_privilege("tell its binlog position", GRANT_CLIENT))?;
            let text = |column| answer.text_at(0, column).unwrap_or_default();
            return Ok(SourcePlace { file: Some((text(0), text(1).parse().unwrap_or(0))), ..SourcePlace::default() });
        }
    };
    let text = connection.query(sql)?.single_text().unwrap_or_default();
    Ok(SourcePlace { gtid_position: parse(connection, &text)?, file: None })
}

/// The oldest binlog file that the source still has.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn find_oldest_binlog(connection: &mut Connection) -> Result<OldestBinlog> {
    let file = list_binlog_files(connection)?.into_iter().next().unwrap_or_default();
    let position = match connection.server_version().vendor {
        Vendor::MariaDb => find_position_at(connection, &file, FIRST_EVENT)?,
        Vendor::MySql => {
            let purged = connection.query("SELECT @@global.gtid_purged")?.single_text().unwrap_or_default();
            parse(connection, &purged)?
        }
    };
    Ok(OldestBinlog { file, position })
}

/// The file after `file`, and the GTID position at its beginning; `None` if `file` is the last, or is missing.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub(crate) fn find_mariadb_file_after(
    connection: &mut Connection,
    file: &str,
) -> Result<Option<(String, GtidPosition)>> {
    let files = list_binlog_files(connection)?;
    let Some(next) = files.into_iter().skip_while(|name| name != file).nth(1) else { return Ok(None) };
    let position = find_position_at(connection, &next, FIRST_EVENT)?;
    Ok(Some((next, position)))
}

/// The names of a source's binlog files, the oldest first.
fn list_binlog_files(connection: &mut Connection) -> Result<Vec<String>> {
    let grant = match connection.server_version().vendor {
        Vendor::MariaDb => GRANT_MONITOR,
        Vendor::MySql => GRANT_CLIENT,
    };
    let files = connection
        .query("SHOW BINARY LOGS")
        .map_err(|error| Error::from(error).with_missing_privilege("list its binlog files", grant))?;
    Ok((0..files.rows.len()).filter_map(|row| files.text_at(row, 0)).collect())
}

/// Finds the place in the source's binlog that `start` describes.
///
/// # Errors
/// [`Error::Unsuitable`] if the source's binlog does not contain the place; any error of the connection.
pub fn resolve_start(connection: &mut Connection, start: &Start) -> Result<SourcePlace> {
    let has_gtids = check_source(connection)?.has_gtids;
    let by_gtid = |gtid_position| SourcePlace { gtid_position, file: None };
    let by_file = |file: String, position| SourcePlace { file: Some((file, position)), ..SourcePlace::default() };
    match start {
        Start::Gtid(position) => Ok(by_gtid(position.clone())),
        Start::Current => query_current_place(connection, has_gtids),
        Start::Earliest => {
            let oldest = find_oldest_binlog(connection)?;
            Ok(if has_gtids { by_gtid(oldest.position) } else { by_file(oldest.file, FIRST_EVENT) })
        }
        Start::File { file, position } if has_gtids => find_position_at(connection, file, *position).map(by_gtid),
        Start::File { file, position } => Ok(by_file(file.clone(), *position)),
    }
}

/// The GTID position at a place in the source's binlog.
fn find_position_at(connection: &mut Connection, file: &str, position: u64) -> Result<GtidPosition> {
    let found = match connection.server_version().vendor {
        Vendor::MariaDb => {
            let sql = format!("SELECT BINLOG_GTID_POS({}, {position})", quote::text(file));
            let answer = connection.query(&sql)?.single_text();
            answer.map(|text| parse(connection, &text)).transpose()?
        }
        Vendor::MySql => find_position_in_list(connection, file, position)?,
    };
    found.ok_or_else(|| {
        let why = format!(
            "its binlog has no place {file}:{position}: there is no such file, or no transaction begins or ends there (SHOW BINARY LOGS \
             lists its files)"
        );
        Error::Unsuitable { peer: connection.peer().to_string(), why }
    })
}

/// Finds the GTID position at a place in a MySQL source's binlog.
///
/// MySQL has no function for this. Spate lists the file's events: the first says which transactions precede the file.
fn find_position_in_list(connection: &mut Connection, file: &str, position: u64) -> Result<Option<GtidPosition>> {
    let mut gtid_position = GtidPosition::default();
    let mut from = FIRST_EVENT;
    loop {
        let sql = format!("SHOW BINLOG EVENTS IN {} FROM {from} LIMIT {LISTED_EVENTS_MAX}", quote::text(file));
        let listed = connection.query(&sql).map_err(|error| {
            let grant = "GRANT REPLICATION SLAVE ON *.* TO <the user of Spate>";
            Error::from(error).with_missing_privilege("list the events of its binlog", grant)
        })?;
        let begin = from;
        for row in 0..listed.rows.len() {
            let text = |column| listed.text_at(row, column).unwrap_or_default();
            let number = |column| text(column).parse::<u64>().unwrap_or(0);
            let kind = text(2);
            let is_head = matches!(kind.as_str(), "Format_desc" | "Previous_gtids");
            if number(1) >= position && !is_head {
                let is_between =
                    kind.ends_with("Gtid") || matches!(kind.as_str(), "Gtid_tagged_log_event" | "Rotate" | "Stop");
                let is_there = number(1) == position || position <= FIRST_EVENT;
                return Ok((is_between && is_there).then_some(gtid_position));
            }
            match kind.as_str() {
                "Previous_gtids" => gtid_position = parse(connection, &text(5))?,
                "Gtid" | "Gtid_tagged_log_event" => {
                    let info = text(5);
                    let quoted = info.split('\'').nth(1).unwrap_or_default();
                    gtid_position.advance_to(&parse(connection, quoted)?);
                }
                _ => {}
            }
            from = number(4);
        }
        if from == position || position <= FIRST_EVENT {
            return Ok(Some(gtid_position));
        }
        if from <= begin {
            return Ok(None);
        }
    }
}

fn parse(connection: &Connection, text: &str) -> Result<GtidPosition> {
    text.parse().map_err(|error: spate_binlog::Error| Error::Unsuitable {
        peer: connection.peer().to_string(),
        why: format!("its GTID position cannot be read: {error}"),
    })
}

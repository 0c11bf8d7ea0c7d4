//! Requests a source's binlog: on MariaDB by GTID position; on MySQL by GTID set, or by file and offset without GTIDs.
//!
//! The MariaDB knowledge base ("Replication protocol", "COM_BINLOG_DUMP", "Semi-sync") and the MySQL server's
//! documentation ("COM_BINLOG_DUMP_GTID") describe the protocols.

use std::time::Duration;

use spate_archive::LogEnd;
use spate_binlog::ChecksumAlgorithm;
use spate_binlog::gtid::mysql::encode_gtid_set;

use super::{IntakeOptions, SILENCE_MAX};
use crate::source::{SourceFacts, check_source};
use spate_connection::{ConnectOptions, Connection, Vendor, quote};
use spate_replica::asking;
use spate_replica::status::Status;
use spate_replica::{Error, Result};

const COM_BINLOG_DUMP: u8 = 0x12;
const COM_REGISTER_SLAVE: u8 = 0x15;
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;

/// In MariaDB's request: send the annotate-rows events too. (Without them the archive would differ from the source's
/// binlog.)
const DUMP_FLAG_ANNOTATE_ROWS: u16 = 2;

/// In MySQL's request: begin after the GTID set.
const DUMP_FLAG_BY_GTID: u16 = 4;

/// The capability that this replica announces, in MariaDB's numbering: GTIDs, and all older features.
const CAPABILITY_GTID: u8 = 4;

/// Offset of a binlog file's first event.
const FIRST_EVENT: u64 = 4;

/// An idle source sends a heartbeat this often.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// How often the intake checks whether to stop, and whether a sync is due.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

pub(crate) const GRANT: &str = "GRANT REPLICATION SLAVE ON *.* TO <the user of Spate>";

/// An open stream of events.
pub(crate) struct Dump {
    pub(crate) connection: Connection,
    pub(crate) is_semi_sync: bool,
    pub(crate) checksum: ChecksumAlgorithm,
}

/// Connects to the source and requests its binlog after `end`.
///
/// # Errors
/// [`Error::Unsuitable`] if the server cannot be the source; any error of the connection.
pub(crate) fn begin(intake: &IntakeOptions, end: &LogEnd, status: &Status) -> Result<Dump> {
    let options = ConnectOptions { read_timeout: Some(SILENCE_MAX), ..ConnectOptions::new("source") };
    let mut connection = asking::connect(&intake.source, &options)?;
    let facts = check_source(&mut connection)?;
    status.source_packet(facts.packet_bytes);
    let clock = connection.query("SELECT UNIX_TIMESTAMP(SYSDATE(6))")?.single_text();
    if let Some(seconds) = clock.and_then(|text| text.parse().ok()) {
        status.source_clock(seconds);
    }
    let is_semi_sync = intake.semi_sync && facts.has_semi_sync;
    if intake.semi_sync && !facts.has_semi_sync {
        let hint = "semi-synchronous replication is off on the source, so Spate acknowledges no transactions \
                    (SET GLOBAL rpl_semi_sync_master_enabled=ON, or rpl_semi_sync_source_enabled on MySQL)";
        status.error("intake", hint);
    }
    let checksum = if facts.has_checksums { ChecksumAlgorithm::Crc32 } else { ChecksumAlgorithm::None };
    let settings = match connection.server_version().vendor {
        Vendor::MariaDb => mariadb_settings(end, is_semi_sync),
        Vendor::MySql => mysql_settings(is_semi_sync),
    };
    connection.execute(format!("SET {}", settings.join(", ")).as_bytes())?;
    register(&mut connection, intake.server_id)?;
    let (command, request) = match connection.server_version().vendor {
        Vendor::MariaDb => {
            (COM_BINLOG_DUMP, encode_request_by_file(intake.server_id, DUMP_FLAG_ANNOTATE_ROWS, "", FIRST_EVENT))
        }
        Vendor::MySql => encode_mysql_request(intake, end, &facts)?,
    };
    connection.send_command(command, &request)?;
    connection.set_read_timeout(Some(READ_TIMEOUT))?;
    Ok(Dump { connection, is_semi_sync, checksum })
}

fn mariadb_settings(end: &LogEnd, is_semi_sync: bool) -> Vec<String> {
    let mut settings = vec![
        format!("@master_heartbeat_period={}", HEARTBEAT.as_nanos()),
        "@master_binlog_checksum=@@global.binlog_checksum".to_owned(),
        format!("@mariadb_slave_capability={CAPABILITY_GTID}"),
        format!("@slave_connect_state={}", quote::text(&end.gtid_position.to_string())),
        "@slave_gtid_strict_mode=1".to_owned(),
        "@slave_gtid_ignore_duplicates=0".to_owned(),
    ];
    if is_semi_sync {
        settings.push("@rpl_semi_sync_slave=1".to_owned());
    }
    settings
}

/// Each setting has two names: one before MySQL 8.0.26 and one since.
fn mysql_settings(is_semi_sync: bool) -> Vec<String> {
    let mut settings = Vec::new();
    for server in ["source", "master"] {
        settings.push(format!("@{server}_heartbeat_period={}", HEARTBEAT.as_nanos()));
        settings.push(format!("@{server}_binlog_checksum=@@global.binlog_checksum"));
    }
    if is_semi_sync {
        settings.push("@rpl_semi_sync_replica=1, @rpl_semi_sync_slave=1".to_owned());
    }
    settings
}

/// Requests by GTID set if all transactions of the source have GTIDs; otherwise by the archive's end, or by the start
/// place of an empty archive.
fn encode_mysql_request(intake: &IntakeOptions, end: &LogEnd, facts: &SourceFacts) -> Result<(u8, Vec<u8>)> {
    if facts.has_gtids {
        let set = encode_gtid_set(&end.gtid_position);
        let mut request = DUMP_FLAG_BY_GTID.to_le_bytes().to_vec();
        request.extend_from_slice(&intake.server_id.to_le_bytes());
        // The file name is empty: its length is 0.
        request.extend_from_slice(&0u32.to_le_bytes());
        request.extend_from_slice(&FIRST_EVENT.to_le_bytes());
        request.extend_from_slice(&(set.len() as u32).to_le_bytes());
        request.extend_from_slice(&set);
        return Ok((COM_BINLOG_DUMP_GTID, request));
    }
    let (file, position) = match (&*end.source_file, &intake.start_place) {
        ("", Some((file, position))) => (file.as_str(), *position),
        ("", None) => {
            let why = "its transactions have no GTIDs (gtid_mode is not ON), so the place to begin has to be named: \
                       --start file:<name>:<offset>, earliest or current";
            return Err(Error::Unsuitable { peer: format!("source ({})", intake.source), why: why.to_owned() });
        }
        (file, _) => (file, end.source_position),
    };
    if u32::try_from(position).is_err() {
        let why = format!(
            "the request for {file}:{position} is impossible: without GTIDs, Spate cannot request an offset beyond 4 GiB. \
             Set gtid_mode=ON on the source"
        );
        return Err(Error::Unsuitable { peer: format!("source ({})", intake.source), why });
    }
    Ok((COM_BINLOG_DUMP, encode_request_by_file(intake.server_id, 0, file, position)))
}

fn encode_request_by_file(server_id: u32, flags: u16, file: &str, position: u64) -> Vec<u8> {
    // The protocol has 32 bits for the offset.
    let mut request = (position as u32).to_le_bytes().to_vec();
    request.extend_from_slice(&flags.to_le_bytes());
    request.extend_from_slice(&server_id.to_le_bytes());
    request.extend_from_slice(file.as_bytes());
    request
}

fn register(connection: &mut Connection, server_id: u32) -> Result<()> {
    let mut request = server_id.to_le_bytes().to_vec();
    // Host, user and password, then port, rank and source id. User and password are empty: a source shows them in
    // SHOW SLAVE HOSTS.
    request.extend_from_slice(&[5]);
    request.extend_from_slice(b"spate");
    request.extend_from_slice(&[0, 0]);
    request.extend_from_slice(&[0; 2 + 4 + 4]);
    connection.send_command(COM_REGISTER_SLAVE, &request)?;
    connection
        .next_packet()
        .map(drop)
        .map_err(|error| Error::from(error).with_missing_privilege("register a replica", GRANT))
}

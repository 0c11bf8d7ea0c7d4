//! What is asked of the server that is backed up.

use std::collections::BTreeMap;

use spate_connection::{Connection, Vendor};

use crate::error::{Error, Result};
use crate::manifest::{Position, ServerFacts};
use crate::scratch::PASSED;

/// What decides the meaning of statements is passed on to the server that recovers: see [`crate::scratch`].
const OTHERS: [&str; 6] =
    ["enforce_gtid_consistency", "gtid_mode", "log_bin", "system_time_zone", "time_zone", "version_comment"];

/// Asks a server what it is.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn ask(connection: &mut Connection) -> Result<ServerFacts> {
    let vendor = connection.server_version().vendor;
    let names: Vec<String> = PASSED.iter().chain(&OTHERS).map(|name| format!("'{name}'")).collect();
    let names = names.join(", ");
    let rows = connection.query(&format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))?;
    let mut variables = BTreeMap::new();
    for row in 0..rows.rows.len() {
        if let (Some(name), Some(value)) = (rows.text_at(row, 0), rows.text_at(row, 1)) {
            variables.insert(name.to_lowercase(), value);
        }
    }
    let rows = connection.query("SELECT @@global.version, @@global.server_id, @@global.datadir")?;
    let text = |column| rows.text_at(0, column).unwrap_or_default();
    let uuid = match vendor {
        Vendor::MySql => connection.query("SELECT @@global.server_uuid")?.single_text(),
        Vendor::MariaDb => None,
    };
    Ok(ServerFacts {
        vendor: if vendor == Vendor::MariaDb { "mariadb" } else { "mysql" }.into(),
        version: text(0),
        server_id: text(1).parse().unwrap_or_default(),
        uuid,
        data_directory: text(2),
        variables,
    })
}

/// Where the server's binlog ends now. Exact if nobody can commit meanwhile.
pub(crate) fn position_now(connection: &mut Connection) -> Result<Position> {
    let vendor = connection.server_version().vendor;
    let statement = connection.server_version().binlog_status_sql();
    let status = connection.query(statement)?;
    let gtid = match vendor {
        Vendor::MariaDb => "SELECT @@global.gtid_current_pos",
        Vendor::MySql => "SELECT @@global.gtid_executed",
    };
    let gtid = connection.query(gtid)?.single_text().unwrap_or_default().replace(['\n', ' '], "");
    let seconds = server_seconds(connection)?;
    let file = status.text_at(0, 0).unwrap_or_default();
    let offset = status.text_at(0, 1).and_then(|text| text.parse().ok()).unwrap_or_default();
    Ok(Position { gtid, file, offset, server_seconds: seconds })
}

/// The server's own clock, in seconds since 1970.
pub(crate) fn server_seconds(connection: &mut Connection) -> Result<u64> {
    let text = connection.query("SELECT UNIX_TIMESTAMP()")?.single_text().unwrap_or_default();
    text.parse().map_err(|_| Error::Refused(format!("the server says that its clock is at {text:?}")))
}

/// True if the server has a schema `spate`.
pub(crate) fn has_own_schema(connection: &mut Connection) -> Result<bool> {
    let found = connection.query("SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'spate'")?;
    Ok(found.single_text().as_deref() != Some("0"))
}

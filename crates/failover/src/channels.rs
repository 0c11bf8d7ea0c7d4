//! What a server says of its replication channels, and of what its binlog leaves out.

use serde::Serialize;
use spate_connection::{Connection, ResultSet, Vendor};
use spate_replica::native::FILTERS;

use crate::error::Result;

/// One replication channel of a server's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ChannelFacts {
    /// Its name; empty for the one without a name.
    pub name: String,
    /// Its source's host.
    pub source_host: String,
    /// Its source's port.
    pub source_port: u16,
    /// The source's server id, as far as it was connected; 0 if not.
    pub source_server_id: u32,
    /// MySQL: the source's UUID, as far as it was connected.
    pub source_uuid: String,
    /// True if it receives.
    pub is_receiving: bool,
    /// True if it is connected.
    pub is_connected: bool,
    /// True if it applies.
    pub is_applying: bool,
    /// True if it has applied all that it has received.
    pub has_applied_all: bool,
    /// Why it has stopped applying; empty if nothing is wrong.
    pub error: String,
    /// Why it does not receive; empty if nothing is wrong.
    pub receive_error: String,
    /// The GTIDs of what it has received; empty if it does not tell.
    pub received: String,
    /// True if it tells the GTIDs of what it has received: MariaDB's does so only if it replicates by GTID.
    pub tells_gtids: bool,
    /// True if it asks its source by GTID for what comes next.
    pub is_by_gtid: bool,
    /// What it leaves out or renames, as `Replicate_Do_DB=d`.
    pub filters: Vec<String>,
    /// How long it waits before it applies, in seconds.
    pub delay_seconds: u64,
}

/// The vendors' names of what a channel says.
pub(crate) struct Columns {
    name: &'static str,
    host: &'static str,
    port: &'static str,
    server_id: &'static str,
    uuid: &'static str,
    receives: &'static str,
    applies: &'static str,
    state: &'static str,
    received: &'static str,
}

pub(crate) const MARIADB_COLUMNS: Columns = Columns {
    name: "Connection_name",
    host: "Master_Host",
    port: "Master_Port",
    server_id: "Master_Server_Id",
    uuid: "Master_UUID",
    receives: "Slave_IO_Running",
    applies: "Slave_SQL_Running",
    state: "Slave_SQL_Running_State",
    received: "Gtid_IO_Pos",
};
pub(crate) const MYSQL_COLUMNS: Columns = Columns {
    name: "Channel_Name",
    host: "Source_Host",
    port: "Source_Port",
    server_id: "Source_Server_Id",
    uuid: "Source_UUID",
    receives: "Replica_IO_Running",
    applies: "Replica_SQL_Running",
    state: "Replica_SQL_Running_State",
    received: "Retrieved_Gtid_Set",
};
pub(crate) const OLD_MYSQL_COLUMNS: Columns =
    Columns { name: "Channel_Name", received: "Retrieved_Gtid_Set", ..MARIADB_COLUMNS };

const BINLOG_FILTERS: [&str; 2] = ["Binlog_Do_DB", "Binlog_Ignore_DB"];

/// Those of these columns that say something.
fn filters(answer: &ResultSet, row: usize, columns: &[&str]) -> Vec<String> {
    let said = columns.iter().filter_map(|column| {
        let value = answer.text(row, column).filter(|value| !value.is_empty())?;
        Some(format!("{column}={value}"))
    });
    said.collect()
}

pub(crate) fn ask_binlog_filters(connection: &mut Connection, statement: &str) -> Result<Vec<String>> {
    let grant = match connection.server_version().vendor {
        Vendor::MariaDb => "GRANT BINLOG MONITOR ON *.* TO <the user of Spate>",
        Vendor::MySql => "GRANT REPLICATION CLIENT ON *.* TO <the user of Spate>",
    };
    let answer = connection
        .query(statement)
        .map_err(|error| spate_replica::Error::from(error).with_missing_privilege("look at its binlog", grant))?;
    // Without a binlog there is no row.
    Ok((0..answer.rows.len()).flat_map(|row| filters(&answer, row, &BINLOG_FILTERS)).collect())
}

pub(crate) fn ask_channels(
    connection: &mut Connection,
    statement: &str,
    columns: &Columns,
) -> Result<Vec<ChannelFacts>> {
    let grant = match connection.server_version().vendor {
        Vendor::MariaDb => "GRANT REPLICA MONITOR ON *.* TO <the user of Spate>",
        Vendor::MySql => "GRANT REPLICATION CLIENT ON *.* TO <the user of Spate>",
    };
    let answer = connection
        .query(statement)
        .map_err(|error| spate_replica::Error::from(error).with_missing_privilege("show its own replication", grant))?;
    let channel = |row: usize| {
        let text = |column: &str| answer.text(row, column).unwrap_or_default();
        ChannelFacts {
            name: text(columns.name),
            source_host: text(columns.host),
            source_port: text(columns.port).parse().unwrap_or(0),
            source_server_id: text(columns.server_id).parse().unwrap_or(0),
            source_uuid: text(columns.uuid),
            is_receiving: text(columns.receives) != "No",
            is_connected: text(columns.receives) == "Yes",
            is_applying: text(columns.applies) == "Yes",
            has_applied_all: text(columns.state).to_ascii_lowercase().contains("has read all relay log"),
            error: text("Last_SQL_Error"),
            receive_error: text("Last_IO_Error"),
            received: text(columns.received).split_whitespace().collect(),
            is_by_gtid: match answer.text(row, "Auto_Position") {
                Some(is_on) => is_on == "1",
                None => text("Using_Gtid") != "No",
            },
            // MySQL has no such column: it tells them always.
            tells_gtids: text("Using_Gtid") != "No",
            filters: filters(&answer, row, &FILTERS),
            delay_seconds: text("SQL_Delay").parse().unwrap_or(0),
        }
    };
    Ok((0..answer.rows.len()).map(channel).collect())
}

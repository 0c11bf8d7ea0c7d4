//! Connections for Spate's own questions, whatever the server's global settings make of a new session.

use crate::endpoint::Endpoint;
use crate::wire::{ConnectOptions, Connection, Result, Vendor};

/// Answers are whole, neither cut nor refused for their size or time; each question is a transaction of its own and sees what is there
/// now; names and texts are quoted as Spate quotes them; a session that has nothing to say stays.
const SETTINGS: &str = "SET SESSION autocommit=1, completion_type=0, sql_mode='', sql_select_limit=18446744073709551615, \
     sql_big_selects=1, sql_safe_updates=0, sql_quote_show_create=1, wait_timeout=28800, net_read_timeout=3600, net_write_timeout=3600";
const SETTINGS_MARIADB: &str = ", max_statement_time=0";
/// Numbers of tables as they are, not as they were a day ago; definitions as one would write them.
const SETTINGS_MYSQL: &str = ", max_execution_time=0, information_schema_stats_expiry=0, show_create_table_verbosity=0";

/// Connects, logs in, and undoes what global settings do to questions.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Connection> {
    let mut connection = Connection::connect(endpoint, options)?;
    let more = match connection.server_version().vendor {
        Vendor::MariaDb => SETTINGS_MARIADB,
        Vendor::MySql => SETTINGS_MYSQL,
    };
    connection.execute(format!("{SETTINGS}{more}").as_bytes())?;
    Ok(connection)
}

//! Connections for Spate's own questions, whatever the server's global settings make of a new session.

use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Error, Result, ServerVersion, Vendor};

/// Settings that Spate's own SQL needs, each after a comma: its statements are neither refused nor truncated, and answers are UTF-8,
/// with names quoted as Spate quotes them.
const OWN_SQL: &str = ", completion_type=0, sql_safe_updates=0, sql_big_selects=1, sql_select_limit=18446744073709551615, \
    sql_quote_show_create=1, character_set_results=utf8mb4, net_read_timeout=3600, net_write_timeout=3600";

/// Numbers of tables as they are, not as they were a day ago; definitions as one would write them.
const QUESTIONS_MYSQL: &str = ", information_schema_stats_expiry=0, show_create_table_verbosity=0";

/// Columns that MySQL adds to tables without a key are in row images, whether a session is to see them or not.
const QUESTIONS_MYSQL_8_0_30: &str = ", show_gipk_in_create_table_and_information_schema=1";

/// The settings that Spate's own SQL needs, each after a comma. Functions of the source may set them in a statement.
pub(crate) fn own_sql(vendor: Vendor) -> String {
    let unlimited = match vendor {
        Vendor::MariaDb => ", max_statement_time=0, max_session_mem_used=9223372036854775807",
        Vendor::MySql => ", max_execution_time=0",
    };
    format!("{OWN_SQL}{unlimited}")
}

/// Connects, logs in, and undoes what the server does to sessions at their beginning, and the effects of global settings on questions.
///
/// # Errors
/// Any error of the connection.
pub fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Connection> {
    let mut connection = with_settings(endpoint, options)?;
    if has_init_connect(&mut connection)? {
        reset(&mut connection)?;
    }
    Ok(connection)
}

/// The same, for a session that executes what the source has logged.
///
/// # Errors
/// [`Error::Session`] if the server has executed `init_connect` for it, and it cannot be undone; any error of the connection.
pub fn connect_to_apply(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Connection> {
    let mut connection = with_settings(endpoint, options)?;
    if !has_init_connect(&mut connection)? {
        return Ok(connection);
    }
    if !connection.server_version().has_cascade_triggers() {
        reset(&mut connection)?;
    } else if connection.query(ADMINISTERS)?.single_text().is_none_or(|count| count == "0") {
        let why = "at its login the server has executed init_connect, which no applier of its own has, and this version cannot undo that. GRANT CONNECTION_ADMIN \
            ON *.* to the account itself (by a role does not count here), or SET GLOBAL init_connect=''";
        return Err(Error::Session { peer: connection.peer().clone(), why: why.to_owned() });
    }
    Ok(connection)
}

/// Keeps what the session does from here on out of the server's binlog. `action` is what needs that.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn log_nothing(connection: &mut Connection, action: &'static str) -> crate::error::Result<()> {
    let grant = match connection.server_version().vendor {
        Vendor::MariaDb => "GRANT BINLOG ADMIN ON *.* TO <the user of Spate>",
        Vendor::MySql => "GRANT SESSION_VARIABLES_ADMIN ON *.* TO <the user of Spate>",
    };
    let switched = connection.execute(b"SET SESSION sql_log_bin=0").map(drop);
    switched.map_err(|error| crate::error::Error::from(error).with_missing_privilege(action, grant))
}

/// Does something that the server's binlog is not to have, and logs afterwards as before.
///
/// # Errors
/// A missing privilege names the GRANT; those of what is done.
pub fn without_log<T, E: From<crate::error::Error>>(
    connection: &mut Connection,
    action: &'static str,
    done: impl FnOnce(&mut Connection) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let before = connection.query("SELECT @@SESSION.sql_log_bin").map_err(crate::error::Error::from)?.single_text();
    log_nothing(connection, action)?;
    let done = done(connection);
    let restored =
        connection.execute(format!("SET SESSION sql_log_bin={}", before.as_deref().unwrap_or("1")).as_bytes());
    let done = done?;
    restored.map_err(crate::error::Error::from)?;
    Ok(done)
}

/// Whether MySQL executes no `init_connect` for this account.
const ADMINISTERS: &str = "SELECT COUNT(*) FROM information_schema.user_privileges \
    WHERE privilege_type IN ('CONNECTION_ADMIN', 'SUPER') AND grantee = CONCAT( \
        QUOTE(LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1)), \
        '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))";

fn with_settings(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Connection> {
    let mut connection = Connection::connect(endpoint, options)?;
    connection.execute(settings(connection.server_version()).as_bytes())?;
    Ok(connection)
}

fn reset(connection: &mut Connection) -> Result<()> {
    connection.reset_session()?;
    connection.execute(settings(connection.server_version()).as_bytes()).map(drop)
}

/// Each question is a transaction of its own, and reads the latest state; an idle session stays connected.
fn settings(version: &ServerVersion) -> String {
    let questions = match version.vendor {
        Vendor::MariaDb => String::new(),
        Vendor::MySql if version.has_invisible_keys() => [QUESTIONS_MYSQL, QUESTIONS_MYSQL_8_0_30].concat(),
        Vendor::MySql => QUESTIONS_MYSQL.to_owned(),
    };
    format!(
        "SET SESSION autocommit=1, sql_mode='', character_set_client=utf8mb4, collation_connection=utf8mb4_general_ci, wait_timeout=28800{}{questions}",
        own_sql(version.vendor)
    )
}

/// True if the server executes `init_connect` at the login of accounts that do not administer connections. Applications may need what it sets; native
/// replication's appliers do not have it. What is not a clear no is a yes.
fn has_init_connect(connection: &mut Connection) -> Result<bool> {
    let bytes = connection.query("SELECT LENGTH(@@GLOBAL.init_connect)")?.single_text();
    Ok(bytes.as_deref() != Some("0"))
}

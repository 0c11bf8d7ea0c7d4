//! Sessions that read ahead: they can change nothing, wait for nobody, and keep nobody waiting for long.

use spate_connection::{Connection, Error, Result, Vendor};

/// How long a query may hold the definition of its table: a definition of the source waits for it.
const QUERY_TIME_MAX_MILLISECONDS: u32 = 100;

/// Codes of "the query took too long", MariaDB's and MySQL's.
const CODES_TOO_LONG: [u16; 2] = [1969, 3024];

/// How a lookup ended.
#[derive(Debug)]
pub enum Looked {
    /// The pages were read.
    Done,
    /// It was ended by the limit of its time.
    TooLong,
    /// The server refused it, and will refuse others of its table.
    Refused(Error),
    /// The connection is lost.
    Lost(Error),
}

/// Makes a session harmless.
///
/// # Errors
/// Any error of the connection.
pub fn begin(connection: &mut Connection) -> Result<()> {
    let limit = match connection.server_version().vendor {
        Vendor::MariaDb => format!("max_statement_time={QUERY_TIME_MAX_MILLISECONDS}e-3"),
        Vendor::MySql => format!("max_execution_time={QUERY_TIME_MAX_MILLISECONDS}"),
    };
    connection.execute(
        format!(
            "SET SESSION sql_mode='ALLOW_INVALID_DATES,NO_BACKSLASH_ESCAPES', time_zone='+00:00', lock_wait_timeout=1, {limit}"
        )
        .as_bytes(),
    )?;
    connection.execute(b"SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY")?;
    Ok(())
}

/// Executes a lookup.
pub fn look_up(connection: &mut Connection, sql: &[u8]) -> Looked {
    let Err(error) = connection.execute_single(sql) else { return Looked::Done };
    match error.code() {
        Some(code) if CODES_TOO_LONG.contains(&code) => Looked::TooLong,
        Some(_) => Looked::Refused(error),
        None => Looked::Lost(error),
    }
}

//! Which servers Spate works with.

use spate_connection::{Connection, ServerVersion, Vendor};

use crate::error::{Error, Result};

/// Refuses servers that Spate does not know.
///
/// # Errors
/// [`Error::Unsuitable`] names the version.
pub fn check_version(connection: &Connection) -> Result<()> {
    let version: &ServerVersion = connection.server_version();
    let is_known = match version.vendor {
        Vendor::MariaDb => version.is_at_least(10, 5),
        Vendor::MySql => version.is_at_least(8, 0),
    };
    if is_known {
        return Ok(());
    }
    let why =
        format!("it is {version}, and this version of Spate works with MariaDB 10.5 and later and MySQL 8.0 and later");
    Err(Error::Unsuitable { peer: connection.peer().to_string(), why })
}

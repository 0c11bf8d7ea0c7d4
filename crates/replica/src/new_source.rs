//! How a promotion tells the Spate of another replica where its source is now, through the one row of the table `spate.new_source` on that replica.
//!
//! | | promotion | Spate with `--follow-promotions` |
//! | --- | --- | --- |
//! | 1 | makes sure that the new source has everything of the replica, and writes the address | |
//! | 2 | | sees it, at its start or while it runs; stops after the batch in flight |
//! | 3 | | receives from there into an archive of its own, from the checkpoint's GTIDs on, and says so in the row |
//! | 4 | sees that | |
//!
//! The row stays: a later start with the option goes there, too, whatever else its command line says. A handover takes the address away. The number of the row grows with each address, and
//! is part of the name of the archive's directory, so that no archive holds the binlogs of two servers.

use spate_connection::{Connection, quote};

use crate::error::{Error, Result};
use crate::own_schema;

/// The table.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.new_source (\
    id INT NOT NULL PRIMARY KEY COMMENT 'always 1', \
    number INT UNSIGNED NOT NULL COMMENT 'grows with each address', \
    host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'empty: taken away', \
    port SMALLINT UNSIGNED NOT NULL, \
    is_followed BOOLEAN NOT NULL COMMENT 'Spate receives from there'\
    ) ENGINE=InnoDB COMMENT='where the source is after a promotion'";

/// An address that a promotion has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSource {
    /// Which address it is of all that this replica was given, from 1.
    pub number: u32,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether Spate receives from there.
    pub is_followed: bool,
}

/// The address that a promotion has given, if any.
///
/// # Errors
/// [`Error::Unsuitable`] if the row makes no sense; any error of the connection.
pub fn read(connection: &mut Connection) -> Result<Option<NewSource>> {
    let table = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'spate' AND TABLE_NAME = 'new_source' AND TABLE_TYPE = 'BASE TABLE'";
    if connection.query(table)?.single_text().as_deref() != Some("1") {
        return Ok(None);
    }
    let rows = connection.query("SELECT number, host, port, is_followed FROM spate.new_source WHERE id = 1")?;
    let Some(host) = rows.text_at(0, 1).filter(|host| !host.is_empty()) else { return Ok(None) };
    let number_at = |column| rows.text_at(0, column).unwrap_or_default().parse().ok();
    let port = number_at(2).and_then(|port: u32| u16::try_from(port).ok());
    let found = number_at(0).zip(port);
    let (number, port) = found.ok_or_else(|| Error::Unsuitable {
        peer: connection.peer().to_string(),
        why: "spate.new_source has a row that only somebody else can have written: DELETE FROM spate.new_source"
            .to_owned(),
    })?;
    Ok(Some(NewSource { number, host, port, is_followed: number_at(3) == Some(1) }))
}

/// Gives an address. The same one again changes nothing. Nobody who follows this server needs to know, so it is not logged.
///
/// # Errors
/// Any error of the connection.
pub fn give(connection: &mut Connection, host: &str, port: u16) -> Result<()> {
    let host = quote::text(host);
    connection.execute(b"SET SESSION sql_log_bin=0")?;
    own_schema::create(connection)?;
    // From left to right: a later assignment sees what an earlier one has set.
    let given = format!(
        "INSERT INTO spate.new_source (id, number, host, port, is_followed) VALUES (1, 1, {host}, {port}, 0) ON DUPLICATE KEY UPDATE \
         is_followed = is_followed AND host = {host} AND port = {port}, \
         number = IF(host = {host} AND port = {port}, number, number + 1), host = {host}, port = {port}"
    );
    connection.execute(given.as_bytes())?;
    connection.execute(b"SET SESSION sql_log_bin=1")?;
    Ok(())
}

/// Spate receives from there. The session should log nothing.
///
/// # Errors
/// Any error of the connection.
pub fn follow(connection: &mut Connection, source: &NewSource) -> Result<()> {
    let followed = format!("UPDATE spate.new_source SET is_followed = 1 WHERE id = 1 AND number = {}", source.number);
    connection.execute(followed.as_bytes())?;
    Ok(())
}

/// Nobody follows that address any more. Where none was given, nothing is done; else it is not logged.
///
/// # Errors
/// Any error of the connection.
pub fn take_away(connection: &mut Connection) -> Result<()> {
    if read(connection)?.is_some() {
        connection.execute(b"SET SESSION sql_log_bin=0")?;
        connection.execute(b"UPDATE spate.new_source SET host = '', is_followed = 0 WHERE id = 1")?;
        connection.execute(b"SET SESSION sql_log_bin=1")?;
    }
    Ok(())
}

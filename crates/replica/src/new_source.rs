//! How a promotion tells the Spate of another replica where its source is now, through the one row of the table `spate.new_source` on that replica.
//!
//! | | promotion | Spate with `--follow-promotions` |
//! | --- | --- | --- |
//! | 1 | looks whether the new source has all that the replica has, and writes address and identity | |
//! | 2 | | sees the row, at its start or while it runs; stops after the batch in flight |
//! | 3 | | makes sure that the server there is the one that was promoted, and has all that the replica has by now |
//! | 4 | | receives from there into an archive of its own, from the checkpoint's GTIDs on, and says so in the row |
//! | 5 | sees that | |
//!
//! The row stays: a later start with the option goes there, too, whatever else its command line says. What gives the replica another way (a handover, a
//! takeover, a first start, a restore) takes the address away. The number of the row grows with each address, and is part of the name of the archive's
//! directory, so that no archive holds the binlogs of two servers.

use std::path::{Path, PathBuf};

use spate_connection::{Connection, Vendor, quote};

use crate::asking;
use crate::error::{Error, Result};
use crate::own_schema;

/// What needs a session that logs nothing.
const GIVE: &str = "say where the source is";

/// The table.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.new_source (\
    id INT NOT NULL PRIMARY KEY COMMENT 'always 1', \
    number INT UNSIGNED NOT NULL COMMENT 'grows with each address', \
    host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'empty: taken away', \
    port SMALLINT UNSIGNED NOT NULL, \
    server_id INT UNSIGNED NOT NULL, \
    server_uuid VARCHAR(36) CHARACTER SET ascii NOT NULL COMMENT 'empty: MariaDB', \
    is_followed BOOLEAN NOT NULL COMMENT 'Spate receives from there'\
    ) ENGINE=InnoDB COMMENT='where the source is after a promotion'";

/// Takes the address away; the number stays.
pub(crate) const TAKE_AWAY: &str = "UPDATE spate.new_source SET host = '', is_followed = 0";

/// Which server it is, wherever it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its `server_id`.
    pub server_id: u32,
    /// MySQL's `server_uuid`; empty for MariaDB.
    pub server_uuid: String,
}

impl Identity {
    /// Of a server.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn of(connection: &mut Connection) -> Result<Identity> {
        let asked = match connection.server_version().vendor {
            Vendor::MariaDb => "SELECT @@global.server_id, ''",
            Vendor::MySql => "SELECT @@global.server_id, @@global.server_uuid",
        };
        let row = connection.query(asked)?;
        let text = |column| row.text_at(0, column).unwrap_or_default();
        Ok(Identity { server_id: text(0).parse().unwrap_or_default(), server_uuid: text(1) })
    }
}

/// An address that a promotion has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSource {
    /// Which address it is of all that this replica was given, from 1.
    pub number: u32,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Which server was promoted.
    pub identity: Identity,
    /// Whether Spate receives from there.
    pub is_followed: bool,
}

/// What comes before the number of a named source in the name of its archive's directory.
const PREFIX: &str = "promoted-";

/// The archive of the latest source that a promotion has named, if Spate has received from one, below the directory of the command line's source.
pub fn latest_archive_below(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse::<u32>().ok());
    Some(directory.join(format!("{PREFIX}{}", numbers.max()?)))
}

/// The archive of what comes from the source that was named, if one was, below the directory of the command line's source. No binlog file has such a name.
pub fn archive_of(directory: &Path, named: Option<&NewSource>) -> PathBuf {
    match named {
        Some(named) => directory.join(format!("{PREFIX}{}", named.number)),
        None => directory.to_owned(),
    }
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
    let rows = connection
        .query("SELECT number, host, port, is_followed, server_id, server_uuid FROM spate.new_source WHERE id = 1")?;
    let Some(host) = rows.text_at(0, 1).filter(|host| !host.is_empty()) else { return Ok(None) };
    let number_at = |column| rows.text_at(0, column).unwrap_or_default().parse().ok();
    let port = number_at(2).and_then(|port: u32| u16::try_from(port).ok());
    let (Some(number), Some(port), Some(server_id)) = (number_at(0), port, number_at(4)) else {
        let why = format!("spate.new_source has a row that only somebody else can have written: {TAKE_AWAY}");
        return Err(Error::Unsuitable { peer: connection.peer().to_string(), why });
    };
    let identity = Identity { server_id, server_uuid: rows.text_at(0, 5).unwrap_or_default() };
    Ok(Some(NewSource { number, host, port, identity, is_followed: number_at(3) == Some(1) }))
}

/// Gives an address. Nobody who follows this server needs to know, so it is not logged.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn give(connection: &mut Connection, host: &str, port: u16, identity: &Identity) -> Result<()> {
    let (host, uuid, id) = (quote::text(host), quote::text(&identity.server_uuid), identity.server_id);
    // From left to right: a later assignment sees what an earlier one has set.
    let given = format!(
        "INSERT INTO spate.new_source (id, number, host, port, server_id, server_uuid, is_followed) VALUES (1, 1, {host}, {port}, {id}, {uuid}, 0) \
         ON DUPLICATE KEY UPDATE is_followed = 0, \
         number = IF(host = {host} AND port = {port} AND server_id = {id} AND server_uuid = {uuid}, number, number + 1), \
         host = {host}, port = {port}, server_id = {id}, server_uuid = {uuid}"
    );
    asking::without_log(connection, GIVE, |connection| {
        own_schema::create(connection)?;
        let given = connection.execute(given.as_bytes()).map(drop);
        given.map_err(|error| Error::from(error).with_missing_privilege(GIVE, own_schema::GRANT))
    })
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
    if read(connection)?.is_none() {
        return Ok(());
    }
    asking::without_log(connection, "forget where the source was", |connection| {
        connection.execute(TAKE_AWAY.as_bytes())?;
        Ok(())
    })
}

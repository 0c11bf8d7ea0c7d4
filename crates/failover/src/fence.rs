//! How a server is kept from taking writes: `read_only`, the connections of others, and its events.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use spate_connection::{Vendor, quote};

use crate::error::{Error, Result};
use crate::steps::LOOK_EVERY;
use crate::topology::Server;

/// How long sessions that were killed may take to end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// What fencing did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fenced {
    /// True if the server took writes until then.
    pub(crate) was_open: bool,
    /// How many connections were ended.
    pub(crate) killed: usize,
    /// MariaDB: true if it executed events until then.
    pub(crate) had_events: bool,
    /// MariaDB: true if it still does, since the account may not turn that off.
    pub(crate) keeps_events: bool,
    /// Accounts that may write nevertheless (MariaDB's READ_ONLY ADMIN).
    pub(crate) privileged: Vec<String>,
}

/// Connections of others. What reads the binlog is none of them: it brings the rest to the replicas. Neither is what belongs to the server.
fn connections_of_others(server: &mut Server) -> Result<Vec<String>> {
    let own = server.connection.connection_id();
    let found = server.connection.query(&format!(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> {own} AND COMMAND NOT LIKE 'Binlog Dump%' \
         AND COMMAND NOT IN ('Daemon', 'Connect', 'Slave_IO', 'Slave_SQL', 'Slave_worker') \
         AND USER NOT IN ('system user', 'event_scheduler')"
    ))?;
    Ok((0..found.rows.len()).filter_map(|row| found.text_at(row, 0)).collect())
}

fn kill<'a>(server: &mut Server, ids: impl IntoIterator<Item = &'a String>) {
    for id in ids {
        // It may end by itself at just this moment.
        let _ended = server.connection.execute(format!("KILL CONNECTION {id}").as_bytes());
    }
}

/// Sets `read_only`. Connections that have locked tables, and keep the server from it, are ended.
fn close(server: &mut Server) -> Result<()> {
    let deadline = Instant::now() + KILL_PATIENCE;
    server.execute("SET SESSION lock_wait_timeout=1")?;
    loop {
        match set_read_only(server, true) {
            Err(Error::Replica(error)) if error.is_lock_conflict() && Instant::now() < deadline => {
                let ids = connections_of_others(server)?;
                kill(server, &ids);
            }
            closed => return closed,
        }
    }
}

/// Keeps a server from taking writes, and ends the connections of others.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub(crate) fn fence(server: &mut Server) -> Result<Fenced> {
    let mut fenced = Fenced { was_open: !server.facts.is_read_only, ..Fenced::default() };
    close(server)?;
    if server.vendor() == Vendor::MariaDb && executes_events(server)? {
        // Events of accounts with READ_ONLY ADMIN would go on writing.
        match server.execute("SET GLOBAL event_scheduler=OFF") {
            Ok(()) => fenced.had_events = true,
            Err(_) => fenced.keeps_events = true,
        }
    }
    let deadline = Instant::now() + KILL_PATIENCE;
    let mut seen = BTreeSet::new();
    loop {
        let ids = connections_of_others(server)?;
        // Clients that connect again cannot write. Only those are waited for that were there when the server was closed.
        if seen.is_empty() {
            seen.extend(ids.clone());
            fenced.killed = seen.len();
        }
        let left: Vec<&String> = ids.iter().filter(|id| seen.contains(*id)).collect();
        if left.is_empty() || Instant::now() > deadline {
            break;
        }
        kill(server, left);
        thread::sleep(LOOK_EVERY);
    }
    if server.vendor() == Vendor::MariaDb {
        fenced.privileged = privileged_accounts(server).unwrap_or_default();
    }
    server.look_again()?;
    Ok(fenced)
}

/// MariaDB's accounts that a read-only server does not keep from writing.
fn privileged_accounts(server: &mut Server) -> Result<Vec<String>> {
    let found = server.connection.query(
        "SELECT DISTINCT GRANTEE FROM information_schema.USER_PRIVILEGES \
         WHERE PRIVILEGE_TYPE IN ('READ_ONLY ADMIN', 'READ ONLY ADMIN') ORDER BY 1",
    )?;
    Ok((0..found.rows.len()).filter_map(|row| found.text_at(row, 0)).collect())
}

/// Opens or closes a server for writes.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub(crate) fn set_read_only(server: &mut Server, is_read_only: bool) -> Result<()> {
    let (sql, grant) = match (server.vendor(), is_read_only) {
        (Vendor::MariaDb, true) => ("SET GLOBAL read_only=1", "GRANT READ_ONLY ADMIN ON *.* TO <the user of Spate>"),
        (Vendor::MariaDb, false) => ("SET GLOBAL read_only=0", "GRANT READ_ONLY ADMIN ON *.* TO <the user of Spate>"),
        (Vendor::MySql, true) => (
            "SET GLOBAL read_only=1; SET GLOBAL super_read_only=1",
            "GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* TO <the user of Spate>",
        ),
        (Vendor::MySql, false) => (
            "SET GLOBAL super_read_only=0; SET GLOBAL read_only=0",
            "GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* TO <the user of Spate>",
        ),
    };
    let done = server.connection.execute(sql.as_bytes());
    done.map_err(|error| spate_replica::Error::from(error).with_missing_privilege("set read_only", grant))?;
    Ok(())
}

/// True if the account may see all events.
fn sees_events(server: &mut Server) -> Result<bool> {
    let may = "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'EVENT' AND GRANTEE = \
               CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))";
    Ok(server.value(may)? != "0")
}

/// True if a server executes events, or may.
fn executes_events(server: &mut Server) -> Result<bool> {
    if server.value("SELECT @@global.event_scheduler")? != "ON" {
        return Ok(false);
    }
    let enabled = "SELECT COUNT(*) FROM information_schema.EVENTS WHERE STATUS = 'ENABLED'";
    Ok(!sees_events(server)? || server.value(enabled)? != "0")
}

/// Events that a server does not execute, since it was a replica when they came to it; `None` if the account may not see all.
pub(crate) fn sleeping_events(server: &mut Server) -> Result<Option<Vec<String>>> {
    if !sees_events(server)? {
        return Ok(None);
    }
    let sql = "SELECT EVENT_SCHEMA, EVENT_NAME FROM information_schema.EVENTS WHERE STATUS NOT IN ('ENABLED', 'DISABLED') \
               ORDER BY 1, 2";
    let found = server.connection.query(sql)?;
    let name = |row| Some(quote::qualified(&found.text_at(row, 0)?, &found.text_at(row, 1)?));
    Ok(Some((0..found.rows.len()).filter_map(name).collect()))
}

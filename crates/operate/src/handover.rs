//! Handing a replica over to the server's own replication: Spate tells the server which transactions it has applied, so that the server's own
//! replication goes on exactly there.

use serde::Serialize;
use spate_binlog::GtidPosition;

use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Vendor, quote};
use spate_replica::applier_lock::ApplierLock;
use spate_replica::asking;
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::new_source;
use spate_replica::{Error, Result};
use spate_replica::{journal, own_schema, sharding, spread};

use crate::ahead::first_beyond;

/// What was handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Handover {
    /// The GTID position that Spate has reached; empty if the source's transactions have no GTIDs.
    pub gtid_position: String,
    /// The source's binlog file of the last transaction.
    pub source_file: String,
    /// Offset after it.
    pub source_position: u64,
    /// The statement that made the position known to the server; `None` if it knew it.
    pub executed: Option<String>,
    /// The statement that makes the server replicate from the source, with what Spate does not know in angle brackets.
    pub next: String,
}

/// Makes what Spate has applied known to the replica's server. Nobody may be applying meanwhile.
///
/// # Errors
/// [`Error::Locked`] while a Spate applies; [`Error::Unsuitable`] if there is nothing to hand over, or something half done; a missing
/// privilege names the GRANT.
pub fn hand_over(replica: &Endpoint) -> Result<Handover> {
    let mut connection = asking::connect(replica, &ConnectOptions::new("replica"))?;
    own_schema::create(&mut connection)?;
    let _until_the_connection_ends = ApplierLock::take(&mut connection)?;
    tell(&mut connection)
}

/// The same, for whoever holds the lock.
pub(crate) fn tell(connection: &mut Connection) -> Result<Handover> {
    let peer = connection.peer().to_string();
    let unsuitable = |why: &str| Error::Unsuitable { peer: peer.clone(), why: why.to_owned() };
    let vendor = connection.server_version().vendor;
    let Some(checkpoint) = checkpoint::read(connection)? else {
        return Err(unsuitable("it has no checkpoint: Spate never applied anything to it"));
    };
    let position = &checkpoint.gtid_position;
    if let Some(what) = unfinished(connection, &checkpoint)? {
        return Err(unsuitable(&format!("{what}: let spate replicate finish it (--until caught-up), then hand over")));
    }
    let executed = match vendor {
        _ if position.is_empty() => None,
        Vendor::MariaDb => tell_mariadb(connection, position)?,
        Vendor::MySql => tell_mysql(connection, position)?,
    };
    new_source::take_away(connection)?;
    let place = match vendor {
        Vendor::MariaDb => "MASTER_USE_GTID=slave_pos".to_owned(),
        Vendor::MySql if !position.is_empty() => "SOURCE_AUTO_POSITION=1".to_owned(),
        Vendor::MySql => format!(
            "SOURCE_LOG_FILE={}, SOURCE_LOG_POS={}",
            quote::text(&checkpoint.source_file),
            checkpoint.source_position
        ),
    };
    let next = match vendor {
        Vendor::MariaDb => {
            format!(
                "CHANGE MASTER TO MASTER_HOST='<source>', MASTER_USER='<user>', MASTER_PASSWORD='<password>', {place}; START SLAVE"
            )
        }
        Vendor::MySql => format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='<source>', SOURCE_USER='<user>', SOURCE_PASSWORD='<password>', {place}; \
             START REPLICA"
        ),
    };
    Ok(Handover {
        gtid_position: position.to_string(),
        source_file: checkpoint.source_file.clone(),
        source_position: checkpoint.source_position,
        executed,
        next,
    })
}

/// What an earlier run has left half done, beyond the checkpoint.
pub(crate) fn unfinished(connection: &mut Connection, checkpoint: &Checkpoint) -> Result<Option<&'static str>> {
    if journal::read(connection)?.is_some() {
        return Ok(Some("an earlier run was interrupted in the midst of something that cannot be rolled back"));
    }
    if !spread::beyond(&spread::read(connection)?, &checkpoint.gtid_position).is_empty() {
        return Ok(Some("an earlier run was interrupted while some transactions were applied ahead of others"));
    }
    if sharding::find_uneven(connection, checkpoint)?.is_some() {
        return Ok(Some("an earlier run was interrupted while its appliers were at different positions"));
    }
    Ok(None)
}

/// Domains that Spate knows nothing of keep their positions.
fn tell_mariadb(connection: &mut Connection, position: &GtidPosition) -> Result<Option<String>> {
    let text = connection.query("SELECT @@global.gtid_slave_pos")?.single_text().unwrap_or_default();
    let known: GtidPosition = text.parse().map_err(|error: spate_binlog::Error| Error::Unsuitable {
        peer: connection.peer().to_string(),
        why: format!("its gtid_slave_pos cannot be read: {error}"),
    })?;
    if let Some(gtid) = first_beyond(&known, position) {
        let why = format!(
            "its gtid_slave_pos has {gtid}, which Spate's checkpoint ('{position}') has not: its own replication has applied more, and would \
             apply it again"
        );
        return Err(Error::Unsuitable { peer: connection.peer().to_string(), why });
    }
    let mut merged = known.clone();
    for gtid in position.domains() {
        merged.advance(spate_binlog::Gtid::MariaDb(gtid));
    }
    if merged == known {
        return Ok(None);
    }
    let sql = format!("SET GLOBAL gtid_slave_pos='{merged}'");
    execute(connection, sql, "GRANT REPLICATION SLAVE ADMIN ON *.* TO <the user of Spate>").map(Some)
}

fn tell_mysql(connection: &mut Connection, position: &GtidPosition) -> Result<Option<String>> {
    let missing = connection.query(&format!("SELECT GTID_SUBTRACT('{position}', @@global.gtid_executed)"))?;
    let missing = missing.single_text().unwrap_or_default().replace(['\n', ' '], "");
    if missing.is_empty() {
        return Ok(None);
    }
    let sql = format!("SET GLOBAL gtid_purged='+{missing}'");
    execute(connection, sql, "GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO <the user of Spate>").map(Some)
}

fn execute(connection: &mut Connection, sql: String, grant: &str) -> Result<String> {
    /// What MariaDB says while another channel replicates.
    const RUNNING: u16 = 1198;
    let executed = connection.execute(sql.as_bytes());
    if executed.as_ref().is_err_and(|error| error.code() == Some(RUNNING)) {
        let why = "it takes a position only while none of its channels replicates: STOP ALL SLAVES, and START ALL SLAVES afterwards";
        return Err(Error::Unsuitable { peer: connection.peer().to_string(), why: why.to_owned() });
    }
    executed.map_err(|error| Error::from(error).with_missing_privilege("take over the position", grant))?;
    Ok(sql)
}

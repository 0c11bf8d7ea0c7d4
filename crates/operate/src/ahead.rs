//! Who has applied more, Spate or the server's own replication.

use spate_binlog::{Gtid, GtidPosition, MariaDbGtid};
use spate_connection::{Connection, Vendor};
use spate_replica::checkpoint::Checkpoint;
use spate_replica::native::{self, Channel, Place};
use spate_replica::{Error, Result};

/// The UUID of MySQL's server; empty for MariaDB's, which has none.
pub(crate) fn server_uuid(connection: &mut Connection) -> Result<String> {
    Ok(match connection.server_version().vendor {
        Vendor::MariaDb => String::new(),
        Vendor::MySql => connection.query("SELECT @@global.server_uuid")?.single_text().unwrap_or_default(),
    })
}

/// True if the server's own replication is further than Spate was.
pub(crate) fn is_native_ahead(connection: &mut Connection, known: &Checkpoint, executed: &Checkpoint) -> Result<bool> {
    let (has_more, lacks) = match (known.place_without_gtid(), executed.place_without_gtid()) {
        (Some(known), Some(executed)) => {
            let place = |(file, position): (String, u64)| Place { file, position };
            let (known, executed) = (place(known), place(executed));
            (!known.has_reached(&executed), !executed.has_reached(&known))
        }
        (None, None) if connection.server_version().vendor == Vendor::MySql => {
            // What Spate applied is logged as the replica's own.
            let own = server_uuid(connection)?;
            let mut missing = |of: &Checkpoint, from: &Checkpoint| -> Result<bool> {
                let sets = sets_beyond(connection, &of.gtid_position, &from.gtid_position)?;
                Ok(sets.iter().any(|set| !set.starts_with(&own)))
            };
            (missing(executed, known)?, missing(known, executed)?)
        }
        (None, None) => {
            let (known, executed) = (&known.gtid_position, &executed.gtid_position);
            let mut has_more = executed.domains().map(Gtid::MariaDb);
            let mut lacks = known.domains().map(Gtid::MariaDb);
            (has_more.any(|gtid| !known.covers(gtid)), lacks.any(|gtid| !executed.covers(gtid)))
        }
        _ => (true, true),
    };
    if has_more && lacks {
        let why = format!(
            "Spate's checkpoint there ({}) and its own replication ({}) have each what the other lacks: make the replica anew, or remove the wrong \
             one",
            place_text(known),
            place_text(executed)
        );
        return Err(unsuitable(connection, why));
    }
    Ok(has_more)
}

/// MySQL: what the one set of GTIDs has and the other lacks, each server's by itself, as the server subtracts them.
pub(crate) fn sets_beyond(connection: &mut Connection, of: &GtidPosition, from: &GtidPosition) -> Result<Vec<String>> {
    let rest = connection.query(&format!("SELECT GTID_SUBTRACT('{of}', '{from}')"))?.single_text().unwrap_or_default();
    let rest = rest.replace(['\n', ' '], "");
    Ok(rest.split(',').filter(|set| set.contains('-')).map(str::to_owned).collect())
}

/// A checkpoint's place, for people.
pub(crate) fn place_text(checkpoint: &Checkpoint) -> String {
    let Checkpoint { gtid_position, source_file, source_position, .. } = checkpoint;
    format!("'{gtid_position}', {source_file}:{source_position}")
}

/// Fails if a channel that is not parked, and stands still, has gone beyond the checkpoint: somebody has let it go on, and Spate would apply
/// again what it has applied. An account that may not see channels is not told.
///
/// # Errors
/// [`Error::Unsuitable`]; any error of the connection.
pub(crate) fn check_not_overtaken(connection: &mut Connection, known: &Checkpoint) -> Result<()> {
    for channel in native::look_at_all(connection)? {
        if !channel.is_parked() && !channel.applies && has_gone_beyond(connection, &channel, known)? {
            let why = format!(
                "its own replication (channel '{}') has applied more than Spate's checkpoint says: go on with spate takeover, or set the \
                 replica's place right",
                channel.name
            );
            return Err(unsuitable(connection, why));
        }
    }
    Ok(())
}

/// True if the server's own replication over this channel has applied something of the source that Spate has not. Only what both know counts: a
/// server may replicate from others, too.
pub(crate) fn has_gone_beyond(connection: &mut Connection, channel: &Channel, known: &Checkpoint) -> Result<bool> {
    let vendor = connection.server_version().vendor;
    if !channel.by_gtid && !known.source_file.is_empty() {
        let spate = Place { file: known.source_file.clone(), position: known.source_position };
        // Files of another name are another source's.
        return Ok(base_name(&spate.file) == base_name(&channel.place.file) && !spate.has_reached(&channel.place));
    }
    if known.gtid_position.is_empty() {
        return Ok(false);
    }
    if vendor == Vendor::MySql {
        let sql = format!("SELECT GTID_SUBTRACT(@@global.gtid_executed, '{}')", known.gtid_position);
        let rest = connection.query(&sql)?.single_text().unwrap_or_default().replace(['\n', ' '], "");
        let own = server_uuid(connection)?;
        let position = known.gtid_position.to_string();
        let server = |part: &str| part.split(':').next().unwrap_or_default().to_owned();
        return Ok(rest
            .split(',')
            .map(server)
            .any(|server| !server.is_empty() && server.contains('-') && server != own && position.contains(&server)));
    }
    let text = connection.query("SELECT @@global.gtid_slave_pos")?.single_text().unwrap_or_default();
    let told: GtidPosition =
        text.parse().map_err(|error| unsuitable(connection, format!("its gtid_slave_pos: {error}")))?;
    Ok(first_beyond(&told, &known.gtid_position).is_some())
}

/// A GTID of `told`, a position of MariaDB, that `known` has the domain of and does not cover.
pub(crate) fn first_beyond(told: &GtidPosition, known: &GtidPosition) -> Option<MariaDbGtid> {
    told.domains().find(|&gtid| {
        let is_shared = known.domains().any(|other| other.domain_id == gtid.domain_id);
        is_shared && !known.covers(Gtid::MariaDb(gtid))
    })
}

/// The name of a binlog file without its number.
fn base_name(file: &str) -> &str {
    file.rsplit_once('.').map_or(file, |(base, _)| base)
}

/// The error of a replica that is not as it must be.
pub(crate) fn unsuitable(connection: &Connection, why: String) -> Error {
    Error::Unsuitable { peer: connection.peer().to_string(), why }
}

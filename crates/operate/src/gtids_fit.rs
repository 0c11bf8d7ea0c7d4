//! Whether transactions can keep the source's GTIDs on a replica: what its binlog has already must be what the checkpoint says.

use std::collections::BTreeSet;

use spate_binlog::{Gtid, GtidPosition, MariaDbGtid};
use spate_connection::{Connection, Vendor};
use spate_replica::checkpoint::Checkpoint;
use spate_replica::gtids;
use spate_replica::status::Status;
use spate_replica::{Error, Result, spread};

use crate::ApplyOptions;
use crate::ahead::{sets_beyond, unsuitable};

/// Looks at the replica's GTIDs, if transactions are to keep those of the source: fails if it would pass over some, or refuse them.
///
/// # Errors
/// [`Error::Unsuitable`]; any error of the connection.
pub(crate) fn check(
    connection: &mut Connection,
    options: &ApplyOptions,
    checkpoint: &Checkpoint,
    status: &Status,
) -> Result<()> {
    let Some(parallel) = options.parallel.filter(|_| !options.without_replica_binlog) else {
        return Ok(());
    };
    if connection.query("SELECT @@GLOBAL.log_bin")?.single_text().as_deref() != Some("1") {
        return Ok(());
    }
    let mut ahead = spread::read(connection)?;
    // What was begun and may be done already.
    let noted = connection.query("SELECT gtid FROM spate.intent")?;
    ahead.extend(noted.single_text().iter().filter_map(|gtid| gtid.parse::<Gtid>().ok()));
    let position = &checkpoint.gtid_position;
    let note = match connection.server_version().vendor {
        Vendor::MariaDb => in_domains(connection, position, &ahead, parallel.keeps_order)?,
        Vendor::MySql => in_sets(connection, position, &ahead, parallel.group)?,
    };
    if let Some(note) = note {
        status.note("applier", &note);
    }
    Ok(())
}

/// MariaDB: one number after the other in each domain.
fn in_domains(
    connection: &mut Connection,
    position: &GtidPosition,
    ahead: &BTreeSet<Gtid>,
    keeps_order: bool,
) -> Result<Option<String>> {
    let answer = connection.query("SELECT @@GLOBAL.gtid_strict_mode, @@GLOBAL.server_id")?;
    let is_strict = answer.text_at(0, 0).as_deref() == Some("1");
    let own_domain = answer.text_at(0, 1).and_then(|id| id.parse().ok()).map(gtids::own_domain);
    if is_strict && !keeps_order {
        let why = "with gtid_strict_mode, its binlog takes GTIDs only in their order: let --commit-order be preserve, do without its binlog \
                   (--no-replica-binlog), or SET GLOBAL gtid_strict_mode=OFF there";
        return Err(unsuitable(connection, why.to_owned()));
    }
    // The next one may have been begun, and be in the binlog, without a note: a definition that can be repeated.
    let is_beyond = |own: &MariaDbGtid| {
        Some(own.domain_id) != own_domain
            && position.domains().any(|known| known.domain_id == own.domain_id && known.sequence + 1 < own.sequence)
            && !ahead.contains(&Gtid::MariaDb(*own))
    };
    let beyond: Vec<String> =
        gtids::logged(connection)?.iter().filter(|gtid| is_beyond(gtid)).map(ToString::to_string).collect();
    if beyond.is_empty() {
        return Ok(None);
    }
    let why = format!(
        "its binlog has {} already, and Spate's checkpoint is at '{position}': the source's next GTIDs would not be in order behind that. What the \
         replica writes by itself needs a gtid_domain_id of its own; RESET MASTER there forgets what its binlog has",
        beyond.join(", ")
    );
    if is_strict { Err(unsuitable(connection, why)) } else { Ok(Some(format!("the replica: {why}"))) }
}

/// MySQL: sets. What is in them is passed over.
fn in_sets(
    connection: &mut Connection,
    position: &GtidPosition,
    ahead: &BTreeSet<Gtid>,
    group: u64,
) -> Result<Option<String>> {
    let answer = connection.query("SELECT @@GLOBAL.gtid_mode, @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed")?;
    let text = |column| answer.text_at(0, column).unwrap_or_default();
    let (mode, own, executed) = (text(0), text(1), text(2));
    if mode != "ON" {
        return Ok(Some(format!(
            "the replica's gtid_mode is {mode}: its transactions do not keep the source's GTIDs, and replicas of it go on by file and offset"
        )));
    }
    if group > 1 {
        return Ok(Some(
            "a transaction of MySQL has one GTID: with --group above 1, the replica's have GTIDs of its own".to_owned(),
        ));
    }
    let mut known = position.clone();
    for &gtid in ahead {
        known.advance(gtid);
    }
    let executed: String = executed.split_whitespace().collect();
    let executed: GtidPosition = executed.parse().map_err(|error: spate_binlog::Error| Error::Checkpoint {
        replica: connection.peer().to_string(),
        why: format!("gtid_executed is {executed:?}: {error}"),
    })?;
    let more = sets_beyond(connection, &executed, &known)?;
    let lacks = sets_beyond(connection, &known, &executed)?.join(",");
    // Its own, and those of servers of which the source has told nothing, come from no source.
    let is_of_source = |set: &String| {
        let uuid = set.split(':').next().unwrap_or_default();
        uuid != own && (position.is_empty() || position.to_string().contains(uuid))
    };
    let more: Vec<String> = more.into_iter().filter(is_of_source).collect();
    // A definition that can be repeated has no note. (If the one is another transaction, that it is passed over is noticed when it is applied.)
    let is_one = |set: &str| set.split_once(':').is_some_and(|(_, numbers)| !numbers.contains(['-', ':']));
    if !more.is_empty() && !matches!(&more[..], [one] if is_one(one)) {
        let why = format!(
            "its gtid_executed has {} already, and Spate's checkpoint is at '{position}': the replica would pass over those transactions. Begin behind \
             them, or RESET BINARY LOGS AND GTIDS there if it does not have what they did",
            more.join(",")
        );
        return Err(unsuitable(connection, why));
    }
    Ok((!lacks.is_empty()).then(|| {
        format!(
            "the replica's gtid_executed lacks {lacks}, which is applied there under other GTIDs: a replica of it that asks by GTID needs them in its \
             gtid_purged"
        )
    }))
}

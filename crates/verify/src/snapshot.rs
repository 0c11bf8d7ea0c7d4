//! Sessions that read one consistent state of a server, and the position of that state.
//!
//! On a live source several sessions must see the *same* state. As a rule this needs no lock: Spate opens the snapshots
//! in one burst, reads the binlog position of each, and repeats the burst if the positions differ. That needs no
//! privilege beyond SELECT.
//!
//! On a source that is too busy for this, Spate blocks commits during one burst. `BACKUP STAGE BLOCK_COMMIT` needs
//! RELOAD; unlike `FLUSH TABLES WITH READ LOCK` it neither waits for long queries nor closes tables. Without that
//! privilege Spate uses the largest group of sessions with one position.
//!
//! MySQL does not tell a snapshot's position, so there Spate locks all tables during the burst.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use spate_binlog::GtidPosition;

use super::error::{Error, Result};
use super::hold::parse_position;
use spate_connection::endpoint::Endpoint;
use spate_connection::{CODE_LOCK_WAIT, ConnectOptions, Connection, Vendor, quote};
use spate_replica::asking;

/// Bursts without a lock before Spate blocks commits.
const FREE_BURSTS_MAX: usize = 20;

/// How often Spate reads each session's coordinates, how many of the answers must agree, and the pause between them;
/// see [`read_settled_coordinates`].
const REPORTS: usize = 9;
const REPORTS_ALIKE: usize = 7;
const REPORT_PAUSE: Duration = Duration::from_millis(1);

/// A binlog file and an offset in it.
type Coordinates = (String, u64);

/// Settings of every session of a comparison, in addition to those of [`asking`]. They give each value one textual
/// form, and end a session that waits too long behind another client's DDL.
const SESSION: &str = "SET NAMES utf8mb4; SET SESSION time_zone = '+00:00', lock_wait_timeout = 60; \
    SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";

/// The `lock_wait_timeout` of [`SESSION`].
const LOCK_WAIT_SECONDS: u32 = 60;

/// Blocks commits while Spate opens the snapshots, because MySQL does not tell a snapshot's position. While this
/// statement waits for a long query, no client can write, so it waits for one second only and Spate retries.
const LOCK_MYSQL: &str = "SET SESSION lock_wait_timeout = 1; FLUSH TABLES WITH READ LOCK";
const LOCK_TRIES_MAX: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(500);

const START: &[u8] = b"START TRANSACTION WITH CONSISTENT SNAPSHOT";

/// A comparison writes nothing that belongs in a binlog. Also, if a binlog is open, MariaDB releases metadata locks at
/// a rollback to a savepoint only if the session does not log. Needs BINLOG ADMIN.
const NO_BINLOG: &[u8] = b"SET SESSION sql_log_bin = 0";

/// The end of each statement in a snapshot: it releases the metadata locks, so that no client's DDL waits for the
/// comparison. (Without the privilege for [`NO_BINLOG`], DDL on the tables already read does wait.)
pub(super) const RELEASE_LOCKS: &str = "; ROLLBACK TO SAVEPOINT spate_verify";
const SAVEPOINT: &[u8] = b"SAVEPOINT spate_verify";

/// The position of a snapshot of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourcePosition {
    pub(super) gtid: GtidPosition,
    pub(super) file: String,
    pub(super) offset: u64,
}

/// Opens a session for comparing.
pub(super) fn open_session(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Connection> {
    let mut connection = asking::connect(endpoint, options)?;
    connection.execute(SESSION.as_bytes())?;
    match connection.execute(NO_BINLOG) {
        Err(error) if error.server_error().is_none() => Err(error.into()),
        _ => Ok(connection),
    }
}

/// Opens `count` sessions for comparing.
pub(super) fn open_sessions(endpoint: &Endpoint, options: &ConnectOptions, count: usize) -> Result<Vec<Connection>> {
    (0..count).map(|_| open_session(endpoint, options)).collect()
}

/// Starts a snapshot in each session, as close together in time as possible.
pub(super) fn start_snapshots(sessions: &mut [Connection]) -> Result<()> {
    for session in sessions.iter_mut() {
        session.send_query(START)?;
    }
    for session in sessions.iter_mut() {
        session.receive_result()?;
    }
    Ok(())
}

/// Sets the savepoint that [`RELEASE_LOCKS`] rolls back to in each snapshot.
pub(super) fn set_savepoints(sessions: &mut [Connection]) -> Result<()> {
    for session in sessions {
        session.execute(SAVEPOINT)?;
    }
    Ok(())
}

/// Starts snapshots of the source that all have one position, and drops the sessions whose snapshot has another one.
/// `control` is a session without a snapshot.
pub(super) fn start_on_source(control: &mut Connection, sessions: &mut Vec<Connection>) -> Result<SourcePosition> {
    if control.server_version().vendor == Vendor::MySql {
        return start_on_mysql(control, sessions);
    }
    for _ in 0..FREE_BURSTS_MAX {
        start_snapshots(sessions)?;
        if !have_equal_coordinates(sessions)? {
            continue;
        }
        let coordinates = read_settled_coordinates(sessions)?;
        if let Some(Some(place)) = coordinates.first()
            && coordinates.iter().all(|other| other.as_ref() == Some(place))
        {
            return find_gtid_position(control, place);
        }
    }
    start_on_busy_source(control, sessions)
}

/// Starts the snapshots while a lock blocks commits.
fn start_on_mysql(control: &mut Connection, sessions: &mut [Connection]) -> Result<SourcePosition> {
    let mut tries = 0;
    while let Err(error) = control.execute(LOCK_MYSQL.as_bytes()) {
        let is_busy = error.code() == Some(CODE_LOCK_WAIT);
        tries += 1;
        if !is_busy || tries >= LOCK_TRIES_MAX {
            let why = match is_busy {
                true => "a long query prevents the short lock of all tables that Spate needs".to_owned(),
                false => format!("the short lock of all tables failed, which needs GRANT RELOAD ON *.*: {error}"),
            };
            return Err(Error::SourcePositionUnknown { why });
        }
        sleep(LOCK_PAUSE);
    }
    let place = start_snapshots(sessions).and_then(|()| read_mysql_position(control));
    // The session's later statements may wait as long as those of the other sessions.
    control.execute(format!("UNLOCK TABLES; SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}").as_bytes())?;
    place
}

fn read_mysql_position(control: &mut Connection) -> Result<SourcePosition> {
    let gtid = control.query("SELECT @@global.gtid_executed")?.single_text().unwrap_or_default();
    // Without the privilege REPLICATION CLIENT only the file and the offset are missing.
    let status = control.query(control.server_version().binlog_status_sql()).ok();
    let text = |column| status.as_ref().and_then(|answer| answer.text_at(0, column)).unwrap_or_default();
    let offset = text(1).parse().unwrap_or(0);
    Ok(SourcePosition { gtid: parse_position(&gtid)?, file: text(0), offset })
}

/// Starts the snapshots while commits are blocked, if bursts alone did not give one position.
///
/// The sessions already have snapshots, at different positions. Without the privilege to block commits, the largest
/// group with one position remains.
pub(super) fn start_on_busy_source(control: &mut Connection, sessions: &mut Vec<Connection>) -> Result<SourcePosition> {
    match control.execute(b"BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT") {
        Ok(_) => {
            let started = start_snapshots(sessions);
            control.execute(b"BACKUP STAGE END")?;
            started?;
        }
        // The first stage succeeded, and the second timed out behind another client's lock.
        Err(error) if error.server_error().is_some_and(|error| error.statement > 0) => {
            control.execute(b"BACKUP STAGE END")?;
        }
        Err(error) if error.server_error().is_none() => return Err(error.into()),
        Err(_no_privilege) => {}
    }
    let coordinates = read_settled_coordinates(sessions)?;
    let mut counts: HashMap<&Coordinates, usize> = HashMap::new();
    for place in coordinates.iter().flatten() {
        *counts.entry(place).or_default() += 1;
    }
    let Some((most, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
        let why =
            "no session reports the same one repeatedly, as if other clients run SHOW STATUS all the time".to_owned();
        return Err(Error::SourcePositionUnknown { why });
    };
    let mut places = coordinates.iter();
    sessions.retain(|_| places.next().is_some_and(|place| place.as_ref() == Some(most)));
    find_gtid_position(control, most)
}

/// Reads the binlog coordinates of each session's snapshot; `None` for a session whose answers do not agree.
///
/// MariaDB copies a session's coordinates into variables that all sessions share before it shows them. If several
/// sessions run SHOW STATUS at one moment, one may get the coordinates of another. (Measured with 10.11: one answer in
/// a hundred while another session runs it all the time, and many in a row when the two fall into step.) A monitoring
/// client may run it at any time. So Spate reads from one session after the other, several times with a pause, and
/// nearly all answers of a session must agree.
pub(super) fn read_settled_coordinates(sessions: &mut [Connection]) -> Result<Vec<Option<Coordinates>>> {
    let mut reports: Vec<Vec<Coordinates>> = vec![Vec::new(); sessions.len()];
    for round in 0..REPORTS {
        if round > 0 {
            sleep(REPORT_PAUSE);
        }
        for (session, reports) in sessions.iter_mut().zip(&mut reports) {
            reports.push(read_coordinates(session)?);
        }
    }
    let settled = |reports: Vec<Coordinates>| {
        let agreeing = |place: &Coordinates| reports.iter().filter(|other| *other == place).count();
        reports.iter().find(|place| agreeing(place) >= REPORTS_ALIKE).cloned()
    };
    Ok(reports.into_iter().map(settled).collect())
}

/// A quick check: true if all sessions report the same coordinates once.
fn have_equal_coordinates(sessions: &mut [Connection]) -> Result<bool> {
    let places: Result<Vec<Coordinates>> = sessions.iter_mut().map(read_coordinates).collect();
    Ok(places?.windows(2).all(|pair| pair[0] == pair[1]))
}

fn read_coordinates(session: &mut Connection) -> Result<Coordinates> {
    let answer = session.query("SHOW STATUS LIKE 'binlog_snapshot_%'")?;
    let value = |name: &str| {
        let row = (0..answer.rows.len())
            .find(|row| answer.text_at(*row, 0).is_some_and(|found| found.eq_ignore_ascii_case(name)))?;
        answer.text_at(row, 1)
    };
    let file = value("binlog_snapshot_file").unwrap_or_default();
    match value("binlog_snapshot_position").and_then(|text| text.parse().ok()) {
        Some(offset) if !file.is_empty() => Ok((file, offset)),
        _ => {
            let why = "it has no binlog, or is not a MariaDB with binlog_snapshot_file".to_owned();
            Err(Error::SourcePositionUnknown { why })
        }
    }
}

fn find_gtid_position(control: &mut Connection, (file, offset): &Coordinates) -> Result<SourcePosition> {
    let answer = control.query(&format!("SELECT BINLOG_GTID_POS({}, {offset})", quote::text(file)))?;
    let Some(text) = answer.single_text() else {
        let why = format!("BINLOG_GTID_POS('{file}', {offset}) gave NULL");
        return Err(Error::SourcePositionUnknown { why });
    };
    Ok(SourcePosition { gtid: parse_position(&text)?, file: file.clone(), offset: *offset })
}

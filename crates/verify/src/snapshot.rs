//! Sessions that read one consistent state of a server, and the position of that state.
//!
//! On a live source several sessions must see the *same* state. Nothing that locks the source is needed for that as a rule:
//! the snapshots are opened in one burst, each says which binlog position it has, and if they differ the burst is
//! repeated. (MySQL does not say it, so there tables are locked for the moment of the burst.) That takes no privilege beyond SELECT. Only on a source too busy for it commits are held up for the moment of
//! one burst (`BACKUP STAGE BLOCK_COMMIT`, which needs RELOAD and, unlike `FLUSH TABLES WITH READ LOCK`, neither waits for
//! long queries nor closes tables). Without that privilege the largest group of sessions with one position is used.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use spate_binlog::GtidPosition;

use super::error::{Error, Result};
use super::hold::parse_position;
use spate_connection::endpoint::Endpoint;
use spate_connection::{CODE_LOCK_WAIT, ConnectOptions, Connection, Vendor, quote};
use spate_replica::asking;

/// Bursts without a lock before commits are held up.
const FREE_BURSTS_MAX: usize = 20;

/// How often each session is asked for its coordinates, how many of its answers must agree, and the pause in between; see
/// [`coordinates_of`].
const REPORTS: usize = 9;
const REPORTS_ALIKE: usize = 7;
const REPORT_PAUSE: Duration = Duration::from_millis(1);

/// A binlog file and an offset in it.
type Coordinates = (String, u64);

/// What every session of a comparison sets beside [`asking`], so that values have one textual form. A wait behind somebody's DDL should
/// end it.
const SESSION: &str = "SET NAMES utf8mb4; SET SESSION time_zone = '+00:00', lock_wait_timeout = 60; \
    SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";

/// The same as in [`SESSION`].
const LOCK_WAIT_SECONDS: u32 = 60;

/// MySQL does not say which position a snapshot has, so nothing may commit while the snapshots are opened. A client that waits for that
/// keeps everybody from writing, so it does not wait long for somebody's long query, but tries again.
const LOCK_MYSQL: &str = "SET SESSION lock_wait_timeout = 1; FLUSH TABLES WITH READ LOCK";
const LOCK_TRIES_MAX: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(500);

const START: &[u8] = b"START TRANSACTION WITH CONSISTENT SNAPSHOT";

/// A comparison writes nothing that belongs into a binlog. And where a binlog is open, MariaDB lets go of metadata locks at a
/// rollback to a savepoint only if the session does not log. Needs BINLOG ADMIN.
const NO_BINLOG: &[u8] = b"SET SESSION sql_log_bin = 0";

/// Statements of a snapshot end with this, so that they keep no metadata lock and nobody's DDL waits for the comparison.
/// (Without the privilege for [`NO_BINLOG`] it does wait, for tables already read.)
pub(super) const LET_GO: &str = "; ROLLBACK TO SAVEPOINT spate_verify";
const SAVEPOINT: &[u8] = b"SAVEPOINT spate_verify";

/// Where a snapshot of the source lies.
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

/// Starts a snapshot in each session at the same instant, as near as that goes.
pub(super) fn start(sessions: &mut [Connection]) -> Result<()> {
    for session in sessions.iter_mut() {
        session.send_query(START)?;
    }
    for session in sessions.iter_mut() {
        session.receive_result()?;
    }
    Ok(())
}

/// From here on [`LET_GO`] works in these snapshots.
pub(super) fn set_savepoints(sessions: &mut [Connection]) -> Result<()> {
    for session in sessions {
        session.execute(SAVEPOINT)?;
    }
    Ok(())
}

/// Starts snapshots of the source that all have one position; drops the sessions for which that did not succeed.
/// `control` is a further session.
pub(super) fn start_on_source(control: &mut Connection, sessions: &mut Vec<Connection>) -> Result<SourcePosition> {
    if control.server_version().vendor == Vendor::MySql {
        return start_on_mysql(control, sessions);
    }
    for _ in 0..FREE_BURSTS_MAX {
        start(sessions)?;
        if !look_alike(sessions)? {
            continue;
        }
        let coordinates = coordinates_of(sessions)?;
        if let Some(Some(place)) = coordinates.first()
            && coordinates.iter().all(|other| other.as_ref() == Some(place))
        {
            return locate(control, place);
        }
    }
    start_on_busy_source(control, sessions)
}

/// Opens the snapshots while nothing commits.
fn start_on_mysql(control: &mut Connection, sessions: &mut [Connection]) -> Result<SourcePosition> {
    let mut tries = 0;
    while let Err(error) = control.execute(LOCK_MYSQL.as_bytes()) {
        let is_busy = error.code() == Some(CODE_LOCK_WAIT);
        tries += 1;
        if !is_busy || tries >= LOCK_TRIES_MAX {
            let why = match is_busy {
                true => "a query that runs for long keeps its tables from being locked for a moment".to_owned(),
                false => format!("its tables cannot be locked for a moment, which takes GRANT RELOAD ON *.*: {error}"),
            };
            return Err(Error::SourcePositionUnknown { why });
        }
        sleep(LOCK_PAUSE);
    }
    let place = start(sessions).and_then(|()| mysql_position(control));
    // Whatever else this session is asked may wait as long as any other's.
    control.execute(format!("UNLOCK TABLES; SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}").as_bytes())?;
    place
}

fn mysql_position(control: &mut Connection) -> Result<SourcePosition> {
    let gtid = control.query("SELECT @@global.gtid_executed")?.single_text().unwrap_or_default();
    // Only the file and the offset are lacking without the privilege REPLICATION CLIENT.
    let status = control.query(control.server_version().binlog_status_sql()).ok();
    let text = |column| status.as_ref().and_then(|answer| answer.text_at(0, column)).unwrap_or_default();
    let offset = text(1).parse().unwrap_or(0);
    Ok(SourcePosition { gtid: parse_position(&gtid)?, file: text(0), offset })
}

/// Where bursts alone do not help; the sessions have snapshots already, of different positions.
pub(super) fn start_on_busy_source(control: &mut Connection, sessions: &mut Vec<Connection>) -> Result<SourcePosition> {
    match control.execute(b"BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT") {
        Ok(_) => {
            let started = start(sessions);
            control.execute(b"BACKUP STAGE END")?;
            started?;
        }
        // The second stage may have waited in vain for somebody's lock after the first was reached.
        Err(error) if error.server_error().is_some_and(|error| error.statement > 0) => {
            control.execute(b"BACKUP STAGE END")?;
        }
        Err(error) if error.server_error().is_none() => return Err(error.into()),
        Err(_no_privilege) => {}
    }
    let coordinates = coordinates_of(sessions)?;
    let mut counts: HashMap<&Coordinates, usize> = HashMap::new();
    for place in coordinates.iter().flatten() {
        *counts.entry(place).or_default() += 1;
    }
    let Some((most, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
        let why = "no session settles on one, as if others asked for their status all the time".to_owned();
        return Err(Error::SourcePositionUnknown { why });
    };
    let mut places = coordinates.iter();
    sessions.retain(|_| places.next().is_some_and(|place| place.as_ref() == Some(most)));
    locate(control, most)
}

/// The binlog coordinates of each session's snapshot; `None` for a session that does not settle on any.
///
/// MariaDB puts a session's coordinates into variables that all sessions share before it shows them, so when several
/// sessions ask for their status at one moment, one may be shown the other's (measured with 10.11: one answer in a hundred while
/// another session asks all the time, and many in a row when the two fall into step). Somebody's monitoring may always ask.
/// So the sessions are asked one after the other, several times with a pause in between, and nearly all of a session's
/// answers must agree.
pub(super) fn coordinates_of(sessions: &mut [Connection]) -> Result<Vec<Option<Coordinates>>> {
    let mut reports: Vec<Vec<Coordinates>> = vec![Vec::new(); sessions.len()];
    for round in 0..REPORTS {
        if round > 0 {
            sleep(REPORT_PAUSE);
        }
        for (session, reports) in sessions.iter_mut().zip(&mut reports) {
            reports.push(reported_coordinates(session)?);
        }
    }
    let settled = |reports: Vec<Coordinates>| {
        let agreeing = |place: &Coordinates| reports.iter().filter(|other| *other == place).count();
        reports.iter().find(|place| agreeing(place) >= REPORTS_ALIKE).cloned()
    };
    Ok(reports.into_iter().map(settled).collect())
}

/// A first look: true if all sessions report the same coordinates.
fn look_alike(sessions: &mut [Connection]) -> Result<bool> {
    let places: Result<Vec<Coordinates>> = sessions.iter_mut().map(reported_coordinates).collect();
    Ok(places?.windows(2).all(|pair| pair[0] == pair[1]))
}

fn reported_coordinates(session: &mut Connection) -> Result<Coordinates> {
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

fn locate(control: &mut Connection, (file, offset): &Coordinates) -> Result<SourcePosition> {
    let answer = control.query(&format!("SELECT BINLOG_GTID_POS({}, {offset})", quote::text(file)))?;
    let Some(text) = answer.single_text() else {
        let why = format!("BINLOG_GTID_POS('{file}', {offset}) gave NULL");
        return Err(Error::SourcePositionUnknown { why });
    };
    Ok(SourcePosition { gtid: parse_position(&text)?, file: file.clone(), offset: *offset })
}

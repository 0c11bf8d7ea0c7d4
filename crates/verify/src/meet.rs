//! Brings source and replica to one position, and returns snapshots of both, in pairs.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::catalog::{self, Catalog, Filter, RowHash};
use super::error::{Error, Result};
use super::hold::{Hold, parse_position};
use super::report::Position;
use super::snapshot::{SourcePosition, open_session, open_sessions, set_savepoints, start_on_source, start_snapshots};
use super::{Progress, ProgressSink, VerifyOptions};
use spate_connection::{ConnectOptions, Connection, Vendor};
use spate_replica::applier_lock;
use spate_replica::checkpoint::{self, Checkpoint};

/// Time between two reads of the replica's position.
const POLL: Duration = Duration::from_millis(20);
/// Time between two heartbeats; much less than [`spate_replica::hold_request::EXPIRY_SECONDS`].
const RENEWAL: Duration = Duration::from_secs(2);
/// Attempts to take snapshots between which no table of the source was altered.
const CATALOG_ATTEMPTS_MAX: usize = 5;
const NO_SUCH_TABLE: u16 = 1146;
const NO_SUCH_SCHEMA: u16 = 1049;

/// Snapshots of both servers, and the tables in them.
pub(super) struct Meeting {
    pub(super) source: Vec<Connection>,
    pub(super) replica: Vec<Connection>,
    /// A session on the source without a snapshot.
    pub(super) source_control: Connection,
    pub(super) source_catalog: Catalog,
    pub(super) replica_catalog: Catalog,
    pub(super) position: Position,
    pub(super) hold_seconds: f64,
}

impl Meeting {
    /// Chooses a hash function of rows that both servers have.
    pub(super) fn choose_hash(&mut self) {
        let servers = [&self.source_control].into_iter().chain(&self.replica);
        if servers.map(Connection::server_version).all(|version| version.vendor == Vendor::MariaDb) {
            return;
        }
        let tables = self.source_catalog.values_mut().chain(self.replica_catalog.values_mut());
        tables.for_each(|table| table.hash = RowHash::Sha256);
    }
}

/// The options of both sides, and a session on the source.
struct Parties<'a> {
    options: &'a VerifyOptions,
    filter: &'a Filter,
    source_options: ConnectOptions,
    replica_options: ConnectOptions,
    source_control: Connection,
}

/// The source's side: snapshots, their position, and the tables in them.
struct SourceSide {
    sessions: Vec<Connection>,
    /// `None` if the comparison ignores positions.
    position: Option<SourcePosition>,
    catalog: Catalog,
}

/// The replica's side.
struct ReplicaSide {
    sessions: Vec<Connection>,
    applied: Vec<Applied>,
    catalog: Catalog,
}

/// A position that the replica has reached: one row of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Applied {
    gtid: String,
    file: String,
    offset: u64,
}

impl Applied {
    fn is_at(&self, position: &SourcePosition) -> Result<bool> {
        let is_same_place = !self.file.is_empty() && self.file == position.file && self.offset == position.offset;
        Ok(is_same_place || parse_position(&self.gtid)? == position.gtid)
    }
}

pub(super) fn meet(options: &VerifyOptions, filter: &Filter, progress: ProgressSink<'_>) -> Result<Meeting> {
    let source_options = ConnectOptions::new("source");
    let replica_options = ConnectOptions::new("replica");
    let source_control = open_session(&options.source, &source_options)?;
    let mut replica_control = open_session(&options.replica, &replica_options)?;
    let parties = Parties { options, filter, source_options, replica_options, source_control };
    if options.without_position {
        return parties.meet_anywhere(&mut replica_control);
    }
    if applier_lock::is_applier_present(&mut replica_control)? {
        return parties.meet_by_holding(&mut replica_control, progress);
    }
    parties.meet_at_rest(&mut replica_control)
}

impl Parties<'_> {
    fn count(&self) -> usize {
        self.options.connections.max(1)
    }

    /// Meets while an applier runs; [`spate_replica::hold_request`] describes the steps.
    fn meet_by_holding(mut self, replica_control: &mut Connection, progress: ProgressSink<'_>) -> Result<Meeting> {
        // Opening connections is slow, so it precedes the hold.
        let source_sessions = open_sessions(&self.options.source, &self.source_options, self.count())?;
        let replica_sessions = open_sessions(&self.options.replica, &self.replica_options, self.count())?;
        progress(&Progress::Holding);
        let begun = Instant::now();
        let mut hold = Hold::request_stop(replica_control)?;
        self.wait_for_acknowledgement(&mut hold)?;
        let source = self.snapshot_source(source_sessions)?;
        let Some(position) = source.position.clone() else {
            return Err(Error::unexpected("a source without a position"));
        };
        hold.renew()?;
        hold.allow_until(&position.gtid)?;
        progress(&Progress::CatchingUp { position: position.gtid.to_string() });
        self.wait_for_position(&mut hold, &position)?;
        let replica = self.snapshot_replica(hold.replica(), replica_sessions, source.sessions.len())?;
        hold.release()?;
        let hold_seconds = begun.elapsed().as_secs_f64();
        for applied in &replica.applied {
            if !applied.is_at(&position)? {
                return Err(Error::ReplicaMoved { wanted: position.gtid.to_string(), found: applied.gtid.clone() });
            }
        }
        Ok(self.into_meeting(source, replica, true, hold_seconds))
    }

    fn wait_for_acknowledgement(&self, hold: &mut Hold<'_>) -> Result<()> {
        let begun = Instant::now();
        let mut renewed = begun;
        while !hold.is_acknowledged()? {
            if begun.elapsed() > self.options.catch_up_timeout {
                return Err(Error::HoldIgnored { seconds: begun.elapsed().as_secs() });
            }
            renew_when_due(hold, &mut renewed)?;
            sleep(POLL);
        }
        Ok(())
    }

    fn wait_for_position(&self, hold: &mut Hold<'_>, position: &SourcePosition) -> Result<()> {
        let begun = Instant::now();
        let mut renewed = begun;
        loop {
            let applied = read_applied(hold.replica())?;
            let mut is_there = !applied.is_empty();
            for row in &applied {
                is_there = is_there && row.is_at(position)?;
            }
            if is_there {
                return Ok(());
            }
            if begun.elapsed() > self.options.catch_up_timeout {
                return Err(Error::CatchUpTooSlow {
                    source_position: position.gtid.to_string(),
                    replica_position: show_applied(&applied),
                    seconds: begun.elapsed().as_secs(),
                });
            }
            renew_when_due(hold, &mut renewed)?;
            sleep(POLL);
        }
    }

    /// Meets while no applier runs: the positions are equal now, or will never be.
    fn meet_at_rest(mut self, replica_control: &mut Connection) -> Result<Meeting> {
        let source_sessions = open_sessions(&self.options.source, &self.source_options, self.count())?;
        let replica_sessions = open_sessions(&self.options.replica, &self.replica_options, self.count())?;
        let source = self.snapshot_source(source_sessions)?;
        let replica = self.snapshot_replica(replica_control, replica_sessions, source.sessions.len())?;
        if replica.applied.is_empty() {
            return Err(Error::ReplicaPositionUnknown);
        }
        let Some(position) = &source.position else {
            return Err(Error::unexpected("a source without a position"));
        };
        for applied in &replica.applied {
            if !applied.is_at(position)? {
                return Err(Error::PositionsDiffer {
                    source_position: position.gtid.to_string(),
                    replica_position: applied.gtid.clone(),
                });
            }
        }
        Ok(self.into_meeting(source, replica, true, 0.0))
    }

    /// Takes snapshots without regard to positions.
    fn meet_anywhere(mut self, replica_control: &mut Connection) -> Result<Meeting> {
        let mut source_sessions = open_sessions(&self.options.source, &self.source_options, self.count())?;
        let replica_sessions = open_sessions(&self.options.replica, &self.replica_options, self.count())?;
        start_snapshots(&mut source_sessions)?;
        set_savepoints(&mut source_sessions)?;
        let catalog = catalog::read(&mut self.source_control, self.filter)?;
        let source = SourceSide { sessions: source_sessions, position: None, catalog };
        let replica = self.snapshot_replica(replica_control, replica_sessions, self.count())?;
        Ok(self.into_meeting(source, replica, false, 0.0))
    }

    /// Takes the source's snapshots. The information schema is not part of a snapshot, so Spate reads it before and
    /// after: if both are equal, the snapshots contain the same tables.
    fn snapshot_source(&mut self, mut sessions: Vec<Connection>) -> Result<SourceSide> {
        let mut before = catalog::read(&mut self.source_control, self.filter)?;
        for _ in 0..CATALOG_ATTEMPTS_MAX {
            let position = start_on_source(&mut self.source_control, &mut sessions)?;
            set_savepoints(&mut sessions)?;
            let after = catalog::read(&mut self.source_control, self.filter)?;
            if before == after {
                return Ok(SourceSide { sessions, position: Some(position), catalog: after });
            }
            before = after;
        }
        Err(Error::TableAltered { table: "(tables are created, altered or dropped all the time)".to_owned() })
    }

    /// Takes the replica's snapshots, and reads the position in each.
    fn snapshot_replica(
        &self,
        control: &mut Connection,
        mut sessions: Vec<Connection>,
        count: usize,
    ) -> Result<ReplicaSide> {
        sessions.truncate(count);
        start_snapshots(&mut sessions)?;
        let mut applied = Vec::new();
        for session in &mut sessions {
            applied.extend(read_checkpoint(session)?);
        }
        let catalog = catalog::read(control, self.filter)?;
        if applied.is_empty() {
            // The position of the server's own replication is no part of a snapshot: it must be equal before and after.
            applied.extend(read_native(control)?);
            for session in &mut sessions {
                session.execute(b"ROLLBACK")?;
            }
            start_snapshots(&mut sessions)?;
            applied.extend(read_native(control)?);
        }
        set_savepoints(&mut sessions)?;
        Ok(ReplicaSide { sessions, applied, catalog })
    }

    fn into_meeting(self, source: SourceSide, replica: ReplicaSide, is_exact: bool, hold_seconds: f64) -> Meeting {
        let position = Position {
            is_exact,
            source_gtid: source.position.as_ref().map(|position| position.gtid.to_string()),
            source_file: source.position.as_ref().map(|position| position.file.clone()),
            source_offset: source.position.as_ref().map(|position| position.offset),
            replica_gtid: replica.applied.first().map(|applied| applied.gtid.clone()),
        };
        Meeting {
            source: source.sessions,
            replica: replica.sessions,
            source_control: self.source_control,
            source_catalog: source.catalog,
            replica_catalog: replica.catalog,
            position,
            hold_seconds,
        }
    }
}

fn renew_when_due(hold: &mut Hold<'_>, renewed: &mut Instant) -> Result<()> {
    if renewed.elapsed() > RENEWAL {
        hold.renew()?;
        *renewed = Instant::now();
    }
    Ok(())
}

fn show_applied(applied: &[Applied]) -> String {
    let shown: Vec<&str> = applied.iter().map(|row| row.gtid.as_str()).collect();
    match shown.is_empty() {
        true => "no position".to_owned(),
        false => shown.join(" / "),
    }
}

fn read_applied(replica: &mut Connection) -> Result<Vec<Applied>> {
    let applied = read_checkpoint(replica)?;
    if applied.is_empty() { read_native(replica) } else { Ok(applied) }
}

/// Reads Spate's checkpoint, and those of appliers that have come further; empty if Spate never applied to this replica.
fn read_checkpoint(replica: &mut Connection) -> Result<Vec<Applied>> {
    let whole = match checkpoint::read(replica) {
        Err(spate_replica::Error::Wire(error)) if matches!(error.code(), Some(NO_SUCH_TABLE | NO_SUCH_SCHEMA)) => None,
        whole => whole?,
    };
    let Some(whole) = whole else { return Ok(Vec::new()) };
    let ahead = checkpoint::read_ahead(replica, &whole)?.into_iter().map(|(_, checkpoint)| checkpoint);
    let applied = |checkpoint: Checkpoint| Applied {
        gtid: checkpoint.gtid_position.to_string(),
        file: checkpoint.source_file,
        offset: checkpoint.source_position,
    };
    Ok(std::iter::once(whole.clone()).chain(ahead).map(applied).collect())
}

/// Reads the position of the server's own replication; empty if it never replicated.
fn read_native(replica: &mut Connection) -> Result<Vec<Applied>> {
    let answer = replica.query("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('gtid_slave_pos', 'gtid_executed')")?;
    let gtid = answer.text_at(0, 1).filter(|text| !text.is_empty());
    Ok(gtid.map(|gtid| Applied { gtid, file: String::new(), offset: 0 }).into_iter().collect())
}

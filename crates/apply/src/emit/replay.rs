//! Rows as the source's own images: events in `BINLOG '…'` statements, which the replica applies as its own replication would.

use spate_binlog::{ChecksumAlgorithm, RowsVersion};
use spate_schedule::emit::{ChunkSink, ChunkWriter, OwnUpdate};
use spate_schedule::fold::{NetChange, TableFold};
use spate_schedule::keyless::{KeylessRows, Step};
use spate_schedule::row_session::RowSession;
use spate_schedule::segment::Segment;

use super::{RowEmitter, changes};
use crate::Part;
use crate::command::{Change, Command, Execution};
use crate::halt::{Halt, Result};
use crate::outlet::Outlet;
use crate::prefetch::{ChunkMark, Feeder, FeederState};
use spate_connection::ServerVersion;
use spate_replica::Error;
use spate_replica::dialect::{
    AFTER_ROW_SESSION, BINLOG_OF_HALVES, BINLOG_OF_HALVES_STATEMENTS, OWN_GTIDS, READ_BYTES, READ_CHARACTERS,
    append_binlog, binlog_half_sql, binlog_half_sql_bytes, binlog_sql_bytes, first_half, row_session_sql,
    source_version_sql,
};

/// Bytes of events in one `BINLOG` statement. Large enough that the statement's own cost vanishes, small enough that the
/// applier has something to do while the next is being encoded.
const CHUNK_EVENT_BYTES: usize = 384 << 10;

/// The same while nothing is known of the rows, if there are enough of them: on a slow disk, a chunk of full size would take a second before it said so.
const SMALL_CHUNK_EVENT_BYTES: usize = 48 << 10;

/// Base64 makes four bytes of three; the rest of a packet is for the statement around it.
const PACKET_SHARE: (usize, usize) = (5, 8);

/// Rows of a segment for which the session is set to read statements byte by byte: that and its undoing are two statements more.
const BYTES_READ_ROWS_MIN: u64 = 200;

/// Writes rows for replay.
#[derive(Debug)]
pub(crate) struct ReplayEmitter<'a> {
    /// One row a statement, each with a description.
    one_by_one: bool,
    /// What the session is set to; `None`: to what everything else needs.
    session: Option<RowSession>,
    /// The session reads statements byte by byte.
    reads_bytes: bool,
    /// Is told of rows that come. `None`: rows are not prefetched.
    feeder: Option<FeederState<'a>>,
    /// Comes behind the next rows, in their last statement.
    pub(crate) own: Option<OwnUpdate>,
}

impl RowEmitter for ReplayEmitter<'_> {
    /// Tells a session how the source lays out its events.
    fn session_sql(&self, part: &Part) -> Vec<Vec<u8>> {
        let mut sql = Vec::new();
        append_binlog(&mut sql, &part.format.encode(part.server_id, ChecksumAlgorithm::None));
        match RowsVersion::of(&part.format) {
            RowsVersion::V1 => vec![sql],
            RowsVersion::V2 => vec![sql, OWN_GTIDS.into()],
        }
    }

    fn end_rows(&mut self, outlet: &mut Outlet<'_>) -> Result<()> {
        if std::mem::take(&mut self.reads_bytes) {
            outlet.plain(READ_CHARACTERS.as_bytes())?;
        }
        match self.session.take() {
            Some(_) => outlet.plain(AFTER_ROW_SESSION.as_bytes()),
            None => Ok(()),
        }
    }

    /// The server forgets the source's version whenever it commits.
    fn begin_segment(&mut self, segment: &Segment, part: &Part, outlet: &mut Outlet<'_>) -> Result<()> {
        if !self.reads_bytes && !self.one_by_one && segment.net_rows() >= BYTES_READ_ROWS_MIN {
            outlet.plain(READ_BYTES.as_bytes())?;
            self.reads_bytes = true;
        }
        let Some(session) = segment.session() else { return Ok(()) };
        self.session = Some(session.clone());
        let source = ServerVersion::parse(&part.format.server_version);
        outlet.plain(format!("{}, {}", row_session_sql(session), source_version_sql(&source)).as_bytes())
    }

    fn segment(
        &mut self,
        segment: &Segment,
        keyless: &[Vec<Step>],
        part: &Part,
        outlet: &mut Outlet<'_>,
    ) -> Result<u64> {
        let changes = self.one_by_one.then(|| changes(segment, part));
        let seconds = segment.session().map_or_else(|| reached_seconds(part), |session| session.seconds);
        let own = self.own.take();
        self.write(changes, (part, seconds), outlet, |writer| {
            writer.segment_after(segment, keyless)?;
            own.as_ref().map_or(Ok(()), |own| writer.own(own))
        })
    }

    fn keyless(&mut self, rows: &KeylessRows, steps: &[Step], part: &Part, outlet: &mut Outlet<'_>) -> Result<u64> {
        let seconds = self.session.as_ref().map_or_else(|| reached_seconds(part), |session| session.seconds);
        self.write(None::<std::iter::Empty<Change>>, (part, seconds), outlet, |writer| writer.keyless(rows, steps))
    }
}

impl<'a> ReplayEmitter<'a> {
    /// For a session that is set to what everything else needs.
    pub(crate) fn new(one_by_one: bool, feeder: Option<FeederState<'a>>) -> ReplayEmitter<'a> {
        ReplayEmitter { one_by_one, session: None, reads_bytes: false, feeder, own: None }
    }

    /// Has events written, and sends them; returns how many rows they change.
    fn write<'f, 'r, 'o, C: Iterator<Item = Change>>(
        &'r mut self,
        changes: Option<C>,
        (part, seconds): (&Part, u32),
        outlet: &'r mut Outlet<'o>,
        write: impl FnOnce(&mut ChunkWriter<'f, Sink<'r, 'f, 'a, 'o, C>>) -> std::result::Result<(), EmitError>,
    ) -> Result<u64>
    where
        'r: 'f,
    {
        let chunk_bytes_max = match self.one_by_one {
            true => 1,
            false => CHUNK_EVENT_BYTES.min(outlet.max_allowed_packet() * PACKET_SHARE.0 / PACKET_SHARE.1),
        };
        let version = RowsVersion::of(&part.format);
        let sink = Sink { changes, outlet, feeder: self.feeder.as_mut().map(Feeder::new) };
        let mut writer = ChunkWriter::new(chunk_bytes_max, part.server_id, version, sink).at(seconds);
        let written = write(&mut writer).and_then(|()| writer.finish());
        written.map_err(|error| match error {
            EmitError::Stage(error) => error,
            EmitError::Schedule(error) => Error::Transaction { place: part.place.clone(), error }.into(),
        })
    }
}

/// When net changes happened, unless something else says it.
fn reached_seconds(part: &Part) -> u32 {
    u32::try_from(part.reached.source_seconds).unwrap_or(u32::MAX)
}

/// Sends finished chunks.
struct Sink<'r, 'f, 'a, 'o, C> {
    /// What each chunk does. `None`: that does not matter.
    changes: Option<C>,
    outlet: &'r mut Outlet<'o>,
    /// `None`: rows are not prefetched.
    feeder: Option<Feeder<'f, 'a>>,
}

impl<'f, C: Iterator<Item = Change>> ChunkSink<'f> for Sink<'_, 'f, '_, '_, C> {
    type Error = EmitError;

    fn chunk(&mut self, events: &[u8]) -> std::result::Result<(), EmitError> {
        let change = self.changes.as_mut().and_then(Iterator::next);
        let mark = self.feeder.as_mut().and_then(Feeder::end_chunk);
        chunk(events, change, mark, self.outlet).map_err(EmitError::Stage)
    }

    fn bytes_max(&self, usual: usize) -> usize {
        match &self.feeder {
            Some(feeder) if feeder.is_enough() => usual.min(SMALL_CHUNK_EVENT_BYTES),
            _ => usual,
        }
    }

    fn begin_table(&mut self) {
        if let Some(feeder) = &mut self.feeder {
            feeder.begin_table();
        }
    }

    fn change(&mut self, fold: &'f TableFold, change: &NetChange<'f>) {
        if let Some(feeder) = &mut self.feeder {
            feeder.change(fold, change);
        }
    }
}

fn chunk(events: &[u8], change: Option<Change>, mark: Option<ChunkMark>, outlet: &mut Outlet<'_>) -> Result<()> {
    let sql_bytes = binlog_sql_bytes(events.len());
    if !outlet.fits(sql_bytes) {
        outlet.flush(None)?;
        return halves(events, change, outlet);
    }
    outlet.make_room(sql_bytes)?;
    outlet.mark(mark)?;
    outlet.statement(|sql| append_binlog(sql, events), None, change)
}

/// Sends events that are too large for one packet in two.
fn halves(events: &[u8], change: Option<Change>, outlet: &Outlet<'_>) -> Result<()> {
    let (first, second) = events.split_at(first_half(events.len()));
    let sql_bytes = binlog_half_sql_bytes(first.len().max(second.len()));
    if !outlet.fits(sql_bytes) {
        return Err(outlet.too_large(binlog_sql_bytes(events.len()), change));
    }
    for (half, events) in [first, second].into_iter().enumerate() {
        let execution = Execution { sql: binlog_half_sql(half, events), statements: 1, ..Execution::default() };
        outlet.send(Command::Execute(execution))?;
        outlet.settle()?;
    }
    let (sql, statements) = (BINLOG_OF_HALVES.to_vec(), BINLOG_OF_HALVES_STATEMENTS);
    outlet.send(Command::Execute(Execution { sql, statements, change, ..Execution::default() }))
}

enum EmitError {
    Schedule(spate_schedule::Error),
    Stage(Halt),
}

impl From<spate_schedule::Error> for EmitError {
    fn from(error: spate_schedule::Error) -> EmitError {
        EmitError::Schedule(error)
    }
}

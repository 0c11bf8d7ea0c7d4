//! Net changes and ordered changes as chunks of events for replay, each chunk small enough for one packet.

use std::marker::PhantomData;

use spate_binlog::encode::{
    ColumnBitmap, RowsEventEncoder, RowsLayout, append_table_map, mark_statement_end, set_timestamp,
};
use spate_binlog::rows::{FLAG_COMPLETE_ROWS, FLAG_NO_CHECK_CONSTRAINT_CHECKS, FLAG_NO_FOREIGN_KEY_CHECKS};
use spate_binlog::{RowsKind, RowsVersion};

use crate::definition::TableName;
use crate::fold::{FULL, NetChange, ShapeNumber, TableFold};
use crate::keyless::{KeylessChange, KeylessRows, Step};
use crate::plan::TablePlan;
use crate::segment::{OrderedRows, Segment};
use crate::versioning;

/// The most tables in one chunk: the server opens and locks them all at once.
const TABLES_PER_CHUNK_MAX: usize = 64;

/// Bytes of the buffer that are kept for the next chunk: the memory of a single large row is freed.
const ROOM_KEPT_MAX: usize = 1 << 20;

/// The source has checked its rows: they need not, and after folding must not, be checked again.
const FOLDED_FLAGS: u16 = FLAG_NO_FOREIGN_KEY_CHECKS | FLAG_NO_CHECK_CONSTRAINT_CHECKS | FLAG_COMPLETE_ROWS;

/// Takes finished chunks, and is told of the net changes that they are made of.
pub trait ChunkSink<'f> {
    /// What may fail.
    type Error: From<crate::Error>;

    /// Takes a chunk.
    ///
    /// # Errors
    /// Its own; they end the writing.
    fn chunk(&mut self, events: &[u8]) -> std::result::Result<(), Self::Error>;

    /// How large the chunk may become that is written now, `usual` at most, in bytes.
    fn bytes_max(&self, usual: usize) -> usize {
        usual
    }

    /// Net changes of another table come.
    fn begin_table(&mut self) {}

    /// The next chunk will hold this change.
    fn change(&mut self, _fold: &'f TableFold, _change: &NetChange<'f>) {}
}

impl<F, E> ChunkSink<'_> for F
where
    F: FnMut(&[u8]) -> std::result::Result<(), E>,
    E: From<crate::Error>,
{
    type Error = E;

    fn chunk(&mut self, events: &[u8]) -> std::result::Result<(), E> {
        self(events)
    }
}

/// A change of a row of Spate's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnUpdate {
    /// The body of the table's map.
    pub map: &'static [u8],
    /// The columns of the image before and of that behind.
    pub columns: (ColumnBitmap, ColumnBitmap),
    /// Both images.
    pub images: Vec<u8>,
}

/// Gathers table maps and rows events until a chunk is full. A chunk is: all its table maps, then its rows events, the
/// last marked as the end of the statement.
pub struct ChunkWriter<'f, S> {
    sink: S,
    segment: PhantomData<&'f Segment>,
    chunk_bytes_max: usize,
    server_id: u32,
    /// The time of the changes that are being written, in seconds since 1970.
    timestamp_seconds: u32,
    version: RowsVersion,
    maps: Vec<u8>,
    rows: Vec<u8>,
    tables: usize,
    last_event: usize,
    /// Net row changes written so far.
    changes: u64,
    /// The rows in the chunk of a table whose history the server counts once a statement.
    counted: Option<Counted>,
}

/// Rows that must reach the server in one statement, as they were one statement of the source.
struct Counted {
    statement: u32,
    table: TableName,
    table_id: u64,
}

/// The rows event that is being written, if its kind and columns fit the next row too.
struct OpenEvent {
    kind: RowsKind,
    shape: ShapeNumber,
    encoder: RowsEventEncoder,
}

impl<'f, S, E> ChunkWriter<'f, S>
where
    S: ChunkSink<'f, Error = E>,
    E: From<crate::Error>,
{
    /// A writer that gives each full chunk to `sink`. A chunk exceeds `chunk_bytes_max` by table maps and headers,
    /// unless it holds a single row.
    pub fn new(chunk_bytes_max: usize, server_id: u32, version: RowsVersion, sink: S) -> ChunkWriter<'f, S> {
        ChunkWriter {
            sink,
            segment: PhantomData,
            chunk_bytes_max,
            server_id,
            timestamp_seconds: 0,
            version,
            maps: Vec::new(),
            rows: Vec::new(),
            tables: 0,
            counted: None,
            last_event: 0,
            changes: 0,
        }
    }

    /// Sets the time of net changes, in seconds since 1970. The replica dates the rows that it adds by itself with it.
    #[must_use]
    pub fn at(mut self, timestamp_seconds: u32) -> ChunkWriter<'f, S> {
        self.timestamp_seconds = timestamp_seconds;
        self
    }

    /// Writes all of a segment: net changes table by table, then the ordered changes.
    ///
    /// # Errors
    /// The errors of `sink`, or a decoding error.
    pub fn segment(&mut self, segment: &'f Segment) -> std::result::Result<(), E> {
        self.segment_after(segment, &segment.keyless_steps())
    }

    /// Writes a segment, but of each table without a row key only these steps.
    ///
    /// # Errors
    /// As [`ChunkWriter::segment`].
    pub fn segment_after(&mut self, segment: &'f Segment, keyless: &[Vec<Step>]) -> std::result::Result<(), E> {
        for fold in segment.folds() {
            self.fold(fold)?;
        }
        for (rows, steps) in segment.keyless().iter().zip(keyless) {
            self.keyless(rows, steps)?;
        }
        for ordered in segment.ordered() {
            // The server takes the flags of a statement's first event for the whole statement, and these differ.
            if self.counted.as_ref().is_none_or(|counted| counted.statement != ordered.statement) {
                self.flush()?;
            }
            let of_net_changes = std::mem::replace(&mut self.timestamp_seconds, ordered.timestamp_seconds);
            let written = self.ordered(ordered);
            self.timestamp_seconds = of_net_changes;
            written?;
        }
        if self.counted.is_some() { self.flush() } else { Ok(()) }
    }

    /// Adds a change of Spate's own to the chunk.
    ///
    /// # Errors
    /// As [`ChunkWriter::segment`].
    pub fn own(&mut self, own: &OwnUpdate) -> std::result::Result<(), E> {
        if self.is_full_before(own.images.len()) {
            self.flush()?;
        }
        let table_id = self.map_of(own.map)?;
        let (flags, layout) = (FOLDED_FLAGS & !FLAG_COMPLETE_ROWS, RowsLayout::Plain(self.version));
        let open = self.open(RowsKind::Update, table_id, flags, (&own.columns.0, &own.columns.1), layout);
        self.rows.extend_from_slice(&own.images);
        self.close(Some(open));
        Ok(())
    }

    /// Gives the last chunk to the sink; returns the number of net row changes written in all.
    ///
    /// # Errors
    /// The errors of `sink`.
    pub fn finish(mut self) -> std::result::Result<u64, E> {
        self.flush()?;
        Ok(self.changes)
    }

    fn fold(&mut self, fold: &'f TableFold) -> std::result::Result<(), E> {
        self.sink.begin_table();
        let changes = fold.net_changes().map_err(E::from)?;
        let Some(images) = fold.plan.images.as_ref() else { return Ok(()) };
        let mut table_id = None;
        let mut open: Option<OpenEvent> = None;
        for change in changes.iter() {
            let (kind, shape, first, second) = match change {
                NetChange::Delete { locator } => (RowsKind::Delete, FULL, locator, None),
                NetChange::Update { locator, image, shape } | NetChange::Move { locator, image, shape } => {
                    (RowsKind::Update, shape, locator, Some(image))
                }
                NetChange::Insert { image, shape } => (RowsKind::Insert, shape, image, None),
            };
            if self.is_full_before(first.len() + second.map_or(0, <[u8]>::len)) {
                self.close(open.take());
                self.flush()?;
                table_id = None;
            }
            let table_id = match table_id {
                Some(id) => id,
                None => *table_id.insert(self.map(&fold.plan)?),
            };
            if open.as_ref().is_none_or(|open| open.kind != kind || open.shape != shape) {
                self.close(open.take());
                let known = fold.columns_of(shape).unwrap_or(&images.all_columns);
                let columns = if kind == RowsKind::Insert { known } else { &images.key_columns };
                let flags = if shape == FULL { FOLDED_FLAGS } else { FOLDED_FLAGS & !FLAG_COMPLETE_ROWS };
                let opened = self.open(kind, table_id, flags, (columns, known), RowsLayout::Plain(self.version));
                open = Some(OpenEvent { shape, ..opened });
            }
            self.rows.extend_from_slice(first);
            self.rows.extend_from_slice(second.unwrap_or_default());
            self.changes += 1;
            self.sink.change(fold, &change);
        }
        self.close(open);
        Ok(())
    }

    /// Writes these steps of a table's changes.
    ///
    /// # Errors
    /// The errors of `sink`.
    pub fn keyless(&mut self, rows: &KeylessRows, steps: &[Step]) -> std::result::Result<(), E> {
        let all = ColumnBitmap::all(rows.plan().map.columns.len());
        let mut table_id = None;
        let mut open: Option<OpenEvent> = None;
        let mut step = 0;
        for (number, change) in
            steps.iter().enumerate().flat_map(|(number, step)| rows.changes(step).map(move |change| (number, change)))
        {
            // MySQL looks for all rows of an event in one pass, and so finds none twice.
            if std::mem::replace(&mut step, number) != number {
                self.close(open.take());
            }
            let (kind, first, second, copies) = match change {
                KeylessChange::Delete { image, copies } => (RowsKind::Delete, image, &[][..], copies),
                KeylessChange::Update { before, after } => (RowsKind::Update, before, after, 1),
                KeylessChange::Insert { image } => (RowsKind::Insert, image, &[][..], 1),
            };
            // Both images together may exceed a packet although neither does.
            if kind == RowsKind::Update && first.len() + second.len() > self.chunk_bytes_max {
                self.close(open.take());
                self.flush()?;
                let id = self.map(rows.plan())?;
                let (changed, image) = rows.changed(first, second).map_err(E::from)?;
                let (flags, layout) = (FOLDED_FLAGS & !FLAG_COMPLETE_ROWS, RowsLayout::Plain(self.version));
                let event = self.open(kind, id, flags, (&all, &changed), layout);
                self.rows.extend_from_slice(first);
                self.rows.extend_from_slice(&image);
                self.changes += 1;
                self.close(Some(event));
                self.flush()?;
                table_id = None;
                continue;
            }
            for _ in 0..copies {
                if self.is_full_before(first.len() + second.len()) {
                    self.close(open.take());
                    self.flush()?;
                    table_id = None;
                }
                let table_id = match table_id {
                    Some(id) => id,
                    None => *table_id.insert(self.map(rows.plan())?),
                };
                if open.as_ref().is_none_or(|open| open.kind != kind) {
                    self.close(open.take());
                    let layout = RowsLayout::Plain(self.version);
                    open = Some(self.open(kind, table_id, FOLDED_FLAGS, (&all, &all), layout));
                }
                self.rows.extend_from_slice(first);
                self.rows.extend_from_slice(second);
                self.changes += 1;
            }
        }
        self.close(open);
        Ok(())
    }

    /// Ordered rows keep their event's own columns and flags; a chunk ends after them, so that the next change sees
    /// them.
    fn ordered(&mut self, ordered: &OrderedRows) -> std::result::Result<(), E> {
        let plan = &ordered.plan;
        let count = plan.map.columns.len();
        let columns = ColumnBitmap { count, bits: ordered.columns.clone() };
        let columns_after = ColumnBitmap { count, bits: ordered.columns_after.clone() };
        let walk = ordered.walk().map_err(E::from)?;
        let layout = match ordered.has_partial_json {
            true => RowsLayout::PartialJson,
            false => RowsLayout::Plain(self.version),
        };
        let is_counted = plan.definition.has_history_limit;
        let mut rows = walk.rows(&ordered.images).peekable();
        while rows.peek().is_some() {
            let bytes = self.bytes_with(ordered.images.len());
            if is_counted && !self.rows.is_empty() && bytes > self.chunk_bytes_max {
                return Err(E::from(versioning::refused_split(&plan.definition.name)));
            }
            let name = &plan.definition.name;
            let table_id = match self.counted.as_ref().filter(|counted| is_counted && counted.table == *name) {
                Some(counted) => counted.table_id,
                None => self.map(plan)?,
            };
            if is_counted {
                self.counted = Some(Counted { statement: ordered.statement, table: name.clone(), table_id });
            }
            let event = self.open(ordered.kind, table_id, ordered.flags, (&columns, &columns_after), layout);
            let mut is_first = true;
            while let Some(row) = rows.next_if(|row| {
                is_first || is_counted || row.as_ref().map_or(true, |row| !self.is_full_before(row.all.len()))
            }) {
                is_first = false;
                self.rows.extend_from_slice(row.map_err(E::from)?.all);
                self.changes += 1;
            }
            self.close(Some(event));
            if !is_counted {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// True if the chunk must end before a row of `length` bytes: a row that is too large stands alone.
    fn is_full_before(&self, length: usize) -> bool {
        let bytes_max = self.sink.bytes_max(self.chunk_bytes_max);
        self.bytes_with(0) > 0 && self.bytes_with(length) > bytes_max || self.tables >= TABLES_PER_CHUNK_MAX
    }

    /// The chunk's bytes with a row of `length` bytes.
    fn bytes_with(&self, length: usize) -> usize {
        self.maps.len() + self.rows.len() + length
    }

    fn map(&mut self, plan: &TablePlan) -> std::result::Result<u64, E> {
        self.map_of(&plan.map.body)
    }

    fn map_of(&mut self, body: &[u8]) -> std::result::Result<u64, E> {
        self.tables += 1;
        let table_id = self.tables as u64;
        append_table_map(&mut self.maps, body, table_id, self.server_id).map_err(|error| E::from(error.into()))?;
        Ok(table_id)
    }

    fn open(
        &mut self,
        kind: RowsKind,
        table_id: u64,
        flags: u16,
        (columns, columns_after): (&ColumnBitmap, &ColumnBitmap),
        layout: RowsLayout,
    ) -> OpenEvent {
        let (rows, server_id) = (&mut self.rows, self.server_id);
        let encoder = RowsEventEncoder::begin(rows, kind, table_id, server_id, flags, (columns, columns_after), layout);
        OpenEvent { kind, shape: FULL, encoder }
    }

    fn close(&mut self, open: Option<OpenEvent>) {
        if let Some(open) = open {
            self.last_event = open.encoder.finish(&mut self.rows);
            set_timestamp(&mut self.rows, self.last_event, self.timestamp_seconds);
        }
    }

    fn flush(&mut self) -> std::result::Result<(), E> {
        if !self.rows.is_empty() {
            mark_statement_end(&mut self.rows, self.last_event);
            // In place: a single row may be large enough that a copy matters.
            self.rows.reserve_exact(self.maps.len());
            self.rows.splice(..0, self.maps.drain(..));
            self.sink.chunk(&self.rows)?;
        }
        self.maps.clear();
        self.rows.clear();
        self.rows.shrink_to(ROOM_KEPT_MAX.max(self.chunk_bytes_max));
        self.tables = 0;
        self.counted = None;
        Ok(())
    }
}

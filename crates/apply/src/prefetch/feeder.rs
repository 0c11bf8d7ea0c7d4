//! The preparing stage's end of prefetching: writes a lookup for each row that it encodes.

use crossbeam_channel::Sender;
use spate_binlog::RowsKind;
use spate_binlog::encode::ColumnBitmap;
use spate_connection::Vendor;
use spate_schedule::fold::{FULL, NetChange, ShapeNumber, TableFold};

use super::lookups::LookupQuery;
use super::{ChunkMark, Lookup, Prefetching};

/// Chunks with fewer rows are over before a reader could be ahead of them.
const ROWS_MIN: u64 = 64;

/// Writes lookups for the rows of one segment.
pub(crate) struct Feeder<'f, 'a> {
    state: &'f mut FeederState<'a>,
    open: Option<(RowsKind, ShapeNumber, LookupQuery<'f>)>,
    /// Rows of the chunk that is being written.
    rows: u64,
}

/// What a feeder keeps from one segment to the next.
#[derive(Debug)]
pub(crate) struct FeederState<'a> {
    prefetching: &'a Prefetching<'a>,
    lookups: Sender<Lookup>,
    vendor: Vendor,
    /// The chunk that is being written.
    chunk: u64,
    /// Its rows are prefetched.
    is_on: bool,
}

impl<'a> FeederState<'a> {
    pub(crate) fn new(prefetching: &'a Prefetching<'a>, lookups: Sender<Lookup>, vendor: Vendor) -> FeederState<'a> {
        FeederState { prefetching, lookups, vendor, chunk: 1, is_on: prefetching.begin_chunk() }
    }
}

impl<'f, 'a> Feeder<'f, 'a> {
    pub(crate) fn new(state: &'f mut FeederState<'a>) -> Feeder<'f, 'a> {
        Feeder { state, open: None, rows: 0 }
    }

    /// The chunk is complete. `None` if it is too small to say anything.
    pub(crate) fn end_chunk(&mut self) -> Option<ChunkMark> {
        self.close();
        let rows = std::mem::take(&mut self.rows);
        if rows < ROWS_MIN {
            return None;
        }
        let mark = ChunkMark { number: self.state.chunk, rows, is_prefetched: self.state.is_on };
        self.state.chunk += 1;
        self.state.is_on = self.state.prefetching.begin_chunk();
        Some(mark)
    }

    /// Gives the open query to the readers. If they have too many, it is dropped.
    fn close(&mut self) {
        if let Some((_, _, query)) = &mut self.open {
            Feeder::send(self.state, query);
        }
    }

    fn send(state: &FeederState<'_>, query: &mut LookupQuery<'_>) {
        if query.rows() > 0 {
            let table = query.table().clone();
            let (sql, rows) = query.take();
            let _is_full = state.lookups.try_send(Lookup { chunk: state.chunk, table, sql, rows });
        }
    }

    /// Rows of another table come.
    pub(crate) fn begin_table(&mut self) {
        self.close();
        self.open = None;
    }

    /// The chunk holds this change.
    pub(crate) fn change(&mut self, fold: &'f TableFold, change: &NetChange<'f>) {
        self.rows += 1;
        if !self.state.is_on {
            return;
        }
        let (kind, shape, key, image) = match *change {
            NetChange::Delete { locator } => (RowsKind::Delete, FULL, locator, &[][..]),
            NetChange::Update { locator, image, shape } => (RowsKind::Update, shape, locator, image),
            NetChange::Insert { image, shape } => (RowsKind::Insert, shape, image, image),
            // The highest row that came and went: there is at most one.
            NetChange::Move { .. } => return,
        };
        if self.open.as_ref().is_none_or(|open| (open.0, open.1) != (kind, shape)) {
            self.close();
            self.open = None;
            let plan = fold.plan();
            if !self.state.prefetching.is_readable(&plan.definition.name) {
                return;
            }
            let all = ColumnBitmap::all(plan.map.columns.len());
            let columns = fold.columns_of(shape).unwrap_or(&all);
            let key_columns = ColumnBitmap::only(plan.map.columns.len(), &plan.definition.row_key);
            let key_columns = if kind == RowsKind::Insert { &columns.bits } else { &key_columns.bits };
            let given = (&plan.map, &*plan.definition, self.state.vendor);
            // An image that cannot be walked ends the batch elsewhere.
            let query = LookupQuery::new(given, kind, key_columns, &columns.bits).ok().flatten();
            self.open = query.map(|query| (kind, shape, query));
        }
        if let Some((_, _, query)) = &mut self.open {
            let added = query.add(key, image);
            if added.is_ok() && query.is_full() {
                Feeder::send(self.state, query);
            }
        }
    }
}

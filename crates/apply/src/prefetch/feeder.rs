//! The preparing stage's end of prefetching: writes a lookup for each row that it encodes.

use crossbeam_channel::Sender;
use spate_connection::Vendor;
use spate_schedule::fold::{NetChange, TableFold};

use super::lookups::QUERY_ROWS_MAX;
use super::rows::{RowLookup, RowLookups};
use super::{Begun, ChunkMark, Lookup, Prefetching};

/// Chunks with fewer rows are over before a reader could be ahead of them.
const ROWS_MIN: u64 = 64;

/// Writes lookups for the rows of one segment.
pub(crate) struct Feeder<'f, 'a> {
    state: &'f mut FeederState<'a>,
    lookups: RowLookups<'f>,
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
    chunk: Begun,
}

impl<'a> FeederState<'a> {
    pub(crate) fn new(prefetching: &'a Prefetching<'a>, lookups: Sender<Lookup>, vendor: Vendor) -> FeederState<'a> {
        FeederState { prefetching, lookups, vendor, chunk: prefetching.begin_chunk() }
    }

    /// Gives a query to the readers. If they have too many, it is dropped.
    fn send(&self, RowLookup { table, sql, rows }: RowLookup) {
        let _is_full = self.lookups.try_send(Lookup { chunk: self.chunk.number, table, sql, rows });
    }
}

impl<'f, 'a> Feeder<'f, 'a> {
    pub(crate) fn new(state: &'f mut FeederState<'a>) -> Feeder<'f, 'a> {
        let lookups = RowLookups::new(state.vendor, QUERY_ROWS_MAX);
        Feeder { state, lookups, rows: 0 }
    }

    /// The chunk is complete. `None` if it is too small to say anything.
    pub(crate) fn end_chunk(&mut self) -> Option<ChunkMark> {
        self.begin_table();
        let rows = std::mem::take(&mut self.rows);
        if rows < ROWS_MIN {
            return None;
        }
        let Begun { number, has_lookups, .. } = self.state.chunk;
        self.state.chunk = self.state.prefetching.begin_chunk();
        Some(ChunkMark { number, rows, has_lookups })
    }

    /// True if the chunk is to be small.
    pub(crate) fn is_small(&self) -> bool {
        self.state.chunk.is_small
    }

    /// Rows of another table come.
    pub(crate) fn begin_table(&mut self) {
        let Feeder { state, lookups, .. } = self;
        lookups.close(|lookup| state.send(lookup));
    }

    /// The chunk holds this change.
    pub(crate) fn change(&mut self, fold: &'f TableFold, change: &NetChange<'f>) {
        self.rows += 1;
        if self.state.chunk.has_lookups {
            let Feeder { state, lookups, .. } = self;
            let is_readable = |table: &_| state.prefetching.is_readable(table);
            lookups.change(fold, change, is_readable, |lookup| state.send(lookup));
        }
    }
}

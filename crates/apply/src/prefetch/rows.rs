//! From net row changes to lookups: one open query for rows that change alike.

use spate_binlog::RowsKind;
use spate_binlog::encode::ColumnBitmap;
use spate_connection::Vendor;
use spate_schedule::fold::{FULL, NetChange, ShapeNumber, TableFold};
use spate_schedule::segment::{OrderedRows, WalkedRow};
use spate_schedule::{TableName, TablePlan};

use super::lookups::LookupQuery;

/// A query that looks rows up.
#[derive(Debug)]
pub struct RowLookup {
    /// Their table.
    pub table: TableName,
    /// The query.
    pub sql: Vec<u8>,
    /// How many rows it looks for.
    pub rows: usize,
}

/// Writes lookups of one table's rows after the other's.
#[derive(Debug)]
pub struct RowLookups<'f> {
    vendor: Vendor,
    query_rows: usize,
    open: Option<(RowsKind, ShapeNumber, LookupQuery<'f>)>,
}

impl<'f> RowLookups<'f> {
    /// For a server of this vendor; with so many rows in a query.
    pub fn new(vendor: Vendor, query_rows: usize) -> RowLookups<'f> {
        RowLookups { vendor, query_rows, open: None }
    }

    /// Adds a net change. Queries that are full, or end here, are given to `send`. Tables that `is_wanted` refuses are left out.
    pub fn change(
        &mut self,
        fold: &'f TableFold,
        change: &NetChange<'f>,
        is_wanted: impl FnOnce(&TableName) -> bool,
        mut send: impl FnMut(RowLookup),
    ) {
        let (kind, shape, key, image) = match *change {
            NetChange::Delete { locator } => (RowsKind::Delete, FULL, locator, &[][..]),
            NetChange::Update { locator, image, shape } => (RowsKind::Update, shape, locator, image),
            NetChange::Insert { image, shape } => (RowsKind::Insert, shape, image, image),
            // The highest row that came and went: there is at most one.
            NetChange::Move { .. } => return,
        };
        if self.open.as_ref().is_none_or(|open| (open.0, open.1) != (kind, shape)) {
            self.close(&mut send);
            let plan = fold.plan();
            if !is_wanted(&plan.definition.name) {
                return;
            }
            let all = ColumnBitmap::all(plan.map.columns.len());
            let columns = fold.columns_of(shape).unwrap_or(&all);
            let key_columns = ColumnBitmap::only(plan.map.columns.len(), &plan.definition.row_key);
            let key_columns = if kind == RowsKind::Insert { &columns.bits } else { &key_columns.bits };
            let query = query(plan, (self.vendor, self.query_rows), kind, key_columns, &columns.bits);
            self.open = query.map(|query| (kind, shape, query));
        }
        if let Some((_, _, query)) = &mut self.open {
            add(query, key, image, send);
        }
    }

    /// Gives the open query to `send`. Rows of another table come, or none.
    pub fn close(&mut self, send: impl FnMut(RowLookup)) {
        if let Some((_, _, mut query)) = self.open.take() {
            take(&mut query, send);
        }
    }
}

/// Writes the lookups of rows that are applied as the source logged them, for a server of this vendor, with so many rows in a query.
pub fn look_up_ordered(
    ordered: &OrderedRows,
    server: (Vendor, usize),
    mut send: impl FnMut(RowLookup),
) -> spate_schedule::Result<()> {
    let (kind, plan) = (ordered.kind(), ordered.plan());
    let after = if kind == RowsKind::Insert { ordered.columns() } else { ordered.columns_after() };
    let Some(mut query) = query(plan, server, kind, ordered.columns(), after) else { return Ok(()) };
    let walk = ordered.walk()?;
    for row in walk.rows(ordered.images()) {
        let WalkedRow { first, second, .. } = row?;
        let image = if kind == RowsKind::Insert { first } else { second };
        add(&mut query, first, image, &mut send);
    }
    take(&mut query, send);
    Ok(())
}

/// `None` if rows of this table are not looked up. An image that cannot be walked is somebody else's error.
fn query<'f>(
    plan: &'f TablePlan,
    (vendor, query_rows): (Vendor, usize),
    kind: RowsKind,
    key_columns: &[u8],
    columns: &[u8],
) -> Option<LookupQuery<'f>> {
    let query = LookupQuery::new((&plan.map, &*plan.definition, vendor), kind, key_columns, columns).ok().flatten();
    query.map(|query| query.of_rows(query_rows))
}

fn add(query: &mut LookupQuery<'_>, key: &[u8], image: &[u8], send: impl FnMut(RowLookup)) {
    let added = query.add(key, image);
    if added.is_ok() && query.is_full() {
        take(query, send);
    }
}

fn take(query: &mut LookupQuery<'_>, mut send: impl FnMut(RowLookup)) {
    if query.rows() > 0 {
        let table = query.table().clone();
        let (sql, rows) = query.take();
        send(RowLookup { table, sql, rows });
    }
}

//! Single row changes, extracted from their events, for a repair when the replica refuses one of them.

use std::sync::Arc;

use spate_binlog::encode::{
    ColumnBitmap, RowsEventEncoder, RowsLayout, append_table_map, mark_statement_end, set_timestamp,
};
use spate_binlog::rows::{FLAG_NO_CHECK_CONSTRAINT_CHECKS, FLAG_NO_FOREIGN_KEY_CHECKS};
use spate_binlog::table_map::bit_is_set;
use spate_binlog::{ImagePlan, RowsKind, RowsVersion, Span};

use crate::definition::{FoldPolicy, OrderedReason, TableName};
use crate::plan::TablePlan;
use crate::segment::OrderedRows;
use crate::{Error, Result};

/// The source has checked the row, and a repair must change no other table.
const REPAIR_FLAGS: u16 = FLAG_NO_FOREIGN_KEY_CHECKS | FLAG_NO_CHECK_CONSTRAINT_CHECKS;

/// A repair's event holds one table.
const TABLE_ID: u64 = 1;

/// Bytes before the schema's name in a table map's body: table id and flags.
const TABLE_MAP_PREFIX: usize = 8;

/// One row change as the source logged it.
#[derive(Debug, Clone)]
pub struct RowChange {
    plan: Arc<TablePlan>,
    kind: RowsKind,
    server_id: u32,
    timestamp_seconds: u32,
    version: RowsVersion,
    /// True if the after-image may hold only the changes of JSON columns.
    has_partial_json: bool,
    /// A bit per column that `before` holds.
    columns_before: Vec<u8>,
    /// A bit per column that `after` holds.
    columns_after: Vec<u8>,
    /// The row before the change; empty for an insert.
    before: Vec<u8>,
    /// The row after the change; empty for a delete.
    after: Vec<u8>,
}

impl OrderedRows {
    /// Each row by itself; none if the images cannot be measured. Events made of them get `server_id`.
    pub fn row_changes(&self, server_id: u32, version: RowsVersion) -> Vec<RowChange> {
        let Ok(walk) = self.walk() else { return vec![] };
        let mut changes = Vec::new();
        for row in walk.rows(&self.images).map_while(Result::ok) {
            let (before, after) = match self.kind {
                RowsKind::Insert => (vec![], row.first.to_vec()),
                RowsKind::Delete => (row.first.to_vec(), vec![]),
                RowsKind::Update => (row.first.to_vec(), row.second.to_vec()),
            };
            let columns_after = if self.kind == RowsKind::Update { &self.columns_after } else { &self.columns };
            changes.push(RowChange {
                plan: Arc::clone(&self.plan),
                kind: self.kind,
                server_id,
                timestamp_seconds: self.timestamp_seconds,
                version,
                has_partial_json: row.is_partial(),
                columns_before: self.columns.clone(),
                columns_after: columns_after.clone(),
                before,
                after,
            });
        }
        changes
    }
}

impl RowChange {
    /// The kind of change.
    pub fn kind(&self) -> RowsKind {
        self.kind
    }

    /// The source's table map, joined with the replica's definition.
    pub fn plan(&self) -> &TablePlan {
        &self.plan
    }

    /// The layout of the source's rows events.
    pub fn version(&self) -> RowsVersion {
        self.version
    }

    /// The row before the change, empty for an insert, and a bit per column that it holds.
    pub fn before(&self) -> (&[u8], &[u8]) {
        (&self.columns_before, &self.before)
    }

    /// The row after the change, empty for a delete, and a bit per column that it holds.
    pub fn after(&self) -> (&[u8], &[u8]) {
        (&self.columns_after, &self.after)
    }

    /// The table.
    pub fn table(&self) -> &TableName {
        &self.plan.definition.name
    }

    /// Names of the columns of the row key; none if the table has none.
    pub fn key_columns(&self) -> Vec<&str> {
        let definition = &self.plan.definition;
        definition.row_key.iter().map(|&column| definition.columns[column].name.as_str()).collect()
    }

    /// The key of the row after the change (or before it, if it is deleted), for people.
    pub fn describe_key(&self) -> String {
        match self.kind {
            RowsKind::Delete => self.plan.describe_key(&self.columns_before, &self.before),
            RowsKind::Insert | RowsKind::Update => self.plan.describe_key(&self.columns_after, &self.after),
        }
    }

    /// True if the row after the change is known in all columns that the source's table has.
    pub fn is_complete(&self) -> bool {
        self.kind != RowsKind::Delete
            && !self.has_partial_json
            && (0..self.plan.map.columns.len()).all(|column| bit_is_set(&self.columns_after, column))
    }

    /// True if its engine rolls a change back with the transaction.
    pub fn can_roll_back(&self) -> bool {
        self.plan.definition.is_transactional
    }

    /// True if foreign keys with CASCADE or SET NULL connect the table: the engine follows a change with changes of its
    /// own.
    pub fn has_engine_actions(&self) -> bool {
        self.plan.policy == FoldPolicy::Ordered(OrderedReason::EngineActions)
    }

    /// Inserts the row as it is after the change.
    ///
    /// # Errors
    /// A table map that cannot be encoded.
    pub fn insert_event(&self) -> Result<Vec<u8>> {
        self.event(&self.plan.map.body, RowsKind::Insert, &self.all_after(), &[&self.after])
    }

    /// Inserts the row as it is after the change into another table of the same columns.
    ///
    /// # Errors
    /// A table map that cannot be encoded.
    pub fn insert_into_event(&self, schema: &str, table: &str) -> Result<Vec<u8>> {
        let body = self.renamed_map(schema, table)?;
        self.event(&body, RowsKind::Insert, &self.all_after(), &[&self.after])
    }

    /// Deletes the row as it was before the change.
    ///
    /// # Errors
    /// A table map that cannot be encoded.
    pub fn delete_before_event(&self) -> Result<Vec<u8>> {
        let columns = ColumnBitmap { count: self.plan.map.columns.len(), bits: self.columns_before.clone() };
        self.event(&self.plan.map.body, RowsKind::Delete, &columns, &[&self.before])
    }

    /// Replaces any row that has the key of the row after the change; `None` if the table has no row key, or the image
    /// does not hold it.
    ///
    /// # Errors
    /// An image or a table map that cannot be read.
    pub fn overwrite_event(&self) -> Result<Option<Vec<u8>>> {
        let mut key = self.plan.definition.row_key.clone();
        let has_key = key.iter().all(|&column| bit_is_set(&self.columns_after, column));
        if key.is_empty() || !has_key {
            return Ok(None);
        }
        // The columns of an image stand in the table's order.
        key.sort_unstable();
        let walk = ImagePlan::new(&self.plan.map, &self.columns_after, &key)?;
        let mut spans = vec![Span::default(); key.len()];
        walk.measure(&self.after, &mut spans)?;
        let mut locator = vec![0; key.len().div_ceil(8)];
        for span in &spans {
            locator.extend_from_slice(span.field(&self.after));
        }
        let columns = ColumnBitmap::only(self.plan.map.columns.len(), &key);
        self.event(&self.plan.map.body, RowsKind::Update, &columns, &[&locator, &self.after]).map(Some)
    }

    fn all_after(&self) -> ColumnBitmap {
        ColumnBitmap { count: self.plan.map.columns.len(), bits: self.columns_after.clone() }
    }

    /// A table map and one rows event with one row.
    fn event(&self, map: &[u8], kind: RowsKind, columns: &ColumnBitmap, images: &[&[u8]]) -> Result<Vec<u8>> {
        let mut output = Vec::new();
        append_table_map(&mut output, map, TABLE_ID, self.server_id)?;
        let encoder = RowsEventEncoder::begin(
            &mut output,
            kind,
            TABLE_ID,
            self.server_id,
            REPAIR_FLAGS,
            (columns, &self.all_after()),
            RowsLayout::Plain(self.version),
        );
        for image in images {
            output.extend_from_slice(image);
        }
        let event = encoder.finish(&mut output);
        set_timestamp(&mut output, event, self.timestamp_seconds);
        mark_statement_end(&mut output, event);
        Ok(output)
    }

    /// The source's table map under other names, each of at most 250 bytes.
    fn renamed_map(&self, schema: &str, table: &str) -> Result<Vec<u8>> {
        let map = &self.plan.map;
        let body = &map.body;
        // Each name has its length before it and a zero after it.
        let names_end = TABLE_MAP_PREFIX + map.schema.len() + map.table.len() + 4;
        let (Some(prefix), Some(rest)) = (body.get(..TABLE_MAP_PREFIX), body.get(names_end..)) else {
            let why = "its table map is shorter than its names".to_owned();
            return Err(Error::Definition { table: self.table().clone(), why });
        };
        let mut renamed = prefix.to_vec();
        for name in [schema, table] {
            renamed.push(name.len() as u8);
            renamed.extend_from_slice(name.as_bytes());
            renamed.push(0);
        }
        renamed.extend_from_slice(rest);
        Ok(renamed)
    }
}

//! Segments: row changes of a batch between two statements.

use std::collections::HashMap;
use std::sync::Arc;

use spate_binlog::column::ColumnType;
use spate_binlog::rows::partial_json_prefix;
use spate_binlog::table_map::{bit_is_set, names_no_column};
use spate_binlog::{ImagePlan, RowsKind, TableMap};

use crate::Result;
use crate::definition::{FoldPolicy, OrderedReason, TableDefinition, TableName};
use crate::fold::TableFold;
use crate::keyless::{KeylessRows, Step};
use crate::outdated::Outdated;
use crate::plan::TablePlan;
use crate::row_session::RowSession;

/// Row changes whose tables may be applied in any order; the order within a table is fixed.
#[derive(Debug, Default)]
pub struct Segment {
    folds: Vec<TableFold>,
    /// From a plan's address to its place in `folds`. (A plan lives as long as the builder knows its table map.)
    pub(crate) fold_of: HashMap<TableName, usize>,
    keyless: Vec<KeylessRows>,
    pub(crate) keyless_of: HashMap<TableName, usize>,
    pub(crate) ordered: Vec<OrderedRows>,
    pub(crate) ordered_tables: HashMap<TableName, ()>,
    /// The state shared by the source's sessions that changed rows with expressions; `None` if there are no such rows.
    pub(crate) session: Option<RowSession>,
}

/// One rows event that is applied as the source logged it.
#[derive(Debug)]
pub struct OrderedRows {
    pub(crate) plan: Arc<TablePlan>,
    pub(crate) kind: RowsKind,
    pub(crate) flags: u16,
    /// The time of the changes, in seconds since 1970.
    pub(crate) timestamp_seconds: u32,
    /// The number of the source's statement.
    pub(crate) statement: u32,
    pub(crate) columns: Vec<u8>,
    pub(crate) columns_after: Vec<u8>,
    /// Empty for one insert of a row that holds no column.
    pub(crate) images: Vec<u8>,
    /// True if a bitmap before each after-image names its JSON columns that hold only the changes.
    pub(crate) has_partial_json: bool,
}

impl Segment {
    /// The net changes, table by table.
    pub fn folds(&self) -> &[TableFold] {
        &self.folds
    }

    pub(crate) fn folds_mut(&mut self) -> &mut [TableFold] {
        &mut self.folds
    }

    /// False only if all its rows are of tables that none of these definitions changes, and nothing but these rows changes with them.
    pub fn may_concern(&self, defined: &[Outdated]) -> bool {
        let is_folded_only = self.ordered.is_empty() && self.keyless.is_empty();
        let concerns = |fold: &TableFold| {
            let name = &fold.plan().definition.name;
            defined.iter().any(|definition| definition.may_include(name))
        };
        !defined.is_empty() && (!is_folded_only || self.folds.iter().any(concerns))
    }

    /// The tables with changes.
    pub fn table_names(&self) -> impl Iterator<Item = &TableName> {
        let folded = self.folds.iter().map(|fold| &fold.plan().definition.name);
        folded.chain(self.keyless_of.keys()).chain(self.ordered_tables.keys())
    }

    /// True if there are no changes but of sequences.
    pub fn is_of_sequences(&self) -> bool {
        self.plans().all(|plan| plan.definition.is_sequence)
    }

    /// True if there are changes of sequences: servers neither lock nor roll them back.
    pub fn has_sequences(&self) -> bool {
        self.plans().any(|plan| plan.definition.is_sequence)
    }

    /// The session to apply them in; `None` means any.
    pub fn session(&self) -> Option<&RowSession> {
        self.session.as_ref()
    }

    /// The changes of tables without a row key.
    pub fn keyless(&self) -> &[KeylessRows] {
        &self.keyless
    }

    /// All steps of the changes of tables without a row key, table by table.
    pub fn keyless_steps(&self) -> Vec<Vec<Step>> {
        self.keyless.iter().map(KeylessRows::steps).collect()
    }

    /// True if it holds changes of a table that cannot roll back, and whose rows cannot be repaired either: no key
    /// identifies them, or the server keeps their history, to which a repair would add.
    pub fn has_unmendable_rows(&self) -> bool {
        let is_unmendable =
            |definition: &TableDefinition| definition.row_key.is_empty() || definition.row_end.is_some();
        let definitions = self.ordered.iter().map(|ordered| &*ordered.plan.definition);
        definitions.into_iter().any(|definition| !definition.is_transactional && is_unmendable(definition))
    }

    /// The ordered changes.
    pub fn ordered(&self) -> &[OrderedRows] {
        &self.ordered
    }

    /// Takes the gathered changes. Later ones continue in the same session.
    pub(crate) fn take(&mut self) -> Segment {
        let session = self.session.clone();
        std::mem::replace(self, Segment { session, ..Segment::default() })
    }

    /// The plans of its tables; one of several if there are.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &TablePlan> {
        let folded = self.folds.iter().map(|fold| &*fold.plan);
        let keyless = self.keyless.iter().map(|rows| &**rows.plan());
        folded.chain(keyless).chain(self.ordered.iter().map(|rows| &*rows.plan))
    }

    /// How many net changes of rows it holds, or about so many.
    pub fn net_rows(&self) -> u64 {
        let folded: usize = self.folds.iter().map(TableFold::touched_rows).sum();
        (folded + self.keyless.len() + self.ordered.len()) as u64
    }

    /// No changes, for the same session.
    pub(crate) fn empty_like(other: &Segment) -> Segment {
        Segment { session: other.session.clone(), ..Segment::default() }
    }

    pub(crate) fn into_tables(self) -> (Vec<TableFold>, Vec<KeylessRows>, Vec<OrderedRows>) {
        (self.folds, self.keyless, self.ordered)
    }

    pub(crate) fn add_fold(&mut self, fold: TableFold) {
        if !fold.is_untouched() {
            self.fold_of.insert(fold.plan.definition.name.clone(), self.folds.len());
            self.folds.push(fold);
        }
    }

    pub(crate) fn add_keyless(&mut self, rows: KeylessRows) {
        self.keyless_of.insert(rows.plan().definition.name.clone(), self.keyless.len());
        self.keyless.push(rows);
    }

    pub(crate) fn add_ordered(&mut self, rows: OrderedRows) {
        self.ordered_tables.insert(rows.plan.definition.name.clone(), ());
        self.ordered.push(rows);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folds.is_empty() && self.keyless.is_empty() && self.ordered.is_empty()
    }

    /// The changes of a plan's table without a row key; `None` as for [`Segment::fold_for`].
    pub(crate) fn keyless_for(&mut self, plan: &Arc<TablePlan>) -> Result<Option<&mut KeylessRows>> {
        let name = &plan.definition.name;
        if let Some(&index) = self.keyless_of.get(name) {
            return Ok(self.keyless.get_mut(index).filter(|rows| rows.has_shape_of(plan)));
        }
        if self.fold_of.contains_key(name) || self.ordered_tables.contains_key(name) {
            return Ok(None);
        }
        self.keyless_of.insert(name.clone(), self.keyless.len());
        self.keyless.push(KeylessRows::new(Arc::clone(plan))?);
        Ok(self.keyless.last_mut())
    }

    /// The fold of a plan's table, and its place; `None` if this segment already holds the table in another shape or in order.
    pub(crate) fn fold_for(&mut self, plan: &Arc<TablePlan>) -> Result<Option<(usize, &mut TableFold)>> {
        // Nearly always, it is the table of the row before.
        if self.folds.last().is_some_and(|fold| Arc::ptr_eq(&fold.plan, plan)) {
            return Ok(self.last_fold());
        }
        let name = &plan.definition.name;
        if let Some(&index) = self.fold_of.get(name) {
            let fold = &mut self.folds[index];
            return Ok(if fold.has_shape_of(plan) { Some((index, fold)) } else { None });
        }
        if self.keyless_of.contains_key(name) || self.ordered_tables.contains_key(name) {
            return Ok(None);
        }
        self.fold_of.insert(name.clone(), self.folds.len());
        self.folds.push(TableFold::new(Arc::clone(plan))?);
        Ok(self.last_fold())
    }

    fn last_fold(&mut self) -> Option<(usize, &mut TableFold)> {
        let place = self.folds.len().checked_sub(1)?;
        self.folds.last_mut().map(|fold| (place, fold))
    }

    /// Forgets the fold of the plan's table if it was only just begun, and nothing has been folded into it.
    pub(crate) fn forget_untouched(&mut self, plan: &TablePlan) {
        if self
            .folds
            .last()
            .is_some_and(|fold| fold.plan.definition.name == plan.definition.name && fold.is_untouched())
        {
            self.folds.pop();
            self.fold_of.remove(&plan.definition.name);
        }
    }

    /// True if nothing has been folded into the plan's table.
    pub(crate) fn is_fresh(&self, plan: &TablePlan) -> bool {
        self.fold_of.get(&plan.definition.name).is_none_or(|&index| self.folds[index].is_untouched())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let folds: usize = self.folds.iter().map(TableFold::memory_bytes).sum();
        let keyless: usize = self.keyless.iter().map(KeylessRows::memory_bytes).sum();
        folds + keyless + self.ordered.iter().map(|ordered| ordered.images.len()).sum::<usize>()
    }
}

impl OrderedRows {
    /// The table.
    pub fn plan(&self) -> &TablePlan {
        &self.plan
    }

    /// The kind of change.
    pub fn kind(&self) -> RowsKind {
        self.kind
    }

    /// The event's `FLAG_…` bits.
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// The time when it was logged, in seconds since 1970.
    pub fn timestamp_seconds(&self) -> u32 {
        self.timestamp_seconds
    }

    /// A bit per column, set if a row's first image holds it.
    pub fn columns(&self) -> &[u8] {
        &self.columns
    }

    /// A bit per column, set if the after-image of an update holds it; else equal to [`OrderedRows::columns`].
    pub fn columns_after(&self) -> &[u8] {
        &self.columns_after
    }

    /// The images, one after the other.
    pub fn images(&self) -> &[u8] {
        &self.images
    }

    /// How to split the images into rows.
    ///
    /// # Errors
    /// [`crate::Error::Binlog`] if the images cannot be measured.
    pub fn walk(&self) -> Result<RowWalk> {
        RowWalk::new(&self.plan, self.kind, (&self.columns, &self.columns_after), self.has_partial_json)
    }

    /// The change of each row, for messages: `delete from shop.item of the row with id=5`.
    pub fn describe(&self) -> Vec<String> {
        let what = match self.kind {
            RowsKind::Insert => "insert into",
            RowsKind::Update => "update of",
            RowsKind::Delete => "delete from",
        };
        let Ok(walk) = self.walk() else { return vec![] };
        let described = walk.rows(&self.images).map_while(Result::ok).map(|row| match row.all {
            [] => format!("{what} {}, a row of defaults", self.plan.definition.name),
            _ => {
                let key = self.plan.describe_key(&self.columns, row.first);
                format!("{what} {}, the row with {key}", self.plan.definition.name)
            }
        });
        described.collect()
    }
}

/// How to split an event into row changes.
#[derive(Debug)]
pub struct RowWalk {
    /// `None` if the rows cannot be separated.
    first: Option<ImagePlan>,
    /// The plan of after-images; `None` unless the rows are updates.
    second: Option<ImagePlan>,
    /// JSON columns of the table, if its updates may hold parts of them.
    partial_json: Option<usize>,
    /// True if no images at all mean one row.
    is_row_of_defaults: bool,
}

/// One row change.
#[derive(Debug, Clone, Copy)]
pub struct WalkedRow<'a> {
    /// All of it.
    pub(crate) all: &'a [u8],
    /// The before-image; of an insert, the after-image.
    pub first: &'a [u8],
    /// The after-image of an update.
    pub second: &'a [u8],
    /// A bit per JSON column of the table, set if the after-image holds only its changes. Empty if none is set.
    partial: &'a [u8],
}

impl WalkedRow<'_> {
    /// True if the after-image holds only the changes of some column.
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// The indexes, in the table, of the columns of which the after-image holds only the changes.
    pub fn partial_columns(&self, map: &TableMap) -> Vec<usize> {
        let is_json = |&index: &usize| matches!(map.columns[index], ColumnType::Json { .. });
        let json = (0..map.columns.len()).filter(is_json).enumerate();
        json.filter(|&(number, _)| bit_is_set(self.partial, number)).map(|(_, index)| index).collect()
    }
}

impl RowWalk {
    pub(crate) fn new(
        plan: &TablePlan,
        kind: RowsKind,
        (columns, columns_after): (&[u8], &[u8]),
        has_partial_json: bool,
    ) -> Result<RowWalk> {
        if plan.policy == FoldPolicy::Ordered(OrderedReason::Unmeasurable) {
            return Ok(RowWalk { first: None, second: None, partial_json: None, is_row_of_defaults: false });
        }
        if kind == RowsKind::Insert && names_no_column(columns, plan.map.columns.len()) {
            return Ok(RowWalk { first: None, second: None, partial_json: None, is_row_of_defaults: true });
        }
        let json = plan.map.columns.iter().filter(|column| matches!(column, ColumnType::Json { .. })).count();
        let second = (kind == RowsKind::Update).then(|| ImagePlan::new(&plan.map, columns_after, &[])).transpose()?;
        let first = Some(ImagePlan::new(&plan.map, columns, &[])?);
        Ok(RowWalk { first, second, partial_json: has_partial_json.then_some(json), is_row_of_defaults: false })
    }

    /// The rows in these images.
    pub fn rows<'a>(&'a self, images: &'a [u8]) -> Rows<'a> {
        let is_left = self.is_row_of_defaults || !images.is_empty();
        Rows { walk: self, rest: is_left.then_some(images) }
    }

    /// The row change at the start of `rest`. It is never empty.
    fn next<'a>(&self, rest: &'a [u8]) -> Result<WalkedRow<'a>> {
        let Some(first) = &self.first else {
            if self.is_row_of_defaults && !rest.is_empty() {
                let why = format!("{} bytes of rows without a column", rest.len());
                return Err(spate_binlog::Error::Malformed { what: "row image", why }.into());
            }
            return Ok(WalkedRow { all: rest, first: rest, second: &[], partial: &[] });
        };
        let before = first.measure(rest, &mut [])?;
        let (mut begin, mut end, mut partial) = (before, before, &[][..]);
        if let Some(second) = &self.second {
            if let Some(json_columns) = self.partial_json {
                let (length, bits) = partial_json_prefix(&rest[before..], json_columns)?;
                begin += length;
                partial = bits;
            }
            end = begin + second.measure(&rest[begin..], &mut [])?;
        }
        if end == 0 {
            let why = "a row without any column".to_owned();
            return Err(spate_binlog::Error::Malformed { what: "rows event", why }.into());
        }
        Ok(WalkedRow { all: &rest[..end], first: &rest[..before], second: &rest[begin..end], partial })
    }
}

/// The rows of an event, one after the other. It ends after an error.
#[derive(Debug)]
pub struct Rows<'a> {
    walk: &'a RowWalk,
    /// `None` if no row is left.
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<WalkedRow<'a>>;

    fn next(&mut self) -> Option<Result<WalkedRow<'a>>> {
        let rest = self.rest.take()?;
        let row = self.walk.next(rest);
        if let Ok(row) = &row {
            self.rest = Some(&rest[row.all.len()..]).filter(|rest| !rest.is_empty());
        }
        Some(row)
    }
}

//! Segments: row changes of a batch between two statements.

use std::collections::HashMap;
use std::sync::Arc;

use spate_binlog::RowsKind;

use crate::Result;
use crate::definition::TableName;
use crate::fold::TableFold;
use crate::multiset::RowMultiset;
use crate::plan::TablePlan;

/// Row changes that may be applied in any order among each other, as long as each table's part is applied as it stands.
#[derive(Debug, Default)]
pub struct Segment {
    folds: Vec<TableFold>,
    /// From a plan's address to its place in `folds`. (A plan lives as long as the builder knows its table map.)
    pub(crate) fold_of: HashMap<TableName, usize>,
    multisets: Vec<RowMultiset>,
    pub(crate) multiset_of: HashMap<TableName, usize>,
    pub(crate) ordered: Vec<OrderedRows>,
    pub(crate) ordered_tables: HashMap<TableName, ()>,
}

/// One rows event that is applied as the source logged it.
#[derive(Debug)]
pub struct OrderedRows {
    pub(crate) plan: Arc<TablePlan>,
    pub(crate) kind: RowsKind,
    pub(crate) flags: u16,
    pub(crate) columns: Vec<u8>,
    pub(crate) columns_after: Vec<u8>,
    pub(crate) images: Vec<u8>,
}

impl Segment {
    /// The net changes, table by table.
    pub fn folds(&self) -> &[TableFold] {
        &self.folds
    }

    /// The net changes of tables without a row key.
    pub fn multisets(&self) -> &[RowMultiset] {
        &self.multisets
    }

    /// True if it holds changes of a table that can neither roll back nor tell its rows apart by a key.
    pub fn has_irrevocable_rows_without_key(&self) -> bool {
        let definitions = self.ordered.iter().map(|ordered| &ordered.plan.definition);
        definitions.into_iter().any(|definition| !definition.is_transactional && definition.row_key.is_empty())
    }

    /// The ordered changes.
    pub fn ordered(&self) -> &[OrderedRows] {
        &self.ordered
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folds.is_empty() && self.multisets.is_empty() && self.ordered.is_empty()
    }

    /// The multiset of a plan's table; `None` as for [`Segment::fold_for`].
    pub(crate) fn multiset_for(&mut self, plan: &Arc<TablePlan>) -> Result<Option<&mut RowMultiset>> {
        let name = &plan.definition.name;
        if let Some(&index) = self.multiset_of.get(name) {
            return Ok(self.multisets.get_mut(index).filter(|multiset| multiset.has_shape_of(plan)));
        }
        if self.fold_of.contains_key(name) || self.ordered_tables.contains_key(name) {
            return Ok(None);
        }
        self.multiset_of.insert(name.clone(), self.multisets.len());
        self.multisets.push(RowMultiset::new(Arc::clone(plan))?);
        Ok(self.multisets.last_mut())
    }

    /// The fold of a plan's table; `None` if this segment already holds the table in another shape or in order.
    pub(crate) fn fold_for(&mut self, plan: &Arc<TablePlan>) -> Result<Option<&mut TableFold>> {
        // Nearly always the table of the row before.
        if self.folds.last().is_some_and(|fold| Arc::ptr_eq(&fold.plan, plan)) {
            return Ok(self.folds.last_mut());
        }
        let name = &plan.definition.name;
        if let Some(&index) = self.fold_of.get(name) {
            let fold = &mut self.folds[index];
            return Ok(if fold.has_shape_of(plan) { Some(fold) } else { None });
        }
        if self.multiset_of.contains_key(name) || self.ordered_tables.contains_key(name) {
            return Ok(None);
        }
        self.fold_of.insert(name.clone(), self.folds.len());
        self.folds.push(TableFold::new(Arc::clone(plan))?);
        Ok(self.folds.last_mut())
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
        let multisets: usize = self.multisets.iter().map(RowMultiset::memory_bytes).sum();
        folds + multisets + self.ordered.iter().map(|ordered| ordered.images.len()).sum::<usize>()
    }
}

impl OrderedRows {
    /// The table.
    pub fn plan(&self) -> &TablePlan {
        &self.plan
    }

    /// What is done to the rows.
    pub fn kind(&self) -> RowsKind {
        self.kind
    }

    /// The event's `FLAG_…` bits.
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// A bit per column: is it in a row's first image?
    pub fn columns(&self) -> &[u8] {
        &self.columns
    }

    /// The same for the after-images of updates; else equal to [`OrderedRows::columns`].
    pub fn columns_after(&self) -> &[u8] {
        &self.columns_after
    }

    /// The images, one after the other.
    pub fn images(&self) -> &[u8] {
        &self.images
    }

    /// For each row, what is done to it, for messages: `delete from shop.item of the row with id=5`.
    pub fn describe(&self) -> Vec<String> {
        let plan = &self.plan;
        let walk = |columns: &[u8]| spate_binlog::ImagePlan::new(&plan.map, columns, &[]);
        let (Ok(first), Ok(second)) = (walk(&self.columns), walk(&self.columns_after)) else { return vec![] };
        let mut described = Vec::new();
        let mut rest = self.images.as_slice();
        while let Ok(mut length) = first.measure(rest, &mut []) {
            let key = plan.describe_key(&self.columns, &rest[..length]);
            if self.kind == RowsKind::Update {
                let Ok(after) = second.measure(&rest[length..], &mut []) else { break };
                length += after;
            }
            let what = match self.kind {
                RowsKind::Insert => "insert into",
                RowsKind::Update => "update of",
                RowsKind::Delete => "delete from",
            };
            described.push(format!("{what} {}, the row with {key}", plan.definition.name));
            rest = &rest[length..];
            if rest.is_empty() || length == 0 {
                break;
            }
        }
        described
    }
}

//! The inverse of row changes: from the last to the first, each insert becomes a delete, each delete an insert, and each update goes back.
//! Folded, that is the net change which makes the rows as they were before. Images must be whole.

use std::sync::Arc;

use spate_binlog::RowsKind;
use spate_binlog::encode::ColumnBitmap;
use spate_binlog::rows::RowsEvent;

use crate::definition::FoldPolicy;
use crate::fold::Verdict;
use crate::plan::TablePlan;
use crate::segment::{RowWalk, Segment};
use crate::{Error, Result};

/// One change, kept until all are known.
#[derive(Debug)]
struct Kept {
    plan: Arc<TablePlan>,
    kind: RowsKind,
    first: Vec<u8>,
    second: Vec<u8>,
}

/// Row changes that are to be undone.
#[derive(Debug, Default)]
pub struct Inverse {
    forward: Segment,
    changes: Vec<Kept>,
    bytes: usize,
}

impl Inverse {
    /// Takes the rows of one event. `images` are its images, decompressed.
    ///
    /// # Errors
    /// [`Error::Refused`] says why the event cannot be undone.
    pub fn take(&mut self, plan: &Arc<TablePlan>, rows: &RowsEvent<'_>, images: &[u8]) -> Result<()> {
        let refused = |why: String| Error::Refused { what: format!("a change of {}", plan.definition.name), why };
        if !rows.has_full_images() {
            return Err(refused("it was logged without whole row images (binlog_row_image was not FULL)".to_owned()));
        }
        if let FoldPolicy::Ordered(reason) = plan.policy {
            return Err(refused(format!("its inverse is not known: {reason}")));
        }
        let walk = RowWalk::new(plan, rows.kind, (rows.columns, rows.columns_after), false)?;
        for row in walk.rows(images) {
            let row = row?;
            let (first, second) = (row.first.to_vec(), row.second.to_vec());
            add(&mut self.forward, plan, rows.kind, &[&*first, &second].concat())?;
            self.bytes += first.len() + second.len();
            self.changes.push(Kept { plan: Arc::clone(plan), kind: rows.kind, first, second });
        }
        Ok(())
    }

    /// How many row changes were taken.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// True if none was taken.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes from this one on, for people: `insert into shop.item, the row with id=5`.
    pub fn describe(&self, from: usize) -> Vec<String> {
        let all = |kept: &Kept| ColumnBitmap::all(kept.plan.map.columns.len()).bits;
        let describe = |kept: &Kept| {
            let what = match kept.kind {
                RowsKind::Insert => "insert into",
                RowsKind::Update => "update of",
                RowsKind::Delete => "delete from",
            };
            format!(
                "{what} {}, the row with {}",
                kept.plan.definition.name,
                kept.plan.describe_key(&all(kept), &kept.first)
            )
        };
        self.changes.iter().skip(from).map(describe).collect()
    }

    /// Bytes of images that are in memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The net changes as they were made: the images say how the rows must be now.
    pub fn forward(&self) -> &Segment {
        &self.forward
    }

    /// The net changes that undo all.
    ///
    /// # Errors
    /// [`Error::Refused`] if the changes contradict each other.
    pub fn fold(&self) -> Result<Segment> {
        let mut inverse = Segment::default();
        for Kept { plan, kind, first, second } in self.changes.iter().rev() {
            let (kind, images) = match kind {
                RowsKind::Insert => (RowsKind::Delete, first.clone()),
                RowsKind::Delete => (RowsKind::Insert, first.clone()),
                RowsKind::Update => (RowsKind::Update, [&**second, first].concat()),
            };
            add(&mut inverse, plan, kind, &images)?;
        }
        Ok(inverse)
    }
}

fn add(segment: &mut Segment, plan: &Arc<TablePlan>, kind: RowsKind, images: &[u8]) -> Result<()> {
    let refused =
        |why: &str| Error::Refused { what: format!("a change of {}", plan.definition.name), why: why.to_owned() };
    let redefined = || refused("the table was defined anew between its changes");
    if let FoldPolicy::Keyless = plan.policy {
        segment.keyless_for(plan)?.ok_or_else(redefined)?.take(kind, images, 0)?;
        return Ok(());
    }
    let (_, fold) = segment.fold_for(plan)?.ok_or_else(redefined)?;
    match fold.take(kind, images)? {
        Verdict::Folded(_) => Ok(()),
        Verdict::Cut | Verdict::Ordered => Err(refused("its row changes contradict each other")),
    }
}

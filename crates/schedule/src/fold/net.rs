//! The result of a fold: the net change of each row, sorted, and classified as delete, update or insert.

use spate_binlog::Span;

use super::{Entry, FULL, Phantom, ShapeNumber, TableFold};
use crate::Result;
use crate::plan::FoldPlan;

/// A net change, ready to be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants' docs name their fields")]
pub enum NetChange<'a> {
    /// Delete the row with this locator.
    Delete { locator: &'a [u8] },
    /// Set the columns of this shape, in the row with this locator, to this image.
    Update { locator: &'a [u8], image: &'a [u8], shape: ShapeNumber },
    /// Set all columns of the row with this locator to this image, which has another locator and holds the columns of
    /// this shape.
    Move { locator: &'a [u8], image: &'a [u8], shape: ShapeNumber },
    /// Insert this image, which holds the columns of this shape.
    Insert { image: &'a [u8], shape: ShapeNumber },
}

/// The net changes of a table in the order in which they are applied: deletes, phantoms, updates, inserts; each by key.
#[derive(Debug)]
pub struct NetChanges<'a> {
    fold: &'a TableFold,
    /// Sorted by key.
    deletes: Vec<u32>,
    updates: Vec<u32>,
    inserts: Vec<u32>,
    phantom: Option<&'a Phantom>,
    raised: Option<&'a (Phantom, Phantom)>,
}

impl TableFold {
    /// Sorts and classifies the net changes.
    ///
    /// # Errors
    /// [`crate::Error::Binlog`] if a kept image cannot be measured, which would be a defect.
    pub fn net_changes(&self) -> Result<NetChanges<'_>> {
        let mut changes =
            NetChanges { fold: self, deletes: vec![], updates: vec![], inserts: vec![], phantom: None, raised: None };
        let Some(plan) = self.plan.images.as_ref() else { return Ok(changes) };
        let mut order: Vec<(u64, u32)> =
            self.entries.iter().enumerate().map(|(index, entry)| (entry.sort_prefix, index as u32)).collect();
        order.sort_unstable_by(|one, other| {
            let locator = |index: u32| self.locator_of(&self.entries[index as usize]);
            one.0.cmp(&other.0).then_with(|| locator(one.1).cmp(locator(other.1)))
        });
        let has_phantoms = self.phantom.is_some() || self.raised.is_some();
        let mut highest_inserted = 0;
        let mut spans = vec![Span::default(); plan.walk.tracked_count()];
        let mut witness = Vec::new();
        for (_, index) in order {
            let entry = &self.entries[index as usize];
            match (entry.was_there, entry.is_there) {
                (false, false) => {}
                (true, false) => changes.deletes.push(index),
                (false, true) => changes.inserts.push(index),
                (true, true) => {
                    // A phantom must not collide with a row whose unique values were elsewhere while the phantom
                    // existed.
                    let is_in_the_way = has_phantoms && entry.has_left;
                    if is_in_the_way || self.moves_unique_values(plan, entry, &mut spans, &mut witness)? {
                        changes.deletes.push(index);
                        changes.inserts.push(index);
                    } else {
                        changes.updates.push(index);
                    }
                }
            }
            if has_phantoms && entry.is_there {
                let value = self.auto_increment_of(plan, entry, &mut spans)?;
                highest_inserted = highest_inserted.max(value.unwrap_or(0));
            }
        }
        // Stable: within a shape, the order stays that of the key.
        changes.updates.sort_by_key(|&index| self.entries[index as usize].shape);
        changes.inserts.sort_by_key(|&index| self.entries[index as usize].shape);
        // An update moves the counter at least as far as an insert of the same value.
        changes.raised = self.raised.as_ref().filter(|(_, raised)| raised.value >= highest_inserted);
        let highest = changes.raised.map_or(highest_inserted, |(_, raised)| raised.value);
        changes.phantom = self.phantom.as_ref().filter(|phantom| phantom.value > highest);
        Ok(changes)
    }

    fn moves_unique_values(
        &self,
        plan: &FoldPlan,
        entry: &Entry,
        spans: &mut [Span],
        witness: &mut Vec<u8>,
    ) -> Result<bool> {
        if entry.is_replaced {
            return Ok(true);
        }
        // Partial images that move unique values are noted as replaced, or are not folded.
        if entry.shape != FULL {
            return Ok(false);
        }
        if self.plan.definition.has_hidden_unique_key {
            return Ok(true);
        }
        if !plan.has_witness() {
            return Ok(false);
        }
        let image = self.image_of(entry);
        plan.walk.measure(image, spans)?;
        plan.witness(image, spans, witness);
        Ok(self.witness_of(entry) != witness.as_slice())
    }
}

impl<'a> NetChanges<'a> {
    /// Number of net row changes; an update that became a delete and an insert counts twice.
    pub fn len(&self) -> usize {
        let phantoms = if self.phantom.is_some() { 2 } else { 0 } + if self.raised.is_some() { 3 } else { 0 };
        self.deletes.len() + self.updates.len() + self.inserts.len() + phantoms
    }

    /// True if there is no net change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The images of the rows that are there afterwards, of those that are not deleted. Rows that come and go again, only for the counter, are none.
    pub fn rows_left(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        let fold = self.fold;
        self.updates.iter().chain(&self.inserts).map(move |&index| fold.image_of(&fold.entries[index as usize]))
    }

    /// The changes, in the order of their application.
    pub fn iter(&self) -> impl Iterator<Item = NetChange<'a>> + '_ {
        let fold = self.fold;
        let entry = move |&index: &u32| &fold.entries[index as usize];
        let deletes = self.deletes.iter().map(entry).map(|entry| NetChange::Delete { locator: fold.locator_of(entry) });
        let phantom = self.phantom.iter().flat_map(|phantom| {
            let insert = NetChange::Insert { image: &phantom.image, shape: phantom.shape };
            [insert, NetChange::Delete { locator: &phantom.locator }]
        });
        let raised = self.raised.iter().flat_map(|(from, to)| {
            let insert = NetChange::Insert { image: &from.image, shape: from.shape };
            let raise = NetChange::Move { locator: &from.locator, image: &to.image, shape: to.shape };
            [insert, raise, NetChange::Delete { locator: &to.locator }]
        });
        let updates = self.updates.iter().map(entry).map(|entry| NetChange::Update {
            locator: fold.locator_of(entry),
            image: fold.image_of(entry),
            shape: entry.shape,
        });
        let inserts = self
            .inserts
            .iter()
            .map(entry)
            .map(|entry| NetChange::Insert { image: fold.image_of(entry), shape: entry.shape });
        deletes.chain(phantom).chain(raised).chain(updates).chain(inserts)
    }
}

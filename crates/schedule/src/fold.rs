//! Folding: thousands of row changes of one table become the net change of each row.
//!
//! The locator (the bytes of the row key) identifies a row. Of each changed row, the fold keeps whether it existed
//! before, whether it exists now, and its latest image. The net change follows from these:
//!
//! | before | now | net change |
//! | --- | --- | --- |
//! | no | yes | insert of the latest image |
//! | yes | yes | update to the latest image |
//! | yes | no | delete |
//! | no | no | nothing |
//!
//! This would lose two effects of the source's history, so the fold keeps them:
//! - *AUTO_INCREMENT*: a row that came and went may have raised the table's counter, and an update that raises a row's
//!   value may move the counter further than an insert would. The highest such row, and the highest such update, are
//!   *phantoms*: emitted as an insert and a delete, and as an insert, the update and a delete.
//! - *unique values that move*: an update that changes a column of another unique key is emitted as a delete and an
//!   insert, all deletes before all inserts.
//!
//! Phantoms come after all deletes. A row whose unique values moved away and came back is deleted and inserted, too. So
//! after the deletes, only rows remain that had the same unique values all the time. The phantoms existed beside these
//! rows on the source, so they collide with none of them here.
//!
//! Images may be partial, of rows events that hold only some of the columns: see `fold/partial.rs`.
//!
//! The fold does not take a change that contradicts its state ([`Verdict::Cut`]): the caller ends the segment and
//! begins another with it.

mod divide;
pub(crate) mod helpers;
mod net;
mod partial;

use std::sync::Arc;

use hashbrown::HashTable;
use spate_binlog::{RowsKind, Span};
use xxhash_rust::xxh3::xxh3_64;

use crate::arena::{Arena, Place};
use crate::plan::{FoldPlan, TablePlan};
use crate::write_set::{self, Conflicts, Key};
use crate::{Error, Result};

pub use helpers::{HELPERS_MAX, Helper};
pub use net::{NetChange, NetChanges};
use partial::Shapes;
pub(crate) use partial::image_of;
pub use partial::{FULL, ShapeNumber};

/// The net changes of one table within one segment.
#[derive(Debug)]
pub struct TableFold {
    pub(crate) plan: Arc<TablePlan>,
    arena: Arena,
    entries: Vec<Entry>,
    index: HashTable<u32>,
    /// The highest row that came and went.
    phantom: Option<Phantom>,
    /// The highest row whose AUTO_INCREMENT value was raised, and the row before that update.
    raised: Option<(Phantom, Phantom)>,
    /// Row keys have changed of which images held only a part.
    has_moved_partially: bool,
    shapes: Shapes,
    scratch: Scratch,
}

/// One touched row. Its bytes in the arena: locator, witness, image.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    sort_prefix: u64,
    place: Place,
    locator_length: u32,
    witness_length: u32,
    image_length: u32,
    /// Bytes that an image may take without moving the entry.
    image_capacity: u32,
    /// The columns that the image holds.
    shape: ShapeNumber,
    was_there: bool,
    is_there: bool,
    /// True if the row is to be deleted and inserted instead of updated, provided that it existed before and exists
    /// now.
    is_replaced: bool,
    /// True if the row existed before and its unique values moved away in between.
    has_left: bool,
}

/// The state of a row at a moment, kept for its AUTO_INCREMENT value.
#[derive(Debug, Clone, Default)]
struct Phantom {
    value: u64,
    locator: Vec<u8>,
    image: Vec<u8>,
    shape: ShapeNumber,
}

impl Phantom {
    /// Copies a row into its buffers, which stay allocated.
    fn set(&mut self, plan: &FoldPlan, value: u64, (image, spans): (&[u8], &[Span]), shape: ShapeNumber) {
        self.value = value;
        self.shape = shape;
        plan.locator(image, spans, &mut self.locator);
        self.image.clear();
        self.image.extend_from_slice(image);
    }
}

/// Buffers that live as long as the fold, so that a row change allocates nothing.
#[derive(Debug, Default)]
struct Scratch {
    locator: Vec<u8>,
    witness: Vec<u8>,
    witness_after: Vec<u8>,
    spans: Vec<Span>,
    spans_after: Vec<Span>,
}

/// The outcome of folding a row change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Folded; holds the length of the change in bytes.
    Folded(usize),
    /// Not folded: it must come after everything folded so far.
    Cut,
    /// Not folded: the image does not say enough of the row. The change must be applied as logged, after everything
    /// folded so far.
    Ordered,
}

impl TableFold {
    /// An empty fold.
    ///
    /// # Errors
    /// [`Error::Definition`] if the table may not be folded.
    pub fn new(plan: Arc<TablePlan>) -> Result<TableFold> {
        if plan.images.is_none() {
            return Err(Error::Definition {
                table: plan.definition.name.clone(),
                why: "it may not be folded".to_owned(),
            });
        }
        Ok(TableFold {
            plan,
            arena: Arena::default(),
            entries: Vec::new(),
            index: HashTable::new(),
            phantom: None,
            raised: None,
            has_moved_partially: false,
            shapes: Shapes::default(),
            scratch: Scratch::default(),
        })
    }

    /// The table.
    pub fn plan(&self) -> &Arc<TablePlan> {
        &self.plan
    }

    /// True if no row change has been folded.
    pub fn is_untouched(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if images of `plan`'s table map can be folded among this fold's.
    pub(crate) fn has_shape_of(&self, plan: &Arc<TablePlan>) -> bool {
        TablePlan::have_one_shape(&self.plan, plan)
    }

    /// Folds the row change at the start of `images`, which holds full images.
    ///
    /// # Errors
    /// [`Error::Binlog`] if the images cannot be measured.
    pub fn take(&mut self, kind: RowsKind, images: &[u8]) -> Result<Verdict> {
        let plan = Arc::clone(&self.plan);
        let Some(plan) = plan.images.as_ref() else { return Ok(Verdict::Cut) };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.spans.resize(plan.walk.tracked_count(), Span::default());
        scratch.spans_after.resize(plan.walk.tracked_count(), Span::default());
        let verdict = self.take_with(plan, kind, images, &mut scratch);
        self.scratch = scratch;
        verdict
    }

    fn take_with(&mut self, plan: &FoldPlan, kind: RowsKind, images: &[u8], scratch: &mut Scratch) -> Result<Verdict> {
        let length = plan.walk.measure(images, &mut scratch.spans)?;
        let first = &images[..length];
        let taken = match kind {
            RowsKind::Insert => self.insert(plan, first, scratch),
            RowsKind::Delete => self.delete(plan, first, scratch),
            RowsKind::Update => {
                let rest = &images[length..];
                let after_length = plan.walk.measure(rest, &mut scratch.spans_after)?;
                let after = &rest[..after_length];
                let taken = self.update(plan, first, after, scratch);
                return Ok(if taken { Verdict::Folded(length + after_length) } else { Verdict::Cut });
            }
        };
        Ok(if taken { Verdict::Folded(length) } else { Verdict::Cut })
    }

    fn insert(&mut self, plan: &FoldPlan, image: &[u8], scratch: &mut Scratch) -> bool {
        plan.locator(image, &scratch.spans, &mut scratch.locator);
        let hash = xxh3_64(&scratch.locator);
        match self.find(hash, &scratch.locator) {
            None => {
                scratch.witness.clear();
                let sort_prefix = plan.sort_prefix(image, &scratch.spans);
                self.add(hash, sort_prefix, scratch, Some(image), false, FULL);
                true
            }
            Some(index) if self.entries[index].is_there => false,
            Some(index) => {
                self.entries[index].has_left |= self.entries[index].was_there;
                self.replace_image(index, image, FULL);
                true
            }
        }
    }

    fn delete(&mut self, plan: &FoldPlan, image: &[u8], scratch: &mut Scratch) -> bool {
        plan.locator(image, &scratch.spans, &mut scratch.locator);
        let hash = xxh3_64(&scratch.locator);
        let Some(index) = self.find(hash, &scratch.locator) else {
            plan.witness(image, &scratch.spans, &mut scratch.witness);
            let sort_prefix = plan.sort_prefix(image, &scratch.spans);
            self.add(hash, sort_prefix, scratch, None, true, FULL);
            return true;
        };
        let entry = self.entries[index];
        if !entry.is_there {
            return false;
        }
        if !entry.was_there {
            self.remember_phantom(plan, (image, &scratch.spans), FULL);
        }
        self.entries[index].is_there = false;
        true
    }

    fn update(&mut self, plan: &FoldPlan, before: &[u8], after: &[u8], scratch: &mut Scratch) -> bool {
        if !plan.same_locator((before, &scratch.spans), (after, &scratch.spans_after)) {
            return self.move_row(plan, before, after, scratch);
        }
        plan.locator(before, &scratch.spans, &mut scratch.locator);
        let hash = xxh3_64(&scratch.locator);
        let found = self.find(hash, &scratch.locator);
        if found.is_some_and(|index| !self.entries[index].is_there) {
            return false;
        }
        let moves = plan.has_witness() && Self::moves_witness(plan, before, after, scratch);
        let index = match found {
            Some(index) => {
                self.replace_image(index, after, FULL);
                index
            }
            None => {
                plan.witness(before, &scratch.spans, &mut scratch.witness);
                let sort_prefix = plan.sort_prefix(before, &scratch.spans);
                self.add(hash, sort_prefix, scratch, Some(after), true, FULL);
                self.entries.len() - 1
            }
        };
        self.entries[index].has_left |= moves && self.entries[index].was_there;
        true
    }

    /// Folds an update that changes the row key: a delete and an insert, both or neither.
    fn move_row(&mut self, plan: &FoldPlan, before: &[u8], after: &[u8], scratch: &mut Scratch) -> bool {
        plan.locator(after, &scratch.spans_after, &mut scratch.locator);
        let target = self.find(xxh3_64(&scratch.locator), &scratch.locator);
        if target.is_some_and(|index| self.entries[index].is_there) {
            return false;
        }
        let value = plan.auto_increment(before, &scratch.spans);
        if !self.delete(plan, before, scratch) {
            return false;
        }
        std::mem::swap(&mut scratch.spans, &mut scratch.spans_after);
        if let Some(value) = self.raises(value, plan.auto_increment(after, &scratch.spans)) {
            let (from, to) = self.raised.get_or_insert_default();
            from.set(plan, value, (before, &scratch.spans_after), FULL);
            to.set(plan, value, (after, &scratch.spans), FULL);
        }
        self.insert(plan, after, scratch)
    }

    /// True if an update moves a unique value.
    fn moves_witness(plan: &FoldPlan, before: &[u8], after: &[u8], scratch: &mut Scratch) -> bool {
        plan.witness(before, &scratch.spans, &mut scratch.witness);
        plan.witness(after, &scratch.spans_after, &mut scratch.witness_after);
        scratch.witness != scratch.witness_after
    }

    /// Remembers the highest AUTO_INCREMENT value among rows that came and went.
    fn remember_phantom(&mut self, plan: &FoldPlan, (image, spans): (&[u8], &[Span]), shape: ShapeNumber) {
        let Some(value) = plan.auto_increment(image, spans) else { return };
        if self.phantom.as_ref().is_none_or(|phantom| phantom.value < value) {
            self.phantom.get_or_insert_default().set(plan, value, (image, spans), shape);
        }
    }

    /// The new AUTO_INCREMENT value of an update that raises it; `None` if it does not, or not above all earlier
    /// updates.
    fn raises(&self, before: Option<u64>, after: Option<u64>) -> Option<u64> {
        let highest = self.raised.as_ref().map(|(_, raised)| raised.value).max(before);
        after.filter(|_| after > highest)
    }

    #[inline]
    fn find(&self, hash: u64, locator: &[u8]) -> Option<usize> {
        let is_it = |&index: &u32| {
            let entry = &self.entries[index as usize];
            entry.hash == hash && self.locator_of(entry) == locator
        };
        self.index.find(hash, is_it).map(|&index| index as usize)
    }

    /// Adds the row whose locator and witness are in `scratch`.
    fn add(
        &mut self,
        hash: u64,
        sort_prefix: u64,
        scratch: &Scratch,
        image: Option<&[u8]>,
        was_there: bool,
        shape: ShapeNumber,
    ) {
        let (locator, witness) = (&scratch.locator, &scratch.witness);
        let image_length = image.map_or(0, <[u8]>::len);
        let place = self.arena.allocate(locator.len() + witness.len() + image_length);
        let slot = self.arena.at_mut(place, locator.len() + witness.len() + image_length);
        let (head, rest) = slot.split_at_mut(locator.len());
        head.copy_from_slice(locator);
        let (middle, tail) = rest.split_at_mut(witness.len());
        middle.copy_from_slice(witness);
        tail.copy_from_slice(image.unwrap_or_default());
        let index = self.entries.len() as u32;
        self.entries.push(Entry {
            hash,
            sort_prefix,
            place,
            locator_length: locator.len() as u32,
            witness_length: witness.len() as u32,
            image_length: image_length as u32,
            image_capacity: image_length as u32,
            shape,
            was_there,
            is_there: image.is_some(),
            is_replaced: false,
            has_left: false,
        });
        let entries = &self.entries;
        self.index.insert_unique(hash, index, |&index| entries[index as usize].hash);
    }

    fn replace_image(&mut self, index: usize, image: &[u8], shape: ShapeNumber) {
        let entry = self.entries[index];
        let head = (entry.locator_length + entry.witness_length) as usize;
        let place = if image.len() <= entry.image_capacity as usize {
            entry.place
        } else {
            let place = self.arena.allocate(head + image.len());
            let kept = self.arena.at(entry.place, head).to_vec();
            self.arena.at_mut(place, head).copy_from_slice(&kept);
            self.entries[index].image_capacity = image.len() as u32;
            place
        };
        self.arena.at_mut(place, head + image.len())[head..].copy_from_slice(image);
        let entry = &mut self.entries[index];
        entry.place = place;
        entry.image_length = image.len() as u32;
        entry.shape = shape;
        entry.is_there = true;
    }

    #[inline]
    fn locator_of(&self, entry: &Entry) -> &[u8] {
        self.arena.at(entry.place, entry.locator_length as usize)
    }

    fn image_of(&self, entry: &Entry) -> &[u8] {
        let head = (entry.locator_length + entry.witness_length) as usize;
        &self.arena.at(entry.place, head + entry.image_length as usize)[head..]
    }

    fn witness_of(&self, entry: &Entry) -> &[u8] {
        let (start, length) = (entry.locator_length as usize, entry.witness_length as usize);
        &self.arena.at(entry.place, start + length)[start..]
    }

    /// True if it has met images that hold only some of the columns.
    pub(crate) fn has_partial_images(&self) -> bool {
        !self.shapes.are_full()
    }

    /// Adds the keys of all rows that were touched, before and after.
    ///
    /// # Errors
    /// [`Error::Binlog`] if a kept image cannot be measured, which would be a defect.
    pub(crate) fn add_keys(&self, conflicts: &Conflicts, keys: &mut Vec<Key>) -> Result<()> {
        let Some(plan) = self.plan.images.as_ref() else { return Ok(()) };
        let broken = |what| spate_binlog::Error::Malformed { what, why: "its fields have other lengths".to_owned() };
        let mut spans = vec![Span::default(); plan.walk.tracked_count()];
        let mut scratch = Vec::new();
        for entry in &self.entries {
            let locator = self.locator_of(entry);
            let (nulls, fields) = locator.split_at(conflicts.locator.len().div_ceil(8));
            let is_null = |place: usize| nulls[place / 8] & 1 << (place % 8) != 0;
            let values = write_set::split(&conflicts.locator, is_null, fields, false);
            keys.extend(conflicts.row.key(&values.ok_or_else(|| broken("row key"))?, &mut scratch));
            if conflicts.others.is_empty() {
                continue;
            }
            let witness = self.witness_of(entry);
            if !witness.is_empty() {
                let values = write_set::split(&conflicts.witness, |_| false, witness, true);
                let values = values.ok_or_else(|| broken("unique key"))?;
                keys.extend(conflicts.others.iter().filter_map(|index| index.key(&values, &mut scratch)));
            }
            if entry.is_there {
                let image = self.image_of(entry);
                plan.walk.measure(image, &mut spans)?;
                let values = write_set::values_of(image, &spans, &plan.witness_slots);
                keys.extend(conflicts.others.iter().filter_map(|index| index.key(&values, &mut scratch)));
            }
        }
        let phantoms = self.phantom.iter().chain(self.raised.iter().flat_map(|(from, to)| [from, to]));
        for phantom in phantoms {
            plan.walk.measure(&phantom.image, &mut spans)?;
            let values = write_set::values_of(&phantom.image, &spans, &plan.witness_slots);
            keys.extend(conflicts.others.iter().filter_map(|index| index.key(&values, &mut scratch)));
        }
        Ok(())
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes()
            + self.entries.capacity() * size_of::<Entry>()
            + self.index.capacity() * (size_of::<u32>() + 1)
    }
}

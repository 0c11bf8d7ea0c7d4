//! Folds partial images: a source with `binlog_row_image=MINIMAL` or `NOBLOB` logs only some columns of a row.
//!
//! Partial images are laid over each other column by column: an update's after-image replaces the columns that it has, and the others
//! stay. The image that is kept of a row holds
//! - for a row that came: the columns that the insert and later updates named; the replica fills in the defaults of the others,
//!   as it would for the insert itself;
//! - for a row that was there: the columns that updates named; the others stay what they are on the replica.
//!
//! The *shape* of an image is the set of its columns. A fold keeps few shapes; rows of one shape share an event.
//!
//! A partial image is not enough to insert a row that existed before. So an update that changes the row key or moves a
//! unique value is folded only if the whole row is known, from a full image before it; otherwise it is applied in order
//! ([`Verdict::Ordered`]). The fold compares a column of a unique key with the before-image or with the kept image to
//! find a move. If neither holds the column, it assumes a move.

use std::sync::Arc;

use spate_binlog::encode::ColumnBitmap;
use spate_binlog::table_map::bit_is_set;
use spate_binlog::{ImagePlan, RowsKind, Span, TableMap};
use xxhash_rust::xxh3::xxh3_64;

use super::{Entry, Scratch, TableFold, Verdict};
use crate::Result;
use crate::plan::{FoldPlan, TablePlan};

/// Number of a shape within a fold.
pub type ShapeNumber = u8;

/// The shape of full images.
pub const FULL: ShapeNumber = 0;

/// The most shapes in one fold: each is an event more in every chunk. Applications have few statements for a table, and
/// so few sets of columns; with more, the segment is cut.
const SHAPES_MAX: usize = 64;

/// The shapes that a fold has met. Empty as long as all images are full.
#[derive(Debug, Clone, Default)]
pub(super) struct Shapes(Vec<Arc<Shape>>);

/// A set of columns, and how to walk images of it.
#[derive(Debug)]
struct Shape {
    columns: ColumnBitmap,
    /// The plan, which tracks all columns that are present.
    walk: ImagePlan,
    /// For each column of the table, its index among the present ones; `None` if it is not present.
    position: Vec<Option<u16>>,
}

/// An image with the spans of all columns that it holds.
struct Image<'a> {
    shape: Arc<Shape>,
    bytes: &'a [u8],
    spans: Vec<Span>,
}

impl Shapes {
    /// True if all images were full.
    pub(super) fn are_full(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of a shape, new or not; `None` if there would be too many.
    fn number(&mut self, map: &TableMap, columns: &[u8]) -> Result<Option<ShapeNumber>> {
        let count = map.columns.len();
        if self.0.is_empty() {
            self.0.push(Arc::new(Shape::new(map, ColumnBitmap::all(count))?));
        }
        let used = |bits: &[u8], index| bit_is_set(bits, index);
        let is_same =
            |shape: &Arc<Shape>| (0..count).all(|index| used(&shape.columns.bits, index) == used(columns, index));
        let known = self.0.iter().position(|shape| shape.columns.bits == columns || is_same(shape));
        let number = match known {
            Some(number) => number,
            None if self.0.len() >= SHAPES_MAX => return Ok(None),
            None => {
                self.0.push(Arc::new(Shape::new(map, ColumnBitmap { count, bits: columns.to_vec() })?));
                self.0.len() - 1
            }
        };
        Ok(ShapeNumber::try_from(number).ok())
    }

    fn get(&self, number: ShapeNumber) -> &Arc<Shape> {
        &self.0[usize::from(number)]
    }
}

impl Shape {
    fn new(map: &TableMap, columns: ColumnBitmap) -> Result<Shape> {
        let present: Vec<usize> = (0..columns.count).filter(|&index| bit_is_set(&columns.bits, index)).collect();
        let mut position = vec![None; columns.count];
        for (place, &column) in present.iter().enumerate() {
            position[column] = Some(place as u16);
        }
        Ok(Shape { walk: ImagePlan::new(map, &columns.bits, &present)?, columns, position })
    }

    fn has(&self, column: usize) -> bool {
        self.position.get(column).is_some_and(Option::is_some)
    }

    fn has_all(&self, columns: &[usize]) -> bool {
        columns.iter().all(|&column| self.has(column))
    }
}

impl<'a> Image<'a> {
    /// The image at the start of `bytes`.
    fn read(shape: &Arc<Shape>, bytes: &'a [u8]) -> Result<Image<'a>> {
        let mut spans = vec![Span::default(); shape.walk.tracked_count()];
        let length = shape.walk.measure(bytes, &mut spans)?;
        Ok(Image { shape: Arc::clone(shape), bytes: &bytes[..length], spans })
    }

    fn span(&self, column: usize) -> Option<Span> {
        let place = (*self.shape.position.get(column)?)?;
        Some(self.spans[usize::from(place)])
    }

    /// The column's NULL bit and its bytes; `None` if the image does not hold it.
    fn field(&self, column: usize) -> Option<(bool, &[u8])> {
        self.span(column).map(|span| (span.is_null, span.field(self.bytes)))
    }

    /// The spans in the slots of a plan; those of columns that the image does not hold are empty.
    fn slots(&self, plan: &FoldPlan) -> Vec<Span> {
        plan.tracked.iter().map(|&column| self.span(column).unwrap_or_default()).collect()
    }
}

/// An image of these fields; `None` is NULL.
pub(crate) fn image_of<'a>(fields: impl ExactSizeIterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut image = vec![0; fields.len().div_ceil(8)];
    for (place, field) in fields.enumerate() {
        match field {
            Some(bytes) => image.extend_from_slice(bytes),
            None => image[place / 8] |= 1 << (place % 8),
        }
    }
    image
}

/// Merges `over` into `base`: an image that holds the columns of both, with the values of `over` where it has them.
fn overlay(count: usize, base: Option<&Image<'_>>, over: &Image<'_>) -> (Vec<u8>, Vec<u8>) {
    let holds = |column| over.shape.has(column) || base.is_some_and(|base| base.shape.has(column));
    let columns: Vec<usize> = (0..count).filter(|&column| holds(column)).collect();
    let image = image_of(columns.iter().map(|&column| {
        let field = over.field(column).or_else(|| base.and_then(|base| base.field(column)));
        field.filter(|(is_null, _)| !is_null).map(|(_, bytes)| bytes)
    }));
    (ColumnBitmap::only(count, &columns).bits, image)
}

impl TableFold {
    /// Folds the row change at the start of `images`, which hold the columns set in `columns`, and for the after-images
    /// of updates in `columns_after`.
    ///
    /// # Errors
    /// [`crate::Error::Binlog`] if the images cannot be measured.
    pub fn take_partial(
        &mut self,
        kind: RowsKind,
        columns: &[u8],
        columns_after: &[u8],
        images: &[u8],
    ) -> Result<Verdict> {
        let plan = Arc::clone(&self.plan);
        let Some(fold) = plan.images.as_ref() else { return Ok(Verdict::Ordered) };
        let Some(first) = self.shapes.number(&plan.map, columns)? else { return Ok(Verdict::Cut) };
        let shape = Arc::clone(self.shapes.get(first));
        if !shape.has_all(&plan.definition.row_key) {
            return Ok(Verdict::Ordered);
        }
        let image = Image::read(&shape, images)?;
        let mut length = image.bytes.len();
        let mut scratch = std::mem::take(&mut self.scratch);
        let verdict = match kind {
            RowsKind::Insert => self.insert_partial(fold, &image, first, &mut scratch),
            RowsKind::Delete => self.delete_partial(fold, &image, &mut scratch),
            RowsKind::Update => match self.shapes.number(&plan.map, columns_after) {
                Ok(None) => Ok(Verdict::Cut),
                Ok(Some(after)) => {
                    let shape = Arc::clone(self.shapes.get(after));
                    Image::read(&shape, &images[length..]).and_then(|after| {
                        length += after.bytes.len();
                        self.update_partial(&plan, fold, &image, &after, &mut scratch)
                    })
                }
                Err(error) => Err(error),
            },
        };
        self.scratch = scratch;
        Ok(match verdict? {
            Verdict::Folded(_) => Verdict::Folded(length),
            other => other,
        })
    }

    /// The columns of images of a shape; `None` for full images, if no other was met.
    pub fn columns_of(&self, shape: ShapeNumber) -> Option<&ColumnBitmap> {
        self.shapes.0.get(usize::from(shape)).map(|shape| &shape.columns)
    }

    fn insert_partial(
        &mut self,
        plan: &FoldPlan,
        image: &Image<'_>,
        shape: ShapeNumber,
        scratch: &mut Scratch,
    ) -> Result<Verdict> {
        if self.lacks_auto_increment(plan, &image.shape) {
            return Ok(Verdict::Ordered);
        }
        let slots = image.slots(plan);
        plan.locator(image.bytes, &slots, &mut scratch.locator);
        let hash = xxh3_64(&scratch.locator);
        let Some(index) = self.find(hash, &scratch.locator) else {
            scratch.witness.clear();
            self.add(hash, plan.sort_prefix(image.bytes, &slots), scratch, Some(image.bytes), false, shape);
            return Ok(Verdict::Folded(0));
        };
        let was_there = self.entries[index].was_there;
        if self.entries[index].is_there {
            return Ok(Verdict::Cut);
        }
        self.replace_image(index, image.bytes, shape);
        let entry = &mut self.entries[index];
        entry.has_left |= was_there;
        // Columns that the insert does not name get their defaults, not their earlier values.
        entry.is_replaced |= was_there && shape != FULL;
        Ok(Verdict::Folded(0))
    }

    fn delete_partial(&mut self, plan: &FoldPlan, image: &Image<'_>, scratch: &mut Scratch) -> Result<Verdict> {
        let slots = image.slots(plan);
        plan.locator(image.bytes, &slots, &mut scratch.locator);
        let hash = xxh3_64(&scratch.locator);
        match self.find(hash, &scratch.locator) {
            Some(index) if !self.entries[index].is_there => return Ok(Verdict::Cut),
            Some(index) => {
                if !self.entries[index].was_there {
                    self.remember_kept(plan, index)?;
                }
                self.entries[index].is_there = false;
            }
            None => {
                self.first_witness(plan, image, &slots, &mut scratch.witness);
                self.add(hash, plan.sort_prefix(image.bytes, &slots), scratch, None, true, FULL);
            }
        }
        Ok(Verdict::Folded(0))
    }

    fn update_partial(
        &mut self,
        table: &TablePlan,
        plan: &FoldPlan,
        before: &Image<'_>,
        after: &Image<'_>,
        scratch: &mut Scratch,
    ) -> Result<Verdict> {
        let slots = before.slots(plan);
        plan.locator(before.bytes, &slots, &mut scratch.locator);
        let hash = xxh3_64(&scratch.locator);
        let found = self.find(hash, &scratch.locator);
        let entry = found.map(|index| self.entries[index]);
        if entry.is_some_and(|entry| !entry.is_there) {
            return Ok(Verdict::Cut);
        }
        let kept_bytes = entry.map(|entry| self.image_of(&entry).to_vec());
        let kept = match (&entry, &kept_bytes) {
            (Some(entry), Some(bytes)) => Some(Image::read(self.shapes.get(entry.shape), bytes)?),
            _ => None,
        };
        let is_whole = before.shape.has_all(&(0..table.map.columns.len()).collect::<Vec<_>>());
        let base = if is_whole { Some(before) } else { kept.as_ref() };
        let (columns, image) = overlay(table.map.columns.len(), base, after);
        let Some(shape) = self.shapes.number(&table.map, &columns)? else { return Ok(Verdict::Cut) };

        let is_same = |column: usize| {
            let new = after.field(column);
            new.is_none() || before.field(column).or_else(|| kept.as_ref()?.field(column)) == new
        };
        let moves_key = !table.definition.row_key.iter().all(|&column| is_same(column));
        let moves_unique = table.definition.has_hidden_unique_key
            || !plan.witness_slots.iter().all(|&slot| is_same(plan.tracked[slot]));
        let may_be_inserted = shape == FULL || entry.is_some_and(|entry| !entry.was_there || entry.is_replaced);
        if (moves_key || moves_unique) && !may_be_inserted {
            return Ok(Verdict::Ordered);
        }
        if moves_key {
            let image = Image::read(&Arc::clone(self.shapes.get(shape)), &image)?;
            let is_new = entry.is_some_and(|entry| !entry.was_there || entry.is_replaced);
            // The row before the update, if an insert can make it.
            let from = match (&kept, entry) {
                _ if is_whole => Some((before, FULL)),
                (Some(kept), Some(entry)) if is_new || entry.shape == FULL => Some((kept, entry.shape)),
                _ => None,
            };
            return self.move_partial(plan, (before, from), &image, shape, scratch);
        }
        let index = match found {
            Some(index) => {
                self.replace_image(index, &image, shape);
                index
            }
            None => {
                self.first_witness(plan, before, &slots, &mut scratch.witness);
                self.add(hash, plan.sort_prefix(before.bytes, &slots), scratch, Some(&image), true, shape);
                self.entries.len() - 1
            }
        };
        self.entries[index].is_replaced |= moves_unique && self.entries[index].was_there;
        Ok(Verdict::Folded(0))
    }

    /// Folds an update that changes the row key: a delete and an insert, both or neither.
    fn move_partial(
        &mut self,
        plan: &FoldPlan,
        (before, from): (&Image<'_>, Option<(&Image<'_>, ShapeNumber)>),
        image: &Image<'_>,
        shape: ShapeNumber,
        scratch: &mut Scratch,
    ) -> Result<Verdict> {
        plan.locator(image.bytes, &image.slots(plan), &mut scratch.locator);
        let target = self.find(xxh3_64(&scratch.locator), &scratch.locator);
        if target.is_some_and(|index| self.entries[index].is_there) || self.lacks_auto_increment(plan, &image.shape) {
            return Ok(Verdict::Cut);
        }
        let value = |image: &Image<'_>| plan.auto_increment(image.bytes, &image.slots(plan));
        let raise = self.raises(value(before), value(image));
        if raise.is_some() && from.is_none() {
            return Ok(Verdict::Ordered);
        }
        self.has_moved_partially = true;
        match self.delete_partial(plan, before, scratch)? {
            Verdict::Folded(_) => {}
            other => return Ok(other),
        }
        if let (Some(value), Some((was, of))) = (raise, from) {
            let (from, to) = self.raised.get_or_insert_default();
            from.set(plan, value, (was.bytes, &was.slots(plan)), of);
            to.set(plan, value, (image.bytes, &image.slots(plan)), shape);
        }
        self.insert_partial(plan, image, shape, scratch)
    }

    /// Writes the witness of a row at its first change. If the image lacks columns of it, the witness is empty, which
    /// differs from that of any full image: a full image then becomes a delete and an insert.
    fn first_witness(&self, plan: &FoldPlan, image: &Image<'_>, slots: &[Span], witness: &mut Vec<u8>) {
        witness.clear();
        if plan.witness_slots.iter().all(|&slot| image.shape.has(plan.tracked[slot])) {
            plan.witness(image.bytes, slots, witness);
        }
    }

    /// Remembers the row that is kept at `index`, which is inserted and deleted again, as a phantom.
    fn remember_kept(&mut self, plan: &FoldPlan, index: usize) -> Result<()> {
        let entry = self.entries[index];
        let bytes = self.image_of(&entry).to_vec();
        let image = Image::read(self.shapes.get(entry.shape), &bytes)?;
        self.remember_phantom(plan, (&bytes, &image.slots(plan)), entry.shape);
        Ok(())
    }

    /// True for an insert without an AUTO_INCREMENT value, which the replica would generate by itself.
    fn lacks_auto_increment(&self, plan: &FoldPlan, shape: &Shape) -> bool {
        plan.auto_increment.is_some_and(|(slot, ..)| !shape.has(plan.tracked[slot]))
    }

    /// The AUTO_INCREMENT value in an entry's image; `None` if the image does not hold it.
    pub(super) fn auto_increment_of(&self, plan: &FoldPlan, entry: &Entry, spans: &mut [Span]) -> Result<Option<u64>> {
        let image = self.image_of(entry);
        if entry.shape == FULL {
            plan.walk.measure(image, spans)?;
            return Ok(plan.auto_increment(image, spans));
        }
        let image = Image::read(self.shapes.get(entry.shape), image)?;
        let is_said = !self.lacks_auto_increment(plan, &image.shape);
        Ok(if is_said { plan.auto_increment(image.bytes, &image.slots(plan)) } else { None })
    }
}

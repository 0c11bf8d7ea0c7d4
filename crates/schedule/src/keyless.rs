//! Changes of a table without a row key.
//!
//! Such a table is a list: the engine keeps its rows in the order of their arrival, and a statement that deletes or
//! updates a row by its image takes the first row that is equal byte for byte. The order matters to a definition that
//! numbers the rows (`ADD id INT AUTO_INCREMENT PRIMARY KEY`), and to statements that take the first rows of such a
//! table. So changes are reordered only if the list stays the same:
//! - a delete may move before inserts and updates of rows with other images;
//! - an update may move before inserts of rows that differ from its before-image.
//!
//! A change that cannot be moved that way begins a new *stage*; a stage is deletes, then updates in their order, then inserts in theirs. So
//! thousands of transactions become few events, and many deletes or updates one pass over the table. Updates of several statements are
//! in one stage only if none of them has to do with a row that another has made or taken: then they are done in any order, or at once.
//!
//! The table may have unique keys with NULL in them. Within a stage, a change that frees a unique value comes before
//! one that takes it.

use std::collections::HashSet;
use std::sync::Arc;

use hashbrown::HashTable;
use spate_binlog::encode::ColumnBitmap;
use spate_binlog::{ImagePlan, RowsKind, Span};
use xxhash_rust::xxh3::xxh3_64;

use crate::arena::{Arena, Place};
use crate::fold::image_of;
use crate::plan::TablePlan;
use crate::{Error, Result};

/// The changes of one table without a row key within one segment.
#[derive(Debug)]
pub struct KeylessRows {
    plan: Arc<TablePlan>,
    arena: Arena,
    images: Vec<Image>,
    index: HashTable<u32>,
    closed: Vec<Stage>,
    open: Stage,
    /// The changes of the closed stages.
    closed_bytes: usize,
    row: Vec<u8>,
    spans: Vec<Span>,
}

/// An image, and the last stages that change it. A stage's number counts from 1; 0 is none.
#[derive(Debug, Clone, Copy)]
struct Image {
    hash: u64,
    place: Place,
    length: u32,
    /// The last stage that inserts it.
    inserted_in: u32,
    /// The last stage with an update from it, and the last statement that has one.
    before_in: u32,
    before_statement: u32,
    /// The last stage with an update to it, and the last statement that has one.
    after_in: u32,
    after_statement: u32,
    /// The last stage that deletes it, and the place in that stage's deletes.
    deleted_in: u32,
    delete: u32,
}

/// Deletes, then updates, then inserts, all by their images' numbers.
#[derive(Debug, Default)]
struct Stage {
    /// Images with the number of copies to delete.
    deletes: Vec<(u32, u64)>,
    updates: Vec<(u32, u32)>,
    inserts: Vec<u32>,
}

/// Changes of one kind, of one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    stage: usize,
    /// The kind of change.
    pub kind: RowsKind,
    /// The deletes to make, by their images' numbers: the others were made already, in another way. `None` means all.
    pub left: Option<HashSet<u32>>,
}

/// An image, and its number before it.
pub type Numbered<'a> = (u32, &'a [u8]);

/// A change to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeylessChange<'a> {
    /// Delete the first rows of this image.
    Delete {
        /// The row.
        image: &'a [u8],
        /// The number of rows.
        copies: u64,
    },
    /// Update the first row of the image `before`.
    Update {
        /// The row before the change.
        before: &'a [u8],
        /// The row after the change.
        after: &'a [u8],
    },
    /// Add a row after all others.
    Insert {
        /// The row.
        image: &'a [u8],
    },
}

impl KeylessRows {
    /// The columns in which two images differ, and an image of the latter that holds just these.
    ///
    /// # Errors
    /// [`crate::Error::Binlog`] if an image cannot be measured.
    pub(crate) fn changed(&self, before: &[u8], after: &[u8]) -> Result<(ColumnBitmap, Vec<u8>)> {
        let map = &self.plan.map;
        let columns: Vec<usize> = (0..map.columns.len()).collect();
        let walk = ImagePlan::new(map, &ColumnBitmap::all(columns.len()).bits, &[])?;
        let ((_, old), (_, new)) = (walk.all_spans(before)?, walk.all_spans(after)?);
        let differs = |&column: &usize| {
            old[column].is_null != new[column].is_null || old[column].field(before) != new[column].field(after)
        };
        let mut changed: Vec<usize> = columns.iter().copied().filter(differs).collect();
        if changed.is_empty() {
            changed.extend(columns.first());
        }
        let field = |&column: &usize| (!new[column].is_null).then(|| new[column].field(after));
        let image = image_of(changed.iter().map(field));
        Ok((ColumnBitmap::only(columns.len(), &changed), image))
    }

    /// No changes yet.
    ///
    /// # Errors
    /// [`Error::Definition`] if the images do not identify the table's rows.
    pub fn new(plan: Arc<TablePlan>) -> Result<KeylessRows> {
        let Some(walk) = &plan.rows else {
            let why = "images do not identify its rows".to_owned();
            return Err(Error::Definition { table: plan.definition.name.clone(), why });
        };
        let spans = vec![Span::default(); walk.tracked_count()];
        Ok(KeylessRows {
            plan,
            arena: Arena::default(),
            images: Vec::new(),
            index: HashTable::new(),
            closed: Vec::new(),
            open: Stage::default(),
            closed_bytes: 0,
            row: Vec::new(),
            spans,
        })
    }

    /// The table.
    pub fn plan(&self) -> &Arc<TablePlan> {
        &self.plan
    }

    /// Takes the row change at the start of `images`, which holds full images; returns its length in bytes. `statement`
    /// is the number of the source's statement: equal for its changes, and different for those of another one.
    ///
    /// # Errors
    /// [`Error::Binlog`] if the images cannot be measured.
    pub fn take(&mut self, kind: RowsKind, images: &[u8], statement: u32) -> Result<usize> {
        let (first, length) = self.number(images)?;
        match kind {
            RowsKind::Insert => self.insert(first),
            RowsKind::Delete => self.delete(first),
            RowsKind::Update => {
                let (second, second_length) = self.number(&images[length..])?;
                self.update(first, second, statement);
                return Ok(length + second_length);
            }
        }
        Ok(length)
    }

    fn insert(&mut self, image: u32) {
        self.images[image as usize].inserted_in = self.stage();
        self.open.inserts.push(image);
    }

    fn delete(&mut self, image: u32) {
        let known = self.images[image as usize];
        if [known.inserted_in, known.before_in, known.after_in].contains(&self.stage()) {
            self.close();
        }
        if known.deleted_in == self.stage() {
            self.open.deletes[known.delete as usize].1 += 1;
            return;
        }
        let (stage, delete) = (self.stage(), self.open.deletes.len() as u32);
        let known = &mut self.images[image as usize];
        (known.deleted_in, known.delete) = (stage, delete);
        self.open.deletes.push((image, 1));
    }

    fn update(&mut self, before: u32, after: u32, statement: u32) {
        let (known, stage) = (self.images[before as usize], self.stage());
        let is_anothers = known.before_in == stage && known.before_statement != statement
            || known.after_in == stage && known.after_statement != statement;
        if known.inserted_in == stage || is_anothers {
            self.close();
        }
        let stage = self.stage();
        let known = &mut self.images[before as usize];
        (known.before_in, known.before_statement) = (stage, statement);
        let known = &mut self.images[after as usize];
        (known.after_in, known.after_statement) = (stage, statement);
        self.open.updates.push((before, after));
    }

    /// The number of the open stage.
    fn stage(&self) -> u32 {
        self.closed.len() as u32 + 1
    }

    fn close(&mut self) {
        let mut stage = std::mem::take(&mut self.open);
        stage.deletes.shrink_to_fit();
        stage.updates.shrink_to_fit();
        stage.inserts.shrink_to_fit();
        self.closed_bytes += stage.memory_bytes();
        self.closed.push(stage);
    }

    /// The number of the image at the start of `images`, and its length.
    fn number(&mut self, images: &[u8]) -> Result<(u32, usize)> {
        let plan = Arc::clone(&self.plan);
        let Some(walk) = plan.rows.as_ref() else { return Ok((0, images.len())) };
        let length = walk.measure(images, &mut self.spans)?;
        let image = &images[..length];
        row_of(image, &self.spans, &mut self.row);
        let hash = xxh3_64(&self.row);
        if let Some(number) = self.find(walk, hash) {
            return Ok((number, length));
        }
        let place = self.arena.allocate(length);
        self.arena.at_mut(place, length).copy_from_slice(image);
        let number = self.images.len() as u32;
        let length_held = length as u32;
        self.images.push(Image {
            hash,
            place,
            length: length_held,
            inserted_in: 0,
            before_in: 0,
            before_statement: 0,
            after_in: 0,
            after_statement: 0,
            deleted_in: 0,
            delete: 0,
        });
        let known = &self.images;
        self.index.insert_unique(hash, number, |&number| known[number as usize].hash);
        Ok((number, length))
    }

    /// The number of the image whose row is in `self.row`.
    fn find(&mut self, walk: &ImagePlan, hash: u64) -> Option<u32> {
        let (images, arena, spans, row) = (&self.images, &self.arena, &mut self.spans, &self.row);
        let mut kept = Vec::new();
        let mut is_it = |&number: &u32| {
            let known = &images[number as usize];
            if known.hash != hash {
                return false;
            }
            let image = arena.at(known.place, known.length as usize);
            let is_measured = walk.measure(image, spans).is_ok();
            row_of(image, spans, &mut kept);
            is_measured && kept == *row
        };
        self.index.find(hash, &mut is_it).copied()
    }

    fn image(&self, number: u32) -> &[u8] {
        let image = &self.images[number as usize];
        self.arena.at(image.place, image.length as usize)
    }

    fn stages(&self) -> impl Iterator<Item = &Stage> {
        self.closed.iter().chain([&self.open])
    }

    /// All steps, in their order.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, stage) in self.stages().enumerate() {
            let kinds = [
                (RowsKind::Delete, stage.deletes.is_empty()),
                (RowsKind::Update, stage.updates.is_empty()),
                (RowsKind::Insert, stage.inserts.is_empty()),
            ];
            let kinds = kinds.into_iter().filter(|(_, is_empty)| !is_empty);
            steps.extend(kinds.map(|(kind, _)| Step { stage: number, kind, left: None }));
        }
        steps
    }

    /// A step's changes, in order.
    pub fn changes<'a>(&'a self, step: &'a Step) -> Box<dyn Iterator<Item = KeylessChange<'a>> + 'a> {
        match step.kind {
            RowsKind::Delete => {
                let deletes = self.deletes(step).filter(|(image, _, _)| step.is_left(*image));
                Box::new(deletes.map(|(_, image, copies)| KeylessChange::Delete { image, copies }))
            }
            RowsKind::Update => {
                Box::new(self.updates(step).map(|((_, before), (_, after))| KeylessChange::Update { before, after }))
            }
            RowsKind::Insert => {
                let inserts = self.stages().nth(step.stage).map_or(&[][..], |stage| &stage.inserts);
                Box::new(inserts.iter().map(|&image| KeylessChange::Insert { image: self.image(image) }))
            }
        }
    }

    /// The deletes of a step's stage, made already or not: images with their numbers, and the number of copies to
    /// delete.
    pub fn deletes(&self, step: &Step) -> impl Iterator<Item = (u32, &[u8], u64)> + '_ {
        let deletes = self.stages().nth(step.stage).map_or(&[][..], |stage| &stage.deletes);
        deletes.iter().map(|&(image, copies)| (image, self.image(image), copies))
    }

    /// The updates of a step's stage: images with their numbers, before and after.
    pub fn updates(&self, step: &Step) -> impl Iterator<Item = (Numbered<'_>, Numbered<'_>)> {
        let updates = self.stages().nth(step.stage).map_or(&[][..], |stage| &stage.updates);
        let numbered = |image: u32| (image, self.image(image));
        updates.iter().map(move |&(before, after)| (numbered(before), numbered(after)))
    }

    /// True if images of `plan`'s table map can be taken among these.
    pub(crate) fn has_shape_of(&self, plan: &Arc<TablePlan>) -> bool {
        TablePlan::have_one_shape(&self.plan, plan)
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes()
            + self.images.capacity() * size_of::<Image>()
            + self.index.capacity() * (size_of::<u32>() + 1)
            + self.closed.capacity() * size_of::<Stage>()
            + self.closed_bytes
            + self.open.memory_bytes()
    }
}

impl Step {
    fn is_left(&self, image: u32) -> bool {
        self.left.as_ref().is_none_or(|left| left.contains(&image))
    }
}

impl Stage {
    fn memory_bytes(&self) -> usize {
        self.deletes.capacity() * size_of::<(u32, u64)>()
            + self.updates.capacity() * size_of::<(u32, u32)>()
            + self.inserts.capacity() * size_of::<u32>()
    }
}

/// Replaces the content of `row` with the bytes that identify a row: for each column that is not computed, whether it
/// is NULL, and its field. (An image does not identify it, because bits after its last column are undefined.)
fn row_of(image: &[u8], spans: &[Span], row: &mut Vec<u8>) {
    row.clear();
    for span in spans {
        row.push(u8::from(span.is_null));
        row.extend_from_slice(span.field(image));
    }
}

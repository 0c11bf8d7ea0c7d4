//! Net changes of a table without a row key. Such a table is a multiset of rows, and rows that are equal byte for byte are
//! interchangeable: an insert adds a copy of an image, a delete takes one away, an update does both. What is left in the end
//! is a number of copies for each image, above or below zero, and the order of changes does not matter: nothing ever has to
//! be cut.
//!
//! The table may have unique keys with NULL in them. All deletes come before all inserts, so unique values may move.

use std::sync::Arc;

use hashbrown::HashTable;
use spate_binlog::{ImagePlan, RowsKind, Span};
use xxhash_rust::xxh3::xxh3_64;

use crate::arena::{Arena, Place};
use crate::plan::TablePlan;
use crate::{Error, Result};

/// The net changes of one table without a row key within one segment.
#[derive(Debug)]
pub struct RowMultiset {
    plan: Arc<TablePlan>,
    arena: Arena,
    entries: Vec<Entry>,
    index: HashTable<u32>,
    row: Vec<u8>,
    spans: Vec<Span>,
}

/// One image, which was added `copies` times more often than it was taken away.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    place: Place,
    length: u32,
    copies: i64,
}

impl RowMultiset {
    /// An empty multiset.
    ///
    /// # Errors
    /// [`Error::Definition`] if the table's rows are not folded this way.
    pub fn new(plan: Arc<TablePlan>) -> Result<RowMultiset> {
        let Some(walk) = &plan.rows else {
            let why = "its rows are not interchangeable".to_owned();
            return Err(Error::Definition { table: plan.definition.name.clone(), why });
        };
        let spans = vec![Span::default(); walk.tracked_count()];
        Ok(RowMultiset {
            plan,
            arena: Arena::default(),
            entries: Vec::new(),
            index: HashTable::new(),
            row: Vec::new(),
            spans,
        })
    }

    /// The table.
    pub fn plan(&self) -> &Arc<TablePlan> {
        &self.plan
    }

    /// Takes the row change at the start of `images`, which holds full images; returns its length in bytes.
    ///
    /// # Errors
    /// [`Error::Binlog`] if the images cannot be measured.
    pub fn take(&mut self, kind: RowsKind, images: &[u8]) -> Result<usize> {
        match kind {
            RowsKind::Insert => self.count(images, 1),
            RowsKind::Delete => self.count(images, -1),
            RowsKind::Update => {
                let before = self.count(images, -1)?;
                Ok(before + self.count(&images[before..], 1)?)
            }
        }
    }

    /// Adds `copies` of the image at the start of `images`; returns its length.
    fn count(&mut self, images: &[u8], copies: i64) -> Result<usize> {
        let plan = Arc::clone(&self.plan);
        let Some(walk) = plan.rows.as_ref() else { return Ok(images.len()) };
        let length = walk.measure(images, &mut self.spans)?;
        let image = &images[..length];
        row_of(image, &self.spans, &mut self.row);
        let hash = xxh3_64(&self.row);
        if let Some(index) = self.find(walk, hash) {
            self.entries[index].copies += copies;
            return Ok(length);
        }
        let place = self.arena.allocate(length);
        self.arena.at_mut(place, length).copy_from_slice(image);
        let index = self.entries.len() as u32;
        self.entries.push(Entry { hash, place, length: length as u32, copies });
        let entries = &self.entries;
        self.index.insert_unique(hash, index, |&index| entries[index as usize].hash);
        Ok(length)
    }

    /// The entry whose image is the row in `self.row`.
    fn find(&mut self, walk: &ImagePlan, hash: u64) -> Option<usize> {
        let (entries, arena, spans, row) = (&self.entries, &self.arena, &mut self.spans, &self.row);
        let mut kept = Vec::new();
        let mut is_it = |&index: &u32| {
            let entry = &entries[index as usize];
            if entry.hash != hash {
                return false;
            }
            let image = arena.at(entry.place, entry.length as usize);
            let is_measured = walk.measure(image, spans).is_ok();
            row_of(image, spans, &mut kept);
            is_measured && kept == *row
        };
        self.index.find(hash, &mut is_it).map(|&index| index as usize)
    }

    /// Each image with the copies that were added (above zero) or taken away (below), without those that cancel out, in the
    /// order of their first appearance. The first number is the image's own in this multiset.
    pub fn net(&self) -> impl Iterator<Item = (usize, &[u8], i64)> + '_ {
        let image = |entry: &Entry| self.arena.at(entry.place, entry.length as usize);
        let numbered = self.entries.iter().enumerate().filter(|(_, entry)| entry.copies != 0);
        numbered.map(move |(number, entry)| (number, image(entry), entry.copies))
    }

    /// How many copies were taken away.
    pub fn deletes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.copies.min(0).unsigned_abs()).sum()
    }

    /// True if images of `plan`'s table map can be taken among this multiset's.
    pub(crate) fn has_shape_of(&self, plan: &Arc<TablePlan>) -> bool {
        let same = |one: &[u8], other: &[u8]| one.get(6..) == other.get(6..);
        Arc::ptr_eq(&self.plan, plan) || same(&self.plan.map.body, &plan.map.body)
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes()
            + self.entries.capacity() * size_of::<Entry>()
            + self.index.capacity() * (size_of::<u32>() + 1)
    }
}

/// Writes what identifies a row into `row`, replacing what it held: for each column that is not computed, whether it is
/// NULL, and its field. (Of an image itself, bits after the last column are undefined.)
fn row_of(image: &[u8], spans: &[Span], row: &mut Vec<u8>) {
    row.clear();
    for span in spans {
        row.push(u8::from(span.is_null));
        row.extend_from_slice(span.field(image));
    }
}

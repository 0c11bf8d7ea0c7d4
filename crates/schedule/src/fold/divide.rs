//! Divides a fold by the keys of its rows.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{Entry, TableFold};
use crate::arena::Arena;

impl TableFold {
    /// True if some of its net changes have an order that their own rows do not show.
    pub(crate) fn has_order_among_rows(&self) -> bool {
        self.raised.is_some() || self.has_moved_partially
    }

    /// How many rows it has met.
    pub(crate) fn touched_rows(&self) -> usize {
        self.entries.len()
    }

    /// So many folds that nothing more will be folded into; `part_of` says by a row key's hash in which one the row is.
    pub(crate) fn divide(self, parts: u32, part_of: impl Fn(u64) -> u32) -> Vec<TableFold> {
        let mut divided: Vec<TableFold> = (0..parts).map(|_| self.without_rows()).collect();
        for entry in &self.entries {
            if let Some(part) = divided.get_mut(part_of(entry.hash) as usize) {
                part.copy_entry(&self, entry);
            }
        }
        if let Some(phantom) = self.phantom {
            let part = part_of(xxh3_64(&phantom.locator));
            if let Some(part) = divided.get_mut(part as usize) {
                part.phantom = Some(phantom);
            }
        }
        divided
    }

    /// The hashes of the keys of the rows that it has met.
    pub(crate) fn key_hashes(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|entry| entry.hash)
    }

    /// Moves the rows into a fold of their own whose keys have such hashes. Nothing more will be folded into either.
    pub(crate) fn split_off(&mut self, is_moved: impl Fn(u64) -> bool) -> TableFold {
        let mut moved = self.without_rows();
        let (leaving, staying) = std::mem::take(&mut self.entries).into_iter().partition(|entry| is_moved(entry.hash));
        self.entries = staying;
        self.index = hashbrown::HashTable::new();
        let leaving: Vec<Entry> = leaving;
        for entry in &leaving {
            moved.copy_entry(self, entry);
        }
        moved.phantom = self.phantom.take_if(|phantom| is_moved(xxh3_64(&phantom.locator)));
        moved
    }

    /// An empty one of the same table.
    pub(super) fn without_rows(&self) -> TableFold {
        TableFold {
            plan: Arc::clone(&self.plan),
            arena: Arena::default(),
            entries: Vec::new(),
            index: hashbrown::HashTable::new(),
            phantom: None,
            raised: None,
            has_moved_partially: false,
            shapes: self.shapes.clone(),
            scratch: super::Scratch::default(),
        }
    }

    /// Adds a row of another fold. It will not be found again.
    fn copy_entry(&mut self, other: &TableFold, entry: &Entry) {
        let length = (entry.locator_length + entry.witness_length + entry.image_length) as usize;
        let place = self.arena.allocate(length);
        self.arena.at_mut(place, length).copy_from_slice(other.arena.at(entry.place, length));
        self.entries.push(Entry { place, image_capacity: entry.image_length, ..*entry });
    }
}

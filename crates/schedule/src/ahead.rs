//! Which rows of a batch may be executed before the batch before it is committed: those that have nothing to do with it.
//!
//! Two connections then apply batches in turn. A row goes ahead if changes of its table's rows have to do with each other only if they are of one
//! row key (as where rows are divided among appliers), and if the batch before does not touch its key. Doubt keeps it back: keys are remembered by a
//! bit for many of them.

use std::collections::{HashMap, HashSet};

use crate::fold::TableFold;
use crate::segment::Segment;
use crate::shards::is_divisible;
use crate::{Batch, Item, TableName, TablePlan};

/// Bits for each key: about one row in sixteen is kept back for nothing.
const BITS_PER_KEY: usize = 16;

/// Bits of the smallest set of keys.
const BITS_MIN: usize = 1024;

/// A table of which more rows than this part of them, three quarters, must be kept back is kept back as a whole: what is kept back is copied.
const KEPT_BACK_MAX: (usize, usize) = (3, 4);

/// What a batch touches, as far as the next one has to know.
#[derive(Debug, Default)]
pub struct Touched {
    /// The keys of tables whose other rows it does not concern.
    keys: HashMap<TableName, KeySet>,
    /// Tables of which any row may be concerned.
    tables: HashSet<TableName>,
    /// Anything may be.
    is_everything: bool,
}

impl Touched {
    /// What this batch touches.
    pub fn by(batch: &Batch) -> Touched {
        let mut touched = Touched { is_everything: !batch.is_of_rows(), ..Touched::default() };
        for segment in batch.segments() {
            for fold in segment.folds() {
                touched.add_fold(fold);
            }
            let others = segment.keyless().iter().map(|rows| &**rows.plan());
            let others = others.chain(segment.ordered().iter().map(|rows| rows.plan()));
            touched.tables.extend(others.map(|plan| plan.definition.name.clone()));
        }
        touched
    }

    fn add_fold(&mut self, fold: &TableFold) {
        let name = &fold.plan().definition.name;
        if !goes_by_key(fold) {
            self.tables.insert(name.clone());
            return;
        }
        // Perhaps of a later segment.
        let keys = self.keys.entry(name.clone()).or_insert_with(|| KeySet::for_count(fold.touched_rows()));
        fold.key_hashes().for_each(|hash| keys.add(hash));
    }

    /// Takes out of the next batch the rows that may be executed before this one is committed. `None`: there are none.
    pub fn split(&self, batch: &mut Batch) -> Option<Batch> {
        if self.is_everything || !batch.is_of_rows() || batch.is_unfolded {
            return None;
        }
        // Rows of later segments come behind those of the first.
        let Some(Item::Rows(first)) = batch.items.first_mut() else { return None };
        let (mut ahead, mut rest) = (Segment::empty_like(first), Segment::empty_like(first));
        let (folds, keyless, ordered) = std::mem::take(first).into_tables();
        for mut fold in folds {
            match self.kept_back(&fold) {
                KeptBack::All => rest.add_fold(fold),
                KeptBack::None => ahead.add_fold(fold),
                KeptBack::Keys(keys) => {
                    rest.add_fold(fold.split_off(|hash| keys.may_have(hash)));
                    ahead.add_fold(fold);
                }
            }
        }
        keyless.into_iter().for_each(|rows| rest.add_keyless(rows));
        ordered.into_iter().for_each(|rows| rest.add_ordered(rows));
        if rest.is_empty() {
            batch.items.remove(0);
        } else {
            *first = rest;
        }
        (!ahead.is_empty()).then(|| Batch { items: vec![Item::Rows(ahead)], ..Batch::default() })
    }

    fn kept_back(&self, fold: &TableFold) -> KeptBack<'_> {
        let name = &fold.plan().definition.name;
        if !goes_by_key(fold) || self.tables.contains(name) {
            return KeptBack::All;
        }
        let Some(keys) = self.keys.get(name) else { return KeptBack::None };
        let count = fold.key_hashes().filter(|&hash| keys.may_have(hash)).count();
        match count {
            0 => KeptBack::None,
            count if count * KEPT_BACK_MAX.1 > fold.touched_rows() * KEPT_BACK_MAX.0 => KeptBack::All,
            _ => KeptBack::Keys(keys),
        }
    }
}

/// What of a table is kept back.
enum KeptBack<'a> {
    All,
    None,
    Keys(&'a KeySet),
}

/// (What foreign keys do reaches rows that no event names, but only of tables of which this is false.)
fn goes_by_key(fold: &TableFold) -> bool {
    let plan: &TablePlan = fold.plan();
    is_divisible(plan) && !plan.definition.has_engine_actions && !fold.has_order_among_rows()
}

/// Keys of rows, by their hashes; it may have more than were added.
#[derive(Debug)]
struct KeySet {
    bits: Vec<u64>,
    mask: u64,
}

impl KeySet {
    fn for_count(count: usize) -> KeySet {
        let bits = (count * BITS_PER_KEY).next_power_of_two().max(BITS_MIN);
        KeySet { bits: vec![0; bits / 64], mask: bits as u64 - 1 }
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        let bit = hash & self.mask;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn add(&mut self, hash: u64) {
        let (place, bit) = self.place(hash);
        if let Some(word) = self.bits.get_mut(place) {
            *word |= bit;
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        let (place, bit) = self.place(hash);
        self.bits.get(place).is_none_or(|word| word & bit != 0)
    }
}

//! Any history of a table without a row key, folded as a multiset and applied, leaves the rows that the history leaves, copy by
//! copy, and no step of it meets a unique value that is still taken.

mod model;

use std::collections::BTreeMap;

use model::{Change, Values, definition, emitted, feed_to};
use proptest::prelude::*;
use spate_schedule::definition::LookupDefinition;
use spate_schedule::{BatchBuilder, TableDefinition};

type Row = (i32, Values);

/// A table `a INT NOT NULL, u INT NULL UNIQUE, v INT NOT NULL`: rows and their copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Table(BTreeMap<Row, u64>);

impl Table {
    fn apply(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Insert(a, values) => self.insert((a, values)),
            Change::Delete(a, values) => self.delete((a, values)),
            Change::Update(before, after) => {
                self.delete(before)?;
                let inserted = self.insert(after);
                if inserted.is_err() {
                    self.insert(before)?;
                }
                inserted
            }
            Change::Set(..) => Err("a partial image of a table without a key".to_owned()),
        }
    }

    fn insert(&mut self, row: Row) -> Result<(), String> {
        let (_, (unique, _)) = row;
        if unique.is_some() && self.0.keys().any(|(_, (taken, _))| *taken == unique) {
            return Err(format!("duplicate entry {unique:?}"));
        }
        *self.0.entry(row).or_default() += 1;
        Ok(())
    }

    fn delete(&mut self, row: Row) -> Result<(), String> {
        let copies = self.0.get_mut(&row).ok_or_else(|| format!("row {row:?} not found"))?;
        *copies -= 1;
        if *copies == 0 {
            self.0.remove(&row);
        }
        Ok(())
    }
}

fn without_key() -> TableDefinition {
    let mut definition = definition();
    definition.row_key.clear();
    definition.columns[0].is_auto_increment = false;
    definition.lookup = LookupDefinition::default();
    definition
}

fn row() -> impl Strategy<Value = Row> {
    (1..3i32, (prop::option::weighted(0.3, 1..4i32), 0..2i32))
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => row().prop_map(|(a, values)| Change::Insert(a, values)),
        2 => row().prop_map(|(a, values)| Change::Delete(a, values)),
        2 => (row(), row()).prop_map(|(before, after)| Change::Update(before, after)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn folding_a_multiset_is_the_same_as_one_by_one(
        before in prop::collection::vec(change(), 0..20),
        after in prop::collection::vec(change(), 1..40),
        chunk_bytes_max in prop_oneof![Just(1usize), Just(100), Just(1 << 20)],
    ) {
        let mut source = Table::default();
        for change in before {
            let _is_refused = source.apply(change);
        }
        let mut replica = source.clone();
        let history: Vec<Change> = after.into_iter().filter(|&change| source.apply(change).is_ok()).collect();
        let mut builder = BatchBuilder::new();
        for &change in &history {
            feed_to(&mut builder, change, &without_key());
        }
        let batch = builder.take();
        prop_assert!(batch.items.len() <= 1, "nothing is ever cut");
        let net = if history.is_empty() { vec![] } else { emitted(&batch, chunk_bytes_max) };
        let changed = history.iter().map(|change| if matches!(change, Change::Update(..)) { 2 } else { 1 }).sum::<usize>();
        prop_assert!(net.len() <= changed);
        for change in net {
            if let Err(refusal) = replica.apply(change) {
                prop_assert!(false, "{:?} was refused: {}\nhistory {:?}", change, refusal, history);
            }
        }
        prop_assert_eq!(&replica, &source, "history {:?}", history);
    }
}

#[test]
fn what_comes_and_goes_leaves_nothing() {
    let mut builder = BatchBuilder::new();
    for v in 0..1000 {
        feed_to(&mut builder, Change::Insert(1, (None, v)), &without_key());
        feed_to(&mut builder, Change::Update((1, (None, v)), (2, (None, v))), &without_key());
        feed_to(&mut builder, Change::Delete(2, (None, v)), &without_key());
    }
    let batch = builder.take();
    assert_eq!(batch.statistics.row_changes, 3000);
    let Some(spate_schedule::Item::Rows(segment)) = batch.items.first() else { panic!("no rows") };
    assert_eq!(segment.multisets()[0].net().count(), 0);
}

//! Rows that go ahead of their turn can be applied before the batch before is, and with the rest after it the result is the history's own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod model;

use model::{Attempt, Change, Server, definition, emitted, feed_to};
use proptest::prelude::*;
use spate_schedule::ahead::Touched;
use spate_schedule::definition::UniqueKey;
use spate_schedule::{Batch, BatchBuilder, TableDefinition};

/// The model's table without its other unique key.
fn by_key_only() -> TableDefinition {
    TableDefinition { unique_columns: vec![], unique_keys: vec![], ..definition() }
}

fn with_unique_key() -> TableDefinition {
    TableDefinition { unique_keys: vec![UniqueKey { columns: vec![1], ..UniqueKey::default() }], ..definition() }
}

fn history(source: &mut Server, attempts: &[Attempt], has_unique: bool) -> Vec<Change> {
    model::history(source, attempts, |_, to, v| (has_unique.then_some(v * 7 + to), v))
}

fn attempts(most: usize) -> impl Strategy<Value = Vec<Attempt>> {
    prop::collection::vec((0..6u8, 1..40i32, 1..40i32, 0..4i32), 1..most)
}

fn batch_of(changes: &[Change], table: &TableDefinition) -> Batch {
    let mut builder = BatchBuilder::new();
    changes.iter().for_each(|&change| feed_to(&mut builder, change, table));
    builder.take()
}

fn apply(replica: &mut Server, batch: &Batch) -> Result<(), String> {
    let changes = emitted(batch, 100);
    changes.iter().try_for_each(|&change| replica.apply(change).map_err(|why| format!("{change:?}: {why}")))
}

/// How many of the second batch's rows went ahead.
fn goes_ahead(
    before: &[Attempt],
    first: &[Attempt],
    second: &[Attempt],
    table: &TableDefinition,
) -> Result<usize, TestCaseError> {
    let has_unique = !table.unique_columns.is_empty();
    let mut source = Server::default();
    history(&mut source, before, has_unique);
    let mut replica = source.clone();
    let (first, second) = (history(&mut source, first, has_unique), history(&mut source, second, has_unique));
    let (one, mut other) = (batch_of(&first, table), batch_of(&second, table));
    let ahead = Touched::by(&one).split(&mut other);
    let count = ahead.as_ref().map_or(0, |ahead| emitted(ahead, 100).len());
    for batch in ahead.iter().chain([&one, &other]) {
        let applied = apply(&mut replica, batch);
        prop_assert!(applied.is_ok(), "{:?}, histories {:?} and {:?}", applied, first, second);
    }
    prop_assert_eq!(&replica, &source, "histories {:?} and {:?}", first, second);
    Ok(count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn rows_ahead_have_nothing_to_do_with_the_batch_before(before in attempts(30), first in attempts(30), second in attempts(30)) {
        goes_ahead(&before, &first, &second, &by_key_only())?;
    }

    #[test]
    fn rows_with_other_unique_keys_stay_behind(before in attempts(30), first in attempts(30), second in attempts(30)) {
        let count = goes_ahead(&before, &first, &second, &with_unique_key())?;
        prop_assert_eq!(count, 0);
    }
}

#[test]
fn most_rows_of_other_keys_go_ahead() {
    let inserts = |from: i32| (from..from + 1000).map(|id| Change::Insert(id, (None, 1))).collect::<Vec<_>>();
    let table = by_key_only();
    let one = batch_of(&inserts(0), &table);
    // The last hundred of the first batch, and nine hundred others.
    let mut source = inserts(1000);
    source.truncate(900);
    source.extend((900..1000).map(|id| Change::Update((id, (None, 1)), (id, (None, 2)))));
    let mut other = batch_of(&source, &table);
    let ahead = emitted(&Touched::by(&one).split(&mut other).unwrap(), 100_000).len();
    let behind = emitted(&other, 100_000).len();
    assert_eq!(ahead + behind, 1000);
    assert!((750..=900).contains(&ahead), "{ahead}");
}

//! Any possible history of a server, folded and applied, has the result of the history itself: the same rows, the same
//! counter, and no step that a server would refuse.

mod model;

use model::{ALL, Change, Server, emitted, feed, feed_partial};
use proptest::prelude::*;
use spate_schedule::BatchBuilder;

/// An attempted change. Only changes that the server allows become history.
#[derive(Debug, Clone, Copy)]
enum Attempt {
    Insert(i32, Option<i32>, i32),
    Update(i32, i32, Option<i32>, i32),
    Delete(i32),
}

/// Key spaces so small that rows come back, keys change, and unique values move between rows.
fn attempt() -> impl Strategy<Value = Attempt> {
    let id = 1..6i32;
    let unique = prop::option::weighted(0.7, 1..5i32);
    prop_oneof![
        (id.clone(), unique.clone(), 0..3i32).prop_map(|(id, u, v)| Attempt::Insert(id, u, v)),
        (id.clone(), id.clone(), unique.clone(), 0..3i32).prop_map(|(id, to, u, v)| Attempt::Update(id, to, u, v)),
        (id.clone(), unique, 0..3i32).prop_map(|(id, u, v)| Attempt::Update(id, id, u, v)),
        id.prop_map(Attempt::Delete),
    ]
}

fn history(source: &mut Server, attempts: &[Attempt]) -> Vec<Change> {
    let mut history = Vec::new();
    for &attempt in attempts {
        let row = |id: i32| source.rows.get(&id).map(|&values| (id, values));
        let change = match attempt {
            Attempt::Insert(id, u, v) => Some(Change::Insert(id, (u, v))),
            Attempt::Update(id, to, u, v) => row(id).map(|before| Change::Update(before, (to, (u, v)))),
            Attempt::Delete(id) => row(id).map(|(id, values)| Change::Delete(id, values)),
        };
        if let Some(change) = change
            && source.apply(change).is_ok()
        {
            history.push(change);
        }
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn folded_history_equals_serial_apply(
        before in prop::collection::vec(attempt(), 0..12),
        after in prop::collection::vec(attempt(), 1..40),
        chunk_bytes_max in prop_oneof![Just(1usize), Just(100), Just(1 << 20)],
    ) {
        let mut source = Server::default();
        history(&mut source, &before);
        let mut replica = source.clone();
        let changes = history(&mut source, &after);
        let mut builder = BatchBuilder::new();
        for &change in &changes {
            feed(&mut builder, change);
        }
        let batch = builder.take();
        prop_assert_eq!(batch.statistics.row_changes, changes.len() as u64);
        for change in emitted(&batch, chunk_bytes_max) {
            if let Err(refusal) = replica.apply(change) {
                prop_assert!(false, "{:?} was refused: {}\nhistory {:?}", change, refusal, changes);
            }
        }
        prop_assert_eq!(&replica, &source, "history {:?}", changes);
    }

    #[test]
    fn folded_partial_images_equal_serial_apply(
        before in prop::collection::vec(attempt(), 0..12),
        after in prop::collection::vec(attempt(), 1..40),
        columns in prop::collection::vec((0..=ALL, prop_oneof![Just(0), Just(ALL), 0..=ALL]), 40),
        full in prop::option::of(0..40usize),
        chunk_bytes_max in prop_oneof![Just(1usize), Just(100), Just(1 << 20)],
    ) {
        let mut source = Server::default();
        history(&mut source, &before);
        let mut replica = source.clone();
        let changes = history(&mut source, &after);
        let mut builder = BatchBuilder::new();
        for (number, (&change, &(first, second))) in changes.iter().zip(&columns).enumerate() {
            match full.is_some_and(|full| number < full) {
                true => feed(&mut builder, change),
                false => feed_partial(&mut builder, change, first, second),
            }
        }
        let batch = builder.take();
        prop_assert_eq!(batch.statistics.row_changes, changes.len() as u64);
        for change in emitted(&batch, chunk_bytes_max) {
            if let Err(refusal) = replica.apply(change) {
                prop_assert!(false, "{:?} was refused: {}\nhistory {:?} {:?}", change, refusal, changes, columns);
            }
        }
        prop_assert_eq!(&replica, &source, "history {:?} {:?}", changes, columns);
    }

    #[test]
    fn unfolded_history_equals_the_source(attempts in prop::collection::vec(attempt(), 1..40)) {
        let changes = history(&mut Server::default(), &attempts);
        let mut builder = BatchBuilder::new();
        builder.never_fold();
        for &change in &changes {
            feed(&mut builder, change);
        }
        prop_assert_eq!(emitted(&builder.take(), 1), changes);
    }
}

/// Without moving unique values, thousands of changes to a row leave one.
#[test]
fn hot_row_leaves_one_change() {
    let mut builder = BatchBuilder::new();
    for v in 0..10_000 {
        feed(&mut builder, Change::Update((1, (None, v)), (1, (None, v + 1))));
    }
    let batch = builder.take();
    assert_eq!(emitted(&batch, 1 << 20), [Change::Update((1, (None, 0)), (1, (None, 10_000)))]);
}

/// As above, with only the changed columns in the images.
#[test]
fn hot_row_of_partial_images_leaves_one_change() {
    let mut builder = BatchBuilder::new();
    for v in 0..10_000 {
        feed_partial(&mut builder, Change::Update((1, (None, v)), (1, (None, v + 1))), 0, 0);
    }
    let batch = builder.take();
    assert_eq!(emitted(&batch, 1 << 20), [Change::Set(1, 0b100, (0, (None, 10_000)))]);
}

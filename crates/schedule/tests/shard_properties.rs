//! A history divided among appliers has the result of the history itself, in whatever order they commit; and if they are interrupted at
//! different positions, what is left of it makes them even.

#![allow(clippy::unwrap_used, reason = "tests")]

mod model;

use std::collections::HashMap;
use std::sync::Arc;

use model::{Attempt, Change, Server, definition, emitted, feed_to};
use proptest::prelude::*;
use spate_schedule::shards::{DivideBy, Passed, Rules, ShardMap};
use spate_schedule::{Batch, BatchBuilder, TableDefinition};

/// The model's table without its other unique key.
fn divisible() -> TableDefinition {
    TableDefinition { unique_columns: vec![], unique_keys: vec![], ..definition() }
}

fn history(source: &mut Server, attempts: &[Attempt]) -> Vec<Change> {
    model::history(source, attempts, |_, _, v| (None, v))
}

fn attempts(most: usize) -> impl Strategy<Value = Vec<Attempt>> {
    prop::collection::vec((0..6u8, 1..12i32, 1..12i32, 0..4i32), 1..most)
}

fn batch_of(changes: &[Change]) -> Batch {
    let mut builder = BatchBuilder::new();
    changes.iter().for_each(|&change| feed_to(&mut builder, change, &divisible()));
    builder.take()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn shares_commit_in_any_order(before in attempts(16), after in attempts(40), appliers in 1..6u32, first in 0..6u32) {
        let mut source = Server::default();
        history(&mut source, &before);
        let mut replica = source.clone();
        let changes = history(&mut source, &after);
        let batch = batch_of(&changes);
        let map = ShardMap::new(appliers, DivideBy::Row, Rules::default());
        if map.keeps_together(&batch).is_some() {
            return Ok(());
        }
        let mut shares = map.divide(batch);
        shares.sort_by_key(|(applier, _)| (applier + first) % appliers);
        for (applier, share) in &shares {
            for change in emitted(share, 100) {
                let applied = replica.apply(change);
                prop_assert!(applied.is_ok(), "applier {}: {:?}: {:?}, history {:?}", applier, change, applied, changes);
            }
        }
        prop_assert_eq!(&replica, &source, "history {:?}", changes);
    }

    #[test]
    fn interrupted_appliers_are_made_even(
        batches in prop::collection::vec(attempts(14), 1..5),
        appliers in 1..5u32,
        applied in prop::collection::vec(0..5usize, 5),
    ) {
        let map = Arc::new(ShardMap::new(appliers, DivideBy::Row, Rules::default()));
        let (mut source, mut replica) = (Server::default(), Server::default());
        let mut dealt = HashMap::new();
        let histories: Vec<Vec<Change>> = batches.iter().map(|attempts| history(&mut source, attempts)).collect();
        // Each applier has committed its shares of so many batches.
        for (number, changes) in histories.iter().enumerate() {
            let batch = batch_of(changes);
            if map.keeps_together(&batch).is_some() {
                return Ok(());
            }
            dealt.extend(map.dealt(&batch));
            for (applier, share) in map.divide(batch) {
                if number < applied[applier as usize] {
                    emitted(&share, 100).into_iter().for_each(|change| replica.apply(change).unwrap());
                }
            }
        }
        let (mut builder, dealt) = (BatchBuilder::new(), Arc::new(dealt));
        for (number, changes) in histories.iter().enumerate() {
            let have = (0..appliers as usize).map(|applier| number < applied[applier]).collect();
            builder.pass_over(Some(Passed { map: Arc::clone(&map), dealt: Arc::clone(&dealt), have }));
            changes.iter().for_each(|&change| feed_to(&mut builder, change, &divisible()));
        }
        for change in emitted(&builder.take(), 100) {
            let applied = replica.apply(change);
            prop_assert!(applied.is_ok(), "{:?}: {:?}, histories {:?}", change, applied, histories);
        }
        prop_assert_eq!(&replica.rows, &source.rows, "histories {:?}", histories);
    }
}

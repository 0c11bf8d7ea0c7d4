//! Tables that other threads fold come out as those that the builder folds by itself, byte by byte.

#![allow(clippy::unwrap_used, reason = "tests")]

mod model;

use std::thread;

use model::{Attempt, Change, Server, definition, feed_to, write};
use proptest::prelude::*;
use spate_binlog::header::{EventHeader, EventType};
use spate_schedule::{Batch, BatchBuilder, Error, Surprise};

/// Rows that make a fold large enough to move to another thread.
const ROWS_THAT_MOVE: i32 = 6_000;

/// The events that would be replayed, and the counts.
fn written(batch: &Batch) -> (Vec<u8>, u64) {
    let mut bytes = Vec::new();
    write(batch, 1 << 20, |events| bytes.extend_from_slice(events));
    (bytes, batch.statistics.row_changes)
}

/// What a builder with so many helpers makes of the changes; `Err`: it is to fold alone.
fn batch_with(helpers: usize, changes: &[Change]) -> Result<(Vec<u8>, u64, u64), Error> {
    let mut builder = BatchBuilder::new();
    let helpers = builder.fold_beside(helpers);
    thread::scope(|scope| {
        for helper in helpers {
            scope.spawn(move || helper.run());
        }
        changes.iter().for_each(|&change| feed_to(&mut builder, change, &definition()));
        let all = builder.gather_in().map(|()| {
            let counted = builder.row_changes();
            let (bytes, row_changes) = written(&builder.take());
            (bytes, row_changes, counted)
        });
        drop(builder);
        all
    })
}

/// Many rows, and then changes of some of them.
fn history(attempts: &[Attempt]) -> Vec<Change> {
    let mut source = Server::default();
    let mut history: Vec<Change> = (1..=ROWS_THAT_MOVE).map(|id| Change::Insert(id, (None, id))).collect();
    history.iter().for_each(|&change| source.apply(change).unwrap());
    history.extend(model::history(&mut source, attempts, |kind, to, v| ((kind > 3).then_some(to), v)));
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    #[test]
    fn helpers_fold_as_the_builder_does(
        attempts in prop::collection::vec((0..6u8, 1..7_000i32, 1..7_000i32, 0..9i32), 1..3_000),
        helpers in 1..5usize,
    ) {
        let history = history(&attempts);
        let alone = batch_with(0, &history).unwrap();
        prop_assert_eq!(alone.1, alone.2);
        prop_assert!(batch_with(helpers, &history).unwrap() == alone);
    }
}

/// A builder by itself ends the segment before such a change; a helper cannot.
#[test]
fn contradiction_is_folded_again_alone() {
    let mut changes = history(&[]);
    let again = Change::Insert(5, (None, 5));
    changes.push(again);
    assert!(batch_with(0, &changes).is_ok());
    assert_eq!(batch_with(2, &changes).unwrap_err(), Error::TurnedOut(Surprise::Contradicts));
    let mut builder = BatchBuilder::new();
    let helpers = builder.fold_beside(1);
    thread::scope(|scope| {
        for helper in helpers {
            scope.spawn(move || helper.run());
        }
        changes.iter().for_each(|&change| feed_to(&mut builder, change, &definition()));
        builder.gather_in().unwrap_err();
        // An event of no rows tells it, too.
        let header = EventHeader {
            timestamp_seconds: 0,
            event_type: EventType::XID,
            server_id: 1,
            event_length: 27,
            next_position: 0,
            flags: 0,
        };
        assert_eq!(builder.event(&header, &[0; 8]), Err(Error::TurnedOut(Surprise::Contradicts)));
        builder.rewind();
        builder.fold_alone();
        changes.iter().for_each(|&change| feed_to(&mut builder, change, &definition()));
        builder.gather_in().unwrap();
        let (bytes, row_changes) = written(&builder.take());
        let alone = batch_with(0, &changes).unwrap();
        assert!(bytes == alone.0 && row_changes == alone.1);
        drop(builder);
    });
}

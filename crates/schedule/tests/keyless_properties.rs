//! Any history of a table without a row key, reordered and applied, leaves the same list of rows in the same order as
//! the history itself, and no step meets a unique value that is still taken.

#![allow(clippy::unwrap_used, reason = "tests")]

mod model;

use model::{Change, Values, definition, emitted, feed_before_one_left_out, feed_to};
use proptest::prelude::*;
use spate_schedule::definition::LookupDefinition;
use spate_schedule::keyless::KeylessChange;
use spate_schedule::{BatchBuilder, Item, TableDefinition};

type Row = (i32, Values);

/// A table `a INT NOT NULL, u INT NULL UNIQUE, v INT NOT NULL`, as its engine keeps it: the rows in the order of their
/// arrival. A delete or update takes the first equal row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Table(Vec<Row>);

impl Table {
    fn apply(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Insert(a, values) => {
                self.check((a, values), None)?;
                self.0.push((a, values));
            }
            Change::Delete(a, values) => drop(self.0.remove(self.find((a, values))?)),
            Change::Update(before, after) => {
                let place = self.find(before)?;
                self.check(after, Some(place))?;
                self.0[place] = after;
            }
            Change::Set(..) => return Err("a partial image of a table without a key".to_owned()),
        }
        Ok(())
    }

    fn find(&self, row: Row) -> Result<usize, String> {
        self.0.iter().position(|&other| other == row).ok_or_else(|| format!("row {row:?} not found"))
    }

    fn check(&self, (_, (unique, _)): Row, place: Option<usize>) -> Result<(), String> {
        let mut others = self.0.iter().enumerate().filter(|&(other, _)| Some(other) != place);
        match unique.is_some() && others.any(|(_, &(_, (taken, _)))| taken == unique) {
            true => Err(format!("duplicate entry {unique:?}")),
            false => Ok(()),
        }
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
    fn keyless_steps_equal_serial_apply(
        before in prop::collection::vec(change(), 0..20),
        after in prop::collection::vec(change(), 1..40),
        chunk_bytes_max in prop_oneof![Just(1usize), Just(100), Just(1 << 20)],
    ) {
        let mut source = Table::default();
        for change in before {
            let _is_refused = source.apply(change);
        }
        let mut replica = source.clone();
        let mut at_once = source.clone();
        let history: Vec<Change> = after.into_iter().filter(|&change| source.apply(change).is_ok()).collect();
        let mut builder = BatchBuilder::new();
        for &change in &history {
            feed_to(&mut builder, change, &without_key());
        }
        let batch = builder.take();
        prop_assert!(batch.items.len() <= 1, "nothing is ever cut");
        let net = if history.is_empty() { vec![] } else { emitted(&batch, chunk_bytes_max) };
        prop_assert_eq!(net.len(), history.len());
        for change in net {
            if let Err(refusal) = replica.apply(change) {
                prop_assert!(false, "{:?} was refused: {}\nhistory {:?}", change, refusal, history);
            }
        }
        prop_assert_eq!(&replica, &source, "history {:?}", history);
        // If the table has exactly as many rows as are to be updated, one statement may update all of them.
        if let Some(Item::Rows(segment)) = batch.items.first() {
            for rows in segment.keyless() {
                for step in rows.steps() {
                    let changes: Vec<KeylessChange<'_>> = rows.changes(&step).collect();
                    apply_at_once(&mut at_once, &changes);
                }
            }
            prop_assert_eq!(&at_once, &source, "history {:?}", history);
        }
    }
}

/// Applies a step; updates at once if they take all copies of each row, and make the same of them.
fn apply_at_once(table: &mut Table, changes: &[KeylessChange<'_>]) {
    let row = |image: &[u8]| {
        let number = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap());
        let is_null = image[0] & 0b010 != 0;
        let v = &image[if is_null { 5 } else { 9 }..];
        (number(&image[1..5]), ((!is_null).then(|| number(&image[5..9])), number(&v[..4])))
    };
    let updates: Vec<(Row, Row)> = changes
        .iter()
        .filter_map(|change| match change {
            KeylessChange::Update { before, after } => Some((row(before), row(after))),
            _ => None,
        })
        .collect();
    let is_whole = updates.iter().all(|(before, after)| {
        let wanted = updates.iter().filter(|(other, _)| other == before);
        let goes_one_way = wanted.clone().all(|(_, other)| other == after);
        goes_one_way && wanted.count() == table.0.iter().filter(|row| *row == before).count()
    });
    if !updates.is_empty() && is_whole {
        for row in &mut table.0 {
            if let Some((_, after)) = updates.iter().find(|(before, _)| before == row) {
                *row = *after;
            }
        }
        return;
    }
    for change in changes {
        let (change, copies) = match *change {
            KeylessChange::Delete { image, copies } => (Change::Delete(row(image).0, row(image).1), copies),
            KeylessChange::Update { before, after } => (Change::Update(row(before), row(after)), 1),
            KeylessChange::Insert { image } => (Change::Insert(row(image).0, row(image).1), 1),
        };
        for _ in 0..copies {
            table.apply(change).unwrap();
        }
    }
}

/// Two statements that update a row one after the other stay two, even if the rows event that ends the first is left
/// out.
#[test]
fn keyless_rows_left_out_end_their_statement() {
    let mut builder = BatchBuilder::new();
    let row = |a| (a, (None, 0));
    feed_before_one_left_out(&mut builder, Change::Update(row(1), row(2)), &without_key());
    feed_to(&mut builder, Change::Update(row(2), row(3)), &without_key());
    let batch = builder.take();
    let Some(Item::Rows(segment)) = batch.items.first() else { panic!("no rows") };
    assert_eq!(segment.keyless()[0].steps().len(), 2);
}

#[test]
fn keyless_changes_of_thousands_of_transactions_become_three_events() {
    let mut builder = BatchBuilder::new();
    for v in 0..1000 {
        feed_to(&mut builder, Change::Insert(1, (None, v)), &without_key());
        feed_to(&mut builder, Change::Update((2, (None, v)), (3, (None, v))), &without_key());
        feed_to(&mut builder, Change::Delete(4, (None, v)), &without_key());
    }
    let batch = builder.take();
    assert_eq!(batch.statistics.row_changes, 3000);
    let Some(Item::Rows(segment)) = batch.items.first() else { panic!("no rows") };
    assert_eq!(segment.keyless()[0].steps().len(), 3);
}

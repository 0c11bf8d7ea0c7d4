//! The contents of tables according to a binlog, and the places of its transactions.

use std::collections::BTreeMap;

use spate_binlog::gtid::Gtid;
use spate_binlog::{Boundary, EventType, GtidEvent, RowsEvent, RowsKind, TableMap};

use crate::events::{Event, Image, Maps, rows};

/// A column of a mirrored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// An insert with a partial image left it out, or ALTER TABLE added it: it has its default, or is generated.
    Absent,
    Null,
    Bytes(Vec<u8>),
}

/// The content of a table after its rows events.
pub(crate) struct MirroredTable {
    pub(crate) map: TableMap,
    pub(crate) rows: Vec<Vec<Value>>,
}

/// Applies the rows events of a file, in order, to tables by `database.table`. `keys` gives the key columns of each; a
/// table that is not in it is keyed by all its columns.
pub(crate) fn mirror(events: &[Event], keys: &BTreeMap<String, Vec<usize>>) -> BTreeMap<String, MirroredTable> {
    let mut tables: BTreeMap<String, MirroredTable> = BTreeMap::new();
    let mut maps = Maps::default();
    for event in events {
        maps.observe(event);
        if RowsKind::of(event.header.event_type).is_none() {
            continue;
        }
        let parsed = RowsEvent::parse(event.header.event_type, &event.body).unwrap();
        let map = maps.of(&parsed);
        if map.unmeasurable_column().is_some() {
            continue;
        }
        let name = format!("{}.{}", map.schema, map.table);
        let all: Vec<usize> = (0..map.columns.len()).collect();
        let key = keys.get(&name).unwrap_or(&all);
        let table = tables.entry(name).or_insert_with(|| MirroredTable { map: map.clone(), rows: Vec::new() });
        table.map = map.clone();
        for row in &mut table.rows {
            row.resize(map.columns.len(), Value::Absent);
        }
        let mut buffer = Vec::new();
        for row in rows(map, &parsed, parsed.images(&mut buffer).unwrap()) {
            table.apply(key, row.before.as_ref(), row.after.as_ref());
        }
    }
    tables
}

impl MirroredTable {
    fn apply(&mut self, key: &[usize], before: Option<&Image<'_>>, after: Option<&Image<'_>>) {
        let mut row = match before {
            None => vec![Value::Absent; self.map.columns.len()],
            Some(before) => {
                let found = self.rows.iter().position(|row| is_same_row(row, key, before));
                self.rows.swap_remove(found.expect("the row of a before-image is there"))
            }
        };
        if let Some(before) = before {
            for (column, _) in &before.columns {
                let known = &row[*column];
                let is_same = *known == Value::Absent || *known == value(before, *column);
                assert!(is_same, "{}, column {}: {known:?}", self.map.table, column + 1);
            }
        }
        if let Some(after) = after {
            for (column, _) in &after.columns {
                row[*column] = value(after, *column);
            }
            self.rows.push(row);
        }
    }
}

fn is_same_row(row: &[Value], key: &[usize], before: &Image<'_>) -> bool {
    key.iter().all(|&column| row[column] == value(before, column))
}

fn value(image: &Image<'_>, column: usize) -> Value {
    image.value(column).map_or(Value::Null, |bytes| Value::Bytes(bytes.to_vec()))
}

/// The GTIDs of a file's transactions, in order.
pub(crate) fn gtids(events: &[Event]) -> Vec<Gtid> {
    let gtid_events = events.iter().filter(|event| event.header.event_type == EventType::GTID_MARIADB);
    gtid_events.map(|event| GtidEvent::parse_mariadb(event.header.server_id, &event.body).unwrap().gtid).collect()
}

/// Each transaction has one first and one last event, the first being its GTID; rows and statements are in
/// transactions.
pub(crate) fn assert_boundaries(events: &[Event]) {
    let mut is_inside = false;
    for event in events {
        let (event_type, offset) = (event.header.event_type, event.offset);
        assert!(event_type.name().is_some(), "{event_type} at {offset}");
        match event.boundary {
            Boundary::Begin => {
                assert!(!is_inside && event_type == EventType::GTID_MARIADB, "{event_type} begins at {offset}");
                is_inside = true;
            }
            Boundary::Inside => assert!(is_inside, "{event_type} at {offset}"),
            Boundary::End => {
                assert!(is_inside, "{event_type} ends at {offset}");
                is_inside = false;
            }
            Boundary::Outside => assert!(!is_inside, "{event_type} at {offset}"),
            Boundary::Whole => panic!("MariaDB gives every statement a GTID, but not {event_type} at {offset}"),
        }
    }
    assert!(!is_inside);
}

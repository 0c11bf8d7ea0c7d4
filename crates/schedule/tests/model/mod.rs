//! A table of three columns and a strict server for it: the oracle of the folding tests.
//!
//! The table: `id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, u INT NULL UNIQUE, v INT NOT NULL`.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used, reason = "a module of several tests")]

use std::collections::BTreeMap;

use spate_binlog::encode::{ColumnBitmap, RowsEventEncoder, RowsLayout};
use spate_binlog::header::{EventHeader, EventType, HEADER_LENGTH};
use spate_binlog::rows::FLAG_STATEMENT_END;
use spate_binlog::{ImagePlan, RowsEvent, RowsKind, RowsVersion, TableMap};
use spate_schedule::definition::ColumnDefinition;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::{Answer, Batch, BatchBuilder, Item, TableDefinition, TableName};

/// The columns besides the key.
pub type Values = (Option<i32>, i32);

/// A row change, as the source logs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Insert(i32, Values),
    Update((i32, Values), (i32, Values)),
    Delete(i32, Values),
    /// An update of the row with this key that sets only some columns: a bit each for id, u and v.
    Set(i32, u8, (i32, Values)),
}

/// A bit for each column.
pub const ALL: u8 = 0b111;

/// A server that refuses every change that a real one would.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    pub rows: BTreeMap<i32, Values>,
    /// The highest key ever written, from which AUTO_INCREMENT continues.
    pub counter: i32,
}

impl Server {
    pub fn apply(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Insert(id, values) => self.insert(id, values),
            Change::Delete(id, _) => self.delete(id).map(drop),
            Change::Set(id, columns, (new_id, (u, v))) => {
                let old = *self.rows.get(&id).ok_or_else(|| format!("row {id} not found"))?;
                let new_id = if columns & 1 == 0 { id } else { new_id };
                let new = (if columns & 2 == 0 { old.0 } else { u }, if columns & 4 == 0 { old.1 } else { v });
                self.apply(Change::Update((id, old), (new_id, new)))
            }
            Change::Update((id, _), (new_id, values)) => {
                let old = self.delete(id)?;
                let moved = self.place(new_id, values);
                match moved {
                    // InnoDB also continues from the keys of updates; MariaDB's InnoDB skips one value.
                    Ok(()) => self.counter = self.counter.max(new_id + i32::from(new_id != id)),
                    Err(_) => drop(self.rows.insert(id, old)),
                }
                moved
            }
        }
    }

    fn insert(&mut self, id: i32, values: Values) -> Result<(), String> {
        self.place(id, values)?;
        self.counter = self.counter.max(id);
        Ok(())
    }

    fn place(&mut self, id: i32, values: Values) -> Result<(), String> {
        if self.rows.contains_key(&id) {
            return Err(format!("duplicate entry {id} for key PRIMARY"));
        }
        if let Some(u) = values.0
            && self.rows.values().any(|row| row.0 == Some(u))
        {
            return Err(format!("duplicate entry {u} for key u"));
        }
        self.rows.insert(id, values);
        Ok(())
    }

    fn delete(&mut self, id: i32) -> Result<Values, String> {
        self.rows.remove(&id).ok_or_else(|| format!("row {id} not found"))
    }
}

/// What was tried: a kind of change, the key of a row, another key, and a value.
pub type Attempt = (u8, i32, i32, i32);

/// The attempts that succeed, as a source logs them. `values`: what a change of such a kind writes, by the other key and the value.
pub fn history(source: &mut Server, attempts: &[Attempt], values: impl Fn(u8, i32, i32) -> Values) -> Vec<Change> {
    let mut history = Vec::new();
    for &(kind, id, to, v) in attempts {
        let row = source.rows.get(&id).map(|&values| (id, values));
        let written = values(kind, to, v);
        let change = match (kind, row) {
            (0 | 1, _) => Some(Change::Insert(id, written)),
            (2, Some((id, values))) => Some(Change::Delete(id, values)),
            (3, Some(before)) => Some(Change::Update(before, (to, written))),
            (_, Some(before)) => Some(Change::Update(before, (id, written))),
            (_, None) => None,
        };
        if let Some(change) = change.filter(|&change| source.apply(change).is_ok()) {
            history.push(change);
        }
    }
    history
}

/// Writes all of a batch, which is nothing but rows, as chunks of events for replay.
pub fn write(batch: &Batch, chunk_bytes_max: usize, mut chunk: impl FnMut(&[u8])) {
    let sink = |events: &[u8]| -> Result<(), spate_schedule::Error> {
        chunk(events);
        Ok(())
    };
    let mut writer = ChunkWriter::new(chunk_bytes_max, 1, RowsVersion::V1, sink);
    for item in &batch.items {
        match item {
            Item::Rows(segment) => writer.segment(segment).unwrap(),
            other => panic!("unexpected {other:?}"),
        }
        // Segments are applied one after the other.
    }
    writer.finish().unwrap();
}

pub fn name() -> TableName {
    TableName { schema: "s".into(), table: "t".into() }
}

pub fn definition() -> TableDefinition {
    let column = |name: &str, is_auto_increment| ColumnDefinition {
        name: name.into(),
        column_type: "int(11)".into(),
        is_unsigned: false,
        is_auto_increment,
        is_generated: false,
        ..ColumnDefinition::default()
    };
    TableDefinition {
        name: name(),
        columns: vec![column("id", true), column("u", false), column("v", false)],
        row_key: vec![0],
        unique_columns: vec![1],
        has_hidden_unique_key: false,
        engine: "InnoDB".into(),
        row_end: None,
        is_sequence: false,
        is_transactional: true,
        has_engine_actions: false,
        ..TableDefinition::default()
    }
}

const TABLE_ID: u64 = 9;

/// The body of the table's map.
pub fn table_map_body() -> Vec<u8> {
    map_body(TABLE_ID, "s", "t")
}

fn map_body(table_id: u64, schema: &str, table: &str) -> Vec<u8> {
    let mut body = [&table_id.to_le_bytes()[..6], &[1, 0]].concat();
    for name in [schema, table] {
        body.push(name.len() as u8);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    body.extend_from_slice(&[3, 3, 3, 3, 0, 0b010]);
    body
}

fn image(columns: u8, id: i32, (u, v): Values) -> Vec<u8> {
    let values = [Some(id), u, Some(v)];
    let present = (0..3).filter(|column| columns & 1 << column != 0).map(|column| values[column]).collect::<Vec<_>>();
    let null = |(place, value): (usize, &Option<i32>)| u8::from(value.is_none()) << place;
    let mut image = vec![present.iter().enumerate().map(null).sum()];
    image.extend(present.iter().flatten().flat_map(|value| value.to_le_bytes()));
    image
}

/// Gives the builder a rows event with one change.
pub fn feed(builder: &mut BatchBuilder, change: Change) {
    feed_to(builder, change, &definition());
}

/// As above, for a table that the replica defines in another way.
pub fn feed_to(builder: &mut BatchBuilder, change: Change, definition: &TableDefinition) {
    feed_columns(builder, change, definition, ALL, ALL);
}

/// As above, with an event whose images hold only some columns: those in `first` (the only image, or the before-image)
/// and in `second` (the after-image), and those that a server would have to log.
pub fn feed_partial(builder: &mut BatchBuilder, change: Change, first: u8, second: u8) {
    let (first, second) = match change {
        // Defaults need not be logged.
        Change::Insert(_, (u, v)) => (first | 1 | u8::from(u.is_some()) << 1 | u8::from(v != 0) << 2, ALL),
        Change::Delete(..) | Change::Set(..) => (first | 1, ALL),
        Change::Update(before, after) => {
            let is_changed = [before.0 != after.0, before.1.0 != after.1.0, before.1.1 != after.1.1];
            let changed = (0..3).map(|column| u8::from(is_changed[column]) << column).sum::<u8>();
            (first | 1, if changed | second == 0 { 1 } else { changed | second })
        }
    };
    feed_columns(builder, change, &definition(), first, second);
}

fn feed_columns(builder: &mut BatchBuilder, change: Change, definition: &TableDefinition, first: u8, second: u8) {
    event(builder, EventType::TABLE_MAP, &table_map_body(), definition);
    feed_rows(builder, change, TABLE_ID, FLAG_STATEMENT_END, first, second);
}

/// Gives the builder two rows events of one statement: a change of the table, and one of a table in Spate's own schema,
/// which is left out.
pub fn feed_before_one_left_out(builder: &mut BatchBuilder, change: Change, definition: &TableDefinition) {
    const OWN_ID: u64 = 8;
    event(builder, EventType::TABLE_MAP, &table_map_body(), definition);
    event(builder, EventType::TABLE_MAP, &map_body(OWN_ID, "spate", "t"), definition);
    feed_rows(builder, change, TABLE_ID, 0, ALL, ALL);
    feed_rows(builder, change, OWN_ID, FLAG_STATEMENT_END, ALL, ALL);
}

fn feed_rows(builder: &mut BatchBuilder, change: Change, table_id: u64, flags: u16, first: u8, second: u8) {
    let (kind, images) = match change {
        Change::Insert(id, values) => (RowsKind::Insert, image(first, id, values)),
        Change::Delete(id, values) => (RowsKind::Delete, image(first, id, values)),
        Change::Update(before, after) => {
            let images = [image(first, before.0, before.1), image(second, after.0, after.1)];
            (RowsKind::Update, images.concat())
        }
        Change::Set(..) => panic!("no source logs this"),
    };
    let bitmap = |bits: u8| ColumnBitmap { count: 3, bits: vec![bits] };
    let mut bytes = Vec::new();
    let (columns, layout) = ((&bitmap(first), &bitmap(second)), RowsLayout::Plain(RowsVersion::V1));
    let encoder = RowsEventEncoder::begin(&mut bytes, kind, table_id, 1, flags, columns, layout);
    bytes.extend_from_slice(&images);
    encoder.finish(&mut bytes);
    let header = EventHeader::parse(&bytes).unwrap();
    let mut answer = builder.event(&header, &bytes[HEADER_LENGTH..]).unwrap();
    // The builder asks once for the foreign keys of several tables; there are none.
    if answer == Answer::NeedsForeignKeys {
        answer = builder.event(&header, &bytes[HEADER_LENGTH..]).unwrap();
    }
    assert_eq!(answer, Answer::Taken);
}

fn event(builder: &mut BatchBuilder, event_type: EventType, body: &[u8], definition: &TableDefinition) {
    let event_length = (HEADER_LENGTH + body.len()) as u32;
    let header =
        EventHeader { timestamp_seconds: 0, event_type, server_id: 1, event_length, next_position: 0, flags: 0 };
    if let Answer::NeedsDefinition(wanted) = builder.event(&header, body).unwrap() {
        assert_eq!(wanted, name());
        builder.learn(definition.clone());
        assert_eq!(builder.event(&header, body).unwrap(), Answer::Taken);
    }
}

/// The changes that a server would execute, decoded from the events that would be replayed.
pub fn emitted(batch: &Batch, chunk_bytes_max: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    write(batch, chunk_bytes_max, |events| decode(events, &mut changes));
    changes
}

fn decode(mut events: &[u8], changes: &mut Vec<Change>) {
    let mut map = None;
    let mut ends = Vec::new();
    while !events.is_empty() {
        let header = EventHeader::parse(events).unwrap();
        let (event, rest) = events.split_at(header.event_length as usize);
        let body = &event[HEADER_LENGTH..];
        if header.event_type == EventType::TABLE_MAP {
            map = Some(TableMap::parse(body).unwrap());
        } else {
            let rows = RowsEvent::parse(header.event_type, body).unwrap();
            ends.push(rows.flags & 1 != 0);
            decode_rows(map.as_ref().expect("a table map before the rows"), &rows, changes);
        }
        events = rest;
    }
    assert_eq!(ends.iter().filter(|end| **end).count(), 1, "a chunk ends one statement");
    assert_eq!(ends.last(), Some(&true), "and that with its last event");
}

fn decode_rows(map: &TableMap, rows: &RowsEvent<'_>, changes: &mut Vec<Change>) {
    let mut buffer = Vec::new();
    let mut images = rows.images(&mut buffer).unwrap();
    let first = ImagePlan::new(map, rows.columns, &[]).unwrap();
    let second = ImagePlan::new(map, rows.columns_after, &[]).unwrap();
    while !images.is_empty() {
        let (before, rest) = read(&first, rows.columns, images);
        images = rest;
        changes.push(match rows.kind {
            RowsKind::Insert => Change::Insert(before.0, before.1),
            RowsKind::Delete => Change::Delete(before.0, before.1),
            RowsKind::Update => {
                let columns = rows.columns_after[0] & ALL;
                let (after, rest) = read(&second, rows.columns_after, images);
                images = rest;
                match (rows.columns[0] & ALL, columns) {
                    (_, ALL) => Change::Update(before, after),
                    // If the images hold the whole row, the other columns stay.
                    (ALL, _) => Change::Update(before, over(before, columns, after)),
                    _ => Change::Set(before.0, columns, after),
                }
            }
        });
    }
}

/// The row after an update whose image holds only these columns.
fn over(before: (i32, Values), columns: u8, (id, (u, v)): (i32, Values)) -> (i32, Values) {
    let has = |bit: u8| columns & bit != 0;
    let (old_id, (old_u, old_v)) = before;
    (if has(1) { id } else { old_id }, (if has(2) { u } else { old_u }, if has(4) { v } else { old_v }))
}

fn read<'a>(plan: &ImagePlan, columns: &[u8], bytes: &'a [u8]) -> ((i32, Values), &'a [u8]) {
    let (length, spans) = plan.all_spans(bytes).unwrap();
    let mut values =
        spans.iter().map(|span| (!span.is_null).then(|| i32::from_le_bytes(span.value(bytes).try_into().unwrap())));
    let mut column = |index: usize| if columns[0] & (1 << index) != 0 { values.next().flatten() } else { None };
    let row = (column(0).unwrap_or_default(), (column(1), column(2).unwrap_or_default()));
    (row, &bytes[length..])
}

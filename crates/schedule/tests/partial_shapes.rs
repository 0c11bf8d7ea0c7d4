//! A table whose partial images hold many different sets of columns: rows events stay few, and no change is lost.

#![allow(clippy::unwrap_used, reason = "tests")]

use spate_binlog::encode::{ColumnBitmap, RowsEventEncoder, RowsLayout};
use spate_binlog::header::{EventHeader, EventType, HEADER_LENGTH};
use spate_binlog::{RowsEvent, RowsKind, RowsVersion};
use spate_schedule::definition::ColumnDefinition;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::{Answer, Batch, BatchBuilder, Item, TableDefinition, TableName};

/// `id INT NOT NULL PRIMARY KEY`, and this many columns of type INT NULL.
const COLUMNS: usize = 101;

fn definition(name: TableName) -> TableDefinition {
    let column = |number: usize| ColumnDefinition {
        name: format!("c{number}"),
        column_type: "int(11)".into(),
        is_unsigned: false,
        is_auto_increment: false,
        is_generated: false,
        ..ColumnDefinition::default()
    };
    TableDefinition {
        name,
        columns: (0..COLUMNS).map(column).collect(),
        row_key: vec![0],
        unique_columns: vec![],
        has_hidden_unique_key: false,
        engine: "InnoDB".into(),
        row_end: None,
        is_sequence: false,
        is_transactional: true,
        has_engine_actions: false,
        ..TableDefinition::default()
    }
}

fn map(builder: &mut BatchBuilder) {
    let mut body = b"\x09\0\0\0\0\0\x01\0\x01s\0\x01t\0".to_vec();
    body.push(COLUMNS as u8);
    body.extend(vec![3; COLUMNS]);
    body.push(0);
    body.extend(vec![0xff; COLUMNS.div_ceil(8)]);
    let event_length = (HEADER_LENGTH + body.len()) as u32;
    let event_type = EventType::TABLE_MAP;
    let header =
        EventHeader { timestamp_seconds: 0, event_type, server_id: 1, event_length, next_position: 0, flags: 0 };
    if let Answer::NeedsDefinition(name) = builder.event(&header, &body).unwrap() {
        builder.learn(definition(name));
        builder.event(&header, &body).unwrap();
    }
}

/// `UPDATE t SET c<column> = value WHERE id = id`, as `binlog_row_image=MINIMAL` logs it.
fn update(builder: &mut BatchBuilder, id: i32, column: usize, value: i32) {
    map(builder);
    let (before, after) = (ColumnBitmap::only(COLUMNS, &[0]), ColumnBitmap::only(COLUMNS, &[column]));
    let mut bytes = Vec::new();
    let event = RowsEventEncoder::begin(
        &mut bytes,
        RowsKind::Update,
        9,
        1,
        0,
        (&before, &after),
        RowsLayout::Plain(RowsVersion::V1),
    );
    for number in [id, value] {
        bytes.push(0);
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    event.finish(&mut bytes);
    let header = EventHeader::parse(&bytes).unwrap();
    assert_eq!(builder.event(&header, &bytes[HEADER_LENGTH..]).unwrap(), Answer::Taken);
}

/// Rows events and net changes of a batch.
fn events_and_changes(batch: &Batch) -> (usize, u64) {
    let mut rows_events = 0;
    let mut writer =
        ChunkWriter::new(1 << 20, 1, RowsVersion::V1, |mut events: &[u8]| -> Result<(), spate_schedule::Error> {
            while !events.is_empty() {
                let header = EventHeader::parse(events)?;
                let (event, rest) = events.split_at(header.event_length as usize);
                rows_events += usize::from(RowsEvent::parse(header.event_type, &event[HEADER_LENGTH..]).is_ok());
                events = rest;
            }
            Ok(())
        });
    for item in &batch.items {
        let Item::Rows(segment) = item else { panic!("rows only") };
        writer.segment(segment).unwrap();
    }
    let changes = writer.finish().unwrap();
    (rows_events, changes)
}

#[test]
fn partial_images_of_one_shape_share_an_event() {
    let mut builder = BatchBuilder::new();
    for number in 0..1000 {
        update(&mut builder, number % 100, 1 + (number % 5) as usize, number);
    }
    let batch = builder.take();
    assert_eq!(batch.items.len(), 1);
    // Each row was changed in the same column many times.
    assert_eq!(events_and_changes(&batch), (5, 100));
}

#[test]
fn partial_images_with_too_many_shapes_cut_the_segment() {
    let mut builder = BatchBuilder::new();
    for column in 1..COLUMNS {
        update(&mut builder, column as i32, column, 7);
    }
    let batch = builder.take();
    assert!((2..=3).contains(&batch.items.len()), "{} segments", batch.items.len());
    assert_eq!(events_and_changes(&batch), (100, 100));
}

#[test]
fn row_whose_columns_change_one_by_one_is_one_change() {
    let mut builder = BatchBuilder::new();
    for column in 1..20 {
        update(&mut builder, 1, column, 7);
    }
    assert_eq!(events_and_changes(&builder.take()), (1, 1));
}

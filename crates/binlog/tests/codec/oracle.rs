//! Compares the decoded fixtures with mysql_common, an independent decoder of MySQL's part of the format.
//!
//! The comparison leaves out the parts that mysql_common does not know or decodes wrongly: MariaDB's compressed events
//! and columns, negative times, YEAR 0, and the signs of integers (it does not count YEAR among the columns that have
//! one).

use std::collections::BTreeMap;

use mysql_common::binlog::consts::BinlogVersion;
use mysql_common::binlog::events::EventData;
use mysql_common::binlog::row::BinlogRow;
use mysql_common::binlog::value::BinlogValue;
use mysql_common::binlog::{BinlogFile, events::Event as OracleEvent};
use mysql_common::value::Value;
use spate_binlog::column::ColumnType;
use spate_binlog::value::ShownValue;
use spate_binlog::{EventType, RowsEvent, RowsKind, TableMap};

use crate::events::{Image, Maps, read, rows};
use crate::scenario::fixture;

#[test]
fn rows_equal_those_of_another_decoder() {
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    for name in ["types_full", "types_minimal", "types_noblob", "transactions", "statements", "unchecked"] {
        let file = fixture(name);
        let mut oracle = BinlogFile::new(BinlogVersion::Version4, file.as_slice()).unwrap();
        let mut maps = Maps::default();
        for event in read(&file) {
            let seen = oracle.next().unwrap().unwrap();
            assert_eq!(seen.header().event_type_raw(), event.header.event_type.0);
            assert_eq!(seen.header().log_pos(), event.header.next_position);
            maps.observe(&event);
            if RowsKind::of(event.header.event_type).is_some() {
                let parsed = RowsEvent::parse(event.header.event_type, &event.body).unwrap();
                compare_rows(&oracle, &seen, maps.of(&parsed), &parsed, &mut compared);
            } else if event.header.event_type == EventType::QUERY {
                let query = spate_binlog::QueryEvent::parse(&event.body).unwrap();
                let Some(EventData::QueryEvent(seen)) = seen.read_data().unwrap() else { panic!("not a query") };
                assert_eq!((seen.query_raw(), seen.schema_raw()), (query.statement, query.database));
            }
        }
    }
    // The oracle must have compared something.
    for column_type in
        ["TinyInt", "BigInt", "Decimal", "Float", "Double", "Datetime", "Time", "Timestamp", "Char", "Varchar"]
    {
        assert!(compared.get(column_type).is_some_and(|&count| count > 10), "{column_type}: {compared:?}");
    }
}

fn compare_rows(
    oracle: &BinlogFile<&[u8]>,
    seen: &OracleEvent,
    map: &TableMap,
    parsed: &RowsEvent<'_>,
    compared: &mut BTreeMap<String, usize>,
) {
    // Negative times make it panic, and `temporals` has many.
    if map.columns.iter().any(is_unknown_to_oracle) || map.table == "temporals" {
        return;
    }
    let Some(EventData::RowsEvent(seen)) = seen.read_data().unwrap() else { panic!("not a rows event") };
    let seen_map = oracle.reader().get_tme(map.table_id).unwrap();
    let mut buffer = Vec::new();
    let ours = rows(map, parsed, parsed.images(&mut buffer).unwrap());
    let theirs: Vec<_> = seen.rows(seen_map).collect::<Result<_, _>>().unwrap();
    assert_eq!(ours.len(), theirs.len(), "{}", map.table);
    for (ours, (before, after)) in ours.iter().zip(&theirs) {
        for (ours, theirs) in [(&ours.before, before), (&ours.after, after)] {
            assert_eq!(ours.is_some(), theirs.is_some());
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                compare_images(map, ours, theirs, compared);
            }
        }
    }
}

fn is_unknown_to_oracle(column_type: &ColumnType) -> bool {
    matches!(column_type, ColumnType::VarcharCompressed { .. } | ColumnType::BlobCompressed { .. })
}

fn compare_images(map: &TableMap, ours: &Image<'_>, theirs: &BinlogRow, compared: &mut BTreeMap<String, usize>) {
    assert_eq!(ours.columns.len(), theirs.len());
    for (position, (column, span)) in ours.columns.iter().enumerate() {
        let column_type = map.columns[*column];
        let BinlogValue::Value(theirs) = theirs.as_ref(position).unwrap() else { panic!("no JSON of MySQL's here") };
        assert_eq!(span.is_null, *theirs == Value::NULL, "{}, column {}", map.table, column + 1);
        if !span.is_null && column_type != ColumnType::Year {
            assert_same(column_type, span.value(ours.bytes), theirs);
            let name = format!("{column_type:?}");
            let name = name.split(' ').next().unwrap_or_default().to_owned();
            *compared.entry(name).or_default() += 1;
        }
    }
}

fn assert_same(column_type: ColumnType, bytes: &[u8], theirs: &Value) {
    let shown = ShownValue { column_type, bytes, is_unsigned: false }.to_string();
    let number = |value: i128| value.to_le_bytes()[..bytes.len()].to_vec();
    match (column_type, theirs) {
        (ColumnType::Decimal { .. }, Value::Bytes(text)) => assert_eq!(shown.as_bytes(), text),
        (ColumnType::Timestamp { fraction }, Value::Bytes(text)) => {
            let text = std::str::from_utf8(text).unwrap();
            let (seconds, micros) = text.split_once('.').unwrap_or((text, "000000"));
            let point = if fraction == 0 { "" } else { "." };
            assert_eq!(shown, format!("@{seconds}{point}{}", &micros[..usize::from(fraction)]));
        }
        (_, Value::Bytes(theirs)) => assert_eq!(bytes, theirs),
        (_, Value::Int(theirs)) => assert_eq!(bytes, number(i128::from(*theirs))),
        (_, Value::UInt(theirs)) => assert_eq!(bytes, number(i128::from(*theirs))),
        (_, Value::Float(theirs)) => assert_eq!(bytes, theirs.to_le_bytes()),
        (_, Value::Double(theirs)) => assert_eq!(bytes, theirs.to_le_bytes()),
        (ColumnType::Date, Value::Date(year, month, day, ..)) => {
            assert_eq!(shown, format!("{year:04}-{month:02}-{day:02}"))
        }
        (ColumnType::Datetime { fraction }, Value::Date(year, month, day, hour, minute, second, micros)) => {
            let whole = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
            assert_eq!(shown, whole + &fraction_text(fraction, *micros));
        }
        (ColumnType::Time { fraction }, Value::Time(is_negative, days, hours, minutes, seconds, micros)) => {
            let sign = if *is_negative { "-" } else { "" };
            let hours = days * 24 + u32::from(*hours);
            let whole = format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
            assert_eq!(shown, whole + &fraction_text(fraction, *micros));
        }
        (column_type, theirs) => panic!("{column_type:?}: {theirs:?}"),
    }
}

fn fraction_text(digits: u8, micros: u32) -> String {
    let text = format!(".{micros:06}");
    if digits == 0 { String::new() } else { text[..=usize::from(digits)].to_owned() }
}

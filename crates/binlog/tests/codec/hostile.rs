//! No bytes make the codec panic, and its results for them are consistent.

use std::collections::HashMap;

use proptest::prelude::*;
use spate_binlog::column::ColumnType;
use spate_binlog::query::StatusVariables;
use spate_binlog::value::ShownValue;
use spate_binlog::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, Gtid, GtidPosition, MariaDbGtid, TableMap, compressed,
};

use crate::events::read;
use crate::scenario::{SCENARIOS, fixture};
use crate::walk::{image, parse_body, walk};

fn header(event_type: u8) -> EventHeader {
    let event_type = EventType(event_type);
    EventHeader { timestamp_seconds: 0, event_type, server_id: 1, event_length: 19, next_position: 0, flags: 0 }
}

/// Random bytes, many of them limit values of lengths and counts.
fn edgy_bytes(length_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![any::<u8>(), prop::sample::select(vec![0u8, 1, 2, 4, 8, 0x7f, 0x80, 250, 251, 252, 253, 254, 255])];
    prop::collection::vec(byte, 0..length_max)
}

/// A table map's body of any columns, well-formed.
fn table_map_body() -> impl Strategy<Value = Vec<u8>> {
    let column = prop_oneof![
        prop::sample::select(vec![1u8, 2, 3, 6, 8, 9, 10, 13]).prop_map(|code| (code, vec![])),
        (prop::sample::select(vec![17u8, 18, 19]), 0..=6u8).prop_map(|(code, digits)| (code, vec![digits])),
        (prop::sample::select(vec![140u8, 245, 249, 252, 255]), 1..=4u8).prop_map(|(code, bytes)| (code, vec![bytes])),
        (prop::sample::select(vec![15u8, 141]), any::<u16>())
            .prop_map(|(code, bytes_max)| (code, bytes_max.to_le_bytes().to_vec())),
        (1..=65u8, 0..=38u8).prop_map(|(precision, scale)| (246, vec![precision, scale.min(precision)])),
        (0..=7u8, 1..=7u8).prop_map(|(bits, bytes)| (16, vec![bits, bytes])),
        (any::<u8>()).prop_map(|length| (254, vec![254, length])),
        (1..=2u8).prop_map(|bytes| (254, vec![247, bytes])),
        (1..=8u8).prop_map(|bytes| (254, vec![248, bytes])),
    ];
    prop::collection::vec(column, 1..40).prop_map(|columns| {
        let mut body = b"\x05\0\0\0\0\0\x01\0\x01d\0\x01t\0".to_vec();
        body.push(columns.len() as u8);
        body.extend(columns.iter().map(|(code, _)| code));
        let metadata: Vec<u8> = columns.iter().flat_map(|(_, metadata)| metadata.clone()).collect();
        body.push(metadata.len() as u8);
        body.extend(metadata);
        body.extend(vec![0xff; columns.len().div_ceil(8)]);
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_as_a_file_do_not_panic(bytes in edgy_bytes(400)) {
        walk(&bytes);
    }

    #[test]
    fn any_bytes_as_an_event_body_do_not_panic(event_type in any::<u8>(), bytes in edgy_bytes(200)) {
        parse_body(&header(event_type), &bytes, &mut HashMap::new());
        let _ = (StatusVariables::parse(&bytes), FormatDescription::parse(&bytes), TableMap::parse(&bytes));
        let _ = compressed::decompress(&bytes, &mut Vec::new());
        let _ = ChecksumAlgorithm::Crc32.verified_body(&bytes);
    }

    #[test]
    fn any_bytes_as_rows_do_not_panic(body in table_map_body(), columns in edgy_bytes(6), bytes in edgy_bytes(300)) {
        let map = TableMap::parse(&body).unwrap();
        let mut columns = columns;
        columns.resize(map.columns.len().div_ceil(8), 0xff);
        image(&map, &columns, &bytes);
        image(&map, &vec![0xff; columns.len()], &bytes);
    }

    #[test]
    fn any_value_displays_without_panic(body in table_map_body(), bytes in edgy_bytes(12), is_unsigned in any::<bool>()) {
        for column_type in TableMap::parse(&body).unwrap().columns {
            let _ = ShownValue { column_type, bytes: &bytes, is_unsigned }.to_string();
        }
        for column_type in [ColumnType::TimestampOld, ColumnType::TimeOld, ColumnType::DatetimeOld] {
            let _ = ShownValue { column_type, bytes: &bytes, is_unsigned }.to_string();
        }
    }

    #[test]
    fn damaged_event_of_a_fixture_is_an_error_or_parses(scenario in 0..SCENARIOS.len(), index in any::<prop::sample::Index>(),
                                    damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut file = fixture(SCENARIOS[scenario].name);
        // Damage near one event, and read the whole file from there.
        let events = read(&file);
        let start = events[index.index(events.len())].offset;
        let reach = (file.len() - start).min(200);
        for (at, byte) in damage {
            file[start + at.index(reach)] = byte;
        }
        walk(&file);
    }

    #[test]
    fn gtids_and_positions_parse_as_displayed(gtids in prop::collection::vec(any::<(u32, u32, u64)>(), 0..5), text in ".{0,30}") {
        let mut position = GtidPosition::default();
        for (domain_id, server_id, sequence) in gtids {
            let gtid = Gtid::MariaDb(MariaDbGtid { domain_id, server_id, sequence });
            prop_assert_eq!(gtid.to_string().parse::<Gtid>().unwrap(), gtid);
            position.advance(gtid);
        }
        prop_assert_eq!(&position.to_string().parse::<GtidPosition>().unwrap(), &position);
        let _ = (text.parse::<Gtid>(), text.parse::<GtidPosition>());
    }
}

#[test]
fn every_event_truncated_anywhere_never_panics() {
    for scenario in SCENARIOS {
        let mut maps = HashMap::new();
        for event in read(&fixture(scenario.name)) {
            parse_body(&event.header, &event.body, &mut maps);
            for length in (0..event.body.len()).step_by(1 + event.body.len() / 300) {
                parse_body(&event.header, &event.body[..length], &mut maps.clone());
            }
        }
    }
}

#[test]
fn walk_visits_every_event() {
    for scenario in SCENARIOS {
        let file = fixture(scenario.name);
        assert_eq!(walk(&file), read(&file).len(), "{}", scenario.name);
    }
}

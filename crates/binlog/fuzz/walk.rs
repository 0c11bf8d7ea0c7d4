//! Reads any bytes as a binlog file, through every parser, and checks the invariants that hold for any input.
//!
//! Shared by the property tests, the fuzz target and the long-running example. Checksums are not required to match:
//! damage that a checksum would catch must be survived too.

use std::collections::HashMap;

use spate_binlog::boundary::BoundaryTracker;
use spate_binlog::gtid::mariadb::parse_gtid_list;
use spate_binlog::gtid::mysql::parse_previous_gtids;
use spate_binlog::gtid::{GtidEvent, Xid};
use spate_binlog::json;
use spate_binlog::load::{ExecuteLoadQuery, LoadBlock};
use spate_binlog::query::{QueryEvent, StatusVariables};
use spate_binlog::session::{IntvarEvent, RandEvent, RotateEvent, UserVarEvent, UserVarValue};
use spate_binlog::table_map::bit_is_set;
use spate_binlog::typed::Value;
use spate_binlog::value::{ShownValue, decimal_text};
use spate_binlog::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, ImagePlan, RowsEvent, RowsKind, Span, TableMap,
    compressed,
};

/// A bound on decompressed bytes that keeps runs fast: a damaged length may announce many bytes.
const INFLATED_BYTES_MAX: usize = 1 << 22;

/// Walks the bytes event by event, until an event claims to be longer than the rest. Returns the number of events.
pub(crate) fn walk(file: &[u8]) -> usize {
    let mut rest = file.get(4..).unwrap_or_default();
    let mut checksum = ChecksumAlgorithm::None;
    let mut tracker = BoundaryTracker::default();
    let mut maps = HashMap::new();
    let mut count = 0;
    while let Ok(header) = EventHeader::parse(rest) {
        assert_eq!(header.encode(), rest[..19]);
        let Some((event, tail)) = rest.split_at_checked(header.event_length as usize) else { break };
        if let Ok(format) = FormatDescription::parse(event) {
            let _ = (format.is_mariadb(), format.post_header_length(EventType::QUERY));
            checksum = format.checksum;
        }
        let _ = checksum.verified_body(event);
        if let Ok(body) = checksum.body(event) {
            if tracker.observe(&header, body).is_err() {
                tracker.reset();
            }
            parse_body(&header, body, &mut maps);
        }
        rest = tail;
        count += 1;
    }
    count
}

/// Parses a body as the event that its header says it is.
pub(crate) fn parse_body(header: &EventHeader, body: &[u8], maps: &mut HashMap<u64, TableMap>) {
    let mut buffer = Vec::new();
    match header.event_type {
        EventType::GTID_MARIADB => {
            let _ = GtidEvent::parse_mariadb(header.server_id, body);
            // The name of an XA transaction becomes part of statements, so it must be sound text.
            if let Ok(Some(xid)) = Xid::of_gtid_event(body) {
                assert!(xid.to_string().starts_with("X'"));
            }
        }
        EventType::GTID_LIST => drop(parse_gtid_list(body)),
        EventType::GTID_MYSQL => drop(GtidEvent::parse_mysql(body)),
        EventType::GTID_TAGGED_MYSQL => drop(GtidEvent::parse_mysql_tagged(body)),
        EventType::PREVIOUS_GTIDS => drop(parse_previous_gtids(body)),
        EventType::QUERY => query(QueryEvent::parse(body).ok()),
        EventType::EXECUTE_LOAD_QUERY => load_query(body),
        EventType::BEGIN_LOAD_QUERY | EventType::APPEND_BLOCK | EventType::DELETE_FILE => drop(LoadBlock::parse(body)),
        EventType::QUERY_COMPRESSED => query(compressed::parse_query(body, &mut buffer).ok()),
        EventType::INTVAR => drop(IntvarEvent::parse(body)),
        EventType::RAND => drop(RandEvent::parse(body)),
        EventType::USER_VAR => user_variable(body),
        EventType::ROTATE => drop(RotateEvent::parse(body)),
        EventType::TABLE_MAP => {
            if let Ok(map) = TableMap::parse(body) {
                assert!(map.metadata.primary_key.iter().all(|&column| column < map.columns.len()));
                maps.insert(map.table_id, map);
            }
        }
        other if RowsKind::of(other).is_some() => {
            if let Ok(rows) = RowsEvent::parse(other, body)
                && let Some(map) = maps.get(&rows.table_id)
            {
                walk_rows(map, &rows);
            }
        }
        _ => {}
    }
}

fn query(query: Option<QueryEvent<'_>>) {
    if let Some(query) = query {
        let _ = (query.begins_group(), query.ends_group(), query.statement_text());
        let _ = StatusVariables::parse(query.status);
    }
}

fn load_query(body: &[u8]) {
    query(QueryEvent::parse(body).ok());
    if let Ok(load) = ExecuteLoadQuery::parse(body) {
        // The applier splits the statement at this place.
        let _ = load.query.statement.get(load.file_name.clone()).expect("the name stands in the statement");
    }
}

fn user_variable(body: &[u8]) {
    if let Ok(UserVarEvent { value: UserVarValue::Decimal { precision, scale, bytes }, .. }) = UserVarEvent::parse(body)
    {
        decimal_text(precision, scale, bytes);
    }
}

fn walk_rows(map: &TableMap, rows: &RowsEvent<'_>) {
    let mut buffer = Vec::new();
    let Ok(images) = rows.images(&mut buffer) else { return };
    if images.len() > INFLATED_BYTES_MAX {
        return;
    }
    let mut rest = images;
    while !rest.is_empty() {
        for columns in [rows.columns, rows.columns_after].iter().take(1 + usize::from(rows.kind == RowsKind::Update)) {
            let Some(length) = image(map, columns, rest) else { return };
            rest = &rest[length..];
        }
    }
}

/// Decodes a value, which must agree with its text.
fn typed(shown: &ShownValue<'_>) {
    let Ok(value) = Value::decode(shown.column_type, shown.is_unsigned, shown.bytes) else { return };
    match value {
        Value::Signed(number) => assert_eq!(number.to_string(), shown.to_string()),
        Value::Unsigned(number) if shown.column_type.is_integer() => assert_eq!(number.to_string(), shown.to_string()),
        Value::Decimal(decimal) => {
            let mut text = Vec::new();
            decimal.append_to(&mut text);
            assert_eq!(text, shown.to_string().into_bytes());
        }
        Value::Json(document) => {
            if let Ok(json) = json::text(document) {
                assert!(std::str::from_utf8(&json.text).is_ok() && !json.text.is_empty());
            }
        }
        _ => {}
    }
}

/// Measures an image in several ways, which must agree, and shows its values. `None` if it cannot be measured.
pub(crate) fn image(map: &TableMap, columns: &[u8], bytes: &[u8]) -> Option<usize> {
    let present: Vec<usize> = (0..map.columns.len()).filter(|&index| bit_is_set(columns, index)).collect();
    let plan = ImagePlan::new(map, columns, &[]).ok()?;
    let whole = plan.all_spans(bytes);
    let odd: Vec<usize> = present.iter().copied().skip(1).step_by(2).collect();
    let reversed: Vec<usize> = present.iter().copied().rev().collect();
    for tracked in [&[][..], &odd, &reversed] {
        let plan = ImagePlan::new(map, columns, tracked).expect("tracked columns are present");
        let mut spans = vec![Span::default(); plan.tracked_count()];
        match (&whole, plan.measure(bytes, &mut spans)) {
            (Ok((length, all)), Ok(measured)) => {
                assert_eq!(measured, *length);
                for (span, column) in spans.iter().zip(tracked) {
                    assert_eq!(*span, all[present.binary_search(column).expect("it is present")]);
                }
            }
            (Err(_), Err(_)) => {}
            (whole, measured) => panic!("all_spans says {whole:?}, measure {measured:?}"),
        }
    }
    let (length, spans) = whole.ok()?;
    assert!(length > 0 && length <= bytes.len());
    let mut end = present.len().div_ceil(8);
    for (span, &column) in spans.iter().zip(&present) {
        assert_eq!(span.prefix as usize, end, "fields are contiguous");
        end = span.end as usize;
        let shown = ShownValue {
            column_type: map.columns[column],
            bytes: span.value(bytes),
            is_unsigned: map.is_unsigned(column),
        };
        assert!(!shown.to_string().is_empty());
        typed(&shown);
    }
    assert_eq!(end, length);
    Some(length)
}

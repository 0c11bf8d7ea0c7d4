//! Rows events encoded here, executed by a real server through `BINLOG '…'`.

use std::collections::BTreeMap;
use std::fmt::Write;

use spate_binlog::encode::{
    ColumnBitmap, RowsEventEncoder, RowsLayout, append_event_with_table_id, append_table_map, mark_statement_end,
};
use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::rows::FLAG_STATEMENT_END;
use spate_binlog::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, RowsEvent, RowsKind, RowsVersion, TableMap,
};

use crate::events::{Event, Image, Maps, Row, read, rows};
use crate::mariadb::MariaDb;
use crate::scenario::{DEFAULT_SETTINGS, fixture};

/// The `BINLOG` statements of one session.
struct Session {
    sql: String,
}

impl Session {
    /// Begins with the fixture's format description, announcing `checksum` for the events that follow.
    fn begin(events: &[Event], checksum: ChecksumAlgorithm) -> Session {
        let format = FormatDescription::parse(&events[0].bytes).unwrap();
        let mut session = Session { sql: String::new() };
        session.binlog(&format.encode(7, checksum));
        session
    }

    fn binlog(&mut self, events: &[u8]) {
        writeln!(self.sql, "BINLOG '{}';", base64_simd::STANDARD.encode_to_string(events)).unwrap();
    }
}

/// The columns of a row to replay.
type Project = fn(&TableMap, RowsKind) -> Option<Vec<usize>>;

/// Appends the row's field values of `columns`, under a bitmap of those that are NULL.
fn append_image(output: &mut Vec<u8>, image: &Image<'_>, columns: &[usize]) {
    let start = output.len();
    output.resize(start + columns.len().div_ceil(8), 0);
    for (position, wanted) in columns.iter().enumerate() {
        let (_, span) = image.columns.iter().find(|(column, _)| column == wanted).expect("the column is in the image");
        if span.is_null {
            output[start + position / 8] |= 1 << (position % 8);
        }
        output.extend_from_slice(span.field(image.bytes));
    }
}

/// Appends a rows event with these rows; the before-images hold only `before_columns`, if any are named.
fn append_rows(
    output: &mut Vec<u8>,
    event: &RowsEvent<'_>,
    table_id: u64,
    rows: &[Row<'_>],
    before_columns: Option<&[usize]>,
) -> usize {
    let count = event.column_count;
    let as_logged = |bits: &[u8]| ColumnBitmap { count, bits: bits.to_vec() };
    let (before, after) = match (event.kind, before_columns) {
        (RowsKind::Insert, _) | (_, None) => (as_logged(event.columns), as_logged(event.columns_after)),
        (_, Some(columns)) => (ColumnBitmap::only(count, columns), as_logged(event.columns_after)),
    };
    let flags = event.flags & !FLAG_STATEMENT_END;
    let encoder = RowsEventEncoder::begin(
        output,
        event.kind,
        table_id,
        7,
        flags,
        (&before, &after),
        RowsLayout::Plain(RowsVersion::V1),
    );
    for row in rows {
        if let Some(image) = &row.before {
            let all: Vec<usize> = image.columns.iter().map(|(column, _)| *column).collect();
            append_image(output, image, before_columns.unwrap_or(&all));
        }
        if let Some(image) = &row.after {
            output.extend_from_slice(image.bytes);
        }
    }
    encoder.finish(output)
}

/// Re-encodes every rows event of `events`, each in a statement of its own, under table ids of our own.
fn reencoded(events: &[Event], project: Project) -> String {
    let mut session = Session::begin(events, ChecksumAlgorithm::None);
    let mut maps = Maps::default();
    for (index, event) in events.iter().enumerate() {
        maps.observe(event);
        if RowsKind::of(event.header.event_type).is_none() {
            continue;
        }
        let parsed = RowsEvent::parse(event.header.event_type, &event.body).unwrap();
        let map = maps.of(&parsed);
        let mut buffer = Vec::new();
        let rows = rows(map, &parsed, parsed.images(&mut buffer).unwrap());
        let mut output = Vec::new();
        let table_id = 1000 + index as u64;
        append_table_map(&mut output, &map.body, table_id, 7).unwrap();
        let before = project(map, parsed.kind);
        let offset = append_rows(&mut output, &parsed, table_id, &rows, before.as_deref());
        mark_statement_end(&mut output, offset);
        session.binlog(&output);
    }
    session.sql
}

/// A server with the empty tables of `types.sql`, and the content that they had.
struct Types {
    server: MariaDb,
    tables: Vec<String>,
    checksums: String,
}

impl Types {
    fn start() -> Types {
        let server = MariaDb::start();
        server.run(DEFAULT_SETTINGS);
        server.run(include_str!("../sql/types.sql"));
        let tables = server
            .run("SELECT CONCAT('types.', table_name) FROM information_schema.tables WHERE table_schema = 'types'");
        let mut types = Types { server, tables: tables.lines().map(str::to_owned).collect(), checksums: String::new() };
        types.checksums = types.checksum();
        types
    }

    fn checksum(&self) -> String {
        self.server.run(&format!("CHECKSUM TABLE {} EXTENDED", self.tables.join(", ")))
    }

    fn truncate(&self) {
        for table in &self.tables {
            self.server.run(&format!("TRUNCATE TABLE {table}"));
        }
    }

    fn replay_into_empty_tables(&self, session: &str) {
        self.truncate();
        assert_ne!(self.checksum(), self.checksums);
        self.server.run(&format!("BEGIN; {session} COMMIT;"));
        assert_eq!(self.checksum(), self.checksums);
    }
}

fn as_logged(_: &TableMap, _: RowsKind) -> Option<Vec<usize>> {
    None
}

/// All tables of `types.sql` but two have their first column as primary key.
fn only_the_key(map: &TableMap, _: RowsKind) -> Option<Vec<usize>> {
    match map.table.as_str() {
        "keyless" => None,
        "composites" => Some(vec![0, 1, 2]),
        _ => Some(vec![0]),
    }
}

#[test]
fn logged_events_replay_to_the_same_tables() {
    let types = Types::start();
    for name in ["types_full", "types_minimal", "types_noblob", "types_compressed"] {
        let events = read(&fixture(name));
        types.replay_into_empty_tables(&reencoded(&events, as_logged));
        types.replay_into_empty_tables(&reencoded(&events, only_the_key));
    }
    let events = read(&fixture("types_full"));
    types.replay_into_empty_tables(&verbatim(&events));
    types.replay_into_empty_tables(&in_one_statement(&events, Layout::MapsFirst));
    types.replay_into_empty_tables(&in_one_statement(&events, Layout::Pairs));
    // The server opens the tables whose maps stand before the first rows event. It ignores rows of other tables without
    // an error until the statement ends, so the encoder of a replay must put the maps first.
    types.truncate();
    types.server.run(&in_one_statement(&events, Layout::Mixed));
    let filled = |table: &str| types.server.run(&format!("SELECT COUNT(*) > 0 FROM types.{table}")) == "1\n";
    assert!(filled("integers") && !filled("decimals") && !filled("wides"));
}

/// Copies of the events under other table ids, without their checksums.
fn verbatim(events: &[Event]) -> String {
    let mut session = Session::begin(events, ChecksumAlgorithm::None);
    let mut output = Vec::new();
    for event in events {
        let is_rows = RowsKind::of(event.header.event_type).is_some();
        if is_rows || event.header.event_type == EventType::TABLE_MAP {
            append_event_with_table_id(&mut output, &event.bytes, ChecksumAlgorithm::Crc32, 77).unwrap();
        }
        // A large statement has several rows events for one table map, which only the last of them ends.
        if is_rows && RowsEvent::parse(event.header.event_type, &event.body).unwrap().flags & FLAG_STATEMENT_END != 0 {
            session.binlog(&output);
            output.clear();
        }
    }
    session.sql
}

/// The order of several tables' events in one `BINLOG` statement.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// All table maps, then all rows events, the last of which ends the statement.
    MapsFirst,
    /// Pairs of a table map and a rows event that ends the statement.
    Pairs,
    /// A table map before its first rows event; only the last rows event ends the statement.
    Mixed,
}

/// All rows events of all tables in one `BINLOG` statement, in the order of the log.
fn in_one_statement(events: &[Event], layout: Layout) -> String {
    let mut session = Session::begin(events, ChecksumAlgorithm::None);
    let mut maps = Maps::default();
    let (mut map_bytes, mut row_bytes) = (Vec::new(), Vec::new());
    let mut last_rows = 0;
    let mut table_ids = BTreeMap::new();
    for event in events {
        maps.observe(event);
        if RowsKind::of(event.header.event_type).is_none() {
            continue;
        }
        let parsed = RowsEvent::parse(event.header.event_type, &event.body).unwrap();
        let map = maps.of(&parsed);
        let next_id = 500 + table_ids.len() as u64;
        let is_new = !table_ids.contains_key(&map.table);
        let table_id = *table_ids.entry(map.table.clone()).or_insert(next_id);
        if is_new || layout == Layout::Pairs {
            let output = if layout == Layout::MapsFirst { &mut map_bytes } else { &mut row_bytes };
            append_table_map(output, &map.body, table_id, 7).unwrap();
        }
        let mut buffer = Vec::new();
        let rows = rows(map, &parsed, parsed.images(&mut buffer).unwrap());
        last_rows = append_rows(&mut row_bytes, &parsed, table_id, &rows, None);
        if layout == Layout::Pairs {
            mark_statement_end(&mut row_bytes, last_rows);
        }
    }
    mark_statement_end(&mut row_bytes, last_rows);
    session.binlog(&[map_bytes, row_bytes].concat());
    session.sql
}

/// Encodes changes by hand to tables (id INT, u INT, v VARCHAR(10)), for special cases of replay.
struct Crafted {
    events: Vec<Event>,
    map: TableMap,
}

impl Crafted {
    /// `definition` is that of `d.t`; the table is made, and filled with (1, 11, 'a') and (2, 22, 'b').
    fn start(server: &MariaDb, definition: &str) -> Crafted {
        server.run(&format!("CREATE OR REPLACE DATABASE d; CREATE TABLE d.t ({definition}); FLUSH BINARY LOGS"));
        server.run("INSERT INTO d.t VALUES (1, 11, 'a'), (2, 22, 'b')");
        let events = read(&std::fs::read(server.current_binlog()).unwrap());
        let map = events.iter().find(|event| event.header.event_type == EventType::TABLE_MAP).unwrap();
        let map = TableMap::parse(&map.body).unwrap();
        Crafted { events, map }
    }

    /// A table map and one rows event with these bitmaps and images.
    fn change(&self, kind: RowsKind, before: &[usize], after: &[usize], images: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        append_table_map(&mut output, &self.map.body, 5, 7).unwrap();
        output.extend_from_slice(&self.rows_only(kind, before, after, images));
        output
    }

    fn rows_only(&self, kind: RowsKind, before: &[usize], after: &[usize], images: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        let (before, after) = (ColumnBitmap::only(3, before), ColumnBitmap::only(3, after));
        let encoder = RowsEventEncoder::begin(
            &mut output,
            kind,
            5,
            7,
            FLAG_STATEMENT_END,
            (&before, &after),
            RowsLayout::Plain(RowsVersion::V1),
        );
        output.extend_from_slice(images);
        encoder.finish(&mut output);
        output
    }

    fn replay(&self, server: &MariaDb, output: &[u8]) -> Result<String, String> {
        let mut session = Session::begin(&self.events, ChecksumAlgorithm::None);
        session.binlog(output);
        server.try_run(&session.sql)
    }
}

/// Before-images of one column: `id = 1` and `u = 22`.
const ID_1: &[u8] = &[0, 1, 0, 0, 0];
const U_22: &[u8] = &[0, 22, 0, 0, 0];
/// An after-image of one column: `v = 'z'`.
const V_Z: &[u8] = &[0, 1, b'z'];
const START: &str = "1 11 a;2 22 b;";

fn content(server: &MariaDb) -> String {
    server.run("SELECT id, u, v FROM d.t ORDER BY id").replace('\t', " ").replace('\n', ";")
}

/// A before-image may hold less than the row if the server can find the row by it: by the primary key, or without one
/// by a unique key. Otherwise the server compares whole rows, and finds none that equals a partial image.
#[test]
fn key_only_before_image_finds_row_by_first_unique_key() {
    let server = MariaDb::start();
    for (definition, column, image, updated, deleted) in [
        ("id INT PRIMARY KEY, u INT, v VARCHAR(10)", 0, ID_1, "1 11 z;2 22 b;", "2 22 b;"),
        ("id INT, u INT NOT NULL UNIQUE, v VARCHAR(10)", 1, U_22, "1 11 a;2 22 z;", "1 11 a;"),
        ("id INT, u INT UNIQUE, v VARCHAR(10)", 1, U_22, "1 11 a;2 22 z;", "1 11 a;"),
    ] {
        let crafted = Crafted::start(&server, definition);
        let update = crafted.change(RowsKind::Update, &[column], &[2], &[image, V_Z].concat());
        crafted.replay(&server, &update).unwrap();
        assert_eq!(content(&server), updated, "{definition}");
        crafted.replay(&server, &crafted.change(RowsKind::Delete, &[column], &[], image)).unwrap();
        assert_eq!(content(&server), deleted, "{definition}");
    }
    for definition in [
        "id INT PRIMARY KEY, u INT NOT NULL UNIQUE, v VARCHAR(10)",
        "id INT, u INT, v VARCHAR(10), KEY (u)",
        "id INT, u INT, v VARCHAR(10)",
    ] {
        let crafted = Crafted::start(&server, definition);
        let update = crafted.change(RowsKind::Update, &[1], &[2], &[U_22, V_Z].concat());
        assert!(crafted.replay(&server, &update).unwrap_err().contains("ERROR 1032"), "{definition}");
        let delete = crafted.change(RowsKind::Delete, &[1], &[], U_22);
        assert!(crafted.replay(&server, &delete).unwrap_err().contains("ERROR 1032"), "{definition}");
        assert_eq!(content(&server), START, "{definition}");
    }
}

#[test]
fn replay_that_does_not_fit_fails() {
    let server = MariaDb::start();
    let crafted = Crafted::start(&server, "id INT PRIMARY KEY, u INT, v VARCHAR(10)");
    let fails = |events: &[u8], error: &str| {
        assert!(crafted.replay(&server, events).unwrap_err().contains(error), "{error}");
        assert_eq!(content(&server), START, "{error}");
    };
    fails(&crafted.change(RowsKind::Delete, &[0], &[], &[0, 99, 0, 0, 0]), "ERROR 1032");
    fails(&crafted.change(RowsKind::Insert, &[0], &[], ID_1), "ERROR 1062");
    fails(&crafted.change(RowsKind::Insert, &[0, 1], &[], &[0, 50, 0, 0, 0, 1, 0]), "ERROR 1030");
    let mut without_format = Session { sql: String::new() };
    without_format.binlog(&crafted.change(RowsKind::Delete, &[0], &[], ID_1));
    assert!(server.try_run(&without_format.sql).unwrap_err().contains("ERROR 1609"));
    assert_eq!(content(&server), START);
}

/// Errors that the server does not report, so that Spate must check for them.
#[test]
fn server_replays_encoded_events_without_warnings() {
    let server = MariaDb::start();
    let definition = "id INT PRIMARY KEY, u INT DEFAULT 5, v VARCHAR(10) DEFAULT 'default'";
    let crafted = Crafted::start(&server, definition);

    // Columns that an inserted row's image lacks take their defaults.
    crafted.replay(&server, &crafted.change(RowsKind::Insert, &[0], &[], &[0, 9, 0, 0, 0])).unwrap();
    assert_eq!(content(&server), "1 11 a;2 22 b;9 5 default;");

    // Rows of a table whose map is not in the same statement are ignored.
    crafted.replay(&server, &crafted.rows_only(RowsKind::Delete, &[0], &[], ID_1)).unwrap();
    assert_eq!(content(&server), "1 11 a;2 22 b;9 5 default;");

    // Before-images are not compared beyond the key.
    let wrong_u = &[0, 9, 0, 0, 0, 99, 0, 0, 0];
    crafted.replay(&server, &crafted.change(RowsKind::Delete, &[0, 1], &[], wrong_u)).unwrap();
    assert_eq!(content(&server), START);

    // The server makes room for checksums, but does not verify them.
    let mut session = Session::begin(&crafted.events, ChecksumAlgorithm::Crc32);
    session.binlog(&with_wrong_checksums(&crafted.change(RowsKind::Delete, &[0], &[], ID_1)));
    server.run(&session.sql);
    assert_eq!(content(&server), "2 22 b;");
}

/// Appends a wrong checksum to each event.
fn with_wrong_checksums(events: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    let mut rest = events;
    while !rest.is_empty() {
        let mut header = EventHeader::parse(rest).unwrap();
        let (event, tail) = rest.split_at(header.event_length as usize);
        header.event_length += 4;
        output.extend_from_slice(&header.encode());
        output.extend_from_slice(&event[HEADER_LENGTH..]);
        output.extend_from_slice(b"oops");
        rest = tail;
    }
    output
}

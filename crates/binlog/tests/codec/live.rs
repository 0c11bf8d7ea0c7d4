//! The scenarios on a real server: the rows of its decoded binlog must equal its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use spate_binlog::column::ColumnType;
use spate_binlog::value::ShownValue;
use spate_binlog::{EventType, FormatDescription};

use crate::dump::hex;
use crate::events::{Event, read};
use crate::mariadb::MariaDb;
use crate::mirror::{MirroredTable, Value, assert_boundaries, gtids, mirror};
use crate::scenario::{DEFAULT_SETTINGS, SCENARIOS, Scenario, data_path, fixture, is_updating};

#[test]
fn logged_rows_equal_the_tables() {
    let server = MariaDb::start();
    for scenario in SCENARIOS {
        let (binlog, path) = record(&server, scenario);
        let events = read(&binlog);
        assert_boundaries(&events);
        let printed = gtids_that_mariadb_binlog_prints(&path);
        let decoded: Vec<String> = gtids(&events).iter().map(ToString::to_string).collect();
        assert_eq!(decoded, printed, "{}", scenario.name);
        // Statements change rows without images in the binlog.
        if !scenario.name.starts_with("statements") {
            assert_tables_equal(&server, scenario.name, &events);
        }
        if is_updating() {
            std::fs::write(data_path(&format!("{}.bin", scenario.name)), &binlog).unwrap();
        }
        assert_eq!(event_types(&events), event_types(&read(&fixture(scenario.name))), "{}", scenario.name);
    }
}

#[test]
fn file_in_use_by_its_server_is_read() {
    let server = MariaDb::start();
    server.run("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)");
    let binlog = std::fs::read(server.current_binlog()).unwrap();
    let events = read(&binlog);
    assert_eq!(events[0].header.flags & spate_binlog::header::FLAG_IN_USE, spate_binlog::header::FLAG_IN_USE);
    let server_version = server.run("SELECT @@version");
    assert_eq!(FormatDescription::parse(&events[0].bytes).unwrap().server_version, server_version.trim());
}

/// Runs a scenario in a binlog file of its own; returns the file and its path.
fn record(server: &MariaDb, scenario: &Scenario) -> (Vec<u8>, std::path::PathBuf) {
    server.run(&format!("{DEFAULT_SETTINGS}; {}; FLUSH BINARY LOGS", scenario.settings));
    let path = server.current_binlog();
    let directory = server.path().display().to_string();
    let _ = std::fs::remove_file(server.path().join("load.csv"));
    server.run(&scenario.script.replace("@directory@", &directory));
    std::thread::scope(|scope| {
        for statements in scenario.together {
            scope.spawn(move || server.run(statements));
        }
    });
    server.run(&format!("{DEFAULT_SETTINGS}; FLUSH BINARY LOGS"));
    (std::fs::read(&path).unwrap(), path)
}

fn event_types(events: &[Event]) -> BTreeSet<EventType> {
    events.iter().map(|event| event.header.event_type).collect()
}

fn gtids_that_mariadb_binlog_prints(path: &std::path::Path) -> Vec<String> {
    let output = Command::new("mariadb-binlog").args(["--no-defaults", "--base64-output=never"]).arg(path).output();
    let output = output.expect("mariadb-binlog is not installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let marked = text.lines().filter_map(|line| line.split_once("\tGTID "));
    marked.filter_map(|(_, gtid)| gtid.split_whitespace().next()).map(str::to_owned).collect()
}

/// The rendering of a column that a partial image of an inserted row left to its default.
const ABSENT: &str = "absent";

/// Compares each table that the binlog's rows events changed and that still exists with the server's rows.
fn assert_tables_equal(server: &MariaDb, scenario: &str, events: &[Event]) {
    let columns = table_columns(server);
    let keys: BTreeMap<String, Vec<usize>> = columns
        .iter()
        .map(|(table, columns)| (table.clone(), (0..columns.len()).filter(|&index| columns[index].is_key).collect()))
        .filter(|(_, key): &(String, Vec<usize>)| !key.is_empty())
        .collect();
    let mut compared = 0;
    for (name, table) in mirror(events, &keys) {
        // A sequence is logged as one insert per value reserved, and holds one row.
        let Some(columns) = columns.get(&name).filter(|_| !name.ends_with(".numbers")) else { continue };
        let logged = sorted(table.rows.iter().map(|row| render(&table, columns, row)).collect());
        let mut selected = select(server, &name, &table, columns);
        // Sort rows by their first column, the key, so that the server's rows and the binlog's are in the same order.
        for (logged, selected) in logged.iter().zip(&mut selected) {
            for (selected, _) in selected.iter_mut().zip(logged).filter(|(_, logged)| *logged == ABSENT) {
                *selected = ABSENT.to_owned();
            }
        }
        assert_eq!(logged, selected, "{scenario}, table {name}");
        compared += logged.len();
    }
    assert!(!scenario.starts_with("types") || compared > 30, "{scenario}: {compared} rows compared");
}

struct Column {
    name: String,
    data_type: String,
    is_unsigned: bool,
    is_key: bool,
}

/// The columns of all tables that users made, by `database.table`.
fn table_columns(server: &MariaDb) -> BTreeMap<String, Vec<Column>> {
    let text = server.run(
        "SELECT CONCAT(table_schema, '.', table_name), column_name, data_type, column_type LIKE '%unsigned%',
                column_key = 'PRI'
           FROM information_schema.columns
          WHERE table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
          ORDER BY table_schema, table_name, ordinal_position",
    );
    let mut tables: BTreeMap<String, Vec<Column>> = BTreeMap::new();
    for line in text.lines() {
        let [table, name, data_type, is_unsigned, is_key] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let column = Column {
            name: name.to_owned(),
            data_type: data_type.to_owned(),
            is_unsigned: is_unsigned == "1",
            is_key: is_key == "1",
        };
        tables.entry(table.to_owned()).or_default().push(column);
    }
    tables
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort();
    rows
}

fn select(server: &MariaDb, name: &str, table: &MirroredTable, columns: &[Column]) -> Vec<Vec<String>> {
    let expressions = columns.iter().zip(&table.map.columns).map(|(column, &column_type)| {
        let expression = expression(&column.name, &column.data_type, column_type);
        format!("IFNULL({expression}, 'NULL')")
    });
    let expressions: Vec<String> = expressions.collect();
    let text = server.run(&format!("SET SESSION time_zone = '+00:00'; SELECT {} FROM {name}", expressions.join(", ")));
    let rows = text.lines().map(|line| {
        let values = line.split('\t').zip(columns.iter().zip(&table.map.columns));
        values.map(|(text, (column, &column_type))| normal(text, &column.data_type, column_type)).collect()
    });
    sorted(rows.collect())
}

/// The expression to select, so that its result can be compared with a decoded value.
fn expression(name: &str, data_type: &str, column_type: ColumnType) -> String {
    match column_type {
        _ if data_type.starts_with("inet") => format!("HEX(INET6_ATON(CAST(`{name}` AS CHAR)))"),
        _ if data_type == "uuid" => format!("REPLACE(CAST(`{name}` AS CHAR), '-', '')"),
        ColumnType::Timestamp { .. } => format!("CONCAT('@', UNIX_TIMESTAMP(`{name}`))"),
        ColumnType::Float | ColumnType::Double => format!("CAST(`{name}` AS DOUBLE)"),
        ColumnType::Bit { bits } => format!("CONCAT('b''', LPAD(BIN(`{name}` + 0), {bits}, '0'), '''')"),
        ColumnType::Enum { .. } | ColumnType::Set { .. } => format!("CAST(`{name}` AS UNSIGNED)"),
        column_type if column_type.is_integer() => format!("`{name}` + 0"),
        column_type if is_bytes(column_type) => format!("HEX(`{name}`)"),
        _ => format!("CAST(`{name}` AS CHAR)"),
    }
}

/// Converts a value printed by the server to the rendering of decoded values.
fn normal(text: &str, data_type: &str, column_type: ColumnType) -> String {
    match column_type {
        _ if text == "NULL" => text.to_owned(),
        ColumnType::Float | ColumnType::Double => text.parse::<f64>().unwrap().to_string(),
        // The images of fixed-length binary types lack trailing zeros.
        ColumnType::Char { .. } if is_fixed_binary(data_type) => without_trailing_zeros(text.to_lowercase()),
        column_type if is_bytes(column_type) => text.to_lowercase(),
        _ => text.to_owned(),
    }
}

fn render(table: &MirroredTable, columns: &[Column], row: &[Value]) -> Vec<String> {
    let values = row.iter().zip(columns).zip(&table.map.columns).enumerate();
    let rendered = values.map(|(index, ((value, column), &column_type))| {
        if !table.map.metadata.unsigned.is_empty() && column_type.is_integer() {
            assert_eq!(table.map.is_unsigned(index), column.is_unsigned, "sign of {}.{}", table.map.table, column.name);
        }
        let bytes = match value {
            Value::Absent => return ABSENT.to_owned(),
            Value::Null => return "NULL".to_owned(),
            Value::Bytes(bytes) => bytes.as_slice(),
        };
        let shown = ShownValue { column_type, bytes, is_unsigned: column.is_unsigned };
        match column_type {
            ColumnType::Char { .. } if is_fixed_binary(&column.data_type) => without_trailing_zeros(hex(bytes)),
            ColumnType::Float => f64::from(shown.to_string().parse::<f32>().unwrap()).to_string(),
            ColumnType::Double => shown.to_string().parse::<f64>().unwrap().to_string(),
            ColumnType::VarcharCompressed { .. } | ColumnType::BlobCompressed { .. } => hex(&decompressed(bytes)),
            column_type if is_bytes(column_type) => hex(bytes),
            _ => shown.to_string(),
        }
    });
    rendered.collect()
}

fn is_bytes(column_type: ColumnType) -> bool {
    matches!(
        column_type,
        ColumnType::Varchar { .. }
            | ColumnType::VarcharCompressed { .. }
            | ColumnType::Char { .. }
            | ColumnType::Blob { .. }
            | ColumnType::BlobCompressed { .. }
            | ColumnType::Geometry { .. }
    )
}

fn is_fixed_binary(data_type: &str) -> bool {
    matches!(data_type, "binary" | "uuid" | "inet4" | "inet6")
}

fn without_trailing_zeros(hex: String) -> String {
    let mut bytes = hex.as_str();
    while let Some(shorter) = bytes.strip_suffix("00") {
        bytes = shorter;
    }
    bytes.to_owned()
}

/// A `COMPRESSED` column's value: a byte that says how many bytes of plain length follow, then a deflate stream; the
/// byte zero begins a value that was too short to compress.
fn decompressed(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let Some((&first, rest)) = bytes.split_first() else { return Vec::new() };
    if first == 0 {
        return rest.to_vec();
    }
    let mut plain = Vec::new();
    flate2::read::DeflateDecoder::new(&rest[usize::from(first & 7)..]).read_to_end(&mut plain).unwrap();
    plain
}

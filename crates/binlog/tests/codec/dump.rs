//! Renders a binlog file as text: a line for each event, indented lines for its rows.

use std::collections::HashSet;
use std::fmt::Write;

use spate_binlog::gtid::mariadb::parse_gtid_list;
use spate_binlog::query::StatusVariables;
use spate_binlog::session::{IntvarEvent, RandEvent, RotateEvent, UserVarEvent};
use spate_binlog::value::ShownValue;
use spate_binlog::{EventType, FormatDescription, GtidEvent, QueryEvent, RowsEvent, RowsKind, TableMap, compressed};

use crate::events::{Event, Image, Maps, read, rows};

/// Renders the whole file.
pub(crate) fn dump(file: &[u8]) -> String {
    let mut text = String::new();
    let mut maps = Maps::default();
    let mut described = HashSet::new();
    for event in read(file) {
        maps.observe(&event);
        let header = &event.header;
        let mut line = format!("{} {}", event.offset, header.event_type);
        write!(line, " server={} flags={:#x} {:?}", header.server_id, header.flags, event.boundary).unwrap();
        let is_known_map = header.event_type == EventType::TABLE_MAP && !described.insert(event.body.clone());
        let details = if is_known_map { "as before".to_owned() } else { details(&event, &maps) };
        if !details.is_empty() {
            write!(line, ": {details}").unwrap();
        }
        text += &line;
        text.push('\n');
        if let Some(kind) = RowsKind::of(header.event_type) {
            text += &dump_rows(&event, kind, &maps);
        }
    }
    text
}

fn details(event: &Event, maps: &Maps) -> String {
    let body = &event.body;
    match event.header.event_type {
        EventType::FORMAT_DESCRIPTION => {
            let format = FormatDescription::parse(&event.bytes).unwrap();
            format!("{} checksum={:?} lengths={:?}", format.server_version, format.checksum, format.post_header_lengths)
        }
        EventType::GTID_MARIADB => gtid(&GtidEvent::parse_mariadb(event.header.server_id, body).unwrap()),
        EventType::GTID_LIST => parse_gtid_list(body).unwrap().to_string(),
        EventType::QUERY => query(&QueryEvent::parse(body).unwrap()),
        EventType::QUERY_COMPRESSED => {
            let mut buffer = Vec::new();
            query(&compressed::parse_query(body, &mut buffer).unwrap())
        }
        EventType::INTVAR => format!("{:?}", IntvarEvent::parse(body).unwrap()),
        EventType::RAND => format!("{:?}", RandEvent::parse(body).unwrap()),
        EventType::USER_VAR => {
            let variable = UserVarEvent::parse(body).unwrap();
            let type_name = variable.type_name.map(lossy);
            format!("@{} = {:?} {type_name:?}", lossy(variable.name), variable.value)
        }
        EventType::ROTATE => format!("{:?}", RotateEvent::parse(body).unwrap()),
        EventType::ANNOTATE_ROWS => escaped(body),
        EventType::TABLE_MAP => table_map(&TableMap::parse(body).unwrap()),
        other if RowsKind::of(other).is_some() => {
            let rows = RowsEvent::parse(other, body).unwrap();
            let table = maps.of(&rows);
            format!(
                "{}.{} flags={:#x} columns={} after={}",
                table.schema,
                table.table,
                rows.flags,
                hex(rows.columns),
                hex(rows.columns_after)
            )
        }
        _ => hex(body),
    }
}

fn gtid(event: &GtidEvent) -> String {
    let mut text = format!("{} flags={:#04x} extra={:#04x}", event.gtid, event.flags, event.extra_flags);
    if let Some(commit_id) = event.commit_id {
        write!(text, " commit_id={commit_id}").unwrap();
    }
    text
}

fn query(query: &QueryEvent<'_>) -> String {
    let StatusVariables {
        flags2,
        sql_mode,
        auto_increment,
        charset,
        time_zone,
        lc_time_names,
        charset_database,
        invoker,
        microseconds,
        flags3,
        two_phase_alter_start,
        charset_collations,
        explicit_defaults_for_timestamp,
        default_collation_for_utf8mb4,
        sql_require_primary_key,
        default_table_encryption,
        enable_cascade_triggers,
    } = StatusVariables::parse(query.status).unwrap();
    let mut text = format!("[{}]", lossy(query.database));
    let mut show = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(text, " {name}={value}").unwrap();
        }
    };
    show("error", (query.error_code != 0).then(|| query.error_code.to_string()));
    show("flags2", flags2.map(|flags| format!("{flags:#x}")));
    show("sql_mode", sql_mode.map(|mode| format!("{mode:#x}")));
    show("auto_increment", auto_increment.map(|pair| format!("{pair:?}")));
    show("charset", charset.map(|triple| format!("{triple:?}")));
    show("time_zone", time_zone.as_deref().map(lossy));
    show("lc_time_names", lc_time_names.map(|number| number.to_string()));
    show("charset_database", charset_database.map(|id| id.to_string()));
    show("invoker", invoker.map(|(user, host)| format!("{}@{}", lossy(&user), lossy(&host))));
    show("microseconds", microseconds.map(|count| count.to_string()));
    show("flags3", flags3.map(|flags| format!("{flags:#x}")));
    show("alter_start", two_phase_alter_start.map(|sequence| sequence.to_string()));
    show("charset_collations", charset_collations.map(|pairs| hex(&pairs)));
    show("explicit_defaults_for_timestamp", explicit_defaults_for_timestamp.map(|is_on| is_on.to_string()));
    show("default_collation_for_utf8mb4", default_collation_for_utf8mb4.map(|id| id.to_string()));
    show("sql_require_primary_key", sql_require_primary_key.map(|is_on| is_on.to_string()));
    show("default_table_encryption", default_table_encryption.map(|is_on| is_on.to_string()));
    show("enable_cascade_triggers", enable_cascade_triggers.filter(|is_on| *is_on).map(|is_on| is_on.to_string()));
    write!(text, " {}", escaped(query.statement)).unwrap();
    text
}

fn table_map(table: &TableMap) -> String {
    let mut text = format!("{}.{}", table.schema, table.table);
    for (index, column) in table.columns.iter().enumerate() {
        let null = if table.is_nullable(index) { "" } else { " NOT NULL" };
        let unsigned = if table.is_unsigned(index) { " UNSIGNED" } else { "" };
        let name = table.metadata.column_names.get(index).map(String::as_str).unwrap_or_default();
        write!(text, "\n    {} {name} {column:?}{unsigned}{null}", index + 1).unwrap();
    }
    if !table.metadata.primary_key.is_empty() {
        write!(text, "\n    primary key {:?}", table.metadata.primary_key).unwrap();
    }
    if let Some(index) = table.unmeasurable_column() {
        write!(text, "\n    column {} cannot be measured", index + 1).unwrap();
    }
    text
}

fn dump_rows(event: &Event, kind: RowsKind, maps: &Maps) -> String {
    let parsed = RowsEvent::parse(event.header.event_type, &event.body).unwrap();
    let table = maps.of(&parsed);
    let mut buffer = Vec::new();
    let images = parsed.images(&mut buffer).unwrap();
    if table.unmeasurable_column().is_some() {
        return format!("    {kind:?} {}\n", hex(images));
    }
    let mut text = String::new();
    for row in rows(table, &parsed, images) {
        for (sign, image) in [('-', row.before), ('+', row.after)] {
            if let Some(image) = image {
                writeln!(text, "  {sign} {}", shown_image(table, &image)).unwrap();
            }
        }
    }
    text
}

fn shown_image(table: &TableMap, image: &Image<'_>) -> String {
    let shown = image.columns.iter().map(|&(index, span)| {
        let column_type = table.columns[index];
        if span.is_null {
            return format!("{}=NULL", index + 1);
        }
        let value = ShownValue { column_type, bytes: span.value(image.bytes), is_unsigned: table.is_unsigned(index) };
        format!("{}={value}", index + 1)
    });
    shown.collect::<Vec<_>>().join(" ")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Renders a text on one line, and truncates a long one.
fn escaped(bytes: &[u8]) -> String {
    let text = lossy(bytes).replace('\n', "\\n");
    match text.char_indices().nth(500) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], bytes.len()),
        None => text,
    }
}

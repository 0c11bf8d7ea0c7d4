//! Reads a whole binlog file as events, and its rows events as rows.

use std::collections::HashMap;

use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::{
    Boundary, BoundaryTracker, EventHeader, EventType, FILE_MAGIC, FormatDescription, ImagePlan, RowsEvent, RowsKind,
    Span, TableMap,
};

/// An event of a file whose checksums were verified.
pub(crate) struct Event {
    pub(crate) offset: usize,
    pub(crate) header: EventHeader,
    /// Header to checksum.
    pub(crate) bytes: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) boundary: Boundary,
}

/// Reads a whole file: every checksum must match, and every transaction must have its boundaries.
pub(crate) fn read(file: &[u8]) -> Vec<Event> {
    assert_eq!(file[..4], FILE_MAGIC);
    let mut format: Option<FormatDescription> = None;
    let mut tracker = BoundaryTracker::default();
    let mut events = Vec::new();
    let mut offset = FILE_MAGIC.len();
    while offset < file.len() {
        let header = EventHeader::parse(&file[offset..]).unwrap();
        let end = offset + header.event_length as usize;
        assert_eq!(header.next_position as usize, end, "the next event's offset in the event at {offset}");
        let bytes = file[offset..end].to_vec();
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            format = Some(FormatDescription::parse(&bytes).unwrap());
        }
        let checksum = format.as_ref().expect("a format description comes first").checksum;
        let body = match header.event_type {
            EventType::FORMAT_DESCRIPTION => bytes[HEADER_LENGTH..].to_vec(),
            _ => checksum.verified_body(&bytes).unwrap().to_vec(),
        };
        let boundary = tracker.observe(&header, &body).unwrap();
        events.push(Event { offset, header, bytes, body, boundary });
        offset = end;
    }
    assert!(!tracker.in_transaction(), "the file ends inside a transaction");
    events
}

/// One row of a rows event, as offsets into `images`.
pub(crate) struct Row<'a> {
    pub(crate) before: Option<Image<'a>>,
    pub(crate) after: Option<Image<'a>>,
}

/// A row image and the columns in it.
pub(crate) struct Image<'a> {
    pub(crate) bytes: &'a [u8],
    /// Index of each present column with its span.
    pub(crate) columns: Vec<(usize, Span)>,
}

impl<'a> Image<'a> {
    /// The value of a present column that is not NULL.
    pub(crate) fn value(&self, column: usize) -> Option<&'a [u8]> {
        let (_, span) = self.columns.iter().find(|(index, _)| *index == column)?;
        (!span.is_null).then(|| span.value(self.bytes))
    }
}

/// The rows of an event. Every byte of the images must belong to a row.
pub(crate) fn rows<'a>(table: &TableMap, event: &RowsEvent<'_>, images: &'a [u8]) -> Vec<Row<'a>> {
    assert_eq!(event.column_count, table.columns.len());
    let plan = ImagePlan::new(table, event.columns, &[]).unwrap();
    let plan_after = ImagePlan::new(table, event.columns_after, &[]).unwrap();
    let mut rest = images;
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let first = Some(take_image(table, &plan, event.columns, &mut rest));
        rows.push(match event.kind {
            RowsKind::Insert => Row { before: None, after: first },
            RowsKind::Delete => Row { before: first, after: None },
            RowsKind::Update => {
                let after = Some(take_image(table, &plan_after, event.columns_after, &mut rest));
                Row { before: first, after }
            }
        });
    }
    rows
}

fn take_image<'a>(table: &TableMap, plan: &ImagePlan, present: &[u8], rest: &mut &'a [u8]) -> Image<'a> {
    let (length, spans) = plan.all_spans(rest).unwrap();
    assert_eq!(plan.measure(rest, &mut []).unwrap(), length);
    let (bytes, tail) = rest.split_at(length);
    *rest = tail;
    let indexes = (0..table.columns.len()).filter(|&index| spate_binlog::table_map::bit_is_set(present, index));
    Image { bytes, columns: indexes.zip(spans).collect() }
}

/// The table maps in force while a file is read.
#[derive(Default)]
pub(crate) struct Maps {
    by_id: HashMap<u64, TableMap>,
}

impl Maps {
    pub(crate) fn observe(&mut self, event: &Event) {
        if event.header.event_type == EventType::TABLE_MAP {
            let map = TableMap::parse(&event.body).unwrap();
            self.by_id.insert(map.table_id, map);
        }
    }

    pub(crate) fn of(&self, event: &RowsEvent<'_>) -> &TableMap {
        &self.by_id[&event.table_id]
    }
}

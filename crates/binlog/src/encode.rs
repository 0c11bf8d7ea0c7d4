//! Encodes table maps and rows events for replay through `BINLOG '…'`.
//!
//! The format description of the replay session announces no checksums, so none is computed. Rows events have the
//! version that the replica's vendor writes itself.

use crate::header::{EventHeader, EventType, HEADER_LENGTH};
use crate::rows::{FLAG_STATEMENT_END, RowsKind, RowsVersion};
use crate::{ChecksumAlgorithm, Error, Result};

/// Offset of a rows event's flags from the event's start.
const ROWS_FLAGS_OFFSET: usize = HEADER_LENGTH + 6;
/// Offset of the length field in an event header.
const LENGTH_OFFSET: usize = 9;

/// Extra data begins with its length, which counts itself.
const NO_EXTRA_DATA: u16 = 2;

/// How the rows of an event are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsLayout {
    /// Images, one after the other.
    Plain(RowsVersion),
    /// MySQL's updates whose JSON columns may hold only the changes.
    PartialJson,
}

impl RowsLayout {
    fn event_type(self, kind: RowsKind) -> EventType {
        match (self, kind) {
            (RowsLayout::PartialJson, _) => EventType::PARTIAL_UPDATE_ROWS,
            (RowsLayout::Plain(RowsVersion::V1), RowsKind::Insert) => EventType::WRITE_ROWS_V1,
            (RowsLayout::Plain(RowsVersion::V1), RowsKind::Update) => EventType::UPDATE_ROWS_V1,
            (RowsLayout::Plain(RowsVersion::V1), RowsKind::Delete) => EventType::DELETE_ROWS_V1,
            (RowsLayout::Plain(RowsVersion::V2), RowsKind::Insert) => EventType::WRITE_ROWS_V2,
            (RowsLayout::Plain(RowsVersion::V2), RowsKind::Update) => EventType::UPDATE_ROWS_V2,
            (RowsLayout::Plain(RowsVersion::V2), RowsKind::Delete) => EventType::DELETE_ROWS_V2,
        }
    }
}

/// The set of columns that the images of an event hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnBitmap {
    /// Number of columns of the table.
    pub count: usize,
    /// A bit per column, least significant first.
    pub bits: Vec<u8>,
}

impl ColumnBitmap {
    /// The set of all `count` columns.
    pub fn all(count: usize) -> ColumnBitmap {
        let columns: Vec<usize> = (0..count).collect();
        ColumnBitmap::only(count, &columns)
    }

    /// The set of the columns with these indexes, of `count` columns.
    pub fn only(count: usize, columns: &[usize]) -> ColumnBitmap {
        let mut bits = vec![0; count.div_ceil(8)];
        for &column in columns {
            bits[column / 8] |= 1 << (column % 8);
        }
        ColumnBitmap { count, bits }
    }
}

/// Appends a table map event with `table_id` in place of the id in `body`.
///
/// # Errors
/// [`Error::Truncated`] if `body` is too short to be a table map's.
pub fn append_table_map(output: &mut Vec<u8>, body: &[u8], table_id: u64, server_id: u32) -> Result<()> {
    let Some(rest) = body.get(6..) else {
        return Err(Error::Truncated { what: "Table_map event", needed: 6, available: body.len() });
    };
    let start = append_header(output, EventType::TABLE_MAP, server_id);
    output.extend_from_slice(&table_id.to_le_bytes()[..6]);
    output.extend_from_slice(rest);
    finish(output, start);
    Ok(())
}

/// Appends a copy of a source's event without its checksum, and with `table_id` in place of its own.
///
/// # Errors
/// [`Error::Truncated`] if the event is too short.
pub fn append_event_with_table_id(
    output: &mut Vec<u8>,
    event: &[u8],
    checksum: ChecksumAlgorithm,
    table_id: u64,
) -> Result<()> {
    let header = EventHeader::parse(event)?;
    let body = checksum.body(event)?;
    let Some(rest) = body.get(6..) else {
        return Err(Error::Truncated { what: "rows event", needed: 6, available: body.len() });
    };
    let start = output.len();
    output.extend_from_slice(&header.encode());
    output.extend_from_slice(&table_id.to_le_bytes()[..6]);
    output.extend_from_slice(rest);
    finish(output, start);
    Ok(())
}

/// Appends a rows event to a buffer: begin it, add images, finish it.
#[derive(Debug)]
pub struct RowsEventEncoder {
    start: usize,
}

impl RowsEventEncoder {
    /// Begins an event at the end of `output`. Updates take the bitmaps of their before- and after-images.
    pub fn begin(
        output: &mut Vec<u8>,
        kind: RowsKind,
        table_id: u64,
        server_id: u32,
        flags: u16,
        (columns, columns_after): (&ColumnBitmap, &ColumnBitmap),
        layout: RowsLayout,
    ) -> RowsEventEncoder {
        let start = append_header(output, layout.event_type(kind), server_id);
        output.extend_from_slice(&table_id.to_le_bytes()[..6]);
        output.extend_from_slice(&flags.to_le_bytes());
        if layout != RowsLayout::Plain(RowsVersion::V1) {
            output.extend_from_slice(&NO_EXTRA_DATA.to_le_bytes());
        }
        append_length_encoded(output, columns.count);
        output.extend_from_slice(&columns.bits);
        if kind == RowsKind::Update {
            output.extend_from_slice(&columns_after.bits);
        }
        RowsEventEncoder { start }
    }

    /// Finishes the event; returns its offset in `output`.
    pub fn finish(self, output: &mut [u8]) -> usize {
        finish(output, self.start);
        self.start
    }
}

/// Sets the time of the event at `offset`, in seconds since 1970: the server takes it as the current time while it
/// executes the event.
pub fn set_timestamp(output: &mut [u8], offset: usize, seconds: u32) {
    output[offset..offset + size_of::<u32>()].copy_from_slice(&seconds.to_le_bytes());
}

/// Marks the rows event at `offset` as the last one of its statement.
pub fn mark_statement_end(output: &mut [u8], offset: usize) {
    output[offset + ROWS_FLAGS_OFFSET] |= FLAG_STATEMENT_END as u8;
}

fn append_header(output: &mut Vec<u8>, event_type: EventType, server_id: u32) -> usize {
    let start = output.len();
    let header = EventHeader {
        timestamp_seconds: 0,
        event_type,
        server_id,
        event_length: HEADER_LENGTH as u32,
        next_position: 0,
        flags: 0,
    };
    output.extend_from_slice(&header.encode());
    start
}

fn finish(output: &mut [u8], start: usize) {
    let length = (output.len() - start) as u32;
    output[start + LENGTH_OFFSET..start + LENGTH_OFFSET + 4].copy_from_slice(&length.to_le_bytes());
}

fn append_length_encoded(output: &mut Vec<u8>, value: usize) {
    if value <= 250 {
        output.push(value as u8);
    } else {
        output.push(252);
        output.extend_from_slice(&(value as u16).to_le_bytes());
    }
}

//! Rows events: the rows that were inserted into, updated in or deleted from a table.

use crate::compressed;
use crate::cursor::Cursor;
use crate::header::EventType;
use crate::table_map::{bit_is_set, names_no_column};
use crate::{Error, FormatDescription, Result};

/// The layout of rows events, which decides the numbers of their types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowsVersion {
    /// Without room for extra data, as MariaDB writes them.
    V1,
    /// With room for extra data, as MySQL writes them.
    V2,
}

impl RowsVersion {
    /// The version that the server with this format description writes and replays.
    pub fn of(format: &FormatDescription) -> RowsVersion {
        if format.is_mariadb() { RowsVersion::V1 } else { RowsVersion::V2 }
    }
}

/// The kind of change of a rows event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowsKind {
    /// Each row is an after-image.
    Insert,
    /// Each row is a before-image and an after-image.
    Update,
    /// Each row is a before-image.
    Delete,
}

/// The last rows event of a statement.
pub const FLAG_STATEMENT_END: u16 = 0x01;
/// `foreign_key_checks` was off on the source.
pub const FLAG_NO_FOREIGN_KEY_CHECKS: u16 = 0x02;
/// `unique_checks` was off on the source.
pub const FLAG_RELAXED_UNIQUE_CHECKS: u16 = 0x04;
/// The images hold all columns of the table.
pub const FLAG_COMPLETE_ROWS: u16 = 0x08;
/// MySQL since 9.6: the binlog also has the changes that foreign keys make to other rows.
pub const FLAG_CASCADES_LOGGED: u16 = 0x10;
/// MariaDB: CHECK constraints were off on the source.
pub const FLAG_NO_CHECK_CONSTRAINT_CHECKS: u16 = 0x80;

/// A rows event, borrowed from its body.
#[derive(Debug, Clone, Copy)]
pub struct RowsEvent<'a> {
    /// Insert, update or delete.
    pub kind: RowsKind,
    /// The table map that describes the rows.
    pub table_id: u64,
    /// `FLAG_…` bits.
    pub flags: u16,
    /// Number of columns of the table.
    pub column_count: usize,
    /// A bit per column: is it in the first image of a row (the before-image, or an insert's after-image)?
    pub columns: &'a [u8],
    /// For updates, the same for the after-image; else equal to `columns`.
    pub columns_after: &'a [u8],
    /// The images, one after the other; compressed if `is_compressed`.
    rows: &'a [u8],
    is_compressed: bool,
    /// True on MySQL if a bitmap before each after-image names its JSON columns that hold only the changes.
    pub has_partial_json: bool,
}

impl RowsKind {
    /// The kind of change of a rows event of this type, or `None` if the type is not a rows event known here.
    pub fn of(event_type: EventType) -> Option<RowsKind> {
        layout(event_type).map(|layout| layout.kind)
    }
}

/// The three properties of a rows event's body that its type decides.
struct Layout {
    kind: RowsKind,
    has_extra_data: bool,
    is_compressed: bool,
}

fn layout(event_type: EventType) -> Option<Layout> {
    use RowsKind::{Delete, Insert, Update};
    let (kind, has_extra_data, is_compressed) = match event_type {
        EventType::WRITE_ROWS_V1 => (Insert, false, false),
        EventType::UPDATE_ROWS_V1 => (Update, false, false),
        EventType::DELETE_ROWS_V1 => (Delete, false, false),
        EventType::WRITE_ROWS_V2 => (Insert, true, false),
        EventType::UPDATE_ROWS_V2 | EventType::PARTIAL_UPDATE_ROWS => (Update, true, false),
        EventType::DELETE_ROWS_V2 => (Delete, true, false),
        EventType::WRITE_ROWS_COMPRESSED_V1 => (Insert, false, true),
        EventType::UPDATE_ROWS_COMPRESSED_V1 => (Update, false, true),
        EventType::DELETE_ROWS_COMPRESSED_V1 => (Delete, false, true),
        EventType::WRITE_ROWS_COMPRESSED => (Insert, true, true),
        EventType::UPDATE_ROWS_COMPRESSED => (Update, true, true),
        EventType::DELETE_ROWS_COMPRESSED => (Delete, true, true),
        _ => return None,
    };
    Some(Layout { kind, has_extra_data, is_compressed })
}

impl<'a> RowsEvent<'a> {
    /// Parses the body of an event of type `event_type`.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Malformed`], or [`Error::Unsupported`] if the type is not a rows event.
    pub fn parse(event_type: EventType, body: &'a [u8]) -> Result<RowsEvent<'a>> {
        let Some(layout) = layout(event_type) else {
            return Err(Error::unsupported("rows event", event_type.to_string()));
        };
        let mut cursor = Cursor::new(body, "rows event");
        let table_id = cursor.u48()?;
        let flags = cursor.u16()?;
        if layout.has_extra_data {
            let length = usize::from(cursor.u16()?);
            let Some(extra) = length.checked_sub(2) else {
                return Err(Error::malformed("rows event", format!("extra data of {length} bytes")));
            };
            cursor.take(extra)?;
        }
        let column_count = cursor.length_encoded_count()?;
        let bitmap_length = column_count.div_ceil(8);
        let columns = cursor.take(bitmap_length)?;
        let columns_after = if layout.kind == RowsKind::Update { cursor.take(bitmap_length)? } else { columns };
        Ok(RowsEvent {
            kind: layout.kind,
            table_id,
            flags,
            column_count,
            columns,
            columns_after,
            rows: cursor.rest(),
            is_compressed: layout.is_compressed,
            has_partial_json: event_type == EventType::PARTIAL_UPDATE_ROWS,
        })
    }

    /// True if every image holds every column whole.
    pub fn has_full_images(&self) -> bool {
        !self.has_partial_json
            && (0..self.column_count)
                .all(|index| bit_is_set(self.columns, index) && bit_is_set(self.columns_after, index))
    }

    /// True for one insert whose image holds no column, and so no byte. MySQL logs a row that has only defaults in this
    /// way, with `binlog_row_image=MINIMAL`.
    pub fn is_row_of_defaults(&self) -> bool {
        self.kind == RowsKind::Insert && self.rows.is_empty() && names_no_column(self.columns, self.column_count)
    }

    /// The images, one after the other; decompressed into `buffer` if the event is compressed.
    ///
    /// # Errors
    /// [`Error::Malformed`] if they do not decompress, [`Error::Unsupported`] for an unknown compression.
    pub fn images<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]>
    where
        'a: 'b,
    {
        if !self.is_compressed {
            return Ok(self.rows);
        }
        compressed::decompress(self.rows, buffer)?;
        Ok(buffer)
    }
}

/// Reads the options before the after-image at the start of `bytes`, in an event with [`RowsEvent::has_partial_json`],
/// of a table with this many JSON columns. With the only known option, a bit per JSON column follows. Returns the
/// length of all this in bytes, and the bits of the columns that hold only the changes; no bits if none does.
///
/// # Errors
/// [`Error::Truncated`]; [`Error::Unsupported`] for unknown options.
pub fn partial_json_prefix(bytes: &[u8], json_columns: usize) -> Result<(usize, &[u8])> {
    const HAS_PARTIAL_JSON: u64 = 1;
    let mut cursor = Cursor::new(bytes, "partial update");
    let options = cursor.length_encoded()?;
    if options & !HAS_PARTIAL_JSON != 0 {
        return Err(Error::unsupported("options of a partial update", format!("{options:#x}")));
    }
    let mut partial: &[u8] = &[];
    if options & HAS_PARTIAL_JSON != 0 {
        let bits = cursor.take(json_columns.div_ceil(8))?;
        if bits.iter().any(|&byte| byte != 0) {
            partial = bits;
        }
    }
    Ok((bytes.len() - cursor.left(), partial))
}

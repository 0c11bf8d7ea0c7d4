//! Table map events: the name and column types of the table that the next rows events change.

use crate::column::ColumnType;
use crate::cursor::Cursor;
use crate::{Error, Result};

const WHAT: &str = "Table_map event";

/// More columns than this no server allows (4,096 in both vendors).
const COLUMNS_MAX: usize = 4096;

/// A parsed table map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMap {
    /// The id that rows events refer to; valid until the next map of the same id.
    pub table_id: u64,
    /// The schema (database).
    pub schema: String,
    /// The table.
    pub table: String,
    /// Type of each column, in the table's order.
    pub columns: Vec<ColumnType>,
    /// A bit per column, least significant first: may it be NULL?
    pub nullable: Vec<u8>,
    /// What `binlog_row_metadata` added.
    pub metadata: OptionalMetadata,
    /// The event's body, for replaying it under another id.
    pub body: Vec<u8>,
}

/// What a source with `binlog_row_metadata=MINIMAL` or `FULL` says beyond types. Empty vectors: not said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionalMetadata {
    /// For each numeric column in order: is it unsigned?
    pub unsigned: Vec<bool>,
    /// The columns' names.
    pub column_names: Vec<String>,
    /// Indexes of the primary key's columns, in key order.
    pub primary_key: Vec<usize>,
}

/// The table id at the start of a table map's or rows event's body.
///
/// # Errors
/// [`Error::Truncated`].
pub fn table_id(body: &[u8]) -> Result<u64> {
    Cursor::new(body, "table id").u48()
}

impl TableMap {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Malformed`], or [`Error::Unsupported`] for an unknown column type.
    pub fn parse(body: &[u8]) -> Result<TableMap> {
        let mut cursor = Cursor::new(body, WHAT);
        let table_id = cursor.u48()?;
        let _flags = cursor.u16()?;
        let schema = name(&mut cursor)?;
        let table = name(&mut cursor)?;
        let count = cursor.length_encoded_count()?;
        if count > COLUMNS_MAX {
            return Err(Error::malformed(WHAT, format!("{count} columns")));
        }
        let codes = cursor.take(count)?;
        let types_length = cursor.length_encoded_count()?;
        let mut types = Cursor::new(cursor.take(types_length)?, "column metadata of a Table_map event");
        let columns: Vec<ColumnType> =
            codes.iter().map(|&code| ColumnType::parse(code, &mut types)).collect::<Result<_>>()?;
        if !types.is_empty() {
            return Err(Error::malformed(WHAT, format!("{} bytes of column metadata are left over", types.left())));
        }
        let nullable = cursor.take(count.div_ceil(8))?.to_vec();
        let metadata = OptionalMetadata::parse(cursor, &columns)?;
        Ok(TableMap { table_id, schema, table, columns, nullable, metadata, body: body.to_vec() })
    }

    /// May column `index` be NULL?
    pub fn is_nullable(&self, index: usize) -> bool {
        bit_is_set(&self.nullable, index)
    }
}

/// Bit `index` of a bitmap, least significant bit of the first byte first; bits beyond its end are clear.
#[inline]
pub fn bit_is_set(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
}

fn name(cursor: &mut Cursor<'_>) -> Result<String> {
    let length = cursor.length_encoded_count()?;
    let bytes = cursor.take(length)?;
    if cursor.u8()? != 0 {
        return Err(Error::malformed(WHAT, "a name is not terminated"));
    }
    match std::str::from_utf8(bytes) {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(Error::malformed(WHAT, "a name is not UTF-8")),
    }
}

impl OptionalMetadata {
    const SIGNEDNESS: u8 = 1;
    const COLUMN_NAME: u8 = 4;
    const SIMPLE_PRIMARY_KEY: u8 = 8;
    const PRIMARY_KEY_WITH_PREFIX: u8 = 9;

    fn parse(mut cursor: Cursor<'_>, columns: &[ColumnType]) -> Result<OptionalMetadata> {
        let mut metadata = OptionalMetadata::default();
        while !cursor.is_empty() {
            let field = cursor.u8()?;
            let length = cursor.length_encoded_count()?;
            let mut value = Cursor::new(cursor.take(length)?, "optional metadata of a Table_map event");
            match field {
                Self::SIGNEDNESS => metadata.unsigned = signedness(value.rest(), columns),
                Self::COLUMN_NAME => {
                    while !value.is_empty() {
                        let length = value.length_encoded_count()?;
                        metadata.column_names.push(String::from_utf8_lossy(value.take(length)?).into_owned());
                    }
                }
                Self::SIMPLE_PRIMARY_KEY | Self::PRIMARY_KEY_WITH_PREFIX => {
                    while !value.is_empty() {
                        metadata.primary_key.push(value.length_encoded_count()?);
                        if field == Self::PRIMARY_KEY_WITH_PREFIX {
                            value.length_encoded_count()?;
                        }
                    }
                }
                // Character sets, enum and set texts, geometry types: the replica's own definition says these.
                _ => {}
            }
        }
        Ok(metadata)
    }
}

/// One bit per numeric column, most significant first.
fn signedness(bits: &[u8], columns: &[ColumnType]) -> Vec<bool> {
    let numeric = columns.iter().filter(|column| column.is_numeric()).count();
    (0..numeric).map(|index| bits.get(index / 8).is_some_and(|byte| byte & (0x80 >> (index % 8)) != 0)).collect()
}

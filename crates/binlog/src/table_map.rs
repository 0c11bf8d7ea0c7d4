//! Table map events: the name and column types of the table that the next rows events change.

use crate::column::ColumnType;
use crate::cursor::Cursor;
use crate::{Error, Result};

const WHAT: &str = "Table_map event";

/// The servers' own limit (4,096 in both vendors).
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
    /// The metadata that `binlog_row_metadata` added.
    pub metadata: OptionalMetadata,
    /// The event's body, for replaying it under another id.
    pub body: Vec<u8>,
}

/// The metadata of a source with `binlog_row_metadata=MINIMAL` or `FULL`. An empty vector means that the source gave
/// none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionalMetadata {
    /// For each numeric column ([`ColumnType::has_signedness`]) in order: is it unsigned?
    pub unsigned: Vec<bool>,
    /// For each column that [`ColumnType::has_collation`] in order: the number of its collation.
    pub collations: Vec<u32>,
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
        let schema = read_name(&mut cursor)?;
        let table = read_name(&mut cursor)?;
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

    /// True if column `index` is unsigned; false for columns that are not integers, and if the metadata does not say.
    pub fn is_unsigned(&self, index: usize) -> bool {
        let Some((column, before)) = self.columns.get(..=index).and_then(<[ColumnType]>::split_last) else {
            return false;
        };
        let numeric = before.iter().filter(|column| column.has_signedness()).count();
        column.has_signedness() && self.metadata.unsigned.get(numeric).copied().unwrap_or(false)
    }

    /// The number of the collation of column `index`; `None` if it has none, or if the metadata does not say.
    pub fn collation(&self, index: usize) -> Option<u32> {
        let (column, before) = self.columns.get(..=index).and_then(<[ColumnType]>::split_last)?;
        let with_collation = before.iter().filter(|column| column.has_collation()).count();
        self.metadata.collations.get(with_collation).copied().filter(|_| column.has_collation())
    }

    /// The first column whose values cannot be measured from this table map alone, if there is one.
    ///
    /// `TIMESTAMP`, `DATETIME` and `TIME` in the formats before MySQL 5.6 (`mysql56_temporal_format=OFF`, or tables
    /// from before it) take more or fewer bytes depending on their fractional digits, which the binlog does not give.
    /// Their rows can be replayed verbatim, to a table of the same format, but not split into values.
    pub fn unmeasurable_column(&self) -> Option<usize> {
        self.columns.iter().position(|column| column.is_unmeasurable())
    }

    /// True if column `index` may be NULL.
    pub fn is_nullable(&self, index: usize) -> bool {
        bit_is_set(&self.nullable, index)
    }
}

/// Bit `index` of a bitmap, least significant bit of the first byte first; bits beyond its end are clear.
#[inline]
pub fn bit_is_set(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
}

/// True if a bitmap names none of the first `column_count` columns. Bits of columns that MySQL hides and does not log,
/// such as those of a functional index, may follow theirs.
pub fn names_no_column(bitmap: &[u8], column_count: usize) -> bool {
    (0..column_count).all(|index| !bit_is_set(bitmap, index))
}

fn read_name(cursor: &mut Cursor<'_>) -> Result<String> {
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
    const DEFAULT_COLLATION: u8 = 2;
    const COLLATIONS: u8 = 3;
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
                Self::SIGNEDNESS => metadata.unsigned = parse_signedness(value.rest(), columns),
                Self::DEFAULT_COLLATION => metadata.collations = parse_collations(&mut value, columns)?,
                Self::COLLATIONS => {
                    while !value.is_empty() {
                        metadata.collations.push(collation(&mut value)?);
                    }
                }
                Self::COLUMN_NAME => {
                    while !value.is_empty() {
                        let length = value.length_encoded_count()?;
                        metadata.column_names.push(String::from_utf8_lossy(value.take(length)?).into_owned());
                    }
                }
                Self::SIMPLE_PRIMARY_KEY | Self::PRIMARY_KEY_WITH_PREFIX => {
                    while !value.is_empty() {
                        metadata.primary_key.push(check_key_column(value.length_encoded_count()?, columns)?);
                        if field == Self::PRIMARY_KEY_WITH_PREFIX {
                            value.length_encoded_count()?;
                        }
                    }
                }
                // Skip the character sets and texts of ENUM and SET, and geometry types: the replica's definition has
                // them.
                _ => {}
            }
        }
        if !metadata.column_names.is_empty() && metadata.column_names.len() != columns.len() {
            let why = format!("{} column names for {} columns", metadata.column_names.len(), columns.len());
            return Err(Error::malformed(WHAT, why));
        }
        let with_collation = columns.iter().filter(|column| column.has_collation()).count();
        // A later server may count other columns, too. Then the columns of these bits are unknown.
        if metadata.collations.len() != with_collation {
            metadata.collations.clear();
        }
        Ok(metadata)
    }
}

fn check_key_column(index: usize, columns: &[ColumnType]) -> Result<usize> {
    if index < columns.len() {
        return Ok(index);
    }
    Err(Error::malformed(WHAT, format!("column {index} in the primary key of {} columns", columns.len())))
}

fn collation(cursor: &mut Cursor<'_>) -> Result<u32> {
    let number = cursor.length_encoded()?;
    u32::try_from(number).map_err(|_| Error::malformed(WHAT, format!("collation {number}")))
}

/// Parses the collation of most columns, then the columns that have another one.
fn parse_collations(cursor: &mut Cursor<'_>, columns: &[ColumnType]) -> Result<Vec<u32>> {
    let count = columns.iter().filter(|column| column.has_collation()).count();
    let mut collations = vec![collation(cursor)?; count];
    while !cursor.is_empty() {
        let index = cursor.length_encoded_count()?;
        let other = collation(cursor)?;
        match collations.get_mut(index) {
            Some(collation) => *collation = other,
            None => return Ok(vec![]),
        }
    }
    Ok(collations)
}

/// Parses one bit per numeric column, most significant first.
fn parse_signedness(bits: &[u8], columns: &[ColumnType]) -> Vec<bool> {
    let numeric = columns.iter().filter(|column| column.has_signedness()).count();
    (0..numeric).map(|index| bits.get(index / 8).is_some_and(|byte| byte & (0x80 >> (index % 8)) != 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table map's body with these type codes and type metadata, no column nullable, and this optional metadata.
    fn body(codes: &[u8], types: &[u8], optional: &[u8]) -> Vec<u8> {
        let mut body = b"\x13\0\0\0\0\0\x01\0\x01d\0\x01t\0".to_vec();
        body.push(codes.len() as u8);
        body.extend_from_slice(codes);
        body.push(types.len() as u8);
        body.extend_from_slice(types);
        body.extend(vec![0; codes.len().div_ceil(8)]);
        body.extend_from_slice(optional);
        body
    }

    #[test]
    fn year_column_has_a_signedness_bit() {
        // (id INT, y YEAR, u INT UNSIGNED, dt DATE, b BIT(3), e BIGINT UNSIGNED), as MariaDB 10.11 logs it.
        let table = TableMap::parse(&body(&[3, 13, 3, 10, 16, 8], &[3, 0], &[1, 1, 0x70])).unwrap();
        let unsigned: Vec<bool> = (0..7).map(|index| table.is_unsigned(index)).collect();
        assert_eq!(unsigned, [false, true, true, false, false, true, false]);
        // (y YEAR, i INT): the year's bit is not the integer's.
        let table = TableMap::parse(&body(&[13, 3], &[], &[1, 1, 0x80])).unwrap();
        assert!(!table.is_unsigned(1));
    }

    #[test]
    fn collations_are_read_for_columns_that_have_one() {
        // (a TEXT, i INT, b TEXT, c TEXT): most in one collation, one in another; then each by itself.
        let columns = |optional: &[u8]| TableMap::parse(&body(&[252, 3, 252, 252], &[2, 2, 2], optional)).unwrap();
        let collations = |map: TableMap| (0..5).map(|index| map.collation(index)).collect::<Vec<_>>();
        let expected = [Some(8), None, Some(255), Some(8), None];
        assert_eq!(collations(columns(&[2, 5, 8, 1, 252, 255, 0])), expected);
        assert_eq!(collations(columns(&[3, 5, 8, 252, 255, 0, 8])), expected);
        assert_eq!(collations(columns(&[])), [None; 5]);
        // (v VECTOR, i INT, b TEXT, c TEXT): a vector counts.
        let vector = TableMap::parse(&body(&[242, 3, 252, 252], &[4, 2, 2], &[2, 5, 8, 1, 252, 255, 0])).unwrap();
        assert_eq!(collations(vector), expected);
        // More than there are columns.
        assert_eq!(collations(columns(&[2, 5, 8, 3, 252, 255, 0])), [None; 5]);
        assert_eq!(collations(columns(&[3, 4, 8, 8, 8, 8])), [None; 5]);
    }

    #[test]
    fn old_temporal_types_are_unmeasurable() {
        assert_eq!(TableMap::parse(&body(&[3, 12], &[], &[])).unwrap().unmeasurable_column(), Some(1));
        assert_eq!(TableMap::parse(&body(&[3, 18], &[6], &[])).unwrap().unmeasurable_column(), None);
    }

    #[test]
    fn metadata_unlike_the_columns_is_an_error() {
        assert_eq!(TableMap::parse(&body(&[3, 3], &[], &[8, 2, 1, 0])).unwrap().metadata.primary_key, [1, 0]);
        assert!(TableMap::parse(&body(&[3, 3], &[], &[8, 1, 2])).is_err());
        assert!(TableMap::parse(&body(&[3, 3], &[], &[4, 2, 1, b'a'])).is_err());
        assert!(TableMap::parse(&body(&[3, 3], &[7], &[])).is_err());
    }
}

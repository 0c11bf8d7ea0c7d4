//! Sequences: their one row says which values are used up. An image with the bounds is written unchanged. A server
//! accepts an image of only the next value and the round from its own replica thread only, so Spate turns it into the
//! SETVAL that such a thread executes.

use spate_binlog::column::ColumnType;
use spate_binlog::table_map::bit_is_set;
use spate_binlog::{ImagePlan, Span, TableMap};

use crate::Result;
use crate::definition::{TableDefinition, TableName};

/// The setting of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceSetting {
    /// The sequence.
    pub name: TableName,
    /// The next value. It is beyond the bound if none is left.
    pub value: i128,
    /// How many times the sequence has started over.
    pub round: u64,
}

/// The columns of a sequence's row that change: the next unused value, and the number of times it has started over.
const NEXT_VALUE: usize = 0;
const ROUND: usize = 7;
/// The first column of the sequence's bounds.
const MINIMUM: usize = 1;

/// The state to which the last row in `images` sets the sequence; `None` if the images can be written unchanged. An
/// event holds a row for each value that its statement took. `columns` are those that the images have.
///
/// # Errors
/// [`crate::Error::Binlog`] if an image cannot be measured, or lacks one of the two columns.
pub(crate) fn setting(
    definition: &TableDefinition,
    map: &TableMap,
    columns: &[u8],
    mut images: &[u8],
) -> Result<Option<SequenceSetting>> {
    if bit_is_set(columns, MINIMUM) {
        return Ok(None);
    }
    let tracked = [NEXT_VALUE, ROUND];
    let walk = ImagePlan::new(map, columns, &tracked)?;
    let mut spans = [Span::default(); 2];
    let is_unsigned = definition.columns.get(NEXT_VALUE).is_some_and(|column| column.is_unsigned);
    let mut last = None;
    while !images.is_empty() {
        let length = walk.measure(images, &mut spans)?;
        let value = integer(map.columns[NEXT_VALUE], spans[0].value(images), is_unsigned);
        let round = integer(map.columns[ROUND], spans[1].value(images), true);
        let (Some(value), Some(round)) = (value, round) else { return Err(no_sequence(definition)) };
        let round = u64::try_from(round).map_err(|_| no_sequence(definition))?;
        last = Some(SequenceSetting { name: definition.name.clone(), value, round });
        images = &images[length..];
    }
    Ok(last)
}

/// The value of an integer of any width; `None` if it is not an integer.
fn integer(column_type: ColumnType, bytes: &[u8], is_unsigned: bool) -> Option<i128> {
    if !column_type.is_integer() || bytes.is_empty() || bytes.len() > size_of::<u64>() {
        return None;
    }
    let is_negative = !is_unsigned && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; size_of::<i128>()];
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(i128::from_le_bytes(wide))
}

fn no_sequence(definition: &TableDefinition) -> crate::Error {
    let why = "it is a sequence on the replica, but the source's rows are not those of a sequence".to_owned();
    crate::Error::Definition { table: definition.name.clone(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_sign_at_any_width() {
        let tiny = ColumnType::TinyInt;
        assert_eq!(integer(tiny, &[0x80], false), Some(-128));
        assert_eq!(integer(tiny, &[0x80], true), Some(128));
        assert_eq!(integer(ColumnType::MediumInt, &[0xff, 0xff, 0xff], false), Some(-1));
        assert_eq!(integer(ColumnType::BigInt, &[0xff; 8], true), Some(i128::from(u64::MAX)));
        assert_eq!(integer(ColumnType::BigInt, &[0xff; 8], false), Some(-1));
        assert_eq!(integer(ColumnType::Date, &[1, 2, 3], false), None);
    }
}

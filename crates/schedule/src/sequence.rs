//! Sequences: their one row says which values are given out. A server does not take a row that says "none is left" from a
//! session that is no replica's; such a row is written as the SETVAL that leaves none.

use spate_binlog::{ImagePlan, Span, TableMap};

use crate::Result;
use crate::definition::TableName;

/// A sequence of which no value is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    /// The sequence.
    pub name: TableName,
    /// Its last value: the highest, or with a negative increment the lowest.
    pub last: i64,
    /// How many times it has begun anew.
    pub round: i64,
}

/// The columns of a sequence's row, in order.
const COLUMNS: usize = 8;

/// What the row in `image` (a full one) says if no value is left; `None` if some is, or if the row is no sequence's.
///
/// # Errors
/// [`crate::Error::Binlog`] if the image cannot be measured.
pub(crate) fn exhausted(name: &TableName, map: &TableMap, columns: &[u8], image: &[u8]) -> Result<Option<Exhausted>> {
    if map.columns.len() != COLUMNS {
        return Ok(None);
    }
    let all: Vec<usize> = (0..COLUMNS).collect();
    let walk = ImagePlan::new(map, columns, &all)?;
    let mut spans = vec![Span::default(); COLUMNS];
    walk.measure(image, &mut spans)?;
    let number = |column: usize| {
        let bytes = spans[column].value(image);
        let mut wide = [0; 8];
        let used = bytes.len().min(wide.len());
        wide[..used].copy_from_slice(&bytes[..used]);
        i64::from_le_bytes(wide)
    };
    let (next, minimum, maximum, increment, round) = (number(0), number(1), number(2), number(4), number(7));
    let is_rising = increment >= 0;
    let (last, is_past) = if is_rising { (maximum, next > maximum) } else { (minimum, next < minimum) };
    Ok(is_past.then(|| Exhausted { name: name.clone(), last, round }))
}

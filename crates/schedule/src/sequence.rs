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

/// Which values a sequence gives out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceBounds {
    /// The lowest.
    pub minimum: i64,
    /// The highest.
    pub maximum: i64,
    /// From one to the next.
    pub increment: i64,
}

/// The columns of a sequence's row that change: the next value that was not given out, and how many times it has begun anew.
const NEXT_VALUE: usize = 0;
const ROUND: usize = 7;

/// What the row in `image` says if no value is left; `None` if some is. `columns` are those that the image has.
///
/// # Errors
/// [`crate::Error::Binlog`] if the image cannot be measured.
pub(crate) fn exhausted(
    name: &TableName,
    bounds: &SequenceBounds,
    map: &TableMap,
    columns: &[u8],
    image: &[u8],
) -> Result<Option<Exhausted>> {
    let has = |column: usize| {
        column < map.columns.len() && columns.get(column / 8).is_some_and(|byte| byte & (1 << (column % 8)) != 0)
    };
    let tracked: Vec<usize> = [NEXT_VALUE, ROUND].into_iter().filter(|&column| has(column)).collect();
    let walk = ImagePlan::new(map, columns, &tracked)?;
    let mut spans = vec![Span::default(); tracked.len()];
    walk.measure(image, &mut spans)?;
    let number = |column: usize| {
        let slot = tracked.iter().position(|&tracked| tracked == column)?;
        let bytes = spans[slot].value(image);
        let mut wide = [0; 8];
        let used = bytes.len().min(wide.len());
        wide[..used].copy_from_slice(&bytes[..used]);
        Some(i64::from_le_bytes(wide))
    };
    let Some(next) = number(NEXT_VALUE) else { return Ok(None) };
    let is_rising = bounds.increment >= 0;
    let (last, is_past) =
        if is_rising { (bounds.maximum, next > bounds.maximum) } else { (bounds.minimum, next < bounds.minimum) };
    Ok(is_past.then(|| Exhausted { name: name.clone(), last, round: number(ROUND).unwrap_or(0) }))
}

//! Sequences: their one row says which values are given out. From a session that is no replica's, a server takes neither a row
//! that says "none is left" nor one of which only some columns are known; these become the SETVAL that leaves the same.

use spate_binlog::{ImagePlan, Span, TableMap};

use crate::Result;
use crate::definition::TableName;

/// What a sequence is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceSetting {
    /// The sequence.
    pub name: TableName,
    /// The next value, or the last.
    pub value: i64,
    /// The value was given out already.
    pub is_used: bool,
    /// How many times the sequence has begun anew.
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

/// What the row in `image` sets the sequence to, if it cannot be written as it stands. `columns` are those that the image has;
/// `is_full` if these are all.
///
/// # Errors
/// [`crate::Error::Binlog`] if the image cannot be measured.
pub(crate) fn setting(
    name: &TableName,
    bounds: &SequenceBounds,
    map: &TableMap,
    (columns, is_full): (&[u8], bool),
    image: &[u8],
) -> Result<Option<SequenceSetting>> {
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
    if is_full && !is_past {
        return Ok(None);
    }
    let value = if is_past { last } else { next };
    let round = number(ROUND).unwrap_or(0);
    Ok(Some(SequenceSetting { name: name.clone(), value, is_used: is_past, round }))
}

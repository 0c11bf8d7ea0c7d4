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

/// What the rows in `images` set the sequence to, if they cannot be written as they stand: an event holds a row for each value that
/// its statement took. `columns` are those that the images have; `is_full` if these are all.
///
/// # Errors
/// [`crate::Error::Binlog`] if an image cannot be measured.
pub(crate) fn setting(
    name: &TableName,
    bounds: &SequenceBounds,
    map: &TableMap,
    (columns, is_full): (&[u8], bool),
    mut images: &[u8],
) -> Result<Option<SequenceSetting>> {
    let has = |column: usize| {
        column < map.columns.len() && columns.get(column / 8).is_some_and(|byte| byte & (1 << (column % 8)) != 0)
    };
    let tracked: Vec<usize> = [NEXT_VALUE, ROUND].into_iter().filter(|&column| has(column)).collect();
    let walk = ImagePlan::new(map, columns, &tracked)?;
    let mut spans = vec![Span::default(); tracked.len()];
    let (mut last, mut is_plain) = (None, is_full);
    while !images.is_empty() {
        let length = walk.measure(images, &mut spans)?;
        let number = |column: usize| {
            let slot = tracked.iter().position(|&tracked| tracked == column)?;
            let bytes = spans[slot].value(images);
            let mut wide = [0; 8];
            let used = bytes.len().min(wide.len());
            wide[..used].copy_from_slice(&bytes[..used]);
            Some(i64::from_le_bytes(wide))
        };
        let Some(next) = number(NEXT_VALUE) else { return Ok(None) };
        let set = bounds.set_to(name, next, number(ROUND).unwrap_or(0));
        is_plain &= !set.is_used;
        last = Some(set);
        if length == 0 {
            break;
        }
        images = &images[length..];
    }
    Ok(last.filter(|_| !is_plain))
}

impl SequenceBounds {
    fn set_to(&self, name: &TableName, next: i64, round: i64) -> SequenceSetting {
        let is_rising = self.increment >= 0;
        let (end, is_past) =
            if is_rising { (self.maximum, next > self.maximum) } else { (self.minimum, next < self.minimum) };
        SequenceSetting { name: name.clone(), value: if is_past { end } else { next }, is_used: is_past, round }
    }
}

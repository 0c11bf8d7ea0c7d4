//! Row images. A plan that is made once per table walks them, so that a row costs a few additions.

use crate::column::{Measure, row_truncated};
use crate::table_map::bit_is_set;
use crate::{Error, Result, TableMap};

/// The place of a column's value in an image: its bytes, without and with the length before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the value's length prefix; equal to `start` for types without one.
    pub prefix: u32,
    /// Offset of the value's first byte.
    pub start: u32,
    /// Offset after the value's last byte.
    pub end: u32,
    /// The value is NULL, and the offsets are equal.
    pub is_null: bool,
}

impl Span {
    /// The value's bytes.
    #[inline]
    pub fn value<'a>(&self, image: &'a [u8]) -> &'a [u8] {
        &image[self.start as usize..self.end as usize]
    }

    /// The value's bytes with the length before them, as they stand in the image.
    #[inline]
    pub fn field<'a>(&self, image: &'a [u8]) -> &'a [u8] {
        &image[self.prefix as usize..self.end as usize]
    }
}

/// How to walk the images of one table that hold a certain set of its columns.
///
/// Invariant: `steps` covers the present columns in order, and each tracked column is a step of its own.
#[derive(Debug, Clone)]
pub struct ImagePlan {
    present: Vec<Present>,
    null_bytes: usize,
    /// The walk when no value of the image is NULL.
    steps: Vec<Step>,
    tracked_count: usize,
}

#[derive(Debug, Clone, Copy)]
struct Present {
    measure: Measure,
    slot: Option<u16>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Several untracked fixed-length columns at once.
    Skip(u32),
    /// One column, recorded in a slot if it is tracked.
    Column(Present),
}

impl ImagePlan {
    /// A plan for images of `table` that hold the columns set in `columns`, and that records the spans of the `tracked`
    /// columns (indexes into the table's columns), in that order.
    ///
    /// # Errors
    /// [`Error::Malformed`] if a tracked column is not among the present ones, if none is present (such images have no
    /// length, and a walk over them no end), or if the bitmap is not of the table's width; [`Error::Unsupported`] if a
    /// present column cannot be measured ([`TableMap::unmeasurable_column`]).
    pub fn new(table: &TableMap, columns: &[u8], tracked: &[usize]) -> Result<ImagePlan> {
        if columns.len() != table.columns.len().div_ceil(8) {
            let why = format!("a bitmap of {} bytes for {} columns", columns.len(), table.columns.len());
            return Err(Error::malformed("row image", why));
        }
        let mut found = 0;
        let mut present = Vec::with_capacity(table.columns.len());
        for (index, column) in table.columns.iter().enumerate() {
            if !bit_is_set(columns, index) {
                continue;
            }
            if column.is_unmeasurable() {
                let why = format!("column {} is {column:?}, whose fractional digits are not in the binlog", index + 1);
                return Err(Error::unsupported("row image", why));
            }
            let slot = tracked.iter().position(|&wanted| wanted == index).map(|slot| slot as u16);
            found += usize::from(slot.is_some());
            present.push(Present { measure: column.measure(), slot });
        }
        if found != tracked.len() {
            return Err(Error::malformed("row image", "a key column is not in it"));
        }
        if present.is_empty() {
            return Err(Error::malformed("row image", "no column is in it"));
        }
        let steps = steps(&present);
        Ok(ImagePlan { null_bytes: present.len().div_ceil(8), present, steps, tracked_count: tracked.len() })
    }

    /// Number of tracked columns: how many spans [`ImagePlan::measure`] fills.
    pub fn tracked_count(&self) -> usize {
        self.tracked_count
    }

    /// Length in bytes of the image at the start of `bytes`; the tracked columns' spans are written to `spans`.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the bytes end before the image does.
    ///
    /// # Panics
    /// If `spans` is shorter than [`ImagePlan::tracked_count`].
    #[inline]
    pub fn measure(&self, bytes: &[u8], spans: &mut [Span]) -> Result<usize> {
        let Some(nulls) = bytes.get(..self.null_bytes) else {
            return Err(row_truncated(self.null_bytes, bytes.len()));
        };
        if self.has_null(nulls) {
            return self.measure_with_nulls(nulls, bytes, spans);
        }
        let mut offset = self.null_bytes;
        for step in &self.steps {
            match *step {
                Step::Skip(length) => offset += length as usize,
                Step::Column(column) => offset = column.advance(bytes, offset, spans)?,
            }
        }
        if offset > bytes.len() { Err(row_truncated(offset, bytes.len())) } else { Ok(offset) }
    }

    /// True if a bit of a present column is set; the bits after the last column are undefined.
    #[inline]
    fn has_null(&self, nulls: &[u8]) -> bool {
        let Some((last, full)) = nulls.split_last() else { return false };
        let used = self.present.len() % 8;
        let mask = if used == 0 { 0xff } else { (1u8 << used) - 1 };
        last & mask != 0 || full.iter().any(|&byte| byte != 0)
    }

    fn measure_with_nulls(&self, nulls: &[u8], bytes: &[u8], spans: &mut [Span]) -> Result<usize> {
        let mut offset = self.null_bytes;
        for (index, column) in self.present.iter().enumerate() {
            if !bit_is_set(nulls, index) {
                offset = column.advance(bytes, offset, spans)?;
            } else if let Some(slot) = column.slot {
                let here = offset as u32;
                spans[usize::from(slot)] = Span { prefix: here, start: here, end: here, is_null: true };
            }
        }
        Ok(offset)
    }

    /// Spans of all present columns, in order, for callers that need every value.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn all_spans(&self, bytes: &[u8]) -> Result<(usize, Vec<Span>)> {
        let Some(nulls) = bytes.get(..self.null_bytes) else {
            return Err(row_truncated(self.null_bytes, bytes.len()));
        };
        let mut spans = vec![Span::default(); self.present.len()];
        let mut offset = self.null_bytes;
        for (index, column) in self.present.iter().enumerate() {
            let everyone = Present { slot: Some(0), ..*column };
            if bit_is_set(nulls, index) {
                let here = offset as u32;
                spans[index] = Span { prefix: here, start: here, end: here, is_null: true };
            } else {
                offset = everyone.advance(bytes, offset, &mut spans[index..=index])?;
            }
        }
        Ok((offset, spans))
    }
}

impl Present {
    #[inline]
    fn advance(self, bytes: &[u8], offset: usize, spans: &mut [Span]) -> Result<usize> {
        let Some(rest) = bytes.get(offset..) else {
            return Err(row_truncated(offset, bytes.len()));
        };
        let (prefix, length) = self.measure.lengths(rest)?;
        let end = offset + prefix + length;
        if let Some(slot) = self.slot {
            spans[usize::from(slot)] =
                Span { prefix: offset as u32, start: (offset + prefix) as u32, end: end as u32, is_null: false };
        }
        Ok(end)
    }
}

fn steps(present: &[Present]) -> Vec<Step> {
    let mut steps = Vec::new();
    for &column in present {
        match (column, steps.last_mut()) {
            (Present { measure: Measure::Fixed(length), slot: None }, Some(Step::Skip(total))) => *total += length,
            (Present { measure: Measure::Fixed(length), slot: None }, _) => steps.push(Step::Skip(length)),
            _ => steps.push(Step::Column(column)),
        }
    }
    steps
}

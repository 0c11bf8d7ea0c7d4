//! The keys that a batch writes: two batches of which none writes what the other writes may be applied in any order.
//!
//! A row is known by its row key and by each other unique key, before and after the change. Keys are equal as the *server* compares them. Where the
//! bytes do not decide that (a collation that is not among the well known ones, letters beyond ASCII, floating-point numbers, beginnings of
//! columns), a key may be any of its index: it conflicts with all others there. A conflict that is none costs time; one that is missed would cost
//! rows.
//!
//! Tables that foreign keys connect count as one row: a child waits for its parent's transaction, whatever the values.

use std::hash::{Hash, Hasher};

use spate_binlog::Span;
use spate_binlog::column::{ColumnType, Measure};
use xxhash_rust::xxh3::Xxh3Default;

use crate::Result;
use crate::definition::{ColumnDefinition, TableDefinition};
use crate::fold::TableFold;
use crate::item::Item;
use crate::{Alone, Batch};

/// What a batch writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A value that is equal only to itself, by a hash of index and value.
    Exact(u64),
    /// The same in an index that also has values of which that is not certain.
    Text {
        /// A hash of the index.
        index: u64,
        /// A hash of index and value.
        value: u64,
    },
    /// A value that may be equal to any other of its index.
    Any {
        /// A hash of the index.
        index: u64,
    },
}

/// Why nobody can say what a batch writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It holds something else than rows.
    Statement,
    /// Row changes fire triggers of the replica, which may change any table.
    Triggers,
    /// Rows of this place among the batch's tables are not known by a key.
    NoKey,
    /// A unique key is on something that row images do not show.
    HiddenKey,
    /// Row images hold only some of the columns, and the table has other unique keys.
    PartialImages,
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unknown::Statement => "it holds a statement",
            Unknown::Triggers => "its rows fire triggers of the replica",
            Unknown::NoKey => "rows of a table without a usable key",
            Unknown::HiddenKey => "a unique key of a table is on an expression or a computed column",
            Unknown::PartialImages => {
                "a table has several unique keys, and the source logs only some columns (binlog_row_image)"
            }
        })
    }
}

/// Adds what the batch writes to `keys`, or says why nobody knows.
///
/// # Errors
/// [`crate::Error::Binlog`] if a kept image cannot be measured, which would be a defect.
pub fn collect(batch: &Batch, keys: &mut Vec<Key>) -> Result<std::result::Result<(), Unknown>> {
    if batch.alone.as_ref().is_some_and(|alone| *alone != Alone::Numbered) {
        return Ok(Err(Unknown::Statement));
    }
    for item in &batch.items {
        let Item::Rows(segment) = item else { return Ok(Err(Unknown::Statement)) };
        if !segment.keyless().is_empty() || !segment.ordered().is_empty() {
            return Ok(Err(Unknown::NoKey));
        }
        for fold in segment.folds() {
            if let Err(unknown) = of_fold(fold, keys)? {
                return Ok(Err(unknown));
            }
        }
    }
    Ok(Ok(()))
}

fn of_fold(fold: &TableFold, keys: &mut Vec<Key>) -> Result<std::result::Result<(), Unknown>> {
    let plan = &fold.plan;
    let Some(conflicts) = plan.conflicts() else { return Ok(Err(Unknown::NoKey)) };
    if plan.definition.has_hidden_unique_key {
        return Ok(Err(Unknown::HiddenKey));
    }
    if !conflicts.others.is_empty() && fold.has_partial_images() {
        return Ok(Err(Unknown::PartialImages));
    }
    keys.extend(conflicts.foreign);
    fold.add_keys(conflicts, keys)?;
    Ok(Ok(()))
}

/// How values of a column are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// By their bytes.
    Bytes,
    /// By a well known collation: letters of ASCII alike in both cases, without regard to spaces at the end.
    Text,
    /// In a way that the bytes do not show.
    Unknown,
}

/// A unique index of a table.
#[derive(Debug)]
pub(crate) struct Index {
    hash: u64,
    /// Where the index's columns are among the values, and how each is compared.
    columns: Vec<(usize, Compared)>,
}

/// The unique indexes of a folded table.
#[derive(Debug)]
pub(crate) struct Conflicts {
    /// The row key, over the columns of a locator.
    pub(crate) row: Index,
    /// The measures of a locator's columns.
    pub(crate) locator: Vec<Measure>,
    /// All other unique keys, over the columns of a witness.
    pub(crate) others: Vec<Index>,
    /// The measures of a witness' columns.
    pub(crate) witness: Vec<Measure>,
    /// What stands for all tables that foreign keys connect with this one. `None`: there are none.
    foreign: Option<Key>,
}

impl Conflicts {
    /// Of a table whose locators and witnesses hold these columns.
    pub(crate) fn new(
        definition: &TableDefinition,
        types: &[ColumnType],
        locator: &[usize],
        witness: &[usize],
    ) -> Conflicts {
        let mut hasher = Xxh3Default::default();
        definition.name.hash(&mut hasher);
        let table = hasher.finish();
        let index = |number: usize, columns: &[usize], places: &[usize], is_prefix: bool| Index {
            hash: hash_of(&[&table.to_le_bytes(), &(number as u64).to_le_bytes()]),
            columns: columns
                .iter()
                .filter_map(|column| Some((places.iter().position(|place| place == column)?, *column)))
                .map(|(place, column)| match is_prefix {
                    true => (place, Compared::Unknown),
                    false => (place, compared(&definition.columns[column], types[column])),
                })
                .collect(),
        };
        let measures = |columns: &[usize]| columns.iter().map(|&column| types[column].measure()).collect();
        let others = definition.unique_keys.iter().enumerate();
        Conflicts {
            row: index(0, &definition.row_key, locator, false),
            locator: measures(locator),
            others: others.map(|(number, key)| index(number + 1, &key.columns, witness, key.is_prefix)).collect(),
            witness: measures(witness),
            foreign: definition.foreign_group.map(|group| Key::Exact(hash_of(&[b"foreign", &group.to_le_bytes()]))),
        }
    }
}

impl Index {
    /// True if two values are equal only if all their bytes are.
    pub(crate) fn is_of_bytes(&self) -> bool {
        self.columns.iter().all(|&(_, compared)| compared == Compared::Bytes)
    }

    /// Of a row with these values, each `None` for NULL. `None`: with a NULL, it is equal to no other.
    pub(crate) fn key(&self, values: &[Option<&[u8]>], scratch: &mut Vec<u8>) -> Option<Key> {
        scratch.clear();
        let (mut has_text, mut is_any) = (false, false);
        for &(place, compared) in &self.columns {
            let value = values.get(place).copied().flatten()?;
            match compared {
                Compared::Bytes => {
                    scratch.extend_from_slice(&(value.len() as u32).to_le_bytes());
                    scratch.extend_from_slice(value);
                }
                Compared::Text => {
                    has_text = true;
                    let is_plain = value.iter().all(|byte| (b' '..=b'~').contains(byte));
                    is_any |= !is_plain;
                    let end = value.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
                    scratch.extend_from_slice(&(end as u32).to_le_bytes());
                    scratch.extend(value[..end].iter().map(u8::to_ascii_lowercase));
                }
                Compared::Unknown => is_any = true,
            }
        }
        Some(match () {
            () if is_any => Key::Any { index: self.hash },
            () if has_text => Key::Text { index: self.hash, value: self.hash_with(scratch) },
            () => Key::Exact(self.hash_with(scratch)),
        })
    }

    fn hash_with(&self, value: &[u8]) -> u64 {
        hash_of(&[&self.hash.to_le_bytes(), value])
    }
}

/// The values of an image's fields that follow each other, as `measures` says. `None` at the end of those that are NULL.
pub(crate) fn split<'a>(
    measures: &[Measure],
    is_null: impl Fn(usize) -> bool,
    fields: &'a [u8],
    with_flags: bool,
) -> Option<Vec<Option<&'a [u8]>>> {
    let mut rest = fields;
    let mut values = Vec::with_capacity(measures.len());
    for (place, measure) in measures.iter().enumerate() {
        let null = match with_flags {
            true => {
                let (&flag, after) = rest.split_first()?;
                rest = after;
                flag != 0
            }
            false => is_null(place),
        };
        if null {
            values.push(None);
            continue;
        }
        let (skipped, length) = match *measure {
            Measure::Fixed(bytes) => (0, bytes as usize),
            Measure::Prefixed(bytes) => {
                let bytes = usize::from(bytes);
                let length = rest.get(..bytes)?.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
                (bytes, length)
            }
        };
        values.push(Some(rest.get(skipped..skipped + length)?));
        rest = &rest[skipped + length..];
    }
    Some(values)
}

/// The values of these spans.
pub(crate) fn values_of<'a>(image: &'a [u8], spans: &[Span], slots: &[usize]) -> Vec<Option<&'a [u8]>> {
    slots.iter().map(|&slot| (!spans[slot].is_null).then(|| spans[slot].value(image))).collect()
}

fn hash_of(parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3Default::default();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.digest()
}

fn compared(column: &ColumnDefinition, column_type: ColumnType) -> Compared {
    let is_of_many_forms = matches!(
        column_type,
        ColumnType::Float
            | ColumnType::Double
            | ColumnType::Json { .. }
            | ColumnType::Geometry { .. }
            | ColumnType::Vector { .. }
            | ColumnType::VarcharCompressed { .. }
            | ColumnType::BlobCompressed { .. }
    );
    if is_of_many_forms {
        return Compared::Unknown;
    }
    match column.collation.as_str() {
        "" | "binary" => Compared::Bytes,
        // Equality of their values is that of numbers.
        _ if matches!(column_type, ColumnType::Enum { .. } | ColumnType::Set { .. }) => Compared::Bytes,
        collation if is_well_known(collation) => Compared::Text,
        _ => Compared::Unknown,
    }
}

/// True for collations by which two texts of printable ASCII are equal only if they differ in the case of letters, or in spaces at the end. (In
/// those of some languages, a `c` is a `ch`, or a `y` an `i`.)
fn is_well_known(collation: &str) -> bool {
    const CHARSETS: [&str; 7] = ["utf8mb4_", "utf8mb3_", "utf8_", "latin1_", "latin2_", "ascii_", "cp1251_"];
    const RULES: [&str; 13] = [
        "bin",
        "general_ci",
        "general_cs",
        "general_nopad_ci",
        "nopad_bin",
        "unicode_ci",
        "unicode_520_ci",
        "0900_ai_ci",
        "0900_as_ci",
        "0900_as_cs",
        "0900_bin",
        "uca1400_ai_ci",
        "uca1400_as_ci",
    ];
    let rule = CHARSETS.iter().find_map(|charset| collation.strip_prefix(charset));
    rule.is_some_and(|rule| RULES.contains(&rule))
        || collation == "latin1_swedish_ci"
        || collation.starts_with("uca1400_a")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(collation: &str) -> ColumnDefinition {
        ColumnDefinition { name: "name".into(), collation: collation.into(), ..ColumnDefinition::default() }
    }

    fn index(collation: &str) -> Index {
        let column_type = ColumnType::Varchar { bytes_max: 80 };
        Index { hash: 7, columns: vec![(0, compared(&text(collation), column_type))] }
    }

    fn key(index: &Index, value: &str) -> Key {
        index.key(&[Some(value.as_bytes())], &mut Vec::new()).unwrap()
    }

    #[test]
    fn texts_that_a_collation_takes_for_equal_have_one_key() {
        let known = index("utf8mb4_general_ci");
        assert_eq!(key(&known, "Anna"), key(&known, "aNNA  "));
        assert_ne!(key(&known, "Anna"), key(&known, "Annb"));
        assert_eq!(key(&known, "\u{e4}"), Key::Any { index: 7 });
        // Control characters may count for nothing.
        assert_eq!(key(&known, "a\u{1}"), Key::Any { index: 7 });
    }

    #[test]
    fn texts_of_other_collations_may_be_any() {
        for collation in
            ["utf8mb3_lithuanian_ci", "utf8mb4_czech_ci", "swe7_swedish_ci", "latin1_german2_ci", "sjis_bin"]
        {
            assert_eq!(key(&index(collation), "a"), Key::Any { index: 7 }, "{collation}");
        }
    }

    #[test]
    fn bytes_are_equal_only_to_themselves() {
        let bytes = index("");
        assert_ne!(key(&bytes, "a"), key(&bytes, "A"));
        assert_ne!(key(&bytes, "a"), key(&bytes, "a "));
        assert!(bytes.key(&[None], &mut Vec::new()).is_none());
    }

    #[test]
    fn fields_are_split_by_their_measures() {
        let measures = [Measure::Fixed(2), Measure::Prefixed(1)];
        let split_of = |fields: &'static [u8]| split(&measures, |_| false, fields, false);
        assert_eq!(split_of(&[1, 0, 2, b'a', b'b']), Some(vec![Some(&[1, 0][..]), Some(&b"ab"[..])]));
        assert_eq!(split_of(&[1, 0, 2, b'a']), None);
        let flagged = |fields: &'static [u8]| split(&measures, |_| false, fields, true);
        assert_eq!(flagged(&[1, 0, 1, b'a']), Some(vec![None, Some(&b"a"[..])]));
        assert_eq!(flagged(&[1, 0, 2, b'a']), None);
        assert_eq!(flagged(&[1, 0, 0]), Some(vec![None, Some(&b""[..])]));
        assert_eq!(flagged(&[1, 1]), Some(vec![None, None]));
        assert_eq!(split(&measures, |place| place == 0, &[1, b'a'], false), Some(vec![None, Some(&b"a"[..])]));
    }
}

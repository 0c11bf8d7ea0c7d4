//! How to walk and fold a table's images, computed once per table map.

use std::sync::{Arc, OnceLock};

use spate_binlog::column::{ColumnType, Measure};
use spate_binlog::encode::ColumnBitmap;
use spate_binlog::value::{NamedValue, named_values};
use spate_binlog::{ImagePlan, Span, TableMap};

use crate::definition::{ColumnDefinition, FoldPolicy, OrderedReason, TableDefinition, TableName};
use crate::write_set::Conflicts;
use crate::{Error, Result};

/// A table map joined with the replica's definition of the table.
///
/// The *locator* of a row is an image that holds only the row key's columns, in the table's order: it identifies the
/// row byte for byte (a stored row's images always carry its stored bytes, under any collation), and it is all that the
/// server needs as a before-image. The *witness* is the concatenation of the columns of all other unique keys.
#[derive(Debug)]
pub struct TablePlan {
    /// The source's table map.
    pub map: TableMap,
    /// The replica's definition.
    pub definition: Arc<TableDefinition>,
    /// How its changes are applied.
    pub policy: FoldPolicy,
    /// Walks full images; tracks `tracked`. `None` if the table is not folded.
    pub(crate) images: Option<FoldPlan>,
    /// Walks full images; tracks all columns that are not computed. `None` unless images identify the rows.
    pub(crate) rows: Option<ImagePlan>,
    /// Worked out when it is first asked for: see [`TablePlan::conflicts`].
    conflicts: OnceLock<Conflicts>,
    /// The source logs the effects of foreign keys on the table's rows.
    pub(crate) takes_cascades: bool,
}

/// The part of a plan that only folded tables have.
#[derive(Debug)]
pub(crate) struct FoldPlan {
    pub(crate) walk: ImagePlan,
    /// The column of each slot of `walk`.
    pub(crate) tracked: Vec<usize>,
    /// Slots of the row key's columns, in the table's order.
    locator_slots: Vec<usize>,
    /// Slots of the row key's columns in key order, with the types that sorting needs.
    sort_columns: Vec<(usize, ColumnType, bool)>,
    /// Slots of the columns of other unique keys.
    pub(crate) witness_slots: Vec<usize>,
    pub(crate) auto_increment: Option<(usize, ColumnType, bool)>,
    pub(crate) all_columns: ColumnBitmap,
    pub(crate) key_columns: ColumnBitmap,
    locator_null_bytes: usize,
}

impl TablePlan {
    /// True if images of one plan's table map are also images of the other's: the maps are equal but for the table id.
    pub(crate) fn have_one_shape(one: &Arc<TablePlan>, other: &Arc<TablePlan>) -> bool {
        const TABLE_ID_BYTES: usize = 6;
        Arc::ptr_eq(one, other) || one.map.body.get(TABLE_ID_BYTES..) == other.map.body.get(TABLE_ID_BYTES..)
    }

    /// Joins the source's table map and the replica's definition of a table.
    ///
    /// # Errors
    /// [`Error::Definition`] if the replica's table cannot take the source's rows.
    pub fn new(map: TableMap, definition: Arc<TableDefinition>) -> Result<TablePlan> {
        TablePlan::with_cascades(map, definition, false)
    }

    /// As [`TablePlan::new`]. `takes_cascades` means that the source's row changes include those that foreign keys
    /// make.
    ///
    /// # Errors
    /// As [`TablePlan::new`].
    pub(crate) fn with_cascades(
        map: TableMap,
        definition: Arc<TableDefinition>,
        takes_cascades: bool,
    ) -> Result<TablePlan> {
        if definition.columns.len() < map.columns.len() {
            let (source, replica) = (map.columns.len(), definition.columns.len());
            let why = format!("the source's rows have {source} columns, the replica's table has {replica}");
            return Err(Error::Definition { table: definition.name.clone(), why });
        }
        if definition.is_view {
            let why =
                "it is a view on the replica, through which no row is changed: drop it there, and make the table again";
            return Err(Error::Definition { table: definition.name.clone(), why: why.to_owned() });
        }
        let policy = definition.fold_policy(&map, takes_cascades);
        let (mut images, mut rows) = (None, None);
        match policy {
            FoldPolicy::Fold => images = Some(FoldPlan::new(&map, &definition)?),
            FoldPolicy::Keyless => {
                let all = ColumnBitmap::all(map.columns.len());
                rows = Some(ImagePlan::new(&map, &all.bits, &definition.stored_columns())?);
            }
            FoldPolicy::Ordered(_) => {}
        }
        Ok(TablePlan { map, definition, policy, images, rows, conflicts: OnceLock::new(), takes_cascades })
    }

    /// The plan of a table that the same transaction creates: only the source's table map is known.
    pub(crate) fn just_created(map: TableMap, name: TableName, row_end: Option<usize>) -> TablePlan {
        let column = |number: usize| ColumnDefinition {
            name: format!("@{number}"),
            column_type: String::new(),
            is_unsigned: false,
            is_auto_increment: false,
            is_generated: false,
            ..ColumnDefinition::default()
        };
        let definition = TableDefinition {
            name,
            columns: (1..=map.columns.len()).map(column).collect(),
            row_key: vec![],
            unique_columns: vec![],
            has_hidden_unique_key: false,
            engine: String::new(),
            row_end,
            is_sequence: false,
            is_transactional: true,
            has_engine_actions: false,
            depends_on_session: true,
            ..TableDefinition::default()
        };
        let policy = FoldPolicy::Ordered(OrderedReason::JustCreated);
        TablePlan {
            map,
            definition: Arc::new(definition),
            policy,
            images: None,
            rows: None,
            conflicts: OnceLock::new(),
            takes_cascades: false,
        }
    }

    /// The unique indexes, by which the table's changes conflict with others. `None` if it is not folded.
    pub(crate) fn conflicts(&self) -> Option<&Conflicts> {
        let fold = self.images.as_ref()?;
        Some(self.conflicts.get_or_init(|| {
            let witness: Vec<usize> = fold.witness_slots.iter().map(|&slot| fold.tracked[slot]).collect();
            let mut locator = self.definition.row_key.clone();
            locator.sort_unstable();
            Conflicts::new(&self.definition, &self.map.columns, &locator, &witness)
        }))
    }

    /// True if the table has columns of which MySQL may log only the changes.
    pub(crate) fn has_json(&self) -> bool {
        self.map.columns.iter().any(|column| matches!(column, ColumnType::Json { .. }))
    }

    /// The row key of the row in a full or partial image, for people: `id=5, name='x'`.
    pub fn describe_key(&self, columns: &[u8], image: &[u8]) -> String {
        let key: &[usize] = &self.definition.row_key;
        let Ok(walk) = ImagePlan::new(&self.map, columns, key) else { return "key not in the image".to_owned() };
        let mut spans = vec![Span::default(); key.len()];
        if walk.measure(image, &mut spans).is_err() {
            return "unreadable image".to_owned();
        }
        let part = |(&span, &column): (&Span, &usize)| {
            let ColumnDefinition { name, is_unsigned, .. } = &self.definition.columns[column];
            NamedValue { name, column_type: self.map.columns[column], is_unsigned: *is_unsigned, span }
        };
        named_values(image, spans.iter().zip(key).map(part))
    }
}

impl FoldPlan {
    fn new(map: &TableMap, definition: &TableDefinition) -> Result<FoldPlan> {
        let count = map.columns.len();
        let all_columns = ColumnBitmap::all(count);
        let mut tracked: Vec<usize> = definition.row_key.clone();
        tracked.extend(definition.unique_columns.iter().copied().filter(|&column| column < count));
        tracked.extend(definition.auto_increment_column().filter(|&column| column < count));
        tracked.sort_unstable();
        tracked.dedup();
        let slot = |column: &usize| tracked.iter().position(|wanted| wanted == column);
        let mut key_sorted = definition.row_key.clone();
        key_sorted.sort_unstable();
        let typed = |column: usize| {
            slot(&column).map(|slot| (slot, map.columns[column], definition.columns[column].is_unsigned))
        };
        Ok(FoldPlan {
            walk: ImagePlan::new(map, &all_columns.bits, &tracked)?,
            locator_slots: key_sorted.iter().filter_map(slot).collect(),
            sort_columns: definition.row_key.iter().filter_map(|&column| typed(column)).collect(),
            witness_slots: definition.unique_columns.iter().filter_map(slot).collect(),
            auto_increment: definition.auto_increment_column().filter(|&column| column < count).and_then(typed),
            tracked: tracked.clone(),
            key_columns: ColumnBitmap::only(count, &definition.row_key),
            all_columns,
            locator_null_bytes: definition.row_key.len().div_ceil(8),
        })
    }

    /// Replaces the content of `output` with the locator of the row in `image`.
    #[inline]
    pub(crate) fn locator(&self, image: &[u8], spans: &[Span], output: &mut Vec<u8>) {
        write_locator(image, self.locator_null_bytes, self.locator_slots.iter().map(|&slot| &spans[slot]), output);
    }

    /// True if two images have the same locator.
    #[inline]
    pub(crate) fn same_locator(&self, one: (&[u8], &[Span]), other: (&[u8], &[Span])) -> bool {
        self.locator_slots.iter().all(|&slot| one.1[slot].field(one.0) == other.1[slot].field(other.0))
    }

    /// True if the table has unique keys besides the row key.
    #[inline]
    pub(crate) fn has_witness(&self) -> bool {
        !self.witness_slots.is_empty()
    }

    /// Replaces the content of `output` with the witness of the row in `image`: for each column a byte that says if it
    /// is NULL, and its field.
    #[inline]
    pub(crate) fn witness(&self, image: &[u8], spans: &[Span], output: &mut Vec<u8>) {
        output.clear();
        for &slot in &self.witness_slots {
            output.push(u8::from(spans[slot].is_null));
            output.extend_from_slice(spans[slot].field(image));
        }
    }

    /// The AUTO_INCREMENT value of the row; `None` if the table has no such column, or the value is not positive.
    #[inline]
    pub(crate) fn auto_increment(&self, image: &[u8], spans: &[Span]) -> Option<u64> {
        let (slot, column_type, is_unsigned) = self.auto_increment?;
        if spans[slot].is_null || !column_type.is_integer() {
            return None;
        }
        let bytes = spans[slot].value(image);
        let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let is_negative = !is_unsigned && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        if is_negative || value == 0 { None } else { Some(value) }
    }

    /// The first eight bytes of the row key in a form that sorts as numbers and as most collations do. Only locality
    /// depends on it, never correctness.
    #[inline]
    pub(crate) fn sort_prefix(&self, image: &[u8], spans: &[Span]) -> u64 {
        let mut prefix = [0u8; 8];
        let mut used = 0;
        for &(slot, column_type, is_unsigned) in &self.sort_columns {
            let value = spans[slot].value(image);
            let taken = value.len().min(8 - used);
            let target = &mut prefix[used..used + taken];
            if is_little_endian(column_type) {
                for (to, from) in target.iter_mut().zip(value.iter().rev()) {
                    *to = *from;
                }
                if column_type.is_integer() && !is_unsigned && taken > 0 {
                    target[0] ^= 0x80;
                }
            } else {
                target.copy_from_slice(&value[..taken]);
            }
            used += taken;
            if used == 8 {
                break;
            }
        }
        u64::from_be_bytes(prefix)
    }
}

/// Replaces the content of `output` with the locator of the row whose key's columns have these spans in `image`.
#[inline]
pub(crate) fn write_locator<'s>(
    image: &[u8],
    null_bytes: usize,
    spans: impl Iterator<Item = &'s Span>,
    output: &mut Vec<u8>,
) {
    output.clear();
    output.resize(null_bytes, 0);
    for (number, span) in spans.enumerate() {
        // The replica's key has no NULL, but the source's column may.
        if span.is_null {
            output[number / 8] |= 1 << (number % 8);
        }
        output.extend_from_slice(span.field(image));
    }
}

fn is_little_endian(column_type: ColumnType) -> bool {
    let is_number = column_type.is_numeric() && !matches!(column_type, ColumnType::Decimal { .. });
    let is_packed = matches!(
        column_type,
        ColumnType::Date
            | ColumnType::Year
            | ColumnType::Enum { .. }
            | ColumnType::Set { .. }
            | ColumnType::TimeOld
            | ColumnType::DatetimeOld
            | ColumnType::TimestampOld
    );
    (is_number || is_packed) && matches!(column_type.measure(), Measure::Fixed(_))
}

//! Sequences: their one row says which values are used up.
//!
//! Sessions that take values from one sequence are not logged in the order in which they took them. A server's own replica thread executes a row of a
//! sequence as SETVAL, which never goes back; only where the GTID event marks a definition is the row written as it is. To others a server does not do
//! that: it writes their rows as they are, and takes none of the next value and the round only. So Spate turns rows into SETVAL itself. Of many,
//! the highest is enough.

use std::collections::BTreeMap;

use spate_binlog::column::ColumnType;
use spate_binlog::table_map::bit_is_set;
use spate_binlog::{ImagePlan, Span, TableMap};
use spate_sql::{Server, Vendor};

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

/// The first version of each series of MariaDB whose GTID events mark rows that define a sequence. (10.7 ended before.)
const MARKS_SINCE: [(u32, u32); 8] =
    [(10_03, 39), (10_04, 29), (10_05, 20), (10_06, 13), (10_08, 8), (10_09, 6), (10_10, 4), (10_11, 3)];

/// True if a server tells by the GTID event whether a row defines its sequence, or is what SETVAL or NEXTVAL has left.
pub(crate) fn marks_definitions(source: Option<Server>) -> bool {
    let Some(Server { vendor: Vendor::MariaDb, version }) = source else { return false };
    let (series, patch) = (version / 100, version % 100);
    match MARKS_SINCE.iter().find(|&&(marked, _)| marked == series) {
        Some(&(_, since)) => patch >= since,
        None => series > 11_00 || series == 11_00 && patch >= 2,
    }
}

/// What rows have set sequences to. Of each, the highest state, as far as that is known: it is the largest value if the sequence rises, the
/// smallest if it falls, and partial rows do not say which. SETVAL passes over the other.
#[derive(Debug, Default)]
pub(crate) struct Settings(BTreeMap<TableName, Reached>);

#[derive(Debug)]
struct Reached {
    round: u64,
    lowest: i128,
    highest: i128,
}

impl Settings {
    /// Notes a setting. Returns the bytes of memory that it takes.
    pub(crate) fn take(&mut self, setting: SequenceSetting) -> usize {
        let SequenceSetting { name, value, round } = setting;
        let new = Reached { round, lowest: value, highest: value };
        if let Some(reached) = self.0.get_mut(&name) {
            if round > reached.round {
                *reached = new;
            } else if round == reached.round {
                reached.lowest = reached.lowest.min(value);
                reached.highest = reached.highest.max(value);
            }
            return 0;
        }
        let bytes = size_of::<(TableName, Reached)>() + name.schema.len() + name.table.len();
        self.0.insert(name, new);
        bytes
    }

    pub(crate) fn has(&self, name: &TableName) -> bool {
        self.0.contains_key(name)
    }

    /// What to set.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = SequenceSetting> + use<> {
        std::mem::take(&mut self.0).into_iter().flat_map(|(name, Reached { round, lowest, highest })| {
            let highest = (highest != lowest).then_some(highest);
            let setting = move |value| SequenceSetting { name: name.clone(), value, round };
            [Some(lowest), highest].into_iter().flatten().map(setting)
        })
    }
}

/// The state to which the last row in `images` sets the sequence; `None` if the images are to be written unchanged. An
/// event holds a row for each value that its statement took. `columns` are those that the images have. `may_define`: they say what the sequence is, if
/// they have all columns.
///
/// # Errors
/// [`crate::Error::Binlog`] if an image cannot be measured, or lacks one of the two columns.
pub(crate) fn setting(
    definition: &TableDefinition,
    map: &TableMap,
    columns: &[u8],
    mut images: &[u8],
    may_define: bool,
) -> Result<Option<SequenceSetting>> {
    if may_define && bit_is_set(columns, MINIMUM) {
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
    fn highest_state_is_kept_whichever_way_the_sequence_goes() {
        let setting = |value, round| SequenceSetting {
            name: TableName { schema: "d".to_owned(), table: "s".to_owned() },
            value,
            round,
        };
        let mut settings = Settings::default();
        assert!(settings.take(setting(7, 0)) > 0);
        let drained: Vec<_> = settings.drain().collect();
        assert_eq!(drained, [setting(7, 0)]);
        for (value, round) in [(9, 0), (5, 1), (8, 0), (6, 1), (4, 1)] {
            settings.take(setting(value, round));
        }
        assert!(settings.has(&setting(0, 0).name));
        let drained: Vec<_> = settings.drain().collect();
        assert_eq!(drained, [setting(4, 1), setting(6, 1)]);
        assert_eq!(settings.drain().count(), 0);
    }

    #[test]
    fn versions_that_mark_definitions_are_told() {
        let marks = |version| marks_definitions(Some(Server { vendor: Vendor::MariaDb, version }));
        assert!([10_11_03, 10_11_19, 10_06_13, 11_00_02, 11_04_01, 12_00_01].map(marks).iter().all(|&marks| marks));
        assert!([10_11_02, 10_06_12, 10_07_08, 10_02_44, 11_00_01].map(marks).iter().all(|&marks| !marks));
        assert!(!marks_definitions(None));
    }

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

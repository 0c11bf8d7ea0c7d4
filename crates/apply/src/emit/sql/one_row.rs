//! Statements that repair one row. They set the session's state themselves.

use spate_binlog::RowsKind;
use spate_binlog::table_map::bit_is_set;
use spate_schedule::{Result, RowChange, TableDefinition, TableName};

use super::statement::single;
use super::{STRICT, SessionState};
use crate::values::table::SqlTable;
use spate_connection::{Vendor, quote};

/// What is to become of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OneRow {
    /// It is inserted as it is after the change.
    Insert,
    /// The same into another table, of the same definition.
    InsertInto(TableName),
    /// The row with its key, whatever it holds, becomes the row after the change.
    Overwrite,
    /// It is deleted as it was before the change.
    DeleteBefore,
}

/// Keeps a session's state for [`RESTORE`].
pub(crate) const SAVE: &str =
    "SET @spate_sql_mode=@@sql_mode, @spate_time_zone=@@time_zone, @spate_foreign_key_checks=@@foreign_key_checks";

/// Puts a session's state back. (CHECK constraints stay as they are: no row needs them on.)
pub(crate) const RESTORE: &str =
    "SET SESSION sql_mode=@spate_sql_mode, time_zone=@spate_time_zone, foreign_key_checks=@spate_foreign_key_checks";

/// The statements that set the session's state and write the row; `None` if the row has no key to be overwritten by.
///
/// # Errors
/// A row that cannot be written.
pub(crate) fn one_row(row: &RowChange, what: &OneRow, vendor: Vendor) -> Result<Option<[Vec<u8>; 3]>> {
    let plan = row.plan();
    let scratch;
    let definition = match what {
        OneRow::InsertInto(name) => {
            scratch = TableDefinition { name: name.clone(), trigger: None, ..(*plan.definition).clone() };
            &scratch
        }
        _ => &*plan.definition,
    };
    let table = SqlTable::new(&plan.map, definition, vendor)?;
    let kind = match what {
        OneRow::Insert | OneRow::InsertInto(_) => RowsKind::Insert,
        OneRow::Overwrite => RowsKind::Update,
        OneRow::DeleteBefore => RowsKind::Delete,
    };
    let (columns, image) = if kind == RowsKind::Delete { row.before() } else { row.after() };
    let has_key =
        !definition.row_key.is_empty() && definition.row_key.iter().all(|&column| bit_is_set(columns, column));
    if kind == RowsKind::Update && !has_key {
        return Ok(None);
    }
    let (mut key, mut walk) = (table.image(columns)?, table.image(columns)?);
    walk.read(image)?;
    let missing = if kind == RowsKind::Delete { 0 } else { walk.missing_choices(&table, image) };
    let (sql, _) = single(&table, kind, (&mut key, image), (&mut walk, image), missing)?;
    let state = SessionState { is_lenient: missing > 0, ..STRICT };
    let hold = quote::hold_table(&definition.name.schema, &definition.name.table);
    Ok(Some([state.sql(vendor).into_bytes(), hold.into_bytes(), sql]))
}

//! Updates of many rows of a table without a key, in one pass over it for each statement.

use std::collections::HashMap;

use spate_binlog::RowsKind;
use spate_binlog::encode::ColumnBitmap;
use spate_schedule::keyless::{KeylessRows, Step};

use super::{STRICT, end_sql};
use crate::command::RowCheck;
use crate::fingerprint::Fingerprinter;
use crate::values::table::SqlTable;
use crate::values::{Role, append};
use spate_connection::Vendor;

/// What a list of values, and each of its columns, is called. The expression of a fingerprint says the table's columns without the
/// table's name.
const NEW: &str = "spate_new";

/// Bytes of one statement. Each is a pass over the table, and the server holds its values.
const SQL_BYTES_MAX: usize = 8 << 20;

/// Statements that make a step's updates, all copies of a row alike, each with the rows that it must find; between them, what sets the
/// session for them and back. `None` if the table's values cannot all be written.
pub(crate) fn in_place(
    rows: &KeylessRows,
    step: &Step,
    vendor: Vendor,
    max_allowed_packet: usize,
) -> Option<Vec<(Vec<u8>, Option<RowCheck>)>> {
    let plan = rows.plan();
    let table = SqlTable::new(&plan.map, &plan.definition, vendor).ok()?;
    // Values that move among unique ones would meet each other.
    let is_free = plan.definition.unique_columns.is_empty() && !plan.definition.has_hidden_unique_key;
    let is_named_so = |name: &str| name.to_ascii_lowercase().starts_with(NEW);
    if !is_free || plan.definition.columns.iter().any(|column| is_named_so(&column.name)) {
        return None;
    }
    let mut image = table.image(&ColumnBitmap::all(plan.map.columns.len()).bits).ok()?;
    let mut fingerprinter = Fingerprinter::new(plan)?;
    let set = table.names(&image.columns, ",", |column, name| format!("{}.{name}={NEW}.{NEW}_{column}", table.name));
    let close = format!(") AS {NEW} ON {NEW}.{NEW}_print={} SET {set}", fingerprinter.expression());
    let bytes_max = SQL_BYTES_MAX.min(max_allowed_packet / 2);
    let mut statements = vec![(STRICT.sql(vendor).into_bytes(), None)];
    // The last of them is open.
    let mut open: Option<Open> = None;
    let mut copies: HashMap<u32, u64> = HashMap::new();
    rows.updates(step).for_each(|((number, _), _)| *copies.entry(number).or_default() += 1);
    for ((number, before), (_, after)) in rows.updates(step) {
        // The copies of a row are one line.
        let Some(copies) = copies.remove(&number) else { continue };
        if open.as_ref().is_some_and(|open| open.sql.len() + after.len() * 2 > bytes_max) {
            statements.extend(open.take().map(|open| open.close(&close, &table)));
        }
        let statement = open.get_or_insert_with(|| Open::new(&table));
        statement.rows += copies;
        image.read(after).ok()?;
        if image.missing_choices(&table, after) > 0 {
            return None;
        }
        let print = u128::from_be_bytes(fingerprinter.of(before)?);
        let is_first = statement.lines == 0;
        statement.begin_line();
        statement.sql.extend_from_slice(format!("0x{print:032x}").as_bytes());
        if is_first {
            statement.sql.extend_from_slice(format!(" AS {NEW}_print").as_bytes());
        }
        for (place, column) in image.columns.iter().enumerate() {
            statement.sql.push(b',');
            append(&mut statement.sql, &table, &image, place, after, Role::Assigned).ok()?;
            if is_first {
                statement.sql.extend_from_slice(format!(" AS {NEW}_{column}").as_bytes());
            }
        }
        statement.end_line();
    }
    statements.extend(open.take().map(|open| open.close(&close, &table)));
    statements.push((end_sql(vendor).into_bytes(), None));
    Some(statements)
}

/// A statement without its end.
struct Open {
    sql: Vec<u8>,
    lines: u64,
    /// Those of the table that it is to find.
    rows: u64,
}

impl Open {
    fn new(table: &SqlTable<'_>) -> Open {
        // The table comes first: each of its rows is looked up in the list.
        Open { sql: format!("UPDATE {} STRAIGHT_JOIN (", table.name).into_bytes(), lines: 0, rows: 0 }
    }

    fn begin_line(&mut self) {
        let mark: &[u8] = match self.lines {
            0 => b"SELECT ",
            1 => b" UNION ALL VALUES (",
            _ => b",(",
        };
        self.sql.extend_from_slice(mark);
        self.lines += 1;
    }

    fn end_line(&mut self) {
        if self.lines > 1 {
            self.sql.push(b')');
        }
    }

    fn close(mut self, close: &str, table: &SqlTable<'_>) -> (Vec<u8>, Option<RowCheck>) {
        self.sql.extend_from_slice(close.as_bytes());
        let name = table.definition.name.clone();
        let check = RowCheck { statement: 0, rows: self.rows, kind: RowsKind::Update, warnings: Some(0), table: name };
        (self.sql, Some(check))
    }
}

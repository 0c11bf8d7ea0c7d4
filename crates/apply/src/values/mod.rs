//! The values of rows as SQL text: which columns of a table are written, in which form, and whether they arrive exactly.

pub(crate) mod form;
pub(crate) mod literal;
pub(crate) mod table;

use spate_schedule::Result;

use table::{SqlImage, SqlTable};

/// What a value is written for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// To be assigned to the column.
    Assigned,
    /// To be compared with the column, from a list of its own or beside others; with the column's collation if nothing else gives it.
    Compared { collates: bool },
    /// To be compared with the column, right beside it.
    Beside,
}

/// Appends the value of a column in the image that was read last.
pub(crate) fn append(
    sql: &mut Vec<u8>,
    table: &SqlTable<'_>,
    image: &SqlImage,
    place: usize,
    bytes: &[u8],
    role: Role,
) -> Result<()> {
    match (image.value(table, place, bytes)?, table.column(image.columns[place])) {
        (Some(value), Some((column, definition))) => match role {
            Role::Assigned => column.form.append_assigned(sql, &value),
            Role::Compared { collates } => column.form.append_compared(sql, &value, definition, collates),
            Role::Beside => column.form.append_beside(sql, &value, definition),
        },
        _ => sql.extend_from_slice(b"NULL"),
    }
    Ok(())
}

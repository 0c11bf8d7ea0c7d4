//! System-versioned tables: each row says when its version began and when it ended. A current row "ends" at the last
//! moment that a TIMESTAMP can hold. MariaDB 11.5 changed that moment.

use spate_binlog::column::ColumnType;
use spate_binlog::table_map::bit_is_set;
use spate_binlog::{ImagePlan, RowsEvent, RowsKind, Span};
use spate_sql::{Doubt, Server, SqlText, TokenKind, Vendor};

use crate::definition::TableName;
use crate::item::Statement;
use crate::plan::TablePlan;
use crate::statement::StatementClass;
use crate::{Error, Result};

/// The last moment that a server's TIMESTAMP can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LastMoment {
    /// 2038-01-19 03:14:07.999999.
    #[default]
    In2038,
    /// 2106-02-07 06:28:15.999999.
    In2106,
}

/// The last moments of the source and of the replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LastMoments {
    pub(crate) source: LastMoment,
    pub(crate) replica: LastMoment,
}

/// The last moments as a TIMESTAMP(6) in an image: seconds, then microseconds, the highest byte first.
const IN_2038: [u8; 7] = [0x7f, 0xff, 0xff, 0xff, 0x0f, 0x42, 0x3f];
const IN_2106: [u8; 7] = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x42, 0x3f];

impl LastMoment {
    /// The last moment of a server of this version, if its time has 64 bits.
    pub fn of(server: Server) -> LastMoment {
        const SINCE: u32 = 110_500;
        match server.vendor == Vendor::MariaDb && server.version >= SINCE {
            true => LastMoment::In2106,
            false => LastMoment::In2038,
        }
    }
}

/// Makes current rows of the source current rows of the replica, in the images of an event.
///
/// # Errors
/// [`Error::Refused`] if the replica cannot keep the table's history as the source does; [`Error::Binlog`] if an image
/// cannot be measured.
pub(crate) fn translate(plan: &TablePlan, rows: &RowsEvent<'_>, moments: LastMoments, images: &mut [u8]) -> Result<()> {
    let Some(row_end) = plan.definition.row_end else { return Ok(()) };
    match (moments.source, moments.replica) {
        (LastMoment::In2038, LastMoment::In2106) => {}
        (LastMoment::In2106, LastMoment::In2038) => {
            let why = "it is system-versioned: its current rows end in 2106 on the source, and the replica's time stamps end in 2038: \
                       replicate to MariaDB 11.5 or later";
            return Err(refused(&plan.definition.name, why));
        }
        _ => return Ok(()),
    }
    let walk = |columns: &[u8]| {
        let has_end = row_end < plan.map.columns.len() && bit_is_set(columns, row_end);
        ImagePlan::new(&plan.map, columns, if has_end { std::slice::from_ref(&row_end) } else { &[] })
    };
    let mut walks = vec![walk(rows.columns)?];
    if rows.kind == RowsKind::Update {
        walks.push(walk(rows.columns_after)?);
    }
    let mut at = 0;
    while at < images.len() {
        for walk in &walks {
            let mut span = [Span::default()];
            let length = walk.measure(&images[at..], &mut span)?;
            let image = &mut images[at..at + length];
            if walk.tracked_count() > 0 && span[0].value(image) == IN_2038 {
                image[span[0].start as usize..span[0].end as usize].copy_from_slice(&IN_2106);
            }
            at += length;
        }
    }
    Ok(())
}

/// The reason for refusing rows that name transactions.
const BY_TRANSACTIONS: &str = "it is system-versioned by transactions (ROW START and ROW END are BIGINT), and these rows name the source's: leave \
                               the table out, or let its versions be TIMESTAMP(6)";

/// True for a definition in which a ROW START or a ROW END is, or may be, a number: the number of a transaction. (Only
/// a number can be UNSIGNED, and no name without quotes can be that word.) The source logs changes of such a table as
/// statements in any format, so only its definition identifies it.
fn numbers_versions(text: SqlText<'_>) -> bool {
    if !text.has_letters("UNSIGNED") || !text.has_letters("ROW") {
        return false;
    }
    let mut is_unsigned = false;
    let mut tokens = text.tokens();
    while let Some(token) = tokens.next() {
        if token.is("ROW") && is_unsigned && (tokens.accept("START") || tokens.accept("END")) {
            return true;
        }
        is_unsigned = !token.is_mark(b',') && (is_unsigned || token.is("UNSIGNED"));
    }
    tokens.doubt().is_some()
}

/// True for a text that is, or may be, the definition of a table whose rows keep the numbers of transactions.
pub(crate) fn may_number_versions(statement: &Statement) -> bool {
    statement.class == StatementClass::Definition && numbers_versions(statement.text())
}

/// Refuses rows that hold the numbers of the source's transactions, which the replica does not know. (Only a CREATE
/// TABLE … SELECT logs such rows; other changes of these tables are logged as statements.)
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn check_rows(plan: &TablePlan) -> Result<()> {
    let Some(row_end) = plan.definition.row_end else { return Ok(()) };
    let defined = plan.definition.columns.get(row_end).map_or("", |column| &column.column_type);
    let logged = plan.map.columns.get(row_end);
    if logged == Some(&ColumnType::BigInt) || defined.to_ascii_lowercase().starts_with("bigint") {
        return Err(refused(&plan.definition.name, BY_TRANSACTIONS));
    }
    Ok(())
}

/// The reason why rows cannot be written as statements: the server would count each of them.
pub fn refused_as_statements(table: &TableName) -> Error {
    let why = "it has PARTITION BY SYSTEM_TIME LIMIT: a server counts rows once a statement, and with --dialect sql each row is one: replay \
               rows, or leave its transactions out (--skip)";
    refused(table, why)
}

/// The reason why a statement cannot be replayed in parts.
pub(crate) fn refused_split(table: &TableName) -> Error {
    let why = "it has PARTITION BY SYSTEM_TIME LIMIT: a server counts rows once a statement, and this one is too large to be replayed as one: \
               let the partitions be of an INTERVAL, or leave its transactions out (--skip); a larger max_allowed_packet on the replica may do";
    refused(table, why)
}

fn refused(table: &TableName, why: &str) -> Error {
    Error::Refused { what: format!("a change of rows of {table}"), why: why.to_owned() }
}

/// The index of the ROW END column in a table that this CREATE TABLE creates, as a server logs it before the rows of a
/// CREATE TABLE … SELECT. `None` if the table is not system-versioned.
///
/// # Errors
/// A doubt about the text.
pub(crate) fn created_row_end(text: SqlText<'_>) -> std::result::Result<Option<usize>, Doubt> {
    /// Words that begin an item of the list that is no column.
    const NO_COLUMN: [&str; 9] =
        ["PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "PERIOD", "CHECK"];
    if !text.has_letters("VERSIONING") {
        return Ok(None);
    }
    let tokens = spate_sql::edit::tokens(text.sql, text.reading)?;
    let (mut depth, mut list_is_over) = (0, false);
    let (mut columns, mut named, mut is_versioned) = (0_usize, None, false);
    for pair in tokens.windows(2) {
        let (before, token) = (&pair[0], &pair[1]);
        match token.kind {
            TokenKind::Mark(b'(') => depth += 1,
            TokenKind::Mark(b')') => {
                depth -= 1;
                list_is_over |= depth == 0;
            }
            _ if depth == 0 => is_versioned |= before.is("SYSTEM") && token.is("VERSIONING"),
            _ if depth > 1 || list_is_over => {}
            _ if before.is_mark(b'(') || before.is_mark(b',') => {
                columns += usize::from(!token.is_one_of(&NO_COLUMN));
            }
            _ if before.is("ROW") && token.is("END") => named = columns.checked_sub(1),
            _ => {}
        }
    }
    // Without names, the two columns come after the listed ones.
    Ok(is_versioned.then_some(named.unwrap_or(columns + 1)))
}

#[cfg(test)]
mod tests {
    use spate_sql::Reading;

    use super::*;

    #[test]
    fn row_end_column_is_found_in_a_logged_definition() {
        let reading = Reading::plain();
        let row_end = |sql: &str| created_row_end(SqlText { sql: sql.as_bytes(), reading: &reading }).unwrap();
        let list = "CREATE TABLE `c` (\n  `a` int(1) DEFAULT (1 + 2),\n  `ROW END, x` char(3) COMMENT 'ROW END, (',\n  KEY `a` (`a`,`b`)\n)";
        assert_eq!(row_end(list), None);
        assert_eq!(row_end(&format!("{list} COMMENT='SYSTEM VERSIONING'")), None);
        let parts = "PARTITION BY SYSTEM_TIME LIMIT 2 (PARTITION `p0` HISTORY, PARTITION `pn` CURRENT)";
        assert_eq!(row_end(&format!("{list} WITH SYSTEM VERSIONING {parts}")), Some(3));
        let named = "CREATE TABLE `d`.`c` (`e` timestamp(6) GENERATED ALWAYS AS ROW END INVISIBLE, `a` int WITHOUT SYSTEM VERSIONING, \
                     `s` timestamp(6) GENERATED ALWAYS AS ROW START, PERIOD FOR SYSTEM_TIME (`s`, `e`)) WITH SYSTEM VERSIONING";
        assert_eq!(row_end(named), Some(0));
    }

    #[test]
    fn versioning_by_transactions_is_distinguished_from_time_stamps() {
        let reading = Reading::plain();
        let is_numbered = |sql: &str| numbers_versions(SqlText { sql: sql.as_bytes(), reading: &reading });
        assert!(is_numbered(
            "CREATE TABLE t (a INT, s BIGINT(20) UNSIGNED GENERATED ALWAYS AS ROW START INVISIBLE, b INT)"
        ));
        assert!(is_numbered("ALTER TABLE t ADD `timestamp` bigint unsigned as row end, ADD SYSTEM VERSIONING"));
        assert!(!is_numbered(
            "CREATE TABLE t (a INT UNSIGNED, s TIMESTAMP(6) AS ROW START, b INT UNSIGNED COMMENT 'AS ROW END')"
        ));
        assert!(!is_numbered("CREATE TABLE t (a INT UNSIGNED) ROW_FORMAT=DYNAMIC"));
    }
}

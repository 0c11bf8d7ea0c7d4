//! The SQL that turns rows into hashes, and keys into ranges. Pure text, no I/O.
//!
//! The SQL encodes a row as one byte string from which every column's bytes could be read back, so two different rows
//! never have the same encoding:
//! - a number or a time is written in full precision and ends with a comma, which it does not contain;
//! - a string follows its length;
//! - a long value is written as its length and hash;
//! - NULL is an `N`, and no value begins with `N`.
//!
//! A range's hash is the sum of the first 64 bits of its rows' hashes, as an exact decimal. The sum does not depend on
//! the order of the rows, and unlike an exclusive or it counts equal rows.

use super::catalog::{Column, RowHash, Table, TableName};
use spate_connection::quote;

/// Added to the sum for each row that the server could not hash. It exceeds any possible sum of hashes, so that the sum
/// shows such rows.
const UNHASHABLE: &str = "10000000000000000000000000000000000000000";

/// A key's values in the order of the key's columns, as bytes; see [`key_expressions`].
pub(super) type KeyValues = Vec<Vec<u8>>;

/// A part of a table: keys above `after`, up to and including `up_to`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) after: Option<KeyValues>,
    pub(super) up_to: Option<KeyValues>,
}

/// How a column's values are encoded as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Text without a comma: whole numbers, decimals, dates and times.
    Plain,
    /// Floating point: converted to double precision, whose text is exact.
    Floating,
    /// BIT, ENUM and SET: by number, because different values may have the same text.
    Numbered,
    /// The length, then the bytes.
    Counted,
    /// The length, then the hash: a value may be larger than a packet.
    Long,
}

fn shape(column: &Column) -> Shape {
    match column.data_type.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "numeric" | "year" | "date"
        | "datetime" | "timestamp" | "time" => Shape::Plain,
        "float" | "double" => Shape::Floating,
        "bit" | "enum" | "set" => Shape::Numbered,
        "char" | "varchar" | "binary" | "varbinary" | "uuid" | "inet4" | "inet6" => Shape::Counted,
        _ => Shape::Long,
    }
}

/// SQL for the hash of an expression, in hexadecimal digits.
fn hash_expression(hash: RowHash, expression: &str) -> String {
    match hash {
        RowHash::Md5 => format!("MD5({expression})"),
        RowHash::Sha256 => format!("SHA2({expression},256)"),
    }
}

/// SQL for the encoding of a column's value.
fn encoding_expression(hash: RowHash, column: &Column) -> String {
    let name = quote::identifier(&column.name);
    let parts = match shape(column) {
        Shape::Plain => format!("{name},','"),
        Shape::Floating => format!("{name}+0e0,','"),
        Shape::Numbered => format!("CAST({name} AS UNSIGNED),','"),
        Shape::Counted => format!("LENGTH(CAST({name} AS BINARY)),':',CAST({name} AS BINARY)"),
        Shape::Long => format!("LENGTH({name}),':',{}", hash_expression(hash, &name)),
    };
    match column.is_nullable {
        true => format!("IFNULL(CONCAT({parts}),'N')"),
        false => parts,
    }
}

/// SQL for the hash of a row. If all columns of a table are virtual, all its rows have the same hash.
fn row_hash_expression(table: &Table) -> String {
    let stored = table.columns.iter().filter(|column| !column.is_virtual);
    let columns: Vec<String> = stored.map(|column| encoding_expression(table.hash, column)).collect();
    let all = if columns.is_empty() { "''".to_owned() } else { columns.join(",") };
    hash_expression(table.hash, &format!("CONCAT('',{all})"))
}

/// The table; never a view that somebody puts in its place meanwhile: those take no hint.
fn from_clause(name: &TableName, table: &Table) -> String {
    let history = if table.is_versioned { " FOR SYSTEM_TIME ALL" } else { "" };
    format!("{}{history} {}", name.quoted(), quote::NO_VIEW)
}

/// A SELECT of a range's number of rows and its hash.
pub(super) fn range_hash_sql(name: &TableName, table: &Table, range: &Range) -> String {
    format!(
        "SELECT COUNT(*), COALESCE(SUM(IFNULL(CAST(CONV(LEFT({},16),16,10) AS UNSIGNED),{UNHASHABLE})),0) FROM {}{}",
        row_hash_expression(table),
        from_clause(name, table),
        where_clause(table, range)
    )
}

/// Counts the rows of a range that the server could not hash, from the sum that [`range_hash_sql`] gave.
pub(super) fn count_unhashable_rows(sum: &str) -> u64 {
    let digits = UNHASHABLE.len() - 1;
    sum.len()
        .checked_sub(digits)
        .map_or(0, |head| sum.get(..head).and_then(|rows| rows.parse().ok()).unwrap_or(u64::from(head > 0)))
}

/// A SELECT of each row of a range: its key's values, then its hash.
pub(super) fn row_hashes_sql(name: &TableName, table: &Table, range: &Range) -> String {
    let mut columns = key_expressions(table);
    columns.push(row_hash_expression(table));
    format!("SELECT {} FROM {}{}", columns.join(", "), from_clause(name, table), where_clause(table, range))
}

/// A SELECT of the key of the `rows`th row after a key: the end of the next range. If it gives no row, the next range
/// is the rest of the table. `None` if the table has no usable key.
pub(super) fn boundary_sql(name: &TableName, table: &Table, after: Option<&KeyValues>, rows: u64) -> Option<String> {
    let (index, places) = table.key.as_ref()?;
    let order: Vec<String> = places.iter().map(|place| quote::identifier(&table.columns[*place].name)).collect();
    let range = Range { after: after.cloned(), up_to: None };
    Some(format!(
        "SELECT {} FROM {} FORCE INDEX ({}){} ORDER BY {} LIMIT 1 OFFSET {}",
        key_expressions(table).join(", "),
        name.quoted(),
        quote::identifier(index),
        where_clause(table, &range),
        order.join(", "),
        rows.saturating_sub(1)
    ))
}

fn key_columns(table: &Table) -> impl Iterator<Item = &Column> {
    table.key.iter().flat_map(|(_, places)| places).map(|place| &table.columns[*place])
}

/// SQL for the key's values, as bytes that [`literal`] turns back into the same value.
fn key_expressions(table: &Table) -> Vec<String> {
    let expression = |column: &Column| {
        let name = quote::identifier(&column.name);
        match (shape(column), column.data_type.as_str()) {
            (Shape::Floating, _) => format!("{name}+0e0"),
            (Shape::Numbered, _) => format!("CAST({name} AS UNSIGNED)"),
            (_, "uuid" | "inet4" | "inet6") => format!("CAST({name} AS CHAR)"),
            (Shape::Counted, _) => format!("CAST({name} AS BINARY)"),
            _ => name,
        }
    };
    key_columns(table).map(expression).collect()
}

/// A value as an SQL literal of its column's type and collation, so that the server can use an index for the
/// comparison.
fn literal(column: &Column, value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let is_number =
        !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e'));
    match (shape(column), column.data_type.as_str()) {
        (Shape::Floating, _) if is_number && text.contains('e') => text.into_owned(),
        (Shape::Floating, _) if is_number => format!("{text}e0"),
        (Shape::Numbered, _) if is_number => text.into_owned(),
        (Shape::Plain, "date" | "datetime" | "timestamp" | "time") => quote::text(&text),
        (Shape::Plain, _) if is_number => text.into_owned(),
        (Shape::Counted, "char" | "varchar") => match (&column.character_set, &column.collation) {
            (Some(character_set), Some(collation)) if is_word(character_set) && is_word(collation) => {
                format!("_{character_set} {} COLLATE {collation}", quote::bytes(value))
            }
            _ => quote::bytes(value),
        },
        (Shape::Counted, "binary" | "varbinary") => quote::bytes(value),
        _ => quote::text(&text),
    }
}

fn is_word(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn where_clause(table: &Table, range: &Range) -> String {
    let mut parts = Vec::new();
    if let Some(after) = &range.after {
        parts.push(bound_condition(table, after, ">", ">"));
    }
    if let Some(up_to) = &range.up_to {
        parts.push(bound_condition(table, up_to, "<", "<="));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", parts.join(" AND ")),
    }
}

/// `(a, b) > (1, 2)`, written as comparisons of single columns: the range optimisers of both vendors need that form.
/// `strictly` compares all columns but the last, `at_last` the last one.
fn bound_condition(table: &Table, values: &KeyValues, strictly: &str, at_last: &str) -> String {
    let pairs: Vec<(String, String)> = key_columns(table)
        .zip(values)
        .map(|(column, value)| (quote::identifier(&column.name), literal(column, value)))
        .collect();
    let mut sql = String::new();
    for (index, (name, value)) in pairs.iter().enumerate().rev() {
        sql = match index + 1 == pairs.len() {
            true => format!("{name} {at_last} {value}"),
            false => format!("({name} {strictly} {value} OR ({name} = {value} AND {sql}))"),
        };
    }
    sql
}

/// Formats a key for people: `id=5, name='x'`.
pub(super) fn show_key(table: &Table, values: &[Vec<u8>]) -> String {
    let shown: Vec<String> = key_columns(table).zip(values).map(|(column, value)| show_value(column, value)).collect();
    shown.join(", ")
}

fn show_value(column: &Column, value: &[u8]) -> String {
    let is_text = |text: &str| !text.chars().any(char::is_control);
    let shown = match (shape(column), std::str::from_utf8(value)) {
        (Shape::Counted, Ok(text)) if is_text(text) => format!("'{}'", text.replace('\'', "''")),
        (Shape::Counted, _) | (_, Err(_)) => quote::bytes(value),
        (_, Ok(text)) => text.to_owned(),
    };
    format!("{}={shown}", column.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, column_type: &str, is_nullable: bool) -> Column {
        let data_type = column_type.split('(').next().unwrap().to_owned();
        let is_text = ["char", "varchar"].contains(&data_type.as_str());
        Column {
            name: name.to_owned(),
            data_type,
            column_type: column_type.to_owned(),
            character_set: is_text.then(|| "utf8mb4".to_owned()),
            collation: is_text.then(|| "utf8mb4_bin".to_owned()),
            is_nullable,
            is_virtual: false,
        }
    }

    fn table() -> Table {
        Table {
            columns: vec![column("a`", "int(11)", false), column("b", "varchar(9)", false), column("c", "float", true)],
            key: Some(("PRIMARY".to_owned(), vec![1, 0])),
            is_transactional: true,
            is_versioned: false,
            hash: RowHash::Md5,
        }
    }

    #[test]
    fn range_condition_compares_each_key_column() {
        let range = Range { after: Some(vec![b"x'".to_vec(), b"5".to_vec()]), up_to: None };
        assert_eq!(
            where_clause(&table(), &range),
            " WHERE (`b` > _utf8mb4 x'7827' COLLATE utf8mb4_bin OR (`b` = _utf8mb4 x'7827' COLLATE utf8mb4_bin AND `a``` > 5))"
        );
        let range = Range { after: None, up_to: Some(vec![vec![], b"-5".to_vec()]) };
        assert!(where_clause(&table(), &range).ends_with("AND `a``` <= -5))"));
        assert_eq!(where_clause(&table(), &Range::default()), "");
    }

    #[test]
    fn no_query_reads_a_view() {
        let (name, range) = (TableName { schema: "d".to_owned(), table: "t".to_owned() }, Range::default());
        let boundary = boundary_sql(&name, &table(), None, 7).unwrap();
        assert!(boundary.contains(" FROM `d`.`t` FORCE INDEX (`PRIMARY`)"), "{boundary}");
        for sql in [range_hash_sql(&name, &table(), &range), row_hashes_sql(&name, &table(), &range)] {
            assert!(sql.ends_with(" FROM `d`.`t` USE INDEX FOR GROUP BY ()"), "{sql}");
        }
    }

    #[test]
    fn hostile_key_value_is_quoted() {
        let literal = literal(&column("a", "int(11)", false), b"1 OR 1");
        assert_eq!(literal, "'1 OR 1'");
    }

    #[test]
    fn unhashable_rows_are_counted_in_the_sum() {
        assert_eq!(count_unhashable_rows("0"), 0);
        assert_eq!(count_unhashable_rows("18446744073709551615"), 0);
        assert_eq!(count_unhashable_rows("10000000000000000000000000000000000000000"), 1);
        assert_eq!(count_unhashable_rows("120000000000000000000000000018446744073709"), 12);
    }
}

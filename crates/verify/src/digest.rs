//! The SQL that turns rows into hashes, and keys into ranges. Pure text, no I/O.
//!
//! A row becomes one byte string from which every column's bytes could be read back, so two different rows never become the
//! same one: numbers and times in full precision end with a comma, which they do not contain; strings stand behind their
//! length; long values are there as their length and hash; NULL is an `N`, with which no value begins. Its hash's first 64
//! bits, summed over the rows of a range as an exact decimal, are the range's hash: independent of the order, and unlike
//! an exclusive or it counts equal rows.

use super::catalog::{Column, RowHash, Table, TableName};
use spate_connection::quote;

/// Added for a row that the server could not hash, so that it shows in the sum: more than any number of hashes makes.
const UNHASHABLE: &str = "10000000000000000000000000000000000000000";

/// A key's values in the order of the key's columns, as bytes; see [`key_expressions`].
pub(super) type KeyValues = Vec<Vec<u8>>;

/// A part of a table: keys above `after`, up to and including `up_to`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) after: Option<KeyValues>,
    pub(super) up_to: Option<KeyValues>,
}

/// What a column's values look like as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Text without a comma: whole numbers, decimals, dates and times.
    Plain,
    /// Floating point: through double precision, whose text is exact.
    Floating,
    /// BIT, ENUM and SET: by number, which tells apart what their text does not.
    Numbered,
    /// Bytes behind their length.
    Counted,
    /// Possibly larger than a packet: by length and hash.
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

/// The hash of an expression, in hexadecimal digits.
fn hashed(hash: RowHash, expression: &str) -> String {
    match hash {
        RowHash::Md5 => format!("MD5({expression})"),
        RowHash::Sha256 => format!("SHA2({expression},256)"),
    }
}

fn encoded(hash: RowHash, column: &Column) -> String {
    let name = quote::identifier(&column.name);
    let parts = match shape(column) {
        Shape::Plain => format!("{name},','"),
        Shape::Floating => format!("{name}+0e0,','"),
        Shape::Numbered => format!("CAST({name} AS UNSIGNED),','"),
        Shape::Counted => format!("LENGTH(CAST({name} AS BINARY)),':',CAST({name} AS BINARY)"),
        Shape::Long => format!("LENGTH({name}),':',{}", hashed(hash, &name)),
    };
    match column.is_nullable {
        true => format!("IFNULL(CONCAT({parts}),'N')"),
        false => parts,
    }
}

/// The hash of a row. A table whose columns are all virtual has rows that are all alike.
fn row_hash(table: &Table) -> String {
    let stored = table.columns.iter().filter(|column| !column.is_virtual);
    let columns: Vec<String> = stored.map(|column| encoded(table.hash, column)).collect();
    let all = if columns.is_empty() { "''".to_owned() } else { columns.join(",") };
    hashed(table.hash, &format!("CONCAT('',{all})"))
}

fn from(name: &TableName, table: &Table) -> String {
    let history = if table.is_versioned { " FOR SYSTEM_TIME ALL" } else { "" };
    format!("{}{history}", name.quoted())
}

/// Counts and hashes a range: two columns.
pub(super) fn range_hash_sql(name: &TableName, table: &Table, range: &Range) -> String {
    format!(
        "SELECT COUNT(*), COALESCE(SUM(IFNULL(CAST(CONV(LEFT({},16),16,10) AS UNSIGNED),{UNHASHABLE})),0) FROM {}{}",
        row_hash(table),
        from(name, table),
        condition(table, range)
    )
}

/// How many rows of a range could not be hashed, from the sum that [`range_hash_sql`] gave.
pub(super) fn unhashable_rows(sum: &str) -> u64 {
    let digits = UNHASHABLE.len() - 1;
    sum.len()
        .checked_sub(digits)
        .map_or(0, |head| sum.get(..head).and_then(|rows| rows.parse().ok()).unwrap_or(u64::from(head > 0)))
}

/// Shows each row of a range: its key's values, then its hash.
pub(super) fn row_hashes_sql(name: &TableName, table: &Table, range: &Range) -> String {
    let mut columns = key_expressions(table);
    columns.push(row_hash(table));
    format!("SELECT {} FROM {}{}", columns.join(", "), from(name, table), condition(table, range))
}

/// Finds the key of the `rows`th row after a key: the end of the next range. No row: the rest of the table is the range.
pub(super) fn boundary_sql(name: &TableName, table: &Table, after: Option<&KeyValues>, rows: u64) -> Option<String> {
    let (index, places) = table.key.as_ref()?;
    let order: Vec<String> = places.iter().map(|place| quote::identifier(&table.columns[*place].name)).collect();
    let range = Range { after: after.cloned(), up_to: None };
    Some(format!(
        "SELECT {} FROM {} FORCE INDEX ({}){} ORDER BY {} LIMIT 1 OFFSET {}",
        key_expressions(table).join(", "),
        name.quoted(),
        quote::identifier(index),
        condition(table, &range),
        order.join(", "),
        rows.saturating_sub(1)
    ))
}

fn key_columns(table: &Table) -> impl Iterator<Item = &Column> {
    table.key.iter().flat_map(|(_, places)| places).map(|place| &table.columns[*place])
}

/// What to select for the key's values: bytes that [`literal`] can make the same value of.
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

/// A value as SQL that compares with its column as the column's own values do, so that an index serves.
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

fn condition(table: &Table, range: &Range) -> String {
    let mut parts = Vec::new();
    if let Some(after) = &range.after {
        parts.push(bound(table, after, ">", ">"));
    }
    if let Some(up_to) = &range.up_to {
        parts.push(bound(table, up_to, "<", "<="));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", parts.join(" AND ")),
    }
}

/// `(a, b) > (1, 2)`, spelled out as the range optimisers of both vendors understand it.
fn bound(table: &Table, values: &KeyValues, strictly: &str, at_last: &str) -> String {
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

/// A key for people: `id=5, name='x'`.
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
            condition(&table(), &range),
            " WHERE (`b` > _utf8mb4 x'7827' COLLATE utf8mb4_bin OR (`b` = _utf8mb4 x'7827' COLLATE utf8mb4_bin AND `a``` > 5))"
        );
        let range = Range { after: None, up_to: Some(vec![vec![], b"-5".to_vec()]) };
        assert!(condition(&table(), &range).ends_with("AND `a``` <= -5))"));
        assert_eq!(condition(&table(), &Range::default()), "");
    }

    #[test]
    fn hostile_key_value_is_quoted() {
        let literal = literal(&column("a", "int(11)", false), b"1 OR 1");
        assert_eq!(literal, "'1 OR 1'");
    }

    #[test]
    fn unhashable_rows_are_counted_in_the_sum() {
        assert_eq!(unhashable_rows("0"), 0);
        assert_eq!(unhashable_rows("18446744073709551615"), 0);
        assert_eq!(unhashable_rows("10000000000000000000000000000000000000000"), 1);
        assert_eq!(unhashable_rows("120000000000000000000000000018446744073709"), 12);
    }
}

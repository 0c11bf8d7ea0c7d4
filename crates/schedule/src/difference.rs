//! Compares a table map with the definition of the replica's table.
//!
//! A table map always gives the number of the source's columns, their types, and which of them may be NULL; with
//! `binlog_row_metadata=MINIMAL` or `FULL` also signs and character sets; with `FULL` also names and the primary key.
//! Its other metadata is not compared, because it changes nothing here: texts of ENUM and SET (values are their
//! numbers, as in native replication), kinds of geometries, and invisible columns.
//!
//! Either the two tables differ, which native replication allows within limits, or the definition was read too early.
//! So the definition is read once more before the difference counts as a fact.

use std::fmt;
use std::sync::Arc;

use spate_binlog::TableMap;
use spate_binlog::column::ColumnType;
use spate_sql::charset;

use crate::definition::{ColumnDefinition, TableDefinition};

/// The number of differences of a table that a message names.
const SHOWN_MAX: usize = 4;

/// A difference between the source's table map and the replica's definition. Columns count from 0; the variants hold
/// the source's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// The source has this many columns.
    Columns(usize),
    /// A column is of this type.
    Type(usize, ColumnType),
    /// A column may be NULL, or not.
    Nullable(usize, bool),
    /// A number is unsigned, or signed.
    Unsigned(usize, bool),
    /// A text is in this character set.
    Charset(usize, &'static str),
    /// A column has this name.
    Name(usize, String),
    /// The primary key, or the unique key that serves as one, is on these columns; empty if there is no such key.
    Key(Vec<usize>),
}

impl Difference {
    fn is_silent(&self) -> bool {
        use Difference::{Charset, Columns, Key, Name, Nullable, Type, Unsigned};
        match self {
            Unsigned(..) | Charset(..) | Name(..) | Key(_) => true,
            // The server adds columns and converts values, or refuses to.
            Columns(_) | Type(..) | Nullable(..) => false,
        }
    }
}

/// All differences, the most important first.
pub fn differences(map: &TableMap, definition: &TableDefinition) -> Vec<Difference> {
    let mut found = Vec::new();
    found.extend(key(map, definition));
    if map.columns.len() != definition.columns.len() {
        found.push(Difference::Columns(map.columns.len()));
    }
    let (mut signs, mut collations) = (map.metadata.unsigned.iter(), map.metadata.collations.iter());
    for (index, (&column_type, column)) in map.columns.iter().zip(&definition.columns).enumerate() {
        let is_unsigned = if column_type.has_signedness() { signs.next() } else { None };
        let collation = if column_type.has_collation() { collations.next() } else { None };
        // The server does not show the column, or its type is unknown.
        if column.column_type.is_empty() {
            continue;
        }
        if let Some(name) = map.metadata.column_names.get(index)
            && !is_same_name(name, &column.name)
        {
            found.push(Difference::Name(index, name.clone()));
        }
        if !may_be(column_type, column) {
            found.push(Difference::Type(index, column_type));
        }
        if map.is_nullable(index) != column.is_nullable {
            found.push(Difference::Nullable(index, map.is_nullable(index)));
        }
        // A definition of a YEAR shows no sign.
        if let Some(&is_unsigned) = is_unsigned.filter(|_| column_type.is_numeric())
            && is_unsigned != column.is_unsigned
        {
            found.push(Difference::Unsigned(index, is_unsigned));
        }
        let charset = collation.and_then(|&number| charset::of_collation(number));
        if let Some(charset) = charset.filter(|charset| !is_same_charset(charset, column)) {
            found.push(Difference::Charset(index, charset));
        }
    }
    found
}

/// Compares the keys, which a source logs together with names. Folding uses the replica's row key; the source's key may
/// also be another key of the replica that is as good.
fn key(map: &TableMap, definition: &TableDefinition) -> Option<Difference> {
    if map.metadata.column_names.is_empty() {
        return None;
    }
    let has_columns = |key: &Vec<usize>, other: &[usize]| {
        key.iter().all(|column| other.contains(column)) && other.iter().all(|column| key.contains(column))
    };
    let source = &map.metadata.primary_key;
    // The ROW END column is part of each key there, and the server does not list it.
    if definition.row_end.is_some() && definition.row_key.iter().all(|column| source.contains(column)) {
        return None;
    }
    let mut keys = std::iter::once(&definition.row_key).chain(&definition.equivalent_keys);
    let is_known = keys.any(|key| has_columns(key, source));
    (!is_known).then(|| Difference::Key(source.clone()))
}

fn is_same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || one.to_lowercase() == other.to_lowercase()
}

fn is_same_charset(charset: &str, column: &ColumnDefinition) -> bool {
    let other = if column.charset.is_empty() { "binary" } else { &column.charset };
    charset::is_part_of(charset, other) && charset::is_part_of(other, charset)
}

/// True if a column of this definition may be logged with this type. An unknown definition may have any type.
fn may_be(logged: ColumnType, column: &ColumnDefinition) -> bool {
    use ColumnType as T;
    let text = &column.column_type;
    let word_end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let word = text[..word_end].to_ascii_lowercase();
    let numbers = numbers(&text[word_end..]);
    let first = numbers.first().copied();
    let fits = |bytes: u16| match (first, charset::character_bytes_max(&column.charset)) {
        (Some(length), Some(each)) => length.checked_mul(each) == Some(u32::from(bytes)),
        _ => true,
    };
    let has_fraction = |fraction: u8| first.unwrap_or(0) == u32::from(fraction);
    let is_blob = |bytes: u8| match logged {
        T::Blob { length_bytes } | T::BlobCompressed { length_bytes } => length_bytes == bytes,
        _ => false,
    };
    match &*word {
        "tinyint" => logged == T::TinyInt,
        "smallint" => logged == T::SmallInt,
        "mediumint" => logged == T::MediumInt,
        "int" => logged == T::Int,
        "bigint" => logged == T::BigInt,
        "float" => logged == T::Float,
        "double" => logged == T::Double,
        "decimal" => match (logged, numbers.as_slice()) {
            (T::Decimal { precision, scale }, &[p, s]) => (u32::from(precision), u32::from(scale)) == (p, s),
            (logged, _) => matches!(logged, T::Decimal { .. }),
        },
        "year" => logged == T::Year,
        "date" => logged == T::Date,
        "time" => matches!(logged, T::Time { fraction } if has_fraction(fraction)) || logged == T::TimeOld,
        "datetime" => matches!(logged, T::Datetime { fraction } if has_fraction(fraction)) || logged == T::DatetimeOld,
        "timestamp" => {
            matches!(logged, T::Timestamp { fraction } if has_fraction(fraction)) || logged == T::TimestampOld
        }
        "bit" => matches!(logged, T::Bit { bits } if first.is_none_or(|length| length == u32::from(bits))),
        "varchar" | "varbinary" => match logged {
            T::Varchar { bytes_max } => fits(bytes_max),
            logged => matches!(logged, T::VarcharCompressed { .. }),
        },
        "char" | "binary" => matches!(logged, T::Char { bytes_max } if fits(bytes_max)),
        "uuid" | "inet4" | "inet6" => matches!(logged, T::Char { .. }),
        "enum" => matches!(logged, T::Enum { .. }),
        "set" => matches!(logged, T::Set { .. }),
        "tinyblob" | "tinytext" => is_blob(1),
        "blob" | "text" => is_blob(2),
        "mediumblob" | "mediumtext" => is_blob(3),
        "longblob" | "longtext" => is_blob(4),
        "json" => matches!(logged, T::Json { .. }),
        _ => true,
    }
}

/// The numbers in the parentheses with which a type begins: `(10,2) unsigned`.
fn numbers(text: &str) -> Vec<u32> {
    let inner = text.strip_prefix('(').and_then(|text| text.split_once(')')).map_or("", |(inner, _)| inner);
    inner.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

/// A table map that does not fit a definition. Its text names the source's side and then the replica's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The replica's table, as it is known.
    pub definition: Arc<TableDefinition>,
    /// The differences of the source's table map.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, difference) in self.differences.iter().take(SHOWN_MAX).enumerate() {
            f.write_str(if number > 0 { ", " } else { "" })?;
            self.one(difference, f)?;
        }
        match self.differences.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

impl Contradiction {
    /// True if rows are still applied without an error where a person may expect one.
    pub fn is_silent(&self) -> bool {
        self.differences.iter().any(Difference::is_silent)
    }

    fn one(&self, difference: &Difference, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let definition = &self.definition;
        let name = |column: usize| match definition.columns.get(column) {
            Some(column) => format!("`{}`", column.name),
            None => format!("column {}", column + 1),
        };
        let names = |columns: &[usize]| columns.iter().map(|&column| name(column)).collect::<Vec<_>>().join(", ");
        let key =
            |columns: &[usize]| if columns.is_empty() { "none".to_owned() } else { format!("({})", names(columns)) };
        match *difference {
            Difference::Columns(count) => write!(f, "{count} columns and not {}", definition.columns.len()),
            Difference::Type(column, logged) => {
                write!(f, "{} is of type {logged:?} and not {}", name(column), definition.columns[column].column_type)
            }
            Difference::Nullable(column, true) => write!(f, "{} may be NULL", name(column)),
            Difference::Nullable(column, false) => write!(f, "{} may not be NULL", name(column)),
            Difference::Unsigned(column, true) => write!(f, "{} is unsigned", name(column)),
            Difference::Unsigned(column, false) => write!(f, "{} is not unsigned", name(column)),
            Difference::Charset(column, charset) => write!(f, "{} is in the character set {charset}", name(column)),
            Difference::Name(column, ref logged) => write!(f, "{} is named `{logged}`", name(column)),
            Difference::Key(ref columns) => {
                write!(f, "its primary key is {} and not {}", key(columns), key(&definition.row_key))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spate_binlog::table_map::OptionalMetadata;

    use super::*;

    /// (a INT, b VARCHAR(10) NULL, u BIGINT UNSIGNED), key a, with all metadata.
    fn map() -> TableMap {
        TableMap {
            table_id: 1,
            schema: "d".into(),
            table: "t".into(),
            columns: vec![ColumnType::Int, ColumnType::Varchar { bytes_max: 40 }, ColumnType::BigInt],
            nullable: vec![0b010],
            metadata: OptionalMetadata {
                unsigned: vec![false, true],
                collations: vec![45],
                column_names: ["a", "b", "u"].map(str::to_owned).to_vec(),
                primary_key: vec![0],
            },
            body: vec![],
        }
    }

    fn definition() -> TableDefinition {
        let column = |name: &str, column_type: &str| ColumnDefinition {
            name: name.into(),
            column_type: column_type.into(),
            is_unsigned: column_type.contains("unsigned"),
            is_nullable: name == "B",
            charset: if name == "B" { "utf8mb4".into() } else { String::new() },
            ..ColumnDefinition::default()
        };
        TableDefinition {
            columns: vec![column("a", "int(11)"), column("B", "varchar(10)"), column("u", "bigint(20) unsigned")],
            row_key: vec![0],
            ..TableDefinition::default()
        }
    }

    fn found(change: impl FnOnce(&mut TableMap, &mut TableDefinition)) -> Vec<Difference> {
        let (mut map, mut definition) = (map(), definition());
        change(&mut map, &mut definition);
        differences(&map, &definition)
    }

    #[test]
    fn each_fact_of_a_table_map_is_compared() {
        use Difference::{Charset, Columns, Key, Name, Nullable, Type, Unsigned};
        assert_eq!(found(|_, _| {}), []);
        assert_eq!(found(|map, _| map.metadata.primary_key = vec![2]), [Key(vec![2])]);
        assert_eq!(found(|map, _| map.metadata.primary_key.clear()), [Key(vec![])]);
        assert_eq!(found(|_, definition| definition.row_key.clear()), [Key(vec![0])]);
        assert_eq!(found(|_, definition| definition.row_key = vec![0, 1]), [Key(vec![0])]);
        assert_eq!(found(|_, definition| definition.columns.truncate(2)), [Columns(3)]);
        assert_eq!(found(|map, _| map.columns[0] = ColumnType::BigInt), [Type(0, ColumnType::BigInt)]);
        assert_eq!(found(|map, _| map.nullable = vec![0b110]), [Nullable(2, true)]);
        assert_eq!(found(|map, _| map.nullable = vec![0]), [Nullable(1, false)]);
        assert_eq!(found(|map, _| map.metadata.unsigned = vec![true, true]), [Unsigned(0, true)]);
        assert_eq!(found(|map, _| map.metadata.collations = vec![8]), [Charset(1, "latin1")]);
        assert_eq!(found(|map, _| map.metadata.column_names[2] = "v".into()), [Name(2, "v".into())]);
    }

    #[test]
    fn missing_metadata_is_no_difference() {
        assert_eq!(
            found(|map, definition| {
                map.metadata = OptionalMetadata::default();
                definition.row_key = vec![2];
                definition.columns[1].charset = "gb18030".into();
            }),
            []
        );
    }

    #[test]
    fn equivalent_keys_agree() {
        let change = |map: &mut TableMap, definition: &mut TableDefinition| {
            map.metadata.primary_key = vec![2, 0];
            definition.equivalent_keys = vec![vec![0, 2]];
        };
        assert_eq!(found(change), []);
    }

    #[test]
    fn row_end_column_is_part_of_the_key() {
        let change = |map: &mut TableMap, definition: &mut TableDefinition| {
            map.metadata.primary_key = vec![0, 2];
            definition.row_end = Some(2);
        };
        assert_eq!(found(change), []);
    }

    #[test]
    fn hidden_columns_agree() {
        let change = |map: &mut TableMap, definition: &mut TableDefinition| {
            map.columns.push(ColumnType::BigInt);
            map.metadata.column_names.push("DB_ROW_HASH_1".into());
            map.metadata.unsigned.push(true);
            map.nullable = vec![0b1010];
            definition.columns.push(ColumnDefinition { is_generated: true, ..ColumnDefinition::default() });
        };
        assert_eq!(found(change), []);
    }

    #[test]
    fn collations_of_one_character_set_are_no_difference() {
        assert_eq!(found(|map, _| map.metadata.collations = vec![255]), []);
        let change = |map: &mut TableMap, definition: &mut TableDefinition| {
            map.metadata.collations = vec![33];
            map.columns[1] = ColumnType::Varchar { bytes_max: 30 };
            definition.columns[1].charset = "utf8".into();
        };
        assert_eq!(found(change), []);
    }

    #[test]
    fn types_of_servers_and_binlogs_agree() {
        let agree = |text: &str, logged: ColumnType| {
            let charset = if text.starts_with("varchar") { "utf8mb3".into() } else { String::new() };
            may_be(logged, &ColumnDefinition { column_type: text.into(), charset, ..ColumnDefinition::default() })
        };
        for (text, logged, other) in [
            ("int", ColumnType::Int, ColumnType::BigInt),
            ("tinyint(3) unsigned zerofill", ColumnType::TinyInt, ColumnType::Int),
            (
                "decimal(10,2)",
                ColumnType::Decimal { precision: 10, scale: 2 },
                ColumnType::Decimal { precision: 10, scale: 3 },
            ),
            ("varchar(20)", ColumnType::Varchar { bytes_max: 60 }, ColumnType::Varchar { bytes_max: 63 }),
            ("varbinary(20)", ColumnType::Varchar { bytes_max: 20 }, ColumnType::Varchar { bytes_max: 19 }),
            ("char(0)", ColumnType::Char { bytes_max: 0 }, ColumnType::Char { bytes_max: 4 }),
            ("time /* mariadb-5.3 */", ColumnType::TimeOld, ColumnType::DatetimeOld),
            ("datetime(3)", ColumnType::Datetime { fraction: 3 }, ColumnType::Datetime { fraction: 0 }),
            ("longtext", ColumnType::Blob { length_bytes: 4 }, ColumnType::Json { length_bytes: 4 }),
            ("enum('a','b(3)')", ColumnType::Enum { bytes: 1 }, ColumnType::Set { bytes: 1 }),
            ("bit(9)", ColumnType::Bit { bits: 9 }, ColumnType::Bit { bits: 8 }),
        ] {
            assert!(agree(text, logged) && !agree(text, other), "{text}");
        }
        assert!(agree("varchar(900) /*M!100301 COMPRESSED*/", ColumnType::VarcharCompressed { bytes_max: 901 }));
        assert!(agree("a type to come", ColumnType::Int));
    }

    #[test]
    fn contradictions_are_told_in_words() {
        let definition = Arc::new(definition());
        let told = |differences: &[Difference]| {
            Contradiction { definition: Arc::clone(&definition), differences: differences.to_vec() }.to_string()
        };
        let mut some = vec![Difference::Key(vec![2]), Difference::Name(1, "x".into())];
        assert_eq!(told(&some), "its primary key is (`u`) and not (`a`), `B` is named `x`");
        some.extend([Difference::Columns(9), Difference::Unsigned(0, true), Difference::Nullable(0, true)]);
        assert!(told(&some).ends_with("9 columns and not 3, `a` is unsigned, and 1 more"));
        assert_eq!(told(&[Difference::Key(vec![])]), "its primary key is none and not (`a`)");
    }
}

//! How the values of a column are written, and whether they arrive exactly: told by the source's type and the replica's.

use spate_binlog::column::ColumnType;
use spate_binlog::typed::Value;
use spate_schedule::definition::ColumnDefinition;

use super::literal::{
    append_hexadecimal, append_instant, append_introduced, append_number, append_quoted, append_temporal,
};

/// How a column's values are written as SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// Numbers, dates and times, as the servers write them; the number of an ENUM's choice, the bits of a SET.
    Plain,
    /// An instant, written with its distance from UTC: the session may be in any time zone. (MySQL reads this since 8.0.19.)
    Instant,
    /// Bits that may be 64: a column of a derived table that holds such a number and smaller ones would be a decimal's.
    Bits,
    /// Text: the source's bytes, in the replica's character set.
    Text,
    /// A string of bytes, and that many of them at least: zeros at the end are not in the binlog.
    Bytes(u16),
    /// GEOMETRY.
    Geometry,
    /// VECTOR: bytes that MySQL compares with no other bytes.
    Vector,
    /// MySQL's JSON: text that the server reads.
    Json,
    /// The text of MySQL's JSON for a column of another character set: the server converts it, or refuses what it cannot.
    Document,
    /// MariaDB's types that are bytes of a fixed length: their name, and how many.
    Cast(&'static str, u16),
    /// MariaDB's UUID.
    Uuid,
}

/// A kind of types between which values pass without change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Integer,
    Decimal { scale: u8 },
    Float,
    Double,
    Bit,
    Year,
    Date,
    Time { fraction: u8 },
    Datetime { fraction: u8 },
    Timestamp { fraction: u8 },
    Enum,
    Set,
    String,
    Geometry,
    Vector,
    Json,
    Fixed(&'static str, u16),
    Uuid,
}

impl Form {
    /// How values of the source's type are written into the replica's column; `Err` says which types do not fit.
    pub(crate) fn of(column_type: ColumnType, column: &ColumnDefinition) -> Result<Form, String> {
        let full = column.column_type.to_ascii_lowercase();
        let Some(target) = Family::of_definition(&full) else {
            return Err(format!("the column {} has the type {full}, which is not known here", column.name));
        };
        if !target.takes(column_type) {
            let why = format!("the source's {column_type:?} does not go into {full} without change");
            return Err(format!("the column {}: {why}", column.name));
        }
        Ok(match (target, column_type) {
            (Family::Bit | Family::Set, _) => Form::Bits,
            (Family::Fixed(name, bytes), _) => Form::Cast(name, bytes),
            (Family::Uuid, _) => Form::Uuid,
            (Family::Geometry, _) => Form::Geometry,
            (Family::Json, _) => Form::Json,
            (Family::Vector, _) => Form::Vector,
            (Family::String, ColumnType::Char { bytes_max }) if column.charset.is_empty() => Form::Bytes(bytes_max),
            (Family::String, _) if column.charset.is_empty() => Form::Bytes(0),
            (Family::String, ColumnType::Json { .. }) if column.charset != "utf8mb4" => Form::Document,
            (Family::String, _) => Form::Text,
            _ => Form::Plain,
        })
    }

    /// Appends a value as it is assigned to a column.
    pub(crate) fn append_assigned(&self, sql: &mut Vec<u8>, value: &Value<'_>) {
        match (self, value) {
            (Form::Text | Form::Bytes(0), Value::Bytes(bytes)) => append_binary(sql, bytes, 0),
            (_, Value::Geometry(bytes)) => append_binary(sql, bytes, 0),
            (Form::Bytes(length), Value::Bytes(bytes)) => append_binary(sql, bytes, *length),
            (Form::Cast(name, length), Value::Bytes(bytes)) => {
                sql.extend_from_slice(b"CAST(");
                append_binary(sql, bytes, *length);
                sql.extend_from_slice(b" AS ");
                sql.extend_from_slice(name.as_bytes());
                sql.push(b')');
            }
            (Form::Uuid, Value::Bytes(bytes)) => append_uuid(sql, bytes),
            (Form::Instant, value) => append_instant(sql, value),
            (Form::Json, Value::Bytes(bytes)) => append_quoted(sql, bytes),
            (Form::Document, Value::Bytes(bytes)) => {
                sql.extend_from_slice(b"_utf8mb4");
                append_introduced(sql, bytes);
            }
            (Form::Bits, Value::Unsigned(bits)) if *bits > i64::MAX as u64 => {
                sql.extend_from_slice(b"CAST(");
                append_number(sql, *bits);
                sql.extend_from_slice(b" AS UNSIGNED)");
            }
            (_, Value::Bytes(bytes)) => append_binary(sql, bytes, 0),
            (_, value) => append_plain(sql, value),
        }
    }

    /// The bytes in UTF-8 of the document that a column of text holds.
    pub(crate) fn document_bytes(&self, name: &str) -> String {
        match self {
            Form::Document => format!("CAST(CONVERT({name} USING utf8mb4) AS BINARY)"),
            _ => format!("CAST({name} AS BINARY)"),
        }
    }

    /// Appends a value as it is compared with a key's column, with the column's collation if `collates`: a literal beside the
    /// column takes it by itself, one in a derived table does not.
    pub(crate) fn append_compared(
        &self,
        sql: &mut Vec<u8>,
        value: &Value<'_>,
        column: &ColumnDefinition,
        collates: bool,
    ) {
        match (self, value) {
            (Form::Text, Value::Bytes(bytes)) => {
                sql.push(b'_');
                sql.extend_from_slice(column.charset.as_bytes());
                append_introduced(sql, bytes);
                if collates {
                    sql.extend_from_slice(b" COLLATE ");
                    sql.extend_from_slice(column.collation.as_bytes());
                }
            }
            _ => self.append_assigned(sql, value),
        }
    }

    /// Appends a value beside the key's column that it is compared with. MySQL warns of the name utf8mb3, and warnings are counted: the
    /// same bytes are the same text in utf8mb4, and the server makes the column's character set of it.
    pub(crate) fn append_beside(&self, sql: &mut Vec<u8>, value: &Value<'_>, column: &ColumnDefinition) {
        match (self, value) {
            (Form::Text, Value::Bytes(bytes)) if column.charset == "utf8mb3" => {
                sql.extend_from_slice(b"_utf8mb4");
                append_introduced(sql, bytes);
            }
            _ => self.append_compared(sql, value, column, false),
        }
    }

    /// Appends a condition that holds for exactly this value, down to its bytes; `None` is NULL.
    pub(crate) fn append_match(
        &self,
        sql: &mut Vec<u8>,
        name: &str,
        column: &ColumnDefinition,
        value: Option<&Value<'_>>,
    ) {
        let Some(value) = value else {
            sql.extend_from_slice(name.as_bytes());
            sql.extend_from_slice(b" IS NULL");
            return;
        };
        match (self, value) {
            (Form::Geometry, Value::Geometry(bytes)) => append_hex_match(sql, name, bytes),
            (Form::Vector, Value::Bytes(bytes)) => append_hex_match(sql, name, bytes),
            (Form::Text, Value::Bytes(bytes)) => {
                sql.extend_from_slice(name.as_bytes());
                sql.push(b'=');
                self.append_beside(sql, value, column);
                // Letters that are equal to the collation are not equal bytes.
                sql.extend_from_slice(format!(" AND CAST({name} AS BINARY)=").as_bytes());
                append_binary(sql, bytes, 0);
            }
            (Form::Document, Value::Bytes(bytes)) => {
                sql.extend_from_slice(format!("{}=", self.document_bytes(name)).as_bytes());
                append_binary(sql, bytes, 0);
            }
            (Form::Json, Value::Bytes(bytes)) => {
                sql.extend_from_slice(format!("{name}=CAST(").as_bytes());
                append_quoted(sql, bytes);
                // 1 and 1.0 are equal, but not the same.
                sql.extend_from_slice(b" AS JSON) AND ");
                sql.extend_from_slice(json_text(name.as_bytes()).as_slice());
                sql.push(b'=');
                let mut document = b"CAST(".to_vec();
                append_quoted(&mut document, bytes);
                document.extend_from_slice(b" AS JSON)");
                sql.extend_from_slice(&json_text(&document));
            }
            // So are 0 and -0.
            (Form::Plain, Value::Float(_) | Value::Double(_)) if let Some(is_negative) = sign_of_zero(value) => {
                let sign = if is_negative { "=" } else { "<>" };
                sql.extend_from_slice(format!("{name}=0 AND LEFT(CAST({name} AS CHAR),1){sign}'-'").as_bytes());
            }
            // An ENUM's number is not its text.
            (Form::Plain | Form::Bits, Value::Unsigned(_)) => {
                sql.extend_from_slice(name.as_bytes());
                sql.extend_from_slice(b"+0=");
                self.append_assigned(sql, value);
            }
            _ => {
                sql.extend_from_slice(name.as_bytes());
                sql.push(b'=');
                self.append_assigned(sql, value);
            }
        }
    }
}

fn append_hex_match(sql: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    sql.extend_from_slice(format!("HEX({name})='").as_bytes());
    append_hexadecimal(sql, bytes);
    sql.push(b'\'');
}

/// The bytes of a document's text.
fn json_text(document: &[u8]) -> Vec<u8> {
    [b"CAST(CAST(", document, b" AS CHAR CHARACTER SET utf8mb4) AS BINARY)"].concat()
}

/// Whether a floating zero has the sign of a negative number. `None` for any other value.
fn sign_of_zero(value: &Value<'_>) -> Option<bool> {
    let number = match *value {
        Value::Float(number) => f64::from(number),
        Value::Double(number) => number,
        _ => return None,
    };
    (number == 0.0).then_some(number.is_sign_negative())
}

/// What a column without a default becomes if an insert leaves it out and the session is not strict: what the vendors' own
/// replication fills into such columns, as SQL. `source` is the source's column, if it has one. `None` if there is no such value,
/// or none that a statement can write: the replica then refuses the row.
pub(crate) fn implicit_default(source: Option<ColumnType>, column: &ColumnDefinition) -> Option<&'static str> {
    if column.is_nullable {
        return Some("NULL");
    }
    // An empty document is `null`, also as text.
    if matches!(source, Some(ColumnType::Json { .. })) {
        return Some("'null'");
    }
    Some(match Family::of_definition(&column.column_type.to_ascii_lowercase())? {
        Family::Integer | Family::Decimal { .. } | Family::Float | Family::Double => "0",
        Family::Bit | Family::Year | Family::Set => "0",
        // The first choice, not the missing one.
        Family::Enum => "1",
        Family::Date => "'0000-00-00'",
        Family::Time { .. } => "'00:00:00'",
        Family::Datetime { .. } | Family::Timestamp { .. } => "'0000-00-00 00:00:00'",
        Family::String => "''",
        Family::Uuid => "'00000000-0000-0000-0000-000000000000'",
        Family::Fixed("INET4", _) => "'0.0.0.0'",
        Family::Fixed(..) => "'::'",
        Family::Json if source.is_none() => "'null'",
        Family::Geometry | Family::Vector | Family::Json => return None,
    })
}

impl Family {
    /// The family of a type as the server writes it: `decimal(5,2) unsigned`.
    fn of_definition(full: &str) -> Option<Family> {
        let word = full.split(['(', ' ']).next().unwrap_or_default();
        let inside = full.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(inside, _)| inside);
        let numbers: Vec<u8> = inside.split(',').filter_map(|number| number.trim().parse().ok()).collect();
        let fraction = numbers.first().copied().unwrap_or(0);
        Some(match word {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Family::Integer,
            "decimal" => Family::Decimal { scale: numbers.get(1).copied().unwrap_or(0) },
            "float" => Family::Float,
            "double" => Family::Double,
            "bit" => Family::Bit,
            "year" => Family::Year,
            "date" => Family::Date,
            "time" => Family::Time { fraction },
            "datetime" => Family::Datetime { fraction },
            "timestamp" => Family::Timestamp { fraction },
            "enum" => Family::Enum,
            "set" => Family::Set,
            "json" => Family::Json,
            "vector" => Family::Vector,
            "uuid" => Family::Uuid,
            "inet4" => Family::Fixed("INET4", 4),
            "inet6" => Family::Fixed("INET6", 16),
            "char" | "varchar" | "binary" | "varbinary" => Family::String,
            word if word.ends_with("blob") || word.ends_with("text") => Family::String,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
            | "geometrycollection" | "geomcollection" => Family::Geometry,
            _ => return None,
        })
    }

    /// True if a column of this family takes every value of the source's type as it is, or refuses it.
    fn takes(self, source: ColumnType) -> bool {
        match source {
            ColumnType::TinyInt | ColumnType::SmallInt | ColumnType::MediumInt | ColumnType::Int => {
                matches!(self, Family::Integer | Family::Decimal { .. } | Family::Double | Family::Year)
            }
            ColumnType::BigInt => matches!(self, Family::Integer | Family::Decimal { .. }),
            ColumnType::Decimal { scale: digits, .. } => {
                matches!(self, Family::Decimal { scale } if scale >= digits) || self == Family::Integer && digits == 0
            }
            ColumnType::Float => matches!(self, Family::Float | Family::Double),
            ColumnType::Double => self == Family::Double,
            ColumnType::Bit { .. } => matches!(self, Family::Bit | Family::Integer),
            ColumnType::Year => matches!(self, Family::Year | Family::Integer),
            ColumnType::Date => matches!(self, Family::Date | Family::Datetime { .. }),
            ColumnType::Time { fraction: digits } => matches!(self, Family::Time { fraction } if fraction >= digits),
            ColumnType::Datetime { fraction: digits } => {
                matches!(self, Family::Datetime { fraction } if fraction >= digits)
            }
            ColumnType::Timestamp { fraction: digits } => {
                matches!(self, Family::Timestamp { fraction } if fraction >= digits)
            }
            ColumnType::Enum { .. } => self == Family::Enum,
            ColumnType::Set { .. } => self == Family::Set,
            ColumnType::Char { bytes_max } => match self {
                Family::String => true,
                Family::Uuid => bytes_max == 16,
                Family::Fixed(_, bytes) => bytes_max == bytes,
                _ => false,
            },
            // That is how MariaDB logs vectors.
            ColumnType::Varchar { .. } => matches!(self, Family::String | Family::Json | Family::Vector),
            ColumnType::VarcharCompressed { .. }
            | ColumnType::Blob { .. }
            | ColumnType::BlobCompressed { .. }
            | ColumnType::Json { .. } => matches!(self, Family::String | Family::Json),
            ColumnType::Geometry { .. } => self == Family::Geometry,
            ColumnType::Vector { .. } => self == Family::Vector,
            ColumnType::Null | ColumnType::TimestampOld | ColumnType::TimeOld | ColumnType::DatetimeOld => false,
        }
    }
}

fn append_plain(sql: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Signed(value) => sql.extend_from_slice(value.to_string().as_bytes()),
        Value::Unsigned(value) => append_number(sql, *value),
        Value::Year(value) => append_number(sql, u64::from(*value)),
        // The shortest digits that make the same number again; the exponent makes it no decimal.
        Value::Float(value) => sql.extend_from_slice(format!("{:e}", f64::from(*value)).as_bytes()),
        Value::Double(value) => sql.extend_from_slice(format!("{value:e}").as_bytes()),
        Value::Decimal(value) => value.append_to(sql),
        Value::Bytes(bytes) => append_quoted(sql, bytes),
        Value::Json(bytes) | Value::Geometry(bytes) => append_quoted(sql, bytes),
        Value::Date(_) | Value::Datetime(..) | Value::Time { .. } | Value::Timestamp { .. } => {
            append_temporal(sql, value);
        }
    }
}

/// Bytes that nothing converts, and as many zeros behind them as make so many.
fn append_binary(sql: &mut Vec<u8>, bytes: &[u8], length: u16) {
    sql.extend_from_slice(b"_binary");
    let missing = usize::from(length).saturating_sub(bytes.len());
    if missing == 0 {
        append_introduced(sql, bytes);
        return;
    }
    append_introduced(sql, &[bytes, vec![0; missing].as_slice()].concat());
}

/// MariaDB keeps the parts of most UUIDs in another order, so that those made one after the other lie together.
///
/// Source: what MariaDB 10.11 stores; all versions since 10.11.5 do, and earlier ones for the versions 1 to 5 of UUIDs.
fn append_uuid(sql: &mut Vec<u8>, bytes: &[u8]) {
    let mut stored = [0; 16];
    for (to, from) in stored.iter_mut().zip(bytes) {
        *to = *from;
    }
    let is_reordered = stored[6] & 0x80 != 0 && stored[8] > 0 && stored[8] < 0x60;
    let plain = match is_reordered {
        true => [&stored[12..16], &stored[10..12], &stored[8..10], &stored[6..8], &stored[..6]].concat(),
        false => stored.to_vec(),
    };
    sql.extend_from_slice(b"CAST(x'");
    append_hexadecimal(sql, &plain);
    sql.extend_from_slice(b"' AS UUID)");
}

//! Fingerprints of rows: worked out from a row image here, and from the columns by the replica, with the same result.
//!
//! A row's *canonical text* joins the text of its columns with commas; NULL is a minus sign alone. The fingerprint is the
//! beginning of the text's SHA-256. The text of each type is one that this crate can write from an image's bytes and that a
//! short expression makes in the server, whatever the session's settings, collations and time zone; and different values have
//! different texts, down to the last bit of a floating-point number and the case of a letter:
//!
//! | type | text | expression |
//! | --- | --- | --- |
//! | integers, BIT, YEAR | hexadecimal number of 64 bits | `HEX(c)` |
//! | ENUM, SET | hexadecimal number of the choice | `HEX(CAST(c AS UNSIGNED))` |
//! | DECIMAL, DATE, TIME, DATETIME | as the server shows it | `c` |
//! | TIMESTAMP | seconds since 1970 with their fraction | `UNIX_TIMESTAMP(c)` |
//! | FLOAT, DOUBLE | the double's bytes, within those of a point | `HEX(ST_AsWKB(POINT(c,0)))` |
//! | short strings | hexadecimal bytes; trailing spaces of CHAR dropped, BINARY padded | `HEX(c)` |
//! | long strings | SHA-256 of the bytes | `SHA2(c,256)` |
//! | GEOMETRY | SHA-256 of the hexadecimal bytes | `SHA2(HEX(c),256)` |
//!
//! Computed columns are left out: they follow from the others. A type that is not in this table, or that the replica defines
//! as another family of types than the source, has no fingerprint. Should a text differ after all, the row is not found, which
//! is noticed; a wrong row is never taken for it.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use spate_binlog::column::ColumnType;
use spate_binlog::encode::ColumnBitmap;
use spate_binlog::value::ShownValue;
use spate_binlog::{ImagePlan, Span};
use spate_schedule::TablePlan;
use spate_schedule::definition::ColumnDefinition;

use spate_connection::quote;

/// Bytes of a fingerprint: so many that two rows of all tables of the world do not share one.
pub const FINGERPRINT_BYTES: usize = 16;

/// The fingerprint of a row.
pub type Fingerprint = [u8; FINGERPRINT_BYTES];

/// Strings that may be longer than this, in bytes, are hashed; shorter ones are written out, which is faster.
const WRITTEN_OUT_BYTES_MAX: u16 = 64;

/// Works out fingerprints of one table's rows.
#[derive(Debug)]
pub struct Fingerprinter {
    walk: ImagePlan,
    columns: Vec<(Form, ColumnType, bool)>,
    expression: String,
    spans: Vec<Span>,
    text: String,
}

/// How a column's value becomes text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Integer,
    Bit,
    Year,
    Choice,
    Shown,
    Timestamp,
    Float,
    /// Hexadecimal, padded with zeros to so many bytes.
    Padded(u16),
    Hexadecimal,
    Hashed,
    Geometry,
}

impl Fingerprinter {
    /// A fingerprinter for the full images of a table; `None` if a column has no canonical text.
    pub fn new(plan: &TablePlan) -> Option<Fingerprinter> {
        let definition = &plan.definition;
        let stored = definition.stored_columns();
        let all = ColumnBitmap::all(plan.map.columns.len());
        let walk = ImagePlan::new(&plan.map, &all.bits, &stored).ok()?;
        let mut columns = Vec::with_capacity(stored.len());
        let mut texts = Vec::with_capacity(stored.len());
        for &index in &stored {
            let (column_type, column) = (*plan.map.columns.get(index)?, &definition.columns[index]);
            let form = Form::of(column_type, column)?;
            columns.push((form, column_type, column.is_unsigned));
            texts.push(format!("IFNULL({},'-')", form.expression(&quote::identifier(&column.name))));
        }
        let bytes = FINGERPRINT_BYTES;
        let expression = format!("LEFT(UNHEX(SHA2(CONCAT_WS(',',{}),256)),{bytes})", texts.join(","));
        let spans = vec![Span::default(); walk.tracked_count()];
        Some(Fingerprinter { walk, columns, expression, spans, text: String::new() })
    }

    /// The SQL expression that makes a row's fingerprint in the server.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The fingerprint of the row in a full image; `None` if the image cannot be measured.
    pub fn of(&mut self, image: &[u8]) -> Option<Fingerprint> {
        self.walk.measure(image, &mut self.spans).ok()?;
        self.text.clear();
        for (number, (span, &(form, column_type, is_unsigned))) in self.spans.iter().zip(&self.columns).enumerate() {
            // The text of an empty string is empty, also at the beginning.
            if number > 0 {
                self.text.push(',');
            }
            match span.is_null {
                true => self.text.push('-'),
                false => form.write(&mut self.text, column_type, is_unsigned, span.value(image)),
            }
        }
        let digest = Sha256::digest(self.text.as_bytes());
        digest.first_chunk().copied()
    }
}

impl Form {
    /// How a column of the source's type is written, if the replica's is of the same family.
    fn of(column_type: ColumnType, column: &ColumnDefinition) -> Option<Form> {
        let full = column.column_type.to_ascii_lowercase();
        let word = full.split(['(', ' ']).next().unwrap_or_default();
        let string = |bytes_max| if bytes_max <= WRITTEN_OUT_BYTES_MAX { Form::Hexadecimal } else { Form::Hashed };
        Some(match (column_type, word) {
            (ColumnType::TinyInt, "tinyint")
            | (ColumnType::SmallInt, "smallint")
            | (ColumnType::MediumInt, "mediumint")
            | (ColumnType::Int, "int")
            | (ColumnType::BigInt, "bigint") => Form::Integer,
            (ColumnType::Bit { .. }, "bit") => Form::Bit,
            (ColumnType::Year, "year") if full == "year(4)" => Form::Year,
            (ColumnType::Enum { .. }, "enum") | (ColumnType::Set { .. }, "set") => Form::Choice,
            // Zeros in front depend on the definition.
            (ColumnType::Decimal { .. }, "decimal") if !full.contains("zerofill") => Form::Shown,
            (ColumnType::Date, "date")
            | (ColumnType::Datetime { .. }, "datetime")
            | (ColumnType::Time { .. }, "time") => Form::Shown,
            (ColumnType::Timestamp { .. }, "timestamp") => Form::Timestamp,
            (ColumnType::Float, "float") | (ColumnType::Double, "double") => Form::Float,
            (ColumnType::Char { bytes_max }, "char") => string(bytes_max),
            (ColumnType::Char { bytes_max }, "binary" | "inet4" | "inet6" | "uuid") => Form::Padded(bytes_max),
            (ColumnType::Varchar { bytes_max }, "varchar" | "varbinary") => string(bytes_max),
            (ColumnType::Blob { .. }, word) if word.ends_with("blob") || word.ends_with("text") => Form::Hashed,
            (ColumnType::Geometry { .. }, _) => Form::Geometry,
            _ => return None,
        })
    }

    fn expression(self, column: &str) -> String {
        match self {
            Form::Integer | Form::Bit | Form::Year | Form::Padded(_) | Form::Hexadecimal => format!("HEX({column})"),
            Form::Choice => format!("HEX(CAST({column} AS UNSIGNED))"),
            Form::Shown => column.to_owned(),
            Form::Timestamp => format!("UNIX_TIMESTAMP({column})"),
            Form::Float => format!("HEX(ST_AsWKB(POINT({column},0)))"),
            Form::Hashed => format!("SHA2({column},256)"),
            Form::Geometry => format!("SHA2(HEX({column}),256)"),
        }
    }

    fn write(self, text: &mut String, column_type: ColumnType, is_unsigned: bool, bytes: &[u8]) {
        match self {
            Form::Integer => number(text, integer(bytes, is_unsigned)),
            Form::Bit => number(text, bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))),
            Form::Year => {
                number(text, bytes.first().map_or(0, |&byte| if byte == 0 { 0 } else { 1900 + u64::from(byte) }))
            }
            Form::Choice => number(text, integer(bytes, true)),
            Form::Shown => shown(text, column_type, bytes),
            Form::Timestamp => {
                let start = text.len();
                shown(text, column_type, bytes);
                // It is shown as `@1700000000.5`.
                if text[start..].starts_with('@') {
                    text.remove(start);
                }
            }
            Form::Float => {
                text.push_str("0101000000");
                hexadecimal(text, &double(bytes).to_le_bytes());
                text.push_str("0000000000000000");
            }
            Form::Padded(length) => {
                hexadecimal(text, bytes);
                for _ in bytes.len()..usize::from(length) {
                    text.push_str("00");
                }
            }
            Form::Hexadecimal => hexadecimal(text, bytes),
            Form::Hashed => hash(text, bytes),
            Form::Geometry => {
                let mut inner = String::with_capacity(2 * bytes.len());
                hexadecimal(&mut inner, bytes);
                hash(text, inner.as_bytes());
            }
        }
    }
}

fn number(text: &mut String, value: u64) {
    // Writing to a String does not fail.
    let _ = write!(text, "{value:X}");
}

fn shown(text: &mut String, column_type: ColumnType, bytes: &[u8]) {
    let _ = write!(text, "{}", ShownValue { column_type, bytes, is_unsigned: false });
}

fn integer(bytes: &[u8], is_unsigned: bool) -> u64 {
    let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    if is_unsigned {
        return value;
    }
    let unused_bits = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (((value << unused_bits) as i64) >> unused_bits) as u64
}

fn double(bytes: &[u8]) -> f64 {
    match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
        (Some(bytes), _) => f64::from_le_bytes(*bytes),
        (None, Some(bytes)) => f64::from(f32::from_le_bytes(*bytes)),
        (None, None) => 0.0,
    }
}

fn hexadecimal(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn hash(text: &mut String, bytes: &[u8]) {
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, column_type: ColumnType, is_unsigned: bool, bytes: &[u8]) -> String {
        let mut text = String::new();
        form.write(&mut text, column_type, is_unsigned, bytes);
        text
    }

    /// What the server says is from MariaDB 10.11.
    #[test]
    fn fingerprint_text_equals_the_servers() {
        let none = ColumnType::Null;
        assert_eq!(written(Form::Integer, none, false, &[0, 0x80]), "FFFFFFFFFFFF8000");
        assert_eq!(written(Form::Integer, none, true, &[0xff]), "FF");
        assert_eq!(written(Form::Year, none, false, &[126]), "7EA");
        assert_eq!(written(Form::Year, none, false, &[0]), "0");
        assert_eq!(written(Form::Bit, none, false, &[0x01, 0x55]), "155");
        assert_eq!(written(Form::Choice, none, false, &[0, 0, 0, 0, 0, 0, 0, 0x80]), "8000000000000000");
        assert_eq!(written(Form::Padded(4), none, false, &[10]), "0A000000");
        assert_eq!(written(Form::Timestamp, ColumnType::Timestamp { fraction: 1 }, false, &[0, 0, 0, 1, 10]), "1.1");
        let float = written(Form::Float, ColumnType::Float, false, &0.5f32.to_le_bytes());
        assert_eq!(float, "0101000000000000000000E03F0000000000000000");
    }

    #[test]
    fn fingerprint_of_other_types_is_refused() {
        let column = |column_type: &str| ColumnDefinition {
            name: "c".into(),
            column_type: column_type.into(),
            is_unsigned: false,
            is_auto_increment: false,
            is_generated: false,
            ..ColumnDefinition::default()
        };
        let decimal = ColumnType::Decimal { precision: 5, scale: 2 };
        assert_eq!(Form::of(decimal, &column("decimal(5,2)")), Some(Form::Shown));
        assert_eq!(Form::of(decimal, &column("decimal(5,2) unsigned zerofill")), None);
        assert_eq!(Form::of(decimal, &column("double")), None);
        assert_eq!(Form::of(ColumnType::Int, &column("int(11)")), Some(Form::Integer));
        assert_eq!(Form::of(ColumnType::Int, &column("bigint(20)")), None);
        assert_eq!(
            Form::of(ColumnType::VarcharCompressed { bytes_max: 9 }, &column("varchar(8) /*M!100301 COMPRESSED*/")),
            None
        );
    }
}

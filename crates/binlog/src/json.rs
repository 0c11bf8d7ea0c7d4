//! MySQL's binary JSON as text.
//!
//! Values that JSON has no syntax for are written as MySQL itself would show them: dates and times as strings, decimals as numbers, other
//! bytes as `base64:type…:…`. A reader of the text cannot tell these from strings and numbers, so [`text`] says whether there was
//! any.
//!
//! Format: MySQL internals manual, "JSON binary format" (the header of its `json_binary`).

pub mod diff;
mod tree;

use std::io::Write as _;

use crate::column::ColumnType;
use crate::typed::{Fraction, Value};
use crate::{Error, Result};

const WHAT: &str = "JSON document";

/// The servers' own limit. A deeper document is damage, or an attack.
const DEPTH_MAX: usize = 100;

/// A limit on the text of a document. A small document whose parts overlap could otherwise have an endless text.
const TEXT_BYTES_PER_BYTE_MAX: usize = 64;

mod kind {
    pub(super) const SMALL_OBJECT: u8 = 0;
    pub(super) const LARGE_OBJECT: u8 = 1;
    pub(super) const SMALL_ARRAY: u8 = 2;
    pub(super) const LARGE_ARRAY: u8 = 3;
    pub(super) const LITERAL: u8 = 4;
    pub(super) const INT16: u8 = 5;
    pub(super) const UINT16: u8 = 6;
    pub(super) const INT32: u8 = 7;
    pub(super) const UINT32: u8 = 8;
    pub(super) const INT64: u8 = 9;
    pub(super) const UINT64: u8 = 10;
    pub(super) const DOUBLE: u8 = 11;
    pub(super) const STRING: u8 = 12;
    pub(super) const OPAQUE: u8 = 15;
}

/// Column types as opaque values name them.
mod opaque {
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const DATE: u8 = 10;
    pub(super) const TIME: u8 = 11;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const DECIMAL: u8 = 246;
}

/// A document's text, in UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText {
    /// The text.
    pub text: Vec<u8>,
    /// True if it holds values of types that the text does not show: decimals, dates, times, bytes.
    pub has_other_types: bool,
}

/// The text of the document in a row image. An empty value is the document `null`, as in the servers.
///
/// # Errors
/// [`Error::Malformed`] if the bytes are not a document.
pub fn text(document: &[u8]) -> Result<JsonText> {
    let mut writer = Writer {
        text: Vec::with_capacity(2 * document.len()),
        has_other_types: false,
        bytes_max: document.len().saturating_mul(TEXT_BYTES_PER_BYTE_MAX) + 64,
    };
    match document.split_first() {
        None => writer.text.extend_from_slice(b"null"),
        Some((&kind, value)) => writer.write_value(kind, value, 0)?,
    }
    Ok(JsonText { text: writer.text, has_other_types: writer.has_other_types })
}

struct Writer {
    text: Vec<u8>,
    has_other_types: bool,
    bytes_max: usize,
}

impl Writer {
    /// A value whose bytes begin with `bytes`.
    fn write_value(&mut self, kind: u8, bytes: &[u8], depth: usize) -> Result<()> {
        if depth > DEPTH_MAX || self.text.len() > self.bytes_max {
            return Err(malformed("it is nested too deeply, or its parts overlap"));
        }
        match kind {
            kind::SMALL_OBJECT => self.write_container(bytes, 2, true, depth),
            kind::LARGE_OBJECT => self.write_container(bytes, 4, true, depth),
            kind::SMALL_ARRAY => self.write_container(bytes, 2, false, depth),
            kind::LARGE_ARRAY => self.write_container(bytes, 4, false, depth),
            kind::STRING => {
                let string = sized(bytes)?;
                self.write_string(string)
            }
            kind::OPAQUE => self.write_opaque(bytes),
            _ => self.write_scalar(kind, bytes),
        }
    }

    fn write_scalar(&mut self, kind: u8, bytes: &[u8]) -> Result<()> {
        match kind {
            kind::LITERAL => self.text.extend_from_slice(match first::<1>(bytes)? {
                [0] => b"null".as_slice(),
                [1] => b"true",
                [2] => b"false",
                _ => return Err(malformed("a literal is none of null, true and false")),
            }),
            kind::INT16 => self.write_number(i16::from_le_bytes(first(bytes)?)),
            kind::UINT16 => self.write_number(u16::from_le_bytes(first(bytes)?)),
            kind::INT32 => self.write_number(i32::from_le_bytes(first(bytes)?)),
            kind::UINT32 => self.write_number(u32::from_le_bytes(first(bytes)?)),
            kind::INT64 => self.write_number(i64::from_le_bytes(first(bytes)?)),
            kind::UINT64 => self.write_number(u64::from_le_bytes(first(bytes)?)),
            kind::DOUBLE => {
                let number = f64::from_le_bytes(first(bytes)?);
                if !number.is_finite() {
                    return Err(malformed("a number is not finite"));
                }
                // With a point or an exponent, so that it stays a double; an exponent for large and small numbers, to
                // avoid hundreds of digits.
                let is_plain = number == 0.0 || (1e-5..1e15).contains(&number.abs());
                match is_plain {
                    true => self.write_number(format_args!("{number:?}")),
                    false => self.write_number(format_args!("{number:e}")),
                }
            }
            other => return Err(malformed(&format!("values of type {other} are not known"))),
        }
        Ok(())
    }

    fn write_number(&mut self, number: impl std::fmt::Display) {
        // Writing to a vector does not fail.
        let _ = write!(self.text, "{number}");
    }

    /// An object or array: the count of its elements, its size, entries of keys (offset and length), entries of values
    /// (type, and offset or the value itself), keys, values. Offsets count from the beginning of `bytes`.
    fn write_container(&mut self, bytes: &[u8], width: usize, is_object: bool, depth: usize) -> Result<()> {
        let (count, size) = (integer(bytes, 0, width)?, integer(bytes, width, width)?);
        let bytes = bytes.get(..size).ok_or_else(|| malformed("it is shorter than it says"))?;
        let keys = 2 * width;
        let values = keys + if is_object { count.saturating_mul(width + 2) } else { 0 };
        self.text.push(if is_object { b'{' } else { b'[' });
        for index in 0..count {
            if index > 0 {
                self.text.extend_from_slice(b", ");
            }
            if is_object {
                let entry = keys + index * (width + 2);
                let (start, length) = (integer(bytes, entry, width)?, integer(bytes, entry + width, 2)?);
                let key = start.checked_add(length).and_then(|end| bytes.get(start..end));
                self.write_string(key.ok_or_else(|| malformed("a key lies outside of it"))?)?;
                self.text.extend_from_slice(b": ");
            }
            let entry = values + index * (width + 1);
            let kind = *bytes.get(entry).ok_or_else(|| malformed("it is shorter than its elements"))?;
            let is_inline = matches!(kind, kind::LITERAL | kind::INT16 | kind::UINT16)
                || width == 4 && matches!(kind, kind::INT32 | kind::UINT32);
            let start = if is_inline { entry + 1 } else { integer(bytes, entry + 1, width)? };
            let value = bytes.get(start..).ok_or_else(|| malformed("an element lies outside of it"))?;
            self.write_value(kind, value, depth + 1)?;
        }
        self.text.push(if is_object { b'}' } else { b']' });
        Ok(())
    }

    fn write_string(&mut self, bytes: &[u8]) -> Result<()> {
        let string = std::str::from_utf8(bytes).map_err(|_| malformed("a string is not UTF-8"))?;
        append_string(&mut self.text, string);
        Ok(())
    }

    /// A value of a column's type: the type, and bytes with their length.
    fn write_opaque(&mut self, bytes: &[u8]) -> Result<()> {
        self.has_other_types = true;
        let (&column_type, rest) = bytes.split_first().ok_or_else(|| malformed("an opaque value has no type"))?;
        let value = sized(rest)?;
        match column_type {
            opaque::DECIMAL => {
                let [precision, scale] = first(value)?;
                let decimal = ColumnType::Decimal { precision, scale };
                match Value::decode(decimal, false, &value[2..])? {
                    Value::Decimal(decimal) => decimal.append_to(&mut self.text),
                    _ => return Err(malformed("a decimal is none")),
                }
            }
            opaque::DATE | opaque::DATETIME | opaque::TIMESTAMP | opaque::TIME => {
                self.write_temporal(column_type, value)?
            }
            _ => {
                let _ = write!(self.text, "\"base64:type{column_type}:");
                append_base64(&mut self.text, value);
                self.text.push(b'"');
            }
        }
        Ok(())
    }

    /// Writes a temporal value of eight bytes: 24 bits of microseconds, and above them the bits of the type's column.
    fn write_temporal(&mut self, column_type: u8, bytes: &[u8]) -> Result<()> {
        let packed = i64::from_le_bytes(first(bytes)?);
        let magnitude = packed.unsigned_abs();
        let (whole, microseconds) = (magnitude >> 24, magnitude & 0xff_ffff);
        let fraction = Fraction { value: microseconds as u32, digits: 6 };
        let clock = (whole >> 12 & 0x1f, whole >> 6 & 0x3f, whole & 0x3f);
        let day = (whole >> 17 & 0x1f, (whole >> 22) % 13, (whole >> 22) / 13);
        let sign = if packed < 0 { "-" } else { "" };
        let _ = match column_type {
            opaque::TIME => {
                let hours = whole >> 12 & 0x3ff;
                write!(self.text, "\"{sign}{hours:02}:{:02}:{:02}.{:06}\"", clock.1, clock.2, fraction.value)
            }
            opaque::DATE => write!(self.text, "\"{:04}-{:02}-{:02}\"", day.2, day.1, day.0),
            _ => write!(
                self.text,
                "\"{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}\"",
                day.2, day.1, day.0, clock.0, clock.1, clock.2, fraction.value
            ),
        };
        Ok(())
    }
}

/// A string in quotes.
fn append_string(text: &mut Vec<u8>, string: &str) {
    text.push(b'"');
    for character in string.chars() {
        match character {
            '"' => text.extend_from_slice(b"\\\""),
            '\\' => text.extend_from_slice(b"\\\\"),
            '\n' => text.extend_from_slice(b"\\n"),
            '\r' => text.extend_from_slice(b"\\r"),
            '\t' => text.extend_from_slice(b"\\t"),
            '\u{8}' => text.extend_from_slice(b"\\b"),
            '\u{c}' => text.extend_from_slice(b"\\f"),
            control if (control as u32) < 0x20 => {
                // Writing to a vector does not fail.
                let _ = write!(text, "\\u{:04x}", control as u32);
            }
            other => text.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    text.push(b'"');
}

fn append_base64(text: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let at = |index: usize| group.get(index).copied().map_or(0, u32::from);
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let is_padding = digit > group.len();
            text.push(if is_padding { b'=' } else { DIGITS[(bits >> (18 - 6 * digit) & 63) as usize] });
        }
    }
}

/// Reads bytes after their length, which is written in groups of seven bits, the lowest first.
fn sized(bytes: &[u8]) -> Result<&[u8]> {
    let mut length = 0usize;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let start = index + 1;
            let value = start.checked_add(length).and_then(|end| bytes.get(start..end));
            return value.ok_or_else(|| malformed("a string is longer than the document"));
        }
    }
    Err(malformed("a length does not end"))
}

fn integer(bytes: &[u8], offset: usize, width: usize) -> Result<usize> {
    let field = offset.checked_add(width).and_then(|end| bytes.get(offset..end));
    let field = field.ok_or_else(|| malformed("it is shorter than its head"))?;
    Ok(field.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
}

fn first<const LENGTH: usize>(bytes: &[u8]) -> Result<[u8; LENGTH]> {
    bytes.first_chunk().copied().ok_or_else(|| malformed("a value is cut short"))
}

fn malformed(why: &str) -> Error {
    Error::malformed(WHAT, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(document: &[u8]) -> String {
        String::from_utf8(text(document).unwrap().text).unwrap()
    }

    #[test]
    fn json_scalars_decode() {
        assert_eq!(written(&[]), "null");
        assert_eq!(written(&[4, 1]), "true");
        assert_eq!(written(&[5, 0xfe, 0xff]), "-2");
        assert_eq!(written(&[10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), u64::MAX.to_string());
        let double = |number: f64| written(&[&[11][..], &number.to_le_bytes()].concat());
        assert_eq!(double(1.0), "1.0");
        assert_eq!(double(0.1), "0.1");
        assert_eq!(double(1e100), "1e100");
        assert_eq!(written(b"\x0c\x05a\"\\\n\x01"), r#""a\"\\\n\u0001""#);
        // 1.50 as DECIMAL(3,2).
        let decimal = text(&[15, 246, 4, 3, 2, 0x81, 50]).unwrap();
        assert_eq!((decimal.text, decimal.has_other_types), (b"1.50".to_vec(), true));
        assert_eq!(written(&[15, 252, 3, 1, 2, 3]), r#""base64:type252:AQID""#);
        assert_eq!(written(&[15, 252, 1, 255]), r#""base64:type252:/w==""#);
    }

    #[test]
    fn json_containers_decode() {
        // {"a": [1, "x"]}, small.
        let array = [2, 0, 12, 0, 5, 1, 0, 12, 10, 0, 1, b'x'];
        let object = [&[0, 1, 0, 24, 0, 11, 0, 1, 0, 2, 12, 0, b'a'][..], &array].concat();
        assert_eq!(written(&object), r#"{"a": [1, "x"]}"#);
        for length in 1..object.len() {
            assert!(text(&object[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn document_within_itself_is_an_error() {
        // An array whose elements are the array itself.
        let document = [2, 2, 0, 10, 0, 2, 0, 0, 2, 0, 0];
        assert!(text(&document).is_err());
    }
}

//! Columns' values as text, for error messages that name a key, and for dumps that people read.

use std::fmt::{self, Write};

use crate::Span;
use crate::column::{ColumnType, DECIMAL_DIGIT_BYTES};
use crate::numbers::{big_endian, little_endian, sign_extended};

/// A value to be shown: its type, its bytes without length prefix, and whether its number is unsigned.
#[derive(Debug, Clone, Copy)]
pub struct ShownValue<'a> {
    /// The column's type.
    pub column_type: ColumnType,
    /// The value's bytes as in the row image, without the length before them.
    pub bytes: &'a [u8],
    /// True if an integer is unsigned.
    pub is_unsigned: bool,
}

/// A column of an image that is to be shown.
#[derive(Debug, Clone, Copy)]
pub struct NamedValue<'a> {
    /// The column's name; empty if nobody knows it.
    pub name: &'a str,
    /// Its type.
    pub column_type: ColumnType,
    /// True if an integer is unsigned.
    pub is_unsigned: bool,
    /// Where its value is in the image.
    pub span: Span,
}

/// Columns of an image, for people: `id=5, name='x'`.
pub fn named_values<'a>(image: &[u8], columns: impl Iterator<Item = NamedValue<'a>>) -> String {
    let mut text = String::new();
    for NamedValue { name, column_type, is_unsigned, span } in columns {
        let comma = if text.is_empty() { "" } else { ", " };
        let equals = if name.is_empty() { "" } else { "=" };
        let name = name.replace(char::is_control, "\u{fffd}");
        let value = ShownValue { column_type, bytes: span.value(image), is_unsigned };
        text += &match span.is_null {
            true => format!("{comma}{name}{equals}NULL"),
            false => format!("{comma}{name}{equals}{value}"),
        };
    }
    text
}

/// Messages truncate longer texts to this length.
const SHOWN_CHARACTERS_MAX: usize = 120;

impl fmt::Display for ShownValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        match self.column_type {
            ColumnType::Null => f.write_str("NULL"),
            column_type if column_type.is_integer() => self.integer(f),
            ColumnType::Enum { .. } | ColumnType::Set { .. } => write!(f, "{}", little_endian(bytes)),
            ColumnType::Year => match little_endian(bytes) {
                0 => f.write_str("0000"),
                year => write!(f, "{}", 1900 + (year & 0xff)),
            },
            ColumnType::Float => match bytes.try_into() {
                Ok(raw) => write!(f, "{}", f32::from_le_bytes(raw)),
                Err(_) => hex(f, bytes),
            },
            ColumnType::Double => match bytes.try_into() {
                Ok(raw) => write!(f, "{}", f64::from_le_bytes(raw)),
                Err(_) => hex(f, bytes),
            },
            ColumnType::Decimal { precision, scale } => f.write_str(&decimal_text(precision, scale, bytes)),
            ColumnType::Date => date(f, little_endian(bytes)),
            ColumnType::TimeOld => {
                let signed = sign_extended(bytes);
                let (sign, value) = (if signed < 0 { "-" } else { "" }, signed.unsigned_abs());
                write!(f, "{sign}{:02}:{:02}:{:02}", value / 10_000, value / 100 % 100, value % 100)
            }
            ColumnType::DatetimeOld => {
                let value = little_endian(bytes);
                let (day, time) = (value / 1_000_000, value % 1_000_000);
                write!(f, "{:04}-{:02}-{:02} ", day / 10_000, day / 100 % 100, day % 100)?;
                write!(f, "{:02}:{:02}:{:02}", time / 10_000, time / 100 % 100, time % 100)
            }
            ColumnType::TimestampOld => write!(f, "@{}", little_endian(bytes)),
            ColumnType::Timestamp { fraction } => {
                let (seconds, rest) = bytes.split_at(bytes.len().min(4));
                write!(f, "@{}", big_endian(seconds))?;
                fractional(f, fraction, big_endian(rest))
            }
            ColumnType::Datetime { fraction } => datetime(f, fraction, bytes),
            ColumnType::Time { fraction } => time(f, fraction, bytes),
            ColumnType::Bit { bits } => write!(f, "b'{:0width$b}'", big_endian(bytes), width = usize::from(bits)),
            ColumnType::Varchar { .. } | ColumnType::Char { .. } | ColumnType::Blob { .. } => text(f, bytes),
            _ => hex(f, bytes),
        }
    }
}

impl ShownValue<'_> {
    fn integer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unsigned {
            return write!(f, "{}", little_endian(self.bytes));
        }
        write!(f, "{}", sign_extended(self.bytes))
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("0x")?;
    for byte in bytes.iter().take(SHOWN_CHARACTERS_MAX / 2) {
        write!(f, "{byte:02x}")?;
    }
    if bytes.len() > SHOWN_CHARACTERS_MAX / 2 { write!(f, "… ({} bytes)", bytes.len()) } else { Ok(()) }
}

fn text(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let Ok(text) = std::str::from_utf8(bytes) else { return hex(f, bytes) };
    f.write_char('\'')?;
    for character in text.chars().take(SHOWN_CHARACTERS_MAX) {
        match character {
            '\'' => f.write_str("''")?,
            control if control.is_control() => write!(f, "{}", control.escape_default())?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('\'')?;
    if text.chars().nth(SHOWN_CHARACTERS_MAX).is_some() { write!(f, "… ({} bytes)", bytes.len()) } else { Ok(()) }
}

fn date(f: &mut fmt::Formatter<'_>, packed: u64) -> fmt::Result {
    write!(f, "{:04}-{:02}-{:02}", packed >> 9, packed >> 5 & 15, packed & 31)
}

/// Takes the wanted digits of a fraction that is stored in whole bytes (two digits each).
fn fractional(f: &mut fmt::Formatter<'_>, digits: u8, stored: u64) -> fmt::Result {
    if digits == 0 {
        return Ok(());
    }
    let shown = if digits % 2 == 1 { stored / 10 } else { stored };
    write!(f, ".{shown:0width$}", width = usize::from(digits))
}

fn datetime(f: &mut fmt::Formatter<'_>, fraction: u8, bytes: &[u8]) -> fmt::Result {
    let (whole, rest) = bytes.split_at(bytes.len().min(5));
    let packed = big_endian(whole) & 0x7f_ffff_ffff;
    let (day, clock) = (packed >> 17, packed & 0x1_ffff);
    let (month, day) = (day >> 5, day & 31);
    write!(f, "{:04}-{:02}-{:02} ", month / 13, month % 13, day)?;
    write!(f, "{:02}:{:02}:{:02}", clock >> 12, clock >> 6 & 63, clock & 63)?;
    fractional(f, fraction, big_endian(rest))
}

fn time(f: &mut fmt::Formatter<'_>, fraction: u8, bytes: &[u8]) -> fmt::Result {
    // The value and its fraction together are one big-endian number, biased so that it sorts; a negative time is the
    // two's complement of its magnitude.
    let bits = 8 * bytes.len().clamp(1, 8) as u32;
    let bias = 1u64 << (bits - 1);
    let value = big_endian(bytes).wrapping_sub(bias) as i64;
    let magnitude = value.unsigned_abs();
    let fraction_bits = bits.saturating_sub(24);
    let clock = magnitude >> fraction_bits;
    let sign = if value < 0 { "-" } else { "" };
    write!(f, "{sign}{:02}:{:02}:{:02}", clock >> 12 & 0x3ff, clock >> 6 & 63, clock & 63)?;
    fractional(f, fraction, magnitude & ((1u64 << fraction_bits) - 1))
}

/// The text of a packed decimal: groups of nine digits in four bytes, the first bit inverted, all bits if negative.
pub fn decimal_text(precision: u8, scale: u8, bytes: &[u8]) -> String {
    let Some(&first) = bytes.first() else { return String::from("0") };
    let is_negative = first & 0x80 == 0;
    let mask = if is_negative { 0xff } else { 0 };
    let mut plain: Vec<u8> = bytes.iter().map(|byte| byte ^ mask).collect();
    plain[0] ^= 0x80;
    let mut rest = plain.as_slice();
    let mut group = |digits: u8| {
        let length = (DECIMAL_DIGIT_BYTES[usize::from(digits)] as usize).min(rest.len());
        let (head, tail) = rest.split_at(length);
        rest = tail;
        format!("{:0width$}", big_endian(head), width = usize::from(digits))
    };
    let whole_digits = precision.saturating_sub(scale);
    let mut whole = String::new();
    if !whole_digits.is_multiple_of(9) {
        whole += &group(whole_digits % 9);
    }
    for _ in 0..whole_digits / 9 {
        whole += &group(9);
    }
    let mut fraction = String::new();
    for _ in 0..scale / 9 {
        fraction += &group(9);
    }
    if !scale.is_multiple_of(9) {
        fraction += &group(scale % 9);
    }
    let whole = whole.trim_start_matches('0');
    let sign = if is_negative { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(column_type: ColumnType, bytes: &[u8]) -> String {
        ShownValue { column_type, bytes, is_unsigned: false }.to_string()
    }

    #[test]
    fn integers_carry_their_sign() {
        assert_eq!(shown(ColumnType::TinyInt, &[0xff]), "-1");
        assert_eq!(shown(ColumnType::MediumInt, &[0, 0, 0x80]), "-8388608");
        let unsigned = ShownValue { column_type: ColumnType::BigInt, bytes: &[0xff; 8], is_unsigned: true };
        assert_eq!(unsigned.to_string(), u64::MAX.to_string());
    }

    #[test]
    fn decimals_decode() {
        // The example of the MySQL manual: 1234567890.1234 and its negative as DECIMAL(14,4).
        let positive = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        let negative: Vec<u8> = positive.iter().map(|byte| !byte).collect();
        assert_eq!(decimal_text(14, 4, &positive), "1234567890.1234");
        assert_eq!(decimal_text(14, 4, &negative), "-1234567890.1234");
        assert_eq!(decimal_text(3, 0, &[0x80, 0x07]), "7");
    }

    #[test]
    fn value_display_of_hostile_bytes_does_not_panic() {
        for column_type in [
            ColumnType::Decimal { precision: 65, scale: 30 },
            ColumnType::Datetime { fraction: 6 },
            ColumnType::Time { fraction: 6 },
            ColumnType::Timestamp { fraction: 6 },
            ColumnType::Year,
            ColumnType::Double,
        ] {
            for length in 0..12 {
                shown(column_type, &vec![0xff; length]);
                shown(column_type, &vec![0; length]);
            }
        }
    }
}

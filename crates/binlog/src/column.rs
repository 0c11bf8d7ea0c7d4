//! Column types as a table map names them, and how many bytes a value of each takes in a row image.

use crate::cursor::Cursor;
use crate::{Error, Result};

/// A column's type code (`MYSQL_TYPE_…` as the servers number them), after unwrapping `STRING` into `ENUM` and `SET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants' docs name their fields")]
pub enum ColumnType {
    /// `DECIMAL(precision, scale)`.
    Decimal { precision: u8, scale: u8 },
    /// `TINYINT`, and `BOOLEAN`.
    TinyInt,
    /// `SMALLINT`.
    SmallInt,
    /// `MEDIUMINT`.
    MediumInt,
    /// `INT`.
    Int,
    /// `BIGINT`.
    BigInt,
    /// `FLOAT`.
    Float,
    /// `DOUBLE`.
    Double,
    /// The type of `NULL` itself.
    Null,
    /// `TIMESTAMP` in the format before MySQL 5.6.
    TimestampOld,
    /// `DATE`.
    Date,
    /// `TIME` in the format before MySQL 5.6.
    TimeOld,
    /// `DATETIME` in the format before MySQL 5.6.
    DatetimeOld,
    /// `YEAR`.
    Year,
    /// `TIMESTAMP(fraction)`.
    Timestamp { fraction: u8 },
    /// `DATETIME(fraction)`.
    Datetime { fraction: u8 },
    /// `TIME(fraction)`.
    Time { fraction: u8 },
    /// `VARCHAR` or `VARBINARY` of at most this many bytes.
    Varchar { bytes_max: u16 },
    /// MariaDB's `VARCHAR … COMPRESSED`: the image holds the compressed form.
    VarcharCompressed { bytes_max: u16 },
    /// `CHAR`, `BINARY`, and MariaDB's `UUID`, `INET4` and `INET6`.
    Char { bytes_max: u16 },
    /// `BIT(bits)`.
    Bit { bits: u16 },
    /// `ENUM`, stored in this many bytes.
    Enum { bytes: u8 },
    /// `SET`, stored in this many bytes.
    Set { bytes: u8 },
    /// `BLOB`, `TEXT` and MariaDB's `JSON`; the length takes this many bytes.
    Blob { length_bytes: u8 },
    /// MariaDB's `BLOB … COMPRESSED`: the image holds the compressed form.
    BlobCompressed { length_bytes: u8 },
    /// `GEOMETRY`.
    Geometry { length_bytes: u8 },
    /// MySQL's binary `JSON`.
    Json { length_bytes: u8 },
    /// MySQL's `VECTOR`: floats.
    Vector { length_bytes: u8 },
}

/// How to count the bytes of a value without decoding them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Always this many bytes.
    Fixed(u32),
    /// A little-endian length, itself of this many bytes (1 to 4), then as many bytes as that length says.
    Prefixed(u8),
}

impl ColumnType {
    /// Reads the type with code `code` whose metadata begins at `metadata`.
    pub(crate) fn parse(code: u8, metadata: &mut Cursor<'_>) -> Result<ColumnType> {
        Ok(match code {
            1 => ColumnType::TinyInt,
            2 => ColumnType::SmallInt,
            3 => ColumnType::Int,
            4 => sized(metadata.u8()?, 4, "FLOAT", ColumnType::Float)?,
            5 => sized(metadata.u8()?, 8, "DOUBLE", ColumnType::Double)?,
            6 => ColumnType::Null,
            7 => ColumnType::TimestampOld,
            8 => ColumnType::BigInt,
            9 => ColumnType::MediumInt,
            10 | 14 => ColumnType::Date,
            11 => ColumnType::TimeOld,
            12 => ColumnType::DatetimeOld,
            13 => ColumnType::Year,
            15 | 253 => ColumnType::Varchar { bytes_max: metadata.u16()? },
            16 => bit(metadata.u8()?, metadata.u8()?)?,
            17 => ColumnType::Timestamp { fraction: fraction(metadata.u8()?)? },
            18 => ColumnType::Datetime { fraction: fraction(metadata.u8()?)? },
            19 => ColumnType::Time { fraction: fraction(metadata.u8()?)? },
            140 => ColumnType::BlobCompressed { length_bytes: length_bytes(metadata.u8()?)? },
            141 => ColumnType::VarcharCompressed { bytes_max: metadata.u16()? },
            242 => ColumnType::Vector { length_bytes: length_bytes(metadata.u8()?)? },
            245 => ColumnType::Json { length_bytes: length_bytes(metadata.u8()?)? },
            246 => decimal(metadata.u8()?, metadata.u8()?)?,
            249..=252 => ColumnType::Blob { length_bytes: length_bytes(metadata.u8()?)? },
            254 => string(metadata.u8()?, metadata.u8()?)?,
            255 => ColumnType::Geometry { length_bytes: length_bytes(metadata.u8()?)? },
            other => return Err(Error::unsupported("column type", format!("code {other}"))),
        })
    }

    /// How to count the bytes of a value.
    pub fn measure(self) -> Measure {
        match self {
            ColumnType::Null => Measure::Fixed(0),
            ColumnType::TinyInt | ColumnType::Year => Measure::Fixed(1),
            ColumnType::SmallInt => Measure::Fixed(2),
            ColumnType::MediumInt | ColumnType::Date | ColumnType::TimeOld => Measure::Fixed(3),
            ColumnType::Int | ColumnType::Float | ColumnType::TimestampOld => Measure::Fixed(4),
            ColumnType::BigInt | ColumnType::Double | ColumnType::DatetimeOld => Measure::Fixed(8),
            ColumnType::Decimal { precision, scale } => Measure::Fixed(decimal_length(precision, scale)),
            ColumnType::Timestamp { fraction } => Measure::Fixed(4 + fraction_length(fraction)),
            ColumnType::Datetime { fraction } => Measure::Fixed(5 + fraction_length(fraction)),
            ColumnType::Time { fraction } => Measure::Fixed(3 + fraction_length(fraction)),
            ColumnType::Bit { bits } => Measure::Fixed(u32::from(bits.div_ceil(8))),
            ColumnType::Enum { bytes } | ColumnType::Set { bytes } => Measure::Fixed(u32::from(bytes)),
            ColumnType::Varchar { bytes_max }
            | ColumnType::VarcharCompressed { bytes_max }
            | ColumnType::Char { bytes_max } => Measure::Prefixed(if bytes_max < 256 { 1 } else { 2 }),
            ColumnType::Blob { length_bytes }
            | ColumnType::BlobCompressed { length_bytes }
            | ColumnType::Geometry { length_bytes }
            | ColumnType::Json { length_bytes }
            | ColumnType::Vector { length_bytes } => Measure::Prefixed(length_bytes),
        }
    }

    /// True for strings of characters or bytes, whose collation a table map may give, and for vectors, which MySQL
    /// counts among them.
    pub fn has_collation(self) -> bool {
        use ColumnType::{Blob, BlobCompressed, Char, Varchar, VarcharCompressed, Vector};
        matches!(
            self,
            Varchar { .. }
                | VarcharCompressed { .. }
                | Char { .. }
                | Blob { .. }
                | BlobCompressed { .. }
                | Vector { .. }
        )
    }

    /// True for the integer types, whose bytes are little endian and may be signed.
    pub fn is_integer(self) -> bool {
        use ColumnType::{BigInt, Int, MediumInt, SmallInt, TinyInt};
        matches!(self, TinyInt | SmallInt | MediumInt | Int | BigInt)
    }

    /// True for the types that have a signedness bit in the optional metadata: MariaDB counts `YEAR` among them, and
    /// always as unsigned.
    pub fn has_signedness(self) -> bool {
        self.is_numeric() || self == ColumnType::Year
    }

    /// True for the old temporal types, whose length depends on a number of fractional digits that the binlog does not
    /// give. [`ColumnType::measure`] gives their length without a fraction.
    pub fn is_unmeasurable(self) -> bool {
        matches!(self, ColumnType::TimestampOld | ColumnType::TimeOld | ColumnType::DatetimeOld)
    }

    /// True for integers, decimals and floating-point numbers.
    pub fn is_numeric(self) -> bool {
        self.is_integer() || matches!(self, ColumnType::Decimal { .. } | ColumnType::Float | ColumnType::Double)
    }
}

impl Measure {
    /// Lengths in bytes of the value at the start of `bytes`: of its length prefix, and of the bytes after it.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `bytes` end before the value does.
    #[inline]
    pub fn lengths(self, bytes: &[u8]) -> Result<(usize, usize)> {
        let (prefix, length) = match self {
            Measure::Fixed(length) => (0, length as usize),
            Measure::Prefixed(prefix) => {
                let prefix = usize::from(prefix);
                let Some(stored) = bytes.get(..prefix) else {
                    return Err(row_truncated(prefix, bytes.len()));
                };
                let length = stored.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
                (prefix, length)
            }
        };
        if bytes.len() - prefix < length {
            return Err(row_truncated(prefix + length, bytes.len()));
        }
        Ok((prefix, length))
    }
}

pub(crate) fn row_truncated(needed: usize, available: usize) -> Error {
    Error::Truncated { what: "row image", needed, available }
}

fn sized(stored: u8, expected: u8, name: &'static str, column_type: ColumnType) -> Result<ColumnType> {
    if stored == expected {
        Ok(column_type)
    } else {
        Err(Error::malformed("table map", format!("{name} of {stored} bytes")))
    }
}

fn bit(bits: u8, bytes: u8) -> Result<ColumnType> {
    let total = u16::from(bytes) * 8 + u16::from(bits);
    if bits > 7 || !(1..=64).contains(&total) {
        return Err(Error::malformed("table map", format!("BIT of {bytes} bytes and {bits} bits")));
    }
    Ok(ColumnType::Bit { bits: total })
}

fn fraction(digits: u8) -> Result<u8> {
    if digits <= 6 {
        Ok(digits)
    } else {
        Err(Error::malformed("table map", format!("{digits} fractional digits of a second")))
    }
}

fn length_bytes(bytes: u8) -> Result<u8> {
    if (1..=4).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(Error::malformed("table map", format!("BLOB length of {bytes} bytes")))
    }
}

fn decimal(precision: u8, scale: u8) -> Result<ColumnType> {
    if precision == 0 || precision > 65 || scale > precision || scale > 38 {
        return Err(Error::malformed("table map", format!("DECIMAL({precision},{scale})")));
    }
    Ok(ColumnType::Decimal { precision, scale })
}

/// Unwraps `STRING` into `ENUM`, `SET` or `CHAR`. The length of a long `CHAR` takes two inverted bits of the type's
/// byte.
fn string(first: u8, second: u8) -> Result<ColumnType> {
    let (code, length) = if first & 0x30 == 0x30 {
        (first, u16::from(second))
    } else {
        (first | 0x30, u16::from((first & 0x30) ^ 0x30) << 4 | u16::from(second))
    };
    match code {
        247 if (1..=2).contains(&length) => Ok(ColumnType::Enum { bytes: second }),
        248 if (1..=8).contains(&length) => Ok(ColumnType::Set { bytes: second }),
        254 => Ok(ColumnType::Char { bytes_max: length }),
        other => Err(Error::malformed("table map", format!("string type {other} of length {length}"))),
    }
}

/// Bytes of `0..=9` leftover decimal digits.
pub(crate) const DECIMAL_DIGIT_BYTES: [u32; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

fn decimal_length(precision: u8, scale: u8) -> u32 {
    let part = |digits: u8| u32::from(digits / 9) * 4 + DECIMAL_DIGIT_BYTES[usize::from(digits % 9)];
    part(precision - scale) + part(scale)
}

fn fraction_length(digits: u8) -> u32 {
    u32::from(digits.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_char_length_uses_bits_of_the_type_byte() {
        // CHAR(255) utf8mb4: 1020 bytes; 1020 >> 4 & 0x30 = 0x30, inverted: 0.
        let first = 254 ^ 0x30;
        assert_eq!(string(first, (1020 & 0xff) as u8).unwrap(), ColumnType::Char { bytes_max: 1020 });
        assert_eq!(string(254, 40).unwrap(), ColumnType::Char { bytes_max: 40 });
    }

    #[test]
    fn decimals_take_four_bytes_for_nine_digits() {
        assert_eq!(decimal_length(10, 0), 5);
        assert_eq!(decimal_length(65, 30), 30);
        assert_eq!(decimal_length(18, 9), 8);
        assert_eq!(decimal_length(1, 1), 1);
    }

    #[test]
    fn length_prefix_longer_than_the_row_is_an_error() {
        assert!(Measure::Prefixed(2).lengths(&[5]).is_err());
        assert!(Measure::Prefixed(1).lengths(&[3, 1, 2]).is_err());
        assert_eq!(Measure::Prefixed(1).lengths(&[2, 1, 2, 9]).unwrap(), (1, 2));
    }
}

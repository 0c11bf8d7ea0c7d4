//! A column's bytes as a value of its type, for code that writes it in another form than the row image's.
//!
//! Decoding does not round, convert or shorten anything. Only the table's definition says if a string is text, and in
//! which character set.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, ZlibDecoder};

use crate::column::{ColumnType, DECIMAL_DIGIT_BYTES};
use crate::numbers::{big_endian, little_endian, sign_extended};
use crate::{Error, Result};

const WHAT: &str = "column value";

/// The servers' own limit. A compressed value that announces more is damage, or an attack.
const INFLATED_BYTES_MAX: usize = 1 << 30;

/// The value of a column that is not NULL.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// An integer with a sign.
    Signed(i64),
    /// An integer without one; `BIT`; the number of an `ENUM`'s choice; the bits of a `SET`.
    Unsigned(u64),
    /// `FLOAT`.
    Float(f32),
    /// `DOUBLE`.
    Double(f64),
    /// `DECIMAL`.
    Decimal(Decimal<'a>),
    /// `YEAR`: 0, or from 1901 to 2155.
    Year(u16),
    /// `DATE`; any part may be zero.
    Date(Date),
    /// `DATETIME`; any part may be zero.
    Datetime(Date, Clock),
    /// `TIME`.
    Time {
        /// True if it is below zero.
        is_negative: bool,
        /// Its magnitude, up to 838 hours.
        clock: Clock,
    },
    /// `TIMESTAMP`: seconds since 1970, UTC; 0 is the zero date.
    Timestamp {
        /// Whole seconds.
        seconds: u32,
        /// The fraction of a second.
        fraction: Fraction,
    },
    /// Every kind of string: `CHAR`, `VARCHAR`, `TEXT`, `BLOB`, MariaDB's `JSON`; and types that are stored as bytes:
    /// `VECTOR`, MariaDB's `UUID` and `INET6`.
    Bytes(Cow<'a, [u8]>),
    /// `GEOMETRY`: the id of a reference system in four bytes, then well-known binary.
    Geometry(&'a [u8]),
    /// MySQL's binary `JSON`.
    Json(&'a [u8]),
}

/// A date as the servers store it, which need not be in the calendar: any part may be zero, and any month may have 31
/// days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Date {
    pub year: u16,
    pub month: u8,
    pub day: u8,
}

/// A time of day, or a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Clock {
    pub hours: u16,
    pub minutes: u8,
    pub seconds: u8,
    pub fraction: Fraction,
}

/// A fraction of a second as its column shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    /// The digits as a number: 5 with two of them is 0.05 s.
    pub value: u32,
    /// The number of digits, up to 6.
    pub digits: u8,
}

/// A packed `DECIMAL`: groups of nine digits in four bytes, the first bit inverted, all bits if negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal<'a> {
    precision: u8,
    scale: u8,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// Decodes the bytes of a value, without their length prefix, in a column of this type.
    ///
    /// # Errors
    /// [`Error::Malformed`] if they are not a value of the type; [`Error::Unsupported`] for the temporal types in the
    /// format before MySQL 5.6: the table map does not say how to read their bytes.
    pub fn decode(column_type: ColumnType, is_unsigned: bool, bytes: &'a [u8]) -> Result<Value<'a>> {
        Ok(match column_type {
            ColumnType::TinyInt
            | ColumnType::SmallInt
            | ColumnType::MediumInt
            | ColumnType::Int
            | ColumnType::BigInt => {
                expect_length(bytes, 1..=8)?;
                if is_unsigned { Value::Unsigned(little_endian(bytes)) } else { Value::Signed(sign_extended(bytes)) }
            }
            ColumnType::Enum { .. } | ColumnType::Set { .. } => {
                expect_length(bytes, 1..=8)?;
                Value::Unsigned(little_endian(bytes))
            }
            ColumnType::Bit { .. } => {
                expect_length(bytes, 1..=8)?;
                Value::Unsigned(big_endian(bytes))
            }
            ColumnType::Float => Value::Float(f32::from_le_bytes(exactly(bytes)?)),
            ColumnType::Double => Value::Double(f64::from_le_bytes(exactly(bytes)?)),
            ColumnType::Decimal { precision, scale } => Value::Decimal(Decimal::new(precision, scale, bytes)?),
            ColumnType::Year => {
                let [byte] = exactly(bytes)?;
                Value::Year(if byte == 0 { 0 } else { 1900 + u16::from(byte) })
            }
            ColumnType::Date => {
                let [low, middle, high] = exactly(bytes)?;
                Value::Date(Date::unpack(u32::from_le_bytes([low, middle, high, 0])))
            }
            ColumnType::Datetime { fraction } => datetime(fraction, bytes)?,
            ColumnType::Time { fraction } => time(fraction, bytes)?,
            ColumnType::Timestamp { fraction } => {
                let (seconds, rest) = split(bytes, 4, fraction)?;
                Value::Timestamp { seconds: big_endian(seconds) as u32, fraction: Fraction::stored(fraction, rest)? }
            }
            ColumnType::Varchar { .. }
            | ColumnType::Char { .. }
            | ColumnType::Blob { .. }
            | ColumnType::Vector { .. } => Value::Bytes(bytes.into()),
            ColumnType::VarcharCompressed { .. } | ColumnType::BlobCompressed { .. } => Value::Bytes(inflate(bytes)?),
            ColumnType::Geometry { .. } => Value::Geometry(bytes),
            ColumnType::Json { .. } => Value::Json(bytes),
            ColumnType::Null | ColumnType::TimestampOld | ColumnType::TimeOld | ColumnType::DatetimeOld => {
                return Err(Error::unsupported("values of a column", format!("{column_type:?}")));
            }
        })
    }
}

impl Date {
    /// Unpacks fifteen bits of year, four of month, five of day.
    fn unpack(packed: u32) -> Date {
        Date { year: (packed >> 9) as u16, month: (packed >> 5 & 15) as u8, day: (packed & 31) as u8 }
    }

    /// The day with this number; day 0 is the first of 1970.
    pub fn of_day(day: u32) -> Date {
        // Eras of 400 years begin on the first of March of a year that 400 divides, so that leap days come last. Source: Howard Hinnant, chrono-compatible
        // low-level date algorithms.
        let since_march_of_0 = u64::from(day) + 719_468;
        let (era, day_of_era) = (since_march_of_0 / 146_097, since_march_of_0 % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        Date { year: year as u16, month: month as u8, day: day as u8 }
    }
}

impl Fraction {
    /// No fraction.
    pub const NONE: Fraction = Fraction { value: 0, digits: 0 };

    /// Reads digits of which each pair takes a byte; a last single digit is stored as if a zero followed.
    fn of(digits: u8, stored: u64) -> Result<Fraction> {
        let value = if digits % 2 == 1 { stored / 10 } else { stored };
        if value >= 10u64.pow(u32::from(digits)) {
            return Err(Error::malformed(WHAT, format!("{stored} as {digits} digits of a second")));
        }
        Ok(Fraction { value: value as u32, digits })
    }

    fn stored(digits: u8, bytes: &[u8]) -> Result<Fraction> {
        Fraction::of(digits, big_endian(bytes))
    }
}

impl<'a> Decimal<'a> {
    fn new(precision: u8, scale: u8, bytes: &'a [u8]) -> Result<Decimal<'a>> {
        let decimal = Decimal { precision, scale, bytes };
        let expected: usize = decimal.groups().map(|digits| DECIMAL_DIGIT_BYTES[usize::from(digits)] as usize).sum();
        if bytes.len() != expected || bytes.is_empty() {
            let why = format!("{} bytes as DECIMAL({precision},{scale})", bytes.len());
            return Err(Error::malformed(WHAT, why));
        }
        let mut is_sound = true;
        decimal.each_group(|digits, value| is_sound &= value < 10u64.pow(u32::from(digits)));
        match is_sound {
            true => Ok(decimal),
            false => Err(Error::malformed(WHAT, format!("digits above 9 in DECIMAL({precision},{scale})"))),
        }
    }

    /// The number of digits of each group. An incomplete group is the first one before the point, and the last one
    /// after it.
    fn groups(self) -> impl Iterator<Item = u8> {
        let (whole, scale) = (self.precision.saturating_sub(self.scale), self.scale);
        let nines = |count: u8| std::iter::repeat_n(9, usize::from(count / 9));
        let odd = |count: u8| Some(count % 9).filter(|&digits| digits > 0);
        odd(whole).into_iter().chain(nines(whole)).chain(nines(scale)).chain(odd(scale))
    }

    fn each_group(self, mut see: impl FnMut(u8, u64)) {
        let mask = if self.is_negative() { 0xff } else { 0 };
        let mut rest = self.bytes;
        let mut first_bit = 0x80;
        for digits in self.groups() {
            let (group, tail) = rest.split_at((DECIMAL_DIGIT_BYTES[usize::from(digits)] as usize).min(rest.len()));
            rest = tail;
            let value = group.iter().fold(0, |value, &byte| {
                let plain = byte ^ mask ^ std::mem::take(&mut first_bit);
                value << 8 | u64::from(plain)
            });
            see(digits, value);
        }
    }

    fn is_negative(self) -> bool {
        self.bytes.first().is_some_and(|byte| byte & 0x80 == 0)
    }

    /// Appends the number as the servers write it: `-0.50`.
    pub fn append_to(self, text: &mut Vec<u8>) {
        if self.is_negative() {
            text.push(b'-');
        }
        let start = text.len();
        let mut whole_left = self.precision.saturating_sub(self.scale);
        if whole_left == 0 {
            text.extend_from_slice(b"0.");
        }
        self.each_group(|digits, value| {
            let end = text.len() + usize::from(digits);
            text.resize(end, b'0');
            let mut value = value;
            for place in (end - usize::from(digits)..end).rev() {
                text[place] = b'0' + (value % 10) as u8;
                value /= 10;
            }
            if whole_left > 0 {
                whole_left -= digits;
                if whole_left == 0 {
                    let zeros = text[start..end - 1].iter().take_while(|&&digit| digit == b'0').count();
                    text.drain(start..start + zeros);
                    if self.scale > 0 {
                        text.push(b'.');
                    }
                }
            }
        });
    }
}

fn datetime<'a>(digits: u8, bytes: &[u8]) -> Result<Value<'a>> {
    let (whole, rest) = split(bytes, 5, digits)?;
    let packed = big_endian(whole) & 0x7f_ffff_ffff;
    let (day, clock) = (packed >> 17, packed & 0x1_ffff);
    let (month, day) = (day >> 5, day & 31);
    let date = Date { year: (month / 13) as u16, month: (month % 13) as u8, day: day as u8 };
    Ok(Value::Datetime(date, Clock::unpack(clock, Fraction::stored(digits, rest)?)))
}

fn time<'a>(digits: u8, bytes: &[u8]) -> Result<Value<'a>> {
    split(bytes, 3, digits)?;
    // The value and its fraction together are one big-endian number, biased so that it sorts; a negative time is the
    // two's complement of its magnitude.
    let bits = 8 * bytes.len() as u32;
    let value = big_endian(bytes).wrapping_sub(1 << (bits - 1)) as i64;
    let magnitude = value.unsigned_abs();
    let fraction_bits = bits - 24;
    let fraction = Fraction::of(digits, magnitude & ((1 << fraction_bits) - 1))?;
    Ok(Value::Time { is_negative: value < 0, clock: Clock::unpack(magnitude >> fraction_bits, fraction) })
}

impl Clock {
    /// Unpacks hours, six bits of minutes, six of seconds.
    fn unpack(packed: u64, fraction: Fraction) -> Clock {
        Clock {
            hours: (packed >> 12 & 0x3ff) as u16,
            minutes: (packed >> 6 & 63) as u8,
            seconds: (packed & 63) as u8,
            fraction,
        }
    }
}

/// Decompresses a value of a MariaDB COMPRESSED column: a header byte, the plain length, then a raw deflate stream or a
/// zlib stream; or a zero and the plain bytes.
///
/// Source: MariaDB knowledge base, "Storage-Engine Independent Column Compression", and values written by its servers.
fn inflate(bytes: &[u8]) -> Result<Cow<'_, [u8]>> {
    let Some((&header, rest)) = bytes.split_first() else { return Ok(Cow::Borrowed(bytes)) };
    if header == 0 {
        return Ok(Cow::Borrowed(rest));
    }
    let (method, length_bytes) = (header >> 4, usize::from(header & 7));
    if method != 8 || !(1..=4).contains(&length_bytes) {
        return Err(Error::unsupported("compression of a column", format!("header byte {header:#04x}")));
    }
    let Some((length, stream)) = rest.split_at_checked(length_bytes) else {
        return Err(Error::Truncated { what: WHAT, needed: length_bytes, available: rest.len() });
    };
    let plain_length = length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
    if plain_length > INFLATED_BYTES_MAX {
        return Err(Error::malformed(WHAT, format!("plain length of {plain_length} bytes")));
    }
    let mut plain = Vec::new();
    let limit = plain_length as u64 + 1;
    let read = match header & 8 {
        0 => ZlibDecoder::new(stream).take(limit).read_to_end(&mut plain),
        _ => DeflateDecoder::new(stream).take(limit).read_to_end(&mut plain),
    };
    read.map_err(|error| Error::malformed(WHAT, error.to_string()))?;
    if plain.len() != plain_length {
        return Err(Error::malformed(WHAT, format!("{} bytes, not the announced {plain_length}", plain.len())));
    }
    Ok(Cow::Owned(plain))
}

/// Splits a value into the bytes before the fraction of a second and those of the fraction.
fn split(bytes: &[u8], whole: usize, digits: u8) -> Result<(&[u8], &[u8])> {
    let fraction = usize::from(digits.div_ceil(2));
    expect_length(bytes, whole + fraction..=whole + fraction)?;
    Ok(bytes.split_at(whole))
}

fn expect_length(bytes: &[u8], lengths: std::ops::RangeInclusive<usize>) -> Result<()> {
    match lengths.contains(&bytes.len()) {
        true => Ok(()),
        false => Err(Error::malformed(WHAT, format!("{} bytes, not {lengths:?}", bytes.len()))),
    }
}

fn exactly<const LENGTH: usize>(bytes: &[u8]) -> Result<[u8; LENGTH]> {
    bytes.try_into().map_err(|_| Error::malformed(WHAT, format!("{} bytes, not {LENGTH}", bytes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(precision: u8, scale: u8, bytes: &[u8]) -> String {
        match Value::decode(ColumnType::Decimal { precision, scale }, false, bytes).unwrap() {
            Value::Decimal(decimal) => {
                let mut text = Vec::new();
                decimal.append_to(&mut text);
                String::from_utf8(text).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn decimals_keep_every_digit() {
        // The example of the MySQL manual: 1234567890.1234 and its negative as DECIMAL(14,4).
        let positive = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        let negative: Vec<u8> = positive.iter().map(|byte| !byte).collect();
        assert_eq!(decimal(14, 4, &positive), "1234567890.1234");
        assert_eq!(decimal(14, 4, &negative), "-1234567890.1234");
        assert_eq!(decimal(3, 0, &[0x80, 0x07]), "7");
        assert_eq!(decimal(3, 0, &[0x80, 0x00]), "0");
        assert_eq!(decimal(4, 2, &[0x80, 0x05]), "0.05");
        assert_eq!(decimal(2, 2, &[0x85]), "0.05");
        assert_eq!(decimal(2, 2, &[0x7a]), "-0.05");
        let largest = [0xff, 0, 0, 0];
        assert!(Value::decode(ColumnType::Decimal { precision: 9, scale: 0 }, false, &largest).is_err());
    }

    #[test]
    fn days_convert_to_calendar_dates() {
        let date = |year, month, day| Date { year, month, day };
        for (day, expected) in [
            (0, date(1970, 1, 1)),
            (58, date(1970, 2, 28)),
            (59, date(1970, 3, 1)),
            (789, date(1972, 2, 29)),
            (11_016, date(2000, 2, 29)),
            (24_855, date(2038, 1, 19)),
            (47_540, date(2100, 2, 28)),
            (47_541, date(2100, 3, 1)),
            (u32::MAX / 86_400, date(2106, 2, 7)),
        ] {
            assert_eq!(Date::of_day(day), expected, "day {day}");
        }
    }

    #[test]
    fn negative_times_decode_with_their_fraction() {
        // -00:00:01.01 as TIME(2), as MariaDB 10.11 stores it.
        let value = Value::decode(ColumnType::Time { fraction: 2 }, false, &[0x7f, 0xff, 0xfe, 0xff]).unwrap();
        let fraction = Fraction { value: 1, digits: 2 };
        let clock = Clock { hours: 0, minutes: 0, seconds: 1, fraction };
        assert_eq!(value, Value::Time { is_negative: true, clock });
    }

    #[test]
    fn compressed_values_are_restored_or_refused() {
        use std::io::Write;
        let column_type = ColumnType::BlobCompressed { length_bytes: 2 };
        let decode = |bytes: &[u8]| match Value::decode(column_type, false, bytes) {
            Ok(Value::Bytes(bytes)) => Some(bytes.into_owned()),
            _ => None,
        };
        let plain = vec![7; 1000];
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&plain).unwrap();
        let stream = encoder.finish().unwrap();
        let stored = |length: u16| [&[0x8a][..], &length.to_be_bytes(), &stream].concat();
        assert_eq!(decode(&stored(1000)), Some(plain));
        assert_eq!(decode(&stored(999)), None);
        assert_eq!(decode(&stored(1001)), None);
        assert_eq!(decode(&[0x82, 1]), None);
        assert_eq!(decode(&[0x12, 0, 1, 0]), None);
        assert_eq!(decode(b"\0plain"), Some(b"plain".to_vec()));
        assert_eq!(decode(b""), Some(vec![]));
    }

    #[test]
    fn values_of_wrong_length_are_errors() {
        for column_type in [
            ColumnType::Decimal { precision: 65, scale: 30 },
            ColumnType::Datetime { fraction: 6 },
            ColumnType::Time { fraction: 6 },
            ColumnType::Timestamp { fraction: 6 },
            ColumnType::Year,
            ColumnType::Date,
            ColumnType::Double,
            ColumnType::Float,
            ColumnType::BigInt,
            ColumnType::Bit { bits: 9 },
            ColumnType::Set { bytes: 8 },
        ] {
            for length in (0..40).filter(|length| ![1, 2, 3, 4, 5, 6, 7, 8, 30].contains(length)) {
                for byte in [0, 0x7f, 0x80, 0xff] {
                    assert!(
                        Value::decode(column_type, false, &vec![byte; length]).is_err(),
                        "{column_type:?} {length}"
                    );
                }
            }
        }
    }
}

//! Values as SQL text, for sessions with the mode NO_BACKSLASH_ESCAPES and the time zone `+00:00`.

use spate_binlog::typed::{Clock, Date, Fraction, Value};

const SECONDS_PER_DAY: u32 = 86_400;

/// Bytes in single quotes, whatever they are.
pub(crate) fn append_quoted(sql: &mut Vec<u8>, bytes: &[u8]) {
    sql.reserve(bytes.len() + 2);
    sql.push(b'\'');
    for (number, piece) in bytes.split(|&byte| byte == b'\'').enumerate() {
        if number > 0 {
            sql.extend_from_slice(b"''");
        }
        sql.extend_from_slice(piece);
    }
    sql.push(b'\'');
}

/// Bytes of a literal above which it is quoted whatever it holds: hexadecimal digits take twice the room in a packet.
const HEXADECIMAL_BYTES_MAX: usize = 4 << 10;

/// Bytes behind the name of their character set. MySQL's `information_schema.PROCESSLIST` fails while it would have to show a statement
/// with bytes that its `utf8mb3` does not have: those are written as digits.
pub(crate) fn append_introduced(sql: &mut Vec<u8>, bytes: &[u8]) {
    let is_shown = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok() && bytes.iter().all(|&byte| byte < 0xf0);
    if bytes.len() > HEXADECIMAL_BYTES_MAX || is_shown(bytes) {
        append_quoted(sql, bytes);
        return;
    }
    sql.extend_from_slice(b" x'");
    append_hexadecimal(sql, bytes);
    sql.push(b'\'');
}

/// Bytes as hexadecimal digits in capital letters.
pub(crate) fn append_hexadecimal(sql: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        sql.push(DIGITS[usize::from(byte >> 4)]);
        sql.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Digits.
pub(crate) fn append_number(sql: &mut Vec<u8>, value: u64) {
    append_digits(sql, value, 1);
}

/// At least so many digits.
fn append_digits(sql: &mut Vec<u8>, mut value: u64, at_least: usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while value > 0 || digits.len() - start < at_least {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    sql.extend_from_slice(&digits[start..]);
}

/// A date, a time, or both, in quotes; nothing for other values.
pub(crate) fn append_temporal(sql: &mut Vec<u8>, value: &Value<'_>) {
    sql.push(b'\'');
    match *value {
        Value::Date(date) => append_date(sql, date),
        Value::Datetime(date, clock) => {
            append_date(sql, date);
            sql.push(b' ');
            append_clock(sql, clock);
        }
        Value::Time { is_negative, clock } => {
            if is_negative {
                sql.push(b'-');
            }
            append_clock(sql, clock);
        }
        Value::Timestamp { seconds, fraction } => append_timestamp(sql, seconds, fraction),
        _ => {}
    }
    sql.push(b'\'');
}

/// A time stamp in quotes, with its distance from UTC; zeros are the same everywhere.
pub(crate) fn append_instant(sql: &mut Vec<u8>, value: &Value<'_>) {
    append_temporal(sql, value);
    let is_zero = matches!(value, Value::Timestamp { seconds: 0, fraction } if fraction.value == 0);
    if !is_zero && sql.pop().is_some() {
        sql.extend_from_slice(b"+00:00'");
    }
}

fn append_timestamp(sql: &mut Vec<u8>, seconds: u32, fraction: Fraction) {
    let date = match (seconds, fraction.value) {
        (0, 0) => Date { year: 0, month: 0, day: 0 },
        _ => Date::of_day(seconds / SECONDS_PER_DAY),
    };
    let of_day = seconds % SECONDS_PER_DAY;
    append_date(sql, date);
    sql.push(b' ');
    append_clock(
        sql,
        Clock {
            hours: (of_day / 3600) as u16,
            minutes: (of_day / 60 % 60) as u8,
            seconds: (of_day % 60) as u8,
            fraction,
        },
    );
}

fn append_date(sql: &mut Vec<u8>, date: Date) {
    append_digits(sql, u64::from(date.year), 4);
    sql.push(b'-');
    append_digits(sql, u64::from(date.month), 2);
    sql.push(b'-');
    append_digits(sql, u64::from(date.day), 2);
}

fn append_clock(sql: &mut Vec<u8>, clock: Clock) {
    append_digits(sql, u64::from(clock.hours), 2);
    sql.push(b':');
    append_digits(sql, u64::from(clock.minutes), 2);
    sql.push(b':');
    append_digits(sql, u64::from(clock.seconds), 2);
    if clock.fraction.digits > 0 {
        sql.push(b'.');
        append_digits(sql, u64::from(clock.fraction.value), usize::from(clock.fraction.digits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporal(value: &Value<'_>) -> String {
        let mut sql = Vec::new();
        append_temporal(&mut sql, value);
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn literal_of_text_doubles_quotes_only() {
        let mut sql = Vec::new();
        append_quoted(&mut sql, b"it''s \\ \0 \xff'");
        assert_eq!(sql, b"'it''''s \\ \0 \xff'''");
    }

    #[test]
    fn bytes_that_are_no_common_text_are_digits() {
        let literal = |bytes: &[u8]| {
            let mut sql = b"_binary".to_vec();
            append_introduced(&mut sql, bytes);
            sql
        };
        assert_eq!(literal("it's \u{20ac}\0".as_bytes()), "_binary'it''s \u{20ac}\0'".as_bytes());
        assert_eq!(literal(b"a\xff"), b"_binary x'61FF'");
        assert_eq!(literal("\u{1f600}".as_bytes()), b"_binary x'F09F9880'");
        assert_eq!(literal(&[0xff; HEXADECIMAL_BYTES_MAX + 1]).len(), HEXADECIMAL_BYTES_MAX + 1 + "_binary''".len());
    }

    #[test]
    fn literal_of_instant_is_in_utc() {
        let timestamp =
            |seconds, value, digits| temporal(&Value::Timestamp { seconds, fraction: Fraction { value, digits } });
        assert_eq!(timestamp(0, 0, 0), "'0000-00-00 00:00:00'");
        assert_eq!(timestamp(1, 1, 2), "'1970-01-01 00:00:01.01'");
        assert_eq!(timestamp(0x7fff_ffff, 999_999, 6), "'2038-01-19 03:14:07.999999'");
        assert_eq!(timestamp(u32::MAX, 0, 0), "'2106-02-07 06:28:15'");
        let instant = |seconds| {
            let mut sql = Vec::new();
            append_instant(&mut sql, &Value::Timestamp { seconds, fraction: Fraction { value: 0, digits: 0 } });
            String::from_utf8(sql).unwrap()
        };
        assert_eq!(
            (instant(0).as_str(), instant(60).as_str()),
            ("'0000-00-00 00:00:00'", "'1970-01-01 00:01:00+00:00'")
        );
    }

    #[test]
    fn literal_of_time_has_all_hours() {
        let clock = Clock { hours: 838, minutes: 59, seconds: 59, fraction: Fraction { value: 0, digits: 1 } };
        assert_eq!(temporal(&Value::Time { is_negative: true, clock }), "'-838:59:59.0'");
    }
}

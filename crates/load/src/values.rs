//! The texts of values: from the form that a field has to the form that the servers read.

use std::cmp::Ordering;

use jiff::civil::{Date, DateTime, Time};

use crate::layout::{ColumnLayout, ValueType};

/// How a value is made of a text.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// As it is.
    Same,
    Integer,
    Decimal {
        scale: u32,
        point: char,
    },
    Date(Option<String>),
    Time(Option<String>),
    DateTime(Option<String>),
    /// Stays hexadecimal until the server has it.
    Hex,
}

/// The form of a column's values.
///
/// # Errors
/// The format cannot be.
pub(crate) fn form_of(column: &ColumnLayout) -> Result<Form, String> {
    if let Some(format) = &column.format {
        check_format(format)?;
    }
    let format = column.format.clone();
    Ok(match column.value_type {
        ValueType::Text | ValueType::Binary => Form::Same,
        ValueType::Integer => Form::Integer,
        ValueType::Decimal => {
            Form::Decimal { scale: column.scale.unwrap_or(0), point: column.decimal_point.unwrap_or('.') }
        }
        ValueType::Date => Form::Date(format),
        ValueType::Time => Form::Time(format),
        ValueType::Datetime => Form::DateTime(format),
        ValueType::Hex => Form::Hex,
    })
}

/// A form that cannot be read is found before the first record: it is one if it reads what it has written.
fn check_format(format: &str) -> Result<(), String> {
    let example = jiff::fmt::strtime::BrokenDownTime::from(DateTime::constant(2026, 11, 26, 11, 26, 53, 0));
    let mut text = String::new();
    let written = example.format(format, &mut text);
    let read = written.and_then(|()| jiff::fmt::strtime::BrokenDownTime::parse(format, &text));
    read.map(drop).map_err(|error| format!("format {format:?}: {error}"))
}

impl Form {
    /// Writes what the server reads.
    ///
    /// # Errors
    /// What is wrong with the text, as the end of a sentence about it.
    pub(crate) fn write(&self, value: &str, text: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Form::Same => text.extend_from_slice(value.as_bytes()),
            Form::Integer => {
                let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err("is no whole number".to_owned());
                }
                write_digits(value, digits, text);
            }
            Form::Decimal { scale, point } => write_decimal(value, *scale, *point, text)?,
            Form::Date(format) => {
                let date = match format {
                    Some(format) if is_cut(format, value) => return Err(self.no_time(Some(format), "day")),
                    Some(format) => Date::strptime(format, value),
                    None => value.parse(),
                };
                push(text, date.map_err(|_| self.no_time(format.as_ref(), "day"))?);
            }
            Form::DateTime(format) => {
                let wrong = || self.no_time(format.as_ref(), "day and time");
                let time = match format {
                    Some(format) if is_cut(format, value) => return Err(wrong()),
                    Some(format) => DateTime::strptime(format, value).map_err(|_| wrong())?,
                    // A time with an offset is another moment than its letters say.
                    None if value.bytes().skip("2026-11-26".len()).any(|byte| b"+-Zz[".contains(&byte)) => {
                        return Err(
                            "has an offset or a time zone: such a time is not what the column would hold".to_owned()
                        );
                    }
                    None => value.parse::<DateTime>().map_err(|_| wrong())?,
                };
                push(text, time.date());
                text.push(b' ');
                push(text, time.time());
            }
            Form::Time(Some(format)) => {
                push(text, Time::strptime(format, value).map_err(|_| self.no_time(Some(format), "time"))?);
            }
            Form::Time(None) => match is_duration(value) {
                true => text.extend_from_slice(value.as_bytes()),
                false => return Err("is no time such as 11:26:53".to_owned()),
            },
            Form::Hex => match value.len().is_multiple_of(2) && value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                true => text.extend_from_slice(value.as_bytes()),
                false => return Err("is not hexadecimal, two digits a byte".to_owned()),
            },
        }
        Ok(())
    }

    fn no_time(&self, format: Option<&String>, what: &str) -> String {
        match format {
            Some(format) => format!("is no {what} of the format {format}"),
            None => format!("is no {what} as the servers write it"),
        }
    }
}

/// True if a format of digits only wants another number of them: 13 digits of a time would be read as one, with a second of one digit.
fn is_cut(format: &str, value: &str) -> bool {
    let mut wanted = 0;
    let mut rest = format;
    while let Some(behind) = rest.strip_prefix('%') {
        wanted += match behind.chars().next() {
            Some('Y') => 4,
            Some('m' | 'd' | 'H' | 'M' | 'S' | 'y') => 2,
            Some('j') => 3,
            _ => return false,
        };
        rest = &behind[1..];
    }
    rest.is_empty() && value.len() != wanted
}

fn push(text: &mut Vec<u8>, value: impl std::fmt::Display) {
    use std::io::Write as _;
    let _always_fits = write!(text, "{value}");
}

/// A sign and digits, without a plus and zeros before the number.
fn write_digits(value: &str, digits: &str, text: &mut Vec<u8>) {
    let significant = digits.trim_start_matches('0');
    let significant = if significant.is_empty() { "0" } else { significant };
    if value.starts_with('-') && significant != "0" {
        text.push(b'-');
    }
    text.extend_from_slice(significant.as_bytes());
}

fn write_decimal(value: &str, scale: u32, point: char, text: &mut Vec<u8>) -> Result<(), String> {
    let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
    let (whole, fraction) = unsigned.split_once(point).unwrap_or((unsigned, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !is_number(whole) || !is_number(fraction) {
        return Err("is no number".to_owned());
    }
    if scale == 0 {
        write_digits(value, whole, text);
        if !fraction.is_empty() {
            text.push(b'.');
            text.extend_from_slice(fraction.as_bytes());
        }
        return Ok(());
    }
    if unsigned.contains(point) {
        return Err(format!("has a point, and the layout implies one (scale = {scale})"));
    }
    let digits = format!("{whole:0>width$}", width = scale as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
    if value.starts_with('-') {
        text.push(b'-');
    }
    write_digits("", whole, text);
    text.push(b'.');
    text.extend_from_slice(fraction.as_bytes());
    Ok(())
}

/// `[-]hours:minutes[:seconds[.fraction]]`, as servers write the type TIME.
fn is_duration(value: &str) -> bool {
    let unsigned = value.strip_prefix('-').unwrap_or(value);
    let (clock, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let is_below_60 = |part: &&str| part.len() == 2 && part.parse::<u8>().is_ok_and(|number| number < 60);
    (2..=3).contains(&parts.len())
        && parts[0].parse::<u16>().is_ok_and(|hours| hours <= 838)
        && parts[1..].iter().all(is_below_60)
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

/// As numbers if both are, else as texts, which is right for days and times as they are written here.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    match (one.parse::<i128>(), other.parse::<i128>()) {
        (Ok(one), Ok(other)) => one.cmp(&other),
        _ => match (one.parse::<f64>(), other.parse::<f64>()) {
            (Ok(one), Ok(other)) => one.total_cmp(&other),
            _ => one.cmp(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, value: &str) -> Result<String, String> {
        let mut text = Vec::new();
        form.write(value, &mut text).map(|()| String::from_utf8(text).unwrap())
    }

    #[test]
    fn numbers_lose_what_is_not_theirs() {
        assert_eq!(written(Form::Integer, "+0042").unwrap(), "42");
        assert_eq!(written(Form::Integer, "-0").unwrap(), "0");
        assert_eq!(written(Form::Integer, "-17").unwrap(), "-17");
        for wrong in ["", "-", "1.0", "12a", "1 2", "٣"] {
            assert!(written(Form::Integer, wrong).unwrap_err().contains("no whole number"), "{wrong}");
        }
    }

    #[test]
    fn decimals_may_imply_their_point() {
        let implied = |value| written(Form::Decimal { scale: 2, point: '.' }, value);
        assert_eq!(implied("00012345").unwrap(), "123.45");
        assert_eq!(implied("5").unwrap(), "0.05");
        assert_eq!(implied("-5").unwrap(), "-0.05");
        assert!(implied("1.5").unwrap_err().contains("implies"));
        let german = |value| written(Form::Decimal { scale: 0, point: ',' }, value);
        assert_eq!(german("12,50").unwrap(), "12.50");
        assert_eq!(german(",5").unwrap(), "0.5");
        assert!(german("1.234,50").unwrap_err().contains("no number"));
    }

    #[test]
    fn days_and_times_have_the_servers_form() {
        let form = |text: &str| Some(text.to_owned());
        assert_eq!(written(Form::Date(form("%d.%m.%Y")), "26.11.2026").unwrap(), "2026-11-26");
        assert_eq!(written(Form::DateTime(form("%Y%m%d%H%M%S")), "20261126112653").unwrap(), "2026-11-26 11:26:53");
        assert_eq!(written(Form::DateTime(None), "2026-11-26 11:26:53.25").unwrap(), "2026-11-26 11:26:53.25");
        assert_eq!(written(Form::Time(form("%H%M")), "1126").unwrap(), "11:26:00");
        assert_eq!(written(Form::Time(None), "-130:26:53.5").unwrap(), "-130:26:53.5");
        assert!(written(Form::Date(form("%Y%m%d")), "20260230").unwrap_err().contains("no day of the format"));
        assert!(written(Form::DateTime(form("%Y%m%d%H%M%S")), "2026112611265").is_err());
        for zoned in
            ["2026-11-26 11:26:53+02:00", "2026-11-26T11:26:53Z", "2026-11-26T11:26:53-08:00[America/Los_Angeles]"]
        {
            assert!(written(Form::DateTime(None), zoned).unwrap_err().contains("offset"), "{zoned}");
        }
        assert!(written(Form::Time(None), "11:60:00").is_err());
        assert!(written(Form::DateTime(None), "0000-00-00 00:00:00").is_err());
    }

    #[test]
    fn formats_that_read_nothing_are_refused() {
        assert!(check_format("%Y%m%d").is_ok());
        assert!(check_format("%Q!").is_err());
    }
}

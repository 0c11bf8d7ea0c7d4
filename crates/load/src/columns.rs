//! Columns, resolved for one input: which field each takes, and how its value is made.

use std::borrow::Cow;
use std::collections::BTreeMap;

use encoding_rs::{Encoding, UTF_8};

use crate::layout::{ColumnLayout, FieldName, Format, InputLayout, Layout, Origin, Trim, ValueType};
use crate::split::Fields;
use crate::values::{self, Form};

/// All columns of an input, in the order in which rows are written.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) all: Vec<Column>,
    /// So many fields has each record; `None` for fixed ones.
    pub(crate) fields: Option<usize>,
    /// What is expected of a fixed record's length.
    length: Length,
}

/// The length of a fixed record.
#[derive(Debug, Default)]
struct Length {
    /// So many bytes has it at least: the columns are there.
    min: usize,
    /// So many at most, but for spaces behind them.
    max: usize,
    /// Exactly so many.
    exact: Option<usize>,
}

/// One column.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) loads: bool,
    pub(crate) value_type: ValueType,
    from: From,
    trim: Trim,
    null: Vec<String>,
    map: BTreeMap<String, String>,
    form: Form,
    min: Option<String>,
    max: Option<String>,
    encoding: &'static Encoding,
}

#[derive(Debug, Clone)]
enum From {
    Field(usize),
    Bytes { start: usize, end: usize },
    Constant(String),
    File,
    Line,
}

/// Where a record is, for the columns that say it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: u64,
}

impl Columns {
    /// The columns of an input that has this header, if any, for tables that have these columns.
    ///
    /// # Errors
    /// What does not fit.
    pub(crate) fn resolve(layout: &Layout, header: Option<&[String]>, table: &[String]) -> Result<Columns, String> {
        let named = |name: &String| ColumnLayout { name: name.clone(), load: true, ..ColumnLayout::default() };
        let made: Vec<ColumnLayout>;
        let columns = match (&layout.columns[..], header) {
            ([], Some(header)) => {
                made = header.iter().map(named).collect();
                &made
            }
            ([], None) => {
                made = table.iter().map(named).collect();
                &made
            }
            (columns, _) => columns,
        };
        let encoding = layout.input.encoding()?;
        let is_fixed = layout.input.format == Format::Fixed;
        let mut all = Vec::with_capacity(columns.len());
        let (mut next, mut last, mut covered) = (0, 0, 0);
        for column in columns {
            let from = match (column, header) {
                (ColumnLayout { constant: Some(text), .. }, _) => From::Constant(text.clone()),
                (ColumnLayout { origin: Some(Origin::File), .. }, _) => From::File,
                (ColumnLayout { origin: Some(Origin::Line), .. }, _) => From::Line,
                (ColumnLayout { position: Some(position), width: Some(width), .. }, _) => {
                    covered = covered.max(position - 1 + width);
                    From::Bytes { start: position - 1, end: position - 1 + width }
                }
                (ColumnLayout { field: Some(FieldName::Number(number)), .. }, _) => From::Field(number - 1),
                (ColumnLayout { field: Some(FieldName::Name(name)), .. }, Some(header)) => {
                    From::Field(find(header, name)?)
                }
                (_, Some(header)) => From::Field(find(header, &column.name)?),
                (_, None) => From::Field(next),
            };
            if let From::Field(field) = from {
                next = field + 1;
                last = last.max(next);
            }
            let form = values::form_of(column).map_err(|why| format!("column {:?}: {why}", column.name))?;
            all.push(Column {
                name: column.name.clone(),
                loads: column.load,
                value_type: column.value_type,
                from,
                trim: column.trim.unwrap_or(if is_fixed { Trim::Both } else { Trim::None }),
                null: column.null.clone(),
                map: column.map.clone(),
                form,
                min: column.min.clone(),
                max: column.max.clone(),
                encoding,
            });
        }
        if !all.iter().any(|column| column.loads) {
            return Err("no column is loaded".to_owned());
        }
        let fields = (!is_fixed).then(|| header.map_or(last, <[String]>::len));
        let InputLayout { record_bytes, line_bytes, .. } = layout.input;
        let length = Length { min: covered, max: line_bytes.unwrap_or(covered), exact: record_bytes };
        Ok(Columns { all, fields, length })
    }

    /// The number of a column, from 0.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|column| column.name == name)
    }

    /// Why the record as a whole cannot be one of this layout.
    pub(crate) fn check_record(&self, fields: &Fields) -> Result<(), String> {
        match self.fields {
            None => self.length.check(&fields.text),
            Some(expected) if fields.len() != expected => {
                Err(format!("the record has {} fields, and the layout {expected}", fields.len()))
            }
            _ => Ok(()),
        }
    }
}

impl Length {
    fn check(&self, record: &[u8]) -> Result<(), String> {
        let bytes = record.len();
        match self.exact {
            Some(exact) if bytes != exact => {
                Err(format!("the last record has {bytes} bytes, and record-bytes is {exact}"))
            }
            Some(_) => Ok(()),
            None if bytes < self.min => Err(format!("the record has {bytes} bytes, and the layout needs {}", self.min)),
            None if bytes > self.max && record[self.max..].iter().any(|byte| !byte.is_ascii_whitespace()) => {
                Err(format!(
                    "the record has {bytes} bytes, and the layout covers {}: what is behind them would be lost (line-bytes = {bytes} allows that)",
                    self.max
                ))
            }
            None => Ok(()),
        }
    }
}

fn find(header: &[String], name: &str) -> Result<usize, String> {
    let mut found = (0..header.len()).filter(|&field| header[field].eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (Some(field), None) => Ok(field),
        (Some(_), Some(_)) => Err(format!("the header names {name:?} twice")),
        (None, _) => {
            let names = header.join(", ");
            Err(format!("the header has no {name:?}: it names {}", shown(names.as_bytes())))
        }
    }
}

impl Column {
    /// True if its values are written as hexadecimal digits.
    pub(crate) fn is_hexadecimal(&self) -> bool {
        matches!(self.value_type, ValueType::Hex | ValueType::Binary)
    }

    /// Writes the value of a record behind `text`; `false` for NULL, which writes nothing.
    ///
    /// # Errors
    /// Why the field cannot be this value.
    pub(crate) fn write(&self, fields: &Fields, place: Place<'_>, text: &mut Vec<u8>) -> Result<bool, String> {
        let field = match &self.from {
            From::Field(field) if fields.is_null(*field) => return Ok(false),
            From::Field(field) => fields.get(*field).unwrap_or_default(),
            From::Bytes { start, end } => fields.text.get(*start..*end).unwrap_or_default(),
            From::Constant(constant) => constant.as_bytes(),
            From::File => place.file.as_bytes(),
            From::Line => {
                text.extend_from_slice(place.line.to_string().as_bytes());
                return Ok(true);
            }
        };
        let field = self.trimmed(field);
        let begin = text.len();
        if self.value_type == ValueType::Binary {
            if self.null.iter().any(|null| null.as_bytes() == field) {
                return Ok(false);
            }
            text.extend_from_slice(field);
        } else if !self.write_text(field, text)? {
            return Ok(false);
        }
        self.check_bounds(&text[begin..])?;
        Ok(true)
    }

    fn write_text(&self, field: &[u8], text: &mut Vec<u8>) -> Result<bool, String> {
        let is_utf8 = self.encoding == UTF_8 || matches!(self.from, From::Constant(_) | From::File);
        let decoded = match is_utf8 {
            true => std::str::from_utf8(field).ok().map(Cow::Borrowed),
            false => self.encoding.decode_without_bom_handling_and_without_replacement(field),
        };
        let decoded = decoded.ok_or_else(|| format!("{} is no {}", shown(field), self.encoding.name()))?;
        if self.null.iter().any(|null| *null == decoded) {
            return Ok(false);
        }
        let value = match self.map.get(decoded.as_ref()) {
            Some(other) => other.as_str(),
            None => &decoded,
        };
        self.form.write(value, text).map_err(|why| format!("{} {why}", shown(value.as_bytes())))?;
        Ok(true)
    }

    fn trimmed<'a>(&self, field: &'a [u8]) -> &'a [u8] {
        match self.trim {
            Trim::Both => field.trim_ascii(),
            Trim::Left => field.trim_ascii_start(),
            Trim::Right => field.trim_ascii_end(),
            Trim::None => field,
        }
    }

    fn check_bounds(&self, value: &[u8]) -> Result<(), String> {
        if self.min.is_none() && self.max.is_none() {
            return Ok(());
        }
        let value = String::from_utf8_lossy(value);
        let wrong = |word: &str, bound: &String| Err(format!("{} is {word} {bound}", shown(value.as_bytes())));
        match (&self.min, &self.max) {
            (Some(min), _) if values::compare(&value, min).is_lt() => wrong("less than", min),
            (_, Some(max)) if values::compare(&value, max).is_gt() => wrong("greater than", max),
            _ => Ok(()),
        }
    }
}

/// A field for people: not too long, and without what a terminal would obey.
pub(crate) fn shown(field: &[u8]) -> String {
    const SHOWN_MAX: usize = 60;
    let text = String::from_utf8_lossy(&field[..field.len().min(SHOWN_MAX)]);
    format!("{text:?}{}", if field.len() > SHOWN_MAX { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, record: &str) -> Result<(), String> {
        let column =
            "[[column]]\nname = \"a\"\nposition = 1\nwidth = 3\n[[column]]\nname = \"b\"\nposition = 6\nwidth = 2\n";
        let text = format!("[input]\nformat = \"fixed\"\n{input}\n{column}[[table]]\nname = \"d.t\"\n");
        let columns = Columns::resolve(&Layout::parse(&text, "l.toml").unwrap(), None, &[]).unwrap();
        columns.check_record(&Fields { text: record.into(), ..Fields::default() })
    }

    #[test]
    fn a_layout_covers_the_record() {
        for (input, record) in [
            ("", "abc  de"),
            ("", "abc  de \t "),
            ("line-bytes = 9", "abc  defg"),
            ("line-bytes = 9", "abc  defg  "),
            ("record-bytes = 9", "abc  defg"),
        ] {
            assert_eq!(check(input, record), Ok(()), "{input} {record:?}");
        }
        for (input, record, why) in [
            ("", "abc  d", "the record has 6 bytes, and the layout needs 7"),
            ("", "abc  def", "the record has 8 bytes, and the layout covers 7"),
            ("line-bytes = 9", "abc  defgh", "the record has 10 bytes, and the layout covers 9"),
            ("record-bytes = 9", "abc  def", "the last record has 8 bytes, and record-bytes is 9"),
        ] {
            let told = check(input, record).unwrap_err();
            assert!(told.starts_with(why), "{told}");
        }
    }
}

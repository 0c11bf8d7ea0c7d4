//! The rows of a piece: converted, sent to their tables, sorted by key.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read};
use std::ops::Range;

use crate::columns::{Columns, Place, shown};
use crate::error::Error;
use crate::layout::{Condition, RuleLayout, ValueType};
use crate::pieces::{Piece, count_lines};
use crate::split::{Cut, Fields, Splitter};
use crate::tables::Name;
use crate::values;

/// The rows of a piece may take so much: constants and mapped texts come in addition to its bytes.
const ROWS_BYTES_MAX: usize = 1 << 30;

/// A record that is not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reject {
    /// The record within its piece.
    pub(crate) record: Range<usize>,
    /// Its line, or its number, within the input; from 1.
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// Rows that go to one table.
#[derive(Debug)]
pub(crate) struct Group {
    /// The number of the rule.
    pub(crate) rule: usize,
    pub(crate) table: Name,
    /// A partition that they need, and its values.
    pub(crate) partitions: BTreeSet<(String, String)>,
    pub(crate) rows: Vec<Row>,
}

/// A row: as LOAD DATA reads it, in a buffer of the piece.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) text: Range<u32>,
    key: Range<u32>,
    pub(crate) record: Range<u32>,
    pub(crate) line: u64,
}

/// All rows of a piece.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) text: Vec<u8>,
    keys: Vec<u8>,
    pub(crate) groups: Vec<Group>,
    pub(crate) rejects: Vec<Reject>,
    pub(crate) records: u64,
}

/// What rows of a table need to know of it.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The columns by which rows are sorted, and whether each is a whole number. None: rows stay in the order of the file.
    pub(crate) key: Vec<(usize, bool)>,
    /// Columns that must not be NULL, and would become something else.
    pub(crate) never_null: Vec<usize>,
}

/// Asks for the facts of a table, by a rule's number and the table's name.
pub(crate) type FactsOf<'a> = &'a mut dyn FnMut(usize, &Name) -> crate::error::Result<Facts>;

/// Converts the records of pieces.
#[derive(Debug)]
pub(crate) struct Converter<'a> {
    rules: &'a [RuleLayout],
    splitter: Splitter,
    fields: Fields,
    /// The values of the record, one behind the other, and where each is.
    values: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
    name: String,
}

/// The tables that a piece has rows for.
#[derive(Default)]
struct Groups {
    /// By rule and name: the number among [`Rows::groups`].
    numbers: HashMap<(usize, String), usize>,
    facts: Vec<Facts>,
}

/// Where a record goes.
struct Destination {
    rule: usize,
    partition: Option<(String, String)>,
}

impl<'a> Converter<'a> {
    pub(crate) fn new(rules: &'a [RuleLayout], splitter: Splitter) -> Converter<'a> {
        Converter { rules, splitter, fields: Fields::default(), values: vec![], places: vec![], name: String::new() }
    }

    /// True if records are lines, or begin on one.
    pub(crate) fn has_lines(&self) -> bool {
        self.splitter.has_lines()
    }

    /// All rows of a piece. What cannot be converted, or has no table, is among its rejects.
    ///
    /// # Errors
    /// What `facts_of` fails with.
    pub(crate) fn convert(&mut self, piece: &Piece, facts_of: FactsOf<'_>) -> crate::error::Result<Rows> {
        let mut rows = Rows::default();
        let mut groups = Groups::default();
        let (mut at, mut line) = (0, piece.first_line);
        let has_lines = self.splitter.has_lines();
        while at < piece.bytes.len() {
            let (length, is_record) = match self.splitter.next(&piece.bytes[at..], true, &mut self.fields) {
                Cut::Record(length) => (length, true),
                Cut::Nothing(length) => (length, false),
                Cut::Unfinished => (0, false),
            };
            if length == 0 {
                break;
            }
            let record = at..at + length;
            if is_record {
                rows.records += 1;
                self.take(piece, record.clone(), line, &mut rows, &mut groups, facts_of)?;
            }
            line += if has_lines { count_lines(&piece.bytes[record.clone()]) } else { 1 };
            at = record.end;
        }
        let keys = std::mem::take(&mut rows.keys);
        for group in &mut rows.groups {
            group.rows.sort_by(|one, other| bytes_at(&keys, &one.key).cmp(bytes_at(&keys, &other.key)));
        }
        Ok(rows)
    }

    /// Makes a row of the record that was just cut, or a reject.
    fn take(
        &mut self,
        piece: &Piece,
        record: Range<usize>,
        line: u64,
        rows: &mut Rows,
        groups: &mut Groups,
        facts_of: FactsOf<'_>,
    ) -> crate::error::Result<()> {
        let columns = &piece.whole.columns;
        let is_end = piece.is_last && record.end == piece.bytes.len();
        let place = Place { file: &piece.whole.input.name, line };
        let made = match self.splitter.wrong_quotes(&piece.bytes[record.clone()], is_end) {
            Some(why) => Err(why.to_owned()),
            None => self.values_of(columns, place).and_then(|()| self.destination(columns)),
        };
        let found = made.and_then(|destination| match groups.numbers.get(&(destination.rule, self.name.clone())) {
            Some(group) => Ok((destination, *group, None)),
            None => Name::parse(&self.name).and_then(|table| {
                let template = self.rules[destination.rule].template.as_deref();
                match template.is_some_and(|template| template.eq_ignore_ascii_case(&self.name)) {
                    true => Err("its table would be the template".to_owned()),
                    false => Ok((destination, rows.groups.len(), Some(table))),
                }
            }),
        });
        let (destination, group, new) = match found {
            Ok(found) => found,
            Err(reason) => {
                rows.rejects.push(Reject { record, line, reason });
                return Ok(());
            }
        };
        if let Some(table) = new {
            groups.facts.push(facts_of(destination.rule, &table)?);
            groups.numbers.insert((destination.rule, self.name.clone()), group);
            rows.groups.push(Group { rule: destination.rule, table, partitions: BTreeSet::new(), rows: vec![] });
        }
        if let Some(partition) = destination.partition {
            let max = self.rules[destination.rule].max_tables;
            let partitions = &mut rows.groups[group].partitions;
            if partitions.insert(partition) && partitions.len() > max {
                let why = format!(
                    "records of one piece want more than {max} partitions of it (max-tables): damaged values may be the reason"
                );
                return Err(Error::Table { table: rows.groups[group].table.to_string(), why });
            }
        }
        if rows.text.len() > ROWS_BYTES_MAX {
            let why = "the records become more than 1 GiB of rows: constants or mapped texts are too long".to_owned();
            let (input, place) = (piece.whole.input.name.clone(), format!("line {line}"));
            return Err(Error::Input { input, place, why });
        }
        let facts = &groups.facts[group];
        if let Some(column) = facts.never_null.iter().find(|column| self.places[**column].is_none()) {
            let reason = format!("column {:?} is NULL, which the table does not allow", columns.all[*column].name);
            rows.rejects.push(Reject { record, line, reason });
            return Ok(());
        }
        let row = self.write_row(columns, &facts.key, rows, record, line);
        rows.groups[group].rows.push(row);
        Ok(())
    }

    fn values_of(&mut self, columns: &Columns, place: Place<'_>) -> Result<(), String> {
        columns.check_record(&self.fields)?;
        self.values.clear();
        self.places.clear();
        for column in &columns.all {
            let begin = self.values.len();
            let is_value = column
                .write(&self.fields, place, &mut self.values)
                .map_err(|why| format!("column {:?}: {why}", column.name))?;
            self.places.push(is_value.then_some(begin..self.values.len()));
        }
        Ok(())
    }

    /// Writes the table's name into `self.name`.
    fn destination(&mut self, columns: &Columns) -> Result<Destination, String> {
        let (values, places) = (&self.values, &self.places);
        let value = |name: &str| {
            let place = places.get(columns.index(name)?)?.clone()?;
            std::str::from_utf8(&values[place]).ok()
        };
        let fits = |rule: &&RuleLayout| rule.conditions.iter().all(|(name, condition)| condition.holds(value(name)));
        let Some((number, rule)) = self.rules.iter().enumerate().find(|(_, rule)| fits(rule)) else {
            return Err("no rule for tables fits it".to_owned());
        };
        self.name.clear();
        rule.name.write(&mut self.name, value)?;
        let partition = match (&rule.partition, &rule.partition_values) {
            (Some(name), Some(holds)) => {
                let mut partition = (String::new(), String::new());
                name.write(&mut partition.0, value)?;
                holds.write_sql(&mut partition.1, value)?;
                Some(partition)
            }
            _ => None,
        };
        Ok(Destination { rule: number, partition })
    }

    fn write_row(
        &self,
        columns: &Columns,
        key: &[(usize, bool)],
        rows: &mut Rows,
        record: Range<usize>,
        line: u64,
    ) -> Row {
        let begin = rows.text.len();
        let mut is_first = true;
        for (column, place) in columns.all.iter().zip(&self.places).filter(|(column, _)| column.loads) {
            if !std::mem::take(&mut is_first) {
                rows.text.push(b'\t');
            }
            match place {
                None => rows.text.extend_from_slice(b"\\N"),
                Some(place) if column.value_type == ValueType::Binary => {
                    push_hexadecimal(&mut rows.text, &self.values[place.clone()])
                }
                Some(place) => push_escaped(&mut rows.text, &self.values[place.clone()]),
            }
        }
        rows.text.push(b'\n');
        let key_begin = rows.keys.len();
        for &(column, is_number) in key {
            let value = self.places.get(column).cloned().flatten().map_or(&[][..], |place| &self.values[place]);
            match std::str::from_utf8(value).ok().and_then(|text| text.parse::<i128>().ok()).filter(|_| is_number) {
                Some(number) => rows.keys.extend_from_slice(&(number as u128 ^ (1 << 127)).to_be_bytes()),
                None => rows.keys.extend_from_slice(value),
            }
            rows.keys.push(0);
        }
        Row {
            text: begin as u32..rows.text.len() as u32,
            key: key_begin as u32..rows.keys.len() as u32,
            record: record.start as u32..record.end as u32,
            line,
        }
    }
}

fn bytes_at<'a>(bytes: &'a [u8], place: &Range<u32>) -> &'a [u8] {
    &bytes[place.start as usize..place.end as usize]
}

fn push_escaped(text: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        match byte {
            b'\\' | b'\t' | b'\n' => text.extend_from_slice(&[b'\\', byte]),
            0 => text.extend_from_slice(b"\\0"),
            _ => text.push(byte),
        }
    }
}

fn push_hexadecimal(text: &mut Vec<u8>, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in value {
        text.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

impl Condition {
    fn holds(&self, value: Option<&str>) -> bool {
        let Some(value) = value else { return false };
        match self {
            Condition::OneOf(texts) => texts.iter().any(|text| text == value),
            Condition::Between(between) => {
                between.min.as_ref().is_none_or(|min| values::compare(value, min).is_ge())
                    && between.max.as_ref().is_none_or(|max| values::compare(value, max).is_le())
                    && between.prefix.as_ref().is_none_or(|prefix| value.starts_with(prefix.as_str()))
            }
        }
    }
}

/// The values of a row, in the order of the columns that are loaded; `None` for NULL.
pub(crate) fn values_of_row(text: &[u8]) -> Vec<Option<Vec<u8>>> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut values = Vec::new();
    let mut value = Vec::new();
    let mut bytes = text.iter();
    let mut is_null = false;
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\t' => {
                values.push((!std::mem::take(&mut is_null)).then(|| std::mem::take(&mut value)));
            }
            b'\\' => match bytes.next() {
                Some(b'N') => is_null = true,
                Some(b'0') => value.push(0),
                Some(&escaped) => value.push(escaped),
                None => {}
            },
            _ => value.push(byte),
        }
    }
    values.push((!is_null).then_some(value));
    values
}

/// Some rows, as the bytes of a file.
pub(crate) struct File<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) rows: &'a [Row],
    /// So much of the first row is read.
    pub(crate) read: usize,
}

impl Read for File<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len()
            && let Some((row, others)) = self.rows.split_first()
        {
            let rest = &bytes_at(self.text, &row.text)[self.read..];
            let length = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + length].copy_from_slice(&rest[..length]);
            filled += length;
            self.read += length;
            if length == rest.len() {
                (self.rows, self.read) = (others, 0);
            }
        }
        Ok(filled)
    }
}

/// A record for people.
pub(crate) fn shown_record(piece: &Piece, record: &Range<usize>) -> String {
    shown(piece.bytes.get(record.clone()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_as_they_were_written() {
        let values = [Some(&b"a\tb"[..]), None, Some(b""), Some(b"\\N"), Some(b"x\ny\0z")];
        let mut text = Vec::new();
        for (number, value) in values.iter().enumerate() {
            if number > 0 {
                text.push(b'\t');
            }
            match value {
                Some(value) => push_escaped(&mut text, value),
                None => text.extend_from_slice(b"\\N"),
            }
        }
        text.push(b'\n');
        let back = values_of_row(&text);
        assert_eq!(back, values.map(|value| value.map(<[u8]>::to_vec)).to_vec());
    }

    #[test]
    fn numbers_sort_as_numbers() {
        let key = |number: i128| (number as u128 ^ (1 << 127)).to_be_bytes();
        assert!(key(-5) < key(3) && key(3) < key(20));
    }
}

//! Where a record ends, and which fields it has.

use csv_core::ReadRecordResult;

use crate::layout::{Format, InputLayout};
use crate::load_data::LoadData;

/// The fields of one record, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) text: Vec<u8>,
    /// Where each ends in the text.
    pub(crate) ends: Vec<usize>,
    /// Those that are NULL.
    pub(crate) nulls: Vec<usize>,
}

impl Fields {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.nulls.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The field, from 0.
    pub(crate) fn get(&self, field: usize) -> Option<&[u8]> {
        let end = *self.ends.get(field)?;
        let start = field.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }

    pub(crate) fn is_null(&self, field: usize) -> bool {
        self.nulls.contains(&field)
    }
}

/// What stands at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A record, with its end, in so many bytes.
    Record(usize),
    /// So many bytes without a record.
    Nothing(usize),
    /// The record goes on behind these bytes.
    Unfinished,
}

/// Cuts records and fields.
#[derive(Debug, Clone)]
pub(crate) enum Splitter {
    /// Records of so many bytes.
    Blocks(usize),
    /// Lines.
    Lines,
    Csv {
        reader: Box<csv_core::Reader>,
        delimiter: u8,
        quote: Option<u8>,
    },
    LoadData(LoadData),
}

impl Splitter {
    pub(crate) fn of(layout: &InputLayout) -> Splitter {
        let tab_or_comma = if layout.format == Format::Tsv { '\t' } else { ',' };
        match layout.format {
            Format::Fixed => layout.record_bytes.map_or(Splitter::Lines, Splitter::Blocks),
            Format::LoadData => Splitter::LoadData(LoadData::of(layout)),
            Format::Csv | Format::Tsv => {
                let quote = layout.quote.as_ref().map_or(Some(b'"'), |quote| quote.bytes().next());
                let delimiter = layout.delimiter.unwrap_or(tab_or_comma) as u8;
                let reader = csv_core::ReaderBuilder::new()
                    .delimiter(delimiter)
                    .quoting(quote.is_some())
                    .quote(quote.unwrap_or(b'"'))
                    .build();
                Splitter::Csv { reader: Box::new(reader), delimiter, quote }
            }
        }
    }

    /// True if records are lines, or begin on one.
    pub(crate) fn has_lines(&self) -> bool {
        !matches!(self, Splitter::Blocks(_))
    }

    /// Looks at the record at the beginning of `bytes`, which are at the end of the input if `is_last`. Fixed records are one field.
    pub(crate) fn next(&mut self, bytes: &[u8], is_last: bool, fields: &mut Fields) -> Cut {
        fields.clear();
        match self {
            Splitter::Blocks(length) => {
                let length = if is_last { bytes.len().min(*length) } else { *length };
                match bytes.get(..length) {
                    None => Cut::Unfinished,
                    Some([]) => Cut::Nothing(0),
                    Some(record) => whole(fields, record, length),
                }
            }
            Splitter::Lines => match memchr::memchr(b'\n', bytes) {
                Some(end) => {
                    let line = &bytes[..end];
                    whole(fields, line.strip_suffix(b"\r").unwrap_or(line), end + 1)
                }
                None if !is_last => Cut::Unfinished,
                None if bytes.is_empty() => Cut::Nothing(0),
                None => whole(fields, bytes.strip_suffix(b"\r").unwrap_or(bytes), bytes.len()),
            },
            Splitter::Csv { reader, .. } => csv_record(reader, bytes, is_last, fields),
            Splitter::LoadData(form) => form.next(bytes, is_last, fields),
        }
    }

    /// Why the quotes of a record cannot be meant so: one is not closed, or something stands behind the one that closes a field.
    pub(crate) fn wrong_quotes(&mut self, record: &[u8], is_end: bool) -> Option<&'static str> {
        const OPEN: &str = "a quote is opened in it, and none closes it";
        match self {
            Splitter::Csv { delimiter, quote: Some(quote), .. } if memchr::memchr(*quote, record).is_some() => {
                wrong_quotes_of_csv(record, *delimiter, *quote)
            }
            Splitter::LoadData(form) if is_end => form.is_open_at_end(record).then_some(OPEN),
            _ => None,
        }
    }
}

/// Looks at the quotes of a record, which csv_core takes as they come.
fn wrong_quotes_of_csv(record: &[u8], delimiter: u8, quote: u8) -> Option<&'static str> {
    let mut at = 0;
    while at < record.len() {
        if record[at] != quote {
            // A quote within a field without quotes is a letter.
            at += memchr::memchr(delimiter, &record[at..])? + 1;
            continue;
        }
        at += 1;
        loop {
            let Some(next) = memchr::memchr(quote, &record[at..]) else {
                return Some("a quote is opened in it, and none closes it");
            };
            at += next + 1;
            if record.get(at) != Some(&quote) {
                break;
            }
            at += 1;
        }
        match record.get(at) {
            Some(byte) if *byte == delimiter => at += 1,
            None | Some(b'\r' | b'\n') => return None,
            Some(_) => return Some("something stands behind the quote that closes a field"),
        }
    }
    None
}

fn whole(fields: &mut Fields, record: &[u8], length: usize) -> Cut {
    fields.text.extend_from_slice(record);
    fields.ends.push(record.len());
    Cut::Record(length)
}

fn csv_record(reader: &mut csv_core::Reader, bytes: &[u8], is_last: bool, fields: &mut Fields) -> Cut {
    const FIELDS_AT_FIRST: usize = 64;
    const TEXT_BYTES_AT_FIRST: usize = 4096;
    // The library passes empty lines over, which are lines all the same.
    let empty = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if empty > 0 {
        return Cut::Nothing(empty);
    }
    reader.reset();
    // What is in quotes gets shorter, not longer.
    let (mut read, mut written, mut ended) = (0, 0, 0);
    fields.text.resize(TEXT_BYTES_AT_FIRST, 0);
    fields.ends.resize(FIELDS_AT_FIRST, 0);
    let mut at_end = false;
    loop {
        let rest = if at_end { &[][..] } else { &bytes[read..] };
        let (result, of_input, of_text, of_ends) =
            reader.read_record(rest, &mut fields.text[written..], &mut fields.ends[ended..]);
        read += of_input;
        written += of_text;
        ended += of_ends;
        match result {
            ReadRecordResult::OutputFull => fields.text.resize(fields.text.len() * 2, 0),
            ReadRecordResult::OutputEndsFull => fields.ends.resize(fields.ends.len() * 2, 0),
            ReadRecordResult::InputEmpty if !is_last => return Cut::Unfinished,
            // An empty input means the end.
            ReadRecordResult::InputEmpty => at_end = true,
            ReadRecordResult::Record => break,
            ReadRecordResult::End => {
                fields.clear();
                return Cut::Nothing(bytes.len());
            }
        }
    }
    fields.text.truncate(written);
    fields.ends.truncate(ended);
    // The record ends at the first byte of \r\n; the line ends at the second.
    if read.checked_sub(1).and_then(|last| bytes.get(last)) == Some(&b'\r') {
        match bytes.get(read) {
            Some(b'\n') => read += 1,
            None if !is_last => return Cut::Unfinished,
            _ => {}
        }
    }
    Cut::Record(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_that_cannot_be_meant_so_are_told() {
        let mut splitter = Splitter::of(&InputLayout::default());
        for fine in ["1,\"a\"\"b\",\"\"\n", "2,5\" disk", "\"a,\nb\"\r\n", "plain\n", "a,\"\"\"\"\n"] {
            assert_eq!(splitter.wrong_quotes(fine.as_bytes(), true), None, "{fine}");
        }
        for open in ["2,\"b\n3,c\n", "\"", "1,\"a\"\""] {
            assert!(splitter.wrong_quotes(open.as_bytes(), true).unwrap().contains("opened"), "{open}");
        }
        for behind in ["\"abc\"def\n", "3,\"b\n4,\"c\"\n"] {
            assert!(splitter.wrong_quotes(behind.as_bytes(), false).unwrap().contains("behind"), "{behind}");
        }
    }

    #[test]
    fn empty_lines_are_lines() {
        let mut splitter = Splitter::of(&InputLayout::default());
        let mut fields = Fields::default();
        assert_eq!(splitter.next(b"\n\r\n4\n", false, &mut fields), Cut::Nothing(3));
        assert_eq!(splitter.next(b"4\r\n5", false, &mut fields), Cut::Record(3));
    }
}

//! Records as LOAD DATA reads them, with its options for fields and lines (MySQL reference manual, "LOAD DATA statement"; MariaDB
//! knowledge base, "LOAD DATA INFILE").

use crate::layout::InputLayout;
use crate::split::{Cut, Fields};

/// The options.
#[derive(Debug, Clone)]
pub(crate) struct LoadData {
    field_end: Vec<u8>,
    enclosed: Option<u8>,
    escape: Option<u8>,
    line_start: Vec<u8>,
    line_end: Vec<u8>,
}

/// What comes next within a field.
enum Next {
    FieldEnd(usize),
    LineEnd(usize),
    /// Within the bytes that are here, nothing can be said.
    Unknown,
    Other,
}

impl LoadData {
    pub(crate) fn of(layout: &InputLayout) -> LoadData {
        let bytes = |given: &Option<String>, usual: &str| given.as_deref().unwrap_or(usual).as_bytes().to_vec();
        let byte = |given: &Option<String>| given.as_ref().and_then(|text| text.bytes().next());
        let enclosed = &layout.fields_enclosed_by;
        LoadData {
            field_end: bytes(&layout.fields_terminated_by, "\t"),
            enclosed: byte(enclosed).or_else(|| byte(&layout.fields_optionally_enclosed_by)),
            escape: layout.fields_escaped_by.as_ref().map_or(Some(b'\\'), |text| text.bytes().next()),
            line_start: bytes(&layout.lines_starting_by, ""),
            line_end: bytes(&layout.lines_terminated_by, "\n"),
        }
    }

    /// As [`crate::split::Splitter::next`].
    pub(crate) fn next(&self, bytes: &[u8], is_last: bool, fields: &mut Fields) -> Cut {
        if bytes.is_empty() {
            return if is_last { Cut::Nothing(0) } else { Cut::Unfinished };
        }
        let mut at = 0;
        if !self.line_start.is_empty() {
            // A line without the beginning is no record, nor is what stands before it.
            match memchr::memmem::find(bytes, &self.line_start) {
                Some(found) => at = found + self.line_start.len(),
                None if is_last => return Cut::Nothing(bytes.len()),
                None => return Cut::Unfinished,
            }
        }
        loop {
            let Some((next, is_line_end)) = self.field(bytes, at, is_last, fields) else { return Cut::Unfinished };
            at = next;
            if is_line_end {
                return Cut::Record(at);
            }
        }
    }

    /// True if a record, which nothing ends, would go on behind an end of a line: a quote is open.
    pub(crate) fn is_open_at_end(&self, record: &[u8]) -> bool {
        let mut ended = record.strip_suffix(self.line_end.as_slice()).unwrap_or(record).to_vec();
        ended.extend_from_slice(&self.line_end);
        self.enclosed.is_some() && self.next(&ended, false, &mut Fields::default()) == Cut::Unfinished
    }

    /// Reads a field; where the next begins, and whether the line ends with it. `None`: it goes on behind these bytes.
    fn field(&self, bytes: &[u8], mut at: usize, is_last: bool, fields: &mut Fields) -> Option<(usize, bool)> {
        let text_begin = fields.text.len();
        let quote = self.enclosed.filter(|quote| bytes.get(at) == Some(quote));
        if quote.is_some() {
            at += 1;
        }
        let mut has_escaped_null = false;
        loop {
            let Some(&byte) = bytes.get(at) else {
                // The last line of a file may lack its end.
                return is_last.then(|| {
                    self.end_field(fields, text_begin, quote.is_some(), has_escaped_null);
                    (at, true)
                });
            };
            if let Some(quote) = quote
                && byte == quote
            {
                if bytes.get(at + 1) == Some(&quote) {
                    fields.text.push(quote);
                    at += 2;
                    continue;
                }
                match self.look(bytes, at + 1, is_last) {
                    Next::Unknown => return None,
                    Next::FieldEnd(length) => {
                        self.end_field(fields, text_begin, true, has_escaped_null);
                        return Some((at + 1 + length, false));
                    }
                    Next::LineEnd(length) => {
                        self.end_field(fields, text_begin, true, has_escaped_null);
                        return Some((at + 1 + length, true));
                    }
                    Next::Other => {
                        fields.text.push(byte);
                        at += 1;
                        continue;
                    }
                }
            }
            if Some(byte) == self.escape {
                let Some(&escaped) = bytes.get(at + 1) else {
                    if is_last {
                        fields.text.push(byte);
                        at += 1;
                        continue;
                    }
                    return None;
                };
                if self.escape != self.enclosed || escaped == byte {
                    has_escaped_null |= escaped == b'N';
                    fields.text.push(unescaped(escaped));
                    at += 2;
                    continue;
                }
                // The byte that encloses fields escapes itself, and nothing else.
            }
            if quote.is_none() {
                match self.look(bytes, at, is_last) {
                    Next::Unknown => return None,
                    Next::FieldEnd(length) => {
                        self.end_field(fields, text_begin, false, has_escaped_null);
                        return Some((at + length, false));
                    }
                    Next::LineEnd(length) => {
                        self.end_field(fields, text_begin, false, has_escaped_null);
                        return Some((at + length, true));
                    }
                    Next::Other => {}
                }
            }
            fields.text.push(byte);
            at += 1;
        }
    }

    fn look(&self, bytes: &[u8], at: usize, is_last: bool) -> Next {
        let rest = &bytes[at..];
        // The longer of two ends that begin alike is meant where both fit.
        let mut ends = [(&self.field_end, false), (&self.line_end, true)];
        ends.sort_by_key(|(end, _)| std::cmp::Reverse(end.len()));
        for (end, is_line) in ends {
            if rest.starts_with(end) {
                return if is_line { Next::LineEnd(end.len()) } else { Next::FieldEnd(end.len()) };
            }
            if !is_last && rest.len() < end.len() && end.starts_with(rest) {
                return Next::Unknown;
            }
        }
        match rest.is_empty() && is_last {
            true => Next::LineEnd(0),
            false => Next::Other,
        }
    }

    fn end_field(&self, fields: &mut Fields, text_begin: usize, is_enclosed: bool, has_escaped_null: bool) {
        let length = fields.text.len() - text_begin;
        let is_word = self.enclosed.is_some() && !is_enclosed && &fields.text[text_begin..] == b"NULL";
        // The servers take \N for NULL within quotes, too.
        if is_word || (has_escaped_null && length == 1) {
            fields.text.truncate(text_begin);
            fields.nulls.push(fields.ends.len());
        }
        fields.ends.push(fields.text.len());
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'0' => 0,
        b'b' => 8,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'Z' => 26,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Record = Vec<Option<String>>;

    fn read(layout: &InputLayout, bytes: &[u8]) -> Vec<Record> {
        let form = LoadData::of(layout);
        let (mut records, mut at, mut fields) = (vec![], 0, Fields::default());
        while at < bytes.len() {
            fields.clear();
            match form.next(&bytes[at..], true, &mut fields) {
                Cut::Record(length) => {
                    at += length;
                    let field = |field| {
                        let text = fields.get(field).unwrap_or_default();
                        (!fields.is_null(field)).then(|| String::from_utf8_lossy(text).into_owned())
                    };
                    records.push((0..fields.len()).map(field).collect());
                }
                Cut::Nothing(length) => at += length,
                Cut::Unfinished => unreachable!("these are all bytes"),
            }
        }
        records
    }

    fn row(fields: &[&str]) -> Record {
        fields.iter().map(|field| (*field != "<null>").then(|| (*field).to_owned())).collect()
    }

    #[test]
    fn the_usual_form_has_tabs_and_backslashes() {
        let records = read(&InputLayout::default(), b"1\ta\\tb\\\nc\t\\N\n2\tNULL\tx\\N\n3\t\t");
        assert_eq!(records, [row(&["1", "a\tb\nc", "<null>"]), row(&["2", "NULL", "xN"]), row(&["3", "", ""])]);
    }

    #[test]
    fn enclosed_fields_may_hold_their_ends() {
        let layout = InputLayout {
            fields_terminated_by: Some(",".to_owned()),
            fields_optionally_enclosed_by: Some("\"".to_owned()),
            ..InputLayout::default()
        };
        let records = read(&layout, b"\"a,\"\"b\"\"\",1\n\"x\ny\",NULL\n\"in\"side\",\"NULL\"\nplain\"quote,2\n");
        let expected = [row(&["a,\"b\"", "1"]), row(&["x\ny", "<null>"]), row(&["in\"side", "NULL"])];
        assert_eq!(records[..3], expected);
        assert_eq!(records[3], row(&["plain\"quote", "2"]));
    }

    #[test]
    fn ends_may_have_several_bytes_and_lines_a_beginning() {
        let layout = InputLayout {
            fields_terminated_by: Some("||".to_owned()),
            lines_starting_by: Some("xxx".to_owned()),
            lines_terminated_by: Some("\r\n".to_owned()),
            ..InputLayout::default()
        };
        let records = read(&layout, b"xxxabc||1\r\nsomething xxxdef||2\r\nno record\r\n");
        assert_eq!(records, [row(&["abc", "1"]), row(&["def", "2"])]);
    }

    #[test]
    fn a_record_that_goes_on_is_not_cut() {
        let form =
            LoadData::of(&InputLayout { lines_terminated_by: Some("\r\n".to_owned()), ..InputLayout::default() });
        let whole = b"a\tb\\\r\nc\r\nnext";
        for length in 0..9 {
            let mut fields = Fields::default();
            assert_eq!(form.next(&whole[..length], false, &mut fields), Cut::Unfinished, "{length}");
        }
    }
}

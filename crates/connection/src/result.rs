//! Decodes the answer to a statement: a state machine over payloads, without I/O. After a read timeout the caller can
//! continue to receive the answer.

use super::error::ServerError;
use super::packet::{PAYLOAD_BYTES_MAX, STATUS_BYTES_MAX};

const OK: u8 = 0x00;
const LOCAL_FILE: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
/// In a status: another answer follows, because the packet contained several statements.
const STATUS_MORE_RESULTS: u16 = 0x0008;
/// In a status: the session is in a transaction.
const STATUS_IN_TRANSACTION: u16 = 0x0001;
/// An `END` payload of the old form is shorter than this; a row that begins with the same byte is longer.
const OLD_END_LENGTH_MAX: usize = 9;
/// Both vendors refuse a select list of more columns.
const COLUMNS_MAX: u64 = 4096;
/// Limit of the names of all columns of a result, with those of their tables. A column without a name has its
/// expression's text as its name, so a single name has no limit.
const COLUMN_NAMES_BYTES_MAX: usize = 16 << 20;
/// Limit of the results of one packet of statements: as many as a packet of a few megabytes can contain. Each takes 32
/// bytes of memory.
const RESULTS_MAX: usize = 1 << 20;
/// Limit of an error's text. Servers send up to 512 bytes.
const ERROR_TEXT_BYTES_MAX: usize = 4096;
/// An `END` payload of the new form fits one packet; a row that begins with the same byte does not.
const NEW_END_LENGTH_MAX: usize = 0xff_ffff;

/// The outcome of a statement, or of all statements of a multi-statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of executed statements.
    pub statements: usize,
    /// Rows changed, over all statements.
    pub affected_rows: u64,
    /// Warnings, over all statements.
    pub warnings: u64,
    /// The server's status bits after the last statement.
    pub status: u16,
    /// The server's text about the last statement, such as `Records: 3  Deleted: 0  Skipped: 0  Warnings: 0`; often
    /// empty.
    pub info: String,
    /// The outcome of each statement, in order.
    pub each: Vec<StatementOutcome>,
}

/// The outcome of one statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementOutcome {
    /// Rows changed.
    pub affected_rows: u64,
    /// Rows that an UPDATE found, changed or not. For other statements, the first number in the server's text.
    pub matched_rows: Option<u64>,
    /// Warnings.
    pub warnings: u16,
}

impl Outcome {
    /// True if the session is inside a transaction now.
    pub fn is_in_transaction(&self) -> bool {
        self.status & STATUS_IN_TRANSACTION != 0
    }
}

/// A whole result in memory, for small results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultSet {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows; `None` is NULL.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

impl ResultSet {
    /// The value in a row (from 0) and a named column (by ASCII case-insensitive name), as text. `None` if there is no
    /// such row or column, or if it is NULL.
    pub fn text(&self, row: usize, column: &str) -> Option<String> {
        let index = self.columns.iter().position(|name| name.eq_ignore_ascii_case(column))?;
        self.text_at(row, index)
    }

    /// The value in a row and a column, both counted from 0, as text. `None` if there is none, or if it is NULL.
    pub fn text_at(&self, row: usize, column: usize) -> Option<String> {
        let value = self.rows.get(row)?.get(column)?.as_deref()?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// The first value of the first row as text. `None` if there is none, or if it is NULL.
    pub fn single_text(&self) -> Option<String> {
        self.text_at(0, 0)
    }
}

/// One row, borrowed from the packet.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    payload: &'a [u8],
    fields: &'a [Option<(usize, usize)>],
}

impl<'a> Row<'a> {
    /// The number of columns.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// True for a row without columns, which no server sends.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The value of a column, from 0. `None` if it is NULL or if there is no such column.
    pub fn get(&self, column: usize) -> Option<&'a [u8]> {
        let (start, end) = (*self.fields.get(column)?)?;
        self.payload.get(start..end)
    }

    /// The values in order.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let row = *self;
        (0..row.len()).map(move |column| row.get(column))
    }
}

/// Receives the rows of an answer. `statement` numbers the statements of a multi-statement from 0.
pub(super) trait RowSink {
    fn columns(&mut self, _statement: usize, _names: &[String]) {}
    fn row(&mut self, statement: usize, row: Row<'_>) -> StepResult<()>;
    /// The most bytes that the next row may have.
    fn row_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }
}

/// Drops all rows.
pub(super) struct Discard;

impl RowSink for Discard {
    fn row(&mut self, _statement: usize, _row: Row<'_>) -> StepResult<()> {
        Ok(())
    }
}

/// Keeps the first result set, up to a number of bytes of memory.
#[derive(Debug)]
pub(super) struct Kept {
    set: Option<ResultSet>,
    bytes_left: usize,
}

impl Kept {
    pub(super) fn new(bytes_max: usize) -> Kept {
        Kept { set: None, bytes_left: bytes_max }
    }

    pub(super) fn into_set(self) -> ResultSet {
        self.set.unwrap_or_default()
    }
}

impl RowSink for Kept {
    fn columns(&mut self, _statement: usize, names: &[String]) {
        self.set.get_or_insert_with(|| ResultSet { columns: names.to_vec(), rows: Vec::new() });
    }

    fn row(&mut self, statement: usize, row: Row<'_>) -> StepResult<()> {
        /// The allocator's overhead for each value and for each row.
        const ALLOCATION_BYTES: usize = 16;
        let (0, Some(set)) = (statement, &mut self.set) else { return Ok(()) };
        let value_bytes = |value: Option<&[u8]>| {
            size_of::<Option<Vec<u8>>>() + value.map_or(0, |value| value.len() + ALLOCATION_BYTES)
        };
        let bytes = size_of::<Vec<Option<Vec<u8>>>>() + ALLOCATION_BYTES + row.iter().map(value_bytes).sum::<usize>();
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or(AnswerError::Malformed("an answer has more rows than fit in memory"))?;
        set.rows.push(row.iter().map(|value| value.map(<[u8]>::to_vec)).collect());
        Ok(())
    }

    fn row_bytes_max(&self) -> usize {
        // The packet that ends the answer must fit, too.
        self.bytes_left.clamp(STATUS_BYTES_MAX, PAYLOAD_BYTES_MAX)
    }
}

#[derive(Debug)]
pub(super) enum AnswerError {
    Server(ServerError),
    Malformed(&'static str),
}

pub(super) type StepResult<T> = Result<T, AnswerError>;

/// The state of the answer that is being received.
#[derive(Debug, Default)]
pub(super) struct Answer {
    phase: Phase,
    outcome: Outcome,
    columns: Vec<String>,
    /// Bytes of the current result's column definitions.
    column_bytes: usize,
    fields: Vec<Option<(usize, usize)>>,
    /// The least number of statements in the answer, whatever the status flags say.
    statements_min: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No packet of the current statement's answer has arrived.
    #[default]
    Begin,
    /// This many column definitions are still to come.
    Columns(u64),
    /// Next is the packet between columns and rows, from a server without DEPRECATE_EOF.
    ColumnsEnd,
    Rows,
}

impl Answer {
    /// Sets the least number of statements in the next answer. The status flags do not suffice: MariaDB's answer to a
    /// `BINLOG` statement lacks the flag that more results follow.
    pub(super) fn expect_statements(&mut self, at_least: usize) {
        self.statements_min = at_least;
    }

    /// How many statements are answered so far.
    pub(super) fn statements(&self) -> usize {
        self.outcome.statements
    }

    /// The outcome of a statement that is answered, the first of which is number 1.
    pub(super) fn outcome_of(&self, number: usize) -> StatementOutcome {
        number.checked_sub(1).and_then(|place| self.outcome.each.get(place)).copied().unwrap_or_default()
    }

    /// The most bytes that the next payload may have.
    pub(super) fn payload_bytes_max(&self, sink: &dyn RowSink) -> usize {
        match self.phase {
            Phase::Begin | Phase::ColumnsEnd => STATUS_BYTES_MAX,
            Phase::Columns(_) => COLUMN_NAMES_BYTES_MAX,
            Phase::Rows => sink.row_bytes_max(),
        }
    }

    /// Decodes the next payload. Returns the outcome if it was the answer's last.
    pub(super) fn step(
        &mut self,
        payload: &[u8],
        deprecate_eof: bool,
        sink: &mut dyn RowSink,
    ) -> StepResult<Option<Outcome>> {
        if payload.first() == Some(&ERROR) {
            let statement = self.outcome.statements;
            *self = Answer::default();
            return Err(match parse_error(payload, statement) {
                Some(error) => AnswerError::Server(error),
                None => AnswerError::Malformed("an error packet is cut short"),
            });
        }
        match self.phase {
            Phase::Begin if self.outcome.statements >= RESULTS_MAX => {
                Err(AnswerError::Malformed("an answer has more results than any packet has statements"))
            }
            Phase::Begin => self.begin(payload),
            Phase::Columns(left) => {
                self.column_bytes += payload.len();
                if self.column_bytes > COLUMN_NAMES_BYTES_MAX {
                    return Err(AnswerError::Malformed("the names of an answer's columns are too long"));
                }
                self.columns.push(column_name(payload)?);
                self.phase = match (left - 1, deprecate_eof) {
                    (0, true) => self.rows(sink),
                    (0, false) => Phase::ColumnsEnd,
                    (left, _) => Phase::Columns(left),
                };
                Ok(None)
            }
            Phase::ColumnsEnd => {
                self.phase = self.rows(sink);
                match payload.first() {
                    Some(&END) => Ok(None),
                    _ => Err(AnswerError::Malformed("column definitions without an end")),
                }
            }
            Phase::Rows => self.row_or_end(payload, deprecate_eof, sink),
        }
    }

    fn rows(&mut self, sink: &mut dyn RowSink) -> Phase {
        sink.columns(self.outcome.statements, &self.columns);
        Phase::Rows
    }

    fn begin(&mut self, payload: &[u8]) -> StepResult<Option<Outcome>> {
        match payload.first() {
            Some(&OK) => {
                let end = parse_ok(payload)?;
                Ok(self.end_statement(end))
            }
            Some(&END) if payload.len() < OLD_END_LENGTH_MAX => {
                let end = parse_old_end(payload)?;
                Ok(self.end_statement(end))
            }
            Some(&LOCAL_FILE) => Err(AnswerError::Malformed("the server asks for a local file, which was not offered")),
            _ => {
                let mut fields = Fields(payload);
                let count = fields.length_encoded()?;
                if count == 0 || count > COLUMNS_MAX {
                    return Err(AnswerError::Malformed("an impossible number of columns"));
                }
                self.columns.clear();
                self.column_bytes = 0;
                self.phase = Phase::Columns(count);
                Ok(None)
            }
        }
    }

    fn row_or_end(
        &mut self,
        payload: &[u8],
        deprecate_eof: bool,
        sink: &mut dyn RowSink,
    ) -> StepResult<Option<Outcome>> {
        if payload.first() == Some(&END) {
            if deprecate_eof && payload.len() < NEW_END_LENGTH_MAX {
                let end = parse_ok(payload)?;
                return Ok(self.end_statement(StatementEnd { affected_rows: 0, ..end }));
            }
            if !deprecate_eof && payload.len() < OLD_END_LENGTH_MAX {
                let end = parse_old_end(payload)?;
                return Ok(self.end_statement(end));
            }
        }
        self.fields.clear();
        let mut left = Fields(payload);
        for _ in 0..self.columns.len() {
            let value = left.nullable_string()?;
            let end = payload.len() - left.0.len();
            self.fields.push(value.map(|value| (end - value.len(), end)));
        }
        if !left.0.is_empty() {
            return Err(AnswerError::Malformed("a row has more values than columns"));
        }
        sink.row(self.outcome.statements, Row { payload, fields: &self.fields })?;
        Ok(None)
    }

    fn end_statement(&mut self, end: StatementEnd) -> Option<Outcome> {
        self.phase = Phase::Begin;
        self.outcome.statements += 1;
        // A hostile server may send any number: the sum must not overflow.
        self.outcome.affected_rows = self.outcome.affected_rows.saturating_add(end.affected_rows);
        self.outcome.warnings += u64::from(end.warnings);
        self.outcome.status = end.status;
        self.outcome.each.push(StatementOutcome {
            affected_rows: end.affected_rows,
            matched_rows: parse_first_number(&end.info),
            warnings: end.warnings,
        });
        self.outcome.info = end.info;
        if end.status & STATUS_MORE_RESULTS != 0 || self.outcome.statements < self.statements_min {
            return None;
        }
        let outcome = std::mem::take(&mut self.outcome);
        *self = Answer::default();
        Some(outcome)
    }
}

#[derive(Default)]
struct StatementEnd {
    affected_rows: u64,
    warnings: u16,
    status: u16,
    info: String,
}

/// Parses the first number of `Rows matched: 3  Changed: 1  Warnings: 0`, in any language.
fn parse_first_number(info: &str) -> Option<u64> {
    let digits = info.split(|character: char| !character.is_ascii_digit()).find(|digits| !digits.is_empty());
    digits.and_then(|digits| digits.parse().ok())
}

/// True if the server requests the file of a `LOAD DATA LOCAL`.
pub(super) fn asks_for_file(payload: &[u8]) -> bool {
    payload.first() == Some(&LOCAL_FILE)
}

fn parse_ok(payload: &[u8]) -> StepResult<StatementEnd> {
    let mut fields = Fields(payload);
    fields.take(1)?;
    let affected_rows = fields.length_encoded()?;
    let _last_insert_id = fields.length_encoded()?;
    let status = fields.u16()?;
    let warnings = fields.u16()?;
    Ok(StatementEnd { affected_rows, warnings, status, info: String::from_utf8_lossy(fields.0).into_owned() })
}

/// The text in an OK packet, with or without a length before it; empty if there is none.
pub(super) fn ok_info(payload: &[u8]) -> Vec<u8> {
    let Ok(end) = parse_ok(payload) else { return Vec::new() };
    let info = end.info.into_bytes();
    match info.split_first() {
        Some((length, text)) if usize::from(*length) == text.len() => text.to_vec(),
        _ => info,
    }
}

fn parse_old_end(payload: &[u8]) -> StepResult<StatementEnd> {
    let mut fields = Fields(payload);
    fields.take(1)?;
    let warnings = fields.u16()?;
    let status = fields.u16()?;
    Ok(StatementEnd { warnings, status, ..StatementEnd::default() })
}

/// Parses an error packet, with or without an SQLSTATE.
pub(super) fn parse_error(payload: &[u8], statement: usize) -> Option<ServerError> {
    let [ERROR, low, high, rest @ ..] = payload else { return None };
    let (sql_state, message) = match rest {
        [b'#', rest @ ..] => rest.split_at_checked(5)?,
        message => (&[][..], message),
    };
    let code = u16::from_le_bytes([*low, *high]);
    Some(ServerError {
        code,
        sql_state: String::from_utf8_lossy(sql_state).into_owned(),
        message: spate_sql::excerpt::without_literals(
            code,
            &String::from_utf8_lossy(&message[..message.len().min(ERROR_TEXT_BYTES_MAX)]),
        ),
        statement,
    })
}

/// True for the packet that ends a binlog dump. (Every event has a zero byte before it.)
pub(super) fn is_stream_end(payload: &[u8]) -> bool {
    payload.first() == Some(&END) && payload.len() < OLD_END_LENGTH_MAX
}

/// True for an error packet.
pub(super) fn is_error(payload: &[u8]) -> bool {
    payload.first() == Some(&ERROR)
}

fn column_name(payload: &[u8]) -> StepResult<String> {
    let mut fields = Fields(payload);
    for _catalog_schema_table_original in 0..4 {
        fields.nullable_string()?;
    }
    let name = fields.nullable_string()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// A checked reader of a payload's fields.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> StepResult<&'a [u8]> {
        let (head, tail) =
            self.0.split_at_checked(length).ok_or(AnswerError::Malformed("a packet is shorter than its fields"))?;
        self.0 = tail;
        Ok(head)
    }

    fn integer(&mut self, length: usize) -> StepResult<u64> {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(self.take(length)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn u16(&mut self) -> StepResult<u16> {
        Ok(self.integer(2)? as u16)
    }

    fn length_encoded(&mut self) -> StepResult<u64> {
        match self.integer(1)? {
            small @ 0..=250 => Ok(small),
            252 => self.integer(2),
            253 => self.integer(3),
            254 => self.integer(8),
            _ => Err(AnswerError::Malformed("a length begins with an impossible byte")),
        }
    }

    fn nullable_string(&mut self) -> StepResult<Option<&'a [u8]>> {
        const NULL: u8 = 0xfb;
        if self.0.first() == Some(&NULL) {
            self.take(1)?;
            return Ok(None);
        }
        let length = self.length_encoded()?;
        let length = usize::try_from(length).map_err(|_| AnswerError::Malformed("a value's length is out of range"))?;
        self.take(length).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(payloads: &[&[u8]], deprecate_eof: bool) -> (StepResult<Option<Outcome>>, Option<ResultSet>) {
        let mut answer = Answer::default();
        let mut kept = Kept::new(1 << 20);
        let mut last = Ok(None);
        for payload in payloads {
            assert!(matches!(last, Ok(None)), "the answer ended early: {last:?}");
            last = answer.step(payload, deprecate_eof, &mut kept);
        }
        (last, kept.set)
    }

    const COLUMN: &[u8] = b"\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x01\x00\x00\x00\x08\x81\x00\x00\x00\x00";

    #[test]
    fn result_set_parses_in_both_forms() {
        let row = b"\x02xy".as_slice();
        let null = b"\xfb".as_slice();
        let new = feed(&[b"\x01", COLUMN, row, null, b"\xfe\x00\x00\x02\x00\x01\x00"], true);
        let old = feed(&[b"\x01", COLUMN, b"\xfe\x00\x00\x02\x00", row, null, b"\xfe\x01\x00\x02\x00"], false);
        for (outcome, set) in [new, old] {
            let outcome = outcome.unwrap().unwrap();
            assert_eq!((outcome.statements, outcome.warnings, outcome.status), (1, 1, 2));
            let set = set.unwrap();
            assert_eq!(set.rows, [[Some(b"xy".to_vec())], [None]]);
            assert_eq!(set.text(0, "A").as_deref(), Some("xy"));
        }
    }

    #[test]
    fn error_counts_the_failed_statement() {
        let more = b"\x00\x02\x00\x0a\x00\x00\x00".as_slice();
        let (outcome, _) = feed(&[more, more, b"\xff\x26\x04#23000Duplicate"], true);
        match outcome {
            Err(AnswerError::Server(error)) => {
                assert_eq!((error.code, error.sql_state.as_str(), error.statement), (1062, "23000", 2));
            }
            other => panic!("{other:?}"),
        }
    }

    /// Feeds payloads until the answer fails, and returns their number.
    fn count_steps_until_refused(
        answer: &mut Answer,
        sink: &mut dyn RowSink,
        mut next: impl FnMut() -> Vec<u8>,
    ) -> usize {
        for count in 0..=RESULTS_MAX {
            let payload = next();
            if payload.len() > answer.payload_bytes_max(sink) {
                return count;
            }
            match answer.step(&payload, true, sink) {
                Ok(outcome) => assert!(outcome.is_none()),
                Err(AnswerError::Malformed(_)) => return count,
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("nothing ends the answer");
    }

    #[test]
    fn endless_rows_are_refused_if_kept_in_memory() {
        let begin = |sink: &mut dyn RowSink| {
            let mut answer = Answer::default();
            for payload in [b"\x01".as_slice(), COLUMN] {
                assert!(answer.step(payload, true, sink).unwrap().is_none());
            }
            answer
        };
        // A NULL takes one byte on the wire and many in memory.
        for row in [b"\xfb".to_vec(), b"\x05hello".to_vec()] {
            let mut kept = Kept::new(1 << 20);
            let mut answer = begin(&mut kept);
            let count = count_steps_until_refused(&mut answer, &mut kept, || row.clone());
            assert!(count < (1 << 20) / 40, "{count}");
            assert_eq!(kept.into_set().rows.len(), count);
        }
        let mut kept = Kept::new(1 << 20);
        let mut answer = begin(&mut kept);
        let large = [&[0xfd, 0, 0, 0x20], vec![b'x'; 2 << 20].as_slice()].concat();
        assert_eq!(count_steps_until_refused(&mut answer, &mut kept, || large.clone()), 0);
        // Rows that are not kept have no limit.
        let mut answer = begin(&mut Discard);
        for _ in 0..100_000 {
            assert!(answer.step(b"\x05hello", true, &mut Discard).unwrap().is_none());
        }
    }

    #[test]
    fn endless_results_are_refused() {
        let more = b"\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x00\x0a\x00\x00\x00".to_vec();
        assert_eq!(count_steps_until_refused(&mut Answer::default(), &mut Discard, || more.clone()), RESULTS_MAX);
    }

    #[test]
    fn too_many_columns_and_too_long_names_are_refused() {
        let (outcome, _) = feed(&[b"\xfc\x01\x10"], true);
        assert!(matches!(outcome, Err(AnswerError::Malformed(_))), "4097 columns: {outcome:?}");
        let mut answer = Answer::default();
        assert!(answer.step(b"\xfc\x00\x10", true, &mut Discard).unwrap().is_none());
        let name = [b"\x03def\x00\x00\x00\xfd\x00\x00\x01".as_slice(), &[b'n'; 1 << 16], &[0]].concat();
        let count = count_steps_until_refused(&mut answer, &mut Discard, || name.clone());
        assert!((200..256).contains(&count), "{count}");
    }

    #[test]
    fn oversized_error_message_is_truncated() {
        let (outcome, _) = feed(&[&[b"\xff\x26\x04#23000".as_slice(), &[b'e'; 60_000]].concat()], true);
        match outcome {
            Err(AnswerError::Server(error)) => assert_eq!(error.message.len(), ERROR_TEXT_BYTES_MAX),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn malformed_payloads_are_errors() {
        let cases: [&[&[u8]]; 7] = [
            &[b""],
            &[b"\x00\x01"],
            &[b"\xfb/etc/passwd"],
            &[b"\x01", b"\x03de"],
            &[b"\x01", COLUMN, b"\x05abc"],
            &[b"\x01", COLUMN, b"\x01ab"],
            &[b"\xff\x01"],
        ];
        for payloads in cases {
            let (outcome, _) = feed(payloads, true);
            assert!(matches!(outcome, Err(AnswerError::Malformed(_))), "{payloads:?} gave {outcome:?}");
        }
    }
}

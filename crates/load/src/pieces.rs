//! Pieces: parts of an input between ends of records, each loaded by one transaction. The manifest knows the pieces that are loaded by
//! their first byte.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use xxhash_rust::xxh3::xxh3_64;

use crate::columns::Columns;
use crate::error::{Error, Result};
use crate::input::{Input, InputName, is_stop};
use crate::layout::{COLUMNS_MAX, Layout, RECORD_BYTES_MAX};
use crate::split::{Cut, Fields, Splitter};

const READ_BYTES: usize = 256 << 10;
/// Of tiny records a piece has at most so many: where each is, or why it was rejected, takes a hundred bytes.
const PIECE_RECORDS_MAX: usize = 200_000;

/// A piece that was loaded, as the manifest has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) end: u64,
    pub(crate) lines: u64,
    pub(crate) hash: u64,
}

/// What all pieces of an input have in common.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) input: InputName,
    /// Its number in the manifest; 0 without one.
    pub(crate) id: u64,
    pub(crate) columns: Columns,
    /// The bytes before the first record: the header, for files of rejects.
    pub(crate) header: Vec<u8>,
}

/// A piece that is to be loaded.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) whole: Arc<Whole>,
    pub(crate) start: u64,
    /// The number of its first line, or record, from 1.
    pub(crate) first_line: u64,
    pub(crate) bytes: Vec<u8>,
    /// True if nothing of the input comes behind it.
    pub(crate) is_last: bool,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(crate) fn hash(&self) -> u64 {
        xxh3_64(&self.bytes)
    }

    /// The lines in it, or the records.
    pub(crate) fn lines(&self, records: u64, has_lines: bool) -> u64 {
        if has_lines { count_lines(&self.bytes) } else { records }
    }
}

/// Reads an input, and cuts it.
pub(crate) struct Pieces<'a> {
    whole: Arc<Whole>,
    input: Input<'a>,
    splitter: Splitter,
    fields: Fields,
    /// What is read and not cut off.
    bytes: Vec<u8>,
    at: u64,
    line: u64,
    piece_bytes: usize,
    is_read: bool,
    done: BTreeMap<u64, Done>,
}

impl<'a> Pieces<'a> {
    /// Opens an input. `columns` makes its columns of the header, if the layout says that there is one.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Input`], [`Error::Stopped`].
    pub(crate) fn open(
        name: &InputName,
        id: u64,
        layout: &Layout,
        piece_bytes: usize,
        (bytes_read, stop): (&Arc<AtomicU64>, &'a AtomicBool),
        columns: impl FnOnce(Option<&[String]>) -> std::result::Result<Columns, String>,
    ) -> Result<Pieces<'a>> {
        let mut head = Head { input: name.open(bytes_read, stop)?, name, bytes: vec![], is_read: false };
        let mut splitter = Splitter::of(&layout.input);
        let (mut used, mut line) = (0, 1);
        let mut fields = Fields::default();
        if head.fill(3)?.starts_with(b"\xef\xbb\xbf") {
            used = 3;
        }
        let mut header = None;
        let mut skipped = 0;
        let mut header_start = used;
        while skipped < layout.input.skip_records || (layout.input.header && header.is_none()) {
            let cut = head.next_record(&mut splitter, used, &mut fields, line)?;
            let (length, is_record) = match cut {
                Cut::Record(length) => (length, true),
                Cut::Nothing(length) => (length, false),
                Cut::Unfinished => (0, false),
            };
            if is_record && skipped == layout.input.skip_records {
                header_start = used;
                header = Some(names_of(&fields).map_err(|why| input_error(name, line, why))?);
            }
            line += if splitter.has_lines() { count_lines(&head.bytes[used..used + length]) } else { 1 };
            used += length;
            skipped += 1;
            if length == 0 {
                break;
            }
        }
        if layout.input.header && header.is_none() {
            return Err(input_error(name, line, "there is no header: the file is empty".to_owned()));
        }
        let columns = columns(header.as_deref()).map_err(|why| input_error(name, 1, why))?;
        let kept = if header.is_some() { head.bytes[header_start..used].to_vec() } else { vec![] };
        let whole = Arc::new(Whole { input: name.clone(), id, columns, header: kept });
        let bytes = head.bytes.split_off(used);
        let (input, is_read) = (head.input, head.is_read);
        let at = used as u64;
        Ok(Pieces { whole, input, splitter, fields, bytes, at, line, piece_bytes, is_read, done: BTreeMap::new() })
    }

    /// Leaves out pieces that are loaded.
    pub(crate) fn without(mut self, done: BTreeMap<u64, Done>) -> Pieces<'a> {
        self.done = done;
        self
    }

    /// What all have in common.
    pub(crate) fn whole(&self) -> &Arc<Whole> {
        &self.whole
    }

    /// True if records are lines, or begin on one.
    pub(crate) fn has_lines(&self) -> bool {
        self.splitter.has_lines()
    }

    /// The number of bytes until here.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next piece that is not loaded; `None` behind the last.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Input`] if a record is too long; [`Error::Manifest`] if what was loaded has changed since.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>> {
        while let Some(done) = self.done.remove(&self.at) {
            self.pass(done)?;
        }
        let next_done = self.done.range(self.at..).next().map(|(next, _)| (*next - self.at) as usize);
        let limit = next_done.unwrap_or(usize::MAX).min(self.piece_bytes);
        let (mut end, mut records) = (0, 0);
        loop {
            while end < limit && records < PIECE_RECORDS_MAX {
                records += 1;
                let window = &self.bytes[end..];
                match self.splitter.next(window, self.is_read, &mut self.fields) {
                    Cut::Record(length) if next_done.is_some_and(|next| length > next) => {
                        return Err(self.changed(self.at, self.at + length as u64));
                    }
                    Cut::Record(length) if end == 0 || end + length <= limit => end += length,
                    Cut::Nothing(length) if length > 0 => end += length,
                    Cut::Record(_) => return Ok(Some(self.cut(end))),
                    Cut::Nothing(_) => break,
                    Cut::Unfinished => break,
                }
            }
            if end >= limit || records >= PIECE_RECORDS_MAX || (self.is_read && end >= self.bytes.len()) {
                return match (end, self.done.first_key_value()) {
                    (0, Some((start, done))) => Err(self.changed(*start, done.end)),
                    (0, None) => Ok(None),
                    _ => Ok(Some(self.cut(end))),
                };
            }
            if self.bytes.len() - end > RECORD_BYTES_MAX {
                let line = self.line + count_lines(&self.bytes[..end]);
                return Err(too_long(&self.whole.input, line));
            }
            self.read_more()?;
        }
    }

    fn cut(&mut self, end: usize) -> Piece {
        let rest = self.bytes.split_off(end);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        let piece = Piece {
            whole: Arc::clone(&self.whole),
            start: self.at,
            first_line: self.line,
            is_last: self.is_read && self.bytes.is_empty(),
            bytes,
        };
        self.at = piece.end();
        self.line += match self.splitter {
            Splitter::Blocks(length) => piece.bytes.len().div_ceil(length) as u64,
            _ => count_lines(&piece.bytes),
        };
        piece
    }

    /// Reads what was loaded, and compares it with what the manifest has of it.
    fn pass(&mut self, done: Done) -> Result<()> {
        // No piece is larger than the largest and a record.
        const PIECE_BYTES_MAX: u64 = 64 << 20;
        let length = match done.end.checked_sub(self.at) {
            Some(length) if length <= PIECE_BYTES_MAX => length as usize,
            _ => return Err(self.changed(self.at, done.end)),
        };
        while self.bytes.len() < length && !self.is_read {
            self.read_more()?;
        }
        if self.bytes.len() < length || xxh3_64(&self.bytes[..length]) != done.hash {
            return Err(self.changed(self.at, done.end));
        }
        self.bytes.drain(..length);
        self.at = done.end;
        self.line += done.lines;
        Ok(())
    }

    fn changed(&self, start: u64, end: u64) -> Error {
        let why = format!(
            "what was loaded of it (around bytes {start} to {end}) is not what the file holds now: it is another file of this name. Load it \
             under another --name, or look what became of the first"
        );
        Error::Manifest { input: self.whole.input.name.clone(), why }
    }

    fn read_more(&mut self) -> Result<()> {
        let before = self.bytes.len();
        let place = format!("behind byte {}", self.at + before as u64);
        let failed = |error| not_read(&self.whole.input, place, &error);
        // A record that is longer than a read is looked at again with each: twice as much each time keeps that short.
        let wanted = READ_BYTES.max(before.saturating_sub(self.piece_bytes));
        Read::by_ref(&mut self.input).take(wanted as u64).read_to_end(&mut self.bytes).map_err(failed)?;
        self.is_read = self.bytes.len() == before;
        Ok(())
    }
}

/// The beginning of an input.
struct Head<'a, 'n> {
    input: Input<'a>,
    name: &'n InputName,
    bytes: Vec<u8>,
    is_read: bool,
}

impl Head<'_, '_> {
    fn fill(&mut self, length: usize) -> Result<&[u8]> {
        while self.bytes.len() < length && !self.is_read {
            let before = self.bytes.len();
            let read = Read::by_ref(&mut self.input).take(READ_BYTES as u64).read_to_end(&mut self.bytes);
            read.map_err(|error| not_read(self.name, "line 1".to_owned(), &error))?;
            self.is_read = self.bytes.len() == before;
        }
        Ok(&self.bytes)
    }

    fn next_record(&mut self, splitter: &mut Splitter, at: usize, fields: &mut Fields, line: u64) -> Result<Cut> {
        loop {
            match splitter.next(&self.bytes[at..], self.is_read, fields) {
                Cut::Unfinished if self.is_read => return Ok(Cut::Nothing(0)),
                Cut::Unfinished if self.bytes.len() - at > RECORD_BYTES_MAX => return Err(too_long(self.name, line)),
                Cut::Unfinished => {
                    self.fill(self.bytes.len() + 1)?;
                }
                cut => return Ok(cut),
            }
        }
    }
}

fn names_of(fields: &Fields) -> std::result::Result<Vec<String>, String> {
    if fields.len() > COLUMNS_MAX {
        return Err(format!("the header names {} columns, more than a table can have", fields.len()));
    }
    let name = |field| {
        let bytes = fields.get(field).unwrap_or_default().trim_ascii();
        String::from_utf8(bytes.to_vec()).map_err(|_| "the header is not UTF-8".to_owned())
    };
    (0..fields.len()).map(name).collect()
}

fn input_error(name: &InputName, line: u64, why: String) -> Error {
    Error::Input { input: name.name.clone(), place: format!("line {line}"), why }
}

/// An input that cannot be read; or the reader has been told to stop.
fn not_read(input: &InputName, place: String, error: &io::Error) -> Error {
    if is_stop(error) {
        return Error::Stopped;
    }
    Error::Input { input: input.name.clone(), place, why: format!("it cannot be read: {error}") }
}

fn too_long(name: &InputName, line: u64) -> Error {
    let why = format!(
        "a record of more than {} MiB begins here: a quote or a line's end is missing, or the layout is of other files",
        RECORD_BYTES_MAX >> 20
    );
    input_error(name, line, why)
}

pub(crate) fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

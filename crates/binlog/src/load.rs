//! `LOAD DATA` as a source logs it in statement format: the file's blocks, then the statement that reads them.
//!
//! Source: MySQL internals manual, "Begin_load_query_event", "Execute_load_query_event".

use std::ops::Range;

use crate::cursor::Cursor;
use crate::query::QueryEvent;
use crate::{Error, Result};

/// A block of a file (`BEGIN_LOAD_QUERY_EVENT` for the first, `APPEND_BLOCK_EVENT` for the others).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadBlock<'a> {
    /// The source's id of the file.
    pub file_id: u32,
    /// The file's next bytes.
    pub bytes: &'a [u8],
}

impl<'a> LoadBlock<'a> {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn parse(body: &'a [u8]) -> Result<LoadBlock<'a>> {
        let mut cursor = Cursor::new(body, "block of LOAD DATA");
        let file_id = cursor.u32()?;
        Ok(LoadBlock { file_id, bytes: cursor.rest() })
    }
}

/// How a `LOAD DATA` handles rows whose unique values the table has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadDuplicates {
    /// It fails.
    Fail,
    /// It keeps the old row.
    Ignore,
    /// It replaces the old row.
    Replace,
}

/// The statement of a `LOAD DATA` (`EXECUTE_LOAD_QUERY_EVENT`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteLoadQuery<'a> {
    /// The statement and its session.
    pub query: QueryEvent<'a>,
    /// The file that it reads.
    pub file_id: u32,
    /// The bytes of the statement that name the file, from `LOCAL INFILE` to `INTO`; the caller is to replace them.
    pub file_name: Range<usize>,
    /// How the statement handles duplicates: the words between the file's name and `INTO`.
    pub duplicates: LoadDuplicates,
}

impl<'a> ExecuteLoadQuery<'a> {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Malformed`].
    pub fn parse(body: &'a [u8]) -> Result<ExecuteLoadQuery<'a>> {
        const WHAT: &str = "Execute_load_query event";
        let mut extra = [0; 13];
        let query = QueryEvent::parse_with(body, &mut extra)?;
        let mut cursor = Cursor::new(&extra, WHAT);
        let file_id = cursor.u32()?;
        let file_name = cursor.u32()? as usize..cursor.u32()? as usize;
        let duplicates = match cursor.u8()? {
            0 => LoadDuplicates::Fail,
            1 => LoadDuplicates::Ignore,
            2 => LoadDuplicates::Replace,
            other => return Err(Error::malformed(WHAT, format!("handling {other} of duplicates"))),
        };
        if file_name.start > file_name.end || file_name.end > query.statement.len() {
            return Err(Error::malformed(WHAT, "the file's name is not within the statement"));
        }
        Ok(ExecuteLoadQuery { query, file_id, file_name, duplicates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: (u32, u32), duplicates: u8) -> Vec<u8> {
        let mut body = vec![5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        body.extend_from_slice(&7u32.to_le_bytes());
        body.extend_from_slice(&name.0.to_le_bytes());
        body.extend_from_slice(&name.1.to_le_bytes());
        body.push(duplicates);
        body.extend_from_slice(b"d\0LOAD DATA INFILE 'x' INTO TABLE t");
        body
    }

    #[test]
    fn load_statement_and_its_file_are_read() {
        let body = event((9, 25), 2);
        let load = ExecuteLoadQuery::parse(&body).unwrap();
        assert_eq!((load.file_id, load.duplicates, load.query.thread_id), (7, LoadDuplicates::Replace, 5));
        assert_eq!(&load.query.statement[load.file_name], b" INFILE 'x' INTO");
        assert_eq!(load.query.database, b"d");
    }

    #[test]
    fn impossible_gtid_sets_are_refused() {
        assert!(ExecuteLoadQuery::parse(&event((9, 900), 0)).is_err());
        assert!(ExecuteLoadQuery::parse(&event((9, 3), 0)).is_err());
        assert!(ExecuteLoadQuery::parse(&event((9, 20), 3)).is_err());
        assert!(ExecuteLoadQuery::parse(&event((9, 20), 1)[..20]).is_err());
        assert!(LoadBlock::parse(&[1, 0, 0]).is_err());
        assert_eq!(LoadBlock::parse(&[1, 0, 0, 0, 9]).unwrap(), LoadBlock { file_id: 1, bytes: &[9] });
    }
}

//! LOAD DATA in statement format that ended half-way on the source, at a row that was there already, in a table that cannot roll back.
//!
//! A file that is sent over a connection is loaded to its end: the server cannot stop the client, so it passes over such rows. So the file
//! is loaded into a scratch table without keys, in which its lines are numbered, and inserted from there in the order of the lines: that
//! ends where the source's statement ended, and leaves the same rows.

use spate_binlog::session::IntvarEvent;
use spate_schedule::item::{LoadFile, Statement, StatementContext};
use spate_sql::Token;
use spate_sql::edit::{self, Edit, Refusal};

/// A scratch table of the session; names that begin so are Spate's own.
const SCRATCH: &str = "spate.half_load";

/// The statements of half a LOAD DATA, in the session of the source's statement, each to be sent as one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HalfLoad {
    /// Makes the scratch table.
    pub(crate) create: Vec<u8>,
    /// Loads the file into it.
    pub(crate) load: Vec<u8>,
    /// Sets the value from which the source's statement has counted on, which the scratch table has used.
    pub(crate) numbering: Vec<Vec<u8>>,
    /// Inserts from it, and ends with the source's error.
    pub(crate) insert: Vec<u8>,
    /// Drops the scratch table.
    pub(crate) drop: Vec<u8>,
}

impl HalfLoad {
    /// `sql`: the statement as it reads a file that is sent.
    ///
    /// # Errors
    /// It is not certain which table and columns it loads.
    pub(crate) fn of(statement: &Statement, load: &LoadFile, sql: &[u8]) -> Result<HalfLoad, Refusal> {
        let reading = &statement.reading;
        let all = edit::tokens(&statement.sql, reading).map_err(Refusal::Doubtful)?;
        let mut tokens = all.iter().skip_while(|token| token.start < load.name.end);
        let is_table = tokens.next().is_some_and(|token| token.is("TABLE"));
        let first = tokens.next().filter(|table| is_table && table.is_name()).ok_or(Refusal::Different)?;
        let mut tokens = tokens.peekable();
        let last = match tokens.next_if(|token| token.is_mark(b'.')) {
            Some(_) => tokens.next().filter(|table| table.is_name()).ok_or(Refusal::Different)?,
            None => first,
        };
        let named = first.start..last.range().end;
        let table = &statement.sql[named.clone()];
        let mut columns: Vec<&[u8]> = vec![];
        // A server writes what separates fields and lines before the list, in texts, and always a list.
        let before = tokens.by_ref().take_while(|token| !token.is_mark(b'('));
        if before.into_iter().any(|token| token.is_mark(b'.') || token.is_mark(b';')) {
            return Err(Refusal::Different);
        }
        let rest: Vec<Token<'_>> = tokens.cloned().collect();
        let end = rest.iter().position(|token| token.is_mark(b')')).ok_or(Refusal::Different)?;
        let (list, assignments) = (&rest[..end], &rest[end + 1..]);
        for item in edit::clauses(list) {
            match item {
                [column] if column.is_name() => columns.push(column.text),
                [at, _] if at.is_mark(b'@') => {}
                _ => return Err(Refusal::Different),
            }
        }
        match assignments {
            [] => {}
            [set, assignments @ ..] if set.is("SET") => {
                for assignment in edit::clauses(assignments) {
                    match assignment {
                        [column, mark, ..] if column.is_name() && mark.is_mark(b'=') => columns.push(column.text),
                        _ => return Err(Refusal::Different),
                    }
                }
            }
            _ => return Err(Refusal::Different),
        }
        if columns.is_empty() {
            return Err(Refusal::Different);
        }
        let columns = columns.join(&b',');
        let joined = |parts: &[&[u8]]| parts.concat();
        let create = joined(&[
            b"CREATE TEMPORARY TABLE ",
            SCRATCH.as_bytes(),
            b" (spate_line BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY) ENGINE=MyISAM SELECT ",
            &columns,
            b" FROM ",
            table,
            b" LIMIT 0",
        ]);
        let insert = joined(&[
            b"INSERT INTO ",
            table,
            b" (",
            &columns,
            b") SELECT ",
            &columns,
            b" FROM ",
            SCRATCH.as_bytes(),
            b" ORDER BY spate_line",
        ]);
        // Behind the file's name nothing was changed: the table stands as far from the end as it stood.
        let end = sql.len() - (statement.sql.len() - named.end);
        let range = end - named.len()..end;
        let load = edit::apply(sql, &[Edit { range, text: SCRATCH.as_bytes().to_vec() }], reading)?;
        let number = |context: &StatementContext| match context {
            StatementContext::Intvar(IntvarEvent::InsertId(id)) => Some(format!("SET INSERT_ID={id}").into_bytes()),
            _ => None,
        };
        let numbering = statement.context.iter().filter_map(number).collect();
        let drop = joined(&[b"DROP TEMPORARY TABLE IF EXISTS ", SCRATCH.as_bytes()]);
        Ok(HalfLoad { create, load, numbering, insert, drop })
    }
}

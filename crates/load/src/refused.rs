//! Rows into a table by the fastest door that is open, and which of them the server refuses.
//!
//! LOAD DATA LOCAL never fails for a row: the server bends a value that does not fit, skips a row with a key that is there, and warns.
//! Such a load is undone, and done again in parts; what remains in doubt is inserted under the strict mode, which fails for a row.

use spate_connection::{Connection, Error as ConnectionError, ServerError, Vendor};

use crate::error::{Error, Result};
use crate::loader::{Door, is_of_a_row};
use crate::rows::{File, Reject, Row};

/// As many warnings as are asked for.
pub(crate) const WARNINGS_MAX: u64 = 1024;
/// A load that is in doubt is done again in parts of so many rows: few enough that one row's insertion costs the others little.
const ROWS_AGAIN: usize = 512;
/// So many rows are inserted by a statement at most, and so many bytes: well below the least max_allowed_packet (1 MiB before MySQL 8).
const INSERT_ROWS_MAX: usize = 1000;
const INSERT_BYTES_MAX: usize = 256 << 10;

/// Of a duplicate key.
const CODE_DUPLICATE: [u16; 3] = [1062, 1586, 1859];
/// The server does not allow LOAD DATA LOCAL.
pub(crate) const CODES_NO_LOCAL_FILES: [u16; 4] = [1148, 3948, 3950, 4166];

/// What happens with a row whose key is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// It goes to the rejects.
    #[default]
    Reject,
    /// It is left out.
    Ignore,
    /// It takes the other's place.
    Replace,
}

/// What became of some rows.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) loaded: u64,
    pub(crate) refused: Vec<Reject>,
}

/// Loads rows, in the transaction that is open.
///
/// # Errors
/// Any that is not for a row.
pub(crate) fn load(
    connection: &mut Connection,
    door: &Door<'_>,
    text: &[u8],
    rows: &[Row],
    is_open: bool,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if is_open && door.table.rolls_back {
        if load_file(connection, door, text, rows, &mut outcome)? {
            return Ok(outcome);
        }
        for part in rows.chunks(ROWS_AGAIN) {
            if !load_file(connection, door, text, part, &mut outcome)? {
                insert(connection, door, text, part, is_open, &mut outcome)?;
            }
        }
        return Ok(outcome);
    }
    insert(connection, door, text, rows, is_open, &mut outcome)?;
    Ok(outcome)
}

/// Loads rows as a file; `false`, and nothing is done, if the server had something to say of them.
fn load_file(
    connection: &mut Connection,
    door: &Door<'_>,
    text: &[u8],
    rows: &[Row],
    outcome: &mut Outcome,
) -> Result<bool> {
    connection.execute(b"SAVEPOINT spate_load")?;
    let mut file = File { text, rows, read: 0 };
    let is_clean = match connection.load_local(door.load_sql().as_bytes(), &mut file) {
        Ok(done) => {
            let counts = counts_of(&done.info);
            match counts {
                // Duplicates only, and they are to be left out.
                Some(counts) if door.duplicates == Duplicates::Ignore && counts.warnings == counts.skipped => {
                    is_all_duplicates(connection)?.then_some(counts)
                }
                Some(counts) if counts.skipped == 0 && counts.warnings == 0 => Some(counts),
                // MySQL notes only that it has cut letters off a number: there, notes are doubts, too.
                Some(counts)
                    if counts.skipped == 0
                        && connection.server_version().vendor == Vendor::MariaDb
                        && is_all_notes(connection)? =>
                {
                    Some(counts)
                }
                _ => None,
            }
            .filter(|counts| counts.records == rows.len() as u64)
        }
        Err(ConnectionError::Server { error, .. }) if is_of_a_row(&error) => None,
        Err(error) => return Err(with_table(error, door, rows)),
    };
    match is_clean {
        Some(counts) => {
            outcome.loaded += counts.records - counts.skipped;
            Ok(true)
        }
        None => {
            let undone = connection.execute(b"ROLLBACK TO SAVEPOINT spate_load")?;
            match undone.warnings {
                0 => Ok(false),
                _ => {
                    let why = "rows could not be rolled back: a trigger writes into a table whose engine cannot, or the engine has changed; look at \
                               what it holds"
                        .to_owned();
                    Err(Error::Table { table: door.table.name.to_string(), why })
                }
            }
        }
    }
}

/// What a server says of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    records: u64,
    skipped: u64,
    warnings: u64,
}

/// Reads `Records: 5  Deleted: 0  Skipped: 1  Warnings: 1`.
fn counts_of(info: &str) -> Option<Counts> {
    let number = |word: &str| info.split_once(word)?.1.split_whitespace().next()?.parse().ok();
    Some(Counts { records: number("Records:")?, skipped: number("Skipped:")?, warnings: number("Warnings:")? })
}

fn is_all_notes(connection: &mut Connection) -> Result<bool> {
    warnings_are(connection, |level, _| level.eq_ignore_ascii_case("note"))
}

fn is_all_duplicates(connection: &mut Connection) -> Result<bool> {
    warnings_are(connection, |_, code| CODE_DUPLICATE.contains(&code))
}

/// True if the server tells all its warnings, and each is such a one. Of more than it tells, nothing is known.
fn warnings_are(connection: &mut Connection, is_such: impl Fn(&str, u16) -> bool) -> Result<bool> {
    let warnings = connection.query("SHOW WARNINGS")?;
    let is_such = |row: usize| {
        let code = warnings.text(row, "Code").and_then(|code| code.parse().ok()).unwrap_or_default();
        is_such(&warnings.text(row, "Level").unwrap_or_default(), code)
    };
    Ok((warnings.rows.len() as u64) < WARNINGS_MAX && (0..warnings.rows.len()).all(is_such))
}

/// Inserts rows by statements of several. What is refused is found by halves; where the engine cannot undo a half, each row has a statement.
fn insert(
    connection: &mut Connection,
    door: &Door<'_>,
    text: &[u8],
    rows: &[Row],
    is_open: bool,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut rest = rows;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&Row| {
            bytes += row.text.len();
            bytes <= INSERT_BYTES_MAX
        };
        let length = rest.iter().take(INSERT_ROWS_MAX).take_while(fits).count().max(1);
        let (part, others) = rest.split_at(length);
        match door.table.rolls_back {
            true => insert_halves(connection, door, text, part, is_open, outcome)?,
            false => insert_singly(connection, door, text, part, outcome)?,
        }
        rest = others;
    }
    Ok(())
}

fn insert_halves(
    connection: &mut Connection,
    door: &Door<'_>,
    text: &[u8],
    rows: &[Row],
    is_open: bool,
    outcome: &mut Outcome,
) -> Result<()> {
    if let [row] = rows
        && is_open
        && row.text.len() > INSERT_BYTES_MAX
    {
        // Its statement may be larger than the server takes.
        if !load_file(connection, door, text, rows, outcome)? {
            outcome.refused.push(Reject {
                record: row.record.start as usize..row.record.end as usize,
                line: row.line,
                reason: format!("the server does not take it into {} as it is, by its warnings", door.table.name),
            });
        }
        return Ok(());
    }
    let error = match connection.execute_single(door.insert_sql(text, rows).as_bytes()) {
        Ok(_) => {
            outcome.loaded += rows.len() as u64;
            return Ok(());
        }
        Err(ConnectionError::Server { error, .. }) if is_of_a_row(&error) => error,
        Err(error) => return Err(with_table(error, door, rows)),
    };
    match rows {
        [row] => outcome.refuse(door, row, &error),
        rows => {
            let (one, other) = rows.split_at(rows.len() / 2);
            insert_halves(connection, door, text, one, is_open, outcome)?;
            insert_halves(connection, door, text, other, is_open, outcome)?;
        }
    }
    Ok(())
}

/// One statement a row, many in a packet: those before the one that fails are executed, those behind it are not.
fn insert_singly(
    connection: &mut Connection,
    door: &Door<'_>,
    text: &[u8],
    rows: &[Row],
    outcome: &mut Outcome,
) -> Result<()> {
    let mut rest = rows;
    while !rest.is_empty() {
        let statements: Vec<String> = rest.iter().map(|row| door.insert_sql(text, std::slice::from_ref(row))).collect();
        match connection.execute(statements.join(";").as_bytes()) {
            Ok(_) => {
                outcome.loaded += rest.len() as u64;
                return Ok(());
            }
            Err(ConnectionError::Server { error, .. }) if is_of_a_row(&error) && error.statement < rest.len() => {
                outcome.loaded += error.statement as u64;
                outcome.refuse(door, &rest[error.statement], &error);
                rest = &rest[error.statement + 1..];
            }
            Err(error) => return Err(with_table(error, door, rest)),
        }
    }
    Ok(())
}

impl Outcome {
    fn refuse(&mut self, door: &Door<'_>, row: &Row, error: &ServerError) {
        if door.duplicates == Duplicates::Ignore && CODE_DUPLICATE.contains(&error.code) {
            return;
        }
        self.refused.push(Reject {
            record: row.record.start as usize..row.record.end as usize,
            line: row.line,
            reason: format!("the server refuses it in {}: {error}", door.table.name),
        });
    }
}

/// What only concerns the connection stays as it is; the rest is said of the table.
fn with_table(error: ConnectionError, door: &Door<'_>, rows: &[Row]) -> Error {
    if error.is_transient()
        || error.server_error().is_none()
        || error.code().is_some_and(|code| CODES_NO_LOCAL_FILES.contains(&code))
    {
        return error.into();
    }
    let lines = rows.iter().map(|row| row.line);
    let (first, last) = (lines.clone().min().unwrap_or_default(), lines.max().unwrap_or_default());
    Error::Table { table: door.table.name.to_string(), why: format!("rows of lines {first} to {last}: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_of_what_servers_say() {
        let counts = counts_of("Records: 5  Deleted: 1  Skipped: 2  Warnings: 3").unwrap();
        assert_eq!(counts, Counts { records: 5, skipped: 2, warnings: 3 });
        assert_eq!(counts_of(""), None);
    }
}

//! What is loaded, kept on the server: a piece's row is written in the transaction that loads the piece.
//!
//! Each run of a load begins another *epoch* of each file. A piece is loaded only if the epoch is still the one that its run began, and
//! the row that says so stays locked until the commit: a run that somebody believed dead loads nothing more once another has begun.

use std::collections::BTreeMap;

use spate_connection::{CODE_LOCK_WAIT, Connection, quote};
use spate_replica::own_schema;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::input::InputName;
use crate::pieces::Done;

/// Not the schema of replication, which every server has for itself: what is loaded goes with the rows, to replicas, into backups, and to the server that
/// becomes the source.
pub(crate) const SCHEMA: &str = "spate_load";
const GRANT: &str = "GRANT ALL PRIVILEGES ON spate_load.* TO <the user of Spate>";

/// The tables of loads.
pub(crate) const TABLES: [(&str, &str); 4] = [
    (
        "load_file",
        "CREATE TABLE IF NOT EXISTS spate_load.load_file (\
         id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
         job VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         name_hash BIGINT UNSIGNED NOT NULL, \
         name TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         layout_hash BIGINT UNSIGNED NOT NULL, \
         epoch BIGINT UNSIGNED NOT NULL, \
         begun DATETIME NOT NULL, ended DATETIME NULL, \
         data_bytes BIGINT UNSIGNED NULL, disk_bytes BIGINT UNSIGNED NULL, modified_ns BIGINT UNSIGNED NULL, \
         UNIQUE KEY name (job, name_hash)) ENGINE=InnoDB COMMENT='files of spate load'",
    ),
    (
        "load_piece",
        "CREATE TABLE IF NOT EXISTS spate_load.load_piece (\
         file BIGINT UNSIGNED NOT NULL, first_byte BIGINT UNSIGNED NOT NULL, end_byte BIGINT UNSIGNED NOT NULL, \
         line_count BIGINT UNSIGNED NOT NULL, record_count BIGINT UNSIGNED NOT NULL, \
         loaded BIGINT UNSIGNED NOT NULL, rejected BIGINT UNSIGNED NOT NULL, content_hash BIGINT UNSIGNED NOT NULL, \
         PRIMARY KEY (file, first_byte)) ENGINE=InnoDB COMMENT='what is loaded of files'",
    ),
    (
        "load_index",
        "CREATE TABLE IF NOT EXISTS spate_load.load_index (\
         job VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, table_hash BIGINT UNSIGNED NOT NULL, \
         schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         definitions MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         PRIMARY KEY (job, table_hash)) ENGINE=InnoDB COMMENT='indexes that a load has yet to make'",
    ),
    (
        "load_open",
        "CREATE TABLE IF NOT EXISTS spate_load.load_open (\
         file BIGINT UNSIGNED NOT NULL, first_byte BIGINT UNSIGNED NOT NULL, table_hash BIGINT UNSIGNED NOT NULL, \
         schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         first_line BIGINT UNSIGNED NOT NULL, end_line BIGINT UNSIGNED NOT NULL, \
         rows_before BIGINT UNSIGNED NOT NULL, \
         PRIMARY KEY (file, first_byte, table_hash)) ENGINE=InnoDB COMMENT='pieces on their way into tables that cannot roll back'",
    ),
];

/// The most rows of pieces that are kept of a file that is being loaded: 10 TB in the smallest usual pieces.
const PIECES_MAX: usize = 2_000_000;

/// A server may take so long to notice that the session of an earlier run is gone.
const LOCK_SECONDS: u32 = 5;

/// A file, as the manifest has it.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    /// The pieces that are loaded.
    pub(crate) done: BTreeMap<u64, Done>,
}

/// What a look at a file found.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is loaded whole, and nobody has written to it since.
    Loaded(Totals),
    /// It is loaded whole; whether it still holds the same, its bytes must say.
    Check(FileState, Totals),
    /// There is something to do.
    Open(FileState),
}

/// Sums of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Records that were read.
    pub records: u64,
    /// Rows that are in tables.
    pub loaded: u64,
    /// Records that are in files of rejects.
    pub rejected: u64,
}

/// A piece on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) file: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) lines: u64,
    pub(crate) hash: u64,
    pub(crate) totals: Totals,
}

/// Makes the tables, and takes the lock of this load.
///
/// # Errors
/// As [`lock`].
pub(crate) fn open(connection: &mut Connection, job: &str) -> Result<()> {
    own_schema::create_tables(connection, SCHEMA, &TABLES, GRANT)?;
    lock(connection, job)
}

/// Takes the lock of this load. It keeps a second run out; that two do not mix, should the server have lost it, is the epoch's business.
///
/// # Errors
/// [`Error::Running`], or any error of the connection.
pub(crate) fn lock(connection: &mut Connection, job: &str) -> Result<()> {
    let lock = quote::text(&lock_name(job));
    let taken = connection.query(&format!("SELECT GET_LOCK({lock}, {LOCK_SECONDS}), IS_USED_LOCK({lock})"))?;
    match taken.text_at(0, 0).as_deref() {
        Some("1") => Ok(()),
        _ => Err(Error::Running { job: job.to_owned(), connection: taken.text_at(0, 1).unwrap_or_default() }),
    }
}

fn lock_name(job: &str) -> String {
    format!("spate.load.{:016x}", xxh3_64(job.as_bytes()))
}

/// Begins a file, or goes on with it.
///
/// # Errors
/// [`Error::Manifest`] if it was loaded with another layout or content.
pub(crate) fn begin(connection: &mut Connection, job: &str, input: &InputName, layout_hash: u64) -> Result<Begun> {
    let name_hash = xxh3_64(input.name.as_bytes());
    let (job, name) = (quote::text(job), quote::text(&input.name));
    let begun = connection.execute(
        format!(
            "INSERT INTO spate_load.load_file (job, name_hash, name, layout_hash, epoch, begun) \
             SELECT {job}, {name_hash}, {name}, {layout_hash}, 0, UTC_TIMESTAMP() FROM (SELECT 1) AS one WHERE NOT EXISTS \
             (SELECT 1 FROM spate_load.load_file WHERE job = {job} AND name_hash = {name_hash});\
             UPDATE spate_load.load_file SET epoch = epoch + 1 WHERE job = {job} AND name_hash = {name_hash};COMMIT"
        )
        .as_bytes(),
    );
    match begun {
        // A transaction that loads a piece of it holds the row.
        Err(error) if error.code() == Some(CODE_LOCK_WAIT) => {
            let why = "a session of an earlier run still loads a piece of it: wait until the server has noticed that the run is gone, or \
                       KILL that session (SHOW PROCESSLIST)";
            return Err(Error::Manifest { input: input.name.clone(), why: why.to_owned() });
        }
        begun => begun?,
    };
    let found = connection.query(&format!(
        "SELECT id, epoch, layout_hash, name = {name}, ended, disk_bytes, begun, modified_ns FROM spate_load.load_file \
         WHERE job = {job} AND name_hash = {name_hash}"
    ))?;
    let number = |column| number_at(&found, 0, column);
    let refused = |why: String| Error::Manifest { input: input.name.clone(), why };
    let id = number(0);
    if found.text_at(0, 3).as_deref() != Some("1") {
        return Err(refused("another file's name has the same hash: give this load another --name".to_owned()));
    }
    if let Some(ended) = found.text_at(0, 4) {
        if let (Some(then), Some(now)) = (found.text_at(0, 5), input.size())
            && then != now.to_string()
        {
            return Err(refused(format!(
                "it was loaded until {ended} UTC, when it had {then} bytes, and has {now} now: if it is another file, rename it or use \
                 another --name"
            )));
        }
        let totals = totals(connection, id)?;
        let modified = input.modified_ns().map(|modified| modified.to_string());
        if input.size().is_some() && modified.is_some() && modified == found.text_at(0, 7) {
            return Ok(Begun::Loaded(totals));
        }
        return Ok(Begun::Check(FileState { id, epoch: number(1), done: done_pieces(connection, id)? }, totals));
    }
    let done = done_pieces(connection, id)?;
    if number(2) != layout_hash && !done.is_empty() {
        return Err(refused(format!(
            "it was begun at {} UTC with another layout, and {} pieces of it are loaded: finish it with that one",
            found.text_at(0, 6).unwrap_or_default(),
            done.len()
        )));
    }
    if number(2) != layout_hash {
        let sql = format!("UPDATE spate_load.load_file SET layout_hash = {layout_hash} WHERE id = {id};COMMIT");
        connection.execute(sql.as_bytes())?;
    }
    Ok(Begun::Open(FileState { id, epoch: number(1), done }))
}

fn number_at(rows: &spate_connection::ResultSet, row: usize, column: usize) -> u64 {
    rows.text_at(row, column).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The pieces of a file that are loaded, by their first bytes.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn done_pieces(connection: &mut Connection, id: u64) -> Result<BTreeMap<u64, Done>> {
    let rows = connection.query(&format!(
        "SELECT first_byte, end_byte, line_count, content_hash FROM spate_load.load_piece WHERE file = {id} LIMIT {PIECES_MAX}"
    ))?;
    let piece = |row| {
        let done =
            Done { end: number_at(&rows, row, 1), lines: number_at(&rows, row, 2), hash: number_at(&rows, row, 3) };
        (number_at(&rows, row, 0), done)
    };
    Ok((0..rows.rows.len()).map(piece).collect())
}

fn totals(connection: &mut Connection, id: u64) -> Result<Totals> {
    let sums = connection.query(&format!(
        "SELECT COALESCE(SUM(record_count), 0), COALESCE(SUM(loaded), 0), COALESCE(SUM(rejected), 0) FROM spate_load.load_piece \
         WHERE file = {id}"
    ))?;
    Ok(Totals { records: number_at(&sums, 0, 0), loaded: number_at(&sums, 0, 1), rejected: number_at(&sums, 0, 2) })
}

/// The statement that writes a piece's row.
pub(crate) fn entry_sql(entry: &Entry) -> String {
    let Entry { file, start, end, lines, hash, totals } = entry;
    let Totals { records, loaded, rejected } = totals;
    format!(
        "INSERT INTO spate_load.load_piece (file, first_byte, end_byte, line_count, record_count, loaded, rejected, content_hash) \
         VALUES ({file}, {start}, {end}, {lines}, {records}, {loaded}, {rejected}, {hash})"
    )
}

/// Locks the file's epoch until the transaction ends, and looks whether the piece is loaded already.
///
/// # Errors
/// [`Error::Manifest`] if another run has begun.
pub(crate) fn is_loaded(connection: &mut Connection, input: &str, file: u64, epoch: u64, start: u64) -> Result<bool> {
    let now =
        connection.query(&format!("SELECT epoch FROM spate_load.load_file WHERE id = {file} LOCK IN SHARE MODE"))?;
    if number_at(&now, 0, 0) != epoch {
        let why = "another run has begun to load it; this one ends".to_owned();
        return Err(Error::Manifest { input: input.to_owned(), why });
    }
    let found = connection
        .query(&format!("SELECT 1 FROM spate_load.load_piece WHERE file = {file} AND first_byte = {start}"))?;
    Ok(!found.rows.is_empty())
}

/// A file that was read to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    /// Where its first piece begins, and its last one ends.
    pub(crate) data: (u64, u64),
    /// The bytes that were read of the disk; `None` for what has no size.
    pub(crate) disk_bytes: Option<u64>,
    /// When it was modified, before it was read.
    pub(crate) modified_ns: Option<u64>,
}

/// Notes that all of a file is loaded, if its pieces that are `done` say so.
///
/// # Errors
/// [`Error::Manifest`] if the server has lost pieces that it had committed.
pub(crate) fn end(
    connection: &mut Connection,
    input: &InputName,
    id: u64,
    read: Read,
    done: &BTreeMap<u64, Done>,
) -> Result<Totals> {
    let mut at = read.data.0;
    for (start, done) in done {
        if *start != at {
            break;
        }
        at = done.end;
    }
    if at != read.data.1 {
        let why = format!(
            "the server has lost what it had committed of it, from byte {at} on (it was restarted without innodb_flush_log_at_trx_commit = 1, \
             or another server has taken its place): the same command loads it"
        );
        return Err(Error::Manifest { input: input.name.clone(), why });
    }
    let number = |number: Option<u64>| number.map_or("NULL".to_owned(), |number| number.to_string());
    connection.execute(
        format!(
            "UPDATE spate_load.load_file SET ended = UTC_TIMESTAMP(), data_bytes = {at}, disk_bytes = {}, modified_ns = {} WHERE id = {id};COMMIT",
            number(read.disk_bytes),
            number(read.modified_ns)
        )
        .as_bytes(),
    )?;
    totals(connection, id)
}

/// Notes that a file which is loaded has another time now, and the same bytes.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn touch(connection: &mut Connection, id: u64, modified_ns: Option<u64>) -> Result<()> {
    if let Some(modified) = modified_ns {
        let sql = format!("UPDATE spate_load.load_file SET modified_ns = {modified} WHERE id = {id};COMMIT");
        connection.execute(sql.as_bytes())?;
    }
    Ok(())
}

/// Notes the indexes that a table must get at the end, before it loses them.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn owe_indexes(
    connection: &mut Connection,
    job: &str,
    table: (&str, &str),
    definitions: &[String],
) -> Result<()> {
    connection.execute(
        format!(
            "REPLACE INTO spate_load.load_index (job, table_hash, schema_name, table_name, definitions) VALUES ({}, {}, {}, {}, {});COMMIT",
            quote::text(job),
            table_hash(table),
            quote::text(table.0),
            quote::text(table.1),
            quote::text(&definitions.join("\n"))
        )
        .as_bytes(),
    )?;
    Ok(())
}

/// The tables that must get indexes, and these.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn owed_indexes(connection: &mut Connection, job: &str) -> Result<Vec<(String, String, Vec<String>)>> {
    let rows = connection.query(&format!(
        "SELECT schema_name, table_name, definitions FROM spate_load.load_index WHERE job = {} ORDER BY schema_name, table_name",
        quote::text(job)
    ))?;
    let text = |row, column| rows.text_at(row, column).unwrap_or_default();
    let owed = |row| (text(row, 0), text(row, 1), text(row, 2).lines().map(str::to_owned).collect());
    Ok((0..rows.rows.len()).map(owed).collect())
}

/// A table has its indexes.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn pay_indexes(connection: &mut Connection, job: &str, table: (&str, &str)) -> Result<()> {
    let (job, hash) = (quote::text(job), table_hash(table));
    let sql = format!("DELETE FROM spate_load.load_index WHERE job = {job} AND table_hash = {hash};COMMIT");
    connection.execute(sql.as_bytes())?;
    Ok(())
}

/// A table's name as a number: names are too long for keys.
pub(crate) fn table_hash((schema, table): (&str, &str)) -> u64 {
    xxh3_64(format!("{schema}\0{table}").as_bytes())
}

/// Notes that a piece is about to go into tables that cannot roll back, with the number of rows that they have.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn open_piece(
    connection: &mut Connection,
    entry: &Entry,
    lines: (u64, u64),
    table: (&str, &str),
) -> Result<()> {
    let rows = count_rows(connection, table)?;
    let (file, start) = (entry.file, entry.start);
    connection.execute(
        format!(
            "REPLACE INTO spate_load.load_open (file, first_byte, table_hash, schema_name, table_name, first_line, end_line, rows_before) \
             VALUES ({file}, {start}, {}, {}, {}, {}, {}, {rows});COMMIT",
            table_hash(table),
            quote::text(table.0),
            quote::text(table.1),
            lines.0,
            lines.1,
        )
        .as_bytes(),
    )?;
    Ok(())
}

/// The statement that forgets it, in the transaction of the piece's row.
pub(crate) fn close_piece_sql(entry: &Entry) -> String {
    format!("DELETE FROM spate_load.load_open WHERE file = {} AND first_byte = {}", entry.file, entry.start)
}

fn count_rows(connection: &mut Connection, (schema, table): (&str, &str)) -> Result<u64> {
    let counted =
        connection.query(&format!("SELECT COUNT(*) FROM {} {}", quote::qualified(schema, table), quote::NO_VIEW))?;
    Ok(number_at(&counted, 0, 0))
}

/// Settles pieces that were on their way into tables that cannot roll back: one that has not begun is forgotten.
///
/// # Errors
/// [`Error::Manifest`] says what a person must do where rows are in a table.
pub(crate) fn settle_open(connection: &mut Connection, input: &InputName, id: u64) -> Result<()> {
    let open = connection.query(&format!(
        "SELECT first_byte, schema_name, table_name, first_line, end_line, rows_before FROM spate_load.load_open WHERE file = {id}"
    ))?;
    for row in 0..open.rows.len() {
        let text = |column| open.text_at(row, column).unwrap_or_default();
        let (schema, table) = (text(1), text(2));
        let (before, now) = (number_at(&open, row, 5), count_rows(connection, (&schema, &table))?);
        if before != now {
            let why = format!(
                "lines {} to {} of it were on their way into {schema}.{table}, whose engine cannot roll back, when the load was \
                 interrupted: it had {before} rows then and has {now} now. Delete the rows of these lines from it (CHECK TABLE first, if \
                 the server crashed), so that it has {before} again, and start the load again",
                text(3),
                text(4)
            );
            return Err(Error::Manifest { input: input.name.clone(), why });
        }
    }
    connection.execute(format!("DELETE FROM spate_load.load_open WHERE file = {id};COMMIT").as_bytes())?;
    Ok(())
}

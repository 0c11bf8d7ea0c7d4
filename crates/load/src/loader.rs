//! One connection that loads pieces: each by one transaction, with its row in the manifest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spate_connection::backoff::Backoff;
use spate_connection::{ConnectOptions, Connection, ServerError, Vendor, quote};

use crate::error::{Error, Result};
use crate::manifest::{self, Entry, Totals};
use crate::pieces::Piece;
use crate::refused::{self, Duplicates};
use crate::rejects::Rejects;
use crate::rows::{Converter, Facts, Group, Reject, Row, Rows};
use crate::tables::{self, Name, Table, Tables};

/// A piece is tried so often before a deadlock or the like ends the load.
const ATTEMPTS_MAX: usize = 20;

/// What all connections of a load share.
pub(crate) struct Shared<'a> {
    pub(crate) options: &'a crate::run::LoadOptions,
    pub(crate) tables: Mutex<Tables>,
    /// The connection that makes tables, and holds the lock.
    pub(crate) control: Mutex<Connection>,
    /// Held while a piece goes into tables that cannot roll back, so that the number of their rows tells how far it came.
    pub(crate) one_by_one: Mutex<()>,
    pub(crate) stop: &'a AtomicBool,
    /// Set once a piece that cannot be rolled back was interrupted: what its tables hold, a person must look at.
    pub(crate) is_uncertain: AtomicBool,
    /// True if the server takes LOAD DATA LOCAL.
    pub(crate) local_files: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The statements that load rows into one table.
pub(crate) struct Door<'a> {
    pub(crate) table: &'a Table,
    pub(crate) columns: &'a crate::columns::Columns,
    pub(crate) duplicates: Duplicates,
}

/// A connection that loads.
pub(crate) struct Loader<'a> {
    shared: &'a Shared<'a>,
    connection: Connection,
    converter: Converter<'a>,
    /// What an attempt was about to commit: if the answer was lost, the next one may find it there.
    committing: Loaded,
}

/// What became of a piece.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    pub(crate) totals: Totals,
    /// The rows that each table got.
    pub(crate) tables: Vec<(Name, u64)>,
}

/// Modes under which a server would read the statements of this crate in another way; those behind the first two contain one of these.
const MISREAD: [&str; 10] = [
    "NO_BACKSLASH_ESCAPES",
    "ANSI_QUOTES",
    "ANSI",
    "ORACLE",
    "MSSQL",
    "DB2",
    "POSTGRESQL",
    "MAXDB",
    "MYSQL323",
    "MYSQL40",
];

/// Connects for loading.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn connect(options: &crate::run::LoadOptions) -> Result<Connection> {
    let mut connect = ConnectOptions::new("server");
    connect.local_files = true;
    let mut connection = Connection::connect(&options.server, &connect)?;
    let mode = connection.query("SELECT @@GLOBAL.sql_mode")?.single_text().unwrap_or_default();
    let words = mode.split(',').filter(|word| !word.is_empty() && !MISREAD.contains(word));
    // A zero in a file is a zero.
    let mode = words.chain(["STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO"]).collect::<Vec<_>>().join(",");
    let sql = format!(
        "SET NAMES utf8mb4;SET SESSION autocommit = 0, max_error_count = {}, sql_mode = {}",
        refused::WARNINGS_MAX,
        quote::text(&mode)
    );
    connection.execute(sql.as_bytes())?;
    if connection.server_version().vendor == Vendor::MariaDb {
        // A limit for the statements of others. (MySQL's is for SELECT.)
        connection.execute(b"SET SESSION max_statement_time = 0")?;
    }
    if !options.writes_binlog {
        connection.execute(b"SET SESSION sql_log_bin = 0")?;
    }
    if let Some(zone) = &options.time_zone {
        connection.execute(format!("SET SESSION time_zone = {}", quote::text(zone)).as_bytes())?;
    }
    Ok(connection)
}

/// Connects for questions and definitions.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn connect_control(options: &crate::run::LoadOptions) -> Result<Connection> {
    let mut connection = connect(options)?;
    // Definitions are read as they are written without any mode.
    connection.execute(b"SET SESSION autocommit = 1, sql_mode = ''")?;
    Ok(connection)
}

impl<'a> Loader<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>, converter: Converter<'a>) -> Result<Loader<'a>> {
        Ok(Loader { shared, connection: connect(shared.options)?, converter, committing: Loaded::default() })
    }

    /// Loads a piece, once.
    ///
    /// # Errors
    /// Any error that a retry cannot help.
    pub(crate) fn load(&mut self, piece: &Piece, epoch: u64, rejects: &Rejects) -> Result<Loaded> {
        self.committing = Loaded::default();
        let mut backoff = Backoff::default();
        let mut rows = None;
        for attempt in 1.. {
            let error = match self.try_once(attempt > 1, piece, epoch, &mut rows, rejects) {
                Ok(loaded) => return Ok(loaded),
                Err(error) if attempt < ATTEMPTS_MAX && self.may_retry(&error) => error,
                Err(error) => return Err(error),
            };
            if closes_the_door(&error) {
                self.shared.local_files.store(false, Ordering::Relaxed);
            } else {
                let delay = backoff.next_delay();
                backoff.wait(delay, self.shared.stop);
            }
            if self.shared.stop.load(Ordering::Relaxed) {
                return Err(error);
            }
        }
        Err(Error::Stopped)
    }

    /// Converts the piece, unless an earlier attempt has, and loads it.
    fn try_once(
        &mut self,
        is_again: bool,
        piece: &Piece,
        epoch: u64,
        rows: &mut Option<Rows>,
        rejects: &Rejects,
    ) -> Result<Loaded> {
        if is_again {
            self.begin_again()?;
        }
        let rows = match rows {
            Some(rows) => rows,
            none => none.insert(convert(self.shared, &self.shared.tables, &mut self.converter, piece)?),
        };
        self.attempt(piece, epoch, rows, rejects)
    }

    /// True if another attempt may help, and harms nothing: not once rows are in a table that keeps them.
    fn may_retry(&self, error: &Error) -> bool {
        (error.is_transient() || closes_the_door(error)) && !self.shared.is_uncertain.load(Ordering::Acquire)
    }

    /// Rolls back, over new connections if the server has gone.
    fn begin_again(&mut self) -> Result<()> {
        if self.connection.execute(b"ROLLBACK").is_err() {
            self.connection = connect(self.shared.options)?;
        }
        self.shared.mend_control()
    }

    /// Keeps a table what it is until the transaction ends, and looks whether it still is what it was: somebody may have put a view into its
    /// place, or changed its engine.
    fn hold(&mut self, table: &Table) -> Result<()> {
        let (schema, name) = table.name.parts();
        let why = match self.connection.execute(quote::hold_table(schema, name).as_bytes()) {
            Ok(_) if tables::rolls_back(&mut self.connection, &table.name)? == table.rolls_back => return Ok(()),
            Ok(_) => "it has another engine than when the load began".to_owned(),
            Err(error) if error.is_transient() || error.server_error().is_none() => return Err(error.into()),
            Err(error) => format!("it is not the table that it was when the load began: {error}"),
        };
        lock(&self.shared.tables).forget(&table.name);
        Err(Error::Table { table: table.name.to_string(), why })
    }

    fn attempt(&mut self, piece: &Piece, epoch: u64, rows: &Rows, rejects: &Rejects) -> Result<Loaded> {
        let file = piece.whole.id;
        let name = &piece.whole.input.name;
        if manifest::is_loaded(&mut self.connection, name, file, epoch, piece.start)? {
            self.connection.execute(b"ROLLBACK")?;
            return Ok(std::mem::take(&mut self.committing));
        }
        let mut entry = Entry {
            file,
            start: piece.start,
            end: piece.end(),
            lines: piece.lines(rows.records, self.converter.has_lines()),
            hash: piece.hash(),
            totals: Totals { records: rows.records, ..Totals::default() },
        };
        let tables = self.shared.tables_of(&rows.groups)?;
        let held: Vec<&Table> = tables.iter().map(|table| &**table).filter(|table| !table.rolls_back).collect();
        let one_by_one = (!held.is_empty()).then(|| lock(&self.shared.one_by_one));
        if !held.is_empty() && self.shared.is_uncertain.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        for table in &held {
            let lines = (piece.first_line, piece.first_line + entry.lines);
            let mut control = lock(&self.shared.control);
            manifest::open_piece(&mut control, &entry, lines, table.name.parts())?;
        }
        // From here on nothing waits for the connection that makes tables: that may wait for this transaction.
        for table in &tables {
            self.hold(table)?;
        }
        let mut refused: Vec<Reject> = Vec::new();
        let mut loaded = Vec::new();
        let mut groups: Vec<_> = rows.groups.iter().zip(&tables).collect();
        // What cannot roll back comes last: behind it, a server warns of each change of the others, and of each of their rollbacks.
        groups.sort_by_key(|(_, table)| !table.rolls_back);
        for (group, table) in groups {
            self.shared.is_uncertain.fetch_or(!table.rolls_back, Ordering::AcqRel);
            let door = Door { table, columns: &piece.whole.columns, duplicates: self.shared.options.duplicates };
            let is_open = self.shared.local_files.load(Ordering::Relaxed);
            let outcome = refused::load(&mut self.connection, &door, &rows.text, &group.rows, is_open)?;
            entry.totals.loaded += outcome.loaded;
            loaded.push((table.name.clone(), outcome.loaded));
            refused.extend(outcome.refused);
            spate_archive::stopping_point("load-after-rows");
        }
        let mut all: Vec<Reject> = rows.rejects.iter().cloned().chain(refused).collect();
        all.sort_by_key(|reject| reject.record.start);
        entry.totals.rejected = all.len() as u64;
        rejects.write(piece, &all)?;
        spate_archive::stopping_point("load-before-commit");
        let mut sql = manifest::entry_sql(&entry);
        if !held.is_empty() {
            sql.push(';');
            sql.push_str(&manifest::close_piece_sql(&entry));
        }
        sql.push_str(";COMMIT");
        self.committing = Loaded { totals: entry.totals, tables: loaded };
        self.connection.execute(sql.as_bytes())?;
        if !held.is_empty() {
            self.shared.is_uncertain.store(false, Ordering::Release);
        }
        drop(one_by_one);
        spate_archive::stopping_point("load-after-commit");
        Ok(std::mem::take(&mut self.committing))
    }
}

/// True if the server does not take LOAD DATA LOCAL (any more): rows are inserted then.
fn closes_the_door(error: &Error) -> bool {
    matches!(error, Error::Connection(error) if error.code().is_some_and(|code| refused::CODES_NO_LOCAL_FILES.contains(&code)))
}

/// The rows of a piece. Tables and partitions that they need are made, unless `tables` are those of a dry run.
///
/// # Errors
/// Of the tables.
pub(crate) fn convert(
    shared: &Shared<'_>,
    tables: &Mutex<Tables>,
    converter: &mut Converter<'_>,
    piece: &Piece,
) -> Result<Rows> {
    let rules = &shared.options.layout.rules;
    let columns = &piece.whole.columns;
    let rows = converter.convert(piece, &mut |rule, name| {
        let table = lock(tables).find(&mut lock(&shared.control), &rules[rule], name)?;
        tables::check_columns(&table, columns)?;
        let number = |name: &String| {
            columns.all.iter().position(|column| column.loads && column.name.eq_ignore_ascii_case(name))
        };
        let find = |(name, is_number): &(String, bool)| number(name).map(|column| (column, *is_number));
        // Which of two rows comes later decides where one may replace the other.
        let is_sorted = shared.options.duplicates == Duplicates::Reject;
        Ok(Facts {
            // Behind a key column that the file does not have, there is no order.
            key: if is_sorted { table.key.iter().map_while(find).collect() } else { vec![] },
            never_null: table.never_null.iter().filter_map(number).collect(),
        })
    })?;
    for group in &rows.groups {
        for (partition, values) in &group.partitions {
            let rule = &rules[group.rule];
            let mut tables = lock(tables);
            tables.make_partition(&mut lock(&shared.control), rule, &group.table, partition, values)?;
        }
    }
    Ok(rows)
}

impl Shared<'_> {
    /// Connects again, should the server have closed the connection for questions.
    ///
    /// # Errors
    /// Any error of the connection; [`Error::Running`] if another load has taken the lock.
    pub(crate) fn mend_control(&self) -> Result<()> {
        let mut control = lock(&self.control);
        if control.query("SELECT 1").is_err() {
            let mut new = connect_control(self.options)?;
            if !self.options.is_dry {
                manifest::lock(&mut new, &self.options.job)?;
            }
            *control = new;
        }
        Ok(())
    }

    fn tables_of(&self, groups: &[Group]) -> Result<Vec<Arc<Table>>> {
        let rules = &self.options.layout.rules;
        let find = |group: &Group| lock(&self.tables).find(&mut lock(&self.control), &rules[group.rule], &group.table);
        groups.iter().map(find).collect()
    }
}

impl Door<'_> {
    /// The statement that reads rows from a file.
    pub(crate) fn load_sql(&self) -> String {
        let (names, set) = tables::column_list(self.columns);
        let word = match self.duplicates {
            Duplicates::Reject => "",
            Duplicates::Ignore => "IGNORE ",
            Duplicates::Replace => "REPLACE ",
        };
        format!(
            "LOAD DATA LOCAL INFILE 'spate' {word}INTO TABLE {} CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' \
             LINES TERMINATED BY '\\n' ({names}){set}",
            self.table.name.quoted()
        )
    }

    /// The statement that has the rows in it.
    pub(crate) fn insert_sql(&self, text: &[u8], rows: &[Row]) -> String {
        let loaded = || self.columns.all.iter().filter(|column| column.loads);
        let names: Vec<String> = loaded().map(|column| quote::identifier(&column.name)).collect();
        let word = if self.duplicates == Duplicates::Replace { "REPLACE" } else { "INSERT" };
        let mut sql = format!("{word} INTO {} ({}) VALUES ", self.table.name.quoted(), names.join(","));
        for (number, row) in rows.iter().enumerate() {
            sql.push_str(if number == 0 { "(" } else { ",(" });
            let values = crate::rows::values_of_row(&text[row.text.start as usize..row.text.end as usize]);
            for (number, (column, value)) in loaded().zip(values).enumerate() {
                if number > 0 {
                    sql.push(',');
                }
                match value {
                    None => sql.push_str("NULL"),
                    Some(value) if column.is_hexadecimal() => {
                        // As LOAD DATA has it: a hexadecimal literal would be a number in a column of numbers.
                        sql.push_str("UNHEX('");
                        sql.push_str(&String::from_utf8_lossy(&value));
                        sql.push_str("')");
                    }
                    Some(value) => sql.push_str(&quote::text(&String::from_utf8_lossy(&value))),
                }
            }
            sql.push(')');
        }
        sql
    }
}

/// True if the server refuses a row for what is in it.
pub(crate) fn is_of_a_row(error: &ServerError) -> bool {
    /// Errors about values, among those whose SQLSTATE does not say so: truncated, no default, no partition, wrong value, wrong
    /// geometry, invalid text, wrong date, invalid JSON, check constraint, cannot add a row for a foreign key.
    const CODES: [u16; 14] = [1265, 1364, 1526, 1366, 1416, 1300, 1411, 1525, 3140, 3819, 1748, 1292, 1690, 3156];
    ["22", "23", "45"].iter().any(|class| error.sql_state.starts_with(class)) || CODES.contains(&error.code)
}

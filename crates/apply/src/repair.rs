//! Repairs: where a change of the source does not fit the replica's row, the row becomes as the source's is after the change.
//!
//! Only while a refused batch is applied row by row, one statement in flight, inside the transaction that then commits with
//! its checkpoint. All of it goes through replayed row events (or, in the SQL dialect, statements for tables without triggers),
//! which fire no trigger and, with checks off, follow no foreign key; only rows that hold another row's unique value are removed with SQL. They are
//! found by comparing the table with a scratch table of the same definition that holds the source's row: the server compares, with its own
//! collations.

use std::collections::HashMap;

use spate_binlog::{RowsKind, RowsVersion};
use spate_schedule::{RowChange, TableName};

use super::command::Change;
use super::emit::sql::one_row::{OneRow, RESTORE, SAVE, one_row};
use super::sessions::SessionMaker;
use super::sessions::refusal;
use spate_connection::{Connection, Vendor, quote};
use spate_replica::choice::{Dialect, DialectChoice};
use spate_replica::dialect::append_binlog;
use spate_replica::records;
use spate_replica::status::{REPAIRS_MAX, Repairs, push_bounded};
use spate_replica::{Error, Result};

const ROW_NOT_FOUND: u16 = 1032;
const DUPLICATE_KEY: u16 = 1062;

/// Keys of removed rows that a message names.
const REMOVED_SHOWN_MAX: usize = 5;

const SCRATCH_SCHEMA: &str = "spate";

const INCOMPLETE_ADVICE: &str = "The row cannot be repaired, since the source logged only a part of it: set binlog_row_image=FULL there. \
                                 Repair this one by hand, or leave the transaction out (--skip)";

/// Which refused row changes are repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairScope {
    /// All.
    All,
    /// Those of tables whose engine cannot roll back: an interruption may have left them half done.
    Irrevocable,
}

/// What a repair did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    /// The row to insert, or its new key, was there: it is now as on the source.
    Overwritten,
    /// The row to update was missing: it is there now.
    Inserted,
    /// The row to delete was missing.
    Absent,
    /// Other rows had the row's unique values: they are gone.
    Removed,
}

impl Repair {
    /// As `spate.repaired` has it.
    fn name(self) -> &'static str {
        match self {
            Repair::Overwritten => "overwritten",
            Repair::Inserted => "inserted",
            Repair::Absent => "absent",
            Repair::Removed => "removed",
        }
    }
}

/// Repairs refused row changes over the applier's own connection.
#[derive(Debug)]
pub(crate) struct Repairer<'a> {
    maker: SessionMaker<'a>,
    scope: RepairScope,
    choice: DialectChoice,
    /// Makes scratch tables, since DDL would commit the applier's transaction.
    other: Option<Connection>,
    /// Scratch tables of the open transaction.
    scratch: HashMap<TableName, String>,
    done: Repairs,
}

impl<'a> Repairer<'a> {
    /// A repairer that has done nothing yet.
    pub(crate) fn new(maker: SessionMaker<'a>, scope: RepairScope, choice: DialectChoice) -> Repairer<'a> {
        Repairer { maker, scope, choice, other: None, scratch: HashMap::new(), done: Repairs::default() }
    }

    /// Repairs what the replica refused. Returns what was done, in words.
    ///
    /// # Errors
    /// [`Error::Change`] if this cannot be repaired; any error of the connections.
    pub(crate) fn repair(
        &mut self,
        connection: &mut Connection,
        change: &Change,
        refusal: spate_connection::Error,
    ) -> Result<String> {
        let Some(row) = change.row.as_deref() else {
            let advice =
                "Only row changes can be repaired. Repair the replica by hand, or leave the transaction out (--skip)";
            return Err(unrepaired(change, refusal, advice));
        };
        if self.scope == RepairScope::Irrevocable && row.can_roll_back() {
            let advice = "Compare the replica with the source (spate verify)";
            return Err(unrepaired(change, refusal, advice));
        }
        let is_sql = self.dialect(row)? == Dialect::Sql;
        if is_sql {
            connection.execute(SAVE.as_bytes())?;
        }
        let repair = match (refusal.code(), row.kind()) {
            (Some(ROW_NOT_FOUND), RowsKind::Delete) => (Repair::Absent, String::new()),
            (Some(ROW_NOT_FOUND), RowsKind::Update) => {
                if !row.is_complete() {
                    return Err(unrepaired(change, refusal, INCOMPLETE_ADVICE));
                }
                let (_, removed) = self.put(connection, change, row, None)?;
                (Repair::Inserted, removed)
            }
            (Some(DUPLICATE_KEY), RowsKind::Insert) => self.put(connection, change, row, Some(refusal))?,
            (Some(DUPLICATE_KEY), RowsKind::Update) => {
                if !row.is_complete() {
                    return Err(unrepaired(change, refusal, INCOMPLETE_ADVICE));
                }
                if row.has_engine_actions() {
                    let advice = "An update in a table with CASCADE or SET NULL is not repaired, since the engine would not \
                                  follow it. Repair the replica by hand, or leave the transaction out (--skip)";
                    return Err(unrepaired(change, refusal, advice));
                }
                self.write(connection, change, row, &OneRow::DeleteBefore)??;
                self.put(connection, change, row, None)?
            }
            _ => {
                let advice =
                    "This cannot be repaired. Repair the replica by hand, or leave the transaction out (--skip)";
                return Err(unrepaired(change, refusal, advice));
            }
        };
        let (repair, removed) = repair;
        if is_sql {
            connection.execute(RESTORE.as_bytes())?;
        }
        let key = row.describe_key();
        connection.execute(records::repair_sql(row.table(), repair.name(), &change.place, &key).as_bytes())?;
        let what = match repair {
            Repair::Overwritten => "the row was there already and was overwritten",
            Repair::Inserted => "the row was missing and was inserted",
            Repair::Absent => "the row was missing already",
            Repair::Removed => "the row was inserted",
        };
        let message = format!("repaired {}: {}: {what}{removed}", change.place, change.what);
        self.done.count += 1;
        push_bounded(&mut self.done.latest, message.clone(), REPAIRS_MAX);
        Ok(message)
    }

    /// Writes a row, replayed or as a statement. The inner error is the replica's.
    fn write(
        &self,
        connection: &mut Connection,
        change: &Change,
        row: &RowChange,
        what: &OneRow,
    ) -> Result<spate_connection::Result<Written>> {
        let bad = |error| undecodable(change, error);
        if self.dialect(row)? == Dialect::Sql {
            let written = match one_row(row, what, self.choice.replica).map_err(bad)? {
                Some(statements) => execute(connection, &statements, what).map(|()| Written::Row),
                None => Ok(Written::HasNoKey),
            };
            return Ok(written);
        }
        let event = match what {
            OneRow::Insert => row.insert_event().map(Some),
            OneRow::InsertInto(name) => row.insert_into_event(&name.schema, &name.table).map(Some),
            OneRow::Overwrite => row.overwrite_event(),
            OneRow::DeleteBefore => row.delete_before_event().map(Some),
        };
        Ok(match event.map_err(bad)? {
            Some(event) => replay(connection, &event).map(|()| Written::Row),
            None => Ok(Written::HasNoKey),
        })
    }

    fn dialect(&self, row: &RowChange) -> Result<Dialect> {
        self.choice.choose(match row.version() {
            RowsVersion::V1 => Vendor::MariaDb,
            RowsVersion::V2 => Vendor::MySql,
        })
    }

    /// Returns the repairs of the transaction that was just committed.
    ///
    /// # Errors
    /// Any error of the connection that drops scratch tables.
    pub(crate) fn committed(&mut self) -> Result<Repairs> {
        for (_, scratch) in self.scratch.drain() {
            if let Some(other) = &mut self.other {
                other.execute(format!("DROP TABLE IF EXISTS {scratch}").as_bytes())?;
            }
        }
        Ok(std::mem::take(&mut self.done))
    }

    /// Makes the row be there, whatever it meets. `refusal`: an insert of it was refused already.
    fn put(
        &mut self,
        connection: &mut Connection,
        change: &Change,
        row: &RowChange,
        refusal: Option<spate_connection::Error>,
    ) -> Result<(Repair, String)> {
        if refusal.is_none() {
            match self.write(connection, change, row, &OneRow::Insert)? {
                Ok(_) => return Ok((Repair::Overwritten, String::new())),
                Err(error) if error.code() == Some(DUPLICATE_KEY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // An insert always tells enough: columns that it does not name have their defaults.
        if row.is_complete() {
            match self.write(connection, change, row, &OneRow::Overwrite)? {
                Ok(Written::Row) => return Ok((Repair::Overwritten, String::new())),
                Ok(Written::HasNoKey) => {}
                Err(error) if matches!(error.code(), Some(ROW_NOT_FOUND | DUPLICATE_KEY)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let removed = self.remove_colliding(connection, change, row)?;
        self.write(connection, change, row, &OneRow::Insert)?.map_err(|error| {
            let advice = "Rows that had its unique values were removed, and it still cannot be inserted. Repair the replica by hand";
            unrepaired(change, error, advice)
        })?;
        Ok((Repair::Removed, removed))
    }

    /// Removes every row that has a unique value of `row`. Returns words that say which.
    fn remove_colliding(&mut self, connection: &mut Connection, change: &Change, row: &RowChange) -> Result<String> {
        let table = row.table();
        self.check_triggers(connection, change, table)?;
        connection.execute(quote::hold_table(&table.schema, &table.table).as_bytes())?;
        let scratch = self.scratch_table(table)?;
        let table_name = scratch.trim_start_matches("spate.").trim_matches('`').to_owned();
        let name = TableName { schema: SCRATCH_SCHEMA.to_owned(), table: table_name };
        connection.execute(format!("DELETE FROM {scratch}").as_bytes())?;
        self.write(connection, change, row, &OneRow::InsertInto(name))??;
        let mut words = String::new();
        for key in unique_keys(connection, table)? {
            words += &remove_by_key(connection, row, &scratch, &key)?;
        }
        connection.execute(format!("DELETE FROM {scratch}").as_bytes())?;
        Ok(words)
    }

    /// SQL fires triggers, which the source's log of row changes has the effects of already.
    fn check_triggers(&self, connection: &mut Connection, change: &Change, table: &TableName) -> Result<()> {
        let place = format!(
            "EVENT_OBJECT_SCHEMA = {} AND EVENT_OBJECT_TABLE = {}",
            quote::text(&table.schema),
            quote::text(&table.table)
        );
        let refuse = |change: &Change, why: String, advice| {
            let error =
                spate_schedule::Error::Refused { what: format!("{} (a repair)", change.what), why: why + advice };
            Err(Error::Transaction { place: change.place.clone(), error })
        };
        if !spate_replica::privileges::may_see_triggers(connection, table)? {
            let why = format!("rows of {table} have its unique values and must go, which must not fire a trigger; ");
            return refuse(
                change,
                why,
                "so that Spate can see whether there is one, GRANT TRIGGER ON *.* TO <the user of Spate>",
            );
        }
        let sql = format!(
            "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE {place} AND EVENT_MANIPULATION = 'DELETE' LIMIT 1"
        );
        match connection.query(&sql)?.single_text() {
            None => Ok(()),
            Some(trigger) => {
                let why = format!(
                    "rows of {table} have its unique values and must go, which would fire the trigger {trigger}; "
                );
                refuse(change, why, "remove these rows by hand")
            }
        }
    }

    /// A table of the same definition as `table`, without its foreign keys and triggers.
    fn scratch_table(&mut self, table: &TableName) -> Result<String> {
        if let Some(scratch) = self.scratch.get(table) {
            return Ok(scratch.clone());
        }
        let scratch = format!("{SCRATCH_SCHEMA}.`repair_{}`", self.scratch.len() + 1);
        if self.other.is_none() {
            self.other = Some(self.maker.open()?);
        }
        if let Some(other) = &mut self.other {
            let like = quote::qualified(&table.schema, &table.table);
            other.execute(format!("DROP TABLE IF EXISTS {scratch};CREATE TABLE {scratch} LIKE {like}").as_bytes())?;
        }
        self.scratch.insert(table.clone(), scratch.clone());
        Ok(scratch)
    }
}

/// A unique key: its name, and its columns, each with the length of a prefix.
#[derive(Debug)]
struct UniqueKey {
    name: String,
    columns: Vec<(String, Option<String>)>,
}

fn unique_keys(connection: &mut Connection, table: &TableName) -> Result<Vec<UniqueKey>> {
    let rows = connection.query(&format!(
        "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        quote::text(&table.schema),
        quote::text(&table.table)
    ))?;
    let mut keys: Vec<UniqueKey> = Vec::new();
    for row in 0..rows.rows.len() {
        let name = rows.text_at(row, 0).unwrap_or_default();
        let column = (rows.text_at(row, 1).unwrap_or_default(), rows.text_at(row, 2));
        match keys.last_mut().filter(|key| key.name == name) {
            Some(key) => key.columns.push(column),
            None => keys.push(UniqueKey { name, columns: vec![column] }),
        }
    }
    Ok(keys)
}

/// Removes the row that is equal to the scratch table's in the columns of one key.
fn remove_by_key(connection: &mut Connection, row: &RowChange, scratch: &str, key: &UniqueKey) -> Result<String> {
    let table = quote::qualified(&row.table().schema, &row.table().table);
    let condition = key.columns.iter().map(|(column, prefix)| {
        let column = quote::identifier(column);
        match prefix {
            Some(length) => format!("LEFT({table}.{column}, {length}) = LEFT(s.{column}, {length})"),
            None => format!("{table}.{column} = s.{column}"),
        }
    });
    let joined = format!("{table} JOIN {scratch} AS s ON {}", condition.collect::<Vec<_>>().join(" AND "));
    let shown =
        row.key_columns().iter().map(|column| format!("{table}.{}", quote::identifier(column))).collect::<Vec<_>>();
    let shown = if shown.is_empty() { "'without a key'".to_owned() } else { shown.join(", ") };
    // Not as of the snapshot, which is older than the scratch table.
    let found = connection.query(&format!("SELECT {shown} FROM {joined} FOR UPDATE"))?;
    if found.rows.is_empty() {
        return Ok(String::new());
    }
    let describe = |at: usize| {
        let column = |(column, name): (usize, &&str)| {
            format!("{name}={}", found.text_at(at, column).unwrap_or_else(|| "NULL".to_owned()))
        };
        match row.key_columns().as_slice() {
            [] => "no key".to_owned(),
            columns => columns.iter().enumerate().map(column).collect::<Vec<_>>().join(", "),
        }
    };
    connection.execute(b"SET SESSION foreign_key_checks=0")?;
    let deleted = connection.execute(format!("DELETE {table} FROM {joined}").as_bytes());
    connection.execute(b"SET SESSION foreign_key_checks=1")?;
    deleted?;
    let shown: Vec<String> = (0..found.rows.len().min(REMOVED_SHOWN_MAX)).map(describe).collect();
    Ok(format!(", after removing the row with {}, which had its value of the key {}", shown.join(" and "), key.name))
}

/// What a statement for one row did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Row,
    /// Nothing: the table has no key to find the row by.
    HasNoKey,
}

fn replay(connection: &mut Connection, events: &[u8]) -> spate_connection::Result<()> {
    let mut sql = Vec::new();
    append_binlog(&mut sql, events);
    connection.execute(&sql).map(drop)
}

/// In the SQL dialect, a statement that finds no row says so by its count only.
fn execute(connection: &mut Connection, statements: &[Vec<u8>; 3], what: &OneRow) -> spate_connection::Result<()> {
    let [state, hold, write] = statements;
    connection.execute(state)?;
    connection.execute(hold)?;
    let outcome = connection.execute(write)?;
    let found = match (what, outcome.each.last()) {
        (OneRow::Overwrite, Some(statement)) => statement.matched_rows.unwrap_or(statement.affected_rows),
        (_, Some(statement)) => statement.affected_rows,
        (_, None) => 0,
    };
    match found {
        0 => Err(refusal(connection, ROW_NOT_FOUND, "the row was not found".to_owned())),
        _ => Ok(()),
    }
}

fn undecodable(change: &Change, error: spate_schedule::Error) -> Error {
    Error::Transaction { place: change.place.clone(), error }
}

fn unrepaired(change: &Change, source: spate_connection::Error, advice: &'static str) -> Error {
    if source.is_transient() || source.server_error().is_none() {
        return source.into();
    }
    let Change { place, what, has_shares, .. } = change.clone();
    Error::Change { has_shares, place, change: what, source, advice }
}

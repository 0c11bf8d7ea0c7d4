//! Temporary tables of the source's sessions live in the session that applies, and end with it: when the program stops or is
//! killed, when the replica's server is, when a connection breaks, when a batch has to be taken apart. What statements that come
//! later need of them is therefore kept in tables of Spate's own schema: a copy of each temporary table that was used in a
//! batch is made in the transaction of the batch, together with the checkpoint's move, so copies and checkpoint agree whatever
//! happens. A session begins by making the tables again.
//!
//! A copy is the table's definition and, for each row, a list of values as SQL text, made by the server itself. Before anything of a copy
//! is executed, `form` checks that it can do nothing but make this temporary table and its rows: everyone who may write to the schema
//! `spate` could have written it.

mod budget;
mod form;

use std::collections::BTreeSet;
use std::time::Instant;

use spate_schedule::TableName;
use spate_schedule::temporary::{TemporaryTable, TemporaryTables};
use spate_sql::{Lexer, Reading};

pub use budget::CopyBudget;
use budget::{COPY_BYTES_MAX, COPY_BYTES_PER_SECOND};
use form::BEGINNING;

use crate::checkpoint::APPLIER;
use crate::error::Result as ReplicaResult;
use crate::journal::without_counter;
use spate_connection::{Connection, ResultSet, ServerError, Vendor, quote};

/// The table of copied temporary tables.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.temporary_table (\
     applier INT UNSIGNED NOT NULL, \
     thread_id INT UNSIGNED NOT NULL COMMENT 'session on the source', \
     schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     definition LONGTEXT CHARACTER SET utf8mb4 NOT NULL, \
     column_names LONGTEXT CHARACTER SET utf8mb4 NOT NULL, \
     PRIMARY KEY (applier, thread_id, schema_name, table_name)) ENGINE=InnoDB \
     COMMENT='temporary tables of the source that exist at the checkpoint'";

/// The table of their rows. Values that are larger together than the server can join are NULL. A document of MySQL holds dates and other
/// types that no text tells; all of a row's are in an array.
pub(crate) const CREATE_ROWS: &str = "CREATE TABLE IF NOT EXISTS spate.temporary_row (\
     id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
     applier INT UNSIGNED NOT NULL, \
     thread_id INT UNSIGNED NOT NULL, \
     schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     column_values LONGBLOB, \
     documents JSON, \
     KEY of_table (applier, thread_id, schema_name, table_name)) ENGINE=InnoDB COMMENT='their rows'";

/// Under these, values become texts, and texts the same values again.
fn session_sql(connection: &Connection) -> &'static [u8] {
    match connection.server_version().vendor {
        Vendor::MariaDb => {
            b"SET SESSION time_zone='+00:00', sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', check_constraint_checks=0"
        }
        Vendor::MySql => b"SET SESSION time_zone='+00:00', sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'",
    }
}

fn afterwards_sql(connection: &Connection) -> &'static [u8] {
    match connection.server_version().vendor {
        Vendor::MariaDb => b"SET SESSION pseudo_thread_id=0, time_zone=DEFAULT, sql_mode='', check_constraint_checks=1",
        Vendor::MySql => b"SET SESSION pseudo_thread_id=0, time_zone=DEFAULT, sql_mode=''",
    }
}

/// ER_INVALID_CHARACTER_STRING.
const CODE_INVALID_CHARACTERS: u16 = 1300;

/// Where a session keeps which tables could not be made again in it.
const LOST: &str = "@spate_lost_temporary_tables";

/// Asks for them: see [`lost`].
pub const ASK_LOST: &str = "SELECT @spate_lost_temporary_tables";

/// Why a table without a definition cannot be made again.
const NOT_KEPT: &str = "it could not be kept";

/// Why a table is none of the source's. The session takes values that do not fit, with a warning.
const OTHER_ROWS: &str = "the server makes other rows of its copy";

/// Rows that are read at a time to be inserted again.
const ROWS_AT_A_TIME: usize = 200;

/// Bytes of an INSERT of several rows: enough that statements cost nothing, and well below `max_allowed_packet`.
const INSERT_BYTES: usize = 256 << 10;

/// Copies the tables that were used, and those that wait to be copied, as far as the budget allows; forgets those that are gone. To be
/// called within the batch's transaction, after its changes. Tables that cannot be copied are named to `tell`.
///
/// # Errors
/// Any error of the connection.
pub fn keep(
    connection: &mut Connection,
    tables: &TemporaryTables,
    budget: &mut CopyBudget,
    tell: impl Fn(&str),
) -> ReplicaResult<()> {
    let lost = lost(connection.query(ASK_LOST)?.single_text().unwrap_or_default().as_bytes());
    let kept = kept(connection)?;
    for gone in kept.difference(&tables.open) {
        connection.execute(forget_sql(gone).as_bytes())?;
    }
    for unnamed in tables.open.difference(&kept).filter(|table| table.is_unnamed()) {
        connection.execute(mark_lost_sql(unnamed).as_bytes())?;
    }
    budget.retain(&tables.open);
    connection.execute(session_sql(connection))?;
    let is_outdated = |table: &&TemporaryTable| tables.used_by.contains(&table.thread_id);
    for table in tables.open.iter().filter(|table| is_outdated(table) || budget.is_waiting(table)).collect::<Vec<_>>() {
        if table.is_unnamed() || budget.waits_on(table, Instant::now()) {
            continue;
        }
        let waited = budget.is_waiting(table);
        match copy(connection, table, budget) {
            Err(error) if is_refusal(&error) => {
                connection.execute(mark_lost_sql(table).as_bytes())?;
                tell(&format!("the source's temporary table {} would not outlive this session: {error}", table.name));
            }
            Ok(Copied::None) if lost.contains(table) => {
                connection.execute(mark_lost_sql(table).as_bytes())?;
            }
            Ok(Copied::TooLarge(_)) if waited => {}
            Ok(Copied::TooLarge(bytes)) => {
                connection.execute(mark_lost_sql(table).as_bytes())?;
                tell(&too_large(table, bytes));
            }
            Ok(Copied::Whole | Copied::None) => {}
            Err(error) => return Err(error.into()),
        }
    }
    connection.execute(afterwards_sql(connection))?;
    Ok(())
}

/// Makes the tables again that exist at the checkpoint. Tables that cannot be made are named to `tell`. To be called before the session
/// changes anything, and once it knows which server's changes it applies: MySQL takes the temporary tables of its sessions apart by
/// the source's server id too.
///
/// # Errors
/// Any error of the connection.
pub fn restore(connection: &mut Connection, tell: impl Fn(&str)) -> ReplicaResult<()> {
    connection.execute(session_sql(connection))?;
    let mut lost = String::new();
    for table in &kept(connection)? {
        let entry = format!("{}\n{}\n{}\n", table.thread_id, encoded(&table.name.schema), encoded(&table.name.table));
        if table.is_unnamed() {
            lost += &entry;
            continue;
        }
        let why = match make(connection, table) {
            Err(error) if is_refusal(&error) => error.to_string(),
            made => match made? {
                Ok(()) => continue,
                Err(why) if [NOT_KEPT, OTHER_ROWS].contains(&&*why) => why,
                Err(why) => format!("{why} (only Spate may write to the schema spate)"),
            },
        };
        connection.execute(drop_sql(table).as_bytes())?;
        lost += &entry;
        tell(&format!("the source's temporary table {:?} cannot be made again: {why}", table.name.to_string()));
    }
    connection.execute(afterwards_sql(connection))?;
    connection.execute(format!("SET {LOST}={}", quote::text(&lost)).as_bytes())?;
    connection.execute(b"COMMIT")?;
    Ok(())
}

/// Forgets all tables: the source's sessions have ended with it.
///
/// # Errors
/// Any error of the connection.
pub fn forget_all(connection: &mut Connection) -> ReplicaResult<()> {
    connection.execute(b"DELETE FROM spate.temporary_row; DELETE FROM spate.temporary_table")?;
    Ok(())
}

/// Which tables [`restore`] could not make again: from the answer to [`ASK_LOST`].
pub fn lost(answer: &[u8]) -> BTreeSet<TemporaryTable> {
    let text = String::from_utf8_lossy(answer);
    let parts: Vec<&str> = text.lines().collect();
    let table = |parts: &[&str]| {
        let name = TableName { schema: decoded(parts[1])?, table: decoded(parts[2])? };
        Some(TemporaryTable { thread_id: parts[0].parse().ok()?, name })
    };
    parts.chunks_exact(3).filter_map(table).collect()
}

/// A name without line ends.
fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn decoded(text: &str) -> Option<String> {
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// A refusal is no reason to stop: the table may never be used again, and a statement that uses it fails.
fn is_refusal(error: &spate_connection::Error) -> bool {
    error.server_error().is_some() && !error.is_transient()
}

/// The tables that exist at the checkpoint.
///
/// # Errors
/// Any error of the connection.
pub fn kept(connection: &mut Connection) -> ReplicaResult<BTreeSet<TemporaryTable>> {
    let rows = connection.query(&format!(
        "SELECT thread_id, schema_name, table_name FROM spate.temporary_table WHERE applier={APPLIER}"
    ))?;
    let table = |row| {
        let thread_id = rows.text_at(row, 0)?.parse().ok()?;
        let name = TableName { schema: rows.text_at(row, 1)?, table: rows.text_at(row, 2)? };
        Some(TemporaryTable { thread_id, name })
    };
    Ok((0..rows.rows.len()).filter_map(table).collect())
}

/// Which rows of both tables are about the table.
fn condition(table: &TemporaryTable) -> String {
    format!(
        "applier={APPLIER} AND thread_id={} AND schema_name={} AND table_name={}",
        table.thread_id,
        quote::text(&table.name.schema),
        quote::text(&table.name.table)
    )
}

fn forget_sql(table: &TemporaryTable) -> String {
    let condition = condition(table);
    format!("DELETE FROM spate.temporary_row WHERE {condition};DELETE FROM spate.temporary_table WHERE {condition}")
}

/// Keeps that the table exists on the source, and cannot be made again.
fn mark_lost_sql(table: &TemporaryTable) -> String {
    format!("{};INSERT INTO spate.temporary_table VALUES ({},'','')", forget_sql(table), key(table))
}

/// The key of both tables, as values.
fn key(table: &TemporaryTable) -> String {
    let (schema, name) = (quote::text(&table.name.schema), quote::text(&table.name.table));
    format!("{APPLIER},{},{schema},{name}", table.thread_id)
}

fn drop_sql(table: &TemporaryTable) -> String {
    let name = quote::qualified(&table.name.schema, &table.name.table);
    format!("SET SESSION pseudo_thread_id={};DROP TEMPORARY TABLE IF EXISTS {name}", table.thread_id)
}

/// The result of a copy.
enum Copied {
    Whole,
    /// There is no such table.
    None,
    /// It would take so many bytes, which is more than the budget has.
    TooLarge(u64),
}

fn too_large(table: &TemporaryTable, bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    format!(
        "the source's temporary table {} would not outlive this session for now: its copy takes {} MiB, and copies may write {} MiB at \
         once and {} KiB per second",
        table.name,
        bytes.div_ceil(MIB),
        COPY_BYTES_MAX / MIB,
        COPY_BYTES_PER_SECOND >> 10
    )
}

fn copy(
    connection: &mut Connection,
    table: &TemporaryTable,
    budget: &mut CopyBudget,
) -> spate_connection::Result<Copied> {
    connection.execute(format!("SET SESSION pseudo_thread_id={}", table.thread_id).as_bytes())?;
    let name = quote::qualified(&table.name.schema, &table.name.table);
    let Some(definition) = definition_of(connection, table)? else {
        connection.execute(forget_sql(table).as_bytes())?;
        return Ok(Copied::None);
    };
    let columns = columns_of(connection, table)?;
    let names = columns.names.join(",");
    let (row, documents) = (columns.row(), columns.documents());
    let key = key(table);
    let rows_bytes = connection.query(&format!(
        "SELECT SUM(IFNULL(LENGTH({row}),0) + IFNULL(LENGTH({documents}),0) + {}) FROM {name}",
        key.len()
    ))?;
    let rows_bytes: u64 = rows_bytes.single_text().and_then(|sum| sum.parse().ok()).unwrap_or_default();
    let bytes = rows_bytes.saturating_add((definition.len() + names.len() + key.len()) as u64);
    if !budget.take(table, bytes, Instant::now()) {
        return Ok(Copied::TooLarge(bytes));
    }
    let sql = format!(
        "{};INSERT INTO spate.temporary_table VALUES ({key},{},{});\
         INSERT INTO spate.temporary_row (applier,thread_id,schema_name,table_name,column_values,documents) \
         SELECT {key},{row},{documents} FROM {name}",
        forget_sql(table),
        quote::text(&definition),
        quote::text(&names),
    );
    connection.execute(sql.as_bytes())?;
    Ok(Copied::Whole)
}

/// The statement that creates the table as it is now; `None` if there is no such temporary table.
fn definition_of(connection: &mut Connection, table: &TemporaryTable) -> spate_connection::Result<Option<String>> {
    let name = quote::qualified(&table.name.schema, &table.name.table);
    let Some(definition) = shown(connection.query(&format!("SHOW CREATE TABLE {name}")))? else { return Ok(None) };
    let definition = whole_text(connection, &definition, 0, 1)?;
    // A server that does not tell upper from lower case shows the name in its own way.
    let Some(quoted) = definition.strip_prefix(BEGINNING) else { return Ok(None) };
    let reading = Reading::plain();
    let mut words = Lexer::new(quoted.as_bytes(), &reading);
    let rest = words.name().and_then(|_| quoted.get(words.end()..));
    Ok(rest.map(|rest| format!("{BEGINNING}{name}{rest}")))
}

/// The columns that a row is made of.
#[derive(Default)]
struct Columns {
    /// Their names, quoted.
    names: Vec<String>,
    /// For each an expression of its value as a literal.
    values: Vec<String>,
    /// The names of those that are documents.
    documents: Vec<String>,
}

impl Columns {
    /// An expression of a row's literals.
    fn row(&self) -> String {
        format!("CONCAT_WS(',',{})", self.values.join(","))
    }

    /// An expression of a row's documents; NULL if it can have none.
    fn documents(&self) -> String {
        match self.documents.as_slice() {
            [] => "NULL".to_owned(),
            names => format!("JSON_ARRAY({})", names.join(",")),
        }
    }
}

fn columns_of(connection: &mut Connection, table: &TemporaryTable) -> spate_connection::Result<Columns> {
    let name = quote::qualified(&table.name.schema, &table.name.table);
    let columns = connection.query(&format!("SHOW FULL COLUMNS FROM {name}"))?;
    let mut found = Columns::default();
    for row in 0..columns.rows.len() {
        // Field and Type.
        let (column, kind) = (whole_text(connection, &columns, row, 0)?, whole_text(connection, &columns, row, 1)?);
        if !columns.text(row, "Extra").unwrap_or_default().contains("GENERATED") {
            let column = quote::identifier(&column);
            found.values.push(format!("IFNULL({},'NULL')", literal(&kind, &column, found.documents.len())));
            if kind == JSON {
                found.documents.push(column.clone());
            }
            found.names.push(column);
        }
    }
    Ok(found)
}

/// A text of an answer, empty for NULL. Bytes that are not UTF-8 are refused: with others in their place, the table would be another.
fn whole_text(
    connection: &Connection,
    answer: &ResultSet,
    row: usize,
    column: usize,
) -> spate_connection::Result<String> {
    let bytes = answer.rows.get(row).and_then(|row| row.get(column)?.clone()).unwrap_or_default();
    String::from_utf8(bytes).map_err(|error| spate_connection::Error::Server {
        peer: connection.peer().clone(),
        error: ServerError {
            code: CODE_INVALID_CHARACTERS,
            sql_state: String::new(),
            message: format!("its definition is not UTF-8: {:?}", String::from_utf8_lossy(error.as_bytes())),
            statement: 0,
        },
    })
}

/// The type of MySQL's documents; MariaDB's are text.
const JSON: &str = "json";

/// An expression that is an SQL literal of the column's value, or NULL; of a document, where it is among those of the row.
fn literal(column_type: &str, column: &str, documents_before: usize) -> String {
    let kind: String = column_type.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
    match kind.to_ascii_lowercase().as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "year" => {
            format!("CAST({column} AS CHAR)")
        }
        "bit" | "enum" | "set" => format!("CAST(CAST({column} AS UNSIGNED) AS CHAR)"),
        // As text a FLOAT loses digits, as DOUBLE it does not; and a literal that is no text loses the sign of zero.
        "float" | "double" => format!("CONCAT('''',CAST({column} AS DOUBLE),'''')"),
        "date" | "time" | "datetime" | "timestamp" | "uuid" | "inet4" | "inet6" => {
            format!("CONCAT('''',{column},'''')")
        }
        JSON => format!("IF({column} IS NULL,NULL,'JSON_EXTRACT(documents,''$[{documents_before}]'')')"),
        _ => format!("CONCAT('x''',HEX({column}),'''')"),
    }
}

/// An answer, or `None` if there is no such table.
fn shown<T>(answer: spate_connection::Result<T>) -> spate_connection::Result<Option<T>> {
    match answer {
        Err(error) if is_refusal(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Makes a table as it was kept; the inner error says why its copy is none of Spate's.
fn make(connection: &mut Connection, table: &TemporaryTable) -> spate_connection::Result<Result<(), String>> {
    let condition = condition(table);
    let kept = connection.query(&format!("SELECT definition FROM spate.temporary_table WHERE {condition}"))?;
    let definition = kept.text_at(0, 0).unwrap_or_default();
    if definition.is_empty() {
        return Ok(Err(NOT_KEPT.to_owned()));
    }
    let checked = form::check_name(&table.name).and_then(|()| form::check_definition(&definition, &table.name));
    if checked.is_err() {
        return Ok(checked);
    }
    connection.execute(format!("SET SESSION pseudo_thread_id={}", table.thread_id).as_bytes())?;
    connection.execute_single(definition.as_bytes())?;
    let made = definition_of(connection, table)?;
    if made.as_deref().map(without_counter) != Some(without_counter(&definition)) {
        return Ok(Err("the server makes another table of its definition".to_owned()));
    }
    let columns = columns_of(connection, table)?;
    let name = quote::qualified(&table.name.schema, &table.name.table);
    if let Err(why) = fill(connection, &condition, &name, &columns)? {
        return Ok(Err(why));
    }
    let made = digest(connection, (&columns.row(), &columns.documents()), &name)?;
    let kept = digest(connection, ("column_values", "documents"), &format!("spate.temporary_row WHERE {condition}"))?;
    Ok(if made == kept { Ok(()) } else { Err(OTHER_ROWS.to_owned()) })
}

/// How many rows there are, and a digest of them in any order.
fn digest(
    connection: &mut Connection,
    (row, documents): (&str, &str),
    from: &str,
) -> spate_connection::Result<Vec<Vec<Option<Vec<u8>>>>> {
    let row = format!("CONCAT({row},IFNULL(CAST({documents} AS CHAR),''))");
    let number = format!("CAST(CONV(LEFT(SHA2({row},256),15),16,10) AS UNSIGNED)");
    Ok(connection.query(&format!("SELECT COUNT(*), SUM({number}) FROM {from}"))?.rows)
}

/// Inserts the kept rows of a table: many at once, or those with documents from where these are.
fn fill(
    connection: &mut Connection,
    condition: &str,
    name: &str,
    columns: &Columns,
) -> spate_connection::Result<Result<(), String>> {
    let insert = format!("INSERT INTO {name} ({})", columns.names.join(","));
    let (mut after, mut sql) = (0_u64, Vec::new());
    loop {
        let rows = connection.query(&format!(
            "SELECT id, column_values FROM spate.temporary_row WHERE {condition} AND id > {after} \
             ORDER BY id LIMIT {ROWS_AT_A_TIME}"
        ))?;
        for (number, row) in rows.rows.iter().enumerate() {
            let values = row.get(1).and_then(Option::as_deref).unwrap_or_default();
            if let Err(why) = form::check_row(values, columns.names.len()) {
                return Ok(Err(why));
            }
            after = rows.text_at(number, 0).and_then(|id| id.parse().ok()).unwrap_or(u64::MAX);
            if !columns.documents.is_empty() {
                let from = format!(" FROM spate.temporary_row WHERE id={after}");
                connection.execute_single(&[insert.as_bytes(), b" SELECT ", values, from.as_bytes()].concat())?;
                continue;
            }
            if !sql.is_empty() && sql.len() + values.len() > INSERT_BYTES {
                connection.execute_single(&std::mem::take(&mut sql))?;
            }
            match sql.is_empty() {
                true => sql.extend_from_slice(&[insert.as_bytes(), b" VALUES ("].concat()),
                false => sql.extend_from_slice(b",("),
            }
            sql.extend_from_slice(&[values, b")"].concat());
        }
        if rows.rows.len() < ROWS_AT_A_TIME {
            break;
        }
    }
    if !sql.is_empty() {
        connection.execute_single(&sql)?;
    }
    Ok(Ok(()))
}

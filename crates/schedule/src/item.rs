//! The parts of a batch, and the statements among them with everything that decides what they do.

use std::ops::Range;

use spate_binlog::header::{EventHeader, FLAG_SUPPRESS_USE, FLAG_THREAD_SPECIFIC};
use spate_binlog::load::{ExecuteLoadQuery, LoadDuplicates};
use spate_binlog::query::StatusVariables;
use spate_binlog::session::{IntvarEvent, RandEvent, UserVarEvent, UserVarValue};
use spate_binlog::{QueryEvent, Xid};
use spate_sql::{Reading, Servers, SqlText};

use crate::definition::TableName;
use crate::own_schema::{self, OwnSchema};
use crate::rewrite;
use crate::segment::Segment;
use crate::sequence::SequenceSetting;
use crate::statement::{self, StatementClass};
use crate::{Error, Result};

/// A part of a batch; parts are applied in order.
#[derive(Debug)]
pub enum Item {
    /// Row changes.
    Rows(Segment),
    /// A statement.
    Statement(Statement),
    /// A block of a file that a LOAD DATA will read.
    LoadBlock(FileBlock),
    /// A sequence is set by a statement.
    Sequence(SequenceSetting),
    /// Undoes what the batch has done so far, as far as it can be undone: the batch is one transaction that the source rolled
    /// back, but not without a trace.
    Undo,
    /// The source was restarted: its sessions are gone, and with them all of their temporary tables.
    SourceRestarted,
}

/// Why a transaction is a batch of its own: it cannot be undone, or not together with the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alone {
    /// A statement that commits by itself.
    Definition,
    /// CREATE TABLE … SELECT in row format: a statement that commits by itself, and then rows.
    CreateSelect,
    /// XA START to XA PREPARE: it stays prepared until another transaction ends it.
    XaPrepare(Xid),
    /// XA COMMIT or XA ROLLBACK of what was prepared before.
    XaEnd(Xid),
    /// Statements that may have changed tables whose engine cannot roll back.
    Irrevocable,
    /// It can be rolled back, and was; but values that it took from sequences stay taken.
    RolledBack,
    /// MySQL has created its temporary tables with another `explicit_defaults_for_timestamp`, which a session cannot set within a
    /// transaction.
    TimestampDefaults,
    /// Rows that it changes may keep its number: their table is system-versioned by transactions.
    Numbered,
}

/// A statement that is executed as SQL, with everything that decides what it does.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// When it began on the source, in seconds since 1970.
    pub timestamp_seconds: u32,
    /// The session on the source; temporary tables belong to it.
    pub thread_id: u32,
    /// Default database; empty if none.
    pub database: String,
    /// The session's state.
    pub status: StatusVariables,
    /// Values for the statement, in the order of the binlog.
    pub context: Vec<StatementContext>,
    /// The statement in the client's character set.
    pub sql: Vec<u8>,
    /// How its text is to be read.
    pub reading: Reading,
    /// Error that the statement ended with on the source, or 0.
    pub error_code: u16,
    /// The source says that it uses a temporary table, or something else of its session.
    pub is_thread_specific: bool,
    /// What kind of statement it is.
    pub class: StatementClass,
    /// The file that it loads.
    pub load: Option<LoadFile>,
}

/// The file of a LOAD DATA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFile {
    /// Which of the source's files.
    pub file_id: u32,
    /// Where in the statement it is named.
    pub name: Range<usize>,
    /// How duplicates are treated.
    pub duplicates: LoadDuplicates,
}

/// A block of a file that a LOAD DATA will read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBlock {
    /// Which of the source's files.
    pub file_id: u32,
    /// It begins the file; what an earlier file with this id held is of no use any more.
    pub is_first: bool,
    /// The file's next bytes.
    pub bytes: Vec<u8>,
}

/// A value that the next statement uses.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementContext {
    /// `LAST_INSERT_ID` or `INSERT_ID`.
    Intvar(IntvarEvent),
    /// `RAND_SEED1`, `RAND_SEED2`.
    Rand(RandEvent),
    /// A user variable: its name and value.
    UserVariable(String, OwnedUserValue),
}

/// [`UserVarValue`] with its own bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedUserValue {
    /// NULL.
    Null,
    /// Bytes and collation id.
    String(Vec<u8>, u32),
    /// A floating-point number.
    Real(f64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A decimal's text.
    Decimal(String),
}

impl Statement {
    /// True if it is known what a statement that loads a file has left behind: it ended at a row that was there already, and nothing but the
    /// rows before counts.
    pub fn ends_at_a_duplicate(&self) -> bool {
        /// With the number of the key, and with its name.
        const CODES: [u16; 2] = [1062, 1586];
        /// Bit of `sql_mode`: a 0 is one. Where the file has a NULL, the source has counted on, which nobody can tell from a 0 afterwards.
        const NO_AUTO_VALUE_ON_ZERO: u64 = 1 << 19;
        CODES.contains(&self.error_code) && self.status.sql_mode.unwrap_or_default() & NO_AUTO_VALUE_ON_ZERO == 0
    }

    /// The statement of a Query event, for servers that are to read it alike. `None` if all that it changes are tables of Spate's own.
    ///
    /// # Errors
    /// [`Error::Binlog`] if its session's state cannot be read; [`Error::Refused`] if it is not certain what it is, or how to
    /// make it what a replica has to execute.
    pub fn new(
        header: &EventHeader,
        query: QueryEvent<'_>,
        context: Vec<StatementContext>,
        servers: Servers,
    ) -> Result<Option<Statement>> {
        let status = StatusVariables::parse(query.status)?;
        let reading = status.reading(servers);
        let text = SqlText { sql: query.statement, reading: &reading };
        let refused = |why: String| Error::Refused { what: spate_sql::excerpt(query.statement), why };
        let unclear = |doubt| refused(spate_sql::edit::Refusal::Doubtful(doubt).to_string());
        let class = statement::classify(text).map_err(unclear)?;
        let database = default_database(header, &query, text)?;
        match own_schema::concern(text, class, database) {
            OwnSchema::Apart => {}
            OwnSchema::Only => return Ok(None),
            OwnSchema::Among => {
                let why = "it names the schema spate, which on a replica is Spate's own: what is in it is not replicated, and nothing \
                           that names it beside something else. Do on the replica by hand what it is to do there, and leave the \
                           transaction out";
                return Err(refused(why.to_owned()));
            }
        }
        let rewritten = rewrite::replicated(text, &status).map_err(|why| refused(why.to_string()))?;
        Ok(Some(Statement {
            timestamp_seconds: header.timestamp_seconds,
            thread_id: query.thread_id,
            database: database.to_owned(),
            context,
            sql: rewritten.unwrap_or_else(|| query.statement.to_vec()),
            error_code: query.error_code,
            is_thread_specific: header.flags & FLAG_THREAD_SPECIFIC != 0,
            class,
            load: None,
            status,
            reading,
        }))
    }

    fn memory_bytes(&self) -> usize {
        let context: usize = self.context.iter().map(StatementContext::memory_bytes).sum();
        size_of::<Statement>() + self.sql.len() + self.database.len() + context
    }

    /// Its text, and how to read it.
    pub fn text(&self) -> SqlText<'_> {
        SqlText { sql: &self.sql, reading: &self.reading }
    }

    /// The statement for a session that cannot have its default database, because no such database is there any more: another session of
    /// the source has dropped it meanwhile.
    ///
    /// # Errors
    /// [`Error::Refused`] if it asks which its default database is.
    pub fn without_database(&self) -> Result<Statement> {
        let refused = |why: String| Error::Refused { what: spate_sql::excerpt(&self.sql), why };
        let mut changed = Statement { database: String::new(), ..self.clone() };
        let unclear = |refusal: spate_sql::edit::Refusal| refused(refusal.to_string());
        // Servers write these themselves, at the end of a session or of a table that was there.
        if let Some(sql) = statement::drop_with_schemas(self.text(), &self.database).map_err(unclear)? {
            changed.sql = sql;
        } else if statement::without_default_schema(self.text()).map_err(unclear)?.is_some() {
            let why = format!("it asks for its default database, {}, which is not there any more", self.database);
            return Err(refused(why));
        }
        Ok(changed)
    }

    /// What drops a temporary table of a session of the source.
    pub(crate) fn dropping_temporary(thread_id: u32, name: &TableName) -> Statement {
        let sql = format!("DROP TEMPORARY TABLE IF EXISTS {}", statement::quoted(name)).into_bytes();
        Statement { thread_id, sql, class: StatementClass::Temporary, ..Statement::of_ours("") }
    }

    /// A statement that is not the source's, and does nothing yet.
    pub(crate) fn of_ours(database: &str) -> Statement {
        Statement {
            timestamp_seconds: 0,
            thread_id: 0,
            database: database.to_owned(),
            status: StatusVariables::default(),
            reading: Reading::plain(),
            context: vec![],
            sql: vec![],
            error_code: 0,
            is_thread_specific: false,
            class: StatementClass::Change,
            load: None,
        }
    }

    /// The statement of a LOAD DATA.
    ///
    /// # Errors
    /// As [`Statement::new`].
    pub fn loading(
        header: &EventHeader,
        load: ExecuteLoadQuery<'_>,
        context: Vec<StatementContext>,
        servers: Servers,
    ) -> Result<Option<Statement>> {
        let file = LoadFile { file_id: load.file_id, name: load.file_name, duplicates: load.duplicates };
        let statement = Statement::new(header, load.query, context, servers)?;
        Ok(statement.map(|statement| Statement { load: Some(file), ..statement }))
    }
}

/// The default database of a statement; empty if there is none.
///
/// # Errors
/// [`Error::Refused`] if it is not known what its name spells.
fn default_database<'a>(header: &EventHeader, query: &QueryEvent<'a>, text: SqlText<'_>) -> Result<&'a str> {
    // CREATE and DROP DATABASE name as default what need not exist; ALTER DATABASE, which may name none, what it alters.
    let is_usable = header.flags & FLAG_SUPPRESS_USE == 0 || statement::alters(text);
    let database = if is_usable { query.database } else { b"" };
    std::str::from_utf8(database).map_err(|_| Error::Refused {
        what: spate_sql::excerpt(query.statement),
        why: "the name of its default database is not in UTF-8".to_owned(),
    })
}

impl Item {
    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Item::Rows(segment) => segment.memory_bytes(),
            Item::Statement(statement) => statement.memory_bytes(),
            Item::LoadBlock(block) => block.bytes.len(),
            Item::Sequence(_) | Item::Undo | Item::SourceRestarted => 0,
        }
    }
}

impl StatementContext {
    pub(crate) fn memory_bytes(&self) -> usize {
        let value = match self {
            StatementContext::UserVariable(name, OwnedUserValue::String(bytes, _)) => name.len() + bytes.len(),
            StatementContext::UserVariable(name, _) => name.len(),
            _ => 0,
        };
        size_of::<StatementContext>() + value
    }

    /// # Errors
    /// [`Error::Refused`] if the variable's name cannot be told.
    pub(crate) fn user_variable(event: &UserVarEvent<'_>) -> Result<StatementContext> {
        let unclear = || Error::Refused {
            what: format!("the user variable @{}", event.name.escape_ascii()),
            why: "its name is not in UTF-8".to_owned(),
        };
        let name = std::str::from_utf8(event.name).map_err(|_| unclear())?.to_owned();
        let value = match event.value {
            UserVarValue::Null => OwnedUserValue::Null,
            UserVarValue::String { bytes, collation } => OwnedUserValue::String(bytes.to_vec(), collation),
            UserVarValue::Real(value) => OwnedUserValue::Real(value),
            UserVarValue::Signed(value) => OwnedUserValue::Signed(value),
            UserVarValue::Unsigned(value) => OwnedUserValue::Unsigned(value),
            UserVarValue::Decimal { precision, scale, bytes } => {
                OwnedUserValue::Decimal(spate_binlog::value::decimal_text(precision, scale, bytes))
            }
        };
        Ok(StatementContext::UserVariable(name, value))
    }
}

//! The parts of a batch, and the statements among them with all the state that decides their effect.

use std::ops::Range;

use spate_binlog::header::{EventHeader, FLAG_SUPPRESS_USE, FLAG_THREAD_SPECIFIC};
use spate_binlog::load::{ExecuteLoadQuery, LoadDuplicates};
use spate_binlog::query::StatusVariables;
use spate_binlog::session::{IntvarEvent, RandEvent, UserVarEvent, UserVarValue};
use spate_binlog::{QueryEvent, Xid};
use spate_sql::{Reading, Servers, SqlText};

use crate::definition::TableName;
use crate::own_schema::{self, OwnSchema};
use crate::rewrite::{self, EventStates};
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
    /// A sequence that SETVAL sets.
    Sequence(SequenceSetting),
    /// Rolls back the changes of the batch so far, as far as possible. The batch is one transaction that the source
    /// rolled back, but some of its effects stayed.
    Undo,
    /// The source was restarted: its sessions are gone, and with them all of their temporary tables.
    SourceRestarted,
}

/// The reason why a transaction is a batch of its own: it cannot be rolled back, or not together with the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alone {
    /// A statement that commits by itself.
    Definition,
    /// CREATE TABLE … SELECT in row format: a statement that commits by itself, and then rows.
    CreateSelect,
    /// XA START to XA PREPARE: it stays prepared until another transaction ends it.
    XaPrepare(Xid),
    /// XA COMMIT or XA ROLLBACK of a transaction that was prepared before.
    XaEnd(Xid),
    /// Statements that may have changed tables whose engine cannot roll back.
    Irrevocable,
    /// It can be rolled back, and was; but values that it took from sequences stay taken.
    RolledBack,
    /// MySQL has created its temporary tables with another `explicit_defaults_for_timestamp`, which a session cannot
    /// set within a transaction.
    TimestampDefaults,
    /// Rows that it changes may keep its number: their table is system-versioned by transactions.
    Numbered,
}

/// A statement that is executed as SQL, with all the state that decides its effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The time when it began on the source, in seconds since 1970.
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
    /// How to read its text.
    pub reading: Reading,
    /// Error that the statement ended with on the source, or 0.
    pub error_code: u16,
    /// True if the source says that it uses a temporary table, or other state of its session.
    pub is_thread_specific: bool,
    /// Its class.
    pub class: StatementClass,
    /// The file that it loads; `None` if it is not a LOAD DATA.
    pub load: Option<LoadFile>,
}

/// The file of a LOAD DATA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFile {
    /// The source's id of the file.
    pub file_id: u32,
    /// The bytes of the statement that name it.
    pub name: Range<usize>,
    /// How duplicates are treated.
    pub duplicates: LoadDuplicates,
}

/// A block of a file that a LOAD DATA will read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBlock {
    /// The source's id of the file.
    pub file_id: u32,
    /// True if it begins the file: it replaces an earlier file with this id.
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
    /// True if the result of a failed LOAD DATA is known: it ended at a row that existed already, and has loaded
    /// exactly the rows before that one.
    pub fn ends_at_a_duplicate(&self) -> bool {
        /// ER_DUP_ENTRY, and the same error with the name of the key.
        const CODES: [u16; 2] = [1062, 1586];
        /// The bit of `sql_mode` under which a 0 stays 0. For a NULL in the file, the source then generated a value,
        /// but afterwards the NULL cannot be distinguished from a 0.
        const NO_AUTO_VALUE_ON_ZERO: u64 = 1 << 19;
        CODES.contains(&self.error_code) && self.status.sql_mode.unwrap_or_default() & NO_AUTO_VALUE_ON_ZERO == 0
    }

    /// The statement of a Query event, for servers that must read it in the same way. `None` if it changes only Spate's
    /// own tables.
    ///
    /// # Errors
    /// [`Error::Binlog`] if its session's state cannot be read; [`Error::Refused`] if its class, or the text for the
    /// replica, is a doubt.
    pub fn new(
        header: &EventHeader,
        query: QueryEvent<'_>,
        context: Vec<StatementContext>,
        servers: Servers,
        events: EventStates,
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
                let why = "it names the schema spate, which on a replica is Spate's own, and also something else: Spate replicates no \
                           such statement, and nothing in that schema. Make its other changes on the replica by hand, and leave \
                           the transaction out (--skip)";
                return Err(refused(why.to_owned()));
            }
        }
        let rewritten = rewrite::rewrite_for_replica(text, &status, events).map_err(|why| refused(why.to_string()))?;
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

    /// The statement for a session without its default database, which no longer exists: another session of the source
    /// has dropped it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the statement asks for the name of its default database.
    pub fn without_database(&self) -> Result<Statement> {
        let refused = |why: String| Error::Refused { what: spate_sql::excerpt(&self.sql), why };
        let mut changed = Statement { database: String::new(), ..self.clone() };
        let unclear = |refusal: spate_sql::edit::Refusal| refused(refusal.to_string());
        // Servers write these themselves, at the end of a session, or to replace an existing table.
        if let Some(sql) = statement::drop_with_schemas(self.text(), &self.database).map_err(unclear)? {
            changed.sql = sql;
        } else if statement::without_default_schema(self.text()).map_err(unclear)?.is_some() {
            let why = format!("it asks for its default database, {}, which no longer exists", self.database);
            return Err(refused(why));
        }
        Ok(changed)
    }

    /// A statement that drops a temporary table of a session of the source.
    pub(crate) fn dropping_temporary(thread_id: u32, name: &TableName) -> Statement {
        let sql = format!("DROP TEMPORARY TABLE IF EXISTS {}", statement::quoted(name)).into_bytes();
        Statement { thread_id, sql, class: StatementClass::Temporary, ..Statement::of_ours("") }
    }

    /// An empty statement of Spate itself, for the caller to fill in.
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
        let statement = Statement::new(header, load.query, context, servers, EventStates::default())?;
        Ok(statement.map(|statement| Statement { load: Some(file), ..statement }))
    }
}

/// The default database of a statement; empty if there is none.
///
/// # Errors
/// [`Error::Refused`] if the characters of its name are unknown.
fn default_database<'a>(header: &EventHeader, query: &QueryEvent<'a>, text: SqlText<'_>) -> Result<&'a str> {
    // CREATE and DROP DATABASE name a default database that need not exist. ALTER DATABASE needs its default database,
    // which it alters if it names no other.
    let is_usable = header.flags & FLAG_SUPPRESS_USE == 0 || statement::alters(text);
    let database = if is_usable { query.database } else { b"" };
    std::str::from_utf8(database).map_err(|_| Error::Refused {
        what: spate_sql::excerpt(query.statement),
        why: "the name of its default database is not in UTF-8".to_owned(),
    })
}

impl Item {
    /// Its row changes. `None`: it is something else.
    pub fn rows(&self) -> Option<&Segment> {
        match self {
            Item::Rows(segment) => Some(segment),
            _ => None,
        }
    }

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
    /// [`Error::Refused`] if the characters of the variable's name are unknown.
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

//! SQL text for the applier: replay of row events, and statements with the context that the source gave them.

use std::collections::HashMap;

use spate_binlog::load::LoadDuplicates;
use spate_binlog::session::IntvarEvent;
use spate_schedule::item::{LoadFile, OwnedUserValue, Statement, StatementContext};
use spate_schedule::row_session::RowSession;
use spate_schedule::statement::StatementClass;

use spate_sql::edit::{self, Edit, Refusal};
use spate_sql::{Token, TokenKind};

use crate::asking::own_sql;
use crate::error::Result;
use crate::statement_state::StatementState;
use spate_connection::{Connection, ServerVersion, Vendor, quote};

/// Settings of every applier session: those that replay needs, and no more.
///
/// REPEATABLE READ, the servers' default: what was logged as a statement may refuse to run with less. Nobody but this applier
/// writes, so its gap locks are in nobody's way. It waits for locks on definitions, as native appliers wait for
/// a year. The rest undoes what the server's global settings could do to a replayed change.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;\
    SET SESSION TRANSACTION READ WRITE;\
    SET SESSION autocommit=1, sql_mode='', character_set_client=utf8mb4, collation_connection=utf8mb4_general_ci, foreign_key_checks=1, \
    unique_checks=1, wait_timeout=28800, lock_wait_timeout=31536000";

/// The same, for what only MariaDB has. Where the replica's own choice of how to alter a table cannot do what the source did, the
/// statement would fail.
const SESSION_MARIADB: &str =
    ", check_constraint_checks=1, system_versioning_alter_history=KEEP, alter_algorithm='DEFAULT'";

/// The same on MySQL. What it makes of tables without a primary key by itself would not be what the source has.
const SESSION_MYSQL: &str = ", sql_require_primary_key=0";

/// The same, for what sessions can set since MySQL 8.0.30.
const SESSION_MYSQL_8_0_30: &str = ", sql_generate_invisible_primary_key=0";

/// The same, for what sessions can set since MySQL 8.4: the source has let a foreign key refer to a key that is not unique.
const SESSION_MYSQL_8_4: &str = ", restrict_fk_on_non_standard_key=0";

/// The same, for what sessions can set since MySQL 9.7.
pub(crate) const SESSION_MYSQL_9_7: &str = ", enable_cascade_triggers=0";

/// The statements that make a session of the replica one of the applier's.
pub fn session_settings(version: &ServerVersion) -> String {
    let own = own_sql(version.vendor);
    if version.vendor == Vendor::MariaDb {
        return [SESSION, SESSION_MARIADB, &own].concat();
    }
    let since = |is_so: bool, settings: &'static str| if is_so { settings } else { "" };
    [
        SESSION,
        SESSION_MYSQL,
        since(version.has_invisible_keys(), SESSION_MYSQL_8_0_30),
        since(version.is_at_least(8, 4), SESSION_MYSQL_8_4),
        since(version.is_at_least(9, 7), SESSION_MYSQL_9_7),
        &own,
    ]
    .concat()
}

/// Which of the applier's sessions executes a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executing {
    /// The one that applies, whose silence ends it soon: see `applier_lock.rs`.
    Main,
    /// The one inside an XA transaction.
    Branch,
}

/// On MySQL, a session that was told of a source's format waits to be told the GTID of what it will do. What Spate commits has
/// GTIDs of the replica's own.
pub const OWN_GTIDS: &str = "SET SESSION gtid_next='AUTOMATIC'";

/// Which server the replayed rows come from, for a SET. Without it MySQL takes the columns of a generated invisible primary key for others
/// if the table has a functional index too, and refuses the rows with error 1105, `Unknown error`.
pub fn source_version_sql(source: &ServerVersion) -> String {
    format!("immediate_server_version={}", source.number())
}

/// The state in which a MySQL replica is to change rows as a source's session has.
pub fn row_session_sql(session: &RowSession) -> String {
    let zone = session.time_zone.as_ref().map(|zone| quote::text(&String::from_utf8_lossy(zone)));
    let zone = zone.unwrap_or_else(|| "DEFAULT".to_owned());
    format!("SET SESSION sql_mode={}, time_zone={zone}, lc_time_names={}", session.sql_mode, session.lc_time_names)
}

/// Undoes [`row_session_sql`].
pub const AFTER_ROW_SESSION: &str = "SET SESSION sql_mode='', time_zone=DEFAULT, lc_time_names=DEFAULT";

/// Has the server read statements byte by byte, which takes one twentieth of its time for replayed rows off: it looks for the end of a long literal, and
/// asks at each byte whether a character of several begins there. What it reads is the same: in UTF-8 no byte of a character is a quote, and neither names
/// nor literals are converted. The session stays so until something else than rows is executed.
pub const READ_BYTES: &str = "SET SESSION character_set_client=binary";

/// Undoes [`READ_BYTES`].
pub const READ_CHARACTERS: &str = "SET SESSION character_set_client=utf8mb4";

/// Appends `BINLOG '…'` with these events.
pub fn append_binlog(sql: &mut Vec<u8>, events: &[u8]) {
    sql.extend_from_slice(b"BINLOG '");
    base64_simd::STANDARD.encode_append(events, sql);
    sql.push(b'\'');
}

/// Bytes that [`append_binlog`] appends for so many bytes of events.
pub fn binlog_sql_bytes(event_bytes: usize) -> usize {
    b"BINLOG ''".len() + event_bytes.div_ceil(3) * 4
}

/// Where user variables keep the two halves of what is too large for one packet.
const HALF_VARIABLES: [&str; 2] = ["@spate_binlog_1", "@spate_binlog_2"];

/// Executes what the two halves hold together, and frees them.
pub const BINLOG_OF_HALVES: &[u8] =
    b"BINLOG @spate_binlog_1, @spate_binlog_2;SET @spate_binlog_1=NULL, @spate_binlog_2=NULL";

/// How many statements [`BINLOG_OF_HALVES`] are.
pub const BINLOG_OF_HALVES_STATEMENTS: usize = 2;

/// Where to cut so many bytes of events: the base64 texts of the two parts, one after the other, are that of the whole.
pub fn first_half(event_bytes: usize) -> usize {
    event_bytes.div_ceil(2).next_multiple_of(3).min(event_bytes)
}

/// Keeps the base64 text of one half of some events (0 or 1) for [`BINLOG_OF_HALVES`].
pub fn binlog_half_sql(half: usize, events: &[u8]) -> Vec<u8> {
    let mut sql = Vec::with_capacity(binlog_half_sql_bytes(events.len()));
    sql.extend_from_slice(b"SET ");
    sql.extend_from_slice(HALF_VARIABLES[half].as_bytes());
    sql.extend_from_slice(b"='");
    base64_simd::STANDARD.encode_append(events, &mut sql);
    sql.push(b'\'');
    sql
}

/// The length of the text of [`binlog_half_sql`] for so many bytes of events.
pub fn binlog_half_sql_bytes(event_bytes: usize) -> usize {
    "SET ".len() + HALF_VARIABLES[0].len() + "=''".len() + event_bytes.div_ceil(3) * 4
}

/// Names that the replica knows: collations and character sets by the ids that events carry, and variables.
#[derive(Debug, Clone, Default)]
pub struct Collations {
    names: HashMap<u32, (String, String)>,
    /// The replica's version.
    version: Option<ServerVersion>,
}

impl Collations {
    /// Reads the server's collations.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn read(connection: &mut Connection) -> Result<Collations> {
        // MariaDB's collations for any character set have a number, and a name that says which, only here.
        let version = connection.server_version();
        let sql = match version.vendor == Vendor::MariaDb && version.is_at_least(10, 10) {
            true => {
                "SELECT FULL_COLLATION_NAME, CHARACTER_SET_NAME, ID \
                 FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
            }
            false => "SHOW COLLATION",
        };
        let rows = connection.query(sql)?;
        let mut names = HashMap::new();
        for row in 0..rows.rows.len() {
            let (Some(name), Some(charset)) = (rows.text_at(row, 0), rows.text_at(row, 1)) else { continue };
            if let Some(id) = rows.text_at(row, 2).and_then(|id| id.parse().ok()) {
                names.insert(id, (charset, name));
            }
        }
        Ok(Collations { names, version: Some(connection.server_version().clone()) })
    }

    /// The replica's version; `None` in tests.
    pub(crate) fn version(&self) -> Option<&ServerVersion> {
        self.version.as_ref()
    }

    /// True if the replica is of MySQL.
    pub fn is_mysql(&self) -> bool {
        self.version.as_ref().is_some_and(|version| version.vendor == Vendor::MySql)
    }

    /// Sessions can choose whether rows that foreign keys change or delete meet triggers.
    pub(crate) fn has_cascade_triggers(&self) -> bool {
        self.version.as_ref().is_some_and(ServerVersion::has_cascade_triggers)
    }

    /// Sessions can choose the default collation of each character set.
    pub(crate) fn has_collations_of_charsets(&self) -> bool {
        self.version.as_ref().is_some_and(|version| version.vendor == Vendor::MariaDb && version.is_at_least(11, 2))
    }

    /// What `character_set_collations` is set to, from pairs of ids of two bytes: any collation of the character set, and its default.
    pub(crate) fn of_charsets(&self, pairs: &[u8]) -> String {
        let id = |bytes: &[u8]| u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        let pair = |pair: &[u8]| {
            let collation = id(&pair[2..]);
            let name = self.names.get(&collation).map_or_else(|| collation.to_string(), |(_, name)| name.clone());
            format!("{}={name}", self.charset(id(pair)))
        };
        pairs.chunks_exact(4).map(pair).collect::<Vec<_>>().join(",")
    }

    /// The character set of a collation, as SET takes it.
    pub(crate) fn charset(&self, collation: u32) -> String {
        self.names.get(&collation).map_or_else(|| collation.to_string(), |(charset, _)| charset.clone())
    }
}

/// The statements that execute one of the source's, in order. Each is to be sent as one statement: names, values and the text
/// itself come from the source.
#[derive(Debug)]
pub struct StatementSql {
    /// The session's default schema, the values that the statement uses, and the session's state.
    pub before: Vec<Vec<u8>>,
    /// The statement.
    pub sql: Vec<u8>,
    /// Undoes the session's settings.
    pub after: Vec<u8>,
}

/// The statements to execute for `statement`.
///
/// # Errors
/// Why a session of the replica cannot be brought into the state of the source's.
pub fn statement_sql(
    statement: &Statement,
    collations: &Collations,
    executing: Executing,
) -> std::result::Result<StatementSql, String> {
    let mut before = Vec::new();
    if !statement.database.is_empty() {
        before.push(format!("USE {}", quote::identifier(&statement.database)).into_bytes());
    }
    // MySQL gives a number in a variable the session's collation when it is set.
    let connection = statement.status.charset.map(|(_, connection, _)| format!("collation_connection={connection}"));
    let has_variables = statement.context.iter().any(|context| matches!(context, StatementContext::UserVariable(..)));
    if let Some(connection) = connection.as_ref().filter(|_| has_variables) {
        before.push(format!("SET SESSION {connection}").into_bytes());
    }
    let connection = connection.unwrap_or_else(|| "collation_connection=utf8mb4_general_ci".to_owned());
    for context in &statement.context {
        before.extend(context_sql(context, collations, &connection)?);
    }
    let commits = statement.class == StatementClass::Definition;
    let StatementState { before: state, after } = StatementState::of(statement, collations, executing);
    // Last, because it changes how the server reads the statements after it.
    before.push(state.into_bytes());
    let sql = if commits { definition_sql(statement, collations) } else { statement.sql.clone() };
    Ok(StatementSql { before, sql, after: after.into_bytes() })
}

/// The text of a definition, as a client is to send it.
pub fn definition_sql(statement: &Statement, collations: &Collations) -> Vec<u8> {
    match collations.is_mysql() && ends_with_semicolon(statement) {
        true => [&statement.sql, &b" /**/"[..]].concat(),
        false => statement.sql.clone(),
    }
}

/// True if the last token is a semicolon. MySQL takes it away from what a client sends, but not from what a replica executes, and it is a
/// part of a program's body.
fn ends_with_semicolon(statement: &Statement) -> bool {
    statement.sql.ends_with(b";") && statement.text().tokens().last().is_some_and(|last| last.is_mark(b';'))
}

/// The statement of a LOAD DATA, with the file that it names replaced by one that this session sends.
///
/// # Errors
/// It is none that a server writes, or it cannot be changed with certainty.
pub fn load_sql(statement: &Statement, load: &LoadFile) -> std::result::Result<Vec<u8>, Refusal> {
    let tokens = edit::tokens(&statement.sql, &statement.reading).map_err(Refusal::Doubtful)?;
    let is_before = |token: &&Token<'_>| token.range().end <= load.name.start;
    let is_within = |token: &&Token<'_>| token.start < load.name.end;
    let head: Vec<&Token<'_>> = tokens.iter().take_while(is_before).collect();
    let named: Vec<&Token<'_>> = tokens.iter().skip_while(is_before).take_while(is_within).collect();
    let is_head = match head.as_slice() {
        [load, data] => load.is("LOAD") && data.is("DATA"),
        [load, data, priority] => {
            load.is("LOAD") && data.is("DATA") && priority.is_one_of(&["LOW_PRIORITY", "CONCURRENT"])
        }
        _ => false,
    };
    let named = match named.as_slice() {
        [local, named @ ..] if local.is("LOCAL") => named,
        named => named,
    };
    let is_file = match named {
        [infile, file, duplicates @ .., into] => {
            let are_duplicates = match duplicates {
                [] => true,
                [one] => one.is_one_of(&["REPLACE", "IGNORE"]),
                _ => false,
            };
            infile.is("INFILE") && file.kind == TokenKind::Text && are_duplicates && into.is("INTO")
        }
        _ => false,
    };
    if !is_head || !is_file {
        return Err(Refusal::Different);
    }
    // A local file's duplicates are ignored unless they are replaced; whether there were any, the answer tells.
    let text: &[u8] = match load.duplicates {
        LoadDuplicates::Replace => b" LOCAL INFILE 'spate' REPLACE INTO",
        LoadDuplicates::Ignore => b" LOCAL INFILE 'spate' IGNORE INTO",
        LoadDuplicates::Fail => b" LOCAL INFILE 'spate' INTO",
    };
    edit::apply(&statement.sql, &[Edit { range: load.name.clone(), text: text.to_vec() }], &statement.reading)
}

fn context_sql(
    context: &StatementContext,
    collations: &Collations,
    connection: &str,
) -> std::result::Result<Vec<Vec<u8>>, String> {
    let sql = match context {
        StatementContext::Intvar(IntvarEvent::LastInsertId(id)) => format!("SET LAST_INSERT_ID={id}"),
        StatementContext::Intvar(IntvarEvent::InsertId(id)) => format!("SET INSERT_ID={id}"),
        StatementContext::Rand(seeds) => format!("SET RAND_SEED1={}, RAND_SEED2={}", seeds.seed1, seeds.seed2),
        StatementContext::UserVariable(name, value) => {
            let name = quote::identifier(name);
            if let OwnedUserValue::String(bytes, collation) = value
                && let Some((charset, collation)) = collations.names.get(collation)
                && !is_well_formed(bytes, charset)
            {
                return Ok(malformed_text_sql(&name, bytes, (charset, collation), connection));
            }
            let value = user_value_sql(value, collations).map_err(|why| format!("the user variable @{name} {why}"))?;
            format!("SET @{name}:={value}")
        }
    };
    Ok(vec![sql.into_bytes()])
}

/// False if a text does not keep to its character set. (Only a client's own literals can: conversions see to it.)
fn is_well_formed(bytes: &[u8], charset: &str) -> bool {
    match (charset, std::str::from_utf8(bytes)) {
        ("utf8mb4", text) => text.is_ok(),
        ("utf8mb3" | "utf8", Ok(text)) => text.chars().all(|character| character.len_utf8() < 4),
        ("utf8mb3" | "utf8", Err(_)) => false,
        _ => true,
    }
}

/// Sets a variable as the source's client did, which the server does not look at as closely as at a literal with a character
/// set of its own. The character sets are those of UTF-8, in which no byte of a character, whole or torn, is a quote or a backslash;
/// and the session's `sql_mode` is empty.
fn malformed_text_sql(name: &str, bytes: &[u8], (charset, collation): (&str, &str), connection: &str) -> Vec<Vec<u8>> {
    let mut sql = format!("SET @{name}:='").into_bytes();
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => sql.extend_from_slice(&[b'\\', byte]),
            0 => sql.extend_from_slice(b"\\0"),
            _ => sql.push(byte),
        }
    }
    sql.push(b'\'');
    vec![
        format!("SET SESSION character_set_client={charset}, collation_connection={collation}").into_bytes(),
        sql,
        format!("SET SESSION character_set_client=utf8mb4, {connection}").into_bytes(),
    ]
}

/// # Errors
/// Why no literal says it.
fn user_value_sql(value: &OwnedUserValue, collations: &Collations) -> std::result::Result<String, String> {
    Ok(match value {
        OwnedUserValue::Null => "NULL".to_owned(),
        OwnedUserValue::Signed(value) => value.to_string(),
        // A literal alone has no sign only if it is too large for one that has.
        OwnedUserValue::Unsigned(value) => format!("CAST({value} AS UNSIGNED)"),
        // Seventeen digits make the same double again; the exponent makes it a double and not a decimal.
        OwnedUserValue::Real(value) if value.is_finite() => format!("{value:.17e}"),
        OwnedUserValue::Real(value) => return Err(format!("is {value}, which no literal of the replica says")),
        OwnedUserValue::Decimal(text) if text.contains('.') => text.clone(),
        OwnedUserValue::Decimal(text) => format!("CAST({text} AS DECIMAL(65))"),
        OwnedUserValue::String(bytes, collation) => match collations.names.get(collation) {
            // Its only collation, and a word that the grammar does not take after COLLATE.
            Some((charset, _)) if charset == "binary" => quote::bytes(bytes),
            Some((charset, name)) => format!("_{charset} {} COLLATE {name}", quote::bytes(bytes)),
            None => return Err(format!("has the collation {collation}, which the replica does not know")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_variable_without_literal_is_refused() {
        let collations = Collations::default();
        for unsayable in [OwnedUserValue::Real(f64::NAN), OwnedUserValue::String(b"x".to_vec(), 4711)] {
            assert!(user_value_sql(&unsayable, &collations).is_err(), "{unsayable:?}");
        }
        let decimal = |text: &str| user_value_sql(&OwnedUserValue::Decimal(text.into()), &collations).unwrap();
        assert_eq!((decimal("5.0"), decimal("-5")), ("5.0".to_owned(), "CAST(-5 AS DECIMAL(65))".to_owned()));
        assert_eq!(user_value_sql(&OwnedUserValue::Real(0.5), &collations).unwrap(), "5.00000000000000000e-1");
    }

    #[test]
    fn two_halves_make_the_whole_statement() {
        for length in (0..20).chain([1000, 1001, 1002]) {
            let events: Vec<u8> = (0..length).map(|index| (index * 37 % 251) as u8).collect();
            let mut whole = Vec::new();
            append_binlog(&mut whole, &events);
            assert_eq!(whole.len(), binlog_sql_bytes(events.len()));
            let (first, second) = events.split_at(first_half(events.len()));
            assert!((0..6).contains(&(first.len() - second.len())), "{length}");
            let texts = [first, second].map(|events| base64_simd::STANDARD.encode_to_string(events)).concat();
            assert_eq!(whole, format!("BINLOG '{texts}'").into_bytes(), "{length}");
            let sql = binlog_half_sql(1, first);
            assert_eq!(sql.len(), binlog_half_sql_bytes(first.len()));
            assert!(BINLOG_OF_HALVES.starts_with(b"BINLOG @spate_binlog_1, @spate_binlog_2;"));
        }
    }
}

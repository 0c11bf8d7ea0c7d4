//! Statements of one vendor for a server of the other: passed on where both mean the same by them, translated where this table of
//! differences says how, refused where they would mean something else, or nothing.
//!
//! Syntax that is not in the table and that the other server does not know is that server's error, and stops replication as well: nothing
//! is left out silently. So the table holds syntax that the other server would *misunderstand*, and what is worth a better message or a
//! translation.
//!
//! | MariaDB → MySQL | |
//! | --- | --- |
//! | collations `…_uca1400_…`, `utf8mb4_…_nopad_…` | the closest of `utf8mb4_0900_…` |
//! | `CHARACTER SET utf8mb4` without a collation | `utf8mb4_general_ci`; `utf8mb4_0900_ai_ci` from MariaDB 11.5 on, whose own is `uca1400` |
//! | `ENGINE=Aria`, `TRANSACTIONAL=…`, `PAGE_CHECKSUM=…`, `PAGE_COMPRESSED=…` | `ENGINE=InnoDB`; left out |
//! | `COMPRESSED` columns | not compressed |
//! | a function as a default; a constant, of a BLOB, a TEXT or JSON | in brackets |
//! | `CREATE OR REPLACE` of anything but a view, `IF [NOT] EXISTS` within ALTER and of indexes | refused |
//! | sequences, system versioning, application-time periods, packages | refused |
//!
//! | MySQL → MariaDB | |
//! | --- | --- |
//! | collations `utf8mb4_…0900_…` | the closest of `utf8mb4_uca1400_nopad_…` |
//! | `CHARACTER SET utf8mb4` without a collation | the closest of the session's, `utf8mb4_0900_ai_ci` if it was not changed |
//! | `SRID n` of a column | `REF_SYSTEM_ID=n` |
//! | `VISIBLE`, `ENCRYPTION='N'`, `START TRANSACTION` behind CREATE TABLE | left out |
//! | indexes `INVISIBLE` | `IGNORED` |
//! | `CONVERT TO CHARACTER SET` | in strict mode: MariaDB may lose values of ENUM and SET |
//!
//! | both | |
//! | --- | --- |
//! | `ALGORITHM=…`, `LOCK=…` of an alteration | `DEFAULT`: how one server does it says nothing of the other |
//! | columns of JSON that become NOT NULL in a table that is there, without a default | refused: rows get '' or `null` |
//! | columns that become of another type, whose values the vendors convert in different ways (see `conversions`) | refused |
//! | statements that change rows | refused: they need `binlog_format=ROW` |
//! | accounts with passwords | refused: passwords are kept in other forms |
//! | comments that only some versions execute | refused |

mod conversions;
mod defaults;

use spate_binlog::query::StatusVariables;
use spate_schedule::item::Statement;
use spate_schedule::statement::StatementClass;

pub use self::conversions::{question, redefinitions};
use spate_sql::edit::{self, Edit as TextEdit};
use spate_sql::{SqlText, Token, TokenKind};

use spate_connection::{ServerVersion, Vendor};

/// Why a statement is refused.
pub type Refusal = &'static str;

/// Why a statement of which not all is certain is refused.
const UNCLEAR: Refusal = "its text cannot be read with certainty: write the statement without comments that only some servers execute, and in UTF-8";

/// Why a statement is refused of which a translation would be another statement.
const NOT_TRANSLATED: Refusal = "its translation would be another statement";

/// Modes of `sql_mode` that mean the same to both vendors, by their bits.
const SHARED_MODES: u64 = 0b1110_1111_1111_1100_0000_0000_1110_1111;

/// MariaDB's mode ORACLE changes the grammar.
const MODE_ORACLE: u64 = 1 << 9;

/// STRICT_TRANS_TABLES and STRICT_ALL_TABLES.
const MODE_STRICT: u64 = 1 << 21 | 1 << 22;

/// A statement's text for a replica of another vendor than its source.
///
/// # Errors
/// Why it is refused.
pub fn translated(statement: &Statement, replica: Vendor, source: &ServerVersion) -> Result<Statement, Refusal> {
    if replica == Vendor::MySql && statement.status.sql_mode.is_some_and(|mode| mode & MODE_ORACLE != 0) {
        return Err("it was executed in the mode ORACLE, which only MariaDB has");
    }
    let sql = match statement.class {
        StatementClass::Definition => definition(statement.text(), replica, default_collation(&statement.status))?,
        StatementClass::Savepoint | StatementClass::Xa | StatementClass::XaEnd => statement.sql.clone(),
        StatementClass::Change => {
            return Err(
                "the other vendor's server may make other changes of it: SET GLOBAL binlog_format=ROW on the source",
            );
        }
        StatementClass::Temporary => {
            return Err("temporary tables are of no use without statements: they need binlog_format=ROW");
        }
    };
    let mut status = status(&statement.status, replica, source);
    let is_converted = |text: SqlText<'_>| tokens(text).map(|tokens| converts(&tokens));
    if replica == Vendor::MariaDb
        && statement.class == StatementClass::Definition
        && is_converted(SqlText { sql: &sql, reading: &statement.reading })?
    {
        status.sql_mode = status.sql_mode.map(|mode| mode | MODE_STRICT);
    }
    Ok(Statement { sql, status, ..statement.clone() })
}

/// The session in which a statement was executed, as a server of the other vendor has it.
fn status(status: &StatusVariables, replica: Vendor, source: &ServerVersion) -> StatusVariables {
    const GENERAL_UTF8MB4: u16 = 45;
    /// Of `flags2`: MariaDB's bit of explicit_defaults_for_timestamp, and the bits that both vendors have.
    const EXPLICIT_DEFAULTS: u32 = 1 << 24;
    const SHARED_FLAGS: u32 = 1 << 14 | 1 << 26 | 1 << 27;
    let closest = |id: u16| closest_collation(u32::from(id), replica) as u16;
    let flags = status.flags2.unwrap_or(0);
    let is_explicit = match replica {
        Vendor::MySql => flags & EXPLICIT_DEFAULTS != 0,
        // MySQL's default.
        Vendor::MariaDb => status.explicit_defaults_for_timestamp.unwrap_or(true),
    };
    let explicit_bit = if replica == Vendor::MariaDb && is_explicit { EXPLICIT_DEFAULTS } else { 0 };
    StatusVariables {
        sql_mode: status.sql_mode.map(shared_modes),
        flags2: Some(flags & SHARED_FLAGS | explicit_bit),
        charset: status
            .charset
            .map(|(client, connection, server)| (closest(client), closest(connection), closest(server))),
        charset_database: status.charset_database.map(closest),
        explicit_defaults_for_timestamp: Some(is_explicit),
        default_collation_for_utf8mb4: (replica == Vendor::MySql && !source.is_at_least(11, 5))
            .then_some(GENERAL_UTF8MB4),
        ..status.clone()
    }
}

/// The modes that a statement was executed with, as far as a server of the other vendor has them.
pub fn shared_modes(sql_mode: u64) -> u64 {
    sql_mode & SHARED_MODES
}

/// The closest collation by its number on a server of this vendor, for numbers that only the other vendor's servers know.
pub fn closest_collation(id: u32, replica: Vendor) -> u32 {
    const GENERAL_UTF8MB3: u32 = 33;
    const GENERAL_UTF8MB4: u32 = 45;
    const UNICODE_900: u32 = 255;
    const UNICODE_520_NOPAD: u32 = 1270;
    match (replica, id) {
        (Vendor::MariaDb, 255..=323) => UNICODE_520_NOPAD,
        // MariaDB numbers collations without padding 1,024 above those with, and those of Unicode 14 by character set.
        (Vendor::MySql, 1024..=2047) => id - 1024,
        (Vendor::MySql, 2048..=2303) => GENERAL_UTF8MB3,
        (Vendor::MySql, 2304..=2559) => UNICODE_900,
        (Vendor::MySql, 2560..) => GENERAL_UTF8MB4,
        _ => id,
    }
}

/// True for `CONVERT TO CHARACTER SET`. MariaDB loses the values of ENUM and SET on the way to and from character sets without
/// bytes of ASCII, such as ucs2, and says so only in strict mode, where it is an error.
fn converts(tokens: &[Token<'_>]) -> bool {
    tokens.windows(3).any(|words| {
        words[0].is("CONVERT")
            && words[1].is("TO")
            && ["CHARACTER", "CHARSET", "CHAR"].iter().any(|word| words[2].is(word))
    })
}

/// The edit of a token.
enum Edit {
    Keep,
    Replace(String),
    /// A bracket before it, or behind it.
    Bracket {
        opens: bool,
        closes: bool,
    },
}

/// The collation that a MySQL session gives to utf8mb4 where none is named, as MariaDB calls it.
fn default_collation(status: &StatusVariables) -> &'static str {
    const GENERAL: u16 = 45;
    match status.default_collation_for_utf8mb4 {
        Some(GENERAL) => "utf8mb4_general_ci",
        _ => "utf8mb4_uca1400_nopad_ai_ci",
    }
}

/// The tokens of a statement of which all is certain.
///
/// # Errors
/// [`UNCLEAR`].
fn tokens(text: SqlText<'_>) -> Result<Vec<Token<'_>>, Refusal> {
    edit::tokens(text.sql, text.reading).map_err(|_| UNCLEAR)
}

/// The name or text of a token, without its quotes. Empty if it is not known.
fn spelled(token: &Token<'_>) -> String {
    match token.kind {
        TokenKind::Mark(_) => String::new(),
        _ => token.unquoted().unwrap_or_default(),
    }
}

fn definition(text: SqlText<'_>, replica: Vendor, utf8mb4: &str) -> Result<Vec<u8>, Refusal> {
    let tokens = tokens(text)?;
    refuse(&tokens, replica)?;
    let mut edits: Vec<Edit> = tokens.iter().map(|_| Edit::Keep).collect();
    collations(&tokens, replica, &mut edits)?;
    methods(&tokens, &mut edits);
    match replica {
        Vendor::MySql => for_mysql(&tokens, &mut edits),
        Vendor::MariaDb => {
            for_mariadb(&tokens, &mut edits);
            name_collations(&tokens, utf8mb4, &mut edits);
        }
    }
    let mut changes = Vec::new();
    let mut insert = |at: usize, text: &str| changes.push(TextEdit { range: at..at, text: text.into() });
    let mut replacements = Vec::new();
    for (token, edit) in tokens.iter().zip(edits) {
        match edit {
            Edit::Keep => {}
            Edit::Replace(text) => replacements.push(TextEdit { range: token.range(), text: text.into() }),
            Edit::Bracket { opens, closes } => {
                if opens {
                    insert(token.start, "(");
                }
                if closes {
                    insert(token.range().end, ")");
                }
            }
        }
    }
    changes.extend(replacements);
    changes.sort_by_key(|change| change.range.start);
    edit::apply(text.sql, &changes, text.reading).map_err(|_| NOT_TRANSLATED)
}

fn refuse(tokens: &[Token<'_>], replica: Vendor) -> Result<(), Refusal> {
    let words: Vec<&Token<'_>> = tokens.iter().collect();
    let is = |at: usize, word: &str| words.get(at).is_some_and(|token| token.is(word));
    let has = |sequence: &[&str]| {
        (0..words.len()).any(|start| sequence.iter().enumerate().all(|(offset, word)| is(start + offset, word)))
    };
    let is_account = ["USER", "ROLE"].iter().any(|word| is(1, word)) || is(0, "GRANT") || is(0, "SET");
    if is_account && (has(&["IDENTIFIED"]) || has(&["PASSWORD"])) {
        return Err(
            "the vendors keep passwords in other forms: make the account on the replica, and leave this out (--skip)",
        );
    }
    if is(0, "ALTER") && is(1, "TABLE") && edit::clauses(tokens).any(requires_document) {
        return Err(
            "the vendors fill another value into rows that have no document: give the column a DEFAULT, or let it be NULL",
        );
    }
    if replica == Vendor::MariaDb {
        return Ok(());
    }
    let is_replacement = is(0, "CREATE") && is(1, "OR") && is(2, "REPLACE");
    // Options of views may stand between.
    if is_replacement && !has(&["VIEW"]) {
        return Err("MySQL has CREATE OR REPLACE for views only: DROP and CREATE mean the same to both");
    }
    if ["SEQUENCE", "PACKAGE"].iter().any(|word| is(1, word) || is_replacement && is(3, word)) {
        return Err("MySQL has no sequences and no packages");
    }
    if has(&["SYSTEM", "VERSIONING"]) || has(&["PERIOD", "FOR"]) {
        return Err("MySQL has no system-versioned tables and no periods");
    }
    let is_of_parts = is(0, "ALTER") || is(1, "INDEX") || is(1, "UNIQUE");
    if is_of_parts && (has(&["IF", "EXISTS"]) || has(&["IF", "NOT", "EXISTS"])) {
        return Err("MySQL has no IF EXISTS for columns, keys and indexes");
    }
    Ok(())
}

/// True for a column of JSON that is NOT NULL and has no default.
fn requires_document(clause: &[Token<'_>]) -> bool {
    let is_column = clause.iter().any(|token| ["ADD", "MODIFY", "CHANGE"].iter().any(|verb| token.is(verb)));
    let is_not_null = clause.windows(2).any(|pair| pair[0].is("NOT") && pair[1].is("NULL"));
    let has = |word: &str| clause.iter().any(|token| token.is(word));
    is_column && is_not_null && has("JSON") && !has("DEFAULT") && !has("AS")
}

/// How a server is to carry out an alteration is left to the other: it has other ways.
fn methods(tokens: &[Token<'_>], edits: &mut [Edit]) {
    for at in 0..tokens.len() {
        let values: &[&str] = match &tokens[at] {
            token if token.is("ALGORITHM") => &["COPY", "INPLACE", "NOCOPY", "INSTANT"],
            token if token.is("LOCK") => &["NONE", "SHARED", "EXCLUSIVE"],
            _ => continue,
        };
        if let Some((value, token)) = option_value(tokens, at)
            && values.iter().any(|value| token.is(value))
        {
            edits[value] = Edit::Replace("DEFAULT".to_owned());
        }
    }
}

/// Replaces the names of collations that the replica's vendor does not have.
fn collations(tokens: &[Token<'_>], replica: Vendor, edits: &mut [Edit]) -> Result<(), Refusal> {
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.is("COLLATE")) {
        let Some(name) = tokens[at + 1..].iter().position(|token| !token.is_mark(b'=')) else { continue };
        let at = at + 1 + name;
        if let Some(closest) = closest_name(&spelled(&tokens[at]), replica)? {
            edits[at] = Edit::Replace(closest);
        }
        debug_assert!(!token.is_mark(b'='));
    }
    Ok(())
}

/// `None` if both vendors have it.
fn closest_name(name: &str, replica: Vendor) -> Result<Option<String>, Refusal> {
    let name = name.to_ascii_lowercase();
    match replica {
        Vendor::MariaDb => Ok(match name.split_once("0900_") {
            Some(("utf8mb4_", "bin")) => Some("utf8mb4_nopad_bin".to_owned()),
            Some(("utf8mb4_", sensitivity)) => Some(format!("utf8mb4_uca1400_nopad_{sensitivity}")),
            Some(_) => {
                return Err("it names a collation of one language in its Unicode 9 form, which MariaDB does not have");
            }
            None => None,
        }),
        Vendor::MySql => {
            if let Some(rest) = name.strip_prefix("utf8mb4_uca1400_").or(name.strip_prefix("uca1400_")) {
                return match rest.strip_prefix("nopad_").unwrap_or(rest) {
                    sensitivity @ ("ai_ci" | "as_ci" | "as_cs") => Ok(Some(format!("utf8mb4_0900_{sensitivity}"))),
                    "ai_cs" => Err("MySQL has no collation that tells letters by case and not by accents"),
                    _ => Err("it names a collation of one language in its Unicode 14 form, which MySQL does not have"),
                };
            }
            match name.as_str() {
                "utf8mb4_nopad_bin" => Ok(Some("utf8mb4_0900_bin".to_owned())),
                "utf8mb4_unicode_nopad_ci" | "utf8mb4_unicode_520_nopad_ci" | "utf8mb4_general_nopad_ci" => {
                    Ok(Some("utf8mb4_0900_ai_ci".to_owned()))
                }
                name if name.contains("nopad") || name.contains("uca1400") => {
                    Err("it names a collation that MySQL does not have")
                }
                _ => Ok(None),
            }
        }
    }
}

fn for_mysql(tokens: &[Token<'_>], edits: &mut [Edit]) {
    defaults::bracket(tokens, edits);
    for at in 0..tokens.len() {
        // Only what is no name of something: options stand behind a bracket, a type, or an equals sign of their own.
        if tokens[at].is("ENGINE") {
            if let Some((value, token)) = option_value(tokens, at)
                && spelled(token).eq_ignore_ascii_case("aria")
            {
                edits[value] = Edit::Replace("InnoDB".to_owned());
            }
        } else if ["TRANSACTIONAL", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"]
            .iter()
            .any(|option| tokens[at].is(option))
        {
            drop_option(tokens, at, edits);
        } else if tokens[at].is("COMPRESSED") && is_behind_type(tokens, at) {
            edits[at] = Edit::Replace(String::new());
        }
    }
}

/// Names the collation of each `CHARACTER SET utf8mb4` of a table or a schema without one: MariaDB's own is another.
fn name_collations(tokens: &[Token<'_>], utf8mb4: &str, edits: &mut [Edit]) {
    let is_definition = tokens.first().is_some_and(|token| token.is("CREATE") || token.is("ALTER"));
    if !is_definition
        || !["TABLE", "DATABASE", "SCHEMA"].iter().any(|word| tokens.iter().take(3).any(|token| token.is(word)))
    {
        return;
    }
    for at in 0..tokens.len() {
        let is_set = tokens[at].is("SET") && at > 0 && ["CHARACTER", "CHAR"].iter().any(|word| tokens[at - 1].is(word));
        if !is_set && !tokens[at].is("CHARSET") {
            continue;
        }
        let Some((place, value)) = option_value(tokens, at) else { continue };
        let is_named = element(tokens, at).any(|token| token.is("COLLATE") || token.is("AS"));
        if spelled(value).eq_ignore_ascii_case("utf8mb4") && !is_named {
            edits[place] = Edit::Replace(format!("utf8mb4 COLLATE {utf8mb4}"));
        }
    }
}

/// What stands between the same commas or brackets as a token, and in no brackets of its own.
fn element<'t, 'a>(tokens: &'t [Token<'a>], at: usize) -> impl Iterator<Item = &'t Token<'a>> {
    let outside = |depth: &mut u32, token: &&'t Token<'a>, open: u8, close: u8| {
        let is_open = token.is_mark(open);
        let is_end = *depth == 0 && (token.is_mark(b',') || token.is_mark(close));
        if is_open {
            *depth += 1;
        } else if token.is_mark(close) && *depth > 0 {
            *depth -= 1;
        }
        if is_end { None } else { Some((*depth == 0).then_some(*token)) }
    };
    let after = tokens[at..].iter().scan(0, move |depth, token| outside(depth, &token, b'(', b')'));
    let before = tokens[..at].iter().rev().scan(0, move |depth, token| outside(depth, &token, b')', b'('));
    after.chain(before).flatten()
}

fn for_mariadb(tokens: &[Token<'_>], edits: &mut [Edit]) {
    let is_table = tokens.len() > 1 && tokens[0].is("CREATE");
    let last = tokens.len().saturating_sub(2);
    for at in 0..tokens.len() {
        if is_table && at == last && tokens[at].is("START") && tokens[at + 1].is("TRANSACTION") {
            edits[at] = Edit::Replace(String::new());
            edits[at + 1] = Edit::Replace(String::new());
        } else if tokens[at].is("ENCRYPTION") {
            drop_option(tokens, at, edits);
        } else if tokens[at].is("SRID") && tokens.get(at + 1).is_some_and(Token::is_number) {
            edits[at] = Edit::Replace("REF_SYSTEM_ID=".to_owned());
        } else if at > 0 && tokens[at - 1].is_mark(b')') {
            if tokens[at].is("VISIBLE") {
                edits[at] = Edit::Replace(String::new());
            } else if tokens[at].is("INVISIBLE") && closes_index(tokens, at - 1) {
                edits[at] = Edit::Replace("IGNORED".to_owned());
            }
        }
    }
}

/// The value of an option, with or without an equals sign.
fn option_value<'t, 'a>(tokens: &'t [Token<'a>], at: usize) -> Option<(usize, &'t Token<'a>)> {
    let skip = usize::from(tokens.get(at + 1)?.is_mark(b'='));
    tokens.get(at + 1 + skip).map(|token| (at + 1 + skip, token))
}

/// Leaves out `name=value`.
fn drop_option(tokens: &[Token<'_>], at: usize, edits: &mut [Edit]) {
    if !tokens.get(at + 1).is_some_and(|token| token.is_mark(b'=')) {
        return;
    }
    for edit in edits.iter_mut().skip(at).take(3) {
        *edit = Edit::Replace(String::new());
    }
}

/// True behind a type of a column: `VARCHAR(5) COMPRESSED`, `BLOB COMPRESSED`; not in `ROW_FORMAT=COMPRESSED`.
fn is_behind_type(tokens: &[Token<'_>], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| &tokens[before]) else { return false };
    let name = spelled(before).to_ascii_uppercase();
    before.is_mark(b')') || name.ends_with("BLOB") || name.ends_with("TEXT")
}

/// True if the bracket closed at `at` holds the columns of an index.
fn closes_index(tokens: &[Token<'_>], at: usize) -> bool {
    let mut depth = 0;
    for start in (0..=at).rev() {
        if tokens[start].is_mark(b')') {
            depth += 1;
        } else if tokens[start].is_mark(b'(') {
            depth -= 1;
        }
        if depth == 0 {
            let before = &tokens[start.saturating_sub(3)..start];
            let is_word = |token: &Token<'_>| ["KEY", "INDEX", "ON"].iter().any(|word| token.is(word));
            return before.iter().any(is_word) && tokens[start].kind == TokenKind::Mark(b'(');
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use spate_sql::Reading;

    use super::*;

    fn for_vendor(sql: &str, replica: Vendor) -> Result<String, Refusal> {
        let reading = Reading::plain();
        let text = SqlText { sql: sql.as_bytes(), reading: &reading };
        let sql = definition(text, replica, "utf8mb4_uca1400_nopad_ai_ci");
        sql.map(|sql| String::from_utf8(sql).unwrap())
    }

    #[test]
    fn translation_passes_common_statements_on() {
        for sql in [
            "CREATE TABLE `t` (`engine` INT, compressed INT, `c` VARCHAR(5) COLLATE utf8mb4_bin) ENGINE=InnoDB ROW_FORMAT=COMPRESSED",
            "ALTER TABLE t ADD COLUMN x INT DEFAULT 5 COMMENT 'ENGINE=Aria COLLATE utf8mb4_0900_ai_ci'",
            "CREATE OR REPLACE ALGORITHM=MERGE VIEW v AS SELECT 1",
            "DROP TABLE IF EXISTS t /* generated by server */",
            "CREATE TABLE IF NOT EXISTS t (a INT INVISIBLE, b INT) -- all",
            "GRANT SELECT ON *.* TO a@b",
        ] {
            assert_eq!(for_vendor(sql, Vendor::MySql).unwrap(), sql);
            assert_eq!(for_vendor(sql, Vendor::MariaDb).unwrap(), sql);
        }
    }

    #[test]
    fn translation_drops_options_of_the_source_alone() {
        for (sql, expected) in [
            (
                "ALTER TABLE t ADD COLUMN a INT, ALGORITHM=NOCOPY, LOCK NONE",
                "ALTER TABLE t ADD COLUMN a INT, ALGORITHM=DEFAULT, LOCK DEFAULT",
            ),
            (
                "CREATE INDEX i ON t (a) ALGORITHM=inplace LOCK=SHARED",
                "CREATE INDEX i ON t (a) ALGORITHM=DEFAULT LOCK=DEFAULT",
            ),
            (
                "ALTER TABLE t DROP COLUMN algorithm, DROP COLUMN copy",
                "ALTER TABLE t DROP COLUMN algorithm, DROP COLUMN copy",
            ),
        ] {
            assert_eq!(for_vendor(sql, Vendor::MySql).as_deref(), Ok(expected));
            assert_eq!(for_vendor(sql, Vendor::MariaDb).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn translation_refuses_json_defaults() {
        for sql in [
            "ALTER TABLE t ADD j JSON NOT NULL",
            "ALTER TABLE t ADD COLUMN a INT NOT NULL, MODIFY j JSON NOT NULL FIRST",
        ] {
            assert!(for_vendor(sql, Vendor::MySql).is_err() && for_vendor(sql, Vendor::MariaDb).is_err(), "{sql}");
        }
        for sql in [
            "CREATE TABLE t (j JSON NOT NULL)",
            "ALTER TABLE t ADD COLUMN (a INT NOT NULL), ADD j JSON",
            "ALTER TABLE t ADD j JSON, MODIFY a INT NOT NULL",
            "ALTER TABLE t ADD j JSON NOT NULL DEFAULT ('{}')",
            "ALTER TABLE t ADD j JSON AS (a) NOT NULL",
        ] {
            assert!(for_vendor(sql, Vendor::MySql).is_ok(), "{sql}");
        }
    }

    #[test]
    fn translation_for_mysql_translates_or_refuses() {
        for (sql, expected) in [
            (
                "CREATE TABLE t (a INT) ENGINE=Aria TRANSACTIONAL=1 COMMENT 'x'",
                "CREATE TABLE t (a INT) ENGINE=InnoDB  COMMENT 'x'",
            ),
            (
                "CREATE TABLE t (a TEXT COMPRESSED, b VARCHAR(5) COMPRESSED NULL)",
                "CREATE TABLE t (a TEXT , b VARCHAR(5)  NULL)",
            ),
            (
                "CREATE TABLE t (a CHAR(36) DEFAULT UUID() NOT NULL, b DATE DEFAULT (CURDATE()), c DATETIME(3) DEFAULT NOW(3))",
                "CREATE TABLE t (a CHAR(36) DEFAULT (UUID()) NOT NULL, b DATE DEFAULT (CURDATE()), c DATETIME(3) DEFAULT NOW(3))",
            ),
            (
                "ALTER TABLE t ADD a TEXT NOT NULL DEFAULT 'a', ADD b BLOB DEFAULT _latin1'ä', ADD c JSON DEFAULT NULL, ADD d INT DEFAULT 1",
                "ALTER TABLE t ADD a TEXT NOT NULL DEFAULT ('a'), ADD b BLOB DEFAULT (_latin1'ä'), ADD c JSON DEFAULT NULL, ADD d INT DEFAULT 1",
            ),
            (
                "ALTER TABLE t ALTER p SET DEFAULT POINT(0, ABS(1)), DEFAULT CHARACTER SET latin1",
                "ALTER TABLE t ALTER p SET DEFAULT (POINT(0, ABS(1))), DEFAULT CHARACTER SET latin1",
            ),
            ("ALTER TABLE t COLLATE=utf8mb4_uca1400_ai_ci", "ALTER TABLE t COLLATE=utf8mb4_0900_ai_ci"),
            ("CREATE TABLE t (a TEXT COLLATE 'utf8mb4_nopad_bin')", "CREATE TABLE t (a TEXT COLLATE utf8mb4_0900_bin)"),
        ] {
            assert_eq!(for_vendor(sql, Vendor::MySql).as_deref(), Ok(expected), "{sql}");
        }
        for sql in [
            "CREATE OR REPLACE TABLE t (a INT)",
            "CREATE SEQUENCE s",
            "CREATE OR REPLACE SEQUENCE s",
            "CREATE TABLE t (a INT) WITH SYSTEM VERSIONING",
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT",
            "CREATE INDEX IF NOT EXISTS i ON t (a)",
            "CREATE TABLE t (a INT /*M!100301 COMPRESSED*/)",
            "CREATE TABLE t (a TEXT COLLATE utf8mb4_uca1400_swedish_ai_ci)",
            "CREATE USER a IDENTIFIED BY PASSWORD '*00'",
            "SET PASSWORD FOR a = 'x'",
        ] {
            assert!(for_vendor(sql, Vendor::MySql).is_err(), "{sql}");
        }
    }

    #[test]
    fn translation_for_mariadb_translates_or_refuses() {
        for (sql, expected) in [
            (
                "CREATE TABLE t (a TEXT COLLATE utf8mb4_0900_as_cs)",
                "CREATE TABLE t (a TEXT COLLATE utf8mb4_uca1400_nopad_as_cs)",
            ),
            (
                "CREATE DATABASE d /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci */",
                "CREATE DATABASE d /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci */",
            ),
            ("CREATE TABLE t (g POINT NOT NULL SRID 4326)", "CREATE TABLE t (g POINT NOT NULL REF_SYSTEM_ID= 4326)"),
            (
                "CREATE TABLE t (a INT, KEY k (a) INVISIBLE, KEY l (a) VISIBLE)",
                "CREATE TABLE t (a INT, KEY k (a) IGNORED, KEY l (a) )",
            ),
            (
                "CREATE TABLE t (a TEXT CHARACTER SET utf8mb4, b CHAR(5) CHARSET utf8mb4 NOT NULL COLLATE utf8mb4_bin) CHARSET='utf8mb4' COMMENT 'x'",
                "CREATE TABLE t (a TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci, \
                 b CHAR(5) CHARSET utf8mb4 NOT NULL COLLATE utf8mb4_bin) CHARSET=utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci COMMENT 'x'",
            ),
            (
                "ALTER TABLE t COLLATE utf8mb4_bin CHARACTER SET utf8mb4, ADD g INT AS (CAST(a AS CHAR CHARACTER SET utf8mb4) + 1)",
                "ALTER TABLE t COLLATE utf8mb4_bin CHARACTER SET utf8mb4, ADD g INT AS (CAST(a AS CHAR CHARACTER SET utf8mb4) + 1)",
            ),
            (
                "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, FORCE",
                "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci, FORCE",
            ),
            (
                "CREATE DATABASE d CHARACTER SET = utf8mb4",
                "CREATE DATABASE d CHARACTER SET = utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci",
            ),
            ("CREATE TABLE t (a INT) ENCRYPTION='N'", "CREATE TABLE t (a INT) "),
            ("CREATE TABLE t (a VARCHAR(5) INVISIBLE) START TRANSACTION", "CREATE TABLE t (a VARCHAR(5) INVISIBLE)  "),
        ] {
            assert_eq!(for_vendor(sql, Vendor::MariaDb).as_deref(), Ok(expected), "{sql}");
        }
        for sql in [
            "CREATE TABLE t (a INT /*!80023 INVISIBLE */)",
            "CREATE USER a IDENTIFIED WITH 'caching_sha2_password'",
            "CREATE TABLE t (a TEXT COLLATE utf8mb4_de_pb_0900_ai_ci)",
        ] {
            assert!(for_vendor(sql, Vendor::MariaDb).is_err(), "{sql}");
        }
    }

    #[test]
    fn translation_for_mariadb_converts_strictly() {
        for (sql, replica, is_strict) in [
            ("ALTER TABLE t CONVERT TO CHARACTER SET ucs2", Vendor::MariaDb, true),
            ("alter table t drop column a, convert to charset 'utf16' collate utf16_bin", Vendor::MariaDb, true),
            ("ALTER TABLE t CONVERT TO CHARACTER SET ucs2", Vendor::MySql, false),
            ("ALTER TABLE t DEFAULT CHARACTER SET ucs2", Vendor::MariaDb, false),
        ] {
            let statement = Statement {
                sql: sql.into(),
                status: StatusVariables { sql_mode: Some(0), ..StatusVariables::default() },
                timestamp_seconds: 0,
                thread_id: 1,
                database: String::new(),
                reading: Reading::plain(),
                context: vec![],
                error_code: 0,
                is_thread_specific: false,
                class: StatementClass::Definition,
                load: None,
            };
            let status = translated(&statement, replica, &ServerVersion::parse("10.11.6-MariaDB")).unwrap().status;
            assert_eq!(status.sql_mode, Some(if is_strict { MODE_STRICT } else { 0 }), "{sql}");
        }
    }

    #[test]
    fn sql_modes_of_one_vendor_are_left_out() {
        // STRICT_TRANS_TABLES, ERROR_FOR_DIVISION_BY_ZERO, NO_AUTO_CREATE_USER, NO_ENGINE_SUBSTITUTION: MariaDB's default.
        assert_eq!(shared_modes(1 << 21 | 1 << 26 | 1 << 28 | 1 << 30), 1 << 21 | 1 << 26 | 1 << 30);
        assert_eq!(shared_modes(1 << 32 | 1 << 9 | 1 << 4 | 4), 4);
        assert_eq!(shared_modes(1 << 31 | 1 << 20 | 1 << 19), 1 << 31 | 1 << 20 | 1 << 19);
    }
}

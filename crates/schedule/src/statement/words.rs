//! The words with which statements begin, and the names behind them.

use spate_sql::{Lexer, SqlText};

use crate::definition::TableName;

/// The doubt about a statement that begins with `SET STATEMENT`.
pub(super) const SETS_ITS_READING: &str = "it changes settings that decide how its own text is read";

/// The words of a statement after opening parentheses and `SET STATEMENT … FOR`.
pub(crate) fn opened(text: SqlText<'_>) -> Lexer<'_> {
    let (mut words, sets_its_reading) = after_settings(text);
    // It is logged with the new settings, but the source has read it with those before.
    if sets_its_reading && depends_on_settings(text.sql) {
        words.doubt_here(SETS_ITS_READING);
    }
    words
}

/// As above, if the source has read the text as `text.reading` says, regardless of the settings.
pub(super) fn opened_as_read(text: SqlText<'_>) -> Lexer<'_> {
    after_settings(text).0
}

/// The words after the settings, and if one of the settings decides how texts are read.
fn after_settings(text: SqlText<'_>) -> (Lexer<'_>, bool) {
    let (mut words, mut sets_reading) = (text.tokens(), false);
    while words.accept_mark(b'(') {}
    // MariaDB accepts one after the other.
    while words.accept_all(&["SET", "STATEMENT"]) {
        let mut depth = 0_usize;
        while let Some(word) = words.next().filter(|word| depth > 0 || !word.is("FOR")) {
            sets_reading |= word.is_one_of(&["SQL_MODE", "CHARACTER_SET_CLIENT"]);
            depth = match () {
                () if word.is_mark(b'(') => depth + 1,
                () if word.is_mark(b')') => depth.saturating_sub(1),
                () => depth,
            };
        }
    }
    (words, sets_reading)
}

/// True if some `sql_mode` or character set makes other tokens of a text.
fn depends_on_settings(sql: &[u8]) -> bool {
    sql.iter().any(|byte| matches!(byte, b'"' | b'\\' | b'[' | 0x80..))
}

/// The kind of object of a CREATE, ALTER or DROP; skips the words that may stand before it. `None` for any other
/// statement.
pub(crate) fn kind(words: &mut Lexer<'_>) -> Option<&'static str> {
    const KINDS: [&str; 15] = [
        "TABLE",
        "VIEW",
        "SEQUENCE",
        "INDEX",
        "TRIGGER",
        "DATABASE",
        "SCHEMA",
        "PROCEDURE",
        "FUNCTION",
        "PACKAGE",
        "LIBRARY",
        "EVENT",
        "USER",
        "ROLE",
        "SERVER",
    ];
    const BEFORE: [&str; 14] = [
        "OR",
        "REPLACE",
        "TEMPORARY",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "ONLINE",
        "OFFLINE",
        "IGNORE",
        "AGGREGATE",
        "PUBLIC",
        "JSON",
        "RELATIONAL",
        "DUALITY",
    ];
    loop {
        let word = words.next()?;
        if word.is("TABLES") {
            return Some("TABLE");
        }
        if let Some(kind) = KINDS.into_iter().find(|kind| word.is(kind)) {
            return Some(kind);
        }
        match () {
            () if word.is_one_of(&BEFORE) => {}
            () if word.is("DEFINER") => {
                words.accept_mark(b'=');
                account(words)?;
            }
            () if word.is("ALGORITHM") => {
                words.accept_mark(b'=');
                words.next()?;
            }
            () if word.is("SQL") && words.accept("SECURITY") => drop(words.next()?),
            () => return None,
        }
    }
}

/// Skips an account: `user@host` in any quotes, `CURRENT_USER`, or a role.
fn account(words: &mut Lexer<'_>) -> Option<()> {
    let name = words.next()?;
    if name.is_one_of(&["CURRENT_USER", "CURRENT_ROLE"]) {
        if words.accept_mark(b'(') {
            words.accept_mark(b')');
        }
    } else if words.accept_mark(b'@') {
        words.next()?;
    }
    Some(())
}

/// Skips everything before the names in a CREATE or DROP of tables, views or sequences.
pub(super) fn skip_kind(words: &mut Lexer<'_>) {
    while words.next().is_some_and(|word| !word.is_one_of(&["TABLE", "TABLES", "VIEW", "SEQUENCE"])) {}
    skip_existence(words);
}

pub(crate) fn skip_existence(words: &mut Lexer<'_>) {
    if words.accept("IF") {
        words.accept("NOT");
        words.accept("EXISTS");
    }
}

/// Up to `count` names separated by commas.
pub(super) fn names(words: &mut Lexer<'_>, database: &str, count: usize) -> Vec<TableName> {
    let mut names = Vec::new();
    while names.len() < count
        && let Some(name) = name(words, database)
    {
        names.push(name);
        if !words.accept_mark(b',') {
            break;
        }
    }
    names
}

/// `table` or `schema.table`.
pub(crate) fn name(words: &mut Lexer<'_>, database: &str) -> Option<TableName> {
    // MySQL's own way to name a table of the default database.
    words.accept_mark(b'.');
    let first = words.name()?;
    if !words.accept_mark(b'.') {
        return Some(TableName { schema: database.to_owned(), table: first });
    }
    Some(TableName { schema: first, table: words.name()? })
}

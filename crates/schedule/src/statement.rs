//! Classifies a statement by its words: if it commits by itself, and the objects that it may change.

use spate_sql::edit::{self, Edit};
use spate_sql::{Doubt, Lexer, Reading, SqlText, Token};

use crate::definition::TableName;

/// The kind of a statement, by its effect on its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementClass {
    /// INSERT, UPDATE, DELETE, REPLACE, LOAD DATA: part of a transaction.
    Change,
    /// SAVEPOINT, ROLLBACK TO, RELEASE: part of a transaction.
    Savepoint,
    /// CREATE or DROP of a temporary table: part of a transaction, and of the session.
    Temporary,
    /// Everything that commits by itself: CREATE, ALTER, DROP, GRANT, TRUNCATE, RENAME …
    Definition,
    /// XA END.
    XaEnd,
    /// XA COMMIT, XA ROLLBACK, and any other statement that begins with XA.
    Xa,
}

/// An object that a statement which commits by itself may change. If no such object has changed, the statement had no
/// effect yet (or has none).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A table, view or sequence.
    Table(TableName),
    /// A trigger: its schema and name.
    Trigger(TableName),
    /// A schema.
    Schema(String),
    /// Accounts, roles and their privileges.
    Accounts,
    /// Procedures, functions and packages.
    Routines,
    /// Events of the event scheduler.
    Events,
}

/// Finds a statement's class by its first words.
///
/// # Errors
/// A doubt about these words.
pub fn classify(text: SqlText<'_>) -> Result<StatementClass, Doubt> {
    let mut words = opened(text);
    let told = class(&mut words);
    match words.doubt() {
        None => Ok(told),
        Some(doubt) if doubt.why == SETS_ITS_READING => class_in_all_modes(text).ok_or(doubt),
        Some(doubt) => Err(doubt),
    }
}

/// The class of a statement whose source may have read it in any mode, if the class is the same in all modes.
fn class_in_all_modes(text: SqlText<'_>) -> Option<StatementClass> {
    let mut classes = (0..8).map(|modes| {
        let is_on = |bit: u8| modes & bit != 0;
        let reading =
            Reading { ansi_quotes: is_on(1), plain_backslashes: is_on(2), brackets: is_on(4), ..*text.reading };
        let mut words = opened_as_read(SqlText { reading: &reading, ..text });
        let told = class(&mut words);
        words.doubt().is_none().then_some(told)
    });
    let first = classes.next()??;
    classes.all(|other| other == Some(first)).then_some(first)
}

fn class(words: &mut Lexer<'_>) -> StatementClass {
    const CHANGES: [&str; 9] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "LOAD", "CALL", "SELECT", "DO"];
    let Some(first) = words.next() else { return StatementClass::Definition };
    if first.is("XA") {
        if words.accept("END") { StatementClass::XaEnd } else { StatementClass::Xa }
    } else if first.is_one_of(&["SAVEPOINT", "ROLLBACK", "RELEASE"]) {
        StatementClass::Savepoint
    } else if first.is_one_of(&CHANGES) || first.is("ANALYZE") && analyzes_change(words, &CHANGES) {
        StatementClass::Change
    } else if first.is_one_of(&["CREATE", "DROP"]) {
        words.accept_all(&["OR", "REPLACE"]);
        // Tokens that were passed over to find out count, too.
        match words.next() {
            Some(word) if word.is("TEMPORARY") => StatementClass::Temporary,
            _ => StatementClass::Definition,
        }
    } else {
        StatementClass::Definition
    }
}

/// True for MariaDB's ANALYZE of a statement, which executes it. `words` follow ANALYZE.
fn analyzes_change(words: &mut Lexer<'_>, changes: &[&str]) -> bool {
    if words.accept("FORMAT") {
        words.accept_mark(b'=');
        words.next();
    }
    words.next().is_some_and(|word| word.is_one_of(changes))
}

/// NULL, with the type and the collation of a database's name.
const NO_DATABASE: &[u8] = b"NULLIF(DATABASE(),DATABASE())";

/// The statement with NULL in place of `DATABASE()` and `SCHEMA()`, as in a session without a default schema. `None` if
/// it calls neither.
///
/// # Errors
/// The text is a doubt, so it cannot be changed.
pub fn without_default_schema(text: SqlText<'_>) -> Result<Option<Vec<u8>>, edit::Refusal> {
    if !text.has_letters("DATABASE") && !text.has_letters("SCHEMA") {
        return Ok(None);
    }
    let mut words = text.tokens();
    let mut edits = Vec::new();
    while let Some(word) = words.next() {
        if word.is_one_of(&["DATABASE", "SCHEMA"]) {
            let mut ahead = words.clone();
            if ahead.accept_mark(b'(') && ahead.accept_mark(b')') {
                edits.push(Edit { range: word.start..ahead.end(), text: NO_DATABASE.to_vec() });
            }
        }
    }
    match words.doubt() {
        Some(doubt) => Err(edit::Refusal::Doubtful(doubt)),
        None if edits.is_empty() => Ok(None),
        None => edit::apply(text.sql, &edits, text.reading).map(Some),
    }
}

/// True for CREATE TABLE, also of a temporary one, CREATE OR REPLACE TABLE and ALTER TABLE: the server evaluates
/// functions in these at once, whereas it only stores the bodies of views and programs.
pub fn makes_table(text: SqlText<'_>) -> bool {
    let mut words = opened(text);
    words.next().is_some_and(|verb| verb.is_one_of(&["CREATE", "ALTER"])) && kind(&mut words) == Some("TABLE")
}

/// The temporary tables that a statement of the class [`StatementClass::Temporary`] names, and whether it creates them.
///
/// # Errors
/// A doubt about the names.
pub fn temporary_tables(text: SqlText<'_>, database: &str) -> Result<(bool, Vec<TableName>), Doubt> {
    let mut words = opened(text);
    let creates = words.next().is_some_and(|first| first.is("CREATE"));
    skip_kind(&mut words);
    let names = names(&mut words, database, if creates { 1 } else { usize::MAX });
    match words.doubt() {
        None => Ok((creates, names)),
        Some(doubt) => Err(doubt),
    }
}

/// True for a CREATE that succeeds if there is one already: IF NOT EXISTS, OR REPLACE.
pub(crate) fn takes_what_exists(text: SqlText<'_>) -> bool {
    let mut words = opened(text);
    words.accept("CREATE")
        && (words.accept("OR") || { words.accept("TEMPORARY") && words.accept("TABLE") && words.accept("IF") })
}

/// True for DROP TABLE, VIEW or SEQUENCE: an object that is gone already does not matter to them.
pub fn drops_tables(text: SqlText<'_>) -> bool {
    drops(text, &["TABLE", "TABLES", "VIEW", "SEQUENCE"])
}

/// True for DROP of a database or a trigger: MariaDB's own appliers, unless told otherwise, take one that is gone for
/// dropped.
pub fn drops_schema_or_trigger(text: SqlText<'_>) -> bool {
    drops(text, &["DATABASE", "SCHEMA", "TRIGGER"])
}

/// True for DROP, or DROP TEMPORARY, of one of these kinds.
fn drops(text: SqlText<'_>, kinds: &[&str]) -> bool {
    let mut words = opened(text);
    let drops = words.accept("DROP") && {
        words.accept("TEMPORARY");
        kinds.iter().any(|kind| words.accept(kind))
    };
    drops && words.doubt().is_none()
}

/// Skips everything before the names in a CREATE or DROP of tables, views or sequences.
fn skip_kind(words: &mut Lexer<'_>) {
    while words.next().is_some_and(|word| !word.is_one_of(&["TABLE", "TABLES", "VIEW", "SEQUENCE"])) {}
    skip_existence(words);
}

/// The DROP of tables, views or sequences with the schema of each. `None` for any other statement.
///
/// # Errors
/// A doubt about the names, or the schema's name cannot be written in the statement's character set.
pub(crate) fn drop_with_schemas(text: SqlText<'_>, database: &str) -> Result<Option<Vec<u8>>, edit::Refusal> {
    const UNTOLD: edit::Refusal = edit::Refusal::Untold(
        "its default database does not exist, and its character set may lack characters of the name",
    );
    if !drops_tables(text) {
        return Ok(None);
    }
    let mut words = opened(text);
    skip_kind(&mut words);
    let mut edits = Vec::new();
    while let Some(first) = words.peek()
        && let Some(named) = name(&mut words, "")
    {
        if named.schema.is_empty() {
            let schema = edit::quoted_name(database, text.reading).ok_or(UNTOLD)?;
            let mark: &[u8] = if first.is_mark(b'.') { b"" } else { b"." };
            let range = first.start..words.end();
            edits.push(Edit { text: [&schema, mark, &text.sql[range.clone()]].concat(), range });
        }
        if !words.accept_mark(b',') {
            break;
        }
    }
    match words.doubt() {
        Some(doubt) => Err(edit::Refusal::Doubtful(doubt)),
        None => edit::apply(text.sql, &edits, text.reading).map(Some),
    }
}

/// A table's name with its schema, for any `sql_mode`.
pub(crate) fn quoted(name: &TableName) -> String {
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    format!("{}.{}", quoted(&name.schema), quoted(&name.table))
}

/// An object with rows that a statement creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// CREATE TABLE.
    Table,
    /// CREATE SEQUENCE.
    Sequence,
}

/// The table or sequence that the statement creates; `None` if it creates none, or may replace one.
pub fn creates(text: SqlText<'_>) -> Option<Created> {
    let mut words = opened(text);
    if !words.accept("CREATE") {
        return None;
    }
    let created = if words.accept("TABLE") { Created::Table } else { Created::Sequence };
    let is_known = created == Created::Table || words.accept("SEQUENCE");
    is_known.then_some(created)
}

/// True if it may drop a schema.
pub fn may_drop_schema(text: SqlText<'_>) -> bool {
    text.has_letters("DATABASE") || text.has_letters("SCHEMA")
}

/// True for any ALTER.
pub(crate) fn alters(text: SqlText<'_>) -> bool {
    opened(text).accept("ALTER")
}

/// True for RENAME TABLE.
pub fn renames_tables(text: SqlText<'_>) -> bool {
    let mut words = opened(text);
    words.accept("RENAME") && (words.accept("TABLE") || words.accept("TABLES"))
}

/// What a statement may give back and forth so that every definition is in the end what it was. When it is executed
/// twice, all is as before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchanged {
    /// Nothing.
    Nothing,
    /// Tables, or a table and a partition.
    Tables,
    /// Columns of a table.
    Columns,
}

/// What a definition may exchange: RENAME TABLE of several tables, EXCHANGE PARTITION, an ALTER TABLE that gives a column
/// a name which it mentions elsewhere, so that it may be that of another. In doubt, it may.
pub fn exchanges(text: SqlText<'_>) -> Exchanged {
    if renames_tables(text) {
        let is_one = !text.sql.contains(&b',') && text.doubt().is_none();
        return if is_one { Exchanged::Nothing } else { Exchanged::Tables };
    }
    let mut words = opened(text);
    if !words.accept("ALTER") {
        return Exchanged::Nothing;
    }
    let tokens: Vec<_> = words.by_ref().collect();
    let is_taken_over = |at| match new_name(&tokens[at..]) {
        Some((old, new)) => {
            let name = |token: &Token<'_>| token.name().map(|name| name.to_lowercase());
            let (old, new) = (name(old), name(new));
            new.is_none() || old != new && tokens.iter().filter(|token| name(token) == new).count() > 1
        }
        None => false,
    };
    match () {
        () if words.doubt().is_some() || (0..tokens.len()).any(is_taken_over) => Exchanged::Columns,
        () if tokens.iter().any(|token| token.is("EXCHANGE")) => Exchanged::Tables,
        () => Exchanged::Nothing,
    }
}

/// The old and the new name of a column, if these words of an ALTER TABLE begin with CHANGE or RENAME COLUMN.
fn new_name<'t, 'a>(words: &'t [Token<'a>]) -> Option<(&'t Token<'a>, &'t Token<'a>)> {
    let (first, rest) = words.split_first()?;
    let is_change = first.is("CHANGE");
    if !(is_change || first.is("RENAME") && rest.first()?.is("COLUMN")) {
        return None;
    }
    let skip = usize::from(rest.first()?.is("COLUMN"));
    let rest = &rest[skip..];
    let skip = if rest.first()?.is("IF") { 2 } else { 0 };
    let mut names = rest.get(skip..)?.iter().filter(|word| is_change || !word.is("TO"));
    Some((names.next()?, names.next()?))
}

/// True for CREATE OR REPLACE, which has the same result when it is repeated. (A server that crashes during it may
/// leave neither the old object nor the new one.)
pub fn replaces(text: SqlText<'_>) -> bool {
    let mut words = opened(text);
    words.accept_all(&["CREATE", "OR", "REPLACE"]) && words.doubt().is_none()
}

/// True if it is certain that a statement, executed twice, has the effect of the first time and no other: TRUNCATE or DROP of one table.
pub fn is_repeatable(text: SqlText<'_>) -> bool {
    let mut words = text.tokens();
    let verb = words.next();
    let empties = verb.is_some_and(|verb| verb.is_one_of(&["TRUNCATE", "DROP"])) && words.accept("TABLE");
    empties && !text.sql.contains(&b',') && words.all(|word| !word.is("TEMPORARY")) && words.doubt().is_none()
}

/// The table that a TRUNCATE empties. `None`: it is another statement, or that is not certain.
pub fn truncated(text: SqlText<'_>, database: &str) -> Option<TableName> {
    let mut words = text.tokens();
    if !words.accept("TRUNCATE") {
        return None;
    }
    words.accept("TABLE");
    let table = name(&mut words, database);
    let is_all = words.next().is_none();
    table.filter(|_| is_all && text.doubt().or(words.doubt()).is_none())
}

/// True if it is certain that a statement leaves its session as it is: it reads no rows by a query, and so executes no function that could
/// release a lock or set a variable. Of definitions of tables and indexes that is certain where none of the words is there that begin a query.
pub fn leaves_session_alone(text: SqlText<'_>) -> bool {
    const QUERIES: [&str; 3] = ["SELECT", "VALUES", "STATEMENT"];
    if QUERIES.iter().any(|letters| text.has_letters(letters)) {
        return false;
    }
    let mut words = text.tokens();
    let is_definition = match words.next() {
        Some(verb) if verb.is_one_of(&["TRUNCATE", "RENAME"]) => words.accept("TABLE"),
        Some(verb) if verb.is_one_of(&["CREATE", "ALTER", "DROP"]) => words.accept("TABLE") || words.accept("INDEX"),
        _ => false,
    };
    // MySQL creates a table of `TABLE t`, which may be a view; and `START TRANSACTION` at the end leaves a transaction open.
    is_definition && words.all(|word| !word.is_one_of(&["TABLE", "START"])) && words.doubt().is_none()
}

/// True for a statement that leaves no effect when a server refuses it, or only effects that do no harm when it is
/// executed again. The text after the words that decide this may be a doubt.
///
/// Servers work in several steps for: DROP DATABASE; several accounts, or tables to rename (they are separated by
/// commas); a table with its rows, and its partitions and files.
pub fn is_whole_or_nothing(text: SqlText<'_>) -> bool {
    const ACCOUNTS: [&str; 4] = ["GRANT", "REVOKE", "SET", "RENAME"];
    let mut words = opened(text);
    let Some(verb) = words.next() else { return false };
    let names_one = !text.sql.contains(&b',');
    let has_parts = || ["SELECT", "PARTITION", "TABLESPACE"].iter().any(|letters| text.has_letters(letters));
    let is_whole = match () {
        () if drops_tables(text) || replaces(text) => true,
        () if verb.is_one_of(&ACCOUNTS) => names_one,
        // Others change nothing visible: see `touched`.
        () if !verb.is_one_of(&["CREATE", "ALTER", "DROP"]) => true,
        () => match kind(&mut words) {
            Some("TABLE" | "SEQUENCE") => !has_parts(),
            Some("DATABASE" | "SCHEMA") => !verb.is("DROP"),
            Some("USER" | "ROLE") => names_one,
            Some(_) => true,
            None => false,
        },
    };
    is_whole && words.doubt().is_none()
}

/// True unless it is certain that a statement that commits by itself does not concern accounts, roles and their
/// privileges.
pub fn may_concern_accounts(text: SqlText<'_>) -> bool {
    let mut words = opened(text);
    let flushes_privileges = words.accept("FLUSH") && words.any(|word| word.is("PRIVILEGES"));
    let is_of_accounts = |object: &Object| match object {
        Object::Accounts => true,
        Object::Table(table) => table.schema.eq_ignore_ascii_case("mysql"),
        _ => false,
    };
    flushes_privileges || touched(text, "").map_or(true, |objects| objects.iter().any(is_of_accounts))
}

/// The objects that a statement that commits by itself may change visibly. If there are none, it does no harm to
/// execute it twice. `database` is the default database.
///
/// # Errors
/// A doubt about the names: the statement may change anything.
pub fn touched(text: SqlText<'_>, database: &str) -> Result<Vec<Object>, Doubt> {
    let mut words = opened(text);
    let objects = objects(&mut words, database);
    // A statement is read to its end even if it names nothing more: the lexer may have lost its place before.
    match text.doubt().or(words.doubt()) {
        None => Ok(objects),
        Some(doubt) => Err(doubt),
    }
}

fn objects(words: &mut Lexer<'_>, database: &str) -> Vec<Object> {
    let Some(first) = words.next() else { return vec![] };
    if first.is_one_of(&["GRANT", "REVOKE", "SET"]) {
        return vec![Object::Accounts];
    }
    if first.is("RENAME") {
        return renamed(words, database);
    }
    if !first.is_one_of(&["CREATE", "ALTER", "DROP"]) {
        return vec![];
    }
    match kind(words) {
        Some("TABLE" | "VIEW" | "SEQUENCE") if first.is("ALTER") => altered(words, database),
        Some("TABLE" | "VIEW" | "SEQUENCE") => {
            skip_existence(words);
            let count = if first.is("DROP") { usize::MAX } else { 1 };
            names(words, database, count).into_iter().map(Object::Table).collect()
        }
        Some("INDEX") => {
            while words.next().is_some_and(|word| !word.is("ON")) {}
            names(words, database, 1).into_iter().map(Object::Table).collect()
        }
        Some("TRIGGER") => {
            skip_existence(words);
            names(words, database, 1).into_iter().map(Object::Trigger).collect()
        }
        Some("DATABASE" | "SCHEMA") => {
            const OPTIONS: [&str; 7] = ["CHARACTER", "CHARSET", "COLLATE", "COMMENT", "DEFAULT", "ENCRYPTION", "READ"];
            skip_existence(words);
            let is_named = words.peek().is_some_and(|word| word.is_name() && !word.is_one_of(&OPTIONS));
            let name = if is_named { words.name() } else { None };
            vec![Object::Schema(name.unwrap_or_else(|| database.to_owned()))]
        }
        Some("PROCEDURE" | "FUNCTION" | "PACKAGE" | "LIBRARY") => vec![Object::Routines],
        Some("EVENT") => vec![Object::Events],
        Some("USER" | "ROLE") => vec![Object::Accounts],
        _ => vec![],
    }
}

/// The doubt about a statement that begins with `SET STATEMENT`.
const SETS_ITS_READING: &str = "it changes settings that decide how its own text is read";

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
fn opened_as_read(text: SqlText<'_>) -> Lexer<'_> {
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

pub(crate) fn skip_existence(words: &mut Lexer<'_>) {
    if words.accept("IF") {
        words.accept("NOT");
        words.accept("EXISTS");
    }
}

/// Up to `count` names separated by commas.
fn names(words: &mut Lexer<'_>, database: &str, count: usize) -> Vec<TableName> {
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

fn renamed(words: &mut Lexer<'_>, database: &str) -> Vec<Object> {
    if !words.accept("TABLE") && !words.accept("TABLES") {
        return vec![Object::Accounts];
    }
    skip_existence(words);
    let mut objects = Vec::new();
    while let Some(from) = name(words, database) {
        while words.peek().is_some_and(|word| !word.is("TO")) {
            words.next();
        }
        words.accept("TO");
        objects.push(Object::Table(from));
        objects.extend(name(words, database).map(Object::Table));
        if !words.accept_mark(b',') {
            break;
        }
    }
    objects
}

/// The table of an ALTER, its new name, and a table with which it exchanges a partition.
fn altered(words: &mut Lexer<'_>, database: &str) -> Vec<Object> {
    skip_existence(words);
    let mut objects: Vec<Object> = name(words, database).into_iter().map(Object::Table).collect();
    while let Some(word) = words.next() {
        if word.is("RENAME") {
            if ["COLUMN", "INDEX", "KEY"].iter().any(|what| words.accept(what)) {
                continue;
            }
            let _optional = words.accept("TO") || words.accept("AS") || words.accept_mark(b'=');
            objects.extend(name(words, database).map(Object::Table));
        } else if word.is("TABLE") {
            objects.extend(name(words, database).map(Object::Table));
        } else if word.is_mark(b';') {
            break;
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    const READING: Reading = Reading {
        ansi_quotes: false,
        plain_backslashes: false,
        brackets: false,
        encoding: spate_sql::Encoding::Utf8 { bytes_max: 4 },
        servers: spate_sql::Servers { source: None, replica: None },
    };

    fn text(sql: &[u8]) -> SqlText<'_> {
        SqlText { sql, reading: &READING }
    }

    fn classified(sql: &[u8]) -> StatementClass {
        classify(text(sql)).unwrap()
    }

    #[test]
    fn definition_that_exchanges_is_told_by_its_words() {
        let exchanged = |sql: &[u8]| exchanges(text(sql));
        for sql in [
            &b"RENAME TABLE a TO b"[..],
            b"ALTER TABLE t CHANGE a b INT",
            b"ALTER TABLE t CHANGE a a BIGINT, CHANGE b `B` INT, ADD c INT AFTER a",
            b"ALTER TABLE t RENAME TO u, RENAME INDEX i TO j, RENAME KEY j TO i",
            b"CREATE TABLE t (a INT, b INT)",
        ] {
            assert_eq!(exchanged(sql), Exchanged::Nothing, "{}", sql.escape_ascii());
        }
        assert_eq!(exchanged(b"ALTER TABLE t DROP a, CHANGE COLUMN IF EXISTS b A INT, ADD b INT"), Exchanged::Columns);
        assert_eq!(exchanged(b"RENAME TABLE a TO x, b TO a, x TO b"), Exchanged::Tables);
        assert_eq!(exchanged(b"ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u"), Exchanged::Tables);
        assert_eq!(exchanged(b"ALTER TABLE t CHANGE a b INT, change b a INT"), Exchanged::Columns);
        assert_eq!(exchanged(b"ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"), Exchanged::Columns);
        assert_eq!(exchanged(b"ALTER TABLE t COMMENT 'it"), Exchanged::Columns);
    }

    #[test]
    fn session_is_left_alone_only_where_that_is_certain() {
        for sql in [
            &b"CREATE TABLE t (a INT)"[..],
            b"ALTER TABLE t ADD b INT",
            b"DROP TABLE t",
            b"TRUNCATE TABLE t",
            b"CREATE INDEX i ON t (a)",
            b"RENAME TABLE a TO b",
        ] {
            assert!(leaves_session_alone(text(sql)), "{}", sql.escape_ascii());
        }
        for sql in [
            &b"CREATE TABLE t (a INT) START TRANSACTION"[..],
            b"CREATE TABLE t TABLE u",
            b"CREATE TABLE t AS SELECT 1",
            b"CREATE TABLE t AS VALUES ROW(1)",
            b"CREATE TEMPORARY TABLE t (a INT)",
            b"CREATE UNIQUE INDEX i ON t (a)",
            b"ALTER TABLE t COMMENT 'it",
            b"DROP DATABASE d",
            b"GRANT ALL ON *.* TO a@b",
        ] {
            assert!(!leaves_session_alone(text(sql)), "{}", sql.escape_ascii());
        }
    }

    #[test]
    fn classification_goes_by_the_first_words() {
        assert_eq!(classified(b"insert into t values (1)"), StatementClass::Change);
        assert_eq!(classified(b"/* why */ UPDATE t SET a=1"), StatementClass::Change);
        assert_eq!(classified(b"# a\n-- b\n DELETE FROM t"), StatementClass::Change);
        assert_eq!(
            classified(b"SET STATEMENT max_statement_time=5 FOR INSERT INTO t VALUES (1)"),
            StatementClass::Change
        );
        let nested = b"SET STATEMENT lock_wait_timeout=1 FOR SET STATEMENT max_statement_time=1 FOR DELETE FROM t";
        assert_eq!(classified(nested), StatementClass::Change);
        assert_eq!(classified(b"ANALYZE FORMAT=JSON UPDATE t SET a=1"), StatementClass::Change);
        assert_eq!(classified(b"ANALYZE TABLE t"), StatementClass::Definition);
        assert_eq!(classified(b"ROLLBACK TO `s`"), StatementClass::Savepoint);
        assert_eq!(classified(b"CREATE TABLE t (a INT)"), StatementClass::Definition);
        assert_eq!(classified(b"CREATE OR REPLACE TEMPORARY TABLE t (a INT)"), StatementClass::Temporary);
        assert_eq!(classified(b"DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`"), StatementClass::Temporary);
        assert_eq!(classified(b"/*!40005 DROP TABLE t */"), StatementClass::Definition);
        assert_eq!(classified(b"xa end X'78',X'',1"), StatementClass::XaEnd);
        assert_eq!(classified(b"xa commit 'x'"), StatementClass::Xa);
        assert!(classify(text(b"/* never closed")).is_err());
        // The source has read these in another mode than the logged one, which does not matter to their class.
        let quoted =
            br#"SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR CREATE TABLE t (a ENUM("x\'", 'y') DEFAULT "x")"#;
        assert_eq!(classified(quoted), StatementClass::Definition);
        assert_eq!(
            classified(br#"SET STATEMENT sql_mode=ANSI_QUOTES FOR INSERT INTO t VALUES ("\")"#),
            StatementClass::Change
        );
        assert!(touched(text(quoted), "d").is_err(), "what it names is as unclear as before");
        let hidden = br#"SET STATEMENT sql_mode="\" FOR DELETE FROM t; " FOR CREATE TABLE t (a INT)"#;
        assert!(classify(text(hidden)).is_err());
    }

    fn table(schema: &str, table: &str) -> Object {
        Object::Table(TableName { schema: schema.into(), table: table.into() })
    }

    #[test]
    fn objects_of_a_definition_are_named() {
        for (sql, expected) in [
            ("CREATE TABLE IF NOT EXISTS `a b` (x INT)", vec![table("d", "a b")]),
            ("create or replace table e.t as select 1", vec![table("e", "t")]),
            ("DROP TABLE IF EXISTS a, `e`.`b` /* generated by server */", vec![table("d", "a"), table("e", "b")]),
            ("ALTER TABLE t RENAME TO e.u, RENAME COLUMN a TO b", vec![table("d", "t"), table("e", "u")]),
            ("ALTER ONLINE TABLE t EXCHANGE PARTITION p WITH TABLE u", vec![table("d", "t"), table("d", "u")]),
            ("RENAME TABLE a TO b, e.c TO a", vec![table("d", "a"), table("d", "b"), table("e", "c"), table("d", "a")]),
            ("CREATE UNIQUE INDEX i ON t (a)", vec![table("d", "t")]),
            ("DROP INDEX `PRIMARY` ON e.t", vec![table("e", "t")]),
            (
                "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`localhost` SQL SECURITY DEFINER VIEW v AS SELECT 1",
                vec![table("d", "v")],
            ),
            ("CREATE SEQUENCE s START WITH 5", vec![table("d", "s")]),
            ("CREATE OR REPLACE JSON RELATIONAL DUALITY VIEW v AS SELECT 1", vec![table("d", "v")]),
            ("CREATE LIBRARY l LANGUAGE JAVASCRIPT AS 'x'", vec![Object::Routines]),
            (
                "CREATE DEFINER=`a`@`%` TRIGGER e.r BEFORE INSERT ON t FOR EACH ROW SET @a=1",
                vec![Object::Trigger(TableName { schema: "e".into(), table: "r".into() })],
            ),
            ("CREATE DEFINER=`a`@`%` PROCEDURE p() SELECT 1", vec![Object::Routines]),
            ("DROP DATABASE IF EXISTS x", vec![Object::Schema("x".into())]),
            ("ALTER DATABASE CHARACTER SET latin1", vec![Object::Schema("d".into())]),
            ("CREATE USER a@b IDENTIFIED BY 'x'", vec![Object::Accounts]),
            ("SET PASSWORD FOR a@b = 'x'", vec![Object::Accounts]),
            ("RENAME USER a TO b", vec![Object::Accounts]),
            ("TRUNCATE TABLE t", vec![]),
            ("OPTIMIZE TABLE t", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(touched(text(sql.as_bytes()), "d").unwrap(), expected, "{sql}");
        }
    }

    #[test]
    fn atomic_statements_are_told() {
        for sql in [
            "CREATE TABLE t (a INT, b INT)",
            "ALTER TABLE t ADD a INT, DROP b",
            "CREATE OR REPLACE TABLE t AS SELECT 1",
            "DROP TABLE a, b",
            "CREATE INDEX i ON t (a, b)",
            "CREATE VIEW v AS SELECT a, b FROM t",
            "CREATE PROCEDURE p() BEGIN SELECT 1, 2; END",
            "ALTER DATABASE d COLLATE utf8mb4_bin",
            "RENAME TABLE a TO b",
            "DROP USER a",
            "GRANT SELECT ON *.* TO a",
            "TRUNCATE TABLE t",
            "CREATE TABLE t (`never closed INT)",
        ] {
            assert!(is_whole_or_nothing(text(sql.as_bytes())), "{sql}");
        }
        for sql in [
            "CREATE TABLE t AS SELECT 1",
            "ALTER TABLE t DROP PARTITION p",
            "ALTER TABLE t DISCARD TABLESPACE",
            "DROP DATABASE d",
            "RENAME TABLE a TO b, c TO d",
            "CREATE USER a, b",
            "GRANT a TO b, c",
            "/* never closed",
            "CREATE /* never closed",
            "",
        ] {
            assert!(!is_whole_or_nothing(text(sql.as_bytes())), "{sql}");
        }
    }

    #[test]
    fn account_statements_are_told() {
        let far = format!("/* {} */ GRANT ALL ON *.* TO a", "x".repeat(5000));
        for sql in [
            far.as_str(),
            "GRANT ALL ON *.* TO a",
            "/* x */ create or replace user a",
            "set password for a = 'x'",
            "SET STATEMENT max_statement_time=1 FOR SET STATEMENT lock_wait_timeout=1 FOR drop role r",
            "FLUSH LOCAL PRIVILEGES",
            "ALTER TABLE mysql.user ADD x INT",
            "RENAME USER a TO b",
            "CREATE TABLE t (a INT COMMENT 'never closed)",
        ] {
            assert!(may_concern_accounts(text(sql.as_bytes())), "{sql}");
        }
        for sql in
            ["CREATE TABLE t (role INT, user INT)", "CREATE TABLE `grant` (a INT)", "FLUSH TABLES", "DROP VIEW user"]
        {
            assert!(!may_concern_accounts(text(sql.as_bytes())), "{sql}");
        }
    }

    #[test]
    fn created_tables_and_sequences_are_told() {
        assert_eq!(creates(text(b"CREATE /* x */ TABLE t (a INT)")), Some(Created::Table));
        assert_eq!(creates(text(b"create sequence if not exists s")), Some(Created::Sequence));
        assert!(renames_tables(text(b"rename table a to b")) && !renames_tables(text(b"RENAME USER a TO b")));
        for sql in ["CREATE OR REPLACE SEQUENCE s", "CREATE VIEW v AS SELECT 1", "DROP TABLE t"] {
            assert_eq!(creates(text(sql.as_bytes())), None, "{sql}");
        }
    }

    #[test]
    fn default_schema_functions_without_one_are_answered() {
        let asked = without_default_schema(text(
            b"INSERT INTO d.t VALUES (1, database( )  , 'SCHEMA()'), (SCHEMA /* x */ (),2,'')",
        ));
        let null = "NULLIF(DATABASE(),DATABASE())";
        let answered = format!("INSERT INTO d.t VALUES (1, {null}  , 'SCHEMA()'), ({null},2,'')");
        assert_eq!(asked.unwrap().unwrap(), answered.as_bytes());
        assert!(without_default_schema(text(b"SELECT '\\', database ()")).is_err());
        let answered = format!("SELECT {null}");
        assert_eq!(without_default_schema(text(b"SELECT DATABASE()")).unwrap().unwrap(), answered.as_bytes());
        assert_eq!(without_default_schema(text(b"SELECT d.DATABASE()")).unwrap(), None);
        for sql in ["INSERT INTO d.t VALUES ('DATABASE()', `schema`, database)", "CREATE DATABASE d", ""] {
            assert_eq!(without_default_schema(text(sql.as_bytes())).unwrap(), None, "{sql}");
        }
        for sql in [
            "CREATE TABLE t SELECT 1",
            "create or replace temporary table t (a int)",
            "ALTER ONLINE TABLE t ADD a VARCHAR(64) DEFAULT (DATABASE())",
        ] {
            assert!(makes_table(text(sql.as_bytes())), "{sql}");
        }
        assert!(!makes_table(text(b"CREATE VIEW v AS SELECT DATABASE()")));
    }

    #[test]
    fn drops_of_schemas_and_triggers_are_told() {
        for sql in ["DROP DATABASE d", "drop schema if exists d", "DROP TRIGGER /* x */ t"] {
            assert!(drops_schema_or_trigger(text(sql.as_bytes())), "{sql}");
        }
        assert!(!drops_schema_or_trigger(text(b"DROP TABLE database")));
    }

    #[test]
    fn drop_gets_the_schema_of_each_name() {
        let named = |sql: &str| drop_with_schemas(text(sql.as_bytes()), "gone").unwrap();
        let told = |sql: &str| String::from_utf8(named(sql).unwrap()).unwrap();
        assert_eq!(
            told("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`,e.`b``c`, ä /* generated by server */"),
            "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `gone`.`a`,e.`b``c`, `gone`.ä /* generated by server */"
        );
        assert_eq!(told("drop view v restrict"), "drop view `gone`.v restrict");
        assert_eq!(told("DROP TABLE .t"), "DROP TABLE `gone`.t");
        assert!(named("DROP INDEX i ON t").is_none() && named("CREATE TABLE t (a INT)").is_none());
    }

    #[test]
    fn drop_in_another_character_set_keeps_its_names() {
        let reading = Reading { encoding: spate_sql::Encoding::of_charset("latin1"), ..Reading::plain() };
        let latin = |sql: &'static [u8], database| drop_with_schemas(SqlText { sql, reading: &reading }, database);
        assert_eq!(latin(b"DROP TABLE d.`\xfc`", "\u{fc}").unwrap().unwrap(), b"DROP TABLE d.`\xfc`");
        assert_eq!(latin(b"DROP TABLE `\xfc`", "gone").unwrap().unwrap(), b"DROP TABLE `gone`.`\xfc`");
        assert!(latin(b"DROP TABLE `\xfc`", "\u{fc}").is_err());
    }

    #[test]
    fn temporary_tables_are_told_by_name() {
        let name = |name: &str| TableName { schema: "d".into(), table: name.into() };
        assert_eq!(
            temporary_tables(text(b"CREATE TEMPORARY TABLE IF NOT EXISTS a LIKE b"), "d").unwrap(),
            (true, vec![name("a")])
        );
        let dropped = b"DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`,`b`";
        assert_eq!(temporary_tables(text(dropped), "d").unwrap(), (false, vec![name("a"), name("b")]));
        assert!(
            drops_tables(text(dropped))
                && drops_tables(text(b"drop view v"))
                && !drops_tables(text(b"DROP INDEX i ON t"))
        );
    }
}

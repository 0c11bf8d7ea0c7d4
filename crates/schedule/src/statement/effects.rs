//! What a statement does to what is there, and what happens if it is executed again.

use spate_sql::{SqlText, Token};

use super::words::{kind, opened};

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

/// True for CREATE TABLE, also of a temporary one, CREATE OR REPLACE TABLE and ALTER TABLE: the server evaluates
/// functions in these at once, whereas it only stores the bodies of views and programs.
pub fn makes_table(text: SqlText<'_>) -> bool {
    let mut words = opened(text);
    words.next().is_some_and(|verb| verb.is_one_of(&["CREATE", "ALTER"])) && kind(&mut words) == Some("TABLE")
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

#[cfg(test)]
mod tests {
    use super::super::tests::text;
    use super::*;

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
    fn created_tables_and_sequences_are_told() {
        assert_eq!(creates(text(b"CREATE /* x */ TABLE t (a INT)")), Some(Created::Table));
        assert_eq!(creates(text(b"create sequence if not exists s")), Some(Created::Sequence));
        assert!(renames_tables(text(b"rename table a to b")) && !renames_tables(text(b"RENAME USER a TO b")));
        for sql in ["CREATE OR REPLACE SEQUENCE s", "CREATE VIEW v AS SELECT 1", "DROP TABLE t"] {
            assert_eq!(creates(text(sql.as_bytes())), None, "{sql}");
        }
    }

    #[test]
    fn drops_of_schemas_and_triggers_are_told() {
        for sql in ["DROP DATABASE d", "drop schema if exists d", "DROP TRIGGER /* x */ t"] {
            assert!(drops_schema_or_trigger(text(sql.as_bytes())), "{sql}");
        }
        assert!(!drops_schema_or_trigger(text(b"DROP TABLE database")));
    }
}

//! What a statement is, told by its words: whether it commits by itself, and which objects it may change.

use crate::definition::TableName;
pub use crate::excerpt::excerpt;
use crate::words::{Word, Words};

/// What a statement does to the transaction that it stands in.
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
    /// XA COMMIT, XA ROLLBACK, and whatever else begins with XA.
    Xa,
}

/// An object that a statement which commits by itself may change. When it has not changed, the statement had no effect yet
/// (or has none).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A table, view or sequence.
    Table(TableName),
    /// A trigger: its schema and name.
    Trigger(TableName),
    /// A schema.
    Schema(String),
    /// Accounts, roles and what they may do.
    Accounts,
    /// Procedures, functions and packages.
    Routines,
    /// Events of the event scheduler.
    Events,
}

/// Tells a statement's class by its first words.
pub fn classify(sql: &[u8]) -> StatementClass {
    let mut words = opened(sql);
    let Some(first) = words.next() else { return StatementClass::Definition };
    let is_any = |keywords: &[&str]| keywords.iter().any(|keyword| first.is(keyword));
    if first.is("XA") {
        if words.accept("END") { StatementClass::XaEnd } else { StatementClass::Xa }
    } else if is_any(&["SAVEPOINT", "ROLLBACK", "RELEASE"]) {
        StatementClass::Savepoint
    } else if is_any(&["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "LOAD", "CALL", "SELECT", "DO"]) {
        StatementClass::Change
    } else if is_any(&["CREATE", "DROP"]) {
        if words.accept("OR") {
            words.accept("REPLACE");
        }
        if words.accept("TEMPORARY") { StatementClass::Temporary } else { StatementClass::Definition }
    } else {
        StatementClass::Definition
    }
}

/// The statement with what `DATABASE()` and `SCHEMA()` say in a session that has no default schema: NULL. `None` if it calls
/// neither.
pub fn without_default_schema(sql: &[u8]) -> Option<Vec<u8>> {
    let (mut words, mut rewritten, mut copied) = (Words::new(sql), Vec::new(), 0);
    loop {
        let start = words.place(sql);
        let Some(word) = words.next() else { break };
        if (word.is("DATABASE") || word.is("SCHEMA")) && words.accept_mark(b'(') && words.accept_mark(b')') {
            rewritten.extend_from_slice(&sql[copied..start]);
            rewritten.extend_from_slice(b"NULL");
            copied = words.end(sql);
        }
    }
    rewritten.extend_from_slice(&sql[copied..]);
    (copied > 0).then_some(rewritten)
}

/// True if there is what looks like a call of `DATABASE()` or `SCHEMA()`, be it in a text.
pub fn may_ask_for_default_schema(sql: &[u8]) -> bool {
    let upper = sql.to_ascii_uppercase();
    let calls = |name: &[u8]| {
        let is_call = |place: usize| upper[place..].trim_ascii_start().first() == Some(&b'(');
        (0..upper.len()).any(|place| upper[..place].ends_with(name) && is_call(place))
    };
    calls(b"DATABASE") || calls(b"SCHEMA")
}

/// True for CREATE TABLE, also of a temporary one, and CREATE OR REPLACE TABLE: what it is made of is asked for at once, whereas
/// the bodies of views and programs are only kept.
pub fn makes_table(sql: &[u8]) -> bool {
    let mut words = opened(sql);
    words.accept("CREATE") && {
        words.accept("OR");
        words.accept("REPLACE");
        words.accept("TEMPORARY");
        words.accept("TABLE")
    }
}

/// The temporary tables that a statement of the class [`StatementClass::Temporary`] names, and whether it creates them.
pub fn temporary_tables(sql: &[u8], database: &str) -> (bool, Vec<TableName>) {
    let mut words = opened(sql);
    let creates = words.next().is_some_and(|first| first.is("CREATE"));
    while words.next().is_some_and(|word| !word.is("TABLE") && !word.is("TABLES") && !word.is("SEQUENCE")) {}
    skip_existence(&mut words);
    let names = names(&mut words, database, if creates { 1 } else { usize::MAX });
    (creates, names)
}

/// True for a CREATE that succeeds if there is one already: IF NOT EXISTS, OR REPLACE.
pub(crate) fn takes_what_exists(sql: &[u8]) -> bool {
    let mut words = opened(sql);
    words.accept("CREATE")
        && (words.accept("OR") || { words.accept("TEMPORARY") && words.accept("TABLE") && words.accept("IF") })
}

/// True for DROP TABLE, VIEW or SEQUENCE: what is gone already does not matter to them.
pub fn drops_tables(sql: &[u8]) -> bool {
    let mut words = opened(sql);
    words.accept("DROP") && {
        words.accept("TEMPORARY");
        ["TABLE", "TABLES", "VIEW", "SEQUENCE"].iter().any(|kind| words.accept(kind))
    }
}

/// What a statement creates that holds rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// CREATE TABLE.
    Table,
    /// CREATE SEQUENCE.
    Sequence,
}

/// What the statement creates, if it is a table or a sequence, and replaces none.
pub fn creates(sql: &[u8]) -> Option<Created> {
    let mut words = opened(sql);
    if !words.accept("CREATE") {
        return None;
    }
    let created = if words.accept("TABLE") { Created::Table } else { Created::Sequence };
    let is_known = created == Created::Table || words.accept("SEQUENCE");
    is_known.then_some(created)
}

/// True for RENAME TABLE.
pub fn renames_tables(sql: &[u8]) -> bool {
    let mut words = opened(sql);
    words.accept("RENAME") && (words.accept("TABLE") || words.accept("TABLES"))
}

/// True for CREATE OR REPLACE, which makes the same again. (A server that dies in its midst may leave neither what was there
/// before nor what was to replace it.)
pub fn replaces(sql: &[u8]) -> bool {
    let mut words = opened(sql);
    ["CREATE", "OR", "REPLACE"].iter().all(|keyword| words.accept(keyword))
}

/// What a statement that commits by itself may change, as far as anyone could see it. Nothing: to execute it twice does no
/// harm. `database` is the default database.
pub fn touched(sql: &[u8], database: &str) -> Vec<Object> {
    let mut words = opened(sql);
    let Some(first) = words.next() else { return vec![] };
    if ["GRANT", "REVOKE", "SET"].iter().any(|keyword| first.is(keyword)) {
        return vec![Object::Accounts];
    }
    if first.is("RENAME") {
        return renamed(&mut words, database);
    }
    if !["CREATE", "ALTER", "DROP"].iter().any(|keyword| first.is(keyword)) {
        return vec![];
    }
    match kind(&mut words) {
        Some("TABLE" | "VIEW" | "SEQUENCE") if first.is("ALTER") => altered(&mut words, database),
        Some("TABLE" | "VIEW" | "SEQUENCE") => {
            skip_existence(&mut words);
            let count = if first.is("DROP") { usize::MAX } else { 1 };
            names(&mut words, database, count).into_iter().map(Object::Table).collect()
        }
        Some("INDEX") => {
            while words.next().is_some_and(|word| !word.is("ON")) {}
            names(&mut words, database, 1).into_iter().map(Object::Table).collect()
        }
        Some("TRIGGER") => {
            skip_existence(&mut words);
            names(&mut words, database, 1).into_iter().map(Object::Trigger).collect()
        }
        Some("DATABASE" | "SCHEMA") => {
            skip_existence(&mut words);
            let is_option = |word: &Word<'_>| {
                ["CHARACTER", "CHARSET", "COLLATE", "COMMENT", "DEFAULT"].iter().any(|option| word.is(option))
            };
            let name = words.next().filter(|word| !is_option(word)).and_then(|word| word.identifier());
            vec![Object::Schema(name.unwrap_or_else(|| database.to_owned()))]
        }
        Some("PROCEDURE" | "FUNCTION" | "PACKAGE") => vec![Object::Routines],
        Some("EVENT") => vec![Object::Events],
        Some("USER" | "ROLE") => vec![Object::Accounts],
        _ => vec![],
    }
}

/// The words of a statement after opening parentheses and `SET STATEMENT … FOR`.
fn opened(sql: &[u8]) -> Words<'_> {
    let mut words = Words::new(sql);
    while words.accept_mark(b'(') {}
    let mut inner = words.clone();
    if inner.accept("SET") && inner.accept("STATEMENT") {
        while inner.next().is_some_and(|word| !word.is("FOR")) {}
        return inner;
    }
    words
}

/// The kind of object that a CREATE, ALTER or DROP is about; what stands before it is passed over.
fn kind(words: &mut Words<'_>) -> Option<&'static str> {
    const KINDS: [&str; 14] = [
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
        "EVENT",
        "USER",
        "ROLE",
        "SERVER",
    ];
    words.find_map(|word| match () {
        () if word.is("TABLES") => Some("TABLE"),
        () => KINDS.into_iter().find(|kind| word.is(kind)),
    })
}

fn skip_existence(words: &mut Words<'_>) {
    if words.accept("IF") {
        words.accept("NOT");
        words.accept("EXISTS");
    }
}

/// Up to `count` names separated by commas.
fn names(words: &mut Words<'_>, database: &str, count: usize) -> Vec<TableName> {
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
fn name(words: &mut Words<'_>, database: &str) -> Option<TableName> {
    let first = words.next()?.identifier()?;
    if !words.accept_mark(b'.') {
        return Some(TableName { schema: database.to_owned(), table: first });
    }
    Some(TableName { schema: first, table: words.next()?.identifier()? })
}

fn renamed(words: &mut Words<'_>, database: &str) -> Vec<Object> {
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

/// The table of an ALTER, and those that it renames it to or exchanges a partition with.
fn altered(words: &mut Words<'_>, database: &str) -> Vec<Object> {
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
        } else if matches!(word, Word::Mark(b';')) {
            break;
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_decide() {
        assert_eq!(classify(b"insert into t values (1)"), StatementClass::Change);
        assert_eq!(classify(b"/* why */ UPDATE t SET a=1"), StatementClass::Change);
        assert_eq!(classify(b"# a\n-- b\n DELETE FROM t"), StatementClass::Change);
        assert_eq!(
            classify(b"SET STATEMENT max_statement_time=5 FOR INSERT INTO t VALUES (1)"),
            StatementClass::Change
        );
        assert_eq!(classify(b"ROLLBACK TO `s`"), StatementClass::Savepoint);
        assert_eq!(classify(b"CREATE TABLE t (a INT)"), StatementClass::Definition);
        assert_eq!(classify(b"CREATE OR REPLACE TEMPORARY TABLE t (a INT)"), StatementClass::Temporary);
        assert_eq!(classify(b"DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`"), StatementClass::Temporary);
        assert_eq!(classify(b"/*!40005 DROP TABLE t */"), StatementClass::Definition);
        assert_eq!(classify(b"xa end X'78',X'',1"), StatementClass::XaEnd);
        assert_eq!(classify(b"xa commit 'x'"), StatementClass::Xa);
        assert_eq!(classify(b"/* never closed"), StatementClass::Definition);
    }

    fn table(schema: &str, table: &str) -> Object {
        Object::Table(TableName { schema: schema.into(), table: table.into() })
    }

    #[test]
    fn what_a_definition_names() {
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
            assert_eq!(touched(sql.as_bytes(), "d"), expected, "{sql}");
        }
    }

    #[test]
    fn what_is_created() {
        assert_eq!(creates(b"CREATE /* x */ TABLE t (a INT)"), Some(Created::Table));
        assert_eq!(creates(b"create sequence if not exists s"), Some(Created::Sequence));
        assert!(renames_tables(b"rename table a to b") && !renames_tables(b"RENAME USER a TO b"));
        for sql in ["CREATE OR REPLACE SEQUENCE s", "CREATE VIEW v AS SELECT 1", "DROP TABLE t"] {
            assert_eq!(creates(sql.as_bytes()), None, "{sql}");
        }
    }

    #[test]
    fn the_default_schema_where_there_is_none() {
        let asked =
            without_default_schema(b"INSERT INTO d.t VALUES (1, database( )  , 'SCHEMA()'), (SCHEMA /* x */ (),2,'')");
        assert_eq!(asked.unwrap(), b"INSERT INTO d.t VALUES (1, NULL  , 'SCHEMA()'), (NULL,2,'')");
        assert!(may_ask_for_default_schema(b"SELECT '\\', database ()"));
        assert!(!may_ask_for_default_schema(b"SELECT 'database', ()"));
        assert_eq!(without_default_schema(b"SELECT DATABASE()").unwrap(), b"SELECT NULL");
        for sql in ["INSERT INTO d.t VALUES ('DATABASE()', `schema`, database)", "CREATE DATABASE d", ""] {
            assert_eq!(without_default_schema(sql.as_bytes()), None, "{sql}");
        }
        for sql in ["CREATE TABLE t SELECT 1", "create or replace temporary table t (a int)"] {
            assert!(makes_table(sql.as_bytes()), "{sql}");
        }
        assert!(!makes_table(b"CREATE VIEW v AS SELECT DATABASE()"));
    }

    #[test]
    fn temporary_tables_by_name() {
        let name = |name: &str| TableName { schema: "d".into(), table: name.into() };
        assert_eq!(temporary_tables(b"CREATE TEMPORARY TABLE IF NOT EXISTS a LIKE b", "d"), (true, vec![name("a")]));
        let dropped = b"DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`,`b`";
        assert_eq!(temporary_tables(dropped, "d"), (false, vec![name("a"), name("b")]));
        assert!(drops_tables(dropped) && drops_tables(b"drop view v") && !drops_tables(b"DROP INDEX i ON t"));
    }
}

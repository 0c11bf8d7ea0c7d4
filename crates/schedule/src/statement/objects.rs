//! The objects that a statement may change.

use spate_sql::{Doubt, Lexer, SqlText};

use super::words::{kind, name, names, opened, skip_existence, skip_kind};
use crate::definition::TableName;

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

/// The temporary tables that a statement of the class [`StatementClass::Temporary`](super::StatementClass::Temporary) names, and whether it creates them.
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

#[cfg(test)]
mod tests {
    use super::super::drops_tables;
    use super::super::tests::text;
    use super::*;

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

//! Statements of a source that is itself a replica of Spate. The source logs changes of its own `spate` schema: the
//! replica must not apply them, and no statement of the source may change the replica's `spate` schema.

use spate_sql::{Lexer, SqlText};

use crate::statement::{self, Object, StatementClass};

/// Spate's own schema on a replica. A source that is itself a replica of Spate logs changes of its schema of this name.
pub const OWN_SCHEMA: &str = "spate";

/// Functions of the server, and words like them, that stand before a parenthesis where Spate changes its own tables.
const OWN_FUNCTIONS: [&str; 8] =
    ["VALUES", "IF", "UTC_TIMESTAMP", "UNIX_TIMESTAMP", "FROM_UNIXTIME", "UUID_SHORT", "NOW", "CURRENT_TIMESTAMP"];

/// The relation of a statement to a schema of the name of Spate's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnSchema {
    /// It does not use it, or only grants privileges on it.
    Apart,
    /// It changes tables of that schema, and nothing else: it is left out, as changes of these tables' rows are.
    Only,
    /// It names it, or may name it, and also something else.
    Among,
}

/// True if this names Spate's own schema on some server: one with `lower_case_table_names` ignores case.
pub(crate) fn is_own(schema: &str) -> bool {
    schema.eq_ignore_ascii_case(OWN_SCHEMA)
}

/// Finds how a statement uses a schema of the name of Spate's own. `database` is the default database.
pub(crate) fn concern(text: SqlText<'_>, class: StatementClass, database: &str) -> OwnSchema {
    let is_inside = is_own(database);
    let is_without_names = matches!(class, StatementClass::Savepoint | StatementClass::Xa | StatementClass::XaEnd);
    if is_without_names || !(is_inside || text.has_letters(OWN_SCHEMA)) {
        return OwnSchema::Apart;
    }
    if class == StatementClass::Definition && maintains_tables(text) {
        return if names_own_schema(text) { OwnSchema::Only } else { OwnSchema::Apart };
    }
    let Ok(objects) = statement::touched(text, database) else { return OwnSchema::Among };
    // Privileges are the administrator's affair, also on this schema.
    if objects == [Object::Accounts] {
        return OwnSchema::Apart;
    }
    let in_own = |schema: &str| schema == OWN_SCHEMA;
    let is_only = match class {
        StatementClass::Change => changes_own_table(text, database),
        StatementClass::Definition => {
            let is_own_object = |object: &Object| match object {
                Object::Table(table) => in_own(&table.schema),
                Object::Schema(schema) => in_own(schema),
                _ => false,
            };
            !objects.is_empty() && objects.iter().all(is_own_object) && !defines_more(text)
                || truncates_own_table(text, database)
        }
        _ => false,
    };
    match () {
        () if is_only => OwnSchema::Only,
        () if is_inside || names_own_schema(text) => OwnSchema::Among,
        () => OwnSchema::Apart,
    }
}

/// True if some name of the text is qualified by the schema, or it creates, alters or drops the schema.
fn names_own_schema(text: SqlText<'_>) -> bool {
    let mut words = text.tokens();
    let mut follows_kind = false;
    while let Some(word) = words.next() {
        let is_own = word.is_name() && word.name().is_some_and(|name| is_own(&name));
        if is_own && (follows_kind || words.peek().is_some_and(|next| next.is_mark(b'.'))) {
            return true;
        }
        follows_kind = word.is_one_of(&["DATABASE", "SCHEMA", "EXISTS"]);
    }
    words.doubt().is_some()
}

/// True for INSERT, REPLACE, UPDATE and DELETE of one table of the schema without a call that could change another
/// table.
fn changes_own_table(text: SqlText<'_>, database: &str) -> bool {
    const OPTIONS: [&str; 5] = ["LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE"];
    let mut words = text.tokens();
    let Some(verb) = words.next() else { return false };
    while words.peek().is_some_and(|word| word.is_one_of(&OPTIONS)) {
        words.next();
    }
    let is_followed_well = match () {
        () if verb.is_one_of(&["INSERT", "REPLACE"]) => {
            words.accept("INTO");
            is_own_table(&mut words, database)
        }
        () if verb.is("UPDATE") => is_own_table(&mut words, database) && words.accept("SET"),
        () if verb.is("DELETE") => {
            words.accept("FROM")
                && is_own_table(&mut words, database)
                && words.peek().is_none_or(|next| next.is("WHERE"))
        }
        () => false,
    };
    is_followed_well && calls_only_own_functions(words)
}

/// True if the text after the table's name cannot change another table: it names no table, no view and no function of a
/// user.
fn calls_only_own_functions(mut words: Lexer<'_>) -> bool {
    const READS_MORE: [&str; 6] = ["FROM", "JOIN", "TABLE", "WITH", "NEXT", "PREVIOUS"];
    const BEFORE_PARENTHESIS: [&str; 6] = ["VALUES", "VALUE", "IN", "AND", "OR", "NOT"];
    // A list of columns may follow the name of the table.
    words.accept_mark(b'(');
    while let Some(word) = words.next() {
        if word.is_one_of(&READS_MORE) || word.is_mark(b';') {
            return false;
        }
        let Some(next) = words.peek().filter(|next| word.is_name() && next.is_mark(b'(')) else { continue };
        // With a space before the parenthesis, it is a user's function.
        let is_of_server = word.is_one_of(&OWN_FUNCTIONS) && next.start == word.range().end;
        if !is_of_server && !word.is_one_of(&BEFORE_PARENTHESIS) {
            return false;
        }
    }
    words.doubt().is_none()
}

/// True for a statement that changes nothing visible in a table.
fn maintains_tables(text: SqlText<'_>) -> bool {
    let mut words = text.tokens();
    words.next().is_some_and(|verb| verb.is_one_of(&["ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "FLUSH"]))
}

fn truncates_own_table(text: SqlText<'_>, database: &str) -> bool {
    let mut words = text.tokens();
    words.accept("TRUNCATE") && {
        words.accept("TABLE");
        is_own_table(&mut words, database) && words.next().is_none() && words.doubt().is_none()
    }
}

/// True if the definition takes rows from elsewhere, or is not that of a table or a schema.
fn defines_more(text: SqlText<'_>) -> bool {
    const QUERIES: [&str; 3] = ["SELECT", "VALUES", "TABLE"];
    let mut words = statement::opened(text);
    words.next();
    match statement::kind(&mut words) {
        Some("TABLE") => words.any(|word| word.is_one_of(&QUERIES)),
        Some("DATABASE" | "SCHEMA") => false,
        _ => true,
    }
}

fn is_own_table(words: &mut Lexer<'_>, database: &str) -> bool {
    statement::name(words, database).is_some_and(|name| name.schema == OWN_SCHEMA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spate_sql::Reading;

    fn told(sql: &str, database: &str) -> OwnSchema {
        let reading = Reading::plain();
        let text = SqlText { sql: sql.as_bytes(), reading: &reading };
        concern(text, statement::classify(text).unwrap(), database)
    }

    #[test]
    fn statements_of_spate_itself_are_left_out() {
        for sql in [
            "CREATE DATABASE IF NOT EXISTS spate",
            "CREATE TABLE IF NOT EXISTS spate.checkpoint (applier INT PRIMARY KEY, at DATETIME DEFAULT CURRENT_TIMESTAMP)",
            "CREATE TABLE `spate`.`repair 1` LIKE d.t",
            "DROP TABLE IF EXISTS `spate`.`repair 1` /* generated by server */",
            "ALTER TABLE spate.checkpoint ADD x INT",
            "TRUNCATE TABLE spate.temporary_row",
            "TRUNCATE spate . intent",
            "OPTIMIZE NO_WRITE_TO_BINLOG TABLE spate.checkpoint, d.t",
            "FLUSH TABLES spate.checkpoint",
            "INSERT INTO spate.checkpoint (applier,seqno) VALUES (0,1) ON DUPLICATE KEY UPDATE \
             seqno=IF(seqno=0 AND source_file='b',1,(SELECT 1 UNION SELECT 2)),gtid_position='0-1-1'",
            "REPLACE INTO spate.session (what, connection_id) VALUES ('main', 12)",
            "INSERT IGNORE INTO spate.lock_name (id, name) VALUES (1, 'x')",
            "DELETE FROM spate.intent WHERE applier=0",
            "UPDATE spate.hold SET heartbeat = UTC_TIMESTAMP(6) WHERE id = 1",
        ] {
            assert_eq!(told(sql, "d"), OwnSchema::Only, "{sql}");
        }
        assert_eq!(told("UPDATE checkpoint SET seqno=0", "spate"), OwnSchema::Only);
    }

    #[test]
    fn other_statements_on_the_own_schema_are_refused() {
        for sql in [
            "UPDATE Spate.checkpoint SET seqno=0",
            "DROP DATABASE SPATE",
            "UPDATE spate.checkpoint, d.t SET seqno=0, a=1",
            "UPDATE d.t JOIN `spate` /* x */ . `checkpoint` SET a=seqno",
            "DELETE c FROM spate.checkpoint AS c JOIN d.t",
            "DELETE FROM spate.checkpoint USING spate.checkpoint JOIN d.t",
            "INSERT INTO spate.skipped VALUES (d.f())",
            "INSERT INTO spate.skipped VALUES (f())",
            "INSERT INTO spate.skipped VALUES (`if`())",
            "INSERT INTO spate.skipped VALUES (now ())",
            "INSERT INTO spate.skipped SELECT a FROM d.v",
            "INSERT INTO spate.skipped TABLE d.v",
            "INSERT INTO spate.skipped VALUES (NEXT VALUE FOR d.s)",
            "UPDATE spate.hold SET token = (SELECT a FROM v)",
            "DELETE FROM spate.hold WHERE EXISTS (SELECT a FROM v)",
            "CREATE TABLE spate.y (a INT) AS VALUES (d.f())",
            "CREATE TABLE spate.y TABLE d.v",
            "INSERT INTO d.t SELECT * FROM spate.checkpoint",
            "CREATE TABLE spate.x AS SELECT d.f()",
            "CREATE VIEW spate.v AS SELECT * FROM d.t",
            "CREATE VIEW d.v AS SELECT * FROM spate.checkpoint",
            "CREATE TABLE d.c (a INT, FOREIGN KEY (a) REFERENCES spate.checkpoint (applier))",
            "CREATE PROCEDURE d.p() BEGIN UPDATE spate.checkpoint SET seqno=0; END",
            "CREATE TRIGGER spate.r BEFORE INSERT ON spate.hold FOR EACH ROW SET @a=1",
            "RENAME TABLE spate.checkpoint TO d.t",
            "DROP TABLE spate.checkpoint, d.t",
            "ALTER TABLE d.t RENAME TO spate.t",
            "CREATE INDEX i ON spate.checkpoint (seqno)",
            "WITH c AS (SELECT 1) UPDATE spate.checkpoint SET seqno=0",
            "SET STATEMENT max_statement_time=1 FOR UPDATE spate.checkpoint SET seqno=0",
            "CALL spate.p()",
            "UPDATE /*!50000 spate.checkpoint, */ d.t SET a=1",
        ] {
            assert_eq!(told(sql, "d"), OwnSchema::Among, "{sql}");
        }
        for sql in ["CREATE TABLE t (a INT)", "INSERT INTO d.t VALUES (1)", "CREATE FUNCTION f() RETURNS INT RETURN 1"]
        {
            assert_eq!(
                told(sql, "spate"),
                if sql.starts_with("CREATE TABLE") { OwnSchema::Only } else { OwnSchema::Among },
                "{sql}"
            );
        }
    }

    #[test]
    fn statements_on_similar_names_are_applied() {
        for sql in [
            "INSERT INTO d.t VALUES ('spate.checkpoint')",
            "CREATE TABLE d.spate (spate INT COMMENT 'spate.checkpoint')",
            "INSERT INTO d.spate VALUES (1)",
            "UPDATE t SET spate = 1 WHERE d.spate = 2",
            "GRANT ALL PRIVILEGES ON spate.* TO 'spate'@'%'",
            "CREATE USER 'spate'@'%' IDENTIFIED BY 'spate.x'",
            "SAVEPOINT spate",
            "ANALYZE TABLE d.t /* spate */",
            "DROP TABLE IF EXISTS d.t /* spate.x */",
            "DROP DATABASE IF EXISTS spates",
        ] {
            assert_eq!(told(sql, "d"), OwnSchema::Apart, "{sql}");
        }
    }
}

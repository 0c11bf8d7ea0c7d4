//! The class of a statement: what it does to its transaction.

use spate_sql::{Doubt, Lexer, Reading, SqlText};

use super::words::{SETS_ITS_READING, opened, opened_as_read};

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

#[cfg(test)]
mod tests {
    use super::super::tests::text;
    use super::super::touched;
    use super::*;

    fn classified(sql: &[u8]) -> StatementClass {
        classify(text(sql)).unwrap()
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
}

//! What a statement may do, by its words: what a replay leaves out.

use spate_sql::{Lexer, Reading, Token};

/// A kind of statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It reads.
    Read,
    /// It changes the session, or begins or ends a transaction.
    Session,
    /// It writes rows, or definitions.
    Write,
    /// It concerns the server, its accounts, its replication, or its files.
    Server,
}

/// Words behind which nothing is for another server.
const OF_SERVER: [&str; 22] = [
    "KILL",
    "SHUTDOWN",
    "RESET",
    "PURGE",
    "CHANGE",
    "START",
    "STOP",
    "FLUSH",
    "INSTALL",
    "UNINSTALL",
    "GRANT",
    "REVOKE",
    "CLONE",
    "BINLOG",
    "RESTART",
    "IMPORT",
    "LOCK",
    "UNLOCK",
    "CACHE",
    "BACKUP",
    "HELP",
    "LOAD",
];
const READS: [&str; 9] = ["SELECT", "SHOW", "DESC", "DESCRIBE", "EXPLAIN", "VALUES", "TABLE", "WITH", "CHECKSUM"];
const OF_SESSION: [&str; 6] = ["USE", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"];

/// The class of a statement. What is not known counts as a write.
pub(crate) fn class_of(statement: &[u8]) -> Class {
    let tokens: Vec<Token<'_>> = Lexer::new(statement, &Reading::plain()).collect();
    let first = tokens.iter().find(|token| !token.is_mark(b'('));
    let has = |word: &str| tokens.iter().any(|token| token.is(word));
    let Some(first) = first else { return Class::Session };
    if first.is_one_of(&READS) {
        // INTO OUTFILE writes a file on the server; INTO @variable is of the session.
        return match () {
            () if has("OUTFILE") || has("DUMPFILE") => Class::Server,
            () if first.is("WITH") && (has("UPDATE") || has("DELETE") || has("INSERT") || has("REPLACE")) => {
                Class::Write
            }
            () if first.is("EXPLAIN") && has("ANALYZE") && (has("UPDATE") || has("DELETE") || has("INSERT")) => {
                Class::Write
            }
            () => Class::Read,
        };
    }
    if first.is("SET") {
        return class_of_set(&tokens);
    }
    if first.is_one_of(&OF_SESSION) {
        return Class::Session;
    }
    if first.is("START") && tokens.get(1).is_some_and(|token| token.is("TRANSACTION")) {
        return if has("WRITE") { Class::Write } else { Class::Session };
    }
    let is_account = ["CREATE", "ALTER", "DROP", "RENAME"].iter().any(|word| first.is(word))
        && tokens
            .get(1)
            .is_some_and(|token| token.is_one_of(&["USER", "ROLE", "SERVER", "TABLESPACE", "INSTANCE", "EVENT"]));
    match is_account || first.is_one_of(&OF_SERVER) {
        true => Class::Server,
        false => Class::Write,
    }
}

fn class_of_set(tokens: &[Token<'_>]) -> Class {
    let is_one = |words: &[&str]| {
        tokens.iter().any(|token| {
            token.is_one_of(words)
                || token.name().is_some_and(|name| words.iter().any(|word| name.eq_ignore_ascii_case(word)))
        })
    };
    if is_one(&["GLOBAL", "PERSIST", "PERSIST_ONLY", "PASSWORD", "ROLE", "RESOURCE", "STATEMENT"]) {
        return Class::Server;
    }
    // A session that reads only stays so.
    match is_one(&["TRANSACTION", "TX_READ_ONLY", "TRANSACTION_READ_ONLY"]) {
        true => Class::Write,
        false => Class::Session,
    }
}

/// True if the order of a statement's rows means something.
pub(crate) fn is_ordered(statement: &[u8]) -> bool {
    let tokens: Vec<Token<'_>> = Lexer::new(statement, &Reading::plain()).collect();
    let mut depth = 0_i64;
    let mut pairs = tokens.windows(2);
    pairs.any(|pair| {
        depth += i64::from(pair[0].is_mark(b'(')) - i64::from(pair[0].is_mark(b')'));
        depth == 0 && pair[0].is("ORDER") && pair[1].is("BY")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reads_is_a_read() {
        for read in [
            "select 1",
            "(SELECT 1) UNION (SELECT 2)",
            "show tables",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "/* x */ desc t",
        ] {
            assert_eq!(class_of(read.as_bytes()), Class::Read, "{read}");
        }
        for session in [
            "SET NAMES utf8mb4",
            "SET @a = 1",
            "use shop",
            "begin",
            "START TRANSACTION READ ONLY",
            "commit",
            "SET autocommit=0",
        ] {
            assert_eq!(class_of(session.as_bytes()), Class::Session, "{session}");
        }
        for write in [
            "insert into t values (1)",
            "WITH a AS (SELECT 1) DELETE FROM t",
            "call p()",
            "create table t (a int)",
            "START TRANSACTION READ WRITE",
            "SET SESSION TRANSACTION READ WRITE",
            "set @@session.tx_read_only = 0",
            "frobnicate",
            "do sleep(1)",
            "analyze table t",
        ] {
            assert_eq!(class_of(write.as_bytes()), Class::Write, "{write}");
        }
        for server in [
            "SET GLOBAL x = 1",
            "set @@global.x = 1",
            "SELECT 1 INTO OUTFILE 'x'",
            "shutdown",
            "grant all on x.* to y",
            "DROP USER x",
            "SET PASSWORD = 'x'",
            "load data infile 'x' into table t",
            "START SLAVE",
        ] {
            assert_eq!(class_of(server.as_bytes()), Class::Server, "{server}");
        }
    }

    #[test]
    fn only_an_outer_order_counts() {
        assert!(is_ordered(b"SELECT a FROM t ORDER BY a"));
        assert!(!is_ordered(b"SELECT a FROM (SELECT a FROM t ORDER BY a) x"));
        assert!(!is_ordered(b"SELECT 'ORDER BY' FROM t"));
    }
}

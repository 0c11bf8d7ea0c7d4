use super::*;

fn understood(statement: &[u8], reading: &SessionReading) -> Understood {
    understand(reading.tokens(statement).as_deref(), reading)
}

fn class(statement: &str) -> Class {
    understood(statement.as_bytes(), &SessionReading::default()).class
}

#[track_caller]
fn assert_all(expected: Class, statements: &[&str]) {
    for statement in statements {
        assert_eq!(class(statement), expected, "{statement}");
    }
}

#[test]
fn only_what_reads_is_a_read() {
    let reads = [
        "select 1",
        "(SELECT 1) UNION (SELECT 2)",
        "show tables",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "/* x */ desc t",
        "SELECT /*+ NO_ICP(t) */ a FROM t FOR UPDATE",
        "SELECT REPLACE(a, 'b', 'c'), INSERT(a, 1, 1, 'x') FROM größe",
        "SELECT MAX(a) INTO @a FROM t",
        "SELECT `delete`, t.update FROM t",
        "SELECT SLEEP(1), GET_LOCK('a', 1), shop.f()",
        "EXPLAIN ANALYZE SELECT 1",
        "ANALYZE FORMAT=JSON SELECT 1",
        "SELECT * FROM mysql.user",
        "SELECT /*!40001 SQL_NO_CACHE */ a FROM t",
    ];
    assert_all(Class::Read, &reads);
    let of_session = [
        "SET NAMES utf8mb4",
        "SET NAMES 'utf8' COLLATE 'utf8_bin', @a = 1",
        "SET @a = 1",
        "SET @a := (SELECT 1, 2), @`b` = 3",
        "use shop",
        "USE `a b`",
        "begin",
        "BEGIN WORK",
        "START TRANSACTION READ ONLY",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "commit",
        "ROLLBACK WORK AND NO CHAIN RELEASE",
        "ROLLBACK TO SAVEPOINT `a`",
        "RELEASE SAVEPOINT a",
        "SET autocommit=0",
        "SET character_set_results = NULL, session net_write_timeout=600, @@session.time_zone = '+00:00'",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,no_zero_date'",
        "SET sql_mode = ''",
    ];
    assert_all(Class::Session, &of_session);
}

#[test]
fn what_writes_is_a_write() {
    let writes = [
        "insert into t values (1)",
        "INSERT INTO t SELECT * FROM information_schema.tables",
        "WITH a AS (SELECT 1) DELETE FROM t",
        "EXPLAIN ANALYZE UPDATE t SET a = 1",
        "ANALYZE DELETE FROM t",
        "call p()",
        "create table t (a int)",
        "CREATE OR REPLACE ALGORITHM = MERGE DEFINER = `a`@`%` SQL SECURITY INVOKER VIEW v AS SELECT 1",
        "CREATE DEFINER = CURRENT_USER() VIEW v AS SELECT 1",
        "CREATE UNIQUE INDEX i ON t (a)",
        "DROP TEMPORARY TABLE t",
        "RENAME TABLE a TO b",
        "START TRANSACTION READ WRITE",
        "SET SESSION TRANSACTION READ WRITE",
        "set @@session.tx_read_only = 0",
        "do sleep(1)",
        "analyze table t",
    ];
    assert_all(Class::Write, &writes);
}

#[test]
fn what_concerns_the_server_is_never_replayed() {
    let settings = [
        "SET GLOBAL x = 1",
        "set @@global.x = 1",
        "SET @@`global`.x = 1",
        "SET @@persist . x = 1",
        "SET PASSWORD = 'x'",
        "SET ROLE x",
        "SET STATEMENT max_statement_time = 1 FOR DELETE FROM t",
        "SET @a = 1, GLOBAL x = 2",
        "SET sql_log_bin = 0",
        "SET gtid_next = 'AUTOMATIC'",
        "shutdown",
        "START SLAVE",
        "load data infile 'x' into table t",
        "frobnicate",
    ];
    assert_all(Class::Server, &settings);
    let accounts = [
        "grant all on x.* to y",
        "DROP USER x",
        "CREATE OR REPLACE USER x",
        "CREATE OR REPLACE ROLE x",
        "INSERT INTO mysql.user VALUES (1)",
        "UPDATE `MySQL` . global_priv SET Priv = Priv",
        "UPDATE my\u{17f}ql.user SET a = 1",
        "DROP DATABASE IF EXISTS sys",
        "UPDATE performance_schema.setup_consumers SET enabled = 'NO'",
    ];
    assert_all(Class::Server, &accounts);
    let programs = [
        "BEGIN NOT ATOMIC SET GLOBAL x = 1; END",
        "IF 1 THEN SET GLOBAL x = 1; END IF",
        "EXECUTE IMMEDIATE 'SET GLOBAL x = 1'",
        "PREPARE p FROM 'SET GLOBAL x = 1'",
        "EXECUTE p",
        "CREATE DEFINER = root@localhost EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "CREATE OR REPLACE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "CREATE FUNCTION f RETURNS STRING SONAME 'x.so'",
        "CREATE OR REPLACE AGGREGATE FUNCTION f RETURNS STRING SONAME 'x.so'",
        "CREATE PROCEDURE p() SET GLOBAL x = 1",
        "CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET GLOBAL x = 1",
    ];
    for statement in programs {
        assert!(class(statement) >= Class::Server, "{statement}");
    }
    let files = [
        "SELECT 1 INTO OUTFILE 'x'",
        "ANALYZE SELECT 1 INTO OUTFILE 'x'",
        "TABLE t INTO DUMPFILE 'x'",
        "SELECT LOAD_FILE('x')",
        "CREATE UNDO TABLESPACE u ADD DATAFILE 'u.ibu'",
        "ALTER TABLE t IMPORT TABLESPACE",
        "CREATE RESOURCE GROUP g TYPE = USER",
        "CREATE TABLE t (a int) DATA DIRECTORY = '/x'",
        "CREATE TABLE t (a int) ENGINE = `CONNECT` FILE_NAME = '/x'",
    ];
    assert_all(Class::Server, &files);
    let functions = [
        "SELECT asynchronous_connection_failover_reset()",
        "SELECT `asynchronous_connection_failover_add_source` ('a', 'b', 1, '', 80)",
        "SELECT group_replication_set_as_primary('x')",
        "DO service_get_read_locks('a', 'b', 1)",
    ];
    assert_all(Class::Server, &functions);
}

/// A comment that some servers execute may open a quote that hides what is behind it, and so may a quote that ends elsewhere in another mode.
#[test]
fn what_is_in_doubt_is_never_replayed() {
    let unclear = [
        "SELECT 1 /*!999999 ' */ INTO OUTFILE 'x' -- '",
        "SET @a = 1 /*!999999 ' */ , GLOBAL max_connections = 178 -- '",
        "WITH x AS (SELECT 1) /*!999999 ' */ DELETE FROM t -- '",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET sql_mode = 'ANSI_QUOTES'",
        "SET sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
        "SET @@session.sql_mode = DEFAULT",
        "SET NAMES gbk",
        "SET NAMES 'sjis'",
        "SET NAMES DEFAULT",
        "SET CHARACTER SET big5",
        "SET character_set_client = gbk",
        "SET @a = 1, character_set_client = @b",
        "SELECT 'a",
        "SELECT \u{212a}eyring_key_remove('x')",
        "SELECT 1; DELETE FROM t",
    ];
    assert_all(Class::Unclear, &unclear);
    let ansi = SessionReading::new("STRICT_TRANS_TABLES,ANSI_QUOTES");
    let outfile = br#"SELECT 1 AS "a\" INTO OUTFILE 'x' -- ""#;
    assert_eq!(understood(outfile, &ansi).class, Class::Server);
    assert_eq!(understood(b"SET sql_mode = ''", &ansi).class, Class::Unclear, "it changes the quotes");
}

#[test]
fn only_an_outer_order_counts() {
    let is_ordered = |statement: &str| understood(statement.as_bytes(), &SessionReading::default()).is_ordered;
    assert!(is_ordered("SELECT a FROM t ORDER BY a"));
    assert!(!is_ordered("SELECT a FROM (SELECT a FROM t ORDER BY a) x"));
    assert!(!is_ordered("SELECT 'ORDER BY' FROM t"));
    assert!(is_ordered("(SELECT a FROM t ORDER BY a)"));
    assert!(is_ordered("((SELECT a FROM t ORDER BY a) LIMIT 3)"));
    assert!(is_ordered("(SELECT a FROM t) UNION (SELECT b FROM t) ORDER BY 1"));
    assert!(is_ordered("((SELECT a FROM t) UNION (SELECT b FROM t) ORDER BY 1)"));
    assert!(!is_ordered("(SELECT a FROM t ORDER BY a LIMIT 1) UNION (SELECT b FROM t ORDER BY b LIMIT 1)"));
    assert!(!is_ordered("(SELECT a FROM (SELECT a FROM t ORDER BY a) x)"));
    assert!(!is_ordered("SELECT ROW_NUMBER() OVER (ORDER BY a) FROM t"));
}

#[test]
fn a_use_names_its_schema() {
    let uses = |statement: &str| understood(statement.as_bytes(), &SessionReading::default()).uses;
    assert_eq!(uses("USE `a``b`").as_deref(), Some("a`b"));
    assert_eq!(uses("use shop").as_deref(), Some("shop"));
    assert_eq!(uses("SELECT 1"), None);
}

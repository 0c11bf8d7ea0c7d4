//! On MySQL too, the privileges that docs/privileges.md lists are enough, and each of them is needed.

use spate_connection::{ConnectOptions, Connection};

use crate::support::program::program;
use crate::support::server::PASSWORD;
use crate::support::{Ended, Kind, Site};

const ACCOUNT: &str = "limited@'127.0.0.1'";

const SOURCE: [&str; 2] = ["REPLICATION SLAVE ON *.*", "REPLICATION CLIENT ON *.*"];

/// For row changes; the error about each that is missing says the second.
const REPLICA: [(&str, &str); 7] = [
    ("ALL PRIVILEGES ON spate.*", "GRANT ALL PRIVILEGES ON spate.*"),
    ("SELECT ON *.*", "GRANT SELECT, INSERT, UPDATE, DELETE ON *.*"),
    ("INSERT ON *.*", "GRANT SELECT, INSERT, UPDATE, DELETE ON *.*"),
    ("UPDATE ON *.*", "GRANT SELECT, INSERT, UPDATE, DELETE ON *.*"),
    ("DELETE ON *.*", "GRANT SELECT, INSERT, UPDATE, DELETE ON *.*"),
    ("SESSION_VARIABLES_ADMIN ON *.*", "GRANT SESSION_VARIABLES_ADMIN ON *.*"),
    ("CONNECTION_ADMIN ON *.*", "GRANT CONNECTION_ADMIN ON *.*"),
];
const REPLAY: &str = "REPLICATION_APPLIER ON *.*";

/// For temporary tables, in statement and mixed format.
const TEMPORARY: &str = "CREATE TEMPORARY TABLES ON *.*";
/// For GRANT PROXY and REVOKE PROXY.
const PROXY: &str = "PROXY ON ''@''";
/// For rows as SQL statements: they must see whether a table has triggers.
const TRIGGER: &str = "TRIGGER ON *.*";

const DEFINITIONS: [&str; 2] = [
    "CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, TRIGGER, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, EVENT, \
     RELOAD, PROCESS, CREATE USER, CREATE ROLE, DROP ROLE ON *.*",
    // The source's definer is root, who may do anything.
    "SET_ANY_DEFINER, SYSTEM_USER, ROLE_ADMIN, XA_RECOVER_ADMIN ON *.*",
];

/// Before 8.2 it has another name.
fn definitions() -> [String; 2] {
    DEFINITIONS.map(|grant| match Kind::Mysql.is_at_least(8, 2) {
        true => grant.to_owned(),
        false => grant.replace("SET_ANY_DEFINER", "SET_USER_ID"),
    })
}

fn limit(site: &Site, source: &[&str], replica: &[&str]) {
    for (server, grants) in [(&site.source, source), (&site.replica, replica)] {
        server.sql(&format!(
            "SET sql_log_bin=0; DROP USER IF EXISTS {ACCOUNT}; CREATE USER {ACCOUNT} IDENTIFIED BY '{PASSWORD}'"
        ));
        for grant in grants {
            server.sql(&format!("SET sql_log_bin=0; GRANT {grant} TO {ACCOUNT} WITH GRANT OPTION"));
        }
    }
}

fn replicate(site: &Site, start: &str) -> Ended {
    replicate_with(site, start, &[])
}

fn replicate_with(site: &Site, start: &str, options: &[&str]) -> Ended {
    let mut command = program();
    command.arg("replicate").arg("--archive").arg(site.archive()).args(["--start", start, "--until", "caught-up"]);
    command.arg("--source").arg(format!("limited@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port)).args(options);
    site.source.allow_password(&mut command, "source");
    site.replica.allow_password(&mut command, "replica");
    site.run(command)
}

#[test]
fn row_changes_need_each_of_few_privileges_and_no_more() {
    let site = Site::between((Kind::Mysql, &[]), (Kind::Mysql, &["--read-only=ON"]));
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNIQUE); CREATE TABLE d.n (a INT)");
    site.source.sql(
        "INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3); UPDATE d.t SET u = 9 WHERE id = 1; DELETE FROM d.t WHERE id = 2; \
         INSERT INTO d.n VALUES (1), (1), (2); DELETE FROM d.n LIMIT 1",
    );
    let all: Vec<&str> = REPLICA.iter().map(|(grant, _)| *grant).chain([REPLAY]).collect();
    for (index, (grant, named)) in REPLICA.into_iter().enumerate() {
        let without: Vec<&str> =
            all.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, grant)| *grant).collect();
        limit(&site, &SOURCE, &without);
        replicate(&site, "gtid:").assert_failed_saying(&[named, "replica"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "0", "without {grant}");
    }
    limit(&site, &SOURCE[1..], &all);
    replicate(&site, "gtid:").assert_failed_saying(&["GRANT REPLICATION SLAVE", "source"]);
    site.replica.sql("DROP DATABASE spate");
    limit(&site, &SOURCE[..1], &all);
    replicate(&site, "earliest").assert_failed_saying(&["GRANT REPLICATION CLIENT", "source"]);
    limit(&site, &SOURCE, &all);
    let ended = replicate(&site, "gtid:");
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();

    site.source.sql(
        "CREATE DATABASE e; USE e; CREATE TABLE t (id INT PRIMARY KEY) ENGINE = InnoDB; ALTER TABLE t ADD COLUMN v INT; \
         CREATE VIEW w AS SELECT * FROM t; CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 1; INSERT INTO t (id) VALUES (1); \
         CREATE PROCEDURE p() DELETE FROM t; CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO DELETE FROM t; CREATE ROLE r; \
         GRANT SELECT ON e.* TO r; CREATE USER u IDENTIFIED BY 'x'; GRANT r TO u; DROP ROLE r; TRUNCATE TABLE d.n; RENAME TABLE t TO s; \
         XA START 'x'; INSERT INTO d.n VALUES (7); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; DROP USER u",
    );
    let definitions = definitions();
    let definitions = definitions.iter().map(String::as_str);
    limit(&site, &SOURCE, &all.iter().copied().chain(definitions).collect::<Vec<_>>());
    let ended = replicate(&site, "gtid:");
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
    site.replica.sql("SET GLOBAL super_read_only = ON");
    site.source.sql("INSERT INTO d.t VALUES (100, 100)");
    replicate(&site, "gtid:").assert_failed_saying(&["super_read_only", "SET GLOBAL super_read_only=OFF"]);
}

#[test]
fn temporary_tables_proxies_and_sql_rows_need_one_more_each() {
    let site = Site::of(Kind::Mysql);
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let definitions = definitions();
    let all: Vec<&str> =
        REPLICA.iter().map(|(grant, _)| *grant).chain([REPLAY]).chain(definitions.iter().map(String::as_str)).collect();
    for (statements, named, privilege) in [
        (
            "USE d; SET binlog_format=STATEMENT; CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (5); \
             INSERT INTO t SELECT a FROM x",
            "CREATE TEMPORARY TABLE x",
            TEMPORARY,
        ),
        ("CREATE USER behind; CREATE USER ahead; GRANT PROXY ON behind TO ahead", "GRANT PROXY ON ", PROXY),
    ] {
        site.source.sql(statements);
        limit(&site, &SOURCE, &all);
        replicate(&site, "gtid:").assert_failed_saying(&[named, "lacks a privilege"]);
        limit(&site, &SOURCE, &[all.as_slice(), &[privilege]].concat());
        let ended = replicate(&site, "gtid:");
        assert!(ended.status.success(), "{}", ended.output);
        site.assert_identical();
    }
    site.source.sql("INSERT INTO d.t VALUES (7)");
    let rows: Vec<&str> = REPLICA.iter().map(|(grant, _)| *grant).collect();
    limit(&site, &SOURCE, &rows);
    replicate_with(&site, "gtid:", &["--dialect", "sql"]).assert_failed_saying(&["GRANT TRIGGER ON *.*"]);
    limit(&site, &SOURCE, &[rows.as_slice(), &[TRIGGER]].concat());
    let ended = replicate_with(&site, "gtid:", &["--dialect", "sql"]);
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
}

#[test]
fn printed_grants_are_enough() {
    let site = Site::between((Kind::Mysql, &[]), (Kind::Mysql, &["--read-only=ON", "--partial-revokes=ON"]));
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.source.sql(
        "INSERT INTO d.t VALUES (1); CREATE DATABASE `e_1`; USE `e_1`; CREATE TABLE t (id INT PRIMARY KEY, v INT); \
         ALTER TABLE t ADD COLUMN w INT, ADD INDEX (v); CREATE INDEX i ON t (w); \
         CREATE TABLE c (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id)); CREATE VIEW s AS SELECT id FROM t; \
         CREATE OR REPLACE VIEW s AS SELECT v FROM t; CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 1; \
         INSERT INTO t (id) VALUES (1); CREATE PROCEDURE pr() SELECT 1; \
         CREATE FUNCTION fn() RETURNS INT DETERMINISTIC RETURN 5; SET binlog_format=STATEMENT; INSERT INTO t (id) VALUES (fn()); \
         CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (7); INSERT INTO t (id) SELECT a FROM x; DROP TEMPORARY TABLE x; SET binlog_format=ROW; \
         CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO DELETE FROM t; ALTER EVENT ev COMMENT 'x'; DROP EVENT ev; TRUNCATE TABLE c; \
         RENAME TABLE c TO r; DROP TABLE r; CREATE DATABASE f; ALTER DATABASE f CHARACTER SET latin1; DROP DATABASE f; \
         CREATE USER somebody IDENTIFIED BY 'x'; GRANT SELECT, INSERT (v) ON `e_1`.t TO somebody; \
         GRANT EXECUTE ON FUNCTION `e_1`.fn TO somebody; CREATE ROLE r; GRANT r TO somebody; \
         REVOKE SELECT ON `e_1`.t FROM somebody; DROP USER somebody; DROP ROLE r; FLUSH PRIVILEGES; \
         XA START 'x'; INSERT INTO t (id) VALUES (100); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; DROP FUNCTION fn",
    );
    limit(&site, &SOURCE, &[]);
    site.fetch(&["--start", "gtid:"]);
    let mut command = program();
    command.args(["check", "--grants", "--archive"]).arg(site.archive());
    command.arg("--source").arg(format!("limited@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port));
    site.source.allow_password(&mut command, "source");
    site.replica.allow_password(&mut command, "replica");
    let script = site.run(command).output;
    assert!(script.contains("GRANT CONNECTION_ADMIN") && script.contains("SYSTEM_USER"), "{script}");
    assert!(script.contains("ON `e_1`.*"), "with partial revokes, names are no patterns: {script}");
    assert!(script.contains("REVOKE INSERT, UPDATE, DELETE ON mysql.* FROM 'limited'@'127.0.0.1'"), "{script}");
    assert!(!script.contains("Nobody can tell") && !script.contains("SUPER") && !script.contains("FILE"), "{script}");
    site.replica.sql(&format!("SET sql_log_bin=0; {script}"));
    let ended = replicate(&site, "gtid:");
    assert!(ended.status.success(), "{script}\n{}", ended.output);
    site.assert_identical();
    let endpoint = format!("limited@{}", site.replica.socket().display());
    site.replica.sql("CREATE USER limited@localhost IDENTIFIED WITH caching_sha2_password BY ''");
    site.replica.sql(&format!("SET sql_log_bin=0; {}", script.replace("'127.0.0.1'", "'localhost'")));
    let mut limited = Connection::connect(&endpoint.parse().unwrap(), &ConnectOptions::new("replica")).unwrap();
    let refused = limited.execute(b"UPDATE mysql.user SET Host = '%' WHERE User = 'limited'").unwrap_err();
    assert!(refused.to_string().contains("denied"), "{refused}");
    limited.execute(b"UPDATE d.t SET id = 2").unwrap();
}

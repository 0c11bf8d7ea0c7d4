//! The privileges that the help lists are enough, and each of them is needed.

use crate::support::program::program;
use crate::support::server::PASSWORD;
use crate::support::{Ended, Site, wait_until};

const ACCOUNT: &str = "limited@'127.0.0.1'";

const SOURCE: [&str; 2] = ["REPLICATION SLAVE ON *.*", "BINLOG MONITOR ON *.*"];

/// For row changes.
const REPLICA: [&str; 6] = [
    "ALL PRIVILEGES ON spate.*",
    "SELECT ON *.*",
    "INSERT ON *.*",
    "UPDATE ON *.*",
    "DELETE ON *.*",
    "BINLOG REPLAY ON *.*",
];

/// For definitions.
const DEFINITIONS: &str = "CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, TRIGGER, CREATE ROUTINE, \
    ALTER ROUTINE, EXECUTE, EVENT, SET USER, PROCESS ON *.*";
/// For temporary tables, in statement and mixed format.
const TEMPORARY: &str = "CREATE TEMPORARY TABLES ON *.*";
/// For GRANT PROXY and REVOKE PROXY.
const PROXY: &str = "PROXY ON ''@''";
/// For rows as SQL statements: they must see whether a table has triggers.
const TRIGGER: &str = "TRIGGER ON *.*";
/// For accounts: who may change the rows of every table may create, change and drop users, but not give privileges.
const ACCOUNTS: &str = "RELOAD ON *.*";

/// The account anew, with just these grants.
fn limit(site: &Site, source: &[&str], replica: &[&str]) {
    for (server, grants) in [(&site.source, source), (&site.replica, replica)] {
        server.sql(&format!("SET sql_log_bin=0; CREATE OR REPLACE USER {ACCOUNT} IDENTIFIED BY '{PASSWORD}'"));
        for grant in grants {
            let option = if [ACCOUNTS, PROXY].contains(grant) { "WITH GRANT OPTION" } else { "" };
            server.sql(&format!("SET sql_log_bin=0; GRANT {grant} TO {ACCOUNT} {option}"));
        }
    }
}

fn replicate(site: &Site, options: &[&str]) -> Ended {
    let mut command = program();
    command.arg("replicate").arg("--archive").arg(site.archive()).args(["--start", "gtid:", "--until", "caught-up"]);
    command.arg("--source").arg(format!("limited@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port));
    command.args(options);
    site.run(command)
}

fn succeeds(site: &Site, options: &[&str]) {
    let ended = replicate(site, options);
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
}

const TABLES: &str = "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE); \
    CREATE TABLE n (a INT); CREATE TABLE p (id INT PRIMARY KEY); \
    CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE);";

const ROWS: &str = "USE d; INSERT INTO t VALUES (1, 1), (2, 2), (3, 3); UPDATE t SET u = 9 WHERE id = 1; \
    DELETE FROM t WHERE id = 2; INSERT INTO n VALUES (1), (1), (2); UPDATE n SET a = 5 WHERE a = 2; DELETE FROM n LIMIT 1; \
    INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1, 1), (2, 2); DELETE FROM p WHERE id = 1;";

fn without<'a>(grants: &[&'a str], index: usize) -> Vec<&'a str> {
    grants.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, grant)| *grant).collect()
}

#[test]
fn row_changes_need_each_of_few_privileges_and_no_more() {
    let site = Site::plain();
    site.both(TABLES);
    site.source.sql(ROWS);
    let tables = "GRANT SELECT, INSERT, UPDATE, DELETE ON *.*";
    let named = ["GRANT ALL PRIVILEGES ON spate.*", tables, tables, tables, tables, "GRANT BINLOG REPLAY ON *.*"];
    for (index, named) in named.into_iter().enumerate() {
        limit(&site, &SOURCE, &without(&REPLICA, index));
        replicate(&site, &[]).assert_failed_saying(&[named, "replica"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "0", "without {}", REPLICA[index]);
    }
    std::fs::remove_dir_all(site.archive()).unwrap();
    limit(&site, &without(&SOURCE, 0), &REPLICA);
    replicate(&site, &[]).assert_failed_saying(&["GRANT REPLICATION SLAVE", "source"]);
    // What asks for a place in the binlog, needs to see it.
    site.replica.sql("DROP DATABASE spate");
    limit(&site, &without(&SOURCE, 1), &REPLICA);
    let mut command = program();
    command.arg("replicate").arg("--archive").arg(site.archive()).args(["--start", "earliest"]);
    command.arg("--source").arg(format!("limited@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port));
    site.run(command).assert_failed_saying(&["GRANT BINLOG MONITOR", "source"]);
    limit(&site, &SOURCE, &REPLICA);
    succeeds(&site, &[]);
}

#[test]
fn read_only_or_silent_replica_needs_one_more_privilege() {
    let site = Site::new(&[], &["--log-bin=replica", "--read-only=ON"]);
    site.both(TABLES);
    site.source.sql(ROWS);
    limit(&site, &SOURCE, &REPLICA);
    // The limited account cannot make Spate's schema there: the error must name what it lacks.
    replicate(&site, &[]).assert_failed_saying(&["GRANT READ_ONLY ADMIN ON *.*"]);
    limit(&site, &SOURCE, &[REPLICA.as_slice(), &["READ_ONLY ADMIN ON *.*"]].concat());
    for options in [["--no-replica-binlog"].as_slice(), &["--ignore-server-ids", "2"]] {
        replicate(&site, options).assert_failed_saying(&["GRANT BINLOG ADMIN ON *.*"]);
    }
    succeeds(&site, &[]);
    site.source.sql("INSERT INTO d.t VALUES (10, 10)");
    limit(&site, &SOURCE, &[REPLICA.as_slice(), &["READ_ONLY ADMIN, BINLOG ADMIN ON *.*"]].concat());
    succeeds(&site, &["--no-replica-binlog"]);
    site.source.sql("INSERT INTO d.t VALUES (11, 11)");
    succeeds(&site, &["--ignore-server-ids", "2"]);
}

#[test]
fn statements_need_the_privileges_of_their_effects() {
    let site = Site::plain();
    site.both(TABLES);
    site.source.sql(ROWS);
    limit(&site, &SOURCE, &REPLICA);
    succeeds(&site, &[]);
    site.source.sql("USE d; SET binlog_format=STATEMENT; INSERT INTO t VALUES (20, 20); UPDATE t SET u = 21 WHERE id = 20; DELETE FROM n");
    succeeds(&site, &[]);
    site.source.sql("CREATE DATABASE e");
    replicate(&site, &[]).assert_failed_saying(&["CREATE DATABASE e", "lacks a privilege"]);
    limit(&site, &SOURCE, &[REPLICA.as_slice(), &[DEFINITIONS]].concat());
    site.source.sql(
        "USE e; CREATE TABLE t (id INT PRIMARY KEY, v INT); ALTER TABLE t ADD COLUMN w INT; CREATE INDEX i ON t (v); \
         CREATE TABLE c (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id)); CREATE VIEW s AS SELECT id FROM t; \
         CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 1; INSERT INTO t (id) VALUES (1); \
         CREATE PROCEDURE pr() SELECT 1; CREATE FUNCTION fn() RETURNS INT DETERMINISTIC RETURN 5; DROP FUNCTION fn; \
         CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO DELETE FROM t; TRUNCATE TABLE c; RENAME TABLE c TO r; DROP TABLE r; \
         CREATE DATABASE f; DROP DATABASE f; CREATE SEQUENCE sq",
    );
    succeeds(&site, &[]);
    site.source.sql("CREATE USER somebody IDENTIFIED BY 'x'; GRANT SELECT ON d.* TO somebody; DROP USER somebody");
    site.source.sql("FLUSH PRIVILEGES");
    replicate(&site, &[]).assert_failed_saying(&["GRANT SELECT ON d.*", "lacks a privilege"]);
    limit(&site, &SOURCE, &[REPLICA.as_slice(), &[DEFINITIONS, ACCOUNTS]].concat());
    succeeds(&site, &[]);
}

#[test]
fn temporary_tables_and_proxies_need_one_more_each() {
    let site = Site::plain();
    site.both(TABLES);
    site.source.sql(
        "USE d; SET binlog_format=STATEMENT; CREATE TEMPORARY TABLE x (a INT) ENGINE=InnoDB; INSERT INTO x VALUES (5); \
         INSERT INTO t SELECT a, a FROM x",
    );
    let all = [REPLICA.as_slice(), &[DEFINITIONS, ACCOUNTS]].concat();
    limit(&site, &SOURCE, &all);
    replicate(&site, &[]).assert_failed_saying(&["CREATE TEMPORARY TABLE x", "lacks a privilege"]);
    limit(&site, &SOURCE, &[all.as_slice(), &[TEMPORARY]].concat());
    succeeds(&site, &[]);
    site.source.sql(
        "CREATE USER behind; CREATE USER ahead; GRANT PROXY ON behind TO ahead; REVOKE PROXY ON behind FROM ahead",
    );
    replicate(&site, &[]).assert_failed_saying(&["GRANT PROXY ON behind", "lacks a privilege"]);
    // The grant changes what Spate would compare, so nothing may be in doubt any more.
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
    limit(&site, &SOURCE, &[all.as_slice(), &[PROXY]].concat());
    succeeds(&site, &[]);
}

#[test]
fn rows_as_statements_need_to_see_triggers() {
    let site = Site::plain();
    site.both(TABLES);
    site.source.sql("INSERT INTO d.t VALUES (1, 1)");
    let replica = without(&REPLICA, 5);
    limit(&site, &SOURCE, &replica);
    replicate(&site, &["--dialect", "sql"]).assert_failed_saying(&["GRANT TRIGGER ON *.*"]);
    limit(&site, &SOURCE, &[replica.as_slice(), &[TRIGGER]].concat());
    succeeds(&site, &["--dialect", "sql"]);
}

#[test]
fn repairs_need_little_more() {
    let site = Site::plain();
    site.both(TABLES);
    site.replica.sql("INSERT INTO d.t VALUES (1, 0), (7, 3)");
    site.source.sql("INSERT INTO d.t VALUES (1, 1)");
    limit(&site, &SOURCE, &REPLICA);
    succeeds_after_repairing_one_row(&site);
    site.source.sql("INSERT INTO d.t VALUES (3, 3)");
    replicate(&site, &["--on-conflict", "repair"]).assert_failed_saying(&["GRANT TRIGGER", "id=3", "d.t"]);
    limit(&site, &SOURCE, &[REPLICA.as_slice(), &["TRIGGER ON *.*"]].concat());
    succeeds(&site, &["--on-conflict", "repair"]);
}

fn succeeds_after_repairing_one_row(site: &Site) {
    let ended = replicate(site, &["--on-conflict", "repair"]);
    assert!(ended.status.success(), "{}", ended.output);
    assert_eq!(site.replica.sql("SELECT u FROM d.t WHERE id = 1"), "1");
}

#[test]
fn statement_that_locks_the_applier_out_is_named() {
    let far_away = format!("DROP {} USER limited@'127.0.0.1'", " ".repeat(2000));
    for (statement, refusal, back) in [
        (&*far_away, "Access denied", true),
        ("DROP USER limited@'127.0.0.1'", "Access denied", true),
        ("ALTER USER limited@'127.0.0.1' IDENTIFIED BY 'another'", "Access denied", true),
        ("REVOKE BINLOG REPLAY ON *.* FROM limited@'127.0.0.1'", "GRANT BINLOG REPLAY", false),
        ("REVOKE ALL PRIVILEGES, GRANT OPTION FROM limited@'127.0.0.1'", "", false),
    ] {
        let site = Site::plain();
        site.both(TABLES);
        let all = "ALL PRIVILEGES ON *.*";
        limit(&site, &SOURCE, &[]);
        site.replica.sql(&format!("CREATE OR REPLACE USER {ACCOUNT} IDENTIFIED BY '{PASSWORD}'; GRANT {all} TO {ACCOUNT} WITH GRANT OPTION; REVOKE SUPER ON *.* FROM {ACCOUNT}"));
        // On the source, Spate has another account.
        let source = format!("spate@127.0.0.1:{}", site.source.port);
        let run = || {
            let mut command = program();
            // Left to itself, it would write statements once it may not replay.
            command.args(["replicate", "--dialect", "replay", "--start", "gtid:", "--until", "caught-up"]);
            command.args(["--source", &source, "--archive"]);
            command.arg(site.archive()).arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port));
            site.run(command)
        };
        site.source.sql("SET sql_log_bin=0; GRANT BINLOG REPLAY ON *.* TO limited@'127.0.0.1'");
        site.source.sql("INSERT INTO d.n VALUES (1)");
        site.source.sql(statement);
        let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
        site.source.sql("INSERT INTO d.n VALUES (2)");
        let shown = &statement[..12];
        let ended = run();
        ended.assert_failed_saying(&[&gtid, shown, "no longer lets Spate work", refusal, "CREATE USER"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.n"), "1", "{statement}");
        wait_until("the account's sessions to end", || {
            site.replica.sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'limited'") == "0"
        });
        let again = if back { "CREATE OR REPLACE USER" } else { "ALTER USER" };
        site.replica
            .sql(&format!("{again} {ACCOUNT} IDENTIFIED BY '{PASSWORD}'; GRANT {all} TO {ACCOUNT} WITH GRANT OPTION"));
        let ended = run();
        assert!(ended.status.success(), "{statement}: {}", ended.output);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.n"), "2", "{statement}");
    }
}

/// What `spate check --grants` prints for the archive.
fn printed(site: &Site) -> String {
    site.fetch(&["--start", "gtid:"]);
    let mut command = program();
    command.args(["check", "--grants", "--archive"]).arg(site.archive());
    command.arg("--source").arg(format!("limited@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port));
    let ended = site.run(command);
    assert!(ended.status.success(), "{}", ended.output);
    ended.output
}

#[test]
fn printed_grants_for_rows_alone_are_few() {
    let site = Site::plain();
    site.both(TABLES);
    site.source.sql(ROWS);
    limit(&site, &SOURCE, &[]);
    let grants: Vec<String> =
        printed(&site).lines().filter(|line| !line.starts_with("--")).map(str::to_owned).collect();
    let to = "TO 'limited'@'127.0.0.1';";
    assert_eq!(
        grants,
        [
            format!("GRANT ALL PRIVILEGES ON spate.* {to}"),
            format!("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* {to}"),
            format!("GRANT BINLOG REPLAY ON *.* {to}")
        ]
    );
}

#[test]
fn printed_grants_are_enough() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE `e_1`; USE `e_1`; CREATE TABLE t (id INT PRIMARY KEY, v INT); ALTER TABLE t ADD COLUMN w INT, ADD INDEX (v); \
         CREATE INDEX i ON t (w); CREATE TABLE c (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id)); \
         CREATE VIEW s AS SELECT id FROM t; CREATE OR REPLACE VIEW s AS SELECT v FROM t; DROP VIEW s; \
         CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 1; INSERT INTO t (id) VALUES (1); \
         CREATE PROCEDURE pr() SELECT 1; CREATE FUNCTION fn() RETURNS INT DETERMINISTIC RETURN 5; \
         SET binlog_format=STATEMENT; INSERT INTO t (id) VALUES (fn()); CREATE TEMPORARY TABLE x (a INT) ENGINE=InnoDB; \
         INSERT INTO x VALUES (7); INSERT INTO t (id) SELECT a FROM x; SET binlog_format=ROW; \
         CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO DELETE FROM t; ALTER EVENT ev COMMENT 'x'; DROP EVENT ev; TRUNCATE TABLE c; \
         RENAME TABLE c TO r; DROP TABLE r; CREATE DATABASE f; ALTER DATABASE f CHARACTER SET latin1; DROP DATABASE f; \
         CREATE SEQUENCE sq; CREATE OR REPLACE TABLE q AS SELECT * FROM t; ALTER TABLE q RENAME `e_1`.qq; \
         CREATE USER somebody IDENTIFIED BY 'x'; GRANT SELECT, INSERT (v) ON `e_1`.t TO somebody; \
         GRANT EXECUTE ON FUNCTION `e_1`.fn TO somebody; GRANT USAGE ON *.* TO somebody; CREATE ROLE r; GRANT r TO somebody; \
         REVOKE SELECT ON `e_1`.t FROM somebody; GRANT PROXY ON somebody TO root@localhost; DROP USER somebody; DROP ROLE r; \
         FLUSH PRIVILEGES; XA START 'x'; INSERT INTO t (id) VALUES (100); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; DROP FUNCTION fn",
    );
    limit(&site, &SOURCE, &[]);
    let script = printed(&site);
    assert!(
        script.contains("CREATE TEMPORARY TABLES, CREATE VIEW, DROP, EVENT, EXECUTE, INDEX, REFERENCES"),
        "{script}"
    );
    assert!(script.contains("ON `e\\_1`.*") && script.contains("SET USER"), "{script}");
    assert!(!script.contains("Nobody can tell") && !script.contains("SUPER") && !script.contains("FILE"), "{script}");
    site.replica.sql(&format!("SET sql_log_bin=0; {script}"));
    succeeds(&site, &[]);
}

#[test]
fn printed_grants_for_an_empty_archive_are_few() {
    let site = Site::plain();
    limit(&site, &SOURCE, &[]);
    let mut command = program();
    command.args(["check", "--grants", "--archive"]).arg(site.archive());
    command.arg("--source").arg(format!("limited@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port));
    site.run(command).assert_failed_saying(&["archive"]);
}

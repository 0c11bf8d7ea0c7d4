//! Notes in `spate.intent`: what they must not hold, and what they must not make Spate do. Whoever may write to the schema `spate`
//! on the replica could have written one.

use std::fs;

use spate_connection::{ConnectOptions, Connection};

use crate::support::{Ended, Kind, Server, Site, wait_until};

const OPTIONS: [&str; 2] = ["--start", "earliest"];
/// Nothing to be looked for is a fingerprint of this.
const FINGERPRINT: &str = "00000000000000000000000000000000";

fn stop_after_note(site: &Site) {
    let mut command = site.replicate(&OPTIONS);
    command.env("SPATE_STOP_AT", "after-intent");
    site.run(command).assert_says(&["stopped at after-intent"]);
}

/// Applies what there is; the run may fail.
fn run_to_end(site: &Site) -> Ended {
    site.run(site.replicate(&[OPTIONS.as_slice(), &["--until", "caught-up"]].concat()))
}

/// A note of this kind at the source's present position, whose statement names the table.
fn forge(site: &Site, kind: &str, statement: &str) {
    site.replica.sql(&format!(
        "REPLACE INTO spate.intent SELECT applier, '{kind}', '{}', source_file, source_position + 1, seqno + 1, source_seconds, '', \
         'd', \"{statement}\", '{FINGERPRINT}' FROM spate.checkpoint",
        site.source.position()
    ));
}

#[test]
fn note_holds_no_password() {
    const SECRET: &str = "hunter2-never-noted";
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d");
        site.catch_up(&OPTIONS);
        site.source.sql(&format!("CREATE USER noted@localhost IDENTIFIED BY '{SECRET}'"));
        stop_after_note(&site);
        let note = site.replica.sql("SELECT kind, statement FROM spate.intent");
        assert!(note.contains("CREATE USER") && note.contains('…'), "{note}");
        assert!(!note.contains(SECRET) && !note.contains('*') && !note.contains("$A$"), "{note}");
        site.catch_up(&OPTIONS);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM mysql.user WHERE User = 'noted'"), "1");
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
    }
}

/// The archive says what was noted; without it, the source is asked again.
#[test]
fn note_without_its_archive_is_settled() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.catch_up(&OPTIONS);
    site.source.sql("ALTER TABLE d.t ADD v INT; INSERT INTO d.t VALUES (1, 1)");
    stop_after_note(&site);
    // As if it had been executed, and not been answered any more.
    site.replica.sql("SET sql_log_bin=0; ALTER TABLE d.t ADD v INT");
    fs::remove_dir_all(site.archive()).unwrap();
    site.catch_up(&OPTIONS).assert_says(&["was executed before the interruption"]);
    site.assert_identical();
}

/// Afterwards every object has the definition that it had before, and executing it again would undo it.
#[test]
fn definition_that_exchanges_equal_definitions_is_executed_once() {
    const EXCHANGES: [&str; 5] = [
        "RENAME TABLE d.a TO d.x, d.b TO d.a, d.x TO d.b",
        "RENAME TABLE d.m TO d.x, d.n TO d.m, d.x TO d.n",
        "ALTER TABLE d.p EXCHANGE PARTITION q WITH TABLE d.s",
        "ALTER TABLE d.c CHANGE v w INT AFTER id, CHANGE w v INT",
        "ALTER TABLE d.c DROP v, CHANGE w v INT, ADD w INT",
    ];
    for (kind, engine) in [(Kind::Mariadb, "Aria"), (Kind::Mysql, "InnoDB")] {
        let site = Site::of(kind);
        site.source.sql(&format!(
            "CREATE DATABASE d; CREATE TABLE d.a (id INT PRIMARY KEY); CREATE TABLE d.b LIKE d.a; \
             CREATE TABLE d.m (id INT) ENGINE=MyISAM; CREATE TABLE d.n LIKE d.m; CREATE TABLE d.s (id INT) ENGINE={engine}; \
             CREATE TABLE d.p (id INT) ENGINE={engine} PARTITION BY LIST (id) (PARTITION q VALUES IN (1, 2)); \
             CREATE TABLE d.c (id INT PRIMARY KEY, v INT, w INT); INSERT INTO d.a VALUES (1); INSERT INTO d.m VALUES (1); \
             INSERT INTO d.p VALUES (1); INSERT INTO d.s VALUES (2); INSERT INTO d.c VALUES (1, 2, 3)"
        ));
        site.catch_up(&OPTIONS);
        for exchange in EXCHANGES {
            site.source.sql(exchange);
            let mut command = site.replicate(&OPTIONS);
            command.env("SPATE_STOP_AT", "before-fulfilment");
            site.run(command).assert_says(&["stopped at before-fulfilment"]);
            site.catch_up(&OPTIONS).assert_says(&["was executed before the interruption"]);
            site.assert_identical();
        }
    }
}

#[test]
fn interrupted_drop_of_several_tables_is_done() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.a (id INT); CREATE TABLE d.b (id INT); \
             CREATE VIEW d.v AS SELECT 1; CREATE VIEW d.w AS SELECT 2",
        );
        site.catch_up(&OPTIONS);
        for drop in ["DROP TABLE d.a, d.b", "DROP VIEW d.v, d.w"] {
            site.source.sql(drop);
            let mut command = site.replicate(&OPTIONS);
            command.env("SPATE_STOP_AT", "before-fulfilment");
            site.run(command).assert_says(&["stopped at before-fulfilment"]);
            site.catch_up(&OPTIONS).assert_says(&["was executed before the interruption"]);
            site.assert_identical();
        }
    }
}

#[test]
fn forged_note_drops_no_table() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.empty (id INT)");
    site.catch_up(&OPTIONS);
    site.replica.sql("INSERT INTO d.empty VALUES (7)");
    forge(&site, "create-select", "CREATE TABLE d.empty SELECT 1");
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&["the checkpoint is there or beyond"]);
    let assert_is_there = || assert_eq!(site.replica.sql("SELECT * FROM d.empty"), "7");
    // Beside a transaction of rows, beside a definition of another kind, and beside one of its own kind that names something else.
    for (next, kind, forged) in [
        ("INSERT INTO d.t VALUES (1)", "create-select", "CREATE TABLE d.empty SELECT 1"),
        ("CREATE OR REPLACE VIEW d.empty_too AS SELECT 1", "create-select", "CREATE TABLE d.empty SELECT 1"),
        ("INSERT INTO d.t VALUES (2)", "definition", "CREATE SEQUENCE d.empty"),
        ("INSERT INTO d.t VALUES (3)", "xa-end", "X'78',X'',1"),
    ] {
        site.source.sql(next);
        forge(&site, kind, forged);
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["spate.intent", "Only Spate may write to the schema spate"]);
        assert_is_there();
        site.run(site.replicate(&["--until", "caught-up", "--interrupted-statement", "repeat"]))
            .assert_says(&["was dropped"]);
        assert_is_there();
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
    }
    site.source.sql("CREATE TABLE d.made SELECT 1 AS a");
    forge(&site, "create-select", "CREATE TABLE d.empty SELECT 1");
    site.catch_up(&[]);
    assert_is_there();
    assert_eq!(site.replica.sql("SELECT * FROM d.made"), "1");
    assert_eq!(site.replica.sql("SELECT id FROM d.t ORDER BY id"), "1\n2\n3");
}

/// To go past what a note claims to be done would lose what lies between.
#[test]
fn forged_note_skips_nothing() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.catch_up(&OPTIONS);
    site.source.sql("INSERT INTO d.t VALUES (1); CREATE TABLE d.u (id INT)");
    forge(&site, "definition", "CREATE TABLE d.u (id INT)");
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&["spate.intent", "comes before, and is not applied yet"]);
    site.run(site.replicate(&["--until", "caught-up", "--interrupted-statement", "repeat"]));
    site.assert_identical();
    for (column, value) in
        [("kind", "'drop'"), ("source_file", "'../x'"), ("fingerprint", "'x'"), ("gtid_position", "'x'")]
    {
        forge(&site, "definition", "CREATE TABLE d.u (id INT)");
        site.replica.sql(&format!("UPDATE spate.intent SET {column} = {value}"));
        site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["the note in spate.intent"]);
    }
    site.replica.sql("DELETE FROM spate.intent; UPDATE spate.checkpoint SET source_file = '../x'");
    site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["the checkpoint on the replica"]);
}

/// A session whose texts have bytes that the lexer does not know the meaning of.
fn doubtful_session(server: &Server) -> Connection {
    let endpoint = format!("root@{}", server.socket().display()).parse().unwrap();
    let mut session = Connection::connect(&endpoint, &ConnectOptions::new("source")).unwrap();
    session.execute(b"SET NAMES gbk; USE d").unwrap();
    session
}

/// What the source executes of `sql` and the replica refuses is left out with `--skip`, with no other question.
#[test]
fn refused_doubtful_definition_leaves_no_note() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.u (id INT PRIMARY KEY); \
             CREATE TABLE d.v (id INT PRIMARY KEY)",
        );
        site.catch_up(&OPTIONS);
        // Each is refused there, for another reason each time; the last because the schema that it is executed in is gone.
        let other =
            "CREATE TABLE d.w (a INT); CREATE TABLE d.x (a INT); CREATE PROCEDURE d.p() SELECT 1; DROP TABLE d.t";
        site.replica.sql(&format!("SET sql_log_bin=0; {other}"));
        for sql in [
            b"ALTER TABLE t ADD \xd6\xd0 INT".as_slice(),
            b"CREATE TABLE w (\xd6\xd0 INT)",
            b"CREATE INDEX \xd6\xd0 ON t (id)",
            b"CREATE PROCEDURE p() SELECT 1 AS \xd6\xd0",
            b"CREATE OR REPLACE VIEW x AS SELECT 1 AS \xd6\xd0",
        ] {
            doubtful_session(&site.source).execute_single(sql).unwrap();
            let ended = site.run(site.replicate(&["--until", "caught-up"]));
            ended.assert_failed_saying(&["Nothing of this transaction was applied"]);
            assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0", "{}", ended.output);
            let gtid = ended.output.split_once("spate: transaction ").and_then(|(_, rest)| rest.split_once(" at "));
            let skip = format!("gtid:{}", gtid.unwrap_or_else(|| panic!("no GTID: {}", ended.output)).0);
            site.catch_up(&["--skip", &skip]);
        }
        site.replica.sql("SET sql_log_bin=0; DROP DATABASE d");
        doubtful_session(&site.source).execute_single(b"ALTER TABLE u ADD \xd6\xd0 INT").unwrap();
        site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["information_schema"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
    }
}

/// A server may have done a part of it, and no one can tell which objects to look at.
#[test]
fn half_done_doubtful_definition_keeps_its_note() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.u (id INT PRIMARY KEY)");
    site.catch_up(&OPTIONS);
    site.replica.sql("DROP TABLE d.u");
    doubtful_session(&site.source).execute_single(b"RENAME TABLE t TO \xd6\xd0, u TO \xd6\xd1").unwrap();
    site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["--interrupted-statement done"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "1");
    site.catch_up(&["--interrupted-statement", "done"]);
}

/// An XA transaction of this name that somebody else has prepared on the replica is nothing that Spate did.
#[test]
fn xa_transaction_of_another_account_is_not_taken_for_the_sources() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE DATABASE n; CREATE TABLE n.t (id INT PRIMARY KEY)");
        site.catch_up(&OPTIONS);
        site.replica.sql("XA START 'x'; INSERT INTO n.t VALUES (1); XA END 'x'; XA PREPARE 'x'");
        site.source.sql("XA START 'x'; INSERT INTO d.t VALUES (60); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; INSERT INTO d.t VALUES (70)");
        for _ in 0..2 {
            let ended = run_to_end(&site);
            ended.assert_failed_saying(&["1440"]);
            assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t; SELECT COUNT(*) FROM n.t"), "0\n0");
        }
        site.replica.sql("XA ROLLBACK 'x'");
        site.catch_up(&OPTIONS);
        assert_eq!(site.source.sql("SELECT * FROM d.t"), site.replica.sql("SELECT * FROM d.t"));
    }
}

/// What changes after a server has refused a statement is nothing that the statement did.
#[test]
fn refused_statement_leaves_no_note() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d; CREATE USER other@localhost");
        site.catch_up(&OPTIONS);
        site.replica.sql("CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1), (2)");
        site.source.sql("CREATE TABLE d.t AS SELECT 77 AS id");
        let gtid = site.source.position();
        let ended = run_to_end(&site);
        ended.assert_failed_saying(&["1050"]);
        site.replica.sql("ALTER TABLE d.t ADD COLUMN v INT");
        let ended = run_to_end(&site);
        ended.assert_failed_saying(&["1050"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "2", "the replica's own table is gone");

        let last = gtid.rsplit_once(['-', ':']).unwrap();
        let number = last.1.rsplit('-').next().unwrap();
        let skipped = format!("gtid:{}{}{number}", last.0, if kind == Kind::Mysql { ":" } else { "-" });
        let skipped = skipped.replace(":1:", ":");
        site.source.sql("SET sql_log_bin=0; CREATE USER lost@localhost; SET sql_log_bin=1; DROP USER lost@localhost");
        let options = [OPTIONS.as_slice(), &["--until", "caught-up", "--skip", &skipped]].concat();
        site.run(site.replicate(&options)).assert_failed_saying(&["1396"]);
        site.replica.sql(
            "SET PASSWORD FOR other@localhost = 'another'"
                .replace("'another'", if kind == Kind::Mysql { "'another'" } else { "PASSWORD('another')" })
                .as_str(),
        );
        site.run(site.replicate(&options)).assert_failed_saying(&["1396"]);
    }
}

/// A query does what it does besides but once.
#[test]
fn replacement_with_a_query_is_executed_once() {
    let site = Site::new(&["--binlog-format=STATEMENT"], &["--log-bin-trust-function-creators=1"]);
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE n (x INT) ENGINE=InnoDB; INSERT INTO n VALUES (0); CREATE TABLE y (a INT)",
    );
    let endpoint = format!("root@{}", site.source.socket().display()).parse().unwrap();
    let mut session = Connection::connect(&endpoint, &ConnectOptions::new("source")).unwrap();
    let body = "BEGIN UPDATE d.n SET x = x + 1; RETURN 1; END";
    let function = format!("CREATE FUNCTION d.f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA {body}");
    session.execute_single(function.as_bytes()).unwrap();
    site.catch_up(&OPTIONS);
    site.source.sql("USE d; CREATE OR REPLACE TABLE y AS SELECT f() AS a, SLEEP(3) AS b");
    let running = site.spawn(site.replicate(&OPTIONS));
    wait_until("the statement to be executed", || {
        site.replica
            .sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'CREATE OR REPLACE TABLE y%'")
            == "1"
    });
    assert!(running.kill());
    site.catch_up(&OPTIONS);
    assert_eq!(site.replica.sql("SELECT x FROM d.n; SELECT a FROM d.y"), "1\n1");
}

/// Somebody on the replica puts a view in the place of a table whose creation was noted. Whoever reads it executes its function.
#[test]
fn view_in_the_place_of_a_new_table_is_not_read() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        for view in ["VIEW d.x", "ALGORITHM = TEMPTABLE SQL SECURITY INVOKER VIEW d.x"] {
            let site = Site::between((kind, &[]), (kind, &["--log-bin-trust-function-creators=1"]));
            site.source.sql("CREATE DATABASE d; CREATE TABLE d.called (n INT)");
            site.catch_up(&OPTIONS);
            site.source.sql("CREATE TABLE d.x (a INT)");
            stop_after_note(&site);
            site.replica.sql(
                "DELIMITER //\nCREATE FUNCTION d.f() RETURNS INT SQL SECURITY INVOKER MODIFIES SQL DATA \
                 BEGIN INSERT INTO d.called VALUES (1); RETURN 1; END//",
            );
            site.replica.sql(&format!("CREATE {view} AS SELECT d.f() AS a"));
            run_to_end(&site).assert_failed_saying(&["CREATE TABLE d.x", "already exists"]);
            assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.called"), "0", "{kind:?}");
        }
    }
}

//! Temporary tables of the source's sessions, which outlive the sessions that apply.

use crate::support::session::Session;
use crate::support::{Kind, Site, wait_until};

const BEGIN: &str = "SET SESSION binlog_format=STATEMENT; USE d";

/// A session of the source that logs statements.
fn session(site: &Site) -> Session {
    let mut session = Session::open(&site.source);
    session.sql(BEGIN);
    session
}

/// A column of each kind, and values that texts do not tell well.
const KINDS: &str = "id INT AUTO_INCREMENT PRIMARY KEY, g INT AS (z + 1) STORED, hidden INT INVISIBLE DEFAULT 3, \
    z INT(6) ZEROFILL, u BIGINT UNSIGNED, d DECIMAL(30,10), f FLOAT, e DOUBLE, b BIT(64), y YEAR, \
    da DATE, t TIME(3), dt DATETIME(6), ts TIMESTAMP(6) NULL, \
    c CHAR(5) CHARACTER SET latin1, v VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, w TEXT CHARACTER SET utf16, \
    bi BINARY(4), bl BLOB, n ENUM('a','b','ü') CHARACTER SET latin1, s SET('x','y','z'), j JSON, p POINT, a INET6, i UUID, \
    UNIQUE KEY (v), KEY (z)";

const VALUES: &str = "(z, u, d, f, e, b, y, da, t, dt, ts, c, v, w, bi, bl, n, s, j, p, a, i) VALUES \
    (7, 18446744073709551615, 12345678901234567890.0123456789, 0.1, -0e0, b'1010', 0, '0000-00-00', '-838:59:59', \
     '1000-01-01 00:00:00.000001', '2026-03-29 02:30:00.5', 'ä', 'it''s \\\\ 😀', 'Ω', x'00ff', x'00270a5c', 'ü', 'x,z', \
     '{\"a\": \"ä\"}', POINT(1, 2.5), '::1', '12345678-0000-4000-8000-000000000001'), \
    (NULL, 0, NULL, 1.17549e-38, 2.2250738585072014e-308, NULL, 2155, '9999-12-31', '12:00:00.125', NULL, NULL, '', '', \
     NULL, NULL, '', NULL, '', NULL, NULL, NULL, NULL), \
    (1, 1, -0.0000000001, 16777217, 1e300, 18446744073709551615, 1999, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
     NULL, NULL, NULL, NULL, NULL, NULL, NULL)";

#[test]
fn temporary_tables_of_all_types_outlive_the_program() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d");
    let mut session = session(&site);
    session.sql("SET sql_mode=''; SET insert_id=40");
    session.sql(&format!("CREATE TEMPORARY TABLE x ({KINDS})"));
    session.sql(&format!("INSERT INTO x {VALUES}"));
    site.catch_up(&["--start", "earliest"]);
    // Each statement meets a program that was started anew.
    session.sql(&format!("CREATE TABLE kept ({KINDS})"));
    let columns = "id, hidden, z, u, d, f, e, b, y, da, t, dt, ts, c, v, w, bi, bl, n, s, j, p, a, i";
    let insert = format!("INSERT INTO kept ({columns}) SELECT {columns} FROM x ORDER BY id");
    session.sql(&insert);
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT COUNT(*), MIN(id), SUM(hidden) FROM d.kept"), "3\t40\t9");
    let bytes = "SELECT HEX(v), HEX(w), HEX(n), e, CAST(f AS DOUBLE), b + 0, p, y, ts FROM d.kept ORDER BY id";
    assert_eq!(site.source.sql(bytes), site.replica.sql(bytes));
    // The counter goes on where it was, also where rows were deleted.
    session.sql("DELETE FROM x WHERE id > 40; ALTER TABLE x ADD COLUMN more INT DEFAULT 5, RENAME TO renamed");
    site.catch_up(&[]);
    session.sql("INSERT INTO renamed (z, v) VALUES (99, 'last'); CREATE TABLE last AS SELECT id, z, more FROM renamed");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.last"), "40,43");
    session.sql("DROP TEMPORARY TABLE renamed; INSERT INTO last VALUES (1, 1, 1)");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(
        site.replica.sql("SELECT COUNT(*) FROM spate.temporary_table; SELECT COUNT(*) FROM spate.temporary_row"),
        "0\n0"
    );
}

#[test]
fn temporary_dates_that_do_not_exist_outlive_the_program() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, da DATE, dt DATETIME)");
        let mut session = session(&site);
        session.sql("SET SESSION sql_mode='ALLOW_INVALID_DATES'; CREATE TEMPORARY TABLE x LIKE t");
        session.sql("INSERT INTO x VALUES (1, '2024-02-31', '2023-04-31 10:00:00'), (2, '2024-00-00', '0000-00-00')");
        site.catch_up(&["--start", "earliest"]);
        session.sql("INSERT INTO t SELECT * FROM x");
        site.catch_up(&[]);
        site.assert_identical();
        assert_eq!(site.replica.sql("SELECT da FROM d.t WHERE id = 1"), "2024-02-31");
    }
}

#[test]
fn temporary_tables_outlive_the_server_and_a_refused_batch() {
    let mut site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    let (mut one, mut two) = (session(&site), session(&site));
    for (session, first) in [(&mut one, 10), (&mut two, 20)] {
        session.sql(&format!("CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES ({first}), ({first} + 1)"));
    }
    one.sql("CREATE TEMPORARY TABLE m (a INT) ENGINE=MEMORY; INSERT INTO m SELECT a + 5 FROM x");
    let running = site.spawn(site.replicate(&["--start", "earliest", "--batch-transactions", "1"]));
    site.wait_applied();
    site.replica.kill();
    one.sql("INSERT INTO t SELECT a, 1 FROM x; INSERT INTO t SELECT a, 2 FROM m; UPDATE x SET a = a + 100");
    site.replica.begin();
    site.wait_applied();
    assert_eq!(site.source.checksums(), site.replica.checksums());
    // A row that is there already has the batch taken apart: the session ends in its midst, several times.
    site.replica.sql("INSERT INTO d.t VALUES (20, 7)");
    two.sql("INSERT INTO t SELECT a, 3 FROM x WHERE a > 20");
    one.sql("INSERT INTO t SELECT a, 4 FROM x");
    two.sql("UPDATE x SET a = a + 1; INSERT INTO t SELECT a - 1, 5 FROM x WHERE a = 21");
    let ended = running.wait();
    ended.assert_failed_saying(&["1062", "Duplicate entry", "PRIMARY"]);
    site.replica.sql("DELETE FROM d.t WHERE id = 20");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "8");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.temporary_table"), "3");
    // The source's restart ends them all.
    site.source.kill();
    site.source.begin();
    site.source.sql("INSERT INTO d.t VALUES (500, 0)");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.temporary_row"), "0");
}

#[test]
fn temporary_tables_survive_row_replay() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    let mut session = session(&site);
    let rows = |id: u32| site.source.sql(&format!("SET SESSION binlog_format=ROW; INSERT INTO d.t VALUES ({id}, 0)"));
    session.sql("CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (10)");
    rows(1);
    session.sql("INSERT INTO t SELECT a, 1 FROM x; UPDATE x SET a = a + 1");
    site.catch_up(&["--start", "earliest"]);
    rows(2);
    session.sql("INSERT INTO t SELECT a, 1 FROM x; UPDATE x SET a = a + 1");
    rows(3);
    session.sql("INSERT INTO t SELECT a, 1 FROM x; UPDATE x SET a = a + 1");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "6");
}

/// The source goes on writing, so that the archive's index is behind its file when the applier begins anew, and it reads again
/// how the file began.
#[test]
fn temporary_tables_outlive_the_server_under_work() {
    let mut site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT); CREATE TABLE d.busy (v INT)",
    );
    let mut session = session(&site);
    session.sql("CREATE TEMPORARY TABLE x (a INT) ENGINE=InnoDB; INSERT INTO x VALUES (1)");
    let mut busy = Session::open(&site.source);
    let running = site.spawn(site.replicate(&["--start", "earliest", "--batch-transactions", "20"]));
    site.wait_applied();
    for round in 0..6 {
        let before = site.source.sql("SELECT COUNT(*) FROM d.busy");
        busy.send(&"INSERT INTO d.busy VALUES (1);".repeat(2000));
        wait_until("the source to be at work", || site.source.sql("SELECT COUNT(*) FROM d.busy") != before);
        session.sql("INSERT INTO t (v) SELECT a FROM x; UPDATE x SET a = a + 1");
        if round % 2 == 0 {
            site.replica.kill();
            session.sql("INSERT INTO t (v) SELECT a FROM x; UPDATE x SET a = a + 1");
            site.replica.begin();
        }
        busy.sql("DO 0");
    }
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT MAX(v), COUNT(*) FROM d.t"), "9\t9");
}

/// MariaDB logs a transaction that creates a temporary table as one that cannot be rolled back.
#[test]
fn transactions_that_create_temporary_tables_are_retried() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT); INSERT INTO d.t VALUES (1, 1)");
    site.catch_up(&["--start", "earliest"]);
    let work = "USE d; SET SESSION binlog_format=STATEMENT; BEGIN; UPDATE t SET n = n + 1; \
        CREATE TEMPORARY TABLE x (a INT) ENGINE=InnoDB; INSERT INTO x VALUES (5); UPDATE t SET n = n * 2; COMMIT;";
    let stop = || {
        let mut command = site.replicate(&["--until", "caught-up"]);
        command.env("SPATE_STOP_AT", "before-fulfilment");
        site.run(command).assert_says(&["stopped at before-fulfilment"]);
    };
    site.source.sql(work);
    stop();
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "1");
    site.catch_up(&[]);
    site.assert_identical();
    // With a table that could have kept a part of it, nobody can tell.
    site.source.sql("CREATE TABLE d.my (id INT PRIMARY KEY) ENGINE=MyISAM");
    site.catch_up(&[]);
    site.source.sql(work);
    stop();
    site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["--interrupted-statement done"]);
    site.catch_up(&["--interrupted-statement", "repeat"]);
    site.assert_identical();
}

/// Whoever may write to the schema `spate` on the replica could have written a copy: nothing of it is executed that does more than to
/// make this table and its rows.
#[test]
fn forged_copy_executes_nothing() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
        let mut session = session(&site);
        session.sql("CREATE TEMPORARY TABLE x (a INT) ENGINE=InnoDB; INSERT INTO x VALUES (10)");
        site.catch_up(&["--start", "earliest"]);
        site.replica.sql(
            "SET SESSION sql_log_bin=0; CREATE DATABASE secret; CREATE TABLE secret.called (n INT); \
             CREATE TABLE secret.kept AS SELECT * FROM spate.temporary_table; \
             CREATE TABLE secret.kept_row AS SELECT * FROM spate.temporary_row",
        );
        let function = "CREATE FUNCTION secret.f() RETURNS INT MODIFIES SQL DATA \
            BEGIN INSERT INTO secret.called VALUES (1); RETURN 1; END //";
        site.replica.sql(&format!("SET SESSION sql_log_bin=0;\nDELIMITER //\n{function}\nDELIMITER ;\nDO 0"));
        for (number, forged) in [
            "temporary_table SET definition = CONCAT(definition, ' AS SELECT secret.f() AS b')",
            "temporary_table SET definition = CONCAT(definition, '; INSERT INTO secret.called VALUES (2)')",
            "temporary_table SET definition = 'INSERT INTO secret.called VALUES (3)'",
            "temporary_row SET column_values = 'secret.f()'",
            "temporary_row SET column_values = '10); INSERT INTO secret.called VALUES (4); DO (1'",
        ]
        .into_iter()
        .enumerate()
        {
            site.replica.sql(&format!(
                "DELETE FROM spate.temporary_table; INSERT INTO spate.temporary_table SELECT * FROM secret.kept; \
                 DELETE FROM spate.temporary_row; INSERT INTO spate.temporary_row SELECT * FROM secret.kept_row; \
                 UPDATE spate.{forged}"
            ));
            site.source.sql(&format!("INSERT INTO d.t VALUES ({number})"));
            site.catch_up(&[]).assert_says(&["d.x\" cannot be made again", "only Spate may write to the schema spate"]);
            assert_eq!(site.replica.sql("SELECT * FROM secret.called"), "", "{forged}");
        }
        // As it was kept, it is made again.
        site.replica.sql(
            "DELETE FROM spate.temporary_table; INSERT INTO spate.temporary_table SELECT * FROM secret.kept; \
             DELETE FROM spate.temporary_row; INSERT INTO spate.temporary_row SELECT * FROM secret.kept_row",
        );
        session.sql("INSERT INTO t SELECT a FROM x");
        site.catch_up(&[]);
        assert_eq!(site.replica.sql("SELECT COUNT(*), MAX(id) FROM d.t"), "6\t10");
    }
}

/// What comes from a session without temporary tables, and what Spate writes by itself, goes to the table that a temporary one of
/// another session has the name of.
#[test]
fn temporary_tables_of_sessions_stay_apart() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        for dialect in ["replay", "sql"] {
            let site = Site::of(kind);
            site.source.sql(
                "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); \
                 CREATE TABLE d.x (a INT PRIMARY KEY, b INT); CREATE TABLE d.y (a INT)",
            );
            let mut first = session(&site);
            first.sql(
                "CREATE TEMPORARY TABLE x (a INT, b INT) ENGINE=InnoDB; CREATE TEMPORARY TABLE y (a INT) ENGINE=InnoDB; \
                 INSERT INTO x VALUES (1, 0); INSERT INTO y VALUES (1); INSERT INTO t SELECT a, 1 FROM x",
            );
            site.source.sql(
                "USE d; INSERT INTO x VALUES (7, 7), (8, 8); INSERT INTO y VALUES (7), (7), (8); \
                 UPDATE x SET b = 9 WHERE a = 7; DELETE FROM x WHERE a = 8; DELETE FROM y WHERE a = 8",
            );
            first.sql(
                "INSERT INTO t SELECT a + 1, 2 FROM x; UPDATE y SET a = a + 1; INSERT INTO t SELECT a + 5, 3 FROM y",
            );
            let mut second = session(&site);
            second.sql("INSERT INTO t SELECT a + 10, 4 FROM x; INSERT INTO t SELECT a + 20, 5 FROM y LIMIT 1");
            second.sql("CREATE TEMPORARY TABLE x (a INT, b INT) ENGINE=InnoDB; INSERT INTO x VALUES (50, 0)");
            first.sql("INSERT INTO t SELECT a + 100, 6 FROM x");
            second.sql("INSERT INTO t SELECT a + 100, 7 FROM x; DROP TEMPORARY TABLE x; UPDATE x SET b = 10");
            for options in [["--batch-transactions", "1"], ["--batch-transactions", "1000"]] {
                site.catch_up(&[&["--start", "earliest", "--dialect", dialect], options.as_slice()].concat());
                site.assert_identical();
                assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "7", "{kind:?} {dialect}");
                site.replica.sql("DROP DATABASE d; DROP DATABASE spate");
            }
        }
    }
}

/// What a function of the source sets in a statement is set again before Spate's own SQL is executed.
#[test]
fn settings_in_functions_spoil_no_copies() {
    let of_both = [
        "character_set_results=latin1",
        "character_set_results=utf16",
        "sql_select_limit=0",
        "sql_select_limit=1",
        "sql_safe_updates=1",
        "sql_big_selects=0, max_join_size=1",
        "completion_type=2",
        "sql_quote_show_create=0",
        "wait_timeout=1",
    ];
    let own = |kind| match kind {
        Kind::Mysql => ["max_execution_time=1", "transaction_read_only=1"],
        _ => ["max_statement_time=0.000001", "tx_read_only=1"],
    };
    for kind in [Kind::Mariadb, Kind::Mysql, Kind::Mariadb118] {
        let site = Site::of(kind);
        site.both("SET GLOBAL log_bin_trust_function_creators=1");
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT, n VARCHAR(9))");
        let mut session = session(&site);
        session.sql(
            "CREATE TEMPORARY TABLE x (a INT, n ENUM('u','ü') CHARACTER SET latin1) ENGINE=InnoDB; \
             INSERT INTO x VALUES (1, 'ü'), (2, 'u')",
        );
        site.catch_up(&["--start", "earliest"]);
        for (number, setting) in of_both.into_iter().chain(own(kind)).enumerate() {
            let body = format!("BEGIN SET SESSION {setting}; RETURN 1; END");
            site.source.sql(&format!("DELIMITER //\nCREATE FUNCTION d.f{number}() RETURNS INT {body} //\nDELIMITER ;"));
            let before = "SET @charset=@@character_set_results, @limit=@@sql_select_limit";
            let after = "SET character_set_results=@charset, sql_select_limit=@limit, sql_safe_updates=0, sql_big_selects=1, \
                completion_type=0, sql_quote_show_create=1, wait_timeout=28800";
            session.sql(before);
            session.sql(&format!("INSERT INTO t SELECT {number} * 10 + a, f{number}(), n FROM x WHERE a = 1; {after}"));
            session.sql(match kind {
                Kind::Mysql => "SET max_execution_time=0, transaction_read_only=0",
                _ => "SET max_statement_time=0, tx_read_only=0",
            });
            session.sql(&format!("INSERT INTO t SELECT {number} * 10 + a + 2, a, n FROM x"));
            site.catch_up(&[]);
            site.assert_identical();
        }
    }
}

#[test]
fn temporary_tables_renamed_together_are_kept() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.base (a INT)");
    let mut session = session(&site);
    session.sql("CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (10); CREATE TEMPORARY TABLE y (a INT)");
    session.sql("INSERT INTO y VALUES (20); RENAME TABLE base TO other, x TO z, y TO x, other TO base");
    site.catch_up(&["--start", "earliest"]);
    session.sql("INSERT INTO t SELECT a FROM x; INSERT INTO t SELECT a FROM z");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT SUM(id) FROM d.t"), "30");
}

/// MySQL renames the table that the temporary one hides.
#[test]
fn rename_of_a_hidden_table_keeps_the_temporary_one_on_mysql() {
    let site = Site::of(Kind::Mysql);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.x (a INT)");
    let mut session = session(&site);
    session.sql("CREATE TEMPORARY TABLE x (a INT) ENGINE=InnoDB; INSERT INTO x VALUES (10); RENAME TABLE x TO y");
    site.catch_up(&["--start", "earliest"]);
    session.sql("INSERT INTO t SELECT a FROM x; DROP TEMPORARY TABLE x");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT SUM(id) FROM d.t"), "10");
}

/// What uses a table whose copy cannot be made again must not go to the table that it hides.
#[test]
fn statements_with_a_lost_table_are_refused_by_name() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.x (a INT); INSERT INTO d.x VALUES (1)",
    );
    let (mut one, mut two) = (session(&site), session(&site));
    one.sql("CREATE TEMPORARY TABLE x (a INT NOT NULL) ENGINE=CSV; INSERT INTO x VALUES (10)");
    two.sql("CREATE TEMPORARY TABLE x (a INT) ENGINE=InnoDB; INSERT INTO x VALUES (20)");
    site.catch_up(&["--start", "earliest"]);
    one.sql("INSERT INTO t VALUES (30); DROP TEMPORARY TABLE x; INSERT INTO t SELECT a FROM x");
    two.sql("INSERT INTO t SELECT a FROM x");
    site.catch_up(&[]).assert_says(&["d.x", "cannot be made again"]);
    site.assert_identical();
    one.sql("CREATE TEMPORARY TABLE x (a INT NOT NULL) ENGINE=CSV; INSERT INTO x VALUES (10)");
    site.catch_up(&[]);
    // Copies of what the session has beside it do not hide that it is lost.
    one.sql("INSERT INTO t VALUES (31); INSERT INTO t SELECT a FROM x; INSERT INTO t VALUES (32)");
    for _ in 0..2 {
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["INSERT INTO t SELECT a FROM x", "temporary table d.x could not be kept"]);
    }
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t"), "1,20,30,31");
}

/// MySQL makes no document of a literal of bytes.
#[test]
fn temporary_documents_outlive_the_program_on_mysql() {
    let site = Site::of(Kind::Mysql);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)");
    let mut session = session(&site);
    session.sql("CREATE TEMPORARY TABLE x (a INT, j JSON) ENGINE=InnoDB");
    session.sql(
        r#"INSERT INTO x VALUES (1, '{"a": "ä''", "b": [1.5, null, true]}'), (2, NULL), (3, 'null'), (4, '"\\\\"')"#,
    );
    session.sql(
        "INSERT INTO x VALUES (5, JSON_OBJECT('dec', CAST(1.50 AS DECIMAL(5,2)), 'da', DATE '2024-01-01', 'bl', CAST('abc' AS BINARY), \
         'u', CAST(5 AS UNSIGNED), 'ti', TIME '10:11:12.5'))",
    );
    site.catch_up(&["--start", "earliest"]);
    session.sql("INSERT INTO t SELECT a, j FROM x");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT COUNT(*), COUNT(j) FROM d.t"), "5\t4");
    // A text does not tell these.
    let types = ["dec", "da", "bl", "u", "ti"].map(|name| format!("JSON_TYPE(JSON_EXTRACT(j, '$.{name}'))")).join(", ");
    assert_eq!(
        site.replica.sql(&format!("SELECT j->>'$.dec', {types} FROM d.t WHERE id = 5")),
        "1.50\tDECIMAL\tDATE\tBLOB\tUNSIGNED INTEGER\tTIME"
    );
}

/// A copy is the whole table, and small statements can have it written again and again.
#[test]
fn copies_of_large_temporary_tables_are_bounded() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &[]), (kind, &["--log-bin=replica", "--binlog-format=ROW"]));
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT); CREATE TABLE d.x (a INT, v MEDIUMTEXT); \
             INSERT INTO d.x VALUES (1, 'of the table that is no temporary one')",
        );
        let (mut large, mut small) = (session(&site), session(&site));
        small.sql("CREATE TEMPORARY TABLE x (a INT, v MEDIUMTEXT) ENGINE=InnoDB; INSERT INTO x VALUES (1, 'small')");
        large.sql(
            "CREATE TEMPORARY TABLE x (a INT, v MEDIUMTEXT) ENGINE=InnoDB; INSERT INTO x VALUES (1, 'x'), (2, 'y'), (3, 'z'); \
             UPDATE x SET v = REPEAT(v, 500000)",
        );
        // Each definition ends a batch. A copy takes 3 MB.
        for round in 0..30 {
            large.sql(&format!("UPDATE x SET a = a + 1 LIMIT 1; CREATE TABLE r{round} (a INT)"));
        }
        large.sql("UPDATE x SET v = REPEAT(v, 8)");
        site.catch_up(&["--start", "earliest"]);
        let written = binlog_mib(&site);
        assert!(written < 60, "{kind:?}: {written} MiB");
        small.sql("INSERT INTO t SELECT 1, COUNT(*) FROM x WHERE v = 'small'");
        site.catch_up(&[]);
        assert_eq!(site.replica.sql("SELECT n FROM d.t"), "1");
        // It must not go to the other table.
        large.sql("INSERT INTO t SELECT 2, COUNT(*) FROM x");
        site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["d.x could not be kept"]);
    }
}

/// Of the replica.
fn binlog_mib(site: &Site) -> u64 {
    let logs = site.replica.sql("SHOW BINARY LOGS");
    let bytes = logs.lines().filter_map(|line| line.split('\t').nth(1)?.parse::<u64>().ok());
    bytes.sum::<u64>() >> 20
}

/// The binlog has only the statement that calls the function, or fires the trigger.
#[test]
fn statements_with_a_lost_table_that_a_function_made_are_refused() {
    let site = Site::plain();
    site.both("SET GLOBAL log_bin_trust_function_creators=1");
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.x (a INT); INSERT INTO d.x VALUES (1); \
         CREATE TABLE d.fires (a INT)",
    );
    let makes = "BEGIN CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (10); RETURN 1; END";
    let trigger = "BEGIN CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (20); END";
    site.source.sql(&format!(
        "DELIMITER //\nCREATE FUNCTION d.f() RETURNS INT MODIFIES SQL DATA {makes} //\n\
         CREATE TRIGGER d.tr BEFORE INSERT ON d.fires FOR EACH ROW {trigger} //\nDELIMITER ;"
    ));
    let (mut one, mut two, mut three) = (session(&site), session(&site), session(&site));
    one.sql("DO f(); INSERT INTO t SELECT a FROM x");
    two.sql("INSERT INTO fires VALUES (1); INSERT INTO t SELECT a FROM x");
    three.sql(
        "INSERT INTO t VALUES (CONNECTION_ID() * 100); CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (30)",
    );
    site.catch_up(&["--start", "earliest"]).assert_says(&["makes temporary tables", "SELECT `d`.`f`()"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.temporary_table WHERE table_name = ''"), "2");
    // Other sessions, and what uses none of them, go on.
    three.sql("INSERT INTO t SELECT a FROM x; INSERT INTO t VALUES (CONNECTION_ID() * 100 + 1)");
    one.sql("INSERT INTO t VALUES (2)");
    site.catch_up(&[]);
    site.assert_identical();
    // A session's end is the end of its tables.
    drop(two);
    wait_until("the end of the session", || {
        site.catch_up(&[]);
        site.replica.sql("SELECT COUNT(*) FROM spate.temporary_table WHERE table_name = ''") == "1"
    });
    one.sql("INSERT INTO t SELECT a + 2 FROM x");
    for _ in 0..2 {
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["INSERT INTO t SELECT a + …", "functions or triggers have made"]);
    }
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t WHERE id = 3"), "0");
}

/// Their names are not known, so the tables end with the applier's session.
#[test]
fn temporary_tables_of_functions_end_with_the_source() {
    let mut site = Site::plain();
    site.both("SET GLOBAL log_bin_trust_function_creators=1");
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.x (a INT); INSERT INTO d.x VALUES (1)");
    let makes = "BEGIN CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (10); RETURN 1; END";
    site.source
        .sql(&format!("DELIMITER //\nCREATE FUNCTION d.f() RETURNS INT MODIFIES SQL DATA {makes} //\nDELIMITER ;"));
    // Many sessions, so that one of the same number comes after the restart.
    let mut sessions: Vec<Session> = (0..8).map(|_| session(&site)).collect();
    for session in &mut sessions {
        session.sql("DO f()");
    }
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    site.wait_applied();
    // They log no end.
    site.source.kill();
    site.source.begin();
    for number in 0..20 {
        session(&site).sql(&format!("INSERT INTO t SELECT a + {number} FROM x"));
    }
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT MAX(id) FROM d.t; SELECT COUNT(*) FROM spate.temporary_table"), "20\n0");
    drop(sessions);
}

/// Sessions of two servers that have the same number, as in the binlog of a replica of both.
#[test]
fn temporary_tables_of_two_servers_are_refused() {
    let site = Site::plain();
    site.source.sql("SET GLOBAL binlog_format=STATEMENT");
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.x (a INT); CREATE TABLE d.t (a INT)");
    site.catch_up(&["--start", "earliest"]);
    let mut first = Session::open(&site.source);
    first
        .sql("SET server_id=8, pseudo_thread_id=77; USE d; CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (1)");
    site.source.sql("SET server_id=8, pseudo_thread_id=78; INSERT INTO d.t VALUES (1)");
    site.source.sql("SET server_id=9, pseudo_thread_id=77; INSERT INTO d.x VALUES (2)");
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&["of the server 8", "of the server 9"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t; SELECT COUNT(*) FROM d.x"), "1\n0");
}

/// A version of Spate before documents were kept has made the table.
#[test]
fn schema_of_an_earlier_version_gets_room_for_documents() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)");
        site.catch_up(&["--start", "earliest"]);
        site.replica.sql("ALTER TABLE spate.temporary_row DROP COLUMN documents");
        let mut session = session(&site);
        session.sql("CREATE TEMPORARY TABLE x (a INT, j JSON) ENGINE=InnoDB; INSERT INTO x VALUES (1, '{\"a\": 1}')");
        site.catch_up(&[]);
        session.sql("INSERT INTO t SELECT a, j FROM x");
        site.catch_up(&[]);
        site.assert_identical();
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "1");
    }
}
